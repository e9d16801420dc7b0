//! redb: `Durability::None` for the load, `Immediate` afterwards.

use std::path::Path;

use anyhow::Result;
use redb::{
    AccessGuard, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable,
    TableDefinition,
};

use crate::engine::{Engine, Phase, Reader, Span, cache_bytes};
use crate::record::{Block, Change, KEY_LEN, Key, Record};

/// Keys of one length need no offsets: "it is optional, MUST NOT be stored for fixed width key types", says the design of
/// its nodes.
const TABLE: TableDefinition<&Key, &[u8]> = TableDefinition::new("records");

type Row<'a> =
    Result<(AccessGuard<'a, &'static Key>, AccessGuard<'a, &'static [u8]>), redb::StorageError>;

pub struct Redb {
    database: Database,
}

pub struct RedbReader {
    table: ReadOnlyTable<&'static Key, &'static [u8]>,
}

/// The first key that begins with `start`, which is the whole of it if it is a key.
fn whole(start: &[u8]) -> Key {
    let mut key = [0; KEY_LEN];
    key[..start.len()].copy_from_slice(start);
    key
}

impl Redb {
    fn write(&self, records: &[Record], durability: Durability) -> Result<()> {
        let mut txn = self.database.begin_write()?;
        txn.set_durability(durability)?;
        {
            let mut table = txn.open_table(TABLE)?;
            for record in records {
                table.insert(&record.key, &record.value[..])?;
            }
        }
        Ok(txn.commit()?)
    }
}

impl Engine for Redb {
    const SETTINGS: &'static str = "keys of fixed length; Durability::None for the load, then Immediate; no quick repair, which would make opening behind a kill \
         quicker and every commit slower; gets through one transaction";
    type Reader<'a> = RedbReader;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(cache_bytes());
        Ok(Self { database: builder.create(dir.join("store.redb"))? })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        self.write(records, Durability::None)
    }

    fn finish_load(self, _dir: &Path) -> Result<Self> {
        // An empty durable commit makes all earlier commits durable.
        self.write(&[], Durability::Immediate)?;
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.write(std::slice::from_ref(record), Durability::Immediate)
    }

    fn apply(&self, block: &Block) -> Result<()> {
        let txn = self.database.begin_write()?;
        {
            let mut table = txn.open_table(TABLE)?;
            for probe in &block.spent {
                let found = table.get(&probe.key)?;
                probe.check(found.as_ref().map(|guard| guard.value()))?;
            }
            for probe in &block.spent {
                table.remove(&probe.key)?;
            }
            for record in &block.created {
                table.insert(&record.key, &record.value[..])?;
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
                table.remove(&probe.key)?;
            }
            for record in &change.put {
                table.insert(&record.key, &record.value[..])?;
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
        let found = self.table.get(&whole(key))?;
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
            Span::Between(from, to) => {
                self.table.range::<&Key>(&whole(from)..&whole(to))?.try_for_each(show)
            }
            Span::Back(from, count) => {
                self.table.range::<&Key>(..=&whole(from))?.rev().take(count).try_for_each(show)
            }
        }
    }
}
