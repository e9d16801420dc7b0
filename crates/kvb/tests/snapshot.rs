//! Snapshots: the bucket as of one commit, for as long as somebody wants it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/anatomy.rs"]
mod anatomy;
#[path = "support/collide.rs"]
mod collide;
#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/watch.rs"]
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use fixture::{DAY, Fixture, Map, SECOND, START, assert_rows, keys, read_only, rows, rows_back};
use host::{MemoryDisk, SystemEnv};
use kvb::format::meta::{self, MetaHead};
use kvb::format::segment::Kind;
use kvb::format::superblock::Superblock;
use kvb::{Batch, Bucket, Compact, Durability, Options, Snapshot};

/// Longest a test with threads may take.
const LIMIT: Duration = Duration::from_secs(60);

/// A snapshot and what it should show.
struct Taken<'b> {
    snapshot: Snapshot<'b>,
    map: Map,
}

impl<'b> Taken<'b> {
    fn of(bucket: &'b Bucket, map: &Map) -> Taken<'b> {
        Taken { snapshot: bucket.snapshot(), map: map.clone() }
    }

    /// Compares all rows both ways, and lookups of these keys.
    fn check<'k>(&self, keys: impl Iterator<Item = &'k Vec<u8>>, context: &str) {
        let Taken { snapshot, map } = self;
        let context = format!("{context}, snapshot at {}", snapshot.seqno());
        assert_rows(&rows(snapshot.scan("")), map.iter(), &context);
        assert_rows(&rows_back(snapshot.scan("")), map.iter().rev(), &context);
        for key in keys {
            let value = snapshot.get(key).unwrap_or_else(|error| panic!("{context}: {error}"));
            let expected = map.get(key);
            assert!(value.as_deref() == expected.map(Vec::as_slice), "{context}: key {key:x?}");
            assert_eq!(snapshot.exists(key).unwrap(), expected.is_some(), "{context}");
        }
    }
}

/// Applies a batch to bucket and map.
fn commit(bucket: &Bucket, map: &mut Map, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
    let mut batch = Batch::new();
    for (key, value) in changes {
        match value {
            Some(value) => {
                batch.put(&key, &value);
                map.insert(key, value);
            }
            None => {
                batch.delete(&key);
                map.remove(&key);
            }
        }
    }
    bucket.commit(batch).unwrap();
}

fn key(n: usize) -> Vec<u8> {
    format!("key {n:04}").into_bytes()
}

/// Some keys overwritten, some deleted, some put that were deleted or never there.
fn draw_changes(
    rng: &mut Rng,
    keys: &[Vec<u8>],
    count: usize,
    value_len: usize,
) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let mut change = || {
        let key = rng.choice(keys).unwrap().clone();
        let value = (0..rng.usize(..=value_len)).map(|_| rng.u8(..)).collect();
        (key, (rng.u8(..3) > 0).then_some(value))
    };
    (0..count).map(|_| change()).collect()
}

/// Takes a snapshot before every round of changes, drops some, and compares all that are left.
fn hold_through_rounds(options: Options, keys: &[Vec<u8>], rounds: usize, seed: u64) {
    let fixture = Fixture::with(options);
    let (bucket, mut map) = (fixture.create(), Map::new());
    let mut rng = Rng::with_seed(seed);
    let mut taken: Vec<Taken<'_>> = Vec::new();
    for round in 0..rounds {
        if taken.len() > 6 {
            taken.swap_remove(rng.usize(..taken.len()));
        }
        taken.push(Taken::of(&bucket, &map));
        for _ in 0..rng.usize(1..6) {
            let count = *rng.choice(&[1, 3, 20, 150]).unwrap();
            let changes = draw_changes(&mut rng, keys, count, 300);
            commit(&bucket, &mut map, changes);
        }
        if rng.u8(..4) == 0 {
            bucket.flush().unwrap();
        }
        match rng.u8(..6) {
            0 => bucket.compact(Compact::Full),
            1 => bucket.compact(Compact::LowSpace),
            _ => bucket.compact(Compact::Auto),
        }
        .unwrap();
        for taken in &taken {
            taken.check(keys.iter(), &format!("round {round}"));
        }
    }
    let latest = Taken::of(&bucket, &map);
    drop(taken);
    latest.check(keys.iter(), "alone");
    drop(latest);
    let changes = draw_changes(&mut rng, keys, 50, 300);
    commit(&bucket, &mut map, changes);
    fixture::assert_all(&bucket, &map, "without snapshots");
}

fn options() -> Options {
    Fixture::new().options
}

/// Every few commits what is in memory is merged into a new index.
#[test]
fn held_through_merges() {
    let keys: Vec<_> = (0..150).map(key).collect();
    for overlay_min in [1, 10, 60] {
        hold_through_rounds(options().overlay_min(overlay_min), &keys, 40, 1);
        let background = options().overlay_min(overlay_min).background(true);
        hold_through_rounds(background, &keys, 40, 2);
    }
}

/// Nothing is merged; what is in memory moves to larger places instead.
#[test]
fn held_while_the_overlay_grows() {
    let keys: Vec<_> = (0..6000).map(key).collect();
    hold_through_rounds(options().overlay_min(1 << 20), &keys, 12, 3);
    let fixture = Fixture::with(options().overlay_min(1 << 20));
    let (bucket, mut map) = (fixture.create(), Map::new());
    let mut taken = Vec::new();
    for round in 0..8_usize {
        taken.push(Taken::of(&bucket, &map));
        let of_round = |key: &Vec<u8>| Some(format!("{key:?} {round}").into_bytes());
        // Of those that are there every third changes, and as many are new.
        let from = round * 400;
        let old = keys[..from].iter().skip(round).step_by(3);
        let changes = old.chain(&keys[from..from + 400]).map(|key| (key.clone(), of_round(key)));
        commit(&bucket, &mut map, changes.collect());
    }
    taken.iter().for_each(|taken| taken.check(keys.iter().step_by(7), "grown"));
}

/// Buckets without directories, too.
#[test]
fn held_without_directories() {
    let keys: Vec<_> = (0..150).map(key).collect();
    hold_through_rounds(options().directories(false).overlay_min(20), &keys, 30, 4);
}

/// Keys of one hash, more than are kept beside each other in memory, so that the rest goes another
/// way.
#[test]
fn held_over_keys_of_one_hash() {
    collide::check();
    for groups in [1, 3] {
        let keys: Vec<_> = (0..60).map(|n| collide::colliding(n % groups, n)).collect();
        for overlay_min in [5, 1 << 20] {
            hold_through_rounds(options().overlay_min(overlay_min), &keys, 40, 5 + groups);
        }
    }
}

/// One key, written over and over: every snapshot has its own version, or none.
#[test]
fn many_snapshots_of_a_hot_key() {
    for overlay_min in [1, 8, 1 << 20] {
        let fixture = Fixture::with(options().overlay_min(overlay_min));
        let (bucket, mut map) = (fixture.create(), Map::new());
        let hot = b"hot".to_vec();
        let mut rng = Rng::with_seed(6);
        let mut taken = Vec::new();
        for version in 0..600_u32 {
            let value = (version % 5 > 0).then(|| version.to_le_bytes().to_vec());
            let mut changes = vec![(hot.clone(), value.clone())];
            if version % 7 == 0 {
                // Several times in one commit: what comes before the last is in no snapshot.
                changes.push((hot.clone(), Some(b"never".to_vec())));
                changes.push((hot.clone(), value));
                changes.push((key(rng.usize(..50)), Some(b"other".to_vec())));
            }
            commit(&bucket, &mut map, changes);
            // Not of every version there is a snapshot, of some there are two.
            for _ in 0..rng.usize(..3) {
                taken.push(Taken::of(&bucket, &map));
            }
        }
        rng.shuffle(&mut taken);
        while !taken.is_empty() {
            taken.truncate(taken.len() * 2 / 3);
            taken.iter().for_each(|taken| taken.check([&hot].into_iter(), "one of many"));
            commit(&bucket, &mut map, vec![(hot.clone(), Some(b"later".to_vec()))]);
        }
    }
}

/// Two snapshots of one commit are two: the second stays when the first is gone.
#[test]
fn two_of_one_commit() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    commit(&bucket, &mut map, vec![(key(1), Some(b"old".to_vec()))]);
    let (first, second) = (Taken::of(&bucket, &map), Taken::of(&bucket, &map));
    assert_eq!(first.snapshot.seqno(), second.snapshot.seqno());
    drop(first);
    for version in 0..3 {
        commit(&bucket, &mut map, vec![(key(1), Some(vec![version]))]);
        second.check([key(1)].iter(), "the second");
    }
}

#[test]
fn a_snapshot_of_nothing_stays_empty() {
    let fixture = Fixture::with(options().overlay_min(2));
    let (bucket, mut map) = (fixture.create(), Map::new());
    let empty = Taken::of(&bucket, &map);
    for n in 0..100 {
        commit(&bucket, &mut map, vec![(key(n % 30), Some(vec![7; 500]))]);
        empty.check([key(n % 30), key(99)].iter(), "nothing");
    }
    assert_eq!(empty.snapshot.scan("").rev().count(), 0);
}

/// Ranges, prefixes and values, as the bucket itself has them.
#[test]
fn a_snapshot_reads_like_the_bucket() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    for key in ["a", "b", "ba", "bb", "c"] {
        bucket.put(key, key).unwrap();
    }
    let snapshot = bucket.snapshot();
    let value = snapshot.get("bb").unwrap().unwrap();
    let row = snapshot.scan("ba").next().unwrap().unwrap();
    for key in ["b", "bb", "bc", "ba"] {
        assert!(snapshot.get(key).unwrap().is_some() || key == "bc");
        bucket.put(key, "new").unwrap();
    }
    bucket.delete("ba").unwrap();
    bucket.flush().unwrap();
    assert_eq!(value, "bb");
    assert_eq!((row.key(), row.value()), (&b"ba"[..], &b"ba"[..]));
    assert_eq!(keys(snapshot.scan("b")), ["b", "ba", "bb"]);
    assert_eq!(keys(snapshot.range("b".."bb")), ["b", "ba"]);
    assert_eq!(keys(bucket.scan("b")), ["b", "bb", "bc"]);
    let mut scan = snapshot.range("b"..);
    scan.seek("bab");
    assert_eq!(scan.next().unwrap().unwrap().key(), b"bb");
    scan.seek_back("bz");
    assert!(scan.next_back().is_none(), "the ends have met");
    assert!(row.seqno() <= snapshot.seqno() && snapshot.seqno() < bucket.snapshot().seqno());
}

/// Time stands still for a snapshot.
#[test]
fn deadlines_are_judged_by_the_time_it_was_taken() {
    for overlay_min in [1, 1 << 20] {
        let fixture = Fixture::with(options().overlay_min(overlay_min));
        let bucket = fixture.create();
        bucket.put_for("short", "value", Duration::from_secs(10)).unwrap();
        bucket.put_for("long", "value", Duration::from_secs(1000)).unwrap();
        bucket.put("under", "seen again by nobody").unwrap();
        bucket.put_for("under", "value", Duration::from_secs(10)).unwrap();
        let early = bucket.snapshot();
        fixture.env.set(START + 10 * SECOND - 1);
        let just_before = bucket.snapshot();
        fixture.env.set(START + 10 * SECOND);
        let just_then = bucket.snapshot();
        bucket.put_for("short", "again", Duration::from_secs(5)).unwrap();
        fixture.env.set(START + DAY);
        let late = bucket.snapshot();
        bucket.put("other", "value").unwrap();
        // An hour back: the bucket's clock does not follow, and no snapshot does anyway.
        fixture.env.set(START + DAY - 3600 * SECOND);
        bucket.flush().unwrap();
        for before in [&early, &just_before] {
            assert_eq!(keys(before.scan("")), ["long", "short", "under"]);
            assert_eq!(before.get("short").unwrap().as_deref(), Some(&b"value"[..]));
            assert!(before.exists("under").unwrap());
        }
        assert_eq!(keys(just_then.scan("")), ["long"]);
        assert!(!just_then.exists("short").unwrap() && !just_then.exists("under").unwrap());
        assert_eq!(late.scan("").count(), 0);
        assert!(late.get("long").unwrap().is_none());
        assert_eq!(keys(bucket.scan("")), ["other"]);
    }
}

#[test]
fn a_snapshot_of_a_reader() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    for n in 0..200 {
        let value = (n % 3 > 0).then(|| vec![7; 200]);
        commit(&bucket, &mut map, vec![(key(n % 70), value)]);
    }
    let taken = Taken { snapshot: fixture.read_only(), map };
    taken.check((0..80).map(key).collect::<Vec<_>>().iter(), "a reader");
    assert_eq!(taken.snapshot.seqno(), bucket.snapshot().seqno());
}

/// After a kill many segments are newer than the index, and are taken in while the bucket is in
/// use.
#[test]
fn held_while_runs_are_folded_in() {
    const COUNT: u32 = 120_000;
    let quick = Options::default().durability(Durability::Relaxed).overlay_min(1 << 20);
    let fixture = Fixture::with(quick.clone().background(false));
    let bucket = fixture.create();
    for first in (0..COUNT).step_by(5000) {
        let mut batch = Batch::new();
        for n in first..first + 5000 {
            batch.put((n % 115_000).to_be_bytes(), [1]);
        }
        bucket.commit(batch).unwrap();
    }
    let image = fixture.disk.to_bytes();
    drop(bucket);
    for background in [true, false] {
        let disk = Arc::new(MemoryDisk::from_bytes(image.clone()));
        let options = quick.clone().background(background);
        let bucket = Bucket::open_on(disk, Arc::new(SystemEnv), options).unwrap();
        assert!(bucket.mount_report().runs > 4, "{:?}", bucket.mount_report());
        let before = bucket.snapshot();
        let mut batch = Batch::new();
        for n in (0..115_000_u32).step_by(7) {
            match n % 2 {
                0 => batch.put(n.to_be_bytes(), [2]),
                _ => batch.delete(n.to_be_bytes()),
            };
        }
        bucket.commit(batch).unwrap();
        let after = bucket.snapshot();
        let value = |n: u32| match (n % 7, n % 2) {
            (0, 0) => Some([2]),
            (0, _) => None,
            _ => Some([1]),
        };
        let check = || {
            for n in (0..115_000_u32).step_by(5) {
                let found = before.get(n.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&[1][..]), "key {n} before");
                let found = after.get(n.to_be_bytes()).unwrap();
                let expected = value(n);
                assert_eq!(found.as_deref(), expected.as_ref().map(|value| &value[..]), "key {n}");
            }
        };
        check();
        assert_eq!(before.scan("").count(), 115_000);
        // Takes in what was left.
        bucket.stats().unwrap();
        for n in (0..115_000_u32).step_by(7) {
            bucket.delete(n.to_be_bytes()).unwrap();
        }
        bucket.flush().unwrap();
        check();
        assert_eq!(before.scan("").count(), 115_000);
        let live = (0..115_000).filter(|n| value(*n).is_some()).count();
        assert_eq!(after.scan("").rev().count(), live);
    }
}

/// A damaged page of the index costs time, also where a snapshot has nothing else to go by.
#[test]
fn a_damaged_index_takes_nothing_from_a_snapshot() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    for n in 0..300 {
        let value = (n % 4 > 0).then(|| vec![7; 100]);
        commit(&bucket, &mut map, vec![(key(n % 90), value)]);
    }
    bucket.close().unwrap();
    let mut bytes = fixture.disk.to_bytes();
    let superblock = Superblock::decode(&bytes).unwrap();
    let first = usize::try_from(superblock.index_region_start_page.get()).unwrap();
    for page in 0..usize::try_from(superblock.index_region_page_count.get()).unwrap() {
        bytes[(first + page) * 4096 + 1000] ^= 1;
    }
    let all: Vec<_> = (0..100).map(key).collect();
    let reader = Taken { snapshot: read_only(bytes.clone()), map: map.clone() };
    reader.check(all.iter(), "read only");
    let damaged = Fixture { disk: MemoryDisk::from_bytes(bytes), ..Fixture::new() };
    let bucket = damaged.open();
    let taken = Taken::of(&bucket, &map);
    for n in 0..100 {
        commit(&bucket, &mut map, vec![(key(n), (n % 2 > 0).then(|| b"new".to_vec()))]);
    }
    taken.check(all.iter(), "before anybody else noticed");
    // A lookup of the bucket makes it a new one.
    assert!(bucket.get(key(1)).unwrap().is_some());
    assert!(!bucket.exists(key(500)).unwrap());
    bucket.flush().unwrap();
    taken.check(all.iter(), "afterwards");
    Taken::of(&bucket, &map).check(all.iter(), "a new one");
}

/// Index images in the file.
fn images(file: &[u8]) -> usize {
    let is_image = |start: usize| {
        let head = &file[start + meta::OFFSET..start + meta::OFFSET + MetaHead::SIZE];
        head[..4] == meta::MAGIC.to_le_bytes() && head[4..6] == meta::KIND_IMAGE.to_le_bytes()
    };
    let extents = anatomy::extents(file);
    extents.iter().filter(|found| found.is(Kind::Meta) && is_image(found.bytes.start)).count()
}

/// What only snapshots need is kept for them, and not longer.
#[test]
fn space_comes_back_when_snapshots_are_dropped() {
    let fixture = Fixture::with(options().overlay_min(20));
    let (bucket, mut map) = (fixture.create(), Map::new());
    let mut taken = Vec::new();
    let change = |map: &mut Map, from: usize| {
        let changes = (from..from + 40).map(|n| (key(n % 300), Some(n.to_le_bytes().to_vec())));
        commit(&bucket, map, changes.collect());
        bucket.flush().unwrap();
    };
    for round in 0..10 {
        change(&mut map, round * 37);
        taken.push(Taken::of(&bucket, &map));
    }
    let all: Vec<_> = (0..300).map(key).collect();
    taken.iter().for_each(|taken| taken.check(all.iter(), "held"));
    let held = images(&fixture.disk.to_bytes());
    assert!(held >= taken.len(), "{held} images for {} snapshots", taken.len());
    let free_before = bucket.stats().unwrap().free_bytes;
    // One is left: one more image than without.
    let last = taken.swap_remove(4);
    drop(taken);
    change(&mut map, 0);
    change(&mut map, 40);
    last.check(all.iter(), "the last");
    assert_eq!(images(&fixture.disk.to_bytes()), 2);
    assert!(bucket.stats().unwrap().free_bytes > free_before);
    drop(last);
    change(&mut map, 80);
    change(&mut map, 120);
    assert_eq!(images(&fixture.disk.to_bytes()), 1);
    // The file does not grow by merges that nobody holds on to.
    let len = fixture.disk.to_bytes().len();
    for round in 0..10 {
        let _brief = bucket.snapshot();
        change(&mut map, round);
    }
    let grown = fixture.disk.to_bytes().len() - len;
    assert!(grown <= 256 << 10, "{grown} bytes more");
}

/// A snapshot shares its overlay with commits that came after it, until that is merged, and so needs
/// their segments as well. Those of a batch larger than a segment were not held: when all in them had
/// been replaced, compaction gave them up, and the snapshot's lookups met nothing.
#[test]
fn segments_of_a_large_batch_stay_as_long_as_a_snapshot_leads_to_them() {
    let fixture = Fixture::with(options().overlay_min(1 << 20));
    let (bucket, mut map) = (fixture.create(), Map::new());
    let all: Vec<_> = (0..100).map(key).collect();
    let of = |byte: u8| all.iter().map(|key| (key.clone(), Some(vec![byte; 600]))).collect();
    commit(&bucket, &mut map, of(1));
    let taken = Taken::of(&bucket, &map);
    // Into the overlay that the snapshot has; then into another.
    commit(&bucket, &mut map, of(2));
    bucket.flush().unwrap();
    commit(&bucket, &mut map, of(3));
    bucket.flush().unwrap();
    let before = bucket.stats().unwrap().segments;
    bucket.compact(Compact::Full).unwrap();
    assert!(bucket.stats().unwrap().segments < before, "nothing was given up");
    // What was free is written to.
    commit(&bucket, &mut map, of(4));
    bucket.flush().unwrap();
    taken.check(all.iter(), "compacted");
    drop(taken);
    Taken::of(&bucket, &map).check(all.iter(), "a new one");
}

/// Accounts of one writer.
const ACCOUNTS: u64 = 40;
/// What they hold together.
const TOTAL: u64 = ACCOUNTS * 1000;

fn account(writer: u64, n: u64) -> Vec<u8> {
    format!("writer {writer} account {n:02}").into_bytes()
}

/// The same, all under one hash.
fn colliding_account(writer: u64, n: u64) -> Vec<u8> {
    collide::colliding(0, writer * 1000 + n)
}

type Account = fn(u64, u64) -> Vec<u8>;

/// Moves amounts between its own accounts, so that their sum is the same after every commit. An
/// account without money is deleted.
fn transfer(bucket: &Bucket, account: Account, writer: u64, commits: u64, rng: &mut Rng) {
    let mut balances = vec![1000; usize::try_from(ACCOUNTS).unwrap()];
    for commit in 0..=commits {
        let mut changed: Vec<usize> = (0..balances.len()).collect();
        if commit > 0 {
            rng.shuffle(&mut changed);
            changed.truncate(*rng.choice(&[2, 5, 40]).unwrap());
            for pair in changed.windows(2) {
                let amount = rng.u64(..=balances[pair[0]]);
                balances[pair[0]] -= amount;
                balances[pair[1]] += amount;
            }
        }
        // Some commits are larger than a segment.
        let padding = if rng.u8(..10) == 0 { 700 } else { 8 };
        let mut batch = Batch::new();
        for at in changed {
            let (key, balance) = (account(writer, u64::try_from(at).unwrap()), balances[at]);
            match balance {
                0 => batch.delete(key),
                _ => batch.put(key, [&balance.to_le_bytes()[..], &vec![0; padding]].concat()),
            };
        }
        bucket.commit(batch).unwrap();
    }
}

fn balance(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// The sum of all balances of the accounts of all writers by a scan, and of each writer by lookups.
fn check_sums(snapshot: &Snapshot<'_>, account: Account, writers: u64) -> Vec<Vec<u64>> {
    let all: u64 = snapshot.scan("").map(|row| balance(row.unwrap().value())).sum();
    let back: u64 = snapshot.scan("").rev().map(|row| balance(row.unwrap().value())).sum();
    let balances: Vec<Vec<u64>> = (0..writers)
        .map(|writer| {
            let of =
                |n| snapshot.get(account(writer, n)).unwrap().map_or(0, |found| balance(&found));
            (0..ACCOUNTS).map(of).collect()
        })
        .collect();
    let seqno = snapshot.seqno();
    for (writer, balances) in balances.iter().enumerate() {
        let sum: u64 = balances.iter().sum();
        assert_eq!(sum, TOTAL, "lookups at {seqno}, writer {writer}");
    }
    assert_eq!((all, back), (TOTAL * writers, TOTAL * writers), "scans at {seqno}");
    balances
}

/// Tells everyone that the writers are done, also if one of them panicked.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Readers take snapshots while amounts are moved, and look again later at those they kept.
fn sums_hold(options: Options, account: Account, commits: u64, seed: u64) {
    const WRITERS: u64 = 2;
    let disk = Arc::new(MemoryDisk::with_capacity(1 << 30));
    let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), options).unwrap();
    // From the first commit of each on the sums are right.
    (0..WRITERS).for_each(|writer| transfer(&bucket, account, writer, 0, &mut Rng::with_seed(0)));
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (bucket, done, reads) = (&bucket, &done, &reads);
        for reader in 0..2 {
            let mut rng = Rng::with_seed(seed ^ reader);
            scope.spawn(move || {
                let mut kept: Vec<(Snapshot<'_>, Vec<Vec<u64>>)> = Vec::new();
                while !done.load(Ordering::Acquire) {
                    if kept.len() > 3 {
                        kept.swap_remove(rng.usize(..kept.len()));
                    }
                    let snapshot = bucket.snapshot();
                    let balances = check_sums(&snapshot, account, WRITERS);
                    kept.push((snapshot, balances));
                    let (snapshot, balances) = &kept[rng.usize(..kept.len())];
                    assert_eq!(&check_sums(snapshot, account, WRITERS), balances, "later");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                // Whatever came since.
                for (snapshot, balances) in &kept {
                    assert_eq!(&check_sums(snapshot, account, WRITERS), balances, "at the end");
                }
            });
        }
        let _done = Done(done);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let mut rng = Rng::with_seed(seed.wrapping_add(writer));
                scope.spawn(move || transfer(bucket, account, writer, commits, &mut rng));
            }
        });
    });
    assert!(reads.load(Ordering::Relaxed) > 10, "the readers hardly came to read");
    check_sums(&bucket.snapshot(), account, WRITERS);
}

/// Small, so that segments are sealed and the index merged all the time.
fn busy() -> Options {
    options().overlay_min(30)
}

#[test]
fn sums_hold_while_amounts_move() {
    let seed = seed::seed("sums_hold_while_amounts_move");
    watch::within(LIMIT, "sums_hold_while_amounts_move", move || {
        let commits = 1200 * seed::rounds();
        sums_hold(busy().background(true), account, commits, seed);
        sums_hold(busy().background(true).overlay_min(1 << 20), account, commits, !seed);
        sums_hold(busy().background(true).directories(false), account, commits, seed >> 1);
    });
}

#[test]
fn sums_hold_without_background_threads() {
    let seed = seed::seed("sums_hold_without_background_threads");
    watch::within(LIMIT, "sums_hold_without_background_threads", move || {
        sums_hold(busy(), account, 1200 * seed::rounds(), seed);
    });
}

/// The accounts of all writers have one hash.
#[test]
fn sums_hold_over_keys_of_one_hash() {
    collide::check();
    let seed = seed::seed("sums_hold_over_keys_of_one_hash");
    watch::within(LIMIT, "sums_hold_over_keys_of_one_hash", move || {
        let commits = 500 * seed::rounds();
        sums_hold(busy().background(true), colliding_account, commits, seed);
        sums_hold(busy().overlay_min(1 << 20), colliding_account, commits, !seed);
    });
}
