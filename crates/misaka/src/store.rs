//! The store: what a validator must have, and nothing else.
//!
//! Invariants
//! - A checkpoint is one batch: objects, every version, parameters, events, the checkpoint, the tip, and what falls out of the windows.
//!   It is there whole or not at all.
//! - The root of the state is that of the newest header. It was made before anything was written.
//! - The row of an object has the newest version, and the index has the same one. Versions that are kept are the newest ones of each
//!   object, without a gap.
//! - What is in memory is believed only as long as nothing failed: after a fault it is read anew.

mod apply;
mod draft;
mod events;
pub(crate) mod full;
mod migrate;
mod open;
mod prove;
mod prune;
mod roots;
mod rows;
mod verify;
mod view;

use std::sync::{Mutex, MutexGuard, PoisonError};

use ledger::Engine;

pub use apply::Applied;
pub use prune::Pruned;
pub use roots::Stage;
pub use verify::Check;
pub use view::{Pair, Take, TakeObject, View};

pub(crate) use open::{TIP, first_rows, make};
pub(crate) use prune::is_beyond;
pub(crate) use rows::{Note, TipRow, journal_entry, part_key, seq_key, version_key};

use crate::format::checkpoint::Header;
use crate::format::node::Child;
use crate::format::params::Params;
use crate::hash::Hash;
use crate::root1::Root1;
use crate::settings::{Effort, Settings};

/// The newest checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tip {
    /// Its header.
    pub header: Header,
    /// Its digest.
    pub digest: Hash,
    /// The first checkpoint that this store was given.
    pub first: u64,
    /// Objects, tombstones included.
    pub objects: u64,
}

/// Objects, versions, checkpoints, events, parameters.
#[derive(Debug)]
pub struct Store {
    engine: Box<dyn Engine>,
    settings: Settings,
    effort: Effort,
    state: Mutex<State>,
}

/// What is known without reading.
#[derive(Debug, Default)]
struct State {
    /// The rest is as the tables are.
    is_settled: bool,
    tip: Option<Tip>,
    params: Params,
    /// All leaves of v1, if they were asked for and there is room.
    root1: Option<Root1>,
    /// What stands above all in the tree of v2, if there is one.
    tree: Option<Child>,
}

impl Store {
    /// What the tables are in.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// The tables without the store.
    pub fn into_engine(self) -> Box<dyn Engine> {
        self.engine
    }

    /// What it was made with.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
