//! Damage: lost superblocks, rotten records, flipped bits in everything that is derived.
//!
//! What is derived is rebuilt; what was durable and is gone is an error that says where; nothing is ever a wrong value.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use host::{Disk, Keep, ManualEnv, MemoryDisk, SimDisk};
use kvb::format::extension::{self, Extension};
use kvb::format::free_map::{self, Stamp};
use kvb::format::index_page::{digest_offset, slots_per_page};
use kvb::format::meta;
use kvb::format::superblock::Superblock;
use kvb::{Batch, Bucket, Compact, Durability, Error, Options, What};

#[path = "support/anatomy.rs"]
mod anatomy;
#[path = "support/destroy.rs"]
mod destroy;
#[path = "support/lookup.rs"]
mod lookup;
#[path = "support/seed_reader.rs"]
mod seed_reader;

use lookup::Lookup;

const PAGE: usize = 4096;

fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(1_700_000_000_000_000_000, 7))
}

fn options() -> Options {
    Options::default()
        .background(false)
        .durability(Durability::SyncOnce)
        .segment_bytes_max(16 << 10)
}

fn open(bytes: &[u8]) -> kvb::Result<Bucket> {
    Bucket::open_on(Arc::new(MemoryDisk::from_bytes(bytes.to_vec())), env(), options())
}

fn key(n: u32) -> Vec<u8> {
    format!("key {n}").into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    format!("the value of {n}, {n}, {n}").into_bytes()
}

/// A closed bucket with this many keys, some deleted and some overwritten.
fn closed_bucket(keys: u32, options: Options) -> Vec<u8> {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options).unwrap();
    for n in 0..keys {
        bucket.put(key(n), b"to be overwritten").unwrap();
        bucket.put(key(n), value(n)).unwrap();
        if n % 5 == 0 {
            bucket.delete(key(n)).unwrap();
        }
    }
    bucket.close().unwrap();
    disk.to_bytes()
}

fn expected(n: u32) -> Option<Vec<u8>> {
    (!n.is_multiple_of(5)).then(|| value(n))
}

fn assert_all_there(bucket: &dyn Lookup, keys: u32, context: &str) {
    for n in 0..keys {
        let found =
            bucket.value(&key(n)).unwrap_or_else(|error| panic!("{context}: key {n}: {error}"));
        assert_eq!(found.as_deref(), expected(n).as_deref(), "{context}: key {n}");
    }
}

fn position_of(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|window| window == needle).expect("it is in the file")
}

fn superblock_of(bytes: &[u8]) -> Superblock {
    Superblock::decode(bytes).unwrap()
}

/// A bucket cut off by a crash right behind its commits, with nothing but the commits to tell what was durable.
fn crashed_bucket(durability: Durability) -> Vec<u8> {
    let disk = SimDisk::new();
    let bucket =
        Bucket::create_on(Arc::new(disk.clone()), env(), options().durability(durability)).unwrap();
    bucket.put(b"first", b"the first value").unwrap();
    bucket.put(b"second", b"the second value").unwrap();
    let image = disk.trace().image(disk.trace().len(), Keep::None);
    drop(bucket);
    image
}

#[test]
fn a_rotten_record_that_the_journal_knew_durable_is_refused_and_named() {
    let mut bytes = crashed_bucket(Durability::Sync);
    let at = position_of(&bytes, b"the second value");
    bytes[at] ^= 1;
    let error = open(&bytes).unwrap_err();
    let Error::Corrupt(corrupt) = &error else { panic!("{error}") };
    assert_eq!(corrupt.what, What::Record);
    let named = usize::try_from(corrupt.at).unwrap();
    assert!(named < at && at - named < 64, "names byte {named}, damage is at {at}");
    // Whatever a reader would find may have been replaced by what is lost.
    let disk = MemoryDisk::from_bytes(bytes.clone());
    let bucket = Bucket::open_read_only_on(Arc::new(disk.clone()), env()).unwrap();
    assert!(bucket.mount_report().damage.is_some());
    for key in [&b"first"[..], b"second", b"third"] {
        let found = bucket.get(key);
        assert!(matches!(&found, Err(Error::Corrupt(named)) if named == corrupt), "{found:?}");
        assert!(bucket.get_many(&[key]).is_err());
    }
    let rows: Vec<_> = bucket.snapshot().unwrap().scan(b"").map(|row| row.is_ok()).collect();
    assert_eq!(rows, [false]);
    drop(bucket);
    // Who wants that anyway can read, short of what is damaged and what follows it in the tail.
    let despite = Options::default().despite_damage(true);
    let bucket = kvb::Reader::open_on_with(Arc::new(disk.clone()), env(), despite).unwrap();
    assert!(bucket.get(b"second").unwrap().is_none());
    assert_eq!(bucket.get(b"first").unwrap().as_deref(), Some(&b"the first value"[..]));
    drop(bucket);
    assert_eq!(disk.to_bytes(), bytes, "a reader writes nothing");
}

#[test]
fn a_rotten_record_that_a_checkpoint_knew_durable_is_refused() {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options()).unwrap();
    bucket.put(b"first", b"the first value").unwrap();
    bucket.close().unwrap();
    let mut bytes = disk.to_bytes();
    let at = position_of(&bytes, b"the first value");
    bytes[at] ^= 1;
    assert!(matches!(open(&bytes), Err(Error::Corrupt(corrupt)) if corrupt.what == What::Record));
}

#[test]
fn a_torn_record_above_everything_known_durable_is_cut() {
    let mut bytes = crashed_bucket(Durability::SyncOnce);
    let at = position_of(&bytes, b"the second value");
    bytes[at] ^= 1;
    let bucket = open(&bytes).unwrap();
    assert_eq!(bucket.get(b"first").unwrap().as_deref(), Some(&b"the first value"[..]));
    assert!(bucket.get(b"second").unwrap().is_none());
    bucket.put(b"second", b"again").unwrap();
}

#[test]
fn either_superblock_is_enough_and_the_newer_one_counts() {
    let bytes = closed_bucket(50, options());
    let b_at = bytes.len() - PAGE;
    for (context, at) in [("A lost", 0), ("B lost", b_at)] {
        for torn_from in [0, 512] {
            // All of it, or everything but the first sector.
            let mut damaged = bytes.clone();
            damaged[at + torn_from..at + PAGE].fill(0);
            let bucket = open(&damaged).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_all_there(&bucket, 50, context);
        }
    }
    let mut damaged = bytes.clone();
    damaged[..PAGE].fill(0);
    damaged[b_at..].fill(0);
    assert!(matches!(open(&damaged), Err(Error::Invalid(_))));
    damaged[..4].copy_from_slice(&bytes[..4]);
    assert!(
        matches!(open(&damaged), Err(Error::Corrupt(corrupt)) if corrupt.what == What::Superblock)
    );
}

#[test]
fn an_extension_of_another_epoch_does_not_count() {
    let bytes = closed_bucket(10, options());
    let mut damaged = bytes.clone();
    // A sound extension, but of an earlier checkpoint: as if only part of the sector had been written.
    let superblock = superblock_of(&bytes);
    let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
    let epoch = superblock.epoch.get();
    let mut old = Extension::decode(&bytes[extension::OFFSET..], epoch, uuid).unwrap();
    old.epoch.set(epoch - 1);
    let old = zerocopy::IntoBytes::as_bytes(&old.seal()).to_vec();
    damaged[extension::OFFSET..extension::OFFSET + old.len()].copy_from_slice(&old);
    let bucket = open(&damaged).unwrap();
    assert_ne!(bucket.mount_report().superblock_page, 0, "A does not count");
    assert_all_there(&bucket, 10, "old extension");
}

#[test]
fn every_flipped_byte_of_an_index_page_is_found_and_the_index_rebuilt() {
    let keys = 60;
    let bytes = closed_bucket(keys, options());
    let first_page = usize::try_from(superblock_of(&bytes).index_region_start_page.get()).unwrap();
    let end = digest_offset(slots_per_page(u64::try_from(PAGE).unwrap())) + 8;
    for offset in (0..end).chain([PAGE - 1]) {
        let mut damaged = bytes.clone();
        damaged[first_page * PAGE + offset] ^= 0x10;
        let bucket = open(&damaged).unwrap();
        let context = format!("index byte {offset}");
        assert_all_there(&bucket, keys, &context);
        // A reader has nothing but the file as it is, and may not write.
        let reader = MemoryDisk::from_bytes(damaged);
        let reader = Bucket::open_read_only_on(Arc::new(reader), env()).unwrap();
        assert_all_there(&reader, keys, &format!("{context}, read only"));
        let many: Vec<Vec<u8>> = (0..keys).map(key).collect();
        for (n, value) in (0..).zip(reader.get_many(&many).unwrap()) {
            assert_eq!(value.as_deref(), expected(n).as_deref(), "{context}, many");
        }
        if offset % 97 == 0 {
            bucket.close().unwrap();
        }
    }
}

#[test]
fn a_lost_image_head_is_rebuilt_from_the_log() {
    let bytes = closed_bucket(300, options());
    let page = usize::try_from(superblock_of(&bytes).index_region_start_page.get()).unwrap() - 1;
    let mut damaged = bytes.clone();
    damaged[page * PAGE + 140] ^= 1;
    let disk = MemoryDisk::from_bytes(damaged);
    let bucket = Bucket::open_on(Arc::new(disk.clone()), env(), options()).unwrap();
    assert!(bucket.mount_report().index_rebuilt);
    assert_all_there(&bucket, 300, "image head");
    bucket.close().unwrap();
    let bucket = open(&disk.to_bytes()).unwrap();
    assert!(!bucket.mount_report().index_rebuilt);
    assert_all_there(&bucket, 300, "after the rebuild");
    let reader = MemoryDisk::from_bytes(disk.to_bytes());
    let reader = Bucket::open_read_only_on(Arc::new(reader), env()).unwrap();
    assert_all_there(&reader, 300, "read only");
}

#[test]
fn a_lost_segment_table_is_rebuilt_by_walking() {
    let bytes = closed_bucket(5_000, options());
    let superblock = superblock_of(&bytes);
    let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
    let extension =
        Extension::decode(&bytes[extension::OFFSET..], superblock.epoch.get(), uuid).unwrap();
    let page = usize::try_from(extension.table_start_page.get()).unwrap();
    assert_ne!(page, 0, "enough segments for a table");
    let mut damaged = bytes.clone();
    damaged[page * PAGE + 300] ^= 1;
    let disk = MemoryDisk::from_bytes(damaged);
    let bucket = Bucket::open_on(Arc::new(disk.clone()), env(), options()).unwrap();
    assert!(bucket.mount_report().table_rebuilt);
    assert_all_there(&bucket, 5_000, "table");
    bucket.close().unwrap();
    let bucket = open(&disk.to_bytes()).unwrap();
    assert!(!bucket.mount_report().table_rebuilt);
    assert_all_there(&bucket, 5_000, "after the rebuild");
}

#[test]
fn the_free_space_map_of_a_closed_bucket_is_exact() {
    let bytes = closed_bucket(3_000, options().overlay_min(100));
    let superblock = superblock_of(&bytes);
    let stamp = Stamp { epoch: superblock.epoch.get(), uuid_lo: superblock.file_uuid_lo.get() };
    let mut free = std::collections::BTreeSet::new();
    for index in 0..superblock.fsm_page_count.get() {
        let pageid = superblock.fsm_start_page.get() + index;
        let at = usize::try_from(pageid).unwrap() * PAGE;
        let pages = free_map::decode(&bytes[at..at + PAGE], stamp, pageid);
        free.extend(pages.expect("the map carries the checkpoint's stamp"));
        let other = Stamp { epoch: stamp.epoch - 1, ..stamp };
        assert!(free_map::decode(&bytes[at..at + PAGE], other, pageid).is_none());
    }
    let seen = seed_reader::read(&bytes);
    let last_page = u64::try_from(bytes.len() / PAGE - 1).unwrap();
    let mut walked = seen.free_pages;
    walked.extend(superblock.segment_end_page.get()..last_page);
    // Extents named for the log are marked FREE until it goes there, but are not for anyone else.
    assert!(free.is_subset(&walked), "the map calls pages free that are not");
    let named = walked.difference(&free).count();
    assert!(named <= 64, "{named} free pages are missing from the map");
}

/// A flipped byte anywhere: an error, or exactly what was stored.
#[test]
fn no_flipped_byte_ever_makes_a_wrong_value() {
    let keys = 250;
    let bytes = closed_bucket(keys, options());
    let (mut refused, mut errors, mut right) = (0, 0, 0);
    for at in (0..bytes.len()).step_by(23) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        let Ok(bucket) = open(&damaged) else {
            refused += 1;
            continue;
        };
        for n in 0..keys {
            match bucket.get(key(n)) {
                Err(Error::Corrupt(_)) => errors += 1,
                Err(error) => panic!("byte {at}: {error}"),
                Ok(found) => {
                    assert_eq!(found.as_deref(), expected(n).as_deref(), "byte {at}, key {n}");
                    right += 1;
                }
            }
        }
    }
    println!("opened and right {right}, errors {errors}, refused to open {refused}");
    assert!(refused > 0 && errors > 0 && right > 0);
}

/// A cut-off file: an error, or exactly what was stored up to some commit.
#[test]
fn no_truncation_ever_makes_a_wrong_value() {
    let bytes = closed_bucket(40, options());
    for len in (0..bytes.len()).step_by(509) {
        let Ok(bucket) = open(&bytes[..len]) else {
            continue;
        };
        assert_all_there(&bucket, 40, &format!("cut to {len}"));
    }
}

#[test]
fn a_value_that_contains_a_bucket_is_only_a_value() {
    let inner = closed_bucket(30, options());
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options()).unwrap();
    let mut batch = Batch::new();
    batch.put(b"bucket", &inner).put(b"after", b"it");
    bucket.commit(batch).unwrap();
    bucket.close().unwrap();
    let bucket = open(&disk.to_bytes()).unwrap();
    assert_eq!(bucket.get(b"bucket").unwrap().as_deref(), Some(&inner[..]));
    assert_eq!(bucket.get(b"after").unwrap().as_deref(), Some(&b"it"[..]));
    assert!(bucket.get(key(1)).unwrap().is_none());
    assert_eq!(seed_reader::read(&disk.to_bytes()).live().len(), 2);
    let disk: Arc<dyn Disk> = Arc::new(disk.reopen());
    assert!(disk.len().unwrap() > 0);
}

/// A closed bucket after a compaction: moved records, tombstones among them, and segments of the log behind. With a guard
/// if that is asked for.
fn compacted_bucket(keys: u32, is_guarded: bool, options: Options) -> Vec<u8> {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options.clone()).unwrap();
    for n in 0..keys {
        bucket.put(key(n), b"to be overwritten").unwrap();
    }
    bucket.flush().unwrap();
    for n in 0..keys {
        bucket.put(key(n), value(n)).unwrap();
    }
    bucket.compact(Compact::Full).unwrap();
    for n in (0..keys).filter(|n| n.is_multiple_of(5)) {
        bucket.delete(key(n)).unwrap();
    }
    if is_guarded {
        // The older records are held when their segments are given up, so the guard stays until the next round.
        let snapshot = bucket.snapshot();
        bucket.compact(Compact::Full).unwrap();
        drop(snapshot);
    }
    bucket.close().unwrap();
    disk.to_bytes()
}

/// Reads everything by lookups and by a scan: errors of damage, or what is expected. Gives the number of errors.
fn errors_or_all_there(bucket: &Bucket, keys: u32, context: &str) -> usize {
    let mut errors = 0;
    for n in 0..keys {
        match bucket.get(key(n)) {
            Err(Error::Corrupt(_)) => errors += 1,
            Err(error) => panic!("{context}: key {n}: {error}"),
            Ok(found) => assert_eq!(found.as_deref(), expected(n).as_deref(), "{context}: key {n}"),
        }
    }
    let mut rows = BTreeMap::new();
    let mut is_damaged = false;
    for row in bucket.scan(b"key ") {
        match row {
            Err(Error::Corrupt(_)) => is_damaged = true,
            Err(error) => panic!("{context}: a scan: {error}"),
            Ok(row) => drop(rows.insert(row.key().to_vec(), row.value().to_vec())),
        }
    }
    for n in 0..keys {
        match (rows.remove(&key(n)), expected(n)) {
            (None, Some(_)) if is_damaged => {}
            (found, wanted) => assert_eq!(found, wanted, "{context}: key {n} in a scan"),
        }
    }
    assert!(rows.is_empty(), "{context}: a scan finds {:?}", rows.keys());
    errors + usize::from(is_damaged)
}

/// Opens a damaged bucket, reads everything, compacts it in every way, and reads everything again. Whatever is wrong is
/// said, and nothing comes back from the dead. True if all of it went well.
fn errors_or_right(damaged: &[u8], keys: u32, context: &str) -> bool {
    let disk = MemoryDisk::from_bytes(damaged.to_vec());
    let open = || Bucket::open_on(Arc::new(disk.reopen()), env(), options());
    let bucket = match open() {
        Ok(bucket) => bucket,
        Err(Error::Corrupt(_)) => return false,
        Err(error) => panic!("{context}: {error}"),
    };
    let mut errors = errors_or_all_there(&bucket, keys, context);
    for kind in [Compact::Auto, Compact::LowSpace, Compact::Full] {
        match bucket.compact(kind) {
            Ok(_) => {}
            Err(Error::Corrupt(_)) => errors += 1,
            Err(error) => panic!("{context}: {kind:?}: {error}"),
        }
        errors += errors_or_all_there(&bucket, keys, &format!("{context}, {kind:?}"));
    }
    // Damage is no reason to stop writing.
    bucket.put(b"another", b"value").unwrap_or_else(|error| panic!("{context}: {error}"));
    drop(bucket);
    match open() {
        Ok(bucket) => errors += errors_or_all_there(&bucket, keys, &format!("{context}, again")),
        Err(Error::Corrupt(_)) => errors += 1,
        Err(error) => panic!("{context}, again: {error}"),
    }
    errors == 0
}

/// Side data is derived: with any byte of it flipped everything is there, whether the index is needed for it or lost.
#[test]
fn flipped_bytes_in_runs_filters_and_directories_cost_nothing() {
    let keys = 120;
    for is_guarded in [false, true] {
        let bytes = compacted_bucket(keys, is_guarded, options());
        assert!(errors_or_right(&bytes, keys, "intact"));
        let mut flipped = 0;
        for (start, meta) in anatomy::side_data(&bytes) {
            let head = start + meta::OFFSET..start + meta::OFFSET + 64;
            let sections = meta.sections.iter().map(|section| {
                let from = start + usize::try_from(section.offset.get()).unwrap();
                from..from + usize::try_from(section.length.get()).unwrap()
            });
            // The header's own CRC is a walk's business; see below.
            for at in std::iter::once(head).chain(sections).flatten().step_by(7) {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                let context = format!("guarded {is_guarded}, byte {at} of side data at {start}");
                assert!(errors_or_right(&damaged, keys, &context), "{context}: an error");
                destroy::index_image(&mut damaged, PAGE);
                let context = format!("{context}, no image");
                assert!(errors_or_right(&damaged, keys, &context), "{context}: an error");
                flipped += 1;
            }
        }
        assert!(flipped > 100, "only {flipped} bytes flipped");
    }
}

/// Runs that are too many to be loaded are checked when they are needed. What does not hold costs time and nothing else,
/// also where records are overwritten and deleted later.
#[test]
fn damaged_runs_that_are_checked_late_cost_nothing() {
    const KEYS: u32 = 30_000;
    /// No section, but what stands before all of them.
    const HEAD: u32 = u32::MAX;
    // Nothing is merged, and compaction has no reason to.
    let options =
        Options::default().durability(Durability::Relaxed).overlay_min(1 << 20).slack(400);
    let disk = MemoryDisk::new();
    let create = options.clone().background(false);
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), create).unwrap();
    for first in (0..KEYS).step_by(5000) {
        let keys = first..first + 5000;
        let (mut first, mut second, mut third) = (Batch::new(), Batch::new(), Batch::new());
        for n in keys {
            first.put(key(n), b"to be overwritten");
            second.put(key(n), value(n));
            if n % 5 == 0 {
                third.delete(key(n));
            }
        }
        for batch in [first, second, third] {
            bucket.commit(batch).unwrap();
        }
    }
    let killed = disk.to_bytes();
    drop(bucket);
    let damage = |sections: &[u32]| {
        let mut bytes = killed.clone();
        for section in sections.iter().flat_map(|kind| anatomy::sections(&killed, *kind)) {
            bytes[section.start + section.len() / 2] ^= 1;
        }
        if sections.contains(&HEAD) {
            anatomy::side_data(&killed).iter().for_each(|(start, _)| bytes[start + 20] ^= 1);
        }
        bytes
    };
    for sections in [
        &[][..],
        &[HEAD],
        &[meta::SECTION_RUN],
        &[meta::SECTION_FILTER],
        &[meta::SECTION_RUN, meta::SECTION_DIRECTORY],
    ] {
        let bytes = damage(sections);
        let context = format!("sections {sections:?}");
        let reader = Arc::new(MemoryDisk::from_bytes(bytes.clone()));
        let reader = Bucket::open_read_only_on(reader, env()).unwrap();
        let report = reader.mount_report();
        assert!(report.runs > 4, "{context}: {report:?}");
        assert_eq!(report.runs_rebuilt, 0, "{context}: opening does not look at them: {report:?}");
        assert_all_there(&reader, KEYS, &format!("{context}, a reader"));
        for background in [false, true] {
            let context = format!("{context}, background {background}");
            let disk = MemoryDisk::from_bytes(bytes.clone());
            let options = options.clone().background(background);
            let open = || Bucket::open_on(Arc::new(disk.reopen()), env(), options.clone()).unwrap();
            let bucket = open();
            assert_all_there(&bucket, KEYS, &context);
            bucket.put(key(5), value(5)).unwrap();
            bucket.delete(key(5)).unwrap();
            bucket.flush().unwrap();
            assert_eq!(bucket.scan(b"key ").count(), usize::try_from(KEYS - KEYS / 5).unwrap());
            bucket.close().unwrap();
            assert_all_there(&open(), KEYS, &format!("{context}, again"));
        }
    }
}

/// Where a run and a record of its segment are damaged, whatever may have been there is an error, the rest is right.
#[test]
fn a_damaged_run_over_a_damaged_record_is_an_error() {
    const KEYS: u32 = 50_000;
    let options = Options::default().durability(Durability::Relaxed).overlay_min(1 << 20);
    let disk = MemoryDisk::new();
    let create = options.clone().background(false);
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), create).unwrap();
    for first in (0..KEYS).step_by(5000) {
        let mut batch = Batch::new();
        for n in first..first + 5000 {
            batch.put(key(n), value(n));
        }
        bucket.commit(batch).unwrap();
    }
    let mut bytes = disk.to_bytes();
    drop(bucket);
    let segment = anatomy::extents(&bytes).into_iter().find(anatomy::Found::is_sealed).unwrap();
    let middle =
        segment.bytes.start + usize::try_from(segment.header.segment_size.get()).unwrap() / 2;
    bytes[middle] ^= 1;
    let runs = anatomy::sections(&bytes, meta::SECTION_RUN);
    let run = runs.iter().filter(|run| run.start > middle).min_by_key(|run| run.start).unwrap();
    bytes[run.start] ^= 1;
    let count_errors = |bucket: &dyn Lookup| {
        let mut errors = 0;
        for n in 0..KEYS {
            match bucket.value(&key(n)) {
                Ok(found) => assert_eq!(found, Some(value(n)), "key {n}"),
                Err(Error::Corrupt(_)) => errors += 1,
                Err(error) => panic!("key {n}: {error}"),
            }
        }
        errors
    };
    let reader = Arc::new(MemoryDisk::from_bytes(bytes.clone()));
    let errors = count_errors(&Bucket::open_read_only_on(reader, env()).unwrap());
    assert!((1..KEYS / 2).contains(&errors), "{errors} errors");
    let disk = Arc::new(MemoryDisk::from_bytes(bytes));
    let bucket = Bucket::open_on(disk, env(), options).unwrap();
    assert_eq!(count_errors(&bucket), errors);
    // An index without them would be wrong, so there is none, and the log does not grow without one.
    let flushed = bucket.flush();
    assert!(matches!(flushed, Err(Error::Corrupt(_) | Error::Stopped(_))), "{flushed:?}");
    assert_eq!(count_errors(&bucket), errors);
}

/// A byte of a moved record, of a tombstone, of a guard or of any header of theirs: an error, or right.
#[test]
fn flipped_bytes_in_moved_segments_and_guards_are_errors_or_harmless() {
    let keys = 60;
    for is_guarded in [false, true] {
        let bytes = compacted_bucket(keys, is_guarded, options());
        let is_guard = |found: &anatomy::Found| found.header.is_guard();
        assert_eq!(anatomy::extents(&bytes).iter().any(is_guard), is_guarded);
        let mut without_table = bytes.clone();
        assert!(destroy::segment_table(&mut without_table, PAGE));
        let mut without_both = without_table.clone();
        destroy::index_image(&mut without_both, PAGE);
        let (mut right, mut wrong) = (0, 0);
        for extent in anatomy::extents(&bytes).into_iter().filter(anatomy::Found::is_sealed) {
            let size = usize::try_from(extent.header.segment_size.get()).unwrap();
            for at in (extent.bytes.start..extent.bytes.start + size).step_by(5) {
                for (file, what) in [
                    (&bytes, "with all"),
                    (&without_table, "without a table"),
                    (&without_both, "without table and image"),
                ] {
                    let mut damaged = file.clone();
                    damaged[at] ^= 1 << (at % 8);
                    let context = format!("guarded {is_guarded}, byte {at}, {what}");
                    let is_right = errors_or_right(&damaged, keys, &context);
                    right += usize::from(is_right);
                    wrong += usize::from(!is_right);
                }
            }
        }
        assert!(right > 0 && wrong > 0, "{right} right, {wrong} errors");
    }
}

/// A bucket in which one key was put, and then deleted or put again in a segment that no index covers; and where that record's key is.
fn hidden(is_deleted: bool) -> (Vec<u8>, usize) {
    let disk = MemoryDisk::new();
    let options = options().overlay_min(1 << 20);
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options).unwrap();
    bucket.put(b"the key", b"old").unwrap();
    bucket.put(b"another", b"1").unwrap();
    bucket.flush().unwrap();
    let mut batch = Batch::new();
    match is_deleted {
        true => batch.delete(b"the key"),
        false => batch.put(b"the key", b"new"),
    };
    bucket.commit(batch).unwrap();
    let before = bucket.stats().unwrap().segments;
    let mut number = 0;
    while bucket.stats().unwrap().segments < before + 2 {
        bucket.put(key(number), value(number)).unwrap();
        number += 1;
    }
    let bytes = disk.to_bytes();
    let name = b"the key";
    let found: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
    assert_eq!(found.len(), 2, "two records of the key");
    (bytes, found[1])
}

/// A merge compares keys. Where one is damaged, what it replaced must not come back.
#[test]
fn a_merge_brings_nothing_back_that_a_damaged_record_hides() {
    for is_deleted in [true, false] {
        let (bytes, newer) = hidden(is_deleted);
        for bit in 0..7 * 8 {
            let mut bytes = bytes.clone();
            bytes[newer + bit / 8] ^= 1 << (bit % 8);
            let disk = MemoryDisk::from_bytes(bytes);
            let options = options().overlay_min(1 << 20);
            let bucket = Bucket::open_on(Arc::new(disk), env(), options).unwrap();
            let context = format!("deleted {is_deleted}, bit {bit}");
            for step in ["opened", "merged", "merged again", "compacted"] {
                let found = bucket.get(b"the key");
                assert!(matches!(found, Err(Error::Corrupt(_))), "{context}, {step}: {found:?}");
                assert_eq!(
                    bucket.get(b"another").unwrap().as_deref(),
                    Some(&b"1"[..]),
                    "{context}"
                );
                bucket.put(b"something else", step).unwrap();
                bucket.flush().unwrap();
                if step == "merged again" {
                    // Whether or not it can do anything.
                    let _ = bucket.compact(Compact::Full);
                }
            }
            // Whoever puts the key again has it again.
            for value in [&b"once more"[..], b"and again"] {
                bucket.put(b"the key", value).unwrap();
                bucket.flush().unwrap();
                assert_eq!(bucket.get(b"the key").unwrap().as_deref(), Some(value), "{context}");
            }
            bucket.delete(b"the key").unwrap();
            bucket.flush().unwrap();
            assert_eq!(bucket.get(b"the key").unwrap().as_deref(), None, "{context}");
        }
    }
}

/// A record that others have replaced may be damaged, too. It is no reason not to read the rest.
#[test]
fn a_reader_opens_beside_a_damaged_record_of_a_key_that_was_put_twice() {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options()).unwrap();
    let mut number = 0;
    for _ in 0..3 {
        bucket.put(b"the key", b"a value").unwrap();
        let before = bucket.stats().unwrap().segments;
        while bucket.stats().unwrap().segments == before {
            bucket.put(key(number), value(number)).unwrap();
            number += 1;
        }
    }
    let bytes = disk.to_bytes();
    let name = b"the key";
    let found: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|at| bytes[*at..].starts_with(name)).collect();
    assert_eq!(found.len(), 3, "three records of the key");
    for at in found {
        let mut bytes = bytes.clone();
        bytes[at + name.len()] ^= 1;
        let disk = Arc::new(MemoryDisk::from_bytes(bytes));
        let reader = kvb::Reader::open_on(disk, env()).unwrap();
        for number in 0..number {
            assert_eq!(reader.get(key(number)).unwrap().as_deref(), Some(&value(number)[..]));
        }
        match reader.get(name) {
            Ok(value) => assert_eq!(value.as_deref(), Some(&b"a value"[..])),
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
        }
    }
}
