//! The store: entries, the tree over them, and what takes blocks back.
//!
//! Invariants
//! - A block is one batch: entries, nodes, its rollback point, where the chain is. It is there whole or not at all.
//! - Every entry has its leaf, and every leaf its entry. The root of a point is that of the tree right after its block.
//! - What is in memory is believed only as long as nothing failed: after a fault it is read anew.
//! - Points are kept in the order in which their blocks came. Keys of points have the order of slots, which is the same but for
//!   blocks that share a slot.

mod bootstrap;
mod changes;
mod forward;
mod open;
mod rollback;
mod verify;
mod view;
mod ways;
mod wipe;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ledger::Engine;

pub use bootstrap::{BootstrapProgress, Bootstrapped, Entries, Stage};
pub use forward::Applied;
pub use rollback::RolledBack;
pub use verify::Check;
pub use view::{Entry, PointFacts, View};

use crate::error::Error;
use crate::format::point::Point;
use crate::format::tuft::Form;
use crate::hash::Hash;
use crate::settings::Settings;
use crate::tree::Tree;

/// How much of a store is kept in memory, and how many threads work at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Bytes of nodes.
    pub memory: usize,
    /// Threads.
    pub threads: usize,
    /// Bytes of rows in a batch, where work is done in several.
    pub batch: usize,
}

impl Default for Effort {
    fn default() -> Effort {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Effort { memory: crate::tree::MEMORY, threads, batch: 4 << 20 }
    }
}

/// Entries, their tree, and the last blocks that changed them.
#[derive(Debug)]
pub struct Store {
    engine: Box<dyn Engine>,
    settings: Settings,
    /// How rows of nodes are stored.
    form: Form,
    /// Bytes of rows in a batch.
    batch: usize,
    /// Somebody else may change it, and this one only looks.
    is_reader: bool,
    state: Mutex<State>,
}

/// What is known without reading.
#[derive(Debug)]
struct State {
    tree: Tree,
    /// The block applied last.
    tip: Point,
    /// Numbers of the points there are, in the order in which they came.
    first_arrival: u64,
    next_arrival: u64,
    /// A bootstrap was begun and is not done.
    is_unfinished: bool,
    /// It is what is stored. False before it is read, and after a fault, which may have come before a change or after it.
    is_settled: bool,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it was made with.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The engine it is in.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The block applied last.
    pub fn tip(&self) -> Result<Point, Error> {
        Ok(self.view()?.tip())
    }

    /// The root; none of an empty tree.
    pub fn root(&self) -> Result<Option<Hash>, Error> {
        self.view()?.root()
    }
}
