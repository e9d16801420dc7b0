//! The keeper: superblocks, space, and the table of segments. Everything that is not on the way of a commit.
//!
//! Invariants
//! - The pages from the segment region's start to the high-water mark of a durable superblock are always tiled
//!   by extents with valid headers. A free extent is cut by writing the header of the rest, syncing it, writing the
//!   header of what was taken, syncing that, and only then writing inside.
//! - Log extents are named by a durable superblock before a byte of the log goes there.
//! - What a checkpoint stops using becomes free only after both its superblocks are durable, and, for an image,
//!   only when no view holds it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::book::BookPlace;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::free_map;
use crate::format::lineage::Lineage;
use crate::format::roster::{NAMED_LOG, NamedExtent, SegmentEntry};
use crate::format::segment::Kind;
use crate::image::{Image, ImagePlace};
use crate::mount::named_extent;
use crate::sealed::{Hold, Sealed};
use crate::segment::write_passive;
use crate::unsealed::Unsealed;
use crate::victims::SLACK;
use crate::view::{Segments, View};
use crate::warm::Warm;
use crate::writer::Pieces;

use host::planted::{Bug, is_planted};
use zerocopy::little_endian::{U32, U64};

/// Extents kept ready for the log. One is for deletes on a full disk.
pub(crate) const RESERVE: usize = 4;
/// An extent in reserve is too small when the log would take one so many times larger: batches would not fit, and each would ask for an
/// extent of its own.
const OUTGROWN: u64 = 4;
/// A smaller free extent is not worth an output of compaction.
pub(crate) const OUTPUT_PAGES_MIN: u64 = 4;
/// Groups of batches a log extent should hold, and bytes it may have for that however short the log is.
const GROUPS: u64 = 4;
const FIRST_BYTES: u64 = 256 << 10;
/// Bytes of a log extent that are enough however long the log is, if its records keep dying.
const CHURN_BYTES: u64 = 2 << 20;
/// Smallest log extent after the first, in bytes.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Most a file grows at once, in bytes, beside what is asked for.
const GROWTH_BYTES_MAX: u64 = 64 << 20;
/// Least a file grows at once, in bytes.
const GROWTH_BYTES_MIN: u64 = 64 << 10;
/// Bytes a segment takes in the table, rounded up.
const TABLE_ENTRY_MAX: u64 = 96;
/// Of the pages of segments, one in so many may be free and still have its block.
const WARM_PART: u64 = 4;
/// Blocks are taken and given back in steps of this many bytes, so that no commit waits long for the file's lock.
const PUNCH_BYTES: u64 = 4 << 20;

/// Bytes that may always die in the log before the next image.
pub(crate) const DEAD_MAX_MIN: u64 = 256 << 10;

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

/// A registered segment.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// What the table says of it, with what is known dead by now.
    pub(crate) entry: SegmentEntry,
    pub(crate) sealed: Arc<Sealed>,
}

/// Where the segment table lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TablePlace {
    pub(crate) extent: Extent,
    pub(crate) id: u64,
    /// Number of the key it is under, if there is one.
    pub(crate) key_no: u16,
}

/// Superblock state and space.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) epoch: u64,
    pub(crate) b_page: u64,
    pub(crate) space: Space,
    pub(crate) warm: Warm,
    /// Registered segments by first page.
    pub(crate) segments: BTreeMap<u64, Kept>,
    /// First pages of those the table on disk does not have.
    pub(crate) fresh: Vec<u64>,
    pub(crate) table: Option<TablePlace>,
    /// Room for the next table when the disk is full.
    pub(crate) table_spare: Option<Extent>,
    /// Room for the next image, mostly where the one before was. Its blocks are there, so that a merge neither waits for
    /// the disk to find some nor fails on a full one.
    pub(crate) image_spare: Option<Extent>,
    /// A merge has taken it, and will leave the old image behind for the next.
    pub(crate) is_spare_taken: bool,
    /// More is known to be dead than the table on disk says.
    pub(crate) is_table_stale: bool,
    /// Extents the log is in or may go to.
    pub(crate) named: Vec<NamedExtent>,
    pub(crate) next_seg_id: u64,
    pub(crate) tail_seqno: u64,
    pub(crate) image: ImagePlace,
    /// Segments the image may name that are gone since it was made.
    pub(crate) image_gone: u64,
    /// Of what the bucket is a backup, as long as it is one.
    pub(crate) lineage: Option<Lineage>,
    /// The dictionaries.
    pub(crate) book: Option<BookPlace>,
    /// Highest seqno of a record that hid others and was dropped.
    pub(crate) dropped_seqno: u64,
    pub(crate) free_map: Extent,
    pub(crate) retired: Vec<Retired>,
    /// The image on disk if it was found damaged and given up by readers.
    pub(crate) damaged: Option<Arc<Image>>,
    /// Dead bytes in segments that are not registered yet, by first page.
    pub(crate) dead_early: HashMap<u64, u64>,
}

pub(crate) use crate::space::Space;

impl Keeper {
    /// An eighth of the log may die before the next image, more if compaction lets more be.
    fn note_log_bytes(&self, core: &Core) {
        let bytes: u64 = self.segments.values().map(|kept| kept.entry.record_bytes.get()).sum();
        let dead = bytes.saturating_mul(u64::from(core.mode.slack)) / u64::from(8 * SLACK);
        core.dead_max.store(dead.max(DEAD_MAX_MIN), Ordering::Relaxed);
    }

    /// Pages the next log extent should have, within limits: a thirty-second of the log or less, because space goes up and down by as
    /// much as a segment where records keep dying. While next to nothing of the log is dead, a sixteenth, and up to an eighth if groups
    /// of batches as they come now need that: every segment that they fill costs syncs, and there is nothing to compact.
    pub(crate) fn next_segment_pages(&self, core: &Core) -> u64 {
        let geometry = core.geometry();
        let (mut log_pages, mut dead) = (0, 0_u64);
        for kept in self.segments.values() {
            log_pages += u64::from(kept.entry.data_page_count.get());
            // Somebody may have forged them.
            dead = dead.saturating_add(kept.entry.dead_bytes.get());
            dead = dead.saturating_add(kept.entry.delete_bytes.get());
        }
        let least = geometry.pages(SEGMENT_BYTES_MIN).max(4);
        let mut wanted = (log_pages / 64).max(geometry.pages(CHURN_BYTES)).min(log_pages / 32);
        if dead <= geometry.paddr(log_pages) / 64 {
            wanted = log_pages / 16;
            let groups =
                geometry.pages(core.group_bytes.load(Ordering::Relaxed).saturating_mul(GROUPS));
            wanted = groups.clamp(wanted, (log_pages / 8).max(geometry.pages(FIRST_BYTES)));
        }
        let wanted = wanted.max(1).next_power_of_two();
        wanted.clamp(least, core.fixed.segment_page_max.max(least))
    }

    /// Takes pages for any use, growing the file if it must. Until the caller says otherwise they stay marked free.
    pub(crate) fn allot(&mut self, core: &Core, pages: u64) -> Result<Extent> {
        let Some(taken) = self.space.take(pages, |extent| self.warm.has(extent)) else {
            if self.space.raw_pages() < pages {
                self.grow(core, pages)?;
            }
            let extent = self.space.take_raw(pages).ok_or(Error::NoSpace)?;
            self.warm.forget(extent);
            // Any checkpoint may come before the caller writes there, and its walk must find the way.
            write_passive(&*core.disk, core.geometry(), Kind::Free, extent)?;
            return Ok(extent);
        };
        let is_warm = self.warm.has(taken.extent);
        // Order: what is being filled must not be given back meanwhile.
        self.warm.forget(taken.extent);
        if !is_warm {
            self.fill_holes(core, taken.extent)?;
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

    /// Free pages have no blocks; whoever writes there must not find out that the disk is full.
    fn fill_holes(&mut self, core: &Core, extent: Extent) -> Result<()> {
        let geometry = core.geometry();
        let mut at = geometry.paddr(extent.start_page);
        let end = geometry.paddr(extent.end_page());
        while at < end {
            let len = (end - at).min(PUNCH_BYTES);
            if let Err(error) = self.reserve(core, at, len, "reserve space") {
                self.space.give_back(extent);
                return Err(error);
            }
            at += len;
        }
        Ok(())
    }

    /// Makes the file longer so that at least `pages` more can be taken.
    pub(crate) fn grow(&mut self, core: &Core, pages: u64) -> Result<()> {
        let geometry = core.geometry();
        let file_pages = self.b_page + 1;
        let step = (geometry.paddr(file_pages) / 8).clamp(GROWTH_BYTES_MIN, GROWTH_BYTES_MAX);
        let missing = pages.saturating_sub(self.space.raw_pages());
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
            Err(error) if is_full(&error) && !self.warm.is_empty() => {
                self.cool(core, 0)?;
                core.disk.allocate(at, len)
            }
            reserved => reserved,
        };
        reserved.map_err(no_space_or(doing))
    }

    /// Takes an extent for the log or for output and notes it to be named by the next checkpoint.
    pub(crate) fn name_extent(
        &mut self,
        core: &Core,
        pages: u64,
        kind: u32,
    ) -> Result<NamedExtent> {
        let extent = self.allot(core, pages)?;
        let named = NamedExtent {
            start_page: U64::new(extent.start_page),
            seg_id: U64::new(self.next_seg_id),
            page_count: U32::new(u32::try_from(pages).map_err(|_| Error::NoSpace)?),
            kind: U32::new(kind),
        };
        self.next_seg_id += 1;
        self.named.push(named);
        Ok(named)
    }

    /// Makes sure that the pieces of a large group will find room, and the segment tables that registering them
    /// takes.
    pub(crate) fn secure_pieces(&mut self, core: &Core, pieces: Pieces) -> Result<()> {
        match self.secure_pieces_once(core, pieces) {
            Err(Error::NoSpace) if !self.warm.is_empty() => {
                self.cool(core, 0)?;
                self.secure_pieces_once(core, pieces)
            }
            result => result,
        }
    }

    fn secure_pieces_once(&mut self, core: &Core, pieces: Pieces) -> Result<()> {
        let geometry = core.geometry();
        let max = core.fixed.segment_page_max;
        let mut in_free = 0;
        for extent in self.space.iter() {
            let count = (extent.page_count / max).min(pieces.ordinary - in_free);
            if count > 0 {
                // Free pages have no blocks; whether the disk has them must be known now.
                let at = geometry.paddr(extent.start_page);
                core.disk
                    .allocate(at, geometry.paddr(count * max))
                    .map_err(no_space_or("reserve space"))?;
                in_free += count;
            }
        }
        let segments = u64::try_from(self.segments.len()).unwrap_or(u64::MAX) + pieces.ordinary;
        let tables = 3 * geometry.pages(TABLE_ENTRY_MAX * segments + geometry.page_size);
        let needed =
            pieces.ordinary.saturating_sub(in_free) * max + pieces.oversized_pages + tables;
        if self.space.raw_pages() >= needed { Ok(()) } else { self.grow(core, needed) }
    }

    /// Seals what is full, refills the reserve, and writes a checkpoint if anything changed.
    pub(crate) fn tend(&mut self, core: &Core) -> Result<()> {
        let least = self.next_segment_pages(core) / OUTGROWN;
        let (mut segments, ready) = {
            let mut supply = core.lock_supply();
            supply.drawn = false;
            let ready = supply
                .reserve
                .iter()
                .filter(|named| named_extent(named).page_count >= least)
                .count();
            (supply.sealing.iter().cloned().collect::<Vec<_>>(), ready)
        };
        let mut freed = Vec::new();
        for segment in &segments {
            // Sealed already, if the checkpoint behind it found no space.
            let known = self.segments.get(&segment.extent.start_page);
            if known.is_none_or(|kept| kept.entry.seg_id.get() != segment.seg_id) {
                freed.extend(self.register(core, segment)?);
            }
        }
        // First of all what compaction begins with, without which a full disk would stay full.
        self.keep_table_spare(core)?;
        self.keep_image_spare(core)?;
        let mut fresh = Vec::new();
        let mut starved = false;
        while ready + fresh.len() < RESERVE {
            match self.name_log_extent(core) {
                Ok(named) => fresh.push(named),
                Err(Error::NoSpace) => {
                    starved = true;
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if !segments.is_empty() || !fresh.is_empty() {
            self.note_log_bytes(core);
            freed.extend(self.checkpoint_without_outgrown(core, least, fresh.len())?);
        }
        for extent in freed {
            self.give_back(core, extent)?;
        }
        self.release(core)?;
        let mut supply = core.lock_supply();
        for _ in segments.drain(..) {
            supply.sealing.pop_front();
        }
        supply.reserve.extend(fresh);
        supply.starved = starved;
        drop(supply);
        core.supply_changed.notify_all();
        Ok(())
    }

    /// Writes a checkpoint that does not name extents any more which the log has outgrown, as far as fresh ones take their place. Gives
    /// what they leave.
    fn checkpoint_without_outgrown(
        &mut self,
        core: &Core,
        least: u64,
        fresh: usize,
    ) -> Result<Vec<Extent>> {
        let mut outgrown = Vec::new();
        let mut supply = core.lock_supply();
        while supply.reserve.len() + fresh > RESERVE
            && let Some(at) =
                supply.reserve.iter().position(|named| named_extent(named).page_count < least)
        {
            outgrown.extend(supply.reserve.remove(at));
        }
        drop(supply);
        self.named.retain(|named| !outgrown.iter().any(|gone| gone.seg_id == named.seg_id));
        if let Err(error) = self.checkpoint(core) {
            self.named.extend(&outgrown);
            core.lock_supply().reserve.extend(outgrown);
            return Err(error);
        }
        Ok(outgrown.iter().map(named_extent).collect())
    }

    /// Seals a segment and adds it to the table; gives what is left of its extent.
    pub(crate) fn register(
        &mut self,
        core: &Core,
        segment: &crate::segment::Segment,
    ) -> Result<Option<Extent>> {
        let (mut entry, rest) =
            segment.seal(&*core.disk, &core.log, core.geometry(), core.fixed.uuid)?;
        let start_page = entry.start_page.get();
        let dead = self.dead_early.remove(&start_page).unwrap_or(0);
        entry.dead_bytes = U64::new(dead.min(entry.record_bytes.get()));
        self.named.retain(|named| named.seg_id.get() != segment.seg_id);
        self.tail_seqno = segment.last_seqno() + 1;
        self.add_segment(core, entry, segment.unsealed.as_ref());
        Ok(rest)
    }

    /// Adds a sealed segment to the table, and shows it to scans in place of what they knew of it.
    pub(crate) fn add_segment(
        &mut self,
        core: &Core,
        entry: SegmentEntry,
        unsealed: Option<&Arc<Unsealed>>,
    ) {
        let start_page = entry.start_page.get();
        let hold = unsealed.map_or_else(Hold::default, |unsealed| Arc::clone(&unsealed.hold));
        let sealed = Arc::new(Sealed::new(entry, hold, core.counters.retired_bytes()));
        core.change_view(|view| {
            let mut segments = Segments::clone(&view.segments);
            segments.tail.retain(|unsealed| unsealed.seg_id != entry.seg_id.get());
            segments.sealed.push(Arc::clone(&sealed));
            View { segments: Arc::new(segments), ..view.clone() }
        });
        self.segments.insert(start_page, Kept { entry, sealed });
        self.fresh.push(start_page);
    }

    /// Keeps room for a table somewhat longer than the next one.
    fn keep_table_spare(&mut self, core: &Core) -> Result<()> {
        let segments = u64::try_from(self.segments.len()).unwrap_or(u64::MAX);
        let geometry = core.geometry();
        let pages = |segments| geometry.pages(TABLE_ENTRY_MAX * segments + geometry.page_size);
        let needed = pages(segments + 16);
        if self.table_spare.is_some_and(|spare| spare.page_count >= needed) {
            return Ok(());
        }
        match self.allot(core, pages(2 * segments + 64)) {
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
    fn keep_image_spare(&mut self, core: &Core) -> Result<()> {
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

    /// Gives the room for the next image up; false if there is none.
    pub(crate) fn spend_image_spare(&mut self) -> bool {
        let Some(spare) = self.image_spare.take() else { return false };
        // Not to the disk: it is about to be used.
        self.space.give_back(spare);
        true
    }

    /// Takes an extent for the log, but never the last place where compaction could begin.
    fn name_log_extent(&mut self, core: &Core) -> Result<NamedExtent> {
        let pages = self.next_segment_pages(core);
        let least = pages.max(OUTPUT_PAGES_MIN);
        let free = self.space.iter().map(|extent| extent.page_count);
        let places: u64 = free.chain([self.space.raw_pages()]).map(|count| count / least).sum();
        // A merge takes what is kept for it, and leaves the image there is now behind.
        let is_spared = self.image_spare.is_some() && self.image.extent.page_count >= least;
        if !is_spared && places < 2 {
            self.grow(core, self.space.raw_pages() + least)?;
        }
        self.name_extent(core, pages, NAMED_LOG)
    }

    /// Undoes adding a segment that no checkpoint has registered.
    pub(crate) fn take_back(&mut self, core: &Core, entry: &SegmentEntry) {
        let start_page = entry.start_page.get();
        self.segments.remove(&start_page);
        self.fresh.retain(|page| *page != start_page);
        core.change_view(|view| {
            let mut segments = Segments::clone(&view.segments);
            segments.sealed.retain(|sealed| sealed.entry.seg_id != entry.seg_id);
            View { segments: Arc::new(segments), ..view.clone() }
        });
    }

    /// Takes segments out of the table that nobody needs any more. The checkpoint that follows makes it so.
    pub(crate) fn remove_segments(&mut self, core: &Core, ids: &HashSet<u64>) -> Result<()> {
        let (removed, kept): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.segments)
            .into_iter()
            .partition(|(_, kept)| ids.contains(&kept.entry.seg_id.get()));
        self.segments = kept;
        let fresh = self.fresh.clone();
        self.fresh.retain(|page| self.segments.contains_key(page));
        // Order: before any superblock that leaves them out; making room for a table may write one.
        self.image_gone += u64::try_from(removed.len()).unwrap_or(0);
        // Those in the table on disk would come back.
        if self.fresh.len() + removed.len() != fresh.len()
            && let Err(error) = self.write_table(core)
        {
            self.segments.extend(removed);
            self.fresh = fresh;
            return Err(error);
        }
        self.retired.extend(removed.into_values().map(|kept| Retired {
            extent: kept.sealed.extent(),
            image: None,
            sealed: Some(kept.sealed),
            epoch: self.epoch + 1,
        }));
        Ok(())
    }

    /// Corrects what is known dead, going by how many records of each segment an image names.
    pub(crate) fn note_named(&mut self, image: &Image, named: &HashMap<u64, u64>) {
        for (start_page, kept) in &mut self.segments {
            let entry = &mut kept.entry;
            let count = u64::from(entry.record_count.get()).max(1);
            if !image.covers(&kept.sealed) {
                continue;
            }
            let live = named.get(start_page).copied().unwrap_or(0).min(count);
            let share = u128::from(entry.record_bytes.get()) * u128::from(count - live);
            let dead = u64::try_from(share / u128::from(count)).unwrap_or(0);
            entry.dead_bytes = U64::new(entry.dead_bytes.get().max(dead));
        }
    }

    /// Adds to what is known dead in the segment that starts at this page.
    pub(crate) fn add_dead(&mut self, start_page: u64, bytes: u64) {
        self.is_table_stale = true;
        match self.segments.get_mut(&start_page) {
            Some(Kept { entry, .. }) => {
                // Counts come from several sides and may overlap.
                let dead = entry.dead_bytes.get().saturating_add(bytes);
                entry.dead_bytes = U64::new(dead.min(entry.record_bytes.get()));
            }
            None => *self.dead_early.entry(start_page).or_default() += bytes,
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
        let Some(spare) = self.image_spare.take() else { return self.allot(core, pages) };
        if spare.page_count == pages {
            let at = core.geometry().paddr(spare.start_page);
            // Order: its header before anything is written inside.
            core.disk.sync_range(at, 512).map_err(Error::io("sync a free extent"))?;
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
        self.space.give_back(extent);
        self.warm.add(extent);
        let pages = self.segments.values().map(|kept| kept.sealed.extent().page_count);
        self.cool(core, pages.sum::<u64>() / WARM_PART)
    }

    /// Gives blocks of free pages back to the disk until it is no more than so many that have some for no reason.
    pub(crate) fn cool(&mut self, core: &Core, most: u64) -> Result<()> {
        let geometry = core.geometry();
        for extent in self.warm.cool(most) {
            let (mut at, end) =
                (geometry.paddr(extent.start_page), geometry.paddr(extent.end_page()));
            while at < end {
                let len = (end - at).min(PUNCH_BYTES);
                core.disk.punch(at, len).map_err(Error::io("give space back"))?;
                at += len;
            }
        }
        Ok(())
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

/// The error for a call that fails harmlessly if the disk is full.
pub(crate) fn no_space_or(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| if is_full(&source) { Error::NoSpace } else { Error::Io { doing, source } }
}

/// True if the disk, or the quota, is full.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
