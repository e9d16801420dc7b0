//! redb: `Durability::None` for the load, `Immediate` afterwards.

use std::path::Path;

use anyhow::Result;
use redb::{
    AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable,
    TableDefinition,
};

use crate::engine::{Engine, Phase, Reader, Span, cache_bytes};
use crate::record::{Block, Change, Record};

const TABLE: TableDefinition<&[u8], &[u8]> = TableDefinition::new("records");

type Guard<'a> = AccessGuard<'a, &'static [u8]>;
type Row<'a> = Result<(Guard<'a>, Guard<'a>), redb::StorageError>;

pub struct Redb {
    database: Database,
}

pub struct RedbReader {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Redb {
    fn write(&self, records: &[Record], durability: Durability) -> Result<()> {
        let mut txn = self.database.begin_write()?;
        txn.set_durability(durability)?;
        {
            let mut table = txn.open_table(TABLE)?;
            for record in records {
                table.insert(&record.key[..], &record.value[..])?;
            }
        }
        Ok(txn.commit()?)
    }
}

impl Engine for Redb {
    type Reader<'a> = RedbReader;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes());
        Ok(Self { database: builder.create(dir.join("store.redb"))? })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        self.write(records, Durability::None)
    }

    fn finish_load(&self) -> Result<()> {
        // An empty durable commit makes all earlier commits durable.
        self.write(&[], Durability::Immediate)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.write(std::slice::from_ref(record), Durability::Immediate)
    }

    fn apply(&self, block: &Block) -> Result<()> {
        let txn = self.database.begin_write()?;
        {
            let mut table = txn.open_table(TABLE)?;
            for probe in &block.spent {
                let found = table.get(&probe.key[..])?;
                probe.check(found.as_ref().map(|guard| guard.value()))?;
            }
            for probe in &block.spent {
                table.remove(&probe.key[..])?;
            }
            for record in &block.created {
                table.insert(&record.key[..], &record.value[..])?;
            }
        }
        Ok(txn.commit()?)
    }

    fn reader(&self) -> Result<RedbReader> {
        Ok(RedbReader { table: self.database.begin_read()?.open_table(TABLE)? })
    }

    fn write(&self, change: &Change) -> Result<()> {
        let txn = self.database.begin_write()?;
        {
            let mut table = txn.open_table(TABLE)?;
            for probe in &change.deleted {
                table.remove(&probe.key[..])?;
            }
            for record in &change.put {
                table.insert(&record.key[..], &record.value[..])?;
            }
        }
        Ok(txn.commit()?)
    }

    fn compact(mut self, _dir: &Path) -> Result<Self> {
        self.database.compact()?;
        Ok(self)
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}

impl Reader for RedbReader {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        let found = self.table.get(key)?;
        Ok(see(found.as_ref().map(|guard| guard.value())))
    }

    fn scan(&mut self, span: Span<'_>, mut see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let show = |row: Row<'_>| -> Result<()> {
            let (key, value) = row?;
            see(key.value(), value.value());
            Ok(())
        };
        match span {
            Span::All => self.table.iter()?.try_for_each(show),
            Span::Between(from, to) => self.table.range(from..to)?.try_for_each(show),
            Span::Back(from, count) => {
                self.table.range(..=from)?.rev().take(count).try_for_each(show)
            }
        }
    }
}
