//! Chains that tests follow.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::BTreeMap;
use std::ops::Bound;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::tables::CANONICAL;
use csmt::{Entry, Hash, Store};
use fastrand::Rng;
use ledger::Table;

/// Entries by key.
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn insert(key: &[u8], value: &[u8]) -> Operation {
    Operation::Insert { key: key.to_vec(), value: value.to_vec() }
}

pub(crate) fn delete(key: &[u8]) -> Operation {
    Operation::Delete { key: key.to_vec() }
}

pub(crate) fn point(slot: u64) -> Point {
    Point::block(slot, Hash::of(&slot.to_be_bytes()))
}

/// An output at one of some addresses.
pub(crate) fn output(rng: &mut Rng, addresses: u16) -> Vec<u8> {
    let [high, low] = rng.u16(..addresses).to_be_bytes();
    let address = [0x61, high, low].repeat(9);
    let mut value = vec![0x82, 0x58, u8::try_from(address.len()).unwrap()];
    value.extend(address);
    value.extend([0x19, rng.u8(1..), rng.u8(..)]);
    value
}

pub(crate) fn input(rng: &mut Rng) -> Vec<u8> {
    let mut key = vec![0x82, 0x58, 0x20];
    key.extend((0..32).map(|_| rng.u8(..)));
    key.push(rng.u8(..24));
    key
}

pub(crate) fn rows(store: &Store, table: Table) -> Vec<Entry> {
    let view = store.view().unwrap();
    let rows = view.rows(table).unwrap();
    rows.map(|row| row.unwrap())
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}

/// The same as they are stored.
pub(crate) fn stored(store: &Store, table: Table) -> Vec<Entry> {
    let snapshot = store.engine().snapshot().unwrap();
    let rows = snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    rows.map(|row| row.unwrap())
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}

/// The rows of all tables that the specification names.
pub(crate) fn all_rows(store: &Store) -> Vec<Vec<Entry>> {
    CANONICAL.iter().map(|table| rows(store, *table)).collect()
}

/// A random chain: each block with its point, what it does, and what there is after it.
pub(crate) struct Story {
    pub(crate) blocks: Vec<(Point, Vec<Operation>)>,
    pub(crate) after: Vec<Entries>,
}

impl Story {
    pub(crate) fn new(rng: &mut Rng, count: usize, operations_max: usize) -> Story {
        let (mut live, mut slot) = (Entries::new(), 0);
        let mut story = Story { blocks: Vec::new(), after: Vec::new() };
        for _ in 0..count {
            // Now and then two blocks share a slot.
            slot += rng.u64(..4);
            let at = Point::block(slot, Hash::of(&rng.u64(..).to_be_bytes()));
            let mut operations = Vec::new();
            for _ in 0..rng.usize(..operations_max) {
                let keys: Vec<&Vec<u8>> = live.keys().collect();
                let key = rng.choice(&keys).map(|key| (*key).clone());
                let operation = match (rng.u8(..6), key) {
                    (0..3, Some(key)) => Operation::Delete { key },
                    (3, Some(key)) => Operation::Insert { key, value: output(rng, 5) },
                    _ => Operation::Insert { key: input(rng), value: output(rng, 5) },
                };
                match &operation {
                    Operation::Delete { key } => drop(live.remove(key)),
                    Operation::Insert { key, value } => {
                        live.insert(key.clone(), value.clone());
                    }
                }
                operations.push(operation);
            }
            story.blocks.push((at, operations));
            story.after.push(live.clone());
        }
        story
    }
}
