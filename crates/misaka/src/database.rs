//! A store in a directory.

use std::path::Path;

use ledger::{EngineKind, Home, HomeError, HomeLock};

use crate::error::Error;
use crate::settings::{Effort, Settings};
use crate::store::Store;
use crate::tables::ALL;

/// The directory of a store.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) home: Home,
}

/// A store that is open, and its lock.
#[derive(Debug)]
pub struct Open {
    store: Store,
    _lock: Option<HomeLock>,
}

impl std::ops::Deref for Open {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl Database {
    /// A directory, which need not be there yet.
    pub fn new(path: impl AsRef<Path>) -> Database {
        Database { home: Home::new(path) }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// The engine it is in.
    pub fn engine_kind(&self) -> Result<EngineKind, Error> {
        Ok(self.home.kind()?)
    }

    /// Makes a store. Doing it again with the same settings does no harm.
    pub fn init(
        &self,
        kind: EngineKind,
        settings: Settings,
        effort: Effort,
    ) -> Result<Open, Error> {
        let lock = self.home.make_and_lock()?;
        let engine = self.home.create(&lock, kind, ALL)?;
        Ok(Open { store: Store::init(engine, settings, effort)?, _lock: Some(lock) })
    }

    /// Opens the store.
    pub fn open(&self, effort: Effort) -> Result<Open, Error> {
        self.home.kind()?;
        let lock = self.home.lock()?;
        let engine = self.home.open(&lock, ALL)?;
        Ok(Open { store: Store::open(engine, effort)?, _lock: Some(lock) })
    }

    /// Opens the store to look at it, beside whoever changes it.
    pub fn open_to_read(&self, effort: Effort) -> Result<Open, Error> {
        let engine = self.home.open_to_read(ALL)?;
        Ok(Open { store: Store::open(engine, effort)?, _lock: None })
    }
}

impl From<HomeError> for Error {
    fn from(error: HomeError) -> Error {
        match error {
            HomeError::Engine(error) => Error::Engine(error),
            HomeError::Io { doing, source } => Error::Io { doing: doing.to_owned(), source },
            HomeError::Locked(pid) => Error::Locked(pid),
            HomeError::Nothing(place) => Error::NotInitialised(place),
            HomeError::NotEmpty(place) => Error::NotEmpty(place),
            other => Error::Input(other.to_string()),
        }
    }
}
