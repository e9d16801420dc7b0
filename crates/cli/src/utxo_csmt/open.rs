//! Which database a command is about, and what its arguments mean.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use csmt::format::point::Point;
use csmt::{Database, Effort, Error, Hash, Open, PathKind};

use crate::exit::{Done, Fail, of_engine};
use crate::input::{from_hex, size};

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
    /// Memory for nodes of the tree
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
    memory: u64,
    /// Threads that work at a block. Default: one for each core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl Take {
    pub(super) fn effort(&self) -> Effort {
        let default = Effort::default();
        Effort {
            memory: usize::try_from(self.memory).unwrap_or(usize::MAX),
            threads: self.threads.unwrap_or(default.threads),
            ..default
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
        self.database().open_to_read(Effort::default()).map_err(because)
    }
}

/// How paths are made, as an argument.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum PathArg {
    /// The digest of the output's address, then the key
    Address,
    /// The key
    Raw,
}

impl From<PathArg> for PathKind {
    fn from(argument: PathArg) -> PathKind {
        match argument {
            PathArg::Address => PathKind::Address,
            PathArg::Raw => PathKind::Raw,
        }
    }
}

/// Bytes in hex, with or without `0x`.
pub(super) fn hex(text: &str) -> Result<Vec<u8>, String> {
    from_hex(text.strip_prefix("0x").unwrap_or(text))
        .ok_or_else(|| "give pairs of hex digits".to_owned())
}

/// A digest of 32 bytes in hex.
pub(super) fn hash(text: &str) -> Result<Hash, String> {
    let bytes = hex(text)?;
    Hash::from_slice(&bytes).ok_or_else(|| "give 64 hex digits".to_owned())
}

/// A point: `SLOT:HASH`, or `origin`.
pub(super) fn point(text: &str) -> Result<Point, String> {
    if text == "origin" {
        return Ok(Point::Origin);
    }
    let wrong = || "give SLOT:HASH with 64 hex digits, or origin".to_owned();
    let (slot, hash_text) = text.split_once(':').ok_or_else(wrong)?;
    if slot.is_empty() || !slot.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(wrong());
    }
    let slot = slot.parse().map_err(|_| wrong())?;
    Ok(Point::block(slot, hash(hash_text).map_err(|_| wrong())?))
}

/// An address: hex, or bech32 as wallets show it.
pub(super) fn address(text: &str) -> Result<Vec<u8>, String> {
    if let Ok(bytes) = hex(text) {
        return Ok(bytes);
    }
    match bech32::decode(text) {
        Ok((_, bytes)) => Ok(bytes),
        Err(error) => Err(format!("this is neither hex nor bech32: {error}")),
    }
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
        Error::Missing(_) => fail.hint(
            "the block spends what this set does not have: entries from before it are missing, or it is of another chain",
        ),
        Error::NotAfter(..) => {
            fail.hint("`utxo-csmt rollback --to` goes back to where the block follows")
        }
        _ => fail,
    }
}
