//! `kvb load`: rows from text into a bucket.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use clap::Args;
use kvb::{Batch, Bucket, Compression, Durability, HashKind, Options};
use serde_json::json;

use super::Session;
use super::form::{Entry, FormReader};
use super::init::{Make, about_new};
use crate::bar::Bar;
use crate::exit::{Done, Fail, about};
use crate::{interrupt, show};

/// Rows and bytes of a commit.
const BATCH_ROWS: usize = 16 << 10;
const BATCH_BYTES: usize = 4 << 20;

/// Put rows from a dump into a bucket, which is made if it is not there
#[derive(Args)]
#[command(after_help = "\
It reads what `kvb dump` writes, in any of its forms, also written by hand: a key, a tab and a value on each line, or JSON
objects with key and value in hex. Keys that are there get the new value. Rows whose time is over are left out.

Examples:
  kvb dump old.kvb | kvb load new.kvb
  kvb load bucket.kvb rows.txt
  kvb load bucket.kvb rows.json --compression zstd
  mdb_dump lmdb-directory | kvb load bucket.kvb
  kvb load bucket.kvb changes.txt --atomic        all rows or none

If it is interrupted, or a line is wrong, the rows before stay, and loading again does no harm.")]
pub(super) struct Load {
    /// The bucket
    bucket: PathBuf,
    /// The dump; - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// All rows in one commit. They must fit into memory
    #[arg(long)]
    atomic: bool,
    /// Fail if the bucket is not there
    #[arg(long)]
    no_create: bool,
    #[command(flatten)]
    make: Make,
}

impl Load {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let (input, total): (Box<dyn Read>, _) = if self.file.as_os_str() == "-" {
            (Box::new(interrupt::Stdin), stdin_len())
        } else {
            let file = File::open(&self.file).map_err(|error| {
                Fail::failed(format!("cannot read {}: {error}", self.file.display()))
            })?;
            let len =
                file.metadata().ok().filter(std::fs::Metadata::is_file).map(|meta| meta.len());
            (Box::new(file), len)
        };
        interrupt::listen();
        let mut rows = FormReader::open(BufReader::with_capacity(256 << 10, input))?;
        let (bucket, is_new) = self.bucket(session, &rows.settings)?;
        rows.set_value_max(bucket.survey().map_err(about(path))?.settings.max_value.into());
        let bar = Bar::bytes("loading", total, session.common.quiet);
        let start = Instant::now();
        let mut loader = Loader::new(&bucket, path, self.atomic);
        let result = loader.take_all(&mut rows, &bar);
        bar.clear();
        // What is loaded stays, and is on disk when this returns.
        let (count, expired) = (loader.rows, loader.expired);
        bucket.close().map_err(about(path))?;
        if result.is_err() && is_new && count == 0 {
            // A bucket with nothing in it would only be in the way of the next try.
            let _ = std::fs::remove_file(path);
        }
        result.map_err(|fail| match count {
            0 => fail,
            1 => fail.hint("1 row was loaded and is safe"),
            count => fail.hint(format!("{} rows were loaded and are safe", show::count(count))),
        })?;
        let took = start.elapsed();
        let facts = json!({
            "rows": count,
            "expired": expired,
            "bytes": rows.bytes,
            "seconds": took.as_secs_f64(),
        });
        session.report(&facts, || {
            let late = match expired {
                0 => String::new(),
                late => format!(", {late} left out because their time is over"),
            };
            let rate = show::rate(count, took);
            format!("{} in {}, {rate}{late}", show::many(count, "row", "rows"), show::seconds(took))
        })
    }

    /// The bucket to load into, and whether it was made for that.
    fn bucket(&self, session: &Session<'_>, settings: &[(String, String)]) -> Done<(Bucket, bool)> {
        let path = &self.bucket;
        let options = Options::default().durability(Durability::Relaxed);
        if path.exists() || self.no_create {
            let bucket = session.writer(path, &options)?;
            let key_id = bucket.survey().map_err(about(path))?.settings.key_id;
            if self.make.encrypt && key_id.is_none() {
                let fail = format!("{} is there already, and is not encrypted", path.display());
                return Err(Fail::usage(fail).hint("`kvb rekey encrypt` encrypts it"));
            }
            return Ok((bucket, false));
        }
        let options = self.make.apply(session, path, options_of(settings, options))?;
        Ok((Bucket::create(path, options).map_err(about_new(path))?, true))
    }
}

/// Rows of a dump, if it can be read to its end.
pub(super) fn count_rows(dump: &[u8]) -> Done<u64> {
    let mut rows = FormReader::open(dump)?;
    rows.set_value_max(u64::from(u32::MAX));
    let mut entry = Entry::default();
    let mut count = 0;
    while rows.next(&mut entry)? {
        count += 1;
    }
    Ok(count)
}

/// Settings as a dump tells them; what is not known is left as it is.
fn options_of(settings: &[(String, String)], mut options: Options) -> Options {
    for (name, value) in settings {
        options = match (name.as_str(), value.as_str()) {
            ("compression", "zstd") => options.compression(Compression::Zstd),
            ("hash", "siphash") => options.hash(HashKind::SipHash),
            ("directories", "false") => options.directories(false),
            ("page_size", value) => value.parse().map_or(options.clone(), |v| options.page_size(v)),
            ("journal_pages", value) => {
                value.parse().map_or(options.clone(), |v| options.journal_pages(v))
            }
            ("max_value", value) => value.parse().map_or(options.clone(), |v| options.max_value(v)),
            ("segment_bytes_max", value) => {
                value.parse().map_or(options.clone(), |v| options.segment_bytes_max(v))
            }
            _ => options,
        };
    }
    options
}

/// Puts rows into batches and commits them.
struct Loader<'a> {
    bucket: &'a Bucket,
    path: &'a Path,
    is_atomic: bool,
    batch: Batch,
    batch_bytes: usize,
    /// Rows committed.
    rows: u64,
    /// Rows left out because their time is over.
    expired: u64,
    now: u64,
}

impl<'a> Loader<'a> {
    fn new(bucket: &'a Bucket, path: &'a Path, is_atomic: bool) -> Loader<'a> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let batch = Batch::new();
        Loader { bucket, path, is_atomic, batch, batch_bytes: 0, rows: 0, expired: 0, now }
    }

    fn take_all<R: BufRead>(&mut self, rows: &mut FormReader<R>, bar: &Bar) -> Done {
        let mut entry = Entry::default();
        loop {
            match rows.next(&mut entry) {
                Ok(true) => self.take(&entry)?,
                Ok(false) => return self.commit(),
                Err(fail) if self.is_atomic => return Err(fail),
                Err(fail) => {
                    self.commit()?;
                    return Err(fail);
                }
            }
            let is_full = self.batch.len() >= BATCH_ROWS || self.batch_bytes >= BATCH_BYTES;
            if is_full {
                bar.set(rows.bytes);
                if interrupt::is_asked() {
                    return Err(Fail::interrupted("interrupted"));
                }
                if !self.is_atomic {
                    self.commit()?;
                }
            }
        }
    }

    fn take(&mut self, entry: &Entry) -> Done {
        self.batch_bytes += entry.key.len() + entry.value.len();
        match entry.expires_at {
            None => self.batch.put(&entry.key, &entry.value),
            Some(until) if until > self.now => {
                self.batch.put_until(&entry.key, &entry.value, until)
            }
            Some(_) => {
                self.expired += 1;
                return Ok(());
            }
        };
        Ok(())
    }

    fn commit(&mut self) -> Done {
        let batch = std::mem::take(&mut self.batch);
        let count = u64::try_from(batch.len()).unwrap_or(0);
        self.batch_bytes = 0;
        if count > 0 {
            self.bucket.commit(batch).map_err(about(self.path))?;
            self.rows += count;
        }
        Ok(())
    }
}

/// The length of standard input, if it is a file.
fn stdin_len() -> Option<u64> {
    #[cfg(unix)]
    {
        let meta = std::fs::metadata("/dev/stdin").ok()?;
        meta.is_file().then_some(meta.len())
    }
    #[cfg(not(unix))]
    None
}
