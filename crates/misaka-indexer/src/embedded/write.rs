//! Changes.

use std::ops::Bound;

use ledger::{Batch, Engine, Snapshot, Table};
use misaka::format::object::Object;
use misaka::{Checkpoint, Hash};

use super::read;
use super::row::{Head, State, damaged, encode_summary, event_key, version_key};
use super::{CHECKPOINTS, EVENTS, HEADS, HISTORY, META, OWNERS, TABLES, TRANSACTIONS, TYPES};
use crate::error::Error;
use crate::index::Step;
use crate::plan::{Found, NOT_THE_NEXT, Plan, Stand, compare, not_the_next, stand};
use crate::rows::{EventKey, Record, Tip};

/// Bytes of keys that are deleted together.
const WIPE_BYTES: usize = 1 << 20;

/// Applies a checkpoint to the rows as they are in a snapshot.
pub(super) fn apply(
    engine: &dyn Engine,
    snapshot: &dyn Snapshot,
    tip: Option<Tip>,
    checkpoint: &Checkpoint,
) -> Result<Step, Error> {
    if let (Stand::Old, Some(tip)) = (stand(tip, checkpoint)?, tip) {
        let known = read::summary(snapshot, checkpoint.header.seq)?;
        compare(tip, known.map(|known| known.digest), checkpoint)?;
        return Ok(Step::Passed);
    }
    let plan = Plan::of(checkpoint, tip)?;
    let seq = plan.summary.seq;
    let mut batch = Batch::new();
    for (object, bytes) in &plan.writes {
        put_version(&mut batch, &object.id, object.version, seq, bytes);
    }
    for (first, last) in plan.changes() {
        let before = before(snapshot, seq, first)?;
        let oldest = before.map_or(first.version, |(oldest, _)| oldest);
        Head { first: oldest, newest: last.version }.put(&mut batch, &last.id);
        let from = before.and_then(|(_, found)| found);
        move_object(&mut batch, &last.id, from, Found::of(last));
    }
    for (index, digest) in (0_u32..).zip(&checkpoint.tx_digests) {
        let key: [&[u8]; 3] = [&digest.0, &seq.to_be_bytes(), &index.to_be_bytes()];
        batch.put_parts(TRANSACTIONS, &key, &[]);
    }
    for event in &checkpoint.events {
        let key = EventKey { seq, tx: event.tx, number: event.number };
        batch.put(EVENTS, &event_key(key), &event.bytes);
    }
    batch.put(CHECKPOINTS, &seq.to_be_bytes(), &encode_summary(&plan.summary));
    State::Whole(plan.tip(tip)).put(&mut batch);
    engine.commit(batch)?;
    Ok(Step::Applied(plan.summary))
}

/// What is known of an object before a write: its first version, and under what it is found; nothing of a new one. A feed that writes
/// any other version than the next one would write over what is there, or leave a gap.
fn before(
    snapshot: &dyn Snapshot,
    seq: u64,
    write: &Object<'_>,
) -> Result<Option<(u64, Option<Found>)>, Error> {
    let Some(Head { first, newest }) = Head::read(snapshot, &write.id)? else {
        let is_new = write.version == 1;
        return if is_new { Ok(None) } else { Err(damaged(HEADS, &write.id.0, NOT_THE_NEXT)) };
    };
    let (_, _, row) = read::version(snapshot, &write.id, newest)?;
    let object = Object::decode(row.get(8..).unwrap_or(&[]))
        .map_err(|_| damaged(HISTORY, &version_key(&write.id, newest), "this is no object"))?;
    let next = newest.checked_add(1);
    if next == Some(write.version) {
        return Ok(Some((first, Found::of(&object))));
    }
    // The head is behind if there is a version after it.
    let later = next.map(|next| snapshot.get(HISTORY, &version_key(&write.id, next)));
    match later.transpose()?.flatten() {
        Some(_) => Err(damaged(HEADS, &write.id.0, NOT_THE_NEXT)),
        None => Err(not_the_next(seq, &write.id, newest, write.version)),
    }
}

fn put_version(batch: &mut Batch, id: &Hash, version: u64, seq: u64, bytes: &[u8]) {
    batch.put_parts(HISTORY, &[&version_key(id, version)], &[&seq.to_be_bytes(), bytes]);
}

/// Changes under what an object is found.
fn move_object(batch: &mut Batch, id: &Hash, from: Option<Found>, to: Option<Found>) {
    let owner = |found: Option<Found>| found.and_then(|found| found.holder);
    let type_digest = |found: Option<Found>| found.map(|found| found.type_digest);
    if owner(from) != owner(to) {
        if let Some(holder) = owner(from) {
            batch.delete_parts(OWNERS, &[&[holder.kind()], holder.id(), &id.0]);
        }
        if let Some(holder) = owner(to) {
            batch.put_parts(OWNERS, &[&[holder.kind()], holder.id(), &id.0], &[]);
        }
    }
    if type_digest(from) != type_digest(to) {
        if let Some(digest) = type_digest(from) {
            batch.delete_parts(TYPES, &[&digest.0, &id.0]);
        }
        if let Some(digest) = type_digest(to) {
            batch.put_parts(TYPES, &[&digest.0, &id.0], &[]);
        }
    }
}

/// Forgets everything. Whatever is cut off here leaves the note, which comes first.
pub(super) fn forget(engine: &dyn Engine) -> Result<(), Error> {
    let mut batch = Batch::new();
    State::Unfinished.put(&mut batch);
    engine.commit(batch)?;
    TABLES.iter().filter(|table| **table != META).try_for_each(|table| wipe(engine, *table))
}

/// Deletes all rows of a table, a few at a time.
fn wipe(engine: &dyn Engine, table: Table) -> Result<(), Error> {
    let mut last: Option<Vec<u8>> = None;
    loop {
        let mut batch = Batch::new();
        {
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let snapshot = engine.snapshot()?;
            for row in snapshot.scan(table, (from, Bound::Unbounded))? {
                let (key, _) = row?;
                batch.delete(table, &key);
                if batch.byte_len() >= WIPE_BYTES {
                    break;
                }
            }
        }
        let Some(end) = batch.iter().next_back().map(|change| change.key.to_vec()) else {
            return Ok(());
        };
        last = Some(end);
        engine.commit(batch)?;
    }
}

/// Only an index that is not whole is loaded.
fn check_unfinished(engine: &dyn Engine) -> Result<(), Error> {
    match State::read(&*engine.snapshot()?)? {
        State::Unfinished => Ok(()),
        _ => Err(Error::Input("no rebuild was begun".to_owned())),
    }
}

pub(super) fn load(engine: &dyn Engine, records: &[Record]) -> Result<(), Error> {
    check_unfinished(engine)?;
    let mut batch = Batch::new();
    for record in records {
        let Record { id, version, seq, bytes } = record;
        let object = record.object();
        let object = object.map_err(|rule| Error::Input(format!("object {id}: {rule}")))?;
        put_version(&mut batch, id, *version, *seq, bytes);
        Head { first: *version, newest: *version }.put(&mut batch, id);
        move_object(&mut batch, id, None, Found::of(&object));
    }
    Ok(engine.commit(batch)?)
}

pub(super) fn finish(engine: &dyn Engine, tip: Tip) -> Result<(), Error> {
    check_unfinished(engine)?;
    let mut batch = Batch::new();
    State::Whole(tip).put(&mut batch);
    Ok(engine.commit(batch)?)
}
