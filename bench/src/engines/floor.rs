//! The floor: the least work an append log with a hash table in memory can do.
//!
//! Not a product and never a peer. It has no checksums, no free space, no compaction and no index
//! on disk while it runs; it shows what a real engine of this shape can at best reach.
//!
//! Log: an 8-byte magic, then records `hash u64 | key_len u16 | kind u16 | value_len u32 | key |
//! value`. The file is pre-allocated in steps, so a `key_len` of zero ends the log. The table is
//! written to a second file on a clean close; without that file, open scans the log.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use anyhow::{Result, anyhow, bail, ensure};
use memmap2::{Advice, Mmap, MmapOptions};
use rustix::fs::FallocateFlags;
use xxhash_rust::xxh3::xxh3_64;

use super::table::{Slot, Table};
use crate::engine::{Engine, Phase, Reader, Span, is_cold};
use crate::record::{Block, Change, Probe, Record};

const MAGIC: &[u8; 8] = b"floor 1\n";
const HEADER_LEN: usize = 16;
const STEP_BYTES: u64 = 64 << 20;
const MAP_BYTES: usize = 16 << 30;
const KIND_PUT: u16 = 1;
const KIND_DELETE: u16 = 2;

pub struct Floor {
    dir: PathBuf,
    file: File,
    log: Log,
    state: RwLock<State>,
}

struct State {
    table: Table,
    tail: u64,
    allocated: u64,
    buffer: Vec<u8>,
}

/// The log, mapped far beyond its end; only offsets below the tail may be read.
struct Log(Mmap);

struct LogRecord<'a> {
    hash: u64,
    kind: u16,
    key: &'a [u8],
    value: &'a [u8],
}

pub struct FloorReader<'a> {
    log: &'a Log,
    state: RwLockReadGuard<'a, State>,
}

impl<'a> LogRecord<'a> {
    /// The record at the start of `bytes`.
    fn parse(bytes: &'a [u8]) -> Self {
        let hash = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let key_len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let kind = u16::from_le_bytes([bytes[10], bytes[11]]);
        let value_len = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
        let (key, rest) = bytes[HEADER_LEN..].split_at(key_len);
        Self { hash, kind, key, value: &rest[..value_len] }
    }

    fn len(&self) -> usize {
        HEADER_LEN + self.key.len() + self.value.len()
    }
}

impl Log {
    fn record(&self, offset: u64) -> LogRecord<'_> {
        LogRecord::parse(&self.0[offset as usize..])
    }

    fn find(&self, table: &Table, key: &[u8]) -> Option<&[u8]> {
        let offset = table.get(xxh3_64(key), |offset| self.record(offset).key == key)?;
        Some(self.record(offset).value)
    }

    /// Rebuilds the table from a log of `file_bytes` and returns it with the tail.
    fn scan(&self, file_bytes: u64) -> (Table, u64) {
        let mut table = Table::default();
        let mut tail = MAGIC.len() as u64;
        while tail + HEADER_LEN as u64 <= file_bytes {
            let record = self.record(tail);
            if record.key.is_empty() {
                break;
            }
            self.index(&mut table, &record, tail);
            tail += record.len() as u64;
        }
        (table, tail)
    }

    fn index(&self, table: &mut Table, record: &LogRecord<'_>, offset: u64) {
        let same = |offset| self.record(offset).key == record.key;
        match record.kind {
            KIND_PUT => table.insert(Slot { hash: record.hash, offset }, same),
            _ => table.remove(record.hash, same),
        }
    }
}

impl State {
    fn append(&mut self, kind: u16, key: &[u8], value: &[u8]) {
        self.buffer.extend_from_slice(&xxh3_64(key).to_le_bytes());
        self.buffer.extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.buffer.extend_from_slice(&kind.to_le_bytes());
        self.buffer.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
    }
}

impl Floor {
    fn read(&self) -> Result<RwLockReadGuard<'_, State>> {
        self.state.read().map_err(|_| anyhow!("a writer panicked"))
    }

    /// Writes `deleted` and `created` with one call and waits for the disk if `phase` says so.
    fn commit(&self, deleted: &[Probe], created: &[Record], phase: Phase) -> Result<()> {
        let mut guard = self.state.write().map_err(|_| anyhow!("a writer panicked"))?;
        guard.buffer.clear();
        for probe in deleted {
            guard.append(KIND_DELETE, &probe.key, &[]);
        }
        for record in created {
            guard.append(KIND_PUT, &record.key, &record.value);
        }
        self.write_buffer(&mut guard)?;
        // Order: durable before visible.
        if phase == Phase::Durable {
            self.file.sync_data()?;
        }
        let State { table, tail, buffer, .. } = &mut *guard;
        let mut rest = buffer.as_slice();
        while !rest.is_empty() {
            let record = LogRecord::parse(rest);
            self.log.index(table, &record, *tail);
            *tail += record.len() as u64;
            rest = &rest[record.len()..];
        }
        Ok(())
    }

    fn write_buffer(&self, state: &mut RwLockWriteGuard<'_, State>) -> Result<()> {
        let end = state.tail + state.buffer.len() as u64;
        ensure!(end <= MAP_BYTES as u64, "the floor is full");
        while end > state.allocated {
            let flags = FallocateFlags::empty();
            rustix::fs::fallocate(&self.file, flags, state.allocated, STEP_BYTES)?;
            state.allocated += STEP_BYTES;
        }
        Ok(self.file.write_all_at(&state.buffer, state.tail)?)
    }

    fn save(&self) -> Result<()> {
        let state = self.read()?;
        self.file.set_len(state.tail)?;
        self.file.sync_all()?;
        let mut file = File::create(self.dir.join("table"))?;
        file.write_all(&state.tail.to_le_bytes())?;
        file.write_all(state.table.as_bytes())?;
        Ok(file.sync_all()?)
    }
}

/// The table and tail saved by a clean close, if there was one. They count only once.
fn restore(dir: &Path) -> Result<Option<(Table, u64)>> {
    let path = dir.join("table");
    if !path.exists() {
        return Ok(None);
    }
    let mut file = File::open(&path)?;
    let mut tail = [0; 8];
    file.read_exact(&mut tail)?;
    let table = Table::read(&mut file)?;
    fs::remove_file(&path)?;
    Ok(Some((table, u64::from_le_bytes(tail))))
}

impl Engine for Floor {
    const SETTINGS: &'static str = "an append log, a hash table in memory; no checks, no compaction, one sync a durable commit";
    const IS_ORDERED: bool = false;

    type Reader<'a> = FloorReader<'a>;

    fn open(dir: &Path, _phase: Phase) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(dir.join("log"))?;
        if file.metadata()?.len() == 0 {
            file.write_all_at(MAGIC, 0)?;
        }
        let allocated = file.metadata()?.len();
        // SAFETY: the file only grows while it is mapped, but for the cut to its tail at close.
        let log = Log(unsafe { MmapOptions::new().len(MAP_BYTES).map(&file)? });
        if is_cold() {
            log.0.advise(Advice::Random)?;
        }
        let (table, tail) = match restore(dir)? {
            Some(restored) => restored,
            None => log.scan(allocated),
        };
        let state = RwLock::new(State { table, tail, allocated, buffer: Vec::new() });
        Ok(Self { dir: dir.to_owned(), file, log, state })
    }

    fn load(&self, records: &[Record]) -> Result<()> {
        self.commit(&[], records, Phase::Load)
    }

    fn finish_load(self, _dir: &Path) -> Result<Self> {
        self.file.sync_data()?;
        Ok(self)
    }

    fn put(&self, record: &Record) -> Result<()> {
        self.commit(&[], std::slice::from_ref(record), Phase::Durable)
    }

    fn apply(&self, block: &Block) -> Result<()> {
        let state = self.read()?;
        for probe in &block.spent {
            probe.check(self.log.find(&state.table, &probe.key))?;
        }
        drop(state);
        self.commit(&block.spent, &block.created, Phase::Durable)
    }

    fn reader(&self) -> Result<FloorReader<'_>> {
        Ok(FloorReader { log: &self.log, state: self.read()? })
    }

    fn write(&self, change: &Change) -> Result<()> {
        self.commit(&change.deleted, &change.put, Phase::Durable)
    }

    /// There is nothing to do: the floor never gives space back.
    fn compact(self, _dir: &Path) -> Result<Self> {
        Ok(self)
    }

    fn close(self) -> Result<()> {
        self.save()
    }
}

impl Reader for FloorReader<'_> {
    fn get<T>(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>) -> T) -> Result<T> {
        Ok(see(self.log.find(&self.state.table, key)))
    }

    fn scan(&mut self, _span: Span<'_>, _see: impl FnMut(&[u8], &[u8])) -> Result<()> {
        bail!("the floor keeps no order")
    }
}
