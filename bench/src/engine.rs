//! What a store must do to be measured.
//!
//! Invariants
//! - `load` may leave data in memory or the page cache; after `finish_load`, `put` and `apply`
//!   everything written so far survives a power loss.
//! - Every call that reads hands the value to the caller, who checks it; nobody measures a read
//!   whose result is not looked at.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Result;

use crate::record::{Block, Change, Key, Record};

/// Bytes given to every engine that has a cache, unless somebody says otherwise.
pub const CACHE_BYTES: usize = 1 << 30;

/// What they get in this process.
static CACHE: AtomicUsize = AtomicUsize::new(CACHE_BYTES);

/// Sets what every engine that has a cache gets, once, before one is opened.
pub fn set_cache_bytes(bytes: usize) {
    CACHE.store(bytes, Ordering::Relaxed);
}

/// Bytes given to every engine that has a cache.
pub fn cache_bytes() -> usize {
    CACHE.load(Ordering::Relaxed)
}

/// How many keys there will be.
static KEYS: AtomicUsize = AtomicUsize::new(0);

/// Says how many keys there will be, once, before an engine is opened.
pub fn set_expected_keys(keys: usize) {
    KEYS.store(keys, Ordering::Relaxed);
}

/// How many keys there will be, for engines that can make room for them beforehand.
pub fn expected_keys() -> usize {
    KEYS.load(Ordering::Relaxed)
}

/// Whether reads will be of what is not in memory.
static COLD: AtomicBool = AtomicBool::new(false);

/// Says, once, before one is opened, that engines should read no more than they are asked for, if
/// they have a setting for that: reading ahead brings in what nobody wants.
pub fn set_cold(is_cold: bool) {
    COLD.store(is_cold, Ordering::Relaxed);
}

/// Whether to read no more than what is asked for.
pub fn is_cold() -> bool {
    COLD.load(Ordering::Relaxed)
}

/// What an engine says it takes of the disk, by what it is for, and what it wrote there.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Sealed segments, with all that belongs to them.
    pub segments: u64,
    /// The index image.
    pub image: u64,
    /// Bytes of records that commits wrote since the store was opened.
    pub logged: u64,
    /// Bytes of records that compaction wrote since then.
    pub moved: u64,
    /// Checkpoints ever written.
    pub checkpoints: u64,
}

impl Space {
    /// What is left of the `disk` that a store takes without the index image and the room that is kept for the next
    /// one, which is as large: all segments, whatever waits to be given back or is kept for what is written next, and
    /// the little that belongs to nobody.
    pub fn without_index(&self, disk: u64) -> u64 {
        disk.saturating_sub(2 * self.image)
    }
}

/// Why a store is opened; some engines choose their sync settings at open.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Batches that need not be durable follow, ended by [`Engine::finish_load`] or a kill.
    Load,
    /// Only durable commits and reads follow.
    Durable,
}

/// One store, opened in a directory of its own.
pub trait Engine: Sized + Send + Sync {
    /// Whether rows can be read in key order.
    const IS_ORDERED: bool = true;
    /// Whether somebody can wait until a commit is durable. If not, nothing is measured that does.
    const IS_DURABLE: bool = true;

    /// What is set of it, for the report.
    const SETTINGS: &'static str;

    /// A consistent view for one thread.
    type Reader<'a>: Reader
    where
        Self: 'a;

    /// Opens the store in `dir`, which exists; creates it if the directory is empty.
    fn open(dir: &Path, phase: Phase) -> Result<Self>;

    /// Writes one batch without waiting for the disk.
    fn load(&self, records: &[Record]) -> Result<()>;

    /// Makes everything loaded durable, and comes back open for durable commits.
    fn finish_load(self, dir: &Path) -> Result<Self>;

    /// Writes one record and waits until it is durable.
    fn put(&self, record: &Record) -> Result<()>;

    /// Reads and checks `block.spent`, deletes it and inserts `block.created`, in one durable
    /// commit.
    fn apply(&self, block: &Block) -> Result<()>;

    /// Opens a view of everything committed so far.
    fn reader(&self) -> Result<Self::Reader<'_>>;

    /// Deletes and puts without reading, in one durable commit.
    fn write(&self, change: &Change) -> Result<()>;

    /// Does the whole compaction that the engine offers, and comes back open for durable commits.
    fn compact(self, dir: &Path) -> Result<Self>;

    /// What the store takes, by what it is for, if it can tell.
    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    /// Closes cleanly.
    fn close(self) -> Result<()>;
}

/// Which rows a scan visits.
#[derive(Clone, Copy, Debug)]
pub enum Span<'a> {
    /// All, in key order.
    All,
    /// Those from the first key on and before the second, in key order.
    Between(&'a [u8], &'a [u8]),
    /// So many, backwards from this key, which is there.
    Back(&'a [u8], usize),
}

/// Reads on one thread.
pub trait Reader {
    /// Looks up `key` and shows what was found to `see`, without copying where the engine can.
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T>;

    /// Looks up many keys and shows what was found to `see`, with the place of each in `keys`.
    fn get_many(
        &mut self,
        keys: &[&Key],
        mut see: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        for (place, key) in keys.iter().enumerate() {
            self.get(&key[..], |found| see(place, found))??;
        }
        Ok(())
    }

    /// Shows the key and the value of every row in `span` to `see`, without copying where the
    /// engine can. Called only if the engine is ordered.
    fn scan(&mut self, span: Span<'_>, see: impl FnMut(&[u8], &[u8])) -> Result<()>;
}
