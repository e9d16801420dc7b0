//! Entries and rows that somebody made up: an error, or what they say, and never the end of the process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/story.rs"]
mod story;

use csmt::format::rollback::Operation;
use csmt::tables::{ALL, ARRIVALS, CSMT};
use csmt::{Effort, Error, PathKind, Settings, Store};
use ledger::{Batch, Engine, MemoryEngine};
use story::{insert, point, rows, stored};

const KEY_BYTES: usize = 2000;

fn store(threads: usize) -> Store {
    let effort = Effort { threads, ..Effort::default() };
    let settings = Settings { path: PathKind::Raw, k: 5 };
    Store::init(Box::new(MemoryEngine::new()), settings, effort).unwrap()
}

/// Keys that begin with a zero, enough for a thread, and beside them a branch at every bit of a long path.
fn deep(value: &[u8]) -> Vec<Operation> {
    let mut operations = Vec::new();
    for number in 0..256_u16 {
        let mut key = vec![0; KEY_BYTES];
        key[1..3].copy_from_slice(&number.to_be_bytes());
        operations.push(insert(&key, value));
    }
    let mut key = vec![0; KEY_BYTES];
    for bit in 0..8 * KEY_BYTES {
        key[bit / 8] |= 0x80 >> (bit % 8);
        operations.push(insert(&key, value));
    }
    operations
}

#[test]
fn a_deep_tree_is_no_deeper_for_a_second_thread() {
    let (one, two) = (store(1), store(2));
    for store in [&one, &two] {
        store.forward(point(1), &deep(b"1")).unwrap();
        store.forward(point(2), &deep(b"2")).unwrap();
    }
    assert_eq!(two.root().unwrap(), one.root().unwrap());
    assert_eq!(rows(&two, CSMT), rows(&one, CSMT));
}

/// Nodes that hang below each other without end would need a stack to be forgotten.
#[test]
fn what_is_read_ahead_has_an_end_downwards() {
    let store = store(2);
    store.forward(point(1), &deep(b"1")).unwrap();
    let nodes = store.warm().unwrap();
    // Both sides of each branch, what shares a row with the last, and the keys that begin with a zero.
    assert!((1200..2500).contains(&nodes), "{nodes}");
    store.forward(point(2), &deep(b"2")).unwrap();
    store.rollback(point(1)).unwrap();
    assert_eq!(store.verify(&mut |_| {}).unwrap().findings, [""; 0]);
}

#[test]
fn points_with_numbers_far_apart_are_refused_at_once() {
    for last in [1 << 40, u64::MAX - 1, u64::MAX] {
        let made = store(1);
        made.forward(point(1), &[insert(b"key", b"value")]).unwrap();
        let engine = MemoryEngine::new();
        let mut batch = Batch::new();
        for table in ALL {
            for (key, value) in stored(&made, *table) {
                let is_newest = *table == ARRIVALS && key == 1_u64.to_be_bytes();
                let key = if is_newest { last.to_be_bytes().to_vec() } else { key };
                batch.put(*table, &key, &value);
            }
        }
        engine.commit(batch).unwrap();
        let refused = Store::open(Box::new(engine), Effort::default())
            .and_then(|store| store.forward(point(2), &[insert(b"other", b"value")]));
        assert!(matches!(refused, Err(Error::Inconsistent(_))), "{last}: {refused:?}");
    }
}
