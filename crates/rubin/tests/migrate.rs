//! A datadir of version 0, whose entries have the length of their data as u32le, brought to version 1: the same rows as if it had
//! been written so from the start, however often it is cut off.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::path::Path;

use fastrand::Rng;
use ledger::{Batch, Engine, KvbEngine, Reader, Writer};
use model::{Model, Tree};
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::tables::{CANONICAL, UNDO, UTXO};
use rubin::{Datadir, EngineKind, Error, UndoRecord, UtxoEntry};

fn rules() -> Box<Rules> {
    Box::default()
}

/// An entry as version 0 had it.
fn old_entry(bytes: &[u8]) -> Vec<u8> {
    let entry = UtxoEntry::decode(bytes).unwrap();
    let mut writer = Writer::new();
    writer.u64_le(entry.value).u16_le(entry.covenant_type);
    writer.u32_le(u32::try_from(entry.covenant_data.len()).unwrap()).bytes(entry.covenant_data);
    writer.u64_le(entry.creation_height).u8(u8::from(entry.created_by_coinbase));
    writer.finish()
}

fn old_undo(bytes: &[u8]) -> Vec<u8> {
    let undo = UndoRecord::decode(bytes).unwrap();
    let entries: Vec<_> =
        undo.spent.iter().map(|(outpoint, entry)| (*outpoint, old_entry(entry))).collect();
    let spent = entries.iter().map(|(outpoint, entry)| (*outpoint, entry.as_slice())).collect();
    UndoRecord { spent, created: undo.created }.encode()
}

/// Makes a datadir one of version 0.
fn make_old(path: &Path) {
    let engine = KvbEngine::open(path.join("db/data.kvb")).unwrap();
    let mut batch = Batch::new();
    {
        let snapshot = engine.snapshot().unwrap();
        for (key, value) in model::dump(&*snapshot, UTXO) {
            batch.put(UTXO, &key, &old_entry(&value));
        }
        for (key, value) in model::dump(&*snapshot, UNDO) {
            batch.put(UNDO, &key, &old_undo(&value));
        }
    }
    engine.commit(batch).unwrap();
    let manifest = path.join("MANIFEST.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(manifest, text.replacen("\"schema_version\": 1", "\"schema_version\": 0", 1))
        .unwrap();
}

fn rows(path: &Path) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    let engine = KvbEngine::open(path.join("db/data.kvb")).unwrap();
    let snapshot = engine.snapshot().unwrap();
    CANONICAL.iter().map(|table| model::dump(&*snapshot, *table)).collect()
}

#[test]
fn an_old_datadir_becomes_a_new_one_however_often_it_is_cut_off() {
    let mut rng =
        Rng::with_seed(seed::seed("an_old_datadir_becomes_a_new_one_however_often_it_is_cut_off"));
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::grow(&mut rng, 25);
    let genesis = tree.genesis.clone();
    let datadir = Datadir::new(dir.path(), genesis.chain_id());
    let mut model = Model::new(&tree);
    {
        let chain = datadir.init(genesis.clone(), EngineKind::Kvb, rules()).unwrap();
        for number in 0..20 {
            let _ = chain.import(&tree.blocks[number].bytes, None).unwrap();
            model.import(number);
        }
    }
    let wanted = rows(datadir.path());
    make_old(datadir.path());
    assert_ne!(rows(datadir.path()), wanted);
    let refused = datadir.open(genesis.clone(), rules()).unwrap_err();
    assert!(matches!(refused, Error::OlderSchema { found: 0, supported: 1 }), "{refused}");

    // Trying changes nothing.
    let old = rows(datadir.path());
    let tried = datadir.migrate(true, &mut |_| {}).unwrap();
    assert_eq!((tried.from, tried.to, tried.steps.len()), (0, 1, 1));
    assert_eq!(rows(datadir.path()), old);
    assert!(datadir.open(genesis.clone(), rules()).is_err());

    let done = datadir.migrate(false, &mut |_| {}).unwrap();
    assert_eq!(done.rows, tried.rows);
    assert_eq!(rows(datadir.path()), wanted);
    let again = datadir.migrate(false, &mut |_| {}).unwrap();
    assert_eq!((again.from, again.to, again.rows), (1, 1, 0));
    assert_eq!(rows(datadir.path()), wanted);
    let chain = datadir.open(genesis, rules()).unwrap();
    model.check_all(&chain);
    for number in 20..25 {
        let _ = chain.import(&tree.blocks[number].bytes, None).unwrap();
        model.import(number);
    }
    model.check_all(&chain);
}

#[test]
fn damaged_rows_stop_it_and_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let genesis = maker::genesis(3);
    let datadir = Datadir::new(dir.path(), genesis.chain_id());
    drop(datadir.init(genesis.clone(), EngineKind::Kvb, rules()).unwrap());
    make_old(datadir.path());
    {
        let engine = KvbEngine::open(datadir.path().join("db/data.kvb")).unwrap();
        let mut batch = Batch::new();
        batch.put(UTXO, &[0xff; 36], b"not an entry");
        engine.commit(batch).unwrap();
    }
    let error = datadir.migrate(false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("utxo_by_outpoint"), "{error}");
    assert!(datadir.open(genesis, rules()).is_err(), "it is of version 0 still");
    assert!(Reader::new(&[]).u8().is_err());
}
