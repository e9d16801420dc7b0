//! Making a store, and opening it.

use std::ops::Bound;
use std::sync::Mutex;

use ledger::{Batch, Engine, Snapshot};

use super::{Effort, State, Store};
use crate::error::Error;
use crate::format::config::{self, Config};
use crate::format::point::Point;
use crate::format::rollback::{self, RollbackPoint};
use crate::format::tuft::Form;
use crate::settings::Settings;
use crate::tables::{ALL, ARRIVALS, CONFIG, META, ROLLBACKS};
use crate::tree::Tree;

/// Keys of the store's own table.
pub(super) const SETTINGS: &[u8] = b"settings";
pub(super) const WIPING: &[u8] = b"wiping";

impl Store {
    /// Makes a store in an engine that has none. Doing it again with the same settings does no harm.
    pub fn init(
        engine: Box<dyn Engine>,
        settings: Settings,
        effort: Effort,
    ) -> Result<Store, Error> {
        let found = settings_of(&*engine.snapshot()?)?;
        match found {
            None => {
                check_empty(&*engine.snapshot()?)?;
                engine.commit(first_rows(settings))?;
            }
            Some(found) if found == settings => {}
            Some(found) => {
                let name = |settings: Settings| {
                    format!("--path {} -k {}", settings.path.name(), settings.k)
                };
                return Err(Error::Settings { found: name(found), wanted: name(settings) });
            }
        }
        Store::open(engine, effort)
    }

    /// Opens a store that was made before. If somebody was wiping it, that is done.
    pub fn open(engine: Box<dyn Engine>, effort: Effort) -> Result<Store, Error> {
        let store = Store::of(engine, effort, false)?;
        store.finish_wiping()?;
        store.settle(&mut store.lock())?;
        Ok(store)
    }

    /// Opens a store to look at it, beside whoever changes it.
    pub fn open_to_read(engine: Box<dyn Engine>, effort: Effort) -> Result<Store, Error> {
        let store = Store::of(engine, effort, true)?;
        store.view()?;
        Ok(store)
    }

    /// A store that nothing was read of yet.
    fn of(engine: Box<dyn Engine>, effort: Effort, is_reader: bool) -> Result<Store, Error> {
        let settings = match settings_of(&*engine.snapshot()?)? {
            Some(settings) => settings,
            None => {
                check_empty(&*engine.snapshot()?)?;
                return Err(Error::NotInitialised("the engine".to_owned()));
            }
        };
        let form = form_in(&*engine);
        let state = State {
            tree: Tree::new(effort.memory, effort.threads, form),
            tip: Point::Origin,
            first_arrival: 0,
            next_arrival: 0,
            is_unfinished: false,
            is_settled: false,
        };
        let batch = effort.batch;
        Ok(Store { engine, settings, form, batch, is_reader, state: Mutex::new(state) })
    }

    /// Reads where the store is, unless that is known.
    pub(super) fn settle(&self, state: &mut State) -> Result<(), Error> {
        if !state.is_settled {
            let snapshot = self.engine.snapshot()?;
            state.read(&*snapshot)?;
        }
        Ok(())
    }
}

impl State {
    /// Reads where the store is, as of a snapshot.
    pub(super) fn read(&mut self, snapshot: &dyn Snapshot) -> Result<(), Error> {
        self.tree.forget();
        if snapshot.get(META, WIPING)?.is_some() {
            return Err(Error::Wiping);
        }
        let config = read_config(snapshot)?;
        let mut arrivals = snapshot.scan(ARRIVALS, (Bound::Unbounded, Bound::Unbounded))?;
        let (first, point) = arrival(arrivals.next())?;
        let (last, point) = match arrivals.next_back() {
            None => (first, point),
            some => arrival(some)?,
        };
        // The next block has a number, and so has the one after it.
        if last >= u64::MAX - 1 {
            return Err(Error::Inconsistent("a rollback point has no next one".to_owned()));
        }
        self.first_arrival = first;
        self.next_arrival = last + 1;
        self.tip = point;
        self.is_unfinished = config.in_progress;
        self.is_settled = true;
        Ok(())
    }
}

type Row<'a> = Result<(ledger::Bytes<'a>, ledger::Bytes<'a>), ledger::EngineError>;

/// The number of a point, and the point.
fn arrival(row: Option<Row<'_>>) -> Result<(u64, Point), Error> {
    let wrong = |what: &str| Error::Inconsistent(what.to_owned());
    let (number, key) = row.ok_or_else(|| wrong("there is no rollback point"))??;
    let number = <[u8; 8]>::try_from(&*number).map(u64::from_be_bytes);
    let number = number.map_err(|_| wrong("a rollback point has no number"))?;
    let point = rollback::point(&key).map_err(|wrong| Error::damaged(ARRIVALS, &key, wrong))?;
    Ok((number, point))
}

/// The service opens what RocksDB has. What is in other engines nobody reads but this store.
fn form_in(engine: &dyn Engine) -> Form {
    if engine.name() == "rocksdb" { Form::Service } else { Form::Packed }
}

/// Whoever has rows and no settings is no store of this kind.
fn check_empty(snapshot: &dyn Snapshot) -> Result<(), Error> {
    if ledger::is_empty(snapshot, ALL)? { Ok(()) } else { Err(Error::Foreign) }
}

fn settings_of(snapshot: &dyn Snapshot) -> Result<Option<Settings>, Error> {
    let Some(bytes) = snapshot.get(META, SETTINGS)? else { return Ok(None) };
    let settings = Settings::from_bytes(&bytes);
    settings.map(Some).ok_or_else(|| {
        let wrong = "the settings are damaged, or of another version: make the store anew";
        Error::Inconsistent(wrong.to_owned())
    })
}

/// The row of `config`.
pub(super) fn read_config(snapshot: &dyn Snapshot) -> Result<Config, Error> {
    match snapshot.get(CONFIG, config::KEY)? {
        Some(bytes) => {
            Config::from_bytes(&bytes).map_err(|wrong| Error::damaged(CONFIG, config::KEY, wrong))
        }
        None => Ok(Config::default()),
    }
}

/// The rows of a store without entries.
pub(super) fn first_rows(settings: Settings) -> Batch {
    let mut batch = Batch::new();
    batch.put(META, SETTINGS, &settings.to_bytes());
    batch.put(ROLLBACKS, rollback::SENTINEL, &RollbackPoint::sentinel().to_bytes());
    batch.put(ARRIVALS, &0_u64.to_be_bytes(), rollback::SENTINEL);
    batch.put(CONFIG, config::KEY, &Config::default().to_bytes());
    batch
}
