//! A row of the state tree: an inner node with what is known of its children. Nobody else sees it.
//!
//! ```text
//! key    depth, u8 | the half bytes above it, two a byte, the last one padded with 0
//! value  u16le: which children there are | u16le: which of them are leaves | of each: its place if it is a leaf | its digest, 32
//! place  u8 0, id, 32 of an object | u8 1, id, 32, version, u64le | u8 2, path, 32 of a parameter
//! ```

use ledger::Writer;

use super::key;
use super::mcs::{Decoder, whole};
use crate::error::Rule;
use crate::hash::Hash;

/// Which entry a leaf is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// An object.
    Object(Hash),
    /// A version of one.
    Version(Hash, u64),
    /// A parameter, by its path: there are few of them.
    Param(Hash),
}

impl Place {
    /// The path of its key.
    pub fn path(&self) -> Hash {
        match self {
            Place::Object(id) => Hash::of(&[&key::object(id)]),
            Place::Version(id, version) => Hash::of(&[&key::version(id, *version)]),
            Place::Param(path) => *path,
        }
    }

    fn encode(&self, writer: &mut Writer) {
        match self {
            Place::Object(id) => {
                writer.u8(0).bytes(&id.0);
            }
            Place::Version(id, version) => {
                writer.u8(1).bytes(&id.0).u64_le(*version);
            }
            Place::Param(path) => {
                writer.u8(2).bytes(&path.0);
            }
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Place, Rule> {
        Ok(match decoder.u8()? {
            0 => Place::Object(Hash(decoder.array()?)),
            1 => Place::Version(Hash(decoder.array()?), decoder.u64()?),
            2 => Place::Param(Hash(decoder.array()?)),
            _ => return Err(Rule::BadBool),
        })
    }
}

/// What a node has at one of its sixteen places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Child {
    /// Nothing.
    #[default]
    Empty,
    /// One entry: which, and the digest of its leaf.
    Leaf(Place, Hash),
    /// A node with more than one below it: its digest.
    Inner(Hash),
}

impl Child {
    /// What the node above hashes of it.
    pub fn digest(&self) -> Hash {
        match self {
            Child::Empty => Hash::ZERO,
            Child::Leaf(_, digest) | Child::Inner(digest) => *digest,
        }
    }
}

/// The children of a node.
pub type Children = [Child; 16];

/// Longest key.
pub const KEY_MAX: usize = 33;

/// The key of the node above which a path has these many half bytes.
pub fn row_key(path: &Hash, depth: usize) -> ([u8; KEY_MAX], usize) {
    let mut key = [0; KEY_MAX];
    let len = 1 + depth.div_ceil(2);
    if let Some((first, rest)) = key.split_first_mut() {
        *first = u8::try_from(depth).unwrap_or(u8::MAX);
        for (to, from) in rest.iter_mut().zip(&path.0).take(len - 1) {
            *to = *from;
        }
        if !depth.is_multiple_of(2)
            && let Some(last) = rest.get_mut(len - 2)
        {
            *last &= 0xf0;
        }
    }
    (key, len)
}

/// The value of a node.
pub fn value(children: &Children) -> Vec<u8> {
    let (mut present, mut leaves) = (0_u16, 0_u16);
    for (at, child) in children.iter().enumerate() {
        match child {
            Child::Empty => {}
            Child::Leaf(..) => {
                present |= 1 << at;
                leaves |= 1 << at;
            }
            Child::Inner(_) => present |= 1 << at,
        }
    }
    let mut writer = Writer::with_capacity(256);
    writer.u16_le(present).u16_le(leaves);
    for child in children {
        match child {
            Child::Empty => {}
            Child::Leaf(place, digest) => {
                place.encode(&mut writer);
                writer.bytes(&digest.0);
            }
            Child::Inner(digest) => {
                writer.bytes(&digest.0);
            }
        }
    }
    writer.finish()
}

/// Reads such a value.
pub fn decode(bytes: &[u8]) -> Result<Children, Rule> {
    whole(bytes, |decoder| {
        let present = decoder.u16()?;
        let leaves = decoder.u16()?;
        if leaves & !present != 0 {
            return Err(Rule::BadBool);
        }
        let mut children = Children::default();
        for (at, child) in children.iter_mut().enumerate() {
            *child = match (present >> at & 1, leaves >> at & 1) {
                (0, _) => Child::Empty,
                (_, 0) => Child::Inner(Hash(decoder.array()?)),
                _ => Child::Leaf(Place::decode(decoder)?, Hash(decoder.array()?)),
            };
        }
        Ok(children)
    })
}

/// What stands above all nodes, as the store notes it.
pub fn top_value(top: &Child) -> Vec<u8> {
    let mut writer = Writer::new();
    match top {
        Child::Empty => {
            writer.u8(0);
        }
        Child::Leaf(place, digest) => {
            writer.u8(1);
            place.encode(&mut writer);
            writer.bytes(&digest.0);
        }
        Child::Inner(digest) => {
            writer.u8(2).bytes(&digest.0);
        }
    }
    writer.finish()
}

/// Reads that.
pub fn decode_top(bytes: &[u8]) -> Result<Child, Rule> {
    whole(bytes, |decoder| {
        Ok(match decoder.u8()? {
            0 => Child::Empty,
            1 => Child::Leaf(Place::decode(decoder)?, Hash(decoder.array()?)),
            2 => Child::Inner(Hash(decoder.array()?)),
            _ => return Err(Rule::BadBool),
        })
    })
}
