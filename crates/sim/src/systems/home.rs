//! The directory that a store has beside its database, with calls that can be made to fail.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use host::{Dir, Disk, SimDir};

/// A call that is to fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// So many reads and replacements from now.
    pub(crate) calls: u64,
    /// It is done all the same, and its caller does not know.
    pub(crate) is_done: bool,
}

#[derive(Debug)]
pub(crate) struct Home {
    dir: Arc<SimDir>,
    plan: Mutex<Option<Plan>>,
    has_failed: AtomicBool,
}

impl Home {
    pub(crate) fn new(dir: Arc<SimDir>, plan: Option<Plan>) -> Home {
        Home { dir, plan: Mutex::new(plan), has_failed: AtomicBool::new(false) }
    }

    /// What has not failed yet.
    pub(crate) fn plan(&self) -> Option<Plan> {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_plan(&self, plan: Option<Plan>) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// True if a call failed as planned since this was last asked.
    pub(crate) fn take_failure(&self) -> bool {
        self.has_failed.swap(false, Ordering::SeqCst)
    }

    /// Makes a call, or lets it fail as planned.
    fn call<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let Some(plan) = self.plan().filter(|_| !self.dir.is_off()) else { return call() };
        if let Some(calls) = plan.calls.checked_sub(1) {
            self.set_plan(Some(Plan { calls, ..plan }));
            return call();
        }
        self.set_plan(None);
        if plan.is_done {
            call()?;
        }
        self.has_failed.store(true, Ordering::SeqCst);
        Err(io::Error::other("simulated input/output error"))
    }
}

impl Dir for Home {
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.dir.create(name)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.dir.open(name)
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.call(|| self.dir.read(name))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.call(|| self.dir.replace(name, bytes))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.dir.remove(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.dir.names()
    }

    fn sync(&self) -> io::Result<()> {
        self.dir.sync()
    }
}
