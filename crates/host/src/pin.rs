//! Pins: shared locks by which a reader tells the writer what it still needs.
//!
//! Invariants
//! - A handle has the lock of a byte exactly while it has pins of the byte. The first pin takes the
//!   lock and the last one gives it back, both under `mine`, because the system does not count.
//! - Either a pin is there for a later test of another handle, or what was stored before that test
//!   is there for loads after the pin. A system may test without taking a lock of its own (Linux
//!   does if a file has no locks), so both sides put a fence between their two steps.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::claim::Claim;
use crate::file::Handle;
use crate::locks;

#[cfg(doc)]
use crate::disk::Disk;

/// Bytes of a lock space.
const BYTES: u64 = 1 << 61;

/// A shared lock on one byte of a file's lock space, held until it is dropped; see [`Disk::pin`].
#[must_use = "a pin ends when it is dropped"]
pub struct Pin {
    byte: u64,
    pins: Arc<Pins>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut mine = self.pins.mine();
        if let Entry::Occupied(mut count) = mine.entry(self.byte) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
                self.pins.space.give_back(self.byte);
            }
        }
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").field("byte", &self.byte).finish_non_exhaustive()
    }
}

/// The pins of one handle.
#[derive(Debug)]
pub(crate) struct Pins {
    /// How many there are of each byte.
    mine: Mutex<BTreeMap<u64, usize>>,
    space: Space,
}

/// Where the locks are. It keeps alive what they belong to.
#[derive(Debug)]
enum Space {
    /// In the system, for a file that any process can open.
    File(Arc<Handle>),
    /// In this process, for a file that exists only there.
    Claim(Arc<Claim>),
}

impl Pins {
    pub(crate) fn of_file(file: &Arc<Handle>) -> Arc<Self> {
        Arc::new(Pins { mine: Mutex::default(), space: Space::File(Arc::clone(file)) })
    }

    pub(crate) fn of_claim(claim: &Arc<Claim>) -> Arc<Self> {
        Arc::new(Pins { mine: Mutex::default(), space: Space::Claim(Arc::clone(claim)) })
    }

    pub(crate) fn pin(self: &Arc<Self>, byte: u64) -> io::Result<Pin> {
        if byte >= BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "past the lock space"));
        }
        match self.mine().entry(byte) {
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(free) => {
                self.space.take(byte)?;
                free.insert(1);
            }
        }
        // Order: the pin, then what its owner loads.
        fence(Ordering::SeqCst);
        Ok(Pin { byte, pins: Arc::clone(self) })
    }

    pub(crate) fn is_pinned(&self, below: u64) -> io::Result<bool> {
        // Order: what the caller has stored, then the test.
        fence(Ordering::SeqCst);
        match &self.space {
            Space::File(file) => locks::is_shared(file, below.min(BYTES)),
            Space::Claim(claim) => Ok(claim.is_pinned(below, &self.mine())),
        }
    }

    fn mine(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space {
    fn take(&self, byte: u64) -> io::Result<()> {
        match self {
            Space::File(file) => locks::share(file, byte),
            Space::Claim(claim) => {
                claim.pin(byte);
                Ok(())
            }
        }
    }

    fn give_back(&self, byte: u64) {
        match self {
            // A lock that could not be given back lasts until the file is closed: a pin that is
            // kept too long costs space and nothing else.
            Space::File(file) => drop(locks::give_back(file, byte)),
            Space::Claim(claim) => claim.unpin(byte),
        }
    }
}
