//! The bytes of rows.

use ledger::{Batch, Reader, Snapshot, Table, Writer};
use misaka::{Hash, hex};

use super::{HEADS, LAYOUT, LAYOUT_VERSION, META, STATE};
use crate::error::Error;
use crate::rows::{EventKey, Summary, Tip};

pub(super) fn damaged(table: Table, key: &[u8], wrong: &'static str) -> Error {
    Error::Damaged { table: table.name, key: hex(key), wrong }
}

/// What an index knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing was ever applied.
    Empty,
    /// A rebuild is under way.
    Unfinished,
    /// It is whole, up to a checkpoint.
    Whole(Tip),
}

impl State {
    pub(super) fn read(snapshot: &dyn Snapshot) -> Result<State, Error> {
        let Some(bytes) = snapshot.get(META, STATE)? else { return Ok(State::Empty) };
        State::decode(&bytes).ok_or_else(|| damaged(META, STATE, "this is no state"))
    }

    /// Adds it to a batch.
    pub(super) fn put(self, batch: &mut Batch) {
        batch.put(META, LAYOUT, &[LAYOUT_VERSION]).put(META, STATE, &self.encode());
    }

    fn encode(self) -> Vec<u8> {
        let State::Whole(tip) = self else { return vec![0] };
        let mut bytes = vec![1];
        bytes.extend(tip.seq.to_be_bytes());
        bytes.extend(tip.digest.0);
        bytes.extend(tip.base.into_iter().flat_map(u64::to_be_bytes));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<State> {
        let mut reader = Reader::new(bytes);
        if reader.u8().ok()? == 0 {
            return reader.finish().ok().map(|()| State::Unfinished);
        }
        let seq = u64::from_be_bytes(reader.array().ok()?);
        let digest = Hash(reader.array().ok()?);
        let base = match bytes.len() {
            41 => None,
            _ => Some(u64::from_be_bytes(reader.array().ok()?)),
        };
        reader.finish().ok()?;
        Some(State::Whole(Tip { seq, digest, base }))
    }
}

pub(super) fn version_key(id: &Hash, version: u64) -> [u8; 40] {
    join(&id.0, &version.to_be_bytes())
}

/// The versions of an object that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) first: u64,
    pub(super) newest: u64,
}

impl Head {
    pub(super) fn read(snapshot: &dyn Snapshot, id: &Hash) -> Result<Option<Head>, Error> {
        let Some(row) = snapshot.get(HEADS, &id.0)? else { return Ok(None) };
        let mut reader = Reader::new(&row);
        let mut next = || reader.array().map(u64::from_be_bytes);
        match (next(), next(), reader.finish()) {
            (Ok(first), Ok(newest), Ok(())) => Ok(Some(Head { first, newest })),
            _ => Err(damaged(HEADS, &id.0, "this is no head")),
        }
    }

    pub(super) fn put(self, batch: &mut Batch, id: &Hash) {
        batch.put(
            HEADS,
            &id.0,
            &join::<8, 8, 16>(&self.first.to_be_bytes(), &self.newest.to_be_bytes()),
        );
    }
}

pub(super) fn event_key(key: EventKey) -> [u8; 16] {
    join::<8, 8, 16>(
        &key.seq.to_be_bytes(),
        &join(&key.tx.to_be_bytes(), &key.number.to_be_bytes()),
    )
}

pub(super) fn decode_event_key(key: &[u8]) -> Option<EventKey> {
    let mut reader = Reader::new(key);
    let seq = u64::from_be_bytes(reader.array().ok()?);
    let tx = u32::from_be_bytes(reader.array().ok()?);
    let number = u32::from_be_bytes(reader.array().ok()?);
    reader.finish().ok()?;
    Some(EventKey { seq, tx, number })
}

fn join<const A: usize, const B: usize, const N: usize>(
    first: &[u8; A],
    rest: &[u8; B],
) -> [u8; N] {
    let mut bytes = [0; N];
    for (byte, from) in bytes.iter_mut().zip(first.iter().chain(rest)) {
        *byte = *from;
    }
    bytes
}

pub(super) fn encode_summary(summary: &Summary) -> Vec<u8> {
    let mut writer = Writer::with_capacity(96);
    writer.bytes(&summary.digest.0);
    for number in [
        summary.epoch,
        summary.timestamp_ms,
        summary.transactions,
        summary.writes,
        summary.created,
        summary.deleted,
        summary.events,
        summary.event_bytes,
    ] {
        writer.bytes(&number.to_be_bytes());
    }
    writer.finish()
}

pub(super) fn decode_summary(seq: u64, bytes: &[u8]) -> Option<Summary> {
    let mut reader = Reader::new(bytes);
    let digest = Hash(reader.array().ok()?);
    let mut next = || reader.array().ok().map(u64::from_be_bytes);
    let summary = Summary {
        seq,
        digest,
        epoch: next()?,
        timestamp_ms: next()?,
        transactions: next()?,
        writes: next()?,
        created: next()?,
        deleted: next()?,
        events: next()?,
        event_bytes: next()?,
    };
    reader.finish().ok()?;
    Some(summary)
}
