//! An index on a real server: the same model, a server that is killed, steps of its tables.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../misaka/tests/support/chain.rs"]
mod chain;
#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::cell::Cell;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use chain::{Chain, header, memory as validator};
use cluster::Cluster;
use fastrand::Rng;
use ledger::MemoryEngine;
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Event, Hash, Settings, Store};
use misaka_indexer::{
    Embedded, Error, EventKey, EventsOf, Holder, Index, Live, Page, Record, Server, Step, Tip,
    Watch, follow, rebuild, schema,
};
use model::{Model, vary};
use postgres::{Client, NoTls};

/// One server for all tests that let it live.
fn cluster() -> Option<Arc<Cluster>> {
    static SHARED: OnceLock<Mutex<Weak<Cluster>>> = OnceLock::new();
    let mut shared = SHARED.get_or_init(Mutex::default).lock().unwrap();
    if let Some(cluster) = shared.upgrade() {
        return Some(cluster);
    }
    let cluster = Arc::new(Cluster::start()?);
    *shared = Arc::downgrade(&cluster);
    Some(cluster)
}

fn grow(chain: &mut Chain, store: &Store, model: &mut Model, count: usize, rng: &mut Rng) {
    for _ in 0..count {
        let checkpoint = chain.grow(rng, 25);
        store.apply(&checkpoint).unwrap();
        model.apply(&checkpoint);
    }
}

#[test]
fn random_chains_give_the_answers_of_the_model() {
    let first = seed::seed("random_chains_give_the_answers_of_the_model");
    let Some(cluster) = cluster() else { return };
    for round in 0..3 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let address = cluster.database(&format!("random{round}"));
        let index = Server::init(&address).unwrap();
        let mut model = Model::default();
        model.check(&index, &mut rng);
        let mut chain = Chain::new(Settings::default(), rng.u64(..3));
        let mut all: Vec<Checkpoint> = Vec::new();
        for _ in 0..15 {
            let mut checkpoint = chain.grow(&mut rng, 30);
            vary(&mut checkpoint, &mut rng);
            model.apply(&checkpoint);
            let step = index.apply(&checkpoint).unwrap();
            assert_eq!(step, Step::Applied(model.checkpoints[&checkpoint.header.seq]));
            all.push(checkpoint);
            assert_eq!(index.apply(&all[rng.usize(..all.len())]).unwrap(), Step::Passed);
        }
        model.check(&index, &mut rng);
        for checkpoint in &all {
            assert_eq!(index.apply(checkpoint).unwrap(), Step::Passed);
        }
        model.check(&Server::open_to_read(&address).unwrap(), &mut rng);
    }
}

#[test]
fn what_is_built_anew_is_what_the_feed_gives() {
    let mut rng = Rng::with_seed(seed::seed("what_is_built_anew_is_what_the_feed_gives"));
    let Some(cluster) = cluster() else { return };
    let address = cluster.database("rebuilt");
    let settings = Settings { event_retention: 4, window: 9, ..Settings::default() };
    let store = validator(settings);
    let mut chain = Chain::new(settings, 0);
    let mut model = Model::default();
    let index = Server::init(&address).unwrap();
    for _ in 0..3 {
        grow(&mut chain, &store, &mut model, 4, &mut rng);
        assert_eq!(follow(&index, &store, Watch::NOBODY).unwrap().checkpoints, 4);
    }
    model.check(&index, &mut rng);
    let reader = Server::open_to_read(&address).unwrap();
    // Begun and left.
    index.forget().unwrap();
    assert!(matches!(reader.tip(), Err(Error::Unfinished)));
    assert!(matches!(reader.counts(), Err(Error::Unfinished)));
    assert!(matches!(follow(&index, &store, Watch::NOBODY), Err(Error::Unfinished)));
    // Somebody else begins again; the one before does not get between.
    let other = Server::init(&address).unwrap();
    other.forget().unwrap();
    assert!(matches!(index.load(&[]), Err(Error::Input(_))));
    assert!(matches!(
        index.finish(Tip { seq: 1, digest: Hash::ZERO, base: None }),
        Err(Error::Input(_))
    ));
    rebuild::from_view(&other, &store.view().unwrap(), Watch::NOBODY).unwrap();
    model.rebuilt().check(&reader, &mut rng);
    model.check_lists(&reader, &mut rng);
    let dir = tempfile::tempdir().unwrap();
    let dir = host::FileDir::new(dir.path());
    misaka::snapshot::create(&store, &dir, 3000, 1, misaka::snapshot::Watch::NOBODY).unwrap();
    rebuild::from_snapshot(&index, &dir, Watch::NOBODY).unwrap();
    let mut begun = model.rebuilt();
    begun.check(&reader, &mut rng);
    let checkpoint = chain.grow(&mut rng, 25);
    store.apply(&checkpoint).unwrap();
    begun.apply(&checkpoint);
    follow(&index, &store, Watch::NOBODY).unwrap();
    begun.check(&reader, &mut rng);
}

#[test]
fn a_server_that_is_killed_loses_nothing_and_doubles_nothing() {
    let name = "a_server_that_is_killed_loses_nothing_and_doubles_nothing";
    let mut rng = Rng::with_seed(seed::seed(name));
    // Killing it would disturb the others.
    let Some(cluster) = Cluster::start() else { return };
    let index = Server::init(&cluster.database("killed")).unwrap();
    let store = validator(Settings::default());
    let mut chain = Chain::new(Settings::default(), 0);
    let mut model = Model::default();
    for _ in 0..4 {
        let before = model.checkpoints.len();
        grow(&mut chain, &store, &mut model, 12, &mut rng);
        // Killed between two checkpoints, or in the middle of one.
        let is_between = rng.bool();
        let when = rng.u64(1..10);
        let told = Cell::new(0);
        let progress = |done, _| {
            told.set(done);
            if is_between && done == when {
                cluster.crash();
            }
        };
        let watch = Watch { progress: &progress, stop: &|| false };
        let followed = std::thread::scope(|scope| {
            let killer = (!is_between).then(|| {
                let wait = std::time::Duration::from_micros(rng.u64(..40_000));
                let cluster = &cluster;
                scope.spawn(move || {
                    std::thread::sleep(wait);
                    cluster.crash();
                })
            });
            let followed = follow(&index, &store, watch);
            if let Some(killer) = killer {
                killer.join().unwrap();
            }
            followed
        });
        if let Err(error) = followed {
            assert!(error.is_lost_connection(), "{error}");
            let error = follow(&index, &store, Watch::NOBODY).unwrap_err();
            assert!(error.is_lost_connection(), "{error}");
        }
        cluster.up();
        let tip = index.tip().unwrap().map_or(0, |tip| tip.seq + 1);
        let acknowledged = u64::try_from(before).unwrap() + told.get();
        assert!((acknowledged..=acknowledged + 1).contains(&tip), "{tip}, {acknowledged}");
        follow(&index, &store, Watch::NOBODY).unwrap();
        model.check(&index, &mut rng);
    }
}

#[test]
fn two_who_follow_at_once_do_not_double_anything() {
    let mut rng = Rng::with_seed(seed::seed("two_who_follow_at_once_do_not_double_anything"));
    let Some(cluster) = cluster() else { return };
    let address = cluster.database("both");
    let store = validator(Settings::default());
    let mut chain = Chain::new(Settings::default(), 0);
    let mut model = Model::default();
    grow(&mut chain, &store, &mut model, 30, &mut rng);
    let sum: u64 = std::thread::scope(|scope| {
        let followers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let index = Server::init(&address).unwrap();
                    follow(&index, &store, Watch::NOBODY).unwrap().checkpoints
                })
            })
            .collect();
        followers.into_iter().map(|follower| follower.join().unwrap()).sum()
    });
    assert_eq!(sum, 30);
    model.check(&Server::open_to_read(&address).unwrap(), &mut rng);
}

#[test]
fn tables_are_brought_up_to_date_and_newer_ones_are_refused() {
    let mut rng = Rng::with_seed(seed::seed("tables_are_brought_up_to_date"));
    let Some(cluster) = cluster() else { return };
    let address = cluster.database("steps");
    assert!(matches!(Server::open_to_read(&address), Err(Error::NotInitialised(_))));
    // The tables as they were after the first step, with something in them.
    let mut client = Client::connect(&address, NoTls).unwrap();
    client
        .batch_execute(
            "CREATE TABLE misaka_schema (one SMALLINT PRIMARY KEY, version BIGINT NOT NULL);
             INSERT INTO misaka_schema VALUES (1, 1)",
        )
        .unwrap();
    client.batch_execute(schema::STEPS[0]).unwrap();
    let known = i64::try_from(schema::STEPS.len()).unwrap();
    let old = Server::open_to_read(&address).unwrap_err();
    assert!(matches!(old, Error::Schema { found: 1, known: to } if to == known), "{old}");
    let index = Server::init(&address).unwrap();
    let store = validator(Settings::default());
    let mut chain = Chain::new(Settings::default(), 0);
    let mut model = Model::default();
    grow(&mut chain, &store, &mut model, 5, &mut rng);
    follow(&index, &store, Watch::NOBODY).unwrap();
    model.check(&index, &mut rng);
    // Doing it again changes nothing.
    model.check(&Server::init(&address).unwrap(), &mut rng);
    let version = client.query_one("SELECT version FROM misaka_schema", &[]).unwrap();
    assert_eq!(version.get::<_, i64>(0), known);
    client.execute("UPDATE misaka_schema SET version = 99", &[]).unwrap();
    assert!(matches!(Server::init(&address), Err(Error::Schema { found: 99, .. })));
    assert!(matches!(Server::open_to_read(&address), Err(Error::Schema { found: 99, .. })));
}

#[test]
fn the_largest_numbers_have_their_place() {
    let Some(cluster) = cluster() else { return };
    let address = cluster.database("numbers");
    let server = Server::init(&address).unwrap();
    let memory = Embedded::on(Box::new(MemoryEngine::new())).unwrap();
    let (id, payload) = (Hash([1; 32]), [7; 300]);
    let object = |version, owner| {
        Object { id, version, owner, type_tag: "t", payload: &payload, is_tombstone: false }
            .encode()
    };
    let empty = |seq| {
        let mut header = header(0);
        header.seq = seq;
        header.tx_root = misaka::format::checkpoint::tx_root(&[]);
        let (writes, params, events) = (Vec::new(), Vec::new(), Vec::new());
        Checkpoint { header, tx_digests: Vec::new(), writes, params, events }
    };
    let before = empty(u64::MAX - 1);
    let mut last = empty(u64::MAX);
    last.header.prev_digest = before.header.digest();
    last.header.epoch = 10_000;
    last.header.timestamp_ms = 1 << 63;
    last.writes.push(object(u64::MAX, Owner::Object([255; 32])));
    last.events.push(Event { tx: u32::MAX, number: u32::MAX, bytes: Vec::new() });
    let indexes: [&dyn Index; 2] = [&server, &memory];
    for index in indexes {
        index.forget().unwrap();
        let bytes = object(u64::MAX - 1, Owner::Immutable);
        index.load(&[Record { id, version: u64::MAX - 1, seq: 10_000, bytes }]).unwrap();
        let (seq, digest) = (u64::MAX - 1, before.header.digest());
        index.finish(Tip { seq, digest, base: Some(seq) }).unwrap();
        // Versions that do not come next, one of them below all that is known.
        for version in [1, u64::MAX - 1] {
            let mut wrong = last.clone();
            wrong.writes = vec![object(version, Owner::Immutable)];
            let error = index.apply(&wrong).unwrap_err();
            assert!(matches!(error, Error::Refused { seq: u64::MAX, .. }), "{error}");
        }
        index.apply(&last).unwrap();
        let held = index.owned(&Holder::Object([255; 32]), Page::first(9)).unwrap();
        assert_eq!(held, [Live { id, version: u64::MAX, seq: u64::MAX }]);
        assert_eq!(index.as_of(&id, 10_000).unwrap().unwrap().version, u64::MAX - 1);
        assert!(matches!(index.as_of(&id, 9_999), Err(Error::OutOfReach { seq: 9_999, .. })));
        let end = EventKey { seq: u64::MAX, tx: u32::MAX, number: u32::MAX };
        assert_eq!(index.events(EventsOf::All, Page::first(9)).unwrap()[0].key, end);
        assert_eq!(index.events(EventsOf::All, Page::after(end, 9)).unwrap(), []);
        let summary = index.summary(u64::MAX).unwrap().unwrap();
        assert_eq!((summary.epoch, summary.timestamp_ms), (10_000, 1 << 63));
        assert_eq!(index.summary(0).unwrap(), None);
    }
    // Every number is the one that the server itself reads.
    let mut client = Client::connect(&address, NoTls).unwrap();
    let text = client.query_one("SELECT tip_seq::TEXT FROM misaka_state", &[]).unwrap();
    assert_eq!(text.get::<_, String>(0), u64::MAX.to_string());
}

#[test]
fn what_is_no_server_is_told_so() {
    assert!(matches!(Server::init("nonsense address"), Err(Error::Input(_))));
    let error = Server::init("host=/nowhere/at/all dbname=x user=y").unwrap_err();
    assert!(error.is_lost_connection(), "{error}");
    let Some(cluster) = cluster() else { return };
    let error = Server::init(&cluster.address("absent")).unwrap_err();
    assert!(error.to_string().contains("\"absent\" does not exist"), "{error}");
    assert!(!error.is_lost_connection());
}
