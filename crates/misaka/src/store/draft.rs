//! A checkpoint that was checked against the store, and not written yet.

use ledger::Snapshot;

use super::rows::ObjectRow;
use super::{State, Store};
use crate::checkpoint::{Checkpoint, Event};
use crate::error::{Error, Rule};
use crate::format::key::param_name;
use crate::format::object::{Object, Owner};
use crate::format::params::{self, Params};
use crate::hash::Hash;
use crate::leaf::Record;
use crate::settings::RootVersion;
use crate::tables::OBJECTS;
use crate::threads;

/// Objects that are worth a thread.
const FOR_A_THREAD: usize = 512;

/// What there was of an object before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Old {
    pub(super) version: u64,
    pub(super) seq: u64,
}

/// An object that a checkpoint writes.
#[derive(Debug)]
pub(super) struct Touched<'a> {
    /// How it is after the checkpoint.
    pub(super) newest: Record<'a>,
    /// How it was before.
    pub(super) old: Option<Old>,
}

/// A write of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) id: Hash,
    pub(super) version: u64,
    pub(super) is_tombstone: bool,
    is_immutable: bool,
    pub(super) digest: Hash,
}

/// A checkpoint that was checked, but for its root.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) seq: u64,
    /// Every write, in order.
    pub(super) writes: Vec<Write>,
    /// Every object that is written, by id.
    pub(super) touched: Vec<Touched<'a>>,
    /// Parameters that become others, by name.
    pub(super) params: Vec<(&'a str, &'a [u8])>,
    /// Events in the order of execution.
    pub(super) events: Vec<&'a Event>,
    /// All parameters afterwards.
    pub(super) all_params: Params,
}

impl Draft<'_> {
    /// Objects that were not there before.
    pub(super) fn created(&self) -> u64 {
        let new = self.touched.iter().filter(|touched| touched.old.is_none());
        u64::try_from(new.count()).unwrap_or(u64::MAX)
    }
}

impl Store {
    /// Checks everything of a checkpoint but its root.
    pub(super) fn draft<'a>(
        &self,
        snapshot: &dyn Snapshot,
        state: &State,
        checkpoint: &'a Checkpoint,
    ) -> Result<Draft<'a>, Error> {
        self.check_header(state, checkpoint)?;
        let seq = checkpoint.header.seq;
        let (params, all_params) = check_params(state, checkpoint)?;
        self.check_root_version(seq, &all_params)?;
        let events = check_events(checkpoint)?;
        let writes = self.decode_writes(checkpoint)?;
        let touched = self.check_writes(snapshot, checkpoint, &writes)?;
        Ok(Draft { checkpoint, seq, writes, touched, params, events, all_params })
    }

    fn check_header(&self, state: &State, checkpoint: &Checkpoint) -> Result<(), Error> {
        let header = &checkpoint.header;
        let here = |rule, what: String| Err(Error::refused(rule, what));
        let known = self.settings.chain_id.or(state.tip.as_ref().map(|tip| tip.header.chain_id));
        if let Some(chain) = known.filter(|chain| *chain != header.chain_id) {
            let what = format!("this is chain {chain}, and the header is of {}", header.chain_id);
            return here(Rule::ChainId, what);
        }
        if let Some(tip) = &state.tip {
            let next = tip.header.seq.checked_add(1);
            if next != Some(header.seq) {
                let what = format!("{} does not follow {}", header.seq, tip.header.seq);
                return here(Rule::SeqNotNext, what);
            }
            if header.prev_digest != tip.digest {
                let what = format!("{} is not {}", header.prev_digest, tip.digest);
                return here(Rule::PrevDigest, what);
            }
        }
        header
            .check_body(&checkpoint.tx_digests)
            .map_err(|rule| Error::refused(rule, format!("checkpoint {}", header.seq)))
    }

    /// The parameter that names the version of the root goes with the checkpoint that brings it.
    fn check_root_version(&self, seq: u64, params: &Params) -> Result<(), Error> {
        let here = |rule| Error::refused(rule, format!("checkpoint {seq}"));
        let wanted = self.settings.root_version(seq);
        match (wanted, params::state_root_version(params).map_err(here)?) {
            (RootVersion::V1, None | Some(1)) | (RootVersion::V2, Some(2)) => Ok(()),
            _ => Err(here(Rule::StateRootVersion)),
        }
    }

    /// Reads the objects of a checkpoint, and hashes them.
    fn decode_writes(&self, checkpoint: &Checkpoint) -> Result<Vec<Write>, Error> {
        let parts = threads::over(&checkpoint.writes, self.effort.threads, FOR_A_THREAD, |part| {
            let digests = Hash::of_each(part.iter().map(Vec::as_slice));
            let read = part.iter().zip(digests).map(|(bytes, digest)| {
                let object = Object::decode(bytes).map_err(|rule| {
                    let id = bytes.get(2..34).map_or_else(String::new, crate::hex);
                    Error::refused(rule, format!("an object of {} bytes, {id}", bytes.len()))
                })?;
                Ok(Write {
                    id: object.id,
                    version: object.version,
                    is_tombstone: object.is_tombstone,
                    is_immutable: object.owner == Owner::Immutable,
                    digest,
                })
            });
            read.collect::<Result<Vec<Write>, Error>>()
        });
        let mut writes = Vec::with_capacity(checkpoint.writes.len());
        for part in parts {
            writes.append(&mut part?);
        }
        Ok(writes)
    }

    /// Checks that every write is of the next version of something that may be written.
    fn check_writes<'a>(
        &self,
        snapshot: &dyn Snapshot,
        checkpoint: &'a Checkpoint,
        writes: &[Write],
    ) -> Result<Vec<Touched<'a>>, Error> {
        let mut order: Vec<(Hash, usize)> =
            writes.iter().enumerate().map(|(at, write)| (write.id, at)).collect();
        order.sort_unstable();
        let groups: Vec<&[(Hash, usize)]> = order.chunk_by(|a, b| a.0 == b.0).collect();
        let parts = threads::over(&groups, self.effort.threads, FOR_A_THREAD, |groups| {
            let touch = |group: &&[(Hash, usize)]| touch(snapshot, checkpoint, writes, group);
            groups.iter().map(touch).collect::<Result<Vec<_>, Error>>()
        });
        let mut touched = Vec::with_capacity(groups.len());
        for part in parts {
            touched.append(&mut part?);
        }
        Ok(touched)
    }
}

/// Goes through the writes of one object.
fn touch<'a>(
    snapshot: &dyn Snapshot,
    checkpoint: &'a Checkpoint,
    writes: &[Write],
    group: &[(Hash, usize)],
) -> Result<Touched<'a>, Error> {
    let id = group.first().map(|(id, _)| *id).unwrap_or_default();
    let here = |rule, version: u64| Error::refused(rule, format!("object {id}, version {version}"));
    let row = snapshot.get(OBJECTS, &id.0)?;
    let mut old = None;
    // Version, tombstone, immutable.
    let mut last: Option<(u64, bool, bool)> = None;
    if let Some(row) = &row {
        let damaged = |rule: Rule| Error::damaged(OBJECTS, &id.0, rule.text());
        let row = ObjectRow::decode(row).map_err(damaged)?;
        let object = Object::decode(row.bytes).map_err(damaged)?;
        old = Some(Old { version: object.version, seq: row.seq });
        last = Some((object.version, object.is_tombstone, object.owner == Owner::Immutable));
    }
    let mut newest = None;
    for (_, at) in group {
        let (Some(write), Some(bytes)) = (writes.get(*at), checkpoint.writes.get(*at)) else {
            continue;
        };
        let next = match last {
            None => Some(1),
            Some((_, true, _)) => return Err(here(Rule::WriteToTombstone, write.version)),
            Some((_, _, true)) => return Err(here(Rule::WriteToImmutable, write.version)),
            Some((version, ..)) => version.checked_add(1),
        };
        if next != Some(write.version) {
            return Err(here(Rule::VersionNotNext, write.version));
        }
        last = Some((write.version, write.is_tombstone, write.is_immutable));
        newest = Some(Record {
            id,
            version: write.version,
            is_tombstone: write.is_tombstone,
            seq: checkpoint.header.seq,
            bytes,
        });
    }
    let newest = newest.ok_or_else(|| Error::Inconsistent("a group of no writes".to_owned()))?;
    Ok(Touched { newest, old })
}

type Named<'a> = Vec<(&'a str, &'a [u8])>;

fn check_params<'a>(
    state: &State,
    checkpoint: &'a Checkpoint,
) -> Result<(Named<'a>, Params), Error> {
    let mut all = state.params.clone();
    let mut changed: Named<'a> = Vec::with_capacity(checkpoint.params.len());
    for (name, value) in &checkpoint.params {
        let here = |rule| Error::refused(rule, format!("parameter {name:.80}"));
        param_name(name.as_bytes()).map_err(here)?;
        all.insert(name.clone(), value.clone());
        changed.push((name, value));
    }
    changed.sort_unstable();
    for two in changed.windows(2) {
        if let [(a, _), (b, _)] = two
            && a == b
        {
            return Err(Error::refused(Rule::DuplicateParam, format!("parameter {a}")));
        }
    }
    Ok((changed, all))
}

fn check_events(checkpoint: &Checkpoint) -> Result<Vec<&Event>, Error> {
    let mut events: Vec<&Event> = checkpoint.events.iter().collect();
    events.sort_by_key(|event| (event.tx, event.number));
    for two in events.windows(2) {
        if let [a, b] = two
            && (a.tx, a.number) == (b.tx, b.number)
        {
            let what = format!("event {} of transaction {}", a.number, a.tx);
            return Err(Error::refused(Rule::DuplicateEvent, what));
        }
    }
    Ok(events)
}
