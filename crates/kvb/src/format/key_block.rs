//! What a superblock's page says of the keys of an encrypted bucket, between extension and roster.
//!
//! It ends within the page's first sector, beside the superblock. Its MAC is over the whole page but for MAC and CRC
//! themselves, so a checkpoint that someone without the key has touched does not count.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::{on_disk, read_sealed, seal};

/// `magic` of the key block: `KVBE` read as little-endian.
pub const MAGIC: u32 = 0x4542_564B;
/// Offset in the superblock's page.
pub const OFFSET: usize = 336;
/// Offset of the MAC in the page. The CRC follows it.
const MAC_AT: usize = OFFSET + KeyBlock::SIZE - 4 - 16;

on_disk! {
    /// The keys of an encrypted bucket, by their ids and check values.
    pub struct KeyBlock (100 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// Bytes of this structure.
        pub length: U16,
        /// Number of the key that is used now: 1 at creation, one more with every rotation.
        pub key_no: U16,
        /// What the caller calls it.
        pub key_id: U64,
        /// Tells that a key is the right one.
        pub key_check: [u8; 16],
        /// Number of the key before, as long as anything is still under it; else 0.
        pub old_key_no: U16,
        /// Number of the key under which the pages of the image are.
        pub image_key_no: U16,
        /// Number of the key under which the segment table is.
        pub table_key_no: U16,
        /// Number of the key under which the dictionaries are.
        pub book_key_no: U16,
        /// What the caller calls the key before.
        pub old_key_id: U64,
        /// The same for the key before.
        pub old_key_check: [u8; 16],
        /// Random for every opening for writing; salts of segments are made of it.
        pub session_salt: [u8; 16],
        /// MAC of the page.
        pub mac: [u8; 16],
        /// CRC-32C of all fields above.
        pub crc32c: U32,
    }
}

const _: () = assert!(OFFSET + KeyBlock::SIZE <= 512);

impl KeyBlock {
    /// Decodes and checks the CRC.
    pub fn decode(page: &[u8]) -> Option<KeyBlock> {
        let block: KeyBlock = read_sealed(page.get(OFFSET..)?)?;
        let is_block =
            block.magic.get() == MAGIC && usize::from(block.length.get()) == KeyBlock::SIZE;
        (is_block && block.key_no.get() != 0).then_some(block)
    }

    /// Puts the block into a page that is otherwise whole, with the MAC that `mac` makes of the page's two parts.
    pub fn place(
        mut self,
        page: &mut [u8],
        mac: impl FnOnce(&[u8], &[u8]) -> [u8; 16],
    ) -> Option<()> {
        self.mac = [0; 16];
        page.get_mut(OFFSET..OFFSET + KeyBlock::SIZE)?.copy_from_slice(self.as_bytes());
        let (before, behind) = covered(page)?;
        self.mac = mac(before, behind);
        seal(self.as_mut_bytes());
        page.get_mut(OFFSET..OFFSET + KeyBlock::SIZE)?.copy_from_slice(self.as_bytes());
        Some(())
    }
}

/// What the MAC of a page is over: all before it, and all behind the CRC.
pub fn covered(page: &[u8]) -> Option<(&[u8], &[u8])> {
    Some((page.get(..MAC_AT)?, page.get(MAC_AT + 20..)?))
}
