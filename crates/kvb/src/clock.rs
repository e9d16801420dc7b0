//! The bucket's clock: never behind the newest stamp, unless that stamp is from a clock gone wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use host::Env;

/// Stamps further ahead of the wall than this are not believed.
const AHEAD_MAX_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Collects time stamps from the log and leaves out those of a clock gone wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stamps {
    limit_ns: u64,
    newest_ns: u64,
    ignored: u64,
}

impl Stamps {
    /// Stamps as seen at this time.
    pub(crate) fn seen_at(wall_ns: u64) -> Stamps {
        Stamps { limit_ns: wall_ns.saturating_add(AHEAD_MAX_NS), newest_ns: 0, ignored: 0 }
    }

    pub(crate) fn note(&mut self, stamp_ns: u64) {
        if stamp_ns > self.limit_ns {
            self.ignored += 1;
        } else {
            self.newest_ns = self.newest_ns.max(stamp_ns);
        }
    }
}

/// Gives stamps and judges deadlines.
#[derive(Debug)]
pub(crate) struct Clock {
    env: Arc<dyn Env>,
    newest: AtomicU64,
}

impl Clock {
    /// A clock that is not behind the stamps found.
    pub(crate) fn new(env: Arc<dyn Env>, stamps: Stamps) -> Clock {
        if stamps.ignored > 0 {
            let count = stamps.ignored;
            tracing::warn!(count, "time stamps over a day ahead of the clock are ignored");
        }
        Clock { env, newest: AtomicU64::new(stamps.newest_ns) }
    }

    /// Now, for judging deadlines.
    pub(crate) fn now(&self) -> u64 {
        let wall = self.env.unix_ns();
        let newest = self.newest.load(Ordering::Acquire);
        if newest <= wall.saturating_add(AHEAD_MAX_NS) { wall.max(newest) } else { wall }
    }

    /// Now, for stamping records; later calls never give less, short of a clock set back by over a day.
    pub(crate) fn stamp(&self) -> u64 {
        let now = self.now();
        self.newest.store(now, Ordering::Release);
        now
    }

    /// Goes on from a stamp that another clock gave, unless that is from one gone wrong.
    pub(crate) fn go_on_from(&self, stamp_ns: u64) {
        if stamp_ns <= self.env.unix_ns().saturating_add(AHEAD_MAX_NS) {
            self.newest.fetch_max(stamp_ns, Ordering::AcqRel);
        }
    }

    /// The newest stamp, for the superblock.
    pub(crate) fn newest(&self) -> u64 {
        self.newest.load(Ordering::Acquire)
    }
}
