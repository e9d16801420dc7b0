//! Proofs for StateRoot-v2, checked without a store: that an entry is in the state, or that a key is not.
//!
//! ```text
//! proof   u8 1 | u8 depth | of each node from the top: u16le which of the other children there are, their digests, 32 each
//!         | u8 what is at the end: 0 nothing, 1 the entry, 2 another one: bytes key, bytes value
//! ```
//!
//! What is at the end stands at the place where the path of the key leads. If that is the entry, it is there. If it is nothing, or an
//! entry whose path has the same beginning and goes on otherwise, nothing else can be there.

use ledger::Writer;

use crate::error::Rule;
use crate::format::mcs::{put_bytes, whole};
use crate::format::node::Children;
use crate::hash::Hash;
use crate::leaf;
use crate::root2::DEPTH_MAX;
use crate::settings::RootVersion;

/// What stands where the path of a key leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing.
    Nothing,
    /// The entry itself.
    Entry,
    /// Another entry.
    Other {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
}

/// That an entry is in the state, or that its key is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Of each node on the way, from the top: the digests of all children but the one that the way goes on with.
    pub(crate) nodes: Vec<[Hash; 16]>,
    /// What is at the end.
    pub end: End,
}

/// Why a proof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// Its bytes are no proof.
    #[error("this is no proof: {0}")]
    Format(Rule),
    /// It leads to another root.
    #[error("the proof leads to another root")]
    Root,
    /// It is about something else: that a key is there, or that it is not.
    #[error("the proof says the opposite")]
    Opposite,
    /// The other entry that it ends with is not where the path of the key leads.
    #[error("the entry at the end of the proof is not where the path of the key leads")]
    Elsewhere,
}

impl Proof {
    /// The other children of a node on the way.
    pub(crate) fn others(children: &Children, nibble: usize) -> [Hash; 16] {
        let mut digests = children.map(|child| child.digest());
        if let Some(own) = digests.get_mut(nibble) {
            *own = Hash::ZERO;
        }
        digests
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(1).u8(u8::try_from(self.nodes.len()).unwrap_or(u8::MAX));
        for others in &self.nodes {
            let present = others
                .iter()
                .enumerate()
                .filter(|(_, digest)| **digest != Hash::ZERO)
                .fold(0_u16, |present, (at, _)| present | 1 << at);
            writer.u16_le(present);
            for digest in others.iter().filter(|digest| **digest != Hash::ZERO) {
                writer.bytes(&digest.0);
            }
        }
        match &self.end {
            End::Nothing => {
                writer.u8(0);
            }
            End::Entry => {
                writer.u8(1);
            }
            End::Other { key, value } => {
                writer.u8(2);
                put_bytes(&mut writer, key);
                put_bytes(&mut writer, value);
            }
        }
        writer.finish()
    }

    /// Reads those bytes.
    pub fn decode(bytes: &[u8]) -> Result<Proof, Wrong> {
        let read = whole(bytes, |decoder| {
            if decoder.u8()? != 1 {
                return Err(Rule::BadFormatVersion);
            }
            let depth = usize::from(decoder.u8()?);
            if depth > DEPTH_MAX {
                return Err(Rule::Truncated);
            }
            let mut nodes = Vec::with_capacity(depth);
            for _ in 0..depth {
                let present = decoder.u16()?;
                let mut others = [Hash::ZERO; 16];
                for (at, digest) in others.iter_mut().enumerate() {
                    if present >> at & 1 == 1 {
                        *digest = Hash(decoder.array()?);
                        // One encoding of everything.
                        if *digest == Hash::ZERO {
                            return Err(Rule::BadBool);
                        }
                    }
                }
                nodes.push(others);
            }
            let end = match decoder.u8()? {
                0 => End::Nothing,
                1 => End::Entry,
                2 => {
                    End::Other { key: decoder.bytes()?.to_vec(), value: decoder.bytes()?.to_vec() }
                }
                _ => return Err(Rule::BadBool),
            };
            Ok(Proof { nodes, end })
        });
        read.map_err(Wrong::Format)
    }

    /// Checks that an entry is in the state with this root.
    pub fn check_there(&self, root: &Hash, key: &[u8], value: &[u8]) -> Result<(), Wrong> {
        if self.end != End::Entry {
            return Err(Wrong::Opposite);
        }
        self.check_way(root, &leaf::path(key), leaf::leaf(RootVersion::V2, key, value))
    }

    /// Checks that a key is not in the state with this root.
    pub fn check_absent(&self, root: &Hash, key: &[u8]) -> Result<(), Wrong> {
        let path = leaf::path(key);
        let end = match &self.end {
            End::Entry => return Err(Wrong::Opposite),
            End::Nothing => Hash::ZERO,
            End::Other { key: other, value } => {
                let other_path = leaf::path(other);
                let shared = (0..DEPTH_MAX)
                    .take_while(|depth| path.nibble(*depth) == other_path.nibble(*depth));
                if other == key || shared.count() < self.nodes.len() {
                    return Err(Wrong::Elsewhere);
                }
                leaf::leaf(RootVersion::V2, other, value)
            }
        };
        self.check_way(root, &path, end)
    }

    /// Goes up from what is at the end.
    fn check_way(&self, root: &Hash, path: &Hash, end: Hash) -> Result<(), Wrong> {
        let mut digest = end;
        for (depth, others) in self.nodes.iter().enumerate().rev() {
            let mut children = *others;
            let own = children.get_mut(path.nibble(depth)).ok_or(Wrong::Root)?;
            if *own != Hash::ZERO {
                return Err(Wrong::Root);
            }
            *own = digest;
            let parts: Vec<&[u8]> = std::iter::once([1].as_slice())
                .chain(children.iter().map(|child| child.0.as_slice()))
                .collect();
            digest = Hash::of(&parts);
        }
        if digest == *root { Ok(()) } else { Err(Wrong::Root) }
    }
}
