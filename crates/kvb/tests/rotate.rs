//! Rotating keys: while the bucket is in use, after crashes, with readers that hold on to what was there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/anatomy.rs"]
mod anatomy;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use host::{Disk, Env, Keep, ManualEnv, SimDisk};
use kvb::{Batch, Bucket, Compression, Durability, Error, Key, Keyring, Options, Reader, Severity};

const START_NS: u64 = 1_700_000_000_000_000_000;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn quiet(_: kvb::Progress) {}

fn key(id: u8) -> Key {
    Key::new([id; 32])
}

fn env(seed: u64) -> Arc<dyn Env> {
    Arc::new(ManualEnv::new(START_NS, seed))
}

fn options() -> Options {
    Options::default()
        .background(false)
        .durability(Durability::SyncOnce)
        .overlay_min(32)
        .segment_bytes_max(16 << 10)
        .compression(Compression::Zstd)
        .encrypted(1)
        .keys(Keyring::new().with(1, key(1)).with(2, key(2)).with(3, key(3)))
}

fn with(keys: Keyring) -> Options {
    Options::default().background(false).keys(keys)
}

fn fill(bucket: &Bucket, from: usize, to: usize, rows: &mut Rows) {
    for number in from..to {
        let mut batch = Batch::new();
        let key = format!("key {:04}", number % 150).into_bytes();
        let value = format!("secret value {number} ").repeat(number % 20).into_bytes();
        batch.put(&key, &value);
        rows.insert(key, value);
        if number % 7 == 0 {
            let gone = format!("key {:04}", (number / 2) % 150).into_bytes();
            batch.delete(&gone);
            rows.remove(&gone);
        }
        bucket.commit(batch).unwrap();
    }
}

fn rows(bucket: &Bucket) -> Rows {
    let rows = bucket.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

fn check_sound(disk: &SimDisk, keys: Keyring, context: &str) {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::from_image(disk.to_bytes()));
    let found = kvb::verify_on(disk, env(9), with(keys), &mut quiet).unwrap();
    let is_fine = |finding: &kvb::Finding| {
        finding.severity == Severity::Notice || finding.what == kvb::What::Superblock
    };
    assert!(found.findings.iter().all(is_fine), "{context}: {found:?}");
}

#[test]
fn a_rotation_leaves_nothing_under_the_old_key() {
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(1), options()).unwrap();
    let mut wanted = Rows::new();
    fill(&bucket, 0, 300, &mut wanted);
    bucket.train_dictionary(512).unwrap();
    fill(&bucket, 300, 500, &mut wanted);
    bucket.flush().unwrap();
    let before = disk.to_bytes();
    let done = bucket.rotate_key(2).unwrap();
    assert!(done.is_complete && done.segments > 0, "{done:?}");
    assert_eq!(rows(&bucket), wanted);
    fill(&bucket, 500, 520, &mut wanted);
    bucket.close().unwrap();
    let after = disk.to_bytes();
    // No sixteen bytes of what was encrypted before are left anywhere.
    let there: HashSet<&[u8]> = after.windows(16).collect();
    let sealed = sealed_parts(&before);
    let left = sealed.iter().flat_map(|part| part.chunks_exact(16));
    let left = left.filter(|chunk| there.contains(chunk)).count();
    assert_eq!(left, 0, "ciphertext of the old key is still there");
    // The old key alone opens nothing, the new one all.
    let image: Arc<dyn Disk> = Arc::new(SimDisk::from_image(after.clone()));
    let refused = Bucket::open_on(image, env(2), with(Keyring::new().with(1, key(1))));
    assert!(matches!(refused, Err(Error::KeyMissing { id: 2 })), "{refused:?}");
    let image: Arc<dyn Disk> = Arc::new(SimDisk::from_image(after));
    let bucket = Bucket::open_on(image, env(2), with(Keyring::new().with(2, key(2)))).unwrap();
    assert_eq!(rows(&bucket), wanted);
    check_sound(&disk, Keyring::new().with(2, key(2)), "rotated");
}

/// The encrypted parts of all records of a file.
fn sealed_parts(file: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    for extent in anatomy::extents(file) {
        if extent.is(kvb::format::segment::Kind::Data) {
            let mut at = extent.bytes.start + usize::try_from(extent.header.records_at()).unwrap();
            while let Some(record) =
                kvb::format::record::Framed::decode(&file[at..extent.bytes.end])
            {
                at += usize::try_from(record.header.record_len()).unwrap();
                records.push([record.body, record.tag].concat());
            }
        }
    }
    records
}

#[test]
fn power_loss_at_every_operation_of_a_rotation() {
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(1), options()).unwrap();
    let mut wanted = Rows::new();
    fill(&bucket, 0, 120, &mut wanted);
    bucket.close().unwrap();
    let disk = SimDisk::from_image(disk.to_bytes());
    let bucket = Bucket::open_on(Arc::new(disk.reopen()), env(2), options()).unwrap();
    // So that something under the old key is free already when it begins.
    for number in 0..40 {
        bucket.put(format!("key {number:03}"), vec![b'x'; 300]).unwrap();
        wanted.insert(format!("key {number:03}").into_bytes(), vec![b'x'; 300]);
    }
    bucket.compact(kvb::Compact::Full).unwrap();
    let before = sealed_parts(&disk.to_bytes());
    let before: HashSet<&[u8]> = before.iter().map(|part| &part[..16]).collect();
    let begun = disk.trace().len();
    bucket.rotate_key(2).unwrap();
    drop(bucket);
    let trace = disk.trace();
    let mut points = trace.points();
    let mut count = 0;
    while let Some(point) = points.advance() {
        if point.upto() < begun {
            continue;
        }
        for keep in [Keep::All, Keep::None, Keep::Random(u64::try_from(point.upto()).unwrap())] {
            let image = SimDisk::from_image(point.image(keep));
            let context = format!("operation {} {keep:?}", point.upto());
            let all = || Keyring::new().with(1, key(1)).with(2, key(2));
            check_sound(&image, all(), &context);
            let opened = Bucket::open_on(Arc::new(image.reopen()), env(3), with(all()));
            let bucket = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(rows(&bucket) == wanted, "{context}");
            // It can always be brought to its end.
            let done = bucket.rotate_key(2).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(done.is_complete, "{context}");
            assert!(rows(&bucket) == wanted, "{context}: rotated");
            bucket.close().unwrap();
            check_sound(&image, Keyring::new().with(2, key(2)), &context);
            if keep == Keep::All {
                let is_left = image.to_bytes().windows(16).any(|bytes| before.contains(bytes));
                assert!(!is_left, "{context}: ciphertext of the old key is still there");
            }
            count += 1;
        }
    }
    println!("{count} images");
}

#[test]
fn whoever_reads_the_old_segments_keeps_the_old_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let bucket = Bucket::create(&path, options()).unwrap();
    let mut wanted = Rows::new();
    fill(&bucket, 0, 300, &mut wanted);
    let before = wanted.clone();
    let snapshot = bucket.snapshot();
    let done = bucket.rotate_key(2).unwrap();
    assert!(!done.is_complete);
    let other = bucket.rotate_key(3);
    assert!(matches!(other, Err(Error::Invalid(_))), "{other:?}");
    fill(&bucket, 300, 350, &mut wanted);
    let seen: Rows = snapshot
        .scan(b"")
        .map(|row| row.unwrap())
        .map(|row| (row.key().to_vec(), row.value().to_vec()))
        .collect();
    assert_eq!(seen, before);
    drop(snapshot);
    assert!(bucket.rotate_key(2).unwrap().is_complete);
    assert!(bucket.rotate_key(3).unwrap().is_complete);
    assert_eq!(rows(&bucket), wanted);
    bucket.close().unwrap();
    let reader = Reader::open_with(&path, with(Keyring::new().with(3, key(3)))).unwrap();
    assert_eq!(reader.snapshot().unwrap().scan(b"").count(), wanted.len());
}

#[test]
fn the_bucket_is_in_use_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let options = options().background(true).segment_bytes_max(64 << 10);
    let bucket = Bucket::create(dir.path().join("bucket.kvb"), options).unwrap();
    let mut wanted = Rows::new();
    fill(&bucket, 0, 2000, &mut wanted);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 0_u64;
            while !is_done.load(std::sync::atomic::Ordering::Acquire) {
                bucket.put(format!("new {number}"), b"while rotating").unwrap();
                number += 1;
            }
            number
        });
        let reader = scope.spawn(|| {
            while !is_done.load(std::sync::atomic::Ordering::Acquire) {
                for (key, value) in wanted.iter().take(50) {
                    assert_eq!(bucket.get(key).unwrap().as_deref(), Some(value.as_slice()));
                }
            }
        });
        for id in [2, 3, 1] {
            while !bucket.rotate_key(id).unwrap().is_complete {
                std::thread::yield_now();
            }
        }
        is_done.store(true, std::sync::atomic::Ordering::Release);
        let count = writer.join().unwrap();
        reader.join().unwrap();
        for number in 0..count {
            let value = bucket.get(format!("new {number}")).unwrap();
            assert_eq!(value.as_deref(), Some(&b"while rotating"[..]), "{number}");
        }
    });
    for (key, value) in &wanted {
        assert_eq!(bucket.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
}
