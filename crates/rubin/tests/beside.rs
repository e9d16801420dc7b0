//! Looking while blocks come in: every look is of one block, with exactly its set, in the process that imports and in another.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use host::MemoryDir;
use ledger::MemoryEngine;
use model::Tree;
use rubin::rules::Rules;
use rubin::{Chain, Datadir, EngineKind, Error, Hash};

fn rules() -> Box<Rules> {
    Box::default()
}

/// The hash of the set at every block that is applied on the way.
fn sets(tree: &Tree) -> HashMap<Hash, (u64, Hash)> {
    let home = Arc::new(MemoryDir::new());
    let engine = Box::new(MemoryEngine::new());
    let chain = Chain::init(engine, home, rules(), tree.genesis.clone()).unwrap();
    let mut sets = HashMap::new();
    let mut note = |chain: &Chain| {
        let view = chain.view().unwrap();
        sets.insert(view.tip().hash, view.utxo_set_hash().unwrap());
    };
    note(&chain);
    // One branch after the other, so that no block is passed over.
    for number in 0..tree.blocks.len() {
        let mut path = vec![number];
        while let Some(parent) = tree.blocks[path[path.len() - 1]].parent {
            path.push(parent);
        }
        let home = Arc::new(MemoryDir::new());
        let engine = Box::new(MemoryEngine::new());
        let chain = Chain::init(engine, home, rules(), tree.genesis.clone()).unwrap();
        for number in path.iter().rev() {
            let _ = chain.import(&tree.blocks[*number].bytes, None).unwrap();
            note(&chain);
        }
    }
    sets
}

#[test]
fn every_look_is_of_one_block() {
    let mut rng = Rng::with_seed(seed::seed("every_look_is_of_one_block"));
    let tree = Tree::grow(&mut rng, 60);
    let sets = sets(&tree);
    let dir = tempfile::tempdir().unwrap();
    let datadir = Datadir::new(dir.path(), tree.genesis.chain_id());
    let chain = datadir.init(tree.genesis.clone(), EngineKind::Kvb, rules()).unwrap();
    let look = datadir.open_to_read(tree.genesis.clone(), rules()).unwrap();
    let is_done = AtomicBool::new(false);
    let watch = |chain: &Chain| {
        let mut looks = 0;
        while !is_done.load(Ordering::SeqCst) || looks == 0 {
            let view = match chain.view() {
                // Whoever imports may be between a batch and its manifest all the time.
                Err(Error::Unfinished) => continue,
                view => view.unwrap(),
            };
            assert_eq!(view.utxo_set_hash().unwrap(), sets[&view.tip().hash]);
            looks += 1;
        }
        looks
    };
    std::thread::scope(|scope| {
        let (inside, beside) = (scope.spawn(|| watch(&chain)), scope.spawn(|| watch(&look)));
        for node in &tree.blocks {
            let _ = chain.import(&node.bytes, None).unwrap();
        }
        is_done.store(true, Ordering::SeqCst);
        let looks = (inside.join().unwrap(), beside.join().unwrap());
        eprintln!("{looks:?} looks");
    });
    assert_eq!(look.view().unwrap().tip(), &chain.tip());
}
