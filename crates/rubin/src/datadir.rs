//! Where a chain lives: `datadir/chains/<chain_id_hex>/` with `MANIFEST.json` and `db/`.
//!
//! Opening never makes anything: only `init` does. One process writes to a chain at a time.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{FileDir, FileDisk};
use ledger::{Engine, EngineKind, Home, HomeError, HomeLock};

use crate::chain::Chain;
use crate::error::Error;
use crate::export::{Export, restore_on};
use crate::genesis::Genesis;
use crate::hash::Hash;
use crate::manifest;
use crate::migrate::{self, Migrated};
use crate::tables::{ALL, BLOCKS, HEIGHTS};
use crate::validator::Validator;

/// The directory of the database, and its name while it is made.
const DATABASE: &str = "db";
const UNFINISHED: &str = "db.unfinished";

/// The directory of one chain.
#[derive(Clone, Debug)]
pub struct Datadir {
    path: PathBuf,
    chain_id: Hash,
}

impl Datadir {
    /// The directory of a chain in a datadir.
    pub fn new(datadir: impl AsRef<Path>, chain_id: Hash) -> Datadir {
        let path = datadir.as_ref().join("chains").join(chain_id.to_string());
        Datadir { path, chain_id }
    }

    /// The chains that a datadir has.
    pub fn chains(datadir: impl AsRef<Path>) -> Result<Vec<Hash>, Error> {
        let names = match FileDir::list(datadir.as_ref().join("chains")) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => Vec::new(),
            names => names.map_err(Error::io("list chains"))?,
        };
        // Upper-case digits are another name.
        let chain =
            |name: &String| name.parse().ok().filter(|hash: &Hash| hash.to_string() == *name);
        let mut chains: Vec<Hash> = names.iter().filter_map(chain).collect();
        chains.sort_unstable();
        Ok(chains)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The engine that the chain is in.
    pub fn engine_kind(&self) -> Result<EngineKind, Error> {
        let found = EngineKind::find(&self.path.join(DATABASE));
        if let Some(kind) = found.map_err(Error::io("look for the database"))? {
            return Ok(kind);
        }
        self.check_no_manifest()?;
        Err(Error::NotInitialised(self.path.display().to_string()))
    }

    /// A manifest without a database is what is left of a chain, and no place for a new one.
    fn check_no_manifest(&self) -> Result<(), Error> {
        if self.is_there(manifest::NAME)? {
            let what = "there is a MANIFEST.json, and no database that this software knows";
            return Err(Error::Inconsistent(what.to_owned()));
        }
        Ok(())
    }

    fn home(&self) -> Arc<FileDir> {
        Arc::new(FileDir::new(&self.path))
    }

    /// Makes the chain. Doing it again does no harm.
    pub fn init(
        &self,
        genesis: Genesis,
        kind: EngineKind,
        validator: Box<dyn Validator>,
    ) -> Result<Open, Error> {
        self.refuse_links()?;
        make_dir(&self.path)?;
        let lock = self.lock()?;
        self.finish_import()?;
        let is_new = !self.is_there(DATABASE)?;
        if is_new {
            self.check_no_manifest()?;
            // A database that is not whole never has the name.
            let unfinished = self.make_unfinished()?;
            drop(kind.create(&unfinished.join(kind.file()), ALL)?);
            FileDisk::rename(&unfinished, self.path.join(DATABASE))
                .map_err(Error::io("name the database"))?;
        }
        let kind = self.engine_kind()?;
        let engine = kind.open(&self.path.join(DATABASE).join(kind.file()), ALL)?;
        let chain = Chain::init(engine, self.home(), validator, genesis)?;
        Ok(Open::locked(chain, lock))
    }

    /// Opens the chain to import blocks. Without its first block that of the database counts.
    pub fn open(
        &self,
        genesis: impl Into<Option<Genesis>>,
        validator: Box<dyn Validator>,
    ) -> Result<Open, Error> {
        self.refuse_links()?;
        if !self.is_cut_off() {
            self.check_initialised()?;
        }
        let lock = self.lock()?;
        // Order: whoever makes the chain from an export has the lock, and names the manifest itself.
        self.finish_import()?;
        self.check_initialised()?;
        let kind = self.engine_kind()?;
        let engine = kind.open(&self.path.join(DATABASE).join(kind.file()), ALL)?;
        let given: Option<Genesis> = genesis.into();
        let genesis = given.map_or_else(|| self.genesis_in(&*engine), Ok)?;
        let chain = Chain::open(engine, self.home(), validator, genesis)?;
        Ok(Open::locked(chain, lock))
    }

    /// Opens the chain to look at it, beside whoever imports blocks.
    pub fn open_to_read(
        &self,
        genesis: Genesis,
        validator: Box<dyn Validator>,
    ) -> Result<Open, Error> {
        self.refuse_links()?;
        self.check_initialised()?;
        let kind = self.engine_kind()?;
        let engine = kind.open_to_read(&self.path.join(DATABASE).join(kind.file()), ALL)?;
        let chain = Chain::open_to_read(engine, self.home(), validator, genesis)?;
        Ok(Open::to_read(chain))
    }

    /// The chain's first block, as the chain itself has it.
    pub fn genesis(&self) -> Result<Genesis, Error> {
        self.refuse_links()?;
        // A database has its name when it is whole.
        if !self.is_cut_off() {
            self.check_initialised()?;
        }
        let kind = self.engine_kind()?;
        let engine = kind.open_to_read(&self.path.join(DATABASE).join(kind.file()), ALL)?;
        self.genesis_in(&*engine)
    }

    fn genesis_in(&self, engine: &dyn Engine) -> Result<Genesis, Error> {
        let snapshot = engine.snapshot()?;
        let hash = snapshot.get(HEIGHTS, &0_u64.to_be_bytes())?;
        let block = match hash {
            Some(hash) => snapshot.get(BLOCKS, &hash)?,
            None => None,
        };
        let genesis = block.and_then(|block| Genesis::new(block.into_owned()).ok());
        genesis.filter(|genesis| genesis.chain_id() == self.chain_id).ok_or_else(|| {
            Error::Inconsistent(
                "the database does not have the chain's genesis: give --profile".to_owned(),
            )
        })
    }

    /// Brings a chain of an older version to this one.
    pub fn migrate(&self, dry_run: bool, progress: &mut dyn FnMut(u64)) -> Result<Migrated, Error> {
        self.refuse_links()?;
        self.check_initialised()?;
        let _lock = self.lock()?;
        let kind = self.engine_kind()?;
        let path = self.path.join(DATABASE).join(kind.file());
        let engine = if dry_run { kind.open_to_read(&path, ALL) } else { kind.open(&path, ALL) }?;
        let (home, chain_id) = (self.home(), self.chain_id);
        migrate::migrate_on(&*engine, &*home, chain_id, dry_run, migrate::BATCH_BYTES, progress)
    }

    /// Makes the chain from an export. If `expected` is given, its set or the whole file must have that hash. The second covers
    /// everything; the first leaves out what undo records say of outputs that were spent, and witnesses.
    pub fn import_snapshot(
        &self,
        genesis: &Genesis,
        kind: EngineKind,
        input: &mut dyn Read,
        expected: Option<Hash>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Export, Error> {
        self.refuse_links()?;
        make_dir(&self.path)?;
        let _lock = self.lock()?;
        self.finish_import()?;
        if self.is_there(manifest::NAME)? || self.is_there(DATABASE)? {
            return Err(Error::NotEmpty(self.path.display().to_string()));
        }
        let unfinished = self.make_unfinished()?;
        let engine = kind.create(&unfinished.join(kind.file()), ALL)?;
        // Order: the manifest goes last, and only then has the database its name.
        let home = FileDir::new(&unfinished);
        let done = restore_on(&*engine, &home, genesis, input, expected, progress)?;
        drop(engine);
        FileDisk::rename(&unfinished, self.path.join(DATABASE))
            .map_err(Error::io("name the database"))?;
        self.finish_import()?;
        Ok(done)
    }

    /// Gives the manifest of an export its place, if it was cut off before that.
    fn finish_import(&self) -> Result<(), Error> {
        if !self.is_cut_off() {
            return Ok(());
        }
        let here = self.path.join(DATABASE).join(manifest::NAME);
        FileDisk::rename(here, self.path.join(manifest::NAME))
            .map_err(Error::io("name the manifest"))
    }

    /// True if there is something of this name. Whoever may not look is told so.
    fn is_there(&self, name: &str) -> Result<bool, Error> {
        self.path.join(name).try_exists().map_err(Error::io("look into the directory of the chain"))
    }

    /// True if the import of an export was cut off before its manifest had its place. Whoever writes next finishes it.
    fn is_cut_off(&self) -> bool {
        !self.path.join(manifest::NAME).exists()
            && self.path.join(DATABASE).join(manifest::NAME).exists()
    }

    /// An empty directory for a database that is not whole yet.
    fn make_unfinished(&self) -> Result<PathBuf, Error> {
        let unfinished = self.path.join(UNFINISHED);
        FileDir::remove_all(&unfinished).map_err(Error::io("remove an unfinished database"))?;
        make_dir(&unfinished)?;
        Ok(unfinished)
    }

    /// Whoever made the datadir must not lead us elsewhere. That it may be a link itself is up to whoever named it.
    fn refuse_links(&self) -> Result<(), Error> {
        let own = [self.path.parent(), Some(self.path.as_path())];
        own.into_iter()
            .flatten()
            .try_for_each(FileDir::refuse_link)
            .map_err(Error::io("open the directory of the chain"))
    }

    fn check_initialised(&self) -> Result<(), Error> {
        if self.is_there(manifest::NAME)? {
            return Ok(());
        }
        if self.is_cut_off() {
            return Err(Error::Unfinished);
        }
        Err(Error::NotInitialised(self.path.display().to_string()))
    }

    fn lock(&self) -> Result<HomeLock, Error> {
        Home::new(&self.path).lock().map_err(|error| match error {
            HomeError::Locked(pid) => Error::Locked(pid),
            HomeError::Io { doing, source } => Error::Io { doing, source },
            other => Error::Inconsistent(other.to_string()),
        })
    }

    /// The chain's identity.
    pub fn chain_id(&self) -> Hash {
        self.chain_id
    }
}

/// A chain that is open, and its lock.
pub type Open = ledger::Open<Chain>;

fn make_dir(path: &Path) -> Result<(), Error> {
    FileDir::make(path).map_err(Error::io("make a directory"))
}
