//! A checkpoint, read and checked before anything is written.

use std::collections::BTreeMap;

use misaka::format::object::Object;
use misaka::{Checkpoint, Hash};

use crate::error::Error;
use crate::rows::{Holder, Summary, Tip, type_digest};

/// What is wrong where a checkpoint goes on from versions of an object of which the index has none, or not what it says.
pub(crate) const NOT_THE_NEXT: &str =
    "the newest version is not the one before the one that is written";

/// The error for a checkpoint that repeats versions of an object, or skips some, where the index has what it says.
pub(crate) fn not_the_next(seq: u64, id: &Hash, newest: u64, written: u64) -> Error {
    let wrong = format!("object {id} has version {newest}, and version {written} is written");
    Error::Refused { seq, wrong }
}

/// A checkpoint that can be applied.
pub(crate) struct Plan<'a> {
    pub(crate) summary: Summary,
    /// The objects, each with its bytes, in the order of execution.
    pub(crate) writes: Vec<(Object<'a>, &'a [u8])>,
    /// Of every object that is written: its first write and its last one.
    pub(crate) changed: BTreeMap<Hash, (usize, usize)>,
}

/// Where a checkpoint stands to an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    /// It is the next one.
    Next,
    /// It is not after the newest one: it must be the same that is there.
    Old,
}

/// Under what an object can be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) holder: Option<Holder>,
    pub(crate) type_digest: Hash,
}

impl Found {
    /// None of a tombstone.
    pub(crate) fn of(object: &Object<'_>) -> Option<Found> {
        (!object.is_tombstone).then(|| Found {
            holder: Holder::of(&object.owner),
            type_digest: type_digest(object.type_tag),
        })
    }
}

/// Where a checkpoint stands, by the newest one that is there.
pub(crate) fn stand(tip: Option<Tip>, checkpoint: &Checkpoint) -> Result<Stand, Error> {
    let Some(tip) = tip else { return Ok(Stand::Next) };
    let header = &checkpoint.header;
    if header.seq <= tip.seq {
        return Ok(Stand::Old);
    }
    if header.seq - 1 != tip.seq {
        return Err(Error::Gap { tip: Some(tip.seq), next: header.seq });
    }
    match header.prev_digest == tip.digest {
        true => Ok(Stand::Next),
        false => Err(Error::Fork { seq: tip.seq, known: tip.digest, given: header.prev_digest }),
    }
}

/// Compares a checkpoint with the one of its number, of which this is known.
pub(crate) fn compare(tip: Tip, known: Option<Hash>, checkpoint: &Checkpoint) -> Result<(), Error> {
    let seq = checkpoint.header.seq;
    let known = known.or((seq == tip.seq).then_some(tip.digest));
    let Some(known) = known else {
        let reach = tip.base.map_or_else(
            || "it begins later".to_owned(),
            |base| format!("it was built from the objects after checkpoint {base}"),
        );
        return Err(Error::OutOfReach { seq, reach });
    };
    let given = checkpoint.header.digest();
    match known == given {
        true => Ok(()),
        false => Err(Error::Fork { seq, known, given }),
    }
}

impl<'a> Plan<'a> {
    /// Reads a checkpoint, and checks what it says of itself.
    pub(crate) fn of(checkpoint: &'a Checkpoint, tip: Option<Tip>) -> Result<Plan<'a>, Error> {
        let header = &checkpoint.header;
        let refused = |wrong: String| Error::Refused { seq: header.seq, wrong };
        header.check_body(&checkpoint.tx_digests).map_err(|rule| refused(rule.to_string()))?;
        let mut plan = Plan {
            summary: Summary::of(header, checkpoint),
            writes: Vec::with_capacity(checkpoint.writes.len()),
            changed: BTreeMap::new(),
        };
        for (number, bytes) in checkpoint.writes.iter().enumerate() {
            let object =
                Object::decode(bytes).map_err(|rule| refused(format!("write {number}: {rule}")))?;
            let before = plan.changed.get(&object.id).and_then(|(_, last)| plan.writes.get(*last));
            let expected = match before {
                Some((before, _)) => before.version.checked_add(1),
                // The first checkpoint of a chain finds nothing.
                None if tip.is_none() && object.version > 1 => {
                    return Err(Error::Gap { tip: None, next: header.seq });
                }
                None => Some(object.version),
            };
            if expected != Some(object.version) {
                let wrong =
                    format!("object {} skips a version before {}", object.id, object.version);
                return Err(refused(wrong));
            }
            plan.summary.created += u64::from(object.version == 1);
            plan.summary.deleted += u64::from(object.is_tombstone);
            plan.changed.entry(object.id).or_insert((number, number)).1 = number;
            plan.writes.push((object, bytes));
        }
        Ok(plan)
    }

    /// The tip after it.
    pub(crate) fn tip(&self, before: Option<Tip>) -> Tip {
        let base = before.and_then(|before| before.base);
        Tip { seq: self.summary.seq, digest: self.summary.digest, base }
    }

    /// Every object that is written: its first write, its last one, and that one's bytes.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (&Object<'a>, &Object<'a>)> {
        self.changed.values().filter_map(|(first, last)| {
            Some((&self.writes.get(*first)?.0, &self.writes.get(*last)?.0))
        })
    }
}
