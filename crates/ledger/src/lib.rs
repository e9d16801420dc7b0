//! The floor under the ledger stores: named tables of bytes in key order, batches that become durable whole or not at all,
//! and snapshots that stay as they are.
//!
//! A store speaks to an [`Engine`] and knows nothing else. [`Buckets`](KvbEngine) are the default; [`MemoryEngine`] is the
//! contract with the encoding removed; redb, fjall and RocksDB are behind features of their names. What an engine must do is
//! executed by [`contract`].
//!
//! ```
//! use std::ops::Bound::Unbounded;
//!
//! use ledger::{Batch, Engine, MemoryEngine, Table};
//!
//! const COINS: Table = Table { name: "coins", id: 1 };
//! const TIP: Table = Table { name: "tip", id: 2 };
//!
//! # fn main() -> Result<(), ledger::EngineError> {
//! let engine = MemoryEngine::new(); // or `KvbEngine::create(path)`: a store cannot tell them apart
//! let mut batch = Batch::new();
//! batch.put(COINS, b"alice/0", b"100");
//! batch.put(TIP, b"height", b"1");
//! engine.commit(batch)?; // both tables or neither, and durable
//!
//! let snapshot = engine.snapshot()?; // of this commit, whatever comes
//! let mut later = Batch::new();
//! later.delete(COINS, b"alice/0");
//! engine.commit(later)?;
//! assert_eq!(snapshot.get(COINS, b"alice/0")?.as_deref(), Some(&b"100"[..]));
//! assert_eq!(engine.snapshot()?.scan(COINS, (Unbounded, Unbounded))?.count(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! Beside that: [`Database`], a store in a directory; [`Reader`] and [`Writer`] for the bytes of ledger values, strict in and
//! canonical out.

#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

mod adapters;
mod batch;
pub mod contract;
mod database;
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
pub use database::{Database, Housed, Open};
pub use engine::{Bytes, Engine, KEY_MAX, KeyRange, Rows, Snapshot, Table, is_empty, prefix};
pub use error::{EngineError, Trouble};
pub use home::{Home, HomeError, HomeLock};
pub use kind::EngineKind;
pub use reader::{Malformed, Reader};
pub use writer::Writer;
