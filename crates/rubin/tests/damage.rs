//! Rows that are gone or are not what they were, and blocks that are not what they should be: nothing panics, nothing hangs, and what
//! is verified is told.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::sync::Arc;

use fastrand::Rng;
use host::{Dir, MemoryDir};
use ledger::{Batch, Engine, MemoryEngine, Table};
use model::Tree;
use rubin::rules::Rules;
use rubin::synthetic::{self as maker, coin};
use rubin::tables::{ALL, BLOCKS, HEADERS, HEIGHTS, INDEX, UNDO, UTXO};
use rubin::{BlockIndex, Chain, Genesis, Hash, Outpoint};

type Row = (Table, Vec<u8>, Vec<u8>);

/// All rows of an engine.
fn rows(engine: &dyn Engine) -> Vec<Row> {
    let snapshot = engine.snapshot().unwrap();
    let of = |table: &Table| {
        let rows = model::dump(&*snapshot, *table).into_iter();
        rows.map(|(key, value)| (*table, key, value)).collect::<Vec<_>>()
    };
    ALL.iter().flat_map(of).collect()
}

/// A chain with these rows and this manifest.
fn open(rows: &[Row], manifest: &[u8], genesis: &Genesis) -> Result<Chain, rubin::Error> {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    for (table, key, value) in rows {
        batch.put(*table, key, value);
    }
    engine.commit(batch).unwrap();
    let home = MemoryDir::new();
    home.replace("MANIFEST.json", manifest).unwrap();
    Chain::open(Box::new(engine), Arc::new(home), Box::<Rules>::default(), genesis.clone())
}

/// Everything that can be asked of a chain. Gives whether verifying it found it sound.
fn use_it(chain: &Chain, blocks: &[Vec<u8>], genesis: &Genesis) -> bool {
    let is_sound = chain.view().is_ok_and(|view| {
        let _ = view.utxo_set_hash();
        let _ = view.export(genesis, 100, &mut Vec::new(), &mut |_, _| {});
        let check = view.verify(genesis.hash(), true, &mut |_, _| {});
        check.is_ok_and(|check| check.findings.is_empty())
    });
    for block in blocks {
        let _ = chain.reorg_plan(maker::hash_of(block));
        let _ = chain.import(block, None);
    }
    is_sound
}

#[test]
fn a_damaged_row_is_told_and_never_panics() {
    let first = seed::seed("a_damaged_row_is_told_and_never_panics");
    let mut rng = Rng::with_seed(first);
    for _ in 0..seed::rounds() {
        let tree = Tree::grow(&mut rng, 16);
        let genesis = &tree.genesis;
        let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
        let engine = Box::new(MemoryEngine::new());
        let rules = Box::<Rules>::default();
        let chain = Chain::init(engine, Arc::clone(&home), rules, genesis.clone()).unwrap();
        let (known, rest) = tree.blocks.split_at(11);
        known.iter().for_each(|node| drop(chain.import(&node.bytes, None).unwrap()));
        let rest: Vec<Vec<u8>> = rest.iter().map(|node| node.bytes.clone()).collect();
        let view = chain.view().unwrap();
        let applied: Vec<Hash> =
            (0..=chain.tip().height).map(|height| view.hash_at(height).unwrap()).collect();
        drop(view);
        let whole = rows(chain.engine());
        let manifest = home.read("MANIFEST.json").unwrap().unwrap();
        assert!(use_it(&open(&whole, &manifest, genesis).unwrap(), &rest, genesis));
        for number in 0..whole.len() {
            for turn in 0..4 {
                let mut rows = whole.clone();
                let (table, key, value) = &mut rows[number];
                let is_of_chain = match *table {
                    UTXO | HEIGHTS => true,
                    HEADERS | BLOCKS | INDEX | UNDO => {
                        applied.iter().any(|hash| hash.as_bytes() == key.as_slice())
                    }
                    _ => false,
                };
                let name = table.name;
                match turn {
                    0 => drop(rows.remove(number)),
                    1 => value.truncate(rng.usize(..value.len().max(1))),
                    2 => value.push(rng.u8(..)),
                    _ if value.is_empty() => value.push(1),
                    _ => {
                        let at = rng.usize(..value.len());
                        value[at] ^= 1 << rng.u8(..8);
                    }
                }
                let sound = open(&rows, &manifest, genesis)
                    .is_ok_and(|chain| use_it(&chain, &rest, genesis));
                // A witness is part of no hash.
                let is_hidden = name == BLOCKS.name && turn == 3;
                assert!(!sound || !is_of_chain || is_hidden, "{name}, row {number}, turn {turn}");
            }
        }
    }
}

#[test]
fn an_index_that_goes_in_a_circle_is_told() {
    let genesis = maker::genesis(1);
    let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
    let rules = Box::<Rules>::default();
    let engine = Box::new(MemoryEngine::new());
    let chain = Chain::init(engine, Arc::clone(&home), rules, genesis.clone()).unwrap();
    for height in 1..=3 {
        let block = maker::block(chain.tip().hash, height, &[maker::coinbase(height, &[])]);
        chain.import(&block, None).unwrap().unwrap();
    }
    let tip = chain.tip();
    let far = u64::MAX;
    let mut rows = rows(chain.engine());
    for (_, key, value) in rows.iter_mut().filter(|(table, ..)| *table == INDEX) {
        let mut index = BlockIndex::decode(value).unwrap();
        match index.height {
            1 => index.prev_hash = tip.hash,
            3 => index.height = far,
            _ => {}
        }
        assert_eq!(key.len(), 32);
        *value = index.encode();
    }
    let manifest = home.read("MANIFEST.json").unwrap().unwrap();
    let manifest = String::from_utf8(manifest).unwrap();
    let manifest = manifest.replace("height\": 3", &format!("height\": {far}"));
    let chain = open(&rows, manifest.as_bytes(), &genesis).unwrap();
    let view = chain.view().unwrap();
    let check = view.verify(genesis.hash(), true, &mut |_, _| {}).unwrap();
    assert!(!check.findings.is_empty());
    assert!(view.export(&genesis, 10, &mut Vec::new(), &mut |_, _| {}).is_err());
    let next = maker::block(tip.hash, 9, &[maker::coinbase(4, &[])]);
    let _ = chain.import(&next, None);
}

#[test]
fn blocks_of_any_bytes_do_no_harm() {
    let first = seed::seed("blocks_of_any_bytes_do_no_harm");
    let mut rng = Rng::with_seed(first);
    let tree = Tree::grow(&mut rng, 12);
    let engine = Box::new(MemoryEngine::new());
    let rules = Box::<Rules>::default();
    let home = Arc::new(MemoryDir::new());
    let chain = Chain::init(engine, home, rules, tree.genesis.clone()).unwrap();
    let mut model = model::Model::new(&tree);
    for number in 0..tree.blocks.len() {
        for _ in 0..300 {
            let mut bytes = tree.blocks[number].bytes.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..bytes.len());
                match rng.u8(..5) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes[at] = rng.u8(..),
                    2 => bytes[at] = 0xff,
                    3 => bytes.insert(at, rng.u8(..)),
                    _ => bytes[at] ^= 1 << rng.u8(..8),
                }
            }
            if bytes != tree.blocks[number].bytes {
                let _ = chain.import(&bytes, rng.bool().then_some(1000)).unwrap();
            }
        }
        let _ = chain.import(&tree.blocks[number].bytes, None).unwrap();
        model.import(number);
    }
    // Witnesses are not in the hash: of a block that is not selected the first to come is kept, and if that turns out to be a bad
    // one, the good one counts when it is sent again.
    for _ in 0..tree.blocks.len() {
        for node in &tree.blocks {
            let _ = chain.import(&node.bytes, None).unwrap();
        }
    }
    let view = chain.view().unwrap();
    let check = view.verify(tree.genesis.hash(), true, &mut |_, _| {}).unwrap();
    assert_eq!(check.findings, Vec::<String>::new());
    // With this target any header is found at once, so one with a changed timestamp may win; the chain is at least as long.
    let wanted = model.best().map_or(0, |best| tree.blocks[best].height);
    assert!(chain.tip().height >= wanted);
}

#[test]
fn values_that_overflow_are_refused() {
    let genesis = maker::genesis(0);
    let engine = Box::new(MemoryEngine::new());
    let rules = Box::<Rules>::default();
    let home = Arc::new(MemoryDir::new());
    let chain = Chain::init(engine, home, rules, genesis.clone()).unwrap();
    let max = u64::MAX;
    let import = |block: &[u8]| match chain.import(block, None).unwrap() {
        Ok(import) => import.decision.as_str(),
        Err(rejected) => rejected.code.as_str(),
    };
    let block = |transactions: &[Vec<u8>]| maker::block(genesis.hash(), 5, transactions);
    let plain = maker::coinbase(1, &[]);
    assert_eq!(
        import(&block(&[maker::coinbase(1, &[coin(max), coin(1)])])),
        "TX_ERR_PARSE",
        "the coinbase"
    );
    assert_eq!(import(&block(&[maker::coinbase(1, &[coin(max)])])), "BLOCK_ERR_SUBSIDY_EXCEEDED");
    let spend = maker::spend(1, &[], &[coin(max), coin(max)]);
    assert_eq!(import(&block(&[plain.clone(), spend])), "TX_ERR_PARSE");
    let spend = maker::spend(1, &[], &[coin(max)]);
    assert_eq!(import(&block(&[plain.clone(), spend])), "TX_ERR_VALUE_CONSERVATION");
    // Counts that are larger than what follows.
    let empty = block(&[plain]);
    for count in [&[0xfd, 0xff, 0xff][..], &[0xfe, 0xff, 0xff, 0xff, 0x7f], &[0xff; 9]] {
        let hostile = [&empty[..116], count, &empty[117..]].concat();
        assert_eq!(import(&hostile), "BLOCK_ERR_PARSE");
    }
    assert_eq!(Outpoint::LEN, 36);
    assert_eq!(chain.tip().height, 0);
}
