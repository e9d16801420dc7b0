//! Index pages (seed 002 section 8): a header, a power of two of 16-byte slots, and our digest of it all.
//!
//! The slots are under no CRC of the seed, and one flipped bit in a slot would be a silent "not found". So
//! behind the slots stands a 64-bit digest of the whole page, keyed by the image's id.

use std::slice::ChunksExact;

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::{on_disk, read_sealed, seal};

on_disk! {
    /// Head of an index page; the slots follow.
    pub struct IndexPageHeader (28 bytes) {
        /// Id of the image the page belongs to.
        pub page_uuid: U64,
        /// Slots in the page, a power of two.
        pub slots: U32,
        /// Slots in use.
        pub used: U32,
        /// The page's own number in the file.
        pub pageid: U64,
        /// CRC-32C of the fields above.
        pub crc32c: U32,
    }
}

on_disk! {
    /// One slot.
    pub struct IndexSlot (16 bytes) {
        /// 0 is empty, 1 a tombstone sentinel; see [`slot_hash`].
        pub hash64: U64,
        /// Start of the newest committed record.
        pub record_paddr: U64,
    }
}

/// `hash64` of an empty slot.
pub const EMPTY: u64 = 0;
/// `hash64` of a tombstone sentinel: skipped, and gone after the next merge.
pub const SENTINEL: u64 = 1;

/// The hash a key is indexed under: the two sentinel values move up by two.
#[inline]
pub fn slot_hash(hash64: u64) -> u64 {
    if hash64 <= SENTINEL { hash64 + 2 } else { hash64 }
}

/// Slots in a page: the largest power of two that fits beside header and digest; none in what is too short for a page.
pub const fn slots_per_page(page_size: u64) -> u64 {
    let around = (IndexPageHeader::SIZE + 16) as u64;
    match page_size.saturating_sub(around) / IndexSlot::SIZE as u64 {
        0 => 0,
        room => 1 << room.ilog2(),
    }
}

/// Offset of the digest in a page with so many slots.
pub const fn digest_offset(slots: u64) -> usize {
    IndexPageHeader::SIZE + slots as usize * IndexSlot::SIZE
}

/// Reads slot `slot` of a page.
#[inline]
pub fn slot(page: &[u8], slot: usize) -> Option<IndexSlot> {
    let at = IndexPageHeader::SIZE + slot * IndexSlot::SIZE;
    IndexSlot::read_from_bytes(page.get(at..at + IndexSlot::SIZE)?).ok()
}

/// The bytes of a page's slots from `first` on, slot by slot.
#[inline]
pub fn slots(page: &[u8], first: usize) -> ChunksExact<'_, u8> {
    let count = slots_per_page(page.len() as u64) as usize;
    let end = IndexPageHeader::SIZE + count * IndexSlot::SIZE;
    let bytes = page.get(IndexPageHeader::SIZE + first * IndexSlot::SIZE..end).unwrap_or(&[]);
    bytes.chunks_exact(IndexSlot::SIZE)
}

/// Hash and address in the bytes of a slot.
#[inline]
pub fn read_slot(bytes: &[u8]) -> (u64, u64) {
    match IndexSlot::read_from_bytes(bytes) {
        Ok(slot) => (slot.hash64.get(), slot.record_paddr.get()),
        Err(_) => (EMPTY, 0),
    }
}

/// Writes slot `slot` of a page that is not sealed yet.
pub fn set_slot(page: &mut [u8], slot: usize, value: IndexSlot) {
    let at = IndexPageHeader::SIZE + slot * IndexSlot::SIZE;
    if let Some(bytes) = page.get_mut(at..at + IndexSlot::SIZE) {
        bytes.copy_from_slice(value.as_bytes());
    }
}

/// Empties the slots of a page; what is behind the digest is zero and stays so.
pub fn clear(page: &mut [u8]) {
    let end = digest_offset(slots_per_page(page.len() as u64)) + 16;
    if let Some(bytes) = page.get_mut(..end) {
        bytes.fill(0);
    }
}

/// What makes a MAC of the two parts of a page, in an encrypted bucket.
pub type PageMac<'a> = Option<&'a dyn Fn(&[u8], &[u8]) -> [u8; 16]>;

/// What stands behind the slots: a digest of everything else in the page, or a MAC.
fn tag(page: &[u8], image_id: u64, at: usize, mac: PageMac<'_>) -> Option<([u8; 16], usize)> {
    let before = page.get(..at)?;
    if let Some(mac) = mac {
        return Some((mac(before, page.get(at + 16..)?), 16));
    }
    let head = xxh3_64_with_seed(before, image_id);
    let digest = xxh3_64_with_seed(page.get(at + 8..)?, head);
    Some((u128::from(digest).to_le_bytes(), 8))
}

/// Writes header and digest of a page of which `used` slots are set.
pub fn seal_page(
    page: &mut [u8],
    image_id: u64,
    pageid: u64,
    used: u32,
    mac: PageMac<'_>,
) -> Option<()> {
    let slots = slots_per_page(page.len() as u64);
    let mut header = IndexPageHeader {
        page_uuid: U64::new(image_id),
        slots: U32::new(slots as u32),
        used: U32::new(used),
        pageid: U64::new(pageid),
        crc32c: U32::new(0),
    };
    seal(header.as_mut_bytes());
    page.get_mut(..IndexPageHeader::SIZE)?.copy_from_slice(header.as_bytes());
    let at = digest_offset(slots);
    let (tag, len) = tag(page, image_id, at, mac)?;
    page.get_mut(at..at + len)?.copy_from_slice(tag.get(..len)?);
    Some(())
}

/// Checks header and digest of a page of the image with this id.
pub fn check_page(
    page: &[u8],
    image_id: u64,
    pageid: u64,
    mac: PageMac<'_>,
) -> Option<IndexPageHeader> {
    let header: IndexPageHeader = read_sealed(page)?;
    let slots = slots_per_page(page.len() as u64);
    let at = digest_offset(slots);
    let (tag, len) = tag(page, image_id, at, mac)?;
    let sound = header.page_uuid.get() == image_id
        && u64::from(header.slots.get()) == slots
        && u64::from(header.used.get()) <= slots
        && header.pageid.get() == pageid
        && page.get(at..at + len)? == tag.get(..len)?;
    sound.then_some(header)
}
