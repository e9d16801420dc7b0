//! What the lock-free parts are built of: the standard library's, or loom's under `--cfg loom`, which then tries every
//! order that the memory model allows.

#![allow(clippy::expect_used, reason = "without memory there is nothing to go on with")]

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};
#[cfg(not(loom))]
use std::sync::{RwLockReadGuard, RwLockWriteGuard};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, RwLock};
#[cfg(loom)]
use loom::sync::{RwLockReadGuard, RwLockWriteGuard};

use std::sync::PoisonError;

/// Takes a lock over state that is whole at any moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock for reading, over state that is whole at any moment.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock for writing, over state that is whole at any moment.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Tables of words.
#[cfg(not(loom))]
pub(crate) type Words = host::Words;
#[cfg(loom)]
pub(crate) type Words = Box<[AtomicU64]>;

/// Zeroed memory that the system hands out as it is touched.
#[cfg(not(loom))]
pub(crate) fn zeroed(words: usize) -> Words {
    Words::zeroed(words).expect("memory for the index")
}

/// Zeroed memory.
#[cfg(loom)]
pub(crate) fn zeroed(words: usize) -> Words {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}
