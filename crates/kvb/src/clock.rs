//! The bucket's clock: never behind the newest stamp, unless that stamp is from a clock gone wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use host::Env;

/// Stamps further ahead of the wall than this are not believed.
const AHEAD_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Gives stamps and judges deadlines.
#[derive(Debug)]
pub(crate) struct Clock {
    env: Arc<dyn Env>,
    newest: AtomicU64,
}

impl Clock {
    pub(crate) fn new(env: Arc<dyn Env>) -> Clock {
        Clock {
            env,
            newest: AtomicU64::new(0),
        }
    }

    /// Takes note of a stamp found in the log.
    pub(crate) fn observe(&self, stamp_ns: u64) {
        let limit = self.env.unix_ns().saturating_add(AHEAD_MAX_NS);
        if stamp_ns > limit {
            tracing::warn!(
                stamp_ns,
                "a time stamp is over a day ahead of the clock; ignored"
            );
        } else {
            self.newest.fetch_max(stamp_ns, Ordering::AcqRel);
        }
    }

    /// Now, for judging deadlines.
    pub(crate) fn now(&self) -> u64 {
        let wall = self.env.unix_ns();
        let newest = self.newest.load(Ordering::Acquire);
        if newest <= wall.saturating_add(AHEAD_MAX_NS) {
            wall.max(newest)
        } else {
            wall
        }
    }

    /// Now, for stamping records; later calls never give less, short of a clock set back by over a day.
    pub(crate) fn stamp(&self) -> u64 {
        let now = self.now();
        self.newest.store(now, Ordering::Release);
        now
    }

    /// The newest stamp, for the superblock.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}
