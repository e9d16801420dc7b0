//! Rows of `rollbacks`: what takes a block back.

use alloc::vec::Vec;

use crate::cbor::{Decoder, Encoder, Malformed};
use crate::format::point::Point;
use crate::hash::Hash;

/// The key of the sentinel: the state before any block.
pub const SENTINEL: &[u8] = &[0];

/// The key of a point. Origin is the sentinel.
pub fn key(point: &Point) -> Vec<u8> {
    match point {
        Point::Origin => SENTINEL.into(),
        Point::Block { .. } => {
            let mut encoder = Encoder::new();
            encoder.array(2).uint(1).bytes(&point.to_bytes());
            encoder.finish()
        }
    }
}

/// The point of a key.
pub fn point(key: &[u8]) -> Result<Point, Malformed> {
    if key == SENTINEL {
        return Ok(Point::Origin);
    }
    let mut decoder = Decoder::new(key);
    decoder.array_of(2, "the key of a rollback point has two fields")?;
    let start = decoder.clone();
    if decoder.uint()? != 1 {
        return Err(start.wrong("this is not the key of a rollback point"));
    }
    let point = Point::from_bytes(decoder.bytes()?)?;
    decoder.finish()?;
    match point {
        Point::Block { .. } => Ok(point),
        // Somebody else may have written it; it means the same and is never written here.
        Point::Origin => Ok(Point::Origin),
    }
}

/// A change of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The entry goes.
    Delete {
        /// Its key.
        key: Vec<u8>,
    },
    /// The entry comes, or has another value.
    Insert {
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
}

impl Operation {
    /// The key of the entry.
    pub fn key(&self) -> &[u8] {
        match self {
            Operation::Delete { key } | Operation::Insert { key, .. } => key,
        }
    }

    /// The value that it has then, if any.
    pub fn value(&self) -> Option<&[u8]> {
        match self {
            Operation::Delete { .. } => None,
            Operation::Insert { value, .. } => Some(value),
        }
    }

    /// The key and the value.
    pub fn into_parts(self) -> (Vec<u8>, Option<Vec<u8>>) {
        match self {
            Operation::Delete { key } => (key, None),
            Operation::Insert { key, value } => (key, Some(value)),
        }
    }
}

/// The bytes of a rollback point. Operations are keys, and the values that they get, if any.
pub fn row<'a>(
    hash: Option<&Hash>,
    operations: impl ExactSizeIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    root: Option<&Hash>,
) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.array(3).bytes(hash.map_or(&[], |hash| &hash.0));
    encoder.array(operations.len());
    for (key, value) in operations {
        match value {
            None => encoder.array(2).uint(0).bytes(key),
            Some(value) => encoder.array(3).uint(1).bytes(key).bytes(value),
        };
    }
    match root {
        Some(root) => encoder.array(1).bytes(&root.0),
        None => encoder.array(0),
    };
    encoder.finish()
}

/// What takes a block back, and the root that it came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollbackPoint {
    /// The block's hash; none if whoever wrote it did not know.
    pub hash: Option<Hash>,
    /// What takes it back, to be applied from the front.
    pub operations: Vec<Operation>,
    /// The root after the block; none of an empty tree.
    pub root: Option<Hash>,
}

impl RollbackPoint {
    /// The row of the sentinel.
    pub fn sentinel() -> RollbackPoint {
        RollbackPoint { hash: Some(Hash::of(&[])), operations: Vec::new(), root: None }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let operations = self.operations.iter().map(|one| (one.key(), one.value()));
        row(self.hash.as_ref(), operations, self.root.as_ref())
    }

    /// From its bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<RollbackPoint, Malformed> {
        let mut decoder = Decoder::new(bytes);
        decoder.array_of(3, "a rollback point has three fields")?;
        let start = decoder.clone();
        let hash = match decoder.bytes()? {
            [] => None,
            bytes => {
                Some(Hash::from_slice(bytes).ok_or_else(|| start.wrong("a digest has 32 bytes"))?)
            }
        };
        let count = decoder.array()?;
        let mut operations = Vec::new();
        for _ in 0..count {
            let start = decoder.clone();
            operations.push(match (decoder.array()?, decoder.uint()?) {
                (2, 0) => Operation::Delete { key: decoder.bytes()?.into() },
                (3, 1) => Operation::Insert {
                    key: decoder.bytes()?.into(),
                    value: decoder.bytes()?.into(),
                },
                _ => return Err(start.wrong("this is not an operation")),
            });
        }
        let start = decoder.clone();
        let root = match decoder.array()? {
            0 => None,
            1 => Some(decoder.hash()?),
            _ => return Err(start.wrong("there is one root at most")),
        };
        decoder.finish()?;
        Ok(RollbackPoint { hash, operations, root })
    }
}
