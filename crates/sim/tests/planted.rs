//! Every bug that can be planted is found within a few hundred seeds, and the seed that finds it finds nothing without it.
//!
//! Which seed that is moves whenever a history takes other pages or calls the disk in another order, so it is looked for and not fixed
//! here; `docs/testing.md` lists those of the engine as it is.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests say what they found and fail by panicking"
)]

use host::planted::{Bug, plant};
use sim::find;

const SEEDS_MAX: u64 = 0x200;

/// The system that a bug is looked for in.
fn system_of(bug: Bug) -> &'static str {
    match bug {
        Bug::CommitNotSynced => "csmt",
        Bug::ManifestFirst => "rubin",
        _ => "bucket",
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let system = find(system_of(*bug)).unwrap();
        plant(Some(*bug));
        let found = (0..SEEDS_MAX).find(|seed| system.run_seed(*seed).is_err());
        plant(None);
        let Some(seed) = found else {
            panic!("{bug:?} is not found by {SEEDS_MAX} seeds of {}", system.name());
        };
        println!("{bug:?}: {} {seed:#x}", system.name());
        if let Err(failure) = system.run_seed(seed) {
            panic!("{} {seed:#x} without {bug:?}: {failure}", system.name());
        }
    }
}
