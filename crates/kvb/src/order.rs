//! The records of one segment in the order of their keys.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::extent::Geometry;
use crate::format::directory::{self, DirectoryHead, STRIDE};
use crate::format::meta;
use crate::format::roster::SegmentEntry;
use crate::format::run::{DELETE_BIT, OFFSET_MAX};
use crate::hash::KeyHash;
use crate::key_sort::{Item, chunk, sort_by_key};
use crate::log::Log;
use crate::runs::SideData;
use crate::text::Text;

/// Most records that are loaded for a search among them, and how many bytes of each: header and key, mostly.
const TOUCH_MAX: usize = 2 * STRIDE;
const TOUCH_BYTES: usize = 128;

/// Where each record stands, by key, and of one key the newest first.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// As the segment's side data tells.
    Directory(Directory),
    /// Sorted in memory.
    Sorted(Sorted),
}

/// An order made in memory.
#[derive(Clone, Debug)]
pub(crate) struct Sorted {
    places: Arc<[u32]>,
    /// Records that have no place in it, because they are damaged and nobody knows their keys.
    lost: Arc<[u32]>,
}

impl Sorted {
    /// All places, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().chain(self.lost.iter()).copied()
    }
}

/// Where a record stands in its segment, and whether it is a DELETE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(pub(crate) u32);

impl Place {
    /// Offset from the start of the segment.
    #[inline]
    pub(crate) fn offset(self) -> u64 {
        u64::from(self.0 & OFFSET_MAX)
    }

    #[inline]
    pub(crate) fn is_delete(self) -> bool {
        self.0 & DELETE_BIT != 0
    }
}

/// A key directory, read through the mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    count: usize,
    /// Bytes that all keys begin with.
    skip: usize,
    offsets_at: u64,
    prefixes_at: u64,
    has_prefixes: bool,
    /// Where the first record is whose key can be read.
    first_at: Option<u64>,
}

impl Directory {
    /// Finds and checks the directory of a registered segment; `None` if it has none or it is damaged.
    pub(crate) fn load(
        log: &Log,
        geometry: Geometry,
        uuid: (u64, u64),
        entry: &SegmentEntry,
    ) -> Option<Directory> {
        let side = SideData::load(log, geometry, uuid, entry)?;
        let (at, bytes) = side.section(meta::SECTION_DIRECTORY)?;
        let has_prefixes = log.vault().is_none();
        let head = directory::decode_head(bytes, has_prefixes)?;
        let count = usize::try_from(head.count.get()).ok()?;
        let offsets_at = at + u64::try_from(DirectoryHead::SIZE).ok()?;
        if head.count != entry.record_count {
            return None;
        }
        let mut directory = Directory {
            count,
            skip: usize::try_from(head.skip.get()).ok()?,
            offsets_at,
            prefixes_at: offsets_at + u64::try_from(count * 4).ok()?,
            has_prefixes,
            first_at: None,
        };
        let start = geometry.paddr(entry.start_page.get());
        let places = (0..count).filter_map(|index| directory.place(log, index));
        let mut paddrs = places.map(|place| start + Place(place).offset());
        directory.first_at = paddrs.find(|paddr| log.try_record(*paddr).is_some());
        Some(directory)
    }

    #[inline]
    fn place(&self, log: &Log, index: usize) -> Option<u32> {
        if index >= self.count {
            return None;
        }
        let at = self.offsets_at + u64::try_from(index * 4).ok()?;
        let bytes = log.bytes(at, 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    }

    #[inline]
    fn prefix(&self, log: &Log, block: usize) -> u64 {
        let at = u64::try_from(block * 8).unwrap_or(u64::MAX).saturating_add(self.prefixes_at);
        let bytes = log.bytes(at, 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    }

    /// The records among which the first with a key at or past `key` is, if any is.
    fn narrow(&self, log: &Log, key: &[u8]) -> (usize, usize) {
        let Some(first_at) = self.first_at.filter(|_| self.has_prefixes) else {
            return (0, self.count);
        };
        if self.skip > 0 {
            let first = log.key(first_at);
            let common = first.get(..self.skip).unwrap_or(&first);
            match key.get(..self.skip).unwrap_or(key).cmp(common) {
                Ordering::Less => return (0, 0),
                Ordering::Greater => return (self.count, self.count),
                Ordering::Equal => {}
            }
        }
        let wanted = chunk(key, self.skip);
        let blocks = self.count.div_ceil(STRIDE);
        let reaches = partition(0, blocks, |block| self.prefix(log, block) < wanted);
        let passes = partition(reaches, blocks, |block| self.prefix(log, block) <= wanted);
        // The block before begins lower but may go on past the key.
        (reaches.saturating_sub(1) * STRIDE, (passes * STRIDE).min(self.count))
    }
}

/// First index in a range for which `is_before` is false, if it is true before and false behind.
fn partition(from: usize, to: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (from, to);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl Order {
    /// Sorts records at these places of the segment that starts at `start`, given in log order.
    pub(crate) fn sort(log: &Log, hash: &KeyHash, start: u64, places: &[u32]) -> Sorted {
        let paddr = |place: &u32| start + Place(*place).offset();
        let has_key = |place: &&u32| {
            let paddr = paddr(place);
            log.try_record(paddr).is_some() || log.plain_head(paddr, hash).is_some()
        };
        let (places, lost): (Vec<u32>, Vec<u32>) = places.iter().partition(has_key);
        let key = |id: u32| {
            let place = usize::try_from(id).ok().and_then(|at| places.get(at));
            place.map_or(Text::lent(&[]), |place| log.key(start + Place(*place).offset()))
        };
        let mut items: Vec<Item> =
            (0_u32..).take(places.len()).map(|id| (chunk(&key(id), 0), id)).collect();
        sort_by_key(&mut items, key);
        let place = |item: &Item| usize::try_from(item.1).ok().and_then(|at| places.get(at));
        Sorted { places: items.iter().filter_map(place).copied().collect(), lost: lost.into() }
    }

    /// Places of records that have none in the order.
    pub(crate) fn lost(&self) -> &[u32] {
        match self {
            Order::Directory(_) => &[],
            Order::Sorted(sorted) => &sorted.lost,
        }
    }

    /// How many records there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Order::Directory(directory) => directory.count,
            Order::Sorted(sorted) => sorted.places.len(),
        }
    }

    /// Where the record at this place in the order stands in the segment.
    #[inline]
    pub(crate) fn place(&self, log: &Log, index: usize) -> Option<Place> {
        match self {
            Order::Directory(directory) => directory.place(log, index).map(Place),
            Order::Sorted(sorted) => sorted.places.get(index).copied().map(Place),
        }
    }

    /// Place of the first record whose key is at or past `key`, or past it if `skip_equal`. Damaged ones are taken to be on
    /// the side that is about to be read, so that whoever reads there meets them.
    pub(crate) fn seek(
        &self,
        log: &Log,
        start: u64,
        key: &[u8],
        skip_equal: bool,
        is_reverse: bool,
    ) -> usize {
        let (from, to) = match self {
            Order::Directory(directory) => directory.narrow(log, key),
            Order::Sorted(sorted) => (0, sorted.places.len()),
        };
        // They are all asked for at once, or the search would wait for one after the other.
        if to - from <= TOUCH_MAX {
            let paddrs = (from..to).filter_map(|index| self.place(log, index));
            paddrs.for_each(|place| log.touch(start + place.offset(), TOUCH_BYTES));
        }
        let sound = |index| log.try_record(start + self.place(log, index)?.offset());
        let is_before = |index| {
            let found = match is_reverse {
                false => (index..to).find_map(sound),
                true => (from..=index).rev().find_map(sound),
            };
            let Some(found) = found else { return is_reverse };
            if skip_equal { found.key() <= key } else { found.key() < key }
        };
        partition(from, to, is_before)
    }
}
