//! Exports of a RUBIN chain with changed parts, and every hash in its place: refused, or the chain that comes of it can be opened,
//! looked at, and gone on with.

#![no_main]

#[path = "../../crates/rubin/tests/support/parts.rs"]
mod parts;

use std::sync::{Arc, LazyLock};

use host::MemoryDir;
use kvb_fuzz::Choices;
use ledger::{Engine, MemoryEngine};
use libfuzzer_sys::fuzz_target;
use parts::Parts;
use rubin::rules::Rules;
use rubin::synthetic::{self as maker, coin};
use rubin::{Chain, Hash, Header, Outpoint, SetHash, Transaction, restore_on};

const BLOCKS: u64 = 6;

fn open(engine: Box<dyn Engine>, home: MemoryDir, genesis: &rubin::Genesis) -> Chain {
    Chain::init(engine, Arc::new(home), Box::<Rules>::default(), genesis.clone()).unwrap()
}

/// A chain in which every block spends what the one before has made, but for one output.
static WHOLE: LazyLock<Parts> = LazyLock::new(|| {
    let genesis = maker::genesis(1);
    let chain = open(Box::new(MemoryEngine::new()), MemoryDir::new(), &genesis);
    let (mut parent, mut coins): (Hash, Vec<Outpoint>) = (genesis.hash(), Vec::new());
    for height in 1..=BLOCKS {
        let made = maker::spend(height, &coins, &[coin(0), coin(0), coin(0)]);
        let transaction = Transaction::decode(&made).unwrap();
        coins = (0..2).map(|vout| transaction.outpoint(vout)).collect();
        let block = maker::block(parent, height, &[maker::coinbase(height, &[coin(5)]), made]);
        parent = maker::hash_of(&block);
        chain.import(&block, None).unwrap().unwrap();
    }
    Parts::of(&chain, 4)
});

/// Changes some bytes.
fn change(bytes: &mut Vec<u8>, choices: &mut Choices<'_>) {
    match choices.byte() % 4 {
        0 => bytes.truncate(choices.short()),
        1 => {
            let at = choices.short() % (bytes.len() + 1);
            let len = usize::from(choices.byte());
            bytes.splice(at..at, choices.bytes(len).iter().copied());
        }
        _ if !bytes.is_empty() => {
            let at = choices.short() % bytes.len();
            bytes[at] = choices.byte();
        }
        _ => {}
    }
}

/// The hash of the outputs, as far as they can be read.
fn set_hash(mut outputs: &[u8], count: u64) -> Hash {
    let mut set = SetHash::new(count);
    while let Some((key, rest)) = outputs.split_at_checked(Outpoint::LEN) {
        let Some((len, rest)) = rest.split_first_chunk::<4>() else { break };
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap();
        let Some((entry, rest)) = rest.split_at_checked(len) else { break };
        set.add(key, entry);
        outputs = rest;
    }
    set.finish()
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let mut parts = WHOLE.clone();
    while choices.is_left() {
        let at = usize::from(choices.byte());
        match choices.byte() % 8 {
            0 => {
                let at = at % parts.headers.len();
                change(&mut parts.headers[at], &mut choices);
            }
            1 => change(&mut parts.outputs, &mut choices),
            2 => {
                let at = at % parts.blocks.len();
                change(&mut parts.blocks[at].0, &mut choices);
            }
            3 | 4 => {
                let at = at % parts.blocks.len();
                change(&mut parts.blocks[at].1, &mut choices);
            }
            5 => parts.utxo_count = choices.number(),
            6 => parts.tip_height = choices.number(),
            _ if parts.blocks.len() > 1 => drop(parts.blocks.remove(at % parts.blocks.len())),
            _ => {}
        }
    }
    parts.utxo_set_hash = set_hash(&parts.outputs, parts.utxo_count);
    parts.tip_hash = parts.headers.last().map_or(Hash::ZERO, |header| Hash::of(&[header]));
    let (engine, home) = (MemoryEngine::new(), MemoryDir::new());
    let (bytes, genesis) = (parts.bytes(), parts.genesis.clone());
    if restore_on(&engine, &home, &genesis, &mut &*bytes, None, &mut |_, _| {}).is_err() {
        return;
    }
    let chain = open(Box::new(engine), home, &genesis);
    // What was spent can be made up, so it may find something.
    let check = chain.view().unwrap().verify(genesis.hash(), false, &mut |_, _| {});
    check.expect("rows can be read");
    // A rival chain, for which as many blocks as there are have to be taken back.
    let first = parts.tip_height + 1 - u64::try_from(parts.blocks.len()).unwrap();
    let before = usize::try_from(first.saturating_sub(1)).unwrap();
    let mut parent = maker::hash_of(&parts.headers[before]);
    let begin = Header::decode(&parts.headers[before]).unwrap().timestamp;
    for height in first.max(1)..parts.tip_height.saturating_add(2) {
        let block = maker::block(parent, begin + height, &[maker::coinbase(height, &[])]);
        parent = maker::hash_of(&block);
        let _ = chain.import(&block, None);
    }
});
