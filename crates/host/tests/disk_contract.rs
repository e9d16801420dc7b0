//! One contract, every disk: each case below runs against real files, files in memory and simulated
//! files, the latter two also with memory so small that it must be replaced all the time.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};

use host::{Board, Disk, FileDisk, LockError, MemoryDisk, SimDisk};

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
    a_board_is_shared_by_all_handles,
    a_board_is_a_page_inside_the_file,
    a_board_outlives_growth_and_the_disk,
    a_board_keeps_the_lock,
    a_board_publishes_what_was_stored_before,
    a_pin_is_seen_by_other_handles_only,
    pins_of_one_byte_add_up,
    neighbouring_pins_end_one_by_one,
    a_pin_outlives_its_disk_and_no_other_handle_ends_it,
    pins_and_the_lock_ignore_each_other,
    threads_pin_through_one_handle,
    a_reader_that_pins_and_a_writer_that_stores_notice_each_other,
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

fn a_board_is_shared_by_all_handles(open: Open) {
    let (first, second) = (open(), open());
    first.set_len(3 * 4096).unwrap();
    let (here, there) = (first.board(4096).unwrap(), second.board(4096).unwrap());
    let next = second.board(8192).unwrap();
    assert!(here.is_writable() && there.is_writable());
    for index in 0..512 {
        let value = u64::MAX - u64::try_from(index).unwrap();
        here.store(index, value, SeqCst);
        for order in [Relaxed, Acquire, SeqCst] {
            assert_eq!(there.load(index, order), value);
        }
        assert_eq!(next.load(index, SeqCst), 0, "another page");
    }
    there.store(511, 1, Relaxed);
    assert_eq!(here.clone().load(511, Relaxed), 1);
    assert_eq!(first.board(4096).unwrap().load(511, Relaxed), 1);
    for index in [512, usize::MAX] {
        here.store(index, 7, SeqCst);
        assert_eq!(here.load(index, SeqCst), 0);
    }
    assert_eq!(next.load(0, SeqCst), 0);
}

fn a_board_is_a_page_inside_the_file(open: Open) {
    let disk = open();
    assert_eq!(disk.board(0).unwrap_err().kind(), ErrorKind::InvalidInput, "an empty file");
    disk.set_len(3 * 4096 - 1).unwrap();
    for offset in [1, 512, 4095, 4097, 8192, 12_288, 1 << 40, u64::MAX - 4095, u64::MAX] {
        let error = disk.board(offset).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "at {offset}");
    }
    disk.board(0).unwrap();
    disk.board(4096).unwrap();
    assert_eq!(disk.len().unwrap(), 3 * 4096 - 1);
    disk.set_len(3 * 4096).unwrap();
    disk.board(8192).unwrap();
}

fn a_board_outlives_growth_and_the_disk(open: Open) {
    let disk = open();
    disk.set_len(4096).unwrap();
    let old = disk.board(0).unwrap();
    old.store(3, 3, SeqCst);
    let block = vec![4; 100_000];
    for round in 0..20 {
        disk.write_at(4096 + round * 100_000, &block).unwrap();
        let new = disk.board(0).unwrap();
        assert_eq!(new.load(3, SeqCst), round + 3);
        old.store(3, round + 4, SeqCst);
    }
    disk.sync().unwrap();
    drop(disk);
    assert_eq!(old.load(3, SeqCst), 23);
    old.store(3, 24, SeqCst);
    assert_eq!(old.load(3, SeqCst), 24);
}

fn a_board_keeps_the_lock(open: Open) {
    let disk = open();
    disk.set_len(4096).unwrap();
    let board = disk.board(0).unwrap();
    disk.lock().unwrap();
    drop(disk);
    refused(&*open());
    let clone = board.clone();
    drop(board);
    refused(&*open());
    drop(clone);
    open().lock().unwrap();
}

fn a_board_publishes_what_was_stored_before(open: Open) {
    let (writer, reader) = (open(), open());
    writer.set_len(4096).unwrap();
    let (writer, reader) = (writer.board(0).unwrap(), reader.board(0).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=20_000 {
                writer.store(100, round, Relaxed);
                writer.store(0, round, Release);
            }
        });
        let mut seen = 0;
        while seen < 20_000 {
            let now = reader.load(0, Acquire);
            assert!(now >= seen, "{now} after {seen}");
            seen = now;
            assert!(reader.load(100, Relaxed) >= seen);
        }
    });
}

/// False where pins do not exist, which is nowhere that this project promises readers.
fn can_pin(disk: &dyn Disk) -> bool {
    match disk.pin(0) {
        Ok(_) => true,
        Err(error) if cfg!(all(target_os = "linux", target_pointer_width = "64")) => {
            panic!("{error}")
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(!disk.is_pinned(u64::MAX).unwrap());
            false
        }
    }
}

fn a_pin_is_seen_by_other_handles_only(open: Open) {
    let (reader, writer) = (open(), open());
    if !can_pin(&*reader) {
        return;
    }
    let seen = |below| writer.is_pinned(below).unwrap();
    assert!(!seen(0) && !seen(u64::MAX));
    let pin = reader.pin(5).unwrap();
    assert!(!seen(0) && !seen(5) && seen(6) && seen(1 << 61) && seen(u64::MAX));
    assert!(!reader.is_pinned(u64::MAX).unwrap(), "its own");
    let own = writer.pin(2).unwrap();
    assert!(!seen(5) && seen(6), "its own is not counted, nor does it hide another's");
    assert!(reader.is_pinned(3).unwrap() && !reader.is_pinned(2).unwrap());
    drop(pin);
    assert!(!seen(u64::MAX));
    drop(own);
    assert!(!reader.is_pinned(u64::MAX).unwrap());

    let last = reader.pin((1 << 61) - 1).unwrap();
    assert!(!seen((1 << 61) - 1) && seen(1 << 61));
    for byte in [1 << 61, 1 << 62, u64::MAX] {
        assert_eq!(reader.pin(byte).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    drop(last);
    assert!(!seen(u64::MAX));
    assert_eq!(reader.len().unwrap(), 0, "a pin is not contents");
}

fn pins_of_one_byte_add_up(open: Open) {
    let (reader, another, writer) = (open(), open(), open());
    if !can_pin(&*reader) {
        return;
    }
    let seen = || writer.is_pinned(10).unwrap();
    let (first, second) = (reader.pin(9).unwrap(), reader.pin(9).unwrap());
    drop(first);
    assert!(seen());
    let third = another.pin(9).unwrap();
    assert!(reader.is_pinned(10).unwrap() && another.is_pinned(10).unwrap());
    drop(second);
    assert!(seen());
    assert!(reader.is_pinned(10).unwrap() && !another.is_pinned(10).unwrap());
    drop(third);
    assert!(!seen());
    let again = reader.pin(9).unwrap();
    assert!(seen());
    drop(again);
    assert!(!seen());
}

fn neighbouring_pins_end_one_by_one(open: Open) {
    let (reader, writer) = (open(), open());
    if !can_pin(&*reader) {
        return;
    }
    // The system may join neighbours to one lock; it must not end them together.
    let mut pins: Vec<_> = (0..10).map(|byte| (byte, reader.pin(byte).unwrap())).collect();
    for place in [4, 8, 0, 4, 0, 0, 3, 0, 1, 0] {
        let lowest = pins.iter().map(|(byte, _)| *byte).min().unwrap();
        assert!(writer.is_pinned(lowest + 1).unwrap());
        assert!(!writer.is_pinned(lowest).unwrap());
        drop(pins.remove(place));
    }
    assert!(!writer.is_pinned(u64::MAX).unwrap());
}

fn a_pin_outlives_its_disk_and_no_other_handle_ends_it(open: Open) {
    let (reader, writer) = (open(), open());
    if !can_pin(&*reader) {
        return;
    }
    let pin = reader.pin(1).unwrap();
    drop(open());
    let other = open();
    drop(other.pin(1).unwrap());
    drop(other);
    assert!(writer.is_pinned(2).unwrap());
    reader.lock().unwrap();
    drop(reader);
    assert!(writer.is_pinned(2).unwrap());
    refused(&*writer);
    drop(pin);
    assert!(!writer.is_pinned(2).unwrap());
    writer.lock().unwrap();
}

fn pins_and_the_lock_ignore_each_other(open: Open) {
    let (reader, writer) = (open(), open());
    if !can_pin(&*reader) {
        return;
    }
    writer.lock().unwrap();
    let pin = reader.pin(0).unwrap();
    let own = writer.pin(0).unwrap();
    assert!(writer.is_pinned(1).unwrap(), "pinned while another has the lock");
    refused(&*reader);
    drop((writer, own));
    let writer = open();
    writer.lock().unwrap();
    assert!(writer.is_pinned(1).unwrap(), "locked while another has a pin");
    drop(pin);
    assert!(!writer.is_pinned(1).unwrap());
    refused(&*reader);
}

fn threads_pin_through_one_handle(open: Open) {
    let (reader, writer) = (open(), open());
    if !can_pin(&*reader) {
        return;
    }
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (reader, writer) = (&reader, &writer);
            scope.spawn(move || {
                for round in 0..500 {
                    let byte = (round + thread) % 4;
                    let _pin = reader.pin(byte).unwrap();
                    assert!(writer.is_pinned(byte + 1).unwrap());
                }
            });
        }
    });
    assert!(!writer.is_pinned(u64::MAX).unwrap());
}

/// Each side makes its own step and then looks for the other's. Both missing each other would let a
/// writer reuse what a reader has just begun to read.
fn a_reader_that_pins_and_a_writer_that_stores_notice_each_other(open: Open) {
    const ROUNDS: u64 = 5000;
    let (reader, writer) = (open(), open());
    if !can_pin(&*reader) {
        return;
    }
    writer.set_len(4096).unwrap();
    let (watched, written) = (reader.board(0).unwrap(), writer.board(0).unwrap());
    let (met, missed) = (AtomicU64::new(0), AtomicBool::new(false));
    // Spins, to let both go on at the same moment, but one core may be all there is.
    let meet = |nth: u64| {
        met.fetch_add(1, SeqCst);
        for spin in 1_u32.. {
            if met.load(SeqCst) >= 2 * nth {
                return;
            }
            if spin % 1000 == 0 {
                std::thread::yield_now();
            }
        }
    };
    let mut both = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                meet(2 * round - 1);
                let _pin = reader.pin(7).unwrap();
                missed.store(watched.load(0, Relaxed) < round, SeqCst);
                meet(2 * round);
            }
        });
        for round in 1..=ROUNDS {
            meet(2 * round - 1);
            written.store(0, round, Relaxed);
            let pinned = writer.is_pinned(8).unwrap();
            meet(2 * round);
            both += u64::from(!pinned && missed.load(SeqCst));
        }
    });
    assert_eq!(both, 0, "rounds of {ROUNDS} in which both missed the other");
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

#[test]
fn a_board_of_a_file_is_its_bytes_in_little_endian() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = FileDisk::create_new(&path).unwrap();
    disk.set_len(3 * 4096).unwrap();
    let board: Board = disk.board(4096).unwrap();
    board.store(0, 0x0102_0304_0506_0708, SeqCst);
    board.store(511, 0xFF, SeqCst);
    drop((board, disk));
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[4096..4104], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(bytes[8184..8192], [0xFF, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 9, "no other byte");
    assert_eq!(FileDisk::open(&path).unwrap().board(4096).unwrap().load(511, SeqCst), 0xFF);
}

#[test]
fn a_read_only_file_follows_a_board_and_pins_but_never_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let writer = FileDisk::create_new(&path).unwrap();
    writer.set_len(4096).unwrap();
    let reader = FileDisk::open_read_only(&path).unwrap();
    let (watched, written) = (reader.board(0).unwrap(), writer.board(0).unwrap());
    assert!(!watched.is_writable() && !watched.clone().is_writable());
    written.store(1, 10, Release);
    for order in [Relaxed, Acquire, SeqCst] {
        assert_eq!(watched.load(1, order), 10);
    }
    watched.store(1, 11, Release);
    assert_eq!((watched.load(1, Acquire), written.load(1, Acquire)), (10, 10));
    if can_pin(&reader) {
        let pin = reader.pin(3).unwrap();
        assert!(writer.is_pinned(4).unwrap() && !reader.is_pinned(4).unwrap());
        drop(pin);
        let _own = writer.pin(3).unwrap();
        assert!(!writer.is_pinned(4).unwrap() && reader.is_pinned(4).unwrap());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_board_in_a_hole_has_blocks_before_it_is_written_to() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = FileDisk::create_new(&path).unwrap();
    disk.set_len(1 << 20).unwrap();
    let reader = FileDisk::open_read_only(&path).unwrap();
    reader.board(8192).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0);
    disk.board(8192).unwrap();
    assert!(std::fs::metadata(&path).unwrap().blocks() >= 8);
    assert_eq!(disk.len().unwrap(), 1 << 20);
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
