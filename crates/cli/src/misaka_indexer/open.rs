//! Which index a command is about, and what its arguments mean.

use std::path::PathBuf;

use clap::Args;
use ledger::EngineKind;
use misaka::Hash;
#[cfg(feature = "postgres")]
use misaka_indexer::Server;
use misaka_indexer::{Embedded, Error, EventKey, Index};
use serde_json::{Value, json};

use crate::exit::{Done, Fail};
use crate::input::from_hex;
#[cfg(feature = "postgres")]
use crate::input::to_hex;

/// The index: a directory, or a database of a server.
#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
pub(super) struct Where {
    /// The directory of the index
    #[arg(long, value_name = "DIRECTORY")]
    index: Option<PathBuf>,
    /// The database of a PostgreSQL server with the index. The password can be in PGPASSWORD
    #[cfg(feature = "postgres")]
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
}

impl Where {
    /// Opens the index to change it, and makes it if there is none.
    pub(super) fn open(&self, kind: EngineKind) -> Done<Box<dyn Index>> {
        #[cfg(feature = "postgres")]
        if let Some(address) = &self.postgres {
            return Ok(Box::new(Server::init(&with_password(address)).map_err(because)?));
        }
        Ok(Box::new(Embedded::init(self.directory()?, kind).map_err(because)?))
    }

    /// Opens the index to look at it.
    pub(super) fn look(&self) -> Done<Box<dyn Index>> {
        #[cfg(feature = "postgres")]
        if let Some(address) = &self.postgres {
            return Ok(Box::new(Server::open_to_read(&with_password(address)).map_err(because)?));
        }
        Ok(Box::new(Embedded::open_to_read(self.directory()?).map_err(because)?))
    }

    fn directory(&self) -> Done<&PathBuf> {
        self.index.as_ref().ok_or_else(|| Fail::usage("which index? give --index"))
    }
}

/// The address with the password of the environment, which other processes do not see.
#[cfg(feature = "postgres")]
fn with_password(address: &str) -> String {
    let Ok(password) = std::env::var("PGPASSWORD") else { return address.to_owned() };
    if address.contains("://") {
        let digits = to_hex(password.as_bytes());
        let pairs = digits.as_bytes().chunks(2).map(String::from_utf8_lossy);
        let encoded: String = pairs.map(|pair| format!("%{pair}")).collect();
        let sign = if address.contains('?') { '&' } else { '?' };
        return format!("{address}{sign}password={encoded}");
    }
    let quoted = password.replace('\\', "\\\\").replace('\'', "\\'");
    format!("{address} password='{quoted}'")
}

/// A digest or an id: 64 hex digits, with or without `0x`.
pub(super) fn hash(text: &str) -> Result<Hash, String> {
    let bytes = from_hex(text.strip_prefix("0x").unwrap_or(text));
    let hash = bytes.and_then(|bytes| Hash::from_slice(&bytes));
    hash.ok_or_else(|| "give 64 hex digits".to_owned())
}

/// Where an event is: `CHECKPOINT:TX:NUMBER`.
pub(super) fn event_key(text: &str) -> Result<EventKey, String> {
    let wrong = || "give CHECKPOINT:TX:NUMBER, as events are listed".to_owned();
    let mut parts = text.split(':');
    let mut next = || parts.next().ok_or_else(wrong);
    let (seq, tx, number) = (next()?, next()?, next()?);
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(EventKey {
        seq: seq.parse().map_err(|_| wrong())?,
        tx: tx.parse().map_err(|_| wrong())?,
        number: number.parse().map_err(|_| wrong())?,
    })
}

/// The newest checkpoint of an index as JSON; null if it is empty.
pub(super) fn tip(tip: Option<misaka_indexer::Tip>) -> Value {
    let Some(tip) = tip else { return Value::Null };
    json!({"seq": tip.seq, "digest": tip.digest.to_string(), "base": tip.base})
}

/// Not found; what the index knows at all is part of that.
pub(super) fn absent(index: &dyn Index, what: &str) -> Fail {
    let fail = Fail::failed(format!("not found: {what}"));
    match index.tip() {
        Ok(Some(tip)) => match tip.base {
            Some(base) => fail.hint(format!(
                "the index was built from the objects after checkpoint {base}, and knows those up to {}",
                tip.seq
            )),
            None => fail.hint(format!("the index knows checkpoints up to {}", tip.seq)),
        },
        _ => fail.hint("the index is empty: `misaka-indexer follow` fills it"),
    }
}

/// What an error of the index means to whoever called.
pub(super) fn because(error: Error) -> Fail {
    const REBUILD: &str =
        "`misaka-indexer rebuild` with --from-db or --from-snapshot builds the index anew";
    let fail = Fail::failed(error.to_string());
    match &error {
        Error::Interrupted => {
            Fail::interrupted("interrupted; the checkpoints so far are applied and safe")
        }
        Error::Engine(error) if error.trouble == ledger::Trouble::Damaged => fail.hint(REBUILD),
        Error::NotInitialised(_) => {
            fail.hint("look at --index or --postgres; `misaka-indexer follow` makes an index")
        }
        Error::Foreign => fail.hint("nothing was changed: give --index another directory"),
        Error::Locked(_) => {
            fail.hint("wait for it or stop it; commands that only read work beside it")
        }
        Error::Schema { found, known } if found < known => {
            fail.hint("`misaka-indexer follow` and `rebuild` bring the tables up to date")
        }
        Error::Schema { .. } => fail.hint("they were made by a newer version: use that one"),
        Error::Validator(misaka::Error::NotInitialised(_) | misaka::Error::Foreign) => {
            fail.hint("look at --db")
        }
        Error::Validator(misaka::Error::Snapshot(_)) => {
            fail.hint("`misaka-node snapshot verify` tells more")
        }
        _ if error.asks_for_rebuild() => fail.hint(REBUILD),
        _ if error.is_lost_connection() => fail.hint("is the server up? look at --postgres"),
        _ => fail,
    }
}
