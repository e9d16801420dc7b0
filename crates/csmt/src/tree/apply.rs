//! Changes of a block, applied together.

use ledger::Batch;

use super::twig::{Below, Nodes, Sides, Twig};
use super::write;
use crate::error::Error;
use crate::hash::{Hash, Node, join};
use crate::path::{Bits, Path};

/// So many changes on each side of a branch are worth a thread.
const FOR_A_THREAD: usize = 64;
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

/// The two sides of a branch that is changed or comes to be.
struct Branch {
    /// The nodes on both sides before.
    old: [Option<Twig>; 2],
    /// They have rows where they are.
    are_stored: bool,
}

impl<'a> Work<'a> {
    pub(super) fn new(nodes: Nodes<'a>, turn: u32, threads: usize) -> Work<'a> {
        Work { nodes, turn, threads, batch: Batch::new(), grown: 0, level: 0 }
    }

    /// What stands at a position after changes, all of whose paths go through it. The row at the position itself is the caller's.
    pub(super) fn apply(
        &mut self,
        old: Option<Twig>,
        position: &mut Bits,
        changes: &[Change],
    ) -> Result<Option<Twig>, Error> {
        let Some(old) = old else { return self.build(position, changes) };
        let start = position.len();
        // The changes are sorted: those that share the fewest bits with the jump are at the ends.
        let shared = |change: &Change| change.path.common(start, &old.node.jump);
        let ends = [changes.first(), changes.last()];
        let Some(shared) = ends.into_iter().flatten().map(shared).min() else {
            return Ok(Some(old));
        };
        let jump_len = old.node.jump.len();
        let base = start + jump_len;
        // A path that all others begin with comes first.
        if let Some((first, rest)) = changes.split_first()
            && first.path.len() == start + shared
        {
            return match first.is_there && first.path.len() == base {
                true => self.replace(old, first, position, rest),
                false => self.replace_all(old, first, position, rest),
            };
        }
        if shared < jump_len {
            return self.split(old, shared, position, changes);
        }
        let mut at = position.clone();
        at.append(&old.node.jump);
        let sides = match old.below {
            Below::Sides(sides) => sides,
            Below::Leaf => return self.beside_a_leaf(changes),
            Below::Unknown => match self.nodes.sides(&mut at)? {
                Some([left, right]) => {
                    self.grown +=
                        size_of::<Sides>() + left.jump.bytes().len() + right.jump.bytes().len();
                    let twigs = [Twig::unknown(left), Twig::unknown(right)];
                    Box::new(Sides { twigs, turn: self.turn })
                }
                None => return self.beside_a_leaf(changes),
            },
        };
        let [left, right] = sides.twigs;
        let branch = Branch { old: [Some(left), Some(right)], are_stored: true };
        self.branch(branch, old.node.jump, &mut at, changes)
    }

    /// Paths that begin with that of an entry.
    fn beside_a_leaf(&self, changes: &[Change]) -> Result<Option<Twig>, Error> {
        let change = changes.iter().find(|change| change.value.is_some());
        match change.or(changes.first()) {
            Some(change) if change.value.is_some() => Err(Error::Prefix(change.path.clone())),
            Some(change) => Err(not_there(change)),
            None => Ok(None),
        }
    }

    /// An entry whose path everything here begins with can come only if all of that goes.
    fn replace_all(
        &mut self,
        old: Twig,
        change: &Change,
        position: &mut Bits,
        rest: &[Change],
    ) -> Result<Option<Twig>, Error> {
        let Some(value) = change.value else { return Err(not_there(change)) };
        if !rest.is_empty() && self.apply(Some(old), position, rest)?.is_none() {
            let jump = change.path.from(position.len());
            return Ok(Some(Twig::leaf(Node { jump, value })));
        }
        Err(Error::Prefix(change.path.clone()))
    }

    /// A change of the very entry that stands here, and others whose paths begin with its.
    fn replace(
        &mut self,
        old: Twig,
        change: &Change,
        position: &mut Bits,
        rest: &[Change],
    ) -> Result<Option<Twig>, Error> {
        if matches!(old.below, Below::Sides(_)) {
            return Err(not_there(change));
        }
        match (change.value, rest.first()) {
            (Some(_), Some(other)) => Err(Error::Prefix(other.path.clone())),
            (Some(value), None) => Ok(Some(Twig::leaf(Node { jump: old.node.jump, value }))),
            (None, _) => self.build(position, rest),
        }
    }

    /// Some path leaves the jump: the node moves down, and a branch comes where it was.
    fn split(
        &mut self,
        old: Twig,
        shared: usize,
        position: &mut Bits,
        changes: &[Change],
    ) -> Result<Option<Twig>, Error> {
        let jump = old.node.jump.part(0, shared);
        let is_right = old.node.jump.bit(shared);
        let node = Node { jump: old.node.jump.from(shared + 1), value: old.node.value };
        let moved = Some(Twig { node, below: old.below });
        let old = if is_right { [None, moved] } else { [moved, None] };
        let mut at = position.clone();
        at.append(&jump);
        self.branch(Branch { old, are_stored: false }, jump, &mut at, changes)
    }

    /// Both sides of a branch at the end of a jump.
    fn branch(
        &mut self,
        branch: Branch,
        jump: Path,
        at: &mut Bits,
        changes: &[Change],
    ) -> Result<Option<Twig>, Error> {
        let base = at.len();
        let middle = changes.partition_point(|change| !change.path.bit(base));
        let (left, right) = changes.split_at(middle);
        let [old_left, old_right] = branch.old;
        // Rows of nodes that stay are compared; those that come where none was are written.
        let before = |twig: &Option<Twig>, changes: &[Change]| match (twig, branch.are_stored) {
            (Some(twig), true) if !changes.is_empty() => Some(twig.node.clone()),
            _ => None,
        };
        let rows = [before(&old_left, left), before(&old_right, right)];
        let is_changed =
            [!left.is_empty() || !branch.are_stored, !right.is_empty() || !branch.are_stored];
        self.level += 1;
        let (new_left, new_right) = self.both((old_left, left), (old_right, right), at)?;
        self.level -= 1;
        match (new_left, new_right) {
            (Some(left), Some(right)) => {
                for (number, twig) in [&left, &right].into_iter().enumerate() {
                    if is_changed.get(number) == Some(&true) {
                        at.push(number == 1);
                        write(
                            &mut self.batch,
                            self.nodes.form,
                            at,
                            rows.get(number).and_then(Option::as_ref),
                            Some(&twig.node),
                        );
                        at.truncate(base);
                    }
                }
                let node = Node { jump, value: join(&left.node, &right.node) };
                if self.level > LEVELS {
                    return Ok(Some(Twig::unknown(node)));
                }
                let sides = Sides { twigs: [left, right], turn: self.turn };
                Ok(Some(Twig { node, below: Below::Sides(Box::new(sides)) }))
            }
            (left, right) => {
                // There is no branch any more: what is left on one side moves up.
                if branch.are_stored {
                    for bit in [false, true] {
                        at.push(bit);
                        let gone = Node::default();
                        write(&mut self.batch, self.nodes.form, at, Some(&gone), None);
                        at.truncate(base);
                    }
                }
                let is_right = right.is_some();
                Ok(left.or(right).map(|twig| {
                    let mut bits = Bits::from(&jump);
                    bits.push(is_right);
                    bits.append(&twig.node.jump);
                    // It is no longer than the path of the entry below it.
                    let jump = bits.finish().unwrap_or_default();
                    Twig { node: Node { jump, ..twig.node }, below: twig.below }
                }))
            }
        }
    }

    /// Applies changes on both sides of a branch, at the same time if there are many.
    fn both(
        &mut self,
        (old_left, left): (Option<Twig>, &[Change]),
        (old_right, right): (Option<Twig>, &[Change]),
        at: &mut Bits,
    ) -> Result<(Option<Twig>, Option<Twig>), Error> {
        let base = at.len();
        let is_worth_it = self.threads > 1 && left.len().min(right.len()) >= FOR_A_THREAD;
        if !is_worth_it {
            let mut side = |work: &mut Self, old, changes: &[Change], bit| {
                if changes.is_empty() {
                    return Ok(old);
                }
                at.push(bit);
                let new = work.apply(old, at, changes);
                at.truncate(base);
                new
            };
            let new_left = side(self, old_left, left, false)?;
            return Ok((new_left, side(self, old_right, right, true)?));
        }
        let threads = self.threads / 2;
        let mut other = Work::new(self.nodes, self.turn, self.threads - threads);
        other.level = self.level;
        let mut beside = at.clone();
        beside.push(true);
        let all = std::mem::replace(&mut self.threads, threads);
        let (new_left, new_right) = std::thread::scope(|scope| {
            let task = scope.spawn(|| other.apply(old_right, &mut beside, right));
            at.push(false);
            let new_left = self.apply(old_left, at, left);
            at.truncate(base);
            (new_left, task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        self.threads = all;
        self.batch.append(&other.batch);
        self.grown += other.grown;
        Ok((new_left?, new_right?))
    }

    /// A tree of nothing but new entries.
    fn build(&mut self, position: &mut Bits, changes: &[Change]) -> Result<Option<Twig>, Error> {
        let start = position.len();
        let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return Ok(None) };
        if let Some(change) = changes.iter().find(|change| change.value.is_none()) {
            return Err(not_there(change));
        }
        if let ([_], Some(value)) = (changes, first.value) {
            self.grown += size_of::<Sides>() / 2 + first.path.bytes().len();
            return Ok(Some(Twig::leaf(Node { jump: first.path.from(start), value })));
        }
        let end = first.path.common(0, &last.path);
        if end >= first.path.len().min(last.path.len()) {
            return Err(Error::Prefix(first.path.clone()));
        }
        let mut at = position.clone();
        let jump = first.path.part(start, end);
        at.append(&jump);
        self.branch(Branch { old: [None, None], are_stored: false }, jump, &mut at, changes)
    }
}

/// Entries that are known are in the tree.
fn not_there(change: &Change) -> Error {
    Error::Inconsistent(format!("the tree has no entry at {}", change.path))
}
