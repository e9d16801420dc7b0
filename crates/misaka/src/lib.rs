//! The stores of a MISAKA validator: newest objects, the index of versions, checkpoints, recent events, parameters; the roots over
//! them, what is pruned, and snapshots.
//!
//! ```
//! use misaka::format::checkpoint::{Header, tx_root};
//! use misaka::format::object::{Object, Owner};
//! use misaka::{Checkpoint, Database, Effort, Hash, Settings};
//! use ledger::EngineKind;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let settings = Settings { v2_at: Some(1), ..Settings::default() };
//! let store = Database::new(dir.path()).init(EngineKind::Kvb, settings, Effort::default())?;
//!
//! let coin = Object {
//!     id: Hash::of(&[b"a coin"]),
//!     version: 1,
//!     owner: Owner::Address([7; 32]),
//!     type_tag: "0x2::coin::Coin",
//!     payload: &100_u64.to_le_bytes(),
//!     is_tombstone: false,
//! };
//! let transactions = vec![Hash::of(&[b"a transaction"])];
//! let mut checkpoint = Checkpoint {
//!     header: Header {
//!         chain_id: 7,
//!         epoch: 0,
//!         seq: 1,
//!         prev_digest: Hash::ZERO,
//!         timestamp_ms: 1_700_000_000_000,
//!         tx_count: 1,
//!         tx_root: tx_root(&transactions),
//!         state_root: Hash::ZERO,
//!         validator_set_hash: Hash::of(&[b"validators"]),
//!     },
//!     tx_digests: transactions,
//!     writes: vec![coin.encode()],
//!     params: vec![("state_root_version".to_owned(), vec![2, 0])],
//!     events: Vec::new(),
//! };
//! // Who proposes asks for the root; who follows has it in the header, and a wrong one is refused.
//! checkpoint.header.state_root = store.root_after(&checkpoint)?;
//! let applied = store.apply(&checkpoint)?; // one atomic batch, durable
//!
//! let (value, proof) = store.view()?.prove(b"sys/params/state_root_version")?;
//! proof.check_there(&applied.root, b"sys/params/state_root_version", &value.unwrap())?;
//! # Ok(())
//! # }
//! ```
//!
//! There is no index by owner here, and nothing else that only an indexer needs: who wants that follows
//! [`View::change`], one item a checkpoint.

#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

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
