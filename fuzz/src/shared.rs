//! An engine in memory that outlives the store over it, and whose commits fail when they are told to.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ledger::{Batch, Engine, EngineError, MemoryEngine, Snapshot, Trouble};

/// How a commit fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// Nothing of it is there.
    Before,
    /// All of it is there, and nobody is told.
    After,
}

/// A handle to tables in memory.
#[derive(Clone, Debug, Default)]
pub struct SharedEngine {
    tables: Arc<MemoryEngine>,
    next: Arc<Mutex<Option<Failing>>>,
    failed: Arc<AtomicU8>,
}

impl SharedEngine {
    /// Lets the next commit fail, or not.
    pub fn fail(&self, how: Option<Failing>) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = how;
        self.failed.store(0, Ordering::SeqCst);
    }

    /// True if a commit has failed since that was said.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst) != 0
    }
}

impl Engine for SharedEngine {
    fn name(&self) -> &'static str {
        self.tables.name()
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        self.tables.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        let failing = self.next.lock().unwrap_or_else(PoisonError::into_inner).take();
        if failing != Some(Failing::Before) {
            self.tables.commit(batch)?;
        }
        if failing.is_none() {
            return Ok(());
        }
        self.failed.store(1, Ordering::SeqCst);
        Err(EngineError::new(self.name(), "commit", Trouble::Other, "told to"))
    }
}
