//! Syncing a file from several threads at once.
//!
//! Linux tells of pages that could not be written once for every time that the file was opened, to whoever syncs first. If threads
//! shared one, the failure of one thread's pages could be told to another, and the first would take its own for durable. So every call has
//! an opening of its own while it lasts, and what one of them was told holds for all that come later.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{Handle, platform};
use crate::map::Mapping;

/// How many threads of a store sync: who commits, who seals, who merges, who compacts. Others wait for one of them.
pub(super) const SYNCERS: usize = 4;

/// Openings of one file.
pub(super) struct Syncers {
    free: Mutex<Vec<Syncer>>,
    freed: Condvar,
    has_failed: AtomicBool,
}

/// An opening of a file, and a mapping that was made of it.
struct Syncer {
    file: Arc<Handle>,
    mapping: Option<Mapping>,
}

impl Syncers {
    /// So many for a file that was just opened: nothing has been written yet that could have failed.
    pub(super) fn new(file: &Arc<Handle>, count: usize) -> Syncers {
        let again = |_| platform::open_again(file).ok().map(|file| Arc::new(Handle::new(file)));
        let first = Arc::clone(file);
        // Where a file cannot be opened again by what it is, one call waits for the other.
        let files = std::iter::once(first).chain((1..count).map_while(again));
        let free = files.map(|file| Syncer { file, mapping: None }).collect();
        Syncers {
            free: Mutex::new(free),
            freed: Condvar::new(),
            has_failed: AtomicBool::new(false),
        }
    }

    /// Makes everything durable that was written before.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.with(|syncer| syncer.file.sync_data())
    }

    /// The same for a range, of a file that may be written to.
    pub(super) fn sync_range(
        &self,
        offset: u64,
        len: u64,
        end: u64,
        valid: &Arc<AtomicU64>,
    ) -> io::Result<()> {
        self.with(|syncer| match syncer.mapping(end, valid) {
            Some(mapping) if mapping.flush(offset, len)? => Ok(()),
            _ => syncer.file.sync_data(),
        })
    }

    fn with(&self, sync: impl FnOnce(&mut Syncer) -> io::Result<()>) -> io::Result<()> {
        let mut syncer = {
            let mut free = self.free();
            loop {
                match free.pop() {
                    Some(syncer) => break syncer,
                    None => free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner),
                }
            }
        };
        let result = sync(&mut syncer);
        // Order: before anybody else syncs through this opening, which will not be told again.
        if result.is_err() {
            self.has_failed.store(true, Ordering::Release);
        }
        self.free().push(syncer);
        self.freed.notify_one();
        match result {
            Ok(()) if self.has_failed.load(Ordering::Acquire) => {
                Err(io::Error::other("an earlier sync of the file failed"))
            }
            result => result,
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Syncer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Syncer {
    /// A mapping of this opening that reaches so far, if there can be one.
    fn mapping(&mut self, end: u64, valid: &Arc<AtomicU64>) -> Option<&Mapping> {
        if self.mapping.as_ref().is_none_or(|mapping| mapping.capacity() < end) {
            self.mapping = Mapping::of_file(&self.file, end, valid).ok();
        }
        self.mapping.as_ref()
    }
}

impl fmt::Debug for Syncers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Syncers").field("has_failed", &self.has_failed).finish_non_exhaustive()
    }
}
