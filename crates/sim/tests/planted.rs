//! Every bug that can be planted is found, by the seed that `docs/testing.md` names for it, and that seed finds nothing without it.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use host::planted::{Bug, plant};
use sim::find;

/// The system and the seed that finds a bug.
fn seed(bug: Bug) -> (&'static str, u64) {
    match bug {
        Bug::CommitNotSynced => ("csmt", 0x0),
        Bug::SuperblocksTogether => ("bucket", 0x1),
        Bug::CheckpointEarly => ("bucket", 0xb),
        Bug::FreedEarly => ("bucket", 0x6),
        Bug::LengthLate => ("bucket", 0x4),
        Bug::JournalOverrun => ("bucket", 0x2),
        Bug::JournalEarly => ("bucket", 0x8),
        Bug::HalfABatch => ("bucket", 0x0),
        Bug::TombstoneDropped => ("bucket", 0x1),
        Bug::RecordUnchecked => ("bucket", 0x37),
        Bug::KeyNotCompared => ("bucket", 0x17),
        Bug::FailureIgnored => ("bucket", 0x1),
        Bug::TwoWriters => ("bucket", 0x0),
        Bug::ManifestFirst => ("rubin", 0x5),
    }
}

#[test]
fn every_planted_bug_is_found() {
    for bug in Bug::ALL {
        let (system, seed) = seed(*bug);
        let system = find(system).unwrap();
        plant(Some(*bug));
        let found = system.run_seed(seed);
        plant(None);
        assert!(found.is_err(), "{bug:?} is not found by {} {seed:#x}", system.name());
        if let Err(failure) = system.run_seed(seed) {
            panic!("{} {seed:#x} without {bug:?}: {failure}", system.name());
        }
    }
}
