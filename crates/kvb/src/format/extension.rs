//! The fixed extension behind the superblock: what the seed has no field for.
//!
//! It ends within the first 512-byte sector of its page, so superblock and extension reach the disk
//! together or not at all. It counts only if it repeats the superblock's epoch and uuid. It names the roster's CRC,
//! because a checkpoint that a crash cut off and the one that recovery writes in its place have the same epoch.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::{on_disk, read_sealed, seal};

/// `magic` of the extension: `KVBX` read as little-endian.
pub const MAGIC: u32 = 0x5842_564B;
/// Offset in the superblock's page.
pub const OFFSET: usize = 136;

/// XXH3-64.
pub const HASH_XXH3: u16 = 0;
/// SipHash-2-4 under `hash_key`.
pub const HASH_SIP: u16 = 1;
/// SipHash-2-4 under a key that `hash_key` hides.
pub const HASH_HIDDEN: u16 = 2;

on_disk! {
    /// Positions and settings beside the superblock.
    pub struct Extension (200 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// Bytes of this structure.
        pub length: U16,
        /// [`HASH_XXH3`], [`HASH_SIP`] or [`HASH_HIDDEN`].
        pub hash_kind: U16,
        /// Equals the superblock's.
        pub epoch: U64,
        /// Equals the superblock's.
        pub file_uuid_hi: U64,
        /// Equals the superblock's.
        pub file_uuid_lo: U64,
        /// The page this copy stands in.
        pub self_page: U64,
        /// The page superblock B stands in.
        pub b_page: U64,
        /// Highest seqno known synced; damage at or below it is never a torn tail.
        pub durable_seqno: U64,
        /// First seqno the named extents may hold; lower ones are registered or never existed.
        pub tail_seqno: U64,
        /// Every lower segment id may have been used.
        pub next_seg_id: U64,
        /// Newest time stamp given to a record.
        pub clock_unix_ns: U64,
        /// `page_uuid` of the current image's pages.
        pub image_id: U64,
        /// The image holds every record up to this seqno.
        pub image_seqno: U64,
        /// Segments of moved records up to this id are in the image.
        pub image_seg_id: U64,
        /// First page of the extent that holds the segment table, or 0.
        pub table_start_page: U64,
        /// Pages of that extent.
        pub table_page_count: U64,
        /// `image_id` of the segment table, so that a stale one is never taken for it.
        pub table_id: U64,
        /// Least index pages an image may have (what creation asked for).
        pub index_page_min: U64,
        /// Largest value in bytes.
        pub max_value: U32,
        /// Largest foreground segment in pages.
        pub segment_page_max: U32,
        /// Key of the keyed hash, or zeros.
        pub hash_key: [u8; 16],
        /// CRC-32C that ends the roster of this very checkpoint.
        pub roster_crc32c: U32,
        /// The page in which a writer tells readers of other processes where it is.
        pub bulletin_page: U64,
        /// Segments the image may name that are gone since it was written.
        pub image_gone: U64,
        /// First page of the extent that holds the dictionaries, or 0.
        pub book_start_page: U64,
        /// Highest seqno of a DELETE, or of an expired record, that compaction has dropped.
        pub dropped_seqno: U64,
        /// CRC-32C of all fields above.
        pub crc32c: U32,
    }
}

const _: () = assert!(OFFSET + Extension::SIZE <= 512);

impl Extension {
    /// Sets the CRC.
    pub fn seal(mut self) -> Self {
        seal(self.as_mut_bytes());
        self
    }

    /// Decodes the extension of the superblock with this epoch and uuid.
    pub fn decode(bytes: &[u8], epoch: u64, uuid: (u64, u64)) -> Option<Extension> {
        let extension: Extension = read_sealed(bytes)?;
        let matches = extension.magic.get() == MAGIC
            && usize::from(extension.length.get()) == Extension::SIZE
            && extension.epoch.get() == epoch
            && (extension.file_uuid_hi.get(), extension.file_uuid_lo.get()) == uuid;
        matches.then_some(extension)
    }
}
