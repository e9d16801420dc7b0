//! The value of `block_index_by_hash`: where a block stands.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | height, u64le |
//! | 8 | 32 | prev_hash |
//! | 40 | 1 | status |
//! | 41 | 2 | cumulative_work_len, u16le |
//! | 43 | .. | cumulative_work, big-endian without leading zeros |

use ledger::{Malformed, Reader, Writer};

use crate::hash::Hash;
use crate::work::Work;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Its header chain is known, its body was not validated.
    Unknown,
    /// It was validated and applied at least once.
    Valid,
    /// It is invalid; nothing says why.
    Invalid,
    /// Its parent is not known.
    Orphaned,
    /// Its header is invalid.
    InvalidHeader,
    /// A block before it is invalid.
    InvalidAncestry,
    /// Its body is invalid.
    InvalidBody,
}

impl Status {
    /// All, by the byte that stands for them.
    pub const ALL: [Status; 7] = [
        Status::Unknown,
        Status::Valid,
        Status::Invalid,
        Status::Orphaned,
        Status::InvalidHeader,
        Status::InvalidAncestry,
        Status::InvalidBody,
    ];

    /// Its byte.
    pub fn byte(self) -> u8 {
        Status::ALL.iter().zip(0..).find(|(one, _)| **one == self).map_or(0, |(_, byte)| byte)
    }

    /// The status of a byte.
    pub fn of(byte: u8) -> Option<Status> {
        Status::ALL.get(usize::from(byte)).copied()
    }

    /// No block may stand on it.
    pub fn is_invalid(self) -> bool {
        !matches!(self, Status::Unknown | Status::Valid | Status::Orphaned)
    }

    /// Its name in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Status::Unknown => "UNKNOWN",
            Status::Valid => "VALID",
            Status::Invalid => "INVALID",
            Status::Orphaned => "ORPHANED",
            Status::InvalidHeader => "INVALID_HEADER",
            Status::InvalidAncestry => "INVALID_ANCESTRY",
            Status::InvalidBody => "INVALID_BODY",
        }
    }
}

/// Where a block stands. Of one that is invalid or orphaned, height and work mean nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockIndex {
    /// Blocks before it on its chain.
    pub height: u64,
    /// The block before it.
    pub prev_hash: Hash,
    /// What is known of it.
    pub status: Status,
    /// Work of its chain, its own too.
    pub work: Work,
}

impl BlockIndex {
    /// Decodes one; nothing may be left over.
    pub fn decode(bytes: &[u8]) -> Result<BlockIndex, Malformed> {
        let mut reader = Reader::new(bytes);
        let height = reader.u64_le()?;
        let prev_hash = Hash(reader.array()?);
        let status = reader.u8()?;
        let status = Status::of(status).ok_or(reader.malformed("no such status"))?;
        let len = usize::from(reader.u16_le()?);
        let work = Work::from_bytes(reader.bytes(len)?)
            .ok_or(reader.malformed("work has leading zeros"))?;
        reader.finish()?;
        Ok(BlockIndex { height, prev_hash, status, work })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let work = self.work.to_bytes();
        let mut writer = Writer::with_capacity(43 + work.len());
        writer.u64_le(self.height).bytes(&self.prev_hash.0).u8(self.status.byte());
        // Of 65,536 bytes of work nobody will ever hear.
        writer.u16_le(u16::try_from(work.len()).unwrap_or(u16::MAX)).bytes(&work);
        writer.finish()
    }
}
