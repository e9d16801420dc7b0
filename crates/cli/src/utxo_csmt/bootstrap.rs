//! `bootstrap`: a whole set of entries from a file.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use csmt::format::point::Point;
use csmt::{BootstrapProgress, Entry, Error, Stage};
use serde::Deserialize;
use serde_json::json;

use super::Session;
use super::open::{Take, Where, because, hex, point};
use crate::bar::Bar;
use crate::exit::{Done, Fail, say};
use crate::{interrupt, show};

/// Longest line of a file of entries.
const LINE_MAX: u64 = 256 << 20;

/// Fill an empty database with a list of entries
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt bootstrap --db utxos utxos.txt --point 12903843:00c4e5a3...
  utxo-csmt dump --db other --table kv | utxo-csmt bootstrap --db utxos -

An entry a line: key and value in hex with a space between, as `dump --table kv` prints them, or as JSON
{\"key\":\"HEX\",\"value\":\"HEX\"}. Memory does not grow with the list. If it is cut off, run it again with the same file: it goes on.")]
pub(super) struct Bootstrap {
    #[command(flatten)]
    place: Where,
    /// The file of entries; - is standard input
    file: PathBuf,
    /// The block that the entries are those after; the next one follows it
    #[arg(long, value_name = "SLOT:HASH", value_parser = point, default_value = "origin")]
    point: Point,
    #[command(flatten)]
    take: Take,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    value: String,
}

impl Bootstrap {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let cannot = |error: std::io::Error| {
            Fail::failed(format!("cannot read {}: {error}", self.file.display()))
        };
        let (input, total): (Box<dyn Read>, _) = if self.file.as_os_str() == "-" {
            (Box::new(interrupt::Stdin), None)
        } else {
            let file = File::open(&self.file).map_err(cannot)?;
            let total = file.metadata().ok().map(|meta| meta.len());
            (Box::new(file), total)
        };
        let store = self.place.open(self.take.effort())?;
        interrupt::listen();
        let start = Instant::now();
        let is_quiet = session.common.quiet;
        let read = std::cell::Cell::new(0);
        let mut bar = Bar::bytes("loading", total, is_quiet);
        let mut stage = Stage::Loading;
        let mut show_progress = |progress: BootstrapProgress| {
            if progress.stage != stage {
                stage = progress.stage;
                let name = match stage {
                    Stage::Loading => "loading",
                    Stage::Building => "building the tree",
                    _ => "tidying up",
                };
                bar = Bar::count(name, progress.total.unwrap_or(0), is_quiet);
            }
            match stage {
                Stage::Loading => bar.set(read.get()),
                _ => bar.set(progress.done),
            }
            if interrupt::is_asked() {
                interrupt::end("interrupted; run it again with the same file, and it goes on");
            }
        };
        let mut entries = entries(BufReader::with_capacity(1 << 20, input), &read);
        let done = store.bootstrap(&mut entries, self.point, &mut show_progress);
        bar.clear();
        let done = done.map_err(because)?;
        let root = done.root.map(|root| root.to_string());
        let took = start.elapsed();
        let facts = json!({"entries": done.entries, "root": root, "seconds": took.as_secs_f64()});
        session.tell(&facts, || format!("{}\n", root.as_deref().unwrap_or("none")))?;
        if !is_quiet && !session.common.json {
            say(format_args!(
                "{} in {}, {}",
                show::many(done.entries, "entry", "entries"),
                show::seconds(took),
                show::rate(done.entries, took)
            ));
        }
        Ok(())
    }
}

fn entries<'a>(
    mut input: impl BufRead + 'a,
    read: &'a std::cell::Cell<u64>,
) -> impl Iterator<Item = Result<Entry, Error>> + 'a {
    let mut number = 0;
    std::iter::from_fn(move || {
        loop {
            number += 1;
            let mut line = Vec::new();
            match Read::take(&mut input, LINE_MAX + 1).read_until(b'\n', &mut line) {
                Ok(0) => return None,
                // A part of a line may look like an entry.
                Ok(len) if show::wide(len) > LINE_MAX => {
                    let wrong = format!("no more than {} are read", show::size(LINE_MAX));
                    let wrong = format!("line {number} is too long: {wrong}");
                    return Some(Err(Error::Input(wrong)));
                }
                Ok(len) => {
                    read.set(read.get() + u64::try_from(len).unwrap_or(0));
                    if !line.trim_ascii().is_empty() {
                        let entry = parse(line.trim_ascii());
                        return Some(
                            entry.map_err(|wrong| Error::Input(format!("line {number}: {wrong}"))),
                        );
                    }
                }
                Err(error) => {
                    let error = Error::Io { doing: "read entries", source: error };
                    return Some(Err(error));
                }
            }
        }
    })
}

fn parse(line: &[u8]) -> Result<Entry, String> {
    let wrong = || "an entry is two words in hex, or {\"key\": HEX, \"value\": HEX}".to_owned();
    let text = std::str::from_utf8(line).map_err(|_| wrong())?;
    let (key, value) = if text.starts_with('{') {
        let line: Line =
            serde_json::from_str(text).map_err(|error| format!("{}: {error}", wrong()))?;
        (line.key, line.value)
    } else {
        let (key, value) = text.split_once(' ').unwrap_or((text, ""));
        (key.to_owned(), value.trim().to_owned())
    };
    Ok((hex(&key).map_err(|_| wrong())?, hex(&value).map_err(|_| wrong())?))
}
