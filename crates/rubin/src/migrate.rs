//! Migrations: datadirs of older versions brought to this one, step by step.
//!
//! Every step is deterministic and can be cut off anywhere: how far it came is noted in the batch that goes there, and the
//! manifest's version is raised when all of it is done. So doing it again gives the same, however often it was cut off.

use std::ops::Bound;

use host::Dir;
use ledger::{Batch, Bytes, Engine, Malformed, Reader, Table, Writer};

use crate::error::Error;
use crate::hash::Hash;
use crate::manifest::{Manifest, SCHEMA_VERSION};
use crate::outpoint::Outpoint;
use crate::tables::{META, UNDO, UTXO};

/// Where a step notes how far it came.
const CURSOR: &[u8] = b"migration_cursor";
/// Bytes of rows changed in one batch.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// How a row becomes one of the next version.
type Change = fn(&[u8]) -> Result<Vec<u8>, Malformed>;

/// A step from one version to the next.
pub struct Migration {
    /// The version it is for.
    pub from: u32,
    /// What it does.
    pub about: &'static str,
    /// The tables it changes, and how a row becomes another.
    tables: &'static [(Table, Change)],
}

/// All steps, one for every version.
pub const MIGRATIONS: &[Migration] = &[Migration {
    from: 0,
    about: "covenant_data_len of outputs and undo records: u32le becomes CompactSize",
    tables: &[(UTXO, entry_0_to_1), (UNDO, undo_0_to_1)],
}];

impl std::fmt::Debug for Migration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Migration").field("from", &self.from).field("about", &self.about).finish()
    }
}

/// What migrating did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version the datadir had.
    pub from: u32,
    /// The version it has now.
    pub to: u32,
    /// What was done, step by step.
    pub steps: Vec<&'static str>,
    /// Rows changed.
    pub rows: u64,
}

/// An entry of version 0, with the length of its data as u32le.
fn entry_0_to_1(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut writer = Writer::with_capacity(bytes.len());
    writer.u64_le(reader.u64_le()?).u16_le(reader.u16_le()?);
    let len = u64::from(reader.u32_le()?);
    let len = reader.check_count(len, 1)?;
    writer.compact_bytes(reader.bytes(len)?);
    writer.u64_le(reader.u64_le()?);
    match reader.u8()? {
        flag @ (0 | 1) => writer.u8(flag),
        _ => return Err(reader.malformed("created_by_coinbase is neither 0 nor 1")),
    };
    reader.finish()?;
    Ok(writer.finish())
}

/// An undo record of version 0, whose entries are.
fn undo_0_to_1(bytes: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut writer = Writer::with_capacity(bytes.len());
    let spent = reader.u32_le()?;
    writer.u32_le(spent);
    for _ in 0..spent {
        writer.bytes(&reader.array::<{ Outpoint::LEN }>()?);
        let len = u64::from(reader.u32_le()?);
        let len = reader.check_count(len, 1)?;
        let entry = entry_0_to_1(reader.bytes(len)?)?;
        writer.u32_le(u32::try_from(entry.len()).unwrap_or(u32::MAX)).bytes(&entry);
    }
    let created = reader.u32_le()?;
    let count = reader.check_count(created.into(), Outpoint::LEN)?;
    writer.u32_le(created).bytes(reader.bytes(count * Outpoint::LEN)?);
    reader.finish()?;
    Ok(writer.finish())
}

/// Brings a chain in an engine of the caller's to this version, so many bytes at a time. With `dry_run` nothing is changed, and
/// every row is only tried.
pub fn migrate_on(
    engine: &dyn Engine,
    home: &dyn Dir,
    chain_id: Hash,
    dry_run: bool,
    batch_bytes: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Migrated, Error> {
    let mut manifest =
        Manifest::read(home)?.ok_or_else(|| Error::NotInitialised("the datadir".to_owned()))?;
    if manifest.chain_id != chain_id {
        let (found, wanted) = (manifest.chain_id.to_string(), chain_id.to_string());
        return Err(Error::ForeignChain { found, wanted });
    }
    let (found, supported) = (manifest.schema_version, SCHEMA_VERSION);
    if found > supported {
        return Err(Error::NewerSchema { found, supported });
    }
    let mut done = Migrated { from: found, to: supported, ..Migrated::default() };
    for version in found..supported {
        let step = MIGRATIONS.iter().find(|step| step.from == version);
        let step = step.ok_or(Error::OlderSchema { found, supported })?;
        done.steps.push(step.about);
        done.rows += run(engine, step, dry_run, batch_bytes, progress)?;
        if !dry_run {
            manifest.schema_version = version + 1;
            // Order: the version is raised when every row is of it, and the note of how far it came goes after that.
            manifest.write(home)?;
            let mut batch = Batch::new();
            batch.delete(META, CURSOR);
            engine.commit(batch)?;
        }
    }
    Ok(done)
}

/// How far a step came: the table's number, and the last key that was changed there.
fn cursor(engine: &dyn Engine, step: &Migration) -> Result<(usize, Vec<u8>), Error> {
    let snapshot = engine.snapshot()?;
    let note = snapshot.get(META, CURSOR)?;
    let note: Option<(&u8, &[u8])> = note.as_deref().and_then(|note| note.split_first());
    let (version, rest) = note.unwrap_or((&0, &[]));
    match rest.split_first() {
        Some((table, key)) if u32::from(*version) == step.from => {
            Ok((usize::from(*table), key.to_vec()))
        }
        _ => Ok((0, Vec::new())),
    }
}

fn run(
    engine: &dyn Engine,
    step: &Migration,
    dry_run: bool,
    batch_bytes: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, Error> {
    let (first, mut last) = cursor(engine, step)?;
    let mut rows = 0;
    for (number, (table, change)) in step.tables.iter().enumerate().skip(first) {
        loop {
            let (batch, count, end) = {
                let snapshot = engine.snapshot()?;
                let from = match last.is_empty() {
                    true => Bound::Unbounded,
                    false => Bound::Excluded(last.as_slice()),
                };
                let mut batch = Batch::new();
                let (mut count, mut bytes, mut end) = (0, 0, Vec::new());
                for row in snapshot.scan(*table, (from, Bound::Unbounded))? {
                    let (key, value): (Bytes<'_>, Bytes<'_>) = row?;
                    let changed =
                        change(&value).map_err(|wrong| Error::damaged(*table, &key, wrong))?;
                    batch.put(*table, &key, &changed);
                    bytes += key.len() + changed.len();
                    end = key.into_owned();
                    count += 1;
                    if bytes >= batch_bytes {
                        break;
                    }
                }
                (batch, count, end)
            };
            if count == 0 {
                break;
            }
            rows += count;
            last = end;
            if !dry_run {
                commit(engine, batch, step, number, &last)?;
            }
            progress(rows);
        }
        last.clear();
        if !dry_run {
            commit(engine, Batch::new(), step, number + 1, &[])?;
        }
    }
    Ok(rows)
}

fn commit(
    engine: &dyn Engine,
    mut batch: Batch,
    step: &Migration,
    table: usize,
    last: &[u8],
) -> Result<(), Error> {
    let note = [u8::try_from(step.from).unwrap_or(u8::MAX), u8::try_from(table).unwrap_or(u8::MAX)];
    batch.put_parts(META, &[CURSOR], &[&note, last]);
    Ok(engine.commit(batch)?)
}
