//! The free-space map in memory: which pages of the segment region hold nothing.
//!
//! Invariants
//! - Free extents never touch each other; giving one back joins it with its neighbours, but for those on either side of the
//!   high-water mark that superblocks know: a walk by theirs must not be led beyond it.
//! - Pages from `raw_start` to `raw_end` are past the high-water mark: no walk sees them, and taking from
//!   them moves the mark.
//! - What is here may be written at once. Extents that a durable superblock or a reader may still need are kept
//!   elsewhere until they may be given back.

use std::collections::BTreeMap;

use crate::extent::Extent;

/// Free pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    free: BTreeMap<u64, u64>,
    raw_start: u64,
    raw_end: u64,
    /// The high-water mark of the superblocks.
    durable: u64,
}

/// A taken extent, and what is left of the free extent it was cut from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) extent: Extent,
    pub(crate) rest: Option<Extent>,
}

impl Space {
    /// Everything in `[start, raw_start)` that is in none of `used` is free.
    pub(crate) fn complement(
        start: u64,
        raw_start: u64,
        raw_end: u64,
        used: &mut [Extent],
    ) -> Space {
        let mut space = Space { free: BTreeMap::new(), raw_start, raw_end, durable: raw_start };
        used.sort_unstable();
        let mut at = start;
        for extent in used.iter() {
            if extent.start_page > at {
                space.free.insert(at, extent.start_page - at);
            }
            at = at.max(extent.end_page());
        }
        if raw_start > at {
            space.free.insert(at, raw_start - at);
        }
        space
    }

    /// Takes from the smallest free extent that is large enough, if possible what is warm.
    pub(crate) fn take(&mut self, pages: u64, is_warm: impl Fn(Extent) -> bool) -> Option<Taken> {
        let fitting = self.free.iter().filter(|(_, count)| **count >= pages);
        let (&start, &count) = fitting
            .min_by_key(|&(&start, &count)| (!is_warm(Extent::new(start, pages)), count, start))?;
        self.free.remove(&start);
        let rest = (count > pages).then(|| Extent::new(start + pages, count - pages));
        if let Some(rest) = rest {
            self.free.insert(rest.start_page, rest.page_count);
        }
        Some(Taken { extent: Extent::new(start, pages), rest })
    }

    /// Takes a free extent whole.
    pub(crate) fn take_at(&mut self, extent: Extent) {
        let taken = self.free.remove(&extent.start_page);
        debug_assert_eq!(taken, Some(extent.page_count));
    }

    /// Takes from past the high-water mark.
    pub(crate) fn take_raw(&mut self, pages: u64) -> Option<Extent> {
        if self.raw_end - self.raw_start < pages {
            return None;
        }
        let extent = Extent::new(self.raw_start, pages);
        self.raw_start += pages;
        Some(extent)
    }

    /// Both superblocks have the high-water mark.
    pub(crate) fn note_durable(&mut self) {
        let before = std::mem::replace(&mut self.durable, self.raw_start);
        if let Some(count) = self.free.remove(&before) {
            self.give_back(Extent::new(before, count));
        }
    }

    /// Puts back what was taken last from past the high-water mark.
    pub(crate) fn put_raw_back(&mut self, extent: Extent) {
        debug_assert_eq!(extent.end_page(), self.raw_start);
        self.raw_start = extent.start_page;
    }

    /// The file has grown: raw pages now end here.
    pub(crate) fn set_raw_end(&mut self, page: u64) {
        self.raw_end = page;
    }

    /// Lowers the high-water mark to the end of what is used.
    pub(crate) fn lower_high_water(&mut self) {
        if let Some((&start, &count)) = self.free.last_key_value()
            && start + count == self.raw_start
        {
            self.free.remove(&start);
            self.raw_start = start;
        }
    }

    /// The high-water mark.
    pub(crate) fn high_water(&self) -> u64 {
        self.raw_start
    }

    /// Pages past the high-water mark.
    pub(crate) fn raw_pages(&self) -> u64 {
        self.raw_end - self.raw_start
    }

    /// Free pages below the high-water mark.
    pub(crate) fn free_pages(&self) -> u64 {
        self.free.values().sum()
    }

    /// Free extents below the high-water mark, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.free.iter().map(|(&start, &count)| Extent::new(start, count))
    }

    /// Returns an extent, and gives the joined extent it became part of.
    pub(crate) fn give_back(&mut self, extent: Extent) -> Extent {
        let mut joined = extent;
        if let Some((&start, &count)) = self.free.range(..extent.start_page).next_back()
            && start + count == extent.start_page
            && extent.start_page != self.durable
        {
            self.free.remove(&start);
            joined = Extent::new(start, count + extent.page_count);
        }
        if extent.end_page() != self.durable
            && let Some(count) = self.free.remove(&extent.end_page())
        {
            joined.page_count += count;
        }
        self.free.insert(joined.start_page, joined.page_count);
        joined
    }
}
