//! Nodes as the service has them: each in a row, under the path of the branch bit that leads to it.
//!
//! They are CBOR with a number for every bit: a path of 500 bits has 503 bytes.

use alloc::vec::Vec;

use crate::cbor::{Decoder, Encoder, Malformed};
use crate::hash::Node;
use crate::path::{Bits, Path};

/// The key of a position, as the service has it.
pub fn key(position: &Bits) -> Vec<u8> {
    let mut encoder = Encoder::with_capacity(position.len() + 3);
    encoder.bits(position.iter());
    encoder.finish()
}

/// The position of a key.
pub fn position(key: &[u8]) -> Result<Path, Malformed> {
    let mut decoder = Decoder::new(key);
    let path = decoder.path()?;
    decoder.finish()?;
    Ok(path)
}

/// The value of a node, as the service has it.
pub fn value(node: &Node) -> Vec<u8> {
    let mut encoder = Encoder::with_capacity(node.jump.len() + 40);
    encoder.node(node);
    encoder.finish()
}

/// The node of a value.
pub fn node(value: &[u8]) -> Result<Node, Malformed> {
    let mut decoder = Decoder::new(value);
    let node = decoder.node()?;
    decoder.finish()?;
    Ok(node)
}
