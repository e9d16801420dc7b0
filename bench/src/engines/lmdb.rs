//! LMDB through heed. The load runs with `NO_SYNC`, which is switched off afterwards. It compacts by
//! copying, as `mdb_copy -c` does.

use std::ops::Bound;
use std::path::Path;

use anyhow::{Context, Result};
use heed::types::Bytes;
use heed::{
    CommitOrAbort, CompactionOption, Database, Env, EnvFlags, EnvOpenOptions, RoTxn, WithTls,
};

use crate::engine::{Engine, Phase, Reader, Span, is_cold};
use crate::record::{Block, Change, Record};

const MAP_BYTES: usize = 16 << 30;

type Table = Database<'static, Bytes, Bytes>;

pub struct Lmdb {
    env: Env,
    table: Table,
}

pub struct LmdbReader<'a> {
    txn: RoTxn<'a, WithTls>,
    table: Table,
}

impl Engine for Lmdb {
    const SETTINGS: &'static str = "a map of 16 GiB; NO_SYNC and WRITE_MAP for the load, then a sync for every commit; gets through one transaction";
    type Reader<'a> = LmdbReader<'a>;

    fn open(dir: &Path, phase: Phase) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES);
        let mut flags = EnvFlags::empty();
        // "Use a writeable memory map" "uses fewer mallocs" and makes the load twice as fast, but a durable put takes
        // twice as long with it, for a sync is one of the whole map then.
        flags.set(EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP, phase == Phase::Load);
        flags.set(EnvFlags::NO_READ_AHEAD, is_cold());
        // SAFETY: without syncs only a power loss can harm the file, and then it is rebuilt.
        unsafe { options.flags(flags) };
        // SAFETY: nobody else writes to the benchmark's own directory.
        let env = unsafe { options.open(dir)? };
        let txn = env.read_txn()?;
        let opened = env.open_databases_and_commit(txn, |opener, txn| -> heed::Result<_> {
            Ok(CommitOrAbort::<_, ()>::Commit(opener.open_database(txn, None)?))
        })?;
        let table = opened.unwrap_commit().context("LMDB has no main table")?;
        Ok(Self { env, table })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for record in records {
            self.table.put(&mut txn, &record.key, &record.value)?;
        }
        Ok(txn.commit()?)
    }

    fn finish_load(self, dir: &Path) -> Result<Self> {
        self.env.force_sync()?;
        self.close()?;
        Self::open(dir, Phase::Durable)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.load(std::slice::from_ref(record))
    }

    fn apply(&self, block: &Block) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for probe in &block.spent {
            probe.check(self.table.get(&txn, &probe.key)?)?;
        }
        for probe in &block.spent {
            self.table.delete(&mut txn, &probe.key)?;
        }
        for record in &block.created {
            self.table.put(&mut txn, &record.key, &record.value)?;
        }
        Ok(txn.commit()?)
    }

    fn reader(&self) -> Result<LmdbReader<'_>> {
        Ok(LmdbReader { txn: self.env.read_txn()?, table: self.table })
    }

    fn write(&self, change: &Change) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        for probe in &change.deleted {
            self.table.delete(&mut txn, &probe.key)?;
        }
        for record in &change.put {
            self.table.put(&mut txn, &record.key, &record.value)?;
        }
        Ok(txn.commit()?)
    }

    fn compact(self, dir: &Path) -> Result<Self> {
        let copy = dir.join("copy.mdb");
        self.env.copy_to_path(&copy, CompactionOption::Enabled)?.sync_all()?;
        self.close()?;
        std::fs::rename(copy, dir.join("data.mdb"))?;
        Self::open(dir, Phase::Durable)
    }

    fn close(self) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl Reader for LmdbReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(see(self.table.get(&self.txn, key)?))
    }

    fn scan(&mut self, span: Span<'_>, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let show = |row: heed::Result<(&[u8], &[u8])>| -> Result<()> {
            let (key, value) = row?;
            see(key, value);
            Ok(())
        };
        let (table, txn) = (&self.table, &self.txn);
        match span {
            Span::All => table.iter(txn)?.try_for_each(show),
            Span::Between(from, to) => {
                let range = (Bound::Included(from), Bound::Excluded(to));
                table.range(txn, &range)?.try_for_each(show)
            }
            Span::Back(from, count) => {
                let range = (Bound::Unbounded, Bound::Included(from));
                table.rev_range(txn, &range)?.take(count).try_for_each(show)
            }
        }
    }
}
