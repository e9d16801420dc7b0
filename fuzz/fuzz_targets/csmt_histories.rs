//! Histories of a UTxO set against plain maps: blocks, rollbacks, commits that fail, openings. The root is always that of a set
//! made from nothing.

#![no_main]

use std::collections::BTreeMap;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::{Effort, Error, Hash, Path, PathKind, RolledBack, Settings, Store};
use kvb_fuzz::Choices;
use kvb_fuzz::shared::{Failing, SharedEngine};
use ledger::MemoryEngine;
use libfuzzer_sys::fuzz_target;

const EFFORT: Effort = Effort { memory: 1 << 20, threads: 1, batch: 500 };

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The entries after each block that can be gone back to, and after the one before those.
struct Model {
    points: Vec<(Point, Entries)>,
    settings: Settings,
}

impl Model {
    fn tip(&self) -> &(Point, Entries) {
        self.points.last().unwrap()
    }

    /// One block more; the oldest is forgotten.
    fn push(&mut self, point: Point, entries: Entries) {
        self.points.push((point, entries));
        let kept = usize::try_from(self.settings.k).unwrap() + 1;
        self.points.drain(..self.points.len().saturating_sub(kept));
    }
}

/// True if a tree can hold all of them: each has a path, and none begins with that of another.
fn fits(entries: &Entries, kind: PathKind) -> bool {
    let paths: Result<Vec<Path>, _> =
        entries.iter().map(|(key, value)| kind.path(key, value)).collect();
    let Ok(mut paths) = paths else { return false };
    paths.sort();
    paths.windows(2).all(|two| !two[1].starts_with(&two[0]))
}

/// The root of a set that never had anything else, made in either way.
fn root_of(entries: &Entries, settings: Settings, is_bootstrapped: bool) -> Option<Hash> {
    let store = Store::init(Box::new(MemoryEngine::new()), settings, EFFORT).unwrap();
    let point = Point::block(1, Hash::of(b"all"));
    if is_bootstrapped {
        let mut all = entries.iter().map(|(key, value)| Ok((key.clone(), value.clone())));
        return store.bootstrap(&mut all, point, &mut |_| {}).unwrap().root;
    }
    let insert = |(key, value): (&Vec<u8>, &Vec<u8>)| Operation::Insert {
        key: key.clone(),
        value: value.clone(),
    };
    store.forward(point, &entries.iter().map(insert).collect::<Vec<_>>()).unwrap().root
}

/// Keys of which few begin with another.
fn key(choices: &mut Choices<'_>) -> Vec<u8> {
    let byte = choices.byte();
    vec![byte & 0x3f; usize::from(byte >> 6)]
}

/// An output as Cardano has them, now and then none.
fn value(choices: &mut Choices<'_>) -> Vec<u8> {
    let byte = choices.byte();
    match byte {
        0xff => vec![byte],
        _ => vec![0x82, 0x41, byte & 3, byte],
    }
}

/// Operations, and what they make of entries, if they can be applied.
fn operations(choices: &mut Choices<'_>, entries: &Entries) -> (Vec<Operation>, Option<Entries>) {
    let mut after = Some(entries.clone());
    let mut operations = Vec::new();
    for _ in 0..choices.byte() % 16 {
        let key = match choices.byte() {
            // One that is there, mostly.
            at @ 0..160 if !entries.is_empty() => {
                entries.keys().nth(usize::from(at) % entries.len()).unwrap().clone()
            }
            _ => key(choices),
        };
        let is_delete = choices.byte() % 3 == 0;
        if key.is_empty() || is_delete && after.as_ref().is_some_and(|now| !now.contains_key(&key))
        {
            after = None;
        }
        if is_delete {
            after.iter_mut().for_each(|after| drop(after.remove(&key)));
            operations.push(Operation::Delete { key });
        } else {
            let value = value(choices);
            after.iter_mut().for_each(|after| drop(after.insert(key.clone(), value.clone())));
            operations.push(Operation::Insert { key, value });
        }
    }
    (operations, after)
}

fn check(store: &Store, model: &Model, is_thorough: bool) {
    let (point, entries) = model.tip();
    let mut view = store.view().unwrap();
    assert_eq!(view.tip(), *point);
    let root = view.root().unwrap();
    assert_eq!(root, root_of(entries, model.settings, is_thorough), "the root of {entries:x?}");
    let points: Vec<Point> = view.points().map(|facts| facts.unwrap().point).collect();
    assert!(points.iter().eq(model.points.iter().rev().map(|(point, _)| point)), "{points:?}");
    if !is_thorough {
        return;
    }
    for (key, value) in entries {
        let proof = view.prove(key).unwrap().expect("it is there");
        assert!(proof.verify(&root.unwrap(), &proof.key, &Hash::of(value)).is_ok());
    }
    drop(view);
    let check = store.verify(&mut |_| {}).unwrap();
    assert!(check.findings.is_empty(), "{:?}", check.findings);
    assert_eq!(check.entries, u64::try_from(entries.len()).unwrap());
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let kind = if choices.byte() % 2 == 0 { PathKind::Raw } else { PathKind::Address };
    let settings = Settings { path: kind, k: u32::from(choices.byte() % 6) };
    let engine = SharedEngine::default();
    let mut store = Store::init(Box::new(engine.clone()), settings, EFFORT).unwrap();
    let mut model = Model { points: vec![(Point::Origin, Entries::new())], settings };
    let mut steps = 0;
    while choices.is_left() && steps < 40 {
        steps += 1;
        engine.fail(match choices.byte() {
            0..16 => Some(Failing::Before),
            16..32 => Some(Failing::After),
            _ => None,
        });
        match choices.byte() % 8 {
            0..=3 => {
                let last = match model.tip().0 {
                    Point::Block { slot, .. } => slot,
                    Point::Origin => 0,
                };
                let slot = last + u64::from(choices.byte() % 3);
                let point = Point::block(slot, Hash::of(&[choices.byte() % 4]));
                let (operations, after) = operations(&mut choices, &model.tip().1);
                let is_new = model.points.iter().all(|(known, _)| *known != point);
                let after = after.filter(|after| is_new && fits(after, kind));
                let done = store.forward(point, &operations);
                let Some(after) = after else {
                    assert!(done.is_err(), "{operations:x?}");
                    continue;
                };
                match done {
                    Ok(_) => model.push(point, after),
                    Err(Error::Engine(_)) if engine.has_failed() => {
                        // Either is right, but nothing in between.
                        if store.tip().unwrap() == point {
                            model.push(point, after);
                        }
                    }
                    Err(error) => panic!("{error}: {operations:x?}"),
                }
            }
            4 | 5 => {
                let at = usize::from(choices.byte());
                let Some((to, _)) = model.points.get(at % (model.points.len() + 1)).cloned() else {
                    let nowhere = Point::block(7, Hash::of(b"nowhere"));
                    assert_eq!(store.rollback(nowhere).unwrap(), RolledBack::Unknown);
                    continue;
                };
                let done = store.rollback(to);
                assert!(done.is_ok() || engine.has_failed(), "{done:?}");
                if store.tip().unwrap() == to {
                    let at = model.points.iter().position(|(point, _)| *point == to).unwrap();
                    model.points.truncate(at + 1);
                }
            }
            6 => {
                drop(store);
                store = Store::open(Box::new(engine.clone()), EFFORT).unwrap();
            }
            _ => check(&store, &model, true),
        }
        engine.fail(None);
        check(&store, &model, false);
    }
    check(&store, &model, true);
});
