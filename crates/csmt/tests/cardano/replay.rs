//! Real blocks in a store: the tree is that of the entries, and every way back leads where it came from.

use std::collections::{BTreeMap, BTreeSet};

use csmt::cardano::{self, CardanoBlock};
use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::tables::{CANONICAL, CSMT, KV};
use csmt::{Effort, Hash, PathKind, RolledBack, Settings, Store};
use ledger::{Engine, KvbEngine, MemoryEngine, Table};

use super::{build, real};

/// All rows of a table in one digest.
fn digest(store: &Store, tables: &[Table]) -> Hash {
    let view = store.view().unwrap();
    let mut bytes = Vec::new();
    for table in tables {
        for row in view.rows(*table).unwrap() {
            let (key, value) = row.unwrap();
            bytes.extend(build::bytes(&key));
            bytes.extend(build::bytes(&value));
        }
        bytes.push(0);
    }
    Hash::of(&bytes)
}

/// Outputs from before the first block that the blocks spend, all at one address.
fn before(blocks: &[CardanoBlock]) -> Vec<Operation> {
    let (mut made, mut spent) = (BTreeSet::new(), Vec::new());
    for operation in blocks.iter().flat_map(|block| &block.operations) {
        match operation {
            Operation::Insert { key, .. } => drop(made.insert(key.clone())),
            Operation::Delete { key } if !made.contains(key) => {
                let value = build::coins(1_000_000);
                spent.push(Operation::Insert { key: key.clone(), value });
            }
            Operation::Delete { .. } => {}
        }
    }
    spent
}

/// The entries that are left in the end.
fn left(operations: &[&[Operation]]) -> Vec<Operation> {
    let mut entries = BTreeMap::new();
    for operation in operations.iter().copied().flatten() {
        match operation.value() {
            Some(value) => drop(entries.insert(operation.key().to_vec(), value.to_vec())),
            None => assert!(entries.remove(operation.key()).is_some(), "it is there"),
        }
    }
    entries.into_iter().map(|(key, value)| Operation::Insert { key, value }).collect()
}

fn replay(engine: Box<dyn Engine>, path: PathKind, blocks: &[CardanoBlock]) {
    let settings = Settings { path, k: csmt::K };
    let store = Store::init(engine, settings, Effort::default()).unwrap();
    let seeds = before(blocks);
    let start = Point::block(0, Hash::of(b"before"));
    store.forward(start, &seeds).unwrap();
    // Points, their roots, and for some of them the rows of all tables.
    let mut past = vec![(start, store.root().unwrap(), Some(digest(&store, CANONICAL)))];
    for (number, block) in blocks.iter().enumerate() {
        let root = store.forward(block.point, &block.operations).unwrap().root;
        let rows = (number % 8 == 0).then(|| digest(&store, CANONICAL));
        past.push((block.point, root, rows));
    }
    let mut operations: Vec<&[Operation]> = vec![&seeds];
    operations.extend(blocks.iter().map(|block| block.operations.as_slice()));
    let memory = Box::new(MemoryEngine::new());
    let at_once = Store::init(memory, settings, Effort::default()).unwrap();
    let root = at_once.forward(start, &left(&operations)).unwrap().root;
    assert_eq!(store.root().unwrap(), root);
    assert!(root.is_some());
    assert_eq!(digest(&store, &[KV, CSMT]), digest(&at_once, &[KV, CSMT]));
    let (tip, rows) = (past.last().unwrap().0, digest(&store, CANONICAL));
    assert_eq!(store.rollback(tip).unwrap(), RolledBack::Done { blocks: 0, root });
    for depth in [1, 2, 7, 30, 100, 500, blocks.len() / 2, blocks.len()] {
        let Some(at) = blocks.len().checked_sub(depth) else { continue };
        let (point, root, old) = past[at];
        let depth = u64::try_from(depth).unwrap();
        assert_eq!(store.rollback(point).unwrap(), RolledBack::Done { blocks: depth, root });
        assert_eq!(store.root().unwrap(), root);
        if let Some(old) = old {
            assert_eq!(digest(&store, CANONICAL), old, "{depth} blocks back");
        }
        // And there again.
        for (block, (_, root, rows)) in blocks[at..].iter().zip(&past[at + 1..]) {
            let applied = store.forward(block.point, &block.operations).unwrap();
            assert_eq!(applied.root, *root);
            if let Some(rows) = rows {
                assert_eq!(digest(&store, CANONICAL), *rows);
            }
        }
        assert_eq!(digest(&store, CANONICAL), rows);
    }
}

fn replay_everywhere(blocks: &[CardanoBlock]) {
    for path in [PathKind::Address, PathKind::Raw] {
        replay(Box::new(MemoryEngine::new()), path, blocks);
    }
    let dir = tempfile::tempdir().unwrap();
    let engine = KvbEngine::create(dir.path().join("store.kvb")).unwrap();
    replay(Box::new(engine), PathKind::Address, blocks);
}

#[test]
fn real_blocks_of_all_eras_are_followed_and_taken_back() {
    // They are of several chains, but no two have a transaction in common.
    let blocks = real::blocks().into_iter().map(|(_, bytes)| cardano::block(&bytes).unwrap());
    let mut blocks: Vec<_> = blocks.collect();
    blocks.sort_by_key(|block| block.point);
    blocks.dedup_by_key(|block| block.point);
    replay_everywhere(&blocks);
}

#[test]
fn a_real_chunk_is_followed_and_taken_back() {
    let Some(chunk) = real::chunk("a_real_chunk_is_followed_and_taken_back") else { return };
    let blocks: Vec<_> = cardano::blocks(&chunk).map(|block| block.unwrap()).collect();
    replay_everywhere(&blocks);
}
