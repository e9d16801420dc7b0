//! What an index tells.

use misaka::format::checkpoint::Header;
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Hash, Rule};

/// Somebody who can own objects. What is shared or immutable has no owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    /// An address.
    Address([u8; 32]),
    /// Another object.
    Object([u8; 32]),
}

impl Holder {
    /// Whoever owns, if anybody does.
    pub fn of(owner: &Owner) -> Option<Holder> {
        match owner {
            Owner::Address(id) => Some(Holder::Address(*id)),
            Owner::Object(id) => Some(Holder::Object(*id)),
            Owner::Shared(_) | Owner::Immutable => None,
        }
    }

    /// The number of its kind.
    pub fn kind(&self) -> u8 {
        match self {
            Holder::Address(_) => 0,
            Holder::Object(_) => 1,
        }
    }

    /// Its 32 bytes.
    pub fn id(&self) -> &[u8; 32] {
        match self {
            Holder::Address(id) | Holder::Object(id) => id,
        }
    }
}

/// The newest checkpoint of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Its number.
    pub seq: u64,
    /// Its digest.
    pub digest: Hash,
    /// The checkpoint whose objects the index was built from; none if it was fed from the first one on. Of what was before, only the
    /// newest version of each object is known.
    pub base: Option<u64>,
}

/// An object that is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Its id.
    pub id: Hash,
    /// Its newest version.
    pub version: u64,
    /// The checkpoint that wrote it.
    pub seq: u64,
}

/// A version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The object.
    pub id: Hash,
    /// The version.
    pub version: u64,
    /// The checkpoint that wrote it.
    pub seq: u64,
    /// The object as it was then.
    pub bytes: Vec<u8>,
}

impl Record {
    /// The object as it was then.
    pub fn object(&self) -> Result<Object<'_>, Rule> {
        Object::decode(&self.bytes)
    }
}

/// Where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The checkpoint.
    pub seq: u64,
    /// Its place in it, from 0.
    pub index: u32,
}

/// Where an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKey {
    /// The checkpoint.
    pub seq: u64,
    /// The transaction, by its place in it.
    pub tx: u32,
    /// The number of the event among those of the transaction.
    pub number: u32,
}

impl EventKey {
    /// The first place after this one; none after the last of all.
    pub(crate) fn next(self) -> Option<EventKey> {
        let EventKey { seq, tx, number } = self;
        match (number.checked_add(1), tx.checked_add(1), seq.checked_add(1)) {
            (Some(number), _, _) => Some(EventKey { number, ..self }),
            (None, Some(tx), _) => Some(EventKey { seq, tx, number: 0 }),
            (None, None, seq) => seq.map(|seq| EventKey { seq, tx: 0, number: 0 }),
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    /// Where it is.
    pub key: EventKey,
    /// What happened.
    pub bytes: Vec<u8>,
}

/// What a checkpoint came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its number.
    pub seq: u64,
    /// Its digest.
    pub digest: Hash,
    /// The epoch.
    pub epoch: u64,
    /// When, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// Transactions.
    pub transactions: u64,
    /// Versions of objects that were written, tombstones too.
    pub writes: u64,
    /// Objects that were new.
    pub created: u64,
    /// Objects that were deleted.
    pub deleted: u64,
    /// Events.
    pub events: u64,
    /// Bytes of events.
    pub event_bytes: u64,
}

impl Summary {
    /// A summary of what can be counted without looking into objects.
    pub(crate) fn of(header: &Header, checkpoint: &Checkpoint) -> Summary {
        let event_bytes = checkpoint.events.iter().map(|event| event.bytes.len()).sum();
        Summary {
            seq: header.seq,
            digest: header.digest(),
            epoch: header.epoch,
            timestamp_ms: header.timestamp_ms,
            transactions: wide(checkpoint.tx_digests.len()),
            writes: wide(checkpoint.writes.len()),
            created: 0,
            deleted: 0,
            events: wide(checkpoint.events.len()),
            event_bytes: wide(event_bytes),
        }
    }
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Objects that are there now.
    pub objects: u64,
    /// Versions of objects.
    pub versions: u64,
    /// Transactions.
    pub transactions: u64,
    /// Events.
    pub events: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

pub(crate) fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The name of a type as it is in keys: any name fits there.
pub(crate) fn type_digest(tag: &str) -> Hash {
    Hash::of(&[tag.as_bytes()])
}
