//! Why the store did not do something.

use alloc::string::{String, ToString};

use ledger::{EngineError, Table};

use crate::cbor::Malformed;
use crate::format::point::Point;
use crate::path::{Path, TooLong};

/// A fault of the store, or of whoever asked it. Nothing is changed by whatever ends with one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
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
    /// A row of a table is not what was written there.
    #[error(
        "{table} has a damaged row under {key}: {wrong}; restore the database from a backup, or bootstrap it anew"
    )]
    Damaged {
        /// The table.
        table: &'static str,
        /// The key, in hex.
        key: String,
        /// What is wrong.
        wrong: String,
    },
    /// Rows do not fit together.
    #[error(
        "the tables do not fit together: {0}; restore the database from a backup, or bootstrap it anew"
    )]
    Inconsistent(String),
    /// An entry that a block deletes is not there.
    #[error("there is no entry {0} to delete")]
    Missing(String),
    /// The path of an entry begins with that of another, or the other way round.
    #[error(
        "the path {0} begins with that of another entry, or that one with it: no tree can hold both"
    )]
    Prefix(Path),
    /// The path of an entry is too long.
    #[error("the key is too long: {0}")]
    Path(#[from] TooLong),
    /// A value has no address where one should be.
    #[error("the value of {key} has no address: {wrong}")]
    Address {
        /// The key, in hex.
        key: String,
        /// What is wrong.
        wrong: &'static str,
    },
    /// An entry has no key.
    #[error("a key has a byte at least")]
    EmptyKey,
    /// A block does not come after the one before.
    #[error("the block at {0} is not after the tip {1}")]
    NotAfter(Point, Point),
    /// A bootstrap was begun and is not done.
    #[error("a bootstrap is not done: run `utxo-csmt bootstrap` again, or `utxo-csmt wipe`")]
    Unfinished,
    /// Somebody is deleting everything, or was cut off while doing that.
    #[error(
        "the database is being wiped: wait for that, or open it to write, which goes on with it"
    )]
    Wiping,
    /// There is nothing yet.
    #[error("there is no database in {0}: `utxo-csmt init --db ...` makes one")]
    NotInitialised(String),
    /// There are rows, and none of them is the store's own.
    #[error("the database is of another program")]
    Foreign,
    /// There is something already.
    #[error("there are entries already: choose an empty database")]
    NotEmpty,
    /// The database was made with other settings.
    #[error("the database was made with {found}, and {wanted} was asked for")]
    Settings {
        /// What it has.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// Another process has the database.
    #[error("the database is in use by {}", holder(*.0))]
    Locked(Option<u32>),
    /// What was given cannot be used.
    #[error("{0}")]
    Input(String),
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_string(), |pid| std::format!("process {pid}"))
}

impl Error {
    pub(crate) fn damaged(table: Table, key: &[u8], wrong: Malformed) -> Error {
        Error::Damaged { table: table.name, key: hex(key), wrong: wrong.to_string() }
    }
}

/// Bytes as hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use core::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
