//! What an index does, wherever its rows are.
//!
//! Invariants
//! - A checkpoint is there whole or not at all, and the tip is part of it.
//! - Checkpoints follow each other without a gap, each with the digest of the one before in its header.
//! - While an index is built anew it says so, and answers nothing.

use misaka::{Checkpoint, Hash};

use crate::error::Error;
use crate::rows::{Counts, EventKey, EventRow, Holder, Live, Place, Record, Summary, Tip};

/// A part of a list: what comes after something, and not more than so much. A page that is shorter than asked for is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<K> {
    /// The last one that was seen; none: from the beginning.
    pub after: Option<K>,
    /// How many at most.
    pub limit: u32,
}

impl<K> Page<K> {
    /// The first page.
    pub fn first(limit: u32) -> Page<K> {
        Page { after: None, limit }
    }

    /// The page after something.
    pub fn after(after: K, limit: u32) -> Page<K> {
        Page { after: Some(after), limit }
    }
}

/// Which events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventsOf {
    /// All that are known.
    All,
    /// Those of a checkpoint.
    Checkpoint(u64),
    /// Those of a transaction, by its checkpoint and its place in it.
    Transaction(u64, u32),
}

impl EventsOf {
    /// The first and the last place.
    pub(crate) fn bounds(self) -> (EventKey, EventKey) {
        let (first, last) = match self {
            EventsOf::All => ((0, 0), (u64::MAX, u32::MAX)),
            EventsOf::Checkpoint(seq) => ((seq, 0), (seq, u32::MAX)),
            EventsOf::Transaction(seq, tx) => ((seq, tx), (seq, tx)),
        };
        (
            EventKey { seq: first.0, tx: first.1, number: 0 },
            EventKey { seq: last.0, tx: last.1, number: u32::MAX },
        )
    }
}

/// What became of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was applied.
    Applied(Summary),
    /// It is there already, and nothing was changed.
    Passed,
}

/// An index.
pub trait Index: std::fmt::Debug + Send + Sync {
    /// Where it is: an engine, or a server.
    fn name(&self) -> &'static str;

    /// The newest checkpoint; none of an empty index.
    fn tip(&self) -> Result<Option<Tip>, Error>;

    /// Applies a checkpoint, whole or not at all. One that is there already changes nothing.
    fn apply(&self, checkpoint: &Checkpoint) -> Result<Step, Error>;

    /// What a checkpoint came to; none if it is not known.
    fn summary(&self, seq: u64) -> Result<Option<Summary>, Error>;

    /// The objects of an owner, by id.
    fn owned(&self, holder: &Holder, page: Page<Hash>) -> Result<Vec<Live>, Error>;

    /// The objects of a type, by id.
    fn of_type(&self, type_tag: &str, page: Page<Hash>) -> Result<Vec<Live>, Error>;

    /// The versions of an object, the oldest first.
    fn history(&self, id: &Hash, page: Page<u64>) -> Result<Vec<Record>, Error>;

    /// The newest version of an object, a tombstone too.
    fn newest(&self, id: &Hash) -> Result<Option<Record>, Error>;

    /// The newest version of an object after a checkpoint, a tombstone too; none if there was no such object.
    ///
    /// Fails with [`Error::OutOfReach`] if that is not known.
    fn as_of(&self, id: &Hash, seq: u64) -> Result<Option<Record>, Error>;

    /// Where a transaction is; the first place if there are several.
    fn transaction(&self, digest: &Hash) -> Result<Option<Place>, Error>;

    /// Events, in the order of execution.
    fn events(&self, of: EventsOf, page: Page<EventKey>) -> Result<Vec<EventRow>, Error>;

    /// How much there is. Everything is counted for it.
    fn counts(&self) -> Result<Counts, Error>;

    /// Forgets everything, and notes that the index is not whole from now on.
    fn forget(&self) -> Result<(), Error>;

    /// Adds newest versions of objects, tombstones too, to an index that is not whole.
    fn load(&self, records: &[Record]) -> Result<(), Error>;

    /// Notes that the index is whole, as of a checkpoint.
    fn finish(&self, tip: Tip) -> Result<(), Error>;
}

/// Refuses to look before or after what is known.
pub(crate) fn check_reach(tip: Option<Tip>, seq: u64) -> Result<(), Error> {
    match tip {
        Some(tip) if seq <= tip.seq => Ok(()),
        Some(tip) => Err(Error::OutOfReach { seq, reach: format!("it ends with {}", tip.seq) }),
        None => Err(Error::OutOfReach { seq, reach: "it is empty".to_owned() }),
    }
}

/// What it means that no version of an object is as old as a checkpoint, if its first known version is this one.
pub(crate) fn nothing_as_of(tip: Option<Tip>, seq: u64, first: u64) -> Result<(), Error> {
    match tip.and_then(|tip| tip.base) {
        // It was written before, and only the newest version is known.
        Some(base) if first > 1 => {
            let reach = format!("it was built from the objects after checkpoint {base}");
            Err(Error::OutOfReach { seq, reach })
        }
        _ => Ok(()),
    }
}
