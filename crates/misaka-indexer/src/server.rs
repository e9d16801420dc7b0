//! An index on a PostgreSQL server. What the tables are, [`schema`](crate::schema) says.
//!
//! Invariants
//! - A checkpoint is one transaction, which holds the row of `misaka_state`: of two who follow at once, one finds it done.
//! - A rebuild counts the generation on before anything else. Whoever reads looks at it before and after, and so never takes rows of an
//!   index that is not whole for an answer.
//! - A connection that is lost may have committed or not. The tip tells.

mod link;
mod number;
mod read;
mod write;

use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use misaka::{Checkpoint, Hash};
use postgres::{Config, Row};

use crate::error::Error;
use crate::index::{EventsOf, Index, Page, Step};
use crate::rows::{Counts, EventKey, EventRow, Holder, Live, Place, Record, Summary, Tip};
use crate::schema;
pub(crate) use link::cannot;
use link::{Link, Told, is_conflict};
use number::Number;

/// How often a transaction is tried that others are in the way of.
const TRIES: usize = 8;

/// What an index knows of itself.
const STATE: &str =
    "SELECT generation, is_whole, tip_seq, tip_digest, base_seq FROM misaka_state WHERE one = 1";

/// An index on a server.
#[derive(Debug)]
pub struct Server {
    config: Config,
    link: Mutex<Option<Link>>,
    /// The generation of the rebuild that was begun here.
    generation: AtomicI64,
}

/// What a row of the state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    generation: i64,
    is_whole: bool,
    tip: Option<Tip>,
}

impl State {
    fn of(row: &Row) -> Result<State, Error> {
        let seq: Option<Number> = column(row, 2)?;
        let digest: Option<&[u8]> = column(row, 3)?;
        let base: Option<Number> = column(row, 4)?;
        let tip = match (seq, digest) {
            (Some(seq), Some(digest)) => Some(Tip {
                seq: seq.0,
                digest: hash(digest, "misaka_state")?,
                base: base.map(|base| base.0),
            }),
            _ => None,
        };
        Ok(State { generation: column(row, 0)?, is_whole: column(row, 1)?, tip })
    }

    /// The tip, of an index that is whole.
    fn whole(self) -> Result<Option<Tip>, Error> {
        match self.is_whole {
            true => Ok(self.tip),
            false => Err(Error::Unfinished),
        }
    }
}

impl Server {
    /// Connects to a server, and makes the tables or brings them up to date. The address is as in
    /// `postgresql://user@host:5432/database`, or `host=/run/postgresql dbname=...`.
    pub fn init(address: &str) -> Result<Server, Error> {
        let server = Server::to(address)?;
        server.with(|link| schema::migrate(&mut link.client))?;
        Ok(server)
    }

    /// Connects to a server that has an index, to look at it.
    pub fn open_to_read(address: &str) -> Result<Server, Error> {
        let server = Server::to(address)?;
        let found = server.with(|link| schema::version(&mut link.client))?;
        let found =
            found.ok_or_else(|| Error::NotInitialised("this database of the server".to_owned()))?;
        match found == schema::known() {
            true => Ok(server),
            false => Err(Error::Schema { found, known: schema::known() }),
        }
    }

    fn to(address: &str) -> Result<Server, Error> {
        let config = Config::from_str(address).map_err(|error| {
            Error::Input(format!("this is no address of a server: {}", Told(error)))
        })?;
        Ok(Server { config, link: Mutex::new(None), generation: AtomicI64::new(-1) })
    }

    /// Does something with a connection, which is made if there is none. One that failed is not used again.
    fn with<T>(&self, task: impl FnOnce(&mut Link) -> Result<T, Error>) -> Result<T, Error> {
        let mut slot = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let mut link = match slot.take().filter(|link| !link.client.is_closed()) {
            Some(link) => link,
            None => Link::open(&self.config)?,
        };
        let done = task(&mut link);
        if !done.as_ref().is_err_and(Error::is_lost_connection) {
            *slot = Some(link);
        }
        done
    }

    /// Does something again as long as others are in its way.
    fn retry<T>(&self, task: impl Fn(&mut Link) -> Result<T, Error>) -> Result<T, Error> {
        let is_in_the_way = |error: &Error| match error {
            Error::Server { source, .. } => {
                let told = source.downcast_ref::<Told>();
                told.and_then(|told| told.0.code()).is_some_and(is_conflict)
            }
            _ => false,
        };
        for _ in 1..TRIES {
            let done = self.with(&task);
            if !done.as_ref().is_err_and(is_in_the_way) {
                return done;
            }
        }
        self.with(task)
    }

    /// Asks something of an index that is whole before and after. A connection that was lost since the last question is made again.
    fn ask<T>(
        &self,
        question: impl Fn(&mut Link, Option<Tip>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let ask = |link: &mut Link| {
            let before = state(link)?;
            let answer = question(link, before.whole()?)?;
            match state(link)?.generation == before.generation {
                true => Ok(answer),
                false => Err(Error::Unfinished),
            }
        };
        match self.with(ask) {
            Err(error) if error.is_lost_connection() => self.with(ask),
            answer => answer,
        }
    }
}

fn state(link: &mut Link) -> Result<State, Error> {
    let [text] = link.prepare([STATE])?;
    State::of(&link.client.query_one(&text, &[]).map_err(cannot("read its state"))?)
}

/// A column of a row.
fn column<'a, T: postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Error> {
    row.try_get(at).map_err(cannot("give what was asked for"))
}

fn hash(bytes: &[u8], table: &'static str) -> Result<Hash, Error> {
    Hash::from_slice(bytes).ok_or_else(|| Error::Damaged {
        table,
        key: misaka::hex(bytes),
        wrong: "this is no digest",
    })
}

impl Index for Server {
    fn name(&self) -> &'static str {
        "postgresql"
    }

    fn tip(&self) -> Result<Option<Tip>, Error> {
        self.ask(|_, tip| Ok(tip))
    }

    fn apply(&self, checkpoint: &Checkpoint) -> Result<Step, Error> {
        self.retry(|link| write::apply(link, checkpoint))
    }

    fn summary(&self, seq: u64) -> Result<Option<Summary>, Error> {
        self.ask(|link, _| read::summary(link, seq))
    }

    fn owned(&self, holder: &Holder, page: Page<Hash>) -> Result<Vec<Live>, Error> {
        self.ask(|link, _| read::owned(link, holder, page))
    }

    fn of_type(&self, type_tag: &str, page: Page<Hash>) -> Result<Vec<Live>, Error> {
        self.ask(|link, _| read::of_type(link, type_tag, page))
    }

    fn history(&self, id: &Hash, page: Page<u64>) -> Result<Vec<Record>, Error> {
        self.ask(|link, _| read::history(link, id, page))
    }

    fn newest(&self, id: &Hash) -> Result<Option<Record>, Error> {
        self.ask(|link, _| read::newest(link, id, u64::MAX))
    }

    fn as_of(&self, id: &Hash, seq: u64) -> Result<Option<Record>, Error> {
        self.ask(|link, tip| read::as_of(link, tip, id, seq))
    }

    fn transaction(&self, digest: &Hash) -> Result<Option<Place>, Error> {
        self.ask(|link, _| read::transaction(link, digest))
    }

    fn events(&self, of: EventsOf, page: Page<EventKey>) -> Result<Vec<EventRow>, Error> {
        self.ask(|link, _| read::events(link, of, page))
    }

    fn counts(&self) -> Result<Counts, Error> {
        self.ask(|link, _| read::counts(link))
    }

    fn forget(&self) -> Result<(), Error> {
        let generation = self.retry(write::forget)?;
        self.generation.store(generation, Ordering::SeqCst);
        Ok(())
    }

    fn load(&self, records: &[Record]) -> Result<(), Error> {
        let generation = self.generation.load(Ordering::SeqCst);
        self.retry(|link| write::load(link, generation, records))
    }

    fn finish(&self, tip: Tip) -> Result<(), Error> {
        let generation = self.generation.load(Ordering::SeqCst);
        self.retry(|link| write::finish(link, generation, tip))
    }
}
