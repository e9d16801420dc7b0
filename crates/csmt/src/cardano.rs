//! Blocks of Cardano, Byron to Conway: which entries they delete and insert.
//!
//! The key of an entry is the CBOR of its input, the value that of its output as the ledger of Conway writes it, which is not
//! always what the block has. Only what is needed for that is decoded: witnesses, certificates and metadata are passed over, so
//! what is in them can do no harm. Nothing is validated that a node validates; whatever does not have the shape of a block is
//! refused.

mod block;
mod genesis;
mod output;

use std::borrow::Cow;

use crate::cbor::{Encoder, Malformed};
use crate::format::point::Point;
use crate::format::rollback::Operation;
use crate::hash::Hash;
use crate::items::Items;

pub use genesis::{byron_genesis, shelley_genesis};

/// Slots of an epoch of Byron on mainnet, preprod and the old testnet: ten times their k of 2160.
pub const BYRON_EPOCH_SLOTS: u64 = 21_600;

/// Why something is not a block, or not a genesis file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CardanoError {
    /// The bytes do not have the shape of a block. Positions are those in the whole of what was given.
    #[error("this is not a block: {0}")]
    Malformed(#[from] Malformed),
    /// The block is of an era that is not known here. A newer version may know it.
    #[error("blocks of era {0} are not known")]
    Era(u64),
    /// The text is not hex digits in pairs.
    #[error("this is not hex: there is something else at byte {at}")]
    Hex {
        /// Where.
        at: usize,
    },
    /// The genesis file is not one.
    #[error("this is not a genesis file: {0}")]
    Genesis(String),
}

/// An era of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Era {
    /// The boundary of an epoch of Byron: a block without transactions, in the slot of the next block.
    ByronBoundary,
    /// Byron.
    Byron,
    /// Shelley.
    Shelley,
    /// Allegra.
    Allegra,
    /// Mary: tokens.
    Mary,
    /// Alonzo: scripts, and collateral for those that fail.
    Alonzo,
    /// Babbage: datums and scripts in outputs, collateral that is given back.
    Babbage,
    /// Conway.
    Conway,
}

impl Era {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Era::ByronBoundary => "byron-boundary",
            Era::Byron => "byron",
            Era::Shelley => "shelley",
            Era::Allegra => "allegra",
            Era::Mary => "mary",
            Era::Alonzo => "alonzo",
            Era::Babbage => "babbage",
            Era::Conway => "conway",
        }
    }

    fn from_number(number: u64) -> Result<Era, CardanoError> {
        Ok(match number {
            0 => Era::ByronBoundary,
            1 => Era::Byron,
            2 => Era::Shelley,
            3 => Era::Allegra,
            4 => Era::Mary,
            5 => Era::Alonzo,
            6 => Era::Babbage,
            7 => Era::Conway,
            _ => return Err(CardanoError::Era(number)),
        })
    }
}

/// What a block does to the entries, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CardanoBlock {
    /// Its slot and its hash.
    pub point: Point,
    /// The hash of the block before it; that of the genesis file in the very first; none if the block says so.
    pub prev_hash: Option<Hash>,
    /// Its number on the chain. A boundary of Byron has that of the block before it.
    pub height: u64,
    /// Its era.
    pub era: Era,
    /// How many transactions are in it, failed ones among them.
    pub transactions: u64,
    /// What it does, in its order.
    pub operations: Vec<Operation>,
}

/// The key of the entry of an output.
pub fn key(transaction: &Hash, index: u16) -> Vec<u8> {
    let mut encoder = Encoder::with_capacity(38);
    encoder.array(2).bytes(transaction.as_bytes()).uint(index.into());
    encoder.finish()
}

/// True if some bytes are the key of the entry of an output, in the one form that it has.
pub fn is_key(bytes: &[u8]) -> bool {
    let transaction = bytes.get(3..35).and_then(Hash::from_slice);
    let index = match bytes.get(35..) {
        Some([index]) => Some(u16::from(*index)),
        Some([0x18, index]) => Some(u16::from(*index)),
        Some([0x19, high, low]) => Some(u16::from_be_bytes([*high, *low])),
        _ => None,
    };
    transaction.zip(index).is_some_and(|(transaction, index)| key(&transaction, index) == bytes)
}

/// Reads a block with the number of its era in front, as nodes keep it.
pub fn block(bytes: &[u8]) -> Result<CardanoBlock, CardanoError> {
    let mut items = Items::new(bytes);
    let block = block::decode(&mut items, BYRON_EPOCH_SLOTS)?;
    items.finish()?;
    Ok(block)
}

/// Reads blocks that follow each other: a chunk of a node's immutable database, or the same in hex digits. A block is decoded
/// when it is asked for. After an error there are no more.
pub fn blocks(bytes: &[u8]) -> Blocks<'_> {
    // No block begins with a byte that is a hex digit or white space: those are numbers and strings in CBOR.
    let is_text = bytes.first().is_some_and(|byte| byte.is_ascii_hexdigit() || is_space(*byte));
    let (bytes, wrong) = match is_text {
        false => (Cow::Borrowed(bytes), None),
        true => match unhex(bytes) {
            Ok(bytes) => (Cow::Owned(bytes), None),
            Err(wrong) => (Cow::Owned(Vec::new()), Some(wrong)),
        },
    };
    Blocks { bytes, at: 0, wrong, epoch_slots: BYRON_EPOCH_SLOTS }
}

/// Blocks that follow each other. See [`blocks`].
#[derive(Debug)]
pub struct Blocks<'a> {
    bytes: Cow<'a, [u8]>,
    at: usize,
    wrong: Option<CardanoError>,
    epoch_slots: u64,
}

impl Blocks<'_> {
    /// With other epochs of Byron than [`BYRON_EPOCH_SLOTS`], as private networks may have them.
    #[must_use]
    pub fn byron_epoch_slots(mut self, slots: u64) -> Self {
        self.epoch_slots = slots;
        self
    }

    /// Bytes of blocks that were read; of text, what its digits stand for.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<CardanoBlock, CardanoError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(wrong) = self.wrong.take() {
            return Some(Err(wrong));
        }
        let mut items = Items::from(&self.bytes, self.at);
        if items.is_done() {
            return None;
        }
        let block = block::decode(&mut items, self.epoch_slots);
        self.at = if block.is_ok() { items.at() } else { self.bytes.len() };
        Some(block)
    }
}

impl std::iter::FusedIterator for Blocks<'_> {}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Bytes from hex digits. White space may be between two of them.
fn unhex(text: &[u8]) -> Result<Vec<u8>, CardanoError> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for (at, digit) in text.iter().enumerate() {
        let number = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            space if is_space(*space) && high.is_none() => continue,
            _ => return Err(CardanoError::Hex { at }),
        };
        high = match high {
            None => Some(number),
            Some(high) => {
                bytes.push(high << 4 | number);
                None
            }
        };
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err(CardanoError::Hex { at: text.len() }),
    }
}
