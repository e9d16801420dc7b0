//! Looking up many keys at once: what each will need is loaded before the first is looked up.
//!
//! Waiting for memory, lookups one after the other wait for one cache line at a time; here the loads of all keys overlap.
//! Waiting for the disk, the system is asked for the pages of all keys first, and for those of one key at once. Asking costs
//! a call even for what is in memory, so it is done only while lookups turn out to be slow.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::format::record::RecordHeader;
use crate::image::Image;
use crate::log::Log;
use crate::overlay::DELETE_BIT;
use crate::view::View;

/// Keys looked up together. More would not fit the processor's queues for loads, nor most disks'.
pub(crate) const AHEAD: usize = 32;
/// Bytes of a record that are loaded: header, key, and some of the value.
const NEAR: usize = 192;
/// Most bytes of a record that the disk is asked for before its length is known.
const FAR: usize = 64 << 10;
/// Nanoseconds a key from which on lookups wait for the disk, and up to which they do not.
const SLOW_NS: u64 = 10_000;
const QUICK_NS: u64 = 2_000;
/// Quick lookups in a row until the disk is not asked any more: some records are in memory by chance.
const PATIENCE: u64 = 64;

/// Whether lookups have to wait for the disk.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Quick lookups that are still put up with; none if lookups are not slow.
    patience: AtomicU64,
    /// How long the last record was that somebody waited for: the next one may be as long.
    len: AtomicUsize,
}

impl Pace {
    pub(crate) fn is_slow(&self) -> bool {
        self.patience.load(Ordering::Relaxed) > 0
    }

    /// So many lookups took so long.
    pub(crate) fn note(&self, count: usize, nanos: u64) {
        let count = u64::try_from(count).unwrap_or(u64::MAX).max(1);
        let each = nanos / count;
        if each >= SLOW_NS {
            self.patience.store(PATIENCE, Ordering::Relaxed);
        } else if each <= QUICK_NS && self.is_slow() {
            // Lookups of several threads may take each other's notes away: that only ends it sooner or later.
            let left = self.patience.load(Ordering::Relaxed).saturating_sub(count);
            self.patience.store(left, Ordering::Relaxed);
        }
    }

    /// A record was found that is so long.
    pub(crate) fn note_len(&self, len: u64) {
        self.len.store(usize::try_from(len).unwrap_or(FAR).min(FAR), Ordering::Relaxed);
    }

    /// Bytes of a record that the disk is asked for.
    fn far(&self) -> usize {
        self.len.load(Ordering::Relaxed).max(NEAR)
    }
}

impl View {
    /// Asks the system for the pages that lookups of these hashes will read.
    pub(crate) fn prefetch(&self, log: &Log, hashes: &[u64], pace: &Pace) {
        let far = pace.far();
        for hash in hashes {
            self.image.prefetch(log, *hash);
        }
        for hash in hashes {
            for paddr in self.leads(log, *hash) {
                log.prefetch(paddr, far);
            }
        }
    }

    /// Loads what lookups of these hashes will read: step by step, all hashes at each.
    pub(crate) fn touch(&self, log: &Log, hashes: &[u64]) {
        self.touch_index(log, hashes);
        for hash in hashes {
            for paddr in self.leads(log, *hash) {
                log.touch(paddr, NEAR);
            }
        }
    }

    /// Loads what the index says of these hashes: the filters, and then the slots that those leave.
    pub(crate) fn touch_index(&self, log: &Log, hashes: &[u64]) {
        for hash in hashes {
            self.overlays().for_each(|overlay| overlay.touch_filter(*hash));
            self.image.touch_filter(*hash);
        }
        for hash in hashes {
            match self.overlays().find(|overlay| overlay.may_have_hash(*hash)) {
                Some(overlay) => overlay.touch_home(*hash),
                None => self.image.touch_home(log, *hash),
            }
        }
    }

    /// Where the records of a hash are, as far as a quick look tells.
    fn leads(&self, log: &Log, hash: u64) -> impl Iterator<Item = u64> {
        let named = self.overlays().find_map(|overlay| overlay.peek(hash));
        named.map(|entry| entry & !DELETE_BIT).or_else(|| self.image.peek(log, hash)).into_iter()
    }
}

const _: () = assert!(NEAR >= RecordHeader::SIZE);

impl Image {
    /// Asks the system for the page of a hash.
    fn prefetch(&self, log: &Log, hash: u64) {
        if let Some((at, len)) = self.page_range(hash) {
            log.prefetch(at, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_asked_only_while_lookups_are_slow() {
        let pace = Pace::default();
        pace.note(32, 32 * 1_000);
        assert!(!pace.is_slow(), "from memory");
        pace.note(32, 32 * 50_000);
        assert!(pace.is_slow(), "from the disk");
        pace.note(32, 32 * 5_000);
        assert!(pace.is_slow(), "partly from the disk");
        (1..PATIENCE).for_each(|_| pace.note(1, 1_000));
        assert!(pace.is_slow(), "quick by chance");
        pace.note(0, 0);
        assert!(!pace.is_slow(), "quick again");
        pace.note(1, 50_000);
        pace.note(32, 32 * 1_000);
        pace.note(32, 32 * 1_000);
        assert!(!pace.is_slow(), "quick in batches");
    }

    #[test]
    fn the_disk_is_asked_for_as_much_as_the_last_record_took() {
        let pace = Pace::default();
        assert_eq!(pace.far(), NEAR);
        pace.note_len(5_000);
        assert_eq!(pace.far(), 5_000);
        pace.note_len(1 << 40);
        assert_eq!(pace.far(), FAR);
    }
}
