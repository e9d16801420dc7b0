//! Tables as keyspaces of fjall. Commits sync its journal.

use std::borrow::Cow;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable};

use crate::adapters::memory::is_empty;
use crate::batch::Batch;
use crate::engine::{Bytes, Engine, KeyRange, Rows, Snapshot, Table};
use crate::error::{EngineError, Trouble};

const NAME: &str = "fjall";
/// As much as redb takes if nobody says otherwise.
const CACHE_BYTES: u64 = 1 << 30;

/// Tables as keyspaces of fjall, in a directory.
pub struct FjallEngine {
    // Order: keyspaces are dropped before their database.
    tables: Vec<(Table, Keyspace)>,
    database: Database,
}

impl std::fmt::Debug for FjallEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FjallEngine").finish_non_exhaustive()
    }
}

impl FjallEngine {
    /// Makes a directory with these tables.
    pub fn create(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<FjallEngine, EngineError> {
        if path.as_ref().exists() {
            return Err(EngineError::new(NAME, "create", Trouble::Exists, "the directory exists"));
        }
        FjallEngine::open_or_create(path.as_ref(), tables, "create")
    }

    /// Opens a directory with these tables.
    pub fn open(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<FjallEngine, EngineError> {
        if !path.as_ref().exists() {
            return Err(EngineError::new(NAME, "open", Trouble::Missing, "no such directory"));
        }
        FjallEngine::open_or_create(path.as_ref(), tables, "open")
    }

    fn open_or_create(
        path: &Path,
        tables: &'static [Table],
        doing: &'static str,
    ) -> Result<FjallEngine, EngineError> {
        let database = Database::builder(path).cache_size(CACHE_BYTES).open();
        let database = database.map_err(because(doing))?;
        let open = |table: &Table| {
            let keyspace = database.keyspace(table.name, KeyspaceCreateOptions::default);
            Ok((*table, keyspace.map_err(because(doing))?))
        };
        let tables = tables.iter().map(open).collect::<Result<_, EngineError>>()?;
        Ok(FjallEngine { tables, database })
    }

    fn keyspace(&self, table: Table) -> Option<&Keyspace> {
        self.tables.iter().find(|(own, _)| *own == table).map(|(_, keyspace)| keyspace)
    }
}

impl Engine for FjallEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        Ok(Box::new(FjallSnapshot { engine: self, snapshot: self.database.snapshot() }))
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        batch.check(NAME)?;
        let mut changes = self.database.batch().durability(Some(PersistMode::SyncData));
        for change in batch.iter() {
            let keyspace = self.keyspace(change.table).ok_or_else(|| unknown(change.table))?;
            match change.value {
                Some(value) => changes.insert(keyspace, change.key, value),
                None => changes.remove(keyspace, change.key),
            }
        }
        changes.commit().map_err(because("commit"))
    }
}

fn unknown(table: Table) -> EngineError {
    let message = format!("{} is not among the tables it was opened with", table.name);
    EngineError::new(NAME, "commit", Trouble::Other, message)
}

struct FjallSnapshot<'a> {
    engine: &'a FjallEngine,
    snapshot: fjall::Snapshot,
}

impl Snapshot for FjallSnapshot<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes<'_>>, EngineError> {
        let Some(keyspace) = self.engine.keyspace(table).filter(|_| !key.is_empty()) else {
            return Ok(None);
        };
        let found = self.snapshot.get(keyspace, key).map_err(because("read"))?;
        Ok(found.map(|value| Cow::Owned(value.to_vec())))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Rows<'_>, EngineError> {
        let Some(keyspace) = self.engine.keyspace(table).filter(|_| !is_empty(range)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let rows = self.snapshot.range::<&[u8], _>(keyspace, range);
        Ok(Box::new(rows.map(|row| {
            let (key, value) = row.into_inner().map_err(because("scan"))?;
            Ok((Cow::Owned(key.to_vec()), Cow::Owned(value.to_vec())))
        })))
    }
}

fn because(doing: &'static str) -> impl FnOnce(fjall::Error) -> EngineError {
    move |error| {
        let trouble = match &error {
            fjall::Error::Locked => Trouble::Locked(None),
            fjall::Error::Io(source) if source.kind() == std::io::ErrorKind::StorageFull => {
                Trouble::Full
            }
            _ => Trouble::Other,
        };
        EngineError::new(NAME, doing, trouble, error)
    }
}
