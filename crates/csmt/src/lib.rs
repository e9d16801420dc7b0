//! A UTxO store with a Compact Sparse Merkle Tree over it: blocks, rollbacks, and proofs that need no store to be checked.
//!
#![cfg_attr(feature = "store", doc = "```")]
#![cfg_attr(not(feature = "store"), doc = "```ignore")]
//! use csmt::format::point::Point;
//! use csmt::format::rollback::Operation;
//! use csmt::{Database, Effort, Hash, PathKind, Settings};
//! use ledger::EngineKind;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! let settings = Settings { path: PathKind::Raw, ..Settings::default() };
//! let store = Database::new(dir.path()).init(EngineKind::Kvb, settings, Effort::default())?;
//!
//! let (key, value) = (b"output 1".to_vec(), b"100 ada".to_vec());
//! let block = Point::block(1, Hash::of(b"a block"));
//! let made = [Operation::Insert { key: key.clone(), value: value.clone() }];
//! let root = store.forward(block, &made)?.root.expect("something is there");
//!
//! // Whoever has the root can check a proof, without the store.
//! let proof = store.view()?.prove(&key)?.expect("it is there");
//! assert!(proof.verify(&root, &proof.key, &Hash::of(&value)).is_ok());
//! assert!(proof.verify(&root, &proof.key, &Hash::of(b"1000 ada")).is_err());
//!
//! store.rollback(Point::Origin)?; // and everything is as it was before
//! # Ok(())
//! # }
//! ```

#![cfg_attr(not(feature = "store"), no_std)]
#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

extern crate alloc;

#[cfg(feature = "store")]
mod address;
#[cfg(feature = "cardano")]
pub mod cardano;
pub mod cbor;
#[cfg(feature = "store")]
mod database;
#[cfg(feature = "store")]
mod error;
pub mod format;
mod hash;
#[cfg(feature = "store")]
mod items;
mod path;
pub mod proof;
#[cfg(feature = "store")]
mod settings;
#[cfg(feature = "store")]
mod store;
#[cfg(feature = "store")]
pub mod tables;
#[cfg(feature = "store")]
mod tree;

#[cfg(feature = "store")]
pub use address::address;
#[cfg(feature = "store")]
pub use database::{Database, Open};
#[cfg(feature = "store")]
pub use error::{Error, hex};
pub use hash::{Hash, Node, join, packed, unpacked};
pub use path::{BITS_MAX, Bits, Path, TooLong};
#[cfg(feature = "store")]
pub use settings::{K, PathKind, Settings};
#[cfg(feature = "store")]
pub use store::{
    Applied, BootstrapProgress, Bootstrapped, Check, Effort, Entries, Entry, PointFacts,
    RolledBack, Stage, Store, View,
};
