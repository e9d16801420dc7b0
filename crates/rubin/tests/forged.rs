//! Exports that somebody has made up, with every hash in its place: what is refused, and what only a digest from elsewhere can tell.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/parts.rs"]
mod parts;

use std::sync::Arc;

use host::MemoryDir;
use ledger::MemoryEngine;
use parts::Parts;
use rubin::rules::{Rules, WINDOW};
use rubin::synthetic::{self as maker, EASY, coin};
use rubin::{
    Chain, Datadir, EngineKind, Error, Export, Genesis, Hash, Header, Outpoint, Transaction,
    UndoRecord, UtxoEntry,
};

fn import(parts: &Parts, expected: Option<Hash>) -> Result<Export, Error> {
    let dir = tempfile::tempdir().unwrap();
    let datadir = Datadir::new(dir.path(), parts.genesis.chain_id());
    let (bytes, kind) = (parts.bytes(), EngineKind::Kvb);
    datadir.import_snapshot(&parts.genesis, kind, &mut &*bytes, expected, &mut |_, _| {})
}

fn chain(genesis: &Genesis) -> Chain {
    let (engine, home) = (Box::new(MemoryEngine::new()), Arc::new(MemoryDir::new()));
    Chain::init(engine, home, Box::<Rules>::default(), genesis.clone()).unwrap()
}

#[track_caller]
fn refused(parts: &Parts, why: &str) {
    let error = import(parts, Some(parts.utxo_set_hash)).unwrap_err();
    assert!(matches!(&error, Error::Export(what) if what.contains(why)), "{why}: {error}");
}

/// A chain whose tip spends coins of before and of its own, and makes some.
fn spending() -> Parts {
    let genesis = maker::genesis(1);
    let chain = chain(&genesis);
    let make = maker::spend(1, &[], &[coin(0), coin(0), coin(0)]);
    let txid = Transaction::decode(&make).unwrap().txid;
    let first = maker::block(genesis.hash(), 1, &[maker::coinbase(1, &[coin(5)]), make]);
    chain.import(&first, None).unwrap().unwrap();
    let (a, b) = (Outpoint::new(txid, 0), Outpoint::new(txid, 1));
    let spend = maker::spend(2, &[a, b], &[coin(0), coin(0)]);
    let inner = Outpoint::new(Transaction::decode(&spend).unwrap().txid, 0);
    let within = maker::spend(3, &[inner], &[coin(0)]);
    let transactions = [maker::coinbase(2, &[coin(7)]), spend, within];
    let tip = maker::block(maker::hash_of(&first), 2, &transactions);
    chain.import(&tip, None).unwrap().unwrap();
    Parts::of(&chain, 2)
}

/// The same with another undo record of its tip.
fn with_undo(parts: &Parts, change: impl FnOnce(&mut UndoRecord<'_>)) -> Parts {
    let mut parts = parts.clone();
    let last = parts.blocks.last_mut().unwrap();
    let bytes = last.1.clone();
    let mut undo = UndoRecord::decode(&bytes).unwrap();
    change(&mut undo);
    last.1 = undo.encode();
    parts
}

fn entry(value: u64, creation_height: u64) -> Vec<u8> {
    UtxoEntry {
        value,
        covenant_type: coin(0).covenant_type,
        covenant_data: &[0; 9],
        creation_height,
        created_by_coinbase: false,
    }
    .encode()
}

#[test]
fn an_undo_record_is_that_of_its_block() {
    let parts = spending();
    import(&parts, Some(parts.utxo_set_hash)).unwrap();
    let coin = entry(1_000_000, 0);
    let invented = Outpoint::new(Hash::of(&[b"invented"]), 0);
    type Change<'a> = Box<dyn Fn(&mut UndoRecord<'_>) + 'a>;
    let changes: Vec<Change<'_>> = vec![
        Box::new(|undo| undo.created.clear()),
        Box::new(|undo| _ = undo.created.pop()),
        Box::new(|undo| undo.created.push(invented)),
        Box::new(|undo| undo.created.reverse()),
        Box::new(|undo| undo.created.push(undo.created[0])),
        Box::new(|undo| undo.spent.clear()),
        Box::new(|undo| _ = undo.spent.pop()),
        Box::new(|undo| undo.spent.reverse()),
        Box::new(|undo| undo.spent.push(undo.spent[0])),
    ];
    for change in changes {
        refused(&with_undo(&parts, |undo| change(undo)), "undo record");
    }
    let bytes = parts.blocks[1].1.clone();
    let mut undo = UndoRecord::decode(&bytes).unwrap();
    undo.spent.push((invented, &coin));
    let mut forged = parts.clone();
    forged.blocks[1].1 = undo.encode();
    refused(&forged, "undo record");
    // Nor is it that of the other block, nor spent before it was made.
    let mut swapped = parts.clone();
    swapped.blocks[1].1 = swapped.blocks[0].1.clone();
    refused(&swapped, "undo record");
    let mut undo = UndoRecord::decode(&bytes).unwrap();
    let late = entry(0, 2);
    undo.spent[0].1 = &late;
    let mut forged = parts;
    forged.blocks[1].1 = undo.encode();
    refused(&forged, "undo record");
}

#[test]
fn what_was_spent_only_the_digest_of_the_file_can_tell() {
    let parts = spending();
    let done = import(&parts, None).unwrap();
    assert_eq!(done.digest, Hash::of(&[&parts.bytes()]), "of all bytes, as any tool makes it");
    assert_eq!(import(&parts, Some(done.digest)).unwrap(), done);
    // The value of a coin that was spent.
    let bytes = parts.blocks[1].1.clone();
    let mut undo = UndoRecord::decode(&bytes).unwrap();
    let rich = entry(1_000_000, 1);
    undo.spent[0].1 = &rich;
    let mut forged = parts.clone();
    forged.blocks[1].1 = undo.encode();
    import(&forged, Some(parts.utxo_set_hash)).unwrap();
    let error = import(&forged, Some(done.digest)).unwrap_err();
    assert!(error.to_string().contains("expected"), "{error}");
    let error = import(&parts, Some(Hash::of(&[b"something"]))).unwrap_err();
    assert!(error.to_string().contains("expected"), "{error}");
}

/// Blocks that are a second apart, up to a height, and the target that the next one has.
fn fast(height: u64) -> Chain {
    let genesis = maker::genesis(0);
    let chain = chain(&genesis);
    let mut target = EASY;
    for height in 1..=height {
        if height == WINDOW {
            target[0] = 0x3f;
        }
        let coinbase = maker::coinbase(height, &[]);
        let block = maker::block_with(chain.tip().hash, height, target, &[coinbase]);
        chain.import(&block, None).unwrap().unwrap();
    }
    chain
}

#[test]
fn headers_have_the_targets_that_the_rules_give_them() {
    let next = |parts: &Parts, timestamp: u64, target: [u8; 32]| {
        let header = Header::decode(parts.headers.last().unwrap()).unwrap();
        let coinbase = maker::coinbase(parts.tip_height, &[]);
        parts.with_tip(maker::block_with(header.prev_hash, timestamp, target, &[coinbase]))
    };
    let parts = Parts::of(&fast(12), 1);
    let mut other = EASY;
    other[0] = 0x80;
    import(&next(&parts, 50, EASY), None).unwrap();
    refused(&next(&parts, 50, other), "target");
    refused(&next(&parts, 6, EASY), "timestamp");
    // Where a window ends, and after it.
    for height in [WINDOW, WINDOW + 1] {
        let parts = Parts::of(&fast(height), 1);
        import(&parts, None).unwrap();
        refused(&next(&parts, height, EASY), "target");
        other[0] = 0x3e;
        refused(&next(&parts, height, other), "target");
    }
}
