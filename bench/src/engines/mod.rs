//! The stores that are measured.

mod candystore;
mod fjall;
mod floor;
#[cfg(feature = "kvb")]
mod kvb;
mod lmdb;
mod parity;
mod redb;
mod rocksdb;
mod sqlite;
mod table;

use anyhow::Result;

use crate::engine::Engine;
use crate::workload::{self, Outcome, Plan};

/// An engine by name, with its two ways to run in a process of its own.
pub struct Entry {
    pub name: &'static str,
    /// What is set of it.
    pub settings: &'static str,
    /// Runs all workloads.
    pub measure: fn(&Plan) -> Result<Outcome>,
    /// Loads fresh records into an existing store and waits to be killed.
    pub crash: fn(&Plan) -> Result<()>,
}

/// All engines, ours first, the floor last.
pub const ALL: &[Entry] = &[
    #[cfg(feature = "kvb")]
    entry::<kvb::Kvb<kvb::SyncOnce>>("kvb"),
    #[cfg(feature = "kvb")]
    entry::<kvb::Kvb<kvb::Sync>>("kvb-sync"),
    entry::<lmdb::Lmdb>("lmdb"),
    entry::<rocksdb::RocksDb>("rocksdb"),
    entry::<redb::Redb>("redb"),
    entry::<fjall::Fjall>("fjall"),
    entry::<sqlite::Sqlite>("sqlite"),
    entry::<parity::ParityDb>("parity-db"),
    entry::<candystore::Candystore>("candystore"),
    entry::<floor::Floor>("floor"),
];

/// Whether `name` is a store we compare with: neither ours nor the floor.
pub fn is_peer(name: &str) -> bool {
    !name.starts_with("kvb") && name != "floor"
}

/// The names of all engines.
pub fn names() -> Vec<String> {
    ALL.iter().map(|entry| entry.name.to_owned()).collect()
}

/// The engine called `name`.
pub fn find(name: &str) -> Result<&'static Entry> {
    let found = ALL.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| anyhow::anyhow!("unknown engine {name:?}"))
}

/// What is set of each engine, and how large the cache of each is.
pub fn settings(cache: usize) -> String {
    let each = ALL.iter().map(|entry| format!("- {}: {}", entry.name, entry.settings));
    let each: Vec<String> = each.collect();
    format!(
        "Caches of {} MiB where an engine has one, unless a suite says otherwise.\n\n{}",
        cache >> 20,
        each.join("\n")
    )
}

const fn entry<E: Engine>(name: &'static str) -> Entry {
    Entry {
        name,
        settings: E::SETTINGS,
        measure: workload::measure::<E>,
        crash: workload::crash::<E>,
    }
}
