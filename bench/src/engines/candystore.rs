//! candystore: append files and a hash index, and the nearest relative of kvb.
//!
//! It has neither batches nor order. A durable commit is its changes one after the other and then a flush, so a block of it is not atomic.

use std::path::Path;

use anyhow::{Result, bail};
use candystore::{CandyStore, Config};

use crate::engine::{Engine, Phase, Reader, Span, expected_keys};
use crate::record::{Block, Change, Record};

/// Bytes between two checkpoints of the index. The default, 128 KiB, is far slower here.
const CHECKPOINT_BYTES: usize = 64 << 20;
/// "Target background compaction throughput in bytes per second." The default, 4 MiB, is a throttle that no other engine
/// here has; without it churn is quicker and takes two thirds of the space.
const COMPACTION_BYTES: usize = 256 << 20;

pub struct Candystore {
    store: CandyStore,
}

pub struct CandystoreReader<'a> {
    store: &'a CandyStore,
}

impl Candystore {
    fn set(&self, records: &[Record]) -> Result<()> {
        for record in records {
            self.store.set(&record.key[..], &record.value[..])?;
        }
        Ok(())
    }
}

impl Engine for Candystore {
    const SETTINGS: &'static str = "made for as many keys as come, a checkpoint every 64 MiB, compaction not held back; a flush ends each durable commit";
    const IS_ORDERED: bool = false;

    type Reader<'a> = CandystoreReader<'a>;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let usual = Config::default();
        let config = Config {
            checkpoint_delta_bytes: Some(CHECKPOINT_BYTES),
            compaction_throughput_bytes_per_sec: COMPACTION_BYTES,
            // "Initial target capacity in number of key/value entries."
            initial_capacity: expected_keys().max(usual.initial_capacity),
            ..usual
        };
        Ok(Self { store: CandyStore::open(dir, config)? })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        self.set(records)
    }

    fn finish_load(self, _dir: &Path) -> Result<Self> {
        self.store.flush()?;
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.store.set(&record.key[..], &record.value[..])?;
        Ok(self.store.flush()?)
    }

    fn apply(&self, block: &Block) -> Result<()> {
        for probe in &block.spent {
            probe.check(self.store.get(&probe.key[..])?.as_deref())?;
        }
        for probe in &block.spent {
            self.store.remove(&probe.key[..])?;
        }
        self.set(&block.created)?;
        Ok(self.store.flush()?)
    }

    fn reader(&self) -> Result<CandystoreReader<'_>> {
        Ok(CandystoreReader { store: &self.store })
    }

    fn write(&self, change: &Change) -> Result<()> {
        for probe in &change.deleted {
            self.store.remove(&probe.key[..])?;
        }
        self.set(&change.put)?;
        Ok(self.store.flush()?)
    }

    /// It compacts by itself, as fast as it is allowed to, and offers no more.
    fn compact(self, _dir: &Path) -> Result<Self> {
        Ok(self)
    }

    fn close(self) -> Result<()> {
        Ok(self.store.flush()?)
    }
}

impl Reader for CandystoreReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(see(self.store.get(key)?.as_deref()))
    }

    fn scan(&mut self, _span: Span<'_>, _see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        bail!("candystore keeps no order")
    }
}
