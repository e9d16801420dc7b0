//! Tables in a bucket: the first byte of every key is the table's id.

use std::borrow::Cow;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use host::{Disk, Env};
use kvb::{Bucket, Durability, Error, Options};

use crate::adapters::memory::is_empty;
use crate::batch::Batch;
use crate::engine::{Bytes, Engine, KeyRange, Rows, Snapshot, Table};
use crate::error::{EngineError, Trouble};

const NAME: &str = "kvb";
/// Keys up to this long are put together without asking for memory.
const SHORT: usize = 127;
/// Bytes of a record beside key and value.
const FRAME: usize = 48;
/// Dead bytes for a hundred live ones.
const SLACK: u32 = 150;

/// Tables in a bucket.
#[derive(Debug)]
pub struct KvbEngine {
    bucket: Bucket,
}

impl KvbEngine {
    /// The options that ledger stores make their buckets with: keys are chosen by others, one sync makes a commit durable, and more
    /// may be dead than is live, because every block replaces rows all over the place.
    pub fn options() -> Options {
        Options::default()
            .hash(kvb::HashKind::SipHash)
            .durability(Durability::SyncOnce)
            .slack(SLACK)
    }

    /// Makes a bucket for tables.
    pub fn create(path: impl AsRef<Path>) -> Result<KvbEngine, EngineError> {
        let bucket = Bucket::create(path, KvbEngine::options()).map_err(because("create"))?;
        Ok(KvbEngine { bucket })
    }

    /// Opens a bucket with tables.
    pub fn open(path: impl AsRef<Path>) -> Result<KvbEngine, EngineError> {
        let bucket = Bucket::open(path, KvbEngine::options()).map_err(because("open"))?;
        Ok(KvbEngine { bucket })
    }

    /// Makes a bucket on an empty disk of the caller's.
    pub fn create_on(
        disk: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<KvbEngine, EngineError> {
        let bucket = Bucket::create_on(disk, env, options).map_err(because("create"))?;
        Ok(KvbEngine { bucket })
    }

    /// Opens the bucket on a disk of the caller's.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<KvbEngine, EngineError> {
        let bucket = Bucket::open_on(disk, env, options).map_err(because("open"))?;
        Ok(KvbEngine { bucket })
    }

    /// The bucket itself.
    pub fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    /// Flushes and closes the bucket. Dropping does the same and ignores errors.
    pub fn close(self) -> Result<(), EngineError> {
        self.bucket.close().map_err(because("close"))
    }
}

impl Engine for KvbEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        Ok(Box::new(KvbSnapshot { snapshot: self.bucket.snapshot() }))
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        batch.check(NAME)?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut changes = kvb::Batch::with_capacity(batch.byte_len() + batch.len() * (FRAME + 1));
        for change in batch.iter() {
            with_key(change.table, change.key, |key| match change.value {
                Some(value) => drop(changes.put(key, value)),
                None => drop(changes.delete(key)),
            });
        }
        self.bucket.commit(changes).map_err(because("commit"))
    }
}

/// Tables in a bucket that is only read, beside its writer or without one. Nothing is ever written to the file.
#[derive(Debug)]
pub struct KvbReadOnly {
    reader: kvb::Reader,
}

impl KvbReadOnly {
    /// Opens a bucket with tables for reading.
    pub fn open(path: impl AsRef<Path>) -> Result<KvbReadOnly, EngineError> {
        let reader = kvb::Reader::open(path).map_err(because("open"))?;
        Ok(KvbReadOnly { reader })
    }

    /// Opens the bucket on a disk of the caller's for reading.
    pub fn open_on(disk: Arc<dyn Disk>, env: Arc<dyn Env>) -> Result<KvbReadOnly, EngineError> {
        let reader = kvb::Reader::open_on(disk, env).map_err(because("open"))?;
        Ok(KvbReadOnly { reader })
    }
}

impl Engine for KvbReadOnly {
    fn name(&self) -> &'static str {
        NAME
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        let snapshot = self.reader.snapshot().map_err(because("take a snapshot"))?;
        Ok(Box::new(KvbSnapshot { snapshot }))
    }

    fn commit(&self, _batch: Batch) -> Result<(), EngineError> {
        Err(EngineError::new(NAME, "commit", Trouble::Other, "it is open for reading only"))
    }
}

/// Puts the table's id in front of a key.
fn with_key<T>(table: Table, key: &[u8], task: impl FnOnce(&[u8]) -> T) -> T {
    let mut short = [0; SHORT + 1];
    if let Some((first, rest)) = short.split_first_mut()
        && let Some(room) = rest.get_mut(..key.len())
    {
        *first = table.id;
        room.copy_from_slice(key);
        return task(short.get(..=key.len()).unwrap_or(&[]));
    }
    let mut long = Vec::with_capacity(key.len() + 1);
    long.push(table.id);
    long.extend_from_slice(key);
    task(&long)
}

struct KvbSnapshot<'a> {
    snapshot: kvb::Snapshot<'a>,
}

impl Snapshot for KvbSnapshot<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes<'_>>, EngineError> {
        let found = with_key(table, key, |key| self.snapshot.get(key)).map_err(because("read"))?;
        Ok(found.map(kvb::Value::into_bytes))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Rows<'_>, EngineError> {
        if is_empty(range) {
            return Ok(Box::new(std::iter::empty()));
        }
        let full = |key: &[u8]| with_key(table, key, <[u8]>::to_vec);
        let from = match range.0 {
            Bound::Included(key) => Bound::Included(full(key)),
            Bound::Excluded(key) => Bound::Excluded(full(key)),
            Bound::Unbounded => Bound::Included(vec![table.id]),
        };
        let to = match (range.1, table.id.checked_add(1)) {
            (Bound::Included(key), _) => Bound::Included(full(key)),
            (Bound::Excluded(key), _) => Bound::Excluded(full(key)),
            (Bound::Unbounded, Some(next)) => Bound::Excluded(vec![next]),
            (Bound::Unbounded, None) => Bound::Unbounded,
        };
        let rows = self.snapshot.range((from, to));
        Ok(Box::new(rows.map(|row| {
            let (key, value) = row.map_err(because("scan"))?.into_bytes();
            Ok((without_id(key), value))
        })))
    }
}

fn without_id(key: Bytes<'_>) -> Bytes<'_> {
    match key {
        Cow::Borrowed(key) => Cow::Borrowed(key.get(1..).unwrap_or(&[])),
        Cow::Owned(mut key) => {
            key.drain(..1.min(key.len()));
            Cow::Owned(key)
        }
    }
}

fn because(doing: &'static str) -> impl FnOnce(Error) -> EngineError {
    move |error| {
        let trouble = match &error {
            Error::Io { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => Trouble::Missing,
                std::io::ErrorKind::AlreadyExists => Trouble::Exists,
                std::io::ErrorKind::StorageFull => Trouble::Full,
                _ => Trouble::Other,
            },
            Error::Locked { pid } => Trouble::Locked(*pid),
            Error::NoSpace => Trouble::Full,
            Error::Corrupt(_) => Trouble::Damaged,
            _ => Trouble::Other,
        };
        EngineError::new(NAME, doing, trouble, error)
    }
}
