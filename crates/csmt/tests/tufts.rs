//! Rows that have several nodes: their bytes, and that they are always those of the tree, however it came to be.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/story.rs"]
mod story;

use std::collections::BTreeMap;

use csmt::format::point::Point;
use csmt::format::tuft::{Form, Slot, Tuft};
use csmt::tables::CSMT;
use csmt::{Bits, Effort, Error, Hash, Node, Path, PathKind, RolledBack, Settings, Store};
use fastrand::Rng;
use ledger::MemoryEngine;
use story::{delete, insert, point, rows, stored};

fn bits(text: &str) -> Bits {
    Bits::from(&Path::parse(text).unwrap())
}

fn node(jump: &str, byte: u8) -> Node {
    Node { jump: Path::parse(jump).unwrap(), value: Hash([byte; 32]) }
}

/// All places of the tuft behind one bit.
fn slots() -> Vec<(String, Slot)> {
    let mut paths = vec!["1".to_owned()];
    for depth in 1..4 {
        for number in 0..1 << depth {
            paths.push(format!("1{number:0depth$b}"));
        }
    }
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), Form::Packed.slot(&bits(&path)))).collect()
}

#[test]
fn nodes_come_in_the_order_of_their_paths() {
    let mut tuft = Tuft::default();
    let all = slots();
    assert_eq!(all.len(), 15);
    for ((_, slot), byte) in all.iter().rev().zip(0..) {
        tuft.add(*slot, node("101", byte));
    }
    let bytes = tuft.to_bytes(Form::Packed);
    assert_eq!(bytes.len(), 2 + 15 * (2 + 1 + 32));
    assert_eq!(bytes[..5], [0x7f, 0xff, 0, 3, 0b1010_0000]);
    let read = Form::Packed.tuft(&bytes).unwrap();
    assert_eq!(read, tuft);
    let found: Vec<(String, u8)> = read
        .iter()
        .map(|(slot, node)| {
            let path: String = slot.bits().map(|bit| if bit { '1' } else { '0' }).collect();
            (format!("1{path}"), node.value.0[0])
        })
        .collect();
    let wanted: Vec<(String, u8)> =
        all.iter().zip((0..15).rev()).map(|((path, _), byte)| (path.clone(), byte)).collect();
    assert_eq!(found, wanted);
    for (path, slot) in &all {
        assert_eq!(slot.depth(), path.len() - 1);
        let mut one = Tuft::default();
        one.add(*slot, node("", 7));
        assert_eq!(Form::Packed.tuft(&one.to_bytes(Form::Packed)).unwrap(), one);
        // Whatever bits come before, it is the same place.
        let deep = format!("0110{path}");
        assert_eq!(Form::Packed.slot(&bits(&deep)), *slot);
    }
}

#[test]
fn tufts_begin_behind_the_top_and_behind_an_address() {
    let starts: Vec<usize> = (0..10).map(|depth| Form::Packed.start(depth)).collect();
    assert_eq!(starts, [0, 1, 1, 1, 1, 5, 5, 5, 5, 9]);
    assert_eq!([256, 257, 258, 260].map(|depth| Form::Packed.start(depth)), [253, 257, 257, 257]);
    assert!((0..10).all(|depth| Form::Service.start(depth) == depth));
    // What is below the top is never with it.
    assert!(Form::Packed.slot(&Bits::default()).branch(&Path::default()).is_none());
    let first = Form::Packed.slot(&bits("0"));
    let branch = first.branch(&Path::parse("10").unwrap()).unwrap();
    assert_eq!(branch, Form::Packed.slot(&bits("010")));
    assert!(first.branch(&Path::parse("101").unwrap()).is_none());
}

#[test]
fn other_bytes_are_refused() {
    let mut tuft = Tuft::default();
    for (_, slot) in slots().into_iter().step_by(4) {
        tuft.add(slot, node("0011001100", 3));
    }
    let bytes = tuft.to_bytes(Form::Packed);
    for len in 0..bytes.len() {
        assert!(Form::Packed.tuft(&bytes[..len]).is_err(), "{len} bytes");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert!(Form::Packed.tuft(&longer).is_err());
    for there in [[0, 0], [0x80, 0], [0xff, 0xff]] {
        let other = [&there, &bytes[2..]].concat();
        assert!(Form::Packed.tuft(&other).is_err(), "{there:?}");
    }
    // A jump has zeros behind its last bit.
    let mut other = bytes.clone();
    other[5] |= 1;
    assert!(Form::Packed.tuft(&other).is_err());
    assert!(Form::Packed.position(&Form::Packed.key(&bits("01010"))).is_ok());
    for position in ["01", "0101", "010101"] {
        assert!(Form::Packed.position(&Form::Packed.key(&bits(position))).is_err(), "{position}");
    }
}

/// Keys that part at every depth: few bits, none, or many in common.
fn keys(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..40).map(|_| vec![rng.u8(..128), rng.u8(..)]).collect();
    for _ in 0..6 {
        let common: Vec<u8> = [128 + rng.u8(..16)]
            .into_iter()
            .chain((0..rng.usize(1..8)).map(|_| rng.u8(..)))
            .collect();
        for _ in 0..rng.usize(2..12) {
            let mut key = common.clone();
            key.resize(9, 0);
            key.push(1 << rng.u8(..8) | rng.u8(..4));
            keys.push(key);
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

/// A tree of some entries, made in one go.
fn at_once(entries: &BTreeMap<Vec<u8>, Vec<u8>>) -> Store {
    let store = empty(Effort::default());
    let mut list = entries.iter().map(|(key, value)| Ok::<_, Error>((key.clone(), value.clone())));
    store.bootstrap(&mut list, Point::Origin, &mut |_| {}).unwrap();
    store
}

fn empty(effort: Effort) -> Store {
    let settings = Settings { path: PathKind::Raw, k: 10_000 };
    Store::init(Box::new(MemoryEngine::new()), settings, effort).unwrap()
}

/// Rows depend on nothing but the entries: not on the order in which they came and went, nor on what was in memory.
#[test]
fn rows_are_those_of_a_tree_made_in_one_go() {
    let mut rng = Rng::with_seed(seed::seed("rows_are_those_of_a_tree_made_in_one_go"));
    for round in 0..60 * seed::rounds() {
        let keys = keys(&mut rng);
        let memory = *rng.choice(&[0, 600, 4_000, 1 << 20]).unwrap();
        let store = empty(Effort { memory, ..Effort::default() });
        let mut live: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut before = vec![live.clone()];
        let mut slot = 0;
        for _ in 0..25 {
            slot += 1;
            // From almost nothing to almost all, so that branches come and go.
            let share = rng.u8(..100);
            let mut operations = Vec::new();
            for _ in 0..rng.usize(..30) {
                let key = rng.choice(&keys).unwrap();
                if rng.u8(..100) < share {
                    let value = vec![rng.u8(..); 3];
                    operations.push(insert(key, &value));
                    live.insert(key.clone(), value);
                } else if live.remove(key).is_some() {
                    operations.push(delete(key));
                }
            }
            store.forward(point(slot), &operations).unwrap();
            before.push(live.clone());
            if rng.u8(..4) == 0 {
                let to = rng.usize(before.len().saturating_sub(4)..before.len());
                let target = match u64::try_from(to).unwrap() {
                    0 => Point::Origin,
                    slot => point(slot),
                };
                let done = store.rollback(target).unwrap();
                assert!(matches!(done, RolledBack::Done { .. }));
                before.truncate(to + 1);
                live.clone_from(&before[to]);
                slot = u64::try_from(to).unwrap();
            }
            let whole = at_once(&live);
            assert_eq!(stored(&store, CSMT), stored(&whole, CSMT), "round {round}, block {slot}");
            assert_eq!(rows(&store, CSMT), rows(&whole, CSMT));
            assert_eq!(rows(&store, CSMT).len(), (2 * live.len()).saturating_sub(1));
        }
        assert_eq!(store.verify(&mut |_| {}).unwrap().findings, [""; 0]);
    }
}

/// A bootstrap that writes after every few entries, and so leaves rows half done, comes to the same rows.
#[test]
fn rows_of_small_batches_are_the_same() {
    let mut rng = Rng::with_seed(seed::seed("rows_of_small_batches_are_the_same"));
    for _ in 0..20 * seed::rounds() {
        let entries: BTreeMap<_, _> =
            keys(&mut rng).into_iter().map(|key| (key, vec![rng.u8(..)])).collect();
        let store = empty(Effort { batch: rng.usize(1..400), ..Effort::default() });
        let mut list =
            entries.iter().map(|(key, value)| Ok::<_, Error>((key.clone(), value.clone())));
        store.bootstrap(&mut list, Point::Origin, &mut |_| {}).unwrap();
        assert_eq!(stored(&store, CSMT), stored(&at_once(&entries), CSMT));
    }
}
