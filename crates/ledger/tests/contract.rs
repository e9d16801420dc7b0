//! Every adapter against the contract.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::cell::Cell;
use std::path::PathBuf;

use ledger::contract::{self, Maker};
use ledger::{Engine, KvbEngine, MemoryEngine};

struct Memory;

impl Maker for Memory {
    fn create(&self) -> Box<dyn Engine> {
        Box::new(MemoryEngine::new())
    }

    fn reopen(&self, _engine: Box<dyn Engine>) -> Option<Box<dyn Engine>> {
        None
    }
}

/// Engines in files or directories of their own.
struct OnDisk {
    dir: tempfile::TempDir,
    made: Cell<u32>,
    create: fn(PathBuf) -> Box<dyn Engine>,
    open: fn(PathBuf) -> Box<dyn Engine>,
}

impl OnDisk {
    fn new(create: fn(PathBuf) -> Box<dyn Engine>, open: fn(PathBuf) -> Box<dyn Engine>) -> OnDisk {
        OnDisk { dir: tempfile::tempdir().unwrap(), made: Cell::new(0), create, open }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join(self.made.get().to_string())
    }
}

impl Maker for OnDisk {
    fn create(&self) -> Box<dyn Engine> {
        self.made.set(self.made.get() + 1);
        (self.create)(self.path())
    }

    fn reopen(&self, engine: Box<dyn Engine>) -> Option<Box<dyn Engine>> {
        drop(engine);
        Some((self.open)(self.path()))
    }
}

#[test]
fn memory_keeps_the_contract() {
    contract::check(&Memory, seed::seed("memory_keeps_the_contract"));
}

#[test]
fn kvb_keeps_the_contract() {
    let maker = OnDisk::new(
        |path| Box::new(KvbEngine::create(path).unwrap()),
        |path| Box::new(KvbEngine::open(path).unwrap()),
    );
    contract::check(&maker, seed::seed("kvb_keeps_the_contract"));
}

#[cfg(feature = "redb")]
#[test]
fn redb_keeps_the_contract() {
    let maker = OnDisk::new(
        |path| Box::new(ledger::RedbEngine::create(path, contract::TABLES).unwrap()),
        |path| Box::new(ledger::RedbEngine::open(path, contract::TABLES).unwrap()),
    );
    contract::check(&maker, seed::seed("redb_keeps_the_contract"));
}

#[cfg(feature = "fjall")]
#[test]
fn fjall_keeps_the_contract() {
    let maker = OnDisk::new(
        |path| Box::new(ledger::FjallEngine::create(path, contract::TABLES).unwrap()),
        |path| Box::new(ledger::FjallEngine::open(path, contract::TABLES).unwrap()),
    );
    contract::check(&maker, seed::seed("fjall_keeps_the_contract"));
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_keeps_the_contract() {
    let maker = OnDisk::new(
        |path| Box::new(ledger::RocksEngine::create(path, contract::TABLES).unwrap()),
        |path| Box::new(ledger::RocksEngine::open(path, contract::TABLES).unwrap()),
    );
    contract::check(&maker, seed::seed("rocksdb_keeps_the_contract"));
}
