//! A row of the state tree: an inner node with what is known of its children. Nobody else sees it.
//!
//! ```text
//! key    depth, u8 | the half bytes above it, two a byte, the last one padded with 0
//! value  u16le: which children there are | u16le: which of them are leaves | of each: its place if it is a leaf | its digest, 32
//! place  u8 0, id, 32 of an object | u8 1, id, 32, version, u64le | u8 2, path, 32 of a parameter
//! ```

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

    fn put(&self, bytes: &mut Vec<u8>) {
        let (kind, id) = match self {
            Place::Object(id) => (0, id),
            Place::Version(id, _) => (1, id),
            Place::Param(path) => (2, path),
        };
        bytes.push(kind);
        bytes.extend_from_slice(&id.0);
        if let Place::Version(_, version) = self {
            bytes.extend_from_slice(&version.to_le_bytes());
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
    let mut bytes = Vec::new();
    put_value(&mut bytes, children.iter().copied().enumerate());
    bytes
}

/// Adds the value of a node whose children are these, each with its place, in order.
pub fn put_value(bytes: &mut Vec<u8>, children: impl Iterator<Item = (usize, Child)>) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    let (mut present, mut leaves) = (0_u16, 0_u16);
    for (at, child) in children {
        match &child {
            Child::Empty => continue,
            Child::Leaf(place, _) => {
                leaves |= 1 << at;
                place.put(bytes);
            }
            Child::Inner(_) => {}
        }
        present |= 1 << at;
        bytes.extend_from_slice(&child.digest().0);
    }
    let head = present.to_le_bytes().into_iter().chain(leaves.to_le_bytes());
    for (to, from) in bytes.iter_mut().skip(start).zip(head) {
        *to = from;
    }
}

/// Reads such a value. Each child that there is goes to `take` with its place, in order.
pub fn read(bytes: &[u8], mut take: impl FnMut(usize, Child)) -> Result<(), Rule> {
    whole(bytes, |decoder| {
        let present = decoder.u16()?;
        let leaves = decoder.u16()?;
        if leaves & !present != 0 {
            return Err(Rule::BadBool);
        }
        for at in (0..16).filter(|at| present >> at & 1 == 1) {
            let child = match leaves >> at & 1 {
                0 => Child::Inner(Hash(decoder.array()?)),
                _ => Child::Leaf(Place::decode(decoder)?, Hash(decoder.array()?)),
            };
            take(at, child);
        }
        Ok(())
    })
}

/// The same, all places together.
pub fn decode(bytes: &[u8]) -> Result<Children, Rule> {
    let mut children = Children::default();
    read(bytes, |at, child| {
        if let Some(place) = children.get_mut(at) {
            *place = child;
        }
    })?;
    Ok(children)
}

/// What stands above all nodes, as the store notes it.
pub fn top_value(top: &Child) -> Vec<u8> {
    let mut bytes = Vec::new();
    match top {
        Child::Empty => return vec![0],
        Child::Leaf(place, _) => {
            bytes.push(1);
            place.put(&mut bytes);
        }
        Child::Inner(_) => bytes.push(2),
    }
    bytes.extend_from_slice(&top.digest().0);
    bytes
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
