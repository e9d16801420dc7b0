//! The same answers in every engine, and faults of an engine that leave nothing wrong behind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../misaka/tests/support/chain.rs"]
mod chain;
#[path = "../../ledger/tests/support/failing.rs"]
mod failing;
#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chain::{Chain, memory as validator};
use failing::Failing;
use fastrand::Rng;
use ledger::{EngineKind, MemoryEngine};
use misaka::{Settings, Store};
use misaka_indexer::{Embedded, Error, Watch, follow, rebuild};
use model::Model;

/// A validator with a few checkpoints, and the model after each of them.
fn story(rng: &mut Rng, count: usize, writes: usize) -> (Store, Vec<Model>) {
    let store = validator(Settings::default());
    let mut chain = Chain::new(Settings::default(), 0);
    let mut models = vec![Model::default()];
    for _ in 0..count {
        let checkpoint = chain.grow(rng, writes);
        store.apply(&checkpoint).unwrap();
        let mut model = models[models.len() - 1].clone();
        model.apply(&checkpoint);
        models.push(model);
    }
    (store, models)
}

#[test]
fn every_engine_gives_the_same_answers() {
    let mut rng = Rng::with_seed(seed::seed("every_engine_gives_the_same_answers"));
    let (store, models) = story(&mut rng, 20, 30);
    let model = models.last().unwrap();
    for kind in EngineKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let index = Embedded::init(&path, *kind).unwrap();
        follow(&index, &store, Watch::NOBODY).unwrap();
        model.check(&index, &mut rng);
        drop(index);
        // Whatever engine is asked for, the one that is there is opened.
        let index = Embedded::init(&path, EngineKind::Kvb).unwrap();
        assert_eq!(index.engine().name(), kind.name());
        model.check(&index, &mut rng);
        rebuild::from_view(&index, &store.view().unwrap(), Watch::NOBODY).unwrap();
        model.rebuilt().check(&index, &mut rng);
        drop(index);
        model.rebuilt().check(&Embedded::open_to_read(&path).unwrap(), &mut rng);
    }
}

#[test]
fn a_fault_anywhere_leaves_an_index_that_goes_on() {
    let mut rng = Rng::with_seed(seed::seed("a_fault_anywhere_leaves_an_index_that_goes_on"));
    let (store, models) = story(&mut rng, 6, 10);
    let last = models.last().unwrap();
    let (mut faults, mut unfinished) = (0, 0);
    for is_done_all_the_same in [false, true] {
        for call in 0..60 {
            let calls = Arc::new(AtomicI64::new(i64::MAX));
            let engine = MemoryEngine::new();
            let failing = Failing { engine, calls: Arc::clone(&calls), is_done_all_the_same };
            let index = Embedded::on(Box::new(failing)).unwrap();
            calls.store(call, Ordering::SeqCst);
            let done = follow(&index, &store, Watch::NOBODY);
            calls.store(i64::MAX, Ordering::SeqCst);
            if done.is_err() {
                faults += 1;
                // Whole checkpoints, as many as the index itself says.
                let tip = misaka_indexer::Index::tip(&index).unwrap();
                let there = tip.map_or(0, |tip| usize::try_from(tip.seq).unwrap() + 1);
                models[there].check(&index, &mut rng);
                follow(&index, &store, Watch::NOBODY).unwrap();
            }
            last.check(&index, &mut rng);
            calls.store(call, Ordering::SeqCst);
            let view = store.view().unwrap();
            let done = rebuild::from_view(&index, &view, Watch::NOBODY);
            calls.store(i64::MAX, Ordering::SeqCst);
            match misaka_indexer::Index::tip(&index) {
                Err(Error::Unfinished) => {
                    unfinished += 1;
                    assert!(done.is_err());
                    rebuild::from_view(&index, &view, Watch::NOBODY).unwrap();
                    last.rebuilt().check(&index, &mut rng);
                }
                // It failed before it began, or after it ended.
                tip if tip.as_ref().unwrap() == &last.tip => last.check(&index, &mut rng),
                _ => last.rebuilt().check(&index, &mut rng),
            }
        }
    }
    assert!(faults > 20 && unfinished > 10, "{faults}, {unfinished}");
}
