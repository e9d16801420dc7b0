//! SHA3-256, and what it gives: 32 bytes, never reversed.

use std::fmt;
use std::str::FromStr;

use sha3::{Digest, Sha3_256};

/// A digest: of a block, a transaction, a chain.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// All zeros: the block before genesis.
    pub const ZERO: Hash = Hash([0; 32]);

    /// SHA3-256 of parts, one behind the other.
    pub fn of(parts: &[&[u8]]) -> Hash {
        let mut digest = Sha3_256::new();
        parts.iter().for_each(|part| digest.update(part));
        Hash(digest.finalize().into())
    }

    /// A digest of so many bytes; none if there are not 32.
    pub fn from_slice(bytes: &[u8]) -> Option<Hash> {
        bytes.try_into().ok().map(Hash)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl AsRef<[u8]> for Hash {
    fn as_ref(&self) -> &[u8] {
        &self.0
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

/// Not 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 hex digits")]
pub struct NotAHash;

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Hash, NotAHash> {
        let bytes = from_hex(text).ok_or(NotAHash)?;
        Hash::from_slice(&bytes).ok_or(NotAHash)
    }
}

/// Bytes from pairs of hex digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).ok()?;
        // Signs are digits to the standard library.
        u8::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'))
    };
    pairs.map(pair).collect()
}

/// Bytes as pairs of lower-case hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
