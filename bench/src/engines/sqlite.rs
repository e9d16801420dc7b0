//! SQLite in WAL mode: `synchronous=OFF` for the load, `FULL` afterwards. Each reader has a
//! connection of its own and holds one read transaction; connections of readers that are gone are
//! kept for the next, with their caches and statements.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, anyhow};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Transaction, params};

use crate::engine::{Engine, Phase, Reader, Span, cache_bytes};
use crate::record::{Block, Change, KEY_LEN, Record, value_len};

const GET: &str = "SELECT v FROM records WHERE k = ?1";
const PUT: &str = "INSERT OR REPLACE INTO records (k, v) VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM records WHERE k = ?1";
const SCAN_ALL: &str = "SELECT k, v FROM records ORDER BY k";
const SCAN_BETWEEN: &str = "SELECT k, v FROM records WHERE k >= ?1 AND k < ?2 ORDER BY k";
const SCAN_BACK: &str = "SELECT k, v FROM records WHERE k <= ?1 ORDER BY k DESC LIMIT ?2";
const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS records (k BLOB PRIMARY KEY NOT NULL, v BLOB NOT NULL)";
/// "WITHOUT ROWID tables work best when individual rows are not too large", a twentieth of a page.
const WITHOUT_ROWID_MAX: usize = 200;

pub struct Sqlite {
    writer: Mutex<Connection>,
    /// Connections that nobody reads with.
    idle: Mutex<Vec<Connection>>,
    path: PathBuf,
}

pub struct SqliteReader<'a> {
    /// There until it is given back.
    connection: Option<Connection>,
    idle: &'a Mutex<Vec<Connection>>,
}

fn connect(path: &Path) -> Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "cache_size", -i64::try_from(cache_bytes() / 1024)?)?;
    Ok(connection)
}

fn put_all(txn: &Transaction<'_>, records: &[Record]) -> Result<()> {
    let mut put = txn.prepare_cached(PUT)?;
    for record in records {
        put.execute(params![&record.key[..], &record.value[..]])?;
    }
    Ok(())
}

fn get<T>(
    statement: &mut CachedStatement<'_>,
    key: &[u8],
    see: impl FnOnce(Option<&[u8]>) -> T,
) -> Result<T> {
    let mut rows = statement.query(params![key])?;
    match rows.next()? {
        Some(row) => Ok(see(Some(row.get_ref(0)?.as_blob()?))),
        None => Ok(see(None)),
    }
}

impl Sqlite {
    fn with_writer<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut guard = self.writer.lock().map_err(|_| anyhow!("a writer panicked"))?;
        work(&mut guard)
    }
}

impl Engine for Sqlite {
    const SETTINGS: &'static str = "WAL, a page cache for each connection, a table WITHOUT ROWID for values below 200 bytes and one with an index for longer ones, \
         as its documentation has it; synchronous OFF for the load, then FULL; gets through one transaction";
    type Reader<'a> = SqliteReader<'a>;

    fn open(dir: &Path, phase: Phase) -> Result<Self> {
        let path = dir.join("store.sqlite");
        let connection = connect(&path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        let synchronous = if phase == Phase::Load { "OFF" } else { "FULL" };
        connection.pragma_update(None, "synchronous", synchronous)?;
        let exists = "SELECT 1 FROM sqlite_schema WHERE name = 'records'";
        if connection.query_row(exists, [], |_| Ok(())).optional()?.is_none() {
            let is_short = KEY_LEN + value_len() <= WITHOUT_ROWID_MAX;
            let kind = if is_short { " WITHOUT ROWID" } else { "" };
            connection.execute(&format!("{CREATE}{kind}"), [])?;
        }
        Ok(Self { writer: Mutex::new(connection), idle: Mutex::default(), path })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        self.with_writer(|connection| {
            let txn = connection.transaction()?;
            put_all(&txn, records)?;
            Ok(txn.commit()?)
        })
    }

    fn finish_load(self, _dir: &Path) -> Result<Self> {
        self.with_writer(|connection| {
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            // If an earlier checkpoint, made without a sync, left nothing to do, this one has
            // not synced the file either.
            Ok(File::open(&self.path)?.sync_all()?)
        })?;
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.load(std::slice::from_ref(record))
    }

    fn apply(&self, block: &Block) -> Result<()> {
        self.with_writer(|connection| {
            let txn = connection.transaction()?;
            {
                let mut select = txn.prepare_cached(GET)?;
                for probe in &block.spent {
                    get(&mut select, &probe.key, |found| probe.check(found))??;
                }
                let mut delete = txn.prepare_cached(DELETE)?;
                for probe in &block.spent {
                    delete.execute(params![&probe.key[..]])?;
                }
            }
            put_all(&txn, &block.created)?;
            Ok(txn.commit()?)
        })
    }

    fn reader(&self) -> Result<SqliteReader<'_>> {
        let idle = self.idle.lock().map_err(|_| anyhow!("a reader panicked"))?.pop();
        let connection = idle.map_or_else(|| connect(&self.path), Ok)?;
        connection.execute_batch("BEGIN")?;
        Ok(SqliteReader { connection: Some(connection), idle: &self.idle })
    }

    fn write(&self, change: &Change) -> Result<()> {
        self.with_writer(|connection| {
            let txn = connection.transaction()?;
            {
                let mut delete = txn.prepare_cached(DELETE)?;
                for probe in &change.deleted {
                    delete.execute(params![&probe.key[..]])?;
                }
            }
            put_all(&txn, &change.put)?;
            Ok(txn.commit()?)
        })
    }

    fn compact(self, _dir: &Path) -> Result<Self> {
        self.with_writer(|connection| {
            connection.execute_batch("VACUUM")?;
            Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
        })?;
        Ok(self)
    }

    fn close(self) -> Result<()> {
        // Order: the writer goes last, for the last one to go checkpoints.
        drop(self.idle);
        let connection = self.writer.into_inner().map_err(|_| anyhow!("a writer panicked"))?;
        connection.close().map_err(|(_, error)| error.into())
    }
}

impl SqliteReader<'_> {
    fn connection(&self) -> Result<&Connection> {
        self.connection.as_ref().context("the reader is gone")
    }
}

impl Drop for SqliteReader<'_> {
    /// One that cannot end its transaction is of no use to anybody.
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        if let (Ok(()), Ok(mut idle)) = (connection.execute_batch("COMMIT"), self.idle.lock()) {
            idle.push(connection);
        }
    }
}

impl Reader for SqliteReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        get(&mut self.connection()?.prepare_cached(GET)?, key, see)
    }

    fn scan(&mut self, span: Span<'_>, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let query = match span {
            Span::All => SCAN_ALL,
            Span::Between(..) => SCAN_BETWEEN,
            Span::Back(..) => SCAN_BACK,
        };
        let mut statement = self.connection()?.prepare_cached(query)?;
        let mut rows = match span {
            Span::All => statement.query([])?,
            Span::Between(from, to) => statement.query(params![from, to])?,
            Span::Back(from, count) => statement.query(params![from, i64::try_from(count)?])?,
        };
        while let Some(row) = rows.next()? {
            see(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }
}
