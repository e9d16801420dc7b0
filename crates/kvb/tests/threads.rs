//! Many threads on one bucket: commits are seen whole and in order, none is lost, and values stay
//! what they were while somebody holds them.
//!
//! What readers see can only be checked while writers are at work, so these tests run until the
//! writers are done and fail if anything hangs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "support/collide.rs"]
mod collide;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/watch.rs"]
mod watch;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use host::{
    Board, Disk, Fault, FileDisk, Keep, LockError, Mapping, MemoryDisk, Pin, SimDisk, SystemEnv,
};
use kvb::{Batch, Bucket, Compact, Durability, Error, Options};

/// Keys that one batch writes together.
const WIDTH: u64 = 10;
/// Longest a test may take.
const LIMIT: Duration = Duration::from_secs(60);

fn options(durability: Durability) -> Options {
    // Small, so that sealing, growing and merging go on all the time.
    Options::default().durability(durability).overlay_min(64).segment_bytes_max(64 << 10)
}

fn create(disk: impl Disk + 'static, options: Options) -> Bucket {
    Bucket::create_on(Arc::new(disk), Arc::new(SystemEnv), options).unwrap()
}

fn open(disk: impl Disk + 'static, options: Options) -> Bucket {
    Bucket::open_on(Arc::new(disk), Arc::new(SystemEnv), options).unwrap()
}

/// The keys of one writer.
fn plain_keys(writer: u64) -> Vec<Vec<u8>> {
    (0..WIDTH).map(|index| format!("writer {writer} key {index}").into_bytes()).collect()
}

/// The same, all with one hash.
fn colliding_keys(writer: u64) -> Vec<Vec<u8>> {
    (0..WIDTH).map(|index| collide::colliding(0, writer * WIDTH + index)).collect()
}

fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().unwrap())
}

/// A counter and bytes that depend on it, so that a mixture of two values shows.
fn value_of(counter: u64) -> Vec<u8> {
    let mut value = counter.to_le_bytes().to_vec();
    let len = usize::try_from(counter % 300).unwrap();
    value.resize(8 + len, counter.to_le_bytes()[0]);
    value
}

fn check_value(value: &[u8]) -> u64 {
    let counter = number(value);
    assert!(value == value_of(counter), "a torn value of counter {counter}");
    counter
}

/// One writer: every batch sets all its keys to the next counter, and some keys nobody looks at.
fn write(bucket: &Bucket, keys: &[Vec<u8>], commits: u64, durability: Durability) {
    for counter in 1..=commits {
        let mut batch = Batch::new();
        for key in keys {
            batch.put(key, value_of(counter));
        }
        batch.put([&keys[0][..], &(counter % 200).to_le_bytes()[..]].concat(), "filler");
        bucket.commit_with(batch, durability).unwrap();
        // A writer sees its own commit at once.
        let own = bucket.get(&keys[0]).unwrap().expect("just written");
        assert_eq!(check_value(&own), counter);
    }
}

/// Looks up all keys of one writer at once: they are all of one commit, and never of an older one
/// than before.
fn read_together(bucket: &Bucket, sets: &[Vec<Vec<u8>>], rng: &mut Rng, done: &AtomicBool) -> u64 {
    let mut last = vec![0; sets.len()];
    let mut rounds = 0;
    while !done.load(Ordering::Acquire) {
        let set = rng.usize(..sets.len());
        let values = bucket.get_many(&sets[set]).unwrap();
        let counters: Vec<u64> = values
            .iter()
            .map(|value| value.as_ref().map_or(0, |value| check_value(value)))
            .collect();
        assert!(counters.windows(2).all(|pair| pair[0] == pair[1]), "half a batch: {counters:?}");
        assert!(counters[0] >= last[set], "{} after {}", counters[0], last[set]);
        last[set] = counters[0];
        rounds += 1;
    }
    rounds
}

/// Looks up keys one by one: no key goes back, and a key looked up later is of no older commit.
fn read_singly(bucket: &Bucket, sets: &[Vec<Vec<u8>>], rng: &mut Rng, done: &AtomicBool) -> u64 {
    let mut last = vec![0; sets.len()];
    let mut rounds = 0;
    while !done.load(Ordering::Acquire) {
        let set = rng.usize(..sets.len());
        let key = rng.choice(&sets[set]).unwrap();
        let counter = bucket.get(key).unwrap().map_or(0, |value| check_value(&value));
        assert!(counter >= last[set], "{counter} after {}", last[set]);
        last[set] = counter;
        rounds += 1;
    }
    rounds
}

/// Asks for everything else a bucket can do.
fn disturb(bucket: &Bucket, done: &AtomicBool) {
    let mut commit_seqno = 0;
    while !done.load(Ordering::Acquire) {
        bucket.flush().unwrap();
        let stats = bucket.stats().unwrap();
        assert!(stats.commit_seqno >= commit_seqno);
        commit_seqno = stats.commit_seqno;
        thread::sleep(Duration::from_millis(3));
    }
}

/// Tells everyone that the writers are done, also if one of them panicked.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Writers, readers of both kinds and a disturber on one bucket.
fn storm(bucket: &Bucket, sets: &[Vec<Vec<u8>>], commits: u64, durability: Durability, seed: u64) {
    let done = AtomicBool::new(false);
    let together = thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let done = &done;
                let mut rng = Rng::with_seed(seed ^ reader);
                scope.spawn(move || match reader {
                    0 => read_together(bucket, sets, &mut rng, done),
                    _ => read_singly(bucket, sets, &mut rng, done),
                })
            })
            .collect();
        scope.spawn(|| disturb(bucket, &done));
        {
            let _done = Done(&done);
            thread::scope(|scope| {
                for keys in sets {
                    scope.spawn(|| write(bucket, keys, commits, durability));
                }
            });
        }
        readers.into_iter().map(|reader| reader.join().unwrap()).min()
    });
    assert!(together > Some(10), "the readers hardly came to read");
    check_end(bucket, sets, commits);
}

fn check_end(bucket: &Bucket, sets: &[Vec<Vec<u8>>], commits: u64) {
    for keys in sets {
        for value in bucket.get_many(keys).unwrap() {
            assert_eq!(check_value(&value.expect("written by every commit")), commits);
        }
    }
}

#[test]
fn batches_are_seen_whole_in_memory() {
    let seed = seed::seed("batches_are_seen_whole_in_memory");
    watch::within(LIMIT, "batches_are_seen_whole_in_memory", move || {
        for durability in [Durability::Relaxed, Durability::SyncOnce, Durability::Sync] {
            let sets: Vec<_> = (0..3).map(plain_keys).collect();
            let disk = MemoryDisk::with_capacity(1 << 30);
            let bucket = create(disk.reopen(), options(durability));
            let commits = 1500 * seed::rounds();
            storm(&bucket, &sets, commits, durability, seed);
            bucket.close().unwrap();
            check_end(&open(disk, options(durability)), &sets, commits);
        }
    });
}

/// More keys of one hash than the overlay keeps in its table.
#[test]
fn batches_of_colliding_keys_are_seen_whole() {
    collide::check();
    let seed = seed::seed("batches_of_colliding_keys_are_seen_whole");
    watch::within(LIMIT, "batches_of_colliding_keys_are_seen_whole", move || {
        let sets: Vec<_> = (0..3).map(colliding_keys).collect();
        let disk = MemoryDisk::with_capacity(1 << 30);
        let bucket = create(disk.reopen(), options(Durability::SyncOnce));
        let commits = 1500 * seed::rounds();
        storm(&bucket, &sets, commits, Durability::SyncOnce, seed);
        bucket.close().unwrap();
        check_end(&open(disk, options(Durability::SyncOnce)), &sets, commits);
    });
}

#[test]
fn batches_are_seen_whole_in_a_file() {
    let seed = seed::seed("batches_are_seen_whole_in_a_file");
    watch::within(LIMIT, "batches_are_seen_whole_in_a_file", move || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("threads.kvb");
        let sets: Vec<_> = (0..3).map(plain_keys).collect();
        let bucket = create(FileDisk::create_new(&path).unwrap(), options(Durability::SyncOnce));
        let commits = 400 * seed::rounds();
        storm(&bucket, &sets, commits, Durability::SyncOnce, seed);
        bucket.close().unwrap();
        let bucket = open(FileDisk::open(&path).unwrap(), options(Durability::Sync));
        check_end(&bucket, &sets, commits);
        let others: Vec<_> = (3..6).map(plain_keys).collect();
        storm(&bucket, &others, commits, Durability::Relaxed, !seed);
        check_end(&bucket, &sets, commits);
    });
}

/// Without background threads the same work is done inside the commits.
#[test]
fn batches_are_seen_whole_without_background_threads() {
    let seed = seed::seed("batches_are_seen_whole_without_background_threads");
    watch::within(LIMIT, "batches_are_seen_whole_without_background_threads", move || {
        let sets: Vec<_> = (0..3).map(plain_keys).collect();
        let disk = MemoryDisk::with_capacity(1 << 30);
        let bucket = create(disk.reopen(), options(Durability::SyncOnce).background(false));
        storm(&bucket, &sets, 1000 * seed::rounds(), Durability::SyncOnce, seed);
    });
}

/// A batch that writes a key many times has one value for it, the last. A lookup once read the slot
/// before the commit was published and asked whether it was afterwards, and so gave out a value in
/// between.
#[test]
fn a_value_overwritten_in_its_own_batch_is_never_seen() {
    collide::check();
    watch::within(LIMIT, "a_value_overwritten_in_its_own_batch_is_never_seen", || {
        // The second round has more keys of one hash than the overlay keeps in its table.
        for keys in [plain_keys(0), colliding_keys(0)] {
            let options = options(Durability::Relaxed).overlay_min(1000);
            let bucket = create(MemoryDisk::with_capacity(1 << 30), options);
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        for key in &keys {
                            let value = bucket.get(key).unwrap();
                            assert!(
                                value.is_none_or(|value| value == "last"),
                                "a value that never counted"
                            );
                        }
                    }
                });
                let _done = Done(&done);
                for _ in 0..6000 * seed::rounds() {
                    let mut batch = Batch::new();
                    for key in &keys {
                        (0..20).for_each(|_| {
                            batch.put(key, "not yet");
                        });
                        batch.put(key, "last");
                    }
                    bucket.commit(batch).unwrap();
                }
            });
        }
    });
}

/// A file in memory moves to a larger place when it outgrows the old one, and readers with it.
#[test]
fn a_file_that_outgrows_its_mapping_while_it_is_used() {
    let seed = seed::seed("a_file_that_outgrows_its_mapping_while_it_is_used");
    watch::within(LIMIT, "a_file_that_outgrows_its_mapping_while_it_is_used", move || {
        for round in 0..10 * seed::rounds() {
            let sets: Vec<_> = (0..2).map(plain_keys).collect();
            let disk = MemoryDisk::with_capacity(64 << 10);
            let bucket = create(disk, options(Durability::SyncOnce));
            storm(&bucket, &sets, 300, Durability::SyncOnce, seed ^ round);
        }
    });
}

/// Syncs of a disk, and how long they took in all: on a busy machine longer than they were to.
#[derive(Debug, Default)]
struct Syncs {
    count: AtomicU64,
    nanos: AtomicU64,
}

/// A disk in memory whose syncs take a while, and are counted.
#[derive(Debug)]
struct SlowDisk {
    memory: MemoryDisk,
    pause: Duration,
    syncs: Arc<Syncs>,
}

impl SlowDisk {
    fn wait(&self) {
        let start = Instant::now();
        thread::sleep(self.pause);
        let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap();
        self.syncs.nanos.fetch_add(nanos, Ordering::Relaxed);
        self.syncs.count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Disk for SlowDisk {
    fn board(&self, offset: u64) -> io::Result<Board> {
        self.memory.board(offset)
    }

    fn pin(&self, byte: u64) -> io::Result<Pin> {
        self.memory.pin(byte)
    }

    fn is_pinned(&self, below: u64) -> io::Result<bool> {
        self.memory.is_pinned(below)
    }

    fn len(&self) -> io::Result<u64> {
        self.memory.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.memory.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.allocate(offset, len)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, buf)
    }
    fn sync(&self) -> io::Result<()> {
        self.wait();
        self.memory.sync()
    }
    fn sync_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.wait();
        self.memory.sync_range(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.punch(offset, len)
    }
    fn map(&self, len: u64) -> io::Result<Mapping> {
        self.memory.map(len)
    }
    fn lock(&self) -> Result<(), LockError> {
        self.memory.lock()
    }
}

/// Every writer puts its own keys, one commit each.
fn put_all(bucket: &Bucket, writers: u64, commits: u64) {
    thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                for commit in 0..commits {
                    bucket.put(single_key(writer, commit), value_of(commit)).unwrap();
                }
            });
        }
    });
}

fn single_key(writer: u64, commit: u64) -> Vec<u8> {
    format!("writer {writer} commit {commit}").into_bytes()
}

fn check_all(bucket: &Bucket, writers: u64, commits: u64) {
    for writer in 0..writers {
        for commit in 0..commits {
            let value = bucket.get(single_key(writer, commit)).unwrap();
            let value = value.unwrap_or_else(|| panic!("writer {writer} lost commit {commit}"));
            assert!(value == value_of(commit));
        }
    }
    assert_eq!(bucket.stats().unwrap().keys, writers * commits);
}

#[test]
fn commits_of_eight_writers_are_all_durable() {
    watch::within(LIMIT, "commits_of_eight_writers_are_all_durable", || {
        for durability in [Durability::SyncOnce, Durability::Sync] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("threads.kvb");
            let (writers, commits) = (8, 250 * seed::rounds());
            let bucket = create(FileDisk::create_new(&path).unwrap(), options(durability));
            put_all(&bucket, writers, commits);
            check_all(&bucket, writers, commits);
            assert_eq!(bucket.stats().unwrap().puts, writers * commits);
            bucket.close().unwrap();
            check_all(&open(FileDisk::open(&path).unwrap(), options(durability)), writers, commits);
        }
    });
}

/// As if the process were killed when the last commit has returned.
#[test]
fn commits_of_eight_writers_survive_a_kill() {
    watch::within(LIMIT, "commits_of_eight_writers_survive_a_kill", || {
        for durability in [Durability::Relaxed, Durability::SyncOnce, Durability::Sync] {
            let disk = MemoryDisk::with_capacity(1 << 30);
            let (writers, commits) = (8, 500);
            let bucket = create(disk.reopen(), options(durability));
            put_all(&bucket, writers, commits);
            let killed = MemoryDisk::from_bytes(disk.to_bytes());
            drop(bucket);
            let bucket = open(killed, options(durability));
            assert_eq!(bucket.mount_report().records_discarded, 0);
            check_all(&bucket, writers, commits);
        }
    });
}

/// Commits that wait at the same time share a sync; alone, each has its own.
#[test]
fn commits_that_wait_together_share_a_sync() {
    watch::within(LIMIT, "commits_that_wait_together_share_a_sync", || {
        let syncs = Arc::new(Syncs::default());
        let disk = SlowDisk {
            memory: MemoryDisk::new(),
            pause: Duration::from_millis(2),
            syncs: Arc::clone(&syncs),
        };
        // Nothing but commits: no merge, and segments that last.
        let options = Options::default().durability(Durability::SyncOnce);
        let bucket = create(disk, options);
        bucket.put("warm", "up").unwrap();
        let before = syncs.count.load(Ordering::Relaxed);
        let start = Instant::now();
        put_all(&bucket, 1, 40);
        let (alone, alone_time) = (syncs.count.load(Ordering::Relaxed) - before, start.elapsed());
        assert!(alone >= 40, "{alone} syncs for 40 durable commits");
        let before = syncs.count.load(Ordering::Relaxed);
        let start = Instant::now();
        put_all(&bucket, 8, 40);
        let (shared, shared_time) = (syncs.count.load(Ordering::Relaxed) - before, start.elapsed());
        eprintln!(
            "{alone} syncs in {alone_time:?} alone, {shared} in {shared_time:?} for eight writers"
        );
        assert!(shared <= 8 * 40 / 2, "{shared} syncs for 320 commits of 8 writers");
        assert!(
            shared_time < alone_time * 4,
            "{shared_time:?} for eight writers, {alone_time:?} for one"
        );
    });
}

/// A writer alone does not wait for others that never come.
#[test]
fn a_lone_writer_does_not_wait_for_company() {
    watch::within(LIMIT, "a_lone_writer_does_not_wait_for_company", || {
        let syncs = Arc::new(Syncs::default());
        let pause = Duration::from_millis(4);
        let disk = SlowDisk { memory: MemoryDisk::new(), pause, syncs: Arc::clone(&syncs) };
        let bucket = create(disk, Options::default().durability(Durability::SyncOnce));
        put_all(&bucket, 8, 5);
        // The first commits may still hope for company; later ones know better.
        for commit in 0..3 {
            bucket.put(single_key(9, commit), "value").unwrap();
        }
        let before = syncs.nanos.load(Ordering::Relaxed);
        let start = Instant::now();
        for commit in 3..53 {
            bucket.put(single_key(9, commit), "value").unwrap();
        }
        let time = start.elapsed();
        let in_syncs = Duration::from_nanos(syncs.nanos.load(Ordering::Relaxed) - before);
        assert!(time < in_syncs * 2, "{time:?} with {in_syncs:?} of it in syncs");
    });
}

/// Values that somebody holds stay equal, whatever becomes of their keys.
#[test]
fn values_stay_what_they_were_while_they_are_held() {
    let seed = seed::seed("values_stay_what_they_were_while_they_are_held");
    for in_file in [false, true] {
        watch::within(LIMIT, "values_stay_what_they_were_while_they_are_held", move || {
            let dir = tempfile::tempdir().unwrap();
            let disk: Arc<dyn Disk> = if in_file {
                Arc::new(FileDisk::create_new(dir.path().join("threads.kvb")).unwrap())
            } else {
                Arc::new(MemoryDisk::with_capacity(256 << 10))
            };
            let options = options(Durability::Relaxed).overlay_min(16).background(in_file);
            let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), options).unwrap();
            let mut rng = Rng::with_seed(seed);
            let mut copies = Vec::new();
            for index in 0..200_u32 {
                let mut value = vec![0; rng.usize(..9000)];
                rng.fill(&mut value);
                bucket.put(index.to_le_bytes(), &value).unwrap();
                copies.push(value);
            }
            let keys: Vec<[u8; 4]> = (0..200_u32).map(u32::to_le_bytes).collect();
            // Some found in the overlay, and after a flush all found in the image.
            let early = bucket.get_many(&keys).unwrap();
            bucket.flush().unwrap();
            let held: Vec<_> = keys.iter().map(|key| bucket.get(key).unwrap().unwrap()).collect();
            let index_before = bucket.stats().unwrap().epoch;
            thread::scope(|scope| {
                scope.spawn(|| {
                    for round in 0..40_u32 {
                        let mut batch = Batch::new();
                        for index in 0..200_u32 {
                            if (index + round) % 3 == 0 {
                                batch.delete(index.to_le_bytes());
                            } else {
                                batch.put(index.to_le_bytes(), vec![0xAB; 3000]);
                            }
                            batch.put((1000 + round * 200 + index).to_le_bytes(), "more");
                        }
                        bucket.commit(batch).unwrap();
                        bucket.flush().unwrap();
                    }
                });
                for _ in 0..20 {
                    for (value, copy) in held.iter().zip(&copies) {
                        assert!(*value == *copy, "a value changed while it was held");
                    }
                    thread::sleep(Duration::from_millis(5));
                }
            });
            for ((value, early), copy) in held.iter().zip(&early).zip(&copies) {
                assert!(*value == *copy, "a value changed while it was held");
                assert!(early.as_ref().is_some_and(|early| *early == *copy));
            }
            assert!(
                bucket.stats().unwrap().epoch >= index_before + 40,
                "nothing was merged meanwhile"
            );
        });
    }
}

/// When a write fails, every writer is told, at once or at its next commit, and what was
/// acknowledged is there later.
#[test]
fn a_failure_reaches_every_writer() {
    let seed = seed::seed("a_failure_reaches_every_writer");
    watch::within(LIMIT, "a_failure_reaches_every_writer", move || {
        let mut rng = Rng::with_seed(seed);
        for round in 0..40 * seed::rounds() {
            let disk = SimDisk::with_region(Vec::new(), 16 << 20);
            let background = rng.bool();
            let bucket =
                create(disk.reopen(), options(Durability::SyncOnce).background(background));
            let fault =
                *rng.choice(&[Fault::Eio, Fault::ShortWrite, Fault::SyncFailsThenLies]).unwrap();
            disk.fail(disk.op_count() + rng.u64(..1500), fault);
            let acknowledged: Vec<u64> = thread::scope(|scope| {
                let writers: Vec<_> = (0..6)
                    .map(|writer| {
                        let bucket = &bucket;
                        scope.spawn(move || write_until_stopped(bucket, writer))
                    })
                    .collect();
                writers.into_iter().map(|writer| writer.join().unwrap()).collect()
            });
            drop(bucket);
            let trace = disk.trace();
            for keep in [Keep::All, Keep::None, Keep::Random(seed ^ round)] {
                let image = MemoryDisk::from_bytes(trace.image(trace.len(), keep));
                let bucket = open(image, options(Durability::SyncOnce).background(false));
                for (writer, commits) in (0..).zip(&acknowledged) {
                    for commit in 0..*commits {
                        let value = bucket.get(single_key(writer, commit)).unwrap();
                        assert!(
                            value.is_some(),
                            "{fault:?}, {keep:?}: writer {writer} lost commit {commit}"
                        );
                    }
                    let beyond = bucket.get(single_key(writer, commits + 1)).unwrap();
                    assert!(beyond.is_none(), "a commit that never began");
                }
            }
        }
    });
}

/// Puts until it is told to stop, and gives the number of acknowledged commits.
fn write_until_stopped(bucket: &Bucket, writer: u64) -> u64 {
    for commit in 0..5000 {
        match bucket.put(single_key(writer, commit), value_of(commit)) {
            Ok(()) => {}
            Err(Error::Io { .. } | Error::Stopped(_)) => {
                let again = bucket.put("another", "try");
                assert!(matches!(again, Err(Error::Stopped(_))), "{again:?}");
                return commit;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the failure never came");
}

/// After a crash with many segments newer than the index, their runs are folded in while commits go on. Every commit must
/// be seen at once and stay.
#[test]
fn commits_go_on_while_runs_are_folded_in() {
    watch::within(LIMIT, "commits_go_on_while_runs_are_folded_in", || {
        let quick = Options::default().durability(Durability::Relaxed);
        let disk = MemoryDisk::new();
        let bucket = create(disk.reopen(), quick.clone().overlay_min(1 << 20));
        for first in (0..60_000_u32).step_by(1_000) {
            let mut batch = Batch::new();
            (first..first + 1_000).for_each(|n| {
                batch.put(n.to_be_bytes(), [7; 300]);
            });
            bucket.commit(batch).unwrap();
        }
        // The first segments are sealed by now; a killed process leaves the file as it is.
        let image = disk.to_bytes();
        drop(bucket);
        let mut folded = 0;
        for round in 0..6_u32 {
            let bucket =
                open(MemoryDisk::from_bytes(image.clone()), quick.clone().overlay_min(500));
            folded += u64::from(bucket.mount_report().runs > 0);
            let mut last = 0;
            for commit in 1..=30_u32 {
                let mut batch = Batch::new();
                for n in 0..1_500_u32 {
                    batch.put((1_000_000 + n).to_be_bytes(), (round * 100 + commit).to_be_bytes());
                    batch.put((2_000_000 + commit * 1_500 + n).to_be_bytes(), b"new");
                }
                bucket.commit(batch).unwrap();
                last = round * 100 + commit;
                for n in (0..1_500_u32).step_by(7) {
                    let value = bucket.get((1_000_000 + n).to_be_bytes()).unwrap();
                    assert_eq!(value.as_deref(), Some(&last.to_be_bytes()[..]), "commit {commit}");
                    assert!(bucket.exists((2_000_000 + commit * 1_500 + n).to_be_bytes()).unwrap());
                }
            }
            for n in 0..60_000_u32 {
                assert!(bucket.exists(n.to_be_bytes()).unwrap(), "key {n} of before");
            }
            for n in 0..45_000_u32 {
                let key = (2_000_000 + 1_500 + n).to_be_bytes();
                assert!(bucket.exists(key).unwrap(), "key {n} of after, {last}");
            }
        }
        assert!(folded > 0, "there was nothing to fold in");
    });
}

/// Whoever asks for a compaction gets it, though the background has something to do for as long as others write.
#[test]
fn a_compaction_that_is_asked_for_is_done_beside_a_busy_writer() {
    watch::within(LIMIT, "a_compaction_that_is_asked_for", || {
        let memory = MemoryDisk::with_capacity(1 << 30);
        let disk = SlowDisk { memory, pause: Duration::from_millis(2), syncs: Arc::default() };
        let bucket = create(disk, options(Durability::Relaxed));
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    bucket.put("key", [7; 200]).unwrap();
                }
            });
            let kinds = [Compact::Full, Compact::Auto, Compact::LowSpace].iter().cycle().take(9);
            let all: Result<Vec<_>, _> = kinds.map(|kind| bucket.compact(*kind)).collect();
            done.store(true, Ordering::Release);
            assert_eq!(all.unwrap().len(), 9);
        });
    });
}

/// The last record that compaction was to move is replaced while the place for it is made, or at any other sync. The next
/// compaction finds work all the same.
#[test]
fn compaction_goes_on_when_what_it_would_move_is_replaced_meanwhile() {
    watch::within(LIMIT, "compaction_goes_on", || {
        for number in 2..10 {
            let syncs = Arc::new(Syncs::default());
            let pause = Duration::from_millis(3);
            let memory = MemoryDisk::with_capacity(64 << 20);
            let disk = SlowDisk { memory, pause, syncs: Arc::clone(&syncs) };
            let options = options(Durability::Relaxed).overlay_min(10_000);
            let bucket = create(disk, options);
            for index in 0..100_u64 {
                bucket.put(index.to_be_bytes(), [7; 500]).unwrap();
            }
            bucket.compact(Compact::Full).unwrap();
            for index in 1..100_u64 {
                bucket.delete(index.to_be_bytes()).unwrap();
            }
            let due = syncs.count.load(Ordering::Relaxed) + number;
            thread::scope(|scope| {
                scope.spawn(|| {
                    while syncs.count.load(Ordering::Relaxed) < due {
                        thread::sleep(Duration::from_micros(100));
                    }
                    bucket.put(0_u64.to_be_bytes(), "another").unwrap();
                });
                bucket.compact(Compact::Auto).unwrap();
                // Should there be fewer syncs.
                syncs.count.fetch_add(number, Ordering::Relaxed);
            });
            for index in 0..600_u64 {
                bucket.put((index % 100).to_be_bytes(), [7; 500]).unwrap();
            }
            bucket.compact(Compact::Full).unwrap();
            let stats = bucket.stats().unwrap();
            assert!(stats.segments <= 3, "replaced at sync {number}: {stats:?}");
        }
    });
}

/// Threads that look up have counters of their own, but there are more threads than that, and they end.
#[test]
fn every_lookup_is_counted() {
    let threads = 50;
    let lookups = 2000;
    let bucket = create(MemoryDisk::new(), options(Durability::Relaxed));
    bucket.put(b"there", b"1").unwrap();
    for round in 1..=3 {
        // All at work at once, so that some have to share.
        let begin = std::sync::Barrier::new(threads);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    begin.wait();
                    for _ in 0..lookups {
                        assert!(bucket.get(b"there").unwrap().is_some());
                        assert!(bucket.get(b"absent").unwrap().is_none());
                    }
                });
            }
        });
        let stats = bucket.stats().unwrap();
        let hits = u64::try_from(round * threads * lookups).unwrap();
        assert_eq!((stats.gets, stats.hits), (2 * hits, hits), "round {round}");
    }
}
