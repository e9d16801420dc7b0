//! Tables as column families of RocksDB. Commits sync its log.

use std::borrow::Cow;
use std::ops::Bound;
use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DBIterator, Error, ErrorKind, IteratorMode, Options, ReadOptions, WriteBatch, WriteOptions,
};

use crate::adapters::memory::is_empty;
use crate::batch::Batch;
use crate::engine::{Bytes, Engine, KeyRange, Rows, Snapshot, Table};
use crate::error::{EngineError, Trouble};

const NAME: &str = "rocksdb";
const BLOOM_BITS: f64 = 10.0;
/// As much as redb takes if nobody says otherwise.
const CACHE_BYTES: usize = 1 << 30;

/// Tables as column families of RocksDB, in a directory.
pub struct RocksEngine {
    database: DB,
    /// Where it writes what it did, if not beside the tables; removed with the engine.
    _log: Option<tempfile::TempDir>,
}

impl std::fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksEngine").finish_non_exhaustive()
    }
}

impl RocksEngine {
    /// Makes a directory with these tables.
    pub fn create(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<RocksEngine, EngineError> {
        if path.as_ref().exists() {
            return Err(EngineError::new(NAME, "create", Trouble::Exists, "the directory exists"));
        }
        RocksEngine::open_or_create(path.as_ref(), tables, "create")
    }

    /// Opens a directory with these tables.
    pub fn open(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<RocksEngine, EngineError> {
        if !path.as_ref().exists() {
            return Err(EngineError::new(NAME, "open", Trouble::Missing, "no such directory"));
        }
        RocksEngine::open_or_create(path.as_ref(), tables, "open")
    }

    /// Opens a directory with these tables as they are now, beside whoever writes to them, and leaves every file as it is.
    pub fn open_to_read(
        path: impl AsRef<Path>,
        tables: &'static [Table],
    ) -> Result<RocksEngine, EngineError> {
        // It would begin a new log even so.
        let log = tempfile::tempdir()
            .map_err(|error| EngineError::new(NAME, "open", Trouble::Other, error))?;
        let mut options = options();
        options.set_db_log_dir(log.path());
        let families = families(tables, &options);
        let database = DB::open_cf_descriptors_read_only(&options, path, families, false);
        Ok(RocksEngine { database: database.map_err(because("open"))?, _log: Some(log) })
    }

    /// Names of the column families in a directory.
    pub fn names(path: impl AsRef<Path>) -> Result<Vec<String>, EngineError> {
        DB::list_cf(&Options::default(), path).map_err(because("list column families"))
    }

    fn open_or_create(
        path: &Path,
        tables: &'static [Table],
        doing: &'static str,
    ) -> Result<RocksEngine, EngineError> {
        let mut options = options();
        options.create_if_missing(doing == "create");
        options.create_missing_column_families(true);
        let database = DB::open_cf_descriptors(&options, path, families(tables, &options));
        Ok(RocksEngine { database: database.map_err(because(doing))?, _log: None })
    }

    fn family(&self, table: Table) -> Option<&ColumnFamily> {
        self.database.cf_handle(table.name)
    }
}

/// What its wiki recommends under "Setup Options and Basic Tuning", and a cache. Nothing is compressed: most of a
/// ledger's rows are hashes.
fn options() -> Options {
    let mut blocks = BlockBasedOptions::default();
    if let Ok(cache) = Cache::new_lru_cache(CACHE_BYTES) {
        blocks.set_block_cache(&cache);
    }
    blocks.set_block_size(16 << 10);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks.set_format_version(5);
    blocks.set_bloom_filter(BLOOM_BITS, false);
    let mut options = Options::default();
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_bytes_per_sync(1 << 20);
    options.set_max_background_jobs(4);
    options.set_compression_type(DBCompressionType::None);
    options.set_block_based_table_factory(&blocks);
    options
}

fn families(tables: &'static [Table], options: &Options) -> Vec<ColumnFamilyDescriptor> {
    let family = |table: &Table| ColumnFamilyDescriptor::new(table.name, options.clone());
    tables.iter().map(family).collect()
}

impl Engine for RocksEngine {
    fn name(&self) -> &'static str {
        NAME
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        Ok(Box::new(RocksSnapshot { engine: self, snapshot: self.database.snapshot() }))
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        batch.check(NAME)?;
        let mut changes = WriteBatch::default();
        for change in batch.iter() {
            let family = self.family(change.table).ok_or_else(|| unknown(change.table))?;
            match change.value {
                Some(value) => changes.put_cf(family, change.key, value),
                None => changes.delete_cf(family, change.key),
            }
        }
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        self.database.write_opt(changes, &durable).map_err(because("commit"))
    }
}

fn unknown(table: Table) -> EngineError {
    let message = format!("{} is not among the tables it was opened with", table.name);
    EngineError::new(NAME, "commit", Trouble::Other, message)
}

struct RocksSnapshot<'a> {
    engine: &'a RocksEngine,
    snapshot: rocksdb::Snapshot<'a>,
}

impl Snapshot for RocksSnapshot<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes<'_>>, EngineError> {
        let Some(family) = self.engine.family(table) else { return Ok(None) };
        let found = self.snapshot.get_pinned_cf(family, key).map_err(because("read"))?;
        Ok(found.map(|value| Cow::Owned(value.to_vec())))
    }

    fn scan(&self, table: Table, range: KeyRange<'_>) -> Result<Rows<'_>, EngineError> {
        let Some(family) = self.engine.family(table).filter(|_| !is_empty(range)) else {
            return Ok(Box::new(std::iter::empty()));
        };
        let (from, to) = half_open(range);
        Ok(Box::new(BothWays {
            snapshot: &self.snapshot,
            family,
            from,
            to,
            front: None,
            back: None,
            seen_front: None,
            seen_back: None,
        }))
    }
}

/// RocksDB's iterators go one way; this is one from each end, which stop where they meet. Each is made when somebody goes its
/// way: to make one and find its end costs as much as a short scan.
struct BothWays<'a> {
    snapshot: &'a rocksdb::Snapshot<'a>,
    family: &'a ColumnFamily,
    from: Vec<u8>,
    to: Option<Vec<u8>>,
    front: Option<DBIterator<'a>>,
    back: Option<DBIterator<'a>>,
    seen_front: Option<Vec<u8>>,
    seen_back: Option<Vec<u8>>,
}

impl<'a> BothWays<'a> {
    fn rows(&self, mode: IteratorMode<'_>) -> DBIterator<'a> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(self.from.clone());
        if let Some(to) = &self.to {
            options.set_iterate_upper_bound(to.clone());
        }
        self.snapshot.iterator_cf_opt(self.family, options, mode)
    }
}

type Row<'a> = Result<(Bytes<'a>, Bytes<'a>), EngineError>;

impl<'a> Iterator for BothWays<'a> {
    type Item = Row<'a>;

    fn next(&mut self) -> Option<Row<'a>> {
        if self.front.is_none() {
            self.front = Some(self.rows(IteratorMode::Start));
        }
        match self.front.as_mut()?.next()?.map_err(because("scan")) {
            Ok((key, value)) => {
                if self.seen_back.as_deref().is_some_and(|seen| *key >= *seen) {
                    return None;
                }
                note(&mut self.seen_front, &key);
                Some(Ok((Cow::Owned(key.into_vec()), Cow::Owned(value.into_vec()))))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl DoubleEndedIterator for BothWays<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.back.is_none() {
            self.back = Some(self.rows(IteratorMode::End));
        }
        match self.back.as_mut()?.next()?.map_err(because("scan")) {
            Ok((key, value)) => {
                if self.seen_front.as_deref().is_some_and(|seen| *key <= *seen) {
                    return None;
                }
                note(&mut self.seen_back, &key);
                Some(Ok((Cow::Owned(key.into_vec()), Cow::Owned(value.into_vec()))))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// Remembers the key that was seen last, in the room of the one before.
fn note(seen: &mut Option<Vec<u8>>, key: &[u8]) {
    let seen = seen.get_or_insert_default();
    seen.clear();
    seen.extend_from_slice(key);
}

/// The same keys from one on, and before another.
fn half_open(range: KeyRange<'_>) -> (Vec<u8>, Option<Vec<u8>>) {
    // The key right behind another one is that with a zero byte more.
    let behind = |key: &[u8]| [key, &[0]].concat();
    let from = match range.0 {
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => Vec::new(),
    };
    let to = match range.1 {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(key.to_vec()),
        Bound::Unbounded => None,
    };
    (from, to)
}

fn because(doing: &'static str) -> impl FnOnce(Error) -> EngineError {
    move |error| {
        let is_locked = error.to_string().contains("LOCK");
        let trouble = match error.kind() {
            ErrorKind::Corruption => Trouble::Damaged,
            ErrorKind::NotFound => Trouble::Missing,
            ErrorKind::IOError if is_locked => Trouble::Locked(None),
            _ => Trouble::Other,
        };
        EngineError::new(NAME, doing, trouble, error)
    }
}
