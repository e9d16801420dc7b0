//! A run: for every record of a sealed segment its hash, place and seqno, in 16 bytes.
//!
//! Runs bring an index image up to date after a crash and rebuild it when it is damaged.

use zerocopy::little_endian::{U32, U64};

use super::on_disk;

/// Bit of `offset` that says the record is a DELETE.
pub const DELETE_BIT: u32 = 1 << 31;
/// `seqno_delta` of a record too far from the segment's lowest seqno.
pub const DELTA_FAR: u32 = u32::MAX;
/// Largest offset a run can name.
pub const OFFSET_MAX: u32 = DELETE_BIT - 1;

on_disk! {
    /// One record of the segment.
    pub struct RunEntry (16 bytes) {
        /// The hash the key is indexed under.
        pub slot_hash: U64,
        /// Offset from the start of the segment; the top bit marks a DELETE.
        pub offset: U32,
        /// Seqno less the segment's lowest; [`DELTA_FAR`] if the record must be asked.
        pub seqno_delta: U32,
    }
}

impl RunEntry {
    /// Offset of the record from the start of the segment.
    pub fn record_offset(&self) -> u64 {
        u64::from(self.offset.get() & OFFSET_MAX)
    }

    /// True if the record is a DELETE.
    pub fn is_delete(&self) -> bool {
        self.offset.get() & DELETE_BIT != 0
    }
}
