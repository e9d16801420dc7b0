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
    /// Gives the children of the inner node at the end of so many half bytes of a path, each with its place, in order.
    fn read(&self, path: &Hash, depth: usize, take: impl FnMut(usize, Child)) -> Result<(), Error> {
        let (key, len) = node::row_key(path, depth);
        let key = key.get(..len).unwrap_or(&[]);
        if depth >= DEPTH_MAX {
            return Err(Error::damaged(TREE, key, "a path has no more half bytes"));
        }
        let row = self.snapshot.get(TREE, key)?;
        let row = row.ok_or_else(|| Error::damaged(TREE, key, "the row of a node is missing"))?;
        node::read(&row, take).map_err(|rule| Error::damaged(TREE, key, rule.text()))
    }

    /// All places of that node together.
    pub(crate) fn children(&self, path: &Hash, depth: usize) -> Result<Children, Error> {
        let mut children = Children::default();
        self.read(path, depth, |at, child| {
            if let Some(place) = children.get_mut(at) {
                *place = child;
            }
        })?;
        Ok(children)
    }

    /// Applies changes, which are in the order of their paths, each path once. Gives what stands above all then, and the rows that
    /// become others, of each thread by themselves.
    pub(crate) fn change(
        &self,
        top: Child,
        changes: &[Change],
        threads: usize,
    ) -> Result<(Child, Vec<Batch>), Error> {
        let mut last = Batch::new();
        let path = match (top, changes.first()) {
            (Child::Inner(_), Some(change)) if changes.len() >= FOR_A_THREAD => change.path,
            _ => {
                let child = self.upper(top, 0, changes, &mut last)?;
                return Ok((child, vec![last]));
            }
        };
        let mut children = self.children(&path, 0)?;
        let parts: Vec<(usize, &[Change])> = by_nibble(changes, 0, |change| &change.path).collect();
        let done = threads::over(&parts, threads, 1, |parts| {
            let mut batch = Batch::new();
            let mut changed = Vec::with_capacity(parts.len());
            for (nibble, changes) in parts {
                let child = children.get(*nibble).copied().unwrap_or_default();
                changed.push((*nibble, self.upper(child, 1, changes, &mut batch)?));
            }
            Ok::<_, Error>((changed, batch))
        });
        let mut batches = Vec::with_capacity(done.len() + 1);
        for part in done {
            let (changed, batch) = part?;
            batches.push(batch);
            for (nibble, child) in changed {
                if let Some(place) = children.get_mut(nibble) {
                    *place = child;
                }
            }
        }
        let child = assemble(&children, &path, 0, true, &mut last);
        batches.push(last);
        Ok((child, batches))
    }

    /// Near the top: parts of the tree below one after the other, so that not all of their nodes are in memory at once.
    fn upper(
        &self,
        at: Child,
        depth: usize,
        changes: &[Change],
        batch: &mut Batch,
    ) -> Result<Child, Error> {
        let path = match (at, changes.first()) {
            (_, None) => return Ok(at),
            (Child::Inner(_), Some(change)) if depth < PART => change.path,
            _ => return self.part(at, depth, changes, batch),
        };
        let mut children = self.children(&path, depth)?;
        for (nibble, part) in by_nibble(changes, depth, |change| &change.path) {
            if let Some(place) = children.get_mut(nibble) {
                *place = self.upper(*place, depth + 1, part, batch)?;
            }
        }
        Ok(assemble(&children, &path, depth, true, batch))
    }

    /// A part of the tree.
    fn part(
        &self,
        at: Child,
        depth: usize,
        changes: &[Change],
        batch: &mut Batch,
    ) -> Result<Child, Error> {
        let mut made = Made::default();
        let twig = self.walk(at, depth, changes, &mut made, batch)?;
        made.hash();
        write(&made, batch);
        Ok(made.child(&twig))
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
                let mut twigs: Vec<(usize, Twig)> = Vec::with_capacity(16);
                self.read(path, depth, |at, child| twigs.push((at, Twig::Known(child))))?;
                for (nibble, part) in by_nibble(changes, depth, |change| &change.path) {
                    let place = twigs.binary_search_by_key(&nibble, |(at, _)| *at);
                    let at = match place.map(|place| twigs.get(place)) {
                        Ok(Some((_, Twig::Known(child)))) => *child,
                        _ => Child::Empty,
                    };
                    let twig = self.walk(at, depth + 1, part, made, batch)?;
                    match (place, matches!(twig, Twig::Known(Child::Empty))) {
                        (Ok(place), true) => drop(twigs.remove(place)),
                        (Ok(place), false) => {
                            if let Some(old) = twigs.get_mut(place) {
                                old.1 = twig;
                            }
                        }
                        (Err(_), true) => {}
                        (Err(place), false) => twigs.insert(place, (nibble, twig)),
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
        // Two entries part somewhere on their paths, unless somebody wrote down where none can be.
        if let Some(old) = &old
            && ((0..depth).any(|at| old.path.nibble(at) != path.nibble(at))
                || changes.iter().any(|change| change.path == old.path))
        {
            let (key, len) = node::row_key(path, depth);
            let wrong = "a leaf is of something else than what can be there";
            return Err(Error::damaged(TREE, key.get(..len).unwrap_or(&[]), wrong));
        }
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
    let mut value = Vec::new();
    for node in &made.nodes {
        let (key, len) = node::row_key(&node.path, node.depth);
        value.clear();
        node::put_value(&mut value, made.children(node));
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
