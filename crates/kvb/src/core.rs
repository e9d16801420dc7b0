//! What all parts of an open bucket share.
//!
//! Locks, always taken in this order: `compacting`, `moving`, `writer` (one commit at a time), `merging` (one merge at a time), `keeper`
//! (superblocks and space), `supply` (segments going back and forth between writer and keeper), `snapshots`. Lookups take
//! none of them. One exception: folding runs takes `writer` while it holds `merging`. That is safe because nothing is frozen
//! while there are runs, and only who finds something frozen merges, or waits for a merge, with the writer's lock.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use host::planted::{Bug, is_planted};
use host::{Disk, Env};

use crate::ahead::Pace;
use crate::bulletin::Bulletin;
use crate::clock::Clock;
use crate::codec::Codec;
use crate::error::{Corrupt, Error, Result};
use crate::extent::Geometry;
use crate::format::extension::HASH_XXH3;
use crate::format::record::ENC_AEAD;
use crate::format::roster::NamedExtent;
use crate::format::superblock::{FLAG_ENCRYPTED, FLAG_NO_DIRECTORY};
use crate::hash::{HashKey, KeyHash};
use crate::keeper::Keeper;
use crate::keys::KeyProvider;
use crate::log::Log;
use crate::options::Durability;
use crate::queue::Queue;
use crate::segment::{Segment, Style};
use crate::snapshot::Snapshots;
use crate::stats::Counters;
use crate::throttle::Throttle;
use crate::tidy::Tidy;
use crate::view::View;
use crate::writer::Writer;

/// What creation fixed.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    pub(crate) geometry: Geometry,
    pub(crate) uuid: (u64, u64),
    pub(crate) created_unix_ns: u64,
    pub(crate) flags: u64,
    pub(crate) hash_key: HashKey,
    pub(crate) hash_kind: u16,
    pub(crate) max_value: u32,
    pub(crate) segment_page_max: u64,
    pub(crate) index_page_min: u64,
    pub(crate) journal_start_page: u64,
    pub(crate) journal_page_count: u64,
    pub(crate) segment_start_page: u64,
    pub(crate) bulletin_page: u64,
}

impl Fixed {
    /// The hash of keys.
    pub(crate) fn hash(&self) -> KeyHash {
        if self.hash_kind == HASH_XXH3 { KeyHash::Xxh3 } else { KeyHash::sip(&self.hash_key) }
    }

    /// What `enc` of every record has beside the form of its value.
    pub(crate) fn enc(&self) -> u8 {
        if self.is_encrypted() { ENC_AEAD } else { 0 }
    }

    /// True if records are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.flags & FLAG_ENCRYPTED != 0
    }

    /// How segments of the log are sealed.
    pub(crate) fn style(&self) -> Style {
        Style {
            has_directory: self.flags & FLAG_NO_DIRECTORY == 0,
            is_moved: false,
            is_guard: false,
            is_encrypted: self.is_encrypted(),
            is_salted: self.is_encrypted(),
        }
    }
}

/// How this handle was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) durability: Durability,
    pub(crate) background: bool,
    pub(crate) overlay_min: usize,
    pub(crate) slack: u32,
    pub(crate) read_only: bool,
    /// Durable records of the tail are lost, so that scans would miss them.
    pub(crate) tail_damage: Option<Corrupt>,
    /// Up to this seqno. An image that does not know that much would miss them too.
    pub(crate) durable_seqno: u64,
}

/// The end of the committed log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) seqno: u64,
    pub(crate) paddr: u64,
}

/// Segments between the writer and the keeper.
#[derive(Debug, Default)]
pub(crate) struct Supply {
    /// Extents that a durable superblock names and nothing is written to yet.
    pub(crate) reserve: VecDeque<NamedExtent>,
    /// Full segments waiting to be sealed.
    pub(crate) sealing: VecDeque<Arc<Segment>>,
    /// The writer took from the reserve since the keeper last looked.
    pub(crate) drawn: bool,
    /// The last try to get more space failed.
    pub(crate) starved: bool,
    /// Threads should end.
    pub(crate) closing: bool,
}

impl Supply {
    /// Extents that must stay in reserve: on a full disk one is for deletes.
    pub(crate) fn spare(&self, deletes_only: bool) -> usize {
        usize::from(!(deletes_only && self.starved))
    }

    /// Takes one of at least so many pages for compaction, but for the one for deletes.
    pub(crate) fn lend(&mut self, least: u64) -> Option<NamedExtent> {
        self.drawn = true;
        let is_enough = |named: &NamedExtent| u64::from(named.page_count.get()) >= least;
        let at = self.reserve.iter().skip(1).rposition(is_enough)?;
        self.reserve.remove(at + 1)
    }

    /// Pages of segments that wait to be sealed.
    pub(crate) fn unsealed_pages(&self) -> u64 {
        self.sealing.iter().map(|segment| segment.extent.page_count).sum()
    }
}

/// An open bucket.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) fixed: Fixed,
    pub(crate) mode: Mode,
    /// A writer's.
    pub(crate) bulletin: Option<Bulletin>,
    pub(crate) hash: KeyHash,
    /// Random, for the salts of segments begun while the bucket is open.
    pub(crate) session_salt: [u8; 16],
    /// Where keys come from.
    pub(crate) keys: Option<Arc<dyn KeyProvider>>,
    pub(crate) codec: Codec,
    pub(crate) log: Log,
    pub(crate) clock: Clock,
    pub(crate) view: ArcSwap<View>,
    /// Serialises changes of `view`, which the writer and the merger both make.
    pub(crate) view_change: Mutex<()>,
    /// The highest seqno readers may see.
    pub(crate) published: crate::sync::AtomicU64,
    pub(crate) position: Mutex<Position>,
    /// The index knows of every record moved to segments with ids up to this.
    pub(crate) moved_seg_id: AtomicU64,
    /// Held by whoever compacts.
    pub(crate) compacting: Mutex<()>,
    /// How many wait for that who were told to compact. The background makes way for them.
    pub(crate) compaction_asked: AtomicUsize,
    /// Background compaction should end.
    pub(crate) stop_compacting: AtomicBool,
    /// Set when compaction is worth it.
    pub(crate) compact_due: Mutex<bool>,
    pub(crate) compact_changed: Condvar,
    /// Held while an output of compaction is written and brought into the index.
    pub(crate) moving: Mutex<()>,
    /// The same for whoever must not wait for it: no overlay may be frozen. Changed under the writer's lock.
    pub(crate) is_moving: AtomicBool,
    /// An overlay would have been frozen.
    pub(crate) freeze_wanted: AtomicBool,
    /// Entries of the active overlay at which a merge that failed is tried again.
    pub(crate) merge_again_at: AtomicUsize,
    /// What scans ask for.
    pub(crate) tidy: Tidy,
    /// Bytes in an output that is registered, and whose origins are not counted as dead yet.
    pub(crate) copied_bytes: AtomicU64,
    /// How often the index was given up and made of all runs. Changed under the keeper's lock.
    pub(crate) rebuilds: AtomicU64,
    pub(crate) throttle: Throttle,
    pub(crate) pace: Pace,
    /// Bytes of a group of batches lately: of the largest, less and less as others follow.
    pub(crate) group_bytes: AtomicU64,
    /// Bytes that may die in the log before the next image; the keeper goes by how long the log is.
    pub(crate) dead_max: AtomicU64,
    /// Ids of segments with records that cannot be read.
    pub(crate) unreadable: Mutex<HashSet<u64>>,
    /// Open snapshots. Held while a commit is shown to readers, so that a snapshot is of a whole commit.
    pub(crate) snapshots: Mutex<Snapshots>,
    pub(crate) queue: Queue,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) keeper: Mutex<Keeper>,
    pub(crate) supply: Mutex<Supply>,
    /// Signalled when `supply` changes either way.
    pub(crate) supply_changed: Condvar,
    /// Held by whoever merges.
    pub(crate) merging: Mutex<()>,
    /// Set when the frozen overlay waits for a merge; cleared when it is merged.
    pub(crate) merge_due: Mutex<bool>,
    pub(crate) merge_changed: Condvar,
    /// A merge found a damaged page; the next commit rebuilds the index. Lookups find out by themselves.
    pub(crate) index_bad: AtomicBool,
    pub(crate) stopped: AtomicBool,
    pub(crate) stop_reason: OnceLock<String>,
    pub(crate) counters: Counters,
}

impl Core {
    pub(crate) fn geometry(&self) -> Geometry {
        self.fixed.geometry
    }

    /// Fails once a write has failed, and always on a read-only handle.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.mode.read_only {
            return Err(Error::Invalid("the bucket is open read-only"));
        }
        if self.stopped.load(Ordering::Acquire) {
            let reason = self.stop_reason.get().cloned().unwrap_or_default();
            return Err(Error::Stopped(reason));
        }
        Ok(())
    }

    /// Fails if what is lost may be newer than whatever a lookup finds.
    #[inline]
    pub(crate) fn check_lookup(&self) -> Result<()> {
        if self.mode.tail_damage.is_none() { Ok(()) } else { self.check_image() }
    }

    #[cold]
    fn check_image(&self) -> Result<()> {
        let is_known = self.view.load().image.place.seqno >= self.mode.durable_seqno;
        if is_known { Ok(()) } else { self.check_scan() }
    }

    /// Fails if what is lost may be newer than whatever a scan finds.
    pub(crate) fn check_scan(&self) -> Result<()> {
        self.mode.tail_damage.map_or(Ok(()), |damage| Err(damage.into()))
    }

    /// After a failed write or sync nobody knows what is on disk, so no further write may follow: passes the
    /// error through and latches it, unless nothing had been written.
    pub(crate) fn latch<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && !matches!(error, Error::NoSpace | Error::Invalid(_) | Error::TooLarge { .. })
        {
            let _ = self.stop_reason.set(error.to_string());
            if is_planted(Bug::FailureIgnored) {
                return result;
            }
            self.stopped.store(true, Ordering::Release);
            tracing::error!(%error, "writing stopped");
            // Whoever waits for the keeper or the merger must wake up and see it.
            drop(self.lock_supply());
            self.supply_changed.notify_all();
            drop(lock(&self.merge_due));
            self.merge_changed.notify_all();
            drop(lock(&self.compact_due));
            self.compact_changed.notify_all();
        }
        result
    }

    /// Waits until nobody else compacts; ahead of the background, which may have something to do for as long as there are
    /// commits.
    pub(crate) fn lock_compacting(&self) -> MutexGuard<'_, ()> {
        self.compaction_asked.fetch_add(1, Ordering::AcqRel);
        let alone = lock(&self.compacting);
        self.compaction_asked.fetch_sub(1, Ordering::AcqRel);
        alone
    }

    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        self.lock_or_stop(&self.writer)
    }

    pub(crate) fn lock_keeper(&self) -> MutexGuard<'_, Keeper> {
        self.lock_or_stop(&self.keeper)
    }

    /// Takes a lock over state that decides what is written. If a thread panicked while it held it, nothing may be
    /// built on that state any more: what is on disk is safe, and opening again recovers it.
    fn lock_or_stop<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(|poisoned| {
            let _ = self.stop_reason.set("a thread panicked".to_owned());
            self.stopped.store(true, Ordering::Release);
            poisoned.into_inner()
        })
    }

    pub(crate) fn lock_supply(&self) -> MutexGuard<'_, Supply> {
        lock(&self.supply)
    }

    /// The end of the committed log.
    pub(crate) fn position(&self) -> Position {
        *lock(&self.position)
    }

    /// Replaces the view by what `change` makes of it.
    pub(crate) fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let _guard = lock(&self.view_change);
        let next = change(&self.view.load());
        self.view.store(Arc::new(next));
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.lock_supply().closing
    }
}

/// Takes a lock over state that is whole at any moment, so that a thread that panicked while it held it left no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
