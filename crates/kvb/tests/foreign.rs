//! Compressed and encrypted buckets beside programs that share no code with the engine.
//!
//! `strict/sealed.py` is written from the format page alone. Random histories run on real files, with deletes, expiry,
//! batches, compaction, dictionaries and reopening; after each round its rows are compared with a model. Without the
//! right key, and of damaged files, it may fail but not err. Frames go both ways between the engine and the `zstd`
//! program, and values that nobody honest would store are told from those.
//!
//! `KVB_SEED=n` replays a failing seed. Python 3 and zstd are needed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "support/anatomy.rs"]
mod anatomy;
#[path = "support/foreign.rs"]
mod foreign;
#[path = "support/history.rs"]
mod history;
#[path = "support/rows.rs"]
mod rows;
#[path = "support/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foreign::{Given, expand, sealed, sealed_each};
use foreign::{squeeze_file, squeeze_stream};
use history::{Change, History, START_NS};
use host::{Keep, ManualEnv, SimDisk, Trace};
use kvb::format::record::{self, Framed};
use kvb::format::segment::{self, Kind, SegmentHeader};
use kvb::format::{self, stored};
use kvb::{Batch, Bucket, Compact, Compression, Durability, Error, Key, Keyring, Options};
use rows::{Rows, difference};

const COUNTER: &[u8] = b"commit number";
const GIVEN: Given = Given { id: 77, bytes: [0x5a; 32] };

fn expect(bucket: &Path, now_ns: u64, keys: &[Given], wanted: &Rows, context: &str) {
    let read = |bucket: &Path, now_ns| sealed(bucket, now_ns, keys);
    history::expect(&read, bucket, now_ns, wanted, context);
}

fn options() -> Options {
    Options::default().background(false).overlay_min(200).segment_bytes_max(16 << 10)
}

fn compressed() -> Options {
    options().compression(Compression::Zstd)
}

fn encrypt(options: Options) -> Options {
    let keyring = Keyring::new().with(GIVEN.id, Key::new(GIVEN.bytes));
    options.encrypted(GIVEN.id).keys(keyring)
}

/// One kind of history.
#[derive(Clone)]
struct Plan {
    name: &'static str,
    options: Options,
    keys: Vec<Given>,
    /// Whether dictionaries are trained now and then.
    trains: bool,
    /// Commits in a round.
    commits: usize,
}

fn plan(name: &'static str, options: Options) -> Plan {
    Plan { name, options, keys: Vec::new(), trains: false, commits: 90 }
}

/// Values as programs store them: a small document, repetitions, noise, nothing, and rarely something long.
fn draw_value(random: &mut fastrand::Rng) -> Vec<u8> {
    let noise = |random: &mut fastrand::Rng, len| -> Vec<u8> {
        std::iter::repeat_with(|| random.u8(..)).take(len).collect()
    };
    match random.u8(0..60) {
        0 => Vec::new(),
        1..=7 => {
            let len = random.usize(0..300);
            noise(random, len)
        }
        8..=11 => vec![random.u8(..); random.usize(0..2000)],
        12 => {
            let piece = noise(random, 5000);
            piece.repeat(random.usize(1..12))
        }
        13 => vec![b'z'; random.usize(100_000..300_000)],
        _ => document(random),
    }
}

fn document(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut text = format!("{{\"account\":{},\"owner\":\"", random.u32(..));
    for _ in 0..random.usize(0..6) {
        text += ["anna ", "bert ", "of the northern branch ", "clara ", "and company "]
            [random.usize(0..5)];
    }
    text += &format!("\",\"balance\":\"{}.00\",\"currency\":\"EUR\",", random.u16(..));
    text += &format!("\"note\":\"transfer number {} is settled\"}}", random.u64(..));
    text.into_bytes()
}

struct Trial {
    plan: Plan,
    history: History,
}

impl Trial {
    fn key(&mut self) -> Vec<u8> {
        match self.history.random.u32(0..250) {
            0 => Vec::new(),
            1 => vec![b'k'; 3000],
            2 => vec![0; 68],
            n => format!("key {n}").into_bytes(),
        }
    }

    fn changes(&mut self) -> Vec<Change> {
        let count = match self.history.random.u8(0..30) {
            0 => self.history.random.usize(20..60),
            _ => self.history.random.usize(1..6),
        };
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            let key = self.key();
            changes.push(match self.history.random.u8(0..10) {
                0..=1 => Change::Delete(key),
                kind => Change::Put {
                    key,
                    value: draw_value(&mut self.history.random),
                    ttl_secs: if kind == 2 { self.history.random.u64(1..90) } else { 0 },
                },
            });
        }
        changes
    }

    fn commit(&mut self, bucket: &Bucket) {
        self.history.pass_time();
        let changes = self.changes();
        let is_durable = self.history.random.u8(0..16) == 0;
        let durability = if is_durable { Durability::Sync } else { Durability::Relaxed };
        self.history.commit(bucket, changes, durability);
    }

    /// The engine and the model must agree before the reader is asked.
    fn verify(&self, bucket: &Bucket, context: &str) {
        let found: Rows = bucket
            .scan(b"")
            .map(|row| row.map(|row| (row.key().to_vec(), row.value().to_vec())).unwrap())
            .collect();
        if let Some(difference) = difference(&found, &self.history.live()) {
            panic!("{context}: the engine errs: {difference}");
        }
    }

    fn check_abandoned(&self, context: &str) {
        let read = |bucket: &Path, now_ns| sealed(bucket, now_ns, &self.plan.keys);
        self.history.check_abandoned(&read, |bucket| self.verify(bucket, context), context);
    }

    fn run(mut self, seed: u64) {
        let mut bucket = self.history.create();
        for round in 0..4 * usize::try_from(seed::rounds()).unwrap() {
            let context = format!("{} (KVB_SEED={seed}) round {round}", self.plan.name);
            self.history.begin_round();
            for number in 0..self.plan.commits {
                if self.plan.trains && round % 3 == 1 && number == self.plan.commits / 3 {
                    assert!(bucket.train_dictionary(4096).unwrap().samples > 0, "{context}");
                }
                self.commit(&bucket);
            }
            self.history.compact(&bucket, round);
            self.verify(&bucket, &context);
            if round % 2 == 1 {
                self.check_abandoned(&context);
            }
            let wanted = self.history.live();
            if round % 3 == 0 {
                bucket.flush().unwrap();
                let context = format!("{context}, flushed");
                expect(
                    &self.history.copy(),
                    self.history.now_ns,
                    &self.plan.keys,
                    &wanted,
                    &context,
                );
            } else {
                bucket.close().unwrap();
                let context = format!("{context}, closed");
                expect(&self.history.path, self.history.now_ns, &self.plan.keys, &wanted, &context);
                bucket = self.history.open(&self.history.path);
            }
        }
        bucket.close().unwrap();
    }
}

fn run(plan: Plan) {
    let seed = seed::seed(plan.name);
    let history = History::new(plan.options.clone(), seed);
    Trial { plan, history }.run(seed);
}

#[test]
fn compressed_values() {
    run(plan("compressed", compressed()));
}

#[test]
fn compressed_with_dictionaries() {
    run(Plan { trains: true, ..plan("compressed with dictionaries", compressed()) });
}

#[test]
fn encrypted() {
    run(Plan { keys: vec![GIVEN], ..plan("encrypted", encrypt(options())) });
}

#[test]
fn encrypted_and_compressed_with_dictionaries() {
    let plan = plan("encrypted, compressed, dictionaries", encrypt(compressed()));
    run(Plan { keys: vec![GIVEN], trains: true, ..plan });
}

#[test]
fn encrypted_without_directories() {
    let plan = plan("encrypted without directories", encrypt(options().directories(false)));
    run(Plan { keys: vec![GIVEN], ..plan });
}

#[test]
fn encrypted_with_large_pages() {
    let options = encrypt(compressed().page_size(16 << 10).segment_bytes_max(64 << 10));
    let plan = plan("encrypted with large pages", options);
    run(Plan { keys: vec![GIVEN], trains: true, ..plan });
}

/// Values that were compressed with one dictionary can be read when there is another one.
#[test]
fn values_outlive_another_training() {
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let env = Arc::new(ManualEnv::new(START_NS, seed));
        let bucket = Bucket::create_on(Arc::new(SimDisk::new()), env, compressed()).unwrap();
        for number in 0..random.u8(60..120) {
            bucket.put(format!("before {number}"), document(&mut random)).unwrap();
        }
        let first = bucket.train_dictionary(2048).unwrap().id;
        let value = document(&mut random);
        bucket.put(b"between", &value).unwrap();
        let second = bucket.train_dictionary(2048).unwrap().id;
        let context = format!("seed {seed}, dictionaries {first} and {second}");
        let found = bucket.get(b"between").unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(found.as_deref() == Some(&value[..]), "{context}");
    }
}

/// A history on a simulated disk: its record, the length of the record when the bucket had been made, and the state after
/// each commit.
fn simulated(options: &Options, seed: u64) -> (Trace, usize, Vec<Rows>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new();
    let env = Arc::new(ManualEnv::new(START_NS, seed));
    let mut bucket =
        Bucket::create_on(Arc::new(disk.clone()), env.clone(), options.clone()).unwrap();
    let created = disk.trace().len();
    let mut states = vec![Rows::new()];
    for number in 1..=150_u64 {
        let mut state = states.last().unwrap().clone();
        let mut batch = Batch::new();
        for _ in 0..random.usize(0..6) {
            let key = format!("key {}", random.u16(0..150)).into_bytes();
            if random.u8(0..4) == 0 {
                batch.delete(&key);
                state.remove(&key);
                continue;
            }
            let value = document(&mut random);
            batch.put(&key, &value);
            state.insert(key, value);
        }
        batch.put(COUNTER, number.to_le_bytes());
        state.insert(COUNTER.to_vec(), number.to_le_bytes().to_vec());
        states.push(state);
        bucket.commit_with(batch, Durability::Relaxed).unwrap();
        if number % 80 == 45 {
            bucket.train_dictionary(2048).unwrap();
        }
        match random.u8(0..40) {
            0..=1 => bucket.flush().unwrap(),
            2 => drop(bucket.compact(Compact::Full).unwrap()),
            3 => drop(bucket.compact(Compact::LowSpace).unwrap()),
            4..=5 => drop(bucket.compact(Compact::Auto).unwrap()),
            6..=7 => {
                bucket.close().unwrap();
                let disk = Arc::new(disk.reopen());
                bucket = Bucket::open_on(disk, env.clone(), options.clone()).unwrap();
            }
            _ => {}
        }
    }
    bucket.close().unwrap();
    (disk.trace(), created, states)
}

/// Whatever a crash leaves, the newest valid superblock leads to the state after the commit it names.
#[test]
fn images_after_power_loss() {
    let seed = seed::seed("images after power loss");
    let mut random = fastrand::Rng::with_seed(seed);
    let (trace, created, states) = simulated(&encrypt(compressed().overlay_min(40)), seed);
    let dir = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for number in 0..60 {
        let upto = random.usize(created..=trace.len());
        let keep = match number % 5 {
            0 => Keep::None,
            1 => Keep::All,
            _ => Keep::Random(random.u64(..)),
        };
        let path = dir.path().join(format!("{number}, {upto} operations, {keep:?}.kvb"));
        std::fs::write(&path, trace.image(upto, keep)).unwrap();
        paths.push(path);
    }
    for (path, read) in paths.iter().zip(sealed_each(&paths, START_NS, &[GIVEN])) {
        let context = format!("KVB_SEED={seed}: {path:?}");
        let found = read.unwrap_or_else(|error| panic!("{context}: {error}"));
        let counter = found.get(COUNTER).map(|value| value[..].try_into().unwrap());
        let commit = usize::try_from(counter.map_or(0, u64::from_le_bytes)).unwrap();
        if let Some(difference) = difference(&found, &states[commit]) {
            panic!("{context}: after commit {commit}: {difference}");
        }
    }
}

/// A closed bucket with sealed and open segments, moved records, an image and, if asked for, dictionaries.
struct Built {
    dir: tempfile::TempDir,
    bytes: Vec<u8>,
    rows: Rows,
}

impl Built {
    fn new(options: Options, trains: bool, seed: u64) -> Built {
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("built.kvb");
        let options = options.durability(Durability::Relaxed);
        let bucket = Bucket::create(&path, options).unwrap();
        let mut rows = Rows::new();
        for number in 0..160_u32 {
            if number == 60 && trains {
                bucket.train_dictionary(2048).unwrap();
            }
            if number == 90 {
                bucket.compact(Compact::Full).unwrap();
            }
            let key = format!("key {:03}", random.u8(0..120)).into_bytes();
            if random.u8(0..6) == 0 {
                bucket.delete(&key).unwrap();
                rows.remove(&key);
            } else {
                let value = document(&mut random);
                bucket.put(&key, &value).unwrap();
                rows.insert(key, value);
            }
        }
        bucket.close().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        Built { dir, bytes, rows }
    }

    /// Writes a copy with other bytes.
    fn write(&self, number: usize, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(format!("changed {number}.kvb"));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A byte of every kind of place: superblocks, key block, rosters, and of each extent its header and some of the rest.
    fn places(&self, random: &mut fastrand::Rng) -> Vec<usize> {
        let last = self.bytes.len() - 4096;
        let sector = [70, 140, 284, 340, 360, 420, 530];
        let mut places: Vec<usize> = sector.iter().flat_map(|at| [*at, last + at]).collect();
        for extent in anatomy::extents(&self.bytes) {
            let start = extent.bytes.start;
            if extent.is(Kind::Free) {
                continue;
            }
            places.extend([start + random.usize(0..52), start + random.usize(52..160)]);
            let written: Vec<usize> = extent.bytes.filter(|at| self.bytes[*at] != 0).collect();
            places.extend((0..3).map(|_| written[random.usize(..written.len())]));
        }
        places
    }

    /// Damaged copies give the bucket's rows or errors, to the reader and to the engine. Tells which the reader refused.
    fn check(&self, options: &Options, keys: &[Given], damaged: &[(String, Vec<u8>)]) -> Vec<bool> {
        let numbered = damaged.iter().enumerate();
        let paths: Vec<PathBuf> =
            numbered.map(|(number, (_, bytes))| self.write(number, bytes)).collect();
        let read = sealed_each(&paths, START_NS, keys);
        for (number, (context, _)) in damaged.iter().enumerate() {
            if let Ok(found) = &read[number]
                && let Some(difference) = difference(found, &self.rows)
            {
                panic!("{context}: the reader errs: {difference}");
            }
            self.check_engine(options, &paths[number], context);
        }
        read.iter().map(Result::is_err).collect()
    }

    fn check_engine(&self, options: &Options, path: &Path, context: &str) {
        let Ok(bucket) = Bucket::open(path, options.clone()) else { return };
        for (key, value) in &self.rows {
            if let Ok(found) = bucket.get(key) {
                assert!(
                    found.as_deref() == Some(&value[..]),
                    "{context}: the engine errs: {key:?}"
                );
            }
        }
        for row in bucket.scan(b"").flatten() {
            let wanted = self.rows.get(row.key()).map(Vec::as_slice);
            assert!(wanted == Some(row.value()), "{context}: the engine errs: {:?}", row.key());
        }
    }
}

/// Only the right key opens a bucket, and a bucket that is not encrypted is not taken for one that was.
#[test]
fn only_the_right_key_opens() {
    let built = Built::new(encrypt(compressed()), true, 1);
    let path = built.write(0, &built.bytes);
    let mut wrong = GIVEN;
    wrong.bytes[31] ^= 1;
    let other = Given { id: 78, ..GIVEN };
    expect(&path, START_NS, &[GIVEN], &built.rows, "the right key");
    expect(&path, START_NS, &[other, GIVEN], &built.rows, "two keys");
    for (keys, message) in [
        (&[wrong][..], "key 77 is the wrong one"),
        (&[other], "needs key 77"),
        (&[], "needs key 77"),
    ] {
        let error = sealed(&path, START_NS, keys).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
    let plain = Built::new(compressed(), false, 1);
    let path = plain.write(0, &plain.bytes);
    expect(&path, START_NS, &[], &plain.rows, "no key");
    let error = sealed(&path, START_NS, &[GIVEN]).unwrap_err();
    assert!(error.contains("not encrypted"), "{error}");
}

fn flip(options: &Options, keys: &[Given], name: &str) {
    let seed = seed::seed(name);
    let mut random = fastrand::Rng::with_seed(seed);
    let built = Built::new(options.clone(), true, seed);
    let mut places = built.places(&mut random);
    random.shuffle(&mut places);
    places.truncate(60);
    let damaged: Vec<(String, Vec<u8>)> = places
        .into_iter()
        .map(|at| {
            let mut bytes = built.bytes.clone();
            bytes[at] ^= 1 << random.u8(0..8);
            (format!("{name}: byte {at} (KVB_SEED={seed})"), bytes)
        })
        .collect();
    let refused = built.check(options, keys, &damaged);
    let count = refused.iter().filter(|is_refused| **is_refused).count();
    assert!(count > 15, "the damage was not seen; KVB_SEED={seed}");
}

#[test]
fn a_flipped_byte_is_never_another_row() {
    flip(&compressed(), &[], "flips, compressed");
}

#[test]
fn a_flipped_byte_of_an_encrypted_bucket_is_never_another_row() {
    flip(&encrypt(compressed()), &[GIVEN], "flips, encrypted");
}

/// Where the records of a bucket stand, whether encrypted or not.
fn records(file: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for extent in anatomy::extents(file).into_iter().filter(|extent| extent.is(Kind::Data)) {
        let is_salted = extent.header.flags.get() & segment::FLAG_SALTED != 0;
        let mut at = extent.bytes.start + SegmentHeader::SIZE;
        at += if is_salted { segment::SALT_LEN } else { 0 };
        while let Some(record) = Framed::decode(&file[at..extent.bytes.end]) {
            let end = at + usize::try_from(record.header.record_len()).unwrap();
            found.push(at..end);
            at = end;
        }
    }
    found
}

/// Makes the CRCs of a changed record right again.
fn repair(file: &mut [u8], record: &Range<usize>) {
    let header = format::crc(&file[record.start + 4..record.start + 44]);
    file[record.start..record.start + 4].copy_from_slice(&header.to_le_bytes());
    let whole = format::crc(&file[record.start..record.end - 4]);
    file[record.end - 4..record.end].copy_from_slice(&whole.to_le_bytes());
}

/// Whoever changes a record and repairs its CRCs is found out by the tag.
#[test]
fn forged_records_are_found_out() {
    let seed = seed::seed("forged records");
    let mut random = fastrand::Rng::with_seed(seed);
    let options = encrypt(compressed());
    let built = Built::new(options.clone(), true, seed);
    let lying = records(&built.bytes);
    // Each field of the header, key or value, the tag.
    let forge = |bytes: &mut [u8], record: &Range<usize>, number: usize| {
        let at = [4, 12, 20, 28, 29, 30, 40, 44]
            .get(number)
            .map_or(record.end - 5, |at| record.start + at);
        bytes[at] ^= if number == 4 { 3 } else { 1 };
        repair(bytes, record);
    };
    let mut damaged = Vec::new();
    for number in 0..27 {
        let mut forged = built.bytes.clone();
        let record = &lying[random.usize(..lying.len())];
        forge(&mut forged, record, number % 9);
        damaged.push((format!("forged {} in {record:?} (KVB_SEED={seed})", number % 9), forged));
    }
    // The bytes of one record in the place of another.
    let pair = lying.iter().enumerate().find_map(|(number, one)| {
        lying[number + 1..].iter().find(|other| other.len() == one.len()).map(|other| (one, other))
    });
    let (one, other) = pair.expect("records of one length");
    let mut forged = built.bytes.clone();
    forged.copy_within(one.clone(), other.start);
    damaged.push((format!("{one:?} at {other:?} (KVB_SEED={seed})"), forged));
    let refused = built.check(&options, &[GIVEN], &damaged);
    for ((context, _), is_refused) in damaged.iter().zip(refused) {
        assert!(is_refused, "{context}: the reader took it");
    }
}

/// Makes the CRC of a changed header of an extent right again.
fn repair_header(file: &mut [u8], start: usize) {
    let crc = format::crc(&file[start..start + 48]);
    file[start + 48..start + 52].copy_from_slice(&crc.to_le_bytes());
}

/// Makes some pages a FREE extent.
fn make_free(file: &mut [u8], pages: Range<usize>) {
    if pages.is_empty() {
        return;
    }
    let start = pages.start;
    file[start..start + 512].fill(0);
    file[start + 24] = 2;
    let len = u64::try_from(pages.len()).unwrap();
    file[start + 40..start + 48].copy_from_slice(&len.to_le_bytes());
    repair_header(file, start);
}

/// Headers of extents are under no MAC. Still no segment can be made to look free, or free space like a segment.
#[test]
fn forged_headers_are_found_out() {
    let seed = seed::seed("forged headers");
    let options = encrypt(compressed());
    let built = Built::new(options.clone(), true, seed);
    let mut damaged = Vec::new();
    for extent in anatomy::extents(&built.bytes) {
        let start = extent.bytes.start;
        let context = |what: &str| format!("extent at {start}, {what} (KVB_SEED={seed})");
        let mut freed = built.bytes.clone();
        make_free(&mut freed, extent.bytes.clone());
        damaged.push((context("freed"), freed));
        // Another number, another first seqno, another key, no salt, a guard.
        for (at, bits) in [(0, 1), (8, 1), (26, 1), (28, 1), (24, 16)] {
            let mut forged = built.bytes.clone();
            forged[start + at] ^= bits;
            repair_header(&mut forged, start);
            damaged.push((context(&format!("byte {at}")), forged));
        }
    }
    built.check(&options, &[GIVEN], &damaged);
}

/// A segment of the log that is said to be one of moved records must not be scanned as if it were in key order.
#[test]
fn a_segment_of_the_log_cannot_be_made_one_of_moved_records() {
    let seed = seed::seed("log made moved");
    let options = encrypt(compressed());
    let built = Built::new(options.clone(), true, seed);
    let mut damaged = Vec::new();
    for extent in anatomy::extents(&built.bytes) {
        let start = extent.bytes.start;
        let mut forged = built.bytes.clone();
        forged[start + 24] ^= 8;
        repair_header(&mut forged, start);
        damaged.push((format!("extent at {start}, moved (KVB_SEED={seed})"), forged));
    }
    built.check(&options, &[GIVEN], &damaged);
}

/// An encrypted bucket with a segment table, now and before most of it was deleted and compacted.
struct Aged {
    dir: tempfile::TempDir,
    options: Options,
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Aged {
    fn new() -> Aged {
        let mut random = fastrand::Rng::with_seed(5);
        let mut noise =
            || -> Vec<u8> { std::iter::repeat_with(|| random.u8(..)).take(900).collect() };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("aged.kvb");
        let options = encrypt(options()).durability(Durability::Relaxed);
        let bucket = Bucket::create(&path, options.clone()).unwrap();
        for number in 0..1500 {
            bucket.put(format!("deleted {number}"), noise()).unwrap();
        }
        bucket.flush().unwrap();
        let old = std::fs::read(&path).unwrap();
        for number in 0..1500 {
            bucket.delete(format!("deleted {number}")).unwrap();
        }
        bucket.compact(Compact::Full).unwrap();
        for number in 0..600 {
            bucket.put(format!("live {number:03}"), noise()).unwrap();
        }
        bucket.close().unwrap();
        let new = std::fs::read(&path).unwrap();
        Aged { dir, options, old, new }
    }

    /// A number of the superblock's page, in bytes if it is one of pages.
    fn number(&self, at: usize) -> usize {
        let raw = u64::from_le_bytes(self.new[at..at + 8].try_into().unwrap());
        usize::try_from(raw).unwrap()
    }

    /// Damages the segment table and one page of the image, which are derived.
    fn without_derived(&self, bytes: &mut [u8]) {
        let table = 4096 * self.number(136 + 104);
        let image = 4096 * self.number(44);
        assert!(table > 0, "the bucket needs no table");
        bytes[table + 300] ^= 1;
        bytes[image + 40] ^= 1;
    }

    /// Stretches of the file that are free and named by nobody.
    fn free(&self) -> Vec<Range<usize>> {
        let named: Vec<usize> =
            (0..usize::from(self.new[516])).map(|n| 4096 * self.number(544 + 24 * n)).collect();
        let mut free: Vec<Range<usize>> = Vec::new();
        for extent in anatomy::extents(&self.new) {
            if !extent.is(Kind::Free) || named.contains(&extent.bytes.start) {
                continue;
            }
            match free.last_mut() {
                Some(last) if last.end == extent.bytes.start => last.end = extent.bytes.end,
                _ => free.push(extent.bytes),
            }
        }
        free
    }

    /// An old segment with its side data, and the free stretch that is there now.
    fn given_up(&self) -> (Range<usize>, Range<usize>) {
        let free = self.free();
        let extents = anatomy::extents(&self.old);
        let segments = extents.windows(2).filter(|pair| pair[0].is_sealed());
        let mut places = segments.map(|pair| pair[0].bytes.start..pair[1].bytes.end);
        let place = places.find_map(|place| {
            let around = free.iter().find(|r| r.start <= place.start && place.end <= r.end)?;
            Some((place, around.clone()))
        });
        place.expect("a segment that was given up")
    }

    /// What the engine shows of changed bytes: the keys, or nothing if it complains.
    fn keys(&self, bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
        let path = self.dir.path().join("changed.kvb");
        std::fs::write(&path, bytes).unwrap();
        let bucket = Bucket::open(&path, self.options.clone()).ok()?;
        let rows: Result<Vec<_>, _> = bucket.scan(b"").collect();
        Some(rows.ok()?.iter().map(|row| row.key().to_vec()).collect())
    }
}

/// A bucket with so many segments that they need a table.
#[test]
fn encrypted_with_a_segment_table() {
    let aged = Aged::new();
    assert!(aged.number(136 + 104) > 0, "the bucket needs no table");
    for (bytes, prefix, count) in [(&aged.old, "deleted", 1500), (&aged.new, "live", 600)] {
        let path = aged.dir.path().join("copy.kvb");
        std::fs::write(&path, bytes).unwrap();
        let (rows, _) = sealed(&path, START_NS, &[GIVEN]).unwrap();
        assert_eq!(rows.len(), count);
        assert!(rows.keys().all(|key| key.starts_with(prefix.as_bytes())));
    }
}

/// Somebody puts a segment of long ago back to where it was, and damages the table that does not list it.
#[test]
fn segments_of_long_ago_do_not_come_back() {
    let aged = Aged::new();
    let (place, around) = aged.given_up();
    let mut forged = aged.new.clone();
    make_free(&mut forged, around.start..place.start);
    forged[place.clone()].copy_from_slice(&aged.old[place.clone()]);
    make_free(&mut forged, place.end..around.end);
    let back = |bytes: &[u8]| {
        let keys = aged.keys(bytes).unwrap_or_default();
        keys.iter().filter(|key| key.starts_with(b"deleted")).count()
    };
    assert_eq!(back(&forged), 0, "with its table");
    aged.without_derived(&mut forged);
    assert_eq!(back(&forged), 0, "without its table");
}

/// Somebody makes a segment look free, and damages the table that lists it.
#[test]
fn segments_do_not_vanish() {
    let aged = Aged::new();
    let whole = aged.keys(&aged.new).unwrap();
    let extents = anatomy::extents(&aged.new);
    let table: Vec<_> = extents.windows(2).filter(|pair| pair[0].is_sealed()).collect();
    let mut forged = aged.new.clone();
    make_free(&mut forged, table[3][0].bytes.start..table[3][1].bytes.end);
    if let Some(keys) = aged.keys(&forged) {
        assert!(keys == whole, "with its table: {} of {} keys", keys.len(), whole.len());
    }
    aged.without_derived(&mut forged);
    if let Some(keys) = aged.keys(&forged) {
        assert!(keys == whole, "without its table: {} of {} keys", keys.len(), whole.len());
    }
}

/// An unsigned LEB128 number, as the page describes it.
fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7F).unwrap() | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).unwrap());
    out
}

/// A stored value: the length of `value` and a frame.
fn stored_as(value: &[u8], frame: &[u8]) -> Vec<u8> {
    [&varint(value.len().try_into().unwrap()), frame].concat()
}

fn text(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(len.try_into().unwrap());
    let mut text = Vec::new();
    while text.len() < len {
        text.extend(document(&mut random));
    }
    text.truncate(len);
    text
}

/// The vectors of encrypted buckets come from a script that shares no code with the engine; they are still what it makes.
#[test]
fn sealed_vectors_are_what_the_script_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = foreign::script("sealed_vectors.py", &[]);
    let committed = std::fs::read(root.join("../../vectors/kvb/sealed.json")).unwrap();
    assert!(made == committed, "run sealed_vectors.py > vectors/kvb/sealed.json");
}

/// Every frame that the engine writes is one that `zstd` expands to the value.
#[test]
fn frames_of_the_engine_are_read_by_zstd() {
    let dir = tempfile::tempdir().unwrap();
    for level in [-7, 1, 3, 19] {
        let path = dir.path().join(format!("level {level}.kvb"));
        let options = compressed().compression_level(level).durability(Durability::Relaxed);
        let bucket = Bucket::create(&path, options).unwrap();
        let lens = [64, 100, 255, 256, 1000, 5000, 65_535, 65_792, 131_072, 131_073, 700_000];
        for len in lens {
            bucket.put(format!("{len}"), text(len)).unwrap();
        }
        bucket.close().unwrap();
        let file = std::fs::read(&path).unwrap();
        let mut frames = 0;
        for place in records(&file) {
            let record = Framed::decode(&file[place]).unwrap();
            let len: usize = std::str::from_utf8(record.key()).unwrap().parse().unwrap();
            if record.header.enc != record::ENC_ZSTD {
                assert_eq!(record.value(), text(len), "level {level}");
                continue;
            }
            let frame = record.value().strip_prefix(&varint(len.try_into().unwrap())[..]).unwrap();
            assert!(expand(frame).unwrap() == text(len), "level {level}, {len} bytes");
            assert!(record.value().len() <= len - len.div_ceil(16), "level {level}, {len} bytes");
            frames += 1;
        }
        assert!(frames >= 6, "level {level}: {frames} frames");
    }
}

/// Stored bytes that are put into records as compressed values, and what they should be read as.
struct Craft {
    name: String,
    enc: u8,
    stored: Vec<u8>,
    value: Option<Vec<u8>>,
}

/// A bucket whose values nobody compressed: they were put as they are, and the records then changed.
struct Crafted {
    dir: tempfile::TempDir,
    options: Options,
    /// As it was before any record was changed.
    bytes: Vec<u8>,
    crafts: Vec<Craft>,
}

impl Crafted {
    fn new(options: Options, crafts: Vec<Craft>) -> Crafted {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("crafted.kvb");
        let options = options.compression(Compression::Zstd).compression_min(usize::MAX);
        let bucket = Bucket::create(&path, options.clone()).unwrap();
        let mut batch = Batch::new();
        for craft in &crafts {
            batch.put(&craft.name, &craft.stored);
            batch.put(format!("{}, good", craft.name), b"good");
        }
        bucket.commit(batch).unwrap();
        bucket.close().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        Crafted { dir, options, bytes, crafts }
    }

    /// The bucket with some of the records changed.
    fn patched(&self, name: &str, crafts: &[Craft]) -> PathBuf {
        let places: BTreeMap<Vec<u8>, Range<usize>> = records(&self.bytes)
            .into_iter()
            .map(|place| {
                (Framed::decode(&self.bytes[place.clone()]).unwrap().key().to_vec(), place)
            })
            .collect();
        let mut bytes = self.bytes.clone();
        for craft in crafts {
            let place = &places[craft.name.as_bytes()];
            bytes[place.start + 29] = craft.enc;
            repair(&mut bytes, place);
        }
        let path = self.dir.path().join(format!("{name}.kvb"));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn wanted(&self) -> Rows {
        let mut rows = Rows::new();
        for craft in &self.crafts {
            rows.insert(format!("{}, good", craft.name).into_bytes(), b"good".to_vec());
            if let Some(value) = &craft.value {
                rows.insert(craft.name.clone().into_bytes(), value.clone());
            }
        }
        rows
    }

    /// What can be read is right, and the rest is damage, each in its place.
    fn check_engine(&self, bucket: &Bucket) {
        let is_corrupt = |error: &Error| matches!(error, Error::Corrupt(_));
        for craft in &self.crafts {
            let good = format!("{}, good", craft.name);
            assert_eq!(bucket.get(&good).unwrap().as_deref(), Some(&b"good"[..]), "{good}");
            match (bucket.get(&craft.name), &craft.value) {
                (Ok(found), Some(value)) => {
                    assert!(found.as_deref() == Some(&value[..]), "{}: another value", craft.name);
                }
                (Err(error), None) => assert!(is_corrupt(&error), "{}: {error}", craft.name),
                (Err(error), Some(_)) => panic!("{}: {error}", craft.name),
                (Ok(_), None) => panic!("{}: it was read", craft.name),
            }
            let many = bucket.get_many(&[&craft.name]);
            assert_eq!(many.is_ok(), craft.value.is_some(), "{}: get_many", craft.name);
        }
        let (rows, errors): (Vec<_>, Vec<_>) = bucket.scan(b"").partition(Result::is_ok);
        let rows = rows.into_iter().flatten();
        let rows: Rows = rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect();
        assert_eq!(difference(&rows, &self.wanted()), None, "scan");
        let bad = self.crafts.iter().filter(|craft| craft.value.is_none());
        assert_eq!(errors.len(), bad.count(), "errors of the scan");
        assert!(errors.iter().filter_map(|row| row.as_ref().err()).all(is_corrupt));
    }

    fn check(&self) {
        let path = self.patched("patched", &self.crafts);
        let bucket = Bucket::open(&path, self.options.clone()).unwrap();
        self.check_engine(&bucket);
        // Compaction moves what it cannot read as it is.
        bucket.compact(Compact::Full).unwrap();
        self.check_engine(&bucket);
        bucket.close().unwrap();
        let bucket = Bucket::open(&path, self.options.clone()).unwrap();
        self.check_engine(&bucket);
    }
}

/// Frames that the program makes, with and without content size and checksum, are values to the engine.
#[test]
fn frames_of_zstd_are_read_by_the_engine() {
    let mut crafts = Vec::new();
    let mut add = |name: String, value: &[u8], frame: &[u8]| {
        let stored = stored_as(value, frame);
        crafts.push(Craft { name, enc: record::ENC_ZSTD, stored, value: Some(value.to_vec()) });
    };
    for len in [0, 1, 300, 9000, 300_000] {
        let value = text(len);
        for level in ["-1", "-3", "-19", "--fast=3"] {
            for check in ["--check", "--no-check"] {
                let arguments = [level, check];
                let name = format!("{len} {level} {check}");
                add(format!("{name} file"), &value, &squeeze_file(&arguments, &value));
                add(format!("{name} stream"), &value, &squeeze_stream(&arguments, &value));
            }
        }
        let frame = squeeze_file(&["--no-content-size"], &value);
        add(format!("{len} no content size"), &value, &frame);
        let frame = squeeze_stream(&["--long=23"], &value);
        add(format!("{len} window of 8 MiB"), &value, &frame);
    }
    // A single segment has no window, however long it is.
    let value = text(1000).repeat(10_000);
    add("single segment".into(), &value, &squeeze_file(&["--long=27"], &value));
    let crafted = Crafted::new(Options::default(), crafts);
    crafted.check();
    let path = crafted.patched("for the reader", &crafted.crafts);
    expect(&path, START_NS, &[], &crafted.wanted(), "frames of zstd");
}

/// A frame of so many blocks that each stand for 128 KiB of zeros.
fn bomb(blocks: u32, tells_size: bool) -> Vec<u8> {
    let mut frame = stored::FRAME_MAGIC.to_le_bytes().to_vec();
    // A window of 128 KiB; eight bytes of content size or none.
    frame.extend(if tells_size { [0xC0, 0x38] } else { [0x00, 0x38] });
    if tells_size {
        frame.extend((u64::from(blocks) << 17).to_le_bytes());
    }
    for number in 1..=blocks {
        let header: u32 = 131_072 << 3 | 1 << 1 | u32::from(number == blocks);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

/// A frame that says it needs dictionary 5.
fn naming_a_dictionary(frame: &[u8]) -> Vec<u8> {
    let mut named = frame.to_vec();
    named[4] |= 1;
    // Behind the window, which a single segment does not have.
    let at = if frame[4] & 0x20 == 0 { 6 } else { 5 };
    named.insert(at, 5);
    named
}

/// Stored values that no honest writer makes.
fn hostile() -> Vec<Craft> {
    let value = text(5000);
    let frame = squeeze_file(&["--check"], &value);
    let stream = squeeze_stream(&["--no-check"], &value);
    let skippable = [0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3];
    let long = squeeze_stream(&["--long=27"], &text(1000).repeat(9000));
    let changed = |at: usize, bit: u8| {
        let mut changed = frame.clone();
        changed[at] ^= bit;
        changed
    };
    let of = |len: u64, frame: &[u8]| [&varint(len), frame].concat();
    let gib = 1 << 30;
    let mut cases = vec![
        ("length of 2^40", of(1 << 40, &frame)),
        ("length of 2^40, streamed", of(1 << 40, &stream)),
        ("length of 2^64 - 1", of(u64::MAX, &frame)),
        ("length of a GiB", of(gib, &stream)),
        ("one byte less", of(4999, &frame)),
        ("one byte more", of(5001, &frame)),
        ("one byte less, streamed", of(4999, &stream)),
        ("one byte more, streamed", of(5001, &stream)),
        ("length 0", of(0, &stream)),
        ("varint longer than need be", [&[0x88, 0xA7, 0x00], &frame[..]].concat()),
        ("varint of 11 bytes", [&[0x80; 10][..], &[1], &frame[..]].concat()),
        ("varint above 64 bits", [&[0xFF; 9][..], &[2], &frame[..]].concat()),
        ("varint without an end", vec![0x80; 5]),
        ("nothing", Vec::new()),
        ("no frame", varint(5000)),
        ("magic alone", of(0, &frame[..4])),
        ("byte behind the frame", of(5000, &[&frame[..], &[0]].concat())),
        ("byte behind the stream", of(5000, &[&stream[..], &[0]].concat())),
        ("two frames", of(5000, &[&frame[..], &frame].concat())),
        ("two frames of both lengths", of(10_000, &[&stream[..], &stream].concat())),
        ("skippable frame", of(0, &skippable)),
        ("skippable frame before", of(5000, &[&skippable[..], &frame].concat())),
        ("skippable frame behind", of(5000, &[&frame[..], &skippable].concat())),
        ("window of 128 MiB", of(9_000_000, &long)),
        ("window of 16 MiB", of(5000, &squeeze_stream(&["--long=24"], &value))),
        ("frame cut by one", of(5000, &frame[..frame.len() - 1])),
        ("frame without checksum", of(5000, &frame[..frame.len() - 4])),
        ("stream cut by one", of(5000, &stream[..stream.len() - 1])),
        ("half a frame", of(5000, &frame[..frame.len() / 2])),
        ("dictionary named", of(5000, &naming_a_dictionary(&frame))),
        ("reserved bit", of(5000, &changed(4, 8))),
        ("magic of an old format", of(5000, &changed(0, 0x0F))),
        ("wrong checksum", of(5000, &changed(frame.len() - 1, 1))),
        ("bomb", of(gib, &bomb(8192, true))),
        ("bomb, streamed", of(gib, &bomb(8192, false))),
        ("bomb that should be small", of(1000, &bomb(8192, false))),
        ("bomb said to be small", of(1000, &bomb(8192, true))),
    ];
    let enc = |(name, stored): (&str, Vec<u8>), enc| {
        let name = format!("{name} ({enc})");
        Craft { name, enc, stored, value: None }
    };
    let mut crafts = vec![
        enc(("dictionary that is not there", of(5000, &naming_a_dictionary(&frame))), 2),
        enc(("no dictionary named", of(5000, &frame)), 2),
    ];
    crafts.extend(cases.drain(..).map(|case| enc(case, 1)));
    crafts
}

/// Most memory that this process ever had, where the system tells.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<usize>().ok()? << 10)
}

/// A stored value that is not as it must be is damage, found without taking memory for what it claims.
#[test]
fn hostile_values_are_damage() {
    let crafted = Crafted::new(Options::default().max_value(64 << 20), hostile());
    crafted.check();
    // The bombs would be a GiB each.
    let peak = peak_bytes().unwrap_or(0);
    assert!(peak < 600 << 20, "{peak} bytes were in use");
}

/// The reader refuses the same values.
#[test]
fn hostile_values_are_refused_by_the_reader() {
    let crafted = Crafted::new(Options::default().max_value(64 << 20), hostile());
    let crafts = crafted.crafts.chunks(1).enumerate();
    let paths: Vec<PathBuf> =
        crafts.map(|(number, craft)| crafted.patched(&number.to_string(), craft)).collect();
    let read = sealed_each(&paths, START_NS, &[]);
    for (craft, read) in crafted.crafts.iter().zip(read) {
        let error = read.expect_err(&craft.name);
        assert!(error.contains("frame") || error.contains("varint"), "{}: {error}", craft.name);
    }
}
