//! The suites: what `all` runs.

use crate::ledger::{self, Ledger};
use crate::workload::USUAL;

pub struct Suite {
    pub name: &'static str,
    pub title: &'static str,
    pub work: Work,
}

/// What a suite does.
pub enum Work {
    Stores(Stores),
    Ledger(&'static Ledger),
}

/// Workloads on the stores, for each of some sizes.
pub struct Stores {
    /// Numbers of keys.
    pub sizes: &'static [usize],
    /// Bytes of a value.
    pub value: usize,
    pub rounds: usize,
    pub workloads: &'static [&'static str],
    pub engines: Engines,
    /// What a round takes on two cores, about.
    pub minutes: f64,
}

pub enum Engines {
    All,
    Only(&'static [&'static str]),
    Without(&'static str),
}

/// All suites, in the order they run.
pub const ALL: &[Suite] = &[
    stores("small", "The usual workloads", Stores { rounds: 3, ..USUAL_STORES }),
    stores(
        "large",
        "The usual workloads on five times the keys",
        Stores { sizes: &[5_000_000], ..USUAL_STORES },
    ),
    stores(
        "churn",
        "Churn, and commits with work in the background",
        Stores {
            rounds: 2,
            workloads: &["churn", "put-latency", "mixed", "blocks"],
            minutes: 17.0,
            ..USUAL_STORES
        },
    ),
    stores(
        "kib",
        "Values of 1 KiB",
        Stores {
            sizes: &[500_000],
            value: 1024,
            rounds: 2,
            workloads: &["put", "block", "get", "get2", "miss", "scan-full", "cold"],
            ..USUAL_STORES
        },
    ),
    stores(
        "big",
        "Values of 64 KiB",
        Stores {
            sizes: &[10_000],
            value: 64 << 10,
            rounds: 2,
            workloads: &["block", "get", "get2", "reopen"],
            // It cannot store them.
            engines: Engines::Without("candystore"),
            ..USUAL_STORES
        },
    ),
    stores(
        "cold",
        "Not in the page cache, values of 100 bytes",
        Stores { rounds: 2, workloads: &["cold"], ..USUAL_STORES },
    ),
    stores(
        "limited",
        "Twice as much data as memory, values of 1 KiB",
        Stores { value: 1024, workloads: &["limited"], ..USUAL_STORES },
    ),
    stores(
        GROWTH,
        "Growth, values of 100 bytes",
        Stores {
            sizes: &[100_000, 1_000_000, 10_000_000],
            workloads: &["block", "get", "miss", "reopen", "kill"],
            engines: Engines::Only(&[
                "kvb",
                "lmdb",
                "rocksdb",
                "redb",
                "fjall",
                "candystore",
                "parity-db",
                "floor",
            ]),
            ..USUAL_STORES
        },
    ),
    ledger(&ledger::RUBIN),
    ledger(&ledger::CSMT),
    ledger(&ledger::MISAKA),
];

/// The suite whose sizes are shown side by side.
pub const GROWTH: &str = "growth";

const USUAL_STORES: Stores = Stores {
    sizes: &[1_000_000],
    value: 100,
    rounds: 1,
    workloads: USUAL,
    engines: Engines::All,
    minutes: 10.0,
};

const fn stores(name: &'static str, title: &'static str, work: Stores) -> Suite {
    Suite { name, title, work: Work::Stores(work) }
}

const fn ledger(ledger: &'static Ledger) -> Suite {
    Suite { name: ledger.name, title: ledger.title, work: Work::Ledger(ledger) }
}

impl Suite {
    /// Rounds, unless somebody says otherwise.
    pub fn rounds(&self) -> usize {
        match &self.work {
            Work::Stores(stores) => stores.rounds,
            Work::Ledger(_) => ledger::ROUNDS,
        }
    }

    /// What a round takes on two cores, about.
    pub fn minutes(&self) -> f64 {
        match &self.work {
            Work::Stores(stores) => stores.minutes,
            Work::Ledger(ledger) => ledger.minutes,
        }
    }
}

impl Engines {
    /// Whether this engine takes part.
    pub fn has(&self, engine: &str) -> bool {
        match self {
            Engines::All => true,
            Engines::Only(names) => names.contains(&engine),
            Engines::Without(name) => *name != engine,
        }
    }
}
