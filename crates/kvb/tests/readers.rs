//! Readers beside a busy writer, in this process and in others: every value they see is one that was committed, nothing
//! that must be there is missing, time goes only forward, and the file is never written to.
//!
//! The writer keeps `COUNTERS` counters. Round r puts r into all of them in one batch, deletes and re-puts some others,
//! and lets the index merge and segments be compacted all the time. So whoever reads must see all counters of one
//! snapshot equal, and the round never going back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "support/seed.rs"]
mod seed;
#[path = "support/watch.rs"]
mod watch;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use host::{Board, Disk, LockError, Mapping, MemoryDisk, Pin, SystemEnv};
use kvb::{Batch, Bucket, Compact, Durability, Options, Reader};

const COUNTERS: u32 = 40;
const LIMIT: Duration = Duration::from_secs(600);

fn options() -> Options {
    Options::default().segment_bytes_max(64 << 10).durability(Durability::Relaxed).overlay_min(256)
}

fn counter(index: u32) -> Vec<u8> {
    format!("counter/{index:03}").into_bytes()
}

/// A value that tells its key and round, and is long enough to be torn.
fn value(key: &[u8], round: u64) -> Vec<u8> {
    let mut value = round.to_le_bytes().to_vec();
    value.extend_from_slice(key);
    let len = 8 + key.len() + usize::try_from(round % 200).unwrap();
    value.resize(len, u8::try_from(round % 251).unwrap());
    value
}

fn round_of(key: &[u8], bytes: &[u8]) -> u64 {
    let round = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == value(key, round), "a value nobody wrote");
    round
}

/// Writes until told to stop.
fn write(bucket: &Bucket, stop: impl Fn() -> bool, seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let mut round = 0;
    while !stop() {
        round += 1;
        let mut batch = Batch::new();
        for index in 0..COUNTERS {
            let key = counter(index);
            batch.put(&key, value(&key, round));
        }
        for _ in 0..rng.usize(0..40) {
            let key = format!("other/{:05}", rng.u32(0..5000)).into_bytes();
            if rng.bool() {
                batch.delete(&key);
            } else {
                batch.put(&key, value(&key, round));
            }
        }
        let durability = if rng.u8(..8) == 0 { Durability::SyncOnce } else { Durability::Relaxed };
        bucket.commit_with(batch, durability).unwrap();
        match rng.u16(..2000) {
            0 => drop(bucket.compact(Compact::Full).unwrap()),
            1 => drop(bucket.compact(Compact::LowSpace).unwrap()),
            2 => bucket.flush().unwrap(),
            _ => {}
        }
    }
    round
}

/// What a reader did.
struct Tally {
    looks: u64,
    /// So many of the looks were scans.
    scans: u64,
    /// The last round it saw.
    last: u64,
}

/// Reads until told to stop.
fn read(reader: &Reader, stop: impl Fn() -> bool, seed: u64) -> Tally {
    let mut rng = Rng::with_seed(seed);
    let (mut looks, mut scans, mut last) = (0, 0, 0);
    while !stop() {
        looks += 1;
        match rng.u8(..10) {
            0 => {
                scans += 1;
                let snapshot = reader.snapshot().unwrap();
                let mut rounds = Vec::new();
                for row in snapshot.scan(b"counter/") {
                    let row = row.unwrap();
                    rounds.push(round_of(row.key(), row.value()));
                }
                assert_eq!(rounds.len(), usize::try_from(COUNTERS).unwrap(), "a scan lost a key");
                assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
                assert!(rounds[0] >= last, "a scan went back");
                last = rounds[0];
                let mut keys = Vec::new();
                for row in snapshot.range::<&[u8]>(..) {
                    let row = row.unwrap();
                    round_of(row.key(), row.value());
                    keys.push(row.key().to_vec());
                }
                assert!(keys.is_sorted_by(|a, b| a < b));
                for key in keys.iter().take(20) {
                    assert!(snapshot.get(key).unwrap().is_some(), "a snapshot lost a key");
                }
            }
            1 => {
                let keys: Vec<Vec<u8>> = (0..COUNTERS).map(counter).collect();
                let values = reader.get_many(&keys).unwrap();
                let rounds: Vec<u64> = keys
                    .iter()
                    .zip(&values)
                    .map(|(key, value)| round_of(key, value.as_ref().expect("a key is missing")))
                    .collect();
                assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
                assert!(rounds[0] >= last, "get_many went back");
                last = rounds[0];
            }
            2..6 => {
                let key = format!("other/{:05}", rng.u32(0..5000)).into_bytes();
                if let Some(value) = reader.get(&key).unwrap() {
                    round_of(&key, &value);
                }
            }
            _ => {
                let key = counter(rng.u32(0..COUNTERS));
                let value = reader.get(&key).unwrap().expect("a key is missing");
                let round = round_of(&key, &value);
                assert!(round >= last, "a lookup went back");
                last = round;
            }
        }
    }
    Tally { looks, scans, last }
}

fn first_round(bucket: &Bucket) {
    let mut batch = Batch::new();
    for index in 0..COUNTERS {
        let key = counter(index);
        batch.put(&key, value(&key, 0));
    }
    bucket.commit(batch).unwrap();
}

#[test]
fn readers_in_this_process() {
    let seed = seed::seed("readers_in_this_process");
    watch::within(LIMIT, "readers_in_this_process", move || {
        let disk = MemoryDisk::with_capacity(4 << 30);
        let bucket =
            Bucket::create_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options()).unwrap();
        first_round(&bucket);
        let end = Instant::now() + Duration::from_secs(4 * seed::rounds());
        let done = AtomicBool::new(false);
        let rounds = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..3)
                .map(|index| {
                    let reader =
                        Reader::open_on(Arc::new(disk.reopen()), Arc::new(SystemEnv)).unwrap();
                    let done = &done;
                    scope
                        .spawn(move || read(&reader, || done.load(Ordering::Relaxed), seed ^ index))
                })
                .collect();
            rounds.store(write(&bucket, || Instant::now() > end, seed), Ordering::Relaxed);
            done.store(true, Ordering::Relaxed);
            for reader in readers {
                let tally = reader.join().unwrap();
                assert!(tally.looks > 10, "a reader hardly got to read");
            }
        });
        let stats = bucket.stats().unwrap();
        assert!(stats.bytes_moved > 0, "nothing was compacted: {stats:?}");
        assert!(rounds.into_inner() > 100);
    });
}

const ROLE: &str = "KVB_TEST_READER";
/// Processes that read.
const READERS: u64 = 4;

/// Runs this test binary as a reader of `path` until the file `stop` exists.
fn spawn_reader(path: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_reader_process", "--nocapture", "--ignored"])
        .env(ROLE, path)
        .env("KVB_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "the other half of readers_in_other_processes"]
fn a_reader_process() {
    let Ok(path) = std::env::var(ROLE) else { return };
    let path = Path::new(&path);
    let stop = path.with_extension("stop");
    let reader = Reader::open(path).unwrap();
    let tally = read(&reader, || stop.exists(), seed::seed("a_reader_process"));
    // With the writer gone, all it has committed is there.
    let last_round = std::fs::read_to_string(&stop).unwrap().parse::<u64>().unwrap();
    let value = reader.get(counter(0)).unwrap().unwrap();
    assert_eq!(round_of(&counter(0), &value), last_round);
    assert!(tally.last <= last_round && tally.looks > 10 && tally.scans > 0);
    let Tally { looks, scans, .. } = tally;
    writeln!(io::stdout(), "\ndid {looks} looks, {scans} scans").unwrap();
}

/// What a reader process says it did: looks, scans.
fn done(text: &str) -> Option<(u64, u64)> {
    let words = text.lines().find_map(|line| line.strip_prefix("did "))?;
    let (looks, scans) = words.strip_suffix(" scans")?.split_once(" looks, ")?;
    Some((looks.parse().ok()?, scans.parse().ok()?))
}

/// `KVB_READER_SECONDS` says for how long.
#[test]
fn readers_in_other_processes() {
    let seed = seed::seed("readers_in_other_processes");
    let seconds = std::env::var("KVB_READER_SECONDS")
        .map_or(6 * seed::rounds(), |text| text.parse().expect("a number of seconds"));
    let limit = LIMIT + Duration::from_secs(seconds);
    watch::within(limit, "readers_in_other_processes", move || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.kvb");
        let bucket = Bucket::create(&path, options()).unwrap();
        first_round(&bucket);
        let readers: Vec<Child> =
            (0..READERS).map(|index| spawn_reader(&path, seed ^ index)).collect();
        let end = Instant::now() + Duration::from_secs(seconds);
        // A busy disk can take seconds for the syncs of one round of compaction.
        let is_moved = || bucket.stats().unwrap().bytes_moved > 0;
        let rounds = write(&bucket, || Instant::now() > end && is_moved(), seed);
        // Order: whole before it has its name.
        let draft = path.with_extension("draft");
        std::fs::write(&draft, rounds.to_string()).unwrap();
        std::fs::rename(&draft, path.with_extension("stop")).unwrap();
        let (mut looks, mut scans) = (0, 0);
        for reader in readers {
            let output = reader.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            let did = done(&text).unwrap_or_else(|| panic!("a reader does not say: {text}"));
            (looks, scans) = (looks + did.0, scans + did.1);
        }
        let did = format!("{READERS} processes, {looks} looks, {scans} scans");
        let beside = format!("{rounds} rounds of the writer, {seconds} seconds");
        writeln!(io::stderr(), "readers: {did}, {beside}").unwrap();
    });
}

/// A disk at whose calls something else happens, as if somebody got a word in edgeways.
struct Interrupted {
    disk: MemoryDisk,
    is_reader: bool,
    calls: AtomicU64,
    /// Is told the number of each call before it is made.
    interrupt: Box<dyn Fn(u64) + Send + Sync>,
}

impl fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupted").finish_non_exhaustive()
    }
}

impl Interrupted {
    fn call(&self) {
        (self.interrupt)(self.calls.fetch_add(1, Ordering::Relaxed));
    }

    fn change(&self) {
        assert!(!self.is_reader, "a reader writes nothing");
        self.call();
    }
}

impl Disk for Interrupted {
    fn len(&self) -> io::Result<u64> {
        self.call();
        self.disk.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change();
        self.disk.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change();
        self.disk.allocate(offset, len)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.call();
        self.disk.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.change();
        self.disk.write_at(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.call();
        self.disk.sync()
    }

    fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.call();
        self.disk.sync_range(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change();
        self.disk.punch(offset, len)
    }

    fn map(&self, len: u64) -> io::Result<Mapping> {
        self.call();
        self.disk.map(len)
    }

    fn lock(&self) -> Result<(), LockError> {
        self.disk.lock()
    }

    fn board(&self, offset: u64) -> io::Result<Board> {
        self.disk.board(offset)
    }

    fn pin(&self, byte: u64) -> io::Result<Pin> {
        self.call();
        self.disk.pin(byte)
    }

    fn is_pinned(&self, below: u64) -> io::Result<bool> {
        self.call();
        self.disk.is_pinned(below)
    }
}

/// Pieces of a batch that is not committed yet are there already, and count for nobody until it is; then all of them do.
#[test]
fn a_reader_may_open_at_any_call_of_a_large_batch() {
    for at in 0.. {
        let disk = MemoryDisk::new();
        let opened: Arc<Mutex<Option<Reader>>> = Arc::default();
        let begun = Arc::new(AtomicBool::new(false));
        let calls = Arc::new(AtomicU64::new(0));
        let interrupt = {
            let (disk, opened) = (disk.reopen(), Arc::clone(&opened));
            let (begun, calls) = (Arc::clone(&begun), Arc::clone(&calls));
            move |_| {
                if begun.load(Ordering::Relaxed) && calls.fetch_add(1, Ordering::Relaxed) == at {
                    let reader = Reader::open_on(Arc::new(disk.reopen()), Arc::new(SystemEnv));
                    let reader = reader.unwrap_or_else(|error| panic!("call {at}: {error}"));
                    assert_eq!(reader.get(b"before").unwrap().as_deref(), Some(&b"1"[..]));
                    *opened.lock().unwrap() = Some(reader);
                }
            }
        };
        let shared = Interrupted {
            disk: disk.reopen(),
            is_reader: false,
            calls: AtomicU64::new(0),
            interrupt: Box::new(interrupt),
        };
        let options = options().background(false).segment_bytes_max(16 << 10);
        let options = options.durability(Durability::SyncOnce);
        let bucket = Bucket::create_on(Arc::new(shared), Arc::new(SystemEnv), options).unwrap();
        bucket.put(b"before", b"1").unwrap();
        begun.store(true, Ordering::Relaxed);
        let mut batch = Batch::new();
        for index in 0..COUNTERS {
            batch.put(counter(index), [7; 2000]);
        }
        bucket.commit(batch).unwrap();
        begun.store(false, Ordering::Relaxed);
        let Some(reader) = opened.lock().unwrap().take() else {
            assert!(at > 10, "only {at} calls");
            return;
        };
        for index in 0..COUNTERS {
            let value = reader.get(counter(index)).unwrap();
            let is_right = value.as_deref() == Some(&[7; 2000][..]);
            assert!(is_right, "call {at}: counter {index}");
        }
        let rows = reader.snapshot().unwrap().scan(b"").count();
        assert_eq!(rows, usize::try_from(COUNTERS).unwrap() + 1, "call {at}");
    }
}

/// A file that grows moves its last superblock, and takes the old one away. A reader that knows only the old length must not
/// take that for damage.
#[test]
fn a_file_may_grow_at_any_call_of_a_reader() {
    grow_at_any_call(&options(), true);
}

/// A journal that tells of a commit in an extent which only the next superblock names is no sign of damage, either.
#[test]
fn a_commit_may_come_at_any_call_of_a_reader() {
    grow_at_any_call(&Options::default(), false);
    grow_at_any_call(&Options::default(), true);
}

fn grow_at_any_call(options: &Options, is_flushed: bool) {
    for at in 0.. {
        let disk = MemoryDisk::new();
        let options = options.clone().background(false);
        let env = Arc::new(SystemEnv);
        let shared = Arc::new(disk.reopen());
        let bucket = Bucket::create_on(shared, Arc::<SystemEnv>::clone(&env), options).unwrap();
        bucket.put(b"small", b"value").unwrap();
        let writer = Arc::new(bucket);
        let interrupt = {
            let writer = Arc::clone(&writer);
            move |call| {
                if call == at {
                    let before = writer.stats().unwrap().file_bytes;
                    writer.put(b"large", vec![b'l'; 300_000]).unwrap();
                    if is_flushed {
                        writer.flush().unwrap();
                        assert!(writer.stats().unwrap().file_bytes > before, "it did not grow");
                    }
                }
            }
        };
        let disk = Arc::new(Interrupted {
            disk: disk.reopen(),
            is_reader: true,
            calls: AtomicU64::new(0),
            interrupt: Box::new(interrupt),
        });
        let reader = Reader::open_on(Arc::<Interrupted>::clone(&disk), env)
            .unwrap_or_else(|error| panic!("opening, call {at}: {error}"));
        let look = |what: &str| {
            let value = reader.get(b"small").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(value.as_deref(), Some(&b"value"[..]), "{what}");
            let snapshot = reader.snapshot().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(snapshot.scan([]).all(|row| row.is_ok()), "{what}");
            drop(snapshot);
            let survey = reader.survey().unwrap_or_else(|error| panic!("{what}: {error}"));
            let end = survey.areas.last().map(|area| area.at + area.len);
            assert_eq!(end, Some(survey.file_bytes), "{what}");
            let is_ok = survey.superblocks.iter().all(|copy| copy.state.is_ok());
            assert!(is_ok, "{what}: {:?}", survey.superblocks);
            survey
        };
        look(&format!("a look, call {at}"));
        writer.put(b"later", b"value").unwrap();
        let committed = writer.stats().unwrap().commit_seqno;
        let survey = look(&format!("a second look, call {at}"));
        assert!(survey.commit_seqno >= committed, "call {at}: {survey:?}");
        if disk.calls.load(Ordering::Relaxed) <= at {
            assert!(at > 10, "only {at} calls");
            return;
        }
    }
}
