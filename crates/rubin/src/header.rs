//! A block header: 116 bytes, the value of `headers_by_hash`.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | version, u32le |
//! | 4 | 32 | prev_block_hash |
//! | 36 | 32 | merkle_root |
//! | 68 | 8 | timestamp in seconds since 1970, u64le |
//! | 76 | 32 | target, big-endian |
//! | 108 | 8 | nonce, u64le |

use ledger::{Malformed, Reader, Writer};

use crate::hash::Hash;

/// A block header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the rules.
    pub version: u32,
    /// The block before.
    pub prev_hash: Hash,
    /// Over the transactions.
    pub merkle_root: Hash,
    /// Seconds since 1970.
    pub timestamp: u64,
    /// The hash must be less than this, as big-endian numbers.
    pub target: [u8; 32],
    /// What was searched for.
    pub nonce: u64,
}

impl Header {
    /// Bytes of one.
    pub const LEN: usize = 116;

    /// Reads one.
    pub fn read(reader: &mut Reader<'_>) -> Result<Header, Malformed> {
        Ok(Header {
            version: reader.u32_le()?,
            prev_hash: Hash(reader.array()?),
            merkle_root: Hash(reader.array()?),
            timestamp: reader.u64_le()?,
            target: reader.array()?,
            nonce: reader.u64_le()?,
        })
    }

    /// Decodes one; nothing may be left over.
    pub fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut reader = Reader::new(bytes);
        let header = Header::read(&mut reader)?;
        reader.finish()?;
        Ok(header)
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(Header::LEN);
        writer.u32_le(self.version).bytes(&self.prev_hash.0).bytes(&self.merkle_root.0);
        writer.u64_le(self.timestamp).bytes(&self.target).u64_le(self.nonce);
        writer.finish()
    }

    /// The hash of the block.
    pub fn hash(&self) -> Hash {
        Hash::of(&[&self.encode()])
    }
}
