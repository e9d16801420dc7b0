//! `kvb demo`: the tour that a newcomer runs first.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use kvb::{Batch, Bucket, Compact, Durability, Options, Reader};
use serde_json::{Value, json};

use super::demo_ledgers::{self, Shown};
use super::{Session, map};
use crate::bar::Bar;
use crate::exit::{Done, Fail, about};
use crate::{interrupt, show};

/// Rows of a batch while loading.
const BATCH: u64 = 10_000;
/// Random reads.
const READS: u64 = 200_000;
/// Rows that every batch of the writer changes, all to the number of the batch.
const ROUND_ROWS: u64 = 50_000;
/// Batches that are acknowledged before the writer is killed.
const ROUNDS: u64 = 5;

/// A tour: load a million keys, read, scan, kill a writer in the middle of a batch, recover, compact; and a look at each ledger
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb demo
  kvb demo --keys 100000
  kvb demo --keep demo.kvb                      and leave the bucket there to look at")]
pub(super) struct Demo {
    /// Keys to load
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Where to make the bucket. Default: a temporary directory, removed at the end
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// What the steps took.
struct Tour<'a, 'b> {
    session: &'a mut Session<'b>,
    path: PathBuf,
    steps: Vec<(&'static str, Duration)>,
}

impl Demo {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        if self.keys < 1000 {
            return Err(Fail::usage("--keys is at least 1000"));
        }
        let cannot = |error| Fail::failed(format!("cannot make a temporary directory: {error}"));
        let dir = tempfile::Builder::new().prefix("kvb-demo-").tempdir().map_err(cannot)?;
        let path = self.keep.clone().unwrap_or_else(|| dir.path().join("demo.kvb"));
        interrupt::listen();
        let mut tour = Tour { session, path, steps: Vec::new() };
        tour.load(self.keys)?;
        tour.read(self.keys)?;
        tour.scan()?;
        tour.kill()?;
        tour.recover()?;
        tour.compact()?;
        tour.map()?;
        tour.ledger(
            "rubin",
            "A RUBIN node on the same engine: import a chain, then a better one that leaves it five blocks back.",
            || demo_ledgers::rubin(dir.path()),
        )?;
        tour.ledger(
            "csmt",
            "A UTxO set under a Merkle tree: follow blocks, prove an output, check the proof without the store.",
            || demo_ledgers::csmt(dir.path()),
        )?;
        tour.ledger(
            "misaka",
            "A MISAKA validator: apply checkpoints, and begin another one from its snapshot.",
            || demo_ledgers::misaka(dir.path()),
        )?;
        tour.end(self.keep.is_some())
    }
}

impl Tour<'_, '_> {
    /// Says what comes next, and goes on if nobody pressed Ctrl-C.
    fn step(&mut self, words: &str) -> Done {
        if interrupt::is_asked() {
            return Err(Fail::interrupted("interrupted"));
        }
        if !self.session.common.json {
            writeln!(self.session.out, "{}. {words}", self.steps.len() + 1)?;
            self.session.out.flush()?;
        }
        Ok(())
    }

    fn done(&mut self, step: &'static str, took: Duration, words: &str) -> Done {
        self.steps.push((step, took));
        if !self.session.common.json {
            writeln!(self.session.out, "   {words}")?;
            self.session.out.flush()?;
        }
        Ok(())
    }

    fn open(&self) -> Done<Bucket> {
        Bucket::open(&self.path, Options::default()).map_err(about(&self.path))
    }

    /// Without the keys that the user may have for other buckets.
    fn reader(&self) -> Done<Reader> {
        Reader::open(&self.path).map_err(about(&self.path))
    }

    fn load(&mut self, keys: u64) -> Done {
        self.step(&format!("Make a bucket, one file, and load {} keys.", show::count(keys)))?;
        let path = self.path.clone();
        let options = Options::default().durability(Durability::Relaxed);
        let bucket = Bucket::create(&path, options).map_err(about(&path))?;
        let bar = Bar::count("loading", keys, self.session.common.quiet);
        let start = Instant::now();
        let mut next = 0;
        while next < keys {
            let mut batch = Batch::new();
            for number in next..(next + BATCH).min(keys) {
                batch.put(account(scatter(number, keys)), format!("balance {number:>92}"));
            }
            bucket.commit(batch).map_err(about(&path))?;
            next += BATCH;
            bar.set(next.min(keys));
            if interrupt::is_asked() {
                return Err(Fail::interrupted("interrupted"));
            }
        }
        bucket.close().map_err(about(&path))?;
        let took = start.elapsed();
        bar.clear();
        let size = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        self.done(
            "load",
            took,
            &format!(
                "{} in {}; the file has {}",
                show::rate(keys, took),
                show::seconds(took),
                show::size(size)
            ),
        )
    }

    fn read(&mut self, keys: u64) -> Done {
        self.step(&format!("Open it and read {} keys in random order.", show::count(READS)))?;
        let start = Instant::now();
        let bucket = self.open()?;
        let opening = start.elapsed();
        let mut random = fastrand::Rng::with_seed(7);
        let start = Instant::now();
        for _ in 0..READS {
            let key = account(random.u64(..keys));
            if bucket.get(&key).map_err(about(&self.path))?.is_none() {
                return Err(Fail::failed(format!("{key} is missing")));
            }
        }
        let took = start.elapsed();
        bucket.close().map_err(about(&self.path))?;
        self.done(
            "read",
            took,
            &format!(
                "opened in {}, then {}: {} each",
                show::seconds(opening),
                show::rate(READS, took),
                show::seconds(took / u32::try_from(READS).unwrap_or(u32::MAX))
            ),
        )
    }

    fn scan(&mut self) -> Done {
        self.step("Scan it in the order of its keys, as a reader in another process would.")?;
        let reader = self.reader()?;
        let snapshot = reader.snapshot().map_err(about(&self.path))?;
        let start = Instant::now();
        let mut rows = 0;
        for row in snapshot.scan(b"") {
            row.map_err(about(&self.path))?;
            rows += 1;
            if rows % BATCH == 0 && interrupt::is_asked() {
                return Err(Fail::interrupted("interrupted"));
            }
        }
        let took = start.elapsed();
        let some: Vec<String> = snapshot
            .scan(b"account/0000000001")
            .take(2)
            .filter_map(Result::ok)
            .map(|row| show::bytes(row.key()))
            .collect();
        let words = format!(
            "{} rows, {}; the first two of account/0000000001: {}",
            show::count(rows),
            show::rate(rows, took),
            some.join(", ")
        );
        self.done("scan", took, &words)
    }

    fn kill(&mut self) -> Done {
        self.step(&format!(
            "Start a writer that changes {} rows a batch, and kill it in the middle of one.",
            show::count(ROUND_ROWS)
        ))?;
        let start = Instant::now();
        let acknowledged = self.run_writer()?;
        let words = format!(
            "batch {acknowledged} was acknowledged as durable; the next was being written when SIGKILL came"
        );
        self.done("kill", start.elapsed(), &words)?;
        self.check_rounds(acknowledged)
    }

    /// Starts the writer, kills it, and gives the last batch that it said was durable.
    fn run_writer(&self) -> Done<u64> {
        let failed =
            |what: &str, error: std::io::Error| Fail::failed(format!("cannot {what}: {error}"));
        let program =
            std::env::current_exe().map_err(|error| failed("find this program", error))?;
        let mut child = Command::new(program)
            .arg("demo-writer")
            .arg(&self.path)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed("start a writer", error))?;
        let mut acknowledged = 0;
        if let Some(output) = child.stdout.take() {
            for line in BufReader::new(output).lines() {
                acknowledged = line.ok().and_then(|line| line.parse().ok()).unwrap_or(acknowledged);
                if acknowledged >= ROUNDS {
                    // Some way into the next batch.
                    std::thread::sleep(Duration::from_millis(15));
                    let _ = child.kill();
                    break;
                }
            }
        }
        let _ = child.wait();
        if acknowledged == 0 {
            return Err(Fail::failed("the writer did not get to write anything"));
        }
        Ok(acknowledged)
    }

    fn check_rounds(&mut self, acknowledged: u64) -> Done {
        self.step("Open the bucket again. Every batch must be there whole, or not at all.")?;
        let start = Instant::now();
        let bucket = self.open()?;
        let took = start.elapsed();
        let report = bucket.mount_report().clone();
        let mut last = None;
        let mut rows = 0;
        for row in bucket.scan(b"round/") {
            let row = row.map_err(about(&self.path))?;
            let round = std::str::from_utf8(row.value()).ok().and_then(|text| text.parse().ok());
            let round: u64 = round.ok_or_else(|| Fail::failed("a row of the writer is damaged"))?;
            if last.is_some_and(|last| last != round) {
                return Err(Fail::failed(format!("batch {round} is there in part")));
            }
            last = Some(round);
            rows += 1;
        }
        let last = last.unwrap_or(0);
        if last < acknowledged || rows != ROUND_ROWS {
            return Err(Fail::failed(format!("batch {acknowledged} was acknowledged and is lost")));
        }
        bucket.close().map_err(about(&self.path))?;
        let words = format!(
            "recovered in {}: {} records looked at, {} of an unfinished batch cut; all {} rows are of batch {last}",
            show::seconds(took),
            show::count(report.records_scanned),
            show::count(report.records_discarded),
            show::count(rows)
        );
        self.done("recover", took, &words)
    }

    fn recover(&mut self) -> Done {
        self.step("Verify all of it: every checksum, the index against the log, the space.")?;
        let start = Instant::now();
        let mut bar = Bar::bytes("verifying", Some(0), self.session.common.quiet);
        let found = kvb::verify(&self.path, Options::default(), &mut bar.watch());
        bar.clear();
        let found = found.map_err(about(&self.path))?;
        if !found.is_sound() {
            return Err(Fail::failed(format!("not sound: {:?}", found.findings)));
        }
        let took = start.elapsed();
        let words = format!("{} records are sound", show::count(found.records));
        self.done("verify", took, &words)
    }

    fn compact(&mut self) -> Done {
        self.step("Compact it: give back the space of what was replaced.")?;
        let bucket = self.open()?;
        let before = bucket.stats().map_err(about(&self.path))?;
        let start = Instant::now();
        bucket.compact(Compact::Full).map_err(about(&self.path))?;
        let took = start.elapsed();
        let after = bucket.stats().map_err(about(&self.path))?;
        bucket.close().map_err(about(&self.path))?;
        let words = format!(
            "{} of log became {} in {}",
            show::size(before.bytes_log),
            show::size(after.bytes_log),
            show::seconds(took)
        );
        self.done("compact", took, &words)
    }

    fn map(&mut self) -> Done {
        self.step("Look at the file.")?;
        let reader = self.reader()?;
        let start = Instant::now();
        let survey = reader.survey().map_err(about(&self.path))?;
        if !self.session.common.json {
            write!(self.session.out, "{}", map::draw(&survey))?;
        }
        let words =
            format!("{} stretches of {}", survey.areas.len(), show::size(survey.file_bytes));
        self.done("map", start.elapsed(), &words)
    }

    fn ledger(
        &mut self,
        name: &'static str,
        words: &str,
        show: impl FnOnce() -> Done<Shown>,
    ) -> Done {
        self.step(words)?;
        let shown = show()?;
        self.done(name, shown.took, &shown.words)
    }

    fn end(self, is_kept: bool) -> Done {
        let steps: Vec<Value> = self
            .steps
            .iter()
            .map(|(step, took)| json!({ "step": step, "seconds": took.as_secs_f64() }))
            .collect();
        let path = self.path;
        let steps_taken = self.steps;
        self.session.tell(&json!({ "steps": steps }), || {
            let mut text = String::from("What it took:");
            for (step, took) in &steps_taken {
                let _ = write!(text, " {step} {};", show::seconds(*took));
            }
            text.pop();
            text.push_str(".\n");
            if is_kept {
                let _ = writeln!(
                    text,
                    "The bucket is {}: try `kvb info` and `kvb scan` on it.",
                    path.display()
                );
            }
            text
        })
    }
}

/// The writer that the tour kills
#[derive(Args)]
pub(super) struct DemoWriter {
    bucket: PathBuf,
}

impl DemoWriter {
    /// Commits batch after batch and says when each is durable, until somebody kills it.
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path: &Path = &self.bucket;
        let options = Options::default().durability(Durability::SyncOnce);
        let bucket = Bucket::open(path, options).map_err(about(path))?;
        for round in 1..1000_u64 {
            let mut batch = Batch::new();
            for row in 0..ROUND_ROWS {
                batch.put(format!("round/{row:08}"), round.to_string());
            }
            bucket.commit(batch).map_err(about(path))?;
            writeln!(session.out, "{round}")?;
            session.out.flush()?;
        }
        Ok(())
    }
}

fn account(number: u64) -> String {
    format!("account/{number:012}")
}

/// Another order of the numbers below a limit.
fn scatter(number: u64, limit: u64) -> u64 {
    // A step that shares no factor with the limit visits everything once.
    let mut step = limit / 2 + limit / 8 + 1;
    while gcd(step, limit) != 1 {
        step += 1;
    }
    let product = u128::from(number) * u128::from(step) % u128::from(limit);
    u64::try_from(product).unwrap_or(0)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
