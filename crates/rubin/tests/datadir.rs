//! The datadir: what is in it, who may open it, and what is refused.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/touched.rs"]
mod touched;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::{Datadir, EngineKind, Error, Genesis, Hash, Open};
use touched::files;

fn rules() -> Box<Rules> {
    Box::default()
}

fn init(datadir: &Path, kind: EngineKind) -> (Datadir, Open) {
    let genesis = Genesis::devnet();
    let datadir = Datadir::new(datadir, genesis.chain_id());
    let chain = datadir.init(genesis, kind, rules()).unwrap();
    (datadir, chain)
}

fn blocks(prev: Hash, count: u64) -> Vec<Vec<u8>> {
    let mut prev = prev;
    (1..=count)
        .map(|height| {
            let block = maker::block(prev, height, &[maker::coinbase(height, &[maker::coin(0)])]);
            prev = maker::hash_of(&block);
            block
        })
        .collect()
}

#[test]
fn a_chain_lives_on_in_every_engine() {
    for kind in EngineKind::ALL {
        let dir = tempfile::tempdir().unwrap();
        let (datadir, chain) = init(dir.path(), *kind);
        assert_eq!(Datadir::chains(dir.path()).unwrap(), [datadir.chain_id()]);
        assert_eq!(datadir.engine_kind().unwrap(), *kind);
        for block in blocks(chain.genesis().hash(), 5) {
            chain.import(&block, None).unwrap().unwrap();
        }
        let tip = chain.tip();
        let wanted = chain.view().unwrap().utxo_set_hash().unwrap();
        drop(chain);
        let chain = datadir.open(Genesis::devnet(), rules()).unwrap();
        assert_eq!(chain.tip(), tip);
        assert_eq!(chain.view().unwrap().utxo_set_hash().unwrap(), wanted);
        drop(chain);
        // Again, and nothing is lost.
        let chain = datadir.init(Genesis::devnet(), *kind, rules()).unwrap();
        assert_eq!(chain.tip(), tip, "{}", kind.name());
    }
}

#[test]
fn nobody_else_can_write_and_nothing_is_open_to_the_world() {
    let dir = tempfile::tempdir().unwrap();
    let (datadir, chain) = init(dir.path(), EngineKind::Kvb);
    let second = datadir.open(Genesis::devnet(), rules()).unwrap_err();
    assert!(matches!(second, Error::Locked(_)), "{second}");
    for (path, ..) in files(dir.path()) {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0, "{path:?} has mode {mode:o}");
    }
    drop(chain);
    drop(datadir.open(Genesis::devnet(), rules()).unwrap());
}

#[test]
fn opening_never_makes_anything() {
    let dir = tempfile::tempdir().unwrap();
    let datadir = Datadir::new(dir.path(), Genesis::devnet().chain_id());
    let error = datadir.open(Genesis::devnet(), rules()).unwrap_err();
    assert!(
        matches!(error, Error::NotInitialised(_)) && error.to_string().contains("init"),
        "{error}"
    );
    assert!(datadir.open_to_read(Genesis::devnet(), rules()).is_err());
    assert!(files(dir.path()).is_empty());
}

#[test]
fn looking_touches_no_file_in_any_engine_that_can() {
    for kind in EngineKind::ALL.iter().filter(|kind| kind.name() != "fjall") {
        let dir = tempfile::tempdir().unwrap();
        let (datadir, chain) = init(dir.path(), *kind);
        let blocks = blocks(chain.genesis().hash(), 2);
        chain.import(&blocks[0], None).unwrap().unwrap();
        drop(chain);
        let before = files(dir.path());
        let look = datadir.open_to_read(Genesis::devnet(), rules()).unwrap();
        assert_eq!(look.tip().height, 1);
        look.view().unwrap().utxo_set_hash().unwrap();
        assert!(look.import(&blocks[1], None).is_err(), "{}", kind.name());
        drop(look);
        assert_eq!(files(dir.path()), before, "{}", kind.name());
        let chain = datadir.open(Genesis::devnet(), rules()).unwrap();
        chain.import(&blocks[1], None).unwrap().unwrap();
    }
}

#[test]
fn looking_touches_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (datadir, chain) = init(dir.path(), EngineKind::Kvb);
    let blocks = blocks(chain.genesis().hash(), 3);
    chain.import(&blocks[0], None).unwrap().unwrap();
    drop(chain);
    let before = files(dir.path());
    let look = datadir.open_to_read(Genesis::devnet(), rules()).unwrap();
    assert_eq!(look.tip().height, 1);
    look.view().unwrap().utxo_set_hash().unwrap();
    assert!(look.import(&blocks[1], None).is_err());
    drop(look);
    assert_eq!(files(dir.path()), before);
    // Beside whoever imports.
    let chain = datadir.open(Genesis::devnet(), rules()).unwrap();
    chain.import(&blocks[1], None).unwrap().unwrap();
    let look = datadir.open_to_read(Genesis::devnet(), rules()).unwrap();
    assert_eq!(look.tip(), chain.tip());
    chain.import(&blocks[2], None).unwrap().unwrap();
    assert_eq!(look.view().unwrap().tip(), &chain.tip(), "it follows");
}

#[test]
fn other_versions_and_other_chains_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (datadir, chain) = init(dir.path(), EngineKind::Kvb);
    drop(chain);
    let path = datadir.path().join("MANIFEST.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let open = || datadir.open(Genesis::devnet(), rules()).unwrap_err();
    let change = |from: &str, to: &str| {
        assert!(text.contains(from));
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    };
    change("\"schema_version\": 1", "\"schema_version\": 2");
    assert!(matches!(open(), Error::NewerSchema { found: 2, supported: 1 }));
    assert!(open().to_string().contains("newer software"));
    change("\"schema_version\": 1", "\"schema_version\": 0");
    assert!(open().to_string().contains("migrate"));
    change("7086348f", "8086348f");
    assert!(matches!(open(), Error::ForeignChain { .. }));
    change("\"last_applied_height\": 0", "\"last_applied_height\": 1");
    assert!(matches!(open(), Error::Manifest(_)));
    change("\"tip_height\": 0", "\"tip_height\": 18446744073709551615");
    assert!(matches!(open(), Error::Manifest(_)));
    change("\"tip_cumulative_work\": \"1\"", "\"tip_cumulative_work\": \"2\"");
    assert!(matches!(open(), Error::Inconsistent(_)));
    for wrong in ["", "{", "[]", "{\"schema_version\": 1}"] {
        std::fs::write(&path, wrong).unwrap();
        assert!(matches!(open(), Error::Manifest(_)), "{wrong}");
    }
    // Unknown fields are no harm, and a stale temporary file is none.
    change("{", "{\n  \"more\": [1, 2],");
    std::fs::write(datadir.path().join(".MANIFEST.json.new"), "garbage").unwrap();
    drop(datadir.open(Genesis::devnet(), rules()).unwrap());
    std::fs::write(&path, &text).unwrap();
    drop(datadir.open(Genesis::devnet(), rules()).unwrap());
}

#[test]
fn a_block_that_the_database_never_applied_is_refused() {
    // The manifest was durable and the database was not, which no order of ours leaves behind.
    let dir = tempfile::tempdir().unwrap();
    let (datadir, chain) = init(dir.path(), EngineKind::Kvb);
    let blocks = blocks(chain.genesis().hash(), 1);
    let path = datadir.path().join("MANIFEST.json");
    drop(chain);
    let text = std::fs::read_to_string(&path).unwrap();
    let other = maker::hash_of(&blocks[0]).to_string();
    let genesis = Genesis::devnet().hash().to_string();
    std::fs::write(&path, text.replace(&genesis, &other)).unwrap();
    let error = datadir.open(Genesis::devnet(), rules()).unwrap_err();
    assert!(matches!(error, Error::Inconsistent(_)), "{error}");
    std::fs::write(&path, text).unwrap();
    assert_eq!(datadir.open(Genesis::devnet(), rules()).unwrap().tip().height, 0);
}
