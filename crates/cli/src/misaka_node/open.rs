//! Which database a command is about, and what its arguments mean.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use misaka::{Database, Effort, Error, Hash, MEMORY_MAX, Open, Settings, Stage};

use crate::bar::Bar;
use crate::exit::{Done, Fail, of_engine};
use crate::input::{from_hex, size};

/// Most threads that somebody can ask for.
const THREADS_MAX: usize = 256;

/// The database.
#[derive(Args, Clone)]
pub(super) struct Where {
    /// The directory of the database
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) db: PathBuf,
}

/// How much the program may take.
#[derive(Args, Clone)]
pub(super) struct Take {
    /// Memory for all that is held; not more than the 2560M that a validator has for storage
    #[arg(long, value_name = "SIZE", default_value = "2560M", value_parser = memory)]
    memory: usize,
    /// Threads that work. Default: one for each core
    #[arg(long, value_name = "N", value_parser = threads)]
    threads: Option<usize>,
}

impl Take {
    pub(super) fn effort(&self) -> Effort {
        let default = Effort::default();
        Effort { memory: self.memory, threads: self.threads.unwrap_or(default.threads), ..default }
    }
}

fn memory(text: &str) -> Result<usize, String> {
    match usize::try_from(size(text)?) {
        Ok(memory) if memory <= MEMORY_MAX => Ok(memory),
        _ => Err("a validator has 2560M for storage".to_owned()),
    }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("give 1 to {THREADS_MAX}")),
    }
}

/// What a database is made with, but for its chain.
#[derive(Args, Clone, Copy)]
pub(super) struct Windows {
    /// Checkpoints whose events are kept
    #[arg(long, value_name = "N", default_value_t = misaka::EVENT_RETENTION_CHECKPOINTS, value_parser = at_least_one())]
    event_retention: u64,
    /// Checkpoints that are kept, and whose versions of objects are
    #[arg(long, value_name = "N", default_value_t = misaka::PRUNING_WINDOW_CHECKPOINTS, value_parser = at_least_one())]
    window: u64,
    /// The first checkpoint with a root of StateRoot-v2. Default: there is none
    #[arg(long, value_name = "SEQ")]
    v2_at: Option<u64>,
}

fn at_least_one() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

impl Windows {
    pub(super) fn settings(self, chain_id: Option<u32>) -> Settings {
        Settings {
            chain_id,
            event_retention: self.event_retention,
            window: self.window,
            v2_at: self.v2_at,
        }
    }
}

impl Where {
    pub(super) fn database(&self) -> Database {
        Database::new(&self.db)
    }

    /// Opens the database to change it.
    pub(super) fn open(&self, effort: Effort) -> Done<Open> {
        self.database().open(effort).map_err(because)
    }

    /// Opens the database to look at it.
    pub(super) fn look(&self) -> Done<Open> {
        self.look_with(Effort::default())
    }

    /// The same, where looking is work.
    pub(super) fn look_with(&self, effort: Effort) -> Done<Open> {
        self.database().open_to_read(effort).map_err(because)
    }
}

/// Bytes in hex, with or without `0x`.
pub(super) fn hex(text: &str) -> Result<Vec<u8>, String> {
    from_hex(text.strip_prefix("0x").unwrap_or(text))
        .ok_or_else(|| "give pairs of hex digits".to_owned())
}

/// A digest or an id, 32 bytes in hex.
pub(super) fn hash(text: &str) -> Result<Hash, String> {
    let bytes = hex(text).ok().and_then(|bytes| Hash::from_slice(&bytes));
    bytes.ok_or_else(|| "give 64 hex digits".to_owned())
}

/// What an error of the store means to whoever called.
pub(super) fn because(error: Error) -> Fail {
    let fail = Fail::failed(error.to_string());
    match &error {
        Error::Engine(error) => of_engine(error),
        Error::Locked(_) => {
            fail.hint("wait for it or stop it; commands that only read work beside it")
        }
        Error::NotInitialised(_) => fail.hint("look at --db"),
        Error::Foreign => fail.hint("nothing was changed: give --db another directory"),
        Error::Settings { .. } => {
            fail.hint("say the same as when it was made, or choose another directory with --db")
        }
        Error::NoCheckpoint => fail.hint("`misaka-node apply` brings checkpoints"),
        Error::NoTree(_) => {
            fail.hint("`misaka-node state-root --v 2` gives the root that the state would have")
        }
        Error::Interrupted => Fail::interrupted("interrupted"),
        _ => fail,
    }
}

/// The same of something that Ctrl-C can end, with words for what became of it.
pub(super) fn because_or(words: &'static str) -> impl Fn(Error) -> Fail {
    move |error| match error {
        Error::Interrupted => Fail::interrupted(words),
        error => because(error),
    }
}

/// Progress of something that has stages.
pub(super) struct Stages {
    bar: Mutex<Option<(Stage, Bar)>>,
    hashed: Hashed,
    is_quiet: bool,
}

/// What is counted while something is hashed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hashed {
    Objects,
    Bytes,
}

impl Stages {
    /// Of a database.
    pub(super) fn of_store(is_quiet: bool) -> Stages {
        Stages { bar: Mutex::new(None), hashed: Hashed::Objects, is_quiet }
    }

    /// Of files.
    pub(super) fn of_files(is_quiet: bool) -> Stages {
        Stages { bar: Mutex::new(None), hashed: Hashed::Bytes, is_quiet }
    }

    /// So much is done.
    pub(super) fn show(&self, stage: Stage, done: u64, total: u64) {
        let mut shown = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = match shown.take() {
            Some((last, bar)) if last == stage => bar,
            _ => self.bar(stage, total),
        };
        match total {
            0 => bar.set(done),
            total => bar.set_of(done, total),
        }
        *shown = Some((stage, bar));
    }

    fn bar(&self, stage: Stage, total: u64) -> Bar {
        let is_bytes = match stage {
            Stage::Hashing => self.hashed == Hashed::Bytes,
            Stage::Checking => false,
            _ => true,
        };
        match is_bytes {
            true => Bar::bytes(stage.name(), (total > 0).then_some(total), self.is_quiet),
            false => Bar::count(stage.name(), total, self.is_quiet),
        }
    }
}
