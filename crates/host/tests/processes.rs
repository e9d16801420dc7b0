//! What a file carries between processes: its board, its pins and its lock.
//!
//! One at a time: a process that is just being started has every open file of its parent, with its
//! pins, for a moment.

#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use host::{Disk, FileDisk, LockError};

/// Names the file to a process that serves.
const FILE: &str = "KVB_HOST_TEST_FILE";

fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Not a test but what the other process runs: it opens the file, does what each line of its input
/// says, and answers in one line.
#[test]
fn serve() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else {
        return;
    };
    let mut disk = FileDisk::open_read_only(&path).unwrap();
    let mut pins = BTreeMap::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (word, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().unwrap();
        let answer = match word {
            "write" => {
                disk = FileDisk::open(&path).unwrap();
                String::from("ok")
            }
            "lock" => match disk.lock() {
                Ok(()) => String::from("ok"),
                Err(LockError::Held { pid }) => format!("held by {}", pid.unwrap()),
                Err(LockError::Io(error)) => panic!("{error}"),
            },
            "pin" => {
                pins.insert(number, disk.pin(number).unwrap());
                String::from("ok")
            }
            "unpin" => format!("{}", pins.remove(&number).is_some()),
            "pinned" => format!("{}", disk.is_pinned(number).unwrap()),
            "load" => format!("{}", disk.board(4096).unwrap().load(511, Acquire)),
            "store" => {
                disk.board(4096).unwrap().store(511, number, Release);
                String::from("ok")
            }
            other => panic!("{other}"),
        };
        // Standard output belongs to the test runner.
        eprintln!("{answer}");
    }
}

/// Another process with the same file open, read-only until it is told "write".
struct Other {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStderr>,
}

impl Other {
    fn start(path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve", "--nocapture"])
            .env(FILE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stderr.take().unwrap());
        Other { process, input, output }
    }

    fn ask(&mut self, request: &str) -> String {
        writeln!(self.input, "{request}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends it without warning.
    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A file of three pages in a directory of its own.
fn file() -> (tempfile::TempDir, PathBuf, FileDisk) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let disk = FileDisk::create_new(&path).unwrap();
    disk.set_len(3 * 4096).unwrap();
    (dir, path, disk)
}

#[test]
fn a_board_reaches_another_process() {
    let _alone = one_at_a_time();
    let (_dir, path, disk) = file();
    let board = disk.board(4096).unwrap();
    let mut other = Other::start(&path);
    for value in [1, 1 << 40, u64::MAX] {
        board.store(511, value, Release);
        assert_eq!(other.ask("load"), value.to_string());
    }
    assert_eq!(other.ask("store 5"), "ok");
    assert_eq!(board.load(511, Acquire), u64::MAX, "it is read-only");
    assert_eq!(other.ask("write"), "ok");
    assert_eq!(other.ask("store 5"), "ok");
    assert_eq!(board.load(511, Acquire), 5);
    assert_eq!(other.ask("store 6"), "ok");
    other.kill();
    assert_eq!(board.load(511, Acquire), 6);
}

#[test]
fn a_pin_of_another_process_is_seen_until_it_is_dropped_or_the_process_dies() {
    let _alone = one_at_a_time();
    let (_dir, path, disk) = file();
    let (mut other, mut third) = (Other::start(&path), Other::start(&path));
    assert!(!disk.is_pinned(u64::MAX).unwrap());
    assert_eq!(other.ask("pin 5"), "ok");
    assert_eq!(other.ask("pin 9"), "ok");
    assert!(!disk.is_pinned(5).unwrap() && disk.is_pinned(6).unwrap());
    assert_eq!((other.ask("pinned 100"), third.ask("pinned 6")), ("false".into(), "true".into()));
    assert_eq!(other.ask("unpin 5"), "true");
    assert!(!disk.is_pinned(9).unwrap() && disk.is_pinned(10).unwrap());
    assert_eq!(third.ask("pin 9"), "ok");
    other.kill();
    assert!(disk.is_pinned(10).unwrap(), "the other one's");
    third.kill();
    assert!(!disk.is_pinned(u64::MAX).unwrap());

    let mut other = Other::start(&path);
    let pin = disk.pin(0).unwrap();
    assert_eq!(other.ask("pinned 1"), "true");
    drop(pin);
    assert_eq!(other.ask("pinned 1"), "false");
    other.kill();
}

#[test]
fn the_lock_and_the_pins_of_two_processes_ignore_each_other() {
    let _alone = one_at_a_time();
    let (_dir, path, disk) = file();
    let mut other = Other::start(&path);
    // Here the lock, there pins.
    disk.lock().unwrap();
    assert_eq!(other.ask("pin 0"), "ok");
    assert!(disk.is_pinned(1).unwrap());
    assert_eq!(other.ask("lock"), format!("held by {}", std::process::id()));
    assert!(disk.is_pinned(1).unwrap(), "a refused lock ends no pin");
    // There the lock and pins, here pins.
    drop(disk);
    assert_eq!(other.ask("lock"), "ok");
    let disk = FileDisk::open(&path).unwrap();
    let pin = disk.pin(0).unwrap();
    assert_eq!(other.ask("pinned 1"), "true");
    assert_eq!(other.ask("unpin 0"), "true");
    assert!(!disk.is_pinned(1).unwrap());
    match disk.lock() {
        Err(LockError::Held { pid }) => assert_eq!(pid, Some(other.pid())),
        outcome => panic!("giving back a pin gave back the lock: {outcome:?}"),
    }
    assert_eq!(other.ask("pinned 1"), "true", "a refused lock ends no pin");
    drop(pin);
    assert_eq!(other.ask("pinned 1"), "false");
    other.kill();
    disk.lock().unwrap();
}
