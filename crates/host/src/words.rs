//! Words in memory that belong to nobody's file: the tables of an index.
//!
//! A large table is asked of the system in large pages. Its words are looked up at random, so with small pages every lookup
//! would wait for the page table as well, and filling it would fault thousands of times, each time twice, because a word
//! is read before it is written.
//!
//! Why the slice is sound: the memory is there as long as `self` is, has so many words, is aligned, zero at first, and
//! nobody else knows of it. All access is atomic.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use memmap2::{MmapOptions, MmapRaw};

/// From so many bytes on a table is mapped by itself.
const LARGE: usize = 2 << 20;
/// Only a whole number of large pages is placed where large pages can be.
const PAGE: usize = 2 << 20;

/// Words that many threads may use, all zero at first.
pub struct Words {
    /// Start of the memory, kept here to save a question on every access.
    base: NonNull<AtomicU64>,
    count: usize,
    _memory: Memory,
}

/// Held for as long as `base` points into it.
enum Memory {
    /// A `Vec`, because a `Box` claims that nobody else points into it whenever it is moved.
    Small {
        _words: Vec<AtomicU64>,
    },
    Large {
        _mapping: MmapRaw,
    },
}

// SAFETY: `base` points into `_memory`, which is Send and Sync, does not move with `self` and lives as long.
unsafe impl Send for Words {}
// SAFETY: as above; all access is atomic.
unsafe impl Sync for Words {}

impl Words {
    /// So many of them. The system hands them out as they are touched.
    pub fn zeroed(count: usize) -> io::Result<Words> {
        let len = count.checked_mul(size_of::<AtomicU64>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if len < LARGE {
            let words: Vec<AtomicU64> = (0..count).map(|_| AtomicU64::new(0)).collect();
            let base = NonNull::from(words.as_slice()).cast();
            return Ok(Words { base, count, _memory: Memory::Small { _words: words } });
        }
        let mapped = len.checked_next_multiple_of(PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory: MmapRaw = MmapOptions::new().len(mapped).map_anon()?.into();
        // Advice may be refused without harm.
        #[cfg(target_os = "linux")]
        let _refused = memory.advise(memmap2::Advice::HugePage);
        let base = NonNull::new(memory.as_mut_ptr()).ok_or(io::ErrorKind::OutOfMemory)?.cast();
        Ok(Words { base, count, _memory: Memory::Large { _mapping: memory } })
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: see the head of this file.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Words").field("count", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_of_any_size_are_zero_and_keep_what_is_stored() {
        let large = [LARGE / 8 - 1, LARGE / 8, LARGE / 8 + 1, 3 * LARGE / 8 + 5];
        // Miri takes no advice about pages, and an hour for the rest.
        let large: &[usize] = if cfg!(miri) { &[] } else { &large };
        for &count in [0, 1, 1000].iter().chain(large) {
            let words = Words::zeroed(count).unwrap();
            assert_eq!(words.len(), count);
            assert!(words.iter().all(|word| word.load(Relaxed) == 0));
            for (value, word) in (1..).zip(words.iter()) {
                word.store(value, Relaxed);
            }
            let sum: u64 = words.iter().map(|word| word.load(Relaxed)).sum();
            let count = u64::try_from(count).unwrap();
            assert_eq!(sum, count * (count + 1) / 2);
        }
    }

    #[test]
    fn more_than_there_can_be_is_an_error() {
        assert!(Words::zeroed(usize::MAX).is_err());
        assert!(Words::zeroed(usize::MAX / 16).is_err());
    }
}
