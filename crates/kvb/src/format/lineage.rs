//! Where a copy comes from: which bucket it was made of, and up to which commit.
//!
//! It stands behind the key block, in the same sector. A bucket that is opened for writing goes its own way and loses it.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::{on_disk, read_sealed, seal};

/// `magic` of the lineage: `KVBL` read as little-endian.
pub const MAGIC: u32 = 0x4C42_564B;
/// Offset in the superblock's page.
pub const OFFSET: usize = 436;

on_disk! {
    /// Of what a bucket is a backup, or an increment of one.
    pub struct Lineage (44 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// Bytes of this structure.
        pub length: U16,
        /// Zeros.
        pub reserved: U16,
        /// The bucket it was made of.
        pub origin_uuid_hi: U64,
        /// The bucket it was made of.
        pub origin_uuid_lo: U64,
        /// It has what changed behind this seqno; 0 if it has everything.
        pub since: U64,
        /// It is of this commit.
        pub until: U64,
        /// CRC-32C of all fields above.
        pub crc32c: U32,
    }
}

const _: () = assert!(OFFSET + Lineage::SIZE <= 512);

impl Lineage {
    /// Sets the CRC.
    pub fn seal(mut self) -> Self {
        seal(self.as_mut_bytes());
        self
    }

    /// Decodes the lineage in a superblock's page.
    pub fn decode(page: &[u8]) -> Option<Lineage> {
        let lineage: Lineage = read_sealed(page.get(OFFSET..)?)?;
        let is_one =
            lineage.magic.get() == MAGIC && usize::from(lineage.length.get()) == Lineage::SIZE;
        is_one.then_some(lineage)
    }
}
