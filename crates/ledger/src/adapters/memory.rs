//! Tables in memory: the contract with the encoding removed.
//!
//! Commits copy nothing that they do not change: a snapshot holds the tables as they were, and the next commit makes a copy
//! of the tables it changes if somebody does.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use crate::batch::Batch;
use crate::engine::{Bytes, Engine, KeyRange, Rows, Snapshot, Table};
use crate::error::EngineError;

const NAME: &str = "memory";

type Rows1 = BTreeMap<Vec<u8>, Vec<u8>>;
type Tables = BTreeMap<Table, Arc<Rows1>>;

/// Tables in memory. Nothing survives it.
#[derive(Debug, Default)]
pub struct MemoryEngine {
    tables: Mutex<Arc<Tables>>,
}

impl MemoryEngine {
    /// Empty tables.
    pub fn new() -> MemoryEngine {
        MemoryEngine::default()
    }
}

impl Engine for MemoryEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        let tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(MemorySnapshot { tables: Arc::clone(&tables) }))
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        batch.check(NAME)?;
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let tables = Arc::make_mut(&mut tables);
        for change in batch.iter() {
            let rows = Arc::make_mut(tables.entry(change.table).or_default());
            match change.value {
                Some(value) => drop(rows.insert(change.key.to_vec(), value.to_vec())),
                None => drop(rows.remove(change.key)),
            }
        }
        Ok(())
    }
}

struct MemorySnapshot {
    tables: Arc<Tables>,
}

impl Snapshot for MemorySnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes<'_>>, EngineError> {
        let rows = self.tables.get(&table);
        Ok(rows.and_then(|rows| rows.get(key)).map(|value| Cow::Borrowed(value.as_slice())))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Rows<'_>, EngineError> {
        let Some(rows) = self.tables.get(&table).filter(|_| !is_empty(range)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let rows = rows.range::<[u8], _>(range);
        Ok(Box::new(rows.map(|(key, value)| {
            Ok((Cow::Borrowed(key.as_slice()), Cow::Borrowed(value.as_slice())))
        })))
    }
}

/// True of a range that ends before it begins, which is no range to some.
pub(crate) fn is_empty(range: KeyRange<'_>) -> bool {
    match range {
        (Bound::Included(from), Bound::Included(to)) => from > to,
        (Bound::Included(from) | Bound::Excluded(from), Bound::Excluded(to))
        | (Bound::Excluded(from), Bound::Included(to)) => from >= to,
        _ => false,
    }
}
