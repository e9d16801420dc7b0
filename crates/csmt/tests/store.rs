//! What a store does: blocks, rollbacks, bootstraps, wipes, and what it refuses.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/story.rs"]
mod story;

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::tables::{ALL, CONFIG, CSMT, KV, META, ROLLBACKS};
use csmt::{
    BootstrapProgress, Effort, Entry, Error, Hash, Path, PathKind, RolledBack, Settings, Stage,
    Store,
};
use fastrand::Rng;
use ledger::{KvbEngine, MemoryEngine};
use story::{Story, all_rows, delete, input, insert, output, point, rows, stored};

fn settings(path: PathKind) -> Settings {
    Settings { path, k: 5 }
}

fn memory(path: PathKind) -> Store {
    Store::init(Box::new(MemoryEngine::new()), settings(path), Effort::default()).unwrap()
}

fn quiet(_: BootstrapProgress) {}

fn of(entries: &[Entry]) -> impl Iterator<Item = Result<Entry, Error>> + '_ {
    entries.iter().cloned().map(Ok)
}

fn many(rng: &mut Rng, count: usize) -> Vec<Entry> {
    (0..count).map(|_| (input(rng), output(rng, 300))).collect()
}

/// Reading ahead changes nothing but how fast it is, however much fits.
#[test]
fn a_store_that_is_warm_is_the_same_store() {
    let mut rng = Rng::with_seed(seed::seed("a_store_that_is_warm_is_the_same_store"));
    for path in [PathKind::Raw, PathKind::Address] {
        let entries = many(&mut rng, 2000);
        for bytes in [0, 500, 20_000, 100_000, 1 << 30] {
            let cold = memory(path);
            let effort = Effort { memory: bytes, ..Effort::default() };
            let warm = Store::init(Box::new(MemoryEngine::new()), settings(path), effort).unwrap();
            assert_eq!(warm.warm().unwrap(), 0);
            for (slot, part) in (1..).zip(entries.chunks(500)) {
                let mut operations: Vec<_> =
                    part.iter().map(|(key, value)| insert(key, value)).collect();
                // Some of the block before go.
                let before = usize::try_from(slot).unwrap() - 1;
                let gone = entries.chunks(500).take(before).next_back().unwrap_or(&[]);
                operations.extend(gone.iter().take(200).map(|(key, _)| delete(key)));
                let nodes = warm.warm().unwrap();
                let there = u64::try_from(rows(&warm, CSMT).len()).unwrap();
                assert!(
                    nodes <= there && (bytes < 1 << 30 || nodes == there),
                    "{nodes} of {there}"
                );
                for store in [&cold, &warm] {
                    store.forward(point(slot), &operations).unwrap();
                }
                assert_eq!(all_rows(&warm), all_rows(&cold));
                warm.warm().unwrap();
                let (key, _) = &entries[500 * (usize::try_from(slot).unwrap() - 1) + 7];
                let proofs = [&cold, &warm].map(|store| store.view().unwrap().prove(key).unwrap());
                assert_eq!(proofs[0], proofs[1]);
            }
            assert_eq!(warm.verify(&mut |_| {}).unwrap().findings, [""; 0]);
        }
    }
}

#[test]
fn however_entries_come_in_the_rows_are_the_same() {
    let mut rng = Rng::with_seed(seed::seed("however_entries_come_in_the_rows_are_the_same"));
    for path in [PathKind::Raw, PathKind::Address] {
        let mut entries = many(&mut rng, 3000);
        let at_once = memory(path);
        let operations: Vec<_> = entries.iter().map(|(key, value)| insert(key, value)).collect();
        at_once.forward(point(1), &operations).unwrap();
        // In blocks of any size, in any order, by one thread or several, with little memory or much.
        for (threads, bytes) in [(1, 1 << 30), (2, 1 << 30), (7, 20_000)] {
            rng.shuffle(&mut entries);
            let effort = Effort { memory: bytes, threads, ..Effort::default() };
            let store = Store::init(Box::new(MemoryEngine::new()), settings(path), effort).unwrap();
            let mut left = entries.as_slice();
            let mut slot = 1;
            while !left.is_empty() {
                let (now, later) = left.split_at(rng.usize(1..=left.len().min(900)));
                let operations: Vec<_> =
                    now.iter().map(|(key, value)| insert(key, value)).collect();
                store.forward(point(slot), &operations).unwrap();
                (left, slot) = (later, slot + 1);
            }
            assert_eq!(rows(&store, CSMT), rows(&at_once, CSMT), "{threads} threads");
            assert_eq!(rows(&store, CSMT).len(), 2 * entries.len() - 1);
            // And back to half of them.
            let gone: Vec<_> = entries[..1500].iter().map(|(key, _)| delete(key)).collect();
            store.forward(point(slot), &gone).unwrap();
            let half = memory(path);
            half.bootstrap(&mut of(&entries[1500..]), Point::Origin, &mut quiet).unwrap();
            assert_eq!(rows(&store, CSMT), rows(&half, CSMT));
            assert_eq!(store.root().unwrap(), half.root().unwrap());
        }
        let listed = memory(path);
        let done = listed.bootstrap(&mut of(&entries), Point::Origin, &mut quiet).unwrap();
        assert_eq!((done.entries, done.root), (3000, at_once.root().unwrap()));
        assert_eq!(rows(&listed, CSMT), rows(&at_once, CSMT));
        assert_eq!(rows(&listed, KV), rows(&at_once, KV));
        // Nothing is left of the work.
        assert_eq!(rows(&listed, csmt::tables::WAYS), []);
    }
}

#[test]
fn every_point_can_be_gone_back_to() {
    let first = seed::seed("every_point_can_be_gone_back_to");
    for path in [PathKind::Raw, PathKind::Address] {
        let mut rng = Rng::with_seed(first);
        let story = Story::new(&mut rng, 12, 9);
        let settings = Settings { path, k: 20 };
        let make =
            || Store::init(Box::new(MemoryEngine::new()), settings, Effort::default()).unwrap();
        let reference = make();
        let mut seen = vec![(Point::Origin, all_rows(&reference), reference.root().unwrap())];
        for (at, operations) in &story.blocks {
            let applied = reference.forward(*at, operations).unwrap();
            seen.push((*at, all_rows(&reference), applied.root));
        }
        for (depth, (to, rows, root)) in seen.iter().rev().enumerate() {
            let store = make();
            for (at, operations) in &story.blocks {
                store.forward(*at, operations).unwrap();
            }
            let back = store.rollback(*to).unwrap();
            let RolledBack::Done { blocks, root: found } = back else { panic!("{back:?}") };
            assert_eq!((usize::try_from(blocks).unwrap(), found), (depth, *root));
            let mut found = all_rows(&store);
            // Before any block no base was known; after going back it is origin.
            if *to == Point::Origin {
                found.pop();
            }
            assert_eq!(found, rows[..found.len()]);
            assert_eq!(store.tip().unwrap(), *to);
            // And forward again, the same way.
            for (at, operations) in &story.blocks[story.blocks.len() - depth..] {
                store.forward(*at, operations).unwrap();
            }
            assert_eq!(all_rows(&store), seen.last().unwrap().1);
        }
    }
}

#[test]
fn blocks_of_one_slot_are_taken_back_in_the_order_they_came() {
    let mut hashes = [Hash::of(b"one"), Hash::of(b"two")];
    hashes.sort();
    // The later one has the smaller hash: its row comes first.
    let (first, second) = (Point::block(7, hashes[1]), Point::block(7, hashes[0]));
    let store = memory(PathKind::Raw);
    store.forward(first, &[insert(b"key", b"first")]).unwrap();
    let after_first = all_rows(&store);
    store.forward(second, &[insert(b"key", b"second")]).unwrap();
    let points: Vec<Point> =
        store.view().unwrap().points().map(|point| point.unwrap().point).collect();
    assert_eq!(points, [second, first, Point::Origin]);
    assert_eq!(
        store.rollback(first).unwrap(),
        RolledBack::Done { blocks: 1, root: store.root().unwrap() }
    );
    assert_eq!(all_rows(&store), after_first);
}

#[test]
fn as_many_points_are_kept_as_was_asked_for() {
    let store = memory(PathKind::Raw);
    for slot in 1..=12 {
        store.forward(point(slot), &[]).unwrap();
        let kept = rows(&store, ROLLBACKS).len();
        assert_eq!(kept, usize::try_from(slot + 1).unwrap().min(6));
    }
    let before = all_rows(&store);
    for unknown in [Point::Origin, point(6), Point::block(9, Hash::of(b"other"))] {
        assert_eq!(store.rollback(unknown).unwrap(), RolledBack::Unknown);
        assert_eq!(all_rows(&store), before);
    }
    assert!(matches!(store.rollback(point(7)).unwrap(), RolledBack::Done { blocks: 5, .. }));
    assert_eq!(rows(&store, ROLLBACKS).len(), 1);
    store.forward(point(8), &[]).unwrap();
}

#[test]
fn what_is_refused_changes_nothing() {
    let store = memory(PathKind::Address);
    let mut rng = Rng::with_seed(1);
    let (key, value) = (input(&mut rng), output(&mut rng, 3));
    store.forward(point(5), &[insert(&key, &value)]).unwrap();
    let before = all_rows(&store);
    let other = input(&mut rng);
    let refused: [(Point, Vec<Operation>); 8] = [
        (point(6), vec![insert(&other, &value), delete(b"missing")]),
        (point(6), vec![delete(&key), delete(&key)]),
        (point(6), vec![insert(b"", &value)]),
        (point(6), vec![insert(&other, b"no output")]),
        (point(6), vec![insert(&[key.as_slice(), b"more"].concat(), &value)]),
        (point(4), vec![]),
        (point(5), vec![]),
        (Point::Origin, vec![]),
    ];
    for (number, (at, operations)) in refused.iter().enumerate() {
        let error = store.forward(*at, operations).unwrap_err();
        let is_right = match number {
            0 | 1 => matches!(error, Error::Missing(_)),
            2 => matches!(error, Error::EmptyKey),
            3 => matches!(error, Error::Address { .. }),
            4 => matches!(error, Error::Prefix(_)),
            _ => matches!(error, Error::NotAfter(..)),
        };
        assert!(is_right, "{number}: {error}");
        assert_eq!(all_rows(&store), before, "{number}");
    }
    store.forward(point(6), &[insert(&other, &value), delete(&key)]).unwrap();
    assert_eq!(rows(&store, CSMT).len(), 1);
}

#[test]
fn no_path_begins_with_another() {
    let cases: [(&[&[u8]], &[u8]); 5] = [
        (&[b"ab"], b"a"),
        (&[b"ab"], b"abc"),
        (&[b"ab", b"ac"], b"a"),
        (&[b"aba", b"abb"], b"ab"),
        (&[b"a", b"b"], b"bc"),
    ];
    for (there, new) in cases {
        let store = memory(PathKind::Raw);
        let operations: Vec<_> = there.iter().map(|key| insert(key, b"1")).collect();
        store.forward(point(1), &operations).unwrap();
        let before = all_rows(&store);
        let refused = store.forward(point(2), &[insert(new, b"2")]);
        assert!(matches!(refused, Err(Error::Prefix(_))), "{there:?} {new:?}: {refused:?}");
        // Nor in one block, nor in one list.
        let together: Vec<_> = there.iter().chain([&new]).map(|key| insert(key, b"1")).collect();
        let fresh = memory(PathKind::Raw);
        assert!(matches!(fresh.forward(point(1), &together), Err(Error::Prefix(_))));
        let list: Vec<Entry> =
            there.iter().chain([&new]).map(|key| (key.to_vec(), b"1".to_vec())).collect();
        let listed = fresh.bootstrap(&mut of(&list), Point::Origin, &mut quiet);
        assert!(matches!(listed, Err(Error::Prefix(_))), "{listed:?}");
        assert_eq!(all_rows(&store), before);
        // If what is in the way goes, it may come.
        let mut operations: Vec<_> = there.iter().map(|key| delete(key)).collect();
        operations.push(insert(new, b"2"));
        store.forward(point(2), &operations).unwrap();
        assert_eq!(rows(&store, CSMT).len(), 1);
    }
}

#[test]
fn long_keys_make_deep_trees_and_longer_ones_are_refused() {
    let store = memory(PathKind::Raw);
    // Every key leaves the longest one at another bit; one is as long as can be.
    let longest = vec![0xff; 450];
    let mut operations =
        vec![insert(&longest, b"longest"), insert(&[0x7f; 8191], b"as long as can be")];
    for bit in 1..450 * 8 {
        let mut key = longest.clone();
        key[bit / 8] &= !(0x80 >> (bit % 8));
        operations.push(insert(&key, &bit.to_le_bytes()));
    }
    let entries = operations.len();
    store.forward(point(1), &operations).unwrap();
    assert_eq!(rows(&store, CSMT).len(), 2 * entries - 1);
    let root = store.root().unwrap().unwrap();
    let proof = store.view().unwrap().prove(&longest).unwrap().unwrap();
    assert_eq!(proof.steps.len(), 450 * 8);
    proof.verify(&root, &Path::of_bytes(&longest).unwrap(), &Hash::of(b"longest")).unwrap();
    let (leaves, proof) = store.view().unwrap().prove_prefix(&Path::default()).unwrap();
    proof.unwrap().verify(Some(&root), &Path::default(), &leaves).unwrap();
    let too_long = store.forward(point(2), &[insert(&[0; 8192], b"1")]);
    assert!(matches!(too_long, Err(Error::Path(_))), "{too_long:?}");
    // The same from a list, and gone again.
    let list: Vec<Entry> = operations
        .iter()
        .map(|operation| (operation.key().to_vec(), operation.value().unwrap().to_vec()))
        .collect();
    let listed = memory(PathKind::Raw);
    listed.bootstrap(&mut of(&list), Point::Origin, &mut quiet).unwrap();
    assert_eq!(rows(&listed, CSMT), rows(&store, CSMT));
    let gone: Vec<_> = list.iter().map(|(key, _)| delete(key)).collect();
    store.forward(point(2), &gone).unwrap();
    assert_eq!(rows(&store, CSMT), []);
    store.rollback(point(1)).unwrap();
    assert_eq!(rows(&store, CSMT), rows(&listed, CSMT));
}

#[test]
fn an_entry_that_moves_to_another_address_leaves_nothing_behind() {
    let store = memory(PathKind::Address);
    let mut rng = Rng::with_seed(3);
    let key = input(&mut rng);
    let (one, other) = (output(&mut Rng::with_seed(1), 900), output(&mut Rng::with_seed(2), 900));
    store.forward(point(1), &[insert(&key, &one)]).unwrap();
    let before = all_rows(&store);
    store.forward(point(2), &[insert(&key, &other)]).unwrap();
    assert_eq!(rows(&store, CSMT).len(), 1);
    let address = csmt::address(&other).unwrap().to_vec();
    assert_eq!(store.view().unwrap().by_address(&address).unwrap(), [(key.clone(), other)]);
    store.rollback(point(1)).unwrap();
    assert_eq!(all_rows(&store), before);
}

fn open(path: &FilePath) -> Store {
    Store::open(Box::new(KvbEngine::open(path).unwrap()), Effort::default()).unwrap()
}

#[test]
fn a_store_that_is_opened_again_goes_on() {
    let mut rng = Rng::with_seed(seed::seed("a_store_that_is_opened_again_goes_on"));
    let story = Story::new(&mut rng, 15, 12);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.kvb");
    let reference = memory(PathKind::Address);
    drop(Store::init(
        Box::new(KvbEngine::create(&path).unwrap()),
        settings(PathKind::Address),
        Effort::default(),
    ));
    for (at, operations) in &story.blocks {
        let store = open(&path);
        assert_eq!(store.tip().unwrap(), reference.tip().unwrap());
        store.forward(*at, operations).unwrap();
        reference.forward(*at, operations).unwrap();
        assert_eq!(all_rows(&store), all_rows(&reference));
    }
    let to = story.blocks[11].0;
    open(&path).rollback(to).unwrap();
    reference.rollback(to).unwrap();
    assert_eq!(all_rows(&open(&path)), all_rows(&reference));
    let other = Settings { path: PathKind::Raw, k: 5 };
    let refused = Store::init(Box::new(KvbEngine::open(&path).unwrap()), other, Effort::default());
    assert!(matches!(refused, Err(Error::Settings { .. })), "{refused:?}");
}

#[test]
fn a_wiped_store_is_as_good_as_new() {
    let mut rng = Rng::with_seed(4);
    let fresh = memory(PathKind::Address);
    let wanted: Vec<_> = ALL.iter().map(|table| rows(&fresh, *table)).collect();
    let story = Story::new(&mut rng, 10, 30);
    for (at, operations) in &story.blocks {
        fresh.forward(*at, operations).unwrap();
    }
    fresh.wipe(&mut |_| {}).unwrap();
    let found: Vec<_> = ALL.iter().map(|table| rows(&fresh, *table)).collect();
    assert_eq!(found, wanted, "no row is left anywhere");
    assert_eq!((fresh.tip().unwrap(), fresh.root().unwrap()), (Point::Origin, None));
    let (at, operations) = &story.blocks[0];
    fresh.forward(*at, operations).unwrap();
}

#[test]
fn a_bootstrap_is_of_one_list_into_an_empty_store() {
    let mut rng = Rng::with_seed(5);
    let entries = many(&mut rng, 50);
    let store = memory(PathKind::Address);
    // One that fails in the middle leaves a store that nobody follows a chain with.
    let broken = entries[..30].iter().cloned().map(Ok);
    let mut broken = broken.chain([Err(Error::Input("the file ends".to_owned()))]);
    assert!(store.bootstrap(&mut broken, point(9), &mut quiet).is_err());
    assert!(matches!(store.forward(point(10), &[]), Err(Error::Unfinished)));
    assert!(matches!(store.rollback(Point::Origin), Err(Error::Unfinished)));
    let config = rows(&store, CONFIG);
    assert_eq!(config[0].1, [0x83, 0x80, 0xf5, 0x80]);
    let other = store.bootstrap(&mut of(&entries), point(8), &mut quiet);
    assert!(matches!(other, Err(Error::Settings { .. })), "another point: {other:?}");
    let mut stages = BTreeSet::new();
    let mut note = |progress: BootstrapProgress| {
        stages.insert(format!("{:?}", progress.stage));
    };
    store.bootstrap(&mut of(&entries), point(9), &mut note).unwrap();
    assert_eq!(stages.len(), 3, "{stages:?} {:?}", Stage::Loading);
    assert_eq!(store.tip().unwrap(), point(9));
    assert!(rows(&store, META).iter().all(|(key, _)| key == b"settings"));
    let again = store.bootstrap(&mut of(&entries), point(9), &mut quiet);
    assert!(matches!(again, Err(Error::NotEmpty)), "{again:?}");
    // What comes before the list is not known; what comes behind it can be taken back.
    assert_eq!(store.rollback(Point::Origin).unwrap(), RolledBack::Unknown);
    let before = all_rows(&store);
    store.forward(point(10), &[delete(&entries[0].0)]).unwrap();
    store.rollback(point(9)).unwrap();
    assert_eq!(all_rows(&store), before);
    let twice = [entries[0].clone(), entries[1].clone(), entries[0].clone()];
    let refused = memory(PathKind::Address).bootstrap(&mut of(&twice), point(1), &mut quiet);
    assert!(matches!(refused, Err(Error::Input(_))), "{refused:?}");
    // Of nothing comes an empty tree.
    let empty = memory(PathKind::Raw);
    let done = empty.bootstrap(&mut of(&[]), point(1), &mut quiet).unwrap();
    assert_eq!((done.entries, done.root, empty.tip().unwrap()), (0, None, point(1)));
}

#[test]
fn verify_finds_every_row_that_is_changed_or_missing_or_too_many() {
    let mut rng = Rng::with_seed(6);
    for path in [PathKind::Raw, PathKind::Address] {
        let store = memory(path);
        let story = Story::new(&mut rng, 8, 12);
        for (at, operations) in &story.blocks {
            store.forward(*at, operations).unwrap();
            let check = store.verify(&mut |_| {}).unwrap();
            assert_eq!(check.findings, [""; 0]);
            assert_eq!(check.root, store.root().unwrap());
        }
        let tables = csmt::tables::CANONICAL.iter().chain([&csmt::tables::ARRIVALS]);
        for table in tables {
            let mut all = stored(&store, *table);
            all.push((vec![0x81, 0x01, 0x77], b"nobody's".to_vec()));
            let last = all.len() - 1;
            for (number, (key, value)) in all.into_iter().enumerate() {
                let mut changed = value.clone();
                let at = rng.usize(..changed.len());
                changed[at] ^= 1 << rng.u8(..8);
                // What takes a block back cannot be told from anything else, but for its form.
                let can_tell = *table != ROLLBACKS || at < 2;
                let change = |value: Option<&[u8]>| {
                    let mut batch = ledger::Batch::new();
                    match value {
                        Some(value) => batch.put(*table, &key, value),
                        None => batch.delete(*table, &key),
                    };
                    store.engine().commit(batch).unwrap();
                };
                let is_new = number == last;
                for other in [Some(changed.as_slice()), None] {
                    if is_new && other.is_none() {
                        continue;
                    }
                    change(other);
                    let check = store.verify(&mut |_| {}).unwrap();
                    let is_found = !check.findings.is_empty();
                    let what = format!("{}: {} is {other:?}", table.name, csmt::hex(&key));
                    assert!(is_found || (other.is_some() && !can_tell), "{what}");
                    change(Some(&value).filter(|_| !is_new).map(Vec::as_slice));
                }
            }
        }
        assert_eq!(store.verify(&mut |_| {}).unwrap().findings, [""; 0]);
    }
}
