//! The floor under the ledger stores: named tables of bytes in key order, batches that become durable whole or not at all,
//! and snapshots that stay as they are.
//!
//! A store speaks to an [`Engine`] and knows nothing else. [`Buckets`](KvbEngine) are the default; [`MemoryEngine`] is the
//! contract with the encoding removed; redb, fjall and RocksDB are behind features of their names. What an engine must do is
//! executed by [`contract`].
//!
//! Beside that: [`Reader`] and [`Writer`] for the bytes of ledger values, strict in and canonical out.

mod adapters;
mod batch;
pub mod contract;
mod engine;
mod error;
mod home;
mod kind;
mod reader;
mod writer;

#[cfg(feature = "fjall")]
pub use adapters::fjall::FjallEngine;
pub use adapters::kvb::{KvbEngine, KvbReadOnly};
pub use adapters::memory::MemoryEngine;
#[cfg(feature = "redb")]
pub use adapters::redb::RedbEngine;
#[cfg(feature = "rocksdb")]
pub use adapters::rocksdb::RocksEngine;
pub use batch::{Batch, Change};
pub use engine::{Bytes, Engine, KEY_MAX, KeyRange, Rows, Snapshot, Table, prefix};
pub use error::{EngineError, Trouble};
pub use home::{Home, HomeError, HomeLock};
pub use kind::EngineKind;
pub use reader::{Malformed, Reader};
pub use writer::Writer;
