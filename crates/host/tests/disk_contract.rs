//! One contract, every disk: each case below runs against real files, files in memory and simulated
//! files, the latter two also with memory so small that it must be replaced all the time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::io::ErrorKind;
use std::sync::Arc;

use host::{Disk, FileDisk, LockError, MemoryDisk, SimDisk};

/// Opens one more handle to the file of the case.
type Open<'a> = &'a dyn Fn() -> Arc<dyn Disk>;

macro_rules! for_every_disk {
    ($($case:ident),* $(,)?) => {
        mod file {
            $(#[test] fn $case() {
                let dir = tempfile::tempdir().unwrap();
                let path = dir.path().join("disk");
                drop(super::FileDisk::create_new(&path).unwrap());
                super::$case(&|| std::sync::Arc::new(super::FileDisk::open(&path).unwrap()));
            })*
        }
        mod memory {
            $(#[test] fn $case() {
                let disk = super::MemoryDisk::new();
                super::$case(&|| std::sync::Arc::new(disk.reopen()));
            })*
        }
        mod small_memory {
            $(#[test] fn $case() {
                let disk = super::MemoryDisk::with_capacity(1);
                super::$case(&|| std::sync::Arc::new(disk.reopen()));
            })*
        }
        mod simulated {
            $(#[test] fn $case() {
                let disk = super::SimDisk::new();
                super::$case(&|| std::sync::Arc::new(disk.reopen()));
            })*
        }
        mod small_simulated {
            $(#[test] fn $case() {
                let disk = super::SimDisk::with_region(Vec::new(), 1);
                super::$case(&|| std::sync::Arc::new(disk.reopen()));
            })*
        }
    };
}

for_every_disk!(
    what_was_written_is_read,
    a_short_read_is_an_error,
    growth_reads_as_zeros,
    what_was_cut_off_does_not_come_back,
    allocation_extends_and_changes_nothing_else,
    a_hole_reads_as_zeros_and_keeps_the_length,
    syncing_any_range_works,
    impossible_ranges_are_refused,
    a_mapping_shows_later_writes,
    a_mapping_ends_where_the_file_ends,
    a_mapping_outlives_growth_and_the_disk,
    the_lock_belongs_to_one_handle,
    a_mapping_keeps_the_lock,
    any_sequence_of_calls_behaves_like_a_vector,
    readers_and_a_writer_share_a_file,
);

fn contents(disk: &dyn Disk) -> Vec<u8> {
    let mut bytes = vec![0xEE; usize::try_from(disk.len().unwrap()).unwrap()];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

fn what_was_written_is_read(open: Open) {
    let disk = open();
    assert!(disk.is_empty().unwrap());
    disk.write_at(0, b"hello world").unwrap();
    disk.write_at(6, b"there").unwrap();
    disk.write_at(3, b"").unwrap();
    assert_eq!(contents(&*disk), b"hello there");
    assert_eq!(contents(&*open()), b"hello there", "another handle sees the same file");
    let mut middle = [0; 4];
    disk.read_at(4, &mut middle).unwrap();
    assert_eq!(&middle, b"o th");
}

fn a_short_read_is_an_error(open: Open) {
    let disk = open();
    disk.write_at(0, &[1; 100]).unwrap();
    for (offset, len) in [(0, 101), (99, 2), (100, 1), (5000, 1)] {
        let error = disk.read_at(offset, &mut vec![0; len]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{len} bytes at {offset}");
    }
    disk.read_at(100, &mut []).unwrap();
    disk.read_at(99, &mut [0]).unwrap();
}

fn growth_reads_as_zeros(open: Open) {
    let disk = open();
    disk.write_at(0, &[1; 10]).unwrap();
    disk.set_len(20).unwrap();
    disk.write_at(30, &[2; 10]).unwrap();
    let mut expected = vec![0; 40];
    expected[..10].fill(1);
    expected[30..].fill(2);
    assert_eq!(contents(&*disk), expected);
    disk.set_len(3 << 20).unwrap();
    expected.resize(3 << 20, 0);
    assert!(contents(&*disk) == expected);
}

fn what_was_cut_off_does_not_come_back(open: Open) {
    let disk = open();
    disk.write_at(0, &vec![7; 1 << 20]).unwrap();
    disk.set_len(1001).unwrap();
    assert_eq!(disk.len().unwrap(), 1001);
    assert!(disk.read_at(1001, &mut [0]).is_err());
    disk.set_len(1 << 20).unwrap();
    let mut expected = vec![7; 1001];
    expected.resize(1 << 20, 0);
    assert!(contents(&*disk) == expected);
}

fn allocation_extends_and_changes_nothing_else(open: Open) {
    let disk = open();
    disk.write_at(0, &[5; 5000]).unwrap();
    disk.allocate(1000, 2000).unwrap();
    assert_eq!(contents(&*disk), [5; 5000], "inside the file");
    disk.allocate(4000, 6000).unwrap();
    disk.allocate(9_000_000, 0).unwrap();
    let mut expected = vec![5; 5000];
    expected.resize(10_000, 0);
    assert_eq!(contents(&*disk), expected, "across the end");
    disk.allocate(20_000, 1).unwrap();
    expected.resize(20_001, 0);
    assert_eq!(contents(&*disk), expected, "past the end");
}

fn a_hole_reads_as_zeros_and_keeps_the_length(open: Open) {
    let disk = open();
    let mut expected = vec![9; 1 << 20];
    disk.write_at(0, &expected).unwrap();
    for (offset, len) in [(100, 50), (5000, 700_001), (1 << 19, 0), ((1 << 20) - 10, 1000)] {
        disk.punch(offset, len).unwrap();
        let start = usize::try_from(offset).unwrap();
        let end = (start + usize::try_from(len).unwrap()).min(expected.len());
        expected[start..end].fill(0);
        assert!(contents(&*disk) == expected, "{len} bytes at {offset}");
    }
    disk.punch(1 << 21, 100).unwrap();
    assert_eq!(disk.len().unwrap(), 1 << 20);
}

fn syncing_any_range_works(open: Open) {
    let disk = open();
    disk.sync().unwrap();
    disk.sync_range(0, 4096).unwrap();
    disk.write_at(0, &vec![3; 300_000]).unwrap();
    for (offset, len) in [(0, 0), (0, 1), (511, 2), (4097, 8191), (0, 300_000), (299_999, 5000)] {
        disk.sync_range(offset, len).unwrap();
    }
    disk.sync_range(1 << 30, 10).unwrap();
    disk.sync().unwrap();
    assert_eq!(disk.len().unwrap(), 300_000, "syncing past the end does not extend");
}

fn impossible_ranges_are_refused(open: Open) {
    let disk = open();
    disk.write_at(0, &[1; 10]).unwrap();
    disk.write_at(u64::MAX, &[1; 10]).unwrap_err();
    disk.allocate(u64::MAX, 10).unwrap_err();
    disk.set_len(u64::MAX).unwrap_err();
    disk.read_at(u64::MAX, &mut [0; 10]).unwrap_err();
    assert_eq!(contents(&*disk), [1; 10]);
}

fn a_mapping_shows_later_writes(open: Open) {
    let disk = open();
    disk.set_len(10_000).unwrap();
    let mapping = disk.map(10_000).unwrap();
    assert!(mapping.capacity() >= 10_000);
    assert_eq!(mapping.bytes(0, 10_000).unwrap(), vec![0; 10_000]);
    disk.write_at(5000, b"later").unwrap();
    assert_eq!(mapping.bytes(5000, 5).unwrap(), b"later");
    disk.punch(5001, 3).unwrap();
    assert_eq!(mapping.bytes(5000, 5).unwrap(), b"l\0\0\0r");
    mapping.advise_random();
    mapping.prefetch(0, 10_000);
    mapping.prefetch(9_999, 10_000);
    mapping.prefetch(u64::MAX, usize::MAX);
    assert_eq!(mapping.clone().bytes(5004, 1).unwrap(), b"r");
}

fn a_mapping_ends_where_the_file_ends(open: Open) {
    let disk = open();
    let mapping = disk.map(60_000).unwrap();
    assert!(mapping.capacity() >= 60_000);
    assert_eq!(mapping.valid_len(), 0);
    assert!(mapping.bytes(0, 1).is_none());
    disk.write_at(0, &[1; 100]).unwrap();
    assert_eq!(mapping.bytes(0, 100), Some(&[1; 100][..]), "growth by writing");
    assert_eq!(mapping.bytes(100, 0), Some(&[][..]));
    for (offset, len) in [(0, 101), (100, 1), (101, 0), (u64::MAX, 1), (1, usize::MAX)] {
        assert!(mapping.bytes(offset, len).is_none(), "{len} bytes at {offset}");
    }
    disk.set_len(200).unwrap();
    assert_eq!(mapping.bytes(150, 50), Some(&[0; 50][..]), "growth by length");
    disk.allocate(200, 100).unwrap();
    assert_eq!(mapping.bytes(250, 50), Some(&[0; 50][..]), "growth by allocation");
    disk.set_len(50).unwrap();
    assert_eq!(mapping.valid_len(), 50);
    assert!(mapping.bytes(0, 51).is_none());
    assert_eq!(mapping.bytes(0, 50), Some(&[1; 50][..]));
}

fn a_mapping_outlives_growth_and_the_disk(open: Open) {
    let disk = open();
    disk.write_at(0, b"first").unwrap();
    let mut mapping = disk.map(5).unwrap();
    let first = mapping.clone();
    let block = vec![4; 100_000];
    for round in 0..20 {
        let end = 5 + round * 100_000;
        disk.write_at(end, &block).unwrap();
        let end = end + 100_000;
        if mapping.capacity() < end {
            mapping = disk.map(end).unwrap();
        }
        assert_eq!(mapping.valid_len(), end);
        assert!(mapping.bytes(end - 100_000, 100_000).unwrap() == block);
        assert_eq!(first.bytes(0, 5).unwrap(), b"first");
    }
    drop(disk);
    assert_eq!(first.bytes(0, 5).unwrap(), b"first");
    assert_eq!(mapping.bytes(0, 5).unwrap(), b"first");
}

fn refused(disk: &dyn Disk) {
    match disk.lock() {
        Err(LockError::Held { pid }) if cfg!(target_os = "linux") => {
            assert_eq!(pid, Some(std::process::id()));
        }
        Err(LockError::Held { .. }) => {}
        other => panic!("the lock was not refused: {other:?}"),
    }
}

fn the_lock_belongs_to_one_handle(open: Open) {
    let (first, second) = (open(), open());
    first.lock().unwrap();
    first.lock().unwrap();
    refused(&*second);
    second.write_at(0, b"advisory").unwrap();
    drop(second);
    refused(&*open());
    drop(first);
    open().lock().unwrap();
    open().lock().unwrap();
}

fn a_mapping_keeps_the_lock(open: Open) {
    let disk = open();
    let mapping = disk.map(10).unwrap();
    disk.lock().unwrap();
    drop(disk);
    refused(&*open());
    drop(mapping);
    open().lock().unwrap();
}

fn any_sequence_of_calls_behaves_like_a_vector(open: Open) {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut dice = fastrand::Rng::with_seed(seed);
    let disk = open();
    let mut model: Vec<u8> = Vec::new();
    let mut mapping = disk.map(0).unwrap();
    for round in 0..400 {
        let offset = dice.usize(..400_000);
        let len = if dice.bool() { dice.usize(..2000) } else { dice.usize(..300_000) };
        let (from, count) = (u64::try_from(offset).unwrap(), u64::try_from(len).unwrap());
        match dice.u32(..8) {
            0 => {
                disk.set_len(from).unwrap();
                model.resize(offset, 0);
            }
            1 => {
                disk.allocate(from, count).unwrap();
                let end = if len == 0 { 0 } else { offset + len };
                model.resize(model.len().max(end), 0);
            }
            2 | 3 => {
                disk.punch(from, count).unwrap();
                let end = (offset + len).min(model.len());
                model.get_mut(offset..end).unwrap_or_default().fill(0);
            }
            4 => disk.sync_range(from, count).unwrap(),
            _ => {
                let data = vec![dice.u8(1..); len];
                disk.write_at(from, &data).unwrap();
                if len > 0 {
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&data);
                }
            }
        }
        let end = disk.len().unwrap();
        if mapping.capacity() < end {
            mapping = disk.map(end).unwrap();
        }
        assert_eq!(end, u64::try_from(model.len()).unwrap(), "seed {seed} round {round}");
        let mapped = mapping.bytes(0, model.len()).unwrap();
        assert!(mapped == model, "mapped: seed {seed} round {round}");
        assert!(contents(&*disk) == model, "read: seed {seed} round {round}");
    }
}

fn readers_and_a_writer_share_a_file(open: Open) {
    const BLOCK: usize = 3000;
    let disk = open();
    // The mapping is large enough for all of it, so growth reaches the readers by itself.
    let mapping = disk.map(2_000_000).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for block in 0..600_usize {
                    let at = u64::try_from(block * BLOCK).unwrap();
                    // A length that covers a block is seen only after the block's contents.
                    let bytes = loop {
                        match mapping.bytes(at, BLOCK) {
                            Some(bytes) => break bytes,
                            None => std::thread::yield_now(),
                        }
                    };
                    let value = u8::try_from(block % 251).unwrap() + 1;
                    assert!(bytes.iter().all(|byte| *byte == value), "block {block}");
                }
            });
        }
        for block in 0..600_usize {
            let data = [u8::try_from(block % 251).unwrap() + 1; BLOCK];
            disk.write_at(u64::try_from(block * BLOCK).unwrap(), &data).unwrap();
        }
    });
}

#[test]
fn a_file_is_created_once_and_not_writable_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    FileDisk::open(&path).unwrap_err();
    FileDisk::create_new(&path).unwrap();
    assert_eq!(FileDisk::create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o133, 0, "mode {mode:o}");
        assert_eq!(mode & 0o600, 0o600, "mode {mode:o}");
    }
}

#[test]
fn a_read_only_file_refuses_changes_and_follows_a_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let writer = FileDisk::create_new(&path).unwrap();
    writer.write_at(0, b"one").unwrap();
    let reader = FileDisk::open_read_only(&path).unwrap();
    reader.write_at(0, b"x").unwrap_err();
    reader.set_len(1).unwrap_err();
    reader.allocate(0, 100).unwrap_err();
    reader.punch(0, 1).unwrap_err();
    let mapping = reader.map(3).unwrap();
    assert_eq!(mapping.bytes(0, 3).unwrap(), b"one");
    writer.write_at(3, b"two").unwrap();
    assert!(mapping.bytes(0, 6).is_none());
    assert_eq!(reader.len().unwrap(), 6);
    #[cfg(target_os = "linux")]
    assert_eq!(mapping.bytes(0, 6).unwrap(), b"onetwo");
    reader.sync_range(0, 6).unwrap();
    reader.sync().unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_hole_gives_its_blocks_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = FileDisk::create_new(&path).unwrap();
    disk.write_at(0, &vec![1; 1 << 20]).unwrap();
    disk.sync().unwrap();
    let before = std::fs::metadata(&path).unwrap().blocks();
    disk.punch(0, 1 << 19).unwrap();
    let after = std::fs::metadata(&path).unwrap().blocks();
    assert!(after < before, "{before} blocks before, {after} after");
    disk.allocate(0, 1 << 19).unwrap();
    assert!(std::fs::metadata(&path).unwrap().blocks() > after);
}

#[test]
fn an_outgrown_mapping_in_memory_shows_the_file_up_to_its_capacity() {
    let disk = MemoryDisk::with_capacity(1);
    disk.write_at(0, b"old").unwrap();
    let mapping = disk.map(3).unwrap();
    let capacity = mapping.capacity();
    disk.set_len(capacity + 10).unwrap();
    disk.write_at(0, b"new").unwrap();
    disk.write_at(capacity - 2, b"border").unwrap();
    assert_eq!(mapping.bytes(0, 3).unwrap(), b"new");
    assert_eq!(mapping.bytes(capacity - 2, 2).unwrap(), b"bo");
    assert_eq!(mapping.valid_len(), capacity);
    let larger = disk.map(capacity + 10).unwrap();
    assert_eq!(larger.bytes(capacity - 2, 6).unwrap(), b"border");
    disk.punch(0, capacity + 10).unwrap();
    assert_eq!(mapping.bytes(0, 3).unwrap(), [0; 3]);
    disk.set_len(1).unwrap();
    assert!(mapping.bytes(0, 3).is_none());
    assert_eq!(MemoryDisk::from_bytes(vec![1, 2]).to_bytes(), [1, 2]);
}
