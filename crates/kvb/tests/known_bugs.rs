//! Bugs that other stores have shipped, tried here: each test is named after the store, and says what went wrong there.
//!
//! `docs/reliability.md` lists them all, with those that other tests cover.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/destroy.rs"]
mod destroy;

use std::collections::BTreeMap;
use std::sync::Arc;

use host::{Disk, Fault, Keep, ManualEnv, Op, SimDisk};
use kvb::format::free_map::{self, FreeExtent, Stamp};
use kvb::format::record::Framed;
use kvb::{Batch, Bucket, Compact, Durability, Error, Options};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const PAGE: usize = 4096;

fn options() -> Options {
    Options::default()
        .durability(Durability::SyncOnce)
        .background(false)
        .overlay_min(16)
        .segment_bytes_max(16 << 10)
}

fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(1 << 60, 3))
}

fn create(disk: &SimDisk) -> Bucket {
    Bucket::create_on(Arc::new(disk.reopen()), env(), options()).unwrap()
}

fn open(disk: &SimDisk) -> Result<Bucket, Error> {
    Bucket::open_on(Arc::new(disk.reopen()), env(), options())
}

fn rows(bucket: &Bucket) -> State {
    let rows = bucket.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

/// The disk after power was lost.
fn after_power_loss(disk: &SimDisk, keep: Keep) -> SimDisk {
    disk.power_off();
    let trace = disk.trace();
    SimDisk::from_image(trace.image(trace.len(), keep))
}

/// Commits of a few rows each; the state after every one of them, from the empty one on, and the record of the disk with a
/// mark after each.
fn grow(commits: u32, value: usize) -> (SimDisk, Vec<State>) {
    grow_with(commits, value, |_| Durability::SyncOnce)
}

/// The same, each commit as durable as its number says; a mark only where it must be there from then on.
fn grow_with(
    commits: u32,
    value: usize,
    durability: impl Fn(u32) -> Durability,
) -> (SimDisk, Vec<State>) {
    let disk = SimDisk::new();
    let bucket = create(&disk);
    disk.mark(0);
    let mut states = vec![State::new()];
    for number in 1..=commits {
        let mut next = states.last().unwrap().clone();
        let mut batch = Batch::new();
        for at in 0..3_u32 {
            let key = (number * 5 + at * 11) % 40;
            batch.put(key.to_be_bytes(), vec![u8::try_from(number % 256).unwrap(); value]);
            next.insert(
                key.to_be_bytes().to_vec(),
                vec![u8::try_from(number % 256).unwrap(); value],
            );
        }
        states.push(next);
        bucket.commit_with(batch, durability(number)).unwrap();
        if durability(number) != Durability::Relaxed {
            disk.mark(number.into());
        }
    }
    bucket.close().unwrap();
    (disk, states)
}

/// Cuts power at every operation behind the creation: nothing unsynced stays, all but one change, a random part. Shows each
/// image, what it was cut by, and the commit that must be in it.
fn cut_everywhere(disk: &SimDisk, mut look: impl FnMut(Vec<u8>, &str, usize)) -> u64 {
    let trace = disk.trace();
    let mut points = trace.points();
    let (mut least, mut images) = (None, 0);
    while let Some(point) = points.advance() {
        least = point.mark().map(|mark| usize::try_from(mark).unwrap()).or(least);
        let Some(least) = least else { continue };
        let one = (0..point.pending()).map(Keep::DropOne);
        for keep in [Keep::None, Keep::Random(images)].into_iter().chain(one) {
            let what = format!("operation {}, {keep:?}", point.upto());
            look(point.image(keep), &what, least);
            images += 1;
        }
    }
    images
}

/// True if a state is that after a commit from this one on.
fn is_after(found: &State, states: &[State], least: usize) -> bool {
    states[least..].contains(found)
}

/// At every operation, loses each single change that is not synced, and all the others stay.
fn lose_one(disk: &SimDisk, states: &[State]) -> u64 {
    let trace = disk.trace();
    let mut points = trace.points();
    let (mut least, mut images, mut is_created) = (0, 0, false);
    while let Some(point) = points.advance() {
        if let Some(mark) = point.mark() {
            least = usize::try_from(mark).unwrap();
            is_created = true;
        }
        if !is_created {
            continue;
        }
        for lost in 0..point.pending() {
            let image = SimDisk::from_image(point.image(Keep::DropOne(lost)));
            let what = format!("operation {}, without change {lost}", point.upto());
            let bucket = open(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = rows(&bucket);
            // The commit that is under way may be there.
            let wanted = &states[least..(least + 2).min(states.len())];
            assert!(wanted.contains(&found), "{what}: {} rows, after commit {least}", found.len());
            images += 1;
        }
    }
    images
}

/// redb 4.2: the file grew, the header that says so was durable, the growth was not; the file could never be opened again.
#[test]
fn redb_growth_is_durable_before_what_tells_of_it() {
    let (disk, states) = grow(24, 9000);
    let trace = disk.trace();
    let is_growth = |op: &&Op| matches!(op, Op::SetLen(_) | Op::Allocate { .. });
    let growths = trace.ops().iter().filter(is_growth).count();
    assert!(growths > 4, "the file grew only {growths} times");
    assert!(lose_one(&disk, &states) > 300);
}

/// RocksDB #10560: a sync covered a later log and not the end of the one before; nobody noticed the hole.
#[test]
fn rocksdb_no_hole_between_two_segments() {
    let (disk, states) = grow(60, 1500);
    assert!(lose_one(&disk, &states) > 300);
}

/// redb 4.3: a commit right after an open that had repaired something was rolled back by the next crash.
#[test]
fn redb_a_commit_after_an_open_that_rebuilt_something_stays() {
    let (disk, states) = grow(30, 700);
    for what in 0..3 {
        let mut file = disk.to_bytes();
        if what != 1 {
            destroy::index_image(&mut file, PAGE);
        }
        if what != 0 {
            assert!(destroy::segment_table(&mut file, PAGE));
        }
        for keep in [Keep::None, Keep::All, Keep::Random(1), Keep::Random(2)] {
            let damaged = SimDisk::from_image(file.clone());
            let bucket = open(&damaged).unwrap();
            assert_eq!(&rows(&bucket), states.last().unwrap());
            bucket.put(b"after", b"the repair").unwrap();
            let later = after_power_loss(&damaged, keep);
            drop(bucket);
            let mut wanted = states.last().unwrap().clone();
            wanted.insert(b"after".to_vec(), b"the repair".to_vec());
            assert_eq!(rows(&open(&later).unwrap()), wanted, "{what} {keep:?}");
        }
    }
}

/// redb 4.3: an iterator went on behind damage and left entries out without a word.
#[test]
fn redb_a_scan_leaves_nothing_out_without_an_error() {
    let (disk, states) = grow(30, 700);
    // In the last segments damage is noticed by the opening already.
    let bucket = open(&disk).unwrap();
    bucket.compact(Compact::Full).unwrap();
    bucket.close().unwrap();
    let mut file = disk.to_bytes();
    let victim = states.last().unwrap().iter().nth(5).unwrap();
    // The newest record of that key.
    let starts = (0..file.len()).step_by(4).filter(|at| {
        Framed::decode(&file[*at..])
            .is_some_and(|record| record.key() == victim.0 && record.value() == victim.1)
    });
    let all: Vec<usize> = starts.collect();
    assert!(!all.is_empty());
    for at in all {
        file[at + 60] ^= 1;
    }
    let bucket = open(&SimDisk::from_image(file)).unwrap();
    let (mut found, mut errors) = (State::new(), 0);
    for row in bucket.scan(b"").take(1000) {
        match row {
            Ok(row) => drop(found.insert(row.key().to_vec(), row.value().to_vec())),
            Err(_) => errors += 1,
        }
    }
    assert_eq!(found.len() + errors, states.last().unwrap().len());
    assert_eq!(errors, 1);
    assert!(found.iter().all(|(key, value)| states.last().unwrap().get(key) == Some(value)));
}

/// redb 4.3: a transaction could still be committed after a storage error. PostgreSQL: an fsync that had failed was tried
/// again, succeeded, and had lost what it should have written.
#[test]
fn postgres_and_redb_nothing_is_committed_after_a_failure() {
    for fault in [Fault::Eio, Fault::ShortWrite, Fault::SyncFailsThenLies] {
        for call in 0..2 {
            let (source, states) = grow(10, 300);
            let disk = SimDisk::from_image(source.to_bytes());
            let bucket = open(&disk).unwrap();
            disk.fail(disk.op_count() + call, fault);
            assert!(bucket.put(b"lost", b"1").is_err(), "{fault:?} {call}");
            for _ in 0..3 {
                assert!(bucket.put(b"after", b"2").is_err(), "{fault:?} {call}");
                assert!(bucket.flush().is_err(), "{fault:?} {call}");
                assert!(bucket.compact(Compact::Full).is_err(), "{fault:?} {call}");
            }
            assert_eq!(&rows(&bucket), states.last().unwrap(), "what is not durable is shown");
            assert!(bucket.close().is_err());
            for keep in [Keep::None, Keep::All, Keep::Random(7)] {
                let later = SimDisk::from_image({
                    let trace = disk.trace();
                    trace.image(trace.len(), keep)
                });
                let found = rows(&open(&later).unwrap());
                assert!(!found.contains_key(b"after".as_slice()));
                let mut with = states.last().unwrap().clone();
                with.insert(b"lost".to_vec(), b"1".to_vec());
                assert!(found == with || &found == states.last().unwrap());
            }
        }
    }
}

/// redb #1330: lists of free pages were believed, and a made-up file had pages that were free and in use.
#[test]
fn redb_a_map_that_calls_everything_free_is_not_believed() {
    let (disk, states) = grow(30, 700);
    let mut file = disk.to_bytes();
    let newest = &destroy::roots(&file, PAGE)[0];
    let superblock = newest.superblock;
    let stamp = Stamp { epoch: superblock.epoch.get(), uuid_lo: superblock.file_uuid_lo.get() };
    let pageid = superblock.fsm_start_page.get();
    let start = superblock.segment_start_page.get();
    let all = FreeExtent {
        start_page: start.into(),
        page_count: (superblock.segment_end_page.get() - start).into(),
    };
    let page = free_map::encode(stamp, pageid, 0, u64::try_from(PAGE).unwrap(), &[all]);
    let at = usize::try_from(pageid).unwrap() * PAGE;
    file[at..at + PAGE].copy_from_slice(&page);
    let disk = SimDisk::from_image(file);
    let bucket = open(&disk).unwrap();
    let mut wanted = states.last().unwrap().clone();
    for number in 0..30_u32 {
        let key = format!("new {number}");
        bucket.put(&key, vec![3; 900]).unwrap();
        wanted.insert(key.into_bytes(), vec![3; 900]);
    }
    bucket.compact(Compact::Full).unwrap();
    assert_eq!(rows(&bucket), wanted);
    bucket.close().unwrap();
    assert_eq!(rows(&open(&disk).unwrap()), wanted);
}

/// LevelDB #251: repair took records of a write that was never finished. Here they go if the batch has no end. If its end is
/// there, nothing tells a batch that was torn from one that was damaged later: then what is intact is saved, and what is
/// lost is named.
#[test]
fn leveldb_repair_makes_no_batch_of_a_part_of_it() {
    let disk = SimDisk::new();
    let bucket = create(&disk);
    bucket.put(b"before", b"1").unwrap();
    let before = disk.trace().len();
    let mut batch = Batch::new();
    for number in 0..40_u32 {
        batch.put(number.to_be_bytes(), [8; 300]);
    }
    bucket.commit(batch).unwrap();
    let trace = disk.trace();
    let (mut images, mut parts) = (0, 0);
    for upto in before..trace.len() {
        let point = trace.point(upto);
        let random = (0..30).map(Keep::Random);
        for keep in (0..point.pending()).map(Keep::Prefix).chain(random) {
            let mut image = point.image(keep);
            // Something must be wrong, or there is nothing to repair.
            image[PAGE + 8] ^= 1;
            image[20] ^= 1;
            let target = SimDisk::new();
            let shared: Arc<dyn Disk> = Arc::new(target.reopen());
            let source = Arc::new(SimDisk::from_image(image));
            let report = kvb::repair_on(source, Some(shared), env(), options(), &mut |_| {});
            let report = report.unwrap();
            let found = if report.is_sound { continue } else { rows(&open(&target).unwrap()) };
            let has_end = found.contains_key(39_u32.to_be_bytes().as_slice());
            let is_named = has_end && !report.lost.is_empty();
            let is_whole = found.len() == 1 || found.len() == 41;
            assert!(is_whole || is_named, "{} rows of a batch", found.len());
            (images, parts) = (images + 1, parts + usize::from(!is_whole));
        }
    }
    assert!(images > 30 && parts < images, "{images} images, {parts} with a part of the batch");
}

/// sled #1533: a damaged snapshot of the index made the store impossible to open. fjall #68: a journal that could not be read
/// did.
#[test]
fn sled_and_fjall_what_is_derived_may_be_garbage() {
    let (disk, states) = grow(30, 700);
    let whole = disk.to_bytes();
    let superblock = destroy::roots(&whole, PAGE)[0].superblock;
    let journal = usize::try_from(superblock.journal_start_page.get()).unwrap() * PAGE;
    let journal_len = usize::try_from(superblock.journal_page_count.get()).unwrap() * PAGE;
    let image = usize::try_from(superblock.index_region_start_page.get()).unwrap() * PAGE;
    let mut random = fastrand::Rng::with_seed(1);
    for (start, len) in [(journal, journal_len), (image, PAGE), (image - PAGE, PAGE)] {
        for _ in 0..20 {
            let mut file = whole.clone();
            random.fill(&mut file[start..start + len]);
            let disk = SimDisk::from_image(file);
            let bucket = open(&disk).unwrap();
            assert_eq!(&rows(&bucket), states.last().unwrap());
            bucket.put(b"more", b"1").unwrap();
        }
    }
}

/// fjall #317: what was written to a journal after its recovery was lost at the next opening. redb 4.2: a crash during the
/// repair after a crash rolled commits back.
#[test]
fn fjall_what_is_written_after_a_recovery_stays() {
    for first in 0..4 {
        let mut disk = SimDisk::new();
        drop(create(&disk));
        let mut wanted = State::new();
        for round in 0..25_u64 {
            let bucket = open(&disk).unwrap();
            assert_eq!(rows(&bucket), wanted, "round {round}");
            let key = format!("round {round}").into_bytes();
            bucket.put(&key, [4; 500]).unwrap();
            wanted.insert(key, vec![4; 500]);
            let keep = match (round + first) % 4 {
                0 => Keep::None,
                1 => Keep::All,
                _ => Keep::Random(round),
            };
            let next = after_power_loss(&disk, keep);
            drop(bucket);
            disk = next;
            // And once more while it is opened.
            let recovering = SimDisk::from_image(disk.to_bytes());
            recovering.fail(recovering.op_count() + round % 12, Fault::PowerLoss);
            drop(open(&recovering));
            disk = after_power_loss(&recovering, Keep::Random(round));
        }
    }
}

/// redb 4.2: power failed again while the repair after a crash was under way, and durable commits were rolled back.
#[test]
fn redb_a_crash_during_the_repair_after_a_crash_loses_nothing() {
    let (disk, states) = grow(12, 1500);
    let (mut number, mut recoveries) = (0, 0_u64);
    cut_everywhere(&disk, |image, what, least| {
        number += 1;
        if number % 23 != 0 {
            return;
        }
        let recovering = SimDisk::from_image(image);
        let bucket = open(&recovering).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = rows(&bucket);
        assert!(is_after(&found, &states, least), "{what}: after commit {least}");
        drop(bucket);
        let trace = recovering.trace();
        for upto in 0..=trace.len() {
            for keep in [Keep::None, Keep::Random(number)] {
                let again = SimDisk::from_image(trace.image(upto, keep));
                let what = format!("{what}, and operation {upto} of the recovery, {keep:?}");
                let bucket = open(&again).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(rows(&bucket), found, "{what}");
                recoveries += 1;
            }
        }
    });
    assert!(recoveries > 300, "only {recoveries} recoveries");
}

/// redb 0.17 to 2.1: a commit that was to be durable came after some that were not, and did not take those along.
#[test]
fn redb_a_durable_commit_takes_those_along_that_were_not() {
    let levels = [Durability::Relaxed, Durability::Relaxed, Durability::Sync];
    let others = [Durability::SyncOnce, Durability::Relaxed, Durability::Relaxed];
    for levels in [levels, others] {
        let of = |number: u32| levels[usize::try_from(number).unwrap() % 3];
        let (disk, states) = grow_with(30, 700, of);
        let images = cut_everywhere(&disk, |image, what, least| {
            let bucket = open(&SimDisk::from_image(image));
            let found = rows(&bucket.unwrap_or_else(|error| panic!("{what}: {error}")));
            assert!(is_after(&found, &states, least), "{what}: after commit {least}");
        });
        assert!(images > 300, "only {images} images");
    }
}

/// LevelDB #193: a new log was begun while the old one was not synced yet; a durable write in the new one was there after a
/// crash, and what came before it was not.
#[test]
fn leveldb_a_new_segment_is_not_durable_before_the_old_one() {
    // Every tenth commit is durable, and a segment holds four.
    let durability = |number| match number % 10 {
        0 => Durability::SyncOnce,
        _ => Durability::Relaxed,
    };
    let (disk, states) = grow_with(60, 1300, durability);
    let images = cut_everywhere(&disk, |image, what, least| {
        let bucket = open(&SimDisk::from_image(image));
        let found = rows(&bucket.unwrap_or_else(|error| panic!("{what}: {error}")));
        assert!(is_after(&found, &states, least), "{what}: after commit {least}");
    });
    let file = disk.to_bytes();
    let segments = destroy::roots(&file, PAGE)[0].extension.next_seg_id.get();
    assert!(segments > 10 && images > 300, "{segments} segments, {images} images");
}

/// RocksDB #10185: after a crash damage was told where there was none. One copy of the superblock may be half written; nothing
/// else is told, and nothing at all once the bucket was opened.
#[test]
fn rocksdb_no_damage_is_told_where_there_is_none() {
    let (disk, _) = grow(10, 1500);
    let images = cut_everywhere(&disk, |image, what, _| {
        let disk = SimDisk::from_image(image);
        for is_opened in [false, true] {
            let found = kvb::verify_on(Arc::new(disk.reopen()), env(), options(), &mut |_| {});
            let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
            let is_fine = |finding: &kvb::Finding| {
                finding.severity == kvb::Severity::Notice
                    || !is_opened && finding.what == kvb::What::Superblock
            };
            let told = &found.findings;
            assert!(told.iter().all(is_fine), "{what}, opened: {is_opened}: {told:?}");
            open(&disk).unwrap().close().unwrap();
        }
    });
    assert!(images > 200, "only {images} images");
}

/// bbolt #1058 and #1059: a hot copy was made of pages while they were written over. Here everything is replaced and
/// compacted at each report of the backup.
#[test]
fn bbolt_a_copy_of_what_is_being_overwritten_is_of_one_moment() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.kvb");
    let bucket = create(&SimDisk::new());
    let put_all = |round: u8| {
        let mut batch = Batch::new();
        for number in 0..300_u32 {
            batch.put(number.to_be_bytes(), [round; 400]);
        }
        bucket.commit_with(batch, Durability::Relaxed).unwrap();
    };
    put_all(0);
    let mut round = 0;
    for _ in 0..3 {
        let snapshot = bucket.snapshot();
        let before = round;
        let mut overwrite = |_: kvb::Progress<'_>| {
            if round == before + 4 {
                return;
            }
            round += 1;
            put_all(round);
            bucket.compact(Compact::Full).unwrap();
        };
        snapshot.backup(&copy, &mut overwrite).unwrap();
        assert!(round > before, "the backup made no report");
        drop(snapshot);
        let found = rows(&Bucket::open(&copy, options()).unwrap());
        assert_eq!(found.len(), 300);
        assert!(found.values().all(|value| value == &[before; 400]), "of another moment");
        std::fs::remove_file(&copy).unwrap();
    }
}

/// redb 0.12: offsets were 32 bits wide somewhere, and files over 4 GiB were destroyed. Needs as much room, so it runs only
/// with `KVB_LARGE` set.
#[test]
fn redb_files_over_4_gib() {
    if std::env::var_os("KVB_LARGE").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.kvb");
    let options = Options::default().durability(Durability::Relaxed);
    let bucket = Bucket::create(&path, options.clone()).unwrap();
    let value = |number: u32| {
        let mut value = vec![0; 1 << 20];
        fastrand::Rng::with_seed(number.into()).fill(&mut value);
        value
    };
    for number in 0..4400_u32 {
        bucket.put(number.to_be_bytes(), value(number)).unwrap();
    }
    bucket.close().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() > 4 << 30);
    let bucket = Bucket::open(&path, options.clone()).unwrap();
    for number in (0..4400_u32).rev() {
        assert!(bucket.get(number.to_be_bytes()).unwrap().unwrap()[..] == value(number)[..]);
    }
    for number in (0..4400_u32).step_by(2) {
        bucket.delete(number.to_be_bytes()).unwrap();
    }
    bucket.compact(Compact::Full).unwrap();
    bucket.close().unwrap();
    let found = kvb::verify(&path, options.clone(), &mut |_| {}).unwrap();
    assert!(found.is_sound(), "{:?}", found.findings);
    let bucket = Bucket::open(&path, options).unwrap();
    for number in 0..4400_u32 {
        let found =
            bucket.get(number.to_be_bytes()).unwrap().map(|found| found[..] == value(number)[..]);
        assert_eq!(found, (number % 2 == 1).then_some(true), "value {number}");
    }
}
