//! Datadirs that somebody has tampered with, or that lost a part: refused, in bounded time and memory, and left as they are.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::sync::Arc;

use host::MemoryDir;
use ledger::{Batch, Engine, MemoryEngine};
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::tables::{CANONICAL, UTXO};
use rubin::{Chain, Datadir, EngineKind, Error, Genesis, Manifest};

fn rules() -> Box<Rules> {
    Box::default()
}

/// A datadir with a chain that has a block, and the path of its manifest.
fn make() -> (tempfile::TempDir, Datadir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let genesis = Genesis::devnet();
    let datadir = Datadir::new(dir.path(), genesis.chain_id());
    let chain = datadir.init(genesis.clone(), EngineKind::Kvb, rules()).unwrap();
    let block = maker::block(genesis.hash(), 1, &[maker::coinbase(1, &[maker::coin(0)])]);
    chain.import(&block, None).unwrap().unwrap();
    let manifest = datadir.path().join("MANIFEST.json");
    (dir, datadir, manifest)
}

#[test]
fn manifests_are_read_strictly() {
    let (_dir, _, path) = make();
    let text = std::fs::read_to_string(path).unwrap();
    let decode = |text: &str| Manifest::decode(text.as_bytes());
    decode(&text).unwrap();
    let hash = decode(&text).unwrap().tip.hash.to_string();
    let upper = hash.to_uppercase();
    let cases = [
        ("\"tip_height\": 1", "\"tip_height\": \"1\""),
        ("\"tip_height\": 1", "\"tip_height\": 1.0"),
        ("\"tip_height\": 1", "\"tip_height\": -1"),
        ("\"tip_height\": 1", "\"tip_height\": 18446744073709551616"),
        ("\"tip_height\": 1", "\"tip_height\": 1, \"tip_height\": 1"),
        ("\"tip_height\": 1,", ""),
        ("\"schema_version\": 1", "\"schema_version\": \"1\""),
        ("\"schema_version\": 1", "\"schema_version\": 1, \"schema_version\": 2"),
        ("\"schema_version\": 1", "\"schema_version\": null"),
        ("\"tip_cumulative_work\": \"2\"", "\"tip_cumulative_work\": 2"),
        ("\"tip_cumulative_work\": \"2\"", "\"tip_cumulative_work\": \"02\""),
        ("\"tip_cumulative_work\": \"2\"", "\"tip_cumulative_work\": \"+2\""),
        ("\"tip_cumulative_work\": \"2\"", "\"tip_cumulative_work\": \"\""),
        ("\"tip_cumulative_work\": \"2\"", "\"tip_cumulative_work\": \"0x2\""),
        (hash.as_str(), &upper),
        (hash.as_str(), &hash[1..]),
        (hash.as_str(), &format!("+{}", &hash[1..])),
        (hash.as_str(), "../../../../../../../../../../../../../../../../etc/passwd/////"),
        ("{", "\u{feff}{"),
        ("}\n", "}\n}"),
        ("{", "["),
    ];
    for (from, to) in cases {
        assert!(text.contains(from), "{from}");
        let wrong = decode(&text.replacen(from, to, 1)).unwrap_err();
        assert!(matches!(wrong, Error::Manifest(_)), "{to}: {wrong}");
    }
    let deep = format!("{{\"more\": {}{},", "[".repeat(100_000), "]".repeat(100_000));
    let _ = decode(&text.replacen('{', &deep, 1));
    let work = format!("\"tip_cumulative_work\": \"{}\"", "9".repeat(1_000_000));
    assert!(decode(&text.replacen("\"tip_cumulative_work\": \"2\"", &work, 1)).is_err());
}

#[test]
fn a_newer_version_is_told_whatever_its_fields_are() {
    let text = "{\"schema_version\": 2, \"tip\": {\"height\": 5}}";
    let error = Manifest::decode(text.as_bytes()).unwrap_err();
    assert!(matches!(error, Error::NewerSchema { found: 2, supported: 1 }), "{error}");
    let text = "{\"schema_version\": 1, \"tip\": {\"height\": 5}}";
    assert!(matches!(Manifest::decode(text.as_bytes()).unwrap_err(), Error::Manifest(_)));
}

#[test]
fn what_is_no_plain_small_file_is_no_manifest() {
    let (_dir, datadir, path) = make();
    let open = || {
        let read = datadir.open_to_read(Genesis::devnet(), rules()).unwrap_err();
        let write = datadir.open(Genesis::devnet(), rules()).unwrap_err();
        let init = datadir.init(Genesis::devnet(), EngineKind::Kvb, rules()).unwrap_err();
        [read, write, init]
    };
    let text = std::fs::read(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // A hole: it costs nothing, but to whoever reads it.
    file.set_len(1 << 40).unwrap();
    open();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    open();
    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    open();
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    open();
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, text).unwrap();
    assert_eq!(datadir.open(Genesis::devnet(), rules()).unwrap().tip().height, 1);
}

/// Whoever made the datadir does not lead us to a chain that is somebody else's.
#[test]
fn directories_in_a_datadir_are_no_links() {
    let (real, chain, _) = make();
    let id = chain.chain_id().to_string();
    for is_whole in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let chains = dir.path().join("chains");
        if is_whole {
            std::os::unix::fs::symlink(real.path().join("chains"), &chains).unwrap();
        } else {
            std::fs::create_dir(&chains).unwrap();
            std::os::unix::fs::symlink(chain.path(), chains.join(&id)).unwrap();
        }
        let datadir = Datadir::new(dir.path(), chain.chain_id());
        let refused = [
            datadir.open(Genesis::devnet(), rules()).unwrap_err(),
            datadir.open(None, rules()).unwrap_err(),
            datadir.open_to_read(Genesis::devnet(), rules()).unwrap_err(),
            datadir.init(Genesis::devnet(), EngineKind::Kvb, rules()).unwrap_err(),
            datadir.genesis().unwrap_err(),
            datadir.migrate(false, &mut |_| {}).unwrap_err(),
        ];
        for error in refused {
            assert!(error.to_string().contains("symbolic link"), "{error}");
        }
    }
    assert_eq!(chain.open(None, rules()).unwrap().tip().height, 1);
    // The datadir itself may be one: whoever runs the program named it.
    let away = tempfile::tempdir().unwrap();
    let link = away.path().join("link");
    std::os::unix::fs::symlink(real.path(), &link).unwrap();
    let datadir = Datadir::new(&link, chain.chain_id());
    assert_eq!(datadir.open(None, rules()).unwrap().tip().height, 1);
}

#[test]
fn a_lost_database_is_not_made_anew() {
    let (_dir, datadir, _) = make();
    let (database, away) = (datadir.path().join("db"), datadir.path().join("away"));
    std::fs::rename(&database, &away).unwrap();
    let init = datadir.init(Genesis::devnet(), EngineKind::Kvb, rules()).unwrap_err();
    assert!(matches!(init, Error::Inconsistent(_)), "{init}");
    let open = datadir.open(Genesis::devnet(), rules()).unwrap_err();
    assert!(matches!(open, Error::Inconsistent(_)), "{open}");
    assert!(!database.exists(), "where it was there is room for it");
    std::fs::rename(&away, &database).unwrap();
    assert_eq!(datadir.open(Genesis::devnet(), rules()).unwrap().tip().height, 1);
}

#[test]
fn rows_of_something_else_are_no_empty_database() {
    for table in CANONICAL {
        let engine = MemoryEngine::new();
        let mut batch = Batch::new();
        batch.put(*table, &[7; 32], b"something");
        engine.commit(batch).unwrap();
        let home = Arc::new(MemoryDir::new());
        let made = Chain::init(Box::new(engine), home, rules(), Genesis::devnet());
        let error = made.unwrap_err();
        assert!(matches!(error, Error::Inconsistent(_)), "{}: {error}", table.name);
    }
}

#[test]
fn a_database_of_another_chain_is_refused() {
    let (_dir, datadir, _) = make();
    let (_other_dir, other) = {
        let dir = tempfile::tempdir().unwrap();
        let other = Datadir::new(dir.path(), Genesis::mainnet().chain_id());
        drop(other.init(Genesis::mainnet(), EngineKind::Kvb, rules()).unwrap());
        (dir, other)
    };
    let file = "db/data.kvb";
    std::fs::copy(other.path().join(file), datadir.path().join(file)).unwrap();
    let before = std::fs::read(datadir.path().join("MANIFEST.json")).unwrap();
    assert!(datadir.open(Genesis::devnet(), rules()).is_err());
    assert!(datadir.open_to_read(Genesis::devnet(), rules()).is_err());
    assert!(datadir.genesis().is_err());
    assert!(datadir.init(Genesis::devnet(), EngineKind::Kvb, rules()).is_err());
    assert_eq!(std::fs::read(datadir.path().join("MANIFEST.json")).unwrap(), before);
    assert_eq!(UTXO.name, "utxo_by_outpoint");
}

#[test]
fn only_lower_case_names_are_chains() {
    let (dir, datadir, _) = make();
    let upper = datadir.chain_id().to_string().to_uppercase();
    std::fs::create_dir(dir.path().join("chains").join(upper)).unwrap();
    std::fs::create_dir(dir.path().join("chains").join("more")).unwrap();
    assert_eq!(Datadir::chains(dir.path()).unwrap(), [datadir.chain_id()]);
}

#[test]
fn a_chain_between_two_blocks_is_mended_by_whoever_writes() {
    let (_dir, datadir, path) = make();
    let genesis = Genesis::devnet;
    let manifest = std::fs::read(&path).unwrap();
    let chain = datadir.open(genesis(), rules()).unwrap();
    let block = maker::block(chain.tip().hash, 2, &[maker::coinbase(2, &[maker::coin(0)])]);
    chain.import(&block, None).unwrap().unwrap();
    let after = chain.tip();
    drop(chain);
    // As if power had failed before the manifest.
    std::fs::write(&path, &manifest).unwrap();
    let error = datadir.open_to_read(genesis(), rules()).unwrap_err();
    assert!(matches!(error, Error::Unfinished), "{error}");
    assert!(!error.to_string().contains("backup"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), manifest, "looking mends nothing");
    drop(datadir.init(genesis(), EngineKind::Kvb, rules()).unwrap());
    assert_eq!(datadir.open_to_read(genesis(), rules()).unwrap().tip(), after);
}
