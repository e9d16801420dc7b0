//! Backups of a bucket in use, increments, and what is restored from them, against maps.
//!
//! A history goes on while snapshots of it are backed up, whole and by increments, in the writer's process and beside it.
//! Whatever was restored from any of them must be the map as it was when the snapshot was taken: the same rows, seqnos and
//! deadlines. `KVB_SEED=n` replays a failing seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use kvb::{
    Batch, Bucket, Compact, Compression, Durability, Error, HashKind, Key, Keyring, Options,
    Reader, Severity, Snapshot,
};

/// Key to value, seqno and deadline.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, u64, Option<u64>)>;

fn quiet(_: kvb::Progress) {}

fn rows(snapshot: &Snapshot<'_>) -> Rows {
    let rows = snapshot.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), (row.value().to_vec(), row.seqno(), row.expires_unix_ns())))
        .collect()
}

fn keys() -> Keyring {
    Keyring::new().with(1, Key::new([1; 32])).with(2, Key::new([2; 32]))
}

fn kinds() -> Vec<(&'static str, Options)> {
    let plain = Options::default().durability(Durability::Relaxed).overlay_min(64);
    let small = plain.clone().segment_bytes_max(16 << 10);
    vec![
        ("plain", plain.clone()),
        ("small segments", small.clone()),
        ("compressed", small.clone().compression(Compression::Zstd)),
        ("keyed hash, no directories", small.clone().hash(HashKind::SipHash).directories(false)),
        ("encrypted", small.clone().encrypted(1).keys(keys())),
        (
            "encrypted, compressed, large pages",
            plain.page_size(16_384).compression(Compression::Zstd).encrypted(2).keys(keys()),
        ),
    ]
}

/// Options that only open.
fn opening(options: &Options, is_encrypted: bool) -> Options {
    if is_encrypted { Options::default().keys(keys()) } else { options.clone() }
}

struct History {
    rng: Rng,
    keys: usize,
}

impl History {
    fn key(&mut self) -> Vec<u8> {
        format!("key {:05}", self.rng.usize(..self.keys)).into_bytes()
    }

    fn go_on(&mut self, bucket: &Bucket, commits: usize) {
        for _ in 0..commits {
            let mut batch = Batch::new();
            for _ in 0..self.rng.usize(1..12) {
                let key = self.key();
                let len = self.rng.usize(..300);
                let mut value = vec![b'v'; len];
                let random = self.rng.usize(..=len);
                self.rng.fill(&mut value[..random]);
                match self.rng.u8(..10) {
                    0..4 => drop(batch.delete(key)),
                    4 => drop(batch.put_for(key, value, Duration::from_secs(3600))),
                    _ => drop(batch.put(key, value)),
                }
            }
            bucket.commit(batch).unwrap();
        }
    }
}

fn restored(files: &[PathBuf], target: &Path, options: &Options) -> Rows {
    kvb::restore(files, target, options.clone(), &mut quiet).unwrap();
    let reader = Reader::open_with(target, options.clone()).unwrap();
    let rows = rows(&reader.snapshot().unwrap());
    drop(reader);
    // It is a bucket like any other.
    let bucket = Bucket::open(target, options.clone()).unwrap();
    bucket.put(b"later", b"yes").unwrap();
    bucket.close().unwrap();
    std::fs::remove_file(target).unwrap();
    rows
}

#[test]
fn backups_and_increments_give_the_bucket_back() {
    let seed = seed::seed("backups_and_increments_give_the_bucket_back");
    for round in 0..seed::rounds() {
        for (index, (name, options)) in (0_u64..).zip(kinds()) {
            let rng = Rng::with_seed(seed ^ index ^ round << 8);
            back_up(name, &options, name.starts_with("encrypted"), rng);
        }
    }
}

fn back_up(name: &str, options: &Options, is_encrypted: bool, mut rng: Rng) {
    let dir = tempfile::tempdir().unwrap();
    let path = |file: &str| dir.path().join(file);
    let opening = opening(options, is_encrypted);
    let bucket = Bucket::create(path("bucket.kvb"), options.clone()).unwrap();
    let keys = *rng.choice(&[40, 400, 3000]).unwrap();
    let mut history = History { rng: rng.fork(), keys };
    history.go_on(&bucket, 150);
    let mut files: Vec<PathBuf> = Vec::new();
    for step in 0..5 {
        let context = format!("{name}, step {step}");
        let file = path(&format!("backup {step}.kvb"));
        let beside;
        let snapshot = if rng.bool() {
            bucket.snapshot()
        } else {
            beside = Reader::open_with(path("bucket.kvb"), opening.clone()).unwrap();
            beside.snapshot().unwrap()
        };
        let wanted = rows(&snapshot);
        // The bucket goes on while it is copied.
        history.go_on(&bucket, 20);
        let done = if files.is_empty() {
            snapshot.backup(&file, &mut quiet).unwrap()
        } else {
            snapshot.backup_since(&file, &files, &mut quiet).unwrap()
        };
        assert_eq!(done.seqno, snapshot.seqno(), "{context}");
        assert_eq!(rows(&snapshot), wanted, "{context}: the source changed");
        drop(snapshot);
        files.push(file);
        let found = restored(&files, &path("restored.kvb"), &opening);
        assert!(found == wanted, "{context}: what was restored differs");
        let commits = *rng.choice(&[1, 30, 120]).unwrap();
        history.go_on(&bucket, commits);
        match rng.u8(..4) {
            0 => drop(bucket.compact(Compact::Full).unwrap()),
            1 => drop(bucket.compact(Compact::Auto).unwrap()),
            2 => bucket.flush().unwrap(),
            _ => {}
        }
    }
    let leftovers: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".unfinished"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn a_backup_is_compacted_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().durability(Durability::Relaxed);
    let bucket = Bucket::create(dir.path().join("bucket.kvb"), options.clone()).unwrap();
    let mut history = History { rng: Rng::with_seed(7), keys: 500 };
    history.go_on(&bucket, 3000);
    let copy = dir.path().join("copy.kvb");
    let mut seen = Vec::new();
    let done = bucket.snapshot().backup(&copy, &mut |progress| seen.push(progress.stage)).unwrap();
    assert!(seen.contains(&"segments"), "{seen:?}");
    let found = kvb::verify(&copy, options.clone(), &mut quiet).unwrap();
    assert!(found.findings.is_empty(), "{found:?}");
    assert_eq!((found.records, found.commit_seqno), (done.records, done.seqno));
    let stats = Reader::open(&copy).unwrap().stats().unwrap();
    assert_eq!(stats.bytes_log, done.bytes, "nothing dead is in it");
    let len = std::fs::metadata(&copy).unwrap().len();
    assert!(len < 3 * done.bytes + (256 << 10), "{len} bytes for {}", done.bytes);
}

#[test]
fn a_copy_may_be_encrypted_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::create(dir.path().join("bucket.kvb"), Options::default()).unwrap();
    let mut history = History { rng: Rng::with_seed(8), keys: 300 };
    history.go_on(&bucket, 200);
    let snapshot = bucket.snapshot();
    let env: Arc<dyn host::Env> = Arc::new(host::SystemEnv);
    let secret = Arc::new(host::MemoryDisk::with_capacity(64 << 20));
    let encrypted = Options::default().encrypted(2).keys(keys()).compression(Compression::Zstd);
    snapshot.backup_on(secret.clone(), env.clone(), encrypted, &mut quiet).unwrap();
    let opening = Options::default().keys(keys());
    let reader = Reader::open_on_with(secret, env.clone(), opening).unwrap();
    assert!(rows(&reader.snapshot().unwrap()) == rows(&snapshot));
    let plain = Arc::new(host::MemoryDisk::with_capacity(64 << 20));
    let again = reader.snapshot().unwrap();
    again.backup_on(plain.clone(), env.clone(), Options::default(), &mut quiet).unwrap();
    let reader = Reader::open_on(plain, env).unwrap();
    assert!(rows(&reader.snapshot().unwrap()) == rows(&snapshot));
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |file: &str| dir.path().join(file);
    let bucket = Bucket::create(path("a.kvb"), Options::default()).unwrap();
    let other = Bucket::create(path("b.kvb"), Options::default()).unwrap();
    let mut history = History { rng: Rng::with_seed(9), keys: 50 };
    let mut names = vec![path("0.kvb")];
    history.go_on(&bucket, 20);
    history.go_on(&other, 20);
    bucket.snapshot().backup(&names[0], &mut quiet).unwrap();
    for step in 1..4 {
        history.go_on(&bucket, 20);
        let name = path(&format!("{step}.kvb"));
        bucket.snapshot().backup_since(&name, &names, &mut quiet).unwrap();
        names.push(name);
    }
    let restore = |files: &[PathBuf]| {
        kvb::restore(files, path("restored.kvb"), Options::default(), &mut quiet)
    };
    assert!(restore(&names).is_ok());
    for wrong in [
        vec![],
        vec![names[1].clone()],
        vec![names[0].clone(), names[2].clone()],
        vec![names[0].clone(), names[0].clone()],
        vec![names[0].clone(), names[2].clone(), names[1].clone()],
        vec![path("a.kvb")],
    ] {
        let found = restore(&wrong);
        assert!(matches!(found, Err(Error::Invalid(_))), "{wrong:?}: {found:?}");
    }
    let of_other = other.snapshot().backup_since(path("x.kvb"), &names, &mut quiet);
    assert!(matches!(of_other, Err(Error::Invalid(_))), "{of_other:?}");
    // An increment is no bucket.
    assert!(matches!(Bucket::open(&names[1], Options::default()), Err(Error::Invalid(_))));
    assert!(matches!(Reader::open(&names[1]), Err(Error::Invalid(_))));
    // A backup that was written to is not the backup any more.
    let changed = Bucket::open(&names[0], Options::default()).unwrap();
    changed.put(b"key", b"value").unwrap();
    changed.close().unwrap();
    assert!(matches!(restore(&names), Err(Error::Invalid(_))));
}

#[test]
fn a_file_in_the_way_stays_until_the_copy_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = Bucket::create(dir.path().join("bucket.kvb"), Options::default()).unwrap();
    bucket.put(b"key", b"value").unwrap();
    let copy = dir.path().join("copy.kvb");
    std::fs::write(&copy, b"something else").unwrap();
    // Somebody was interrupted here before.
    std::fs::write(dir.path().join("copy.kvb.unfinished"), b"half a copy").unwrap();
    bucket.snapshot().backup(&copy, &mut quiet).unwrap();
    let found = kvb::verify(&copy, Options::default(), &mut quiet).unwrap();
    assert!(found.findings.iter().all(|finding| finding.severity == Severity::Notice));
    assert!(!dir.path().join("copy.kvb.unfinished").exists());
    let nowhere = bucket.snapshot().backup(dir.path().join("no/such/dir.kvb"), &mut quiet);
    assert!(matches!(nowhere, Err(Error::Io { .. })), "{nowhere:?}");
}

#[test]
fn an_increment_can_be_verified_and_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let path = |file: &str| dir.path().join(file);
    let bucket = Bucket::create(path("bucket.kvb"), Options::default()).unwrap();
    let mut history = History { rng: Rng::with_seed(10), keys: 50 };
    history.go_on(&bucket, 20);
    bucket.snapshot().backup(path("0.kvb"), &mut quiet).unwrap();
    history.go_on(&bucket, 20);
    bucket.snapshot().backup_since(path("1.kvb"), &[path("0.kvb")], &mut quiet).unwrap();
    let found = kvb::verify(path("1.kvb"), Options::default(), &mut quiet).unwrap();
    assert!(found.findings.is_empty(), "{found:?}");
    let mut file = std::fs::read(path("1.kvb")).unwrap();
    let at = file.windows(4).rposition(|window| window == b"key ").unwrap();
    file[at] ^= 1;
    std::fs::write(path("1.kvb"), &file).unwrap();
    let found = kvb::verify(path("1.kvb"), Options::default(), &mut quiet).unwrap();
    assert!(!found.is_sound());
    // A bucket made of it would have lost what was deleted.
    let to = kvb::RepairTo::New(path("mended.kvb"));
    let refused = kvb::repair(path("1.kvb"), &to, Options::default(), &mut quiet);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert!(!path("mended.kvb").exists());
}
