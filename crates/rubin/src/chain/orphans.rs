//! Blocks that are kept and do not count: those whose parent is not known yet, those on top of an invalid one, by that parent, and
//! the marks of invalid headers.
//!
//! Anybody can make them at no cost, so there is a limit, of blocks and of their bytes. When it is reached the one that came first
//! goes, with all its rows: a flood may push good ones out, which are sent again some day, but never keeps them out.

use std::collections::{HashMap, VecDeque};
use std::ops::Bound;

use ledger::{Batch, Snapshot};

use super::bodies::OtherBodies;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::Status;
use crate::store::Store;
use crate::tables::{BLOCKS, HEADERS, INDEX, ORPHANS, REASONS, UNDO};

/// Most blocks that are kept at once, and most bytes of them.
const COUNT_MAX: usize = 10_000;
const BYTES_MAX: usize = 512 << 20;

/// A block that is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub(super) hash: Hash,
    pub(super) parent: Hash,
    /// Orphaned and on top of an invalid block, it waits for its parent. With an invalid header it waits for nothing.
    pub(super) status: Status,
    /// Bytes of all its bodies.
    pub(super) len: usize,
}

impl Orphan {
    /// True if it has something to go on to when its parent is known.
    fn goes_on(&self, is_parent_invalid: bool) -> bool {
        match self.status {
            Status::Orphaned => true,
            Status::InvalidAncestry => !is_parent_invalid,
            _ => false,
        }
    }
}

/// Blocks that are kept and do not count.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    by_parent: HashMap<Hash, Vec<Hash>>,
    kept: HashMap<Hash, Orphan>,
    /// In the order in which they came. Some are not there any more.
    order: VecDeque<Hash>,
    bytes: usize,
}

impl Orphans {
    /// Those that the store has.
    pub(super) fn load(snapshot: &dyn Snapshot, bodies: &OtherBodies) -> Result<Orphans, Error> {
        let store = Store::new(snapshot);
        let mut orphans = Orphans::default();
        for row in snapshot.scan(ORPHANS, (Bound::Unbounded, Bound::Unbounded))? {
            let (hash, parent) = row?;
            let (Some(hash), Some(parent)) = (Hash::from_slice(&hash), Hash::from_slice(&parent))
            else {
                continue;
            };
            // A damaged one of these keeps nobody from the chain.
            let index = match store.index(hash) {
                Err(Error::Damaged { .. }) => None,
                index => index?,
            };
            if let Some(index) = index {
                let len = snapshot.get(BLOCKS, hash.as_bytes())?.map_or(0, |bytes| bytes.len());
                let len = len + bodies.len_of(hash);
                orphans.put(Orphan { hash, parent, status: index.status, len });
            }
        }
        Ok(orphans)
    }

    /// A block that is kept.
    pub(super) fn get(&self, hash: Hash) -> Option<&Orphan> {
        self.kept.get(&hash)
    }

    /// Those that must go so that one may be kept, or have so many bytes.
    pub(super) fn in_the_way_of(&self, orphan: &Orphan) -> Vec<Hash> {
        let mut gone = Vec::new();
        let is_new = !self.kept.contains_key(&orphan.hash);
        let mut count = self.kept.len() + usize::from(is_new);
        let mut bytes = self.bytes + orphan.len - self.len_of(orphan.hash);
        for oldest in self.order.iter().filter_map(|hash| self.kept.get(hash)) {
            if count <= COUNT_MAX && bytes <= BYTES_MAX {
                break;
            }
            if oldest.hash != orphan.hash {
                count -= 1;
                bytes -= oldest.len;
                gone.push(oldest.hash);
            }
        }
        gone
    }

    fn len_of(&self, hash: Hash) -> usize {
        self.kept.get(&hash).map_or(0, |orphan| orphan.len)
    }

    /// A block is kept, or what is kept of it is another now.
    pub(super) fn put(&mut self, orphan: Orphan) {
        self.bytes = self.bytes + orphan.len - self.len_of(orphan.hash);
        if self.kept.insert(orphan.hash, orphan).is_none() {
            self.by_parent.entry(orphan.parent).or_default().push(orphan.hash);
            self.order.push_back(orphan.hash);
        }
        if self.order.len() > 2 * self.kept.len().max(COUNT_MAX) {
            self.order.retain(|hash| self.kept.contains_key(hash));
        }
    }

    /// Blocks that others wait for.
    pub(super) fn parents(&self) -> Vec<Hash> {
        self.by_parent.keys().copied().collect()
    }

    /// Those on top of a block that go on now that it is known.
    pub(super) fn going_on(&self, parent: Hash, is_parent_invalid: bool) -> Vec<Hash> {
        let going = self.children(parent).filter(|child| child.goes_on(is_parent_invalid));
        let mut going: Vec<Hash> = going.map(|child| child.hash).collect();
        going.sort_unstable();
        going
    }

    /// All that are on top of a block.
    pub(super) fn children(&self, parent: Hash) -> impl Iterator<Item = &Orphan> {
        let children = self.by_parent.get(&parent).into_iter().flatten();
        children.filter_map(|child| self.kept.get(child))
    }

    /// A block is not kept any more.
    pub(super) fn remove(&mut self, hash: Hash) {
        let Some(orphan) = self.kept.remove(&hash) else { return };
        self.bytes -= orphan.len;
        if let Some(siblings) = self.by_parent.get_mut(&orphan.parent) {
            siblings.retain(|sibling| *sibling != hash);
            if siblings.is_empty() {
                self.by_parent.remove(&orphan.parent);
            }
        }
        while self.order.front().is_some_and(|oldest| !self.kept.contains_key(oldest)) {
            self.order.pop_front();
        }
    }
}

/// Notes in a batch that a block is kept and does not count.
pub(super) fn note(batch: &mut Batch, hash: Hash, parent: Hash) {
    batch.put(ORPHANS, hash.as_bytes(), parent.as_bytes());
}

/// Notes in a batch that a block counts, or is refused for good.
pub(super) fn forget(batch: &mut Batch, hash: Hash) {
    batch.delete(ORPHANS, hash.as_bytes());
}

/// Notes in a batch that a block is not known any more.
pub(super) fn drop_rows(batch: &mut Batch, hash: Hash) {
    for table in [HEADERS, BLOCKS, INDEX, UNDO, REASONS, ORPHANS] {
        batch.delete(table, hash.as_bytes());
    }
}
