//! A store in its directory: who makes it, opens it to change it, or only looks at it.
//!
//! Invariants
//! - A store that can be changed has the directory's lock for as long as it is open.
//! - Looking takes no lock: it goes on beside whoever changes the store.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;

use crate::engine::{Engine, Table};
use crate::home::{Home, HomeError, HomeLock};
use crate::kind::EngineKind;

/// A store that lives in a directory.
pub trait Housed: Sized {
    /// What it is made with, and cannot be changed without making it anew.
    type Settings;
    /// How much it may take while it is open.
    type Effort;
    /// What it fails with.
    type Error: From<HomeError>;

    /// Its tables.
    const TABLES: &'static [Table];

    /// Makes it in tables, or opens the one that is there if it has the same settings.
    fn make(
        engine: Box<dyn Engine>,
        settings: Self::Settings,
        effort: Self::Effort,
    ) -> Result<Self, Self::Error>;

    /// The one that is in tables.
    fn load(engine: Box<dyn Engine>, effort: Self::Effort) -> Result<Self, Self::Error>;

    /// The same, in tables that nobody can write to.
    fn load_to_read(engine: Box<dyn Engine>, effort: Self::Effort) -> Result<Self, Self::Error> {
        Self::load(engine, effort)
    }
}

/// The directory of a store.
pub struct Database<S> {
    home: Home,
    store: PhantomData<fn() -> S>,
}

/// A store that is open, and its lock.
#[derive(Debug)]
pub struct Open<S> {
    store: S,
    _lock: Option<HomeLock>,
}

impl<S> Open<S> {
    /// A store that can be changed, and what keeps others from that.
    pub fn locked(store: S, lock: HomeLock) -> Open<S> {
        Open { store, _lock: Some(lock) }
    }

    /// A store that is only looked at.
    pub fn to_read(store: S) -> Open<S> {
        Open { store, _lock: None }
    }
}

impl<S> Deref for Open<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}

impl<S: Housed> Database<S> {
    /// A directory, which need not be there yet.
    pub fn new(path: impl AsRef<Path>) -> Database<S> {
        Database { home: Home::new(path), store: PhantomData }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// The directory itself, for whoever fills its tables in other ways.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The engine it is in.
    pub fn engine_kind(&self) -> Result<EngineKind, S::Error> {
        Ok(self.home.kind()?)
    }

    /// Makes a store. Doing it again with the same settings does no harm.
    pub fn init(
        &self,
        kind: EngineKind,
        settings: S::Settings,
        effort: S::Effort,
    ) -> Result<Open<S>, S::Error> {
        let lock = self.home.make_and_lock()?;
        let engine = self.home.create(&lock, kind, S::TABLES)?;
        Ok(Open::locked(S::make(engine, settings, effort)?, lock))
    }

    /// Opens the store.
    pub fn open(&self, effort: S::Effort) -> Result<Open<S>, S::Error> {
        // Order: locking would make a file where there is no store.
        self.home.kind()?;
        let lock = self.home.lock()?;
        let engine = self.home.open(&lock, S::TABLES)?;
        Ok(Open::locked(S::load(engine, effort)?, lock))
    }

    /// Opens the store to look at it, beside whoever changes it.
    pub fn open_to_read(&self, effort: S::Effort) -> Result<Open<S>, S::Error> {
        let engine = self.home.open_to_read(S::TABLES)?;
        Ok(Open::to_read(S::load_to_read(engine, effort)?))
    }
}

// By hand: what is derived would ask the store for the same.
impl<S> Clone for Database<S> {
    fn clone(&self) -> Database<S> {
        Database { home: self.home.clone(), store: PhantomData }
    }
}

impl<S> fmt::Debug for Database<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("home", &self.home).finish()
    }
}
