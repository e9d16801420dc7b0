//! Made-up chains: blocks of coins that take no signature, for tests and measurements.

#![allow(clippy::expect_used, reason = "blocks made here")]

use ledger::Writer;

use crate::block::{Block, merkle_root};
use crate::genesis::Genesis;
use crate::hash::Hash;
use crate::header::Header;
use crate::outpoint::Outpoint;
use crate::transaction::{ANCHOR, TIMELOCK, Transaction};

/// The easiest target: one unit of work a block.
pub const EASY: [u8; 32] = [0xff; 32];

/// An output to be made.
#[derive(Clone, Debug)]
pub struct Out {
    /// Units.
    pub value: u64,
    /// What it takes to spend it.
    pub covenant_type: u16,
    /// More about that.
    pub data: Vec<u8>,
}

/// A coin that anybody can spend at once.
pub fn coin(value: u64) -> Out {
    Out { value, covenant_type: TIMELOCK, data: vec![0; 9] }
}

/// An output that nobody can spend.
pub fn anchor(data: &[u8]) -> Out {
    Out { value: 0, covenant_type: ANCHOR, data: data.to_vec() }
}

fn outputs(writer: &mut Writer, outputs: &[Out]) {
    writer.compact_size(wide(outputs.len()));
    for output in outputs {
        writer.u64_le(output.value).u16_le(output.covenant_type).compact_bytes(&output.data);
    }
}

/// The first transaction of a block.
pub fn coinbase(height: u64, outs: &[Out]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32_le(1).u64_le(0).compact_size(1);
    writer.bytes(&[0; 32]).u32_le(u32::MAX).compact_size(0).u32_le(u32::MAX);
    outputs(&mut writer, outs);
    writer.u32_le(u32::try_from(height).unwrap_or(u32::MAX)).compact_size(0);
    writer.finish()
}

/// A transaction that spends coins.
pub fn spend(nonce: u64, inputs: &[Outpoint], outs: &[Out]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32_le(1).u64_le(nonce).compact_size(wide(inputs.len()));
    for input in inputs {
        writer.bytes(input.as_bytes()).compact_size(0).u32_le(0);
    }
    outputs(&mut writer, outs);
    writer.u32_le(0).compact_size(wide(inputs.len()));
    for _ in inputs {
        writer.u8(0).compact_size(0).compact_size(0);
    }
    writer.finish()
}

/// A block of transactions.
pub fn block(prev_hash: Hash, timestamp: u64, transactions: &[Vec<u8>]) -> Vec<u8> {
    block_with(prev_hash, timestamp, EASY, transactions)
}

/// The same with a target.
pub fn block_with(
    prev_hash: Hash,
    timestamp: u64,
    target: [u8; 32],
    transactions: &[Vec<u8>],
) -> Vec<u8> {
    let txids = transactions.iter().filter_map(|bytes| Some(Transaction::decode(bytes).ok()?.txid));
    let merkle_root = merkle_root(txids.collect()).unwrap_or(Hash::ZERO);
    let mut header = Header { version: 1, prev_hash, merkle_root, timestamp, target, nonce: 0 };
    while header.hash().0 >= target {
        header.nonce += 1;
    }
    let mut writer = Writer::new();
    writer.bytes(&header.encode()).compact_size(wide(transactions.len()));
    for bytes in transactions {
        writer.bytes(bytes);
    }
    writer.finish()
}

/// A chain that begins with some coins.
pub fn genesis(coins: u64) -> Genesis {
    let outs: Vec<Out> = (0..coins).map(|_| coin(1000)).collect();
    Genesis::new(block(Hash::ZERO, 0, &[coinbase(0, &outs)])).expect("made as it should be")
}

/// The hash of a block.
pub fn hash_of(bytes: &[u8]) -> Hash {
    Block::decode(bytes).map_or(Hash::ZERO, |block| block.hash)
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Most outputs of a transaction, and of a block that only makes coins.
const OUTPUTS_MAX: usize = 1024;
const COINS_MAX: usize = 46 * OUTPUTS_MAX;
/// Inputs, and outputs, of a transaction of an ordinary block.
const SPENDS: usize = 100;

/// A chain that goes on as long as somebody wants: first blocks that make coins, then such as spend them at random.
#[derive(Clone, Debug)]
pub struct Generator {
    genesis: Genesis,
    tip: Hash,
    height: u64,
    nonce: u64,
    random: u64,
    coins: Vec<Outpoint>,
}

impl Generator {
    /// A chain from a seed.
    pub fn new(seed: u64) -> Generator {
        let genesis = genesis(0);
        let tip = genesis.hash();
        Generator { genesis, tip, height: 0, nonce: 1, random: seed, coins: Vec::new() }
    }

    /// Its first block.
    pub fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// Coins that can be spent.
    pub fn coin_count(&self) -> usize {
        self.coins.len()
    }

    /// Goes on with other transactions than a copy of it would: a fork.
    pub fn skip_nonces(&mut self) {
        self.nonce += 1 << 32;
        self.random ^= 1 << 63;
    }

    fn random(&mut self, limit: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % wide(limit.max(1))).unwrap_or(0)
    }

    /// The next block, which makes so many coins, and as many as fit at most.
    pub fn make_coins(&mut self, count: usize) -> Vec<u8> {
        let mut left = count.min(COINS_MAX);
        let mut transactions = Vec::new();
        while left > 0 {
            let outs = vec![coin(0); left.min(OUTPUTS_MAX)];
            left -= outs.len();
            transactions.push(self.transaction(&[], &outs));
        }
        self.block(transactions)
    }

    /// The next block, which spends so many coins, taken at random, and makes as many.
    pub fn spend_coins(&mut self, count: usize) -> Vec<u8> {
        let mut transactions = Vec::new();
        let mut left = count.min(self.coins.len());
        while left > 0 {
            let inputs: Vec<Outpoint> = (0..left.min(SPENDS))
                .map(|_| {
                    let at = self.random(self.coins.len());
                    self.coins.swap_remove(at)
                })
                .collect();
            left -= inputs.len();
            let outs = vec![coin(0); inputs.len()];
            transactions.push((inputs, outs));
        }
        // None of the block's own, so that every one is read.
        let transactions =
            transactions.iter().map(|(inputs, outs)| self.transaction(inputs, outs)).collect();
        self.block(transactions)
    }

    fn transaction(&mut self, inputs: &[Outpoint], outs: &[Out]) -> Vec<u8> {
        let bytes = spend(self.nonce, inputs, outs);
        self.nonce += 1;
        if let Ok(transaction) = Transaction::decode(&bytes) {
            let made = (0..transaction.outputs.len()).map(|vout| transaction.outpoint(vout));
            self.coins.extend(made);
        }
        bytes
    }

    fn block(&mut self, transactions: Vec<Vec<u8>>) -> Vec<u8> {
        self.height += 1;
        let mut all = vec![coinbase(self.height, &[])];
        all.extend(transactions);
        let bytes = block(self.tip, self.height, &all);
        self.tip = hash_of(&bytes);
        bytes
    }
}
