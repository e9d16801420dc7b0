//! `kvb bench`: how fast a bucket is on this machine.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use kvb::{Batch, Bucket, Durability, Options};
use serde_json::{Value, json};

use super::Session;
use crate::bar::Bar;
use crate::exit::{Done, Fail, about};
use crate::{interrupt, show};

/// How long single durable puts are measured.
const PUTS_FOR: Duration = Duration::from_secs(1);
/// Rows of a block: read, deleted and put.
const BLOCK: u64 = 1000;
const BLOCKS: u64 = 50;
const BATCH: u64 = 10_000;
/// Most bytes of values in a batch or block: they must fit into memory.
const BATCH_BYTES: u64 = 16 << 20;

/// Measure a bucket on this machine, in a file that is removed afterwards
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb bench
  kvb bench --keys 1000000 --value 1KiB --dir /mnt/disk
  kvb bench --json

bench/ in the source tree measures it against LMDB, RocksDB, redb, fjall and SQLite.")]
pub(super) struct Bench {
    /// Keys, of 36 bytes
    #[arg(long, default_value_t = 200_000)]
    keys: u64,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value = "100", value_parser = crate::input::size)]
    value: u64,
    /// Where to make the file. Default: the current directory
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    dir: PathBuf,
}

/// One line of the result.
struct Figure {
    work: String,
    count: u64,
    took: Duration,
}

impl Figure {
    fn json(&self) -> Value {
        json!({
            "work": self.work,
            "count": self.count,
            "seconds": self.took.as_secs_f64(),
            "per_second": show::per_second(self.count, self.took),
        })
    }

    fn row(&self) -> Vec<String> {
        let each = self.took.div_f64(to_f64(self.count.max(1)));
        vec![
            self.work.clone(),
            show::count(self.count),
            show::seconds(self.took),
            show::rate(self.count, self.took),
            show::seconds(each),
        ]
    }
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "for a mean")]
fn to_f64(number: u64) -> f64 {
    number as f64
}

impl Bench {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        if self.keys == 0 {
            return Err(Fail::usage("--keys is at least 1"));
        }
        if self.value > 1 << 30 {
            return Err(Fail::usage("--value is at most 1 GiB"));
        }
        interrupt::listen();
        let dir = tempfile::Builder::new().prefix("kvb-bench-").tempdir_in(&self.dir).map_err(
            |error| {
                Fail::failed(format!("cannot work in {}: {}", self.dir.display(), error.kind()))
            },
        )?;
        let path = dir.path().join("bench.kvb");
        let options = Options::default().durability(Durability::Relaxed);
        let bucket = Bucket::create(&path, options).map_err(about(&path))?;
        let figures = self.measure(&bucket, session.common.quiet).map_err(|fail| match fail {
            Stop::Asked => Fail::interrupted("interrupted; the file is removed"),
            Stop::Failed(error) => about(&path)(error),
        })?;
        let stats = bucket.stats().map_err(about(&path))?;
        let facts = json!({
            "keys": self.keys,
            "value_bytes": self.value,
            "figures": figures.iter().map(Figure::json).collect::<Vec<Value>>(),
            "bytes_live": stats.bytes_live,
            "file_bytes": stats.file_bytes,
        });
        session.tell(&facts, || {
            let heading = ["work", "count", "took", "rate", "each"].map(str::to_owned).to_vec();
            let rows: Vec<Vec<String>> =
                std::iter::once(heading).chain(figures.iter().map(Figure::row)).collect();
            format!(
                "{}{} live in a file of {}\n",
                show::table(&rows, &[1, 2, 3, 4]),
                show::size(stats.bytes_live),
                show::size(stats.file_bytes)
            )
        })
    }

    fn measure(&self, bucket: &Bucket, is_quiet: bool) -> Result<Vec<Figure>, Stop> {
        let mut value = vec![0; usize::try_from(self.value).unwrap_or(usize::MAX)];
        let mut random = fastrand::Rng::with_seed(1);
        random.fill(&mut value);
        let rows_max = rows_at_once(self.value);
        let (rows, block) = (BATCH.min(rows_max), BLOCK.min(self.keys).min(rows_max));
        let mut figures = Vec::new();
        let bar = Bar::count("loading", self.keys, is_quiet);
        figures.push(timed("load, in batches", self.keys, || {
            let mut next = 0;
            while next < self.keys {
                check()?;
                let mut batch = Batch::new();
                let end = next.saturating_add(rows).min(self.keys);
                for number in next..end {
                    batch.put(key(number), &value);
                }
                bucket.commit(batch)?;
                next = end;
                bar.set(next);
            }
            Ok(bucket.flush()?)
        })?);
        bar.clear();
        figures.push(timed("get, random hits", self.keys, || {
            for turn in 0..self.keys {
                check_every(turn)?;
                let found = bucket.get(key(random.u64(..self.keys)))?;
                std::hint::black_box(found.map(|value| value.len()));
            }
            Ok(())
        })?);
        figures.push(timed("get, random misses", self.keys, || {
            for turn in 0..self.keys {
                check_every(turn)?;
                std::hint::black_box(bucket.exists(key(self.keys + random.u64(..self.keys)))?);
            }
            Ok(())
        })?);
        figures.push(timed("scan, all rows", self.keys, || {
            for (turn, row) in (0..).zip(bucket.scan(b"")) {
                check_every(turn)?;
                std::hint::black_box(row?.value().len());
            }
            Ok(())
        })?);
        let mut block_no = 0;
        let work = format!("block of {} operations, durable", show::count(3 * block));
        figures.push(timed(&work, BLOCKS, || {
            for turn in 0..BLOCKS {
                check()?;
                let mut batch = Batch::new();
                for number in 0..block {
                    let old = key((turn * block + number) % self.keys);
                    std::hint::black_box(bucket.get(old)?.map(|value| value.len()));
                    batch.delete(old).put(key((1 << 40) + block_no), &value);
                    block_no += 1;
                }
                bucket.commit_with(batch, Durability::SyncOnce)?;
            }
            Ok(())
        })?);
        let start = Instant::now();
        let mut puts = 0;
        while start.elapsed() < PUTS_FOR {
            check()?;
            let mut batch = Batch::new();
            batch.put(key((1 << 41) + puts), &value);
            bucket.commit_with(batch, Durability::SyncOnce)?;
            puts += 1;
        }
        figures.push(Figure {
            work: "put, each durable".to_owned(),
            count: puts,
            took: start.elapsed(),
        });
        Ok(figures)
    }
}

/// Most rows in a batch, with values of so many bytes.
fn rows_at_once(value: u64) -> u64 {
    (BATCH_BYTES / value.max(1)).max(1)
}

/// Why a measurement ended early.
enum Stop {
    Asked,
    Failed(kvb::Error),
}

impl From<kvb::Error> for Stop {
    fn from(error: kvb::Error) -> Stop {
        Stop::Failed(error)
    }
}

fn check() -> Result<(), Stop> {
    if interrupt::is_asked() { Err(Stop::Asked) } else { Ok(()) }
}

fn check_every(turn: u64) -> Result<(), Stop> {
    if turn.is_multiple_of(4096) { check() } else { Ok(()) }
}

fn timed(work: &str, count: u64, task: impl FnOnce() -> Result<(), Stop>) -> Result<Figure, Stop> {
    let start = Instant::now();
    task()?;
    Ok(Figure { work: work.to_owned(), count, took: start.elapsed() })
}

/// A key of 36 bytes, in random order.
fn key(number: u64) -> [u8; 36] {
    let mut key = [0; 36];
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for chunk in key.chunks_mut(8) {
        word ^= word >> 32;
        word = word.wrapping_mul(0xd6e8_feb8_6659_fd93);
        word ^= word >> 29;
        chunk.copy_from_slice(word.to_be_bytes().get(..chunk.len()).unwrap_or_default());
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_at_once_fits_into_memory() {
        for value in [0, 1, 100, 1 << 20, 1 << 30] {
            let rows = rows_at_once(value);
            assert!(rows >= 1 && (rows == 1 || rows * value <= BATCH_BYTES), "{value}: {rows}");
        }
    }
}
