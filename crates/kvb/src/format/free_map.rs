//! Pages of the free-space map (seed 002 section 10): a bitmap of pages and a list of large free runs.
//!
//! The map is derived: it is written at a clean close or flush, stamped with the epoch, and ignored when the
//! stamp is not the superblock's.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::{crc, on_disk, read};

/// `magic` of a page: `KVBF` read as little-endian.
pub const MAGIC: u32 = 0x4642_564B;

on_disk! {
    /// Head of a page; the bitmap and then the extents follow, and a CRC-32C ends the page.
    pub struct FreeMapHead (48 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// Extents listed in this page.
        pub extent_count: U32,
        /// The checkpoint this page belongs to.
        pub epoch: U64,
        /// The bucket's.
        pub file_uuid_lo: U64,
        /// The page's own number.
        pub pageid: U64,
        /// First page the bitmap speaks of; bit i is page `first_page + i`, 1 is free.
        pub first_page: U64,
        /// Pages the bitmap speaks of.
        pub page_count: U64,
    }
}

on_disk! {
    /// A large free run.
    pub struct FreeExtent (16 bytes) {
        /// First page.
        pub start_page: U64,
        /// Length in pages.
        pub page_count: U64,
    }
}

/// Bytes of bitmap in a page: three quarters of it.
pub const fn bitmap_len(page_size: u64) -> u64 {
    page_size / 4 * 3
}

/// Pages one map page speaks of.
pub const fn coverage(page_size: u64) -> u64 {
    bitmap_len(page_size) * 8
}

/// Encodes the map page `pageid` for pages from `first_page`, given all free extents in order.
pub fn encode(
    stamp: Stamp,
    pageid: u64,
    first_page: u64,
    page_size: u64,
    free: &[FreeExtent],
) -> Vec<u8> {
    let page_count = coverage(page_size);
    let mut page = vec![0; page_size as usize];
    let mut listed: Vec<FreeExtent> = Vec::new();
    let bitmap_at = FreeMapHead::SIZE;
    let list_at = bitmap_at + bitmap_len(page_size) as usize;
    let list_room = (page_size as usize - list_at - 4) / FreeExtent::SIZE;
    for extent in free {
        let start = extent.start_page.get().max(first_page);
        let end = (extent.start_page.get() + extent.page_count.get()).min(first_page + page_count);
        for bit in start..end {
            let at = bit - first_page;
            if let Some(byte) = page.get_mut(bitmap_at + (at / 8) as usize) {
                *byte |= 1 << (at % 8);
            }
        }
        if start < end && extent.start_page.get() >= first_page && listed.len() < list_room {
            listed.push(*extent);
        }
    }
    let head = FreeMapHead {
        magic: U32::new(MAGIC),
        extent_count: U32::new(listed.len() as u32),
        epoch: U64::new(stamp.epoch),
        file_uuid_lo: U64::new(stamp.uuid_lo),
        pageid: U64::new(pageid),
        first_page: U64::new(first_page),
        page_count: U64::new(page_count),
    };
    for (at, bytes) in [(0, head.as_bytes()), (list_at, listed.as_bytes())] {
        if let Some(target) = page.get_mut(at..at + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
    super::seal(&mut page);
    page
}

/// What ties a page to its checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The checkpoint's epoch.
    pub epoch: u64,
    /// The bucket's uuid, low half.
    pub uuid_lo: u64,
}

/// The stamp that a map page carries, whether it holds or not.
pub fn stamp_of(page: &[u8]) -> Option<Stamp> {
    let head: FreeMapHead = read(page)?;
    let stamp = Stamp { epoch: head.epoch.get(), uuid_lo: head.file_uuid_lo.get() };
    (head.magic.get() == MAGIC).then_some(stamp)
}

/// Decodes the free pages a map page tells of, if it is sound and carries the stamp.
pub fn decode(page: &[u8], stamp: Stamp, pageid: u64) -> Option<Vec<u64>> {
    let (covered, stored) = page.split_at_checked(page.len().checked_sub(4)?)?;
    let head: FreeMapHead = read(covered)?;
    let sound = crc(covered).to_le_bytes() == stored
        && head.magic.get() == MAGIC
        && head.epoch.get() == stamp.epoch
        && head.file_uuid_lo.get() == stamp.uuid_lo
        && head.pageid.get() == pageid
        && head.page_count.get() == coverage(page.len() as u64);
    if !sound {
        return None;
    }
    let bitmap = covered.get(FreeMapHead::SIZE..)?.get(..bitmap_len(page.len() as u64) as usize)?;
    let bits = (0_u64..)
        .zip(bitmap)
        .flat_map(|(at, byte)| (0..8).map(move |bit| (at * 8 + bit, byte >> bit & 1)));
    // A page number that does not exist makes the whole page one that nobody wrote.
    bits.filter(|(_, free)| *free == 1)
        .map(|(at, _)| head.first_page.get().checked_add(at))
        .collect()
}
