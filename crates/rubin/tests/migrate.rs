//! A datadir of version 0, whose entries have the length of their data as u32le, brought to version 1: the same rows as if it had
//! been written so from the start, however often it is cut off.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;
use host::{Dir, FileDir, ManualEnv, MemoryDir, SimDir};
use ledger::{Batch, Engine, KvbEngine, MemoryEngine, Writer};
use model::{Model, Tree};
use rubin::rules::Rules;
use rubin::synthetic::{self as maker, Generator};
use rubin::tables::{BLOCKS, CANONICAL, UNDO, UTXO};
use rubin::{Chain, Datadir, EngineKind, Error, Manifest, UndoRecord, UtxoEntry, migrate_on};

/// All rows of the canonical tables.
type Rows = Vec<Vec<(Vec<u8>, Vec<u8>)>>;

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

/// A random tree whose first block counts, so that there are outputs.
fn tree(rng: &mut Rng, count: usize) -> Tree {
    loop {
        let tree = Tree::grow(rng, count);
        if tree.blocks[0].is_valid {
            return tree;
        }
    }
}

/// Makes a chain one of version 0.
fn make_old(engine: &dyn Engine, home: &dyn Dir) {
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
    let manifest = Manifest::read(home).unwrap().unwrap();
    Manifest { schema_version: 0, ..manifest }.write(home).unwrap();
}

fn rows(engine: &dyn Engine) -> Rows {
    let snapshot = engine.snapshot().unwrap();
    CANONICAL.iter().map(|table| model::dump(&*snapshot, *table)).collect()
}

fn engine_of(path: &Path) -> KvbEngine {
    KvbEngine::open(path.join("db/data.kvb")).unwrap()
}

fn make_old_at(path: &Path) {
    make_old(&engine_of(path), &FileDir::new(path));
}

fn rows_at(path: &Path) -> Rows {
    rows(&engine_of(path))
}

#[test]
fn an_old_datadir_becomes_a_new_one() {
    let mut rng = Rng::with_seed(seed::seed("an_old_datadir_becomes_a_new_one"));
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(&mut rng, 25);
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
    let wanted = rows_at(datadir.path());
    make_old_at(datadir.path());
    assert!(rows_at(datadir.path()) != wanted);
    let refused = datadir.open(genesis.clone(), rules()).unwrap_err();
    assert!(matches!(refused, Error::OlderSchema { found: 0, supported: 1 }), "{refused}");

    // Trying changes nothing.
    let old = rows_at(datadir.path());
    let tried = datadir.migrate(true, &mut |_| {}).unwrap();
    assert_eq!((tried.from, tried.to, tried.steps.len()), (0, 1, 1));
    assert_eq!(rows_at(datadir.path()), old);
    assert!(datadir.open(genesis.clone(), rules()).is_err());

    let done = datadir.migrate(false, &mut |_| {}).unwrap();
    assert_eq!(done.rows, tried.rows);
    assert_eq!(rows_at(datadir.path()), wanted);
    let again = datadir.migrate(false, &mut |_| {}).unwrap();
    assert_eq!((again.from, again.to, again.rows), (1, 1, 0));
    assert_eq!(rows_at(datadir.path()), wanted);
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
    make_old_at(datadir.path());
    {
        let engine = KvbEngine::open(datadir.path().join("db/data.kvb")).unwrap();
        let mut batch = Batch::new();
        batch.put(UTXO, &[0xff; 36], b"not an entry");
        engine.commit(batch).unwrap();
    }
    let error = datadir.migrate(false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("utxo_by_outpoint"), "{error}");
    assert!(datadir.open(genesis, rules()).is_err(), "it is of version 0 still");
}

const DATABASE: &str = "db";

fn sim_engine(dir: &SimDir) -> Result<KvbEngine, Error> {
    let options =
        KvbEngine::options().background(false).segment_bytes_max(64 << 10).overlay_min(64);
    let env = Arc::new(ManualEnv::new(1, 1));
    Ok(match dir.open(DATABASE) {
        Ok(disk) => KvbEngine::open_on(disk, env, options)?,
        Err(_) => KvbEngine::create_on(dir.create(DATABASE).unwrap(), env, options)?,
    })
}

/// Few bytes at a time, so that there is much to cut off.
fn migrate_some(dir: &SimDir, tree: &Tree) -> Result<(), Error> {
    let engine = sim_engine(dir)?;
    let chain_id = tree.genesis.chain_id();
    migrate_on(&engine, dir, chain_id, false, 300, &mut |_| {}).map(drop)
}

#[test]
fn power_loss_at_every_step_of_it_changes_nothing_about_the_end() {
    let name = "power_loss_at_every_step_of_it_changes_nothing_about_the_end";
    let mut rng = Rng::with_seed(seed::seed(name));
    let tree = tree(&mut rng, 12);
    let mut model = Model::new(&tree);
    let dir = Arc::new(SimDir::new());
    let wanted = {
        let home: Arc<dyn Dir> = Arc::<SimDir>::clone(&dir);
        let engine = Box::new(sim_engine(&dir).unwrap());
        let chain = Chain::init(engine, home, rules(), tree.genesis.clone()).unwrap();
        for number in 0..tree.blocks.len() {
            let _ = chain.import(&tree.blocks[number].bytes, None).unwrap();
            model.import(number);
        }
        drop(chain);
        let engine = sim_engine(&dir).unwrap();
        let wanted = rows(&engine);
        make_old(&engine, &*dir);
        assert!(rows(&engine) != wanted);
        wanted
    };
    let whole = dir.after_power_loss(0);
    migrate_some(&whole, &tree).unwrap();
    let steps = whole.step_count();
    assert!(steps > 30, "{steps}");
    for step in 0..steps {
        let cut = dir.after_power_loss(0);
        cut.power_off_at(step);
        let _ = migrate_some(&cut, &tree);
        for again in 0..3 {
            let mut found = cut.after_power_loss(rng.u64(..));
            for _ in 0..again {
                found.power_off_at(rng.u64(..steps));
                let _ = migrate_some(&found, &tree);
                found = found.after_power_loss(rng.u64(..));
            }
            migrate_some(&found, &tree).unwrap();
            assert_eq!(Manifest::read(&found).unwrap().unwrap().schema_version, 1);
            let engine = Box::new(sim_engine(&found).unwrap());
            assert_eq!(rows(&*engine), wanted, "step {step}");
            let chain = Chain::open(engine, Arc::new(found), rules(), tree.genesis.clone());
            model.check_all(&chain.unwrap());
        }
    }
}

/// A datadir of version 0 as it was written once, and the hash of its set.
const FIXTURE: &str = "../../vectors/rubin/schema-0";
const FIXTURE_SET: &str = "6d1fc5edc4cefb75dd16862bdca83552514601e25ce18218a24b2bbd7a1f2bbb";

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (entry, target) =
            (entry.as_ref().unwrap(), to.join(entry.as_ref().unwrap().file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Writes the fixture anew: `KVB_BLESS=1`.
fn bless(fixture: &Path) {
    let _ = std::fs::remove_dir_all(fixture);
    let mut generator = Generator::new(6);
    let genesis = generator.genesis().clone();
    let dir = tempfile::tempdir().unwrap();
    let datadir = Datadir::new(dir.path(), genesis.chain_id());
    let chain = datadir.init(genesis, EngineKind::Kvb, rules()).unwrap();
    chain.import(&generator.make_coins(12), None).unwrap().unwrap();
    for _ in 0..4 {
        chain.import(&generator.spend_coins(6), None).unwrap().unwrap();
    }
    drop(chain);
    make_old_at(datadir.path());
    let target = Datadir::new(fixture, datadir.chain_id());
    std::fs::create_dir_all(target.path().join("db")).unwrap();
    let engine = engine_of(datadir.path());
    let snapshot = engine.bucket().snapshot();
    snapshot.backup(target.path().join("db/data.kvb"), &mut |_| {}).unwrap();
    std::fs::copy(datadir.path().join("MANIFEST.json"), target.path().join("MANIFEST.json"))
        .unwrap();
}

#[test]
fn a_datadir_that_was_written_under_version_0_opens_once_it_is_migrated() {
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(FIXTURE);
    if std::env::var_os("KVB_BLESS").is_some() {
        bless(&fixture);
    }
    let dir = tempfile::tempdir().unwrap();
    copy(&fixture, dir.path());
    let chain_id = Datadir::chains(dir.path()).unwrap()[0];
    let datadir = Datadir::new(dir.path(), chain_id);
    let genesis = datadir.genesis().unwrap();
    let refused = datadir.open(genesis.clone(), rules()).unwrap_err();
    assert!(matches!(refused, Error::OlderSchema { found: 0, supported: 1 }), "{refused}");
    let done = datadir.migrate(false, &mut |_| {}).unwrap();
    assert_eq!((done.from, done.to), (0, 1));
    let chain = datadir.open(genesis.clone(), rules()).unwrap();
    let (tip, (_, set_hash)) = (chain.tip(), chain.view().unwrap().utxo_set_hash().unwrap());
    assert_eq!((tip.height, set_hash.to_string().as_str()), (5, FIXTURE_SET));
    // The same as if its blocks were imported by version 1.
    let engine = MemoryEngine::new();
    let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
    let fresh = Chain::init(Box::new(engine), home, rules(), genesis).unwrap();
    for height in 1..=tip.height {
        let hash = chain.view().unwrap().hash_at(height).unwrap();
        let block = model::dump(chain.view().unwrap().snapshot(), BLOCKS);
        let block = block.into_iter().find(|(key, _)| key == hash.as_bytes()).unwrap().1;
        fresh.import(&block, None).unwrap().unwrap();
    }
    for table in CANONICAL {
        let of = |chain: &Chain| model::dump(chain.view().unwrap().snapshot(), *table);
        assert_eq!(of(&chain), of(&fresh), "{table:?}");
    }
}
