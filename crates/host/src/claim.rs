//! The locks of a file that exists only inside this process: the exclusive one, and those of pins.
//!
//! Invariants
//! - At most one [`Claim`] of a file holds its exclusive lock, and dropping the claim frees it. A
//!   disk handle shares its claim with the mappings, boards and pins it made, so the lock outlives
//!   the handle as long as one of them is in use, like the lock of a real file that they keep open.
//! - A byte is in `pinned` while some handle pins it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::LockError;

/// One handle's relation to the locks of its file.
#[derive(Debug)]
pub(crate) struct Claim {
    taken: Arc<AtomicBool>,
    mine: AtomicBool,
    /// How many handles pin a byte.
    pinned: Arc<Mutex<BTreeMap<u64, usize>>>,
}

impl Claim {
    /// A claim on locks of its own.
    pub(crate) fn new() -> Arc<Self> {
        let pinned = Arc::default();
        Arc::new(Claim { taken: Arc::default(), mine: AtomicBool::new(false), pinned })
    }

    /// Another handle's claim on the same locks, holding none.
    pub(crate) fn sibling(&self) -> Arc<Self> {
        let (taken, pinned) = (Arc::clone(&self.taken), Arc::clone(&self.pinned));
        Arc::new(Claim { taken, mine: AtomicBool::new(false), pinned })
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

    /// Adds this handle to those that pin a byte. It must not be among them.
    pub(crate) fn pin(&self, byte: u64) {
        *self.pinned().entry(byte).or_default() += 1;
    }

    /// Takes this handle from those that pin a byte.
    pub(crate) fn unpin(&self, byte: u64) {
        let mut pinned = self.pinned();
        if let Some(handles) = pinned.get_mut(&byte) {
            *handles -= 1;
            if *handles == 0 {
                pinned.remove(&byte);
            }
        }
    }

    /// True if a byte less than `below` is pinned by a handle other than the one with `mine`.
    pub(crate) fn is_pinned(&self, below: u64, mine: &BTreeMap<u64, usize>) -> bool {
        let others = |byte: &u64, handles: usize| handles > usize::from(mine.contains_key(byte));
        self.pinned().range(..below).any(|(byte, handles)| others(byte, *handles))
    }

    fn pinned(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if *self.mine.get_mut() {
            self.taken.store(false, Ordering::Release);
        }
    }
}
