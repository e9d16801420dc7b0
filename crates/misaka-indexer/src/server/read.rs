//! Answers. Each is one statement that an index of the server leads.

use misaka::Hash;
use postgres::Row;

use super::link::Link;
use super::{Number, cannot, column, hash};
use crate::error::Error;
use crate::index::{EventsOf, Page, check_reach, nothing_as_of};
use crate::rows::{
    Counts, EventKey, EventRow, Holder, Live, Place, Record, Summary, Tip, type_digest,
};

const SUMMARY: &str = "SELECT digest, epoch, timestamp_ms, transactions, writes, created, deleted, events, event_bytes \
     FROM misaka_checkpoints WHERE seq = $1";
const OWNED: &str = "SELECT id, version, seq FROM misaka_objects \
     WHERE owner_kind = $1 AND owner = $2 AND id > $3 ORDER BY id LIMIT $4";
const OF_TYPE: &str = "SELECT id, version, seq FROM misaka_objects \
     WHERE type_digest = $1 AND id > $2 ORDER BY id LIMIT $3";
const HISTORY: &str = "SELECT version, seq, body FROM misaka_history \
     WHERE id = $1 AND version > $2 ORDER BY version LIMIT $3";
const AS_OF: &str = "SELECT version, seq, body FROM misaka_history \
     WHERE id = $1 AND seq <= $2 ORDER BY seq DESC, version DESC LIMIT 1";
const TRANSACTION: &str = "SELECT seq, place FROM misaka_transactions \
     WHERE digest = $1 ORDER BY seq, place LIMIT 1";
const EVENTS: &str = "SELECT seq, tx, number, body FROM misaka_events \
     WHERE (seq, tx, number) >= ($1, $2, $3) AND (seq, tx, number) <= ($4, $5, $6) \
     ORDER BY seq, tx, number LIMIT $7";
const COUNTS: &str = "SELECT (SELECT count(*) FROM misaka_objects), (SELECT count(*) FROM misaka_history), \
     (SELECT count(*) FROM misaka_transactions), (SELECT count(*) FROM misaka_events), \
     (SELECT count(*) FROM misaka_checkpoints)";

const ASKING: &str = "answer";

/// A number that was counted.
fn count(row: &Row, at: usize) -> Result<u64, Error> {
    let number: i64 = column(row, at)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// A number that was a u32.
fn small(row: &Row, at: usize) -> Result<u32, Error> {
    let number: i64 = column(row, at)?;
    u32::try_from(number).map_err(|_| Error::Damaged {
        table: "misaka_events or misaka_transactions",
        key: number.to_string(),
        wrong: "the number is out of range",
    })
}

fn number(row: &Row, at: usize) -> Result<u64, Error> {
    column::<Number>(row, at).map(|number| number.0)
}

pub(super) fn summary(link: &mut Link, seq: u64) -> Result<Option<Summary>, Error> {
    let [text] = link.prepare([SUMMARY])?;
    let row = link.client.query_opt(&text, &[&Number(seq)]).map_err(cannot(ASKING))?;
    row.map(|row| {
        Ok(Summary {
            seq,
            digest: hash(column(&row, 0)?, "misaka_checkpoints")?,
            epoch: number(&row, 1)?,
            timestamp_ms: number(&row, 2)?,
            transactions: count(&row, 3)?,
            writes: count(&row, 4)?,
            created: count(&row, 5)?,
            deleted: count(&row, 6)?,
            events: count(&row, 7)?,
            event_bytes: count(&row, 8)?,
        })
    })
    .transpose()
}

fn live(row: &Row) -> Result<Live, Error> {
    let id = hash(column(row, 0)?, "misaka_objects")?;
    Ok(Live { id, version: number(row, 1)?, seq: number(row, 2)? })
}

/// What an id comes after; nothing comes before all.
fn after(page: &Page<Hash>) -> &[u8] {
    page.after.as_ref().map_or(&[], |id| &id.0)
}

pub(super) fn owned(
    link: &mut Link,
    holder: &Holder,
    page: Page<Hash>,
) -> Result<Vec<Live>, Error> {
    let [text] = link.prepare([OWNED])?;
    let (kind, owner) = (i16::from(holder.kind()), holder.id().as_slice());
    let rows = link
        .client
        .query(&text, &[&kind, &owner, &after(&page), &i64::from(page.limit)])
        .map_err(cannot(ASKING))?;
    rows.iter().map(live).collect()
}

pub(super) fn of_type(
    link: &mut Link,
    type_tag: &str,
    page: Page<Hash>,
) -> Result<Vec<Live>, Error> {
    let [text] = link.prepare([OF_TYPE])?;
    let digest = type_digest(type_tag);
    let rows = link
        .client
        .query(&text, &[&digest.0.as_slice(), &after(&page), &i64::from(page.limit)])
        .map_err(cannot(ASKING))?;
    rows.iter().map(live).collect()
}

fn record(id: &Hash, row: &Row) -> Result<Record, Error> {
    Ok(Record { id: *id, version: number(row, 0)?, seq: number(row, 1)?, bytes: column(row, 2)? })
}

pub(super) fn history(link: &mut Link, id: &Hash, page: Page<u64>) -> Result<Vec<Record>, Error> {
    let [text] = link.prepare([HISTORY])?;
    // There is no version 0.
    let after = Number(page.after.unwrap_or(0));
    let rows = link
        .client
        .query(&text, &[&id.0.as_slice(), &after, &i64::from(page.limit)])
        .map_err(cannot(ASKING))?;
    rows.iter().map(|row| record(id, row)).collect()
}

/// The newest version that is as old as a checkpoint.
pub(super) fn newest(link: &mut Link, id: &Hash, seq: u64) -> Result<Option<Record>, Error> {
    let [text] = link.prepare([AS_OF])?;
    let row = link.client.query_opt(&text, &[&id.0.as_slice(), &Number(seq)]);
    row.map_err(cannot(ASKING))?.map(|row| record(id, &row)).transpose()
}

pub(super) fn as_of(
    link: &mut Link,
    tip: Option<Tip>,
    id: &Hash,
    seq: u64,
) -> Result<Option<Record>, Error> {
    check_reach(tip, seq)?;
    let found = newest(link, id, seq)?;
    if found.is_none()
        && let Some(first) = history(link, id, Page::first(1))?.first()
    {
        nothing_as_of(tip, seq, first.version)?;
    }
    Ok(found)
}

pub(super) fn transaction(link: &mut Link, digest: &Hash) -> Result<Option<Place>, Error> {
    let [text] = link.prepare([TRANSACTION])?;
    let row = link.client.query_opt(&text, &[&digest.0.as_slice()]).map_err(cannot(ASKING))?;
    row.map(|row| Ok(Place { seq: number(&row, 0)?, index: small(&row, 1)? })).transpose()
}

pub(super) fn events(
    link: &mut Link,
    of: EventsOf,
    page: Page<EventKey>,
) -> Result<Vec<EventRow>, Error> {
    let (first, last) = of.bounds();
    let from = match page.after {
        None => Some(first),
        Some(after) => after.next().map(|next| next.max(first)),
    };
    let Some(from) = from else { return Ok(Vec::new()) };
    let [text] = link.prepare([EVENTS])?;
    let rows = link
        .client
        .query(
            &text,
            &[
                &Number(from.seq),
                &i64::from(from.tx),
                &i64::from(from.number),
                &Number(last.seq),
                &i64::from(last.tx),
                &i64::from(last.number),
                &i64::from(page.limit),
            ],
        )
        .map_err(cannot(ASKING))?;
    rows.iter()
        .map(|row| {
            let key = EventKey { seq: number(row, 0)?, tx: small(row, 1)?, number: small(row, 2)? };
            Ok(EventRow { key, bytes: column(row, 3)? })
        })
        .collect()
}

pub(super) fn counts(link: &mut Link) -> Result<Counts, Error> {
    let [text] = link.prepare([COUNTS])?;
    let row = link.client.query_one(&text, &[]).map_err(cannot(ASKING))?;
    Ok(Counts {
        objects: count(&row, 0)?,
        versions: count(&row, 1)?,
        transactions: count(&row, 2)?,
        events: count(&row, 3)?,
        checkpoints: count(&row, 4)?,
    })
}
