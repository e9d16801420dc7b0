//! A filter over slot hashes in memory: "not here" for the price of one load.

use crate::format::filter;
use crate::sync::{Ordering, Words, zeroed};

/// A filter that one thread adds to while others ask.
#[derive(Debug)]
pub(crate) struct HashFilter {
    words: Words,
}

impl HashFilter {
    /// A filter sized for so many keys.
    pub(crate) fn for_keys(keys: u64) -> HashFilter {
        HashFilter {
            words: zeroed(usize::try_from(filter::word_count(keys)).unwrap_or(usize::MAX)),
        }
    }

    /// Adds a hash; only one thread may do this.
    #[inline]
    pub(crate) fn add(&self, slot_hash: u64) {
        let probe = filter::probe(slot_hash, self.words.len());
        if let Some(word) = self.words.get(probe.word) {
            // No other store can come between. Release: seen before what is added behind it.
            word.store(word.load(Ordering::Relaxed) | probe.mask, Ordering::Release);
        }
    }

    /// Loads what a hash is looked up in into the cache.
    #[inline]
    pub(crate) fn touch(&self, slot_hash: u64) {
        if let Some(word) = self.words.get(filter::probe(slot_hash, self.words.len()).word) {
            host::prefetch(word);
        }
    }

    /// False if the hash was never added.
    #[inline]
    pub(crate) fn may_contain(&self, slot_hash: u64) -> bool {
        let probe = filter::probe(slot_hash, self.words.len());
        self.words
            .get(probe.word)
            .is_none_or(|word| word.load(Ordering::Acquire) & probe.mask == probe.mask)
    }
}
