//! Counters and what they add up to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads beyond this many share counters.
const LANES: usize = 16;

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
    /// Bytes of records in the log that are not known to be dead.
    pub bytes_live: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Pages of the segment region that hold nothing.
    pub free_bytes: u64,
    /// Sealed segments.
    pub segments: u64,
    /// Index changes in memory.
    pub overlay_entries: u64,
    /// Bytes of the index image.
    pub index_bytes: u64,
    /// Highest committed seqno.
    pub commit_seqno: u64,
    /// Checkpoints ever written.
    pub epoch: u64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    gets: AtomicU64,
    hits: AtomicU64,
}

/// Counters; readers count in lanes of their own so that they do not share a cache line.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    lanes: [Lane; LANES],
    puts: AtomicU64,
    deletes: AtomicU64,
    bytes_written: AtomicU64,
    compaction_ns: AtomicU64,
    retired_bytes: AtomicU64,
}

thread_local! {
    static LANE: Cell<Option<usize>> = const { Cell::new(None) };
}

fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LANE.with(|lane| {
        lane.get().unwrap_or_else(|| {
            let own = NEXT.fetch_add(1, Ordering::Relaxed) % LANES;
            lane.set(Some(own));
            own
        })
    })
}

impl Counters {
    #[inline]
    pub(crate) fn got(&self, lookups: u64, hits: u64) {
        if let Some(lane) = self.lanes.get(lane()) {
            lane.gets.fetch_add(lookups, Ordering::Relaxed);
            lane.hits.fetch_add(hits, Ordering::Relaxed);
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
            self.lanes.iter().map(|lane| of(lane).load(Ordering::Relaxed)).sum()
        };
        stats.gets = sum(|lane| &lane.gets);
        stats.hits = sum(|lane| &lane.hits);
        stats.puts = self.puts.load(Ordering::Relaxed);
        stats.deletes = self.deletes.load(Ordering::Relaxed);
        stats.bytes_written = self.bytes_written.load(Ordering::Relaxed);
    }
}
