//! A batch: changes of tables that happen together.
//!
//! All keys and values lie one behind the other in one piece of memory, because a block has thousands of them.

use std::ops::Range;

use crate::engine::{KEY_MAX, Table};
use crate::error::{EngineError, Trouble};

/// Changes in the order they were added; the last one of a key wins.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    changes: Vec<Place>,
    /// A key that no engine takes was among them.
    has_bad_key: bool,
}

#[derive(Clone, Debug)]
struct Place {
    table: Table,
    start: usize,
    key_end: usize,
    /// None of a delete.
    value_end: Option<usize>,
}

/// A change of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The table.
    pub table: Table,
    /// The key.
    pub key: &'a [u8],
    /// The new value; none if the key is deleted.
    pub value: Option<&'a [u8]>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> &mut Batch {
        self.put_parts(table, &[key], &[value])
    }

    /// Adds a put of a key and a value that are in several pieces.
    pub fn put_parts(&mut self, table: Table, key: &[&[u8]], value: &[&[u8]]) -> &mut Batch {
        let start = self.bytes.len();
        key.iter().for_each(|part| self.bytes.extend_from_slice(part));
        let key_end = self.bytes.len();
        value.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.push(table, start, key_end, Some(self.bytes.len()))
    }

    /// Adds a delete. The key need not be there.
    pub fn delete(&mut self, table: Table, key: &[u8]) -> &mut Batch {
        self.delete_parts(table, &[key])
    }

    /// Adds a delete of a key that is in several pieces.
    pub fn delete_parts(&mut self, table: Table, key: &[&[u8]]) -> &mut Batch {
        let start = self.bytes.len();
        key.iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.push(table, start, self.bytes.len(), None)
    }

    fn push(
        &mut self,
        table: Table,
        start: usize,
        key_end: usize,
        value_end: Option<usize>,
    ) -> &mut Batch {
        self.has_bad_key |= !(1..=KEY_MAX).contains(&(key_end - start));
        self.changes.push(Place { table, start, key_end, value_end });
        self
    }

    /// Adds all changes of another batch.
    pub fn append(&mut self, other: &Batch) -> &mut Batch {
        let moved = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.changes.extend(other.changes.iter().map(|place| Place {
            table: place.table,
            start: place.start + moved,
            key_end: place.key_end + moved,
            value_end: place.value_end.map(|end| end + moved),
        }));
        self.has_bad_key |= other.has_bad_key;
        self
    }

    /// How many changes there are.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of all keys and values.
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The changes, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Change<'_>> + ExactSizeIterator {
        self.changes.iter().map(|place| Change {
            table: place.table,
            key: self.part(place.start..place.key_end),
            value: place.value_end.map(|end| self.part(place.key_end..end)),
        })
    }

    fn part(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or(&[])
    }

    /// Refuses keys that no engine takes. Every engine asks this first.
    pub fn check(&self, engine: &'static str) -> Result<(), EngineError> {
        if self.has_bad_key {
            let message = format!("keys are 1 to {KEY_MAX} bytes long");
            return Err(EngineError::new(engine, "commit", Trouble::Key, message));
        }
        Ok(())
    }
}
