//! The keeper: the table of segments, what is known of each, and extents for the log. Everything that is not on the way of a commit.
//!
//! It also has the room in the file and the superblocks, of which `room.rs` and `checkpoint.rs` tell.
//!
//! Invariants
//! - Log extents are named by a durable superblock before a byte of the log goes there.
//! - A registered segment that leaves the table is retired, and its pages are free only when `release` says so.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::book::BookPlace;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::lineage::Lineage;
use crate::format::roster::{NAMED_LOG, NamedExtent, SegmentEntry};
use crate::image::{Image, ImagePlace};
use crate::mount::named_extent;
use crate::promise::Promise;
use crate::room::Retired;
use crate::sealed::{Hold, Sealed};
use crate::space::Space;
use crate::unsealed::Unsealed;
use crate::victims::SLACK;
use crate::view::{Segments, View};
use crate::warm::Warm;

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
/// What part of the log an extent has that takes little space.
const SHORT_PART: u64 = 512;

/// Bytes that may always die in the log before the next image.
pub(crate) const DEAD_MAX_MIN: u64 = 256 << 10;

/// Pages of a log extent as near to so many as the limits allow.
fn within_limits(core: &Core, pages: u64) -> u64 {
    let least = core.geometry().pages(SEGMENT_BYTES_MIN).max(4);
    pages.clamp(least, core.fixed.segment_page_max.max(least))
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
    /// Pages from the high-water mark to this one have their blocks.
    pub(crate) raw_warm_end: u64,
    /// Some past the high-water mark may have theirs.
    pub(crate) is_raw_warm: bool,
    /// Registered segments by first page.
    pub(crate) segments: BTreeMap<u64, Kept>,
    /// First pages of those the table on disk does not have.
    pub(crate) fresh: Vec<u64>,
    pub(crate) table: Option<TablePlace>,
    /// Room for the next table when the disk is full.
    pub(crate) table_spare: Option<Extent>,
    /// Room set aside for a group larger than a segment.
    pub(crate) promise: Promise,
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
        let (log_pages, is_fading) = self.log_pages(core);
        let mut wanted = (log_pages / 64).max(geometry.pages(CHURN_BYTES)).min(log_pages / 32);
        if !is_fading {
            wanted = log_pages / 16;
            let groups =
                geometry.pages(core.group_bytes.load(Ordering::Relaxed).saturating_mul(GROUPS));
            wanted = groups.clamp(wanted, (log_pages / 8).max(geometry.pages(FIRST_BYTES)));
        }
        within_limits(core, wanted.max(1).next_power_of_two())
    }

    /// Pages of the log, and whether more than next to nothing of it is dead.
    pub(crate) fn log_pages(&self, core: &Core) -> (u64, bool) {
        let (mut pages, mut dead) = (0, 0_u64);
        for kept in self.segments.values() {
            pages += u64::from(kept.entry.data_page_count.get());
            // Somebody may have forged them.
            dead = dead.saturating_add(kept.entry.dead_bytes.get());
            dead = dead.saturating_add(kept.entry.delete_bytes.get());
        }
        (pages, dead > core.geometry().paddr(pages) / 64)
    }

    /// Takes an extent for the log or for output and notes it to be named by the next checkpoint.
    pub(crate) fn name_extent(
        &mut self,
        core: &Core,
        pages: u64,
        kind: u32,
    ) -> Result<NamedExtent> {
        let extent = self.allot(core, pages)?;
        self.name(extent, kind)
    }

    /// Notes an extent to be named by the next checkpoint.
    pub(crate) fn name(&mut self, extent: Extent, kind: u32) -> Result<NamedExtent> {
        let named = NamedExtent {
            start_page: U64::new(extent.start_page),
            seg_id: U64::new(self.next_seg_id),
            page_count: U32::new(u32::try_from(extent.page_count).map_err(|_| Error::NoSpace)?),
            kind: U32::new(kind),
        };
        self.next_seg_id += 1;
        self.named.push(named);
        Ok(named)
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
            let is_outgrown = |pages: u64| pages < least;
            freed.extend(self.checkpoint_without(core, is_outgrown, fresh.len())?);
        }
        self.cool_raw_if_idle(core)?;
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

    /// Writes a checkpoint that does not name extents for the log any more which are of the wrong length, as far as fresh ones take their
    /// place. Gives what they leave.
    fn checkpoint_without(
        &mut self,
        core: &Core,
        is_wrong: impl Fn(u64) -> bool,
        fresh: usize,
    ) -> Result<Vec<Extent>> {
        let mut wrong = Vec::new();
        let mut supply = core.lock_supply();
        while supply.reserve.len() + fresh > RESERVE
            && let Some(at) =
                supply.reserve.iter().position(|named| is_wrong(named_extent(named).page_count))
        {
            wrong.extend(supply.reserve.remove(at));
        }
        drop(supply);
        self.named.retain(|named| !wrong.iter().any(|gone| gone.seg_id == named.seg_id));
        if let Err(error) = self.checkpoint(core) {
            self.named.extend(&wrong);
            core.lock_supply().reserve.extend(wrong);
            return Err(error);
        }
        Ok(wrong.iter().map(named_extent).collect())
    }

    /// Keeps shorter extents ready for the log, for those who want space back more than quick commits. On a full disk nothing
    /// changes.
    pub(crate) fn shorten_reserve(&mut self, core: &Core) -> Result<()> {
        let wanted = (self.log_pages(core).0 / SHORT_PART).max(1);
        let pages = within_limits(core, wanted.next_power_of_two());
        let is_long = |count: u64| count > pages;
        let long = {
            let supply = core.lock_supply();
            supply.reserve.iter().filter(|named| is_long(named_extent(named).page_count)).count()
        };
        let mut fresh = Vec::new();
        for _ in 0..long {
            match self.name_extent(core, pages, NAMED_LOG) {
                Ok(named) => fresh.push(named),
                Err(Error::NoSpace) => break,
                Err(error) => return Err(error),
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let freed = match self.checkpoint_without(core, is_long, fresh.len()) {
            Ok(freed) => {
                // Order: for the log only now that a durable superblock names them.
                core.lock_supply().reserve.extend(fresh);
                freed
            }
            Err(Error::NoSpace) => {
                self.named.retain(|named| !fresh.iter().any(|one| one.seg_id == named.seg_id));
                fresh.iter().map(named_extent).collect()
            }
            Err(error) => return Err(error),
        };
        freed.into_iter().try_for_each(|extent| self.give_back(core, extent))
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

    /// Takes an extent for the log, but never the last place where compaction could begin, nor the blocks that it would need there.
    fn name_log_extent(&mut self, core: &Core) -> Result<NamedExtent> {
        let pages = self.next_segment_pages(core);
        let least = pages.max(OUTPUT_PAGES_MIN);
        let free = self.space.iter().map(|extent| extent.page_count);
        let places: u64 = free.chain([self.space.raw_pages()]).map(|count| count / least).sum();
        let is_spared = self.is_spared(least);
        if !is_spared && places < 2 {
            self.grow(core, self.space.raw_pages() + least)?;
        }
        let extent = self.allot(core, pages)?;
        if !is_spared && let Err(error) = self.warm_up(core, least, least) {
            self.give_back(core, extent)?;
            return Err(error);
        }
        self.name(extent, NAMED_LOG)
    }

    /// True if compaction has a place of so many pages to begin in that nobody else takes: a merge takes what is kept for it, and
    /// leaves the image there is now behind.
    pub(crate) fn is_spared(&self, least: u64) -> bool {
        self.image_spare.is_some() && self.image.extent.page_count >= least
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
        let removed_count = u64::try_from(removed.len()).unwrap_or(0);
        self.image_gone = self.image_gone.saturating_add(removed_count);
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
}
