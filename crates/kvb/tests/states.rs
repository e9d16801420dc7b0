//! Threads that look at a bucket while one writes and two compact: whatever they see is a state that
//! was committed.
//!
//! One thread commits, and notes before each commit which keys it changes, in a [`Book`]. A value
//! tells the commit it is of. So a lookup must find what its key was at some commit between the last
//! one that had returned before and the last one that had begun after, and nothing older than this
//! thread has seen already. Every commit puts [`CLOCK`]; so a scan, a snapshot and a lookup of many
//! keys tell of which commit they are, and must show all keys as they were then.

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

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use host::{Disk, FileDisk, MemoryDisk, SystemEnv};
use kvb::{Batch, Bucket, Compact, Durability, Options, Snapshot};

/// How many keys there are.
const KEYS: usize = 400;
/// The key that is put by every commit.
const CLOCK: usize = 0;
/// Keys up to this one are never deleted.
const STEADY: usize = 50;
/// Snapshots a reader holds at a time.
const SNAPSHOTS: usize = 3;
/// How long the writer writes.
const TIME: Duration = Duration::from_secs(2);
/// Longest a test may take.
const LIMIT: Duration = Duration::from_secs(120);

fn options() -> Options {
    // Small, so that there is always something to seal, merge and compact.
    Options::default().durability(Durability::Relaxed).overlay_min(300).segment_bytes_max(64 << 10)
}

fn key(index: usize) -> Vec<u8> {
    format!("key {index:04}").into_bytes()
}

fn index_of(key: &[u8]) -> usize {
    std::str::from_utf8(&key[4..]).unwrap().parse().unwrap()
}

/// A value that tells its key and commit, and is long enough to be torn.
fn value(index: usize, commit: u64) -> Vec<u8> {
    let mut value = commit.to_le_bytes().to_vec();
    value.extend_from_slice(&key(index));
    let len = value.len() + usize::try_from(commit % 300).unwrap();
    value.resize(len, commit.to_le_bytes()[0]);
    value
}

fn commit_of(index: usize, bytes: &[u8]) -> u64 {
    let commit = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == value(index, commit), "a value of key {index} that nobody wrote");
    commit
}

/// A commit that changes a key, and whether it puts it.
#[derive(Clone, Copy, Debug)]
struct Change {
    commit: u64,
    is_put: bool,
}

impl Change {
    /// The commit whose value is there after it.
    fn outcome(self) -> Option<u64> {
        self.is_put.then_some(self.commit)
    }
}

/// What the writer has done.
#[derive(Debug)]
struct Book {
    /// The last commit that has begun, and the last that has returned.
    begun: AtomicU64,
    returned: AtomicU64,
    /// By key, oldest first.
    changes: Vec<RwLock<Vec<Change>>>,
}

impl Book {
    fn new() -> Book {
        Book {
            begun: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            changes: (0..KEYS).map(|_| RwLock::default()).collect(),
        }
    }

    /// What a key was after a commit, and may have been until another one.
    fn is_possible(&self, index: usize, found: Option<u64>, from: u64, to: u64) -> bool {
        let changes = self.changes[index].read().unwrap();
        let later = changes.partition_point(|change| change.commit <= from);
        let before = later.checked_sub(1).and_then(|at| changes[at].outcome());
        let mut meanwhile = changes[later..].iter().take_while(|change| change.commit <= to);
        before == found || meanwhile.any(|change| change.outcome() == found)
    }

    /// Checks that all keys are as they were after the commit of the clock.
    fn check_state(&self, state: &[Option<u64>], context: &str) -> u64 {
        let commit = state[CLOCK].expect("the clock is never deleted");
        for (index, found) in state.iter().enumerate() {
            assert!(
                self.is_possible(index, *found, commit, commit),
                "{context} at commit {commit}: key {index} is of {found:?}"
            );
        }
        commit
    }

    /// Changes the clock and some other keys.
    fn commit(&self, bucket: &Bucket, others: BTreeSet<usize>, rng: &mut Rng) {
        let commit = self.begun.load(Ordering::SeqCst) + 1;
        let mut batch = Batch::new();
        for index in others.into_iter().chain([CLOCK]) {
            let is_put = index < STEADY || rng.u8(..3) > 0;
            self.changes[index].write().unwrap().push(Change { commit, is_put });
            match is_put {
                true => batch.put(key(index), value(index, commit)),
                false => batch.delete(key(index)),
            };
        }
        self.begun.store(commit, Ordering::SeqCst);
        bucket.commit(batch).unwrap();
        self.returned.store(commit, Ordering::SeqCst);
    }

    /// Until the end, and on until a round of compaction has moved something: a busy disk can take
    /// seconds for the syncs of one.
    fn write(&self, bucket: &Bucket, rng: &mut Rng, end: Instant) {
        while Instant::now() < end || bucket.stats().unwrap().bytes_moved == 0 {
            let others = (0..rng.usize(..20)).map(|_| rng.usize(1..KEYS)).collect();
            self.commit(bucket, others, rng);
            if rng.u16(..1000) == 0 {
                bucket.compact(draw_kind(rng)).unwrap();
            }
        }
    }
}

fn draw_kind(rng: &mut Rng) -> Compact {
    *rng.choice(&[Compact::Auto, Compact::Full, Compact::LowSpace]).unwrap()
}

/// One that looks.
struct Reader<'b> {
    bucket: &'b Bucket,
    book: &'b Book,
    rng: Rng,
    /// The newest commit it has seen anything of.
    seen: u64,
    /// Snapshots and the commits they are of.
    snapshots: Vec<(Snapshot<'b>, u64)>,
}

impl<'b> Reader<'b> {
    /// Looks until told to stop, and gives how often.
    fn read(mut self, done: &AtomicBool) -> u64 {
        let mut looks = 0;
        while !done.load(Ordering::Acquire) {
            looks += 1;
            let from = self.seen.max(self.book.returned.load(Ordering::SeqCst));
            let (commit, is_whole) = match self.rng.u8(..100) {
                0..70 => (self.look_up(from), false),
                70..80 => (self.look_up_all(), true),
                80..90 => (self.scan(), true),
                90..93 => (self.take_snapshot(), true),
                _ => {
                    self.read_a_snapshot();
                    continue;
                }
            };
            let to = self.book.begun.load(Ordering::SeqCst);
            assert!(commit <= to, "{commit} was not begun, {to} was");
            assert!(commit >= from || !is_whole, "{commit} seen after {from} had returned");
            self.seen = self.seen.max(commit);
        }
        looks
    }

    /// Gives the commit whose value it found, or 0.
    fn look_up(&mut self, from: u64) -> u64 {
        let index = self.rng.usize(..KEYS);
        let found = self.bucket.get(key(index)).unwrap().map(|value| commit_of(index, &value));
        let to = self.book.begun.load(Ordering::SeqCst);
        assert!(
            self.book.is_possible(index, found, from, to),
            "key {index} is of {found:?}, between {from} and {to}"
        );
        found.unwrap_or(0)
    }

    fn look_up_all(&mut self) -> u64 {
        let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
        let values = self.bucket.get_many(&keys).unwrap();
        let found = |(index, value): (usize, &Option<kvb::Value<'_>>)| {
            value.as_ref().map(|value| commit_of(index, value))
        };
        let state: Vec<Option<u64>> = values.iter().enumerate().map(found).collect();
        self.book.check_state(&state, "get_many")
    }

    fn scan(&mut self) -> u64 {
        let state = state_of(self.bucket.scan(b""), self.rng.bool());
        self.book.check_state(&state, "scan")
    }

    fn take_snapshot(&mut self) -> u64 {
        let snapshot = self.bucket.snapshot();
        let state = state_of(snapshot.scan(b""), self.rng.bool());
        let commit = self.book.check_state(&state, "snapshot");
        if self.snapshots.len() >= SNAPSHOTS {
            self.snapshots.swap_remove(self.rng.usize(..SNAPSHOTS));
        }
        self.snapshots.push((snapshot, commit));
        commit
    }

    /// Whatever has happened since, a snapshot shows what it showed first.
    fn read_a_snapshot(&mut self) {
        let Some((snapshot, commit)) = self.rng.choice(&self.snapshots) else { return };
        let mut rng = self.rng.clone();
        for _ in 0..10 {
            let index = rng.usize(..KEYS);
            let found = snapshot.get(key(index)).unwrap().map(|value| commit_of(index, &value));
            let is_right = self.book.is_possible(index, found, *commit, *commit);
            assert!(is_right, "snapshot of {commit}: key {index} is of {found:?}");
        }
        let state = state_of(snapshot.scan(b""), rng.bool());
        assert_eq!(self.book.check_state(&state, "an old snapshot"), *commit);
        self.rng = rng;
    }
}

/// Of which commit each key is, by a scan forwards or backwards.
fn state_of(scan: kvb::Scan<'_>, is_forward: bool) -> Vec<Option<u64>> {
    let mut state = vec![None; KEYS];
    let mut last = None;
    let mut note = |row: kvb::Result<kvb::Row<'_>>| {
        let row = row.unwrap();
        let index = index_of(row.key());
        let is_next = last.is_none_or(|last| if is_forward { last < index } else { last > index });
        assert!(is_next, "key {index} after {last:?}");
        last = Some(index);
        state[index] = Some(commit_of(index, row.value()));
    };
    if is_forward {
        scan.for_each(&mut note)
    } else {
        scan.rev().for_each(&mut note)
    }
    state
}

/// Tells everyone that the writer is done, also if it panicked.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn run(disk: Arc<dyn Disk>, options: Options, seed: u64) {
    let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), options).unwrap();
    let book = Book::new();
    let done = AtomicBool::new(false);
    let mut rng = Rng::with_seed(seed);
    // Without the clock nobody can tell anything, and steady keys are there from the first commit.
    book.commit(&bucket, (1..KEYS).collect(), &mut rng);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (bucket, book, done, rng) = (&bucket, &book, &done, rng.fork());
                scope.spawn(move || {
                    Reader { bucket, book, rng, seen: 0, snapshots: Vec::new() }.read(done)
                })
            })
            .collect();
        let mut compactor = rng.fork();
        scope.spawn({
            let (bucket, done) = (&bucket, &done);
            move || {
                while !done.load(Ordering::Acquire) {
                    bucket.compact(draw_kind(&mut compactor)).unwrap();
                    thread::sleep(Duration::from_millis(compactor.u64(..20)));
                }
            }
        });
        {
            let _done = Done(&done);
            let time = TIME * u32::try_from(seed::rounds()).unwrap();
            book.write(&bucket, &mut rng, Instant::now() + time);
        }
        for reader in readers {
            let looks = reader.join().unwrap();
            assert!(looks > 20, "a reader hardly came to look");
        }
    });
    let state = state_of(bucket.scan(b""), true);
    let last = book.check_state(&state, "at the end");
    assert_eq!(last, book.returned.load(Ordering::SeqCst));
    eprintln!("{last} commits, {} bytes moved", bucket.stats().unwrap().bytes_moved);
}

#[test]
fn with_background_threads() {
    let seed = seed::seed("with_background_threads");
    watch::within(LIMIT, "with_background_threads", move || {
        run(Arc::new(MemoryDisk::with_capacity(1 << 30)), options(), seed);
    });
}

#[test]
fn without_background_threads() {
    let seed = seed::seed("without_background_threads");
    watch::within(LIMIT, "without_background_threads", move || {
        let options = options().background(false).directories(false);
        run(Arc::new(MemoryDisk::with_capacity(1 << 30)), options, seed);
    });
}

#[test]
fn in_a_file() {
    let seed = seed::seed("in_a_file");
    watch::within(LIMIT, "in_a_file", move || {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::create_new(dir.path().join("states.kvb")).unwrap();
        run(Arc::new(disk), options(), seed);
    });
}
