//! A UTxO store with a Compact Sparse Merkle Tree over it: blocks, rollbacks, and proofs that need no store to be checked.

#![cfg_attr(not(feature = "store"), no_std)]

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
