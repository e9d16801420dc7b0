//! Counters and what they add up to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::core::{Core, lock};
use crate::error::Result;

/// Threads beyond this many share counters: as many as `TAKEN` has bits.
const LANES: usize = 32;

/// What a bucket holds and has done since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys, counting equal hashes as equal keys and expired keys as there.
    pub keys: u64,
    /// Records put since open.
    pub puts: u64,
    /// Lookups since open.
    pub gets: u64,
    /// Lookups that found a value.
    pub hits: u64,
    /// Records deleted since open.
    pub deletes: u64,
    /// Bytes of records written since open.
    pub bytes_written: u64,
    /// Bytes of records that compaction moved since open.
    pub bytes_moved: u64,
    /// Bytes of records in the log.
    pub bytes_log: u64,
    /// Bytes of those that are live. What changed since the last merge of the index is estimated from a sample.
    pub bytes_live: u64,
    /// Sealed segments.
    pub segments: u64,
    /// Bytes of their extents, with footers and side data.
    pub segment_bytes: u64,
    /// Seconds spent compacting since open.
    pub compaction_seconds: f64,
    /// Open snapshots.
    pub snapshots: u64,
    /// Seqno of the oldest open snapshot, or 0.
    pub oldest_snapshot: u64,
    /// Bytes of space that is not needed any more but for snapshots, values that are held, or readers in other processes.
    pub pinned_bytes: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Pages of the segment region that hold nothing.
    pub free_bytes: u64,
    /// Index changes in memory.
    pub overlay_entries: u64,
    /// Bytes of the index image.
    pub index_bytes: u64,
    /// Highest committed seqno.
    pub commit_seqno: u64,
    /// Checkpoints ever written.
    pub epoch: u64,
}

impl Stats {
    /// Share of lookups that found a value; 0 if there were none.
    pub fn hit_rate(&self) -> f64 {
        share(self.hits, self.gets)
    }

    /// Share of the log that is dead.
    pub fn garbage_ratio(&self) -> f64 {
        share(self.bytes_log.saturating_sub(self.bytes_live), self.bytes_log)
    }
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a ratio")]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    gets: AtomicU64,
    hits: AtomicU64,
}

/// Counters. A thread that looks up counts in a lane of its own, without the processor's locks: two of those cost a
/// lookup of what is not there a third of its time.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    lanes: [Lane; LANES],
    /// Of threads without one.
    shared: Lane,
    puts: AtomicU64,
    deletes: AtomicU64,
    bytes_written: AtomicU64,
    compaction_ns: AtomicU64,
    retired_bytes: AtomicU64,
    moved_bytes: AtomicU64,
}

/// A bit for every lane that a thread has.
static TAKEN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The lane of this thread, once it was asked for. Beyond all there are: it has none.
    static LANE: Cell<Option<usize>> = const { Cell::new(None) };
    /// Gives it back at the end of the thread.
    static OWNED: Owned = const { Owned };
}

struct Owned;

impl Drop for Owned {
    fn drop(&mut self) {
        let lane = LANE.replace(Some(LANES)).unwrap_or(LANES);
        // Release: whoever has the lane next adds to all that was counted here.
        TAKEN.fetch_and(!bit(lane), Ordering::Release);
    }
}

/// The bit of a lane, or none.
fn bit(lane: usize) -> u32 {
    u32::try_from(lane).ok().and_then(|lane| 1_u32.checked_shl(lane)).unwrap_or(0)
}

#[inline]
fn lane() -> usize {
    LANE.get().unwrap_or_else(take_lane)
}

#[cold]
fn take_lane() -> usize {
    let free = |taken: u32| {
        let lane = usize::try_from(taken.trailing_ones()).unwrap_or(LANES);
        (lane < LANES).then(|| taken | bit(lane))
    };
    // A thread that is about to end could not give it back.
    let taken = OWNED
        .try_with(|_| TAKEN.fetch_update(Ordering::Acquire, Ordering::Relaxed, free).ok())
        .unwrap_or(None);
    let first_free = |taken: u32| usize::try_from(taken.trailing_ones()).ok();
    let lane = taken.and_then(first_free).unwrap_or(LANES);
    LANE.set(Some(lane));
    lane
}

impl Counters {
    #[inline]
    pub(crate) fn got(&self, lookups: u64, hits: u64) {
        if let Some(lane) = self.lanes.get(lane()) {
            // Nobody else writes here.
            let add = |to: &AtomicU64, more| {
                to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
            };
            add(&lane.gets, lookups);
            add(&lane.hits, hits);
        } else {
            self.shared.gets.fetch_add(lookups, Ordering::Relaxed);
            self.shared.hits.fetch_add(hits, Ordering::Relaxed);
        }
    }

    pub(crate) fn wrote(&self, bytes: u64, records: u64, puts: u64) {
        self.puts.fetch_add(puts, Ordering::Relaxed);
        self.deletes.fetch_add(records - puts, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Time spent compacting.
    pub(crate) fn compacted(&self, nanos: u64) {
        self.compaction_ns.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Bytes of records that compaction moved.
    pub(crate) fn moved(&self, bytes: u64) {
        self.moved_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of records in segments that compaction gave up.
    pub(crate) fn retired(&self, bytes: u64) {
        self.retired_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// All such bytes since open.
    pub(crate) fn retired_bytes(&self) -> u64 {
        self.retired_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn fill(&self, stats: &mut Stats) {
        let sum = |of: fn(&Lane) -> &AtomicU64| {
            let lanes = self.lanes.iter().chain([&self.shared]);
            lanes.map(|lane| of(lane).load(Ordering::Relaxed)).sum()
        };
        stats.gets = sum(|lane| &lane.gets);
        stats.hits = sum(|lane| &lane.hits);
        stats.puts = self.puts.load(Ordering::Relaxed);
        stats.deletes = self.deletes.load(Ordering::Relaxed);
        stats.bytes_written = self.bytes_written.load(Ordering::Relaxed);
        stats.bytes_moved = self.moved_bytes.load(Ordering::Relaxed);
        let nanos = self.compaction_ns.load(Ordering::Relaxed);
        stats.compaction_seconds = std::time::Duration::from_nanos(nanos).as_secs_f64();
    }
}

impl Core {
    /// What the bucket holds and has done.
    pub(crate) fn stats(&self) -> Result<Stats> {
        let mut stats = Stats::default();
        self.counters.fill(&mut stats);
        if !self.view.load().runs.is_empty() {
            let _merging = lock(&self.merging);
            self.fold_runs()?;
        }
        let wide = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let view = self.view.load();
        stats.keys = view.count_keys(&self.log)?;
        let frozen = view.frozen.as_ref().map_or(0, |frozen| frozen.overlay.len());
        stats.overlay_entries = wide(view.active.len() + frozen);
        {
            let snapshots = lock(&self.snapshots);
            stats.snapshots = wide(snapshots.count());
            stats.oldest_snapshot = snapshots.oldest().unwrap_or(0);
        }
        let choice = self.choice();
        stats.bytes_log = choice.total + choice.tail;
        stats.bytes_live = stats.bytes_log - choice.dead;
        let keeper = self.lock_keeper();
        let geometry = self.geometry();
        stats.index_bytes = geometry.paddr(keeper.image.page_count());
        stats.segments = wide(keeper.segments.len());
        let pages = keeper.segments.values().map(|kept| kept.sealed.extent().page_count);
        stats.segment_bytes = geometry.paddr(pages.sum());
        let pinned = keeper.retired.iter().map(|retired| retired.extent.page_count);
        stats.pinned_bytes = geometry.paddr(pinned.sum());
        stats.file_bytes = geometry.paddr(keeper.b_page + 1);
        stats.free_bytes = geometry.paddr(keeper.space.free_pages() + keeper.space.raw_pages());
        stats.epoch = keeper.epoch;
        stats.commit_seqno = self.position().seqno;
        Ok(stats)
    }
}
