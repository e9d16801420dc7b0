//! The state tree of v2 in its table: changed together, read for proofs, made from a list.
//!
//! Invariants
//! - Every inner node with at least two entries below it has a row, and no other node has one.
//! - The row of a node has its children, leaves with what they are of; so nothing else is read to split a leaf off or to let one rise.
//! - What stands above all, a node or a leaf or nothing, is noted beside it by whoever commits.
//!
//! A change of an entry reads and writes the nodes above it: about log16 of the number of entries, those near the top once for all
//! changes.

use ledger::{Batch, Snapshot};

use crate::error::Error;
use crate::format::node::{self, Child, Children, Place};
use crate::hash::Hash;
use crate::root2::{DEPTH_MAX, Leaf, Made, Twig, by_nibble, digest};
use crate::tables::TREE;
use crate::threads;

/// A change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Change {
    pub(crate) path: Hash,
    pub(crate) place: Place,
    /// Its leaf, unless it goes.
    pub(crate) digest: Option<Hash>,
}

/// Depth from which a part of the tree is made in one go.
const PART: usize = 2;
/// Changes that are worth a thread.
const FOR_A_THREAD: usize = 512;

/// The rows of nodes.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'a> {
    pub(crate) snapshot: &'a dyn Snapshot,
}

impl Nodes<'_> {
    /// The children of the inner node at the end of so many half bytes of a path.
    pub(crate) fn children(&self, path: &Hash, depth: usize) -> Result<Children, Error> {
        let (key, len) = node::row_key(path, depth);
        let key = key.get(..len).unwrap_or(&[]);
        if depth >= DEPTH_MAX {
            return Err(Error::damaged(TREE, key, "a path has no more half bytes"));
        }
        let row = self.snapshot.get(TREE, key)?;
        let row = row.ok_or_else(|| Error::damaged(TREE, key, "the row of a node is missing"))?;
        node::decode(&row).map_err(|rule| Error::damaged(TREE, key, rule.text()))
    }

    /// Applies changes, which are in the order of their paths, each path once. Gives what stands above all then, and the rows that
    /// become others.
    pub(crate) fn change(
        &self,
        top: Child,
        changes: &[Change],
        threads: usize,
    ) -> Result<(Child, Vec<Batch>), Error> {
        self.upper(top, 0, changes, threads)
    }

    /// Near the top: parts of the tree below, each by itself.
    fn upper(
        &self,
        at: Child,
        depth: usize,
        changes: &[Change],
        threads: usize,
    ) -> Result<(Child, Vec<Batch>), Error> {
        let path = match (at, changes.first()) {
            (_, None) => return Ok((at, Vec::new())),
            (Child::Inner(_), Some(change)) if depth < PART => change.path,
            _ => {
                let (child, rows) = self.part(at, depth, changes)?;
                return Ok((child, vec![rows]));
            }
        };
        let mut children = self.children(&path, depth)?;
        let parts: Vec<(usize, &[Change])> =
            by_nibble(changes, depth, |change| &change.path).collect();
        let is_worth_it = changes.len() >= FOR_A_THREAD;
        let done = threads::over(&parts, if is_worth_it { threads } else { 1 }, 1, |parts| {
            let work = |(nibble, changes): &(usize, &[Change])| {
                let child = children.get(*nibble).copied().unwrap_or_default();
                Ok((*nibble, self.upper(child, depth + 1, changes, 1)?))
            };
            parts.iter().map(work).collect::<Result<Vec<_>, Error>>()
        });
        let mut batches = Vec::new();
        for part in done {
            for (nibble, (child, mut rows)) in part? {
                batches.append(&mut rows);
                if let Some(place) = children.get_mut(nibble) {
                    *place = child;
                }
            }
        }
        let mut batch = Batch::new();
        let child = assemble(&children, &path, depth, true, &mut batch);
        batches.push(batch);
        Ok((child, batches))
    }

    /// A part of the tree.
    fn part(&self, at: Child, depth: usize, changes: &[Change]) -> Result<(Child, Batch), Error> {
        let mut made = Made::default();
        let mut batch = Batch::new();
        let twig = self.walk(at, depth, changes, &mut made, &mut batch)?;
        made.hash();
        write(&made, &mut batch);
        Ok((made.child(&twig), batch))
    }

    fn walk(
        &self,
        at: Child,
        depth: usize,
        changes: &[Change],
        made: &mut Made,
        batch: &mut Batch,
    ) -> Result<Twig, Error> {
        let Some(Change { path, .. }) = changes.first() else { return Ok(Twig::Known(at)) };
        let old = match at {
            Child::Inner(_) => {
                let children = self.children(path, depth)?;
                let mut parts = by_nibble(changes, depth, |change| &change.path).peekable();
                let mut twigs = Vec::new();
                for (nibble, child) in children.into_iter().enumerate() {
                    let twig = match parts.next_if(|(at, _)| *at == nibble) {
                        Some((_, part)) => self.walk(child, depth + 1, part, made, batch)?,
                        None => Twig::Known(child),
                    };
                    if !matches!(twig, Twig::Known(Child::Empty)) {
                        twigs.push((nibble, twig));
                    }
                }
                let twig = made.node(depth, *path, twigs);
                if let Twig::Known(_) = twig {
                    let (key, len) = node::row_key(path, depth);
                    batch.delete(TREE, key.get(..len).unwrap_or(&[]));
                }
                return Ok(twig);
            }
            Child::Leaf(place, digest) => Some((place, digest)),
            Child::Empty => None,
        };
        let old = old.filter(|(place, _)| changes.iter().all(|change| change.place != *place));
        let old = old.map(|(place, digest)| Leaf { path: place.path(), place, digest });
        let new = changes.iter().filter_map(|change| {
            Some(Leaf { path: change.path, place: change.place, digest: change.digest? })
        });
        let mut leaves: Vec<Leaf> = old.into_iter().chain(new).collect();
        leaves.sort_unstable();
        Ok(made.build(&leaves, depth))
    }
}

/// What stands at a node with these children; its row is written, or deleted if there was one and it is not needed.
fn assemble(
    children: &Children,
    path: &Hash,
    depth: usize,
    was_there: bool,
    batch: &mut Batch,
) -> Child {
    let (key, len) = node::row_key(path, depth);
    let key = key.get(..len).unwrap_or(&[]);
    let mut present = children.iter().filter(|child| **child != Child::Empty);
    match (present.next(), present.next()) {
        (None, _) | (Some(Child::Leaf(..)), None) => {
            if was_there {
                batch.delete(TREE, key);
            }
            children.iter().find(|child| **child != Child::Empty).copied().unwrap_or_default()
        }
        _ => {
            batch.put(TREE, key, &node::value(children));
            Child::Inner(digest(children))
        }
    }
}

fn write(made: &Made, batch: &mut Batch) {
    for node in &made.nodes {
        let (key, len) = node::row_key(&node.path, node.depth);
        let value = node::value(&made.children(node));
        batch.put(TREE, key.get(..len).unwrap_or(&[]), &value);
    }
}

/// A tree that is made from its leaves, which come in parts: all that have the same first byte of their paths together.
#[derive(Debug)]
pub(crate) struct Growing {
    /// What stands below each first byte.
    below: Vec<Child>,
}

impl Default for Growing {
    fn default() -> Growing {
        Growing { below: vec![Child::Empty; 256] }
    }
}

impl Growing {
    /// Takes the leaves with some first bytes, in the order of their paths.
    pub(crate) fn take(&mut self, leaves: &[Leaf], threads: usize, rows: bool) -> Vec<Batch> {
        let parts: Vec<&[Leaf]> =
            leaves.chunk_by(|a, b| a.path.0.first() == b.path.0.first()).collect();
        let done = threads::over(&parts, threads, 1, |parts| {
            let mut batches = Vec::new();
            for part in parts {
                let mut made = Made::default();
                let twig = made.build(part, PART);
                made.hash();
                let mut batch = Batch::new();
                if rows {
                    write(&made, &mut batch);
                }
                let first = part.first().and_then(|leaf| leaf.path.0.first().copied());
                batches.push((first.unwrap_or(0), made.child(&twig), batch));
            }
            batches
        });
        let mut batches = Vec::new();
        for (first, child, batch) in done.into_iter().flatten() {
            if let Some(place) = self.below.get_mut(usize::from(first)) {
                *place = child;
            }
            batches.push(batch);
        }
        batches
    }

    /// What stands above all.
    pub(crate) fn finish(self, batch: &mut Batch) -> Child {
        let mut children = Children::default();
        for ((nibble, place), below) in children.iter_mut().enumerate().zip(self.below.chunks(16)) {
            let mut path = Hash::ZERO;
            if let Some(first) = path.0.first_mut() {
                *first = u8::try_from(nibble << 4).unwrap_or(0);
            }
            let below = Children::try_from(below).unwrap_or_default();
            *place = assemble(&below, &path, 1, false, batch);
        }
        assemble(&children, &Hash::ZERO, 0, false, batch)
    }
}
