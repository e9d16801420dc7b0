//! Random histories against a model in another language: the same headers, roots, stores and snapshots after every checkpoint.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/chain.rs"]
mod chain;
#[path = "../../kvb/tests/support/oracle.rs"]
mod oracle;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/trace.rs"]
mod trace;

use chain::{Chain, dump, effort};
use fastrand::Rng;
use host::{Dir, MemoryDir};
use ledger::{Engine, KvbEngine, MemoryEngine};
use misaka::format::mcs::Decoder;
use misaka::format::snapshot::entry;
use misaka::snapshot::{Watch, create, restore_into};
use misaka::{Checkpoint, Hash, RootVersion, Settings, Store, hex};
use oracle::Model;
use serde_json::{Value, json};

fn ask_apply(model: &mut Model, checkpoint: &Checkpoint, version: RootVersion) -> Value {
    let header = &checkpoint.header;
    let text = |bytes: &[u8]| hex(bytes);
    model.ask(&json!({"apply": {
        "seq": header.seq,
        "version": version.number(),
        "writes": checkpoint.writes.iter().map(|bytes| text(bytes)).collect::<Vec<_>>(),
        "params": checkpoint.params.iter()
            .map(|(name, value)| json!([name, text(value)])).collect::<Vec<_>>(),
        "events": checkpoint.events.iter()
            .map(|event| json!([event.tx, event.number, text(&event.bytes)])).collect::<Vec<_>>(),
        "digests": checkpoint.tx_digests.iter().map(Hash::to_string).collect::<Vec<_>>(),
        "header": {
            "chain_id": header.chain_id,
            "epoch": header.epoch,
            "ts": header.timestamp_ms,
            "vset": header.validator_set_hash.to_string(),
        },
    }}))
}

fn shown(rows: &[Vec<misaka::Pair>]) -> Value {
    let pair = |(key, value): &misaka::Pair| json!([hex(key), hex(value)]);
    rows.iter().map(|rows| rows.iter().map(pair).collect::<Value>()).collect()
}

/// The entries of a snapshot, one behind the other.
fn stream(dir: &dyn Dir) -> Vec<u8> {
    let manifest = misaka::snapshot::manifest(dir).unwrap();
    let mut stream = Vec::new();
    for (number, chunk) in manifest.chunks.iter().enumerate() {
        let name = misaka::snapshot::chunk_name(number, &chunk.digest);
        stream.extend(dir.read(&name).unwrap().unwrap());
    }
    let mut decoder = Decoder::new(&stream);
    while entry(&mut decoder).unwrap().is_some() {}
    stream
}

fn follow(engine: Box<dyn Engine>, seed: u64, checkpoints: usize) {
    let mut rng = Rng::with_seed(seed);
    let first = [0, 1, 250, 65_530][rng.usize(..4)];
    let v2_at = [None, Some(first + rng.u64(..15)), Some(0)][rng.usize(..3)];
    let settings = Settings {
        chain_id: Some(7),
        event_retention: rng.u64(1..8),
        window: rng.u64(1..8),
        v2_at,
    };
    let windows = json!({"window": settings.window, "retention": settings.event_retention});
    let mut model = Model::new(&windows);
    let mut store = Store::init(engine, settings, effort()).unwrap();
    let mut chain = Chain::new(settings, first);
    for _ in 0..checkpoints {
        let checkpoint = chain.grow(&mut rng, 15);
        let seq = checkpoint.header.seq;
        let version = settings.root_version(seq);
        let wanted = ask_apply(&mut model, &checkpoint, version);
        assert_eq!(hex(&checkpoint.header.encode()), wanted["header"], "{settings:?}");
        store.apply(&checkpoint).unwrap();
        let view = store.view().unwrap();
        for (version, name) in [(RootVersion::V1, "v1"), (RootVersion::V2, "v2")] {
            assert_eq!(view.full_root(version, &|_, _, _| {}).unwrap().to_string(), wanted[name]);
        }
        drop(view);
        assert_eq!(shown(&dump(&store)), model.ask(&json!({"dump": true})), "after {seq}");
        if rng.u8(..6) == 0 {
            // The same entries as the model has, and a store that goes on from them.
            let dir = MemoryDir::new();
            create(&store, &dir, rng.usize(1..2000), 2, Watch::NOBODY).unwrap();
            let wanted = model.ask(&json!({"snapshot": version.number()}));
            let manifest = misaka::snapshot::manifest(&dir).unwrap();
            assert_eq!(hex(&manifest.header.encode()), wanted["header"]);
            assert_eq!(Hash::of(&[&stream(&dir)]).to_string(), wanted["flat"]);
            if rng.bool() {
                let engine = MemoryEngine::new();
                let engine = std::sync::Arc::new(engine);
                let shared = Box::new(Shared(std::sync::Arc::clone(&engine)));
                let nobody = Watch::NOBODY;
                restore_into(shared, &dir, &manifest, settings, effort(), nobody).unwrap();
                let restored = Store::open(Box::new(Shared(engine)), effort()).unwrap();
                // Checkpoints and events from before are not in it.
                let (mut found, mut wanted) = (dump(&restored), dump(&store));
                for table in [2, 3] {
                    found[table].clear();
                    wanted[table].clear();
                }
                assert_eq!(found, wanted);
                let next = chain.clone().grow(&mut rng, 15);
                restored.apply(&next).unwrap();
            }
        }
        if rng.u8(..8) == 0 {
            // Nothing is known any more but what is in the tables.
            let engine = store.into_engine();
            store = Store::open(engine, effort()).unwrap();
        }
    }
    assert_eq!(store.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
}

/// An engine that somebody else has, too.
#[derive(Debug)]
struct Shared(std::sync::Arc<MemoryEngine>);

impl Engine for Shared {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn snapshot(&self) -> Result<Box<dyn ledger::Snapshot + '_>, ledger::EngineError> {
        self.0.snapshot()
    }

    fn commit(&self, batch: ledger::Batch) -> Result<(), ledger::EngineError> {
        self.0.commit(batch)
    }
}

#[test]
fn the_same_as_the_model_after_every_checkpoint() {
    let first = seed::seed("the_same_as_the_model_after_every_checkpoint");
    for round in 0..10 * seed::rounds() {
        follow(Box::new(MemoryEngine::new()), first ^ round, 30);
    }
}

#[test]
fn the_same_in_a_bucket() {
    let first = seed::seed("the_same_in_a_bucket");
    for round in 0..2 {
        let dir = tempfile::tempdir().unwrap();
        let engine = KvbEngine::create(dir.path().join("store.kvb")).unwrap();
        follow(Box::new(engine), first ^ round, 20);
    }
}
