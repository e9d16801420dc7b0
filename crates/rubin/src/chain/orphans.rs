//! Blocks whose parent is not known yet, by that parent.

use std::collections::HashMap;
use std::ops::Bound;

use ledger::{Batch, Snapshot};

use crate::error::Error;
use crate::hash::Hash;
use crate::tables::ORPHANS;

/// Most blocks that wait at once; whoever sends more must send them again.
pub(super) const ORPHANS_MAX: usize = 10_000;

/// Blocks that wait.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    by_parent: HashMap<Hash, Vec<Hash>>,
    count: usize,
}

impl Orphans {
    /// Those that the store has.
    pub(super) fn load(snapshot: &dyn Snapshot) -> Result<Orphans, Error> {
        let mut orphans = Orphans::default();
        for row in snapshot.scan(ORPHANS, (Bound::Unbounded, Bound::Unbounded))? {
            let (hash, parent) = row?;
            if let (Some(hash), Some(parent)) = (Hash::from_slice(&hash), Hash::from_slice(&parent))
            {
                orphans.add(hash, parent);
            }
        }
        Ok(orphans)
    }

    /// True if one more may wait.
    pub(super) fn has_room(&self) -> bool {
        self.count < ORPHANS_MAX
    }

    /// A block waits for its parent.
    pub(super) fn add(&mut self, hash: Hash, parent: Hash) {
        let waiting = self.by_parent.entry(parent).or_default();
        if !waiting.contains(&hash) {
            waiting.push(hash);
            self.count += 1;
        }
    }

    /// Blocks that others wait for.
    pub(super) fn parents(&self) -> Vec<Hash> {
        self.by_parent.keys().copied().collect()
    }

    /// Those that wait for a block, and do not any more.
    pub(super) fn take(&mut self, parent: Hash) -> Vec<Hash> {
        let mut waiting = self.by_parent.remove(&parent).unwrap_or_default();
        self.count -= waiting.len();
        waiting.sort_unstable();
        waiting
    }
}

/// Notes in a batch that a block waits.
pub(super) fn note(batch: &mut Batch, hash: Hash, parent: Hash) {
    batch.put(ORPHANS, hash.as_bytes(), parent.as_bytes());
}

/// Notes in a batch that a block does not wait any more.
pub(super) fn forget(batch: &mut Batch, hash: Hash) {
    batch.delete(ORPHANS, hash.as_bytes());
}
