//! Room in the file: pages that the keeper takes, keeps for later, and gives back.
//!
//! Invariants
//! - The pages from the segment region's start to the high-water mark of a durable superblock are always tiled
//!   by extents with valid headers. A free extent is cut by writing the header of the rest, syncing it, writing the
//!   header of what was taken, syncing that, and only then writing inside.
//! - What a checkpoint stops using becomes free only after both its superblocks are durable, and, for an image,
//!   only when no view holds it.
//! - Pages that were taken have their blocks: whoever writes there does not find out that the disk is full.

use std::io;
use std::sync::Arc;

use host::planted::{Bug, is_planted};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::free_map;
use crate::format::segment::Kind;
use crate::image::Image;
use crate::keeper::{Keeper, OUTPUT_PAGES_MIN};
use crate::mount::named_extent;
use crate::sealed::Sealed;
use crate::segment::write_passive;

/// Most a file grows at once, in bytes, beside what is asked for.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Least a file grows at once, in bytes.
const GROWTH_BYTES_MIN: u64 = 64 << 10;
/// Bytes a segment takes in the table, rounded up.
const TABLE_ENTRY_MAX: u64 = 96;
/// Of the pages of segments, one in so many may be free and still have its block.
const WARM_PART: u64 = 4;
/// Blocks are taken and given back in steps of this many bytes, so that no commit waits long for the file's lock.
const PUNCH_BYTES: u64 = if cfg!(test) { 16 << 10 } else { 4 << 20 };

/// Something a checkpoint stopped using.
#[derive(Debug)]
pub(crate) struct Retired {
    pub(crate) extent: Extent,
    /// Held by views for as long as someone may read it.
    pub(crate) image: Option<Arc<Image>>,
    /// The same, of a segment.
    pub(crate) sealed: Option<Arc<Sealed>>,
    /// Checkpoints from this epoch on do not name it.
    pub(crate) epoch: u64,
}

impl Retired {
    /// True if someone may still read it.
    fn is_held(&self) -> bool {
        self.image.as_ref().is_some_and(|image| Arc::strong_count(image) > 1)
            || self.sealed.as_ref().is_some_and(|sealed| {
                Arc::strong_count(sealed) > 1 || Arc::strong_count(&sealed.hold) > 1
            })
    }
}

impl Keeper {
    /// Takes pages for any use, growing the file if it must. Until the caller says otherwise they stay marked free.
    pub(crate) fn allot(&mut self, core: &Core, pages: u64) -> Result<Extent> {
        let Some(taken) = self.space.take(pages, |extent| self.warm.has(extent)) else {
            if self.space.raw_pages() < pages {
                self.grow(core, pages)?;
            }
            let extent = self.space.take_raw(pages).ok_or(Error::NoSpace)?;
            self.warm.forget(extent);
            if extent.end_page() > self.raw_warm_end {
                self.fill_raw(core, extent)?;
            }
            // Any checkpoint may come before the caller writes there, and its walk must find the way.
            write_passive(&*core.disk, core.geometry(), Kind::Free, extent)?;
            return Ok(extent);
        };
        debug_assert_eq!(self.user_of(taken.extent), None, "free pages that are used");
        // The header of the rest is about to be written, most likely into a hole.
        let heads = u64::from(taken.rest.is_some());
        let filled = Extent::new(taken.extent.start_page, taken.extent.page_count + heads);
        let is_warm = self.warm.has(filled);
        // Order: what is being filled must not be given back meanwhile.
        let known = self.warm.lift(filled);
        if !is_warm && let Err(error) = self.fill_holes(core, filled) {
            let joined = self.space.give_back(taken.extent);
            self.warm.put_back(known);
            self.give_up_filling(core, joined, filled, &error)?;
            return Err(error);
        }
        taken.rest.iter().for_each(|rest| self.warm.add_head(*rest));
        // Order: see the first invariant. The second sync is for extents that were joined in memory only: their old
        // headers inside must not be written over while the way still leads there.
        for extent in taken.rest.into_iter().chain([taken.extent]) {
            write_passive(&*core.disk, core.geometry(), Kind::Free, extent)?;
            let at = core.geometry().paddr(extent.start_page);
            core.disk.sync_range(at, 512).map_err(Error::io("sync a free extent"))?;
        }
        Ok(taken.extent)
    }

    /// What is known to use pages of an extent.
    fn user_of(&self, extent: Extent) -> Option<(&'static str, Extent)> {
        let segments = self.segments.values().map(|kept| ("a segment", kept.sealed.extent()));
        let named = self.named.iter().map(|named| ("the log or an output", named_extent(named)));
        let retired = self.retired.iter().map(|retired| ("what was given up", retired.extent));
        let others = [
            ("the image", Some(self.image.extent)),
            ("the table", self.table.map(|table| table.extent)),
            ("the dictionaries", self.book.map(|book| book.extent)),
            ("room for an image", self.image_spare),
            ("room for a table", self.table_spare),
        ];
        let others = others.into_iter().filter_map(|(what, extent)| Some((what, extent?)));
        let overlaps = |other: Extent| {
            other.start_page < extent.end_page() && extent.start_page < other.end_page()
        };
        let promised = self.promise.iter().map(|extent| ("what is promised", extent));
        let mut all = segments.chain(named).chain(retired).chain(others).chain(promised);
        all.find(|(_, other)| overlaps(*other))
    }

    /// Pages in the largest free place that have their blocks.
    pub(crate) fn warm_pages(&self) -> u64 {
        let raw_end = self.raw_warm_end.min(self.b_page);
        self.warm_pages_below().max(raw_end.saturating_sub(self.space.high_water()))
    }

    /// The same, of places below the high-water mark.
    pub(crate) fn warm_pages_below(&self) -> u64 {
        let promised = |extent: Extent| {
            let pages = self.warm.count_first(extent);
            // Whoever takes less than all of it needs one more for the header of the rest.
            if pages < extent.page_count { pages.saturating_sub(1) } else { pages }
        };
        self.space.iter().map(promised).max().unwrap_or(0)
    }

    /// The free place of which the most pages have their blocks, as far as they do.
    fn warm_extent(&self) -> Extent {
        let raw = self.space.high_water();
        let raw_end = self.raw_warm_end.min(self.b_page).max(raw);
        let first = |extent: Extent| Extent::new(extent.start_page, self.warm.count_first(extent));
        let all = self.space.iter().map(first).chain([Extent::new(raw, raw_end - raw)]);
        all.max_by_key(|extent| extent.page_count).unwrap_or(Extent::new(raw, 0))
    }

    /// Gives a free place its blocks, so that what counts as room is room: one of so many pages, or of fewer if the disk has no
    /// more, down to the least. If it has less than that, the place that had the most gets its blocks again.
    pub(crate) fn warm_up(&mut self, core: &Core, mut pages: u64, least: u64) -> Result<()> {
        let before = self.warm_extent();
        while self.warm_pages() < pages {
            match self.warm_up_all(core, pages) {
                Err(Error::NoSpace) if pages > least => pages = least.max(pages - pages / 4),
                Err(Error::NoSpace) => {
                    return self.warm_again(core, before).and(Err(Error::NoSpace));
                }
                done => return done,
            }
        }
        Ok(())
    }

    /// Gives a place back the blocks that were given up for a longer one.
    fn warm_again(&mut self, core: &Core, place: Extent) -> Result<()> {
        if place.start_page == self.space.high_water() {
            return self.warm_up_raw(core, place.page_count);
        }
        let known = self.warm.lift(place);
        let filled = self.fill_holes(core, place);
        self.warm.put_back(known);
        match filled {
            Err(error) => {
                let joined = self.space.iter().find(|one| one.start_page == place.start_page);
                self.give_up_filling(core, joined.unwrap_or(place), place, &error)?;
                Err(error)
            }
            Ok(()) => {
                self.warm.heat(place);
                Ok(())
            }
        }
    }

    fn warm_up_all(&mut self, core: &Core, pages: u64) -> Result<()> {
        if self.space.iter().any(|extent| extent.page_count >= pages) {
            let extent = self.allot(core, pages)?;
            self.space.give_back(extent);
            // Not by the way on which too many lose their blocks again.
            self.warm.add(extent);
            return Ok(());
        }
        if self.space.raw_pages() < pages {
            self.grow(core, pages)?;
        }
        self.warm_up_raw(core, pages)
    }

    fn warm_up_raw(&mut self, core: &Core, pages: u64) -> Result<()> {
        let extent = self.space.take_raw(pages).ok_or(Error::NoSpace)?;
        self.fill_raw(core, extent)?;
        self.space.put_raw_back(extent);
        self.is_raw_warm = true;
        self.raw_warm_end = extent.end_page().max(self.raw_warm_end);
        Ok(())
    }

    /// Gives pages their blocks that were just taken from past the high-water mark. On a full disk they go back, and so do the blocks
    /// they got.
    fn fill_raw(&mut self, core: &Core, extent: Extent) -> Result<()> {
        let filled = self.fill_holes(core, extent);
        if let Err(error) = &filled {
            self.space.put_raw_back(extent);
            self.is_raw_warm = true;
            if matches!(error, Error::NoSpace) {
                let from = self.raw_warm_end.clamp(extent.start_page, extent.end_page());
                give_blocks_back(core, Extent::new(from, extent.end_page() - from))?;
            }
        }
        filled
    }

    /// Gives back the blocks that pages of a free extent got before the disk was full. Nobody else knows of them.
    fn give_up_filling(
        &mut self,
        core: &Core,
        free: Extent,
        filled: Extent,
        error: &Error,
    ) -> Result<()> {
        // Nothing is written behind a write that failed.
        if !matches!(error, Error::NoSpace) {
            return Ok(());
        }
        // Order: the way leads over headers inside if the extent was joined in memory only.
        write_passive(&*core.disk, core.geometry(), Kind::Free, free)?;
        let at = core.geometry().paddr(free.start_page);
        core.disk.sync_range(at, 512).map_err(Error::io("sync a free extent"))?;
        let from = filled.start_page.max(free.start_page + 1);
        let behind = Extent::new(from, filled.end_page().saturating_sub(from));
        let cold = self.warm.cold(behind);
        cold.into_iter().try_for_each(|extent| give_blocks_back(core, extent))
    }

    /// Free pages have no blocks; whoever writes there must not find out that the disk is full.
    fn fill_holes(&mut self, core: &Core, extent: Extent) -> Result<()> {
        let geometry = core.geometry();
        let mut at = geometry.paddr(extent.start_page);
        let end = geometry.paddr(extent.end_page());
        while at < end {
            let len = (end - at).min(PUNCH_BYTES);
            self.reserve(core, at, len, "reserve space")?;
            at += len;
        }
        Ok(())
    }

    /// Makes the file longer so that at least `pages` more can be taken.
    pub(crate) fn grow(&mut self, core: &Core, pages: u64) -> Result<()> {
        let geometry = core.geometry();
        let file_pages = self.b_page + 1;
        let mut step = (geometry.paddr(file_pages) / 8).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
        if self.log_pages(core).1 {
            // Compaction will free what is needed next.
            step = step.min(geometry.paddr(self.next_segment_pages(core)));
        }
        let missing = pages.saturating_sub(self.space.raw_pages());
        let is_first = self.space.raw_pages() == 0;
        // The whole step if the disk has it, the bare need if not.
        let grown =
            self.allocate(core, missing + geometry.pages(step)).or_else(|error| match error {
                Error::NoSpace => self.allocate(core, missing),
                other => Err(other),
            })?;
        // Order: the length is durable before superblock B stands at the new end, and the old B stays what it is
        // until A, which names the new one, is durable: nothing is taken from the new pages before that.
        let position = core.position();
        if !is_planted(Bug::LengthLate) {
            core.disk.sync().map_err(Error::io("sync the grown bucket"))?;
        }
        let old = geometry.paddr(self.b_page);
        self.b_page += grown;
        self.space.set_raw_end(self.b_page);
        // If there were others, those may have no blocks.
        if is_first || self.raw_warm_end >= self.b_page - grown {
            self.raw_warm_end = self.b_page;
        }
        self.is_raw_warm = true;
        self.write_superblocks(core, position)?;
        // Whoever looks for a lost superblock must not find this one.
        core.disk.write_at(old, &[0; 512]).map_err(Error::io("clear the old superblock"))
    }

    fn allocate(&mut self, core: &Core, pages: u64) -> Result<u64> {
        let geometry = core.geometry();
        let at = geometry.paddr(self.b_page + 1);
        // The first time also what creation left without blocks, the journal above all.
        let from = if self.segments.is_empty() { 0 } else { at };
        self.reserve(core, from, at - from + geometry.paddr(pages), "grow the bucket")?;
        core.log.cover(at + geometry.paddr(pages))?;
        Ok(pages)
    }

    /// Takes blocks from the disk. If it is full, those of free pages go back first.
    fn reserve(&mut self, core: &Core, at: u64, len: u64, doing: &'static str) -> Result<()> {
        let reserved = match core.disk.allocate(at, len) {
            Err(error) if is_full(&error) && self.has_warm() => {
                self.cool(core, 0)?;
                core.disk.allocate(at, len)
            }
            reserved => reserved,
        };
        reserved.map_err(no_space_or(doing))
    }

    /// True if free pages may have blocks.
    fn has_warm(&self) -> bool {
        let is_raw_warm = self.is_raw_warm || self.raw_warm_end > self.space.high_water();
        is_raw_warm || !self.warm.is_empty()
    }

    /// Pages of a segment table that has so many segments more than now.
    pub(crate) fn table_pages(&self, core: &Core, more: usize) -> u64 {
        let geometry = core.geometry();
        let segments = u64::try_from(self.segments.len() + more).unwrap_or(u64::MAX);
        geometry.pages(TABLE_ENTRY_MAX * segments + geometry.page_size)
    }

    /// Keeps room for a table somewhat longer than the next one.
    pub(crate) fn keep_table_spare(&mut self, core: &Core) -> Result<()> {
        let needed = self.table_pages(core, 16);
        if self.table_spare.is_some_and(|spare| spare.page_count >= needed) {
            return Ok(());
        }
        match self.allot(core, self.table_pages(core, self.segments.len() + 64)) {
            Ok(extent) => {
                if let Some(old) = self.table_spare.replace(extent) {
                    self.give_back(core, old)?;
                }
                Ok(())
            }
            Err(Error::NoSpace) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Keeps room for the next image, as large as it will be, or as it must be at least.
    pub(crate) fn keep_image_spare(&mut self, core: &Core) -> Result<()> {
        // An image made anew from all runs will be larger than it looks.
        let is_anew = self.image.extent.page_count > 0 && !core.view.load().image.is_on_disk();
        let is_unknown = is_anew && self.image_spare.is_some();
        if self.is_spare_taken || is_unknown {
            return Ok(());
        }
        for pages in core.image_extent_pages() {
            if self.image_spare.is_some_and(|spare| spare.page_count == pages) {
                return Ok(());
            }
            match self.allot_image(core, pages) {
                Ok(extent) => return self.spare_for_image(core, extent),
                Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Keeps this extent for the next image. Whoever grew the file to get it may have freed the image before, which then is
    /// kept already.
    fn spare_for_image(&mut self, core: &Core, extent: Extent) -> Result<()> {
        match self.image_spare.replace(extent) {
            Some(other) => self.give_back(core, other),
            None => Ok(()),
        }
    }

    /// Takes the room for the next image as it is, for something else. Among free pages it might be joined with others that have no blocks,
    /// and on a full disk be of no use.
    pub(crate) fn spend_image_spare(&mut self, core: &Core) -> Result<Option<Extent>> {
        if let Some(spare) = self.image_spare {
            let at = core.geometry().paddr(spare.start_page);
            // Order: its header before anything is written inside.
            core.disk.sync_range(at, 512).map_err(Error::io("sync a free extent"))?;
        }
        Ok(self.image_spare.take())
    }

    /// Keeps the room for the next image for the next segment table; false if there is none.
    pub(crate) fn spare_image_for_table(&mut self, core: &Core) -> Result<bool> {
        let Some(spare) = self.spend_image_spare(core)? else { return Ok(false) };
        match self.table_spare.replace(spare) {
            Some(old) => self.give_back(core, old).map(|()| true),
            None => Ok(true),
        }
    }

    /// Frees what the last checkpoint stopped using and no reader holds. Both superblocks must be durable.
    pub(crate) fn release(&mut self, core: &Core) -> Result<()> {
        let geometry = core.geometry();
        let (held, mut freed): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.retired).into_iter().partition(Retired::is_held);
        self.retired = held;
        if let (Some(bulletin), false) = (&core.bulletin, freed.is_empty()) {
            // Order: readers are told, then asked, and only then is anything written there.
            bulletin.retire();
            let mut needed = Vec::new();
            for entry in freed.extract_if(.., |_| true).collect::<Vec<_>>() {
                let list = if bulletin.is_needed(entry.epoch)? { &mut needed } else { &mut freed };
                list.push(entry);
            }
            self.retired.extend(needed);
        }
        for entry in &freed {
            write_passive(&*core.disk, geometry, Kind::Free, entry.extent)?;
        }
        if freed.iter().any(|entry| entry.sealed.is_some()) {
            // Order: before anyone may conclude that no older record of a key is left on disk.
            core.disk.sync().map_err(Error::io("sync freed segments"))?;
            if core.log.keys().is_some_and(|keys| keys.old.is_some()) {
                // What was under the old key goes for good. Order: behind the headers, by which walks go; and synced
                // before it is given back, or it would never get to the disk.
                for entry in &freed {
                    self.overwrite(core, entry.extent)?;
                }
                core.disk.sync().map_err(Error::io("sync what was overwritten"))?;
            }
        }
        for entry in freed {
            let (from, to) = (entry.extent.start_page, entry.extent.end_page());
            core.log.forget_checked(geometry.paddr(from), geometry.paddr(to));
            let is_spare = entry.image.is_some()
                && entry.extent.page_count == self.image.extent.page_count
                && self.image_spare.is_none();
            if is_spare {
                self.image_spare = Some(entry.extent);
            } else {
                self.give_back(core, entry.extent)?;
            }
        }
        Ok(())
    }

    /// Takes pages for an image.
    pub(crate) fn allot_image(&mut self, core: &Core, pages: u64) -> Result<Extent> {
        let Some(spare) = self.spend_image_spare(core)? else { return self.allot(core, pages) };
        if spare.page_count == pages {
            return Ok(spare);
        }
        match self.allot(core, pages) {
            Err(Error::NoSpace) => {
                self.spare_for_image(core, spare)?;
                Err(Error::NoSpace)
            }
            taken => {
                self.give_back(core, spare)?;
                taken
            }
        }
    }

    /// Gives a free extent back, with a header in its first page. Its blocks stay, and others go, if they are too many.
    pub(crate) fn give_back(&mut self, core: &Core, extent: Extent) -> Result<()> {
        debug_assert_eq!(self.user_of(extent), None, "used pages that are given back");
        self.space.give_back(extent);
        self.warm.add(extent);
        let pages = self.segments.values().map(|kept| kept.sealed.extent().page_count);
        self.cool(core, pages.sum::<u64>() / WARM_PART)
    }

    /// Gives blocks of free pages back to the disk until it is no more than so many that have some for no reason.
    pub(crate) fn cool(&mut self, core: &Core, most: u64) -> Result<()> {
        for extent in self.warm.cool(most) {
            give_blocks_back(core, extent)?;
        }
        if most == 0 { self.cool_raw(core, 0) } else { Ok(()) }
    }

    /// Where records keep dying, a large step by which the file once grew is of no use: what is freed is used first. But compaction may
    /// have no other place to begin in.
    pub(crate) fn cool_raw_if_idle(&mut self, core: &Core) -> Result<()> {
        let segment = self.next_segment_pages(core);
        let is_idle = self.space.raw_pages() > 2 * segment && self.log_pages(core).1;
        let least = segment.max(OUTPUT_PAGES_MIN);
        let kept = if self.is_spared(least) { 0 } else { least };
        if is_idle { self.cool_raw(core, kept) } else { Ok(()) }
    }

    /// Gives the blocks of pages past the high-water mark back to the disk, but for so many pages.
    fn cool_raw(&mut self, core: &Core, kept: u64) -> Result<()> {
        let raw = self.space.high_water();
        let from = self.raw_warm_end.clamp(raw, raw + kept.min(self.space.raw_pages()));
        if !std::mem::take(&mut self.is_raw_warm) && self.raw_warm_end <= from {
            return Ok(());
        }
        // None: the mark may go back.
        self.raw_warm_end = if from > raw { from } else { 0 };
        give_blocks_back(core, Extent::new(from, raw + self.space.raw_pages() - from))
    }

    /// Makes sure that the free-space map has a page for every page of the file it must speak of.
    pub(crate) fn fit_free_map(&mut self, core: &Core) -> Result<()> {
        let geometry = core.geometry();
        let needed = (self.b_page + 1).div_ceil(free_map::coverage(geometry.page_size));
        if needed <= self.free_map.page_count {
            return Ok(());
        }
        let pages = needed * 2;
        let extent = match self.allot(core, pages + 1) {
            Ok(extent) => extent,
            // The map is derived; without room for it there is none.
            Err(Error::NoSpace) => return Ok(()),
            Err(error) => return Err(error),
        };
        write_passive(&*core.disk, geometry, Kind::Meta, extent)?;
        if self.free_map.start_page >= core.fixed.segment_start_page {
            let old = Extent::new(self.free_map.start_page - 1, self.free_map.page_count + 1);
            let epoch = self.epoch + 1;
            self.retired.push(Retired { extent: old, image: None, sealed: None, epoch });
        }
        self.free_map = Extent::new(extent.start_page + 1, pages);
        Ok(())
    }
}

/// Gives the blocks of an extent back to the disk.
fn give_blocks_back(core: &Core, extent: Extent) -> Result<()> {
    let geometry = core.geometry();
    let (mut at, end) = (geometry.paddr(extent.start_page), geometry.paddr(extent.end_page()));
    while at < end {
        let len = (end - at).min(PUNCH_BYTES);
        core.disk.punch(at, len).map_err(Error::io("give space back"))?;
        at += len;
    }
    Ok(())
}

/// The error for a call that fails harmlessly if the disk is full.
pub(crate) fn no_space_or(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| if is_full(&source) { Error::NoSpace } else { Error::Io { doing, source } }
}

/// True if the disk, or the quota, is full.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
#[path = "room_full.rs"]
mod full;
