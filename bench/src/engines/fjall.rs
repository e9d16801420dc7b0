//! fjall, built without its compression feature; durable commits use `PersistMode::SyncData`. Values stay with their keys: kept
//! apart, those of 1 KiB are loaded a fifth faster and read a third slower.

use std::path::Path;

use anyhow::Result;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};

use crate::engine::{Engine, Phase, Reader, Span, cache_bytes};
use crate::record::{Block, Change, Record};

pub struct Fjall {
    // Order: the keyspace is dropped before its database.
    keyspace: Keyspace,
    database: Database,
}

pub struct FjallReader<'a> {
    keyspace: &'a Keyspace,
    snapshot: Snapshot,
}

impl Engine for Fjall {
    const SETTINGS: &'static str =
        "cache, no compression, values beside their keys; SyncData for every durable commit";
    type Reader<'a> = FjallReader<'a>;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let builder = Database::builder(dir.join("store")).cache_size(cache_bytes() as u64);
        let database = builder.open()?;
        let keyspace = database.keyspace("records", KeyspaceCreateOptions::default)?;
        Ok(Self { keyspace, database })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        let mut batch = self.database.batch();
        for record in records {
            batch.insert(&self.keyspace, &record.key[..], &record.value[..]);
        }
        Ok(batch.commit()?)
    }

    fn finish_load(self, _dir: &Path) -> Result<Self> {
        self.database.persist(PersistMode::SyncAll)?;
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.keyspace.insert(&record.key[..], &record.value[..])?;
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    fn apply(&self, block: &Block) -> Result<()> {
        for probe in &block.spent {
            probe.check(self.keyspace.get(probe.key)?.as_deref())?;
        }
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for probe in &block.spent {
            batch.remove(&self.keyspace, &probe.key[..]);
        }
        for record in &block.created {
            batch.insert(&self.keyspace, &record.key[..], &record.value[..]);
        }
        Ok(batch.commit()?)
    }

    fn reader(&self) -> Result<FjallReader<'_>> {
        Ok(FjallReader { keyspace: &self.keyspace, snapshot: self.database.snapshot() })
    }

    fn write(&self, change: &Change) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for probe in &change.deleted {
            batch.remove(&self.keyspace, &probe.key[..]);
        }
        for record in &change.put {
            batch.insert(&self.keyspace, &record.key[..], &record.value[..]);
        }
        Ok(batch.commit()?)
    }

    fn compact(self, _dir: &Path) -> Result<Self> {
        self.keyspace.rotate_memtable_and_wait()?;
        self.keyspace.major_compact()?;
        Ok(self)
    }

    fn close(self) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}

impl Reader for FjallReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(see(self.keyspace.get(key)?.as_deref()))
    }

    fn scan(&mut self, span: Span<'_>, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let show = |row: Guard| -> Result<()> {
            let (key, value) = row.into_inner()?;
            see(&key, &value);
            Ok(())
        };
        let (snapshot, keyspace) = (&self.snapshot, self.keyspace);
        match span {
            Span::All => snapshot.iter(keyspace).try_for_each(show),
            Span::Between(from, to) => snapshot.range(keyspace, from..to).try_for_each(show),
            Span::Back(from, count) => {
                snapshot.range(keyspace, ..=from).rev().take(count).try_for_each(show)
            }
        }
    }
}
