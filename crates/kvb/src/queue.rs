//! Group commit: commits that wait at the same time share one write and one sync.
//!
//! Whoever finds nobody at work leads: it commits its own batch and everything queued. Then it gives the lead to the
//! first who queued meanwhile. A leader waits for company only if the last group had some, and at most a quarter of
//! the last sync, so a lone writer is never delayed.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::batch::Batch;
use crate::core::{Core, lock};
use crate::error::{Error, Result};
use crate::options::Durability;

/// Most batches in a group.
const GROUP_MAX: usize = 256;
/// Longest wait for company.
const WAIT_MAX_NS: u64 = 4_000_000;
/// Syncs that take longer than this are slept through. Waking up takes tens of microseconds, which shorter ones are not worth.
const SLEEP_NS: u64 = 500_000;
/// Longer ones count as long as this, so that they are soon forgotten.
const SYNC_MAX_NS: u64 = 2_000_000;
/// Most times that somebody who waits gives way before it sleeps, whatever the clock says.
const YIELDS_MAX: usize = 10_000;

/// Commits waiting for a leader.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    last_sync_ns: AtomicU64,
    /// How long syncs take of late: one slow one among quick ones sends nobody to sleep.
    usual_sync_ns: AtomicU64,
    /// How many wait, for a leader to look at without the lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Waiter>,
    is_led: bool,
    /// Size of the last group.
    last_group: usize,
}

#[derive(Debug)]
struct Waiter {
    batch: Batch,
    durability: Durability,
    seat: Arc<Seat>,
}

impl Drop for Waiter {
    /// Nobody waits forever, even if the leader panicked.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "the thread that led the commit panicked".to_owned();
            self.seat.give(Outcome::Done(Err(Error::Stopped(reason))));
        }
    }
}

/// Where a queued commit waits for what becomes of it.
#[derive(Debug, Default)]
struct Seat {
    is_ready: AtomicBool,
    state: Mutex<Seated>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct Seated {
    outcome: Option<Outcome>,
    is_asleep: bool,
}

#[derive(Debug)]
enum Outcome {
    Done(Result<()>),
    Lead,
}

impl Seat {
    fn give(&self, outcome: Outcome) {
        let mut state = lock(&self.state);
        state.outcome = Some(outcome);
        let is_asleep = state.is_asleep;
        drop(state);
        self.is_ready.store(true, Ordering::Release);
        if is_asleep {
            self.ready.notify_one();
        }
    }

    /// Waits, at first awake, as long as `stays_awake` says so.
    fn wait(&self, stays_awake: impl Fn() -> bool) -> Outcome {
        for _ in 0..YIELDS_MAX {
            if self.is_ready.load(Ordering::Acquire) || !stays_awake() {
                break;
            }
            std::thread::yield_now();
        }
        let mut state = lock(&self.state);
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            state.is_asleep = true;
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The lead of the queue, given on when it is dropped, also by a panic.
struct Lead<'a> {
    core: &'a Core,
    group: usize,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.core.hand_lead_on(self.group);
    }
}

impl Queue {
    /// Notes how long a sync took.
    pub(crate) fn synced_in(&self, nanos: u64) {
        self.last_sync_ns.store(nanos, Ordering::Relaxed);
        let usual = self.usual_sync_ns.load(Ordering::Relaxed);
        self.usual_sync_ns.store((3 * usual + nanos.min(SYNC_MAX_NS)) / 4, Ordering::Relaxed);
    }

    /// How long to wait awake: for a few syncs, if they are short.
    fn awake_ns(&self) -> u64 {
        let sync = self.usual_sync_ns.load(Ordering::Relaxed);
        if sync <= SLEEP_NS { 4 * sync } else { 0 }
    }
}

impl Core {
    /// Commits a batch, with others if others commit at the same time.
    pub(crate) fn commit(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.check_writable()?;
        batch.check(self.fixed.max_value)?;
        let batch = batch.stored_by(&self.codec, self.fixed.enc());
        self.throttle(batch.bytes.len());
        let seat = {
            let mut state = lock(&self.queue.state);
            if state.is_led {
                let seat = Arc::new(Seat::default());
                state.waiting.push(Waiter { batch, durability, seat: Arc::clone(&seat) });
                self.queue.waiting.store(state.waiting.len(), Ordering::Release);
                seat
            } else {
                state.is_led = true;
                drop(state);
                let result = self.lead_with(batch, durability);
                self.settle();
                return result;
            }
        };
        let start = self.env.monotonic_ns();
        let limit = self.queue.awake_ns();
        match seat.wait(|| self.env.monotonic_ns().saturating_sub(start) < limit) {
            Outcome::Done(result) => result,
            Outcome::Lead => {
                let result = self.lead_group(&seat);
                self.settle();
                result
            }
        }
    }

    /// Leads with a batch that never queued.
    fn lead_with(&self, batch: Batch, durability: Durability) -> Result<()> {
        let mut lead = Lead { core: self, group: 1 };
        let mut others = self.gather(1);
        if others.is_empty() {
            return self.commit_group(&mut self.lock_writer(), &mut [batch], durability);
        }
        lead.group += others.len();
        let mut batches = vec![batch];
        let durability = others.iter().map(|waiter| waiter.durability).fold(durability, Ord::max);
        batches.extend(others.iter_mut().map(|waiter| std::mem::take(&mut waiter.batch)));
        let mut results = self.commit_all(batches, durability).into_iter();
        let own = results.next().unwrap_or(Ok(()));
        for (waiter, result) in others.iter().zip(results) {
            waiter.seat.give(Outcome::Done(result));
        }
        own
    }

    /// Leads a group in which the caller's batch is queued.
    fn lead_group(&self, own_seat: &Arc<Seat>) -> Result<()> {
        let mut lead = Lead { core: self, group: 1 };
        let mut waiters = self.gather(0);
        lead.group = waiters.len();
        let durability =
            waiters.iter().map(|waiter| waiter.durability).fold(Durability::Relaxed, Ord::max);
        let batches = waiters.iter_mut().map(|waiter| std::mem::take(&mut waiter.batch)).collect();
        let results = self.commit_all(batches, durability);
        let mut own = Ok(());
        for (waiter, result) in waiters.iter().zip(results) {
            if Arc::ptr_eq(&waiter.seat, own_seat) {
                own = result;
            } else {
                waiter.seat.give(Outcome::Done(result));
            }
        }
        own
    }

    /// Without threads of its own, a bucket compacts here, where no lock is held, and folds in an index that had to be
    /// rebuilt.
    pub(crate) fn settle(&self) {
        if !self.mode.background && !self.mode.read_only && !self.view.load().runs.is_empty() {
            let merged = self.merge();
            let _ = self.latch(merged);
        }
        if !self.mode.background && std::mem::take(&mut *lock(&self.compact_due)) {
            // The commit is done; what fails here is tried again when there is more to do.
            let _ = self.compact_in_background();
        }
    }

    /// Takes what is queued, after a short wait if the last group was larger than what is here now.
    fn gather(&self, own: usize) -> Vec<Waiter> {
        let mut state = lock(&self.queue.state);
        let wanted = state.last_group;
        if wanted > 1 && state.waiting.len() + own < wanted {
            drop(state);
            let limit = (self.queue.last_sync_ns.load(Ordering::Relaxed) / 4).min(WAIT_MAX_NS);
            let start = self.env.monotonic_ns();
            while self.queue.waiting.load(Ordering::Acquire) + own < wanted
                && self.env.monotonic_ns().saturating_sub(start) < limit
            {
                std::thread::yield_now();
            }
            state = lock(&self.queue.state);
        }
        let mut bytes = 0;
        let limit = self.geometry().paddr(self.fixed.segment_page_max);
        let fits = |waiter: &Waiter| {
            bytes += u64::try_from(waiter.batch.bytes.len()).unwrap_or(u64::MAX);
            bytes <= limit
        };
        let count = state.waiting.iter().take(GROUP_MAX).map(fits).take_while(|fits| *fits).count();
        // A batch that is over the limit alone goes alone.
        let count = if own == 0 { count.max(1).min(state.waiting.len()) } else { count };
        let taken = state.waiting.drain(..count).collect();
        self.queue.waiting.store(state.waiting.len(), Ordering::Release);
        taken
    }

    fn hand_lead_on(&self, group: usize) {
        let mut state = lock(&self.queue.state);
        state.last_group = group;
        match state.waiting.first() {
            Some(next) => next.seat.give(Outcome::Lead),
            None => state.is_led = false,
        }
    }

    /// Commits batches together. If there is no space for all of them, each is tried alone.
    fn commit_all(&self, mut batches: Vec<Batch>, durability: Durability) -> Vec<Result<()>> {
        let mut writer = self.lock_writer();
        match self.commit_group(&mut writer, &mut batches, durability) {
            Ok(()) => batches.iter().map(|_| Ok(())).collect(),
            Err(Error::NoSpace) => batches
                .into_iter()
                .map(|batch| self.commit_group(&mut writer, &mut [batch], durability))
                .collect(),
            Err(error) => batches.iter().map(|_| Err(error.share())).collect(),
        }
    }
}
