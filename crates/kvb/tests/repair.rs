//! Repair: from any damage every record whose bytes are intact comes back, and nothing else.
//!
//! `rot.rs` changes every byte of small buckets, one at a time. Here whole sectors are lost, several at once and together
//! with what leads to the records: superblocks, headers, footers, runs, tables. Values contain whole buckets, of which no
//! record may be taken for one of the bucket itself. `KVB_SEED=n` replays a failing seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![allow(clippy::single_range_in_vec_init, reason = "ranges that are lost")]

#[path = "support/anatomy.rs"]
mod anatomy;
#[path = "support/seed.rs"]
mod seed;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use host::{Disk, Env, Fault, ManualEnv, MemoryDisk, SimDisk};
use kvb::format::record::Framed;
use kvb::format::segment::Kind;
use kvb::{
    Batch, Bucket, Compact, Compression, Durability, Error, HashKind, Key, Keyring, Options,
    Reader, Repair, RepairTo,
};

const START_NS: u64 = 1_700_000_000_000_000_000;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
/// What every seqno did: a key, and its value unless it was deleted.
type History = BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>;

fn quiet(_: kvb::Progress) {}

fn env() -> Arc<dyn Env> {
    Arc::new(ManualEnv::new(START_NS, 5))
}

fn keys() -> Keyring {
    Keyring::new().with(4, Key::new([4; 32]))
}

/// A bucket to be damaged, and what is known of it.
struct Subject {
    file: Vec<u8>,
    opening: Options,
    history: History,
    records: Vec<Lying>,
}

/// A record in the file.
struct Lying {
    bytes: Range<usize>,
    seqno: u64,
    is_moved: bool,
    is_commit: bool,
}

/// How a bucket is made.
#[derive(Clone)]
struct Make {
    options: Options,
    is_encrypted: bool,
    is_compacted: bool,
    /// Values that contain whole buckets.
    has_buckets_inside: bool,
    commits: usize,
}

fn make(how: &Make, rng: &mut Rng) -> Subject {
    let options = how.options.clone().background(false).durability(Durability::Relaxed);
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options.clone()).unwrap();
    let inner = inner_bucket();
    let mut history = History::new();
    for number in 0..how.commits {
        let count = rng.u64(1..5);
        let mut batch = Batch::new();
        let mut changes = Vec::new();
        for _ in 0..count {
            let key = format!("key {:03}", rng.usize(..200)).into_bytes();
            if rng.u8(..5) == 0 {
                batch.delete(&key);
                changes.push((key, None));
                continue;
            }
            let len = rng.usize(..400);
            let mut value = vec![b'.'; len];
            rng.fill(&mut value[..len / 2]);
            if how.has_buckets_inside && rng.u8(..40) == 0 {
                value.extend_from_slice(&inner[rng.usize(..3)..]);
            }
            batch.put(&key, &value);
            changes.push((key, Some(value)));
        }
        bucket.commit(batch).unwrap();
        let last = bucket.snapshot().seqno();
        for (seqno, change) in (last + 1 - count..).zip(changes) {
            history.insert(seqno, change);
        }
        if how.is_compacted && number == how.commits / 2 {
            bucket.compact(Compact::Full).unwrap();
        }
    }
    // So that nothing is left of segments that compaction gave up.
    bucket.flush().unwrap();
    bucket.flush().unwrap();
    bucket.close().unwrap();
    let file = disk.to_bytes();
    let records = records(&file);
    let opening = match how.is_encrypted {
        true => Options::default().keys(keys()),
        false => Options::default(),
    };
    Subject { file, opening: opening.background(false), history, records }
}

/// A whole bucket, small, with high seqnos and with low ones.
fn inner_bucket() -> Vec<u8> {
    let disk = SimDisk::new();
    let options = Options::default().background(false);
    for round in 0..2 {
        let shared: Arc<dyn Disk> = Arc::new(disk.reopen());
        let bucket = match round {
            0 => Bucket::create_on(shared, env(), options.clone()).unwrap(),
            _ => Bucket::open_on(shared, env(), options.clone()).unwrap(),
        };
        for number in 0..30 {
            bucket.put(format!("key {number:03}"), b"of the bucket inside").unwrap();
        }
        bucket.close().unwrap();
    }
    let file = disk.to_bytes();
    file[..file.len() / 2].to_vec()
}

/// Where all records lie.
fn records(file: &[u8]) -> Vec<Lying> {
    let mut records = Vec::new();
    for extent in anatomy::extents(file).into_iter().filter(|extent| extent.is(Kind::Data)) {
        let mut at = extent.bytes.start + usize::try_from(extent.header.records_at()).unwrap();
        let mut next = extent.header.base_seqno.get();
        while let Some(record) = Framed::decode(&file[at..extent.bytes.end]) {
            // Behind the end there may be records of what was there before.
            if !extent.header.is_moved() && record.header.seqno.get() != next {
                break;
            }
            next += 1;
            let end = at + usize::try_from(record.header.record_len()).unwrap();
            records.push(Lying {
                bytes: at..end,
                seqno: record.header.seqno.get(),
                is_moved: record.header.is_moved(),
                is_commit: record.header.is_commit(),
            });
            at = end;
        }
    }
    records
}

impl Subject {
    fn is_intact(&self, file: &[u8], record: &Lying) -> bool {
        file[record.bytes.clone()] == self.file[record.bytes.clone()]
    }

    /// The rows if these ranges are lost, and it is not known whether others were in use. Without a superblock nothing but marks tells
    /// what was committed.
    fn wanted(&self, file: &[u8], lost: &[Range<usize>], unknown: &[Range<usize>]) -> Rows {
        let is_known =
            |record: &Lying| !unknown.iter().any(|range| range.contains(&record.bytes.start));
        let known = self.records.iter().filter(|record| is_known(record));
        let known = known.filter(|record| self.is_intact(file, record));
        let newest = known.map(|record| record.seqno).max().unwrap_or(0);
        // What is newer than all the rest was in use.
        let is_there = |record: &&Lying| {
            self.is_intact(file, record) && (is_known(record) || record.seqno > newest)
        };
        let intact = || self.records.iter().filter(is_there);
        let has_root = !lost.iter().any(|lost| lost.start == 0 && lost.end > 512);
        let marked = intact().filter(|record| record.is_commit).map(|record| record.seqno).max();
        let committed = if has_root { u64::MAX } else { marked.unwrap_or(0) };
        let counts = intact().filter(|record| record.is_moved || record.seqno <= committed);
        let seqnos: BTreeSet<u64> = counts.map(|record| record.seqno).collect();
        let mut rows = Rows::new();
        for seqno in seqnos {
            let (key, value) = &self.history[&seqno];
            match value {
                Some(value) => drop(rows.insert(key.clone(), value.clone())),
                None => drop(rows.remove(key)),
            }
        }
        rows
    }

    fn damaged(&self, lost: &[Range<usize>], rng: &mut Rng) -> Vec<u8> {
        let mut file = self.file.clone();
        for range in lost {
            let bytes = &mut file[range.clone()];
            match rng.u8(..3) {
                // Bytes that differ from what was there.
                0 => bytes.iter_mut().for_each(|byte| *byte ^= rng.u8(1..)),
                1 => bytes.iter_mut().for_each(|byte| *byte = if *byte == 0 { 0xFF } else { 0 }),
                // As if it had never been written.
                _ => bytes.fill(0),
            }
        }
        file
    }

    fn check(&self, file: Vec<u8>, lost: &[Range<usize>], context: &str) -> Repair {
        let target: Arc<dyn Disk> = Arc::new(MemoryDisk::with_capacity(64 << 20));
        let source: Arc<dyn Disk> = Arc::new(SimDisk::from_image(file.clone()));
        let repaired = kvb::repair_on(
            Arc::clone(&source),
            Some(Arc::clone(&target)),
            env(),
            self.opening.clone(),
            &mut quiet,
        );
        let report = repaired.unwrap_or_else(|error| panic!("{context}: {error}"));
        let mut after = vec![0; file.len()];
        source.read_at(0, &mut after).unwrap();
        assert!(after == file, "{context}: the damaged file was changed");
        if report.is_sound {
            let is_intact = |record: &Lying| self.is_intact(&file, record);
            assert!(self.records.iter().all(is_intact), "{context}: nothing was noticed");
            return report;
        }
        let reader = Reader::open_on_with(target, env(), self.opening.clone()).unwrap();
        let snapshot = reader.snapshot().unwrap();
        let rows: Rows = snapshot
            .scan(b"")
            .map(|row| row.unwrap())
            .map(|row| (row.key().to_vec(), row.value().to_vec()))
            .collect();
        let unknown = report.lost.iter().filter(|lost| lost.meaning.starts_with("nothing tells"));
        let unknown: Vec<Range<usize>> = unknown
            .map(|lost| {
                usize::try_from(lost.at).unwrap()..usize::try_from(lost.at + lost.len).unwrap()
            })
            .collect();
        // One lost sector never leaves that open.
        assert!(lost.len() > 1 || unknown.is_empty(), "{context}: {:?}", report.lost);
        let wanted = self.wanted(&file, lost, &unknown);
        let name = |key: &Vec<u8>| String::from_utf8_lossy(key).into_owned();
        let missing: Vec<_> =
            wanted.keys().filter(|key| !rows.contains_key(*key)).map(name).collect();
        let extra: Vec<_> =
            rows.keys().filter(|key| !wanted.contains_key(*key)).map(name).collect();
        let wrong: Vec<_> = wanted
            .iter()
            .filter(|(key, value)| rows.get(*key).is_some_and(|found| found != *value))
            .map(|(key, _)| name(key))
            .collect();
        assert!(
            missing.is_empty() && extra.is_empty() && wrong.is_empty(),
            "{context}: missing {missing:?}, extra {extra:?}, wrong {wrong:?}; {:?}",
            report.lost
        );
        report
    }
}

fn kinds() -> Vec<(&'static str, Make)> {
    let plain = Make {
        options: Options::default().segment_bytes_max(16 << 10).overlay_min(64),
        is_encrypted: false,
        is_compacted: false,
        has_buckets_inside: false,
        commits: 120,
    };
    let secret = Make {
        options: plain.options.clone().encrypted(4).keys(keys()),
        is_encrypted: true,
        ..plain.clone()
    };
    vec![
        ("plain", plain.clone()),
        ("compacted", Make { is_compacted: true, ..plain.clone() }),
        (
            "no directories, keyed hash",
            Make {
                options: plain.options.clone().directories(false).hash(HashKind::SipHash),
                is_compacted: true,
                ..plain.clone()
            },
        ),
        ("buckets inside", Make { has_buckets_inside: true, ..plain.clone() }),
        (
            "compressed, large pages",
            Make {
                options: Options::default()
                    .page_size(16_384)
                    .segment_bytes_max(64 << 10)
                    .compression(Compression::Zstd),
                is_compacted: true,
                ..plain
            },
        ),
        ("encrypted", secret.clone()),
        ("encrypted, compacted", Make { is_compacted: true, ..secret }),
    ]
}

#[test]
fn every_sector_lost() {
    let seed = seed::seed("every_sector_lost");
    for (name, how) in kinds() {
        let mut rng = Rng::with_seed(seed);
        let subject = make(&how, &mut rng);
        let sectors = subject.file.len() / 512;
        let is_used = |sector: &usize| {
            subject.file[sector * 512..(sector + 1) * 512].iter().any(|byte| *byte != 0)
        };
        for sector in (0..sectors).filter(is_used) {
            let lost = [sector * 512..(sector + 1) * 512];
            let file = subject.damaged(&lost, &mut rng);
            subject.check(file, &lost, &format!("{name}, sector {sector}"));
        }
    }
}

#[test]
fn both_superblocks_lost() {
    let seed = seed::seed("both_superblocks_lost");
    for (name, how) in kinds() {
        let mut rng = Rng::with_seed(seed);
        let subject = make(&how, &mut rng);
        let page = 4096;
        let last = subject.file.len() - 65_536.min(subject.file.len() / 4) / page * page;
        let mut lost = vec![0..page];
        // Wherever the second copy stands among the last pages.
        for at in (last..subject.file.len()).step_by(page) {
            if subject.file[at..at + 4] == subject.file[..4] {
                lost.push(at..at + page);
            }
        }
        assert_eq!(lost.len(), 2, "{name}");
        let file = subject.damaged(&lost, &mut rng);
        let report = subject.check(file, &lost, name);
        assert!(report.lost.is_empty(), "{name}: {report:?}");
        // And one sector more.
        for _ in 0..40 {
            let sector = rng.usize(page..subject.file.len() - page) / 512 * 512;
            let lost = [lost.clone(), vec![sector..sector + 512]].concat();
            let is_header = anatomy::extents(&subject.file)
                .iter()
                .any(|extent| extent.is(Kind::Data) && extent.bytes.start == sector);
            // Without any superblock nothing but the header tells the salt of a segment that is not sealed.
            if how.is_encrypted && is_header {
                continue;
            }
            let file = subject.damaged(&lost, &mut rng);
            subject.check(file, &lost, &format!("{name}, also {sector}"));
        }
    }
}

#[test]
fn many_sectors_lost() {
    let seed = seed::seed("many_sectors_lost");
    for round in 0..seed::rounds() {
        for (name, mut how) in kinds().into_iter().filter(|(_, how)| !how.is_encrypted) {
            // With a hash that anyone can compute, records between two losses may be somebody's forgery.
            how.options = how.options.hash(HashKind::SipHash);
            let mut rng = Rng::with_seed(seed ^ round);
            let subject = make(&how, &mut rng);
            let extents = anatomy::extents(&subject.file);
            for step in 0..60 {
                let count = rng.usize(2..8);
                // Where there is something to lose, and never a superblock.
                let sector = |rng: &mut Rng| {
                    let extent = &extents[rng.usize(..extents.len())];
                    let at = rng.usize(extent.bytes.clone()) / 512 * 512;
                    at..at + 512
                };
                let lost: Vec<Range<usize>> = (0..count).map(|_| sector(&mut rng)).collect();
                let file = subject.damaged(&lost, &mut rng);
                subject.check(file, &lost, &format!("{name}, step {step}, {lost:?}"));
            }
        }
    }
}

/// A small bucket in a file, and the byte of a value in it.
fn on_disk(dir: &tempfile::TempDir) -> (std::path::PathBuf, usize) {
    let path = dir.path().join("bucket.kvb");
    let bucket = Bucket::create(&path, Options::default()).unwrap();
    for number in 0..50 {
        bucket.put(format!("key {number:02}"), format!("the value of {number:02}")).unwrap();
    }
    bucket.close().unwrap();
    let file = std::fs::read(&path).unwrap();
    let wanted = b"the value of 17";
    let at = file.windows(wanted.len()).position(|window| window == wanted).unwrap();
    (path, at)
}

fn damage(path: &std::path::Path, at: usize) -> Vec<u8> {
    let mut file = std::fs::read(path).unwrap();
    file[at] ^= 1;
    std::fs::write(path, &file).unwrap();
    file
}

#[test]
fn a_healthy_bucket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = on_disk(&dir);
    let before = std::fs::read(&path).unwrap();
    let new = dir.path().join("new.kvb");
    for to in [RepairTo::DryRun, RepairTo::New(new.clone()), RepairTo::InPlace] {
        let report = kvb::repair(&path, &to, Options::default(), &mut quiet).unwrap();
        assert!(report.is_sound && report.lost.is_empty(), "{report:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{to:?}");
    }
    assert!(!new.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_repair_says_what_was_lost_and_writes_where_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let (path, at) = on_disk(&dir);
    let damaged = damage(&path, at);
    let report = kvb::repair(&path, &RepairTo::DryRun, Options::default(), &mut quiet).unwrap();
    assert!(
        !report.is_sound
            && report.findings.iter().any(|finding| {
                let found = usize::try_from(finding.at).unwrap();
                found <= at && at - found < 128
            }),
        "{report:?}"
    );
    assert_eq!((report.keys, report.lost.len()), (49, 1), "{report:?}");
    assert_eq!(report.lost[0].key.as_deref(), Some(&b"key 17"[..]));
    assert_eq!(std::fs::read(&path).unwrap(), damaged);
    let new = dir.path().join("new.kvb");
    let onto_itself =
        kvb::repair(&path, &RepairTo::New(path.clone()), Options::default(), &mut quiet);
    assert!(matches!(onto_itself, Err(Error::Invalid(_))), "{onto_itself:?}");
    kvb::repair(&path, &RepairTo::New(new.clone()), Options::default(), &mut quiet).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), damaged);
    let mut stages = BTreeSet::new();
    let mut note = |progress: kvb::Progress| {
        assert!(progress.done <= progress.total, "{progress:?}");
        stages.insert(progress.stage);
    };
    kvb::repair(&path, &RepairTo::InPlace, Options::default(), &mut note).unwrap();
    assert!(stages.contains("looking for records"), "{stages:?}");
    for path in [&path, &new] {
        let bucket = Bucket::open(path, Options::default()).unwrap();
        assert!(bucket.get(b"key 17").unwrap().is_none());
        assert_eq!(bucket.scan(b"").filter(|row| row.is_ok()).count(), 49);
        bucket.put(b"later", b"yes").unwrap();
    }
}

#[test]
fn a_bucket_in_use_is_not_repaired() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = on_disk(&dir);
    let bucket = Bucket::open(&path, Options::default()).unwrap();
    let refused = kvb::repair(&path, &RepairTo::InPlace, Options::default(), &mut quiet);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    drop(bucket);
    let nothing = dir.path().join("nothing");
    std::fs::write(&nothing, vec![7; 100_000]).unwrap();
    let refused = kvb::repair(&nothing, &RepairTo::InPlace, Options::default(), &mut quiet);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(std::fs::read(&nothing).unwrap(), vec![7; 100_000]);
}

/// A name may be a link: then it is the bucket behind it that is mended.
#[cfg(unix)]
#[test]
fn a_repair_in_place_through_a_link_mends_what_it_leads_to() {
    let dir = tempfile::tempdir().unwrap();
    let (path, at) = on_disk(&dir);
    damage(&path, at);
    let link = dir.path().join("link.kvb");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let report = kvb::repair(&link, &RepairTo::InPlace, Options::default(), &mut quiet).unwrap();
    assert_eq!((report.is_sound, report.keys), (false, 49));
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let found = kvb::verify(&path, Options::default(), &mut quiet).unwrap();
    assert!(found.is_sound(), "{found:?}");
}

#[test]
fn an_interrupted_repair_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (path, at) = on_disk(&dir);
    let damaged = damage(&path, at);
    let source = || -> Arc<dyn Disk> { Arc::new(SimDisk::from_image(damaged.clone())) };
    // Every operation of the new disk fails once.
    let mut failed = 0;
    for operation in 0.. {
        let target = SimDisk::new();
        target.fail_from(operation, Fault::Eio);
        let repaired =
            kvb::repair_on(source(), Some(Arc::new(target)), env(), Options::default(), &mut quiet);
        match repaired {
            Err(error) => {
                assert!(matches!(error, Error::Io { .. } | Error::Stopped(_)), "{error}");
                failed += 1;
            }
            Ok(report) => {
                assert_eq!(report.keys, 49);
                break;
            }
        }
    }
    assert!(failed > 10, "{failed}");
    // And a file that somebody left behind is not in the way.
    std::fs::write(dir.path().join("bucket.kvb.unfinished"), b"half").unwrap();
    kvb::repair(&path, &RepairTo::InPlace, Options::default(), &mut quiet).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// A file that lost its end: whatever keys are missing, the report says that something is.
#[test]
fn a_file_that_was_cut_off_is_not_called_whole() {
    let (name, how) = kinds().swap_remove(0);
    let mut rng = Rng::with_seed(seed::seed(name));
    let subject = make(&how, &mut rng);
    let all = {
        let disk = Arc::new(MemoryDisk::from_bytes(subject.file.clone()));
        let reader = Reader::open_on(disk, env()).unwrap();
        reader.snapshot().unwrap().scan(b"").count()
    };
    let (mut whole, mut short) = (0, 0);
    for len in (4096..subject.file.len()).step_by(1024) {
        let disk = Arc::new(MemoryDisk::from_bytes(subject.file[..len].to_vec()));
        let options = subject.opening.clone();
        let report = kvb::repair_on(disk, None, env(), options, &mut quiet).unwrap();
        let is_whole = report.keys == u64::try_from(all).unwrap();
        assert!(is_whole || !report.lost.is_empty(), "cut at {len}: {} of {all}", report.keys);
        (whole, short) = (whole + u32::from(is_whole), short + u32::from(!is_whole));
    }
    assert!(short > 10, "{short} were short, {whole} whole");
}
