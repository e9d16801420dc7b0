//! A store in a directory.

use ledger::{Engine, HomeError, Housed, Table};

use crate::error::Error;
use crate::settings::{Effort, Settings};
use crate::store::Store;
use crate::tables::ALL;

/// The directory of a store.
pub type Database = ledger::Database<Store>;

/// A store that is open, and its lock.
pub type Open = ledger::Open<Store>;

impl Housed for Store {
    type Settings = Settings;
    type Effort = Effort;
    type Error = Error;

    const TABLES: &'static [Table] = ALL;

    fn make(engine: Box<dyn Engine>, settings: Settings, effort: Effort) -> Result<Store, Error> {
        Store::init(engine, settings, effort)
    }

    fn load(engine: Box<dyn Engine>, effort: Effort) -> Result<Store, Error> {
        Store::open(engine, effort)
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
