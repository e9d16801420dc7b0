//! The store of a RUBIN node: blocks, their index, the outputs that can be spent, and what it takes to take blocks back.
//!
//! ```
//! use rubin::rules::Rules;
//! use rubin::synthetic::Generator; // makes chains; yours come from the network
//! use rubin::{Datadir, Decision, EngineKind};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let mut blocks = Generator::new(1);
//! let genesis = blocks.genesis().clone();
//! let datadir = Datadir::new(dir.path(), genesis.chain_id());
//! let chain = datadir.init(genesis, EngineKind::Kvb, Box::<Rules>::default())?;
//!
//! // The outer error is the disk's, the inner one names the rule that the block breaks.
//! let import = chain.import(&blocks.make_coins(10), None)??;
//! assert_eq!(import.decision, Decision::AppliedAsNewTip);
//! let import = chain.import(&blocks.spend_coins(3), None)??;
//! assert_eq!(chain.tip().hash, import.hash); // on disk, with what it takes to take it back
//!
//! let (outputs, hash) = chain.view()?.utxo_set_hash()?;
//! println!("{outputs} outputs, utxo_set_hash {hash}");
//! # Ok(())
//! # }
//! ```
//!
//! [`Chain`] is the store on any engine; [`Datadir`] is a chain in a directory, as `rubin-node` has it. Consensus is behind
//! [`Validator`]; [`rules`] has the one of the specification.

#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

mod block;
mod chain;
mod code;
mod coins;
mod datadir;
mod entry;
mod error;
mod export;
mod genesis;
mod hash;
mod header;
mod index;
mod manifest;
mod migrate;
mod outpoint;
pub mod rules;
mod set_hash;
mod store;
pub mod synthetic;
pub mod tables;
pub mod transaction;
mod transition;
mod undo;
mod validator;
mod verify;
mod work;

pub use block::{Block, merkle_root};
pub use chain::{Chain, ChainView, Decision, Import, Rejected, ReorgPlan};
pub use code::{Code, NotACode};
pub use coins::{Before, Coins};
pub use datadir::{Datadir, Open};
pub use entry::UtxoEntry;
pub use error::Error;
pub use export::{Export, restore_on};
pub use genesis::{Genesis, NoGenesis};
pub use hash::{Hash, NotAHash, from_hex, to_hex};
pub use header::Header;
pub use index::{BlockIndex, Status};
pub use ledger::EngineKind;
pub use manifest::{Manifest, SCHEMA_VERSION, Tip};
pub use migrate::{MIGRATIONS, Migrated, Migration, migrate_on};
pub use outpoint::Outpoint;
pub use set_hash::{SetHash, TAG, utxo_set_hash};
pub use transaction::Transaction;
pub use undo::UndoRecord;
pub use validator::{HeaderContext, Validator};
pub use verify::ChainCheck;
pub use work::{NotWork, Work};
