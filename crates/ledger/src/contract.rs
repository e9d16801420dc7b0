//! What every engine must do, executed: [`check`] panics with the clause that is broken.
//!
//! What survives the death of a process is checked in `tests/crash.rs`, because it takes a process.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a broken contract is a panic"
)]

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::batch::Batch;
use crate::engine::{Engine, KEY_MAX, KeyRange, Snapshot, Table};
use crate::error::Trouble;

/// The tables that an engine must be made with to be checked.
pub const TABLES: &[Table] = &[
    Table { name: "first", id: 0 },
    Table { name: "second", id: 1 },
    Table { name: "last", id: 255 },
];

const FIRST: Table = TABLES[0];
const SECOND: Table = TABLES[1];
const LAST: Table = TABLES[2];

/// Makes engines of the kind that is checked, with [`TABLES`].
pub trait Maker {
    /// A new engine with empty tables, beside all others that were made.
    fn create(&self) -> Box<dyn Engine>;

    /// Closes an engine and opens it again. None if the kind keeps nothing.
    fn reopen(&self, engine: Box<dyn Engine>) -> Option<Box<dyn Engine>>;
}

/// A plain model of the tables.
type Model = BTreeMap<(u8, Vec<u8>), Vec<u8>>;

/// Random numbers enough for a test, from a seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, limit: u64) -> usize {
        usize::try_from(self.next() % limit).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// Bytes whose first letters are often the same.
    fn bytes(&mut self, least: u64, most: u64) -> Vec<u8> {
        let len = least + self.next() % (most - least + 1);
        (0..len).map(|at| if at < 2 { self.byte() % 4 } else { self.byte() }).collect()
    }
}

/// Checks all clauses but those that take a process.
pub fn check(maker: &dyn Maker, seed: u64) {
    tables_are_empty_before_they_are_written(maker);
    changes_apply_in_their_order(maker);
    keys_are_ordered_as_bytes(maker, seed);
    bad_keys_change_nothing(maker);
    snapshots_stay_as_they_are(maker);
    large_batches_are_whole(maker);
    threads_see_whole_commits(maker);
    histories_are_those_of_maps(maker, seed);
}

fn all(snapshot: &dyn Snapshot, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    range(snapshot, table, (Bound::Unbounded, Bound::Unbounded))
}

fn range(snapshot: &dyn Snapshot, table: Table, range: KeyRange<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = snapshot.scan(table, range).unwrap();
    rows.map(|row| row.unwrap())
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect()
}

fn get(snapshot: &dyn Snapshot, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    snapshot.get(table, key).unwrap().map(|value| value.into_owned())
}

fn tables_are_empty_before_they_are_written(maker: &dyn Maker) {
    let engine = maker.create();
    engine.commit(Batch::new()).unwrap();
    let snapshot = engine.snapshot().unwrap();
    for table in TABLES {
        assert_eq!(get(&*snapshot, *table, b"key"), None);
        assert!(all(&*snapshot, *table).is_empty());
        let mut rows = snapshot.scan(*table, (Bound::Unbounded, Bound::Unbounded)).unwrap();
        assert!(rows.next_back().is_none());
    }
}

fn changes_apply_in_their_order(maker: &dyn Maker) {
    let engine = maker.create();
    let mut batch = Batch::new();
    batch.put(FIRST, b"put", b"1").put(FIRST, b"put", b"2");
    batch.put(FIRST, b"deleted", b"1").delete(FIRST, b"deleted");
    batch.delete(FIRST, b"back").put(FIRST, b"back", b"again");
    batch.put(SECOND, b"put", b"of another table").delete(LAST, b"never there");
    batch.put(LAST, b"empty", b"").put_parts(LAST, &[b"in ", b"parts"], &[b"a", b"", b"b"]);
    engine.commit(batch).unwrap();
    let check = |engine: &dyn Engine| {
        let snapshot = engine.snapshot().unwrap();
        assert_eq!(get(&*snapshot, FIRST, b"put").as_deref(), Some(&b"2"[..]));
        assert_eq!(get(&*snapshot, FIRST, b"deleted"), None);
        assert_eq!(get(&*snapshot, FIRST, b"back").as_deref(), Some(&b"again"[..]));
        assert_eq!(get(&*snapshot, SECOND, b"put").as_deref(), Some(&b"of another table"[..]));
        assert_eq!(get(&*snapshot, SECOND, b"back"), None);
        assert_eq!(get(&*snapshot, LAST, b"empty").as_deref(), Some(&b""[..]));
        assert_eq!(get(&*snapshot, LAST, b"in parts").as_deref(), Some(&b"ab"[..]));
        assert_eq!(get(&*snapshot, LAST, b"never there"), None);
        assert_eq!(all(&*snapshot, FIRST).len(), 2);
    };
    check(&*engine);
    if let Some(engine) = maker.reopen(engine) {
        check(&*engine);
    }
}

fn keys_are_ordered_as_bytes(maker: &dyn Maker, seed: u64) {
    let engine = maker.create();
    let mut dice = Dice(seed);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut batch = Batch::new();
    let mut keys: Vec<Vec<u8>> = (0..400).map(|_| dice.bytes(1, 40)).collect();
    keys.extend([vec![0], vec![0, 0], vec![255], vec![255; 40], vec![127], vec![128]]);
    for key in &keys {
        let value = dice.bytes(0, 20);
        // Neighbours in other tables must not show.
        batch.put(SECOND, key, &value).put(FIRST, key, b"x").put(LAST, key, b"y");
        model.insert(key.clone(), value);
    }
    engine.commit(batch).unwrap();
    let snapshot = engine.snapshot().unwrap();
    let wanted: Vec<_> = model.clone().into_iter().collect();
    assert_eq!(all(&*snapshot, SECOND), wanted, "all rows in order");
    let mut backwards: Vec<_> = snapshot
        .scan(SECOND, (Bound::Unbounded, Bound::Unbounded))
        .unwrap()
        .rev()
        .map(|row| row.unwrap())
        .map(|(key, value)| (key.into_owned(), value.into_owned()))
        .collect();
    backwards.reverse();
    assert_eq!(backwards, wanted, "all rows from the back");
    for _ in 0..300 {
        let mut bound = || {
            let key = match dice.below(3) {
                0 => keys[dice.below(400)].clone(),
                _ => dice.bytes(1, 4),
            };
            match dice.below(4) {
                0 => Bound::Unbounded,
                1 => Bound::Excluded(key),
                _ => Bound::Included(key),
            }
        };
        let (from, to) = (bound(), bound());
        let borrowed = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let is_inside = |key: &Vec<u8>| {
            (match &from {
                Bound::Included(from) => key >= from,
                Bound::Excluded(from) => key > from,
                Bound::Unbounded => true,
            }) && (match &to {
                Bound::Included(to) => key <= to,
                Bound::Excluded(to) => key < to,
                Bound::Unbounded => true,
            })
        };
        let wanted: Vec<_> = model.clone().into_iter().filter(|(key, _)| is_inside(key)).collect();
        assert_eq!(range(&*snapshot, SECOND, borrowed), wanted, "rows of {from:?} to {to:?}");
        // From both ends, until they meet.
        let mut rows = snapshot.scan(SECOND, borrowed).unwrap();
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let is_front = dice.below(2) == 0;
            let row = if is_front { rows.next() } else { rows.next_back() };
            let Some(row) = row else { break };
            let (key, value) = row.unwrap();
            let row = (key.into_owned(), value.into_owned());
            if is_front { front.push(row) } else { back.push(row) }
        }
        back.reverse();
        assert_eq!([front, back].concat(), wanted, "from both ends of {from:?} to {to:?}");
    }
}

fn bad_keys_change_nothing(maker: &dyn Maker) {
    let engine = maker.create();
    let longest = vec![7; KEY_MAX];
    let mut batch = Batch::new();
    batch.put(FIRST, &longest, b"longest").put(FIRST, b"k", &vec![9; 3 << 20]);
    engine.commit(batch).unwrap();
    for bad in [&[][..], &vec![7; KEY_MAX + 1]] {
        let mut batch = Batch::new();
        batch.put(FIRST, b"before", b"it").put(FIRST, bad, b"value");
        let refused = engine.commit(batch).unwrap_err();
        assert_eq!(refused.trouble, Trouble::Key, "{refused}");
        let mut batch = Batch::new();
        batch.delete(FIRST, bad);
        assert!(engine.commit(batch).is_err());
        assert_eq!(get(&*engine.snapshot().unwrap(), FIRST, bad), None);
    }
    let snapshot = engine.snapshot().unwrap();
    assert_eq!(get(&*snapshot, FIRST, b"before"), None, "a refused batch changes nothing");
    assert_eq!(get(&*snapshot, FIRST, &longest).as_deref(), Some(&b"longest"[..]));
    assert_eq!(get(&*snapshot, FIRST, b"k").map(|value| value.len()), Some(3 << 20));
}

fn snapshots_stay_as_they_are(maker: &dyn Maker) {
    let engine = maker.create();
    let engine = &*engine;
    let put = |key: &[u8], value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(FIRST, key, value);
        engine.commit(batch).unwrap();
    };
    put(b"a", b"1");
    let first = engine.snapshot().unwrap();
    put(b"a", b"2");
    put(b"b", b"2");
    let second = engine.snapshot().unwrap();
    let mut batch = Batch::new();
    batch.delete(FIRST, b"a").put(SECOND, b"c", b"3");
    engine.commit(batch).unwrap();
    // A scan that has begun goes on, whatever is committed.
    let mut rows = second.scan(FIRST, (Bound::Unbounded, Bound::Unbounded)).unwrap();
    assert_eq!(rows.next().unwrap().unwrap().0.as_ref(), b"a");
    std::thread::scope(|scope| scope.spawn(|| put(b"d", b"4")).join()).unwrap();
    assert_eq!(rows.next().unwrap().unwrap().0.as_ref(), b"b");
    assert!(rows.next().is_none());
    assert_eq!(all(&*first, FIRST), [(b"a".to_vec(), b"1".to_vec())]);
    assert_eq!(get(&*first, FIRST, b"b"), None);
    assert_eq!(all(&*second, FIRST).len(), 2);
    assert_eq!(get(&*second, SECOND, b"c"), None);
    let now = engine.snapshot().unwrap();
    assert_eq!(get(&*now, FIRST, b"a"), None);
    assert_eq!(all(&*now, FIRST).len(), 2);
}

fn large_batches_are_whole(maker: &dyn Maker) {
    const COUNT: u32 = 50_000;
    let engine = maker.create();
    let mut batch = Batch::new();
    for number in 0..COUNT {
        batch.put(FIRST, &number.to_be_bytes(), &[number.to_le_bytes()[0]; 100]);
    }
    engine.commit(batch).unwrap();
    let mut batch = Batch::new();
    for number in (0..COUNT).step_by(2) {
        batch.delete(FIRST, &number.to_be_bytes());
    }
    engine.commit(batch).unwrap();
    let check = |engine: &dyn Engine| {
        let snapshot = engine.snapshot().unwrap();
        let rows = all(&*snapshot, FIRST);
        assert_eq!(rows.len(), usize::try_from(COUNT / 2).unwrap());
        for (row, number) in rows.iter().zip((1..COUNT).step_by(2)) {
            assert_eq!(row.0, number.to_be_bytes());
            assert_eq!(row.1, [number.to_le_bytes()[0]; 100]);
        }
    };
    check(&*engine);
    if let Some(engine) = maker.reopen(engine) {
        check(&*engine);
    }
}

fn threads_see_whole_commits(maker: &dyn Maker) {
    let engine = maker.create();
    let engine = &*engine;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u8)
            .map(|writer| {
                scope.spawn(move || {
                    for round in 0..40_u8 {
                        let mut batch = Batch::new();
                        for table in TABLES {
                            batch.put(*table, &[writer], &[round]);
                        }
                        engine.commit(batch).unwrap();
                    }
                })
            })
            .collect();
        let mut last = [0; 3];
        while writers.iter().any(|writer| !writer.is_finished()) {
            let snapshot = engine.snapshot().unwrap();
            for writer in 0..3_u8 {
                let seen = TABLES.iter().map(|table| get(&*snapshot, *table, &[writer]));
                let seen: Vec<_> = seen.collect();
                assert!(seen.windows(2).all(|two| two[0] == two[1]), "part of a commit: {seen:?}");
                let round = seen[0].as_ref().map_or(0, |value| value[0]);
                assert!(round >= last[usize::from(writer)], "a commit is gone again");
                last[usize::from(writer)] = round;
            }
        }
    });
}

fn histories_are_those_of_maps(maker: &dyn Maker, seed: u64) {
    let mut dice = Dice(seed ^ 1);
    let mut engine = maker.create();
    let mut model = Model::new();
    for _ in 0..8 {
        let snapshot = engine.snapshot().unwrap();
        let before = model.clone();
        for _ in 0..20 {
            let mut batch = Batch::new();
            for _ in 0..dice.below(30) {
                let table = TABLES[dice.below(3)];
                let key = dice.bytes(1, 3);
                if dice.below(3) == 0 {
                    batch.delete(table, &key);
                    model.remove(&(table.id, key));
                } else {
                    let value = dice.bytes(0, 200);
                    batch.put(table, &key, &value);
                    model.insert((table.id, key), value);
                }
            }
            engine.commit(batch).unwrap();
        }
        compare(&*snapshot, &before, &mut dice);
        drop(snapshot);
        engine = match dice.below(2) {
            0 => engine,
            _ => match maker.reopen(engine) {
                Some(engine) => engine,
                None => return,
            },
        };
        compare(&*engine.snapshot().unwrap(), &model, &mut dice);
    }
}

fn compare(snapshot: &dyn Snapshot, model: &Model, dice: &mut Dice) {
    for table in TABLES {
        let wanted: Vec<_> = model
            .iter()
            .filter(|((id, _), _)| *id == table.id)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        assert_eq!(all(snapshot, *table), wanted);
        for _ in 0..50 {
            let key = dice.bytes(1, 3);
            let wanted = model.get(&(table.id, key.clone()));
            assert_eq!(get(snapshot, *table, &key).as_ref(), wanted);
        }
    }
}
