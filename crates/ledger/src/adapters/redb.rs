//! Tables of redb.

use std::borrow::Cow;
use std::path::Path;

use redb::{
    Database, DatabaseError, ReadOnlyDatabase, ReadOnlyTable, ReadableDatabase, TableDefinition,
    TableError,
};

use crate::adapters::memory::is_empty;
use crate::batch::Batch;
use crate::engine::{Bytes, Engine, KeyRange, Rows, Snapshot, Table};
use crate::error::{EngineError, Trouble};

const NAME: &str = "redb";

type Rows1 = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// Tables of redb, in one file.
pub struct RedbEngine {
    database: Opened,
    tables: &'static [Table],
}

impl std::fmt::Debug for RedbEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RedbEngine").field("tables", &self.tables).finish_non_exhaustive()
    }
}

enum Opened {
    ToWrite(Database),
    ToRead(ReadOnlyDatabase),
}

impl RedbEngine {
    /// Makes a file with these tables.
    pub fn create(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<RedbEngine, EngineError> {
        if path.as_ref().exists() {
            return Err(EngineError::new(NAME, "create", Trouble::Exists, "the file exists"));
        }
        let database = Database::create(path).map_err(|error| cannot_open("create", error))?;
        Ok(RedbEngine { database: Opened::ToWrite(database), tables })
    }

    /// Opens a file with these tables.
    pub fn open(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<RedbEngine, EngineError> {
        let database = Database::open(path).map_err(|error| cannot_open("open", error))?;
        Ok(RedbEngine { database: Opened::ToWrite(database), tables })
    }

    /// Opens a file that was closed properly, and leaves it as it is. Nobody can write to it meanwhile.
    pub fn open_to_read(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<RedbEngine, EngineError> {
        let database = ReadOnlyDatabase::open(path).map_err(|error| cannot_open("open", error))?;
        Ok(RedbEngine { database: Opened::ToRead(database), tables })
    }
}

fn definition(table: Table) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(table.name)
}

impl Engine for RedbEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        let transaction = match &self.database {
            Opened::ToWrite(database) => database.begin_read(),
            Opened::ToRead(database) => database.begin_read(),
        };
        let transaction = transaction.map_err(because("take a snapshot"))?;
        let mut tables = Vec::with_capacity(self.tables.len());
        for table in self.tables {
            match transaction.open_table(definition(*table)) {
                Ok(rows) => tables.push((*table, rows)),
                Err(TableError::TableDoesNotExist(_)) => {}
                Err(error) => return Err(because("open a table")(error)),
            }
        }
        Ok(Box::new(RedbSnapshot { tables }))
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        batch.check(NAME)?;
        let Opened::ToWrite(database) = &self.database else {
            return Err(EngineError::new(NAME, "commit", Trouble::Other, "it was opened to read"));
        };
        let transaction = database.begin_write().map_err(because("commit"))?;
        for table in self.tables {
            let mut changes = batch.iter().filter(|change| change.table == *table).peekable();
            if changes.peek().is_none() {
                continue;
            }
            let mut rows = transaction.open_table(definition(*table)).map_err(because("commit"))?;
            for change in changes {
                match change.value {
                    Some(value) => rows.insert(change.key, value).map(drop),
                    None => rows.remove(change.key).map(drop),
                }
                .map_err(because("commit"))?;
            }
        }
        transaction.commit().map_err(because("commit"))
    }
}

struct RedbSnapshot {
    tables: Vec<(Table, Rows1)>,
}

impl RedbSnapshot {
    fn rows(&self, table: Table) -> Option<&Rows1> {
        self.tables.iter().find(|(own, _)| *own == table).map(|(_, rows)| rows)
    }
}

impl Snapshot for RedbSnapshot {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes<'_>>, EngineError> {
        let Some(rows) = self.rows(table) else { return Ok(None) };
        let found = rows.get(key).map_err(because("read"))?;
        Ok(found.map(|value| Cow::Owned(value.value().to_vec())))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Rows<'_>, EngineError> {
        let Some(rows) = self.rows(table).filter(|_| !is_empty(range)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let rows = rows.range::<&[u8]>(range).map_err(because("scan"))?;
        Ok(Box::new(rows.map(|row| {
            let (key, value) = row.map_err(because("scan"))?;
            Ok((Cow::Owned(key.value().to_vec()), Cow::Owned(value.value().to_vec())))
        })))
    }
}

fn cannot_open(doing: &'static str, error: DatabaseError) -> EngineError {
    let trouble = match &error {
        DatabaseError::DatabaseAlreadyOpen => Trouble::Locked(None),
        DatabaseError::Storage(redb::StorageError::Io(source))
            if source.kind() == std::io::ErrorKind::NotFound =>
        {
            Trouble::Missing
        }
        DatabaseError::Storage(redb::StorageError::Corrupted(_)) => Trouble::Damaged,
        _ => Trouble::Other,
    };
    EngineError::new(NAME, doing, trouble, error)
}

fn because<E: Into<redb::Error>>(doing: &'static str) -> impl FnOnce(E) -> EngineError {
    move |error| {
        let error = error.into();
        let trouble = match &error {
            redb::Error::Corrupted(_) => Trouble::Damaged,
            redb::Error::Io(source) if source.kind() == std::io::ErrorKind::StorageFull => {
                Trouble::Full
            }
            _ => Trouble::Other,
        };
        EngineError::new(NAME, doing, trouble, error)
    }
}
