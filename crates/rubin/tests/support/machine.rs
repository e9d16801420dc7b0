//! Chains in memory that die and are started again, and blocks of somebody who wants harm.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::sync::Arc;

use host::MemoryDir;
use ledger::MemoryEngine;
use rubin::rules::Rules;
use rubin::synthetic::{self as maker, coin};
use rubin::tables::ALL;
use rubin::{Chain, Error, Genesis, Hash, Header, Outpoint, Status};

use crate::faults::{Fault, FaultyDir, FaultyEngine};
use crate::model;

/// What outlives a process.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) tables: Arc<MemoryEngine>,
    pub(crate) files: Arc<MemoryDir>,
}

impl Machine {
    pub(crate) fn start(&self, genesis: &Genesis, fault: &Arc<Fault>) -> Result<Chain, Error> {
        let (tables, files) = (Arc::clone(&self.tables), Arc::clone(&self.files));
        let engine = Box::new(FaultyEngine { tables, fault: Arc::clone(fault) });
        let home = Arc::new(FaultyDir { files, fault: Arc::clone(fault) });
        Chain::init(engine, home, Box::<Rules>::default(), genesis.clone())
    }
}

pub(crate) fn chain(genesis: &Genesis) -> Chain {
    Machine::default().start(genesis, &Fault::new(0, false, false)).unwrap()
}

pub(crate) fn import_at(chain: &Chain, block: &[u8], local_time: Option<u64>) -> &'static str {
    match chain.import(block, local_time).unwrap() {
        Ok(import) => import.decision.as_str(),
        Err(rejected) => rejected.code.as_str(),
    }
}

pub(crate) fn import(chain: &Chain, block: &[u8]) -> &'static str {
    import_at(chain, block, None)
}

pub(crate) fn status(chain: &Chain, block: &[u8]) -> Option<Status> {
    let index = chain.view().unwrap().index(maker::hash_of(block)).unwrap();
    index.map(|index| index.status)
}

/// All rows of all tables.
pub(crate) fn dump(chain: &Chain) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    let view = chain.view().unwrap();
    ALL.iter().map(|table| model::dump(view.snapshot(), *table)).collect()
}

#[track_caller]
pub(crate) fn check_sound(chain: &Chain) {
    let view = chain.view().unwrap();
    let check = view.verify(chain.genesis().hash(), true, &mut |_, _| {}).unwrap();
    assert_eq!(check.findings, Vec::<String>::new());
}

/// Blocks on top of one, each with a transaction that has a witness.
pub(crate) fn branch(from: Hash, height: u64, count: u64, salt: u64) -> Vec<Vec<u8>> {
    let mut prev = from;
    (height + 1..=height + count)
        .map(|height| {
            let nonce = salt * 1_000_000 + 2 * height;
            let make = maker::spend(nonce, &[], &[coin(0)]);
            let txid = rubin::Transaction::decode(&make).unwrap().txid;
            let spend = maker::spend(nonce + 1, &[Outpoint::new(txid, 0)], &[coin(0)]);
            let transactions = [maker::coinbase(height, &[coin(0)]), make, spend];
            let block = maker::block(prev, 10 * height + salt, &transactions);
            prev = maker::hash_of(&block);
            block
        })
        .collect()
}

/// The same header with another body.
pub(crate) fn with_another_body(block: &[u8]) -> Vec<u8> {
    let transactions = [maker::coinbase(77, &[coin(0)])];
    let other = maker::block(Hash::ZERO, 0, &transactions);
    [&block[..Header::LEN], &other[Header::LEN..]].concat()
}

/// The same header and the same transactions, whose witness somebody has changed: it is not in their txids.
pub(crate) fn with_another_witness(block: &[u8], suite: u8) -> Vec<u8> {
    let mut bytes = block.to_vec();
    let at = bytes.len() - 3;
    assert_eq!(&bytes[at..], [0, 0, 0]);
    bytes[at] = suite;
    assert_eq!(maker::hash_of(&bytes), maker::hash_of(block));
    bytes
}

/// A block that waits for one that nobody knows.
pub(crate) fn orphan(number: u64) -> Vec<u8> {
    maker::block(Hash::of(&[&number.to_le_bytes()]), 1, &[maker::coinbase(9, &[])])
}
