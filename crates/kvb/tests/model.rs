//! The bucket against a map: long random histories, every answer compared.
//!
//! The model is a `BTreeMap` from key to value and deadline, and a clock by the rule of the
//! bucket's own: the wall's time or the newest stamp, whichever is later, leaving out stamps more
//! than a day ahead of the wall. Histories contain puts with and without a time to live, deletes,
//! batches, lookups, flushes, clean reopens, kills (the bucket is opened from a copy of the bytes
//! as they were at that moment), and a wall clock that jumps both ways.
//!
//! Overlays are tiny, so that the index is merged, grown and shrunk all the time; a history that
//! did not do that fails.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/collide.rs"]
mod collide;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/watch.rs"]
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use host::{Disk, Env, FileDisk, ManualEnv, MemoryDisk};
use kvb::{Batch, Bucket, Durability, HashKind, Options};
use tempfile::TempDir;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;
/// Where the wall clock of every history begins.
const START: u64 = 20_000 * DAY;
/// Address space of a bucket in memory: more than any history needs, so that it never moves.
const CAPACITY: u64 = 1 << 30;
/// Longest a history may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Where a history's bucket lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Memory,
    File,
}

/// Which keys a history uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    /// Keys of 0 to 300 bytes.
    Plain,
    /// All keys fall into this many hashes.
    Colliding(u64),
    /// Keys with the hashes 0 to 7 and `u64::MAX`, and others that share their low bits.
    Sentinels,
}

/// What a history is made of.
#[derive(Clone, Copy, Debug)]
struct Plan {
    place: Place,
    background: bool,
    durability: Durability,
    page_size: u32,
    segment_bytes_max: u64,
    hash: HashKind,
    overlay_min: usize,
    keys: Keys,
    /// How many different keys there are.
    key_count: usize,
    /// Whether values expire and the wall clock jumps.
    expiry: bool,
    steps: usize,
}

impl Plan {
    /// A plan with everything drawn that the caller does not fix.
    fn draw(rng: &mut Rng, place: Place, background: bool) -> Plan {
        let page_size = *rng.choice(&[4096, 4096, 16_384]).unwrap();
        let segment_min = u64::from(page_size).max(4096) * 4;
        Plan {
            place,
            background,
            durability: durability(rng),
            page_size,
            segment_bytes_max: *rng.choice(&[segment_min, segment_min, 8 << 20]).unwrap(),
            hash: if rng.u8(..4) == 0 { HashKind::SipHash } else { HashKind::Xxh3 },
            overlay_min: *rng.choice(&[1, 8, 32, 100]).unwrap(),
            keys: Keys::Plain,
            key_count: *rng.choice(&[30, 600, 2500]).unwrap(),
            expiry: rng.bool(),
            steps: match place {
                Place::Memory => 2500,
                Place::File => 900,
            },
        }
    }

    fn options(&self) -> Options {
        Options::default()
            .page_size(self.page_size)
            .segment_bytes_max(self.segment_bytes_max)
            .hash(self.hash)
            .durability(self.durability)
            .background(self.background)
            .overlay_min(self.overlay_min)
    }
}

fn durability(rng: &mut Rng) -> Durability {
    *rng.choice(&[Durability::Relaxed, Durability::SyncOnce, Durability::Sync]).unwrap()
}

impl Keys {
    fn key(self, index: usize) -> Vec<u8> {
        let wide = u64::try_from(index).unwrap();
        match self {
            Keys::Plain => plain_key(index),
            Keys::Colliding(groups) => collide::colliding(wide % groups, wide),
            Keys::Sentinels => match wide {
                // Hash 0 and hash 2 are indexed under one slot hash, as are 1 and 3.
                0..8 => collide::hashing_to(wide),
                8 => collide::hashing_to(u64::MAX),
                _ if wide % 2 == 0 => collide::hashing_to((wide << 32) | (wide % 8)),
                _ => plain_key(index),
            },
        }
    }

    /// True if no two keys are indexed under one hash.
    fn are_distinct(self) -> bool {
        self == Keys::Plain
    }
}

/// Keys of every length class of the hash; the first two bytes tell them apart.
fn plain_key(index: usize) -> Vec<u8> {
    let [low, high, ..] = index.to_le_bytes();
    match index {
        0 => Vec::new(),
        1 => vec![1],
        _ => {
            let spread = index.wrapping_mul(0x9E37_79B1) >> 7;
            let len = match spread % 8 {
                0 => 2 + spread % 7,
                1..4 => 9 + spread % 8,
                4 | 5 => 17 + spread % 112,
                6 => 129 + spread % 112,
                _ => 241 + spread % 60,
            };
            let mut key = vec![low, high];
            key.resize(len.max(2), b'k');
            key
        }
    }
}

/// A moment known only to lie in a range, because stamps of a clock gone wrong may or may not
/// count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    earliest: u64,
    latest: u64,
}

const NEVER: Moment = Moment { earliest: u64::MAX, latest: u64::MAX };

impl Moment {
    fn plus_secs(self, secs: u64) -> Moment {
        let later = |from: u64| from.saturating_add(secs.saturating_mul(SECOND));
        Moment { earliest: later(self.earliest), latest: later(self.latest) }
    }

    fn is_exact(self) -> bool {
        self.earliest == self.latest
    }
}

/// The bucket's clock by its rule.
#[derive(Debug)]
struct ModelClock {
    env: Arc<ManualEnv>,
    /// The last stamp given, if it still counts.
    last: Option<Moment>,
    /// Every stamp ever given that is known for certain.
    stamps: BTreeSet<u64>,
    /// The others.
    vague: Vec<Moment>,
}

impl ModelClock {
    fn now(&self) -> Moment {
        let wall = self.env.unix_ns();
        let limit = wall + DAY;
        let certain = self.stamps.range(..=limit).next_back().copied().unwrap_or(0);
        let vague = self.vague.iter().filter(|stamp| stamp.earliest <= limit);
        let newest = vague.map(|stamp| stamp.latest.min(limit)).fold(certain, u64::max);
        let last = self.last.filter(|last| last.is_exact() && last.latest <= limit);
        Moment {
            earliest: wall.max(last.map_or(0, |last| last.earliest)),
            latest: wall.max(newest),
        }
    }

    fn stamp(&mut self) -> Moment {
        let now = self.now();
        self.last = Some(now);
        if now.is_exact() {
            self.stamps.insert(now.latest);
        } else {
            self.vague.push(now);
        }
        now
    }

    /// A mount adopts the newest stamp only if it is at most a day ahead of the wall then.
    fn remount(&mut self) {
        let limit = self.env.unix_ns() + DAY;
        self.last = self.last.filter(|last| last.latest <= limit);
    }
}

/// What the bucket should hold.
#[derive(Debug)]
struct Model {
    map: BTreeMap<Vec<u8>, (Vec<u8>, Moment)>,
    clock: ModelClock,
    /// Lookups that the clock left open.
    undecided: u64,
    decided: u64,
}

/// What a lookup should give.
#[derive(Debug, PartialEq, Eq)]
enum Expected<'a> {
    Absent,
    Present(&'a [u8]),
    Either(&'a [u8]),
}

impl Model {
    fn lookup(&self, key: &[u8]) -> Expected<'_> {
        let now = self.clock.now();
        match self.map.get(key) {
            None => Expected::Absent,
            Some((_, deadline)) if deadline.latest <= now.earliest => Expected::Absent,
            Some((value, deadline)) if deadline.earliest > now.latest => Expected::Present(value),
            Some((value, _)) => Expected::Either(value),
        }
    }

    fn check(&mut self, key: &[u8], found: Option<&[u8]>, context: &str) {
        let short =
            |bytes: &[u8]| format!("{} bytes {:x?}", bytes.len(), &bytes[..bytes.len().min(24)]);
        let is_right = match self.lookup(key) {
            Expected::Absent => found.is_none(),
            Expected::Present(value) => found == Some(value),
            Expected::Either(value) => found.is_none_or(|found| found == value),
        };
        assert!(
            is_right,
            "{context}: key {}, found {:?}, entry {:?}, clock {:?}",
            short(key),
            found.map(short),
            self.map.get(key).map(|(value, deadline)| (short(value), deadline)),
            self.clock.now(),
        );
        match self.lookup(key) {
            Expected::Either(_) => self.undecided += 1,
            _ => self.decided += 1,
        }
    }
}

/// A change of one key.
#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    PutFor(Vec<u8>, Vec<u8>, Duration),
    Delete(Vec<u8>),
}

impl Change {
    fn add_to(&self, batch: &mut Batch) {
        match self {
            Change::Put(key, value) => batch.put(key, value),
            Change::PutFor(key, value, ttl) => batch.put_for(key, value, *ttl),
            Change::Delete(key) => batch.delete(key),
        };
    }

    fn apply(self, model: &mut Model, stamp: Moment) {
        match self {
            Change::Put(key, value) => model.map.insert(key, (value, NEVER)),
            Change::PutFor(key, value, ttl) => {
                let secs = (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(1);
                model.map.insert(key, (value, stamp.plus_secs(secs)))
            }
            Change::Delete(key) => model.map.remove(&key),
        };
    }
}

/// The bytes under the bucket.
#[derive(Debug)]
enum Bytes {
    Memory(MemoryDisk),
    File(TempDir, PathBuf),
}

impl Bytes {
    fn new(place: Place) -> Bytes {
        match place {
            Place::Memory => Bytes::Memory(MemoryDisk::with_capacity(CAPACITY)),
            Place::File => {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("model-0.kvb");
                drop(FileDisk::create_new(&path).unwrap());
                Bytes::File(dir, path)
            }
        }
    }

    fn disk(&self) -> Arc<dyn Disk> {
        match self {
            Bytes::Memory(disk) => Arc::new(disk.reopen()),
            Bytes::File(_, path) => Arc::new(FileDisk::open(path).unwrap()),
        }
    }

    /// Goes on with a copy of the bytes as they are now, as if the process had been killed.
    fn fork(&mut self, number: usize) {
        match self {
            Bytes::Memory(disk) => {
                let copy = MemoryDisk::with_capacity(CAPACITY);
                copy.write_at(0, &disk.to_bytes()).unwrap();
                *disk = copy;
            }
            Bytes::File(dir, path) => {
                let copy = dir.path().join(format!("model-{number}.kvb"));
                std::fs::copy(&*path, &copy).unwrap();
                *path = copy;
            }
        }
    }
}

/// A history on its way.
struct History {
    plan: Plan,
    rng: Rng,
    env: Arc<ManualEnv>,
    bytes: Bytes,
    bucket: Option<Bucket>,
    model: Model,
    /// Puts outnumber deletes.
    is_filling: bool,
    step: usize,
    /// Puts and deletes since the bucket was opened.
    puts: u64,
    deletes: u64,
    /// Lengths of the index that were seen.
    index_lens: Vec<u64>,
}

impl History {
    fn new(plan: Plan, seed: u64) -> History {
        let env = Arc::new(ManualEnv::new(START, seed));
        let bytes = Bytes::new(plan.place);
        let bucket =
            Bucket::create_on(bytes.disk(), Arc::<ManualEnv>::clone(&env), plan.options()).unwrap();
        let clock = ModelClock {
            env: Arc::clone(&env),
            // The time of creation is the first stamp.
            last: Some(Moment { earliest: START, latest: START }),
            stamps: BTreeSet::from([START]),
            vague: Vec::new(),
        };
        History {
            plan,
            rng: Rng::with_seed(seed),
            env,
            bytes,
            bucket: Some(bucket),
            model: Model { map: BTreeMap::new(), clock, undecided: 0, decided: 0 },
            is_filling: true,
            step: 0,
            puts: 0,
            deletes: 0,
            index_lens: Vec::new(),
        }
    }

    fn bucket(&self) -> &Bucket {
        self.bucket.as_ref().unwrap()
    }

    fn context(&self, doing: &str) -> String {
        format!("step {} of {:?}: {doing}", self.step, self.plan)
    }

    fn draw_key(&mut self) -> Vec<u8> {
        let index = self.rng.usize(..self.plan.key_count);
        self.plan.keys.key(index)
    }

    /// A key that is in no history.
    fn draw_absent_key(&mut self) -> Vec<u8> {
        let index = self.plan.key_count + self.rng.usize(..1000);
        self.plan.keys.key(index)
    }

    fn draw_value(&mut self) -> Vec<u8> {
        let len = match self.rng.u16(..400) {
            0..40 => 0,
            40..330 => self.rng.usize(1..200),
            330..390 => self.rng.usize(200..5000),
            390..398 => self.rng.usize(5000..40_000),
            _ => self.rng.usize(40_000..=102_400),
        };
        let mut value = vec![0; len];
        self.rng.fill(&mut value);
        value
    }

    fn draw_change(&mut self) -> Change {
        let key = self.draw_key();
        let puts = if self.is_filling { 8 } else { 2 };
        if self.rng.u8(..10) >= puts {
            return Change::Delete(key);
        }
        let value = self.draw_value();
        if self.plan.expiry && self.rng.u8(..3) == 0 {
            let ttl = match self.rng.u8(..8) {
                0 => Duration::ZERO,
                1 => Duration::from_millis(self.rng.u64(1..5000)),
                2 => Duration::from_secs(u64::from(u32::MAX) - 1),
                3 => Duration::from_secs(self.rng.u64(86_000..90_000)),
                _ => Duration::from_secs(self.rng.u64(1..5000)),
            };
            return Change::PutFor(key, value, ttl);
        }
        Change::Put(key, value)
    }

    fn run(mut self) {
        // Half the time the bucket fills and half the time it empties, so that the index grows and
        // shrinks.
        let phase = (self.plan.steps / 6).max(1);
        for step in 0..self.plan.steps {
            self.step = step;
            self.is_filling = (step / phase).is_multiple_of(2);
            if step % phase == phase / 2 {
                self.sweep();
            }
            self.take_step();
        }
        self.check_all("at the end");
        self.reopen();
        self.check_all("reopened at the end");
        let distinct: BTreeSet<u64> = self.index_lens.iter().copied().collect();
        if self.plan.key_count >= 600 && self.plan.steps >= 900 {
            assert!(
                distinct.len() >= 2 && self.index_lens.windows(2).any(|pair| pair[0] > pair[1]),
                "the index never grew or never shrank: {}",
                self.context(&format!("{:?}", self.index_lens))
            );
        }
        assert!(
            self.model.undecided * 4 < self.model.decided,
            "the model's clock left {} of {} lookups open",
            self.model.undecided,
            self.model.undecided + self.model.decided
        );
    }

    fn take_step(&mut self) {
        match self.rng.u16(..1000) {
            0..280 => self.commit_one(),
            280..380 => self.delete_one(),
            380..500 => self.commit_batch(),
            500..700 => self.look_up(),
            700..780 => self.look_up_many(),
            780..850 => self.move_clock(),
            850..870 => self.flush(),
            870..880 => self.reopen(),
            880..890 => self.kill(),
            890..910 => self.check_all("now and then"),
            _ => self.look_up_absent(),
        }
    }

    fn commit_one(&mut self) {
        let change = self.draw_change();
        let bucket = self.bucket();
        let result = match &change {
            Change::Put(key, value) => bucket.put(key, value),
            Change::PutFor(key, value, ttl) => bucket.put_for(key, value, *ttl),
            Change::Delete(_) => return self.delete_one(),
        };
        result.unwrap_or_else(|error| panic!("{}: {error}", self.context("put")));
        self.puts += 1;
        let stamp = self.model.clock.stamp();
        change.apply(&mut self.model, stamp);
    }

    fn delete_one(&mut self) {
        let key = if self.rng.u8(..8) == 0 { self.draw_absent_key() } else { self.draw_key() };
        let expected = match self.model.lookup(&key) {
            Expected::Absent => false,
            Expected::Present(_) => true,
            // Neither answer would tell anything, and which one was given decides about the next
            // stamp.
            Expected::Either(_) => return,
        };
        let deleted = self.bucket().delete(&key);
        let deleted = deleted.unwrap_or_else(|error| panic!("{}: {error}", self.context("delete")));
        assert_eq!(deleted, expected, "{}", self.context("delete"));
        if deleted {
            self.deletes += 1;
            let stamp = self.model.clock.stamp();
            Change::Delete(key).apply(&mut self.model, stamp);
        }
    }

    fn commit_batch(&mut self) {
        let count = match self.rng.u8(..20) {
            0 => 0,
            1 => self.rng.usize(200..400),
            2 | 3 => self.rng.usize(50..150),
            _ => self.rng.usize(1..20),
        };
        let mut changes: Vec<Change> = (0..count).map(|_| self.draw_change()).collect();
        // The same key several times in one batch: the last one wins.
        for _ in 0..self.rng.usize(..4) {
            let again: Option<Change> = self.rng.choice(&changes).cloned();
            changes.extend(again.map(|change| match change {
                Change::Delete(key) => Change::Put(key, b"again".to_vec()),
                Change::Put(key, _) | Change::PutFor(key, _, _) => Change::Delete(key),
            }));
        }
        self.commit_changes(changes);
    }

    fn commit_changes(&mut self, changes: Vec<Change>) {
        let mut batch = Batch::new();
        changes.iter().for_each(|change| change.add_to(&mut batch));
        assert_eq!(batch.len(), changes.len());
        let durability = durability(&mut self.rng);
        let result = if self.rng.bool() {
            self.bucket().commit(batch)
        } else {
            self.bucket().commit_with(batch, durability)
        };
        result.unwrap_or_else(|error| panic!("{}: {error}", self.context("commit")));
        if changes.is_empty() {
            return;
        }
        let deletes = changes.iter().filter(|change| matches!(change, Change::Delete(_))).count();
        self.deletes += u64::try_from(deletes).unwrap();
        self.puts += u64::try_from(changes.len() - deletes).unwrap();
        let stamp = self.model.clock.stamp();
        changes.into_iter().for_each(|change| change.apply(&mut self.model, stamp));
    }

    /// Puts or deletes most keys there can be, in one batch.
    fn sweep(&mut self) {
        let mut changes = Vec::new();
        for index in 0..self.plan.key_count {
            if self.rng.u8(..20) == 0 {
                continue;
            }
            let key = self.plan.keys.key(index);
            changes.push(match self.is_filling {
                true => Change::Put(key, self.step.to_le_bytes().to_vec()),
                false => Change::Delete(key),
            });
        }
        self.rng.shuffle(&mut changes);
        self.commit_changes(changes);
        self.check_all("after a sweep");
    }

    fn look_up(&mut self) {
        let key = self.draw_key();
        let context = self.context("get");
        let bucket = self.bucket.as_ref().unwrap();
        let value = bucket.get(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
        self.model.check(&key, value.as_deref(), &context);
        let exists = bucket.exists(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(exists, value.is_some(), "{context}");
    }

    fn look_up_absent(&mut self) {
        let key = self.draw_absent_key();
        let context = self.context("get an absent key");
        assert!(self.bucket().get(&key).unwrap().is_none(), "{context}");
        assert!(!self.bucket().exists(&key).unwrap(), "{context}");
    }

    fn look_up_many(&mut self) {
        let count = self.rng.usize(..40);
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(count);
        for _ in 0..count {
            keys.push(if self.rng.u8(..5) == 0 { self.draw_absent_key() } else { self.draw_key() });
        }
        let context = self.context("get_many");
        let bucket = self.bucket.as_ref().unwrap();
        let values = bucket.get_many(&keys).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(values.len(), keys.len(), "{context}");
        for (key, value) in keys.iter().zip(&values) {
            self.model.check(key, value.as_deref(), &context);
        }
    }

    fn move_clock(&mut self) {
        if !self.plan.expiry {
            return;
        }
        let wall = self.env.unix_ns();
        let to = match self.rng.u8(..32) {
            0 => wall + self.rng.u64(DAY / 2..3 * DAY),
            1 => wall - self.rng.u64(..DAY),
            // Far back: stamps are then over a day ahead and do not count.
            2 if self.rng.u8(..4) == 0 => wall - self.rng.u64(DAY..2 * DAY),
            3..8 => wall - self.rng.u64(..2000) * SECOND,
            8..12 => wall + self.rng.u64(..3 * SECOND),
            _ => wall + self.rng.u64(..3000) * SECOND,
        };
        self.env.set(to);
    }

    fn flush(&mut self) {
        self.bucket().flush().unwrap_or_else(|error| panic!("{}: {error}", self.context("flush")));
    }

    fn reopen(&mut self) {
        let context = self.context("reopen");
        let bucket = self.bucket.take().unwrap();
        if self.rng.bool() {
            bucket.close().unwrap_or_else(|error| panic!("{context}: {error}"));
        } else {
            drop(bucket);
        }
        self.open(&context);
        let report = self.bucket().mount_report();
        assert_eq!(report.records_discarded, 0, "{context}");
        assert!(!report.index_rebuilt && !report.table_rebuilt, "{context}: {report:?}");
        assert_eq!(report.runs_rebuilt, 0, "{context}");
    }

    fn kill(&mut self) {
        // A copy of a file is not a moment of it while other threads write.
        if self.plan.place == Place::File && self.plan.background {
            return self.reopen();
        }
        let context = self.context("kill");
        self.bytes.fork(self.step + 1);
        drop(self.bucket.take());
        self.open(&context);
        let report = self.bucket().mount_report();
        assert_eq!(report.records_discarded, 0, "{context}: every commit had returned");
    }

    fn open(&mut self, context: &str) {
        // What is fixed at creation is read back; what is asked for now must not matter.
        let mut options = self.plan.options();
        if self.rng.bool() {
            options = options
                .page_size(65_536)
                .segment_bytes_max(1 << 20)
                .hash(HashKind::Xxh3)
                .max_value(1);
        }
        let env = Arc::<ManualEnv>::clone(&self.env);
        let opened = Bucket::open_on(self.bytes.disk(), env, options);
        self.bucket = Some(opened.unwrap_or_else(|error| panic!("{context}: {error}")));
        self.model.clock.remount();
        self.puts = 0;
        self.deletes = 0;
        self.check_all(context);
    }

    /// Compares every key there can be.
    fn check_all(&mut self, doing: &str) {
        let context = self.context(doing);
        let bucket = self.bucket.as_ref().unwrap();
        for index in 0..self.plan.key_count {
            let key = self.plan.keys.key(index);
            let value = bucket.get(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
            self.model.check(&key, value.as_deref(), &context);
        }
        let stats = bucket.stats().unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!((stats.puts, stats.deletes), (self.puts, self.deletes), "{context}");
        assert!(stats.hits <= stats.gets, "{context}");
        if self.plan.keys.are_distinct() {
            let keys = u64::try_from(self.model.map.len()).unwrap();
            assert_eq!(stats.keys, keys, "{context}: expired keys count as there");
        }
        self.index_lens.push(stats.index_bytes);
    }
}

/// Runs histories until all of `plans` are done, `KVB_ROUNDS` times.
fn run(test: &'static str, count: u64, plan: impl Fn(&mut Rng, u64) -> Plan) {
    let base = seed::seed(test);
    for number in 0..count * seed::rounds() {
        let seed = base.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let plan = plan(&mut Rng::with_seed(seed), number);
        eprintln!("{test}: history {number}, {plan:?}");
        watch::within(LIMIT, test, move || History::new(plan, seed).run());
    }
}

#[test]
fn in_memory() {
    run("in_memory", 16, |rng, number| Plan::draw(rng, Place::Memory, number % 2 == 0));
}

#[test]
fn in_a_file() {
    run("in_a_file", 8, |rng, number| Plan::draw(rng, Place::File, number % 2 == 0));
}

/// Every key of the bucket has the same hash, or one of a few.
#[test]
fn keys_that_collide() {
    collide::check();
    run("keys_that_collide", 10, |rng, number| Plan {
        keys: Keys::Colliding(*rng.choice(&[1, 1, 2, 40]).unwrap()),
        hash: HashKind::Xxh3,
        ..Plan::draw(
            rng,
            if number % 4 == 3 { Place::File } else { Place::Memory },
            number % 2 == 0,
        )
    });
}

/// Hashes that mean something else in an index slot, and neighbours that are indexed in the same
/// place.
#[test]
fn keys_with_the_hashes_of_sentinels() {
    collide::check();
    run("keys_with_the_hashes_of_sentinels", 8, |rng, number| Plan {
        keys: Keys::Sentinels,
        hash: HashKind::Xxh3,
        key_count: *rng.choice(&[9, 40, 1000]).unwrap(),
        ..Plan::draw(rng, Place::Memory, number % 2 == 0)
    });
}

/// Every combination of what a bucket can be told, briefly.
#[test]
fn every_combination() {
    let mut plans = Vec::new();
    for page_size in [4096, 16_384, 65_536] {
        for durability in [Durability::Relaxed, Durability::SyncOnce, Durability::Sync] {
            for hash in [HashKind::Xxh3, HashKind::SipHash] {
                for background in [false, true] {
                    for segment_bytes_max in [4 * u64::from(page_size), 8 << 20] {
                        plans.push((page_size, durability, hash, background, segment_bytes_max));
                    }
                }
            }
        }
    }
    let count = u64::try_from(plans.len()).unwrap();
    run("every_combination", count, |rng, number| {
        let (page_size, durability, hash, background, segment_bytes_max) =
            plans[usize::try_from(number % count).unwrap()];
        Plan {
            page_size,
            durability,
            hash,
            background,
            segment_bytes_max,
            steps: 250,
            ..Plan::draw(rng, Place::Memory, background)
        }
    });
}
