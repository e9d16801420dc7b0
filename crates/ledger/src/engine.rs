//! What a store asks of an engine.

use std::borrow::Cow;
use std::fmt;
use std::ops::Bound;

use crate::batch::Batch;
use crate::error::EngineError;

/// Longest key in bytes; the shortest has one.
pub const KEY_MAX: usize = 65_534;

/// A table of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table {
    /// Its canonical name.
    pub name: &'static str,
    /// Where an engine has no tables, the first byte of all its keys. No two tables of a store share it.
    pub id: u8,
}

/// Bytes of an engine: lent where it can, copied where not.
pub type Bytes<'a> = Cow<'a, [u8]>;

/// The keys between two bounds.
pub type KeyRange<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Rows in key order; from the back in the opposite order.
pub type Rows<'a> =
    Box<dyn DoubleEndedIterator<Item = Result<(Bytes<'a>, Bytes<'a>), EngineError>> + 'a>;

/// Ordered tables of bytes with atomic batches and stable snapshots.
///
/// The contract, executed by [`contract::check`](crate::contract::check) against every implementation:
/// - Keys are 1 to [`KEY_MAX`] bytes, ordered as unsigned bytes. Values are any bytes.
/// - A table that was never written to is empty.
/// - The changes of a batch apply in their order; the last one of a key wins. `commit` is all or nothing, and durable when it
///   returns. Commits of several threads happen one after the other.
/// - A snapshot is of one commit, never changes, and never keeps anyone from committing.
pub trait Engine: Send + Sync + fmt::Debug {
    /// What the engine is called.
    fn name(&self) -> &'static str;

    /// The tables as they are now.
    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError>;

    /// Applies a batch.
    fn commit(&self, batch: Batch) -> Result<(), EngineError>;
}

/// Tables as of one commit.
pub trait Snapshot: Send + Sync {
    /// The value of a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes<'_>>, EngineError>;

    /// The rows of a table whose keys are in a range.
    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Rows<'_>, EngineError>;
}

/// True if there is nothing in any of these tables. A store that finds rows but none of its own is looking at somebody else's.
pub fn is_empty(snapshot: &dyn Snapshot, tables: &[Table]) -> Result<bool, EngineError> {
    for table in tables {
        if let Some(row) = snapshot.scan(*table, (Bound::Unbounded, Bound::Unbounded))?.next() {
            return row.map(|_| false);
        }
    }
    Ok(true)
}

/// The range of all keys that begin with some bytes. The second value is what its end borrows from.
pub fn prefix(bytes: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut end = bytes.to_vec();
    while let Some(last) = end.pop() {
        if let Some(more) = last.checked_add(1) {
            end.push(more);
            return (bytes.to_vec(), Some(end));
        }
    }
    (bytes.to_vec(), None)
}
