//! kvb, once per durability: the load is relaxed in both, durable commits use the bucket's own.

use std::marker::PhantomData;
use std::path::Path;

use anyhow::Result;
use kvb::{Batch, Bucket, Compact, Durability, Options, Row};

use crate::engine::{Engine, Phase, Reader, Space, Span};
use crate::record::{Block, Change, Key, Record};

/// Room for a thousand records with their headers, or a block of a thousand deletes and puts.
const BATCH_BYTES: usize = 320 << 10;

/// How a bucket's durable commits wait for the disk.
pub trait Wait: Send + std::marker::Sync {
    const DURABILITY: Durability;
    const SETTINGS: &'static str;
}

pub struct SyncOnce;
pub struct Sync;

impl Wait for SyncOnce {
    const DURABILITY: Durability = Durability::SyncOnce;
    const SETTINGS: &'static str = "as it comes; Relaxed for the load, then SyncOnce";
}

impl Wait for Sync {
    const DURABILITY: Durability = Durability::Sync;
    const SETTINGS: &'static str = "as it comes; Relaxed for the load, then Sync";
}

pub struct Kvb<W> {
    bucket: Bucket,
    wait: PhantomData<W>,
}

pub struct KvbReader<'a> {
    bucket: &'a Bucket,
}

impl<W: Wait> Engine for Kvb<W> {
    const SETTINGS: &'static str = W::SETTINGS;
    type Reader<'a>
        = KvbReader<'a>
    where
        W: 'a;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let path = dir.join("store.kvb");
        let options = Options::default().durability(W::DURABILITY);
        let bucket = if path.exists() {
            Bucket::open(&path, options)?
        } else {
            Bucket::create(&path, options)?
        };
        Ok(Self { bucket, wait: PhantomData })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        let mut batch = Batch::with_capacity(BATCH_BYTES);
        for record in records {
            batch.put(&record.key[..], &record.value[..]);
        }
        self.bucket.commit_with(batch, Durability::Relaxed)?;
        Ok(())
    }

    fn finish_load(self, _dir: &Path) -> Result<Self> {
        self.bucket.flush()?;
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.bucket.put(&record.key[..], &record.value[..])?;
        Ok(())
    }

    fn apply(&self, block: &Block) -> Result<()> {
        let keys: Vec<&Key> = block.spent.iter().map(|probe| &probe.key).collect();
        for (probe, found) in block.spent.iter().zip(self.bucket.get_many(&keys)?) {
            probe.check(found.as_deref())?;
        }
        let mut batch = Batch::with_capacity(BATCH_BYTES);
        for probe in &block.spent {
            batch.delete(&probe.key[..]);
        }
        for record in &block.created {
            batch.put(&record.key[..], &record.value[..]);
        }
        self.bucket.commit(batch)?;
        Ok(())
    }

    fn reader(&self) -> Result<KvbReader<'_>> {
        Ok(KvbReader { bucket: &self.bucket })
    }

    fn write(&self, change: &Change) -> Result<()> {
        let mut batch = Batch::new();
        for probe in &change.deleted {
            batch.delete(&probe.key[..]);
        }
        for record in &change.put {
            batch.put(&record.key[..], &record.value[..]);
        }
        Ok(self.bucket.commit(batch)?)
    }

    fn compact(self, _dir: &Path) -> Result<Self> {
        self.bucket.compact(Compact::Full)?;
        Ok(self)
    }

    fn space(&self) -> Result<Option<Space>> {
        let stats = self.bucket.stats()?;
        Ok(Some(Space {
            segments: stats.segment_bytes,
            image: stats.index_bytes,
            logged: stats.bytes_written,
            moved: stats.bytes_moved,
            checkpoints: stats.epoch,
        }))
    }

    fn close(self) -> Result<()> {
        Ok(self.bucket.close()?)
    }
}

impl Reader for KvbReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(see(self.bucket.get(key)?.as_deref()))
    }

    fn get_many(
        &mut self,
        keys: &[&Key],
        mut see: impl FnMut(usize, Option<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        for (place, found) in self.bucket.get_many(keys)?.iter().enumerate() {
            see(place, found.as_deref())?;
        }
        Ok(())
    }

    fn scan(&mut self, span: Span<'_>, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let show = |row: kvb::Result<Row<'_>>| -> Result<()> {
            let row = row?;
            see(row.key(), row.value());
            Ok(())
        };
        // One per scan, as users have it; a snapshot that is kept keeps its levels too.
        let snapshot = self.bucket.snapshot();
        match span {
            Span::All => snapshot.scan([]).try_for_each(show),
            Span::Between(from, to) => snapshot.range(from..to).try_for_each(show),
            Span::Back(from, count) => snapshot.range(..=from).rev().take(count).try_for_each(show),
        }
    }
}
