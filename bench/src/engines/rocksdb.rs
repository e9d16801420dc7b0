//! RocksDB from the system library: bloom filter of 10 bits, no compression, and what its wiki recommends under "Setup Options
//! and Basic Tuning", but for blocks of 16 KiB: of 4 KiB, as they come, random gets are half as fast again. Values stay with
//! their keys: from blob files those of 64 KiB are read eight times slower. The load writes the log without syncs.

use std::path::Path;

use anyhow::{Context, Result};
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DB, DBCompressionType, DBRawIterator,
    Options, WriteBatch, WriteOptions,
};

use crate::engine::{Engine, Phase, Reader, Span, cache_bytes};
use crate::record::{Block, Change, Key, Record};

const BLOOM_BITS: f64 = 10.0;
const FAMILY: &str = "default";

pub struct RocksDb {
    database: DB,
}

pub struct RocksDbReader<'a> {
    database: &'a DB,
    /// Kept for all scans: making one is dear.
    rows: Option<DBRawIterator<'a>>,
}

fn durable() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

impl Engine for RocksDb {
    const SETTINGS: &'static str = "block cache, bloom filter of 10 bits, format 5, blocks of 4 KiB, index and filters in the cache with those of level 0 pinned, \
         dynamic level bytes, 6 background jobs, bytes_per_sync of 1 MiB, no compression; the log without syncs for the load, then with";
    type Reader<'a> = RocksDbReader<'a>;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(cache_bytes())?);
        blocks.set_bloom_filter(BLOOM_BITS, false);
        blocks.set_format_version(5);
        blocks.set_cache_index_and_filter_blocks(true);
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_level_compaction_dynamic_level_bytes(true);
        options.set_max_background_jobs(6);
        options.set_bytes_per_sync(1 << 20);
        options.set_compression_type(DBCompressionType::None);
        options.set_block_based_table_factory(&blocks);
        // Opened by column family, or the handle that batched reads need would be missing.
        let family = ColumnFamilyDescriptor::new(FAMILY, options.clone());
        let database = DB::open_cf_descriptors(&options, dir.join("store"), [family])?;
        Ok(Self { database })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for record in records {
            batch.put(record.key, &record.value);
        }
        Ok(self.database.write(batch)?)
    }

    fn finish_load(self, _dir: &Path) -> Result<Self> {
        self.database.flush_wal(true)?;
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        Ok(self.database.put_opt(record.key, &record.value, &durable())?)
    }

    fn apply(&self, block: &Block) -> Result<()> {
        let family = self.database.cf_handle(FAMILY).context("no default column family")?;
        let keys = block.spent.iter().map(|probe| &probe.key);
        let found = self.database.batched_multi_get_cf(family, keys, false);
        for (probe, found) in block.spent.iter().zip(found) {
            probe.check(found?.as_deref())?;
        }
        let mut batch = WriteBatch::default();
        for probe in &block.spent {
            batch.delete(probe.key);
        }
        for record in &block.created {
            batch.put(record.key, &record.value);
        }
        Ok(self.database.write_opt(batch, &durable())?)
    }

    fn reader(&self) -> Result<RocksDbReader<'_>> {
        Ok(RocksDbReader { database: &self.database, rows: None })
    }

    fn write(&self, change: &Change) -> Result<()> {
        let mut batch = WriteBatch::default();
        for probe in &change.deleted {
            batch.delete(probe.key);
        }
        for record in &change.put {
            batch.put(record.key, &record.value);
        }
        Ok(self.database.write_opt(batch, &durable())?)
    }

    fn compact(self, _dir: &Path) -> Result<Self> {
        self.database.compact_range(None::<&[u8]>, None::<&[u8]>);
        Ok(self)
    }

    fn close(self) -> Result<()> {
        Ok(self.database.flush_wal(true)?)
    }
}

impl Reader for RocksDbReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(see(self.database.get_pinned(key)?.as_deref()))
    }

    fn get_many(
        &mut self,
        keys: &[&Key],
        mut see: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let family = self.database.cf_handle(FAMILY).context("no default column family")?;
        let found = self.database.batched_multi_get_cf(family, keys.iter().copied(), false);
        for (place, found) in found.into_iter().enumerate() {
            see(place, found?.as_deref())?;
        }
        Ok(())
    }

    fn scan(&mut self, span: Span<'_>, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let rows = self.rows.get_or_insert_with(|| self.database.raw_iterator());
        match span {
            Span::All => rows.seek_to_first(),
            Span::Between(from, _) => rows.seek(from),
            Span::Back(from, _) => rows.seek_for_prev(from),
        }
        let mut seen = 0;
        while let Some((key, value)) = rows.item() {
            match span {
                Span::Between(_, to) if key >= to => break,
                Span::Back(_, count) if seen == count => break,
                _ => see(key, value),
            }
            seen += 1;
            if matches!(span, Span::Back(..)) {
                rows.prev();
            } else {
                rows.next();
            }
        }
        Ok(rows.status()?)
    }
}
