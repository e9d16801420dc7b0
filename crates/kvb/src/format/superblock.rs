//! The superblock (seed 002 section 6): the first 136 bytes of page 0 and of the last page.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::{on_disk, read_sealed, seal};

/// `magic` of every superblock; little-endian, so a file starts with `4b 42 56 4b`.
pub const MAGIC: u32 = 0x4B56_424B;
/// The major version this code writes and reads.
pub const VERSION_MAJOR: u16 = 1;
/// The minor version this code writes.
pub const VERSION_MINOR: u16 = 0;

/// Values may be zstd-compressed.
pub const FLAG_ZSTD: u64 = 1 << 0;
/// The extension of `extension.rs` stands behind the superblock.
pub const FLAG_EXTENSION: u64 = 1 << 1;
/// `hash64` is SipHash-2-4 under a key in the extension instead of XXH3-64.
pub const FLAG_SIPHASH: u64 = 1 << 2;
/// Sealed segments have no key directory.
pub const FLAG_NO_DIRECTORY: u64 = 1 << 3;
/// The lineage of `lineage.rs` stands behind the key block.
pub const FLAG_LINEAGE: u64 = 1 << 4;
/// Records are encrypted, and checkpoints, index and side data carry MACs.
pub const FLAG_ENCRYPTED: u64 = 1 << 32;
/// Some values need a dictionary.
pub const FLAG_DICTIONARY: u64 = 1 << 33;
/// What is here is only what changed since a backup.
pub const FLAG_INCREMENT: u64 = 1 << 34;
/// Flags a reader must understand; the low half may be ignored.
pub const FLAGS_REQUIRED: u64 = 0xFFFF_FFFF_0000_0000;
/// The required flags this code understands.
pub const FLAGS_KNOWN_REQUIRED: u64 = FLAG_ENCRYPTED | FLAG_DICTIONARY | FLAG_INCREMENT;

/// Smallest page size.
pub const PAGE_SIZE_MIN: u32 = 4096;
/// Largest page size.
pub const PAGE_SIZE_MAX: u32 = 65_536;

on_disk! {
    /// The root of a bucket. Two copies exist; the valid one with the greater epoch counts.
    pub struct Superblock (136 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// Incompatible changes.
        pub version_major: U16,
        /// Compatible changes.
        pub version_minor: U16,
        /// Bytes in a page, a power of two.
        pub page_size: U32,
        /// Random at creation.
        pub file_uuid_hi: U64,
        /// Random at creation.
        pub file_uuid_lo: U64,
        /// When the bucket was created.
        pub created_unix_ns: U64,
        /// Low half may be ignored, high half must be understood.
        pub flags: U64,
        /// First index page of the current image.
        pub index_region_start_page: U64,
        /// Index pages of the current image.
        pub index_region_page_count: U64,
        /// First page of the free-space map.
        pub fsm_start_page: U64,
        /// Pages of the free-space map.
        pub fsm_page_count: U64,
        /// First page of the journal ring.
        pub journal_start_page: U64,
        /// Pages of the journal ring.
        pub journal_page_count: U64,
        /// First page of the segment region.
        pub segment_start_page: U64,
        /// High-water mark of the segment region, exclusive.
        pub segment_end_page: U64,
        /// Highest durable seqno.
        pub commit_seqno: U64,
        /// Durable end of the log.
        pub commit_paddr: U64,
        /// Incremented per checkpoint.
        pub epoch: U64,
        /// CRC-32C of all fields above.
        pub crc32c: U32,
    }
}

/// Why bytes are not a superblock this code can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Not a superblock, or a damaged one.
    Damaged,
    /// A sound superblock of another major version.
    Version(u16),
    /// A sound superblock with required flags this code does not know.
    Flags(u64),
}

impl Superblock {
    /// Sets the CRC.
    pub fn seal(mut self) -> Self {
        seal(self.as_mut_bytes());
        self
    }

    /// Decodes and checks magic, CRC, version, flags and page size, in that order.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, Refused> {
        let block: Superblock = read_sealed(bytes).ok_or(Refused::Damaged)?;
        if block.magic.get() != MAGIC {
            return Err(Refused::Damaged);
        }
        if block.version_major.get() != VERSION_MAJOR {
            return Err(Refused::Version(block.version_major.get()));
        }
        let unknown = block.flags.get() & FLAGS_REQUIRED & !FLAGS_KNOWN_REQUIRED;
        if unknown != 0 {
            return Err(Refused::Flags(unknown));
        }
        let page_size = block.page_size.get();
        if !page_size.is_power_of_two() || !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page_size) {
            return Err(Refused::Damaged);
        }
        Ok(block)
    }
}
