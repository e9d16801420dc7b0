//! An entry of the index of versions: 41 bytes.

use super::mcs::whole;
use crate::error::Rule;
use crate::hash::Hash;

/// Bytes of an entry.
pub const LEN: usize = 41;

/// A version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The digest of the object in this version.
    pub digest: Hash,
    /// It was deleted.
    pub is_tombstone: bool,
    /// The checkpoint that wrote it.
    pub seq: u64,
}

impl Version {
    /// Reads an entry.
    pub fn decode(bytes: &[u8]) -> Result<Version, Rule> {
        whole(bytes, |decoder| {
            let digest = Hash(decoder.array()?);
            let is_tombstone = match decoder.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Rule::BadLifecycle),
            };
            Ok(Version { digest, is_tombstone, seq: decoder.u64()? })
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let (digest, rest) = bytes.split_at_mut(32);
        digest.copy_from_slice(&self.digest.0);
        if let Some((lifecycle, seq)) = rest.split_first_mut() {
            *lifecycle = u8::from(self.is_tombstone);
            seq.copy_from_slice(&self.seq.to_le_bytes());
        }
        bytes
    }
}
