//! An index on an engine of this process.
//!
//! ```text
//! index_meta          "layout" | "state"                                 what the index knows of itself
//! index_owners        kind, 1 | owner, 32 | object, 32                   nothing
//! index_types         SHA3-256 of the type tag, 32 | object, 32          nothing
//! index_history       object, 32 | version, u64be                        checkpoint, u64be | the object
//! index_heads         object, 32                                         first version, u64be | newest version, u64be
//! index_transactions  digest, 32 | checkpoint, u64be | place, u32be      nothing
//! index_events        checkpoint, u64be | transaction, u32be | number, u32be   the event
//! index_checkpoints   checkpoint, u64be                                  what it came to
//! ```
//!
//! Invariants
//! - A checkpoint is one batch, and so is every step of a rebuild.
//! - The versions of an object are there without a gap, from the first to the newest of its head. So any of them is found by reading
//!   rows by their keys, which is cheaper than to look for the last one in a range.
//! - An object has a row among owners if its newest version is live and somebody owns it, and one among types if it is live.

mod read;
mod row;
mod write;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ledger::{Engine, EngineKind, Home, HomeLock, Snapshot, Table};
use misaka::{Checkpoint, Hash};

use crate::error::Error;
use crate::index::{EventsOf, Index, Page, Step};
use crate::rows::{Counts, EventKey, EventRow, Holder, Live, Place, Record, Summary, Tip};
use row::State;

const META: Table = Table { name: "index_meta", id: 1 };
const OWNERS: Table = Table { name: "index_owners", id: 2 };
const TYPES: Table = Table { name: "index_types", id: 3 };
const HISTORY: Table = Table { name: "index_history", id: 4 };
const TRANSACTIONS: Table = Table { name: "index_transactions", id: 5 };
const EVENTS: Table = Table { name: "index_events", id: 6 };
const CHECKPOINTS: Table = Table { name: "index_checkpoints", id: 7 };
const HEADS: Table = Table { name: "index_heads", id: 8 };

/// The tables of an index.
pub const TABLES: &[Table] =
    &[META, OWNERS, TYPES, HISTORY, TRANSACTIONS, EVENTS, CHECKPOINTS, HEADS];

/// Keys of the index's own table.
const LAYOUT: &[u8] = b"layout";
const STATE: &[u8] = b"state";
/// How rows are laid out. To change that is to count on.
const LAYOUT_VERSION: u8 = 1;

/// An index on an engine.
#[derive(Debug)]
pub struct Embedded {
    engine: Box<dyn Engine>,
    /// Whoever writes reads first, and nobody may come between.
    writing: Mutex<()>,
    _lock: Option<HomeLock>,
}

impl Embedded {
    /// An index in an engine, which may be empty.
    pub fn on(engine: Box<dyn Engine>) -> Result<Embedded, Error> {
        Embedded::with(engine, None)
    }

    /// Makes an index in a directory, or opens the one that is there, whatever engine it is in.
    pub fn init(path: impl AsRef<Path>, kind: EngineKind) -> Result<Embedded, Error> {
        let home = Home::new(path);
        let lock = home.make_and_lock()?;
        let engine = home.create(&lock, kind, TABLES)?;
        Embedded::with(engine, Some(lock))
    }

    /// Opens the index in a directory to look at it, beside whoever changes it.
    pub fn open_to_read(path: impl AsRef<Path>) -> Result<Embedded, Error> {
        Embedded::with(Home::new(path).open_to_read(TABLES)?, None)
    }

    fn with(engine: Box<dyn Engine>, lock: Option<HomeLock>) -> Result<Embedded, Error> {
        let found = engine.snapshot()?.get(META, LAYOUT)?.map(|layout| layout.into_owned());
        match found.as_deref() {
            None if ledger::is_empty(&*engine.snapshot()?, TABLES)? => {}
            None => return Err(Error::Foreign),
            Some([LAYOUT_VERSION]) => {}
            Some(other) => {
                let found = other.first().copied().unwrap_or(0).into();
                return Err(Error::Schema { found, known: LAYOUT_VERSION.into() });
            }
        }
        Ok(Embedded { engine, writing: Mutex::new(()), _lock: lock })
    }

    /// The engine.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows as they are now, and the tip; refused while they are not whole.
    fn whole(&self) -> Result<(Box<dyn Snapshot + '_>, Option<Tip>), Error> {
        let snapshot = self.engine.snapshot()?;
        match State::read(&*snapshot)? {
            State::Empty => Ok((snapshot, None)),
            State::Whole(tip) => Ok((snapshot, Some(tip))),
            State::Unfinished => Err(Error::Unfinished),
        }
    }
}

impl Index for Embedded {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn tip(&self) -> Result<Option<Tip>, Error> {
        Ok(self.whole()?.1)
    }

    fn apply(&self, checkpoint: &Checkpoint) -> Result<Step, Error> {
        let _alone = self.lock();
        let (snapshot, tip) = self.whole()?;
        write::apply(&*self.engine, &*snapshot, tip, checkpoint)
    }

    fn summary(&self, seq: u64) -> Result<Option<Summary>, Error> {
        read::summary(&*self.whole()?.0, seq)
    }

    fn owned(&self, holder: &Holder, page: Page<Hash>) -> Result<Vec<Live>, Error> {
        let prefix = [[holder.kind()].as_slice(), holder.id()].concat();
        read::list(&*self.whole()?.0, OWNERS, &prefix, page)
    }

    fn of_type(&self, type_tag: &str, page: Page<Hash>) -> Result<Vec<Live>, Error> {
        let prefix = crate::rows::type_digest(type_tag);
        read::list(&*self.whole()?.0, TYPES, &prefix.0, page)
    }

    fn history(&self, id: &Hash, page: Page<u64>) -> Result<Vec<Record>, Error> {
        read::history(&*self.whole()?.0, id, page)
    }

    fn newest(&self, id: &Hash) -> Result<Option<Record>, Error> {
        read::newest(&*self.whole()?.0, id)
    }

    fn as_of(&self, id: &Hash, seq: u64) -> Result<Option<Record>, Error> {
        let (snapshot, tip) = self.whole()?;
        read::as_of(&*snapshot, tip, id, seq)
    }

    fn transaction(&self, digest: &Hash) -> Result<Option<Place>, Error> {
        read::transaction(&*self.whole()?.0, digest)
    }

    fn events(&self, of: EventsOf, page: Page<EventKey>) -> Result<Vec<EventRow>, Error> {
        read::events(&*self.whole()?.0, of, page)
    }

    fn counts(&self) -> Result<Counts, Error> {
        read::counts(&*self.whole()?.0)
    }

    fn forget(&self) -> Result<(), Error> {
        let _alone = self.lock();
        write::forget(&*self.engine)
    }

    fn load(&self, records: &[Record]) -> Result<(), Error> {
        let _alone = self.lock();
        write::load(&*self.engine, records)
    }

    fn finish(&self, tip: Tip) -> Result<(), Error> {
        let _alone = self.lock();
        write::finish(&*self.engine, tip)
    }
}
