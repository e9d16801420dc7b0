//! Bringing an output of compaction into the index.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::error::{Error, Result, What};
use crate::output::{ORIGIN_NONE, Output};
use crate::overlay::{Keep, Lookup, Sight};
use crate::segment_sums::SegmentSums;

/// Entries of the index that are changed while commits wait. Whoever has fewer has to wait for commits more often.
const APPLY_SLICE: usize = 1024;
/// Bytes of a record that are looked at: header and key, mostly.
const HEAD_BYTES: usize = 128;

impl Core {
    /// Lets overlays be frozen again. An output up to this id is in the index.
    pub(crate) fn end_moving(&self, seg_id: Option<u64>) -> Result<()> {
        let is_frozen = {
            let _no_commits = self.lock_writer();
            if let Some(seg_id) = seg_id {
                self.moved_seg_id.fetch_max(seg_id, Ordering::AcqRel);
            }
            self.is_moving.store(false, Ordering::Release);
            self.freeze_wanted.swap(false, Ordering::AcqRel) && self.freeze_if_due()
        };
        let is_due = is_frozen && !self.mode.background && !self.stopped.load(Ordering::Acquire);
        if is_due { self.merge() } else { Ok(()) }
    }

    /// Makes the index name the copies in a registered output instead of their origins, but for records that were
    /// replaced meanwhile. Gives the bytes that died with this, by first page of their segment.
    /// Records without an origin are new.
    pub(crate) fn apply_output(&self, output: &Output) -> Result<HashMap<u64, u64>> {
        let geometry = self.geometry();
        let start_page = output.segment.extent.start_page;
        let start = geometry.paddr(start_page);
        let (hold, mut dead) = {
            let keeper = self.lock_keeper();
            let hold = keeper.segments.get(&start_page).map(|kept| Arc::clone(&kept.sealed.hold));
            (hold.unwrap_or_default(), SegmentSums::new(&keeper, geometry))
        };
        let moved: Vec<_> = output.segment.entries.iter().zip(&output.origins).collect();
        for slice in moved.chunks(APPLY_SLICE) {
            self.wait_for_room()?;
            // What can be waited for before commits have to wait.
            let active = Arc::clone(&self.view.load().active);
            for (entry, _) in slice {
                active.touch(entry.slot_hash.get());
                self.log.touch(start + entry.record_offset(), HEAD_BYTES);
            }
            drop(active);
            {
                let _no_commits = self.lock_writer();
                self.secure_overlay(slice.len())?;
                let view = self.view.load();
                view.active.hold(&hold, start);
                // Tombstones are in no index.
                for (entry, origin) in slice.iter().filter(|(entry, _)| !entry.is_delete()) {
                    let paddr = start + entry.record_offset();
                    // Written just now from a record that was checked; whoever reads it checks it again.
                    let found = self.log.header(paddr).zip(self.log.try_key(paddr));
                    let (header, key) = found.ok_or_else(|| Error::corrupt(What::Record, paddr))?;
                    let hash = entry.slot_hash.get();
                    let bytes = header.record_len();
                    let everything = Sight::UpTo(u64::MAX);
                    let known = view.active.find(&self.log, hash, &key, everything)?;
                    let is_current = matches!(known, Lookup::Absent);
                    let dead_at = if is_current {
                        view.active.set(&self.log, hash, paddr, Keep::NOTHING)?;
                        **origin
                    } else {
                        paddr
                    };
                    if dead_at != ORIGIN_NONE {
                        dead.add(dead_at, bytes);
                    }
                }
            }
            // Whoever waits to commit goes first.
            if self.mode.background {
                std::thread::yield_now();
            }
        }
        Ok(dead.sums)
    }
}
