//! Rows of `csmt`: a node under the path of the branch bit that leads to it.
//!
//! The service's form is CBOR with a number for every bit: a path of 500 bits has 503 bytes. That is what is shown, and what RocksDB
//! has, whose tables the service can open. Inside other engines rows are packed: paths as they are hashed, then the digest. Both
//! forms have their keys in the same order, by length and then by bits.

use alloc::vec::Vec;

use crate::cbor::{Decoder, Encoder, Malformed};
use crate::hash::{Hash, Node, packed, unpacked};
use crate::path::{Bits, Path};

/// How rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As the service has them.
    Service,
    /// Packed.
    Packed,
}

impl Form {
    /// The key of a position.
    pub fn key(self, position: &Bits) -> Vec<u8> {
        match self {
            Form::Service => key(position),
            Form::Packed => [&position.head(), position.bytes()].concat(),
        }
    }

    /// The position of a key.
    pub fn position(self, key: &[u8]) -> Result<Path, Malformed> {
        match self {
            Form::Service => position(key),
            Form::Packed => {
                let wrong = Malformed { at: 0, wrong: "this should be a packed path" };
                unpacked(key).ok_or(wrong)
            }
        }
    }

    /// The value of a node.
    pub fn value(self, node: &Node) -> Vec<u8> {
        match self {
            Form::Service => value(node),
            Form::Packed => {
                let mut bytes = packed(&node.jump);
                bytes.extend_from_slice(&node.value.0);
                bytes
            }
        }
    }

    /// The node of a value.
    pub fn node(self, value: &[u8]) -> Result<Node, Malformed> {
        match self {
            Form::Service => node(value),
            Form::Packed => {
                let wrong = Malformed { at: 0, wrong: "this should be a packed node" };
                let (jump, value) = value.split_last_chunk().ok_or(wrong)?;
                Ok(Node { jump: unpacked(jump).ok_or(wrong)?, value: Hash(*value) })
            }
        }
    }
}

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
