//! A reader that shares no code with the engine must find exactly the live keys.
//!
//! `strict/reader.py` knows superblocks, segments and records, and ignores everything else in a bucket. Random
//! histories run on real files, with growth, index merges, reopening, deletes, expiry, compaction, batches and values
//! larger than a segment; after each round the reader's rows are compared with a model. It is also given copies of a file
//! that is still open, images that a crash may leave behind, and damaged files, in which it may fail but not err.
//!
//! `KVB_SEED=n` replays a failing seed. Python 3 is needed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/foreign.rs"]
mod foreign;
#[path = "support/history.rs"]
mod history;
#[path = "support/rows.rs"]
mod rows;
#[path = "support/seed.rs"]
mod seed;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use foreign::{from_hex, script, strict};
use history::{Change, History, SECOND_NS, START_NS, live};
use host::{Keep, Limit, ManualEnv, SimDisk, Trace};
use kvb::format::segment::SegmentHeader;
use kvb::format::superblock::Superblock;
use kvb::{Batch, Bucket, Compact, Durability, Error, HashKind, Options};
use rows::{Rows, difference};

const COUNTER: &[u8] = b"commit number";

fn expect(bucket: &Path, now_ns: u64, wanted: &Rows, context: &str) {
    history::expect(&strict, bucket, now_ns, wanted, context);
}

/// One kind of history.
#[derive(Clone)]
struct Plan {
    name: &'static str,
    options: Options,
    durability: Durability,
    rounds: usize,
    /// Commits in a round.
    commits: usize,
    /// Most records in a batch, most of the time.
    batch: usize,
    /// Once in a while a batch of so many records of some 900 bytes.
    big_batch: usize,
    /// Longest value, most of the time.
    value: usize,
    /// Once in a while a value of so many bytes.
    big_value: usize,
    /// Whether background threads may be at work while the file is copied.
    is_quiet: bool,
}

struct Trial {
    plan: Plan,
    history: History,
}

impl Trial {
    fn key(&mut self) -> Vec<u8> {
        let n = self.history.random.u32(0..600);
        match n {
            0 => Vec::new(),
            // Their XXH3 is 0 and 1.
            1 => from_hex("46c6bd15848c7d973a5296093bbc56af"),
            2 => from_hex("b1e3cc0e6658ae493a5296093bbc56af"),
            // All of one XXH3.
            3..=40 => {
                let mut key = from_hex("b8fe6c3923a44bbe");
                key.extend_from_slice(&u64::from(n).to_le_bytes());
                key.extend_from_slice(&[7; 16]);
                key
            }
            41 => vec![b'k'; 3000],
            // A superblock's magic, a header's worth of zeros.
            42 => b"KBVK".to_vec(),
            43 => vec![0; 52],
            _ => format!("key {n}").into_bytes(),
        }
    }

    fn value(&mut self, len_max: usize) -> Vec<u8> {
        let len = match self.history.random.u8(0..8) {
            0 => 0,
            1..=5 => self.history.random.usize(0..=len_max / 8),
            _ => self.history.random.usize(0..=len_max),
        };
        if self.history.random.u8(0..16) == 0 {
            // What a careless walk would take for free space or for the end.
            return vec![0; len];
        }
        let byte = self.history.random.u8(..);
        (0..len).map(|at| byte.wrapping_add(u8::try_from(at % 251).unwrap())).collect()
    }

    fn changes(&mut self) -> Vec<Change> {
        let is_big_batch = self.plan.big_batch > 0 && self.history.random.u8(0..40) == 0;
        let is_big_value = self.plan.big_value > 0 && self.history.random.u8(0..40) == 0;
        let (count, len_max) = match (is_big_batch, is_big_value) {
            (true, _) => (self.plan.big_batch, 1800),
            (_, true) => (1, self.plan.value),
            _ => (self.history.random.usize(1..=self.plan.batch), self.plan.value),
        };
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            let key = self.key();
            changes.push(match self.history.random.u8(0..10) {
                0..=1 => Change::Delete(key),
                2 => Change::Put {
                    key,
                    value: self.value(len_max),
                    ttl_secs: self.history.random.u64(1..90),
                },
                _ => Change::Put { key, value: self.value(len_max), ttl_secs: 0 },
            });
        }
        if is_big_value && !is_big_batch {
            let key = self.key();
            let value = vec![self.history.random.u8(..); self.plan.big_value];
            changes.push(Change::Put { key, value, ttl_secs: 0 });
        }
        changes
    }

    fn commit(&mut self, bucket: &Bucket) {
        self.history.pass_time();
        let changes = self.changes();
        self.history.commit(bucket, changes, self.plan.durability);
    }

    /// The engine and the model must agree before the reader is asked.
    fn verify(&self, bucket: &Bucket, context: &str) {
        for (key, (value, deadline)) in &self.history.model {
            let wanted = (*deadline > self.history.now_ns).then_some(&value[..]);
            let found = bucket.get(key).unwrap();
            assert!(found.as_deref() == wanted, "{context}: the engine errs on {key:02x?}");
        }
    }

    fn check_abandoned(&self, context: &str) {
        self.history.check_abandoned(&strict, |bucket| self.verify(bucket, context), context);
    }

    fn run(mut self, seed: u64) {
        let mut bucket = self.history.create();
        for round in 0..self.plan.rounds {
            let context = format!("{} (KVB_SEED={seed}) round {round}", self.plan.name);
            self.history.begin_round();
            for _ in 0..self.plan.commits {
                self.commit(&bucket);
            }
            self.verify(&bucket, &context);
            self.history.compact(&bucket, round);
            self.verify(&bucket, &context);
            if self.plan.is_quiet && round % 2 == 1 {
                self.check_abandoned(&context);
            }
            let wanted = self.history.live();
            if self.plan.is_quiet && round % 3 == 0 {
                bucket.flush().unwrap();
                let context = format!("{context}, flushed");
                expect(&self.history.copy(), self.history.now_ns, &wanted, &context);
            } else {
                bucket.close().unwrap();
                expect(
                    &self.history.path,
                    self.history.now_ns,
                    &wanted,
                    &format!("{context}, closed"),
                );
                bucket = self.history.open(&self.history.path);
                self.verify(&bucket, &context);
            }
        }
        bucket.close().unwrap();
        // Hours later all that can expire has.
        let later = self.history.now_ns + 3600 * SECOND_NS;
        let wanted = live(&self.history.model, later);
        expect(
            &self.history.path,
            later,
            &wanted,
            &format!("{} (KVB_SEED={seed}) later", self.plan.name),
        );
    }
}

fn run(plan: Plan) {
    let seed = seed::seed(plan.name);
    let history = History::new(plan.options.clone(), seed);
    Trial { plan, history }.run(seed);
}

fn plan() -> Plan {
    Plan {
        name: "small segments",
        options: Options::default().background(false).overlay_min(300).segment_bytes_max(16 << 10),
        durability: Durability::Sync,
        rounds: 6,
        commits: 120,
        batch: 6,
        big_batch: 60,
        value: 400,
        big_value: 40_000,
        is_quiet: true,
    }
}

#[test]
fn small_segments() {
    run(plan());
}

#[test]
fn growing_segments_and_threads() {
    run(Plan {
        name: "growing segments and threads",
        options: Options::default().overlay_min(300),
        durability: Durability::SyncOnce,
        batch: 12,
        value: 900,
        big_value: 150_000,
        is_quiet: false,
        ..plan()
    });
}

#[test]
fn large_pages_and_keyed_hash() {
    run(Plan {
        name: "large pages and keyed hash",
        options: Options::default()
            .background(false)
            .overlay_min(300)
            .page_size(16 << 10)
            .segment_bytes_max(64 << 10)
            .hash(HashKind::SipHash),
        durability: Durability::Relaxed,
        big_batch: 160,
        ..plan()
    });
}

#[test]
fn large_pages_and_threads() {
    run(Plan {
        name: "large pages and threads",
        options: Options::default().overlay_min(300).page_size(16 << 10).index_bytes(100_000),
        durability: Durability::SyncOnce,
        rounds: 4,
        value: 700,
        is_quiet: false,
        ..plan()
    });
}

/// Enough segments that the roster spills into a segment table, more than once.
#[test]
fn many_segments() {
    run(Plan {
        name: "many segments",
        durability: Durability::Relaxed,
        rounds: 3,
        commits: 500,
        batch: 8,
        value: 900,
        ..plan()
    });
}

#[test]
fn empty_bucket() {
    for page_size in [4096, 16_384, 65_536] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("empty.kvb");
        let options = Options::default().page_size(page_size);
        Bucket::create(&path, options.clone()).unwrap().close().unwrap();
        expect(&path, START_NS, &Rows::new(), "created");
        let bucket = Bucket::open(&path, options).unwrap();
        bucket.put(b"only", b"key").unwrap();
        bucket.delete(b"only").unwrap();
        bucket.close().unwrap();
        expect(&path, START_NS, &Rows::new(), "emptied");
    }
}

/// A value may be a whole bucket; no walk may take its superblocks and segments for the bucket's own.
#[test]
fn bucket_within_a_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner.kvb");
    let outer = dir.path().join("outer.kvb");
    let bucket = Bucket::create(&inner, Options::default()).unwrap();
    bucket.put(b"inner", b"value").unwrap();
    bucket.close().unwrap();
    let bytes = std::fs::read(&inner).unwrap();
    let bucket = Bucket::create(&outer, Options::default()).unwrap();
    // Some key length puts the value's pages on pages of the file: 4096 - 52 - 44.
    bucket.put(vec![b'k'; 4000], &bytes).unwrap();
    bucket.close().unwrap();
    let wanted = Rows::from([(vec![b'k'; 4000], bytes)]);
    expect(&outer, START_NS, &wanted, "both superblocks");
    let mut damaged = std::fs::read(&outer).unwrap();
    damaged[4] ^= 1;
    std::fs::write(&outer, damaged).unwrap();
    expect(&outer, START_NS, &wanted, "superblock B alone");
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/kvb/golden.kvb")
}

fn guarded() -> PathBuf {
    golden().with_file_name("guarded.kvb")
}

/// A bucket with a guard, closed right after a snapshot had let go of what the guard hid.
#[test]
fn guards_hide_what_they_must() {
    let hours = 2 * 3600 * SECOND_NS;
    let wanted = Rows::from([(b"kept".to_vec(), b"old".to_vec())]);
    expect(&guarded(), START_NS + hours, &wanted, "guarded");
}

/// The worked example of the format page comes from the golden buckets, by a script.
#[test]
fn the_worked_example_is_what_the_script_makes() {
    let made = String::from_utf8(script("example.py", &[golden(), guarded()])).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/kvb.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(&made), "run example.py --into docs/format/kvb.md");
}

/// The structures in the vectors come from a script that shares no code with the engine either; they are still what it
/// makes.
#[test]
fn vectors_are_what_the_script_makes() {
    let committed = std::fs::read(golden().with_file_name("structures.json")).unwrap();
    assert!(script("vectors.py", &[]) == committed, "run vectors.py > vectors/kvb/structures.json");
}

/// Every copy of the superblock alone will do, and with none there is an error.
#[test]
fn lost_superblocks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.kvb");
    let bytes = std::fs::read(golden()).unwrap();
    let (wanted, _) = strict(&golden(), START_NS).unwrap();
    let b_at = bytes.len() - 4096;
    for lost in [&[0][..], &[b_at], &[0, b_at]] {
        let mut damaged = bytes.clone();
        for at in lost {
            damaged[at + 20] ^= 4;
        }
        std::fs::write(&path, damaged).unwrap();
        match strict(&path, START_NS) {
            Ok((found, _)) => {
                assert!(lost.len() < 2, "a bucket without superblocks was read");
                assert_eq!(difference(&found, &wanted), None, "lost {lost:?}");
            }
            Err(error) => {
                assert!(lost.len() == 2 && error.contains("no valid superblock"), "{error}");
            }
        }
    }
}

/// A flipped bit is either where this reader never looks, or an error. It is never another row.
#[test]
fn damage_is_never_a_wrong_row() {
    let seed = seed::seed("damage");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("damaged.kvb");
    for stored in [golden(), guarded()] {
        let bytes = std::fs::read(&stored).unwrap();
        let (wanted, _) = strict(&stored, START_NS).unwrap();
        let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let mut errors = 0;
        for _ in 0..30 {
            let at = written[random.usize(..written.len())];
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.u8(0..8);
            std::fs::write(&path, damaged).unwrap();
            match strict(&path, START_NS) {
                Ok((found, _)) => {
                    assert_eq!(difference(&found, &wanted), None, "byte {at}, seed {seed}")
                }
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 0, "the damage was never seen; seed {seed}");
    }
}

fn simulated_options() -> Options {
    Options::default().background(false).overlay_min(40).segment_bytes_max(16 << 10)
}

/// A history on a simulated disk that moves records, segments, images, tables and the file's end about: its record, the length
/// of the record when the bucket had been made, and the state after each commit.
fn simulated(seed: u64, commits: u64) -> (Trace, usize, Vec<Rows>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let disk = SimDisk::new();
    let env = Arc::new(ManualEnv::new(START_NS, seed));
    let mut bucket =
        Bucket::create_on(Arc::new(disk.clone()), env.clone(), simulated_options()).unwrap();
    let created = disk.trace().len();
    let mut states = vec![Rows::new()];
    for number in 1..=commits {
        let mut state = states.last().unwrap().clone();
        let mut batch = Batch::new();
        let count = if number % 70 == 50 { 80 } else { random.usize(0..6) };
        for _ in 0..count {
            let key = format!("key {}", random.u16(0..300)).into_bytes();
            if random.u8(0..4) == 0 {
                batch.delete(&key);
                state.remove(&key);
                continue;
            }
            let value = vec![random.u8(..); random.usize(0..600)];
            batch.put(&key, &value);
            state.insert(key, value);
        }
        batch.put(COUNTER, number.to_le_bytes());
        state.insert(COUNTER.to_vec(), number.to_le_bytes().to_vec());
        states.push(state);
        bucket.commit_with(batch, Durability::Relaxed).unwrap();
        let compact = |kind| {
            bucket.compact(kind).unwrap();
        };
        match random.u8(0..60) {
            0..=2 => bucket.flush().unwrap(),
            4 => compact(Compact::Full),
            5 => compact(Compact::LowSpace),
            6..=8 => compact(Compact::Auto),
            3 => {
                bucket.close().unwrap();
                let disk = Arc::new(disk.reopen());
                bucket = Bucket::open_on(disk, env.clone(), simulated_options()).unwrap();
            }
            _ => {}
        }
    }
    bucket.close().unwrap();
    (disk.trace(), created, states)
}

/// Whatever a crash leaves, the newest valid superblock leads to the state after the commit it names.
#[test]
fn images_after_power_loss() {
    let seed = seed::seed("images after power loss");
    let mut random = fastrand::Rng::with_seed(seed);
    let (trace, created, states) = simulated(seed, 150);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.kvb");
    for number in 0..45 {
        let upto = random.usize(created..=trace.len());
        let keep = match number % 5 {
            0 => Keep::None,
            1 => Keep::All,
            _ => Keep::Random(random.u64(..)),
        };
        let context = format!("KVB_SEED={seed}: power lost after {upto} operations, {keep:?}");
        std::fs::write(&path, trace.image(upto, keep)).unwrap();
        let (found, _) =
            strict(&path, START_NS).unwrap_or_else(|error| panic!("{context}: {error}"));
        let counter = found.get(COUNTER).map(|value| value[..].try_into().unwrap());
        let commit = counter.map_or(0, u64::from_le_bytes);
        let wanted = &states[usize::try_from(commit).unwrap()];
        if let Some(difference) = difference(&found, wanted) {
            panic!("{context}: after commit {commit}: {difference}");
        }
    }
}

/// Hops through the segment region as a strict reader does, and tells where it found no way.
fn hop(image: &[u8]) -> Result<(), String> {
    let block = |at: usize| image.get(at..).and_then(|bytes| Superblock::decode(bytes).ok());
    let newest = [block(0), block(image.len().saturating_sub(4096))].into_iter().flatten();
    let block = newest.max_by_key(|block| block.epoch.get()).ok_or("no superblock")?;
    let end = block.segment_end_page.get();
    let mut page = block.segment_start_page.get();
    while page < end {
        let at = usize::try_from(page * 4096).unwrap();
        let header = image.get(at..).and_then(SegmentHeader::decode);
        let pages = header.and_then(|header| header.page_count(4096));
        page += pages.ok_or_else(|| format!("no header at page {page} of {end}"))?;
    }
    if page == end { Ok(()) } else { Err(format!("page {page} is past the end {end}")) }
}

/// Hops through some of the images that power loss may leave at every point of a record.
fn hop_everywhere(trace: &Trace, from: usize, seed: u64, context: &str) {
    let mut points = trace.points();
    while let Some(point) = points.advance() {
        let upto = point.upto();
        let mut keeps = vec![Keep::None, Keep::All];
        if point.pending() > 0 {
            let number = u64::try_from(upto).unwrap();
            keeps.extend([
                Keep::OnlyLast,
                Keep::DropOne(0),
                Keep::Random(seed.wrapping_add(number)),
            ]);
        }
        for keep in keeps.into_iter().filter(|_| upto >= from) {
            if let Err(error) = hop(&point.image(keep)) {
                panic!(
                    "KVB_SEED={seed}: {context}: power lost after {upto} operations, {keep:?}: {error}"
                );
            }
        }
    }
}

/// Extents with valid headers tile the region whenever power is lost: only so can a strict reader, or a repair, find
/// its way. While this failed, an index image was laid over two free extents that had been joined in memory, before
/// the header that spans both was durable; the way then led into the image.
#[test]
fn region_is_tiled_after_power_loss_anywhere() {
    // The first seed is one that failed then.
    for seed in [2, seed::seed("tiled region")] {
        let mut random = fastrand::Rng::with_seed(seed);
        let (trace, created, _) = simulated(seed, 250);
        hop_everywhere(&trace, created, seed, "history");
        for _ in 0..15 {
            let upto = random.usize(created..trace.len());
            let keep = Keep::Random(random.u64(..));
            let disk = SimDisk::from_image(trace.image(upto, keep));
            let env = Arc::new(ManualEnv::new(START_NS, seed));
            let bucket = Bucket::open_on(Arc::new(disk.clone()), env, simulated_options()).unwrap();
            bucket.put(b"written after recovery", b"yes").unwrap();
            bucket.close().unwrap();
            let context = format!("recovery from {upto} operations, {keep:?}");
            hop_everywhere(&disk.trace(), 0, seed, &context);
        }
    }
}

/// The same on disks that are nearly full, where room that was taken past the high-water mark is given back because there is not enough
/// of it. While this failed, such room was joined with what is free before the mark, and the way led beyond the mark that superblocks knew.
#[test]
fn region_is_tiled_where_large_batches_are_refused() {
    let seed = seed::seed("tiled and full");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut refused = 0;
    for _ in 0..24 {
        let disk = SimDisk::new();
        let env = Arc::new(ManualEnv::new(START_NS, seed));
        let options = simulated_options();
        let bucket = Bucket::create_on(Arc::new(disk.clone()), env, options).unwrap();
        let created = disk.trace().len();
        let mut put = |count: usize, len: usize| {
            let mut batch = Batch::new();
            for _ in 0..count {
                let key = format!("key {}", random.u16(0..60)).into_bytes();
                batch.put(&key, vec![random.u8(..); random.usize(0..len)]);
            }
            match bucket.commit_with(batch, Durability::Relaxed) {
                Ok(()) => false,
                Err(Error::NoSpace) => true,
                Err(error) => panic!("{error}"),
            }
        };
        for _ in 0..60 {
            put(4, 600);
        }
        for round in 0..40 {
            let room = fastrand::Rng::with_seed(seed ^ round).u64(0..40) * 4096;
            disk.set_limit(Some(Limit::Blocks(disk.block_bytes() + room)));
            refused += u64::from(put(30, 6000));
            put(4, 600);
            if bucket.compact(Compact::Auto).is_err() {
                disk.set_capacity(None);
            }
        }
        disk.set_capacity(None);
        bucket.close().unwrap();
        hop_everywhere(&disk.trace(), created, seed, "full");
    }
    assert!(refused > 50, "only {refused} were refused");
}
