//! The tree: entries by their paths, and a node for every branch between them.
//!
//! A node is stored for its position, the path of the branch bit that leads to it. It is a branch if and only if there are
//! nodes at both positions behind its jump. So rows, and the root, depend on nothing but the set of entries.
//!
//! Invariants
//! - Changes of a block are applied together, sorted by path: every node that they touch is hashed once, and written if its row
//!   is another one then.
//! - What is in memory is what the rows say, or say once the writes are committed. Whoever cannot commit them forgets the tree.
//! - Nodes in memory have either both children there or none.

mod apply;
mod gather;
mod grow;
mod prove;
mod twig;
mod walk;
mod warm;

use ledger::{Batch, Snapshot};

pub(crate) use apply::Change;
use apply::{Fate, end, start};
pub(crate) use gather::Gatherer;
pub(crate) use grow::{Grower, Progress};
pub(crate) use prove::{Place, complete, exclude, include};
pub(crate) use twig::{Below, Nodes, Twig};
pub(crate) use walk::nodes;

use crate::error::Error;
use crate::format::tuft::Form;
use crate::hash::Hash;
use crate::path::Bits;
use crate::tables::CSMT;

/// Bytes of nodes that are kept in memory unless somebody says otherwise.
pub(crate) const MEMORY: usize = 256 << 20;

/// Paths of so many bits need no stack of their own: those of the service have 560 at most.
const PLAIN_BITS: usize = 600;
/// Bytes of stack for a branch.
const STACK_PER_BIT: usize = 4 << 10;

/// The top of a tree, as much of it as memory is granted for.
#[derive(Debug)]
pub(crate) struct Tree {
    top: Option<Twig>,
    /// The top was read.
    is_read: bool,
    memory: usize,
    /// Counts blocks: what was used longest ago is forgotten first.
    turn: u32,
    /// Bytes of nodes taken into memory since somebody counted.
    grown: usize,
    threads: usize,
    form: Form,
}

impl Tree {
    /// Nothing of it is in memory yet.
    pub(crate) fn new(memory: usize, threads: usize, form: Form) -> Tree {
        let threads = threads.max(1);
        Tree { top: None, is_read: false, memory, turn: 0, grown: 0, threads, form }
    }

    /// Forgets what is in memory, which may not be what is stored.
    pub(crate) fn forget(&mut self) {
        *self = Tree::new(self.memory, self.threads, self.form);
    }

    fn read_top(&mut self, nodes: Nodes<'_>) -> Result<(), Error> {
        if !self.is_read {
            self.top = nodes.top()?;
            self.is_read = true;
        }
        Ok(())
    }

    /// The root; none of an empty tree.
    pub(crate) fn root(&mut self, snapshot: &dyn Snapshot) -> Result<Option<Hash>, Error> {
        self.read_top(Nodes::new(snapshot, self.form))?;
        Ok(self.top.as_ref().map(|top| top.node.root()))
    }

    /// The top of the tree, to go down from.
    pub(crate) fn place<'a>(
        &'a mut self,
        snapshot: &'a dyn Snapshot,
    ) -> Result<Option<Place<'a>>, Error> {
        let nodes = Nodes::new(snapshot, self.form);
        self.read_top(nodes)?;
        Ok(self.top.as_ref().map(|top| Place::top(nodes, top)))
    }

    /// Applies changes, and adds the rows that become others to a batch. They are sorted by path, and no path is there twice.
    pub(crate) fn apply(
        &mut self,
        snapshot: &dyn Snapshot,
        changes: &[Change],
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let nodes = Nodes::new(snapshot, self.form);
        self.read_top(nodes)?;
        if changes.is_empty() {
            return Ok(());
        }
        self.turn = self.turn.wrapping_add(1);
        if let Some(top) = &self.top {
            top.touch(changes.iter().map(|change| &change.path));
        }
        // What goes wrong from here on leaves half a tree behind.
        let top = self.top.take();
        self.is_read = false;
        let stack = stack_for(changes);
        let mut work = apply::Work::new(nodes, self.turn, self.threads, stack);
        work.batch = std::mem::take(batch);
        let (mut top, fate) = with_stack(stack, || {
            let mut position = Bits::default();
            match top {
                Some(mut top) => {
                    let fate = work.apply(&mut top, &mut position, changes)?;
                    Ok((Some(top).filter(|_| fate != Fate::Gone), fate))
                }
                None => Ok::<_, Error>((work.build(&mut position, changes)?, Fate::Changed)),
            }
        })?;
        match &mut top {
            Some(top) if fate != Fate::Same => work.write(&mut Bits::default(), top)?,
            Some(_) => {}
            None => delete(&mut work.batch, self.form, &Bits::default()),
        }
        *batch = work.batch;
        self.grown += work.grown;
        self.top = top;
        self.is_read = true;
        Ok(())
    }

    /// Forgets what was used longest ago, if there is more than memory was granted for. To be called when writes are committed.
    pub(crate) fn trim(&mut self) {
        if self.grown <= self.memory / 4 {
            return;
        }
        if let Some(top) = &mut self.top {
            top.trim(self.memory - self.memory / 4);
        }
        self.grown = 0;
    }
}

/// Applying goes down the tree call by call. Paths that somebody made up may be so long that this takes a stack of its own: so many
/// bytes, in every thread that works at it.
fn stack_for(changes: &[Change]) -> Option<usize> {
    let longest = changes.iter().map(|change| change.path.len()).max().unwrap_or(0);
    (longest > PLAIN_BITS).then(|| longest.saturating_mul(STACK_PER_BIT))
}

/// Does something, in a thread of its own if it takes another stack.
fn with_stack<T: Send>(
    stack: Option<usize>,
    task: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    if stack.is_none() {
        return task();
    }
    std::thread::scope(|scope| end(start(scope, stack, task)?))
}

/// Adds to a batch that a row goes.
fn delete(batch: &mut Batch, form: Form, position: &Bits) {
    match form {
        Form::Service => batch.delete(CSMT, &form.key(position)),
        Form::Packed => batch.delete_parts(CSMT, &[&position.head(), position.bytes()]),
    };
}

/// Adds a row of nodes to a batch.
fn put(batch: &mut Batch, form: Form, position: &Bits, row: &[u8]) {
    match form {
        Form::Service => batch.put(CSMT, &form.key(position), row),
        // The same as of the other, without asking for memory.
        Form::Packed => batch.put_parts(CSMT, &[&position.head(), position.bytes()], &[row]),
    };
}
