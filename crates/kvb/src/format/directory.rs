//! A key directory: the records of a sealed segment in the order of their keys.
//!
//! Head, then the offset of every record as 32 bits with the top one set for DELETEs, then eight key bytes of every [`STRIDE`]-th as a big-endian
//! number, so that a search touches few records. Bytes that all keys of the segment begin with are left out of those.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{on_disk, read};

/// One key in this many has its bytes in the directory.
pub const STRIDE: usize = 8;

on_disk! {
    /// Head of the directory.
    pub struct DirectoryHead (8 bytes) {
        /// Records in the segment.
        pub count: U32,
        /// Bytes that all its keys begin with.
        pub skip: U32,
    }
}

/// Key bytes in a directory of so many records.
pub const fn prefix_count(records: u64) -> u64 {
    records.div_ceil(STRIDE as u64)
}

/// Bytes of a directory of so many records without key bytes, as encrypted buckets have it.
pub const fn bare_len(records: u64) -> u64 {
    DirectoryHead::SIZE as u64 + records * 4
}

/// Bytes of a directory of so many records.
pub const fn encoded_len(records: u64) -> u64 {
    DirectoryHead::SIZE as u64 + records * 4 + prefix_count(records) * 8
}

/// Encodes a directory from offsets in key order and the key bytes of every [`STRIDE`]-th.
pub fn encode(skip: u32, offsets: &[U32], prefixes: &[U64]) -> Vec<u8> {
    let head = DirectoryHead { count: U32::new(offsets.len() as u32), skip: U32::new(skip) };
    let mut bytes = Vec::with_capacity(encoded_len(offsets.len() as u64) as usize);
    bytes.extend_from_slice(head.as_bytes());
    bytes.extend_from_slice(offsets.as_bytes());
    bytes.extend_from_slice(prefixes.as_bytes());
    bytes
}

/// Reads the head, if the length fits it, with or without key bytes.
pub fn decode_head(bytes: &[u8], has_prefixes: bool) -> Option<DirectoryHead> {
    let head: DirectoryHead = read(bytes)?;
    let records = u64::from(head.count.get());
    let len = if has_prefixes { encoded_len(records) } else { bare_len(records) };
    (len == bytes.len() as u64).then_some(head)
}
