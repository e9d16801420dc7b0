//! The roster: which extents the log may be written to next, and which segments were sealed since the
//! segment table was written. It fills the rest of a superblock's page from byte 512.
//!
//! Recovery looks for unregistered records only in the named extents.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::{crc, on_disk, read};

/// `magic` of the roster: `KVBR` read as little-endian.
pub const MAGIC: u32 = 0x5242_564B;
/// Offset in the superblock's page.
pub const OFFSET: usize = 512;

/// `kind` of an extent the log may go to.
pub const NAMED_LOG: u32 = 0;
/// `kind` of an extent that compaction writes to. It counts only when it is registered.
pub const NAMED_OUTPUT: u32 = 1;
/// `flags` of a segment of moved records, which stand in key order and not in that of seqnos.
pub const SEGMENT_MOVED: u32 = 1 << 0;
/// `flags` of a segment of moved records that no image names: they hide older ones until those are free.
pub const SEGMENT_GUARD: u32 = 1 << 1;
/// All `flags` there are.
pub const SEGMENT_FLAGS: u32 = SEGMENT_MOVED | SEGMENT_GUARD;

on_disk! {
    /// Head of the roster; named extents, then segment entries, then a CRC-32C of it all follow.
    pub struct RosterHead (32 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// How many named extents follow.
        pub named_count: U16,
        /// How many segment entries follow those.
        pub sealed_count: U16,
        /// Equals the superblock's.
        pub epoch: U64,
        /// Equals the superblock's.
        pub file_uuid_hi: U64,
        /// Equals the superblock's.
        pub file_uuid_lo: U64,
    }
}

on_disk! {
    /// An extent the log may be written to before the next checkpoint.
    pub struct NamedExtent (24 bytes) {
        /// First page.
        pub start_page: U64,
        /// The id of the segment that may stand there.
        pub seg_id: U64,
        /// Length in pages.
        pub page_count: U32,
        /// [`NAMED_LOG`] or [`NAMED_OUTPUT`]. Others are refused.
        pub kind: U32,
    }
}

on_disk! {
    /// A registered segment: its data extent, and its side data in the extent right behind.
    pub struct SegmentEntry (96 bytes) {
        /// First page of the data extent.
        pub start_page: U64,
        /// Pages of the data extent.
        pub data_page_count: U32,
        /// Pages of the side data extent behind it.
        pub meta_page_count: U32,
        /// The segment's id.
        pub seg_id: U64,
        /// Lowest seqno in it: of the log, that of its first record.
        pub base_seqno: U64,
        /// Highest seqno in it.
        pub last_seqno: U64,
        /// Bytes of records known to be dead, best effort.
        pub dead_bytes: U64,
        /// Records in it.
        pub record_count: U32,
        /// Of [`SEGMENT_MOVED`] and [`SEGMENT_GUARD`]. Others are refused.
        pub flags: U32,
        /// Bytes of records.
        pub record_bytes: U64,
        /// Bytes of those that are DELETEs.
        pub delete_bytes: U64,
        /// Bytes of records that expire some day.
        pub expiring_bytes: U64,
        /// When the first of those expires.
        pub expires_first_ns: U64,
        /// When the last of those expires.
        pub expires_last_ns: U64,
    }
}

/// The decoded roster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roster {
    /// Extents the log may be written to.
    pub named: Vec<NamedExtent>,
    /// Segments sealed since the table.
    pub sealed: Vec<SegmentEntry>,
}

/// How many bytes a roster of these sizes takes.
pub const fn encoded_len(named: usize, sealed: usize) -> usize {
    RosterHead::SIZE + named * NamedExtent::SIZE + sealed * SegmentEntry::SIZE + 4
}

impl Roster {
    /// Encodes for the superblock with this epoch and uuid.
    pub fn encode(&self, epoch: u64, uuid: (u64, u64)) -> Vec<u8> {
        let head = RosterHead {
            magic: U32::new(MAGIC),
            named_count: U16::new(self.named.len() as u16),
            sealed_count: U16::new(self.sealed.len() as u16),
            epoch: U64::new(epoch),
            file_uuid_hi: U64::new(uuid.0),
            file_uuid_lo: U64::new(uuid.1),
        };
        let mut bytes = Vec::with_capacity(encoded_len(self.named.len(), self.sealed.len()));
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend_from_slice(self.named.as_bytes());
        bytes.extend_from_slice(self.sealed.as_bytes());
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes the roster of the superblock with this epoch and uuid, whose extension names this CRC.
    pub fn decode(bytes: &[u8], epoch: u64, uuid: (u64, u64), crc32c: u32) -> Option<Roster> {
        let head: RosterHead = read(bytes)?;
        if head.magic.get() != MAGIC
            || head.epoch.get() != epoch
            || (head.file_uuid_hi.get(), head.file_uuid_lo.get()) != uuid
        {
            return None;
        }
        let named_count = usize::from(head.named_count.get());
        let sealed_count = usize::from(head.sealed_count.get());
        let body = bytes.get(..encoded_len(named_count, sealed_count))?;
        let (covered, stored) = body.split_at_checked(body.len() - 4)?;
        if crc(covered).to_le_bytes() != stored || crc32c.to_le_bytes() != stored {
            return None;
        }
        let (named, sealed) =
            covered.get(RosterHead::SIZE..)?.split_at_checked(named_count * NamedExtent::SIZE)?;
        let named: Vec<NamedExtent> =
            named.chunks_exact(NamedExtent::SIZE).filter_map(read).collect();
        let sealed: Vec<SegmentEntry> =
            sealed.chunks_exact(SegmentEntry::SIZE).filter_map(read).collect();
        let known = named.iter().all(|extent| extent.kind.get() <= NAMED_OUTPUT)
            && sealed.iter().all(|entry| entry.flags.get() & !SEGMENT_FLAGS == 0);
        known.then_some(Roster { named, sealed })
    }
}
