//! Random chains against a plain model: forks, spends within blocks, anchors, transactions that come again, invalid blocks, and
//! all of it in any order. Same tip, same set, same undo bytes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::sync::Arc;

use fastrand::Rng;
use host::MemoryDir;
use ledger::{Engine, KvbEngine, MemoryEngine};
use model::{Model, Tree};
use rubin::Chain;
use rubin::rules::Rules;
use rubin::tables::{ALL, CANONICAL};

fn chain(engine: Box<dyn Engine>, tree: &Tree) -> Chain {
    let rules: Box<Rules> = Box::default();
    Chain::init(engine, Arc::new(MemoryDir::new()), rules, tree.genesis.clone()).unwrap()
}

#[test]
fn any_order_of_blocks_ends_in_the_best_chain() {
    let first = seed::seed("any_order_of_blocks_ends_in_the_best_chain");
    for round in 0..40 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let tree = Tree::grow(&mut rng, 40);
        let mut order: Vec<usize> = (0..tree.blocks.len()).collect();
        if round % 2 == 0 {
            rng.shuffle(&mut order);
        }
        let chain = chain(Box::new(MemoryEngine::new()), &tree);
        let mut model = Model::new(&tree);
        for number in order {
            let block = &tree.blocks[number];
            let verdict = chain.import(&block.bytes, None).unwrap();
            model.import(number);
            model.check_tip(&chain, &format!("round {round}, block {number}: {verdict:?}"));
            if rng.u8(..8) == 0 {
                // Again, and nothing changes.
                let _ = chain.import(&block.bytes, None).unwrap();
                model.check_tip(&chain, "again");
            }
        }
        model.check_all(&chain);
    }
}

#[test]
fn all_engines_come_to_the_same_rows() {
    let first = seed::seed("all_engines_come_to_the_same_rows");
    for round in 0..3 {
        let mut rng = Rng::with_seed(first ^ round);
        let tree = Tree::grow(&mut rng, 60);
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        #[allow(unused_mut, reason = "without features there are no more")]
        let mut engines: Vec<Box<dyn Engine>> =
            vec![Box::new(MemoryEngine::new()), Box::new(KvbEngine::create(at("kvb")).unwrap())];
        #[cfg(feature = "redb")]
        engines.push(Box::new(ledger::RedbEngine::create(at("redb"), ALL).unwrap()));
        #[cfg(feature = "fjall")]
        engines.push(Box::new(ledger::FjallEngine::create(at("fjall"), ALL).unwrap()));
        #[cfg(feature = "rocksdb")]
        engines.push(Box::new(ledger::RocksEngine::create(at("rocksdb"), ALL).unwrap()));
        assert!(engines.iter().all(|engine| !engine.name().is_empty()) && !ALL.is_empty());
        let mut order: Vec<usize> = (0..tree.blocks.len()).collect();
        rng.shuffle(&mut order);
        let mut dumps = Vec::new();
        for engine in engines {
            let name = engine.name();
            let chain = chain(engine, &tree);
            let mut model = Model::new(&tree);
            for number in &order {
                let _ = chain.import(&tree.blocks[*number].bytes, None).unwrap();
                model.import(*number);
            }
            model.check_all(&chain);
            let view = chain.view().unwrap();
            let dump: Vec<_> =
                CANONICAL.iter().map(|table| model::dump(view.snapshot(), *table)).collect();
            let set_hash = view.utxo_set_hash().unwrap();
            dumps.push((name, dump, set_hash));
        }
        for other in &dumps[1..] {
            assert_eq!(dumps[0].2, other.2, "{} and {}", dumps[0].0, other.0);
            assert_eq!(dumps[0].1, other.1, "{} and {}", dumps[0].0, other.0);
        }
    }
}
