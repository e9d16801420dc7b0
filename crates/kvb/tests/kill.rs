//! A writer process that dies: by SIGKILL, and by a file system that loses power under it.
//!
//! The test runs itself again as the writer. The writer commits numbered batches and reports each one after it was
//! acknowledged; whatever it reported must be there afterwards, and every batch must be whole.
//!
//! Both are real (`support/mount.rs`).

#![allow(clippy::disallowed_methods, reason = "a plain file is the control")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "it counts power cuts")]

#[path = "support/mount.rs"]
mod mount;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use kvb::{Batch, Bucket, Durability, Options, RepairTo};
use mount::{Mounted, cuts};

/// Set in the process that writes: the bucket's path.
const WRITER: &str = "KVB_TEST_WRITER";
const WIDTH: u64 = 50;

fn options() -> Options {
    // Small segments and overlays: seals, growth and merges go on all the time.
    Options::default().segment_bytes_max(64 << 10).overlay_min(200)
}

fn durability(number: u64) -> Durability {
    match number % 3 {
        0 => Durability::Sync,
        1 => Durability::SyncOnce,
        _ => Durability::Relaxed,
    }
}

/// The writer: goes on from the last number, forever.
fn write(path: &Path) {
    let bucket = Bucket::open(path, options()).unwrap();
    let mut out = std::io::stdout();
    for number in last_number(&bucket) + 1.. {
        let mut batch = Batch::new();
        for index in 0..WIDTH {
            batch.put(format!("{index}"), number.to_le_bytes());
            batch.put(format!("{number} {index}"), [7; 30]);
            if number > 5 {
                batch.delete(format!("{} {index}", number - 5));
            }
        }
        // A failing disk ends the writer; what it reported before counts.
        let Ok(()) = bucket.commit_with(batch, durability(number)) else {
            break;
        };
        if durability(number) != Durability::Relaxed {
            let Ok(()) = writeln!(out, "acknowledged {number}") else {
                break;
            };
            out.flush().unwrap();
        }
    }
    // Like a process that dies: no closing.
    std::process::abort();
}

/// The number all keys of the last batch hold.
fn last_number(bucket: &Bucket) -> u64 {
    let keys: Vec<String> = (0..WIDTH).map(|index| index.to_string()).collect();
    let numbers: Vec<u64> = bucket
        .get_many(&keys)
        .unwrap()
        .iter()
        .map(|value| {
            value.as_ref().map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()))
        })
        .collect();
    assert!(numbers.iter().all(|number| *number == numbers[0]), "half a batch: {numbers:?}");
    numbers[0]
}

fn check(path: &Path, acknowledged: u64) -> u64 {
    let bucket = Bucket::open(path, options()).unwrap();
    let last = last_number(&bucket);
    assert!(last >= acknowledged, "{acknowledged} was acknowledged, {last} is there");
    for number in last.saturating_sub(10).max(1)..=last {
        for index in 0..WIDTH {
            let is_there = bucket.exists(format!("{number} {index}")).unwrap();
            assert_eq!(is_there, number + 5 > last, "batch {number} of {last}");
        }
    }
    bucket.close().unwrap();
    last
}

fn start_writer(path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writer", "--nocapture", "--include-ignored"])
        .env(WRITER, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The numbers a writer reports.
fn reports(child: &mut Child) -> Receiver<u64> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("acknowledged ") {
                let _ = sender.send(number.parse().unwrap());
            }
        }
    });
    receiver
}

/// Not a test by itself: the process that writes.
#[test]
fn writer() {
    if let Some(path) = std::env::var_os(WRITER) {
        write(&PathBuf::from(path));
    }
}

#[test]
fn what_a_killed_writer_acknowledged_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    Bucket::create(&path, options()).unwrap().close().unwrap();
    let kills = std::env::var("KVB_KILLS").map_or(12, |text| text.parse().unwrap());
    let mut last = 0;
    for round in 0..kills {
        let mut child = start_writer(&path);
        let reports = reports(&mut child);
        let seen = reports.iter().take(3 + round * 5 % 17).last();
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reports.iter().last().or(seen).unwrap();
        assert!(acknowledged > last, "the writer of round {round} wrote nothing");
        last = check(&path, acknowledged);
    }
    println!("killed {kills} times");
}

/// Power cuts under one writer after the other.
fn cut_power(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(kind, dir.path()) else { return };
    let path = mounted.point().join("bucket.kvb");
    Bucket::create(&path, options()).unwrap().close().unwrap();
    let mut last = 0;
    for round in 0..cuts() {
        let mut child = start_writer(&path);
        let reports = reports(&mut child);
        let seen = reports.iter().take(3 + round * 7 % 19).last();
        let ended = mounted.cut_under(&mut child);
        let acknowledged = reports.try_iter().last().or(seen).unwrap();
        assert!(ended(), "{kind} does not come back");
        assert!(acknowledged > last, "the writer of round {round} wrote nothing");
        last = check(&path, acknowledged);
    }
    println!("{kind}: {} power cuts, {last} batches", cuts());
}

#[test]
fn what_was_acknowledged_before_a_power_cut_is_there() {
    cut_power("ext4");
}

#[test]
fn what_was_acknowledged_before_a_power_cut_is_there_on_xfs() {
    cut_power("xfs");
}

/// bbolt #562: with this feature of ext4 a database could not be opened after a hard reset. Only with `KVB_FAST_COMMIT=1`: on
/// Linux 6.18 the file system itself lost its journal in one run of fifty cuts, and a commit that was synced in another
/// (`docs/reliability.md`).
#[test]
fn what_was_acknowledged_before_a_power_cut_is_there_with_fast_commits() {
    if is_with_fast_commits() {
        cut_power("ext4 -O fast_commit");
    }
}

fn is_with_fast_commits() -> bool {
    let is_asked_for = std::env::var_os("KVB_FAST_COMMIT").is_some();
    if !is_asked_for {
        mount::skipped("power cuts on ext4 with fast commits (they need KVB_FAST_COMMIT=1)");
    }
    is_asked_for
}

/// A writer that shares nothing with a bucket, but for what it asks of the file system: room that is taken in advance,
/// pages written there one after the other, each made durable and then reported, and beside it a thread that takes other
/// room, fills it, makes it durable and gives it back.
const PLAIN_WRITER: &str = "
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
file, number = os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2])

def give_back(at, length):
    at, length = ctypes.c_long(at), ctypes.c_long(length)
    assert libc.fallocate(file, 3, at, length) == 0

def beside():
    at = 64 << 20
    while True:
        at += 64 * 4096
        os.posix_fallocate(file, at, 64 * 4096)
        os.pwrite(file, bytes(60 * 4096), at)
        os.fsync(file)
        os.pwrite(file, bytes(4096), 0)
        os.fdatasync(file)
        give_back(at - 640 * 4096, 64 * 4096)

threading.Thread(target=beside, daemon=True).start()
end = 0
while True:
    number += 1
    if number >= end:
        end = number + 16
        os.posix_fallocate(file, number * 4096, 16 * 4096)
    os.pwrite(file, number.to_bytes(8, 'little') * 512, number * 4096)
    os.fdatasync(file)
    os.write(1, b'acknowledged %d\\n' % number)
    if number % 64 == 0 and number > 128:
        give_back((number - 128) * 4096, 64 * 4096)
";

/// True if a page is as it was written.
fn is_plain(path: &Path, number: u64) -> bool {
    let mut page = [0; 4096];
    let file = std::fs::File::open(path).unwrap();
    let is_read = file.read_exact_at(&mut page, number * 4096).is_ok();
    is_read && page.chunks(8).all(|word| *word == number.to_le_bytes())
}

/// The same power cuts over a plain file, so that one knows whose fault it is: what is lost is counted, and nothing fails.
#[test]
fn what_fast_commits_lose_of_a_plain_file() {
    if !is_with_fast_commits() {
        return;
    }
    let kind = "ext4 -O fast_commit";
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(kind, dir.path()) else { return };
    let path = mounted.point().join("plain");
    std::fs::File::create(&path).unwrap().sync_all().unwrap();
    std::fs::File::open(mounted.point()).unwrap().sync_all().unwrap();
    let (mut cut, mut lost, mut last) = (0, 0, 0);
    for round in 0..cuts() {
        let mut writer = Command::new("python3");
        let writer = writer.args(["-c", PLAIN_WRITER]).arg(&path).arg(last.to_string());
        let mut child = writer.stdout(Stdio::piped()).spawn().unwrap();
        let reports = reports(&mut child);
        let seen = reports.iter().take(3 + round * 7 % 19).last();
        let ended = mounted.cut_under(&mut child);
        let acknowledged = reports.try_iter().last().or(seen).unwrap();
        cut += 1;
        if !ended() {
            tell(&format!("{kind} does not come back after {cut} power cuts under a plain file"));
            return;
        }
        // Older ones may have been given back.
        let newest = acknowledged.saturating_sub(50).max(1)..=acknowledged;
        let missing: Vec<u64> = newest.filter(|number| !is_plain(&path, *number)).collect();
        if !missing.is_empty() {
            lost += 1;
            tell(&format!(
                "{kind}, cut {cut}: of {acknowledged} in a plain file {missing:?} are lost"
            ));
        }
        last = (acknowledged..).find(|number| !is_plain(&path, number + 1)).unwrap();
    }
    tell(&format!("{kind}: {cut} cuts under a plain file, {lost} lost what was acknowledged"));
}

fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// LevelDB #74 and #195, RocksDB #10573: files were synced, and their names in the directory were not.
#[test]
fn what_was_made_before_a_power_cut_has_its_name() {
    for kind in ["ext4", "xfs"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(mounted) = Mounted::new(kind, dir.path()) else { return };
        let place = |name: &str, round: usize| mounted.point().join(format!("{name} {round}"));
        for round in 0..cuts() {
            let (path, copy) = (place("bucket", round), place("backup", round));
            let (back, broken) = (place("restored", round), place("broken", round));
            let bucket = Bucket::create(&path, options()).unwrap();
            bucket.put(b"key", b"value").unwrap();
            bucket.snapshot().backup(&copy, &mut |_| {}).unwrap();
            kvb::restore(&[&copy], &back, Options::default(), &mut |_| {}).unwrap();
            let mut bytes = std::fs::read(&copy).unwrap();
            bytes[100] ^= 1;
            std::fs::write(&broken, bytes).unwrap();
            kvb::repair(&broken, &RepairTo::InPlace, Options::default(), &mut |_| {}).unwrap();
            // The power goes with nobody at work.
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            let ended = mounted.cut_under(&mut child);
            drop(bucket);
            assert!(ended(), "{kind} does not come back");
            for path in [path, copy, back, broken] {
                let bucket = Bucket::open(&path, options()).unwrap_or_else(|error| {
                    panic!("{kind}, round {round}, {}: {error}", path.display())
                });
                assert_eq!(&bucket.get(b"key").unwrap().unwrap()[..], b"value");
            }
        }
    }
}
