//! The store: the trace of the vectors, random chains against a plain model, every rule by name, roots and proofs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/chain.rs"]
mod chain;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/trace.rs"]
mod trace;

use chain::{Chain, dump, effort, header, memory};
use fastrand::Rng;
use ledger::{KvbEngine, MemoryEngine};
use misaka::format::checkpoint::tx_root;
use misaka::format::key::Key;
use misaka::format::object::{Object, Owner};
use misaka::proof::{End, Proof, Wrong};
use misaka::{
    Checkpoint, Effort, Error, Event, Hash, MEMORY_MAX, Pair, RootVersion, Rule, Settings, Store,
};
use trace::{hash, hex, list, load};

fn settings() -> Settings {
    Settings { chain_id: Some(7), event_retention: 3, window: 5, v2_at: None }
}

fn quiet(_: misaka::Stage, _: u64, _: u64) {}

#[test]
fn the_trace_leaves_the_stores_that_it_should() {
    let vectors = load();
    let parameters = &vectors["trace"]["parameters"];
    let number = |name: &str| parameters[name].as_u64().unwrap();
    let settings = Settings {
        chain_id: None,
        event_retention: number("EVENT_RETENTION_CHECKPOINTS"),
        window: number("PRUNING_WINDOW_CHECKPOINTS"),
        v2_at: Some(number("v2_activation_checkpoint_U")),
    };
    let dir = tempfile::tempdir().unwrap();
    let bucket = KvbEngine::create(dir.path().join("store.kvb")).unwrap();
    let engines: [Box<dyn ledger::Engine>; 2] = [Box::new(MemoryEngine::new()), Box::new(bucket)];
    for engine in engines {
        let store = Store::init(engine, settings, effort()).unwrap();
        let mut last = Vec::new();
        for item in list(&vectors["trace"]["checkpoints"]) {
            let checkpoint = trace::checkpoint(item);
            let expected = &item["expected"];
            assert_eq!(store.root_after(&checkpoint).unwrap(), checkpoint.header.state_root);
            let applied = store.apply(&checkpoint).unwrap();
            assert_eq!(applied.digest, hash(&expected["checkpoint_digest_hex"]));
            let view = store.view().unwrap();
            for (version, name) in
                [(RootVersion::V1, "state_root_v1_hex"), (RootVersion::V2, "state_root_v2_hex")]
            {
                assert_eq!(view.full_root(version, &quiet).unwrap(), hash(&expected[name]));
            }
            last = dump(&store);
            let names = [
                "object_store",
                "version_index",
                "checkpoint_store",
                "event_log_store_recent",
                "sys_params",
            ];
            for (rows, name) in last.iter().zip(names) {
                let wanted = &expected["after_prune"][name];
                assert!(rows.is_sorted(), "{name}");
                assert_eq!(rows.len(), wanted["count"], "{name} after {}", applied.seq);
                let mut flat = Vec::new();
                for (key, value) in rows {
                    misaka::format::snapshot::put_entry(&mut flat, key, value);
                }
                assert_eq!(Hash::of(&[&flat]), hash(&wanted["flat_sha3_hex"]), "{name}");
            }
            assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
        }
        let mut all: Vec<Pair> = last.concat();
        all.sort();
        let wanted: Vec<Pair> = list(&vectors["trace"]["final"]["kv"])
            .iter()
            .map(|entry| (hex(&entry["key_hex"]), hex(&entry["value_hex"])))
            .collect();
        assert_eq!(all, wanted);
        let final_ = &vectors["trace"]["final"];
        let vault = hash(&final_["vault_object_id_hex"]);
        let view = store.view().unwrap();
        let newest = view.versions(&vault).unwrap().last().unwrap().unwrap().0;
        assert_eq!(newest, final_["vault_latest_version"]);
    }
}

#[test]
fn random_chains_are_as_the_model_says() {
    let first = seed::seed("random_chains_are_as_the_model_says");
    for round in 0..12 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let begin = [0, 1, 250, 65_530][rng.usize(..4)];
        let v2_at = [None, Some(begin + rng.u64(..20)), Some(0)][rng.usize(..3)];
        let settings = Settings {
            chain_id: Some(7),
            event_retention: rng.u64(1..8),
            window: rng.u64(1..8),
            v2_at,
        };
        let store = memory(settings);
        let mut chain = Chain::new(settings, begin);
        for _ in 0..30 {
            let checkpoint = chain.grow(&mut rng, 12);
            assert_eq!(store.root_after(&checkpoint).unwrap(), checkpoint.header.state_root);
            store.apply(&checkpoint).unwrap();
            assert_eq!(dump(&store), chain.model.dump(), "after {}", checkpoint.header.seq);
            let view = store.view().unwrap();
            let mut wanted = checkpoint.clone();
            wanted.events.sort_by_key(|event| (event.tx, event.number));
            assert_eq!(view.change(checkpoint.header.seq).unwrap(), wanted);
            for version in [RootVersion::V1, RootVersion::V2] {
                assert_eq!(view.full_root(version, &quiet).unwrap(), chain.model.root(version));
            }
        }
        assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
    }
}

#[test]
fn every_way_to_make_a_root_gives_the_same() {
    let first = seed::seed("every_way_to_make_a_root_gives_the_same");
    // Nothing kept, a few kept, all kept; one thread and several.
    let efforts = [0, 100_000, MEMORY_MAX].map(|memory| Effort { memory, threads: 1, batch: 100 });
    for round in 0..3 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let settings = Settings { v2_at: Some(25), ..settings() };
        let mut chain = Chain::new(settings, 1);
        let mut stores: Vec<Store> = efforts
            .iter()
            .flat_map(|effort| [*effort, Effort { threads: 3, ..*effort }])
            .map(|effort| Store::init(Box::new(MemoryEngine::new()), settings, effort).unwrap())
            .collect();
        for number in 0..40 {
            let size = if number % 9 == 0 { 400 } else { 6 };
            let checkpoint = chain.grow(&mut rng, size);
            for store in &mut stores {
                store.apply(&checkpoint).unwrap();
            }
        }
        for store in &stores {
            assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
            assert_eq!(dump(store), chain.model.dump());
        }
    }
}

/// A checkpoint that follows a chain, with these writes and the right root.
fn next(chain: &Chain, writes: Vec<Vec<u8>>) -> Checkpoint {
    let mut checkpoint = Checkpoint {
        header: header(chain.next),
        tx_digests: Vec::new(),
        writes,
        params: Vec::new(),
        events: Vec::new(),
    };
    chain.model.clone().apply(&mut checkpoint, chain.settings);
    checkpoint
}

fn object(id: u8, version: u64) -> Object<'static> {
    Object {
        id: Hash([id; 32]),
        version,
        owner: Owner::Address([1; 32]),
        type_tag: "t",
        payload: b"payload",
        is_tombstone: false,
    }
}

/// A store with a checkpoint: objects 1 of version 2, 2 deleted, 3 immutable.
fn begun(settings: Settings) -> (Store, Chain) {
    let store = memory(settings);
    let mut chain = Chain::new(settings, 1);
    let tombstone = Object { payload: b"", is_tombstone: true, ..object(2, 2) };
    let immutable = Object { owner: Owner::Immutable, ..object(3, 1) };
    let writes = [object(1, 1), object(2, 1), object(1, 2), tombstone, immutable];
    let mut checkpoint = next(&chain, writes.map(|object| object.encode()).to_vec());
    chain.model.apply(&mut checkpoint, settings);
    chain.next += 1;
    store.apply(&checkpoint).unwrap();
    (store, chain)
}

/// That a checkpoint is refused by a rule, and nothing is written.
fn refused(store: &Store, checkpoint: &Checkpoint, rule: Rule) {
    let before = dump(store);
    let found = store.apply(checkpoint).unwrap_err();
    assert_eq!(found.rule(), Some(rule), "{found}");
    assert!(found.to_string().contains(rule.token()), "{found}");
    assert_eq!(dump(store), before);
}

#[test]
fn every_rule_has_its_name() {
    let (store, chain) = begun(settings());
    let good = next(&chain, vec![object(1, 3).encode(), object(9, 1).encode()]);
    let with = |change: &dyn Fn(&mut Checkpoint)| {
        let mut other = good.clone();
        change(&mut other);
        other
    };
    let header = |change: &dyn Fn(&mut misaka::format::checkpoint::Header)| {
        with(&|checkpoint| change(&mut checkpoint.header))
    };
    refused(&store, &header(&|header| header.chain_id = 8), Rule::ChainId);
    for seq in [0, 1, 3, u64::MAX] {
        refused(&store, &header(&|header| header.seq = seq), Rule::SeqNotNext);
    }
    refused(&store, &header(&|header| header.prev_digest.0[5] ^= 1), Rule::PrevDigest);
    refused(&store, &header(&|header| header.tx_count = 1), Rule::TxCount);
    refused(&store, &header(&|header| header.tx_root.0[0] ^= 1), Rule::TxMerkle);
    refused(&store, &header(&|header| header.state_root.0[31] ^= 1), Rule::StateRoot);
    let digests = with(&|checkpoint| {
        checkpoint.tx_digests = vec![Hash([1; 32]), Hash([2; 32])];
        checkpoint.header.tx_count = 2;
        checkpoint.header.tx_root = tx_root(&[Hash([2; 32]), Hash([1; 32])]);
    });
    refused(&store, &digests, Rule::TxMerkle);
    let write = |bytes: Vec<u8>| with(&|checkpoint| checkpoint.writes = vec![bytes.clone()]);
    for version in [1, 2, 4, 300, u64::MAX] {
        refused(&store, &write(object(1, version).encode()), Rule::VersionNotNext);
    }
    for version in [2, 3, u64::MAX] {
        refused(&store, &write(object(9, version).encode()), Rule::VersionNotNext);
    }
    for version in [1, 2, 3] {
        refused(&store, &write(object(2, version).encode()), Rule::WriteToTombstone);
        refused(&store, &write(object(3, version).encode()), Rule::WriteToImmutable);
    }
    // Within the checkpoint.
    let writes = |objects: Vec<Object<'_>>| {
        with(&|checkpoint| checkpoint.writes = objects.iter().map(Object::encode).collect())
    };
    let dead = Object { payload: b"", is_tombstone: true, ..object(1, 3) };
    refused(&store, &writes(vec![dead, object(1, 4)]), Rule::WriteToTombstone);
    let still = Object { owner: Owner::Immutable, ..object(1, 3) };
    refused(&store, &writes(vec![still, object(1, 4)]), Rule::WriteToImmutable);
    refused(&store, &writes(vec![object(1, 4), object(1, 3)]), Rule::VersionNotNext);
    refused(&store, &writes(vec![object(1, 3), object(1, 3)]), Rule::VersionNotNext);
    let mut bytes = object(1, 3).encode();
    bytes.push(0);
    refused(&store, &write(bytes.clone()), Rule::TrailingBytes);
    refused(&store, &write(bytes[..20].to_vec()), Rule::Truncated);
    refused(&store, &write(Vec::new()), Rule::Truncated);
    let param = |params: &[(&str, &[u8])]| {
        with(&|checkpoint| {
            checkpoint.params =
                params.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        })
    };
    refused(&store, &param(&[("a", b"1"), ("b", b"1"), ("a", b"1")]), Rule::DuplicateParam);
    let long = "a".repeat(1025);
    for name in ["", "a b", "\u{e9}", "a\0", &long] {
        refused(&store, &param(&[(name, b"1")]), Rule::BadParamName);
    }
    refused(&store, &param(&[("state_root_version", b"\x02\0")]), Rule::StateRootVersion);
    refused(&store, &param(&[("state_root_version", b"\x03\0")]), Rule::StateRootVersion);
    refused(&store, &param(&[("state_root_version", b"\x01")]), Rule::Truncated);
    let event = Event { tx: 1, number: 1, bytes: vec![1] };
    let twice = with(&|checkpoint| checkpoint.events = vec![event.clone(), event.clone()]);
    refused(&store, &twice, Rule::DuplicateEvent);
    // After all that the right one is taken, and the same again is not.
    store.apply(&good).unwrap();
    refused(&store, &good, Rule::SeqNotNext);
    assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
}

#[test]
fn the_migration_has_its_rules() {
    let settings = Settings { v2_at: Some(3), ..settings() };
    let (store, mut chain) = begun(settings);
    let mut second = next(&chain, vec![object(1, 3).encode()]);
    chain.model.apply(&mut second, settings);
    chain.next += 1;
    store.apply(&second).unwrap();
    assert!(store.view().unwrap().tree_root().unwrap().is_none());
    assert!(matches!(store.view().unwrap().prove(b"obj/"), Err(Error::NoTree(_))));
    // U without the parameter, and with the root of v1.
    let bare = next(&chain, vec![object(1, 4).encode()]);
    refused(&store, &bare, Rule::StateRootVersion);
    let mut third = bare.clone();
    third.params.push(("state_root_version".to_owned(), vec![2, 0]));
    let mut model = chain.model.clone();
    model.apply(&mut third, settings);
    let mut old = third.clone();
    old.header.state_root = model.root(RootVersion::V1);
    refused(&store, &old, Rule::StateRoot);
    assert_eq!(store.root_after(&third).unwrap(), third.header.state_root);
    store.apply(&third).unwrap();
    assert_eq!(store.view().unwrap().tree_root().unwrap(), Some(third.header.state_root));
    chain.model = model;
    chain.next += 1;
    let mut back = next(&chain, Vec::new());
    back.params.push(("state_root_version".to_owned(), vec![1, 0]));
    refused(&store, &back, Rule::StateRootVersion);
    assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
}

#[test]
fn numbers_beyond_a_byte_are_right() {
    let settings = Settings { chain_id: None, event_retention: 3, window: 400, v2_at: None };
    let store = memory(settings);
    let mut chain = Chain::new(settings, 65_400);
    let mut version = 0;
    for _ in 0..200 {
        let mut writes = Vec::new();
        for _ in 0..400 {
            version += 1;
            writes.push(object(1, version).encode());
        }
        let mut checkpoint = next(&chain, writes);
        let event = |tx: u32| Event { tx, number: 65_536 - tx, bytes: tx.to_le_bytes().to_vec() };
        checkpoint.events = [65_536, 256, 255, 1, 65_535].map(event).to_vec();
        chain.model.apply(&mut checkpoint, settings);
        chain.next += 1;
        store.apply(&checkpoint).unwrap();
    }
    assert_eq!(version, 80_000);
    let view = store.view().unwrap();
    let versions: Vec<u64> =
        view.versions(&Hash([1; 32])).unwrap().map(|row| row.unwrap().0).collect();
    assert_eq!(versions, (1..=80_000).collect::<Vec<_>>());
    assert_eq!(view.tip().unwrap().unwrap().header.seq, 65_599);
    assert_eq!(view.checkpoints().unwrap(), Some((65_400, 65_599)));
    let events = view.events(65_536 + 62).unwrap().unwrap();
    let order: Vec<u32> = events.iter().map(|event| event.tx).collect();
    assert_eq!(order, [1, 255, 256, 65_535, 65_536]);
    // More versions than are sorted in memory come in the order of their keys, too.
    assert_eq!(dump(&store), chain.model.dump());
}

#[test]
fn pruning_is_exact_at_the_edges() {
    let settings = settings();
    let store = memory(settings);
    let mut chain = Chain::new(settings, 1);
    // 1 is written at 1 and never again; 2 at every checkpoint; 3 at 1 and long after.
    for seq in 1..=12_u64 {
        let mut writes = vec![object(2, seq).encode()];
        if seq == 1 {
            writes.extend([object(1, 1).encode(), object(3, 1).encode()]);
        }
        if seq == 12 {
            writes.push(object(3, 2).encode());
        }
        let mut checkpoint = next(&chain, writes);
        checkpoint.events = vec![Event { tx: 0, number: 0, bytes: vec![7] }];
        chain.model.apply(&mut checkpoint, settings);
        chain.next += 1;
        let planned = match seq {
            1 => None,
            _ => Some(store.view().unwrap().next_pruned().unwrap()),
        };
        let applied = store.apply(&checkpoint).unwrap();
        let view = store.view().unwrap();
        let kept: Vec<u64> =
            view.versions(&Hash([2; 32])).unwrap().map(|row| row.unwrap().0).collect();
        // Exactly the last five, and three of events.
        assert_eq!(kept, (seq.saturating_sub(4).max(1)..=seq).collect::<Vec<_>>());
        assert_eq!(view.checkpoints().unwrap(), Some((seq.saturating_sub(4).max(1), seq)));
        for other in 1..=seq + 1 {
            let is_kept = other + 3 > seq && other <= seq;
            assert_eq!(view.events(other).unwrap().is_some(), is_kept, "{other} at {seq}");
            assert_eq!(view.change(other).is_ok(), is_kept);
            let is_kept = other + 5 > seq && other <= seq;
            assert_eq!(view.checkpoint(other).unwrap().is_some(), is_kept);
        }
        assert!(view.version(&Hash([1; 32]), 1).unwrap().is_some(), "the newest stays");
        assert_eq!(view.version(&Hash([3; 32]), 1).unwrap().is_some(), seq < 12);
        if let Some(planned) = planned {
            assert_eq!(planned.events, u64::from(seq > 3));
            assert_eq!(planned.checkpoints, u64::from(seq > 5));
            assert_eq!(applied.pruned.versions, u64::from(seq > 5) + u64::from(seq == 12));
            assert_eq!(applied.pruned.events, planned.events);
        }
        assert_eq!(dump(&store), chain.model.dump());
        assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
    }
}

#[test]
fn what_is_not_there_is_not_there() {
    let store = memory(settings());
    let view = store.view().unwrap();
    assert!(view.tip().unwrap().is_none());
    assert!(view.checkpoints().unwrap().is_none());
    assert!(view.feed().unwrap().is_none());
    assert!(view.events(1).unwrap().is_none());
    assert!(matches!(view.change(1), Err(Error::NotKept { seq: 1, .. })));
    assert!(matches!(view.next_pruned(), Err(Error::NoCheckpoint)));
    assert_eq!(view.full_root(RootVersion::V1, &quiet).unwrap(), Hash::of(&[]));
    assert_eq!(view.full_root(RootVersion::V2, &quiet).unwrap(), Hash::ZERO);
    for key in [
        Key::Object(Hash([1; 32])),
        Key::Version(Hash([1; 32]), 0),
        Key::Checkpoint(u64::MAX),
        Key::Event(u64::MAX, 1, 1),
        Key::Param("a".to_owned()),
        Key::Param(String::new()),
    ] {
        assert_eq!(view.get(&key).unwrap(), None);
    }
    assert!(dump(&store).concat().is_empty());
    assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
}

#[test]
fn more_memory_than_there_is_is_refused() {
    let engine = || Box::new(MemoryEngine::new());
    let more = Effort { memory: MEMORY_MAX + 1, ..Effort::default() };
    let found = Store::init(engine(), settings(), more).unwrap_err();
    assert!(matches!(found, Error::Memory { .. }), "{found}");
    assert_eq!(MEMORY_MAX, 2_684_354_560);
    for other in
        [Settings { window: 0, ..settings() }, Settings { event_retention: 0, ..settings() }]
    {
        assert!(Store::init(engine(), other, effort()).is_err());
    }
}

#[test]
fn settings_cannot_be_changed() {
    let dir = tempfile::tempdir().unwrap();
    let database = misaka::Database::new(dir.path().join("db"));
    drop(database.init(ledger::EngineKind::Kvb, settings(), effort()).unwrap());
    drop(database.init(ledger::EngineKind::Kvb, settings(), effort()).unwrap());
    let other = Settings { window: 6, ..settings() };
    let found = database.init(ledger::EngineKind::Kvb, other, effort()).unwrap_err();
    assert!(matches!(found, Error::Settings { .. }), "{found}");
    assert_eq!(database.open(effort()).unwrap().settings(), settings());
}

#[test]
fn proofs_prove_what_they_should_and_nothing_else() {
    let first = seed::seed("proofs_prove_what_they_should_and_nothing_else");
    let mut ends = [0; 3];
    for round in 0..4 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let settings = Settings { v2_at: Some(0), ..settings() };
        let store = memory(settings);
        let mut chain = Chain::new(settings, 1);
        for size in [0, 1, 40, 200] {
            let checkpoint = chain.grow(&mut rng, size);
            store.apply(&checkpoint).unwrap();
            let root = checkpoint.header.state_root;
            let view = store.view().unwrap();
            let rows = dump(&store);
            let mut keys: Vec<Vec<u8>> =
                rows.iter().flatten().map(|(key, _)| key.clone()).collect();
            keys.extend((0..30).map(|_| Key::Object(Hash([rng.u8(..); 32])).encode()));
            keys.push(Vec::new());
            for key in keys {
                let (value, proof) = view.prove(&key).unwrap();
                let bytes = proof.encode();
                let read = Proof::decode(&bytes).unwrap();
                assert_eq!(read, proof);
                match &proof.end {
                    End::Entry => ends[0] += 1,
                    End::Nothing => ends[1] += 1,
                    End::Other { .. } => ends[2] += 1,
                }
                match &value {
                    Some(value) => {
                        proof.check_there(&root, &key, value).unwrap();
                        assert_eq!(proof.check_absent(&root, &key), Err(Wrong::Opposite));
                        let mut other = value.clone();
                        other.push(1);
                        assert!(proof.check_there(&root, &key, &other).is_err());
                    }
                    None => {
                        proof.check_absent(&root, &key).unwrap();
                        assert!(proof.check_there(&root, &key, b"").is_err());
                    }
                }
                let other = Hash([3; 32]);
                assert!(proof.check_there(&other, &key, value.as_deref().unwrap_or(&[])).is_err());
                assert!(proof.check_absent(&other, &key).is_err());
                // One flipped bit anywhere.
                let (at, bit) = (rng.usize(..bytes.len()), rng.u8(..8));
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(flipped) = Proof::decode(&flipped) {
                    let found = match &value {
                        Some(value) => flipped.check_there(&root, &key, value),
                        None => flipped.check_absent(&root, &key),
                    };
                    assert!(found.is_err(), "bit {bit} of byte {at}");
                }
                assert!(Proof::decode(&bytes[..at]).is_err());
            }
            // What is there cannot be proved away with the proof of something else.
            let there: Vec<&Pair> = rows[0].iter().collect();
            for (key, _) in there.iter().take(20) {
                for (other, _) in there.iter().take(20) {
                    let (_, proof) = view.prove(other).unwrap();
                    assert!(proof.check_absent(&root, key).is_err());
                }
            }
        }
    }
    assert!(ends.iter().all(|count| *count > 5), "{ends:?}");
}

/// It left the tree of an empty store behind, and the chain that came then ended where v2 begins.
#[test]
fn a_first_checkpoint_that_is_refused_leaves_nothing() {
    let settings = Settings { v2_at: Some(254), ..settings() };
    for seq in [254, 300] {
        let store = memory(settings);
        let mut rng = Rng::with_seed(5);
        let early = Chain::new(settings, seq).grow(&mut rng, 8);
        let mut wrong = early.clone();
        wrong.header.state_root = Hash::of(&[b"another"]);
        assert!(matches!(store.apply(&wrong), Err(Error::Refused { .. })));
        assert_eq!(store.root_after(&early).unwrap(), early.header.state_root);
        assert_eq!(store.view().unwrap().tree_root().unwrap(), None);
        let mut chain = Chain::new(settings, 251);
        for _ in 0..6 {
            store.apply(&chain.grow(&mut rng, 8)).unwrap();
        }
        assert_eq!(dump(&store), chain.model.dump());
        assert_eq!(store.verify(&quiet).unwrap().findings, [""; 0]);
        // And the early one is a good first one.
        let store = memory(settings);
        assert_eq!(store.apply(&early).unwrap().root, early.header.state_root);
    }
}
