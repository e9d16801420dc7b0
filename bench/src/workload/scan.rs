//! Scans, as the store is after the load and again after its own full compaction.
//!
//! Of every row the first byte of the key, the first and the last byte of the value and both
//! lengths are summed up, and the sum is checked, so nobody is measured for rows that were not read.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::Run;
use crate::engine::{Engine, Reader, Span};
use crate::machine;
use crate::record::{KEY_LEN, Key, Live, Probe, Record};

/// How long each scan workload is repeated on the clock, and before that off it.
const ON_CLOCK: Duration = Duration::from_secs(2);
const OFF_CLOCK: Duration = Duration::from_millis(500);
/// Full scans on the clock, however long they take.
const PASSES_MIN: u32 = 3;
/// Scans whose spans are made at a time, off the clock.
const CHUNK: usize = 256;
/// Rows that a backward scan reads.
const BACK_ROWS: usize = 100;

/// What was read: how many rows, and the sum of what was touched in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    rows: u64,
    sum: u64,
}

impl Seen {
    #[inline]
    fn see(&mut self, key: &[u8], value: &[u8]) {
        let byte = |byte: Option<&u8>| byte.map_or(0, |byte| u64::from(*byte));
        self.rows += 1;
        self.sum += (key.len() + value.len()) as u64;
        self.sum += byte(key.first()) + byte(value.first()) + byte(value.last());
    }
}

/// The live records in key order, to know what a scan must see.
struct Expected {
    /// The first eight bytes of each key as a number, and the record's index.
    rows: Vec<(u64, u32)>,
    /// What is seen of the first so many rows.
    sums: Vec<u64>,
}

/// A scan to be done.
struct Job {
    from: Key,
    to: [u8; 8],
    seen: Seen,
}

/// The kinds of small scans.
#[derive(Clone, Copy)]
enum Kind {
    /// All keys between two prefixes of eight bytes, so many on average.
    Between(usize),
    Back,
}

impl Expected {
    fn new(live: &Live) -> Self {
        let row = |index: &u32| (prefix(&Probe::new(u64::from(*index)).key), *index);
        let mut rows: Vec<(u64, u32)> = live.indices().iter().map(row).collect();
        rows.sort_unstable();
        let mut seen = Seen::default();
        let mut sums = vec![0];
        for (_, index) in &rows {
            let record = Record::new(u64::from(*index));
            seen.see(&record.key, &record.value);
            sums.push(seen.sum);
        }
        Self { rows, sums }
    }

    fn seen(&self, from: usize, to: usize) -> Seen {
        Seen { rows: (to - from) as u64, sum: self.sums[to] - self.sums[from] }
    }

    fn all(&self) -> Seen {
        self.seen(0, self.rows.len())
    }

    fn job(&self, kind: Kind, rng: &mut Rng) -> Job {
        match kind {
            Kind::Between(rows) => {
                let width = (u64::MAX / self.rows.len() as u64).saturating_mul(rows as u64);
                let first = rng.u64(..=u64::MAX - width);
                let at = |limit| self.rows.partition_point(|(prefix, _)| *prefix < limit);
                let mut from = [0; KEY_LEN];
                from[..8].copy_from_slice(&first.to_be_bytes());
                let to = first + width;
                Job { from, to: to.to_be_bytes(), seen: self.seen(at(first), at(to)) }
            }
            Kind::Back => {
                let at = rng.usize(..self.rows.len());
                let from = Probe::new(u64::from(self.rows[at].1)).key;
                let end = at + 1;
                Job { from, to: [0; 8], seen: self.seen(end.saturating_sub(BACK_ROWS), end) }
            }
        }
    }
}

impl Job {
    fn span(&self, kind: Kind) -> Span<'_> {
        match kind {
            Kind::Between(_) => Span::Between(&self.from[..8], &self.to),
            Kind::Back => Span::Back(&self.from, BACK_ROWS),
        }
    }
}

fn prefix(key: &Key) -> u64 {
    u64::from_be_bytes(key[..8].try_into().expect("eight bytes"))
}

impl Run<'_> {
    pub(super) fn scans<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        if !E::IS_ORDERED {
            plan.say("keeps no order: no scans");
            return Ok(());
        }
        let engine: E = self.create()?;
        let engine = self.load(engine).context("load")?;
        let expected = Expected::new(&self.live);
        self.scan_all(&engine, &expected, "loaded").context("scan as loaded")?;
        plan.say("compaction");
        let start = Instant::now();
        let engine = engine.compact(&plan.dir).context("compact")?;
        self.set("compact_s", start.elapsed().as_secs_f64());
        machine::rest()?;
        self.scan_all(&engine, &expected, "compact").context("scan after compaction")?;
        self.set("disk_compact_mb", machine::disk_bytes(&plan.dir)? as f64 / 1e6);
        engine.close().context("close")
    }

    /// All scans that are wanted; the names of what they measure end in `state`.
    fn scan_all<E: Engine>(&mut self, engine: &E, expected: &Expected, state: &str) -> Result<()> {
        let plan = self.plan;
        let mut reader = engine.reader()?;
        if plan.wants("scan-full") {
            plan.say(&format!("full scan, {state}"));
            let per_s = full_scans(&mut reader, expected)?;
            self.set(&format!("scan_full_{state}_per_s"), per_s);
        }
        let kinds = [
            ("scan-prefix", "scan10", Kind::Between(10)),
            ("scan-prefix", "scan100", Kind::Between(100)),
            ("scan-reverse", "scan_back", Kind::Back),
        ];
        for (workload, name, kind) in kinds {
            if plan.wants(workload) {
                plan.say(&format!("{name}, {state}"));
                let mut jobs = || expected.job(kind, &mut self.rng);
                small_scans(&mut reader, kind, OFF_CLOCK, &mut jobs)?;
                let per_s = small_scans(&mut reader, kind, ON_CLOCK, &mut jobs)?;
                self.set(&format!("{name}_{state}_per_s"), per_s);
            }
        }
        Ok(())
    }
}

/// Rows per second of scans of everything, after one off the clock that also checks the order.
fn full_scans<R: Reader>(reader: &mut R, expected: &Expected) -> Result<f64> {
    let mut last = Vec::new();
    let mut is_ordered = true;
    let mut seen = Seen::default();
    reader.scan(Span::All, |key, value| {
        is_ordered &= last.as_slice() < key;
        last.clear();
        last.extend_from_slice(key);
        seen.see(key, value);
    })?;
    ensure!(is_ordered, "the rows are out of order");
    ensure!(seen == expected.all(), "saw {seen:?}, not {:?}", expected.all());

    let mut spent = Duration::ZERO;
    let mut passes = 0;
    while spent < ON_CLOCK || passes < PASSES_MIN {
        let mut seen = Seen::default();
        let start = Instant::now();
        reader.scan(Span::All, |key, value| seen.see(key, value))?;
        spent += start.elapsed();
        ensure!(seen == expected.all(), "saw {seen:?}, not {:?}", expected.all());
        passes += 1;
    }
    Ok(f64::from(passes) * expected.rows.len() as f64 / spent.as_secs_f64())
}

/// Scans per second, for about so long.
fn small_scans<R: Reader>(
    reader: &mut R,
    kind: Kind,
    time: Duration,
    jobs: &mut impl FnMut() -> Job,
) -> Result<f64> {
    let mut spent = Duration::ZERO;
    let mut count = 0;
    while spent < time {
        let chunk: Vec<Job> = (0..CHUNK).map(|_| jobs()).collect();
        let mut seen = Seen::default();
        let start = Instant::now();
        for job in &chunk {
            reader.scan(job.span(kind), |key, value| seen.see(key, value))?;
        }
        spent += start.elapsed();
        let rows = chunk.iter().map(|job| job.seen.rows).sum();
        let expected = Seen { rows, sum: chunk.iter().map(|job| job.seen.sum).sum() };
        ensure!(seen == expected, "saw {seen:?}, not {expected:?}");
        count += CHUNK;
    }
    Ok(count as f64 / spent.as_secs_f64())
}
