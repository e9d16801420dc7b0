//! Journal entries (seed 002 section 7): a ring of fixed-size entries, none of which straddles a page.
//!
//! A Commit entry has no key and no slot; those fields carry what recovery likes to know: `index_pageid` the
//! highest seqno known synced, `slot_idx` the segment that held the end of the log, `hash64` the bucket's
//! uuid folded, so that an entry of another bucket is never taken for ours.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{on_disk, read_sealed, seal};

/// A key that was not in the index.
pub const INDEX_INSERT: u8 = 1;
/// A key whose record moved on.
pub const INDEX_UPDATE: u8 = 2;
/// A key that is gone.
pub const INDEX_DELETE: u8 = 3;
/// Everything up to `seqno` is committed.
pub const COMMIT: u8 = 4;

on_disk! {
    /// One entry of the ring.
    pub struct JournalEntry (52 bytes) {
        /// [`INDEX_INSERT`], [`INDEX_UPDATE`], [`INDEX_DELETE`] or [`COMMIT`].
        pub kind: u8,
        /// Zeros.
        pub reserved: [u8; 7],
        /// Seqno of the mutation.
        pub seqno: U64,
        /// Hash of the key.
        pub hash64: U64,
        /// Page of the key's home slot.
        pub index_pageid: U64,
        /// Home slot within that page.
        pub slot_idx: U64,
        /// Start of the record, or 0 for a tombstone; of a Commit: end of the log.
        pub record_paddr: U64,
        /// CRC-32C of all fields above.
        pub crc32c: U32,
    }
}

impl JournalEntry {
    /// Sets the CRC.
    pub fn seal(mut self) -> Self {
        seal(self.as_mut_bytes());
        self
    }

    /// Decodes and checks CRC and kind.
    pub fn decode(bytes: &[u8]) -> Option<JournalEntry> {
        let entry: JournalEntry = read_sealed(bytes)?;
        matches!(entry.kind, INDEX_INSERT | INDEX_UPDATE | INDEX_DELETE | COMMIT).then_some(entry)
    }
}

/// How many entries fit a page.
pub const fn entries_per_page(page_size: u64) -> u64 {
    page_size / JournalEntry::SIZE as u64
}
