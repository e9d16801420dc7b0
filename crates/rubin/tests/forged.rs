//! Exports that somebody has made up, with every hash in its place: what is refused, and what only a digest from elsewhere can tell.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::sync::Arc;

use host::MemoryDir;
use ledger::MemoryEngine;
use rubin::rules::{Rules, WINDOW};
use rubin::synthetic::{self as maker, EASY, coin};
use rubin::{
    Chain, Datadir, EngineKind, Error, Export, Genesis, Hash, Header, Outpoint, Transaction,
    UndoRecord, UtxoEntry,
};

/// An export in its parts.
#[derive(Clone)]
struct Parts {
    genesis: Genesis,
    tip_height: u64,
    tip_hash: Hash,
    utxo_count: u64,
    utxo_set_hash: Hash,
    headers: Vec<Vec<u8>>,
    /// Outputs as they stand there.
    outputs: Vec<u8>,
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
}

fn long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

fn take_long<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = u32::from_le_bytes(take(bytes, 4).try_into().unwrap());
    take(bytes, usize::try_from(len).unwrap())
}

impl Parts {
    /// Of what a chain writes, with so many blocks.
    fn of(chain: &Chain, blocks: u32) -> Parts {
        let mut bytes = Vec::new();
        let genesis = chain.genesis().clone();
        let view = chain.view().unwrap();
        let done = view.export(&genesis, blocks, &mut bytes, &mut |_, _| {}).unwrap();
        let mut rest = &bytes[8 + 32 + 8 + 32 + 8 + 32 + 4..];
        let headers = (0..=done.tip_height).map(|_| take(&mut rest, Header::LEN).to_vec());
        let headers = headers.collect();
        let mut outputs = Vec::new();
        for _ in 0..done.utxo_count {
            outputs.extend_from_slice(take(&mut rest, Outpoint::LEN));
            long(&mut outputs, take_long(&mut rest));
        }
        let blocks = (0..done.blocks)
            .map(|_| (take_long(&mut rest).to_vec(), take_long(&mut rest).to_vec()))
            .collect();
        let Export { tip_height, tip_hash, utxo_count, utxo_set_hash, .. } = done;
        let parts = Parts {
            genesis,
            tip_height,
            tip_hash,
            utxo_count,
            utxo_set_hash,
            headers,
            outputs,
            blocks,
        };
        assert_eq!(parts.bytes(), bytes, "nothing is forged yet");
        parts
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"RUBNSNP1".to_vec();
        out.extend_from_slice(self.genesis.chain_id().as_bytes());
        out.extend_from_slice(&self.tip_height.to_le_bytes());
        out.extend_from_slice(self.tip_hash.as_bytes());
        out.extend_from_slice(&self.utxo_count.to_le_bytes());
        out.extend_from_slice(self.utxo_set_hash.as_bytes());
        out.extend_from_slice(&u32::try_from(self.blocks.len()).unwrap().to_le_bytes());
        self.headers.iter().for_each(|header| out.extend_from_slice(header));
        out.extend_from_slice(&self.outputs);
        for (block, undo) in &self.blocks {
            long(&mut out, block);
            long(&mut out, undo);
        }
        let digest = Hash::of(&[&out]);
        out.extend_from_slice(digest.as_bytes());
        out
    }

    /// The same with another tip.
    fn with_tip(&self, block: Vec<u8>) -> Parts {
        let mut parts = self.clone();
        parts.tip_hash = maker::hash_of(&block);
        *parts.headers.last_mut().unwrap() = block[..Header::LEN].to_vec();
        parts.blocks.last_mut().unwrap().0 = block;
        parts
    }

    fn import(&self, expected: Option<Hash>) -> Result<Export, Error> {
        let dir = tempfile::tempdir().unwrap();
        let datadir = Datadir::new(dir.path(), self.genesis.chain_id());
        let (bytes, kind) = (self.bytes(), EngineKind::Kvb);
        datadir.import_snapshot(&self.genesis, kind, &mut &*bytes, expected, &mut |_, _| {})
    }
}

fn chain(genesis: &Genesis) -> Chain {
    let (engine, home) = (Box::new(MemoryEngine::new()), Arc::new(MemoryDir::new()));
    Chain::init(engine, home, Box::<Rules>::default(), genesis.clone()).unwrap()
}

#[track_caller]
fn refused(parts: &Parts, why: &str) {
    let error = parts.import(Some(parts.utxo_set_hash)).unwrap_err();
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
    parts.import(Some(parts.utxo_set_hash)).unwrap();
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
    let done = parts.import(None).unwrap();
    assert_eq!(done.digest, Hash::of(&[&parts.bytes()]), "of all bytes, as any tool makes it");
    assert_eq!(parts.import(Some(done.digest)).unwrap(), done);
    // The value of a coin that was spent.
    let bytes = parts.blocks[1].1.clone();
    let mut undo = UndoRecord::decode(&bytes).unwrap();
    let rich = entry(1_000_000, 1);
    undo.spent[0].1 = &rich;
    let mut forged = parts.clone();
    forged.blocks[1].1 = undo.encode();
    forged.import(Some(parts.utxo_set_hash)).unwrap();
    let error = forged.import(Some(done.digest)).unwrap_err();
    assert!(error.to_string().contains("expected"), "{error}");
    let error = parts.import(Some(Hash::of(&[b"something"]))).unwrap_err();
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
    next(&parts, 50, EASY).import(None).unwrap();
    refused(&next(&parts, 50, other), "target");
    refused(&next(&parts, 6, EASY), "timestamp");
    // Where a window ends, and after it.
    for height in [WINDOW, WINDOW + 1] {
        let parts = Parts::of(&fast(height), 1);
        parts.import(None).unwrap();
        refused(&next(&parts, height, EASY), "target");
        other[0] = 0x3e;
        refused(&next(&parts, height, other), "target");
    }
}
