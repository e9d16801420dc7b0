//! The directory of a store: `db/` with its tables, and a lock.
//!
//! Opening never makes anything. Tables that are not whole never have the name, so making them can be cut off and done again. One
//! process writes at a time.

use std::path::{Path, PathBuf};

use host::{Disk, FileDir, FileDisk, LockError};

use crate::engine::{Engine, Table};
use crate::error::EngineError;
use crate::kind::EngineKind;

/// The directory of the tables, and its name while they are made.
pub(crate) const DATABASE: &str = "db";
pub(crate) const UNFINISHED: &str = "db.unfinished";
/// Whoever writes has this file locked.
const LOCK: &str = "LOCK";

/// The directory of a store.
#[derive(Clone, Debug)]
pub struct Home {
    path: PathBuf,
}

/// Whoever has this is the only one who writes.
#[derive(Debug)]
pub struct HomeLock {
    _file: FileDisk,
}

/// Why a directory could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HomeError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process writes, with this number if that is known.
    #[error("another process uses it")]
    Locked(Option<u32>),
    /// There are no tables.
    #[error("there is nothing in {0}")]
    Nothing(String),
    /// There are tables already.
    #[error("there is something in {0}")]
    NotEmpty(String),
}

fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> HomeError {
    move |source| HomeError::Io { doing, source }
}

impl Home {
    /// A directory, which need not be there yet.
    pub fn new(path: impl AsRef<Path>) -> Home {
        Home { path: path.as_ref().to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The engine that its tables are in.
    pub fn kind(&self) -> Result<EngineKind, HomeError> {
        let found = self.find()?;
        found.ok_or_else(|| HomeError::Nothing(self.path.display().to_string()))
    }

    /// The same, or none if there are no tables.
    fn find(&self) -> Result<Option<EngineKind>, HomeError> {
        EngineKind::find(&self.path.join(DATABASE)).map_err(io("look for tables"))
    }

    /// Makes the directory if it is not there, and locks it.
    pub fn make_and_lock(&self) -> Result<HomeLock, HomeError> {
        FileDir::make(&self.path).map_err(io("make a directory"))?;
        self.lock()
    }

    /// Locks the directory.
    pub fn lock(&self) -> Result<HomeLock, HomeError> {
        let path = self.path.join(LOCK);
        FileDir::refuse_link(&path).map_err(io("open the lock"))?;
        let file = match FileDisk::create_new(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                FileDisk::open(&path)
            }
            file => file,
        };
        let file = file.map_err(io("open the lock"))?;
        file.lock().map_err(|error| match error {
            LockError::Held { pid } => HomeError::Locked(pid),
            LockError::Io(source) => HomeError::Io { doing: "lock the directory", source },
        })?;
        Ok(HomeLock { _file: file })
    }

    /// Makes tables and opens them, or opens those that are there.
    pub fn create(
        &self,
        _lock: &HomeLock,
        kind: EngineKind,
        tables: &'static [Table],
    ) -> Result<Box<dyn Engine>, HomeError> {
        if self.find()?.is_none() {
            let unfinished = self.path.join(UNFINISHED);
            self.discard_unfinished(_lock)?;
            FileDir::make(&unfinished).map_err(io("make a directory"))?;
            drop(kind.create(&unfinished.join(kind.file()), tables)?);
            FileDisk::rename(&unfinished, self.path.join(DATABASE))
                .map_err(io("name the tables"))?;
        }
        self.open(_lock, tables)
    }

    /// Tables that are filled before they get their name: new ones, or those that somebody began with.
    pub fn begin(
        &self,
        lock: &HomeLock,
        kind: EngineKind,
        tables: &'static [Table],
    ) -> Result<Box<dyn Engine>, HomeError> {
        if self.find()?.is_some() {
            return Err(HomeError::NotEmpty(self.path.display().to_string()));
        }
        let unfinished = self.path.join(UNFINISHED);
        let path = unfinished.join(kind.file());
        // What cannot be opened was cut off while it was made.
        if path.exists()
            && let Ok(engine) = kind.open(&path, tables)
        {
            return Ok(engine);
        }
        self.discard_unfinished(lock)?;
        FileDir::make(&unfinished).map_err(io("make a directory"))?;
        drop(kind.create(&path, tables)?);
        Ok(kind.open(&path, tables)?)
    }

    /// Gives tables their name, once they are filled and closed.
    pub fn finish(&self, _lock: &HomeLock) -> Result<(), HomeError> {
        FileDisk::rename(self.path.join(UNFINISHED), self.path.join(DATABASE))
            .map_err(io("name the tables"))
    }

    /// Removes tables that have no name yet.
    pub fn discard_unfinished(&self, _lock: &HomeLock) -> Result<(), HomeError> {
        FileDir::remove_all(self.path.join(UNFINISHED)).map_err(io("remove unfinished tables"))
    }

    /// Opens the tables.
    pub fn open(
        &self,
        _lock: &HomeLock,
        tables: &'static [Table],
    ) -> Result<Box<dyn Engine>, HomeError> {
        let kind = self.kind()?;
        Ok(kind.open(&self.path.join(DATABASE).join(kind.file()), tables)?)
    }

    /// Opens the tables for reading.
    pub fn open_to_read(&self, tables: &'static [Table]) -> Result<Box<dyn Engine>, HomeError> {
        let kind = self.kind()?;
        Ok(kind.open_to_read(&self.path.join(DATABASE).join(kind.file()), tables)?)
    }
}
