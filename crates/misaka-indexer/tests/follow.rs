//! Following a validator, and building anew: what comes of the feed, of a database and of a snapshot is the same.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../misaka/tests/support/chain.rs"]
mod chain;
#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::cell::Cell;

use chain::{Chain, effort, memory as validator};
use fastrand::Rng;
use host::{Dir, FileDir};
use ledger::MemoryEngine;
use misaka::snapshot::{self, Trust};
use misaka::{Settings, Store};
use misaka_indexer::{Embedded, Error, Followed, Index, Watch, follow, rebuild};
use model::Model;

fn settings() -> Settings {
    Settings { chain_id: Some(7), event_retention: 6, window: 9, v2_at: None }
}

fn memory() -> Embedded {
    Embedded::on(Box::new(MemoryEngine::new())).unwrap()
}

/// Lets a chain grow, in the validator and in the model.
fn grow(chain: &mut Chain, store: &Store, model: &mut Model, count: usize, rng: &mut Rng) {
    for _ in 0..count {
        let checkpoint = chain.grow(rng, 25);
        store.apply(&checkpoint).unwrap();
        model.apply(&checkpoint);
    }
}

fn take_snapshot(store: &Store, dir: &dyn Dir, chunk: usize) {
    snapshot::create(store, dir, chunk, 2, snapshot::Watch::NOBODY).unwrap();
}

#[test]
fn what_is_built_anew_is_what_the_feed_gives() {
    let first = seed::seed("what_is_built_anew_is_what_the_feed_gives");
    for round in 0..8 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let settings = Settings { v2_at: (round % 2 == 0).then_some(9), ..settings() };
        let store = validator(settings);
        let mut chain = Chain::new(settings, rng.u64(..3));
        let mut model = Model::default();
        let fed = memory();
        assert_eq!(follow(&fed, &store, Watch::NOBODY).unwrap(), Followed::default());
        for _ in 0..rng.usize(2..6) {
            grow(&mut chain, &store, &mut model, 5, &mut rng);
            let followed = follow(&fed, &store, Watch::NOBODY).unwrap();
            assert_eq!(followed.checkpoints, 5);
            assert_eq!(follow(&fed, &store, Watch::NOBODY).unwrap(), Followed::default());
        }
        // Older than what the validator keeps of versions and events.
        model.check(&fed, &mut rng);
        let of_database = memory();
        // Whatever was there is gone.
        of_database.apply(&chain::Chain::new(settings, 0).grow(&mut rng, 9)).unwrap();
        let view = store.view().unwrap();
        let rebuilt = rebuild::from_view(&of_database, &view, Watch::NOBODY).unwrap();
        assert_eq!(usize::try_from(rebuilt.objects).unwrap(), model.history.len());
        let dir = tempfile::tempdir().unwrap();
        let dir = FileDir::new(dir.path());
        take_snapshot(&store, &dir, 1 << rng.u32(7..14));
        let of_snapshot = memory();
        assert_eq!(rebuild::from_snapshot(&of_snapshot, &dir, Watch::NOBODY).unwrap(), rebuilt);
        let mut begun = model.rebuilt();
        for index in [&of_database, &of_snapshot] {
            begun.check(index, &mut rng);
            model.check_lists(index, &mut rng);
            for (id, records) in &model.history {
                assert_eq!(index.newest(id).unwrap().as_ref(), records.last());
            }
        }
        // And from there all three go on.
        for _ in 0..4 {
            let checkpoint = chain.grow(&mut rng, 25);
            store.apply(&checkpoint).unwrap();
            model.apply(&checkpoint);
            begun.apply(&checkpoint);
        }
        for index in [&of_database, &of_snapshot, &fed] {
            assert_eq!(follow(index, &store, Watch::NOBODY).unwrap().checkpoints, 4);
        }
        begun.check(&of_database, &mut rng);
        begun.check(&of_snapshot, &mut rng);
        model.check(&fed, &mut rng);
    }
}

#[test]
fn whoever_comes_too_late_must_build_anew() {
    let mut rng = Rng::with_seed(seed::seed("whoever_comes_too_late_must_build_anew"));
    let store = validator(settings());
    let mut chain = Chain::new(settings(), 0);
    let mut model = Model::default();
    grow(&mut chain, &store, &mut model, 3, &mut rng);
    let slow = memory();
    follow(&slow, &store, Watch::NOBODY).unwrap();
    grow(&mut chain, &store, &mut model, 7, &mut rng);
    let error = follow(&slow, &store, Watch::NOBODY).unwrap_err();
    assert!(matches!(error, Error::Gap { tip: Some(2), next: 4 }), "{error}");
    let error = follow(&memory(), &store, Watch::NOBODY).unwrap_err();
    assert!(matches!(error, Error::Gap { tip: None, next: 4 }), "{error}");
    assert!(error.to_string().contains("must be rebuilt"));
    rebuild::from_view(&slow, &store.view().unwrap(), Watch::NOBODY).unwrap();
    assert_eq!(follow(&slow, &store, Watch::NOBODY).unwrap(), Followed::default());
    model.rebuilt().check(&slow, &mut rng);
}

#[test]
fn a_restored_validator_goes_on_with_the_same_index_and_another_chain_does_not() {
    let name = "a_restored_validator_goes_on_with_the_same_index_and_another_chain_does_not";
    let mut rng = Rng::with_seed(seed::seed(name));
    let store = validator(settings());
    let mut chain = Chain::new(settings(), 0);
    let mut model = Model::default();
    grow(&mut chain, &store, &mut model, 4, &mut rng);
    let place = tempfile::tempdir().unwrap();
    let dir = FileDir::new(place.path());
    take_snapshot(&store, &dir, 4000);
    let forked = chain.clone();
    let index = memory();
    // Checkpoints after the snapshot, which the validator that is restored does not have yet.
    grow(&mut chain, &store, &mut model, 2, &mut rng);
    follow(&index, &store, Watch::NOBODY).unwrap();
    let database = misaka::Database::new(place.path().join("restored"));
    let watch = snapshot::Watch::NOBODY;
    let kind = ledger::EngineKind::Kvb;
    snapshot::restore(&dir, &database, kind, settings(), Trust::default(), effort(), watch)
        .unwrap();
    let restored = database.open(effort()).unwrap();
    assert_eq!(follow(&index, &restored, Watch::NOBODY).unwrap(), Followed::default());
    assert!(matches!(follow(&memory(), &restored, Watch::NOBODY), Err(Error::Gap { next: 4, .. })));
    // It goes another way than the one before went.
    let (mut forked, other) = loop {
        let mut fork = forked.clone();
        let other = fork.grow(&mut rng, 5);
        if other.header.digest() != model.checkpoints[&4].digest {
            break (fork, other);
        }
    };
    restored.apply(&other).unwrap();
    let error = follow(&index, &restored, Watch::NOBODY).unwrap_err();
    assert!(matches!(error, Error::Fork { seq: 4, .. }), "{error}");
    for _ in 0..2 {
        restored.apply(&forked.grow(&mut rng, 5)).unwrap();
    }
    let error = follow(&index, &restored, Watch::NOBODY).unwrap_err();
    assert!(matches!(error, Error::Fork { .. }), "{error}");
    model.check(&index, &mut rng);
}

#[test]
fn following_can_be_stopped_and_gone_on_with() {
    let mut rng = Rng::with_seed(seed::seed("following_can_be_stopped_and_gone_on_with"));
    let settings = Settings { event_retention: 500, window: 500, ..settings() };
    let store = validator(settings);
    let mut chain = Chain::new(settings, 0);
    let mut model = Model::default();
    grow(&mut chain, &store, &mut model, 70, &mut rng);
    let index = memory();
    let asked = Cell::new(0);
    let last = Cell::new((0, 0));
    let progress = |done, total| last.set((done, total));
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() == 7
    };
    let watch = Watch { progress: &progress, stop: &stop };
    assert!(matches!(follow(&index, &store, watch), Err(Error::Interrupted)));
    assert_eq!((last.get(), index.tip().unwrap().unwrap().seq), ((7, 70), 6));
    assert_eq!(follow(&index, &store, watch).unwrap().checkpoints, 63);
    assert_eq!(last.get(), (63, 63));
    model.check(&index, &mut rng);
    // A rebuild that is stopped leaves nothing to be asked.
    let watch = Watch { progress: &progress, stop: &|| true };
    let view = store.view().unwrap();
    assert!(matches!(rebuild::from_view(&index, &view, watch), Err(Error::Interrupted)));
    assert!(matches!(index.tip(), Err(Error::Unfinished)));
    assert!(matches!(follow(&index, &store, Watch::NOBODY), Err(Error::Unfinished)));
    rebuild::from_view(&index, &view, Watch::NOBODY).unwrap();
    model.rebuilt().check(&index, &mut rng);
}

#[test]
fn a_snapshot_that_is_damaged_is_not_taken() {
    let mut rng = Rng::with_seed(seed::seed("a_snapshot_that_is_damaged_is_not_taken"));
    let store = validator(settings());
    let mut chain = Chain::new(settings(), 0);
    let mut model = Model::default();
    grow(&mut chain, &store, &mut model, 6, &mut rng);
    let place = tempfile::tempdir().unwrap();
    let dir = FileDir::new(place.path());
    let index = memory();
    follow(&index, &store, Watch::NOBODY).unwrap();
    // What is no snapshot changes nothing.
    let nothing = rebuild::from_snapshot(&index, &dir, Watch::NOBODY);
    assert!(matches!(nothing, Err(Error::Validator(misaka::Error::Snapshot(_)))));
    model.check(&index, &mut rng);
    take_snapshot(&store, &dir, 2000);
    let names: Vec<_> =
        std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in names {
        if !path.file_name().unwrap().to_str().unwrap().starts_with("chunk") {
            continue;
        }
        let sound = std::fs::read(&path).unwrap();
        let mut bytes = sound.clone();
        let at = rng.usize(..bytes.len());
        bytes[at] ^= 1 << rng.u8(..8);
        std::fs::write(&path, bytes).unwrap();
        let damaged = rebuild::from_snapshot(&index, &dir, Watch::NOBODY);
        assert!(matches!(damaged, Err(Error::Validator(_))), "{damaged:?}");
        assert!(matches!(index.tip(), Err(Error::Unfinished)));
        std::fs::write(&path, sound).unwrap();
    }
    rebuild::from_snapshot(&index, &dir, Watch::NOBODY).unwrap();
    model.rebuilt().check(&index, &mut rng);
}
