//! Blocks whose parent is not known yet, by that parent.
//!
//! Anybody can make them at no cost, so there is a limit, of blocks and of their bytes. When it is reached the one that came first
//! goes, with all its rows: a flood may push good ones out, which are sent again some day, but never keeps them out.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;

use ledger::{Batch, Snapshot};

use crate::error::Error;
use crate::hash::Hash;
use crate::tables::{BLOCKS, HEADERS, INDEX, ORPHANS};

/// Most blocks that wait at once, and most bytes of them.
const COUNT_MAX: usize = 10_000;
const BYTES_MAX: usize = 512 << 20;

/// A block that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) hash: Hash,
    pub(super) parent: Hash,
    /// Bytes of the block.
    pub(super) len: usize,
}

/// Blocks that wait.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    by_parent: HashMap<Hash, Vec<Hash>>,
    waiting: HashMap<Hash, Orphan>,
    /// In the order in which they came. Some do not wait any more.
    order: VecDeque<Hash>,
    bytes: usize,
}

impl Orphans {
    /// Those that the store has.
    pub(super) fn load(snapshot: &dyn Snapshot) -> Result<Orphans, Error> {
        let mut orphans = Orphans::default();
        for row in snapshot.scan(ORPHANS, (Bound::Unbounded, Bound::Unbounded))? {
            let (hash, parent) = row?;
            if let (Some(hash), Some(parent)) = (Hash::from_slice(&hash), Hash::from_slice(&parent))
            {
                let len = snapshot.get(BLOCKS, hash.as_bytes())?.map_or(0, |bytes| bytes.len());
                orphans.add(Orphan { hash, parent, len });
            }
        }
        Ok(orphans)
    }

    /// True of a block that waits.
    pub(super) fn contains(&self, hash: Hash) -> bool {
        self.waiting.contains_key(&hash)
    }

    /// Those that must go so that one of so many bytes may wait.
    pub(super) fn in_the_way_of(&self, orphan: &Orphan) -> Vec<Hash> {
        let mut gone = Vec::new();
        let (mut count, mut bytes) = (self.waiting.len() + 1, self.bytes + orphan.len);
        for oldest in self.order.iter().filter_map(|hash| self.waiting.get(hash)) {
            if count <= COUNT_MAX && bytes <= BYTES_MAX {
                break;
            }
            count -= 1;
            bytes -= oldest.len;
            gone.push(oldest.hash);
        }
        gone
    }

    /// A block waits for its parent.
    pub(super) fn add(&mut self, orphan: Orphan) {
        if self.waiting.insert(orphan.hash, orphan).is_none() {
            self.by_parent.entry(orphan.parent).or_default().push(orphan.hash);
            self.order.push_back(orphan.hash);
            self.bytes += orphan.len;
        }
        if self.order.len() > 2 * self.waiting.len().max(COUNT_MAX) {
            self.order.retain(|hash| self.waiting.contains_key(hash));
        }
    }

    /// Blocks that others wait for.
    pub(super) fn parents(&self) -> Vec<Hash> {
        self.by_parent.keys().copied().collect()
    }

    /// Those that wait for a block, and do not any more.
    pub(super) fn take(&mut self, parent: Hash) -> Vec<Hash> {
        let mut waiting = self.by_parent.remove(&parent).unwrap_or_default();
        waiting.iter().for_each(|hash| self.forget(*hash));
        waiting.sort_unstable();
        waiting
    }

    /// A block does not wait any more.
    pub(super) fn remove(&mut self, hash: Hash) {
        let Some(orphan) = self.waiting.get(&hash) else { return };
        let parent = orphan.parent;
        if let Some(siblings) = self.by_parent.get_mut(&parent) {
            siblings.retain(|sibling| *sibling != hash);
            if siblings.is_empty() {
                self.by_parent.remove(&parent);
            }
        }
        self.forget(hash);
    }

    fn forget(&mut self, hash: Hash) {
        let gone = self.waiting.remove(&hash);
        self.bytes -= gone.map_or(0, |orphan| orphan.len);
        while self.order.front().is_some_and(|oldest| !self.waiting.contains_key(oldest)) {
            self.order.pop_front();
        }
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

/// Notes in a batch that a block that waited is not known any more.
pub(super) fn drop_rows(batch: &mut Batch, hash: Hash) {
    for table in [HEADERS, BLOCKS, INDEX, ORPHANS] {
        batch.delete(table, hash.as_bytes());
    }
}
