//! An index against a plain model, over random chains; what is applied again; what is refused; numbers at their end.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../misaka/tests/support/chain.rs"]
mod chain;
#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use chain::{Chain, header};
use fastrand::Rng;
use ledger::{Engine, EngineKind, KvbEngine, MemoryEngine};
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Event, Hash, Settings};
use misaka_indexer::{
    Embedded, Error, EventKey, EventsOf, Holder, Index, Live, Page, Record, Step, Tip,
};
use model::{Model, vary};

fn memory() -> Embedded {
    Embedded::on(Box::new(MemoryEngine::new())).unwrap()
}

/// Checkpoints of a random chain, with types of all kinds.
fn checkpoints(rng: &mut Rng, count: usize, writes: usize) -> Vec<Checkpoint> {
    let mut chain = Chain::new(Settings::default(), rng.u64(..3));
    (0..count)
        .map(|_| {
            let mut checkpoint = chain.grow(rng, writes);
            vary(&mut checkpoint, rng);
            checkpoint
        })
        .collect()
}

#[test]
fn random_chains_give_the_answers_of_the_model() {
    let first = seed::seed("random_chains_give_the_answers_of_the_model");
    let dir = tempfile::tempdir().unwrap();
    for round in 0..20 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let engine: Box<dyn Engine> = match round % 2 {
            0 => Box::new(MemoryEngine::new()),
            _ => Box::new(KvbEngine::create(dir.path().join(round.to_string())).unwrap()),
        };
        let index = Embedded::on(engine).unwrap();
        let mut model = Model::default();
        model.check(&index, &mut rng);
        let all = checkpoints(&mut rng, 25, 30);
        for checkpoint in &all {
            model.apply(checkpoint);
            let step = index.apply(checkpoint).unwrap();
            assert_eq!(step, Step::Applied(model.checkpoints[&checkpoint.header.seq]));
            if rng.u8(..4) == 0 {
                model.check(&index, &mut rng);
            }
            // Any that was applied before changes nothing.
            let old = &all[rng.usize(..model.checkpoints.len())];
            assert_eq!(index.apply(old).unwrap(), Step::Passed);
        }
        model.check(&index, &mut rng);
        for checkpoint in &all {
            assert_eq!(index.apply(checkpoint).unwrap(), Step::Passed);
        }
        model.check(&index, &mut rng);
    }
}

/// A checkpoint after another one, with these writes.
fn after(before: Option<&Checkpoint>, seq: u64, writes: Vec<Vec<u8>>) -> Checkpoint {
    let mut checkpoint = Checkpoint {
        header: header(0),
        tx_digests: Vec::new(),
        writes,
        params: Vec::new(),
        events: Vec::new(),
    };
    checkpoint.header.seq = seq;
    checkpoint.header.tx_root = misaka::format::checkpoint::tx_root(&[]);
    if let Some(before) = before {
        checkpoint.header.prev_digest = before.header.digest();
    }
    checkpoint
}

fn object(id: u8, version: u64, owner: Owner) -> Vec<u8> {
    let (id, type_tag) = (Hash([id; 32]), "t");
    Object { id, version, owner, type_tag, payload: b"payload", is_tombstone: false }.encode()
}

const OWNER: Owner = Owner::Address([1; 32]);

#[test]
fn what_does_not_follow_is_refused_by_name_and_changes_nothing() {
    let index = memory();
    let first = after(None, 5, vec![object(1, 1, OWNER)]);
    // A chain does not begin with a second version.
    let late = after(None, 5, vec![object(1, 2, OWNER)]);
    assert!(matches!(index.apply(&late), Err(Error::Gap { tip: None, next: 5 })));
    index.apply(&first).unwrap();
    let mut model = Model::default();
    model.apply(&first);
    let mut rng = Rng::with_seed(1);
    let gap = after(Some(&first), 7, vec![]);
    let error = index.apply(&gap).unwrap_err();
    assert!(matches!(error, Error::Gap { tip: Some(5), next: 7 }) && error.asks_for_rebuild());
    let other = after(Some(&gap), 6, vec![]);
    let error = index.apply(&other).unwrap_err();
    assert!(matches!(error, Error::Fork { seq: 5, .. }) && error.asks_for_rebuild());
    let mut other = first.clone();
    other.header.timestamp_ms += 1;
    assert!(matches!(index.apply(&other), Err(Error::Fork { seq: 5, .. })));
    let earlier = after(None, 3, vec![]);
    assert!(matches!(index.apply(&earlier), Err(Error::OutOfReach { seq: 3, .. })));
    let skips = after(Some(&first), 6, vec![object(2, 1, OWNER), object(2, 3, OWNER)]);
    assert!(matches!(index.apply(&skips), Err(Error::Refused { seq: 6, .. })));
    let nonsense = after(Some(&first), 6, vec![b"nonsense".to_vec()]);
    assert!(matches!(index.apply(&nonsense), Err(Error::Refused { seq: 6, .. })));
    let mut body = after(Some(&first), 6, vec![]);
    body.tx_digests.push(Hash::ZERO);
    assert!(matches!(index.apply(&body), Err(Error::Refused { seq: 6, .. })));
    // A version that does not come next: of an object that is not known, which may be lost; the same again, and one too far, which no
    // rebuild would make better.
    let unknown = after(Some(&first), 6, vec![object(2, 4, OWNER)]);
    let error = index.apply(&unknown).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }) && error.asks_for_rebuild());
    for (version, write) in [(1, object(1, 1, Owner::Immutable)), (3, object(1, 3, OWNER))] {
        let error = index.apply(&after(Some(&first), 6, vec![write])).unwrap_err();
        assert!(matches!(error, Error::Refused { seq: 6, .. }) && !error.asks_for_rebuild());
        let versions = format!("has version 1, and version {version} is written");
        assert!(error.to_string().contains(&versions), "{error}");
    }
    model.check(&index, &mut rng);
}

#[test]
fn the_largest_numbers_have_their_place() {
    let index = memory();
    index.forget().unwrap();
    let bytes = object(1, u64::MAX - 1, OWNER);
    let id = Hash([1; 32]);
    index.load(&[Record { id, version: u64::MAX - 1, seq: 2, bytes }]).unwrap();
    let before = after(None, u64::MAX - 1, vec![]);
    let digest = before.header.digest();
    index.finish(Tip { seq: u64::MAX - 1, digest, base: Some(u64::MAX - 1) }).unwrap();
    let owner = Owner::Object([255; 32]);
    let mut last = after(Some(&before), u64::MAX, vec![object(1, u64::MAX, owner)]);
    last.events.push(Event { tx: u32::MAX, number: u32::MAX, bytes: b"last".to_vec() });
    last.events.push(Event { tx: 0, number: 0, bytes: b"first".to_vec() });
    last.header.timestamp_ms = u64::MAX;
    index.apply(&last).unwrap();
    let held = index.owned(&Holder::Object([255; 32]), Page::first(9)).unwrap();
    assert_eq!(held, [Live { id, version: u64::MAX, seq: u64::MAX }]);
    assert_eq!(index.owned(&Holder::Address([1; 32]), Page::first(9)).unwrap(), []);
    assert_eq!(index.as_of(&id, u64::MAX).unwrap().unwrap().version, u64::MAX);
    assert_eq!(index.as_of(&id, u64::MAX - 1).unwrap().unwrap().version, u64::MAX - 1);
    assert!(matches!(index.as_of(&id, 1), Err(Error::OutOfReach { seq: 1, .. })));
    let events = index.events(EventsOf::Checkpoint(u64::MAX), Page::first(9)).unwrap();
    assert_eq!(
        events.iter().map(|row| row.bytes.as_slice()).collect::<Vec<_>>(),
        [b"first".as_slice(), b"last"]
    );
    let end = EventKey { seq: u64::MAX, tx: u32::MAX, number: u32::MAX };
    assert_eq!(index.events(EventsOf::All, Page::after(end, 9)).unwrap(), []);
    assert_eq!(index.history(&id, Page::after(u64::MAX, 9)).unwrap(), []);
}

#[test]
fn an_unfinished_index_answers_nothing_until_it_is_built() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let first = after(None, 1, vec![object(1, 1, OWNER)]);
    {
        let index = Embedded::init(&path, EngineKind::Kvb).unwrap();
        index.apply(&first).unwrap();
        assert!(matches!(index.load(&[]), Err(Error::Input(_))));
        assert!(matches!(Embedded::init(&path, EngineKind::Kvb), Err(Error::Locked(_))));
        index.forget().unwrap();
    }
    for index in
        [Embedded::open_to_read(&path).unwrap(), Embedded::init(&path, EngineKind::Kvb).unwrap()]
    {
        let id = Hash::ZERO;
        assert!(matches!(index.tip(), Err(Error::Unfinished)));
        assert!(matches!(index.apply(&first), Err(Error::Unfinished)));
        assert!(matches!(
            index.owned(&Holder::Address([1; 32]), Page::first(1)),
            Err(Error::Unfinished)
        ));
        assert!(matches!(index.of_type("t", Page::first(1)), Err(Error::Unfinished)));
        assert!(matches!(index.history(&id, Page::first(1)), Err(Error::Unfinished)));
        assert!(matches!(index.newest(&id), Err(Error::Unfinished)));
        assert!(matches!(index.as_of(&id, 1), Err(Error::Unfinished)));
        assert!(matches!(index.transaction(&id), Err(Error::Unfinished)));
        assert!(matches!(index.events(EventsOf::All, Page::first(1)), Err(Error::Unfinished)));
        assert!(matches!(index.summary(1), Err(Error::Unfinished)));
        assert!(matches!(index.counts(), Err(Error::Unfinished)));
    }
    assert!(matches!(
        Embedded::open_to_read(dir.path().join("nothing")),
        Err(Error::NotInitialised(_))
    ));
}
