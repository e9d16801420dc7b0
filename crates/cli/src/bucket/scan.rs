//! `kvb scan`: rows in the order of their keys.

use std::ffi::OsString;
use std::ops::Bound;
use std::path::PathBuf;

use clap::Args;
use kvb::Row;
use serde_json::{Value, json};

use super::{KEYS_AND_VALUES, Session};
use crate::exit::{Done, about};
use crate::input::{Input, to_hex};
use crate::show;

/// List rows in the order of their keys
#[derive(Args)]
#[command(after_help = format!("\
{KEYS_AND_VALUES}

Output is the key, a tab, and the value: as text if all of it can be printed, else as 0x and hex digits.

Examples:
  kvb scan bucket.kvb --prefix 0xDEADBEEF --limit 100
  kvb scan -t bucket.kvb --from alice --to bob
  kvb scan bucket.kvb --reverse --limit 1         the last row
  kvb scan bucket.kvb --keys-only --limit 0 | wc -l
  kvb scan bucket.kvb --json | jq .key

A scan sees the bucket as of one commit, whatever a writer does meanwhile."))]
pub(super) struct Scan {
    /// The bucket
    bucket: PathBuf,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY")]
    prefix: Option<OsString>,
    /// Only keys from this one on
    #[arg(long, value_name = "KEY")]
    from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "KEY")]
    to: Option<OsString>,
    /// From the last key to the first
    #[arg(long, short)]
    reverse: bool,
    /// At most so many rows; 0 for all
    #[arg(long, short = 'n', value_name = "ROWS", default_value_t = 1000)]
    limit: u64,
    /// No values
    #[arg(long, short)]
    keys_only: bool,
    /// Everything as hex
    #[arg(long, short = 'x', conflicts_with = "json")]
    hex: bool,
    /// Keys on the command line are the words themselves
    #[arg(long, short)]
    text: bool,
}

impl Scan {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let mut input = Input::new(self.text);
        let mut key = |name, argument: &Option<OsString>| {
            argument.as_ref().map(|argument| input.key(name, argument)).transpose()
        };
        let prefix = key("prefix", &self.prefix)?.unwrap_or_default();
        let from = key("first key", &self.from)?;
        let to = key("last key", &self.to)?;
        let range = bounds(&prefix, from, to);
        let reader = session.reader(path)?;
        let snapshot = reader.snapshot().map_err(about(path))?;
        if is_empty(&range) {
            return Ok(());
        }
        let mut rows = snapshot.range(range);
        let mut count = 0;
        loop {
            let row = if self.reverse { rows.next_back() } else { rows.next() };
            let Some(row) = row.transpose().map_err(about(path))? else { return Ok(()) };
            if count == self.limit && self.limit != 0 {
                session.notice(&format!(
                    "kvb: there are more rows than {}; --limit 0 shows all",
                    self.limit
                ));
                return Ok(());
            }
            self.print(session, &row)?;
            count += 1;
        }
    }

    fn print(&self, session: &mut Session<'_>, row: &Row<'_>) -> Done {
        if session.common.json {
            return Ok(writeln!(session.out, "{}", row_json(row, self.keys_only))?);
        }
        let shown = if self.hex { show::hex } else { show::bytes };
        match self.keys_only {
            true => writeln!(session.out, "{}", shown(row.key()))?,
            false => writeln!(session.out, "{}\t{}", shown(row.key()), shown(row.value()))?,
        }
        Ok(())
    }
}

/// A row for machines.
pub(super) fn row_json(row: &Row<'_>, keys_only: bool) -> Value {
    let (seqno, expires_at) = (row.seqno(), row.expires_unix_ns());
    let key = to_hex(row.key());
    if keys_only {
        return json!({ "key": key, "seqno": seqno, "expires_at": expires_at });
    }
    json!({ "key": key, "value": to_hex(row.value()), "seqno": seqno, "expires_at": expires_at })
}

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Keys with a prefix, and from one on, and before another.
fn bounds(prefix: &[u8], from: Option<Vec<u8>>, to: Option<Vec<u8>>) -> Bounds {
    let start = from.filter(|from| from.as_slice() > prefix).unwrap_or_else(|| prefix.to_vec());
    let behind = successor(prefix);
    let end = match (to, behind) {
        (Some(to), Some(behind)) => Some(to.min(behind)),
        (to, behind) => to.or(behind),
    };
    (Bound::Included(start), end.map_or(Bound::Unbounded, Bound::Excluded))
}

/// The first key behind all that begin with a prefix.
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut next = prefix.to_vec();
    while let Some(last) = next.pop() {
        if let Some(more) = last.checked_add(1) {
            next.push(more);
            return Some(next);
        }
    }
    None
}

fn is_empty(range: &Bounds) -> bool {
    matches!(range, (Bound::Included(start), Bound::Excluded(end)) if start >= end)
}
