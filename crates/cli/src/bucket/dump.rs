//! `kvb dump`: all rows as text.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use kvb::{Compression, HashKind, Settings};

use super::Session;
use super::form::{Form, FormWriter};
use super::open::keep_private;
use crate::bar::Bar;
use crate::exit::{Done, Fail, about};
use crate::input::Input;
use crate::{file, interrupt};

/// Rows between two looks at the progress bar.
const REPORT_EVERY: u64 = 4096;

/// Write all rows as text that `kvb load` reads
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb dump bucket.kvb > bucket.txt
  kvb dump bucket.kvb | kvb load copy.kvb
  kvb dump bucket.kvb --format json | jq -r .key
  kvb dump bucket.kvb --format mdb | mdb_load lmdb-directory
  kvb dump -t bucket.kvb --prefix coin/ --out coins.txt

A dump is of one commit, whatever a writer does meanwhile. It has rows, deadlines and settings, but no keys for encryption:
the dump of an encrypted bucket is readable by anyone.")]
pub(super) struct Dump {
    /// The bucket
    bucket: PathBuf,
    /// How rows are written; --json is the same as --format json
    #[arg(long, value_name = "FORM", default_value = "text")]
    format: Form,
    /// A file to write to, instead of standard output
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only keys that begin with this
    #[arg(long, value_name = "KEY")]
    prefix: Option<OsString>,
    /// The prefix is the word itself
    #[arg(long, short)]
    text: bool,
}

impl Dump {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let form = if session.common.json { Form::Json } else { self.format };
        let prefix = match &self.prefix {
            Some(prefix) => Input::new(self.text).key("prefix", prefix)?,
            None => Vec::new(),
        };
        let reader = session.reader(path)?;
        let settings = settings(&reader.survey().map_err(about(path))?.settings);
        let snapshot = reader.snapshot().map_err(about(path))?;
        // Between rows on a terminal a bar would only be in the way.
        let is_among_rows = self.out.is_none() && std::io::stdout().is_terminal();
        let is_quiet = session.common.quiet || is_among_rows;
        let total = match Bar::is_seen(is_quiet) {
            true => reader.stats().map_err(about(path))?.keys,
            false => 0,
        };
        let mut file = match &self.out {
            None => None,
            Some(name) => {
                keep_private(path);
                let file = File::create_new(name).map_err(|error| {
                    Fail::failed(format!("cannot make {}: {error}", name.display()))
                })?;
                Some(BufWriter::new(file))
            }
        };
        let out: &mut dyn Write = match &mut file {
            Some(file) => file,
            None => session.out,
        };
        interrupt::listen();
        let bar = Bar::count("dumping", total, is_quiet);
        let written = write(out, form, &settings, snapshot.scan(&prefix), path, &bar);
        bar.clear();
        let finished = written.and_then(|()| match &mut file {
            Some(file) => {
                file.flush()?;
                file.get_ref().sync_all()?;
                Ok(self.out.as_deref().map_or(Ok(()), file::sync_name)?)
            }
            None => Ok(()),
        });
        if finished.is_err()
            && let Some(name) = &self.out
        {
            // Half a dump helps nobody.
            let _ = std::fs::remove_file(name);
        }
        finished
    }
}

fn write(
    out: &mut dyn Write,
    form: Form,
    settings: &[(&'static str, String)],
    rows: kvb::Scan<'_>,
    path: &Path,
    bar: &Bar,
) -> Done {
    let mut writer = FormWriter::begin(out, form, settings)?;
    let mut count = 0;
    for row in rows {
        let row = row.map_err(about(path))?;
        writer.row(row.key(), row.value(), row.expires_unix_ns())?;
        count += 1;
        if count % REPORT_EVERY == 0 {
            bar.set(count);
            if interrupt::is_asked() {
                return Err(Fail::interrupted(format!("interrupted after {count} rows")));
            }
        }
    }
    writer.end()?;
    Ok(())
}

/// What a dump says of how the bucket was made.
fn settings(settings: &Settings) -> Vec<(&'static str, String)> {
    let compression = match settings.compression {
        Compression::Zstd => "zstd",
        _ => "none",
    };
    let hash = match settings.hash {
        HashKind::SipHash => "siphash",
        HashKind::Xxh3 => "xxh3",
    };
    vec![
        ("page_size", settings.page_size.to_string()),
        ("compression", compression.to_owned()),
        ("hash", hash.to_owned()),
        ("directories", settings.directories.to_string()),
        ("journal_pages", settings.journal_pages.to_string()),
        ("max_value", settings.max_value.to_string()),
        ("segment_bytes_max", settings.segment_bytes_max.to_string()),
    ]
}
