//! Merging: the image and a frozen overlay become a new image.
//!
//! Both are read in the order of the new table, and the new table is written once, page by page, into an extent
//! nobody looks at yet. A crash in the middle costs nothing. Growth and shrinking are the same merge into another
//! number of pages. Cost: the pages of both images, and one key comparison per hash that is in both.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zerocopy::little_endian::{U16, U32, U64};

use crate::cipher::BucketKey;
use crate::core::{Core, lock};
use crate::error::{Corrupt, Error, Result, What};
use crate::format::index_page::{slot_hash, slots_per_page};
use crate::format::meta::{self, MetaHead};
use crate::group::IN_TURN;
use crate::image::{Image, ImagePlace};
use crate::image_builder::ImageBuilder;
use crate::image_walk::ImageWalk;
use crate::opened::Opened;
use crate::overlay::{DELETE_BIT, Overlay};
use crate::room::Retired;
use crate::segment::meta_extent;
use crate::segment_sums::SegmentSums;
use crate::spread_sort::sort_spread;
use crate::view::{Frozen, View};

/// The table has so many parts at most whose changes are sorted at a time, and fewer if there are no more changes than these.
const SORT_PARTS: u64 = 8;
const SORT_FEW: usize = 64 << 10;
/// Entries folded in while commits wait.
const FOLD_SLICE: usize = 512;

/// A change: slot hash, and address with its DELETE bit.
type Change = (u64, u64);

impl Core {
    /// Folds in what mount left as runs, and merges what is frozen into a new image.
    pub(crate) fn merge(&self) -> Result<()> {
        let _merging = lock(&self.merging);
        let result = self.fold_runs().and_then(|()| self.merge_frozen());
        let is_stuck = result.is_err() || self.index_bad.load(Ordering::Acquire);
        {
            // A commit may have frozen the next overlay already; under the lock nobody can miss that. What could not
            // be merged now is tried again when the next overlay is full, and nobody waits for it until then.
            let mut due = lock(&self.merge_due);
            let view = self.view.load();
            *due = !is_stuck && (view.frozen.is_some() || !view.runs.is_empty());
        }
        self.merge_changed.notify_all();
        result
    }

    fn merge_frozen(&self) -> Result<()> {
        let view = self.view.load_full();
        let Some(frozen) = &view.frozen else { return Ok(()) };
        tracing::debug!(entries = frozen.overlay.len(), "rehash_start");
        match self.build_image(&view, frozen) {
            Ok(merged) => {
                let old = Arc::clone(&view.image);
                drop(view);
                self.install_image(merged, old)?;
            }
            // Rebuilding needs the writer's lock, which a commit that waits for this merge holds.
            Err(Error::Corrupt(Corrupt { what: What::IndexPage, .. })) => {
                self.index_bad.store(true, Ordering::Release);
            }
            Err(error) => return Err(error),
        }
        tracing::debug!("rehash_stop");
        Ok(())
    }

    /// Takes the runs that mount did not load into the active overlay, a slice at a time so that commits go on. The caller
    /// holds `merging` and not the writer's lock; while there are runs nothing is frozen, so nobody who holds the
    /// writer's lock waits for a merge.
    pub(crate) fn fold_runs(&self) -> Result<()> {
        loop {
            let view = self.view.load_full();
            if view.runs.is_empty() {
                return Ok(());
            }
            let image_seqno = view.image.place.seqno;
            {
                // Nothing is frozen while there are runs: this overlay, or a grown copy, takes all of them.
                let _no_commits = self.lock_writer();
                let active = Arc::clone(&self.view.load().active);
                for sealed in &view.segments.sealed {
                    active.hold(&sealed.hold, sealed.start(self.geometry()));
                }
            }
            for run in view.runs.iter() {
                let changes = run.in_log_order(&self.log)?;
                for slice in changes.rchunks(FOLD_SLICE) {
                    let _no_commits = self.lock_writer();
                    self.secure_overlay(slice.len())?;
                    let current = self.view.load();
                    for &(hash, entry, seqno) in slice.iter().rev() {
                        if run.is_moved() || seqno > image_seqno {
                            current.active.set_if_newest(&self.log, hash, entry)?;
                        }
                    }
                }
            }
            // Under the writer's lock: no commit fills the overlay while it is frozen, and the index is not rebuilt,
            // which would leave other runs to fold.
            let _no_commits = self.lock_writer();
            let mut is_done = false;
            self.change_view(|current| {
                is_done = Arc::ptr_eq(&current.runs, &view.runs);
                let runs = if is_done { Arc::new([]) } else { Arc::clone(&current.runs) };
                View { runs, ..current.clone() }
            });
            if is_done {
                self.freeze_if_due();
                return Ok(());
            }
        }
    }

    /// Pages for an image of so many keys: between 20 % and 80 % full, never below what creation asked for.
    pub(crate) fn image_pages(&self, now: u64, keys: u64) -> u64 {
        let per_page = slots_per_page(self.geometry().page_size);
        let mut pages = now.max(1);
        while keys * 5 > pages * per_page * 4 {
            pages *= 2;
        }
        while keys * 5 < pages * per_page && pages > self.fixed.index_page_min.max(1) {
            pages /= 2;
        }
        pages
    }

    /// Pages of the extent the next image will probably need, and fewer that would do.
    pub(crate) fn image_extent_pages(&self) -> impl Iterator<Item = u64> + use<> {
        let view = self.view.load();
        let keys = view.key_count(&self.log);
        let slots = slots_per_page(self.geometry().page_size);
        let ideal = self.image_pages(view.image.place.page_count(), keys);
        let fewer = std::iter::successors(Some(ideal / 2), |pages| Some(pages / 2));
        let fewer = fewer.take_while(move |pages| keys * 16 <= pages * slots * 15 && *pages > 0);
        std::iter::once(ideal).chain(fewer).map(|pages| pages + 1)
    }

    /// Bytes of index pages for so many keys.
    pub(crate) fn image_bytes(&self, keys: u64) -> u64 {
        let now = self.view.load().image.place.page_count();
        self.geometry().paddr(self.image_pages(now, keys))
    }

    /// Writes a new image beside the old one.
    fn build_image(&self, view: &View, frozen: &Frozen) -> Result<Merged> {
        let old = &*view.image;
        let mut puts = 0;
        frozen.overlay.for_each(|_, entry| puts += u64::from(entry & DELETE_BIT == 0));
        let mut keys = old.place.used + puts;
        if self.image_pages(old.place.page_count(), keys) != old.place.page_count() {
            keys = self.count_merged(old, &frozen.overlay)?;
        }
        let mut page_count = self.image_pages(old.place.page_count(), keys);
        loop {
            // The count takes equal hashes for equal keys; if that was wrong, there are more.
            match self.build_image_of(view, frozen, page_count, keys) {
                Ok(Some(merged)) => return Ok(merged),
                Ok(None) => page_count *= 2,
                Err(Error::NoSpace) => return self.build_smaller_image(view, frozen, page_count),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes a new image on a full disk: into the room that was kept for one, or a fuller one of fewer pages.
    fn build_smaller_image(&self, view: &View, frozen: &Frozen, wanted: u64) -> Result<Merged> {
        let keys = self.count_merged(&view.image, &frozen.overlay)?;
        let slots = slots_per_page(self.geometry().page_size);
        let spare = self.lock_keeper().image_spare.map(|spare| spare.page_count - 1);
        let smaller = std::iter::successors(Some(wanted / 2), |pages| Some(pages / 2));
        let smaller = smaller.take_while(|pages| keys * 16 <= pages * slots * 15 && *pages > 0);
        for page_count in spare.into_iter().chain(smaller) {
            match self.build_image_of(view, frozen, page_count, keys) {
                Ok(Some(merged)) => return Ok(merged),
                Ok(None) | Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoSpace)
    }

    /// Writes a new image of so many pages; `None` if they are too few.
    fn build_image_of(
        &self,
        view: &View,
        frozen: &Frozen,
        page_count: u64,
        keys: u64,
    ) -> Result<Option<Merged>> {
        let geometry = self.geometry();
        let (extent, mut dead) = {
            let mut keeper = self.lock_keeper();
            let extent = keeper.allot_image(self, page_count + 1)?;
            keeper.is_spare_taken = true;
            (extent, SegmentSums::new(&keeper, geometry))
        };
        let id = self.env.random_u64();
        let key = self.log.keys().map(|keys| Arc::clone(&keys.current));
        let mut builder = ImageBuilder::new(self, extent, id, keys, key.clone());
        let merged = self.stream(view, &frozen.overlay, &mut builder, &mut dead);
        let result = merged.and_then(|is_whole| {
            if !is_whole {
                return Ok(None);
            }
            let (used, digest) = builder.finish()?;
            let place = ImagePlace {
                extent,
                id,
                used,
                seqno: frozen.seqno,
                seg_id: frozen.seg_id,
                key_no: key.as_ref().map_or(0, |key| key.no),
            };
            self.write_image_head(&place, key.as_deref())?;
            let (at, len) = (geometry.paddr(extent.start_page), geometry.paddr(extent.page_count));
            self.disk.sync_range(at, len).map_err(Error::io("sync the new index image"))?;
            let image = Image::new(place, geometry);
            image.set_digest(digest);
            for (start, bytes) in frozen.overlay.dead_by_segment() {
                dead.add(start, bytes);
            }
            Ok(Some(Merged { image: Arc::new(image), dead: dead.sums }))
        });
        if !matches!(result, Ok(Some(_))) {
            let mut keeper = self.lock_keeper();
            keeper.is_spare_taken = false;
            match keeper.image_spare {
                None => keeper.image_spare = Some(extent),
                Some(_) => drop(keeper.space.give_back(extent)),
            }
        }
        result
    }

    /// How many keys there will be, give or take what the filter errs by.
    fn count_merged(&self, old: &Image, overlay: &Overlay) -> Result<u64> {
        let mut count = i128::from(old.place.used);
        let mut failed = Ok(());
        overlay.for_each(|hash, entry| match old.may_have_hash(&self.log, hash) {
            Ok(known) => count += i128::from(entry & DELETE_BIT == 0) - i128::from(known),
            Err(error) => failed = Err(error),
        });
        failed.map(|()| u64::try_from(count).unwrap_or(0))
    }

    /// Feeds the builder in the order of the new table; false if the table is too small.
    fn stream(
        &self,
        view: &View,
        overlay: &Overlay,
        builder: &mut ImageBuilder<'_>,
        dead: &mut SegmentSums,
    ) -> Result<bool> {
        let new_slots = builder.slot_count();
        // A larger table is filled in several passes over the old one, a smaller one by weaving its parts.
        let mut walk = ImageWalk::new(&view.image, &self.log, new_slots, view.gone.as_deref());
        // The changes are sorted part by part of the table, which takes that much less memory.
        let parts = u64::try_from((overlay.len() / SORT_FEW).max(1)).unwrap_or(u64::MAX);
        let parts = parts.min(SORT_PARTS).next_power_of_two().min(new_slots);
        let mut changes: Vec<Change> = Vec::new();
        for part in 0..parts {
            let homes = new_slots / parts * part..new_slots / parts * (part + 1);
            changes.clear();
            overlay.for_each(|hash, entry| {
                if homes.contains(&(hash & (new_slots - 1))) {
                    changes.push((hash, entry));
                }
            });
            let home = |&(hash, _): &Change| hash & (new_slots - 1);
            sort_spread(&mut changes, home, |change| (home(change), change.0));
            if !self.stream_part(&mut walk, &changes, builder, dead)? {
                return Ok(false);
            }
        }
        while let Some((hash, paddr)) = walk.peek()? {
            builder.push(hash, paddr)?;
            walk.advance();
        }
        Ok(!builder.is_too_full())
    }

    /// Feeds the builder up to the last of some changes in table order.
    fn stream_part(
        &self,
        walk: &mut ImageWalk<'_>,
        changes: &[Change],
        builder: &mut ImageBuilder<'_>,
        dead: &mut SegmentSums,
    ) -> Result<bool> {
        let new_slots = builder.slot_count();
        let order = |hash: u64| (hash & (new_slots - 1), hash);
        let mut olds = Vec::new();
        for (group, news) in changes.chunk_by(|a, b| a.0 == b.0).enumerate() {
            if group % 1024 == 0 && self.is_closing() {
                return Err(Error::Stopped("the bucket is closing".to_owned()));
            }
            let next = news.first().map(|&(hash, _)| order(hash));
            olds.clear();
            while let Some((hash, paddr)) = walk.peek()? {
                match Some(order(hash)).cmp(&next) {
                    // What no change concerns goes over as it is.
                    std::cmp::Ordering::Less => builder.push(hash, paddr)?,
                    std::cmp::Ordering::Equal => olds.push((hash, paddr)),
                    std::cmp::Ordering::Greater => break,
                }
                walk.advance();
            }
            self.merge_group(&olds, news, builder, dead)?;
            if builder.is_too_full() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Merges what the image and the overlay say of one hash.
    fn merge_group(
        &self,
        olds: &[Change],
        news: &[Change],
        builder: &mut ImageBuilder<'_>,
        dead: &mut SegmentSums,
    ) -> Result<()> {
        match (olds, news) {
            ([], &[(hash, entry)]) if entry & DELETE_BIT == 0 => return builder.push(hash, entry),
            ([], &[(_, entry)]) => {
                self.note_dead(dead, entry);
                return Ok(());
            }
            _ => {}
        }
        // Several of one hash: only key bytes tell which belong together.
        let all = news.iter().map(|new| (new, false)).chain(olds.iter().map(|old| (old, true)));
        let mut all: Vec<Twin<'_>> = all.map(|(one, is_old)| self.twin(*one, is_old)).collect();
        all.sort_by(|a, b| (&a.key, a.is_old).cmp(&(&b.key, b.is_old)));
        if all.iter().any(|twin| twin.key.is_none()) {
            return self.merge_damaged(all, builder, dead);
        }
        let mut newest: Option<Cow<'_, [u8]>> = None;
        for twin in all {
            let is_replaced = twin.is_old && twin.key == newest;
            if !twin.is_old {
                newest = twin.key;
            }
            if is_replaced || twin.entry & DELETE_BIT != 0 {
                self.note_dead(dead, twin.entry);
            } else {
                builder.push(twin.hash, twin.entry)?;
            }
        }
        Ok(())
    }

    /// The same if some record of them does not hold: it may be of any of the keys, and must be met before whatever is older than it. So they
    /// stand newest first, with their DELETEs, or if they are too many to be searched in turn, behind those that do not hold.
    #[cold]
    fn merge_damaged(
        &self,
        mut all: Vec<Twin<'_>>,
        builder: &mut ImageBuilder<'_>,
        dead: &mut SegmentSums,
    ) -> Result<()> {
        all.dedup_by(|later, first| {
            let is_replaced = later.is_old && later.key.is_some() && later.key == first.key;
            if is_replaced {
                self.note_dead(dead, later.entry);
            }
            is_replaced
        });
        if u64::try_from(all.len()).is_ok_and(|count| count <= IN_TURN) {
            all.sort_by_key(|twin| std::cmp::Reverse(twin.seqno));
        }
        all.iter().try_for_each(|twin| builder.push(twin.hash, twin.entry & !DELETE_BIT))
    }

    /// What one of several entries of a hash leads to.
    fn twin(&self, (hash, entry): Change, is_old: bool) -> Twin<'_> {
        let paddr = entry & !DELETE_BIT;
        let record = self.log.keyed_record(paddr, &self.hash);
        let record = record.filter(|record| slot_hash(record.header.hash64.get()) == hash);
        let lost = || self.log.lost_record(paddr).map_or(u64::MAX, |(_, seqno)| seqno);
        let seqno = record.as_ref().map_or_else(lost, Opened::seqno);
        Twin { key: record.map(Opened::into_key), seqno, is_old, hash, entry }
    }

    fn note_dead(&self, dead: &mut SegmentSums, entry: u64) {
        let paddr = entry & !DELETE_BIT;
        if let Some(header) = self.log.header(paddr) {
            dead.add(paddr, header.record_len());
        }
    }

    fn write_image_head(&self, place: &ImagePlace, key: Option<&BucketKey>) -> Result<()> {
        let geometry = self.geometry();
        let page = image_head(geometry, self.fixed.uuid, place, key);
        self.disk
            .write_at(geometry.paddr(place.extent.start_page), &page)
            .map_err(Error::io("write the new index image"))
    }

    /// Makes the new image the current one, on disk and for readers.
    fn install_image(&self, merged: Merged, old: Arc<Image>) -> Result<()> {
        let image = merged.image;
        let mut keeper = self.lock_keeper();
        keeper.is_spare_taken = false;
        for (start_page, bytes) in merged.dead {
            keeper.add_dead(start_page, bytes);
        }
        self.merge_again_at.store(0, Ordering::Relaxed);
        keeper.image_gone = 0;
        let extent = std::mem::replace(&mut keeper.image, image.place).extent;
        if extent.start_page != 0 {
            // After a rebuild the image that readers may hold is the damaged one.
            let held = keeper.damaged.take().unwrap_or(old);
            let epoch = keeper.epoch + 1;
            keeper.retired.push(Retired { extent, image: Some(held), sealed: None, epoch });
        }
        // Order: the checkpoint syncs every record the image names before it names the image.
        keeper.checkpoint(self)?;
        if let Some(bulletin) = &self.bulletin {
            bulletin.note_image(image.place.id);
        }
        self.change_view(|view| View { image, frozen: None, gone: None, ..view.clone() });
        keeper.release(self)
    }
}

/// The first page of an image's extent.
pub(crate) fn image_head(
    geometry: crate::extent::Geometry,
    uuid: (u64, u64),
    place: &ImagePlace,
    key: Option<&BucketKey>,
) -> Vec<u8> {
    let head = MetaHead {
        magic: U32::new(meta::MAGIC),
        kind: U16::new(meta::KIND_IMAGE),
        section_count: U16::new(0),
        file_uuid_hi: U64::new(uuid.0),
        file_uuid_lo: U64::new(uuid.1),
        id: U64::new(place.id),
        count: U64::new(place.page_count()),
        used: U64::new(place.used),
        seqno: U64::new(place.seqno),
        page_count: U64::new(place.extent.page_count),
    };
    meta_extent(geometry, 0, head, Vec::new(), key)
}

/// One of several entries of one hash.
struct Twin<'a> {
    /// `None` if the record does not hold.
    key: Option<Cow<'a, [u8]>>,
    /// The highest there is if nobody knows.
    seqno: u64,
    /// The image has it.
    is_old: bool,
    hash: u64,
    entry: u64,
}

/// A new image, and the bytes that died with the old one by first page of their segment.
struct Merged {
    image: Arc<Image>,
    dead: HashMap<u64, u64>,
}
