//! Making blocks: coins that take no signature, forks, anchors, transactions that come again.

#![allow(dead_code, reason = "every test file uses a part of this")]

use ledger::Writer;
use rubin::transaction::{ANCHOR, TIMELOCK};
use rubin::{Block, Genesis, Hash, Header, Outpoint, Transaction, merkle_root};

/// The easiest target: one unit of work a block.
pub(crate) const EASY: [u8; 32] = [0xff; 32];

/// An output to be made.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) value: u64,
    pub(crate) covenant_type: u16,
    pub(crate) data: Vec<u8>,
}

/// A coin that anybody can spend at once.
pub(crate) fn coin(value: u64) -> Out {
    Out { value, covenant_type: TIMELOCK, data: vec![0; 9] }
}

/// An output that nobody can spend.
pub(crate) fn anchor(data: &[u8]) -> Out {
    Out { value: 0, covenant_type: ANCHOR, data: data.to_vec() }
}

fn outputs(writer: &mut Writer, outputs: &[Out]) {
    writer.compact_size(u64::try_from(outputs.len()).unwrap());
    for output in outputs {
        writer.u64_le(output.value).u16_le(output.covenant_type).compact_bytes(&output.data);
    }
}

/// The first transaction of a block.
pub(crate) fn coinbase(height: u64, outs: &[Out]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32_le(1).u64_le(0).compact_size(1);
    writer.bytes(&[0; 32]).u32_le(u32::MAX).compact_size(0).u32_le(u32::MAX);
    outputs(&mut writer, outs);
    writer.u32_le(u32::try_from(height).unwrap()).compact_size(0);
    writer.finish()
}

/// A transaction that spends coins.
pub(crate) fn spend(nonce: u64, inputs: &[Outpoint], outs: &[Out]) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.u32_le(1).u64_le(nonce).compact_size(u64::try_from(inputs.len()).unwrap());
    for input in inputs {
        writer.bytes(input.as_bytes()).compact_size(0).u32_le(0);
    }
    outputs(&mut writer, outs);
    writer.u32_le(0).compact_size(u64::try_from(inputs.len()).unwrap());
    for _ in inputs {
        writer.u8(0).compact_size(0).compact_size(0);
    }
    writer.finish()
}

/// A block of transactions.
pub(crate) fn block(prev_hash: Hash, timestamp: u64, transactions: &[Vec<u8>]) -> Vec<u8> {
    block_with(prev_hash, timestamp, EASY, transactions)
}

/// The same with a target.
pub(crate) fn block_with(
    prev_hash: Hash,
    timestamp: u64,
    target: [u8; 32],
    transactions: &[Vec<u8>],
) -> Vec<u8> {
    let txids = transactions.iter().map(|bytes| Transaction::decode(bytes).unwrap().txid);
    let merkle_root = merkle_root(txids.collect()).unwrap_or(Hash::ZERO);
    let mut header = Header { version: 1, prev_hash, merkle_root, timestamp, target, nonce: 0 };
    while header.hash().0 >= target {
        header.nonce += 1;
    }
    let mut writer = Writer::new();
    writer.bytes(&header.encode()).compact_size(u64::try_from(transactions.len()).unwrap());
    for bytes in transactions {
        writer.bytes(bytes);
    }
    writer.finish()
}

/// A chain that begins with some coins.
pub(crate) fn genesis(coins: u64) -> Genesis {
    let outs: Vec<Out> = (0..coins).map(|_| coin(1000)).collect();
    Genesis::new(block(Hash::ZERO, 0, &[coinbase(0, &outs)])).unwrap()
}

/// The hash of a block.
pub(crate) fn hash_of(bytes: &[u8]) -> Hash {
    Block::decode(bytes).unwrap().hash
}
