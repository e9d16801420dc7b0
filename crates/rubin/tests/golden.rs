//! Chains whose every step is known: decisions, tips, sets, undo and index bytes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/vectors.rs"]
mod vectors;

use std::sync::Arc;

use host::{Dir, MemoryDir};
use ledger::MemoryEngine;
use rubin::rules::Rules;
use rubin::tables::{HEADERS, INDEX, UNDO, UTXO};
use rubin::{Chain, Genesis, Hash, Manifest, to_hex};
use serde_json::Value;
use vectors::{hash, hex, list, load, number, text};

fn chain(genesis: Genesis) -> (Chain, Arc<dyn Dir>) {
    let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
    let rules: Box<Rules> = Box::default();
    let chain =
        Chain::init(Box::new(MemoryEngine::new()), Arc::clone(&home), rules, genesis).unwrap();
    (chain, home)
}

/// What a step of a chain should come to.
fn import(chain: &Chain, block: &Value) -> String {
    match chain.import(&hex(block), None).unwrap() {
        Ok(import) => import.decision.as_str().to_owned(),
        Err(rejected) => rejected.code.to_string(),
    }
}

fn check_tip(chain: &Chain, wanted: &Value) {
    let view = chain.view().unwrap();
    assert_eq!(view.tip(), &chain.tip());
    assert_eq!(view.tip().height, number(&wanted["tip_height"]));
    assert_eq!(view.tip().hash, hash(&wanted["tip_hash_hex"]));
    let (count, set_hash) = view.utxo_set_hash().unwrap();
    assert_eq!(set_hash, hash(&wanted["utxo_set_hash_hex"]));
    assert_eq!(view.utxo_count().unwrap(), count, "the store keeps count");
    if let Some(wanted) = wanted.get("utxo_count") {
        assert_eq!(count, number(wanted));
    }
    if let Some(work) = wanted.get("tip_cumulative_work") {
        assert_eq!(
            view.tip().work.to_string(),
            work.as_str().map_or_else(|| work.to_string(), str::to_owned)
        );
    }
}

fn row(chain: &Chain, table: ledger::Table, key: &[u8]) -> Option<String> {
    let view = chain.view().unwrap();
    view.snapshot().get(table, key).unwrap().map(|value| to_hex(&value))
}

#[test]
fn genesis_is_what_it_should_be() {
    let all = load();
    let wanted = &all["devnet_genesis"];
    let genesis = Genesis::devnet();
    assert_eq!(genesis.chain_id(), hash(&wanted["chain_id_hex"]));
    assert_eq!(genesis.hash(), hash(&wanted["block_hash_hex"]));
    let (chain, home) = chain(genesis);
    let key = *hash(&wanted["block_hash_hex"]).as_bytes();
    assert_eq!(row(&chain, HEADERS, &key).unwrap(), text(&wanted["headers_value_hex"]));
    assert_eq!(row(&chain, INDEX, &key).unwrap(), text(&wanted["index_value_hex"]));
    let undo = row(&chain, UNDO, &key).unwrap();
    assert_eq!(undo.len() / 2, usize::try_from(number(&wanted["undo_value_len"])).unwrap());
    assert!(undo.starts_with(text(&wanted["undo_value_first_80_hex"])));
    let undo_hash = Hash::of(&[&rubin::from_hex(&undo).unwrap()]);
    assert_eq!(undo_hash, hash(&wanted["undo_value_sha3_hex"]));
    let first = row(&chain, UTXO, &hex(&wanted["utxo_first_key_hex"])).unwrap();
    assert_eq!(first, text(&wanted["utxo_first_entry_hex"]));
    let (count, set_hash) = chain.view().unwrap().utxo_set_hash().unwrap();
    assert_eq!((count, set_hash), (100, hash(&wanted["utxo_set_hash_hex"])));
    let manifest = home.read("MANIFEST.json").unwrap().unwrap();
    assert_eq!(String::from_utf8(manifest).unwrap(), text(&wanted["manifest_json_go_layout"]));
    let mainnet = Genesis::mainnet();
    assert_eq!(
        mainnet.chain_id().to_string(),
        "b71f012bdfacaf2ef127d909c43caf2de7d24a13066f746c9b47112c43170773"
    );
    assert_eq!(
        mainnet.hash().to_string(),
        "6e31d98c19d6d457944d4cd7d101482e108a16cef7c85239d6b1d50b87c3c33b"
    );
}

#[test]
fn chains_end_where_they_should() {
    let all = load();
    for (name, case) in all["cv_chainstate_store_golden"].as_object().unwrap() {
        let (chain, home) = chain(Genesis::devnet());
        for (block, step) in list(&case["blocks_hex"]).iter().zip(list(&case["steps"])) {
            let import = chain.import(&hex(block), None).unwrap().unwrap();
            assert_eq!(import.decision.as_str(), text(&step["outcome"]), "{name}");
            assert_eq!(import.disconnected, number(&step["disconnected"]), "{name}");
            assert_eq!(import.connected, number(&step["connected"]), "{name}");
            check_tip(&chain, step);
        }
        check_tip(&chain, &case["final"]);
        let manifest = Manifest::read(&*home).unwrap().unwrap();
        assert_eq!(manifest.tip, chain.tip());
    }
}

#[test]
fn imports_are_decided_as_they_should() {
    let all = load();
    for (name, case) in all["cv_import_golden"].as_object().unwrap() {
        let (chain, _) = chain(Genesis::devnet());
        for step in list(&case["imports"]) {
            let wanted = step.get("expect").or(step.get("expect_error")).unwrap();
            assert_eq!(import(&chain, &step["block_hex"]), text(wanted), "{name}");
            let key = hash(&step["block_hash_hex"]);
            let index = row(&chain, INDEX, key.as_bytes()).unwrap();
            if let Some(wanted) = step.get("index_value_hex") {
                assert_eq!(index, text(wanted), "{name}");
            }
            // The same again is decided the same.
            assert_eq!(import(&chain, &step["block_hex"]), text(wanted), "{name} again");
        }
    }
}

#[test]
fn spends_within_blocks_anchors_and_a_reorg() {
    let all = load();
    let case = &all["spend_intrablock_anchor_reorg"];
    let genesis = Genesis::new(hex(&case["genesis_block_hex"])).unwrap();
    assert_eq!(genesis.chain_id(), hash(&case["chain_id_hex"]));
    let (chain, _) = chain(genesis);
    let mut blocks: Vec<Value> = list(&case["blocks_1_to_99_hex"]).to_vec();
    for name in ["b100", "b101", "f100", "f101", "f102"] {
        blocks.push(case[format!("{name}_hex")].clone());
    }
    let steps = list(&case["steps_from_height_98"]);
    let quiet = blocks.len() - steps.len();
    for (number, block) in blocks.iter().enumerate() {
        let decision = import(&chain, block);
        if let Some(step) = number.checked_sub(quiet).and_then(|at| steps.get(at)) {
            assert_eq!(decision, text(&step["outcome"]));
            check_tip(&chain, step);
        }
    }
    for undo in case["undo"].as_object().unwrap().values() {
        let key = hash(&undo["block_hash_hex"]);
        assert_eq!(row(&chain, UNDO, key.as_bytes()).unwrap(), text(&undo["undo_value_hex"]));
    }
}
