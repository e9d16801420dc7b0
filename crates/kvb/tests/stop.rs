//! Long tasks that are asked to stop: at whichever call they are told to, they end there, and nothing has happened.
//!
//! Every task is run once to count how often it reports. Then it is run as often again, and stopped at each of these
//! reports in turn. All files of the directory must be as they were, byte for byte, and there may be no new one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kvb::{
    Batch, Bucket, Compact, Compression, Durability, Error, Key, Keyring, Options, Progress,
    Reader, RepairTo,
};

fn quiet(_: Progress<'_>) {}

/// Every file of a directory.
type Files = BTreeMap<String, Vec<u8>>;

fn files(dir: &Path) -> Files {
    let read = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, std::fs::read(entry.path()).unwrap())
    };
    std::fs::read_dir(dir).unwrap().map(|entry| read(entry.unwrap())).collect()
}

fn keys() -> Keyring {
    Keyring::new().with(1, Key::new([1; 32])).with(2, Key::new([2; 32]))
}

/// A directory with buckets.
struct Place {
    dir: tempfile::TempDir,
    options: Options,
}

impl Place {
    fn new(options: Options) -> Place {
        let options = options
            .background(false)
            .durability(Durability::Relaxed)
            .segment_bytes_max(64 << 10)
            .overlay_min(256);
        Place { dir: tempfile::tempdir().unwrap(), options }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A bucket of several segments, with so many keys that every stage of every task reports more than once.
    fn bucket(&self) -> Bucket {
        let bucket = Bucket::create(self.path("bucket.kvb"), self.options.clone()).unwrap();
        self.go_on(&bucket, 0..4500);
        if bucket.survey().unwrap().settings.key_id.is_some() {
            // There is less to report of fewer segments, and decrypting takes its time.
            bucket.compact(Compact::Full).unwrap();
        }
        self.go_on(&bucket, 4500..5000);
        bucket
    }

    fn go_on(&self, bucket: &Bucket, numbers: std::ops::Range<u32>) {
        let numbers: Vec<u32> = numbers.collect();
        for chunk in numbers.chunks(100) {
            let mut batch = Batch::new();
            for number in chunk {
                batch.put(format!("key {number:05}"), format!("value {number} ").repeat(5));
            }
            bucket.commit(batch).unwrap();
        }
    }

    /// Stops a task at its first call, at its second, and so on; then lets it be.
    fn stop<T>(
        &self,
        what: &str,
        stages: &[&str],
        task: impl Fn(&mut dyn FnMut(Progress<'_>)) -> kvb::Result<T>,
    ) -> T {
        let before = files(self.dir.path());
        for at in 0.. {
            let mut seen = Vec::new();
            let done = task(&mut |progress: Progress<'_>| {
                assert!(progress.done <= progress.total, "{what}: {progress:?}");
                seen.push(progress.stage);
                if seen.len() > at {
                    progress.stop();
                }
            });
            let context = format!("{what}, stopped at call {at}");
            match done {
                Err(Error::Interrupted) => {
                    assert_eq!(seen.len(), at + 1, "{context}: it went on");
                    let now = files(self.dir.path());
                    assert_eq!(
                        now.keys().collect::<Vec<_>>(),
                        before.keys().collect::<Vec<_>>(),
                        "{context}"
                    );
                    let changed = now.iter().find(|(name, bytes)| before[*name] != **bytes);
                    assert!(changed.is_none(), "{context}: {:?} changed", changed.unwrap().0);
                }
                Ok(done) => {
                    assert_eq!(seen.len(), at, "{context}: it did not stop");
                    for stage in stages {
                        assert!(seen.contains(stage), "{what}: no {stage} in {seen:?}");
                    }
                    assert!(at > 3, "{what}: only {at} calls");
                    return done;
                }
                Err(error) => panic!("{context}: {error}"),
            }
        }
        unreachable!("a task reports forever")
    }
}

fn kinds() -> [(&'static str, Options); 2] {
    let secret = Options::default().compression(Compression::Zstd).encrypted(1).keys(keys());
    [("plain", Options::default()), ("encrypted, compressed", secret)]
}

#[test]
fn a_verification_stops() {
    for (name, options) in kinds() {
        let place = Place::new(options);
        place.bucket().close().unwrap();
        let stages = ["segments", "index pages", "index against log"];
        let found = place.stop(&format!("{name}: verify"), &stages, |progress| {
            kvb::verify(place.path("bucket.kvb"), place.options.clone(), progress)
        });
        assert!(found.findings.is_empty() && found.keys == 5000, "{found:?}");
    }
}

#[test]
fn a_backup_stops() {
    for (name, options) in kinds() {
        let place = Place::new(options);
        let bucket = place.bucket();
        let stages = ["copying", "segments", "index against log"];
        let copy = place.path("copy.kvb");
        let what = format!("{name}: backup of an open bucket");
        let done = place.stop(&what, &stages, |progress| {
            let snapshot = bucket.snapshot();
            snapshot.backup(&copy, progress)
        });
        assert_eq!(done.records, 5000, "{name}");
        // The bucket goes on as if nothing had been.
        place.go_on(&bucket, 5000..6000);
        bucket.close().unwrap();
        // Over a file that is there, which stays, and beside one that somebody left behind.
        std::fs::write(place.path("copy.kvb.unfinished"), b"half").unwrap();
        let reader = Reader::open_with(place.path("bucket.kvb"), place.options.clone()).unwrap();
        drop(reader.snapshot().unwrap().backup(&copy, &mut |progress| progress.stop()));
        assert!(!place.path("copy.kvb.unfinished").exists());
        let what = format!("{name}: backup of a closed bucket over another one");
        let done = place.stop(&what, &stages, |progress| {
            let snapshot = reader.snapshot().unwrap();
            snapshot.backup(&copy, progress)
        });
        assert_eq!(done.records, 6000, "{name}");
    }
}

#[test]
fn an_increment_stops() {
    for (name, options) in kinds() {
        // By what the log tells, and by comparing keys: a compaction drops what was deleted.
        for is_compacted in [false, true] {
            let place = Place::new(options.clone());
            let bucket = place.bucket();
            let full = place.path("full.kvb");
            bucket.snapshot().backup(&full, &mut quiet).unwrap();
            place.go_on(&bucket, 3000..6500);
            for number in 0..50 {
                bucket.delete(format!("key {number:05}")).unwrap();
            }
            if is_compacted {
                bucket.compact(Compact::Full).unwrap();
            }
            let part = place.path("part.kvb");
            let what = format!("{name}: increment, compacted: {is_compacted}");
            let stages = ["copying", "segments"];
            let done = place.stop(&what, &stages, |progress| {
                let snapshot = bucket.snapshot();
                snapshot.backup_since(&part, &[&full], progress)
            });
            assert_eq!(done.records, 3550, "{what}");
        }
    }
}

/// An increment may look at everything and find next to nothing to write.
#[test]
fn an_increment_that_only_compares_stops() {
    let place = Place::new(Options::default());
    let bucket = place.bucket();
    bucket.delete(b"key 00007").unwrap();
    let full = place.path("full.kvb");
    bucket.snapshot().backup(&full, &mut quiet).unwrap();
    bucket.delete(b"key 00008").unwrap();
    bucket.compact(Compact::Full).unwrap();
    let part = place.path("part.kvb");
    let done = place.stop("increment of nothing", &["copying", "segments"], |progress| {
        let snapshot = bucket.snapshot();
        snapshot.backup_since(&part, &[&full], progress)
    });
    assert_eq!(done.records, 1, "one key is gone");
}

#[test]
fn a_restore_stops() {
    for (name, options) in kinds() {
        let place = Place::new(options);
        let bucket = place.bucket();
        let chain = [place.path("full.kvb"), place.path("part.kvb")];
        bucket.snapshot().backup(&chain[0], &mut quiet).unwrap();
        place.go_on(&bucket, 4000..7000);
        bucket.snapshot().backup_since(&chain[1], &chain[..1], &mut quiet).unwrap();
        bucket.close().unwrap();
        let stages = ["copying", "segments", "index against log"];
        for target in ["new.kvb", "bucket.kvb"] {
            let what = format!("{name}: restore to {target}");
            let done = place.stop(&what, &stages, |progress| {
                kvb::restore(&chain, place.path(target), place.options.clone(), progress)
            });
            assert_eq!(done.records, 7000, "{what}");
        }
    }
}

#[test]
fn a_remake_stops() {
    let place = Place::new(Options::default());
    place.bucket().close().unwrap();
    let stages = ["copying", "segments", "index against log"];
    let path = place.path("bucket.kvb");
    place.stop("encrypt", &stages, |progress| {
        let change = |options: Options| options.encrypted(1).keys(keys());
        kvb::remake(&path, Options::default(), change, progress)
    });
    place.stop("decrypt", &stages, |progress| {
        kvb::remake(&path, Options::default().keys(keys()), Options::plain, progress)
    });
    let bucket = Bucket::open(&path, Options::default()).unwrap();
    assert_eq!(bucket.stats().unwrap().keys, 5000);
}

#[test]
fn a_repair_stops() {
    for (name, options) in kinds() {
        let place = Place::new(options.clone());
        let bucket = place.bucket();
        let segments = bucket.survey().unwrap().segments;
        let damaged = segments.iter().max_by_key(|one| one.records).unwrap().clone();
        bucket.close().unwrap();
        let path = place.path("bucket.kvb");
        let stages = ["segments", "looking for records"];
        let is_quick = name == "plain";
        if is_quick {
            let report = place.stop("repair of a sound one", &stages, |progress| {
                kvb::repair(&path, &RepairTo::InPlace, place.options.clone(), progress)
            });
            assert!(report.is_sound, "{report:?}");
        }
        let mut file = std::fs::read(&path).unwrap();
        file[usize::try_from(damaged.at + damaged.record_bytes / 2).unwrap()] ^= 1;
        std::fs::write(&path, &file).unwrap();
        let repair = |what: &str, to: RepairTo, stages: &[&str]| {
            let report = place.stop(&format!("{name}: {what}"), stages, |progress| {
                kvb::repair(&path, &to, place.options.clone(), progress)
            });
            assert_eq!((report.is_sound, report.keys), (false, 4999), "{name}: {what}");
        };
        let saving = ["segments", "looking for records", "saving", "index against log"];
        if is_quick {
            repair("dry run", RepairTo::DryRun, &stages);
            repair("to a new file", RepairTo::New(place.path("new.kvb")), &saving);
        }
        repair("in place", RepairTo::InPlace, &saving);
        let bucket = Bucket::open(&path, place.options.clone()).unwrap();
        assert_eq!(bucket.stats().unwrap().keys, 4999, "{name}");
    }
}
