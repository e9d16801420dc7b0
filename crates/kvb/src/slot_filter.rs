//! A filter over an image: "not here" for the price of one load.
//!
//! A word belongs to eight neighbouring home slots, so that whoever adds hashes in table order goes through the filter
//! from start to end, and needs no cache for it.

use crate::sync::{AtomicU64, Ordering, Words, zeroed};

/// Which hashes have a slot in a table of a power of two of slots.
#[derive(Debug)]
pub(crate) struct SlotFilter {
    words: Words,
    slot_mask: u64,
}

impl SlotFilter {
    /// A filter for a table of so many slots.
    pub(crate) fn new(slot_count: u64) -> SlotFilter {
        let words = usize::try_from(slot_count.div_ceil(8)).unwrap_or(usize::MAX);
        SlotFilter { words: zeroed(words), slot_mask: slot_count - 1 }
    }

    #[inline]
    fn probe(&self, slot_hash: u64) -> (Option<&AtomicU64>, u64) {
        let word = usize::try_from((slot_hash & self.slot_mask) / 8).unwrap_or(usize::MAX);
        // The high bits of a product depend on all bits of the hash.
        let mixed = slot_hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mask = (1 << (mixed >> 58))
            | (1 << (mixed >> 52 & 63))
            | (1 << (mixed >> 46 & 63))
            | (1 << (mixed >> 40 & 63));
        (self.words.get(word), mask)
    }

    /// Adds a hash; only one thread may do this, and nobody asks yet.
    #[inline]
    pub(crate) fn add(&self, slot_hash: u64) {
        if let (Some(word), mask) = self.probe(slot_hash) {
            word.store(word.load(Ordering::Relaxed) | mask, Ordering::Relaxed);
        }
    }

    /// Loads what a hash is looked up in into the cache.
    #[inline]
    pub(crate) fn touch(&self, slot_hash: u64) {
        if let (Some(word), _) = self.probe(slot_hash) {
            host::prefetch(word);
        }
    }

    /// False if the hash was never added.
    #[inline]
    pub(crate) fn may_contain(&self, slot_hash: u64) -> bool {
        let (word, mask) = self.probe(slot_hash);
        word.is_none_or(|word| word.load(Ordering::Relaxed) & mask == mask)
    }
}
