//! An open file that gives its lock back.
//!
//! Closing a file ends its lock only when nobody else has it open, and a process that is just being
//! started has every open file of its parent until its program runs. A program that starts others
//! could not open again what it has closed; so the lock is given back by name.

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(crate) struct Handle {
    file: File,
    /// The process that took the lock, or 0. A copy of this process that drops its copy of the
    /// handle must not give back what is not its own.
    owner: AtomicU32,
}

impl Handle {
    pub(crate) fn new(file: File) -> Self {
        Handle { file, owner: AtomicU32::new(0) }
    }

    /// Takes the exclusive lock until the handle is dropped.
    pub(crate) fn try_lock(&self) -> Result<(), TryLockError> {
        self.file.try_lock()?;
        self.owner.store(std::process::id(), Ordering::Relaxed);
        Ok(())
    }
}

impl Deref for Handle {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if *self.owner.get_mut() == std::process::id() {
            // If it fails, closing does what it can.
            let _best_effort = self.file.unlock();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
#[allow(clippy::disallowed_methods, reason = "the second handle of a file that no disk is over")]
mod tests {
    use super::*;

    #[test]
    fn the_lock_is_free_though_a_copy_of_the_file_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create_new(&path).unwrap();
        // What a process that is being started has.
        let copy = file.try_clone().unwrap();
        let handle = Handle::new(file);
        handle.try_lock().unwrap();
        let other = Handle::new(File::open(&path).unwrap());
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(handle);
        other.try_lock().unwrap();
        drop(copy);
        let third = Handle::new(File::open(&path).unwrap());
        assert!(matches!(third.try_lock(), Err(TryLockError::WouldBlock)), "another's lock");
    }

    #[test]
    fn a_handle_without_the_lock_gives_nothing_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create_new(&path).unwrap();
        let copy = Handle::new(file.try_clone().unwrap());
        let handle = Handle::new(file);
        handle.try_lock().unwrap();
        drop(copy);
        let other = Handle::new(File::open(&path).unwrap());
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
    }
}
