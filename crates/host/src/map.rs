//! Mapped memory: lending a file's bytes without copying them, and sharing words with other
//! processes. Other `unsafe` of the crate: a system call in `locks`, a slice in `words`, instructions in
//! `prefetch` and `crc`.
//!
//! Two kinds of memory stand behind a [`Mapping`]: a shared, read-only mapping of a file, and a
//! [`Region`], anonymous memory that plays the file for the disks that live in memory. A [`Board`]
//! is one page of either kind.
//!
//! # Why the lent slices are sound
//!
//! - Address: a mapping never moves and is unmapped only when the last `Mapping` (or `Region`) that
//!   shares it is dropped. A slice borrows its `Mapping`, so it cannot outlive the memory.
//! - Bounds: a slice ends before both the capacity, which is mapped, and the valid length, which
//!   never exceeds the file's. The disk lowers the valid length before it cuts the file and raises
//!   it after the file has grown, so pages that would raise SIGBUS are not reached.
//! - Aliasing: nobody writes through a file mapping, it is read-only. Bytes change under a slice
//!   only when its range is written, punched or cut off, and the mapping contract of [`Disk`]
//!   forbids that to the disk's owner while the range is lent. This part is a promise of the safe
//!   code above and not a proof: the store keeps it by appending, and by reusing space only after
//!   the last reader that can see it is gone.
//! - Other processes: a writer holds the exclusive lock, and the lock lives as long as the disk or
//!   any of its mappings. A program that ignores the lock can change or cut the file under a slice;
//!   nothing short of copying guards against that. A read-only opener relies on the writer, which
//!   reuses no range a reader can still see, and never makes a file shorter than what was
//!   published.
//! - Coherence: a write made with `pwrite` is seen through a shared mapping of the same file,
//!   because both use the same page cache. Linux, the BSDs, macOS and Windows promise this for
//!   local files; network file systems do not, and are not supported.
//! - I/O errors: a page that cannot be read from the medium raises SIGBUS, as for every mapped
//!   file.
//!
//! # Why the words of a board are sound
//!
//! - Address and bounds: as above, with a page that lies inside the file when it is mapped and that
//!   nobody may cut off. If somebody does, the next access raises SIGBUS; it reaches no other
//!   memory.
//! - Aliasing: every access of every process is an atomic one, of aligned words. [`Disk`] forbids
//!   to lend the page or to write to it in any other way.
//! - Read-only memory: of a board that is not writable only relaxed loads are made, since Rust
//!   promises of no others that they never write. Fences around them give the order asked for.
//!
//! # Growth
//!
//! On Linux a file mapping reserves far more address space than the file has bytes. Pages become
//! usable as the file grows under them, so growth moves the valid length and nothing else.

#![allow(clippy::expect_used, reason = "offsets that were checked against the mapping")]
#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};

use crate::file::Handle;

#[cfg(doc)]
use crate::disk::Disk;

/// Reservations are rounded up to this; every supported page size divides it.
const GRAIN: u64 = 64 * 1024;

/// Address space reserved for a file of any size, where the platform lets a mapping exceed its
/// file.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const RESERVE: u64 = 1 << 40;

/// Address space reserved beyond the file's length where that is too much.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const LIMITED: u64 = 32 << 20;

/// Zeroing at least this much gives whole pages back to the system instead of writing to them.
#[cfg(target_os = "linux")]
const DISCARD_MIN: usize = 256 * 1024;

/// Bytes of a board: one page, however large the system's pages are.
pub(crate) const BOARD_BYTES: u64 = 4096;

/// Words of a board.
const BOARD_WORDS: usize = 512;

/// A file's bytes, readable in place.
///
/// A clone shares the memory. The lock of the disk it came from is held as long as it lives.
#[derive(Clone)]
pub struct Mapping {
    /// Start of `memory`, kept here to save one indirection on every read.
    base: NonNull<u8>,
    capacity: u64,
    valid: Arc<AtomicU64>,
    memory: Arc<MmapRaw>,
    /// What must stay alive while bytes can be lent: the handle that holds the lock.
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: `base` points into `memory`, which is Send and Sync and lives as long as `self`. All
// access through it is reading, under the argument at the head of this file.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method changes anything but the atomic length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a file for reading, at least `len` bytes of it and more where that costs nothing.
    /// `valid` is the file's length, kept by the disk.
    pub(crate) fn of_file(
        file: &Arc<Handle>,
        len: u64,
        valid: &Arc<AtomicU64>,
    ) -> io::Result<Self> {
        let keep: Arc<dyn Any + Send + Sync> = Arc::<Handle>::clone(file);
        let memory = reserve(file, len)?;
        Self::over(Arc::new(memory), Arc::clone(valid), keep)
    }

    fn over(
        memory: Arc<MmapRaw>,
        valid: Arc<AtomicU64>,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> io::Result<Self> {
        let base = NonNull::new(memory.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?;
        let capacity = u64::try_from(memory.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, capacity, valid, memory, _keep: keep })
    }

    /// Lends `len` bytes at `offset`, or nothing if the range is not inside the valid length.
    #[inline]
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let room = self.valid_len().checked_sub(offset)?;
        if u64::try_from(len).ok()? > room {
            return None;
        }
        let start = usize::try_from(offset).ok()?;
        // SAFETY: start + len <= min(capacity, valid length), so the range is mapped, inside the
        // file, and shorter than isize::MAX. Nobody writes to it while it is lent (see the head of
        // this file). The slice borrows `self`, which keeps the memory mapped.
        Some(unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(start), len) })
    }

    /// Bytes this mapping can ever show. A file that outgrows it must be mapped again.
    #[inline]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes it shows now: the file's length as its disk knows it, at most the capacity.
    #[inline]
    pub fn valid_len(&self) -> u64 {
        // Acquire pairs with the Release after growth: who sees the new length finds the file
        // grown.
        self.valid.load(Ordering::Acquire).min(self.capacity)
    }

    /// Tells the system that reads come in no order, so that it reads no more than asked. Best
    /// effort; holds for every mapping that shares this memory.
    pub fn advise_random(&self) {
        // Advice may be refused without harm.
        #[cfg(unix)]
        let _refused = self.memory.advise(memmap2::Advice::Random);
    }

    /// Asks the system to have a range in memory soon. Best effort.
    pub fn prefetch(&self, offset: u64, len: usize) {
        if self.bytes(offset, len).is_none() || len == 0 {
            return;
        }
        #[cfg(unix)]
        if let Ok(start) = usize::try_from(offset) {
            // Advice may be refused without harm.
            let _refused = self.memory.advise_range(memmap2::Advice::WillNeed, start, len);
        }
    }

    /// Makes the file's dirty pages in a range durable; false if that cannot be done here.
    ///
    /// Linux runs `msync` of a shared mapping as a data sync of that range of the file, including
    /// the flush of the device's cache, if the file was opened for writing.
    #[cfg(target_os = "linux")]
    pub(crate) fn flush(&self, offset: u64, len: u64) -> io::Result<bool> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.capacity);
        let (Ok(start), Ok(len), true) = (usize::try_from(offset), usize::try_from(len), inside)
        else {
            return Ok(false);
        };
        loop {
            match self.memory.flush_range(start, len) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(|()| true),
            }
        }
    }

    /// Elsewhere `msync` is not known to reach the medium.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn flush(&self, _offset: u64, _len: u64) -> io::Result<bool> {
        Ok(false)
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping")
            .field("capacity", &self.capacity)
            .field("valid_len", &self.valid_len())
            .finish_non_exhaustive()
    }
}

/// One page of a file as 512 words, numbered from 0, shared by everybody who has a board of it.
///
/// In the file the words are little-endian. A clone shares the memory. The lock of the disk it came
/// from is held as long as it lives.
#[derive(Clone)]
pub struct Board {
    /// One page.
    memory: Arc<MmapRaw>,
    writable: bool,
    /// What must stay alive with the board: the handle that holds the lock.
    _keep: Arc<dyn Any + Send + Sync>,
}

impl Board {
    /// Shares a page of a file that is open for writing. The caller has checked the offset.
    pub(crate) fn of_file(file: &Arc<Handle>, offset: u64) -> io::Result<Self> {
        let memory = Arc::new(one_page().offset(offset).map_raw(&***file)?);
        Ok(Board { memory, writable: true, _keep: Arc::<Handle>::clone(file) })
    }

    /// Watches a page of a file. The caller has checked the offset.
    pub(crate) fn of_file_read_only(file: &Arc<Handle>, offset: u64) -> io::Result<Self> {
        let memory = Arc::new(one_page().offset(offset).map_raw_read_only(&***file)?);
        Ok(Board { memory, writable: false, _keep: Arc::<Handle>::clone(file) })
    }

    /// A page of zeros without a file.
    pub(crate) fn in_memory() -> io::Result<Self> {
        let memory = Arc::new(MmapRaw::from(one_page().map_anon()?));
        Ok(Board { memory, writable: true, _keep: Arc::new(()) })
    }

    /// The same page; `keep` lives as long as the new board.
    pub(crate) fn keeping(&self, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Board { memory: Arc::clone(&self.memory), writable: self.writable, _keep: keep }
    }

    /// Reads a word; 0 if there is none with this number.
    ///
    /// Orderings are at least as strong as those of `AtomicU64::load`; those that make no sense for
    /// a load do no harm.
    #[inline]
    pub fn load(&self, index: usize, order: Ordering) -> u64 {
        let Some(word) = self.words().get(index) else {
            return 0;
        };
        if order == Ordering::SeqCst {
            fence(order);
        }
        let value = word.load(Ordering::Relaxed);
        if order != Ordering::Relaxed {
            fence(order);
        }
        u64::from_le(value)
    }

    /// Writes a word, with the orderings of `AtomicU64::store`. Nothing happens if there is none
    /// with this number, or if the disk was opened read-only.
    ///
    /// # Panics
    ///
    /// If the ordering is one for loads, as `AtomicU64::store` does.
    #[inline]
    pub fn store(&self, index: usize, value: u64, order: Ordering) {
        if let Some(word) = self.words().get(index).filter(|_| self.writable) {
            word.store(value.to_le(), order);
        }
    }

    /// False if the disk was opened read-only, so that `store` does nothing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the memory is one page, mapped as long as `self` lives, and aligned to one
        // because its offset in the file is. Everybody who shares it uses atomics, and `store`
        // alone writes (see the head of this file).
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), BOARD_WORDS) }
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("writable", &self.writable).finish_non_exhaustive()
    }
}

/// A mapping of one board. Where the system's pages are larger, the mapping begins at the system's
/// page and its address at the offset asked for.
fn one_page() -> MmapOptions {
    let mut options = MmapOptions::new();
    options.len(BOARD_WORDS * size_of::<AtomicU64>());
    options
}

/// Maps as much address space as a file will ever need. Where the process may not have that much, it maps little more than `len` bytes:
/// the process needs the rest for its own memory.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn reserve(file: &File, len: u64) -> io::Result<MmapRaw> {
    let least = rounded(len)?;
    map_exactly(file, least.saturating_mul(4).max(RESERVE))
        .or_else(|_| map_exactly(file, least.saturating_add(LIMITED)))
        .or_else(|_| map_exactly(file, least))
}

/// Elsewhere a mapping may not exceed its file, so it is made anew when the file has grown.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn reserve(file: &File, len: u64) -> io::Result<MmapRaw> {
    map_exactly(file, len)
}

fn map_exactly(file: &File, len: u64) -> io::Result<MmapRaw> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    MmapOptions::new().len(len).map_raw_read_only(file)
}

fn rounded(len: u64) -> io::Result<u64> {
    let rounded = len.max(1).checked_next_multiple_of(GRAIN);
    rounded.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Zeroed memory of fixed size that never moves: the medium of the disks that live in memory.
///
/// Invariant: bytes at and past the length are zero.
pub(crate) struct Region {
    memory: Arc<MmapRaw>,
    capacity: u64,
    len: Arc<AtomicU64>,
}

impl Region {
    /// Reserves address space; pages cost memory only once written.
    pub(crate) fn new(capacity: u64) -> io::Result<Self> {
        let capacity = rounded(capacity)?;
        let size = usize::try_from(capacity).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let memory = MmapOptions::new().len(size).no_reserve_swap().map_anon()?;
        let len = Arc::new(AtomicU64::new(0));
        Ok(Region { memory: Arc::new(MmapRaw::from(memory)), capacity, len })
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Moves the end; the bytes cut off become zero. The caller keeps it within the capacity.
    pub(crate) fn set_len(&mut self, len: u64) {
        assert!(len <= self.capacity, "the owner makes a larger region first");
        let old = self.len();
        // Order: hide the bytes from new borrowers before they are cleared.
        self.len.store(len, Ordering::Release);
        if len < old {
            self.clear(len, old);
        }
    }

    /// The bytes up to the length.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = usize::try_from(self.len()).expect("the length is within mapped memory");
        // SAFETY: the length is within the mapped memory, and writing takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), len) }
    }

    /// Copies `data` to `offset`, and moves the end if the range ends past it. The caller keeps it
    /// within the capacity.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let len = u64::try_from(data.len()).expect("a slice is shorter than 2^64");
        let end = offset.saturating_add(len);
        assert!(end <= self.capacity, "the owner makes a larger region first");
        let start = usize::try_from(offset).expect("the range is in mapped memory");
        // SAFETY: the range is mapped (just checked). `&mut self` keeps other writers and `bytes`
        // out, and slices lent by mappings do not overlap it by the mapping contract. `data` may
        // come from this very region, hence `copy` and not the kind that forbids overlap.
        unsafe {
            let target = self.memory.as_mut_ptr().add(start);
            std::ptr::copy(data.as_ptr(), target, data.len());
        }
        // Order: contents, then the length that shows them. Release makes it so for other threads.
        self.len.fetch_max(end, Ordering::Release);
    }

    /// Makes a range within the length read as zeros.
    pub(crate) fn zero(&mut self, from: u64, to: u64) {
        assert!(to <= self.len(), "the range is within the length");
        self.clear(from, to);
    }

    /// A view that follows this region's length. `keep` lives as long as the view.
    pub(crate) fn mapping(&self, keep: Arc<dyn Any + Send + Sync>) -> io::Result<Mapping> {
        Mapping::over(Arc::clone(&self.memory), Arc::clone(&self.len), keep)
    }

    /// True if some mapping shows this region.
    pub(crate) fn is_mapped(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    fn clear(&mut self, from: u64, to: u64) {
        let len = usize::try_from(to.saturating_sub(from)).expect("the range is in mapped memory");
        let from = usize::try_from(from).expect("the range is in mapped memory");
        #[cfg(target_os = "linux")]
        if len >= DISCARD_MIN {
            // Whole pages are dropped; a private anonymous mapping reads as zeros there afterwards.
            let grain = usize::try_from(GRAIN).expect("the grain is small");
            let first = from.next_multiple_of(grain);
            let end = (from + len) / grain * grain;
            // SAFETY: the pages are inside this region, and nobody borrows them (mapping contract).
            let dropped = unsafe {
                self.memory.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    first,
                    end - first,
                )
            };
            if dropped.is_ok() {
                self.clear_bytes(from, first - from);
                self.clear_bytes(end, from + len - end);
                return;
            }
        }
        self.clear_bytes(from, len);
    }

    fn clear_bytes(&mut self, start: usize, len: usize) {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.memory.len()));
        // SAFETY: the range is mapped (just checked), and not lent out by the mapping contract.
        unsafe { std::ptr::write_bytes(self.memory.as_mut_ptr().add(start), 0, len) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len())
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
