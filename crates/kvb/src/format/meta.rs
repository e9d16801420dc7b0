//! The head of an extent of derived data: an index image, a segment table, a segment's side data.
//!
//! It stands at byte 128 of the extent's first page, behind the segment header and the zeros that tell a walk
//! of the seed that there is no record. Sections are byte ranges of the extent under CRCs of their own.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::{crc, on_disk, read};

/// `magic` of the head: `KVBM` read as little-endian.
pub const MAGIC: u32 = 0x4D42_564B;
/// Offset in the extent.
pub const OFFSET: usize = 128;

/// The extent holds an index image from its second page on.
pub const KIND_IMAGE: u16 = 1;
/// The extent holds a sealed segment's run, filter and key directory.
pub const KIND_SIDE: u16 = 2;
/// The extent holds the segment table.
pub const KIND_TABLE: u16 = 3;

/// Section of run entries, ordered by slot hash, then key, then seqno from new to old.
pub const SECTION_RUN: u32 = 1;
/// Section of filter words over the run's slot hashes.
pub const SECTION_FILTER: u32 = 2;
/// Section of a key directory.
pub const SECTION_DIRECTORY: u32 = 4;
/// Section of MACs: of the head, and of every other section in order.
pub const SECTION_MAC: u32 = 5;
/// Section with a copy of the segment's salt.
pub const SECTION_SALT: u32 = 6;
/// Bytes of a MAC.
pub const MAC_LEN: usize = 16;
/// Section of segment entries.
pub const SECTION_TABLE: u32 = 3;

on_disk! {
    /// Head of the derived data; sections, then a CRC-32C of it all, follow.
    pub struct MetaHead (64 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// What the extent holds.
        pub kind: U16,
        /// How many sections follow.
        pub section_count: U16,
        /// The bucket's.
        pub file_uuid_hi: U64,
        /// The bucket's.
        pub file_uuid_lo: U64,
        /// Image id, table id, or the owning segment's id.
        pub id: U64,
        /// Index pages of an image, entries of a table, records of a segment.
        pub count: U64,
        /// Keys in an image.
        pub used: U64,
        /// An image holds every record up to this seqno; a segment's first seqno.
        pub seqno: U64,
        /// Pages of the extent.
        pub page_count: U64,
    }
}

on_disk! {
    /// A byte range of the extent.
    pub struct Section (24 bytes) {
        /// What it holds.
        pub kind: U32,
        /// CRC-32C of its bytes.
        pub crc32c: U32,
        /// Offset from the start of the extent.
        pub offset: U64,
        /// Length in bytes.
        pub length: U64,
    }
}

/// A decoded head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The head.
    pub head: MetaHead,
    /// Its sections.
    pub sections: Vec<Section>,
}

/// Where the first section starts for so many sections, rounded up to 64 bytes.
pub const fn body_offset(sections: usize) -> usize {
    (OFFSET + MetaHead::SIZE + sections * Section::SIZE + 4).next_multiple_of(64)
}

impl Meta {
    /// Encodes head, sections and CRC, to be placed at [`OFFSET`].
    pub fn encode(&self) -> Vec<u8> {
        let mut head = self.head;
        head.magic = U32::new(MAGIC);
        head.section_count = U16::new(self.sections.len() as u16);
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend_from_slice(self.sections.as_bytes());
        bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes the head in an extent's first bytes.
    pub fn decode(extent: &[u8], kind: u16, uuid: (u64, u64)) -> Option<Meta> {
        let bytes = extent.get(OFFSET..)?;
        let head: MetaHead = read(bytes)?;
        if head.magic.get() != MAGIC
            || head.kind.get() != kind
            || (head.file_uuid_hi.get(), head.file_uuid_lo.get()) != uuid
        {
            return None;
        }
        let end = MetaHead::SIZE + usize::from(head.section_count.get()) * Section::SIZE;
        let covered = bytes.get(..end)?;
        if crc(covered).to_le_bytes() != bytes.get(end..end + 4)? {
            return None;
        }
        let sections = covered.get(MetaHead::SIZE..)?;
        Some(Meta {
            head,
            sections: sections.chunks_exact(Section::SIZE).filter_map(read).collect(),
        })
    }

    /// Place of the section of this kind among all.
    pub fn place(&self, kind: u32) -> Option<usize> {
        self.sections.iter().position(|section| section.kind.get() == kind)
    }

    /// The section of this kind.
    pub fn section(&self, kind: u32) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind.get() == kind)
    }
}
