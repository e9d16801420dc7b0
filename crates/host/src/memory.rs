//! Files in memory: fast, gone with the last handle, and never losing power.

#![allow(clippy::expect_used, reason = "memory for tests, or none at all")]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::buffer::{Buffer, REGION, end_of};
use crate::claim::Claim;
use crate::dir::{Dir, check_name};
use crate::disk::{Disk, LockError};
use crate::map::{Board, Mapping};
use crate::pin::{Pin, Pins};

/// One handle to a file in memory.
///
/// A clone is a handle of its own to the same bytes, as if the file had been opened once more: it
/// does not hold the lock of the handle it came from, nor its pins.
///
/// Boards are kept apart from the bytes: they begin as zeros whatever the page holds, and reading
/// the page does not show them.
#[derive(Debug)]
pub struct MemoryDisk {
    file: Arc<RwLock<Buffer>>,
    claim: Arc<Claim>,
    pins: Arc<Pins>,
}

impl MemoryDisk {
    /// An empty file.
    pub fn new() -> Self {
        Self::with_capacity(REGION)
    }

    /// An empty file that moves to larger memory, and must be mapped again, past `capacity` bytes.
    pub fn with_capacity(capacity: u64) -> Self {
        let buffer = Buffer::new(capacity).expect("address space for a file in memory");
        Self::over(Arc::new(RwLock::new(buffer)), Claim::new())
    }

    /// A file with these contents.
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let disk = MemoryDisk::new();
        disk.write().write(0, &bytes).expect("memory for the contents");
        disk
    }

    /// A copy of the contents.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.read().bytes().to_vec()
    }

    /// A new handle to the same bytes, not holding the lock.
    pub fn reopen(&self) -> Self {
        Self::over(Arc::clone(&self.file), self.claim.sibling())
    }

    fn over(file: Arc<RwLock<Buffer>>, claim: Arc<Claim>) -> Self {
        let pins = Pins::of_claim(&claim);
        MemoryDisk { file, claim, pins }
    }

    fn read(&self) -> RwLockReadGuard<'_, Buffer> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Buffer> {
        self.file.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryDisk {
    fn default() -> Self {
        MemoryDisk::new()
    }
}

impl Clone for MemoryDisk {
    fn clone(&self) -> Self {
        self.reopen()
    }
}

impl Disk for MemoryDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.read().len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.write().set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = end_of(offset, len)?;
        let mut file = self.write();
        if len > 0 && end > file.len() { file.set_len(end) } else { Ok(()) }
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read().read(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.write().write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_range(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write().punch(offset, len);
        Ok(())
    }

    fn map(&self, len: u64) -> io::Result<Mapping> {
        self.write().map(len, Arc::<Claim>::clone(&self.claim))
    }

    fn lock(&self) -> Result<(), LockError> {
        self.claim.lock()
    }

    fn board(&self, offset: u64) -> io::Result<Board> {
        self.write().board(offset, Arc::<Claim>::clone(&self.claim))
    }

    fn pin(&self, byte: u64) -> io::Result<Pin> {
        self.pins.pin(byte)
    }

    fn is_pinned(&self, below: u64) -> io::Result<bool> {
        self.pins.is_pinned(below)
    }
}

/// A directory in memory.
#[derive(Debug, Default)]
pub struct MemoryDir {
    files: Mutex<BTreeMap<String, MemoryDisk>>,
}

impl MemoryDir {
    /// An empty directory.
    pub fn new() -> Self {
        MemoryDir::default()
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<String, MemoryDisk>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dir for MemoryDir {
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        check_name(name)?;
        let mut files = self.files();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let disk = MemoryDisk::new();
        files.insert(name.to_owned(), disk.reopen());
        Ok(Arc::new(disk))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        check_name(name)?;
        let files = self.files();
        let disk = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(disk.reopen()))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        check_name(name)?;
        Ok(self.files().get(name).map(MemoryDisk::to_bytes))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        check_name(name)?;
        self.files().insert(name.to_owned(), MemoryDisk::from_bytes(bytes.to_vec()));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        let removed = self.files().remove(name);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.files().keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
