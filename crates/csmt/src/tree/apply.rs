//! Changes of a block, applied together.
//!
//! A row has the nodes of a few depths. Whoever stands highest among them writes it, when everything below is done: the node at the row's
//! position, or, if there is none, the branch above whose jump leads past it. A node's digest is of all that is below it; so where a node
//! is as it was, so are the rows of which it is the highest.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use ledger::Batch;

use super::twig::{Below, Nodes, Sides, Twig};
use super::{delete, put};
use crate::error::Error;
use crate::format::tuft::Slot;
use crate::hash::{Hash, Node, join};
use crate::path::{Bits, Path};

/// So many changes on each side of a branch are worth a thread.
const FOR_A_THREAD: usize = 256;
/// Branches above each other that are kept in memory. Below that are only paths that somebody made up.
pub(super) const LEVELS: usize = 600;

/// A change of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) path: Path,
    /// The digest of its value; none if it goes.
    pub(crate) value: Option<Hash>,
    /// It is in the tree.
    pub(crate) is_there: bool,
}

/// What applying changes takes and gives.
pub(super) struct Work<'a> {
    nodes: Nodes<'a>,
    turn: u32,
    threads: usize,
    /// Bytes of stack that a thread needs, if they are more than it has anyway.
    stack: Option<usize>,
    /// Rows that become others.
    pub(super) batch: Batch,
    /// Bytes of nodes that came into memory.
    pub(super) grown: usize,
    /// Branches above the one that is worked at.
    level: usize,
    /// A row that is being made.
    row: Vec<u8>,
}

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Its row is as it was.
    Same,
    /// It has another row.
    Changed,
    /// Nothing is left of it.
    Gone,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        nodes: Nodes<'a>,
        turn: u32,
        threads: usize,
        stack: Option<usize>,
    ) -> Work<'a> {
        let (batch, row) = (Batch::new(), Vec::new());
        Work { nodes, turn, threads, stack, batch, grown: 0, level: 0, row }
    }

    /// Applies changes, all of whose paths go through a position, to the node there. The row at the position is the caller's. What is
    /// gone is not to be looked at any more.
    pub(super) fn apply(
        &mut self,
        twig: &mut Twig,
        position: &mut Bits,
        changes: &[Change],
    ) -> Result<Fate, Error> {
        let start = position.len();
        // The changes are sorted: those that share the fewest bits with the jump are at the ends.
        let shared = |change: &Change| change.path.common(start, &twig.node.jump);
        let ends = [changes.first(), changes.last()];
        let Some(shared) = ends.into_iter().flatten().map(shared).min() else {
            return Ok(Fate::Same);
        };
        let jump_len = twig.node.jump.len();
        // A path that all others begin with comes first.
        if let Some((first, rest)) = changes.split_first()
            && first.path.len() == start + shared
        {
            return match first.is_there && shared == jump_len {
                true => self.replace(twig, first, position, rest),
                false => self.replace_all(twig, first, position, rest),
            };
        }
        if shared < jump_len {
            return self.split(twig, shared, position, changes);
        }
        position.append(&twig.node.jump);
        self.know(twig, position)?;
        let fate = self.branch(twig, position, changes)?;
        position.truncate(start);
        Ok(fate)
    }

    /// Reads what is below a node that ends at a base, unless that is known.
    fn know(&mut self, twig: &mut Twig, base: &mut Bits) -> Result<(), Error> {
        if matches!(twig.below, Below::Unknown) {
            twig.below = match self.nodes.sides(base, self.turn)? {
                Some(twigs) => {
                    self.grown += size_of::<Sides>();
                    self.grown += twigs.iter().map(Twig::all_bytes).sum::<usize>();
                    Below::Sides(Box::new(Sides { twigs, turn: self.turn }))
                }
                None => Below::Leaf,
            };
        }
        Ok(())
    }

    /// Applies changes to both sides of a branch.
    fn branch(
        &mut self,
        twig: &mut Twig,
        base: &mut Bits,
        changes: &[Change],
    ) -> Result<Fate, Error> {
        let Below::Sides(sides) = &mut twig.below else { return beside_a_leaf(changes) };
        let start = base.len() - twig.node.jump.len();
        let [left, right] = &mut sides.twigs;
        let fates = self.both(left, right, base, changes)?;
        if !fates.contains(&Fate::Gone) {
            self.write_sides(start, base, &mut sides.twigs, fates)?;
            return Ok(self.rehash(twig, start, base));
        }
        // There is no branch any more: what is left on one side moves up.
        let is_right = match fates {
            [Fate::Gone, Fate::Gone] => {
                self.clear(start, base);
                return Ok(Fate::Gone);
            }
            [gone, _] => gone == Fate::Gone,
        };
        let left_over = std::mem::take(if is_right { right } else { left });
        *twig = self.lift(start, base, &twig.node.jump, is_right, left_over)?;
        Ok(Fate::Changed)
    }

    /// The digest of a branch whose sides are known.
    fn rehash(&mut self, twig: &mut Twig, start: usize, base: &Bits) -> Fate {
        let Below::Sides(sides) = &mut twig.below else { return Fate::Same };
        sides.turn = self.turn;
        let [left, right] = &sides.twigs;
        let value = join(&left.node, &right.node);
        let is_same = value == twig.node.value;
        twig.node.value = value;
        // What shares a row with this node is still needed to write that.
        if self.level > LEVELS && self.row_of_sides(base) > start {
            twig.below = Below::Unknown;
        }
        if is_same { Fate::Same } else { Fate::Changed }
    }

    /// How long the position of the row is that has the sides of a branch; longer than the branch if each has its own.
    fn row_of_sides(&self, base: &Bits) -> usize {
        self.nodes.form.start(base.len() + 1)
    }

    /// Writes the rows in which the sides of a branch stand highest. The node above them is at a position of so many bits.
    fn write_sides(
        &mut self,
        start: usize,
        base: &mut Bits,
        twigs: &mut [Twig; 2],
        fates: [Fate; 2],
    ) -> Result<(), Error> {
        let (len, row) = (base.len(), self.row_of_sides(base));
        if row > len {
            for ((bit, twig), fate) in [false, true].into_iter().zip(twigs).zip(fates) {
                if fate == Fate::Changed {
                    base.push(bit);
                    self.write(base, twig)?;
                    base.truncate(len);
                }
            }
        } else if row > start && fates.contains(&Fate::Changed) {
            self.row.clear();
            self.gather_sides(twigs, base, self.nodes.form.slot(base))?;
            put(&mut self.batch, self.nodes.form, &base.first(row), &self.row);
        }
        Ok(())
    }

    /// Writes the row at the position of a node.
    pub(super) fn write(&mut self, position: &mut Bits, twig: &mut Twig) -> Result<(), Error> {
        self.row.clear();
        self.gather(twig, position, self.nodes.form.slot(position))?;
        put(&mut self.batch, self.nodes.form, position, &self.row);
        Ok(())
    }

    /// Adds a node, and what shares a row with it below it.
    fn gather(&mut self, twig: &mut Twig, position: &mut Bits, slot: Slot) -> Result<(), Error> {
        self.nodes.form.add(&mut self.row, slot, &twig.node);
        let Some(branch) = slot.branch(&twig.node.jump) else { return Ok(()) };
        let len = position.len();
        position.append(&twig.node.jump);
        self.know(twig, position)?;
        if let Below::Sides(sides) = &mut twig.below {
            self.gather_sides(&mut sides.twigs, position, branch)?;
        }
        position.truncate(len);
        Ok(())
    }

    fn gather_sides(
        &mut self,
        twigs: &mut [Twig; 2],
        base: &mut Bits,
        branch: Slot,
    ) -> Result<(), Error> {
        let len = base.len();
        for (bit, twig) in [false, true].into_iter().zip(twigs) {
            base.push(bit);
            self.gather(twig, base, branch.then(bit))?;
            base.truncate(len);
        }
        Ok(())
    }

    /// Deletes the rows in which the sides of a branch stood highest.
    fn clear(&mut self, start: usize, base: &mut Bits) {
        let (len, row) = (base.len(), self.row_of_sides(base));
        if row > len {
            for bit in [false, true] {
                base.push(bit);
                delete(&mut self.batch, self.nodes.form, base);
                base.truncate(len);
            }
        } else if row > start {
            delete(&mut self.batch, self.nodes.form, &base.first(row));
        }
    }

    /// What is left on one side of a branch takes its place, and gets its jump in front of its own.
    fn lift(
        &mut self,
        start: usize,
        base: &mut Bits,
        jump: &Path,
        is_right: bool,
        mut twig: Twig,
    ) -> Result<Twig, Error> {
        self.clear(start, base);
        // What was in one row with it below it may now stand highest there.
        let len = base.len();
        base.push(is_right);
        base.append(&twig.node.jump);
        let row = self.row_of_sides(base);
        if row > start && row <= len + 1 {
            self.know(&mut twig, base)?;
            if let Below::Sides(sides) = &mut twig.below {
                self.write_sides(start, base, &mut sides.twigs, [Fate::Changed; 2])?;
            }
        }
        base.truncate(len);
        let mut bits = Bits::from(jump);
        bits.push(is_right);
        bits.append(&twig.node.jump);
        // It is no longer than the path of the entry below it.
        twig.node.jump = bits.finish().unwrap_or_default();
        Ok(twig)
    }

    /// An entry whose path everything here begins with can come only if all of that goes.
    fn replace_all(
        &mut self,
        twig: &mut Twig,
        change: &Change,
        position: &mut Bits,
        rest: &[Change],
    ) -> Result<Fate, Error> {
        let Some(value) = change.value else { return Err(not_there(change)) };
        if !rest.is_empty() && self.apply(twig, position, rest)? == Fate::Gone {
            let jump = change.path.from(position.len());
            *twig = Twig::leaf(Node { jump, value });
            return Ok(Fate::Changed);
        }
        Err(Error::Prefix(change.path.clone()))
    }

    /// A change of the very entry that stands here, and others whose paths begin with its.
    fn replace(
        &mut self,
        twig: &mut Twig,
        change: &Change,
        position: &mut Bits,
        rest: &[Change],
    ) -> Result<Fate, Error> {
        if matches!(twig.below, Below::Sides(_)) {
            return Err(not_there(change));
        }
        match (change.value, rest.first()) {
            (Some(_), Some(other)) => Err(Error::Prefix(other.path.clone())),
            (Some(value), None) => {
                let is_same = value == twig.node.value;
                twig.node.value = value;
                twig.below = Below::Leaf;
                Ok(if is_same { Fate::Same } else { Fate::Changed })
            }
            (None, _) => Ok(match self.build(position, rest)? {
                Some(built) => {
                    *twig = built;
                    Fate::Changed
                }
                None => Fate::Gone,
            }),
        }
    }

    /// Some path leaves the jump: the node moves down, and a branch comes where it was, unless everything on one of its sides goes.
    fn split(
        &mut self,
        twig: &mut Twig,
        shared: usize,
        position: &mut Bits,
        changes: &[Change],
    ) -> Result<Fate, Error> {
        let start = position.len();
        let jump = twig.node.jump.part(0, shared);
        let is_right = twig.node.jump.bit(shared);
        let mut moved = std::mem::take(twig);
        moved.node.jump = moved.node.jump.from(shared + 1);
        position.append(&jump);
        let middle = changes.partition_point(|change| !change.path.bit(start + shared));
        let (left, right) = changes.split_at(middle);
        let (own, others) = if is_right { (right, left) } else { (left, right) };
        self.level += 1;
        position.push(is_right);
        let fate = if own.is_empty() { Fate::Same } else { self.apply(&mut moved, position, own)? };
        position.truncate(start + shared);
        position.push(!is_right);
        let built = self.build(position, others)?;
        position.truncate(start + shared);
        self.level -= 1;
        // Somebody leaves the jump, so something is built.
        if let Some(built) = built {
            *twig = match (fate, is_right) {
                (Fate::Gone, _) => self.lift(start, position, &jump, !is_right, built)?,
                (_, false) => self.join(start, jump, [moved, built], position)?,
                (_, true) => self.join(start, jump, [built, moved], position)?,
            };
        }
        position.truncate(start);
        Ok(Fate::Changed)
    }

    /// A branch with two sides that are new where they are.
    fn join(
        &mut self,
        start: usize,
        jump: Path,
        mut twigs: [Twig; 2],
        base: &mut Bits,
    ) -> Result<Twig, Error> {
        self.write_sides(start, base, &mut twigs, [Fate::Changed; 2])?;
        self.grown += size_of::<Sides>();
        let node = Node { jump, value: Hash::default() };
        let sides = Sides { twigs, turn: self.turn };
        let mut twig = Twig { node, below: Below::Sides(Box::new(sides)) };
        self.rehash(&mut twig, start, base);
        Ok(twig)
    }

    /// Applies changes on both sides of a branch, at the same time if there are many.
    fn both(
        &mut self,
        left: &mut Twig,
        right: &mut Twig,
        base: &mut Bits,
        changes: &[Change],
    ) -> Result<[Fate; 2], Error> {
        let len = base.len();
        let middle = changes.partition_point(|change| !change.path.bit(len));
        let (of_left, of_right) = changes.split_at(middle);
        self.level += 1;
        let is_worth_it = self.threads > 1 && of_left.len().min(of_right.len()) >= FOR_A_THREAD;
        let fates = if is_worth_it {
            self.beside_each_other((left, of_left), (right, of_right), base)?
        } else {
            let mut side = |work: &mut Self, twig, bit, changes: &[Change]| {
                if changes.is_empty() {
                    return Ok(Fate::Same);
                }
                base.push(bit);
                let fate = work.apply(twig, base, changes);
                base.truncate(len);
                fate
            };
            [side(self, left, false, of_left)?, side(self, right, true, of_right)?]
        };
        self.level -= 1;
        Ok(fates)
    }

    fn beside_each_other(
        &mut self,
        (left, of_left): (&mut Twig, &[Change]),
        (right, of_right): (&mut Twig, &[Change]),
        base: &mut Bits,
    ) -> Result<[Fate; 2], Error> {
        let len = base.len();
        let threads = self.threads / 2;
        let mut other = Work::new(self.nodes, self.turn, self.threads - threads, self.stack);
        other.level = self.level;
        let mut beside = base.clone();
        beside.push(true);
        let all = std::mem::replace(&mut self.threads, threads);
        let (fate, other_fate) = std::thread::scope(|scope| {
            let task = start(scope, self.stack, || other.apply(right, &mut beside, of_right));
            base.push(false);
            let fate = self.apply(left, base, of_left);
            base.truncate(len);
            (fate, task.ok().map(end))
        });
        // If there was no room for a thread, it is one side after the other.
        let other_fate = other_fate.unwrap_or_else(|| other.apply(right, &mut beside, of_right));
        self.threads = all;
        self.batch.append(&other.batch);
        self.grown += other.grown;
        Ok([fate?, other_fate?])
    }

    /// A tree of nothing but new entries.
    pub(super) fn build(
        &mut self,
        position: &mut Bits,
        changes: &[Change],
    ) -> Result<Option<Twig>, Error> {
        let start = position.len();
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Ok(None) };
        if let Some(change) = changes.iter().find(|change| change.value.is_none()) {
            return Err(not_there(change));
        }
        if let ([_], Some(value)) = (changes, first.value) {
            self.grown += first.path.bytes().len();
            return Ok(Some(Twig::leaf(Node { jump: first.path.from(start), value })));
        }
        let end = first.path.common(0, &last.path);
        if end >= first.path.len().min(last.path.len()) {
            return Err(Error::Prefix(first.path.clone()));
        }
        let jump = first.path.part(start, end);
        position.append(&jump);
        let middle = changes.partition_point(|change| !change.path.bit(end));
        let (left, right) = changes.split_at(middle);
        self.level += 1;
        let mut side = |work: &mut Self, bit, changes: &[Change]| {
            position.push(bit);
            let built = work.build(position, changes);
            position.truncate(end);
            built
        };
        let sides = (side(self, false, left)?, side(self, true, right)?);
        self.level -= 1;
        // The first and the last part here, so there is something on both sides.
        let (Some(left), Some(right)) = sides else { return Ok(None) };
        let built = self.join(start, jump, [left, right], position)?;
        position.truncate(start);
        Ok(Some(built))
    }
}

/// Starts a thread with so much stack, if that is more than it has anyway. The system may have no room for one.
pub(super) fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    stack: Option<usize>,
    task: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Error> {
    let builder = stack.into_iter().fold(Builder::new(), Builder::stack_size);
    let cannot = |source| Error::Io { doing: "start a thread", source };
    builder.spawn_scoped(scope, task).map_err(cannot)
}

/// What a thread came to.
pub(super) fn end<T>(task: ScopedJoinHandle<'_, T>) -> T {
    task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Paths that begin with that of an entry.
fn beside_a_leaf(changes: &[Change]) -> Result<Fate, Error> {
    let change = changes.iter().find(|change| change.value.is_some());
    match change.or(changes.first()) {
        Some(change) if change.value.is_some() => Err(Error::Prefix(change.path.clone())),
        Some(change) => Err(not_there(change)),
        None => Ok(Fate::Same),
    }
}

/// Entries that are known are in the tree.
fn not_there(change: &Change) -> Error {
    Error::Inconsistent(format!("the tree has no entry at {}", change.path))
}
