//! Crash points by name: where power can fail between the batch of a block and its manifest, and what must be found after each.
//!
//! Import and reorg are cut off at every step, and every image is told by what is on disk. Points that this store never leaves
//! behind by itself are made by hand.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;

use std::collections::BTreeSet;
use std::sync::Arc;

use host::{Dir, ManualEnv, SimDir};
use ledger::{Batch, Engine, KvbEngine};
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::tables::{BLOCKS, HEADERS, INDEX, META, UNDO};
use rubin::{BlockIndex, Chain, Decision, Error, Genesis, Hash, Manifest, Status, Tip};

const DATABASE: &str = "db";
/// Where the manifest's replacement is prepared.
const PREPARED: &str = ".MANIFEST.json.new";

fn genesis() -> Genesis {
    maker::genesis(2)
}

fn engine(dir: &SimDir) -> Result<Box<dyn Engine>, Error> {
    let options = KvbEngine::options().background(false).overlay_min(64);
    let env = Arc::new(ManualEnv::new(1, 1));
    let engine = match dir.open(DATABASE) {
        Ok(disk) => KvbEngine::open_on(disk, env, options)?,
        Err(_) => {
            let disk = dir.create(DATABASE);
            let disk = disk.map_err(|source| Error::Io { doing: "make it", source })?;
            KvbEngine::create_on(disk, env, options)?
        }
    };
    Ok(Box::new(engine))
}

fn open(dir: &Arc<SimDir>) -> Result<Chain, Error> {
    let home: Arc<dyn Dir> = Arc::<SimDir>::clone(dir);
    Chain::open(engine(dir)?, home, Box::<Rules>::default(), genesis())
}

fn init(dir: &Arc<SimDir>) -> Result<Chain, Error> {
    let home: Arc<dyn Dir> = Arc::<SimDir>::clone(dir);
    Chain::init(engine(dir)?, home, Box::<Rules>::default(), genesis())
}

/// A block that spends the first coin of genesis or makes one, on top of another.
fn block(prev: Hash, height: u64, label: u64) -> Vec<u8> {
    let coins = [maker::coin(0), maker::coin(0)];
    let transactions =
        [maker::coinbase(height, &coins), maker::spend(label, &[], &[maker::coin(0)])];
    maker::block(prev, height * 100 + label, &transactions)
}

/// `genesis - a1 - a2`, and beside it `a1 - b2 - b3`.
struct Blocks {
    a1: Vec<u8>,
    a2: Vec<u8>,
    a3: Vec<u8>,
    b2: Vec<u8>,
    b3: Vec<u8>,
}

fn blocks() -> Blocks {
    let a1 = block(genesis().hash(), 1, 1);
    let parent = maker::hash_of(&a1);
    // Of two blocks with the same work the one with the lower hash is chosen.
    let mut two: Vec<Vec<u8>> = (2..4).map(|label| block(parent, 2, label)).collect();
    two.sort_by_key(|block| maker::hash_of(block));
    let (b2, a2) = (two.pop().unwrap(), two.pop().unwrap());
    let a3 = block(maker::hash_of(&a2), 3, 4);
    let b3 = block(maker::hash_of(&b2), 3, 5);
    Blocks { a1, a2, a3, b2, b3 }
}

/// A chain of some blocks, closed.
fn chain_of(blocks: &[&[u8]]) -> SimDir {
    let dir = Arc::new(SimDir::new());
    let chain = init(&dir).unwrap();
    for block in blocks {
        chain.import(block, None).unwrap().unwrap();
    }
    drop(chain);
    dir.after_power_loss(0)
}

/// What is on disk, before anybody mends it.
struct Found {
    manifest: Option<Hash>,
    applied: Option<Hash>,
    is_prepared: bool,
    status: Option<Status>,
}

fn look(dir: &SimDir, block: Hash) -> Found {
    // Opening the database changes it.
    let copy = dir.after_power_loss(0);
    let manifest = Manifest::read(&copy).unwrap().map(|manifest| manifest.tip.hash);
    let is_prepared = copy.disk(PREPARED).is_some();
    let engine = engine(&copy).unwrap();
    let snapshot = engine.snapshot().unwrap();
    let applied = snapshot.get(META, b"applied").unwrap();
    let applied = applied.and_then(|bytes| Hash::from_slice(&bytes));
    let index = snapshot.get(INDEX, block.as_bytes()).unwrap();
    let status = index.map(|bytes| BlockIndex::decode(&bytes).unwrap().status);
    Found { manifest, applied, is_prepared, status }
}

/// The set must be that of the tip, which a chain without any history of crashes tells.
fn check_set(chain: &Chain, path: &[&[u8]]) {
    let wanted = Arc::new(chain_of(path));
    let wanted = open(&wanted).unwrap();
    assert_eq!(chain.tip(), wanted.tip());
    let (found, wanted) = (chain.view().unwrap(), wanted.view().unwrap());
    assert_eq!(found.utxo_set_hash().unwrap(), wanted.utxo_set_hash().unwrap());
    assert_eq!(found.utxo_count().unwrap(), wanted.utxo_count().unwrap());
}

/// Imports a block and lets power fail at every step of that. Hands over every image.
fn cut_everywhere(base: &SimDir, block: &[u8], mut see: impl FnMut(Arc<SimDir>)) {
    let steps = {
        let dir = Arc::new(base.after_power_loss(0));
        let _ = open(&dir).unwrap().import(block, None).unwrap().unwrap();
        dir.step_count()
    };
    for step in 0..steps {
        for seed in 0..12 {
            let dir = Arc::new(base.after_power_loss(0));
            dir.power_off_at(step);
            if let Ok(chain) = open(&dir) {
                let _ = chain.import(block, None);
            }
            see(Arc::new(dir.after_power_loss(step * 100 + seed)));
        }
    }
}

#[test]
fn a1_a4_a5_a6_a7_a8_a_block_on_the_tip() {
    let Blocks { a1, a2, a3, .. } = blocks();
    let (tip, next) = (maker::hash_of(&a2), maker::hash_of(&a3));
    let mut points = BTreeSet::new();
    cut_everywhere(&chain_of(&[&a1, &a2]), &a3, |dir| {
        let found = look(&dir, next);
        let point = match (found.manifest.unwrap(), found.applied.unwrap()) {
            (manifest, applied) if (manifest, applied) == (tip, tip) => "A1, A4",
            (manifest, applied) if (manifest, applied) == (tip, next) => {
                if found.is_prepared {
                    "A6"
                } else {
                    "A5"
                }
            }
            (manifest, applied) if (manifest, applied) == (next, next) => "A7, A8",
            (manifest, applied) => panic!("manifest {manifest}, database {applied}"),
        };
        points.insert(point);
        let chain = open(&dir).unwrap();
        match point {
            "A1, A4" => {
                assert_eq!(found.status, None, "nothing of it is there");
                check_set(&chain, &[&a1, &a2]);
                let import = chain.import(&a3, None).unwrap().unwrap();
                assert_eq!(import.decision, Decision::AppliedAsNewTip);
            }
            // At A5 and A6 it counts as not applied; then it is the best block that is stored, and chosen again.
            _ => assert_eq!(found.status, Some(Status::Valid)),
        }
        check_set(&chain, &[&a1, &a2, &a3]);
        let manifest = Manifest::read(&*dir).unwrap().unwrap();
        assert_eq!(manifest.tip, chain.tip(), "{point}");
    });
    assert_eq!(Vec::from_iter(points), ["A1, A4", "A5", "A6", "A7, A8"]);
}

#[test]
fn a5_whoever_only_looks_is_told_and_changes_nothing() {
    let Blocks { a1, a2, a3, .. } = blocks();
    let mut refused = 0;
    cut_everywhere(&chain_of(&[&a1, &a2]), &a3, |dir| {
        let found = look(&dir, maker::hash_of(&a3));
        if found.manifest != found.applied && refused < 2 {
            let home: Arc<dyn Dir> = Arc::<SimDir>::clone(&dir);
            let engine = engine(&dir).unwrap();
            let error = Chain::open_to_read(engine, home, Box::<Rules>::default(), genesis());
            assert!(matches!(error, Err(Error::Unfinished)), "{error:?}");
            assert_eq!(look(&dir, maker::hash_of(&a3)).applied, found.applied);
            refused += 1;
        }
    });
    assert_eq!(refused, 2);
}

#[test]
fn a1_a3_a_block_that_is_not_selected() {
    let Blocks { a1, a2, b2, .. } = blocks();
    let (tip, side) = (maker::hash_of(&a2), maker::hash_of(&b2));
    let mut points = BTreeSet::new();
    cut_everywhere(&chain_of(&[&a1, &a2]), &b2, |dir| {
        let found = look(&dir, side);
        assert_eq!((found.manifest, found.applied), (Some(tip), Some(tip)));
        points.insert(match found.status {
            None => "A1",
            Some(Status::Unknown) => "A3",
            Some(status) => panic!("{status:?}"),
        });
        let chain = open(&dir).unwrap();
        check_set(&chain, &[&a1, &a2]);
        let import = chain.import(&b2, None).unwrap().unwrap();
        assert_eq!(import.decision, Decision::StoredNotSelected);
        check_set(&chain, &[&a1, &a2]);
    });
    assert_eq!(Vec::from_iter(points), ["A1", "A3"]);
}

#[test]
fn a2_header_and_block_without_an_index() {
    let Blocks { a1, a2, a3, .. } = blocks();
    let dir = Arc::new(chain_of(&[&a1, &a2]));
    {
        // This store writes all three in one batch; others do not.
        let mut batch = Batch::new();
        let hash = maker::hash_of(&a3);
        batch.put(HEADERS, hash.as_bytes(), &a3[..116]);
        batch.put(BLOCKS, hash.as_bytes(), &a3);
        engine(&dir).unwrap().commit(batch).unwrap();
    }
    let chain = open(&dir).unwrap();
    check_set(&chain, &[&a1, &a2]);
    let import = chain.import(&a3, None).unwrap().unwrap();
    assert_eq!(import.decision, Decision::AppliedAsNewTip);
    check_set(&chain, &[&a1, &a2, &a3]);
}

#[test]
fn d1_d2_d3_d4_a_block_is_taken_back() {
    let Blocks { a1, a2, b2, b3, .. } = blocks();
    let (fork, old) = (maker::hash_of(&a1), maker::hash_of(&a2));
    let mut points = BTreeSet::new();
    cut_everywhere(&chain_of(&[&a1, &a2, &b2]), &b3, |dir| {
        let found = look(&dir, maker::hash_of(&b3));
        let (manifest, applied) = (found.manifest.unwrap(), found.applied.unwrap());
        points.insert(match (manifest == old, applied == fork) {
            (true, true) if found.is_prepared => "D2",
            (true, true) => "D1",
            (false, true) if manifest == fork => "D3, D4",
            (true, false) => "before",
            _ => "connecting",
        });
        let chain = open(&dir).unwrap();
        if found.status.is_none() {
            // It was lost with the power; what was there before is there.
            check_set(&chain, &[&a1, &a2]);
            let import = chain.import(&b3, None).unwrap().unwrap();
            assert_eq!(import.decision, Decision::AppliedAsNewTip);
        }
        check_set(&chain, &[&a1, &b2, &b3]);
    });
    assert_eq!(Vec::from_iter(points), ["D1", "D2", "D3, D4", "before", "connecting"]);
}

#[test]
fn d1_the_old_chain_can_be_had_again() {
    // The database is one block behind the manifest, and nothing better is known.
    let Blocks { a1, a2, .. } = blocks();
    let dir = Arc::new(chain_of(&[&a1]));
    let manifest = {
        let chain = open(&dir).unwrap();
        chain.import(&a2, None).unwrap().unwrap();
        Manifest::read(&*dir).unwrap().unwrap()
    };
    let whole = look(&dir, maker::hash_of(&a2));
    assert_eq!(whole.applied, Some(manifest.tip.hash));
    // Taken back as a disconnect does it: what the block made goes, what it spent comes back.
    {
        let engine = engine(&dir).unwrap();
        let mut batch = Batch::new();
        let snapshot = engine.snapshot().unwrap();
        let undo = snapshot.get(UNDO, manifest.tip.hash.as_bytes()).unwrap().unwrap();
        let undo = rubin::UndoRecord::decode(&undo).unwrap();
        for outpoint in &undo.created {
            batch.delete(rubin::tables::UTXO, outpoint.as_bytes());
        }
        for (outpoint, entry) in &undo.spent {
            batch.put(rubin::tables::UTXO, outpoint.as_bytes(), entry);
        }
        let count = u64::try_from(model::dump(&*snapshot, rubin::tables::UTXO).len()).unwrap();
        let count = count - u64::try_from(undo.created.len()).unwrap();
        batch.put(META, b"applied", maker::hash_of(&a1).as_bytes());
        batch.put(META, b"utxo_count", &count.to_le_bytes());
        drop(snapshot);
        engine.commit(batch).unwrap();
    }
    check_set(&open(&dir).unwrap(), &[&a1, &a2]);
}

#[test]
fn g1_genesis_without_a_manifest() {
    let steps = {
        let dir = Arc::new(SimDir::new());
        drop(init(&dir).unwrap());
        dir.step_count()
    };
    let mut points = BTreeSet::new();
    for step in 0..steps {
        for seed in 0..6 {
            let dir = Arc::new(SimDir::new());
            dir.power_off_at(step);
            drop(init(&dir));
            let dir = Arc::new(dir.after_power_loss(step * 100 + seed));
            let has_manifest = Manifest::read(&*dir).unwrap().is_some();
            if engine(&dir.after_power_loss(0)).is_err() {
                // A bucket that was cut off while it was made; a datadir makes it under another name first.
                assert!(!has_manifest);
                continue;
            }
            let found = look(&dir, genesis().hash());
            points.insert((found.applied.is_some(), has_manifest));
            check_set(&init(&dir).unwrap(), &[]);
            check_set(&init(&dir).unwrap(), &[]);
        }
    }
    assert_eq!(Vec::from_iter(points), [(false, false), (true, false), (true, true)]);
}

#[test]
fn x1_a_manifest_ahead_of_the_database_is_refused() {
    let Blocks { a1, a2, a3, .. } = blocks();
    let dir = Arc::new(chain_of(&[&a1, &a2]));
    let manifest = Manifest::read(&*dir).unwrap().unwrap();
    let work = "4".parse().unwrap();
    let tip = Tip { hash: maker::hash_of(&a3), height: 3, work };
    Manifest { tip, ..manifest.clone() }.write(&*dir).unwrap();
    // With nothing of the block, with its bytes but no undo record, and as if it had been applied.
    let stored = |status| {
        let work = "4".parse().unwrap();
        let index = BlockIndex { height: 3, prev_hash: maker::hash_of(&a2), status, work };
        let mut batch = Batch::new();
        let hash = maker::hash_of(&a3);
        batch.put(HEADERS, hash.as_bytes(), &a3[..116]);
        batch.put(BLOCKS, hash.as_bytes(), &a3);
        batch.put(INDEX, hash.as_bytes(), &index.encode());
        batch
    };
    for batch in [Batch::new(), stored(Status::Unknown), stored(Status::Valid)] {
        engine(&dir).unwrap().commit(batch).unwrap();
        let refused = open(&dir).unwrap_err();
        assert!(matches!(refused, Error::Inconsistent(_)), "{refused}");
        assert!(refused.to_string().contains("REORG_ERR_CHAINSTATE_INCONSISTENT"), "{refused}");
        let applied = look(&dir, maker::hash_of(&a3)).applied;
        assert_eq!(applied, Some(maker::hash_of(&a2)), "nothing was changed");
    }
    // Nor is one whose database has no chain at all.
    let empty = Arc::new(SimDir::new());
    drop(engine(&empty).unwrap());
    manifest.write(&*empty).unwrap();
    assert!(matches!(open(&empty), Err(Error::Inconsistent(_))));
}
