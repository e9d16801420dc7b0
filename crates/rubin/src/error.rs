//! Why the store did not do something. None of it says anything about a block: that is what [`Code`](crate::Code)s are for.

use ledger::{EngineError, Malformed, Table};

use crate::hash::{Hash, to_hex};

/// A fault of the store, or of whoever asked it.
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
        "{table} has a damaged value under {key}: {wrong}; restore the datadir from a backup, or import the chain anew"
    )]
    Damaged {
        /// The table.
        table: &'static str,
        /// The key, in hex.
        key: String,
        /// What is wrong.
        wrong: String,
    },
    /// The index has no entry of a block that it should have.
    #[error("REORG_ERR_INDEX_MISSING: the index does not know block {0}, and nothing was changed")]
    IndexMissing(Hash),
    /// There is no undo record of a block that was applied.
    #[error(
        "REORG_ERR_UNDO_MISSING: there is no undo record of block {0}, and nothing was changed"
    )]
    UndoMissing(Hash),
    /// The bytes of a block are not there.
    #[error(
        "REORG_ERR_BLOCK_MISSING: the bytes of block {0} are not there, and nothing was changed"
    )]
    BlockMissing(Hash),
    /// Manifest and database do not fit together.
    #[error(
        "REORG_ERR_CHAINSTATE_INCONSISTENT: {0}; nothing was changed: restore the datadir from a backup, or import the chain anew"
    )]
    Inconsistent(String),
    /// A crash left the database one step from the manifest. Opening the chain to import mends it.
    #[error(
        "the last import was cut off between the database and MANIFEST.json; nothing is lost, and the next import mends it, or `rubin-node init --datadir ...`"
    )]
    Unfinished,
    /// The manifest is not one.
    #[error("MANIFEST.json {0}; restore it from a backup")]
    Manifest(String),
    /// The datadir was written by newer software.
    #[error(
        "the datadir has schema version {found}, and this software knows versions up to {supported}: use newer software"
    )]
    NewerSchema {
        /// The datadir's.
        found: u32,
        /// The newest that is known here.
        supported: u32,
    },
    /// The datadir was written by older software.
    #[error(
        "the datadir has schema version {found}; `rubin-node migrate --datadir ...` brings it to version {supported}"
    )]
    OlderSchema {
        /// The datadir's.
        found: u32,
        /// The one that is needed.
        supported: u32,
    },
    /// The datadir is of another chain.
    #[error(
        "the datadir is of chain {found}, and chain {wanted} was asked for: choose another datadir or profile"
    )]
    ForeignChain {
        /// The datadir's.
        found: String,
        /// The one that was asked for.
        wanted: String,
    },
    /// An export is not one, or is damaged.
    #[error("the export cannot be used: {0}; nothing that counts was changed")]
    Export(String),
    /// There is nothing yet.
    #[error("there is no chain in {0}: `rubin-node init --datadir ...` makes one")]
    NotInitialised(String),
    /// There is something already.
    #[error("there is a chain in {0} already, or a part of one: choose an empty datadir")]
    NotEmpty(String),
    /// Another process has the datadir.
    #[error("the datadir is in use by {}", holder(*.0))]
    Locked(Option<u32>),
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl Error {
    pub(crate) fn damaged(table: Table, key: &[u8], wrong: Malformed) -> Error {
        Error::Damaged { table: table.name, key: to_hex(key), wrong: wrong.to_string() }
    }

    pub(crate) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { doing, source }
    }
}
