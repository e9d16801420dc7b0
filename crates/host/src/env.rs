//! Time and randomness, so that a run can be replayed from a seed.

#![allow(clippy::expect_used, reason = "without randomness there is nothing to go on with")]

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Where time and randomness come from.
pub trait Env: Send + Sync + fmt::Debug {
    /// Wall clock in nanoseconds since 1970. It may jump either way.
    fn unix_ns(&self) -> u64;

    /// Nanoseconds since some fixed moment, never backwards, for measuring how long something took.
    fn monotonic_ns(&self) -> u64;

    /// Sixty-four unpredictable bits.
    fn random_u64(&self) -> u64;

    /// The process id written into segment headers.
    fn pid(&self) -> u32;
}

/// The operating system's clock and randomness.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemEnv;

impl Env for SystemEnv {
    fn unix_ns(&self) -> u64 {
        #[expect(clippy::disallowed_methods, reason = "the one place where time enters")]
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        let elapsed = START.get_or_init(Instant::now).elapsed();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    fn random_u64(&self) -> u64 {
        getrandom::u64().expect("the operating system provides randomness")
    }

    fn pid(&self) -> u32 {
        std::process::id()
    }
}

/// The distance between two states of the seeded sequence.
pub(crate) const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// SplitMix64: every state gives a different value, and any seed will do.
pub(crate) fn mix(state: u64) -> u64 {
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A clock that moves only when told, and randomness from a seed.
#[derive(Debug)]
pub struct ManualEnv {
    unix_ns: AtomicU64,
    state: AtomicU64,
}

impl ManualEnv {
    /// Starts the clock at `unix_ns` and the random sequence at `seed`.
    pub fn new(unix_ns: u64, seed: u64) -> Self {
        ManualEnv { unix_ns: AtomicU64::new(unix_ns), state: AtomicU64::new(seed) }
    }

    /// Sets the clock, forwards or backwards.
    pub fn set(&self, unix_ns: u64) {
        self.unix_ns.store(unix_ns, Ordering::SeqCst);
    }

    /// Moves the clock forward.
    pub fn advance(&self, nanos: u64) {
        self.unix_ns.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Env for ManualEnv {
    fn unix_ns(&self) -> u64 {
        self.unix_ns.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.unix_ns()
    }

    fn random_u64(&self) -> u64 {
        let state = self.state.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
        mix(state)
    }

    fn pid(&self) -> u32 {
        1
    }
}
