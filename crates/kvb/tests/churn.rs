//! Long churn on real files: however often a bucket is rewritten, its log stays near its live records.
//!
//! Live are the newest records of the keys that are there, 48 bytes and key and value each. At every
//! moment the segments, with all their side data, take at most [`BOUND`] times that, and right after
//! a compaction of everything [`BOUND_FULL`] times. Below [`LEAST`] live bytes fixed costs dominate
//! and nothing is measured.
//!
//! Commits are relaxed unless a case says otherwise, because that makes garbage fastest. Cases run
//! one at a time, so that they do not slow each other's background threads down. Each prints its
//! worst ratios and how long its commits took. `KVB_CHURN_SECONDS` says how long a case churns; it
//! churns [`TURNOVER`] times its size in any case. `KVB_CHURN_SCALE` gives it that many times as many
//! keys.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "support/seed.rs"]
mod seed;
#[path = "support/watch.rs"]
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use host::{Env, FileDisk, ManualEnv, SystemEnv};
use kvb::{Batch, Bucket, Compact, Durability, Options, Stats};
use tempfile::TempDir;

/// Most bytes of segments, and of records in the log, per live byte.
const BOUND: f64 = 1.6;
/// The same right after a compaction of everything.
const BOUND_FULL: f64 = 1.15;
/// Times that a case is tried.
const ATTEMPTS: u64 = 12;
/// Live bytes from which on the bounds hold.
const LEAST: u64 = 4 << 20;
/// Bytes written per byte of the bucket before a case may end.
const TURNOVER: u64 = 5;
/// Seconds that a case churns unless told otherwise.
const SECONDS: u64 = 2;
/// Commits between two samples; what one costs must not give the background much of a rest.
const SAMPLE_EVERY: usize = 50;
/// Records in a batch.
const BATCH: usize = 100;
/// Bytes of a record besides its key and value.
const RECORD_MIN: u64 = 48;
const KEY_LEN: usize = 36;
/// How long the background may take, when commits have ended, to come back within the bound.
const SETTLE: Duration = Duration::from_secs(10);
/// Longest a case may take beyond the time it churns.
const LIMIT: Duration = Duration::from_secs(300);

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
/// How long a record is expired before compaction may drop it; until then it counts as live.
const GRACE: u64 = HOUR;

/// What a case does.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// Keys at the beginning.
    keys: usize,
    /// Lengths of values, drawn evenly.
    value_lens: &'static [usize],
    /// Of a hundred changes so many are deletes of some key, and as many puts of new ones. The
    /// others are updates.
    deletes: u8,
    /// Nine updates of ten go to a tenth of the keys.
    hot: bool,
    durability: Durability,
    /// A thread takes, scans and drops snapshots all the time.
    snapshots: bool,
    /// Every record expires, after half a day to one and a half.
    expiry: bool,
}

const UNIFORM: Case = Case {
    name: "uniform",
    keys: 100_000,
    value_lens: &[100],
    deletes: 15,
    hot: false,
    durability: Durability::Relaxed,
    snapshots: false,
    expiry: false,
};

/// A wall clock that is told the time, and the machine's own clock for measuring.
#[derive(Debug)]
struct TestEnv {
    wall: ManualEnv,
}

impl Env for TestEnv {
    fn unix_ns(&self) -> u64 {
        self.wall.unix_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        SystemEnv.monotonic_ns()
    }

    fn random_u64(&self) -> u64 {
        self.wall.random_u64()
    }

    fn pid(&self) -> u32 {
        SystemEnv.pid()
    }
}

/// A live record.
#[derive(Clone, Copy, Debug)]
struct Live {
    id: u64,
    version: u64,
    value_len: usize,
    deadline: u64,
}

impl Live {
    /// Keys are put in no order.
    fn key(&self) -> [u8; KEY_LEN] {
        let mut key = [b'k'; KEY_LEN];
        key[..8].copy_from_slice(&self.id.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
        key[8..16].copy_from_slice(&self.id.to_le_bytes());
        key
    }

    fn value(&self) -> Vec<u8> {
        let [low, ..] = self.version.to_le_bytes();
        let mut value = vec![low ^ 0x5A; self.value_len];
        let stamp = self.version.to_le_bytes();
        let len = stamp.len().min(self.value_len);
        value[..len].copy_from_slice(&stamp[..len]);
        value
    }

    fn bytes(&self) -> u64 {
        RECORD_MIN + u64::try_from(KEY_LEN + self.value_len).unwrap()
    }
}

/// Bytes per live byte.
#[derive(Clone, Copy, Debug, Default)]
struct Ratios {
    segments: f64,
    log: f64,
}

impl Ratios {
    fn is_within(self, bound: f64) -> bool {
        self.segments <= bound && self.log <= bound
    }
}

/// The worst that was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Worst {
    ratios: Ratios,
    /// Samples, and how many of them were beyond the bound.
    samples: u64,
    beyond: u64,
    /// Least and most that the bucket believed to be live, per live byte.
    believed: Option<(f64, f64)>,
}

impl Worst {
    fn see(&mut self, now: Ratios, believed: f64) {
        self.ratios.segments = self.ratios.segments.max(now.segments);
        self.ratios.log = self.ratios.log.max(now.log);
        self.samples += 1;
        self.beyond += u64::from(!now.is_within(BOUND));
        let (least, most) = self.believed.unwrap_or((believed, believed));
        self.believed = Some((least.min(believed), most.max(believed)));
    }
}

/// A case on its way.
struct Churn {
    case: Case,
    rng: Rng,
    env: Arc<TestEnv>,
    _dir: TempDir,
    bucket: Arc<Bucket>,
    live: Vec<Live>,
    /// Deadlines of expiring records, with the versions that have them.
    deadlines: BTreeSet<(u64, u64)>,
    /// Where in `live` a version is, for expiry.
    places: BTreeMap<u64, usize>,
    live_bytes: u64,
    written: u64,
    next_id: u64,
    version: u64,
    batch: Batch,
    latencies: Vec<Duration>,
    worst: Worst,
}

impl Churn {
    fn new(case: Case, seed: u64) -> Churn {
        let dir = tempfile::tempdir().unwrap();
        let env = Arc::new(TestEnv { wall: ManualEnv::new(20_000 * 24 * HOUR, seed) });
        let disk = Arc::new(FileDisk::create_new(dir.path().join("churn.kvb")).unwrap());
        let bucket = Bucket::create_on(disk, Arc::<TestEnv>::clone(&env), Options::default());
        Churn {
            case,
            rng: Rng::with_seed(seed),
            env,
            _dir: dir,
            bucket: Arc::new(bucket.unwrap()),
            live: Vec::new(),
            deadlines: BTreeSet::new(),
            places: BTreeMap::new(),
            live_bytes: 0,
            written: 0,
            next_id: 0,
            version: 0,
            batch: Batch::new(),
            latencies: Vec::new(),
            worst: Worst::default(),
        }
    }

    /// A record with the next version of a key.
    fn draw(&mut self, id: u64) -> Live {
        self.version += 1;
        let value_len = *self.rng.choice(self.case.value_lens).unwrap();
        let ttl = self.rng.u64(12 * 3600..36 * 3600) * SECOND;
        let deadline = if self.case.expiry { self.env.unix_ns() + ttl } else { u64::MAX };
        Live { id, version: self.version, value_len, deadline }
    }

    fn put(&mut self, record: Live) {
        let (key, value) = (record.key(), record.value());
        if self.case.expiry {
            let ttl = Duration::from_nanos(record.deadline - self.env.unix_ns());
            self.batch.put_for(key, value, ttl);
        } else {
            self.batch.put(key, value);
        }
        self.written += record.bytes();
    }

    fn insert(&mut self) {
        let record = self.draw(self.next_id);
        self.next_id += 1;
        self.put(record);
        self.enter(self.live.len(), record);
        self.live.push(record);
    }

    fn update(&mut self) {
        let count = self.live.len();
        let is_hot = self.case.hot && self.rng.u8(..10) < 9;
        let at = self.rng.usize(..if is_hot { count / 10 } else { count });
        let record = self.draw(self.live[at].id);
        self.put(record);
        self.leave(self.live[at]);
        self.enter(at, record);
        self.live[at] = record;
    }

    fn delete(&mut self) {
        let at = self.rng.usize(..self.live.len());
        self.batch.delete(self.live[at].key());
        self.remove(at);
    }

    fn enter(&mut self, at: usize, record: Live) {
        self.live_bytes += record.bytes();
        if self.case.expiry {
            self.deadlines.insert((record.deadline, record.version));
            self.places.insert(record.version, at);
        }
    }

    fn leave(&mut self, record: Live) {
        self.live_bytes -= record.bytes();
        if self.case.expiry {
            self.deadlines.remove(&(record.deadline, record.version));
            self.places.remove(&record.version);
        }
    }

    fn remove(&mut self, at: usize) {
        let record = self.live.swap_remove(at);
        self.leave(record);
        if let Some(moved) = self.live.get(at).filter(|_| self.case.expiry) {
            self.places.insert(moved.version, at);
        }
    }

    /// Lets time pass, and forgets what has been expired for so long that it may be dropped.
    fn advance(&mut self, nanos: u64) {
        self.env.wall.advance(nanos);
        let dropped_by = self.env.unix_ns() - GRACE;
        while let Some(&(deadline, version)) = self.deadlines.first() {
            if deadline > dropped_by {
                break;
            }
            self.remove(self.places[&version]);
        }
    }

    fn commit(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let start = Instant::now();
        self.bucket.commit_with(batch, self.case.durability).unwrap();
        self.latencies.push(start.elapsed());
        let is_due = self.latencies.len().is_multiple_of(SAMPLE_EVERY);
        if is_due && self.live_bytes >= LEAST {
            let (now, stats) = self.sample();
            self.worst.see(now, quotient(stats.bytes_live, self.live_bytes));
        }
    }

    fn sample(&self) -> (Ratios, Stats) {
        let stats = self.bucket.stats().unwrap();
        // What a snapshot pins can be given back by nobody.
        let pinned = if self.case.snapshots { stats.pinned_bytes } else { 0 };
        let ratio = |bytes: u64| quotient(bytes.saturating_sub(pinned), self.live_bytes);
        (Ratios { segments: ratio(stats.segment_bytes), log: ratio(stats.bytes_log) }, stats)
    }

    fn load(&mut self) {
        while self.live.len() < self.case.keys {
            self.insert();
            if self.batch.len() == BATCH {
                self.commit();
            }
        }
        self.commit();
        self.latencies.clear();
        self.written = 0;
    }

    /// Changes records until the time is over and all has been rewritten several times.
    fn churn(&mut self, time: Duration) {
        let (start, size) = (Instant::now(), self.live_bytes);
        // Records live for 25 hours on the average; as many come as go.
        let batches = u64::try_from(self.case.keys / BATCH).unwrap();
        let pause = if self.case.expiry { 25 * HOUR / batches } else { 0 };
        while start.elapsed() < time || self.written < TURNOVER * size {
            for _ in 0..BATCH {
                match self.rng.u8(..100) {
                    // Without deletes records go by expiring.
                    draw if self.case.expiry && draw < 70 => self.insert(),
                    draw if draw < self.case.deletes => self.delete(),
                    draw if draw < 2 * self.case.deletes => self.insert(),
                    _ => self.update(),
                }
            }
            self.commit();
            self.advance(pause);
        }
        let (seconds, turns) = (start.elapsed().as_secs_f64(), quotient(self.written, size));
        eprintln!(
            "{}: {} MB live, rewritten {turns:.1} times in {seconds:.1} s",
            self.case.name,
            self.live_bytes / 1_000_000,
        );
    }

    /// Waits for the background to come back within the bound, and tells how long that took and what was seen then. A moment
    /// later a round of compaction may take space again before it gives some back.
    fn settle(&self) -> (Duration, Ratios, Stats) {
        let start = Instant::now();
        loop {
            let (ratios, stats) = self.sample();
            if ratios.is_within(BOUND) || start.elapsed() >= SETTLE {
                return (start.elapsed(), ratios, stats);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Compacts everything, checks all of it, prints what was seen and compares it with the bounds. False if it was beyond them
    /// at some time; nothing else may be wrong.
    fn finish(mut self) -> bool {
        let name = self.case.name;
        let compaction = self.bucket.compact(Compact::Full).unwrap();
        let (full, stats) = self.sample();
        self.latencies.sort_unstable();
        let last = self.latencies.len() - 1;
        let at = |per_mille: usize| self.latencies[last * per_mille / 1000];
        let Worst { ratios: worst, samples, beyond, believed } = self.worst;
        let (least, most) = believed.unwrap_or_default();
        eprintln!(
            "{name}: worst segments {:.3}x, log {:.3}x; after full {:.3}x, log {:.3}x, in {:.2} s",
            worst.segments, worst.log, full.segments, full.log, compaction.seconds
        );
        eprintln!(
            "{name}: {beyond} of {samples} samples beyond {BOUND}x; {least:.2}x to {most:.2}x believed live"
        );
        eprintln!(
            "{name}: commit p50 {:?}, p99 {:?}, p99.9 {:?}, max {:?}; moved {:.2} per byte written",
            at(500),
            at(990),
            at(999),
            at(1000),
            quotient(stats.bytes_moved, stats.bytes_written)
        );
        self.check_all();
        assert!(self.live_bytes >= LEAST, "{name}: too small to tell anything");
        assert!(full.is_within(BOUND_FULL), "{name}: {full:?} after full compaction");
        worst.is_within(BOUND)
    }

    /// Compares all rows.
    fn check_all(&self) {
        let now = self.env.unix_ns();
        let mut expected: Vec<([u8; KEY_LEN], Live)> =
            self.live.iter().map(|record| (record.key(), *record)).collect();
        expected.retain(|(_, record)| record.deadline > now);
        expected.sort_unstable_by_key(|(key, _)| *key);
        let mut rows = self.bucket.scan(b"");
        for (key, record) in expected {
            let row = rows.next().expect("a key is missing at the end").unwrap();
            assert!(row.key() == key, "{}: not the key of {record:?}", self.case.name);
            assert!(row.value() == record.value(), "{}: not of {record:?}", self.case.name);
        }
        assert!(rows.next().is_none(), "{}: a key that should be gone", self.case.name);
    }
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a ratio")]
fn quotient(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// A number from the environment.
fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("not a number"))
}

fn seconds() -> Duration {
    Duration::from_secs(asked("KVB_CHURN_SECONDS", SECONDS))
}

/// Takes, scans and drops snapshots until told to stop.
fn snapshot(bucket: &Bucket, done: &AtomicBool) -> u64 {
    let mut rng = Rng::new();
    let mut count = 0;
    while !done.load(Ordering::Acquire) {
        let snapshot = bucket.snapshot();
        let prefix = rng.u8(..);
        let rows =
            || -> Vec<u64> { snapshot.scan([prefix]).map(|row| row.unwrap().seqno()).collect() };
        let first = rows();
        thread::sleep(Duration::from_millis(rng.u64(1..5)));
        assert!(rows() == first, "a snapshot shows something else than before");
        count += 1;
    }
    count
}

/// Runs a case when no other runs. Compaction that gets no processor falls behind, so where others keep the machine busy the
/// bounds may not hold at the first try.
fn alone(case: Case, work: impl Fn(Churn) -> bool + Send + Clone + 'static) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = seed::seed(case.name);
    let case =
        Case { keys: case.keys * usize::try_from(asked("KVB_CHURN_SCALE", 1)).unwrap(), ..case };
    for attempt in 0..ATTEMPTS {
        let work = work.clone();
        let is_within = watch::within(LIMIT + seconds(), case.name, move || {
            let mut churn = Churn::new(case, seed ^ attempt);
            churn.load();
            work(churn)
        });
        if is_within {
            return;
        }
        eprintln!("{}: beyond {BOUND}x", case.name);
    }
    panic!("{}: beyond {BOUND}x every time", case.name);
}

fn run(case: Case) {
    alone(case, move |mut churn| {
        if !case.snapshots {
            churn.churn(seconds());
            return churn.finish();
        }
        let done = Arc::new(AtomicBool::new(false));
        let taker = {
            let (bucket, done) = (Arc::clone(&churn.bucket), Arc::clone(&done));
            thread::spawn(move || snapshot(&bucket, &done))
        };
        churn.churn(seconds());
        done.store(true, Ordering::Release);
        let count = taker.join().unwrap();
        eprintln!("{}: {count} snapshots", case.name);
        assert!(count > 20, "hardly a snapshot was taken");
        churn.finish()
    });
}

#[test]
fn uniform() {
    run(UNIFORM);
}

/// As users have it who choose nothing: every commit is durable. Syncs are slow, so there are fewer
/// keys.
#[test]
fn uniform_and_durable() {
    let durability = Durability::Sync;
    run(Case { name: "uniform_and_durable", keys: 30_000, durability, ..UNIFORM });
}

/// Not much more than the least size.
#[test]
fn uniform_and_small() {
    run(Case { name: "uniform_and_small", keys: 30_000, ..UNIFORM });
}

#[test]
fn hot_keys() {
    run(Case { name: "hot_keys", deletes: 0, hot: true, ..UNIFORM });
}

#[test]
fn large_values() {
    run(Case { name: "large_values", keys: 20_000, value_lens: &[1024], ..UNIFORM });
}

#[test]
fn values_of_many_sizes() {
    let value_lens = &[0, 10, 100, 100, 300, 1000, 5000];
    run(Case { name: "values_of_many_sizes", keys: 20_000, value_lens, ..UNIFORM });
}

#[test]
fn expiring_records() {
    run(Case { name: "expiring_records", deletes: 0, expiry: true, ..UNIFORM });
}

#[test]
fn beside_snapshots() {
    run(Case { name: "beside_snapshots", snapshots: true, ..UNIFORM });
}

/// Nothing but deletes, down to a tenth. They go faster than compaction, so the bound holds some time
/// after the last.
#[test]
fn deletes_only() {
    alone(Case { name: "deletes_only", keys: 300_000, ..UNIFORM }, |mut churn| {
        while churn.live.len() > churn.case.keys / 10 {
            churn.delete();
            if churn.batch.len() == BATCH {
                churn.commit();
            }
        }
        churn.commit();
        let during = std::mem::take(&mut churn.worst).ratios;
        let (time, settled, stats) = churn.settle();
        churn.worst.see(settled, quotient(stats.bytes_live, churn.live_bytes));
        eprintln!(
            "deletes_only: worst while deleting segments {:.3}x, log {:.3}x; waited {time:?} after that",
            during.segments, during.log
        );
        churn.finish()
    });
}

/// What these tests go by: as long as nothing dies, the log is what was written, whatever is being
/// sealed at that moment.
#[test]
fn bytes_in_the_log_are_counted_once() {
    alone(Case { name: "bytes_in_the_log_are_counted_once", keys: 0, ..UNIFORM }, |mut churn| {
        let mut most: f64 = 0.0;
        for _ in 0..1000 {
            (0..BATCH).for_each(|_| churn.insert());
            churn.commit();
            if churn.latencies.len().is_multiple_of(10) {
                let stats = churn.bucket.stats().unwrap();
                assert!(stats.bytes_log >= churn.written, "{stats:?}");
                most = most.max(quotient(stats.bytes_log, churn.written));
            }
        }
        assert!(most <= 1.0, "{most:.3} bytes in the log per byte written");
        true
    });
}
