//! SHA3-256, one message at a time or many beside each other.

use std::fmt;

use sha3::{Digest, Sha3_256};

use crate::lanes;

/// A digest of 32 bytes: of an object, a transaction, a checkpoint, a leaf, a state. Also an id of an object.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// All zeros: the root of nothing under v2, and a child that is not there.
    pub const ZERO: Hash = Hash([0; 32]);

    /// SHA3-256 of parts, one behind the other.
    pub fn of(parts: &[&[u8]]) -> Hash {
        let mut digest = Sha3_256::new();
        parts.iter().for_each(|part| digest.update(part));
        Hash(digest.finalize().into())
    }

    /// Those of many messages. Messages of about the same length beside each other are cheapest.
    pub fn of_each<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Vec<Hash> {
        lanes::hash_each(messages)
    }

    /// From exactly 32 bytes.
    pub fn from_slice(bytes: &[u8]) -> Option<Hash> {
        bytes.try_into().ok().map(Hash)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The half byte at a depth, the high one of a byte first.
    pub fn nibble(&self, depth: usize) -> usize {
        let byte = self.0.get(depth / 2).copied().unwrap_or(0);
        usize::from(if depth.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
