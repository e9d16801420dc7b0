//! The exclusive lock of a file that exists only inside this process.
//!
//! Invariant: at most one [`Claim`] of a file holds its lock, and dropping the claim frees it. A
//! disk handle shares its claim with the mappings it made, so the lock outlives the handle as long
//! as one of them is in use, like the lock of a real file whose mapping keeps the open file alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::disk::LockError;

/// One handle's relation to the lock of its file.
#[derive(Debug)]
pub(crate) struct Claim {
    taken: Arc<AtomicBool>,
    mine: AtomicBool,
}

impl Claim {
    /// A claim on a lock of its own.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Claim { taken: Arc::default(), mine: AtomicBool::new(false) })
    }

    /// Another handle's claim on the same lock, not holding it.
    pub(crate) fn sibling(&self) -> Arc<Self> {
        Arc::new(Claim { taken: Arc::clone(&self.taken), mine: AtomicBool::new(false) })
    }

    /// Takes the lock; taking it twice through one claim is fine.
    pub(crate) fn lock(&self) -> Result<(), LockError> {
        if self.mine.load(Ordering::Acquire) {
            return Ok(());
        }
        if self.taken.swap(true, Ordering::AcqRel) {
            return Err(LockError::Held { pid: Some(std::process::id()) });
        }
        self.mine.store(true, Ordering::Release);
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if *self.mine.get_mut() {
            self.taken.store(false, Ordering::Release);
        }
    }
}
