//! Answers.

use std::ops::Bound;

use ledger::{Bytes, Snapshot, Table};
use misaka::Hash;

use super::row::{Head, damaged, decode_event_key, decode_summary, event_key, version_key};
use super::{CHECKPOINTS, EVENTS, HISTORY, TRANSACTIONS, TYPES};
use crate::error::Error;
use crate::index::{EventsOf, Page, check_reach, nothing_as_of};
use crate::rows::{Counts, EventKey, EventRow, Live, Place, Record, Summary, Tip};

fn most(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

pub(super) fn summary(snapshot: &dyn Snapshot, seq: u64) -> Result<Option<Summary>, Error> {
    let key = seq.to_be_bytes();
    let Some(row) = snapshot.get(CHECKPOINTS, &key)? else { return Ok(None) };
    let summary = decode_summary(seq, &row);
    summary.map(Some).ok_or_else(|| damaged(CHECKPOINTS, &key, "this is no checkpoint"))
}

/// Objects whose ids follow some bytes in a table.
pub(super) fn list(
    snapshot: &dyn Snapshot,
    table: Table,
    prefix: &[u8],
    page: Page<Hash>,
) -> Result<Vec<Live>, Error> {
    let from = [prefix, &page.after.unwrap_or(Hash::ZERO).0].concat();
    let from = match page.after {
        Some(_) => Bound::Excluded(from.as_slice()),
        None => Bound::Included(from.as_slice()),
    };
    let to = [prefix, &[u8::MAX; 32]].concat();
    let mut found = Vec::new();
    for row in snapshot.scan(table, (from, Bound::Included(&to)))?.take(most(page.limit)) {
        let (key, _) = row?;
        let id = key.get(prefix.len()..).and_then(Hash::from_slice);
        let id = id.ok_or_else(|| damaged(table, &key, "the key has another length"))?;
        let head = Head::read(snapshot, &id)?;
        let head = head.ok_or_else(|| damaged(table, &key, "the object has no version"))?;
        let (version, seq, _) = version(snapshot, &id, head.newest)?;
        found.push(Live { id, version, seq });
    }
    Ok(found)
}

/// A row of the history: version, checkpoint, the row.
type Entry<'a> = (u64, u64, Bytes<'a>);

fn entry<'a>(key: &[u8], row: Bytes<'a>) -> Result<Entry<'a>, Error> {
    let number = |bytes: Option<&[u8]>| {
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_be_bytes).ok_or_else(|| damaged(HISTORY, key, "this is no version"))
    };
    Ok((number(key.get(32..))?, number(row.get(..8))?, row))
}

fn record(id: &Hash, (version, seq, row): Entry<'_>) -> Record {
    Record { id: *id, version, seq, bytes: row.get(8..).unwrap_or(&[]).to_vec() }
}

/// A version, if it is there.
fn find<'a>(
    snapshot: &'a dyn Snapshot,
    id: &Hash,
    version: u64,
) -> Result<Option<Entry<'a>>, Error> {
    let key = version_key(id, version);
    snapshot.get(HISTORY, &key)?.map(|row| entry(&key, row)).transpose()
}

/// A version that must be there.
pub(super) fn version<'a>(
    snapshot: &'a dyn Snapshot,
    id: &Hash,
    version: u64,
) -> Result<Entry<'a>, Error> {
    let found = find(snapshot, id, version)?;
    found.ok_or_else(|| damaged(HISTORY, &version_key(id, version), "the version is missing"))
}

pub(super) fn history(
    snapshot: &dyn Snapshot,
    id: &Hash,
    page: Page<u64>,
) -> Result<Vec<Record>, Error> {
    let (from, to) = (version_key(id, page.after.unwrap_or(0)), version_key(id, u64::MAX));
    // There is no version 0.
    let range = (Bound::Excluded(from.as_slice()), Bound::Included(to.as_slice()));
    let rows = snapshot.scan(HISTORY, range)?.take(most(page.limit));
    rows.map(|row| {
        let (key, row) = row?;
        Ok(record(id, entry(&key, row)?))
    })
    .collect()
}

pub(super) fn newest(snapshot: &dyn Snapshot, id: &Hash) -> Result<Option<Record>, Error> {
    let Some(head) = Head::read(snapshot, id)? else { return Ok(None) };
    Ok(Some(record(id, version(snapshot, id, head.newest)?)))
}

/// Halves what is between the first version and the newest one until the right one is found: there are no gaps.
pub(super) fn as_of(
    snapshot: &dyn Snapshot,
    tip: Option<Tip>,
    id: &Hash,
    seq: u64,
) -> Result<Option<Record>, Error> {
    check_reach(tip, seq)?;
    let Some(head) = Head::read(snapshot, id)? else { return Ok(None) };
    let newest = version(snapshot, id, head.newest)?;
    if newest.1 <= seq {
        return Ok(Some(record(id, newest)));
    }
    let first = version(snapshot, id, head.first)?;
    if first.1 > seq {
        nothing_as_of(tip, seq, head.first)?;
        return Ok(None);
    }
    // Invariant: `low` is old enough, `high` is not.
    let (mut low, mut high) = (first, head.newest);
    while high.saturating_sub(low.0) > 1 {
        let middle = low.0 + (high - low.0) / 2;
        let found = version(snapshot, id, middle)?;
        if found.1 <= seq {
            low = found;
        } else {
            high = middle;
        }
    }
    Ok(Some(record(id, low)))
}

pub(super) fn transaction(snapshot: &dyn Snapshot, digest: &Hash) -> Result<Option<Place>, Error> {
    let to = [digest.0.as_slice(), &[u8::MAX; 12]].concat();
    let range = (Bound::Included(digest.0.as_slice()), Bound::Included(to.as_slice()));
    let Some(row) = snapshot.scan(TRANSACTIONS, range)?.next() else { return Ok(None) };
    let (key, _) = row?;
    let seq = key.get(32..40).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes);
    let index = key.get(40..).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    match (seq, index) {
        (Some(seq), Some(index)) => Ok(Some(Place { seq, index })),
        _ => Err(damaged(TRANSACTIONS, &key, "the key has another length")),
    }
}

pub(super) fn events(
    snapshot: &dyn Snapshot,
    of: EventsOf,
    page: Page<EventKey>,
) -> Result<Vec<EventRow>, Error> {
    let (first, last) = of.bounds();
    let from = match page.after {
        None => Some(first),
        Some(after) => after.next().map(|next| next.max(first)),
    };
    let Some(from) = from.filter(|from| *from <= last) else { return Ok(Vec::new()) };
    let (from, to) = (event_key(from), event_key(last));
    let rows = snapshot.scan(EVENTS, (Bound::Included(&from), Bound::Included(&to)))?;
    rows.take(most(page.limit))
        .map(|row| {
            let (key, bytes) = row?;
            let at = decode_event_key(&key);
            let at = at.ok_or_else(|| damaged(EVENTS, &key, "the key has another length"))?;
            Ok(EventRow { key: at, bytes: bytes.into_owned() })
        })
        .collect()
}

pub(super) fn counts(snapshot: &dyn Snapshot) -> Result<Counts, Error> {
    let count = |table| {
        let mut rows = snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded))?;
        rows.try_fold(0, |count, row| row.map(|_| count + 1)).map_err(Error::from)
    };
    Ok(Counts {
        objects: count(TYPES)?,
        versions: count(HISTORY)?,
        transactions: count(TRANSACTIONS)?,
        events: count(EVENTS)?,
        checkpoints: count(CHECKPOINTS)?,
    })
}
