//! The stores of a MISAKA validator: newest objects, the index of versions, checkpoints, recent events, parameters; the roots over
//! them, what is pruned, and snapshots.
//!
//! There is no index by owner here, and nothing else that only an indexer needs: who wants that follows
//! [`View::change`], one item a checkpoint.

mod checkpoint;
mod database;
mod error;
pub mod format;
mod hash;
mod lanes;
mod leaf;
mod merkle;
mod order;
pub mod proof;
mod root1;
pub mod root2;
mod settings;
pub mod snapshot;
mod store;
pub mod tables;
mod threads;
mod tree;

pub use checkpoint::{Checkpoint, Event};
pub use database::{Database, Open};
pub use error::{Error, Rule};
pub use hash::{Hash, hex};
pub use merkle::merkle;
pub use settings::{
    EVENT_RETENTION_CHECKPOINTS, Effort, MEMORY_MAX, PRUNING_WINDOW_CHECKPOINTS, RootVersion,
    Settings,
};
pub use store::{Applied, Check, Pair, Pruned, Stage, Store, Take, TakeObject, Tip, View};
