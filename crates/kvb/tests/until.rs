//! Puts with a deadline: kept to the nanosecond, wherever the record goes.
//!
//! A record tells when it was written and for how many whole seconds it counts; a deadline must come out of the two as it
//! was given, through logs, images, compactions, rotations, crashes, backups. `KVB_SEED=n` replays a failing seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use fixture::{DAY, Fixture, SECOND, START};
use host::{Disk, Env, ManualEnv, MemoryDisk};
use kvb::{
    Batch, Bucket, Compact, Compression, Durability, HashKind, Key, Keyring, Options, Reader,
    Snapshot,
};

/// The longest life a record can tell of.
const LONGEST: u64 = 4_294_967_295 * SECOND;

/// Key to value and deadline.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn quiet(_: kvb::Progress) {}

fn rows(snapshot: &Snapshot<'_>) -> Rows {
    let rows = snapshot.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), (row.value().to_vec(), row.expires_unix_ns()))).collect()
}

fn keys() -> Keyring {
    Keyring::new().with(1, Key::new([1; 32])).with(2, Key::new([2; 32]))
}

fn kinds() -> Vec<(&'static str, Options)> {
    let plain = Fixture::new().options.overlay_min(64);
    let zstd = plain.clone().compression(Compression::Zstd).compression_min(16);
    vec![
        ("plain", plain.clone()),
        ("compressed", zstd.clone()),
        ("no directories, keyed hash", plain.clone().directories(false).hash(HashKind::SipHash)),
        ("encrypted", plain.encrypted(1).keys(keys())),
        ("encrypted and compressed, durable", {
            zstd.encrypted(1).keys(keys()).durability(Durability::Sync)
        }),
    ]
}

fn get(bucket: &Bucket, key: &[u8]) -> Option<Vec<u8>> {
    bucket.get(key).unwrap().map(|value| value.to_vec())
}

fn until(bucket: &Bucket, key: &[u8], value: &[u8], unix_ns: u64) {
    let mut batch = Batch::new();
    batch.put_until(key, value, unix_ns);
    bucket.commit(batch).unwrap();
}

/// What a reader sees of a copy of the bytes at a time.
fn seen_at(fixture: &Fixture, unix_ns: u64) -> Rows {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::from_bytes(fixture.disk.to_bytes()));
    rows_at(disk, &fixture.options, unix_ns)
}

fn rows_at(disk: Arc<dyn Disk>, options: &Options, unix_ns: u64) -> Rows {
    let env = Arc::new(ManualEnv::new(unix_ns, 8));
    let reader = Reader::open_on_with(disk, env, options.clone()).unwrap();
    rows(&reader.snapshot().unwrap())
}

/// A history with a map beside it.
struct Model {
    rng: Rng,
    rows: Rows,
    count: usize,
}

impl Model {
    fn new(seed: u64) -> Model {
        Model { rng: Rng::with_seed(seed), rows: Rows::new(), count: 0 }
    }

    /// A deadline as anyone may give it: mostly to come, near and far, with and without whole seconds.
    fn deadline(&mut self, now: u64) -> u64 {
        let rng = &mut self.rng;
        match rng.u8(..12) {
            0 => now + rng.u64(1..1000),
            1 => now + SECOND * rng.u64(1..100),
            2 => now + SECOND * rng.u64(1..100) + *rng.choice(&[1, SECOND - 1]).unwrap(),
            3 => now + SECOND - rng.u64(..2),
            4 => rng.u64(now..=now + LONGEST),
            5 => now + LONGEST - rng.u64(..3),
            6 => now - rng.u64(..10 * SECOND),
            7 => rng.u64(..now),
            _ => rng.u64(now..now + 3600 * SECOND),
        }
    }

    fn commit(&mut self, bucket: &Bucket, now: u64) {
        let mut batch = Batch::new();
        for _ in 0..self.rng.usize(1..8) {
            self.count += 1;
            let key = format!("key {:03}", self.rng.usize(..150)).into_bytes();
            let len = self.rng.usize(..200);
            let mut value = format!("value {} ", self.count).into_bytes();
            value.resize(value.len() + len, b'.');
            let expires = match self.rng.u8(..10) {
                0 => {
                    batch.delete(&key);
                    self.rows.remove(&key);
                    continue;
                }
                1 => {
                    batch.put(&key, &value);
                    None
                }
                2 => {
                    let secs = self.rng.u64(1..1000);
                    batch.put_for(&key, &value, Duration::from_secs(secs));
                    Some(now + secs * SECOND)
                }
                _ => {
                    let deadline = self.deadline(now);
                    batch.put_until(&key, &value, deadline);
                    Some(deadline)
                }
            };
            self.rows.insert(key, (value, expires));
        }
        bucket.commit(batch).unwrap();
    }

    /// What is there at a time.
    fn at(&self, unix_ns: u64) -> Rows {
        let is_there = |expires: Option<u64>| expires.is_none_or(|deadline| deadline > unix_ns);
        let rows = self.rows.iter().filter(|(_, (_, expires))| is_there(*expires));
        rows.map(|(key, row)| (key.clone(), row.clone())).collect()
    }
}

#[test]
fn deadlines_are_kept_to_the_nanosecond_through_everything() {
    let seed = seed::seed("deadlines_are_kept_to_the_nanosecond_through_everything");
    for round in 0..seed::rounds() {
        for (index, (name, options)) in (0_u64..).zip(kinds()) {
            go_through_everything(name, options, seed ^ index ^ round << 8);
        }
    }
}

fn go_through_everything(name: &str, options: Options, seed: u64) {
    let is_encrypted = name.starts_with("encrypted");
    let is_compressed = name.contains("compressed");
    let mut fixture = Fixture::with(options);
    let mut model = Model::new(seed);
    let mut bucket = fixture.create();
    for step in 0..40 {
        let now = fixture.env.unix_ns();
        for _ in 0..model.rng.usize(1..30) {
            model.commit(&bucket, now);
        }
        let what = model.rng.u8(..9);
        match what {
            0 => bucket.flush().unwrap(),
            1 => drop(bucket.compact(Compact::Full).unwrap()),
            2 => drop(bucket.compact(Compact::Auto).unwrap()),
            3 => {
                bucket.close().unwrap();
                bucket = fixture.open();
            }
            4 => bucket = fixture.kill(bucket),
            5 if is_encrypted => drop(bucket.rotate_key(1 + model.rng.u64(..2)).unwrap()),
            6 if is_compressed => drop(bucket.train_dictionary(512)),
            _ => {}
        }
        let context = format!("{name}, step {step}, {what}");
        let wanted = model.at(now);
        assert_eq!(rows(&bucket.snapshot()), wanted, "{context}");
        for key in model.rows.keys() {
            let value = wanted.get(key).map(|(value, _)| value.clone());
            assert_eq!(get(&bucket, key), value, "{context}: {}", String::from_utf8_lossy(key));
        }
        // The nanosecond before the next deadline, and that itself.
        let next = wanted.values().filter_map(|(_, expires)| *expires).min();
        if let Some(next) = next.filter(|next| *next < now + 20 * SECOND) {
            fixture.env.set(next - 1);
            assert_eq!(rows(&bucket.snapshot()), model.at(next - 1), "{context}: just before");
            fixture.env.set(next);
            assert_eq!(rows(&bucket.snapshot()), model.at(next), "{context}: the moment itself");
            assert_ne!(model.at(next), wanted, "a test that shows nothing");
        }
        fixture.env.advance(model.rng.u64(..600 * SECOND));
    }
    bucket.flush().unwrap();
    let moments: Vec<u64> = model.rows.values().filter_map(|(_, expires)| *expires).collect();
    let now = fixture.env.unix_ns();
    for moment in moments.into_iter().filter(|moment| *moment > now).take(8) {
        for moment in [moment - 1, moment] {
            assert_eq!(seen_at(&fixture, moment), model.at(moment), "{name}: a reader at {moment}");
        }
    }
    let found = kvb::verify_on(
        Arc::new(MemoryDisk::from_bytes(fixture.disk.to_bytes())),
        Arc::<ManualEnv>::clone(&fixture.env),
        fixture.options.clone(),
        &mut quiet,
    );
    assert_eq!(found.unwrap().findings, [], "{name}");
}

#[test]
fn backups_increments_restores_and_remakes_keep_deadlines() {
    for (name, options) in kinds() {
        let fixture = Fixture::with(options.clone());
        let bucket = fixture.create();
        let mut model = Model::new(11);
        let env = || -> Arc<dyn Env> { Arc::<ManualEnv>::clone(&fixture.env) };
        let mut chain: Vec<Arc<dyn Disk>> = Vec::new();
        for _ in 0..3 {
            for _ in 0..60 {
                model.commit(&bucket, fixture.env.unix_ns());
            }
            let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
            let snapshot = bucket.snapshot();
            let target = Arc::clone(&disk);
            if chain.is_empty() {
                snapshot.backup_on(target, env(), options.clone(), &mut quiet).unwrap();
            } else {
                let options = options.clone();
                snapshot.backup_since_on(target, env(), &chain, options, &mut quiet).unwrap();
            }
            chain.push(disk);
            fixture.env.advance(7 * SECOND + 1);
        }
        bucket.close().unwrap();
        let restored: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let target = Arc::clone(&restored);
        kvb::restore_on(&chain, target, env(), options.clone(), &mut quiet).unwrap();
        let remade: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let source: Arc<dyn Disk> = Arc::new(fixture.disk.reopen());
        let target = Arc::clone(&remade);
        let larger = |options: Options| options.page_size(8192).segment_bytes_max(32 << 10);
        kvb::remake_on(source, target, env(), options.clone(), larger, &mut quiet).unwrap();
        let now = fixture.env.unix_ns();
        for moment in [now, now + 100 * SECOND, now + DAY] {
            let wanted = model.at(moment);
            assert!(wanted.len() > 10, "{name}: a test that shows little");
            let found = rows_at(Arc::clone(&restored), &options, moment);
            assert_eq!(found, wanted, "{name}, restored");
            let found = rows_at(Arc::clone(&remade), &options, moment);
            assert_eq!(found, wanted, "{name}, remade");
        }
    }
}

#[test]
fn a_deadline_that_is_over_hides_the_key_for_good() {
    for (name, options) in kinds() {
        let mut fixture = Fixture::with(options);
        let mut bucket = fixture.create();
        let over = [
            0,
            1,
            SECOND - 1,
            SECOND,
            DAY,
            START - DAY,
            START - SECOND - 1,
            START - SECOND,
            START - 1,
            START,
        ];
        for (index, deadline) in over.into_iter().enumerate() {
            let key = format!("key {index}").into_bytes();
            bucket.put(&key, b"the value before").unwrap();
            if index % 2 == 0 {
                bucket.flush().unwrap();
            }
            until(&bucket, &key, b"the value that is over", deadline);
            // Nor does one that was there for a moment in the same batch.
            let mut batch = Batch::new();
            let other = format!("other {index}").into_bytes();
            batch.put(&other, b"once").put_until(&other, b"over", deadline);
            bucket.commit(batch).unwrap();
        }
        bucket.put(b"stays", b"here").unwrap();
        let check = |bucket: &Bucket, context: &str| {
            let context = format!("{name}, {context}");
            assert_eq!(bucket.scan(b"").count(), 1, "{context}");
            for (index, deadline) in over.iter().enumerate() {
                let key = format!("key {index}").into_bytes();
                assert_eq!(get(bucket, &key), None, "{context}: {deadline}");
                assert!(!bucket.exists(&key).unwrap(), "{context}: {deadline}");
                assert_eq!(get(bucket, format!("other {index}").as_bytes()), None, "{context}");
            }
        };
        check(&bucket, "at once");
        bucket.compact(Compact::Full).unwrap();
        check(&bucket, "compacted");
        bucket.close().unwrap();
        bucket = fixture.open();
        check(&bucket, "opened again");
        bucket = fixture.kill(bucket);
        check(&bucket, "after a crash");
        // By now even a careful compaction drops it, and what it hid must be gone with it.
        fixture.env.advance(3 * 3600 * SECOND);
        bucket.compact(Compact::Full).unwrap();
        bucket.flush().unwrap();
        check(&bucket, "compacted much later");
        let copy = MemoryDisk::new();
        let env = Arc::<ManualEnv>::clone(&fixture.env);
        let options = fixture.options.clone();
        let target = Arc::new(copy.reopen());
        let done = bucket.snapshot().backup_on(target, env, options, &mut quiet).unwrap();
        assert_eq!(done.records, 1, "{name}: a backup has what is there");
        bucket.put(b"key 3", b"again").unwrap();
        assert_eq!(get(&bucket, b"key 3").as_deref(), Some(&b"again"[..]), "{name}");
    }
}

#[test]
fn a_deadline_too_far_ahead_is_brought_forward() {
    for (name, options) in kinds() {
        let mut fixture = Fixture::with(options);
        let bucket = fixture.create();
        let wanted = [
            (START + LONGEST - 1, START + LONGEST - 1),
            (START + LONGEST, START + LONGEST),
            (START + LONGEST + 1, START + LONGEST),
            (START + LONGEST + SECOND, START + LONGEST),
            (START + 2 * LONGEST, START + LONGEST),
            (u64::MAX - 1, START + LONGEST),
            (u64::MAX, START + LONGEST),
        ];
        for (deadline, _) in wanted {
            until(&bucket, &deadline.to_be_bytes(), b"value", deadline);
        }
        let bucket = fixture.kill(bucket);
        let found = rows(&bucket.snapshot());
        for (deadline, expires) in wanted {
            let (_, found) = &found[&deadline.to_be_bytes().to_vec()];
            assert_eq!(*found, Some(expires), "{name}: {deadline}");
        }
        bucket.close().unwrap();
        assert_eq!(seen_at(&fixture, START + LONGEST - 2).len(), wanted.len(), "{name}");
        assert_eq!(seen_at(&fixture, START + LONGEST - 1).len(), wanted.len() - 1, "{name}");
        assert_eq!(seen_at(&fixture, START + LONGEST).len(), 0, "{name}");
    }
}

/// A bucket's clock never goes back behind what it has stamped. Deadlines are moments all the same, not spans from then.
#[test]
fn deadlines_do_not_move_with_the_clock() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    bucket.put(b"stamped", b"now").unwrap();
    fixture.env.set(START - 60 * SECOND);
    let deadlines = [START + 1, START + SECOND, START + 59 * SECOND + 7];
    for deadline in deadlines {
        until(&bucket, &deadline.to_be_bytes(), b"value", deadline);
    }
    // To the wall it is to come; the bucket has seen it go by.
    until(&bucket, b"over", b"value", START - 30 * SECOND);
    let expires = |bucket: &Bucket| -> Vec<Option<u64>> {
        rows(&bucket.snapshot()).into_values().map(|(_, expires)| expires).collect()
    };
    let wanted: Vec<_> = deadlines.map(Some).into_iter().chain([None]).collect();
    assert_eq!(expires(&bucket), wanted);
    // A step ahead ends those that it passes by, and no others.
    fixture.env.set(START + SECOND);
    assert_eq!(expires(&bucket), wanted[2..]);
    bucket.close().unwrap();
    assert_eq!(expires(&fixture.open()), wanted[2..]);
}

#[test]
fn a_batch_larger_than_segments_keeps_every_deadline() {
    for (name, options) in kinds() {
        let mut fixture = Fixture::with(options);
        let bucket = fixture.create();
        let mut batch = Batch::new();
        let mut wanted = Rows::new();
        for number in 0..2000_u64 {
            let key = format!("key {number:04}").into_bytes();
            let value = vec![b'v'; 100];
            let deadline = START + SECOND + number * 999_999_937;
            match number % 3 {
                0 => drop(batch.put(&key, &value)),
                _ => drop(batch.put_until(&key, &value, deadline)),
            }
            wanted.insert(key, (value, (number % 3 != 0).then_some(deadline)));
        }
        // One that is used twice is the same both times.
        bucket.commit(batch.clone()).unwrap();
        assert_eq!(rows(&bucket.snapshot()), wanted, "{name}");
        fixture.env.advance(SECOND / 2);
        bucket.commit(batch).unwrap();
        let bucket = fixture.kill(bucket);
        assert_eq!(rows(&bucket.snapshot()), wanted, "{name}, again");
    }
}

#[test]
fn a_batch_that_was_cleared_forgets_deadlines() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    let mut batch = Batch::new();
    batch.put_until(b"key", b"value", START + SECOND);
    batch.clear();
    batch.put(b"key", b"value").put_for(b"other", b"value", Duration::from_secs(9));
    bucket.commit(batch).unwrap();
    let found: Vec<_> =
        rows(&bucket.snapshot()).into_values().map(|(_, expires)| expires).collect();
    assert_eq!(found, [None, Some(START + 9 * SECOND)]);
}

/// Commits of several threads are stamped together; each keeps its own deadlines.
#[test]
fn commits_that_share_a_sync_keep_their_own_deadlines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let options = Options::default().segment_bytes_max(64 << 10).overlay_min(64);
    let bucket = Bucket::create(&path, options.clone()).unwrap();
    let now = host::SystemEnv.unix_ns();
    let deadline = |thread: u64, number: u64| now + DAY + thread * 1_000_003 + number * 17;
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let bucket = &bucket;
            scope.spawn(move || {
                for number in 0..60 {
                    let mut batch = Batch::new();
                    let key = format!("{thread} {number}");
                    batch.put_until(&key, b"value", deadline(thread, number));
                    batch.put(format!("{key} forever"), b"value");
                    bucket.commit(batch).unwrap();
                }
            });
        }
    });
    let check = |rows: Rows| {
        assert_eq!(rows.len(), 2 * 8 * 60);
        for (thread, number) in (0..8).flat_map(|thread| (0..60).map(move |n| (thread, n))) {
            let key = format!("{thread} {number}");
            assert_eq!(rows[key.as_bytes()].1, Some(deadline(thread, number)));
            assert_eq!(rows[format!("{key} forever").as_bytes()].1, None);
        }
    };
    check(rows(&bucket.snapshot()));
    bucket.close().unwrap();
    check(rows(&Bucket::open(&path, options).unwrap().snapshot()));
}

/// The newest stamp of a batch may be on any of its records: one whose deadline is over has an old one.
#[test]
fn after_a_crash_no_stamp_is_ahead_of_the_clock() {
    let disk = MemoryDisk::new();
    let env = Arc::new(ManualEnv::new(START, 1));
    let options = Options::default().background(false);
    let shared = Arc::new(disk.reopen());
    let bucket = Bucket::create_on(shared, Arc::<ManualEnv>::clone(&env), options.clone()).unwrap();
    bucket.put_for(b"short", b"value", Duration::from_secs(1)).unwrap();
    env.set(START + 5 * SECOND);
    assert_eq!(get(&bucket, b"short"), None);
    let mut batch = Batch::new();
    batch.put(b"a", b"value").put_until(b"over", b"value", 1);
    bucket.commit(batch).unwrap();
    // As if killed, and the clock set back.
    let copy = Arc::new(MemoryDisk::from_bytes(disk.to_bytes()));
    let earlier = Arc::new(ManualEnv::new(START - 3600 * SECOND, 2));
    let bucket = Bucket::open_on(copy, earlier, options).unwrap();
    assert_eq!(get(&bucket, b"a").as_deref(), Some(&b"value"[..]));
    assert_eq!(get(&bucket, b"short"), None, "it was over already");
}
