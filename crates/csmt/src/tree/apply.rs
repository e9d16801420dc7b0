//! Changes of a block, applied together.

use ledger::Batch;

use super::twig::{Below, Nodes, Sides, Twig};
use super::{delete, put};
use crate::error::Error;
use crate::hash::{Hash, Node, join};
use crate::path::{Bits, Path};

/// So many changes on each side of a branch are worth a thread.
const FOR_A_THREAD: usize = 256;
/// Branches above each other that are kept in memory. Below that are only paths that somebody made up.
const LEVELS: usize = 600;

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
    /// Rows that become others.
    pub(super) batch: Batch,
    /// Bytes of nodes that came into memory.
    pub(super) grown: usize,
    /// Branches above the one that is worked at.
    level: usize,
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
    pub(super) fn new(nodes: Nodes<'a>, turn: u32, threads: usize) -> Work<'a> {
        Work { nodes, turn, threads, batch: Batch::new(), grown: 0, level: 0 }
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
        if matches!(twig.below, Below::Unknown)
            && let Some([left, right]) = self.nodes.sides(position)?
        {
            self.grown += size_of::<Sides>() + left.jump.bytes().len() + right.jump.bytes().len();
            let twigs = [Twig::unknown(left), Twig::unknown(right)];
            twig.below = Below::Sides(Box::new(Sides { twigs, turn: self.turn }));
        }
        let fate = self.branch(twig, position, changes)?;
        position.truncate(start);
        Ok(fate)
    }

    /// Applies changes to both sides of a branch.
    fn branch(
        &mut self,
        twig: &mut Twig,
        base: &mut Bits,
        changes: &[Change],
    ) -> Result<Fate, Error> {
        let Below::Sides(sides) = &mut twig.below else { return beside_a_leaf(changes) };
        let [left, right] = &mut sides.twigs;
        let fates = self.both(left, right, base, changes)?;
        if !fates.contains(&Fate::Gone) {
            for ((bit, side), fate) in [(false, left), (true, right)].into_iter().zip(fates) {
                if fate == Fate::Changed {
                    self.put(base, bit, &side.node);
                }
            }
            return Ok(self.rehash(twig));
        }
        // There is no branch any more: what is left on one side moves up.
        for bit in [false, true] {
            base.push(bit);
            delete(&mut self.batch, self.nodes.form, base);
            base.truncate(base.len() - 1);
        }
        let is_right = match fates {
            [Fate::Gone, Fate::Gone] => return Ok(Fate::Gone),
            [gone, _] => gone == Fate::Gone,
        };
        let left_over = std::mem::take(if is_right { right } else { left });
        *twig = lifted(&twig.node.jump, is_right, left_over);
        Ok(Fate::Changed)
    }

    /// The digest of a branch whose sides are known.
    fn rehash(&mut self, twig: &mut Twig) -> Fate {
        let Below::Sides(sides) = &mut twig.below else { return Fate::Same };
        sides.turn = self.turn;
        let [left, right] = &sides.twigs;
        let value = join(&left.node, &right.node);
        let is_same = value == twig.node.value;
        twig.node.value = value;
        if self.level > LEVELS {
            twig.below = Below::Unknown;
        }
        if is_same { Fate::Same } else { Fate::Changed }
    }

    /// Adds the row of a node beside a branch bit.
    fn put(&mut self, base: &mut Bits, bit: bool, node: &Node) {
        base.push(bit);
        put(&mut self.batch, self.nodes.form, base, node);
        base.truncate(base.len() - 1);
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
        let moved = (fate != Fate::Gone).then_some(moved);
        let sides = if is_right { [built, moved] } else { [moved, built] };
        let new = self.join(jump, sides, position);
        position.truncate(start);
        Ok(match new {
            Some(new) => {
                *twig = new;
                Fate::Changed
            }
            None => Fate::Gone,
        })
    }

    /// What comes of two sides that had no rows where they are now.
    fn join(&mut self, jump: Path, sides: [Option<Twig>; 2], base: &mut Bits) -> Option<Twig> {
        match sides {
            [Some(left), Some(right)] => {
                self.put(base, false, &left.node);
                self.put(base, true, &right.node);
                self.grown += size_of::<Sides>();
                let node = Node { jump, value: Hash::default() };
                let sides = Sides { twigs: [left, right], turn: self.turn };
                let mut twig = Twig { node, below: Below::Sides(Box::new(sides)) };
                self.rehash(&mut twig);
                Some(twig)
            }
            [left, right] => {
                let is_right = right.is_some();
                left.or(right).map(|twig| lifted(&jump, is_right, twig))
            }
        }
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
        let mut other = Work::new(self.nodes, self.turn, self.threads - threads);
        other.level = self.level;
        let mut beside = base.clone();
        beside.push(true);
        let all = std::mem::replace(&mut self.threads, threads);
        let (fate, other_fate) = std::thread::scope(|scope| {
            let task = scope.spawn(|| other.apply(right, &mut beside, of_right));
            base.push(false);
            let fate = self.apply(left, base, of_left);
            base.truncate(len);
            (fate, task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
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
        let sides = [side(self, false, left)?, side(self, true, right)?];
        self.level -= 1;
        let built = self.join(jump, sides, position);
        position.truncate(start);
        Ok(built)
    }
}

/// A node that takes the place of the branch above it, whose jump it gets in front of its own.
fn lifted(jump: &Path, is_right: bool, twig: Twig) -> Twig {
    let mut bits = Bits::from(jump);
    bits.push(is_right);
    bits.append(&twig.node.jump);
    // It is no longer than the path of the entry below it.
    let jump = bits.finish().unwrap_or_default();
    Twig { node: Node { jump, ..twig.node }, below: twig.below }
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
