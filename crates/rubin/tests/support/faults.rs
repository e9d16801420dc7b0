//! An engine and a directory that fail when they are told to, before or after they did what they were asked.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use host::{Dir, Disk, MemoryDir};
use ledger::{Batch, Engine, EngineError, MemoryEngine, Snapshot, Trouble};

/// When to fail: commits and replacements of files count down together.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    /// Changes until one fails; zero if none does.
    left: AtomicU64,
    /// The change that fails is made all the same.
    is_made: AtomicBool,
    /// Everything after it fails too, as if the process had died.
    is_last: AtomicBool,
    done: AtomicU64,
}

impl Fault {
    pub(crate) fn new(at: u64, is_made: bool, is_last: bool) -> Arc<Fault> {
        Arc::new(Fault {
            left: at.into(),
            is_made: is_made.into(),
            is_last: is_last.into(),
            done: 0.into(),
        })
    }

    /// Changes asked for so far.
    pub(crate) fn count(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Makes a change, or fails, or both.
    fn change<E>(&self, make: impl FnOnce() -> Result<(), E>, error: E) -> Result<(), E> {
        self.done.fetch_add(1, Ordering::SeqCst);
        match self.left.load(Ordering::SeqCst) {
            0 => make(),
            1 => {
                if !self.is_last.load(Ordering::SeqCst) {
                    self.left.store(0, Ordering::SeqCst);
                }
                if self.is_made.swap(false, Ordering::SeqCst) {
                    make()?;
                }
                Err(error)
            }
            left => {
                self.left.store(left - 1, Ordering::SeqCst);
                make()
            }
        }
    }
}

/// Tables in memory that outlive the engine, as files do.
#[derive(Debug)]
pub(crate) struct FaultyEngine {
    pub(crate) tables: Arc<MemoryEngine>,
    pub(crate) fault: Arc<Fault>,
}

impl Engine for FaultyEngine {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        self.tables.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        let error = EngineError::new("faulty", "commit", Trouble::Other, "told to fail");
        self.fault.change(|| self.tables.commit(batch), error)
    }
}

/// Files in memory.
#[derive(Debug)]
pub(crate) struct FaultyDir {
    pub(crate) files: Arc<MemoryDir>,
    pub(crate) fault: Arc<Fault>,
}

impl Dir for FaultyDir {
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.files.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.files.open(name)
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.files.read(name)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let error = io::Error::other("told to fail");
        self.fault.change(|| self.files.replace(name, bytes), error)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.files.names()
    }

    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }
}
