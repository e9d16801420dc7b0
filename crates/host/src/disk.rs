//! The disk: one file, read and written at positions, and the promise it makes about power loss.
//!
//! Everything above this crate reaches storage through [`Disk`]. The promise is small on purpose,
//! so that a simulated disk can break everything it does not say.

use std::fmt;
use std::io;

use crate::map::{Board, Mapping};
use crate::pin::Pin;

/// The unit that reaches the medium whole or not at all.
pub const SECTOR: u64 = 512;

/// One file.
///
/// # Crash contract
///
/// - Bytes covered by a `sync` or `sync_range` that returned `Ok` survive power loss.
/// - What was written later may survive whole, in any subset of its 512-byte sectors, in any order,
///   in any of the versions written since, or not at all. One sector is never torn.
/// - Changes of length (`set_len`, `allocate`, writes past the end) obey `sync` too: until then the
///   file may come back with its old length, and bytes past the surviving length are gone.
/// - A punched range reads as zeros afterwards; until synced, any of its sectors may come back.
/// - After `sync` or `sync_range` failed, nothing is known about the bytes it covered, and a later
///   `Ok` says nothing about them either. Never retry a failed sync.
/// - After a failed write any part of the range may have been written.
///
/// # Mapping contract
///
/// [`Mapping::bytes`] lends the file's own memory. The owner of a disk must not write to a range
/// that is lent out, nor punch or cut it off. A page with a [`Board`] changes at any moment and is
/// never to be lent.
///
/// # Boards and pins
///
/// Beside its bytes a file carries what its writer and its readers tell each other while they run,
/// in one process or in several. None of it is contents, and none of it is durable.
///
/// - A [`Board`] is a notice, never durable state. What a page held before its board was first
///   written to is unknown, and after a crash anything may be there.
/// - A page with a board is read and written through its boards only: `write_at`, `punch` and
///   `set_len` must leave it alone, and what `read_at` finds there means nothing.
/// - A [`Pin`] is advice like the lock, and has nothing to do with the lock: neither is refused or
///   delayed by the other. The system ends the pins of a process that dies.
/// - Of a reader that pins and then loads, and a writer that stores and then asks `is_pinned`, at
///   least one notices the other, whichever orderings the two give to the load and the store.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// True if the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Sets the length. New bytes read as zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves blocks for a range, and extends the file if the range ends past its end. Contents
    /// do not change. Where the platform cannot reserve, zeros are written past the old end
    /// instead. `StorageFull` means that nothing was changed that anyone could miss.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Fills `buf` from `offset`. A short read is an `UnexpectedEof` error.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `buf` at `offset`, extending the file if needed.
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes every completed write and change of length durable.
    fn sync(&self) -> io::Result<()>;

    /// Makes completed writes inside the range durable, and the file's length as far as the range
    /// needs it. Other dirty bytes may stay behind.
    fn sync_range(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Gives the blocks of a range back; it reads as zeros. The length stays.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Maps the file for reading from its start. `len` is the least the mapping must be able to
    /// cover; an implementation may offer more, so that a growing file seldom needs a new mapping.
    fn map(&self, len: u64) -> io::Result<Mapping>;

    /// Takes the exclusive advisory lock. It is held until the disk and every mapping, board and
    /// pin made of it are dropped, so that nobody else changes bytes that are still lent out.
    fn lock(&self) -> Result<(), LockError>;

    /// The page of 4096 bytes at `offset` as words shared by every handle of the file.
    /// `InvalidInput` if the offset is not a multiple of 4096, or the page not wholly inside the
    /// file. A disk opened read-only gives a board that cannot be written to.
    fn board(&self, offset: u64) -> io::Result<Board>;

    /// Takes a shared lock on one byte of the file's lock space, which has nothing to do with its
    /// bytes. Pins of one byte add up, within a handle and among handles. A disk opened read-only
    /// can pin too. `InvalidInput` from 2^61 on; `Unsupported` where the platform has no locks that
    /// belong to an open file.
    fn pin(&self, byte: u64) -> io::Result<Pin>;

    /// True if another handle, of this process or of any other, has a pin on a byte less than
    /// `below`. Takes nothing. Where nobody can pin, nothing is pinned.
    fn is_pinned(&self, below: u64) -> io::Result<bool>;
}

/// Why a lock could not be had.
#[derive(Debug)]
pub enum LockError {
    /// Somebody holds it; the process id is given where the platform tells.
    Held {
        /// The holder's process id.
        pid: Option<u32>,
    },
    /// The platform refused to answer.
    Io(io::Error),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Held { pid: Some(pid) } => write!(f, "locked by process {pid}"),
            LockError::Held { pid: None } => write!(f, "locked by another process"),
            LockError::Io(error) => write!(f, "cannot lock: {error}"),
        }
    }
}

impl std::error::Error for LockError {}
