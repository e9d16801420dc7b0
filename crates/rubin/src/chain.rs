//! The chain: blocks come in, the best valid one is applied.
//!
//! Invariants
//! - The manifest is the only authority on what is applied. It moves after the database did, one block at a time.
//! - The set of outputs is that of the block that the database itself names as applied; if a crash leaves it one step away from
//!   the manifest, opening goes back, or on, to the manifest's block.
//! - The undo record of a block is in the batch that applies it.
//! - What is in memory is believed only as long as nothing failed: after a fault the chain is read anew, as when it is opened,
//!   before the next block or the next look.
//! - A block is validated against the outputs at its parent before the chain that is there is given up for it.

mod bodies;
mod header_window;
mod heal;
mod import;
mod keep;
mod open;
mod orphans;
mod reorg;
mod steps;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use host::Dir;
use ledger::Engine;

use crate::error::Error;
use crate::genesis::Genesis;
use crate::manifest::{Manifest, SCHEMA_VERSION, Tip};
use crate::validator::Validator;
pub use import::{Decision, Import, Rejected};
pub use reorg::ReorgPlan;
pub use view::ChainView;

use bodies::OtherBodies;
use header_window::HeaderWindow;
use orphans::Orphans;

/// A chain in an engine, with its manifest in a directory.
pub struct Chain {
    engine: Box<dyn Engine>,
    home: Arc<dyn Dir>,
    validator: Box<dyn Validator>,
    genesis: Genesis,
    state: Mutex<State>,
    /// Held for writing from the commit of a batch until the manifest says so too; true if it does.
    gate: RwLock<bool>,
    /// Another process may be importing, and this one only looks.
    is_reader: bool,
    reorg_changes_max: usize,
}

/// What changes with blocks.
struct State {
    tip: Tip,
    utxo_count: u64,
    orphans: Orphans,
    bodies: OtherBodies,
    headers: HeaderWindow,
    /// It is what the store says. False before it is read, and after a fault, which may have come before a change or after it.
    is_settled: bool,
}

impl Chain {
    /// The block applied last.
    pub fn tip(&self) -> Tip {
        self.lock().tip.clone()
    }

    /// Changes of the set that are kept in memory while a better chain is validated; one that has more is validated as it is
    /// applied, and given up again if it is no good. Default: 1,048,576, which take about 200 MB.
    pub fn reorg_changes_max(self, changes: usize) -> Chain {
        Chain { reorg_changes_max: changes, ..self }
    }

    /// The chain's first block.
    pub fn genesis(&self) -> &Genesis {
        &self.genesis
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Gives the engine back.
    pub fn into_engine(self) -> Box<dyn Engine> {
        self.engine
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever panicked while it was held has left it unsettled.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manifest(&self, tip: &Tip) -> Manifest {
        let (schema_version, chain_id) = (SCHEMA_VERSION, self.genesis.chain_id());
        Manifest { schema_version, chain_id, tip: tip.clone() }
    }

    fn write_manifest(&self, tip: &Tip) -> Result<(), Error> {
        self.manifest(tip).write(&*self.home)
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").field("tip", &self.tip()).finish_non_exhaustive()
    }
}
