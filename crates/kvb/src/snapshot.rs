//! Snapshots: the bucket as of one commit, for as long as it is wanted.
//!
//! A snapshot is a view, the seqno of the last commit it may see, and the time by which it judges deadlines. Taking
//! one copies nothing. While it is open, overlays keep what commits replace, and no space that its view leads to is
//! given back.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Core, lock};
use crate::error::{Corrupt, Error, Result, What};
use crate::overlay::Sight;
use crate::reader::Pinned;
use crate::scan::{Rows, Scan};
use crate::value::{Pin, Value};
use crate::view::View;

/// Which snapshots are open.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// How many at each seqno.
    open: BTreeMap<u64, usize>,
}

impl Snapshots {
    /// Seqno of the newest.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.open.last_key_value().map(|(seqno, _)| *seqno)
    }

    /// Seqno of the oldest.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.open.first_key_value().map(|(seqno, _)| *seqno)
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.open.values().sum()
    }
}

/// The bucket as of one commit. Reads see that commit and judge deadlines by the time it was taken, whatever is
/// written, merged or compacted meanwhile. Space that only a snapshot needs stays taken until it is dropped.
pub struct Snapshot<'a> {
    base: Base<'a>,
    view: Arc<View>,
    seqno: u64,
    now: u64,
}

/// Whose snapshot it is.
enum Base<'a> {
    Bucket(&'a Core),
    Reader(Pinned),
}

impl Base<'_> {
    fn core(&self) -> &Core {
        match self {
            Base::Bucket(core) => core,
            Base::Reader(pinned) => &pinned.mounted.core,
        }
    }
}

impl Core {
    /// What is committed now: the view and the last seqno in it.
    pub(crate) fn current(&self) -> (Arc<View>, u64) {
        let _no_commits = lock(&self.snapshots);
        // Order: a commit that is published has its segments in the view.
        let seqno = self.published.load(Ordering::Acquire);
        (self.view.load_full(), seqno)
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        let (view, seqno) = self.register_snapshot();
        Snapshot { base: Base::Bucket(self), view, seqno, now: self.clock.now() }
    }

    fn register_snapshot(&self) -> (Arc<View>, u64) {
        let mut snapshots = lock(&self.snapshots);
        let seqno = self.published.load(Ordering::Acquire);
        *snapshots.open.entry(seqno).or_default() += 1;
        (self.view.load_full(), seqno)
    }
}

impl Snapshot<'_> {
    /// A reader's, with all it needs.
    pub(crate) fn of_reader(pinned: Pinned) -> Snapshot<'static> {
        let core = &pinned.mounted.core;
        let (view, seqno) = core.register_snapshot();
        let now = core.clock.now();
        Snapshot { base: Base::Reader(pinned), view, seqno, now }
    }

    /// The time by which it judges deadlines.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn core(&self) -> &Core {
        self.base.core()
    }

    /// Seqno of the last commit in it.
    pub fn seqno(&self) -> u64 {
        self.seqno
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        let key = key.as_ref();
        let core = self.base.core();
        core.check_lookup()?;
        let hash = core.hash.slot_hash(key);
        let found = match self.view.find(&core.log, hash, key, Sight::UpTo(self.seqno)) {
            // The image is this snapshot's for good; the log knows as much.
            Err(Error::Corrupt(Corrupt { what: What::IndexPage, .. })) => {
                self.range(key..=key).next().transpose()?.map(|row| row.record)
            }
            found => found?,
        };
        let found = found.filter(|record| !record.header.is_expired(self.now));
        core.counters.got(1, u64::from(found.is_some()));
        found.map(|record| core.value(record, Pin::Elsewhere)).transpose()
    }

    /// True if the key has a value.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The rows whose keys begin with `prefix`, in key order; from the back in the opposite order.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Scan<'_> {
        Scan::new(self.rows(), crate::scan::prefix_range(prefix.as_ref()))
    }

    /// The rows whose keys are in a range, in key order; from the back in the opposite order.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan<'_> {
        Scan::new(self.rows(), crate::scan::key_range(&range))
    }

    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows {
            core: self.base.core(),
            view: Arc::clone(&self.view),
            seqno: self.seqno,
            now: self.now,
            pins: false,
        }
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let mut snapshots = lock(&self.base.core().snapshots);
        if let Some(count) = snapshots.open.get_mut(&self.seqno) {
            *count -= 1;
            if *count == 0 {
                snapshots.open.remove(&self.seqno);
            }
        }
    }
}

impl fmt::Debug for Snapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seqno", &self.seqno).finish_non_exhaustive()
    }
}
