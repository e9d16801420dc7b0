//! Hash flooding: keys made to collide cost a bounded multiple of keys that do not, and none is
//! ever lost.
//!
//! Two attacks on an unkeyed hash. In the first all keys have one hash. In the second every key has
//! a hash of its own, but all of them share their low bits, so that they all belong to one slot of
//! the index, in the worst case its last.
//!
//! And the group of keys of one hash is made larger and larger: what an operation in it costs grows with its logarithm.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/collide.rs"]
mod collide;
#[path = "support/watch.rs"]
mod watch;

use std::sync::Arc;
use std::time::{Duration, Instant};

use host::{Disk, MemoryDisk, SystemEnv};
use kvb::{Batch, Bucket, Durability, HashKind, Options};

/// Keys in the flood.
const COUNT: u64 = 20_000;
/// How much longer than without a flood anything may take.
const FACTOR: u32 = 50;
/// Times shorter than this are not compared, only bounded: they tell of the machine, not of the
/// bucket.
const NOISE: Duration = Duration::from_millis(10);
/// Longest the whole of one test may take.
const LIMIT: Duration = Duration::from_secs(60);
/// Bits of the hash that the second attack fixes.
const FIXED_BITS: u32 = 24;

/// Makes the i-th key of a kind.
type KeyOf = fn(u64) -> Vec<u8>;

fn plain(index: u64) -> Vec<u8> {
    let mut key = b"a key that nobody made to collid".to_vec();
    key[16..24].copy_from_slice(&index.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

fn one_hash(index: u64) -> Vec<u8> {
    collide::colliding(0, index)
}

fn outpoint(index: u64) -> Vec<u8> {
    collide::colliding_outpoint(u32::try_from(index).unwrap())
}

fn first_slot(index: u64) -> Vec<u8> {
    collide::hashing_to((index + 1) << FIXED_BITS)
}

fn last_slot(index: u64) -> Vec<u8> {
    collide::hashing_to((index << FIXED_BITS) | ((1 << FIXED_BITS) - 1))
}

/// How long each part of the workload took.
#[derive(Debug)]
struct Times {
    parts: Vec<(&'static str, Duration)>,
}

impl Times {
    fn measure<T>(&mut self, part: &'static str, work: impl FnOnce() -> T) -> T {
        let start = Spent::now();
        let value = work();
        self.parts.push((part, start.elapsed()));
        value
    }
}

/// Time that this thread has worked, where the system tells: how long it waited for a busy machine does not matter here.
struct Spent {
    wall: Instant,
    worked: Option<Duration>,
}

impl Spent {
    fn now() -> Spent {
        Spent { wall: Instant::now(), worked: worked() }
    }

    fn elapsed(&self) -> Duration {
        match (self.worked, worked()) {
            (Some(before), Some(now)) => now - before,
            _ => self.wall.elapsed(),
        }
    }
}

fn worked() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
}

fn value(index: u64, version: u64) -> Vec<u8> {
    let mut value = index.to_le_bytes().to_vec();
    value.extend_from_slice(&version.to_le_bytes());
    value
}

fn commit(
    bucket: &Bucket,
    indexes: impl Iterator<Item = u64>,
    change: impl for<'a> Fn(&'a mut Batch, u64) -> &'a mut Batch,
) {
    let indexes: Vec<u64> = indexes.collect();
    for chunk in indexes.chunks(500) {
        let mut batch = Batch::new();
        for index in chunk {
            change(&mut batch, *index);
        }
        bucket.commit(batch).unwrap();
    }
}

/// Looks up every key of the flood and as many that are not there.
fn check(
    times: &mut Times,
    bucket: &Bucket,
    key: KeyOf,
    parts: [&'static str; 2],
    expected: impl Fn(u64) -> Option<Vec<u8>>,
) {
    let hits: Vec<Option<Vec<u8>>> = times.measure(parts[0], || {
        (0..COUNT)
            .map(|index| bucket.get(key(index)).unwrap().map(|found| found.to_vec()))
            .collect()
    });
    for (index, found) in (0..).zip(hits) {
        assert_eq!(found, expected(index), "key {index}, {}", parts[0]);
    }
    let missing = times.measure(parts[1], || {
        (COUNT..2 * COUNT).filter(|index| bucket.exists(key(*index)).unwrap()).count()
    });
    assert_eq!(missing, 0, "{}", parts[1]);
}

/// Puts, overwrites, deletes and reads, through merges and reopens.
fn workload(key: KeyOf, options: &Options) -> Times {
    let mut times = Times { parts: Vec::new() };
    let disk = MemoryDisk::with_capacity(1 << 30);
    let shared = || -> Arc<dyn Disk> { Arc::new(disk.reopen()) };
    let bucket = Bucket::create_on(shared(), Arc::new(SystemEnv), options.clone()).unwrap();

    times.measure("put", || {
        commit(&bucket, 0..COUNT, |batch, index| batch.put(key(index), value(index, 1)));
    });
    check(&mut times, &bucket, key, ["get", "get, absent"], |index| Some(value(index, 1)));
    times.measure("flush", || bucket.flush().unwrap());
    check(
        &mut times,
        &bucket,
        key,
        ["get from the image", "get from the image, absent"],
        |index| Some(value(index, 1)),
    );

    times.measure("overwrite", || {
        let third = (0..COUNT).filter(|index| index % 3 == 0);
        commit(&bucket, third, |batch, index| batch.put(key(index), value(index, 2)));
    });
    let deleted: u64 = times.measure("delete one by one", || {
        (0..COUNT)
            .filter(|index| index % 20 == 1)
            .map(|index| u64::from(bucket.delete(key(index)).unwrap()))
            .sum()
    });
    assert_eq!(deleted, COUNT / 20);
    let expected = |index: u64| match (index % 3, index % 20) {
        (_, 1) => None,
        (0, _) => Some(value(index, 2)),
        _ => Some(value(index, 1)),
    };
    check(&mut times, &bucket, key, ["get changed", "get changed, absent"], expected);

    // As if killed: what was not merged comes back from runs and from the tail.
    let copy = MemoryDisk::from_bytes(disk.to_bytes());
    let killed = times.measure("open after a kill", || {
        Bucket::open_on(Arc::new(copy), Arc::new(SystemEnv), options.clone()).unwrap()
    });
    check(&mut times, &killed, key, ["get after a kill", "get after a kill, absent"], expected);
    times.measure("close after a kill", || killed.close().unwrap());

    times.measure("close", || bucket.close().unwrap());
    let bucket = times.measure("open", || {
        Bucket::open_on(shared(), Arc::new(SystemEnv), options.clone()).unwrap()
    });
    check(&mut times, &bucket, key, ["get reopened", "get reopened, absent"], expected);

    times.measure("delete all", || {
        commit(&bucket, 0..COUNT, |batch, index| batch.delete(key(index)))
    });
    times.measure("flush empty", || bucket.flush().unwrap());
    check(&mut times, &bucket, key, ["get deleted", "get deleted, absent"], |_| None);
    bucket.close().unwrap();
    times
}

fn compare(flooded: &Times, calm: &Times) {
    for ((part, slow), (_, quick)) in flooded.parts.iter().zip(&calm.parts) {
        let limit = (*quick).max(NOISE) * FACTOR;
        eprintln!("{part}: {slow:?} flooded, {quick:?} calm");
        assert!(*slow <= limit, "{part} took {slow:?} flooded and {quick:?} otherwise");
    }
}

fn flood(what: &'static str, key: KeyOf, options: Options) {
    collide::check();
    watch::within(LIMIT, what, move || {
        let calm = workload(plain, &options);
        let flooded = workload(key, &options);
        compare(&flooded, &calm);
    });
}

/// An overlay that takes the whole flood, so that every part of the index meets it at once.
fn roomy() -> Options {
    Options::default().durability(Durability::Relaxed).background(false)
}

/// Merges all the time.
fn tight() -> Options {
    roomy().overlay_min(1000)
}

#[test]
fn one_hash_in_a_roomy_overlay() {
    flood("one_hash_in_a_roomy_overlay", one_hash, roomy());
}

#[test]
fn one_hash_through_many_merges() {
    flood("one_hash_through_many_merges", one_hash, tight());
}

#[test]
fn one_hash_with_background_threads_and_journal() {
    let options = tight().background(true).durability(Durability::Sync);
    flood("one_hash_with_background_threads_and_journal", one_hash, options);
}

#[test]
fn outpoints_of_one_hash() {
    flood("outpoints_of_one_hash", outpoint, tight());
}

#[test]
fn one_first_slot() {
    flood("one_first_slot", first_slot, tight());
}

/// Everything that belongs to the last slot wraps around to the front of the table.
#[test]
fn one_last_slot() {
    flood("one_last_slot", last_slot, tight());
}

#[test]
fn one_last_slot_in_a_roomy_overlay() {
    flood("one_last_slot_in_a_roomy_overlay", last_slot, roomy());
}

/// Under a keyed hash the same keys are keys like any others.
#[test]
fn a_keyed_hash_does_not_notice() {
    flood("a_keyed_hash_does_not_notice", one_hash, tight().hash(HashKind::SipHash));
}

/// Sizes of groups of one hash.
const GROUPS: [u64; 3] = [1_000, 8_000, 64_000];
/// How much longer anything may take in the largest group than in the smallest, which is 64 times smaller.
const GROWTH: u32 = 4;
/// Keys of each group that something is done to.
const SAMPLE: u64 = 300;
/// Only the least time that the same ever took counts: the machine may be busy, and a merge may be due.
const TRIES: usize = 9;
/// Times of a single operation shorter than this are not compared.
const BLINK: Duration = Duration::from_micros(40);

/// What is done to one key of a group of so many.
type Deed = fn(&Bucket, u64, u64);

fn get(bucket: &Bucket, index: u64, _: u64) {
    assert!(bucket.get(one_hash(index)).unwrap().is_some());
}

fn get_of_none(bucket: &Bucket, index: u64, count: u64) {
    assert!(bucket.get(one_hash(index + count)).unwrap().is_none());
}

fn put(bucket: &Bucket, index: u64, _: u64) {
    bucket.put(one_hash(index), value(index, 2)).unwrap();
}

fn delete_and_put(bucket: &Bucket, index: u64, _: u64) {
    assert!(bucket.delete(one_hash(index)).unwrap());
    bucket.put(one_hash(index), value(index, 3)).unwrap();
}

/// The mean and the longest of the least times, for each group.
fn least(groups: &[(u64, Bucket)], deed: Deed) -> Vec<(Duration, Duration)> {
    let mut least = vec![vec![Duration::MAX; usize::try_from(SAMPLE).unwrap()]; groups.len()];
    for _ in 0..TRIES {
        for ((count, bucket), least) in groups.iter().zip(&mut least) {
            for (at, least) in (0..).zip(least) {
                let start = Instant::now();
                deed(bucket, at * count / SAMPLE, *count);
                *least = start.elapsed().min(*least);
            }
        }
    }
    let means =
        least.iter().map(|all| all.iter().sum::<Duration>() / u32::try_from(SAMPLE).unwrap());
    means.zip(&least).map(|(mean, all)| (mean, *all.iter().max().unwrap())).collect()
}

fn compare_groups(groups: &[(u64, Bucket)], place: &str) {
    let deeds: [(&str, Deed); 4] = [
        ("get", get),
        ("get of none", get_of_none),
        ("put", put),
        ("delete and put", delete_and_put),
    ];
    for (name, deed) in deeds {
        let times = least(groups, deed);
        eprintln!("{place}, {name}: {times:?}");
        let ((mean, longest), (mean_of_many, longest_of_many)) = (times[0], times[2]);
        let what = format!("{place}, {name}: mean and longest for {GROUPS:?}: {times:?}");
        assert!(mean_of_many <= mean * GROWTH, "{what}");
        assert!(longest_of_many <= longest.max(BLINK) * GROWTH, "{what}");
    }
}

/// Searching all of a group would take 64 times as long in the largest.
#[test]
fn what_a_group_of_one_hash_costs_grows_with_its_logarithm() {
    collide::check();
    watch::within(LIMIT, "what_a_group_of_one_hash_costs_grows_with_its_logarithm", || {
        let groups = GROUPS.map(|count| {
            let disk = Arc::new(MemoryDisk::with_capacity(1 << 30));
            let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), roomy()).unwrap();
            commit(&bucket, 0..count, |batch, index| batch.put(one_hash(index), value(index, 1)));
            (count, bucket)
        });
        compare_groups(&groups, "overlay");
        groups.iter().for_each(|(_, bucket)| bucket.flush().unwrap());
        compare_groups(&groups, "image");
    });
}
