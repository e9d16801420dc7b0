//! Events of a checkpoint: many of them in a row, in the order of execution.

use ledger::{Batch, Snapshot, Writer};

use super::prune::check_rows;
use super::rows::{Note, ROW, part_key};
use crate::checkpoint::Event;
use crate::error::{Error, Rule};
use crate::format::mcs::{Decoder, put_bytes};
use crate::tables::EVENTS;

/// Writes events, which are in the order of execution. Gives how many rows that took.
pub(super) fn write(batch: &mut Batch, seq: u64, events: &[&Event]) -> u32 {
    let mut rows = 0;
    let mut row = Writer::with_capacity(ROW);
    for (at, event) in events.iter().enumerate() {
        row.u32_le(event.tx).u32_le(event.number);
        put_bytes(&mut row, &event.bytes);
        if row.len() >= ROW || at + 1 == events.len() {
            batch.put(EVENTS, &part_key(seq, rows), row.as_bytes());
            rows += 1;
            row = Writer::with_capacity(ROW);
        }
    }
    rows
}

/// Reads the events of a checkpoint, in the order of execution.
pub(super) fn read(snapshot: &dyn Snapshot, seq: u64, note: Note) -> Result<Vec<Event>, Error> {
    check_rows(snapshot, EVENTS, seq, note.event_rows)?;
    let mut events = Vec::new();
    for part in 0..note.event_rows {
        let key = part_key(seq, part);
        let row = snapshot.get(EVENTS, &key)?;
        let row = row.ok_or_else(|| Error::damaged(EVENTS, &key, "the row is missing"))?;
        read_row(&row, &mut events).map_err(|rule| Error::damaged(EVENTS, &key, rule.text()))?;
    }
    Ok(events)
}

fn read_row(row: &[u8], events: &mut Vec<Event>) -> Result<(), Rule> {
    let mut decoder = Decoder::new(row);
    while decoder.remaining() > 0 {
        let event =
            Event { tx: decoder.u32()?, number: decoder.u32()?, bytes: decoder.bytes()?.to_vec() };
        events.push(event);
    }
    Ok(())
}
