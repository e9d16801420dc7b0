//! The same stores in every engine, faults of an engine that leave nothing wrong behind, and nothing that a validator must not have.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/chain.rs"]
mod chain;
#[path = "../../ledger/tests/support/failing.rs"]
mod failing;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use chain::{Chain, dump, effort};
use failing::Failing;
use fastrand::Rng;
use ledger::{Batch, Engine, EngineError, EngineKind, MemoryEngine, Snapshot};
use misaka::tables::{self, ALL, CANONICAL};
use misaka::{Checkpoint, Database, Settings, Store};

fn settings() -> Settings {
    Settings { chain_id: Some(7), event_retention: 3, window: 5, v2_at: Some(258) }
}

fn story(rng: &mut Rng, count: usize) -> (Vec<Checkpoint>, Vec<Vec<Vec<misaka::Pair>>>) {
    let mut chain = Chain::new(settings(), 250);
    let mut after = vec![chain.model.dump()];
    let mut checkpoints = Vec::new();
    for _ in 0..count {
        checkpoints.push(chain.grow(rng, 10));
        after.push(chain.model.dump());
    }
    (checkpoints, after)
}

#[test]
fn every_engine_has_the_same_pairs() {
    let mut rng = Rng::with_seed(seed::seed("every_engine_has_the_same_pairs"));
    let (checkpoints, after) = story(&mut rng, 16);
    for kind in EngineKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::new(dir.path().join("db"));
        let store = database.init(*kind, settings(), effort()).unwrap();
        for (checkpoint, after) in checkpoints.iter().zip(&after[1..]) {
            store.apply(checkpoint).unwrap();
            assert!(dump(&store) == *after, "{}", kind.name());
        }
        drop(store);
        let again = database.open(effort()).unwrap();
        assert!(dump(&again) == after[after.len() - 1], "{} opened again", kind.name());
        assert_eq!(again.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
    }
}

#[test]
fn a_fault_anywhere_leaves_a_store_that_goes_on() {
    let mut rng = Rng::with_seed(seed::seed("a_fault_anywhere_leaves_a_store_that_goes_on"));
    let (checkpoints, after) = story(&mut rng, 12);
    for is_done_all_the_same in [false, true] {
        for call in 0..80 {
            let calls = Arc::new(AtomicI64::new(i64::MAX));
            let engine = MemoryEngine::new();
            let failing = Failing { engine, calls: Arc::clone(&calls), is_done_all_the_same };
            let store = Store::init(Box::new(failing), settings(), effort()).unwrap();
            calls.store(call, Ordering::SeqCst);
            let mut next = 0;
            while let Some(checkpoint) = checkpoints.get(next) {
                let applied = store.apply(checkpoint);
                // Whoever looks on is not to be what fails.
                let left = calls.swap(i64::MAX, Ordering::SeqCst);
                let tip = store.view().unwrap().tip().unwrap().map(|tip| tip.header.seq);
                match applied {
                    Ok(_) => next += 1,
                    // Whether it was done, the store itself tells.
                    Err(_) => next += usize::from(tip == Some(checkpoint.header.seq)),
                }
                assert!(dump(&store) == after[next], "call {call}");
                calls.store(left, Ordering::SeqCst);
            }
            calls.store(i64::MAX, Ordering::SeqCst);
            assert_eq!(store.verify(&|_, _, _| {}).unwrap().findings, [""; 0], "call {call}");
        }
    }
}

/// An engine that notes which tables are written to, and with what.
#[derive(Debug, Default)]
struct Watching {
    engine: MemoryEngine,
    written: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Engine for Watching {
    fn name(&self) -> &'static str {
        "watching"
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        self.engine.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        let names = batch.iter().map(|change| change.table.name);
        self.written.lock().unwrap().extend(names);
        self.engine.commit(batch)
    }
}

#[test]
fn a_validator_writes_its_stores_and_its_own_notes_and_nothing_else() {
    let mut rng = Rng::with_seed(3);
    let (checkpoints, after) = story(&mut rng, 16);
    let watching = Watching::default();
    let written = Arc::clone(&watching.written);
    let store = Store::init(Box::new(watching), settings(), effort()).unwrap();
    for checkpoint in &checkpoints {
        store.apply(checkpoint).unwrap();
    }
    let notes = [tables::NOTES, tables::JOURNAL, tables::FEED, tables::TREE, tables::META];
    let allowed: BTreeSet<&str> = CANONICAL.iter().chain(&notes).map(|table| table.name).collect();
    assert_eq!(*written.lock().unwrap(), allowed);
    assert_eq!(ALL.len(), allowed.len());
    // No key that is not of one of the five stores can be seen.
    for (rows, prefix) in dump(&store).iter().zip(["obj/", "ver/", "ckpt/", "evt/", "sys/params/"])
    {
        assert!(rows.iter().all(|(key, _)| key.starts_with(prefix.as_bytes())));
    }
    assert_eq!(dump(&store), after[after.len() - 1]);
    // Nothing leads from an owner to what it owns: no key of any table has an owner in it.
    let snapshot = store.engine().snapshot().unwrap();
    for owner in 0..4_u8 {
        for table in ALL {
            let rows =
                snapshot.scan(*table, (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded));
            for row in rows.unwrap() {
                let key = row.unwrap().0.into_owned();
                assert!(!key.windows(32).any(|part| part == [owner; 32]), "{}", table.name);
            }
        }
    }
}

#[test]
fn the_indexer_is_not_in_the_validator() {
    // The crate of the validator does not know the one of the indexer: the other way round only.
    let manifest = include_str!("../Cargo.toml");
    assert!(!manifest.contains("indexer"));
    for name in ["owner_index", "by_owner", "objects_of"] {
        let sources = sources(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")));
        for (path, text) in sources {
            assert!(!text.contains(name), "{name} in {}", path.display());
        }
    }
}

fn sources(dir: &std::path::Path) -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(sources(&path)),
            false => found.push((path.clone(), std::fs::read_to_string(&path).unwrap())),
        }
    }
    found
}
