//! A writer process that dies: by SIGKILL, and by a file system that loses power under it.
//!
//! The test runs itself again as the writer. The writer commits numbered batches and reports each one after it was
//! acknowledged; whatever it reported must be there afterwards, and every batch must be whole.
//!
//! The power cut is real: an ext4 file system in a file, mounted through a loop device, is shut down by ioctl without
//! flushing its journal, so what was not synced is gone. It needs root and loop devices and says so where they are missing.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kvb::{Batch, Bucket, Durability, Options};

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
    let mut last = 0;
    for round in 0..12 {
        let mut child = start_writer(&path);
        let reports = reports(&mut child);
        let seen = reports.iter().take(3 + round * 5 % 17).last();
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = reports.iter().last().or(seen).unwrap();
        assert!(acknowledged > last, "the writer of round {round} wrote nothing");
        last = check(&path, acknowledged);
    }
}

/// A mounted file system that is unmounted when this is dropped.
struct Mounted {
    image: PathBuf,
    point: PathBuf,
}

impl Mounted {
    fn new(dir: &Path) -> Option<Mounted> {
        let mounted = Mounted { image: dir.join("image"), point: dir.join("mnt") };
        std::fs::create_dir(&mounted.point).unwrap();
        let made = run("truncate", &["-s", "96M", mounted.image.to_str().unwrap()])
            && run("mkfs.ext4", &["-F", "-q", mounted.image.to_str().unwrap()]);
        (made && mounted.mount()).then_some(mounted)
    }

    fn mount(&self) -> bool {
        run("mount", &["-o", "loop", self.image.to_str().unwrap(), self.point.to_str().unwrap()])
    }

    fn unmount(&self) -> bool {
        run("umount", &[self.point.to_str().unwrap()])
    }

    /// Loses power: nothing more reaches the medium, and the journal is not flushed.
    fn cut(&self) -> bool {
        let script = "import fcntl,os,struct,sys; \\
            fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";
        run("python3", &["-c", script, self.point.to_str().unwrap()])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let output =
        Command::new(program).args(arguments).stderr(Stdio::null()).stdout(Stdio::null()).status();
    output.is_ok_and(|status| status.success())
}

#[test]
fn what_was_acknowledged_before_a_power_cut_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(dir.path()) else {
        println!("skipped: no ext4 on a loop device here (it needs root)");
        return;
    };
    let path = mounted.point.join("bucket.kvb");
    Bucket::create(&path, options()).unwrap().close().unwrap();
    let mut last = 0;
    for round in 0..10 {
        let mut child = start_writer(&path);
        let reports = reports(&mut child);
        let seen = reports.iter().take(3 + round * 7 % 19).last();
        // The writer stands still while the power goes: unlike real power loss, the ioctl lets a sync that is under way
        // return success for bytes it then drops. What was acknowledged before counts, what was only written is lost.
        assert!(run("kill", &["-STOP", &child.id().to_string()]));
        std::thread::sleep(Duration::from_millis(30));
        let acknowledged = reports.try_iter().last().or(seen).unwrap();
        assert!(mounted.cut());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(mounted.unmount() && mounted.mount(), "round {round}");
        assert!(acknowledged > last, "the writer of round {round} wrote nothing");
        last = check(&path, acknowledged);
    }
    println!("10 power cuts, {last} batches");
}
