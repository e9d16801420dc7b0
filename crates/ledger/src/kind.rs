//! The engines that tables can be in.

use std::io;
use std::path::Path;

use host::FileDir;

use crate::adapters::kvb::{KvbEngine, KvbReadOnly};
use crate::engine::{Engine, Table};
use crate::error::{EngineError, Trouble};
use crate::home::{DATABASE, UNFINISHED};

/// What somebody wants of tables.
#[derive(Clone, Copy)]
enum Want {
    Create,
    Open,
    Read,
}

/// An engine that this software was built with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineKind {
    /// A bucket.
    #[default]
    Kvb,
    /// redb.
    #[cfg(feature = "redb")]
    Redb,
    /// fjall.
    #[cfg(feature = "fjall")]
    Fjall,
    /// RocksDB.
    #[cfg(feature = "rocksdb")]
    RocksDb,
}

impl EngineKind {
    /// Those that this software was built with.
    pub const ALL: &'static [EngineKind] = &[
        EngineKind::Kvb,
        #[cfg(feature = "redb")]
        EngineKind::Redb,
        #[cfg(feature = "fjall")]
        EngineKind::Fjall,
        #[cfg(feature = "rocksdb")]
        EngineKind::RocksDb,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Kvb => "kvb",
            #[cfg(feature = "redb")]
            EngineKind::Redb => "redb",
            #[cfg(feature = "fjall")]
            EngineKind::Fjall => "fjall",
            #[cfg(feature = "rocksdb")]
            EngineKind::RocksDb => "rocksdb",
        }
    }

    /// What it calls its file or its directory.
    pub fn file(self) -> &'static str {
        match self {
            EngineKind::Kvb => "data.kvb",
            #[cfg(feature = "redb")]
            EngineKind::Redb => "data.redb",
            #[cfg(feature = "fjall")]
            EngineKind::Fjall => "fjall",
            #[cfg(feature = "rocksdb")]
            EngineKind::RocksDb => "rocksdb",
        }
    }

    /// The engine that has something in a directory. Whoever may not look there is told so: nothing found is no reason to begin anew then.
    pub fn find(directory: &Path) -> io::Result<Option<EngineKind>> {
        for kind in EngineKind::ALL {
            if directory.join(kind.file()).try_exists()? {
                return Ok(Some(*kind));
            }
        }
        Ok(None)
    }

    /// Makes tables in a place where nothing is.
    pub fn create(
        self,
        path: &Path,
        tables: &'static [Table],
    ) -> Result<Box<dyn Engine>, EngineError> {
        self.get(Want::Create, path, tables)
    }

    /// Opens tables.
    pub fn open(
        self,
        path: &Path,
        tables: &'static [Table],
    ) -> Result<Box<dyn Engine>, EngineError> {
        self.get(Want::Open, path, tables)
    }

    /// Opens it for reading, and leaves every file as it is. Only fjall has no way to do that.
    pub fn open_to_read(
        self,
        path: &Path,
        tables: &'static [Table],
    ) -> Result<Box<dyn Engine>, EngineError> {
        self.get(Want::Read, path, tables)
    }

    /// A store's directory may come from somebody else; what it leads to elsewhere is not of the store.
    fn refuse_links(self, path: &Path) -> Result<(), EngineError> {
        let is_own = |parent: &&Path| {
            [DATABASE, UNFINISHED].iter().any(|name| parent.file_name() == Some(name.as_ref()))
        };
        let mut own = [Some(path), path.parent().filter(is_own)].into_iter().flatten();
        own.try_for_each(FileDir::refuse_link).map_err(|error| {
            EngineError::new(self.name(), "open the tables", Trouble::Other, error)
        })
    }

    fn get(
        self,
        want: Want,
        path: &Path,
        tables: &'static [Table],
    ) -> Result<Box<dyn Engine>, EngineError> {
        self.refuse_links(path)?;
        // A bucket takes any table.
        let _any = tables;
        Ok(match (self, want) {
            (EngineKind::Kvb, Want::Create) => Box::new(KvbEngine::create(path)?),
            (EngineKind::Kvb, Want::Open) => Box::new(KvbEngine::open(path)?),
            (EngineKind::Kvb, Want::Read) => Box::new(KvbReadOnly::open(path)?),
            #[cfg(feature = "redb")]
            (EngineKind::Redb, want) => Box::new(match want {
                Want::Create => crate::RedbEngine::create(path, tables)?,
                Want::Open => crate::RedbEngine::open(path, tables)?,
                Want::Read => crate::RedbEngine::open_to_read(path, tables)?,
            }),
            #[cfg(feature = "fjall")]
            (EngineKind::Fjall, want) => Box::new(match want {
                Want::Create => crate::FjallEngine::create(path, tables)?,
                Want::Open | Want::Read => crate::FjallEngine::open(path, tables)?,
            }),
            #[cfg(feature = "rocksdb")]
            (EngineKind::RocksDb, want) => Box::new(match want {
                Want::Create => crate::RocksEngine::create(path, tables)?,
                Want::Open => crate::RocksEngine::open(path, tables)?,
                Want::Read => crate::RocksEngine::open_to_read(path, tables)?,
            }),
        })
    }
}
