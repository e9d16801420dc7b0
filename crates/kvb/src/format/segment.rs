//! The segment header (seed 002 section 9), which begins every extent of the segment region.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{on_disk, read_sealed, seal};

/// The extent holds log records.
pub const FLAG_DATA: u64 = 1 << 0;
/// The extent is free.
pub const FLAG_FREE: u64 = 1 << 1;
/// The extent holds an index image, a segment table or a segment's side data.
pub const FLAG_META: u64 = 1 << 2;
/// The records were moved here by compaction: each is committed by itself, and they stand in key order.
pub const FLAG_MOVED: u64 = 1 << 3;
/// No image names the records: they hide older ones until those are free.
pub const FLAG_GUARD: u64 = 1 << 4;
/// Sixteen bytes of salt follow the header, and the records those.
pub const FLAG_SALTED: u64 = 1 << 32;
/// Where the number of the key stands that the records are under.
pub const KEY_NO_SHIFT: u32 = 16;
/// Bytes of the salt.
pub const SALT_LEN: usize = 16;
/// Flags a reader must understand; the low half may be ignored.
pub const FLAGS_REQUIRED: u64 = 0xFFFF_FFFF_0000_0000;

/// What an extent holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Log records.
    Data,
    /// Nothing.
    Free,
    /// Derived data.
    Meta,
}

on_disk! {
    /// First bytes of an extent; records follow at byte 52.
    pub struct SegmentHeader (52 bytes) {
        /// Never issued twice; of a segment's side data: the segment's; of a free extent: 0.
        pub seg_id: U64,
        /// Seqno of the first record; of moved records the lowest, once sealed.
        pub base_seqno: U64,
        /// When the segment was begun.
        pub start_unix_ns: U64,
        /// What the extent holds.
        pub flags: U64,
        /// The writing process.
        pub writer_pid: U32,
        /// Pages allotted, which is how far a walk hops while `segment_size` is 0.
        pub reserved: U32,
        /// Bytes with header, records and footer; 0 until sealed.
        pub segment_size: U64,
        /// CRC-32C of all fields above.
        pub header_crc32c: U32,
    }
}

impl SegmentHeader {
    /// Sets the CRC.
    pub fn seal(mut self) -> Self {
        seal(self.as_mut_bytes());
        self
    }

    /// Decodes and checks the CRC and that the flags name exactly one kind.
    pub fn decode(bytes: &[u8]) -> Option<SegmentHeader> {
        let header: SegmentHeader = read_sealed(bytes)?;
        header.kind().map(|_| header)
    }

    /// What the extent holds; `None` if the flags say nothing known.
    pub fn kind(&self) -> Option<Kind> {
        let flags = self.flags.get();
        if flags & FLAGS_REQUIRED & !FLAG_SALTED != 0 {
            return None;
        }
        match flags & (FLAG_DATA | FLAG_FREE | FLAG_META) {
            FLAG_DATA => Some(Kind::Data),
            FLAG_FREE => Some(Kind::Free),
            FLAG_META => Some(Kind::Meta),
            _ => None,
        }
    }

    /// True if a salt follows the header.
    pub fn is_salted(&self) -> bool {
        self.flags.get() & FLAG_SALTED != 0
    }

    /// Number of the key that the records are under; 0 if they are not encrypted.
    pub fn key_no(&self) -> u16 {
        (self.flags.get() >> KEY_NO_SHIFT) as u16
    }

    /// Where the first record stands.
    pub fn records_at(&self) -> u64 {
        (SegmentHeader::SIZE + if self.is_salted() { SALT_LEN } else { 0 }) as u64
    }

    /// True if the segment holds moved records.
    pub fn is_moved(&self) -> bool {
        self.flags.get() & FLAG_MOVED != 0
    }

    /// True if it holds moved records that no image names.
    pub fn is_guard(&self) -> bool {
        self.flags.get() & FLAG_GUARD != 0
    }

    /// A header for a free or side-data extent of this many pages, whose length is known at once.
    pub fn passive(kind: Kind, seg_id: u64, page_count: u64, page_size: u64) -> SegmentHeader {
        SegmentHeader {
            seg_id: U64::new(seg_id),
            base_seqno: U64::new(0),
            start_unix_ns: U64::new(0),
            flags: U64::new(match kind {
                Kind::Data => FLAG_DATA,
                Kind::Free => FLAG_FREE,
                Kind::Meta => FLAG_META,
            }),
            writer_pid: U32::new(0),
            reserved: U32::new(u32::try_from(page_count).unwrap_or(0)),
            segment_size: U64::new(page_count * page_size),
            header_crc32c: U32::new(0),
        }
        .seal()
    }

    /// How many pages a walk hops from this header; `None` if it says nothing usable.
    pub fn page_count(&self, page_size: u64) -> Option<u64> {
        let pages = match self.segment_size.get() {
            0 => u64::from(self.reserved.get()),
            size => size.checked_add(page_size - 1)? / page_size,
        };
        (pages > 0).then_some(pages)
    }
}
