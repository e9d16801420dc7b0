//! Slowing commits down when they make garbage faster than compaction takes it away.
//!
//! Up to [`EASY`] times the live bytes the log may be without consequence. From there to [`HARD`] a commit waits an
//! increasing part of the time in which compaction takes away as much as the commit adds, behind it more. A commit never
//! waits longer than [`WAIT_MAX_NS`], and waits before it takes any lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::Core;
use crate::victims::Choice;

/// Log bytes per live byte, in percent, up to which nothing waits.
const EASY: u64 = 138;
/// Log bytes per live byte, in percent, at which commits are as slow as compaction.
const HARD: u64 = 150;
/// Longest wait of a commit.
const WAIT_MAX_NS: u64 = 4_000_000;
/// Nanoseconds that taking a byte away is believed to cost until it was measured.
const COST_FIRST: u64 = 20;
/// Most that is believed.
const COST_MAX: u64 = 200;

/// How much commits are slowed down.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// What compaction needs to take a byte away, in nanoseconds.
    cost: AtomicU64,
    /// How long a commit waits per byte, in nanoseconds.
    wait: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle { cost: AtomicU64::new(COST_FIRST), wait: AtomicU64::new(0) }
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

    /// Goes by how much of the log is dead.
    pub(crate) fn adjust(&self, choice: &Choice) {
        let live = (choice.total - choice.dead).max(1);
        let percent = choice.total.saturating_mul(100) / live;
        // In small buckets a few segments weigh much and cost nothing.
        let is_easy = percent <= EASY || choice.dead <= 4 * choice.trifle;
        let share = percent.saturating_sub(EASY).min(3 * (HARD - EASY));
        let wait = self.cost.load(Ordering::Relaxed) * share / (HARD - EASY);
        self.wait.store(if is_easy { 0 } else { wait }, Ordering::Relaxed);
    }
}

impl Core {
    /// Waits as long as a commit of so many bytes should.
    pub(crate) fn throttle(&self, bytes: usize) {
        let wait = self.throttle.wait.load(Ordering::Relaxed);
        if wait > 0 && self.mode.background {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            std::thread::sleep(Duration::from_nanos(bytes.saturating_mul(wait).min(WAIT_MAX_NS)));
        }
    }
}
