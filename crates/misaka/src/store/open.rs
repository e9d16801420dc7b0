//! Making a store, and opening it.

use std::ops::Bound;
use std::sync::Mutex;

use ledger::{Batch, Engine, Snapshot};

use super::rows::TipRow;
use super::{State, Store, Tip};
use crate::error::Error;
use crate::format::key::param_name;
use crate::format::node::{self, Child};
use crate::format::params::Params;
use crate::settings::{Effort, Settings};
use crate::tables::{ALL, META, PARAMS};

/// Keys of the store's own table.
pub(super) const SETTINGS: &[u8] = b"settings";
pub(crate) const TIP: &[u8] = b"tip";
pub(crate) const TREE_TOP: &[u8] = b"tree";

impl Store {
    /// Makes a store in an engine that has none. Doing it again with the same settings does no harm.
    pub fn init(
        engine: Box<dyn Engine>,
        settings: Settings,
        effort: Effort,
    ) -> Result<Store, Error> {
        settings.check()?;
        effort.check()?;
        let found = settings_of(&*engine.snapshot()?)?;
        match found {
            None => {
                check_empty(&*engine.snapshot()?)?;
                engine.commit(first_rows(settings))?;
            }
            Some(found) if found == settings => {}
            Some(found) => {
                return Err(Error::Settings {
                    found: found.describe(),
                    wanted: settings.describe(),
                });
            }
        }
        Store::open(engine, effort)
    }

    /// Opens a store that was made before.
    pub fn open(engine: Box<dyn Engine>, effort: Effort) -> Result<Store, Error> {
        effort.check()?;
        let settings = match settings_of(&*engine.snapshot()?)? {
            Some(settings) => settings,
            None => {
                check_empty(&*engine.snapshot()?)?;
                return Err(Error::NotInitialised("the engine".to_owned()));
            }
        };
        let store = make(engine, settings, effort);
        store.settle(&mut store.lock())?;
        Ok(store)
    }

    /// Reads where the store is, unless that is known.
    pub(super) fn settle(&self, state: &mut State) -> Result<(), Error> {
        if !state.is_settled {
            let snapshot = self.engine.snapshot()?;
            *state = State {
                is_settled: true,
                tip: tip_of(&*snapshot)?,
                params: params_of(&*snapshot)?,
                root1: None,
                tree: tree_of(&*snapshot)?,
            };
        }
        Ok(())
    }
}

/// A store that nothing was read of yet.
pub(crate) fn make(engine: Box<dyn Engine>, settings: Settings, effort: Effort) -> Store {
    Store { engine, settings, effort, state: Mutex::new(State::default()) }
}

/// The rows of a store without checkpoints.
pub(crate) fn first_rows(settings: Settings) -> Batch {
    let mut batch = Batch::new();
    batch.put(META, SETTINGS, &settings.to_bytes());
    batch
}

/// Whoever has rows and no settings is no store of this kind.
fn check_empty(snapshot: &dyn Snapshot) -> Result<(), Error> {
    if ledger::is_empty(snapshot, ALL)? { Ok(()) } else { Err(Error::Foreign) }
}

fn settings_of(snapshot: &dyn Snapshot) -> Result<Option<Settings>, Error> {
    let Some(bytes) = snapshot.get(META, SETTINGS)? else { return Ok(None) };
    let settings = Settings::from_bytes(&bytes);
    settings.map(Some).ok_or_else(|| {
        Error::damaged(META, SETTINGS, "the settings are damaged, or of another version")
    })
}

pub(super) fn tip_of(snapshot: &dyn Snapshot) -> Result<Option<Tip>, Error> {
    let Some(bytes) = snapshot.get(META, TIP)? else { return Ok(None) };
    TipRow::decode(&bytes).map(Some).map_err(|rule| Error::damaged(META, TIP, rule.text()))
}

pub(super) fn tree_of(snapshot: &dyn Snapshot) -> Result<Option<Child>, Error> {
    let Some(bytes) = snapshot.get(META, TREE_TOP)? else { return Ok(None) };
    let top = node::decode_top(&bytes);
    top.map(Some).map_err(|rule| Error::damaged(META, TREE_TOP, rule.text()))
}

pub(super) fn params_of(snapshot: &dyn Snapshot) -> Result<Params, Error> {
    let mut params = Params::new();
    for row in snapshot.scan(PARAMS, (Bound::Unbounded, Bound::Unbounded))? {
        let (name, value) = row?;
        let text = param_name(&name).map_err(|rule| Error::damaged(PARAMS, &name, rule.text()))?;
        params.insert(text.to_owned(), value.into_owned());
    }
    Ok(params)
}
