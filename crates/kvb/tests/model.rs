//! The bucket against a map: long random histories, every answer compared.
//!
//! The model is a `BTreeMap` from key to value and deadline, and a clock by the rule of the
//! bucket's own: the wall's time or the newest stamp, whichever is later, leaving out stamps more
//! than a day ahead of the wall. Histories contain puts with and without a time to live, deletes,
//! batches, lookups, scans, flushes, compactions of every kind, clean reopens, kills (the bucket is
//! opened from a copy of the bytes as they were at that moment), and a wall clock that jumps both
//! ways. No answer may change by a compaction, so after each one everything is compared.
//!
//! Snapshots are held through all that with a copy of the map each, and judge deadlines by the time
//! they were taken; so do scans that are left half read. Both borrow the bucket, so what happens
//! between two openings is a [`Session`].
//!
//! Overlays are tiny, so that the index is merged, grown and shrunk all the time; a history that
//! did not do that fails.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/collide.rs"]
mod collide;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/walk.rs"]
mod walk;
#[path = "support/watch.rs"]
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use host::{Disk, Env, FileDisk, ManualEnv, MemoryDisk};
use kvb::{
    Batch, Bucket, Compact, Compaction, Compression, Durability, HashKind, Key, Keyring, Options,
    Scan, Snapshot,
};
use tempfile::TempDir;
use walk::{Of, Presence, Walk, short};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;
/// How long a record is expired before compaction may drop it.
const GRACE: u64 = 3600 * SECOND;
/// Where the wall clock of every history begins.
const START: u64 = 20_000 * DAY;
/// Address space of a bucket in memory: more than any history needs, so that it never moves.
const CAPACITY: u64 = 1 << 30;
/// Longest a history may take.
const LIMIT: Duration = Duration::from_secs(300);
/// Snapshots open at a time.
const SNAPSHOTS: usize = 4;
/// Scans left half read at a time.
const SCANS: usize = 2;
/// Bytes of a record besides its key and value.
const RECORD_MIN: u64 = 48;
/// Longest value.
const VALUE_MAX: usize = 102_400;

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
    /// Keys that begin with this many equal bytes and then with each other.
    Nested(usize),
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
    directories: bool,
    compressed: bool,
    encrypted: bool,
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
            directories: rng.u8(..3) > 0,
            compressed: rng.u8(..3) == 0,
            encrypted: rng.u8(..3) == 0,
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
        let options = Options::default()
            .page_size(self.page_size)
            .segment_bytes_max(self.segment_bytes_max)
            .hash(self.hash)
            .directories(self.directories)
            .durability(self.durability)
            .background(self.background)
            .overlay_min(self.overlay_min)
            .compression_min(16)
            .compression(if self.compressed { Compression::Zstd } else { Compression::None });
        if self.encrypted {
            options.encrypted(7).keys(Keyring::new().with(7, Key::new([7; 32])))
        } else {
            options
        }
    }

    /// True if a record may be too large for an ordinary segment. It then has one of its own, which
    /// no compaction moves.
    fn has_oversized(&self) -> bool {
        self.segment_bytes_max < 4 * u64::try_from(VALUE_MAX).unwrap()
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
            Keys::Nested(stem) => nested_key(stem, index),
        }
    }

    /// True if no two keys are indexed under one hash.
    fn are_distinct(self) -> bool {
        matches!(self, Keys::Plain | Keys::Nested(_))
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

/// All strings over three bytes, the shorter first, behind a stem.
fn nested_key(stem: usize, index: usize) -> Vec<u8> {
    let mut key = vec![b's'; stem];
    let mut rest = index;
    while rest > 0 {
        key.push([0x00, b'm', 0xFF][(rest - 1) % 3]);
        rest = (rest - 1) / 3;
    }
    key
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

/// A value and its deadline.
#[derive(Clone, Debug)]
struct Entry {
    value: Arc<[u8]>,
    deadline: Moment,
    /// It was expired for an hour once by the wall, so that compaction may have dropped it; if the
    /// wall goes back after that, it need not come back.
    may_be_gone: bool,
}

type Map = BTreeMap<Vec<u8>, Entry>;

/// True if no commit lies between two maps.
fn is_same_state(a: &Map, b: &Map) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a.0 == b.0 && a.1.value == b.1.value && a.1.deadline == b.1.deadline)
}

/// What the bucket should hold.
#[derive(Debug)]
struct Model {
    map: Map,
    clock: ModelClock,
    /// Lookups, and rows of scans, that the clock left open.
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

fn lookup<'a>(map: &'a Map, now: Moment, key: &[u8]) -> Expected<'a> {
    map.get(key).map_or(Expected::Absent, |entry| judge(entry, now))
}

fn judge(entry: &Entry, now: Moment) -> Expected<'_> {
    let Entry { value, deadline, may_be_gone } = entry;
    if deadline.latest <= now.earliest {
        Expected::Absent
    } else if deadline.earliest > now.latest && !may_be_gone {
        Expected::Present(value)
    } else {
        Expected::Either(value)
    }
}

/// What any compaction may say of itself.
fn check_compaction(done: &Compaction, context: &str) {
    assert!(done.bytes_moved >= RECORD_MIN * done.records_moved, "{context}: {done:?}");
    assert_eq!(done.bytes_moved > 0, done.records_moved > 0, "{context}: {done:?}");
    assert!(done.segments_written > 0 || done.records_moved == 0, "{context}: {done:?}");
    assert!(done.segments_emptied > 0 || done.bytes_freed <= 0, "{context}: {done:?}");
    assert!(done.seconds >= 0.0, "{context}: {done:?}");
}

/// Compares what a lookup found, and tells whether the clock left it open.
fn check(map: &Map, now: Moment, key: &[u8], found: Option<&[u8]>, context: &str) -> bool {
    let expected = lookup(map, now, key);
    let is_right = match expected {
        Expected::Absent => found.is_none(),
        Expected::Present(value) => found == Some(value),
        Expected::Either(value) => found.is_none_or(|found| found == value),
    };
    assert!(
        is_right,
        "{context}: key {}, found {:?}, entry {:?}, clock {now:?}",
        short(key),
        found.map(short),
        map.get(key).map(|entry| (short(&entry.value), entry.deadline)),
    );
    matches!(expected, Expected::Either(_))
}

/// The rows of a scan at a time.
fn walk_over(map: &Map, now: Moment, of: &Of, seqno_max: u64) -> Walk {
    let rows = map.iter().filter(|(key, _)| of.contains(key)).filter_map(|(key, entry)| {
        let Entry { value, deadline, .. } = entry;
        let presence = match judge(entry, now) {
            Expected::Absent => return None,
            Expected::Present(_) => Presence::Certain,
            Expected::Either(_) => Presence::Unknown,
        };
        let expires = (*deadline != NEVER).then_some((deadline.earliest, deadline.latest));
        Some(walk::Expected { key: key.clone(), value: Arc::clone(value), expires, presence })
    });
    Walk::new(rows.collect(), seqno_max)
}

impl Model {
    fn lookup(&self, key: &[u8]) -> Expected<'_> {
        lookup(&self.map, self.clock.now(), key)
    }

    fn check(&mut self, key: &[u8], found: Option<&[u8]>, context: &str) {
        match check(&self.map, self.clock.now(), key, found, context) {
            true => self.undecided += 1,
            false => self.decided += 1,
        }
    }

    fn walk(&mut self, of: &Of) -> Walk {
        let walk = walk_over(&self.map, self.clock.now(), of, u64::MAX);
        let (decided, undecided) = walk.counts();
        self.decided += decided;
        self.undecided += undecided;
        walk
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
        let entry = |value: Vec<u8>, deadline: Moment| Entry {
            value: value.into(),
            deadline,
            may_be_gone: false,
        };
        match self {
            Change::Put(key, value) => model.map.insert(key, entry(value, NEVER)),
            Change::PutFor(key, value, ttl) => {
                let secs = (ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(1);
                model.map.insert(key, entry(value, stamp.plus_secs(secs)))
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

/// A snapshot and what it should show.
struct Open<'b> {
    snapshot: Snapshot<'b>,
    map: Map,
    now: Moment,
}

/// A scan left half read.
struct HalfRead<'b> {
    scan: Scan<'b>,
    walk: Walk,
}

/// What happens between two openings of the bucket.
struct Session<'b> {
    bucket: &'b Bucket,
    snapshots: Vec<Open<'b>>,
    scans: Vec<HalfRead<'b>>,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Reopen,
    Kill,
    Done,
}

/// A history on its way.
struct History {
    plan: Plan,
    rng: Rng,
    env: Arc<ManualEnv>,
    bytes: Bytes,
    model: Model,
    /// Puts outnumber deletes.
    is_filling: bool,
    step: usize,
    /// Puts and deletes since the bucket was opened.
    puts: u64,
    deletes: u64,
    /// Lengths of the index that were seen.
    index_lens: Vec<u64>,
    /// How often a snapshot was read that something had been committed since.
    old_reads: u64,
    /// Compactions that were asked for and moved something.
    moves: u64,
}

impl History {
    fn new(plan: Plan, seed: u64) -> History {
        let env = Arc::new(ManualEnv::new(START, seed));
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
            bytes: Bytes::new(plan.place),
            model: Model { map: BTreeMap::new(), clock, undecided: 0, decided: 0 },
            is_filling: true,
            step: 0,
            puts: 0,
            deletes: 0,
            index_lens: Vec::new(),
            old_reads: 0,
            moves: 0,
        }
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

    /// A key, or something near one.
    fn draw_place(&mut self) -> Vec<u8> {
        let mut key = self.draw_key();
        match self.rng.u8(..8) {
            0 => key.truncate(self.rng.usize(..=key.len())),
            1 => key.push(*self.rng.choice(&[0, 1, 255]).unwrap()),
            2 => key = self.draw_absent_key(),
            3 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(*self.rng.choice(&[1, 255]).unwrap());
                }
            }
            _ => {}
        }
        key
    }

    fn draw_bound(&mut self) -> Bound<Vec<u8>> {
        match self.rng.u8(..5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(self.draw_place()),
            _ => Bound::Included(self.draw_place()),
        }
    }

    /// Everything, a prefix, or a range with its ends in any order.
    fn draw_of(&mut self) -> Of {
        match self.rng.u8(..10) {
            0 | 1 => Of::Prefix(Vec::new()),
            2..5 => {
                let mut prefix = self.draw_place();
                if self.rng.bool() {
                    prefix.truncate(self.rng.usize(..4));
                }
                Of::Prefix(prefix)
            }
            5 => {
                // One place twice: at most one row.
                let place = self.draw_place();
                let bound = |is_included: bool, place: Vec<u8>| match is_included {
                    true => Bound::Included(place),
                    false => Bound::Excluded(place),
                };
                let from = bound(self.rng.bool(), place.clone());
                Of::Range(from, bound(self.rng.bool(), place))
            }
            _ => Of::Range(self.draw_bound(), self.draw_bound()),
        }
    }

    fn draw_value(&mut self) -> Vec<u8> {
        let len = match self.rng.u16(..400) {
            0..40 => 0,
            40..330 => self.rng.usize(1..200),
            330..390 => self.rng.usize(200..5000),
            390..398 => self.rng.usize(5000..40_000),
            _ => self.rng.usize(40_000..=VALUE_MAX),
        };
        let mut value = vec![0; len];
        // Some of it compresses.
        let random = if self.rng.bool() { len } else { self.rng.usize(..=len) };
        self.rng.fill(&mut value[..random]);
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
        let env = Arc::<ManualEnv>::clone(&self.env);
        let mut bucket = Bucket::create_on(self.bytes.disk(), env, self.plan.options()).unwrap();
        loop {
            bucket = match self.session(&bucket) {
                Ending::Reopen => self.reopen(bucket),
                Ending::Kill => self.kill(bucket),
                Ending::Done => break,
            };
        }
        self.check_all(&bucket, "at the end");
        let bucket = self.reopen(bucket);
        self.check_all(&bucket, "reopened at the end");
        let distinct: BTreeSet<u64> = self.index_lens.iter().copied().collect();
        if self.plan.key_count >= 600 && self.plan.steps >= 900 {
            assert!(
                distinct.len() >= 2 && self.index_lens.windows(2).any(|pair| pair[0] > pair[1]),
                "the index never grew or never shrank: {}",
                self.context(&format!("{:?}", self.index_lens))
            );
            assert!(self.old_reads > 20, "{}", self.context("hardly an old snapshot was read"));
            assert!(self.moves > 0, "{}", self.context("no compaction moved anything"));
        }
        assert!(
            self.model.undecided * 4 < self.model.decided,
            "the model's clock left {} of {} lookups open",
            self.model.undecided,
            self.model.undecided + self.model.decided
        );
    }

    /// Takes steps until the bucket must be opened again, or all are taken.
    fn session(&mut self, bucket: &Bucket) -> Ending {
        // Half the time the bucket fills and half the time it empties, so that the index grows and
        // shrinks.
        let phase = (self.plan.steps / 6).max(1);
        let mut session = Session { bucket, snapshots: Vec::new(), scans: Vec::new() };
        let mut ending = Ending::Done;
        while self.step < self.plan.steps {
            self.is_filling = (self.step / phase).is_multiple_of(2);
            if self.step % phase == phase / 2 {
                self.sweep(bucket);
            }
            let end = self.take_step(&mut session);
            self.step += 1;
            if let Some(end) = end {
                ending = end;
                break;
            }
        }
        for open in &session.snapshots {
            self.check_snapshot(open, session.bucket.snapshot().seqno());
        }
        let context = self.context("end of a half-read scan");
        for HalfRead { scan, walk } in &mut session.scans {
            walk.drain(scan, &context);
        }
        // A copy of a file is not a moment of it while other threads write.
        if ending == Ending::Kill && self.plan.place == Place::File && self.plan.background {
            ending = Ending::Reopen;
        }
        if ending == Ending::Kill {
            self.bytes.fork(self.step);
        }
        ending
    }

    fn take_step(&mut self, session: &mut Session<'_>) -> Option<Ending> {
        let bucket = session.bucket;
        match self.rng.u16(..1000) {
            0..250 => self.commit_one(bucket),
            250..340 => self.delete_one(bucket),
            340..450 => self.commit_batch(bucket),
            450..560 => self.look_up(bucket),
            560..620 => self.look_up_many(bucket),
            620..680 => self.move_clock(),
            680..700 => self.flush(bucket),
            700..708 => return Some(Ending::Reopen),
            708..716 => return Some(Ending::Kill),
            716..730 => self.check_all(bucket, "now and then"),
            730..800 => self.scan(bucket),
            800..820 => self.begin_scan(session),
            820..850 => self.go_on_with_a_scan(session),
            850..890 => self.take_snapshot(session),
            890..950 => self.read_a_snapshot(session),
            950..965 => self.drop_a_snapshot(session),
            965..980 => self.compact(session),
            _ => self.look_up_absent(bucket),
        }
        None
    }

    fn commit_one(&mut self, bucket: &Bucket) {
        let change = self.draw_change();
        let result = match &change {
            Change::Put(key, value) => bucket.put(key, value),
            Change::PutFor(key, value, ttl) => bucket.put_for(key, value, *ttl),
            Change::Delete(_) => return self.delete_one(bucket),
        };
        result.unwrap_or_else(|error| panic!("{}: {error}", self.context("put")));
        self.puts += 1;
        let stamp = self.model.clock.stamp();
        change.apply(&mut self.model, stamp);
    }

    fn delete_one(&mut self, bucket: &Bucket) {
        let key = if self.rng.u8(..8) == 0 { self.draw_absent_key() } else { self.draw_key() };
        let expected = match self.model.lookup(&key) {
            Expected::Absent => false,
            Expected::Present(_) => true,
            // Neither answer would tell anything, and which one was given decides about the next
            // stamp.
            Expected::Either(_) => return,
        };
        let deleted = bucket.delete(&key);
        let deleted = deleted.unwrap_or_else(|error| panic!("{}: {error}", self.context("delete")));
        assert_eq!(deleted, expected, "{}", self.context("delete"));
        if deleted {
            self.deletes += 1;
            let stamp = self.model.clock.stamp();
            Change::Delete(key).apply(&mut self.model, stamp);
        }
    }

    fn commit_batch(&mut self, bucket: &Bucket) {
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
        self.commit_changes(bucket, changes);
    }

    fn commit_changes(&mut self, bucket: &Bucket, changes: Vec<Change>) {
        let mut batch = Batch::new();
        changes.iter().for_each(|change| change.add_to(&mut batch));
        assert_eq!(batch.len(), changes.len());
        let durability = durability(&mut self.rng);
        let result = if self.rng.bool() {
            bucket.commit(batch)
        } else {
            bucket.commit_with(batch, durability)
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
    fn sweep(&mut self, bucket: &Bucket) {
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
        self.commit_changes(bucket, changes);
        self.check_all(bucket, "after a sweep");
    }

    fn look_up(&mut self, bucket: &Bucket) {
        let key = self.draw_key();
        let context = self.context("get");
        let value = bucket.get(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
        self.model.check(&key, value.as_deref(), &context);
        let exists = bucket.exists(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(exists, value.is_some(), "{context}");
    }

    fn look_up_absent(&mut self, bucket: &Bucket) {
        let key = self.draw_absent_key();
        let context = self.context("get an absent key");
        assert!(bucket.get(&key).unwrap().is_none(), "{context}");
        assert!(!bucket.exists(&key).unwrap(), "{context}");
    }

    fn look_up_many(&mut self, bucket: &Bucket) {
        let count = self.rng.usize(..40);
        let mut keys: Vec<Vec<u8>> = Vec::with_capacity(count);
        for _ in 0..count {
            keys.push(if self.rng.u8(..5) == 0 { self.draw_absent_key() } else { self.draw_key() });
        }
        let context = self.context("get_many");
        let values = bucket.get_many(&keys).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(values.len(), keys.len(), "{context}");
        for (key, value) in keys.iter().zip(&values) {
            self.model.check(key, value.as_deref(), &context);
        }
    }

    fn scan(&mut self, bucket: &Bucket) {
        let of = self.draw_of();
        let walk = self.model.walk(&of);
        let scan = match &of {
            Of::Prefix(prefix) => bucket.scan(prefix),
            Of::Range(from, to) => bucket.range((from.clone(), to.clone())),
        };
        self.read_all(scan, walk, &format!("scan {of:?}"));
    }

    /// Reads a scan to its end in one of several ways.
    fn read_all(&mut self, mut scan: Scan<'_>, mut walk: Walk, doing: &str) {
        let context = self.context(doing);
        match self.rng.u8(..5) {
            0 => walk.drain(&mut scan, &context),
            1 => walk.drain_back(&mut scan, &context),
            // From both ends until they meet.
            2 => {
                while match self.rng.bool() {
                    true => walk.next(&mut scan, &context),
                    false => walk.next_back(&mut scan, &context),
                } {}
                assert!(scan.next().is_none() && scan.next_back().is_none(), "{context}");
            }
            _ => {
                let moves = self.rng.usize(1..30);
                self.roam(&mut scan, &mut walk, moves, &context);
            }
        }
    }

    /// Reads here and there, until there is nothing where it reads.
    fn roam(&mut self, scan: &mut Scan<'_>, walk: &mut Walk, moves: usize, context: &str) -> bool {
        (0..moves).all(|_| match self.rng.u8(..10) {
            0..4 => walk.next(scan, context),
            4..8 => walk.next_back(scan, context),
            8 => walk.seek(scan, &self.draw_place(), context),
            _ => walk.seek_back(scan, &self.draw_place(), context),
        })
    }

    /// Starts a scan that later steps go on with.
    fn begin_scan(&mut self, session: &mut Session<'_>) {
        let of = self.draw_of();
        let walk = self.model.walk(&of);
        let scan = match &of {
            Of::Prefix(prefix) => session.bucket.scan(prefix),
            Of::Range(from, to) => session.bucket.range((from.clone(), to.clone())),
        };
        session.scans.truncate(SCANS - 1);
        session.scans.push(HalfRead { scan, walk });
        // Some are not touched before something else has happened.
        if self.rng.bool() {
            self.go_on_with_a_scan(session);
        }
    }

    fn go_on_with_a_scan(&mut self, session: &mut Session<'_>) {
        if session.scans.is_empty() {
            return;
        }
        let at = self.rng.usize(..session.scans.len());
        let HalfRead { mut scan, mut walk } = session.scans.swap_remove(at);
        let (context, moves) = (self.context("a scan left half read"), self.rng.usize(1..8));
        if self.roam(&mut scan, &mut walk, moves, &context) {
            session.scans.push(HalfRead { scan, walk });
        }
    }

    fn take_snapshot(&mut self, session: &mut Session<'_>) {
        if session.snapshots.len() >= SNAPSHOTS {
            return self.drop_a_snapshot(session);
        }
        let open = Open {
            snapshot: session.bucket.snapshot(),
            map: self.model.map.clone(),
            now: self.model.clock.now(),
        };
        for other in &session.snapshots {
            let (before, after) = (other.snapshot.seqno(), open.snapshot.seqno());
            assert!(before <= after, "{}: {after} after {before}", self.context("snapshot"));
            // A seqno stands for a state.
            let is_same = before < after || is_same_state(&other.map, &open.map);
            assert!(is_same, "{}: two states at {after}", self.context("snapshot"));
        }
        session.snapshots.push(open);
    }

    fn drop_a_snapshot(&mut self, session: &mut Session<'_>) {
        if !session.snapshots.is_empty() {
            let at = self.rng.usize(..session.snapshots.len());
            drop(session.snapshots.swap_remove(at));
        }
    }

    fn read_a_snapshot(&mut self, session: &mut Session<'_>) {
        if session.snapshots.is_empty() {
            return self.take_snapshot(session);
        }
        let open = &session.snapshots[self.rng.usize(..session.snapshots.len())];
        let seqno = open.snapshot.seqno();
        self.old_reads += u64::from(session.bucket.snapshot().seqno() > seqno);
        let of = self.draw_of();
        let walk = walk_over(&open.map, open.now, &of, seqno);
        let scan = match &of {
            Of::Prefix(prefix) => open.snapshot.scan(prefix),
            Of::Range(from, to) => open.snapshot.range((from.clone(), to.clone())),
        };
        self.read_all(scan, walk, &format!("scan {of:?} of the snapshot at {seqno}"));
        let gets = self.rng.usize(1..20);
        self.look_up_in(open, gets);
    }

    fn look_up_in(&mut self, open: &Open<'_>, gets: usize) {
        let Open { snapshot, map, now } = open;
        let context = self.context(&format!("get from the snapshot at {}", snapshot.seqno()));
        for _ in 0..gets {
            let key = if self.rng.u8(..8) == 0 { self.draw_absent_key() } else { self.draw_key() };
            let value = snapshot.get(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(map, *now, &key, value.as_deref(), &context);
            let exists = snapshot.exists(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(exists, value.is_some(), "{context}");
        }
    }

    /// Compares all rows of a snapshot, and as many lookups as that costs.
    fn check_snapshot(&mut self, open: &Open<'_>, latest: u64) {
        let seqno = open.snapshot.seqno();
        self.old_reads += u64::from(latest > seqno);
        let context = self.context(&format!("all of the snapshot at {seqno}"));
        let all = Of::Prefix(Vec::new());
        let mut walk = walk_over(&open.map, open.now, &all, seqno);
        walk.clone().drain(&mut open.snapshot.scan(b""), &context);
        walk.drain_back(&mut open.snapshot.scan(b""), &context);
        self.look_up_in(open, 20 + open.map.len() / 4);
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
        let dropped_by = to.saturating_sub(GRACE);
        for entry in self.model.map.values_mut() {
            entry.may_be_gone |= entry.deadline.earliest <= dropped_by;
        }
    }

    fn compact(&mut self, session: &mut Session<'_>) {
        let bucket = session.bucket;
        let kind = *self.rng.choice(&[Compact::Auto, Compact::Full, Compact::LowSpace]).unwrap();
        let context = self.context(&format!("compact {kind:?}"));
        let stats = || bucket.stats().unwrap_or_else(|error| panic!("{context}: {error}"));
        let compact = |kind| {
            let before = stats().bytes_moved;
            let done = bucket.compact(kind).unwrap_or_else(|error| panic!("{context}: {error}"));
            check_compaction(&done, &context);
            let moved = stats().bytes_moved - before;
            assert!(moved >= done.bytes_moved, "{context}: {moved} bytes moved, {done:?}");
            done
        };
        let done = compact(kind);
        self.moves += u64::from(done.records_moved > 0);
        // What others hold or do, and segments that cannot be moved, keep dead records in the log.
        let is_alone = session.snapshots.is_empty()
            && session.scans.is_empty()
            && !self.plan.background
            && !self.plan.has_oversized();
        if kind == Compact::Full && is_alone {
            let (least, most) = self.record_bytes();
            let stats = stats();
            let is_right = (least..=most).contains(&stats.bytes_log);
            assert!(is_right, "{context}: not {least} to {most} bytes, {done:?}, {stats:?}");
            assert_eq!(stats.bytes_live, stats.bytes_log, "{context}: {stats:?}");
            assert!(stats.segment_bytes >= stats.bytes_log, "{context}: {stats:?}");
            assert_eq!(stats.pinned_bytes, 0, "{context}: {stats:?}");
            if self.rng.bool() {
                let again = compact(Compact::Full);
                let is_idle = again.segments_emptied == 0 && again.segments_written == 0;
                assert!(is_idle && again.records_moved == 0, "{context}: again {again:?}");
            }
        }
        self.check_all(bucket, &format!("after compact {kind:?}"));
        let latest = bucket.snapshot().seqno();
        for open in &session.snapshots {
            self.check_snapshot(open, latest);
        }
        if self.rng.bool() {
            self.go_on_with_a_scan(session);
        }
    }

    /// Least and most bytes that the newest records of all keys take.
    fn record_bytes(&self) -> (u64, u64) {
        let (mut least, mut most) = (0, 0);
        for (key, entry) in &self.model.map {
            let tag = if self.plan.encrypted { 16 } else { 0 };
            let bare = RECORD_MIN + tag + u64::try_from(key.len()).unwrap();
            let len = bare + u64::try_from(entry.value.len()).unwrap();
            most += len;
            let len = if self.plan.compressed { bare } else { len };
            least += if entry.may_be_gone { 0 } else { len };
        }
        (least, most)
    }

    fn flush(&mut self, bucket: &Bucket) {
        bucket.flush().unwrap_or_else(|error| panic!("{}: {error}", self.context("flush")));
    }

    fn reopen(&mut self, bucket: Bucket) -> Bucket {
        let context = self.context("reopen");
        if self.rng.bool() {
            bucket.close().unwrap_or_else(|error| panic!("{context}: {error}"));
        } else {
            drop(bucket);
        }
        let bucket = self.open("reopen");
        let report = bucket.mount_report();
        assert_eq!(report.records_discarded, 0, "{context}");
        assert!(!report.index_rebuilt && !report.table_rebuilt, "{context}: {report:?}");
        assert_eq!(report.runs_rebuilt, 0, "{context}");
        bucket
    }

    /// Goes on with the copy that was made when the session ended.
    fn kill(&mut self, bucket: Bucket) -> Bucket {
        let context = self.context("kill");
        drop(bucket);
        let bucket = self.open("kill");
        let discarded = bucket.mount_report().records_discarded;
        assert_eq!(discarded, 0, "{context}: every commit had returned");
        bucket
    }

    fn open(&mut self, doing: &str) -> Bucket {
        let context = self.context(doing);
        // What is fixed at creation is read back; what is asked for now must not matter.
        let mut options = self.plan.options();
        if self.rng.bool() {
            options = options
                .page_size(65_536)
                .segment_bytes_max(1 << 20)
                .hash(HashKind::Xxh3)
                .directories(!self.plan.directories)
                .max_value(1);
        }
        let env = Arc::<ManualEnv>::clone(&self.env);
        if self.rng.u8(..4) == 0 {
            let found = kvb::verify_on(
                self.bytes.disk(),
                Arc::<ManualEnv>::clone(&self.env),
                self.plan.options(),
                &mut |_| {},
            );
            let found = found.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(found.is_sound(), "{context}: {found:?}");
        }
        let opened = Bucket::open_on(self.bytes.disk(), env, options);
        let bucket = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
        self.model.clock.remount();
        self.puts = 0;
        self.deletes = 0;
        self.check_all(&bucket, doing);
        bucket
    }

    /// Compares every key there can be, by lookups and by scans.
    fn check_all(&mut self, bucket: &Bucket, doing: &str) {
        let context = self.context(doing);
        for index in 0..self.plan.key_count {
            let key = self.plan.keys.key(index);
            let value = bucket.get(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
            self.model.check(&key, value.as_deref(), &context);
        }
        let mut walk = self.model.walk(&Of::Prefix(Vec::new()));
        walk.clone().drain(&mut bucket.scan(b""), &context);
        walk.drain_back(&mut bucket.scan(b""), &context);
        let stats = bucket.stats().unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!((stats.puts, stats.deletes), (self.puts, self.deletes), "{context}");
        assert!(stats.hits <= stats.gets, "{context}");
        assert!(stats.bytes_live <= stats.bytes_log, "{context}: {stats:?}");
        let least = self.record_bytes().0;
        assert!(stats.bytes_log >= least, "{context}: {least} bytes must be there, {stats:?}");
        let in_use = stats.segment_bytes + stats.free_bytes + stats.pinned_bytes;
        assert!(in_use <= stats.file_bytes, "{context}: {stats:?}");
        if self.plan.keys.are_distinct() {
            let most = self.model.map.len();
            let gone = self.model.map.values().filter(|entry| entry.may_be_gone).count();
            let keys = usize::try_from(stats.keys).unwrap();
            let is_right = (most - gone..=most).contains(&keys);
            assert!(is_right, "{context}: {keys} keys of {most}, {gone} of them may be gone");
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

/// Keys that begin with each other, behind stems shorter and longer than what is compared at once.
#[test]
fn keys_that_begin_alike() {
    run("keys_that_begin_alike", 8, |rng, number| Plan {
        keys: Keys::Nested(*rng.choice(&[0, 3, 8, 21]).unwrap()),
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
