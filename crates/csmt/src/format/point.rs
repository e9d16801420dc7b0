//! Points of a chain.

use alloc::vec::Vec;
use core::fmt;

use crate::cbor::{Decoder, Encoder, Malformed};
use crate::hash::Hash;

/// Where a chain is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// Before the first block.
    #[default]
    Origin,
    /// After a block.
    Block {
        /// Its slot.
        slot: u64,
        /// Its hash.
        hash: Hash,
    },
}

impl Point {
    /// After a block.
    pub fn block(slot: u64, hash: Hash) -> Point {
        Point::Block { slot, hash }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        match self {
            Point::Origin => encoder.array(1).uint(0),
            Point::Block { slot, hash } => encoder.array(3).uint(1).uint(*slot).bytes(&hash.0),
        };
        encoder.finish()
    }

    /// From its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Point, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let start = decoder.clone();
        let point = match (decoder.array()?, decoder.uint()?) {
            (1, 0) => Point::Origin,
            (3, 1) => Point::Block { slot: decoder.uint()?, hash: decoder.hash()? },
            _ => return Err(start.wrong("this is not a point")),
        };
        decoder.finish()?;
        Ok(point)
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Point::Origin => f.write_str("origin"),
            Point::Block { slot, hash } => write!(f, "{slot}:{hash}"),
        }
    }
}
