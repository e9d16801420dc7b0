//! Real files.
//!
//! Invariants
//! - `valid`, which mappings read, never exceeds the file's length: it changes only under `length`,
//!   goes down before the file is cut and up after it has grown.
//! - An error of a sync is returned as it is, and all later ones fail: trying another way of syncing
//!   after one has failed could report success for pages the system has already given up.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffer::{check_board, end_of};
use crate::disk::{Disk, LockError};
use crate::map::{BOARD_BYTES, Board, Mapping};
use crate::pin::{Pin, Pins};

mod dir;
mod handle;
mod holder;
mod platform;
mod syncer;

pub use dir::FileDir;
pub(crate) use handle::Handle;
use syncer::{SYNCERS, Syncers};

/// What an open file may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// One file of the operating system.
#[derive(Debug)]
pub struct FileDisk {
    file: Arc<Handle>,
    access: Access,
    /// Held while the length changes or is looked up.
    length: Mutex<()>,
    /// The length mappings may rely on.
    valid: Arc<AtomicU64>,
    /// The newest mapping, shared by readers.
    mapping: Mutex<Option<Mapping>>,
    syncers: Syncers,
    pins: Arc<Pins>,
}

impl FileDisk {
    /// Makes an empty file; fails if the name is taken. The name is durable on return.
    pub fn create_new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        platform::set_mode(&mut options);
        let file = options.open(path)?;
        // Order: the file before the name that leads to it.
        let named = file.sync_all().and_then(|()| sync_dir(&parent(path)));
        if let Err(error) = named {
            // The caller was told there is no file; leaving one behind would make a retry fail.
            let _best_effort = std::fs::remove_file(path);
            return Err(error);
        }
        Self::over(file, Access::Write)
    }

    /// Opens an existing file for reading and writing.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        check_is_file(path.as_ref())?;
        Self::over(OpenOptions::new().read(true).write(true).open(path)?, Access::Write)
    }

    /// Opens an existing file; every change is refused by the system.
    ///
    /// The length seen by mappings is brought up to date by [`Disk::len`] and [`Disk::map`], so a
    /// reader beside a writer in another process calls one of them before it looks further.
    pub fn open_read_only(path: impl AsRef<Path>) -> io::Result<Self> {
        check_is_file(path.as_ref())?;
        Self::over(OpenOptions::new().read(true).open(path)?, Access::Read)
    }

    /// The name of the file itself that a path leads to, without links on the way.
    pub fn resolve(path: impl AsRef<Path>) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }

    /// True if a name leads to this very file, whatever way it goes.
    pub fn is_at(&self, path: impl AsRef<Path>) -> io::Result<bool> {
        let there = match std::fs::metadata(path.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            there => there?,
        };
        Ok(platform::is_same(&self.file.metadata()?, &there))
    }

    /// Gives this file the mode of another one, and its owner as far as this process may: whoever could not read that one
    /// must not be able to read what takes its place.
    pub fn take_after(&self, other: &FileDisk) -> io::Result<()> {
        let like = other.file.metadata()?;
        // First the owner, because changing that may take bits away from the mode.
        platform::set_owner(&self.file, &like);
        self.file.set_permissions(like.permissions())
    }

    /// Gives a file another name in the same directory, in place of whatever had it, atomically and durably. The file
    /// itself must be synced.
    pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
        std::fs::rename(from.as_ref(), to.as_ref())?;
        sync_dir(&parent(to.as_ref()))
    }

    /// Removes a file, durably.
    pub fn remove(path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::remove_file(path.as_ref())?;
        sync_dir(&parent(path.as_ref()))
    }

    fn over(file: File, access: Access) -> io::Result<Self> {
        let file = Arc::new(Handle::new(file));
        let pins = Pins::of_file(&file);
        // Whoever only reads has nothing to sync.
        let count = if access == Access::Write { SYNCERS } else { 1 };
        let syncers = Syncers::new(&file, count);
        let disk = FileDisk {
            file,
            syncers,
            access,
            length: Mutex::new(()),
            valid: Arc::new(AtomicU64::new(0)),
            mapping: Mutex::new(None),
            pins,
        };
        disk.len()?;
        Ok(disk)
    }

    fn length(&self) -> MutexGuard<'_, ()> {
        self.length.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the system for the length and passes it on to the mappings.
    fn refresh(&self, _held: &MutexGuard<'_, ()>) -> io::Result<u64> {
        let len = self.file.metadata()?.len();
        self.valid.store(len, Ordering::Release);
        Ok(len)
    }

    fn mapping(&self, len: u64) -> io::Result<Mapping> {
        let mut newest = self.mapping.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mapping) = newest.as_ref().filter(|mapping| mapping.capacity() >= len) {
            return Ok(mapping.clone());
        }
        let mapping = Mapping::of_file(&self.file, len, &self.valid)?;
        *newest = Some(mapping.clone());
        Ok(mapping)
    }
}

impl Disk for FileDisk {
    fn len(&self) -> io::Result<u64> {
        self.refresh(&self.length())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let held = self.length();
        // Order: hide the bytes before they go. A reader that still borrowed them breaks the
        // mapping contract, a reader that asks now gets nothing.
        self.valid.fetch_min(len, Ordering::Release);
        let result = self.file.set_len(len);
        self.refresh(&held)?;
        result
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = end_of(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        let held = self.length();
        let old = self.refresh(&held)?;
        let result = match platform::allocate(&self.file, offset, len) {
            Err(error) if platform::is_unsupported(&error) => {
                // Only past the old end: what is there already must not change.
                platform::write_zeros(&self.file, old, end)
            }
            result => result,
        };
        let reached = self.refresh(&held)?;
        if result.is_err() && reached > old {
            // A full disk may have taken part of the range; nobody has been told of it yet.
            self.valid.fetch_min(old, Ordering::Release);
            let _best_effort = self.file.set_len(old);
            self.refresh(&held)?;
        }
        result
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        platform::read_exact_at(&self.file, buf, offset)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let end = end_of(offset, u64::try_from(buf.len()).unwrap_or(u64::MAX))?;
        let result = platform::write_all_at(&self.file, buf, offset);
        // A failed write may have extended the file as well.
        if end > self.valid.load(Ordering::Relaxed) {
            self.refresh(&self.length())?;
        }
        result
    }

    fn sync(&self) -> io::Result<()> {
        self.syncers.sync()
    }

    fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = end_of(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        match self.access {
            Access::Write => self.syncers.sync_range(offset, len, end, &self.valid),
            // A mapping of a file not opened for writing would accept the call and sync nothing.
            Access::Read => self.syncers.sync(),
        }
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match platform::punch(&self.file, offset, len) {
            Err(error) if platform::is_unsupported(&error) => {
                let end = end_of(offset, len)?.min(self.len()?);
                platform::write_zeros(&self.file, offset, end)
            }
            result => result,
        }
    }

    fn map(&self, len: u64) -> io::Result<Mapping> {
        self.len()?;
        self.mapping(len)
    }

    fn lock(&self) -> Result<(), LockError> {
        match self.file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => {
                Err(LockError::Held { pid: holder::holder(&self.file) })
            }
            Err(TryLockError::Error(error)) => Err(LockError::Io(error)),
        }
    }

    fn board(&self, offset: u64) -> io::Result<Board> {
        check_board(offset, self.len()?)?;
        match self.access {
            Access::Read => Board::of_file_read_only(&self.file, offset),
            Access::Write => {
                // A store into a hole of a full disk would raise SIGBUS; here it is an error.
                self.allocate(offset, BOARD_BYTES)?;
                Board::of_file(&self.file, offset)
            }
        }
    }

    fn pin(&self, byte: u64) -> io::Result<Pin> {
        self.pins.pin(byte)
    }

    fn is_pinned(&self, below: u64) -> io::Result<bool> {
        self.pins.is_pinned(below)
    }
}

/// Refuses what is no file before it is opened: opening a pipe waits for its other end.
fn check_is_file(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_file() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
}

/// The directory a path lies in.
fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes the names in a directory durable.
#[cfg(unix)]
fn sync_dir(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).open(path)?.sync_all()
}

/// Elsewhere directories cannot be synced; the file system journals names by itself.
#[cfg(not(unix))]
fn sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}
