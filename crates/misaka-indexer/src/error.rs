//! Why an index did not do something, and what to do then.

use ledger::{EngineError, HomeError};
use misaka::Hash;

/// A fault of the index, of whom it follows, or of whoever asked it. Nothing is changed by whatever ends with one, but for a rebuild,
/// which is then unfinished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The validator's database or the snapshot failed.
    #[error(transparent)]
    Validator(#[from] misaka::Error),
    /// The server failed, or said no.
    #[error("the server cannot {doing}: {source}")]
    Server {
        /// What was being done.
        doing: &'static str,
        /// The connection is lost, or was not made: trying again makes another one.
        is_lost: bool,
        /// What it said itself.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The system failed.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no index.
    #[error("there is no index in {0}")]
    NotInitialised(String),
    /// There are rows, and none of them is the index's own.
    #[error("this is the database of another program, and no index")]
    Foreign,
    /// Another process writes.
    #[error("the index is in use by {}", holder(*.0))]
    Locked(Option<u32>),
    /// A rebuild was cut off, or is under way. It must be run again.
    #[error("the index is not whole: a rebuild is under way or was cut off, and must be run again")]
    Unfinished,
    /// Checkpoints are missing between the index and what it is given. It must be built anew.
    #[error("{}", gap(*.tip, *.next))]
    Gap {
        /// The newest checkpoint of the index.
        tip: Option<u64>,
        /// The first one that can be had.
        next: u64,
    },
    /// The index is of another chain. It must be built anew.
    #[error(
        "the index has {known} as checkpoint {seq}, and {given} was given: they are of two chains, and the index must be rebuilt"
    )]
    Fork {
        /// The checkpoint.
        seq: u64,
        /// Its digest in the index.
        known: Hash,
        /// The other one.
        given: Hash,
    },
    /// A checkpoint is not one that can be applied.
    #[error("checkpoint {seq} cannot be applied: {wrong}")]
    Refused {
        /// Its number.
        seq: u64,
        /// What is wrong.
        wrong: String,
    },
    /// The index does not reach there.
    #[error("the index does not reach checkpoint {seq}: {reach}")]
    OutOfReach {
        /// Which was asked for.
        seq: u64,
        /// What it has.
        reach: String,
    },
    /// A row is not what was written there.
    #[error("{table} has a damaged row under {key}: {wrong}; the index must be rebuilt")]
    Damaged {
        /// The table.
        table: &'static str,
        /// The key, in hex.
        key: String,
        /// What is wrong.
        wrong: &'static str,
    },
    /// The tables are of another version of this software.
    #[error("the tables have version {found}, and this software knows {known}")]
    Schema {
        /// What they have.
        found: i64,
        /// What is known.
        known: i64,
    },
    /// What was given cannot be used.
    #[error("{0}")]
    Input(String),
    /// Somebody asked for an end.
    #[error("interrupted")]
    Interrupted,
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

fn gap(tip: Option<u64>, next: u64) -> String {
    match tip {
        Some(tip) => format!(
            "the index has checkpoint {tip}, and the next one that can be had is {next}: what is between is gone, and the index must be rebuilt"
        ),
        None => format!(
            "the index is empty, and the first checkpoint that can be had is {next}, not the first one of the chain: the index must be rebuilt"
        ),
    }
}

impl Error {
    /// True if the same can be tried again, and may well work then.
    pub fn is_lost_connection(&self) -> bool {
        matches!(self, Error::Server { is_lost: true, .. })
    }

    /// True if only a rebuild helps.
    pub fn asks_for_rebuild(&self) -> bool {
        matches!(
            self,
            Error::Unfinished | Error::Gap { .. } | Error::Fork { .. } | Error::Damaged { .. }
        )
    }
}

impl From<HomeError> for Error {
    fn from(error: HomeError) -> Error {
        match error {
            HomeError::Engine(error) => Error::Engine(error),
            HomeError::Io { doing, source } => Error::Io { doing, source },
            HomeError::Locked(pid) => Error::Locked(pid),
            HomeError::Nothing(place) => Error::NotInitialised(place),
            other => Error::Input(other.to_string()),
        }
    }
}
