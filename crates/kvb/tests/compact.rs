//! Compaction: space comes back, nothing is lost, nothing comes back from the dead.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/seed.rs"]
mod seed;
#[path = "support/watch.rs"]
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use host::{Disk, ManualEnv, MemoryDisk, SimDisk, SystemEnv};
use kvb::{Batch, Bucket, Compact, Durability, Error, Options};

const LIMIT: Duration = Duration::from_secs(300);

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(background: bool) -> Options {
    Options::default()
        .segment_bytes_max(16 << 10)
        .durability(Durability::Relaxed)
        .background(background)
        .overlay_min(64)
}

fn check(bucket: &Bucket, model: &Model) {
    let rows: Vec<(Vec<u8>, Vec<u8>)> = bucket
        .scan(b"")
        .map(|row| {
            let row = row.unwrap();
            (row.key().to_vec(), row.value().to_vec())
        })
        .collect();
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(rows.len(), expected.len());
    assert!(rows == expected);
    for (key, value) in model {
        assert_eq!(bucket.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
}

fn step(rng: &mut Rng, bucket: &Bucket, model: &mut Model, keys: usize) {
    let mut batch = Batch::new();
    for _ in 0..rng.usize(1..40) {
        let key = format!("key{:05}", rng.usize(0..keys)).into_bytes();
        if rng.u8(..4) == 0 {
            batch.delete(&key);
            model.remove(&key);
        } else {
            let value = vec![rng.u8(..); rng.usize(0..200)];
            batch.put(&key, &value);
            model.insert(key, value);
        }
    }
    bucket.commit(batch).unwrap();
}

fn churn(background: bool, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let disk = MemoryDisk::new();
    let env = Arc::new(ManualEnv::new(1_700_000_000_000_000_000, seed));
    let mut bucket =
        Bucket::create_on(Arc::new(disk.reopen()), env.clone(), options(background)).unwrap();
    let mut model = Model::new();
    let keys = rng.usize(50..3000);
    for round in 0..600 {
        step(&mut rng, &bucket, &mut model, keys);
        match rng.u8(..60) {
            0 => {
                bucket.compact(Compact::Auto).unwrap();
            }
            1 => {
                bucket.compact(Compact::Full).unwrap();
            }
            2 => {
                bucket.compact(Compact::LowSpace).unwrap();
            }
            3 => {
                bucket.close().unwrap();
                bucket = Bucket::open_on(Arc::new(disk.reopen()), env.clone(), options(background))
                    .unwrap();
            }
            4 => {
                // As after a kill.
                let copy = MemoryDisk::from_bytes(disk.to_bytes());
                let copy =
                    Bucket::open_on(Arc::new(copy), env.clone(), options(background)).unwrap();
                check(&copy, &model);
                copy.compact(Compact::Full).unwrap();
                check(&copy, &model);
            }
            _ => {}
        }
        if round % 50 == 0 {
            check(&bucket, &model);
        }
    }
    check(&bucket, &model);
    bucket.compact(Compact::Full).unwrap();
    check(&bucket, &model);
}

#[test]
fn churn_alone() {
    let base = seed::seed("churn_alone");
    watch::within(LIMIT, "churn_alone", move || {
        for round in 0..6 * seed::rounds() {
            churn(false, base.wrapping_add(round));
        }
    });
}

#[test]
fn churn_in_background() {
    let base = seed::seed("churn_in_background");
    watch::within(LIMIT, "churn_in_background", move || {
        for round in 0..6 * seed::rounds() {
            churn(true, base.wrapping_add(round));
        }
    });
}

/// A disk that is full, with keys deleted since: compaction gives space back and puts go on.
#[test]
fn a_full_disk_is_made_room_on() {
    for kind in [Compact::Auto, Compact::LowSpace] {
        let disk = SimDisk::new();
        let env = Arc::new(ManualEnv::new(1_700_000_000_000_000_000, 5));
        let options = options(false).overlay_min(100_000);
        let bucket = Bucket::create_on(Arc::new(disk.clone()), env, options).unwrap();
        let key = |index: u32| format!("key{index:05}").into_bytes();
        let mut count = 0;
        while count < 3000 {
            bucket.put(key(count), vec![7; 300]).unwrap();
            count += 1;
        }
        bucket.flush().unwrap();
        disk.set_capacity(Some(disk.len().unwrap()));
        while bucket.put(key(count), vec![7; 300]).is_ok() {
            count += 1;
        }
        for index in (0..count).filter(|index| index % 4 != 0) {
            if bucket.delete(key(index)).is_err() {
                let done = bucket.compact(kind).unwrap();
                let stats = bucket.stats().unwrap();
                let deleted = bucket.delete(key(index));
                assert!(
                    deleted.is_ok(),
                    "{kind:?}: no room to delete {index} of {count}: {done:?} {stats:?}"
                );
            }
        }
        bucket.compact(kind).unwrap();
        for index in 0..count / 4 {
            if bucket.put(key(100_000 + index), vec![8; 300]).is_err() {
                let done = bucket.compact(kind).unwrap();
                let stats = bucket.stats().unwrap();
                let put = bucket.put(key(100_000 + index), vec![8; 300]);
                assert!(
                    put.is_ok(),
                    "{kind:?}: no room to put {index} of {count}: {done:?} {stats:?}"
                );
            }
        }
        for index in 0..count {
            let there = bucket.exists(key(index)).unwrap();
            assert_eq!(there, index % 4 == 0, "{kind:?}: key {index} of {count}");
        }
    }
}

fn scattered(n: u64) -> Vec<u8> {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec()
}

fn load(bucket: &Bucket, keys: std::ops::Range<u64>, value: &[u8]) {
    let mut batch = Batch::new();
    for n in keys {
        batch.put(scattered(n), value);
        if batch.len() == 100 {
            bucket.commit(std::mem::take(&mut batch)).unwrap();
        }
    }
    bucket.commit(batch).unwrap();
}

/// A compaction that was asked for and found nothing to do leaves nobody waiting.
#[test]
fn commits_do_not_wait_for_a_compaction_that_is_over() {
    watch::within(LIMIT, "commits_do_not_wait_for_a_compaction_that_is_over", || {
        let options = Options::default().durability(Durability::Relaxed);
        let bucket =
            Bucket::create_on(Arc::new(MemoryDisk::new()), Arc::new(SystemEnv), options).unwrap();
        load(&bucket, 0..60_000, &[7; 100]);
        load(&bucket, 0..8_000, &[8; 100]);
        bucket.compact(Compact::Auto).unwrap();
        let start = Instant::now();
        load(&bucket, 100_000..150_000, &[9; 100]);
        let time = start.elapsed();
        // Waiting, each of 500 commits would take 4 ms.
        assert!(time < Duration::from_millis(1500), "{time:?}");
    });
}

/// A record larger than a segment has one of its own, but for what fits behind it. When it is replaced its space comes
/// back all the same.
#[test]
fn what_shares_a_segment_with_a_large_record_does_not_keep_it() {
    for background in [false, true] {
        let options = options(background).segment_bytes_max(64 << 10);
        let bucket =
            Bucket::create_on(Arc::new(MemoryDisk::new()), Arc::new(SystemEnv), options).unwrap();
        let mut model = Model::new();
        for n in 0..40 {
            let mut batch = Batch::new();
            let (large, small) = (format!("large{n:03}"), format!("small{n:03}"));
            batch.put(&large, vec![n; 96 << 10]).put(&small, [n; 8]);
            bucket.commit(batch).unwrap();
            model.insert(large.into_bytes(), b"gone".to_vec());
            model.insert(small.into_bytes(), vec![n; 8]);
        }
        for n in 0..40 {
            bucket.put(format!("large{n:03}"), "gone").unwrap();
        }
        bucket.compact(Compact::Full).unwrap();
        check(&bucket, &model);
        let stats = bucket.stats().unwrap();
        assert!(stats.bytes_log < 64 << 10, "{stats:?}");
    }
}

/// Whoever scans a bucket on a disk that is nearly full asks for order, and there is no room for that. It must not cost what
/// compaction needs to make room.
#[test]
fn order_does_not_fill_the_disk() {
    watch::within(LIMIT, "order_does_not_fill_the_disk", || {
        let disk = SimDisk::with_region(Vec::new(), 64 << 20);
        let options = Options::default().durability(Durability::Relaxed);
        let options = options.segment_bytes_max(256 << 10).overlay_min(4096);
        let bucket =
            Bucket::create_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options).unwrap();
        disk.set_capacity(Some(16 << 20));
        let mut count = 0;
        let mut refused = 0;
        while refused < 20 {
            match bucket.put(scattered(count), [7; 200]) {
                Ok(()) => count += 1,
                Err(Error::NoSpace) => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
        for _ in 0..20 {
            assert_eq!(u64::try_from(bucket.scan("").count()).unwrap(), count);
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut refused = 0;
        for n in (0..count).step_by(2) {
            while let Err(error) = bucket.delete(scattered(n)) {
                assert!(matches!(error, Error::NoSpace), "{error}");
                refused += 1;
                assert!(refused < 200, "{n} of {count} deleted: {:?}", bucket.stats());
                let done = bucket.compact(Compact::LowSpace);
                assert!(matches!(done, Ok(_) | Err(Error::NoSpace)), "{done:?}");
            }
        }
        assert_eq!(u64::try_from(bucket.scan("").count()).unwrap(), count / 2);
        let done = bucket.compact(Compact::LowSpace);
        assert!(matches!(done, Ok(_) | Err(Error::NoSpace)), "{done:?}");
        let (mut added, mut refused, mut is_rescued) = (0, 0, false);
        while refused < 3 {
            if bucket.put(format!("later {added}"), [8; 200]).is_ok() {
                added += 1;
                refused = 0;
            } else {
                refused += 1;
                // Threads that take room from each other may leave it where no image fits.
                if refused == 3 && added <= count / 12 && !is_rescued {
                    disk.set_capacity(Some(18 << 20));
                    (refused, is_rescued) = (0, true);
                }
                let done = bucket.compact(Compact::LowSpace);
                assert!(matches!(done, Ok(_) | Err(Error::NoSpace)), "{done:?}");
            }
        }
        assert!(
            added > count / 12,
            "room for {added} after {count} became half: {:?}",
            bucket.stats()
        );
    });
}

/// Whoever grants more room for what is dead has less copied.
#[test]
fn slack_is_room_for_less_copying() {
    let churn = |slack| {
        let options = options(false).slack(slack).overlay_min(2048).segment_bytes_max(64 << 10);
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), options).unwrap();
        load(&bucket, 0..20_000, &[7; 100]);
        let mut rng = Rng::with_seed(1);
        let mut most = 0;
        for _ in 0..4000 {
            let mut batch = Batch::new();
            for _ in 0..50 {
                batch.put(scattered(rng.u64(..20_000)), [rng.u8(..); 100]);
            }
            bucket.commit(batch).unwrap();
            most = most.max(bucket.stats().unwrap().bytes_log);
        }
        let live = 20_000 * (48 + 8 + 100);
        assert!(most < live * u64::from(100 + slack + 30) / 100, "{most} of {live} at {slack}");
        bucket.stats().unwrap().bytes_moved
    };
    let (little, much) = (churn(36), churn(200));
    assert!(much * 3 < little, "moved {little} bytes, and with room {much}");
}

/// A scan asks for order among what there is, not among all that will ever come.
#[test]
fn order_is_made_once_for_a_scan() {
    watch::within(LIMIT, "order_is_made_once_for_a_scan", || {
        let options = options(true).overlay_min(4096).segment_bytes_max(32 << 10);
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), options).unwrap();
        load(&bucket, 0..20_000, &[7; 100]);
        let there = bucket.stats().unwrap().bytes_log;
        assert_eq!(bucket.scan("").count(), 20_000);
        load(&bucket, 20_000..400_000, &[7; 100]);
        std::thread::sleep(Duration::from_millis(300));
        let moved = bucket.stats().unwrap().bytes_moved;
        // Once per doubling of a level, and what was written while it began.
        assert!(moved < there * 8, "moved {moved} bytes, {there} were there");
    });
}

#[test]
fn slack_has_bounds() {
    for slack in [0, 35, 401] {
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let made = Bucket::create_on(disk, Arc::new(SystemEnv), options(false).slack(slack));
        assert!(matches!(made, Err(Error::Invalid(_))), "{slack}");
    }
}

/// Blocks of freed segments stay for what is written next, but not for longer than the bucket is open.
#[cfg(target_os = "linux")]
#[test]
fn blocks_of_free_space_go_back_when_the_bucket_closes() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let blocks = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let options = Options::default().durability(Durability::Relaxed).background(false);
    let bucket = Bucket::create(&path, options.clone()).unwrap();
    let mut taken_most = 0;
    for round in 0..20_u8 {
        for key in 0..4_000_u32 {
            if key % 4 == 0 || round == 0 {
                bucket.put(key.to_le_bytes(), [round; 500]).unwrap();
            }
        }
        taken_most = taken_most.max(blocks());
    }
    bucket.flush().unwrap();
    let open = blocks();
    let stats = bucket.stats().unwrap();
    bucket.close().unwrap();
    let closed = blocks();
    let least = stats.segment_bytes + stats.index_bytes;
    assert!(closed < open, "{closed} bytes of blocks closed, {open} open");
    assert!(closed >= least, "{closed} bytes of blocks for {least}");
    // What is overwritten all the time does not make the file grow without end.
    assert!(taken_most < 3 * least, "{taken_most} bytes of blocks for {least}");
    let bucket = Bucket::open(&path, options).unwrap();
    for key in 0..4_000_u32 {
        let round = if key % 4 == 0 { 19 } else { 0 };
        assert_eq!(bucket.get(key.to_le_bytes()).unwrap().unwrap()[..], [round; 500]);
    }
}

/// Neither what the file once grew by nor what is ready for the log takes much then. What is written next has blocks all the same.
#[cfg(target_os = "linux")]
#[test]
fn a_full_compaction_leaves_few_blocks_that_nobody_needs() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let blocks = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let options = Options::default().durability(Durability::Relaxed).background(false);
    let bucket = Bucket::create(&path, options.clone()).unwrap();
    let write = |bucket: &Bucket, keys: std::ops::Range<u32>, with: u8| {
        for first in keys.clone().step_by(1000) {
            let mut batch = Batch::new();
            for key in first..keys.end.min(first + 1000) {
                batch.put(key.to_le_bytes(), [with; 150]);
            }
            bucket.commit(batch).unwrap();
        }
    };
    for with in 0..4 {
        write(&bucket, 0..60_000, with);
    }
    bucket.compact(Compact::Full).unwrap();
    let stats = bucket.stats().unwrap();
    // With the index there is room for the next one.
    let needed = stats.segment_bytes + 2 * stats.index_bytes;
    let taken = blocks();
    assert!(taken <= needed + needed / 20, "{taken} bytes of blocks for {needed}: {stats:?}");
    write(&bucket, 60_000..120_000, 9);
    bucket.close().unwrap();
    assert!(kvb::verify(&path, options.clone(), &mut |_| {}).unwrap().is_sound());
    let bucket = Bucket::open(&path, options).unwrap();
    for key in 0..120_000_u32 {
        let with = if key < 60_000 { 3 } else { 9 };
        assert_eq!(bucket.get(key.to_le_bytes()).unwrap().unwrap()[..], [with; 150]);
    }
}
