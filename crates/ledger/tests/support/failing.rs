//! An engine that fails when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ledger::{Batch, Engine, EngineError, MemoryEngine, Snapshot, Trouble};

/// An engine that fails at a call, before or after it did what it was asked to.
#[derive(Debug)]
pub(crate) struct Failing {
    pub(crate) engine: MemoryEngine,
    /// Calls until it fails.
    pub(crate) calls: Arc<AtomicI64>,
    pub(crate) is_done_all_the_same: bool,
}

fn fault(doing: &'static str) -> EngineError {
    EngineError::new("failing", doing, Trouble::Other, "a fault")
}

impl Failing {
    fn is_due(&self) -> bool {
        self.calls.fetch_sub(1, Ordering::SeqCst) == 0
    }
}

impl Engine for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        match self.is_due() {
            true => Err(fault("take a snapshot")),
            false => self.engine.snapshot(),
        }
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        if !self.is_due() {
            return self.engine.commit(batch);
        }
        if self.is_done_all_the_same {
            self.engine.commit(batch)?;
        }
        Err(fault("commit"))
    }
}
