//! Which records an image names, as bits over the file, so that a scan passes over dead ones without reading them.
//!
//! A bit stands for a stretch of the file, at most eight bits a key. A dead record that shares a stretch with a live one
//! looks live; who relies on the bits must look at tombstones too, and finds the newer record of its key beside it. A
//! live one never looks dead.

use crate::sync::{AtomicU64, Ordering, Words, zeroed};

/// Smallest stretch: records are at least 48 bytes apart.
const SHIFT_MIN: u32 = 5;

/// Bits over the file.
#[derive(Debug)]
pub(crate) struct Liveness {
    words: Words,
    shift: u32,
}

impl Liveness {
    /// All dead, for a file of so many bytes with about so many keys.
    pub(crate) fn new(file_bytes: u64, keys: u64) -> Liveness {
        let most = keys.saturating_mul(8).max(1 << 16);
        let mut shift = SHIFT_MIN;
        while file_bytes >> shift > most {
            shift += 1;
        }
        let words = (file_bytes >> shift) / 64 + 1;
        Liveness { words: zeroed(usize::try_from(words).unwrap_or(usize::MAX)), shift }
    }

    #[inline]
    fn place(&self, paddr: u64) -> (Option<&AtomicU64>, u64) {
        let bit = paddr >> self.shift;
        (usize::try_from(bit / 64).ok().and_then(|word| self.words.get(word)), 1 << (bit % 64))
    }

    /// Marks a record as live; only one thread may do this, and nobody asks yet.
    #[inline]
    pub(crate) fn add(&self, paddr: u64) {
        if let (Some(word), bit) = self.place(paddr) {
            word.store(word.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        }
    }

    /// Loads the word of a record into the cache.
    #[inline]
    pub(crate) fn touch(&self, paddr: u64) {
        if let (Some(word), _) = self.place(paddr) {
            host::prefetch(word);
        }
    }

    /// False if the record at `paddr` was never marked.
    #[inline]
    pub(crate) fn may_be_live(&self, paddr: u64) -> bool {
        match self.place(paddr) {
            (Some(word), bit) => word.load(Ordering::Relaxed) & bit != 0,
            // Written after the image.
            (None, _) => true,
        }
    }
}
