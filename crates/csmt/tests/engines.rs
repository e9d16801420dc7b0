//! The same rows in every engine, and faults of an engine that leave nothing wrong behind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../ledger/tests/support/failing.rs"]
mod failing;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/story.rs"]
mod story;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use csmt::{Database, Effort, PathKind, Settings, Store};
use failing::Failing;
use fastrand::Rng;
use ledger::{EngineKind, MemoryEngine};
use story::{Story, all_rows};

#[test]
fn every_engine_has_the_same_rows() {
    let mut rng = Rng::with_seed(seed::seed("every_engine_has_the_same_rows"));
    let story = Story::new(&mut rng, 20, 15);
    for path in [PathKind::Address, PathKind::Raw] {
        let settings = Settings { path, k: 6 };
        let memory = MemoryEngine::new();
        let wanted = Store::init(Box::new(memory), settings, Effort::default()).unwrap();
        for (at, operations) in &story.blocks {
            wanted.forward(*at, operations).unwrap();
        }
        wanted.rollback(story.blocks[16].0).unwrap();
        for kind in EngineKind::ALL {
            let dir = tempfile::tempdir().unwrap();
            let database = Database::new(dir.path().join("db"));
            let store = database.init(*kind, settings, Effort::default()).unwrap();
            for (at, operations) in &story.blocks {
                store.forward(*at, operations).unwrap();
            }
            store.rollback(story.blocks[16].0).unwrap();
            assert!(all_rows(&store) == all_rows(&wanted), "{}", kind.name());
            drop(store);
            let again = database.open(Effort::default()).unwrap();
            assert!(all_rows(&again) == all_rows(&wanted), "{} opened again", kind.name());
            assert_eq!(again.verify(&mut |_| {}).unwrap().findings, [""; 0]);
        }
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_has_the_column_families_of_the_specification() {
    let dir = tempfile::tempdir().unwrap();
    let database = Database::new(dir.path().join("db"));
    let settings = Settings::default();
    drop(database.init(EngineKind::RocksDb, settings, Effort::default()).unwrap());
    let names = ledger::RocksEngine::names(dir.path().join("db/db/rocksdb")).unwrap();
    for name in ["kv", "csmt", "rollbacks", "config"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
}

#[test]
fn a_fault_anywhere_leaves_a_store_that_goes_on() {
    let mut rng = Rng::with_seed(seed::seed("a_fault_anywhere_leaves_a_store_that_goes_on"));
    let story = Story::new(&mut rng, 8, 10);
    let settings = Settings { path: PathKind::Address, k: 6 };
    let calm = Store::init(Box::new(MemoryEngine::new()), settings, Effort::default()).unwrap();
    let mut after = vec![all_rows(&calm)];
    for (at, operations) in &story.blocks {
        calm.forward(*at, operations).unwrap();
        after.push(all_rows(&calm));
    }
    for is_done_all_the_same in [false, true] {
        for call in 0..200 {
            let calls = Arc::new(AtomicI64::new(i64::MAX));
            let engine = MemoryEngine::new();
            let failing = Failing { engine, calls: Arc::clone(&calls), is_done_all_the_same };
            let store = Store::init(Box::new(failing), settings, Effort::default()).unwrap();
            calls.store(call, Ordering::SeqCst);
            let mut next = 0;
            while let Some((at, operations)) = story.blocks.get(next) {
                match store.forward(*at, operations) {
                    Ok(_) => next += 1,
                    // Whether it was done, the store itself tells.
                    Err(_) => next += usize::from(store.tip().unwrap() == *at),
                }
                // Whoever looks on is not to be what fails.
                let left = calls.swap(i64::MAX, Ordering::SeqCst);
                assert!(all_rows(&store) == after[next], "call {call}");
                calls.store(left, Ordering::SeqCst);
            }
            // And back, with a fault on the way.
            calls.store(call % 7, Ordering::SeqCst);
            let to = story.blocks[4].0;
            if store.rollback(to).is_err() {
                store.rollback(to).unwrap();
            }
            calls.store(i64::MAX, Ordering::SeqCst);
            let rows = all_rows(&store);
            assert!(rows[..2] == after[5][..2], "call {call}");
            assert_eq!(store.verify(&mut |_| {}).unwrap().findings, [""; 0]);
        }
    }
}
