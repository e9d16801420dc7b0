//! Work behind the commits: who does it, and when.
//!
//! With background threads, one seals segments and keeps the reserve full, another merges the overlay into a new
//! image. Without them the same functions run inside the commit that makes them due, in a fixed order.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use crate::core::{Core, lock};
use crate::error::{Error, Result};
use crate::format::roster::NamedExtent;
use crate::image::Image;
use crate::keeper::RESERVE;
use crate::late_run::LateRun;
use crate::overlay::Overlay;
use crate::segment::sealed_page_count;
use crate::segment_sums::SegmentSums;
use crate::view::{Frozen, View};
use crate::writer::Writer;

impl Core {
    /// An extent for the next piece of a group larger than a segment. The reserve stays for others.
    pub(crate) fn piece_extent(&self, first_len: u64) -> Result<NamedExtent> {
        let mut keeper = self.lock_keeper();
        if self.lock_supply().unsealed_pages() >= self.fixed.segment_page_max {
            keeper.tend(self)?;
        }
        let style = self.fixed.style();
        let least = sealed_page_count(self.geometry(), style, style.header_len() + first_len, 1);
        let named = keeper.name_piece(self, least.max(self.fixed.segment_page_max))?;
        keeper.checkpoint(self)?;
        Ok(named)
    }

    /// Makes room in the overlay for so many entries, waiting for a merge if too many are waiting for one.
    pub(crate) fn secure_overlay(&self, count: usize) -> Result<()> {
        let limit = with_quarter(self.overlay_max(&self.view.load()));
        let view = self.view.load();
        let must_wait = view.active.len() >= limit && view.frozen.is_some();
        drop(view);
        if must_wait {
            self.wait_for_merge()?;
            self.freeze_if_due();
        }
        let active = Arc::clone(&self.view.load().active);
        if active.len() + count > active.room() {
            let grown = Arc::new(active.grown(active.len() + count));
            self.change_view(|view| View { active: grown, ..view.clone() });
        }
        Ok(())
    }

    /// Waits while too much waits to be merged; for those who hold no lock a commit needs.
    pub(crate) fn wait_for_room(&self) -> Result<()> {
        let view = self.view.load();
        // Commits need room too.
        let is_full = view.frozen.is_some() && view.active.len() >= self.overlay_max(&view) / 2;
        drop(view);
        if is_full { self.wait_for_merge() } else { Ok(()) }
    }

    pub(crate) fn wait_for_merge(&self) -> Result<()> {
        let mut due = lock(&self.merge_due);
        while *due {
            self.check_writable()?;
            due = self.merge_changed.wait(due).map_err(|_| Error::Invalid("merger panicked"))?;
        }
        Ok(())
    }

    /// Entries at which the active overlay is merged: a quarter of the keys, so that the index costs a bounded number
    /// of bytes written per byte of log, and some more, which is much where there are few keys.
    fn overlay_max(&self, view: &View) -> usize {
        self.overlay_limit(view.image.place.used)
    }

    fn overlay_limit(&self, keys: u64) -> usize {
        let least = self.mode.overlay_min;
        least.max(usize::try_from(keys / 4).unwrap_or(usize::MAX).saturating_add(least / 2))
    }

    /// Freezes the active overlay if it is full, or if so much has died in the log since the image that compaction should
    /// get at it, and nothing is being merged.
    pub(crate) fn freeze_if_due(&self) -> bool {
        let view = self.view.load();
        let is_due = view.active.len() >= self.overlay_max(&view)
            || view.active.dead_bytes() >= self.dead_max.load(Ordering::Relaxed);
        is_due && self.freeze()
    }

    /// Freezes the active overlay, if there is anything in it and nothing is being merged.
    pub(crate) fn freeze(&self) -> bool {
        self.view.load().active.len() > 0 && self.freeze_any()
    }

    /// The same also if there is nothing in it.
    pub(crate) fn freeze_any(&self) -> bool {
        if self.is_moving.load(Ordering::Acquire) {
            self.freeze_wanted.store(true, Ordering::Release);
            return false;
        }
        // If the last one was full, the next will be too; growing would copy every entry again.
        let view = self.view.load();
        let entries = view.active.len();
        let keys_after = view.key_count(&self.log);
        let room = with_quarter(self.overlay_limit(keys_after)).min(entries.saturating_mul(2));
        drop(view);
        let fresh = Arc::new(Overlay::with_room(room, self.env.random_u64()));
        let seqno = self.published.load(Ordering::Acquire);
        let seg_id = self.moved_seg_id.load(Ordering::Acquire);
        let mut frozen = false;
        self.change_view(|view| {
            if view.frozen.is_some() || !view.runs.is_empty() {
                return view.clone();
            }
            frozen = true;
            let overlay = Arc::clone(&view.active);
            let frozen = Some(Frozen { overlay, seqno, seg_id });
            View { active: fresh, frozen, ..view.clone() }
        });
        if frozen {
            *lock(&self.merge_due) = true;
            self.merge_changed.notify_all();
        }
        frozen
    }

    /// Work that a commit may have made due.
    pub(crate) fn after_commit(&self, writer: &mut Writer) -> Result<()> {
        if self.index_bad.load(Ordering::Acquire) {
            match self.rebuild_index(writer) {
                // Lookups that need it say so; opening again reads the damaged segment's records instead.
                Err(Error::Corrupt(corrupt)) => {
                    tracing::error!(%corrupt, "cannot rebuild the index")
                }
                result => result?,
            }
        }
        let is_due = self.freeze_if_due() || self.retry_merge_if_due();
        if self.mode.background {
            return Ok(());
        }
        // The commit is done; a full disk is the next one's to report.
        let unless_full = |result| match result {
            Err(Error::NoSpace) => Ok(()),
            result => result,
        };
        let is_tending_due = self.is_tending_due();
        if is_tending_due {
            unless_full(self.lock_keeper().tend(self))?;
        }
        if is_due {
            unless_full(self.merge())?;
        }
        if is_tending_due || is_due {
            self.consider_compaction();
        }
        Ok(())
    }

    /// A merge that found no space left its overlay frozen. It is tried again when the next overlay is full, and from then on
    /// whenever that has grown by an eighth.
    fn retry_merge_if_due(&self) -> bool {
        let view = self.view.load();
        let len = view.active.len();
        let is_due = view.frozen.is_some()
            && len >= self.overlay_max(&view)
            && len >= self.merge_again_at.load(Ordering::Relaxed);
        if is_due {
            self.merge_again_at.store(len + len / 8, Ordering::Relaxed);
            *lock(&self.merge_due) = true;
            self.merge_changed.notify_all();
        }
        is_due
    }

    /// Gives up the image and goes by the runs of all segments, until a merge has made a new one.
    pub(crate) fn rebuild_index(&self, writer: &mut Writer) -> Result<()> {
        tracing::warn!("the index image is damaged; rebuilding it from the log");
        let mut keeper = self.lock_keeper();
        if !self.mode.read_only {
            // The image may be all that knew of records that are not sealed yet.
            self.check_writable()?;
            self.roll(writer);
            self.hand_over(writer);
            keeper.tend(self)?;
        }
        let mut segments: Vec<_> = keeper.segments.values().map(|kept| &kept.sealed).collect();
        segments.sort_by_key(|sealed| std::cmp::Reverse(sealed.entry.base_seqno.get()));
        let runs: Vec<_> =
            segments.into_iter().map(|sealed| LateRun::new(&self.fixed, sealed)).collect();
        self.rebuilds.fetch_add(1, Ordering::AcqRel);
        let image = Arc::new(Image::void(self.geometry()));
        let damaged = Arc::clone(&self.view.load().image);
        if damaged.is_on_disk() {
            keeper.damaged = Some(damaged);
        }
        self.change_view(|view| View {
            image,
            runs: runs.into(),
            frozen: None,
            gone: None,
            ..view.clone()
        });
        self.index_bad.store(false, Ordering::Release);
        *lock(&self.merge_due) = true;
        self.merge_changed.notify_all();
        Ok(())
    }

    fn is_tending_due(&self) -> bool {
        let supply = self.lock_supply();
        !supply.sealing.is_empty() || (supply.drawn && supply.reserve.len() < RESERVE)
    }

    /// Seals segments and refills the reserve whenever there is something to do, until the bucket closes.
    fn keep(&self) {
        loop {
            let mut supply = self.lock_supply();
            loop {
                if supply.closing {
                    return;
                }
                let due =
                    !supply.sealing.is_empty() || (supply.drawn && supply.reserve.len() < RESERVE);
                if due && !self.stopped.load(Ordering::Acquire) {
                    break;
                }
                match self.supply_changed.wait(supply) {
                    Ok(guard) => supply = guard,
                    Err(_) => return,
                }
            }
            drop(supply);
            let result = self.lock_keeper().tend(self);
            // NoSpace is the next commit's to report.
            let _ = self.latch(result);
            self.consider_compaction();
        }
    }

    /// Merges whenever an overlay is frozen, until the bucket closes.
    fn merge_on_demand(&self) {
        loop {
            self.read_in_if_idle();
            self.consider_compaction();
            let mut due = lock(&self.merge_due);
            while !*due || self.stopped.load(Ordering::Acquire) {
                if self.is_closing() {
                    return;
                }
                match self.merge_changed.wait(due) {
                    Ok(guard) => due = guard,
                    Err(_) => return,
                }
            }
            drop(due);
            if self.is_closing() {
                return;
            }
            let result = self.merge();
            if self.is_closing() {
                return;
            }
            if let Err(Error::NoSpace) = result {
                tracing::warn!("no space for a new index image");
            }
            let _ = self.latch(result);
        }
    }

    /// Reads in the image of a bucket that was just opened, unless that would keep others waiting. Before the runs are folded
    /// in, which would otherwise read it page by page.
    fn read_in_if_idle(&self) {
        let is_idle = || {
            let view = self.view.load();
            let is_due = view.frozen.is_some() || view.active.len() >= self.overlay_max(&view);
            !is_due && !self.is_closing()
        };
        let image = Arc::clone(&self.view.load().image);
        // What this finds damaged, the lookup that needs it rebuilds.
        let _ = self.read_in(&image, is_idle);
    }

    /// Reads an image in after the bucket was opened, and counts what it names in each segment: what died shortly before a
    /// crash may not be in the table.
    pub(crate) fn read_in(&self, image: &Image, idle: impl Fn() -> bool) -> Result<()> {
        let mut named = SegmentSums::new(&self.lock_keeper(), self.geometry());
        if image.read_in(&self.log, idle, |paddr| named.add(paddr, 1))? {
            self.lock_keeper().note_named(image, &named.sums);
        }
        Ok(())
    }

    /// Asks for compaction if it is worth it, or if the disk is full.
    fn consider_compaction(&self) {
        let choice = self.choice();
        if self.lock_supply().starved || choice.wants_image() || !choice.pick().is_empty() {
            self.throttle.adjust(&choice);
            self.ask_for_compaction();
        }
    }

    pub(crate) fn ask_for_compaction(&self) {
        *lock(&self.compact_due) = true;
        self.compact_changed.notify_all();
    }

    /// Compacts whenever it is worth it, until the bucket closes.
    fn compact_on_demand(&self) {
        loop {
            let mut due = lock(&self.compact_due);
            while !*due || self.stopped.load(Ordering::Acquire) {
                if self.stop_compacting.load(Ordering::Acquire) {
                    return;
                }
                match self.compact_changed.wait(due) {
                    Ok(guard) => due = guard,
                    Err(_) => return,
                }
            }
            *due = false;
            drop(due);
            if self.stop_compacting.load(Ordering::Acquire) {
                return;
            }
            // What fails here is tried again when there is more to do.
            if let Err(error) = self.compact_in_background()
                && !self.stop_compacting.load(Ordering::Acquire)
            {
                tracing::warn!(%error, "compaction did not finish");
            }
        }
    }

    /// Ends background compaction.
    pub(crate) fn end_compaction(&self) {
        self.stop_compacting.store(true, Ordering::Release);
        drop(lock(&self.compact_due));
        self.compact_changed.notify_all();
        drop(self.lock_compacting());
    }

    /// Tells the threads to end.
    pub(crate) fn begin_closing(&self) {
        self.lock_supply().closing = true;
        self.supply_changed.notify_all();
        drop(lock(&self.merge_due));
        self.merge_changed.notify_all();
    }
}

/// Stops the bucket if the thread that holds it panics, so that nobody waits for that thread.
struct StopOnPanic<'a>(&'a Core);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.0.latch::<()>(Err(Error::Stopped("a thread panicked".to_owned())));
        }
    }
}

/// What an overlay may hold while the one before it is merged.
fn with_quarter(entries: usize) -> usize {
    entries.saturating_add(entries / 4)
}

/// Starts the threads of a bucket.
pub(crate) fn start(core: &Arc<Core>) -> Result<Vec<JoinHandle<()>>> {
    if !core.mode.background || core.mode.read_only {
        return Ok(Vec::new());
    }
    let spawn = |name: &str, work: fn(&Core)| {
        let core = Arc::clone(core);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _stop = StopOnPanic(&core);
                work(&core);
            })
            .map_err(Error::io("start a background thread"))
    };
    Ok(vec![
        spawn("kvb-keeper", Core::keep)?,
        spawn("kvb-merger", Core::merge_on_demand)?,
        spawn("kvb-mover", Core::compact_on_demand)?,
    ])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use host::{MemoryDisk, SystemEnv};

    use super::*;
    use crate::batch::Batch;
    use crate::bucket::Bucket;
    use crate::options::{Durability, Options};

    /// It was not while there were runs to fold in, and after every such open half of all cold lookups read a page of the index.
    #[test]
    fn an_image_is_read_in_though_there_are_runs() {
        // More than an image that a clean close writes anew: it stays behind, and the last records are in runs only.
        let (per_image, per_batch) = (100_000_u32, 10_000);
        let options = || {
            let options = Options::default().durability(Durability::Relaxed);
            options.overlay_min(usize::try_from(per_image).expect("small"))
        };
        let disk = Arc::new(MemoryDisk::with_capacity(64 << 20));
        let bucket =
            Bucket::create_on(disk.clone(), Arc::new(SystemEnv), options().background(false))
                .expect("a bucket");
        for first in (0..3 * per_image / 2).step_by(per_batch) {
            let mut batch = Batch::new();
            for key in first..first + u32::try_from(per_batch).expect("small") {
                batch.put(key.to_le_bytes(), b"value");
            }
            bucket.commit(batch).expect("a commit");
        }
        bucket.close().expect("closed");

        let bucket = Bucket::open_on(disk, Arc::new(SystemEnv), options()).expect("open");
        assert!(bucket.mount_report().runs > 0, "nothing to fold in");
        let start = Instant::now();
        let image = Arc::clone(&bucket.core().view.load().image);
        assert!(image.is_on_disk());
        while image.liveness().is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "the image was not read in");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
