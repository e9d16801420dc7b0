//! Genesis: the first block of a chain, which is the chain's identity.

#![allow(clippy::expect_used, reason = "a constant of this program, which a test decodes")]

use crate::block::Block;
use crate::hash::{Hash, from_hex};

/// What the identity of a chain begins with.
const TAG: &[u8; 16] = b"RUBIN-GENESIS-v1";

/// The first block of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Genesis {
    bytes: Vec<u8>,
    hash: Hash,
    chain_id: Hash,
}

/// Not a first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the profile has no genesis: {0}")]
pub struct NoGenesis(&'static str);

impl Genesis {
    /// The chain that begins with this block.
    pub fn new(bytes: Vec<u8>) -> Result<Genesis, NoGenesis> {
        let block = Block::decode(&bytes).map_err(|_| NoGenesis("the block is not well formed"))?;
        if block.header.prev_hash != Hash::ZERO {
            return Err(NoGenesis("the block has one before it"));
        }
        if block.transactions.len() != 1 {
            return Err(NoGenesis("the block has not exactly one transaction"));
        }
        if block.merkle_root() != Some(block.header.merkle_root) {
            return Err(NoGenesis("the merkle root is not that of the transaction"));
        }
        if crate::Work::of_target(&block.header.target).is_none() {
            return Err(NoGenesis("the target is zero"));
        }
        let (hash, chain_id) = (block.hash, Hash::of(&[TAG, &bytes]));
        Ok(Genesis { bytes, hash, chain_id })
    }

    /// Of devnet, and of testnet, which has the same.
    pub fn devnet() -> Genesis {
        built_in(include_str!("profiles/devnet.hex"))
    }

    /// Of mainnet.
    pub fn mainnet() -> Genesis {
        built_in(include_str!("profiles/mainnet.hex"))
    }

    /// From a profile: a text that gives `genesis_header_bytes` and `genesis_tx_bytes` in hex between backticks.
    pub fn from_profile(text: &str) -> Result<Genesis, NoGenesis> {
        let header = field(text, "genesis_header_bytes");
        let header = header.ok_or(NoGenesis("genesis_header_bytes is missing"))?;
        let transaction = field(text, "genesis_tx_bytes");
        let transaction = transaction.ok_or(NoGenesis("genesis_tx_bytes is missing"))?;
        Genesis::new([header, vec![1], transaction].concat())
    }

    /// The block.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its hash.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// The chain's identity.
    pub fn chain_id(&self) -> Hash {
        self.chain_id
    }
}

fn built_in(text: &str) -> Genesis {
    let digits: String = text.split_whitespace().collect();
    let bytes = from_hex(&digits).unwrap_or_default();
    Genesis::new(bytes).expect("the profile is part of this program, and tested")
}

/// The first hex digits between backticks behind a name.
fn field(text: &str, name: &str) -> Option<Vec<u8>> {
    let mut rest = text.get(text.find(name)? + name.len()..)?;
    loop {
        let (_, behind) = rest.split_once('`')?;
        let (quoted, after) = behind.split_once('`')?;
        let digits: String = quoted.split_whitespace().collect();
        let digits = digits.strip_prefix("0x").unwrap_or(&digits);
        if let Some(bytes) = from_hex(digits).filter(|bytes| bytes.len() > 8) {
            return Some(bytes);
        }
        // What was quoted is a name, or its end: go on behind it.
        rest = if from_hex(digits).is_some() || quoted.contains(char::is_alphabetic) {
            after
        } else {
            behind
        };
    }
}
