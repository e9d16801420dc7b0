//! What a store must do to be measured.
//!
//! Invariants
//! - `load` may leave data in memory or the page cache; after `finish_load`, `put` and `apply`
//!   everything written so far survives a power loss.
//! - Every call that reads hands the value to the caller, who checks it; nobody measures a read
//!   whose result is not looked at.

use std::path::Path;

use anyhow::Result;

use crate::record::{Block, Change, Record};

/// Bytes given to every engine that has a cache.
pub const CACHE_BYTES: usize = 1 << 30;

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

    /// A consistent view for one thread.
    type Reader<'a>: Reader
    where
        Self: 'a;

    /// Opens the store in `dir`, which exists; creates it if the directory is empty.
    fn open(dir: &Path, phase: Phase) -> Result<Self>;

    /// Writes one batch without waiting for the disk.
    fn load(&self, records: &[Record]) -> Result<()>;

    /// Makes everything loaded durable and switches to durable commits.
    fn finish_load(&self) -> Result<()>;

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

    /// Shows the key and the value of every row in `span` to `see`, without copying where the
    /// engine can. Called only if the engine is ordered.
    fn scan(&mut self, span: Span<'_>, see: impl FnMut(&[u8], &[u8])) -> Result<()>;
}
