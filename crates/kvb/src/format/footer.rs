//! The segment footer (seed 002 section 9), right behind the last record of a sealed segment.
//!
//! Its every-64th pairs are points to resynchronise and to split work at; they cannot rebuild an index.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{crc, on_disk, read};

/// One pair for so many records.
pub const STRIDE: u64 = 64;

on_disk! {
    /// Head of the footer; the pairs and a CRC-32C of it all follow.
    pub struct FooterHead (28 bytes) {
        /// The segment's id.
        pub seg_id: U64,
        /// Seqno of the last record.
        pub last_seqno: U64,
        /// Bytes of records that were live when the segment was sealed, best effort.
        pub live_bytes: U64,
        /// How many pairs follow.
        pub sparse_index_n: U32,
    }
}

on_disk! {
    /// One pair of the sparse mini-index.
    pub struct SparsePair (16 bytes) {
        /// The record's hash.
        pub hash64: U64,
        /// Where the record starts.
        pub paddr: U64,
    }
}

/// A decoded footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footer {
    /// The segment's id.
    pub seg_id: u64,
    /// Seqno of the last record.
    pub last_seqno: u64,
    /// Live bytes at seal time.
    pub live_bytes: u64,
    /// Every [`STRIDE`]th record.
    pub pairs: Vec<SparsePair>,
}

/// How many pairs a segment of so many records has.
pub const fn pair_count(records: u64) -> u64 {
    records.div_ceil(STRIDE)
}

/// How many bytes a footer for so many records takes.
pub const fn encoded_len(records: u64) -> u64 {
    FooterHead::SIZE as u64 + pair_count(records) * SparsePair::SIZE as u64 + 4
}

impl Footer {
    /// Encodes head, pairs and CRC.
    pub fn encode(&self) -> Vec<u8> {
        let head = FooterHead {
            seg_id: U64::new(self.seg_id),
            last_seqno: U64::new(self.last_seqno),
            live_bytes: U64::new(self.live_bytes),
            sparse_index_n: U32::new(self.pairs.len() as u32),
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(self.pairs.as_bytes());
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes the footer at the start of `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<Footer> {
        let head: FooterHead = read(bytes)?;
        let pair_bytes = (head.sparse_index_n.get() as usize).checked_mul(SparsePair::SIZE)?;
        let body = bytes.get(..pair_bytes.checked_add(FooterHead::SIZE + 4)?)?;
        let (covered, stored) = body.split_at_checked(body.len() - 4)?;
        if crc(covered).to_le_bytes() != stored {
            return None;
        }
        let pairs = covered.get(FooterHead::SIZE..)?;
        Some(Footer {
            seg_id: head.seg_id.get(),
            last_seqno: head.last_seqno.get(),
            live_bytes: head.live_bytes.get(),
            pairs: pairs.chunks_exact(SparsePair::SIZE).filter_map(read).collect(),
        })
    }
}
