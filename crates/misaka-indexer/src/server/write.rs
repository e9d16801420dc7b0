//! Changes. Rows go to the server in columns, many at a time, so that a checkpoint takes a few round trips however much it writes.

use std::collections::BTreeMap;

use misaka::format::object::Object;
use misaka::{Checkpoint, Hash};
use postgres::types::ToSql;
use postgres::{Statement, Transaction};

use super::link::Link;
use super::{Number, State, cannot, column, hash};
use crate::error::Error;
use crate::index::Step;
use crate::plan::{NOT_THE_NEXT, Plan, Stand, compare, not_the_next, stand};
use crate::rows::{Holder, Record, Summary, Tip, type_digest};

/// Rows of one statement at most, and their bytes.
const TOGETHER: usize = 8192;
const TOGETHER_BYTES: usize = 1 << 20;

const LOCK: &str = "SELECT generation, is_whole, tip_seq, tip_digest, base_seq FROM misaka_state WHERE one = 1 FOR UPDATE";
const DIGEST: &str = "SELECT digest FROM misaka_checkpoints WHERE seq = $1";
// A live object has one row in either table, with the same version.
const NOT_NEXT: &str = "SELECT written.id, written.version, newest.version, \
     coalesce(live.version = newest.version, TRUE) \
     FROM unnest($1::BYTEA[], $2::NUMERIC[]) AS written (id, version) CROSS JOIN LATERAL (SELECT \
     coalesce(max(known.version), 0) AS version FROM misaka_history AS known WHERE known.id = written.id) AS newest \
     LEFT JOIN misaka_objects AS live ON live.id = written.id WHERE written.version - 1 <> newest.version LIMIT 1";
const HISTORY: &str = "INSERT INTO misaka_history (id, version, seq, body) \
     SELECT * FROM unnest($1::BYTEA[], $2::NUMERIC[], $3::NUMERIC[], $4::BYTEA[])";
const OBJECTS: &str = "INSERT INTO misaka_objects (id, version, seq, owner_kind, owner, type_digest) \
     SELECT * FROM unnest($1::BYTEA[], $2::NUMERIC[], $3::NUMERIC[], $4::SMALLINT[], $5::BYTEA[], $6::BYTEA[]) \
     ON CONFLICT (id) DO UPDATE SET version = excluded.version, seq = excluded.seq, \
     owner_kind = excluded.owner_kind, owner = excluded.owner, type_digest = excluded.type_digest";
const DELETE: &str = "DELETE FROM misaka_objects WHERE id = ANY($1::BYTEA[])";
const TYPES: &str = "INSERT INTO misaka_types (digest, tag) \
     SELECT * FROM unnest($1::BYTEA[], $2::BYTEA[]) ON CONFLICT (digest) DO NOTHING";
const TRANSACTIONS: &str = "INSERT INTO misaka_transactions (digest, seq, place) \
     SELECT * FROM unnest($1::BYTEA[], $2::NUMERIC[], $3::BIGINT[])";
const EVENTS: &str = "INSERT INTO misaka_events (seq, tx, number, body) \
     SELECT * FROM unnest($1::NUMERIC[], $2::BIGINT[], $3::BIGINT[], $4::BYTEA[])";
const CHECKPOINT: &str = "INSERT INTO misaka_checkpoints \
     (seq, digest, epoch, timestamp_ms, transactions, writes, created, deleted, events, event_bytes) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const TIP: &str = "UPDATE misaka_state SET is_whole = TRUE, tip_seq = $1, tip_digest = $2, base_seq = $3 WHERE one = 1";
const FORGET: &str = "UPDATE misaka_state SET generation = generation + 1, is_whole = FALSE, \
     tip_seq = NULL, tip_digest = NULL, base_seq = NULL WHERE one = 1 RETURNING generation";
const TRUNCATE: &str = "TRUNCATE misaka_checkpoints, misaka_objects, misaka_history, \
     misaka_transactions, misaka_events, misaka_types";

const WRITING: &str = "write";

/// Holds the state to the end of a transaction.
fn lock(transaction: &mut Transaction<'_>, text: &Statement) -> Result<State, Error> {
    State::of(&transaction.query_one(text, &[]).map_err(cannot("lock its state"))?)
}

/// Applies a checkpoint in a transaction.
pub(super) fn apply(link: &mut Link, checkpoint: &Checkpoint) -> Result<Step, Error> {
    let [locked, digest, not_next, transactions, events, summary, tip_text] =
        link.prepare([LOCK, DIGEST, NOT_NEXT, TRANSACTIONS, EVENTS, CHECKPOINT, TIP])?;
    let objects = ObjectTexts::prepare(link)?;
    let mut transaction = link.client.transaction().map_err(cannot("begin"))?;
    let tip = lock(&mut transaction, &locked)?.whole()?;
    if let (Stand::Old, Some(tip)) = (stand(tip, checkpoint)?, tip) {
        let known = transaction.query_opt(&digest, &[&Number(checkpoint.header.seq)]);
        let known = match known.map_err(cannot(WRITING))? {
            Some(row) => Some(hash(column(&row, 0)?, "misaka_checkpoints")?),
            None => None,
        };
        compare(tip, known, checkpoint)?;
        return Ok(Step::Passed);
    }
    let plan = Plan::of(checkpoint, tip)?;
    let seq = plan.summary.seq;
    check_next(&mut transaction, &not_next, &plan)?;
    let writes: Vec<Version<'_>> =
        plan.writes.iter().map(|(object, bytes)| Version { object: *object, seq, bytes }).collect();
    objects.put_history(&mut transaction, &writes)?;
    let newest: Vec<(Object<'_>, u64)> = plan.changes().map(|(_, last)| (*last, seq)).collect();
    objects.put_newest(&mut transaction, &newest)?;
    put_transactions(&mut transaction, &transactions, checkpoint)?;
    put_events(&mut transaction, &events, checkpoint)?;
    put_summary(&mut transaction, &summary, &plan.summary)?;
    put_tip(&mut transaction, &tip_text, &plan.tip(tip))?;
    transaction.commit().map_err(cannot("commit"))?;
    Ok(Step::Applied(plan.summary))
}

/// Every object goes on from its newest version, or begins.
fn check_next(
    transaction: &mut Transaction<'_>,
    text: &Statement,
    plan: &Plan<'_>,
) -> Result<(), Error> {
    let firsts: Vec<&Object<'_>> = plan.changes().map(|(first, _)| first).collect();
    for piece in firsts.chunks(TOGETHER) {
        let ids: Vec<&[u8]> = piece.iter().map(|object| id_of(object)).collect();
        let versions: Vec<Number> = piece.iter().map(|object| Number(object.version)).collect();
        let row = transaction.query_opt(text, &[&ids, &versions]).map_err(cannot(WRITING))?;
        if let Some(row) = row {
            const TABLE: &str = "misaka_history";
            let (id, is_sound) = (column(&row, 0)?, column(&row, 3)?);
            let (Number(written), Number(newest)) = (column(&row, 1)?, column(&row, 2)?);
            return Err(match newest > 0 && is_sound {
                true => not_the_next(plan.summary.seq, &hash(id, TABLE)?, newest, written),
                false => Error::Damaged { table: TABLE, key: misaka::hex(id), wrong: NOT_THE_NEXT },
            });
        }
    }
    Ok(())
}

/// A version that is written.
struct Version<'a> {
    object: Object<'a>,
    seq: u64,
    bytes: &'a [u8],
}

/// Parts of a list that go in one statement each.
fn pieces<'a, T>(
    mut rest: &'a [T],
    bytes: impl Fn(&T) -> usize + 'a,
) -> impl Iterator<Item = &'a [T]> + 'a {
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits = |item: &&T| {
            sum += bytes(item);
            sum <= TOGETHER_BYTES
        };
        let count = rest.iter().take(TOGETHER).take_while(fits).count().max(1);
        let (piece, left) = rest.split_at_checked(count)?;
        rest = left;
        Some(piece)
    })
}

/// Statements about objects.
struct ObjectTexts {
    history: Statement,
    objects: Statement,
    delete: Statement,
    types: Statement,
}

impl ObjectTexts {
    fn prepare(link: &mut Link) -> Result<ObjectTexts, Error> {
        let [history, objects, delete, types] = link.prepare([HISTORY, OBJECTS, DELETE, TYPES])?;
        Ok(ObjectTexts { history, objects, delete, types })
    }

    fn put_history(
        &self,
        transaction: &mut Transaction<'_>,
        versions: &[Version<'_>],
    ) -> Result<(), Error> {
        for piece in pieces(versions, |version| version.bytes.len()) {
            let ids: Vec<&[u8]> = piece.iter().map(|version| id_of(&version.object)).collect();
            let numbers: Vec<Number> =
                piece.iter().map(|version| Number(version.object.version)).collect();
            let seqs: Vec<Number> = piece.iter().map(|version| Number(version.seq)).collect();
            let bodies: Vec<&[u8]> = piece.iter().map(|version| version.bytes).collect();
            execute(transaction, &self.history, &[&ids, &numbers, &seqs, &bodies])?;
        }
        Ok(())
    }

    /// Objects as they are now: each is there once.
    fn put_newest(
        &self,
        transaction: &mut Transaction<'_>,
        objects: &[(Object<'_>, u64)],
    ) -> Result<(), Error> {
        let mut types: BTreeMap<&str, Hash> = BTreeMap::new();
        for piece in objects.chunks(TOGETHER) {
            let gone: Vec<&[u8]> = piece
                .iter()
                .filter(|(object, _)| object.is_tombstone)
                .map(|(object, _)| id_of(object))
                .collect();
            if !gone.is_empty() {
                execute(transaction, &self.delete, &[&gone])?;
            }
            let live: Vec<&(Object<'_>, u64)> =
                piece.iter().filter(|(object, _)| !object.is_tombstone).collect();
            if live.is_empty() {
                continue;
            }
            types.clear();
            for (object, _) in &live {
                types.entry(object.type_tag).or_insert_with_key(|tag| type_digest(tag));
            }
            let digests: Vec<&[u8]> = types.values().map(|digest| digest.0.as_slice()).collect();
            let tags: Vec<&[u8]> = types.keys().map(|tag| tag.as_bytes()).collect();
            execute(transaction, &self.types, &[&digests, &tags])?;
            let ids: Vec<&[u8]> = live.iter().map(|(object, _)| id_of(object)).collect();
            let versions: Vec<Number> =
                live.iter().map(|(object, _)| Number(object.version)).collect();
            let seqs: Vec<Number> = live.iter().map(|(_, seq)| Number(*seq)).collect();
            let kinds: Vec<i16> =
                live.iter().map(|(object, _)| object.owner.kind().into()).collect();
            let holders: Vec<Option<Holder>> =
                live.iter().map(|(object, _)| Holder::of(&object.owner)).collect();
            let owners: Vec<Option<&[u8]>> =
                holders.iter().map(|holder| holder.as_ref().map(|it| it.id().as_slice())).collect();
            let digests: Vec<Option<&[u8]>> = live
                .iter()
                .map(|(object, _)| types.get(object.type_tag).map(|digest| digest.0.as_slice()))
                .collect();
            let columns: [&(dyn ToSql + Sync); 6] =
                [&ids, &versions, &seqs, &kinds, &owners, &digests];
            execute(transaction, &self.objects, &columns)?;
        }
        Ok(())
    }
}

fn id_of<'a>(object: &'a Object<'_>) -> &'a [u8] {
    &object.id.0
}

fn execute(
    transaction: &mut Transaction<'_>,
    text: &Statement,
    columns: &[&(dyn ToSql + Sync)],
) -> Result<(), Error> {
    transaction.execute(text, columns).map(drop).map_err(cannot(WRITING))
}

fn put_transactions(
    transaction: &mut Transaction<'_>,
    text: &Statement,
    checkpoint: &Checkpoint,
) -> Result<(), Error> {
    let rows: Vec<(i64, &Hash)> = (0..).zip(&checkpoint.tx_digests).collect();
    for piece in rows.chunks(TOGETHER) {
        let digests: Vec<&[u8]> = piece.iter().map(|(_, digest)| digest.0.as_slice()).collect();
        let seqs = vec![Number(checkpoint.header.seq); piece.len()];
        let places: Vec<i64> = piece.iter().map(|(place, _)| *place).collect();
        execute(transaction, text, &[&digests, &seqs, &places])?;
    }
    Ok(())
}

fn put_events(
    transaction: &mut Transaction<'_>,
    text: &Statement,
    checkpoint: &Checkpoint,
) -> Result<(), Error> {
    for piece in pieces(&checkpoint.events, |event| event.bytes.len()) {
        let seqs = vec![Number(checkpoint.header.seq); piece.len()];
        let txs: Vec<i64> = piece.iter().map(|event| event.tx.into()).collect();
        let numbers: Vec<i64> = piece.iter().map(|event| event.number.into()).collect();
        let bodies: Vec<&[u8]> = piece.iter().map(|event| event.bytes.as_slice()).collect();
        execute(transaction, text, &[&seqs, &txs, &numbers, &bodies])?;
    }
    Ok(())
}

fn put_summary(
    transaction: &mut Transaction<'_>,
    text: &Statement,
    summary: &Summary,
) -> Result<(), Error> {
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let columns: [&(dyn ToSql + Sync); 10] = [
        &Number(summary.seq),
        &summary.digest.0.as_slice(),
        &Number(summary.epoch),
        &Number(summary.timestamp_ms),
        &count(summary.transactions),
        &count(summary.writes),
        &count(summary.created),
        &count(summary.deleted),
        &count(summary.events),
        &count(summary.event_bytes),
    ];
    execute(transaction, text, &columns)
}

fn put_tip(transaction: &mut Transaction<'_>, text: &Statement, tip: &Tip) -> Result<(), Error> {
    let base = tip.base.map(Number);
    execute(transaction, text, &[&Number(tip.seq), &tip.digest.0.as_slice(), &base])
}

/// Forgets everything. Gives the generation that begins.
pub(super) fn forget(link: &mut Link) -> Result<i64, Error> {
    let mut transaction = link.client.transaction().map_err(cannot("begin"))?;
    // Order: the state first, so that whoever applies a checkpoint is waited for, and not met halfway.
    let row = transaction.query_one(FORGET, &[]).map_err(cannot(WRITING))?;
    transaction.batch_execute(TRUNCATE).map_err(cannot(WRITING))?;
    transaction.commit().map_err(cannot("commit"))?;
    column(&row, 0)
}

/// Only the rebuild that began last is gone on with.
fn check_unfinished(state: State, generation: i64) -> Result<(), Error> {
    match !state.is_whole && state.generation == generation {
        true => Ok(()),
        false => Err(Error::Input("no rebuild was begun, or another one was after it".to_owned())),
    }
}

pub(super) fn load(link: &mut Link, generation: i64, records: &[Record]) -> Result<(), Error> {
    let [locked] = link.prepare([LOCK])?;
    let objects = ObjectTexts::prepare(link)?;
    let mut versions = Vec::with_capacity(records.len());
    for record in records {
        let object = record.object();
        let object =
            object.map_err(|rule| Error::Input(format!("object {}: {rule}", record.id)))?;
        versions.push(Version { object, seq: record.seq, bytes: &record.bytes });
    }
    let mut transaction = link.client.transaction().map_err(cannot("begin"))?;
    check_unfinished(lock(&mut transaction, &locked)?, generation)?;
    objects.put_history(&mut transaction, &versions)?;
    let newest: Vec<(Object<'_>, u64)> =
        versions.iter().map(|version| (version.object, version.seq)).collect();
    objects.put_newest(&mut transaction, &newest)?;
    transaction.commit().map_err(cannot("commit"))
}

pub(super) fn finish(link: &mut Link, generation: i64, tip: Tip) -> Result<(), Error> {
    let [locked, text] = link.prepare([LOCK, TIP])?;
    let mut transaction = link.client.transaction().map_err(cannot("begin"))?;
    check_unfinished(lock(&mut transaction, &locked)?, generation)?;
    put_tip(&mut transaction, &text, &tip)?;
    transaction.commit().map_err(cannot("commit"))
}
