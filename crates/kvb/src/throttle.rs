//! Slowing commits down when they make garbage faster than compaction takes it away.
//!
//! Up to [`EASY`] thousandths of the live bytes more than is worth a compaction segments may take without consequence. At [`HARD`] a
//! commit waits as long as compaction takes to take away as much as the commit adds, and in proportion before and behind it; from [`STOP`]
//! on the wait grows [`STEEP`] times as fast. It goes by bytes: a small commit never pays for what large ones left. None waits longer
//! than [`WAIT_MAX_NS`] for every [`WAIT_BYTES`] it begins, and all wait before they take any lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::Core;
use crate::victims::Choice;

/// Bytes of segments per live byte, in thousandths, beyond what is worth a compaction, up to which nothing waits.
const EASY: u64 = 40;
/// The same at which commits are as slow as compaction.
const HARD: u64 = 90;
/// The same from which on they must not outrun it.
const STOP: u64 = 120;
const STEEP: u64 = 8;
/// Longest wait of a commit of no more than [`WAIT_BYTES`].
const WAIT_MAX_NS: u64 = 4_000_000;
const WAIT_BYTES: u64 = 64 << 10;
/// Dead bytes for which nobody waits, and live bytes as which fewer count.
const DEAD_MIN: u64 = 512 << 10;
const LIVE_MIN: u64 = 4 << 20;
/// Nanoseconds that taking a byte away is believed to cost until it was measured.
const COST_FIRST: u64 = 20;
/// Most that is believed.
const COST_MAX: u64 = 200;

/// How much commits are slowed down.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// What compaction needs to take a byte away, in nanoseconds.
    cost: AtomicU64,
    /// Bytes that segments took when somebody last looked, and that were live; 0 if there is no need to slow down.
    space: AtomicU64,
    live: AtomicU64,
    /// What is worth a compaction, in percent of the live bytes.
    worth: AtomicU64,
    /// Bytes committed since. Until it is known better each replaces another.
    ahead: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle {
            cost: AtomicU64::new(COST_FIRST),
            space: AtomicU64::new(0),
            live: AtomicU64::new(0),
            worth: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
        }
    }
}

impl Throttle {
    /// A round of compaction took so many bytes away in so much time.
    pub(crate) fn measured(&self, bytes: u64, nanos: u64) {
        if let Some(now) = nanos.checked_div(bytes) {
            let before = self.cost.load(Ordering::Relaxed);
            self.cost.store((3 * before + now.clamp(1, COST_MAX)) / 4, Ordering::Relaxed);
        }
    }

    /// Goes by how much space is taken.
    pub(crate) fn adjust(&self, choice: &Choice) {
        // In small buckets a few segments weigh much and cost nothing.
        let is_trifle = choice.dead <= choice.trifle.max(DEAD_MIN);
        let live = if is_trifle { 0 } else { choice.live().max(LIVE_MIN) };
        self.space.store(choice.space_at_least(), Ordering::Relaxed);
        self.live.store(live, Ordering::Relaxed);
        self.worth.store(choice.worth(), Ordering::Relaxed);
        self.ahead.store(0, Ordering::Relaxed);
    }

    /// Compaction has nothing to do.
    pub(crate) fn relax(&self) {
        self.live.store(0, Ordering::Relaxed);
    }

    /// How long a commit of so many bytes should wait, in nanoseconds.
    fn wait_ns(&self, bytes: u64) -> u64 {
        let live = self.live.load(Ordering::Relaxed);
        if live == 0 {
            return 0;
        }
        let ahead = self.ahead.fetch_add(bytes, Ordering::Relaxed);
        let space = self.space.load(Ordering::Relaxed).saturating_add(ahead);
        let worth = self.worth.load(Ordering::Relaxed);
        let beyond = (space.saturating_mul(1000) / live).saturating_sub(10 * worth);
        let weight =
            beyond.saturating_sub(EASY) + (STEEP - 1).saturating_mul(beyond.saturating_sub(STOP));
        let cost = self.cost.load(Ordering::Relaxed).saturating_mul(weight);
        let most = WAIT_MAX_NS.saturating_mul(1 + bytes / WAIT_BYTES);
        (cost.saturating_mul(bytes) / (HARD - EASY)).min(most)
    }
}

impl Core {
    /// Waits as long as a commit of so many bytes should.
    pub(crate) fn throttle(&self, bytes: usize) {
        if !self.mode.background {
            return;
        }
        let wait = self.throttle.wait_ns(u64::try_from(bytes).unwrap_or(u64::MAX));
        if wait > 0 {
            std::thread::sleep(Duration::from_nanos(wait));
        }
    }
}
