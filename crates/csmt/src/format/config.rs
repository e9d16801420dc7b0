//! The row of `config`: how far the chain was followed.

use alloc::vec::Vec;

use crate::cbor::{Decoder, Encoder, Malformed};
use crate::format::point::Point;

/// Its key.
pub const KEY: &[u8] = b"app_config";

/// What it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Where to go on from.
    pub base: Option<Point>,
    /// A bootstrap was begun and is not done.
    pub in_progress: bool,
    /// Blocks before this slot are passed over.
    pub skip: Option<u64>,
}

impl Config {
    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        encoder.array(3);
        match &self.base {
            Some(point) => encoder.array(1).bytes(&point.to_bytes()),
            None => encoder.array(0),
        };
        encoder.bool(self.in_progress);
        match self.skip {
            Some(slot) => encoder.array(1).uint(slot),
            None => encoder.array(0),
        };
        encoder.finish()
    }

    /// From its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Config, Malformed> {
        let mut decoder = Decoder::new(bytes);
        decoder.array_of(3, "the configuration has three fields")?;
        let start = decoder.clone();
        let base = match decoder.array()? {
            0 => None,
            1 => Some(Point::from_bytes(decoder.bytes()?)?),
            _ => return Err(start.wrong("there is one base at most")),
        };
        let in_progress = decoder.bool()?;
        let start = decoder.clone();
        let skip = match decoder.array()? {
            0 => None,
            1 => Some(decoder.uint()?),
            _ => return Err(start.wrong("there is one slot at most")),
        };
        decoder.finish()?;
        Ok(Config { base, in_progress, skip })
    }
}
