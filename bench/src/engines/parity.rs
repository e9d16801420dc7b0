//! parity-db with a hash column: what Polkadot's nodes have.
//!
//! A commit is queued, and nobody can wait for the disk: so nothing durable is measured of it.

use std::path::Path;

use anyhow::{Result, bail};
use parity_db::{Db, Options};

use crate::engine::{Engine, Phase, Reader, Span};
use crate::record::{Block, Change, Key, Record};

const COLUMN: u8 = 0;

pub struct ParityDb {
    db: Db,
}

pub struct ParityReader<'a> {
    db: &'a Db,
}

type Row = (u8, Key, Option<Vec<u8>>);

fn put(record: &Record) -> Row {
    (COLUMN, record.key, Some(record.value.to_vec()))
}

impl Engine for ParityDb {
    const SETTINGS: &'static str =
        "a hash column, no statistics, no compression; nothing waits for the disk";
    const IS_ORDERED: bool = false;
    const IS_DURABLE: bool = false;

    type Reader<'a> = ParityReader<'a>;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let mut options = Options::with_columns(dir, 1);
        // "Collect database statistics. May have effect on performance."
        options.stats = false;
        // `uniform`, "keys are at least 32 bytes and the first 32 bytes have uniform distribution", would spare it a
        // hash, and our keys are such; but version 0.5.7 panics at any that are longer than 32 bytes.
        Ok(Self { db: Db::open_or_create(&options)? })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        Ok(self.db.commit(records.iter().map(put))?)
    }

    /// There is nothing to wait for.
    fn finish_load(self, _dir: &Path) -> Result<Self> {
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        Ok(self.db.commit([put(record)])?)
    }

    fn apply(&self, block: &Block) -> Result<()> {
        for probe in &block.spent {
            probe.check(self.db.get(COLUMN, &probe.key)?.as_deref())?;
        }
        let deleted = block.spent.iter().map(|probe| (COLUMN, probe.key, None));
        Ok(self.db.commit(deleted.chain(block.created.iter().map(put)))?)
    }

    fn reader(&self) -> Result<ParityReader<'_>> {
        Ok(ParityReader { db: &self.db })
    }

    fn write(&self, change: &Change) -> Result<()> {
        let deleted = change.deleted.iter().map(|probe| (COLUMN, probe.key, None));
        Ok(self.db.commit(deleted.chain(change.put.iter().map(put)))?)
    }

    /// There is no such call.
    fn compact(self, _dir: &Path) -> Result<Self> {
        Ok(self)
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}

impl Reader for ParityReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(see(self.db.get(COLUMN, key)?.as_deref()))
    }

    fn scan(&mut self, _span: Span<'_>, _see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        bail!("a hash column keeps no order")
    }
}
