//! `kvb put`, `get`, `exists`, `del`: one key at a time.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kvb::Options;
use serde_json::json;

use super::{KEYS_AND_VALUES, Session};
use crate::exit::{Done, Fail, about};
use crate::input::{self, Input, to_hex};
use crate::show;

/// Store a value
#[derive(Args)]
#[command(after_help = format!("\
{KEYS_AND_VALUES}

Examples:
  kvb put bucket.kvb key.bin value.bin --ttl 3600
  kvb put bucket.kvb 0xDEADBEEF value.bin
  kvb put -t bucket.kvb alice 100
  kvb put -t bucket.kvb session/7 - --ttl 12h < cookie

It returns when the value is on disk."))]
pub(super) struct Put {
    /// The bucket
    bucket: PathBuf,
    /// The key
    key: OsString,
    /// The value
    value: OsString,
    /// Key and value are the words themselves
    #[arg(long, short)]
    text: bool,
    /// The value is gone after so many seconds, or 90m, 12h, 30days
    #[arg(long, value_name = "TIME", value_parser = input::duration)]
    ttl: Option<Duration>,
}

impl Put {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let mut input = Input::new(self.text);
        let key = input.key("key", &self.key)?;
        let value = input.value(&self.value)?;
        let path = &self.bucket;
        if self.ttl.is_some_and(|ttl| ttl.is_zero() || ttl.as_secs() > u64::from(u32::MAX)) {
            return Err(Fail::usage("--ttl is from 1 second to 4294967295 seconds"));
        }
        let bucket = session.writer(path, &Options::default())?;
        match self.ttl {
            Some(ttl) => bucket.put_for(&key, &value, ttl),
            None => bucket.put(&key, &value),
        }
        .map_err(about(path))?;
        let seqno = bucket.snapshot().seqno();
        bucket.close().map_err(about(path))?;
        session.tell(&json!({ "key": to_hex(&key), "seqno": seqno }), String::new)
    }
}

/// Write the value of a key to standard output, as it is
#[derive(Args)]
#[command(after_help = format!("\
{KEYS_AND_VALUES}

Examples:
  kvb get bucket.kvb key.bin > out
  kvb get bucket.kvb 0xDEADBEEF | hexdump -C
  kvb get -t bucket.kvb alice

A key that is not there gives exit code 1 and no output."))]
pub(super) struct Get {
    /// The bucket
    bucket: PathBuf,
    /// The key
    key: OsString,
    /// The key is the word itself
    #[arg(long, short)]
    text: bool,
}

impl Get {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let key = Input::new(self.text).key("key", &self.key)?;
        let path = &self.bucket;
        let reader = session.reader(path)?;
        if session.common.json {
            let snapshot = reader.snapshot().map_err(about(path))?;
            let row = snapshot
                .range(key.as_slice()..=key.as_slice())
                .next()
                .transpose()
                .map_err(about(path))?;
            let row = row.ok_or_else(|| not_found(&key))?;
            writeln!(session.out, "{}", super::scan::row_json(&row, false))?;
            return Ok(());
        }
        let value = reader.get(&key).map_err(about(path))?.ok_or_else(|| not_found(&key))?;
        session.out.write_all(&value)?;
        Ok(())
    }
}

/// Tell whether a key is there: exit code 0 if it is, 1 if not
#[derive(Args)]
#[command(after_help = format!("\
{KEYS_AND_VALUES}

Examples:
  kvb exists -t bucket.kvb alice && echo yes
  kvb exists --json bucket.kvb 0xDEADBEEF"))]
pub(super) struct Exists {
    /// The bucket
    bucket: PathBuf,
    /// The key
    key: OsString,
    /// The key is the word itself
    #[arg(long, short)]
    text: bool,
}

impl Exists {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let key = Input::new(self.text).key("key", &self.key)?;
        let path = &self.bucket;
        let exists = session.reader(path)?.exists(&key).map_err(about(path))?;
        session.tell(&json!({ "key": to_hex(&key), "exists": exists }), String::new)?;
        if exists { Ok(()) } else { Err(not_found_unless(session, &key)) }
    }
}

/// Delete a key
#[derive(Args)]
#[command(after_help = format!("\
{KEYS_AND_VALUES}

Examples:
  kvb del bucket.kvb key.bin
  kvb del -t bucket.kvb alice

It returns when the deletion is on disk. A key that was not there gives exit code 1."))]
pub(super) struct Del {
    /// The bucket
    bucket: PathBuf,
    /// The key
    key: OsString,
    /// The key is the word itself
    #[arg(long, short)]
    text: bool,
}

impl Del {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let key = Input::new(self.text).key("key", &self.key)?;
        let path = &self.bucket;
        let bucket = session.writer(path, &Options::default())?;
        let deleted = bucket.delete(&key).map_err(about(path))?;
        bucket.close().map_err(about(path))?;
        session.tell(&json!({ "key": to_hex(&key), "deleted": deleted }), String::new)?;
        if deleted { Ok(()) } else { Err(not_found_unless(session, &key)) }
    }
}

fn not_found(key: &[u8]) -> Fail {
    Fail::failed(format!("not found: {}", show::short_of(key, 64)))
}

/// The same for whoever was told as JSON already.
fn not_found_unless(session: &Session<'_>, key: &[u8]) -> Fail {
    if session.common.json { Fail::silent(1) } else { not_found(key) }
}
