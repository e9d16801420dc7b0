//! Blocks of Cardano: what they do to entries, against another implementation, by hand, under hostile bytes, and in a store.
//!
//! Real blocks come from a package that is on crates.io. `KVB_CARDANO_CHUNK` names a chunk of a node's immutable database that is
//! then read and followed, too; `KVB_CARDANO_LEDGER` a folder of vectors of the ledger itself.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "cardano/build.rs"]
mod build;
#[path = "cardano/forms.rs"]
mod forms;
#[path = "cardano/genesis.rs"]
mod genesis;
#[path = "cardano/hostile.rs"]
mod hostile;
#[path = "cardano/ledger.rs"]
mod ledger_states;
#[path = "cardano/pallas.rs"]
mod pallas;
#[path = "cardano/real.rs"]
mod real;
#[path = "cardano/replay.rs"]
mod replay;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/vectors.rs"]
mod vectors;
