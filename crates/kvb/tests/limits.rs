//! The edges: longest keys and values, largest batches, files that are no buckets, and handles that
//! may not write.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{Keep, ManualEnv, MemoryDisk, SimDisk, SystemEnv};
use kvb::{Batch, Bucket, Durability, Error, HashKind, Options};
use tempfile::TempDir;

/// Offsets in a superblock.
const VERSION_MAJOR: usize = 4;
const FLAGS: usize = 36;
const CRC: usize = 132;

struct Place {
    _dir: TempDir,
    path: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("limits.kvb");
    Place { _dir: dir, path }
}

/// A bucket in memory, and the disk it is on.
fn in_memory(options: Options) -> (Bucket, MemoryDisk) {
    let disk = MemoryDisk::new();
    let env = Arc::new(ManualEnv::new(1 << 60, 3));
    (Bucket::create_on(Arc::new(disk.reopen()), env, options).unwrap(), disk)
}

fn quick() -> Options {
    Options::default().durability(Durability::Relaxed)
}

/// Opens a bucket for writing and then for reading, and tells only how that went.
fn open_both_ways(path: &Path) -> [Result<(), Error>; 2] {
    [Bucket::open(path, quick()).map(drop), Bucket::open_read_only(path).map(drop)]
}

/// Bytes that differ from place to place, so that a shifted value is a wrong one.
fn pattern(len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(11);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

#[test]
fn keys_up_to_65535_bytes() {
    let place = place();
    let bucket = Bucket::create(&place.path, quick()).unwrap();
    let longest = pattern(65_535);
    bucket.put(&longest, "longest").unwrap();
    bucket.put("", "empty").unwrap();
    bucket.put("empty value", "").unwrap();
    bucket.put_for(&longest[..65_534], "", std::time::Duration::from_secs(1000)).unwrap();
    let check = |bucket: &Bucket| {
        assert_eq!(bucket.get(&longest).unwrap().as_deref(), Some(&b"longest"[..]));
        assert_eq!(bucket.get("").unwrap().as_deref(), Some(&b"empty"[..]));
        assert_eq!(bucket.get("empty value").unwrap().as_deref(), Some(&b""[..]));
        assert!(bucket.exists(&longest[..65_534]).unwrap());
        assert!(!bucket.exists(&longest[..65_533]).unwrap());
    };
    check(&bucket);
    bucket.close().unwrap();
    let bucket = Bucket::open(&place.path, quick()).unwrap();
    check(&bucket);
    assert!(bucket.delete(&longest).unwrap());
    assert!(bucket.delete("").unwrap());
    assert!(!bucket.exists("").unwrap());
    bucket.close().unwrap();
    let bucket = Bucket::open(&place.path, quick()).unwrap();
    assert!(!bucket.exists("").unwrap() && !bucket.exists(&longest).unwrap());
}

#[test]
fn a_longer_key_is_refused_before_anything_is_written() {
    let (bucket, disk) = in_memory(Options::default().background(false));
    bucket.put("key", "value").unwrap();
    let before = disk.to_bytes();
    let too_long = vec![b'k'; 65_536];
    let is_refusal = |result: Result<(), Error>| {
        matches!(result, Err(Error::TooLarge { what: "key", len: 65_536, max: 65_535 }))
    };
    assert!(is_refusal(bucket.put(&too_long, "value")));
    let mut batch = Batch::new();
    batch.put("fine", "value").put(&too_long, "value").delete("key");
    assert!(is_refusal(bucket.commit(batch)));
    let mut batch = Batch::new();
    batch.delete(&too_long);
    assert!(is_refusal(bucket.commit(batch)));
    assert_eq!(disk.to_bytes(), before);
    // Looking for such a key is no mistake: it is not there.
    assert!(bucket.get(&too_long).unwrap().is_none());
    assert!(!bucket.delete(&too_long).unwrap());
    assert!(!bucket.exists("fine").unwrap() && bucket.exists("key").unwrap());
    bucket.put("still", "works").unwrap();
}

#[test]
fn values_up_to_max_value() {
    let (bucket, disk) = in_memory(Options::default().max_value(5000).background(false));
    let longest = pattern(5000);
    bucket.put("longest", &longest).unwrap();
    let before = disk.to_bytes();
    let refused = bucket.put("too long", pattern(5001));
    assert!(matches!(refused, Err(Error::TooLarge { what: "value", len: 5001, max: 5000 })));
    let mut batch = Batch::new();
    batch.put("fine", "value").put("too long", pattern(5001));
    assert!(matches!(bucket.commit(batch), Err(Error::TooLarge { .. })));
    assert_eq!(disk.to_bytes(), before);
    bucket.close().unwrap();
    // The limit is the file's, whatever the next handle asks for.
    let env = Arc::new(ManualEnv::new(1 << 60, 4));
    let options = Options::default().max_value(u32::MAX);
    let bucket = Bucket::open_on(Arc::new(disk.reopen()), env, options).unwrap();
    assert_eq!(bucket.get("longest").unwrap().as_deref(), Some(&longest[..]));
    assert!(matches!(bucket.put("too long", pattern(5001)), Err(Error::TooLarge { .. })));
    bucket.put("fits", pattern(5000)).unwrap();
}

#[test]
fn a_bucket_of_empty_values() {
    let (bucket, _disk) = in_memory(Options::default().max_value(0).background(false));
    bucket.put("flag", "").unwrap();
    assert!(matches!(bucket.put("flag", "x"), Err(Error::TooLarge { max: 0, .. })));
    assert!(bucket.exists("flag").unwrap());
}

#[test]
fn a_value_larger_than_a_segment() {
    for background in [false, true] {
        for durability in [Durability::Relaxed, Durability::Sync] {
            let place = place();
            let options = Options::default().background(background).durability(durability);
            let bucket = Bucket::create(&place.path, options.clone()).unwrap();
            let large = pattern(20 << 20);
            bucket.put("before", "1").unwrap();
            bucket.put("large", &large).unwrap();
            bucket.put("after", "2").unwrap();
            let check = |bucket: &Bucket| {
                assert!(bucket.get("large").unwrap().unwrap() == large, "the large value");
                assert_eq!(bucket.get("before").unwrap().as_deref(), Some(&b"1"[..]));
                assert_eq!(bucket.get("after").unwrap().as_deref(), Some(&b"2"[..]));
            };
            check(&bucket);
            let copy = place.path.with_extension("killed");
            if !background {
                fs::copy(&place.path, &copy).unwrap();
                check(&Bucket::open(&copy, options.clone()).unwrap());
            }
            bucket.close().unwrap();
            let bucket = Bucket::open(&place.path, options).unwrap();
            check(&bucket);
            bucket.put("large", "small").unwrap();
            assert_eq!(bucket.get("large").unwrap().as_deref(), Some(&b"small"[..]));
        }
    }
}

/// Values on either side of what a segment and a page hold, where rounding goes wrong.
#[test]
fn values_around_the_sizes_of_pages_and_segments() {
    let options = Options::default().segment_bytes_max(16 << 10).background(false);
    let (bucket, disk) = in_memory(options.clone());
    let mut lens = Vec::new();
    for edge in [4096_usize, 8192, 12_288, 16_384, 32_768] {
        lens.extend((edge - 260)..=(edge + 4));
    }
    for len in &lens {
        bucket.put(len.to_le_bytes(), pattern(*len)).unwrap();
    }
    let check = |bucket: &Bucket| {
        for len in &lens {
            assert!(
                bucket.get(len.to_le_bytes()).unwrap().unwrap() == pattern(*len),
                "value of {len} bytes"
            );
        }
    };
    check(&bucket);
    let killed = MemoryDisk::from_bytes(disk.to_bytes());
    check(&Bucket::open_on(Arc::new(killed), Arc::new(SystemEnv), options.clone()).unwrap());
    bucket.close().unwrap();
    check(&Bucket::open_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options).unwrap());
}

fn large_batch(records: u32) -> Batch {
    let mut batch = Batch::with_capacity(48 << 20);
    let filler = pattern(150);
    for index in 0..records {
        let mut value = index.to_le_bytes().to_vec();
        value.extend_from_slice(&filler);
        batch.put(index.to_be_bytes(), value);
    }
    batch
}

#[test]
fn a_batch_of_any_size() {
    let records = 200_000;
    for background in [false, true] {
        let place = place();
        let options = Options::default().background(background).durability(Durability::SyncOnce);
        let bucket = Bucket::create(&place.path, options.clone()).unwrap();
        bucket.put(7_u32.to_be_bytes(), "old").unwrap();
        let batch = large_batch(records);
        assert_eq!(batch.len(), 200_000);
        bucket.commit(batch).unwrap();
        bucket.put("behind", "it").unwrap();
        let check = |bucket: &Bucket| {
            for index in 0..records {
                let value = bucket.get(index.to_be_bytes()).unwrap();
                let value = value.unwrap_or_else(|| panic!("record {index} is gone"));
                assert_eq!((value.len(), &value[..4]), (154, &index.to_le_bytes()[..]));
            }
            assert!(bucket.exists("behind").unwrap());
            assert_eq!(bucket.stats().unwrap().keys, u64::from(records) + 1);
        };
        check(&bucket);
        bucket.close().unwrap();
        let bucket = Bucket::open(&place.path, options.clone()).unwrap();
        check(&bucket);
        let mut batch = Batch::new();
        (0..records).for_each(|index| {
            batch.delete(index.to_be_bytes());
        });
        bucket.commit(batch).unwrap();
        bucket.close().unwrap();
        let bucket = Bucket::open(&place.path, options).unwrap();
        assert!((0..records).all(|index| !bucket.exists(index.to_be_bytes()).unwrap()));
        assert_eq!(bucket.stats().unwrap().keys, 1);
    }
}

/// At whatever step the machine stops, the batch is there whole or not at all.
#[test]
fn a_batch_larger_than_a_segment_is_whole_or_absent() {
    let records = 2000;
    let options = Options::default().segment_bytes_max(64 << 10).background(false);
    let options = options.durability(Durability::SyncOnce);
    let disk = SimDisk::new();
    let env = Arc::new(ManualEnv::new(1 << 60, 3));
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env, options.clone()).unwrap();
    bucket.put(3_u32.to_be_bytes(), "old").unwrap();
    let begun = disk.trace().len();
    bucket.commit(large_batch(records)).unwrap();
    let trace = disk.trace();
    let mut seen = [false, false];
    let mut points = trace.points();
    while let Some(point) = points.advance() {
        let at = point.upto();
        if at < begun {
            continue;
        }
        for keep in [Keep::All, Keep::None, Keep::Random(u64::try_from(at).unwrap())] {
            let crashed = Arc::new(MemoryDisk::from_bytes(point.image(keep)));
            let bucket = Bucket::open_on(crashed, Arc::new(SystemEnv), options.clone()).unwrap();
            let is_new = |index: &u32| {
                bucket.get(index.to_be_bytes()).unwrap().is_some_and(|value| value.len() == 154)
            };
            let count = (0..records).filter(is_new).count();
            let is_whole = count == usize::try_from(records).unwrap();
            assert!(is_whole || count == 0, "{count} records after step {at}, {keep:?}");
            assert!(
                is_whole || bucket.get(3_u32.to_be_bytes()).unwrap().as_deref() == Some(b"old"),
                "step {at}"
            );
            seen[usize::from(is_whole)] = true;
        }
    }
    assert_eq!(seen, [true, true]);
}

#[test]
fn an_existing_file_is_not_made_a_bucket() {
    let place = place();
    for contents in ["", "some text"] {
        fs::write(&place.path, contents).unwrap();
        let result = Bucket::create(&place.path, quick()).map(drop);
        let Err(Error::Io { source, .. }) = result else { panic!("{result:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&place.path).unwrap(), contents.as_bytes());
    }
    fs::remove_file(&place.path).unwrap();
    Bucket::create(&place.path, quick()).unwrap().close().unwrap();
    let before = fs::read(&place.path).unwrap();
    assert!(Bucket::create(&place.path, quick()).is_err());
    assert_eq!(fs::read(&place.path).unwrap(), before);
    let disk = MemoryDisk::from_bytes(b"some text".to_vec());
    let result = Bucket::create_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), quick());
    assert!(matches!(result, Err(Error::Invalid(_))));
    assert_eq!(disk.to_bytes(), b"some text");
}

#[test]
fn what_is_no_bucket_does_not_open() {
    let place = place();
    for result in open_both_ways(&place.path) {
        let Err(Error::Io { source, .. }) = result else { panic!("a missing file: {result:?}") };
        assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    }
    assert!(!place.path.exists(), "opening makes no file");
    let one_page = vec![0; 4096];
    let text = b"Dear reader,\nthis is a letter.\n".repeat(1000);
    let almost = b"KBVK".repeat(2000);
    for contents in [&b""[..], b"x", b"KBVK", &one_page, &text] {
        fs::write(&place.path, contents).unwrap();
        for result in open_both_ways(&place.path) {
            assert!(matches!(result, Err(Error::Invalid(_) | Error::Corrupt(_))), "{result:?}");
            let message = result.unwrap_err().to_string();
            assert!(message.contains("bucket"), "{message}");
        }
        assert_eq!(fs::read(&place.path).unwrap(), contents);
    }
    fs::write(&place.path, &almost).unwrap();
    for result in open_both_ways(&place.path) {
        assert!(matches!(result, Err(Error::Corrupt(_) | Error::Invalid(_))), "{result:?}");
    }
    for result in open_both_ways(place.path.parent().unwrap()) {
        assert!(
            matches!(result, Err(Error::Io { .. } | Error::Invalid(_))),
            "a directory: {result:?}"
        );
    }
}

#[test]
fn bad_options_are_refused_and_leave_no_file() {
    let place = place();
    let good = Options::default;
    let bad = [
        ("page size 0", good().page_size(0)),
        ("page size 2048", good().page_size(2048)),
        ("page size 5000", good().page_size(5000)),
        ("page size 128 KiB", good().page_size(131_072)),
        ("no journal", good().journal_pages(0)),
        ("small journal", good().journal_pages(7)),
        ("large journal", good().journal_pages(4097)),
        ("small segments", good().segment_bytes_max((16 << 10) - 1)),
        ("large segments", good().segment_bytes_max((8 << 20) + 1)),
        ("segments of less than four pages", good().page_size(65_536).segment_bytes_max(128 << 10)),
        ("no overlay", good().overlay_min(0)),
        ("huge index", good().index_bytes(u64::MAX)),
    ];
    for (what, options) in bad {
        let result = Bucket::create(&place.path, options.clone()).map(drop);
        assert!(matches!(result, Err(Error::Invalid(_))), "{what}: {result:?}");
        assert!(!place.path.exists(), "{what}");
        let disk = MemoryDisk::new();
        let result =
            Bucket::create_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options).map(drop);
        assert!(matches!(result, Err(Error::Invalid(_))), "{what}: {result:?}");
        assert!(disk.to_bytes().is_empty(), "{what}");
    }
}

/// What a handle is told at open must make sense too.
#[test]
fn bad_options_are_refused_at_open() {
    let (bucket, disk) = in_memory(quick());
    bucket.close().unwrap();
    let before = disk.to_bytes();
    let options = Options::default().overlay_min(0);
    let result = Bucket::open_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options).map(drop);
    assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    assert_eq!(disk.to_bytes(), before);
}

#[test]
fn extreme_options_work() {
    let all = [
        Options::default().page_size(65_536).segment_bytes_max(256 << 10),
        Options::default().page_size(4096).segment_bytes_max(16 << 10),
        Options::default().journal_pages(4096),
        Options::default().journal_pages(8).page_size(65_536),
        Options::default().index_bytes(3 << 20),
        Options::default().max_value(u32::MAX),
        Options::default().hash(HashKind::SipHash).overlay_min(1),
    ];
    for options in all {
        for background in [false, true] {
            let options = options.clone().background(background);
            let (bucket, disk) = in_memory(options.clone());
            for index in 0..300_u32 {
                bucket.put(index.to_le_bytes(), pattern(100)).unwrap();
            }
            bucket.close().unwrap();
            let bucket =
                Bucket::open_on(Arc::new(disk), Arc::new(SystemEnv), options.clone()).unwrap();
            for index in 0..300_u32 {
                let value = bucket.get(index.to_le_bytes()).unwrap();
                assert!(value.is_some_and(|value| value == pattern(100)), "{index}, {options:?}");
            }
        }
    }
}

/// An overlay that is never merged while the bucket is open costs memory for what is in it, not for
/// what might be.
#[test]
fn a_large_overlay_is_made_as_it_fills() {
    let options = Options::default().overlay_min(usize::MAX).background(false);
    let (bucket, _disk) = in_memory(options);
    // If this panics, dropping the bucket would panic too and end all other tests.
    let bucket = std::mem::ManuallyDrop::new(bucket);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        bucket.put("key", "value").unwrap();
        bucket.flush().unwrap();
        assert!(bucket.exists("key").unwrap());
    }));
    assert!(result.is_ok());
    bucket.put("other", "value").unwrap();
    drop(std::mem::ManuallyDrop::into_inner(bucket));
}

#[test]
fn an_empty_bucket_is_small() {
    let place = place();
    let bucket = Bucket::create(&place.path, Options::default()).unwrap();
    assert_small(&place.path, "created");
    assert_eq!(bucket.stats().unwrap().keys, 0);
    bucket.close().unwrap();
    assert_small(&place.path, "closed");
    for _ in 0..3 {
        Bucket::open(&place.path, Options::default()).unwrap().close().unwrap();
        assert_small(&place.path, "opened and closed");
    }
}

fn assert_small(path: &Path, when: &str) {
    let data = fs::metadata(path).unwrap();
    assert!(data.len() < 64 << 10, "{when}: {} bytes", data.len());
    #[cfg(unix)]
    {
        let blocks = std::os::unix::fs::MetadataExt::blocks(&data);
        assert!(blocks * 512 < 64 << 10, "{when}: {blocks} blocks");
    }
}

#[test]
fn a_second_writer_learns_who_the_first_is() {
    let place = place();
    let bucket = Bucket::create(&place.path, quick()).unwrap();
    bucket.put("key", "value").unwrap();
    let second = Bucket::open(&place.path, quick()).map(drop);
    let Err(Error::Locked { pid }) = second else { panic!("{second:?}") };
    if cfg!(target_os = "linux") {
        assert_eq!(pid, Some(std::process::id()));
    }
    let message = Error::Locked { pid: Some(4711) }.to_string();
    assert!(message.contains("4711"), "{message}");
    // Readers are welcome, and the first writer is not disturbed.
    let reader = Bucket::open_read_only(&place.path).unwrap();
    assert_eq!(reader.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    bucket.put("key", "again").unwrap();
    bucket.close().unwrap();
    Bucket::open(&place.path, quick()).unwrap().put("key", "second").unwrap();
}

#[test]
fn a_reader_writes_nothing() {
    for killed in [false, true] {
        let place = place();
        let options =
            Options::default().background(false).overlay_min(10).segment_bytes_max(16 << 10);
        let bucket = Bucket::create(&place.path, options).unwrap();
        for index in 0..500_u32 {
            bucket.put(index.to_le_bytes(), pattern(usize::try_from(index).unwrap())).unwrap();
        }
        let path = if killed {
            let copy = place.path.with_extension("killed");
            fs::copy(&place.path, &copy).unwrap();
            copy
        } else {
            bucket.close().unwrap();
            place.path.clone()
        };
        let before = fs::read(&path).unwrap();
        let reader = Bucket::open_read_only(&path).unwrap();
        for index in 0..500_u32 {
            let value = reader.get(index.to_le_bytes()).unwrap().unwrap();
            assert_eq!(value.len(), usize::try_from(index).unwrap());
        }
        assert_eq!(reader.stats().unwrap().keys, 500);
        let snapshot = reader.snapshot().unwrap();
        assert_eq!(snapshot.scan(b"").count(), 500);
        drop(snapshot);
        reader.close().unwrap();
        assert!(fs::read(&path).unwrap() == before, "a reader changed the file, killed: {killed}");
    }
}

/// Changes both superblocks of a closed bucket and makes their CRCs right again.
fn edit_superblocks(path: &Path, edit: impl Fn(&mut [u8])) {
    let mut bytes = fs::read(path).unwrap();
    let last_page = bytes.len() - 4096;
    for at in [0, last_page] {
        let block = &mut bytes[at..at + CRC + 4];
        assert_eq!(block[..4], *b"KBVK");
        edit(block);
        let crc = kvb::format::crc(&block[..CRC]);
        block[CRC..].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

fn closed_bucket() -> Place {
    let place = place();
    let bucket = Bucket::create(&place.path, Options::default()).unwrap();
    bucket.put("key", "value").unwrap();
    bucket.close().unwrap();
    place
}

#[test]
fn a_newer_format_is_refused() {
    let place = closed_bucket();
    edit_superblocks(&place.path, |block| block[VERSION_MAJOR] = 2);
    let before = fs::read(&place.path).unwrap();
    for result in open_both_ways(&place.path) {
        let Err(Error::Version { found, supported: 1 }) = &result else { panic!("{result:?}") };
        assert!(found.contains('2'), "{found}");
    }
    assert_eq!(fs::read(&place.path).unwrap(), before);
    edit_superblocks(&place.path, |block| block[VERSION_MAJOR] = 1);
    assert!(Bucket::open(&place.path, quick()).unwrap().exists("key").unwrap());
}

/// A sound superblock of a newer format counts even if the other copy looks like ours.
#[test]
fn one_copy_of_a_newer_format_is_enough_to_refuse() {
    let place = closed_bucket();
    let edited = std::cell::Cell::new(false);
    edit_superblocks(&place.path, |block| {
        if !edited.replace(true) {
            block[VERSION_MAJOR] = 2;
        }
    });
    let result = Bucket::open(&place.path, quick()).map(drop);
    assert!(matches!(result, Err(Error::Version { .. })), "{result:?}");
}

#[test]
fn a_newer_minor_version_opens() {
    let place = closed_bucket();
    edit_superblocks(&place.path, |block| block[6] = 9);
    assert!(Bucket::open_read_only(&place.path).unwrap().exists("key").unwrap());
    let bucket = Bucket::open(&place.path, quick()).unwrap();
    bucket.put("other", "value").unwrap();
    assert!(bucket.exists("key").unwrap());
}

#[test]
fn unknown_flags_of_the_high_half_are_refused() {
    for bit in 35..64 {
        let place = closed_bucket();
        edit_superblocks(&place.path, |block| block[FLAGS + bit / 8] |= 1 << (bit % 8));
        for result in open_both_ways(&place.path) {
            assert!(matches!(result, Err(Error::Version { .. })), "bit {bit}: {result:?}");
        }
    }
}

#[test]
fn unknown_flags_of_the_low_half_are_ignored_and_kept() {
    let place = closed_bucket();
    edit_superblocks(&place.path, |block| {
        block[FLAGS + 2] |= 0x40;
        block[FLAGS + 3] |= 0x80;
    });
    let reader = Bucket::open_read_only(&place.path).unwrap();
    assert_eq!(reader.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    drop(reader);
    let bucket = Bucket::open(&place.path, quick()).unwrap();
    assert_eq!(bucket.get("key").unwrap().as_deref(), Some(&b"value"[..]));
    bucket.put("other", "value").unwrap();
    bucket.close().unwrap();
    let bytes = fs::read(&place.path).unwrap();
    assert_eq!((bytes[FLAGS + 2] & 0x40, bytes[FLAGS + 3] & 0x80), (0x40, 0x80));
    assert!(Bucket::open(&place.path, quick()).unwrap().exists("other").unwrap());
}
