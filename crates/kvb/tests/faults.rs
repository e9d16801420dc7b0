//! Calls to the disk that fail: every one of a short history, in every way, once and for good.
//!
//! What must hold then: nothing panics or hangs. A commit that could not be made durable returns an
//! error, and so does every write after it, until the bucket is opened again; lookups go on as of
//! the last commit. After the next open everything acknowledged is there, and what was not is there
//! whole or not at all. A full disk is different: nothing was written, so the bucket goes on,
//! deletes find room, and so does everything else once there is some.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "support/destroy.rs"]
mod destroy;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/seed_reader.rs"]
mod seed_reader;
#[path = "support/watch.rs"]
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use host::{Fault, Keep, Limit, ManualEnv, MemoryDisk, Op, SimDisk, SystemEnv};
use kvb::{Batch, Bucket, Compact, Durability, Error, Options};

/// Longest one test may take.
const LIMIT: Duration = Duration::from_secs(120);
/// Address space of a simulated file; the histories are short.
const REGION: u64 = 8 << 20;
/// Keys of a history.
const KEYS: u32 = 60;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// A key, and its new value if it is not deleted.
type Mutation = (Vec<u8>, Option<Vec<u8>>);

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<Mutation>),
    Flush,
    Reopen,
    Compact(Compact),
}

fn key(index: u32) -> Vec<u8> {
    let mut key = index.to_be_bytes().to_vec();
    key.resize(4 + usize::try_from(index % 7).unwrap(), b'.');
    key
}

/// A short history that fills segments, merges, grows, flushes and reopens.
fn history(seed: u64) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let mut steps = Vec::new();
    for number in 0..26 {
        let count = match number % 6 {
            0 => 30,
            1 | 2 => rng.usize(2..8),
            _ => 1,
        };
        // One value and one batch are larger than a segment.
        let len_max = if number == 9 {
            20_000
        } else if number == 18 {
            1500
        } else {
            300
        };
        let mut changes = Vec::new();
        for _ in 0..count {
            let value = (rng.u8(..4) > 0).then(|| {
                let mut value = vec![0; rng.usize(len_max / 2..len_max)];
                rng.fill(&mut value);
                value
            });
            changes.push((key(rng.u32(..KEYS)), value));
        }
        steps.push(Step::Commit(changes));
        match number {
            7 | 20 => steps.push(Step::Flush),
            13 => steps.push(Step::Reopen),
            _ => {}
        }
    }
    steps
}

/// A history of little more than compactions: guards, moved segments, freed and reused space.
fn compacting(seed: u64) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let mut steps = Vec::new();
    for number in 0..8 {
        let count = if number % 4 == 0 { 40 } else { 12 };
        let mut changes = Vec::new();
        for _ in 0..count {
            let value = (rng.u8(..16) > 5).then(|| {
                let mut value = vec![0; rng.usize(200..700)];
                rng.fill(&mut value);
                value
            });
            changes.push((key(rng.u32(..KEYS / 2)), value));
        }
        steps.push(Step::Commit(changes));
        match number {
            2 => steps.push(Step::Compact(Compact::Full)),
            4 => steps.extend([Step::Flush, Step::Compact(Compact::Auto)]),
            6 => steps.push(Step::Compact(Compact::LowSpace)),
            7 => steps.push(Step::Compact(Compact::Full)),
            _ => {}
        }
    }
    steps
}

fn options(durability: Durability) -> Options {
    Options::default()
        .durability(durability)
        .background(false)
        .overlay_min(16)
        .segment_bytes_max(16 << 10)
}

fn apply(state: &mut State, changes: &[Mutation]) {
    for (key, value) in changes {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
}

fn batch(changes: &[Mutation]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in changes {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        };
    }
    batch
}

/// Everything the bucket holds of a history's keys.
fn state_of(bucket: &Bucket) -> State {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let values = bucket.get_many(&keys).expect("lookups go on");
    let found = keys.into_iter().zip(values);
    found.filter_map(|(key, value)| Some((key, value?.to_vec()))).collect()
}

/// The same by a scan.
fn scan_of(bucket: &Bucket) -> State {
    let rows = bucket.scan(b"").map(|row| row.expect("scans go on"));
    rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

/// What came of a history on a disk that fails.
#[derive(Debug)]
struct Outcome {
    /// The state after every acknowledged commit, the empty one first.
    states: Vec<State>,
    /// Which of them is the last known to be durable.
    durable: usize,
    /// The state if the commit that failed counts after all.
    failed: Option<State>,
    /// Whether lookups saw the commit that failed.
    failed_was_seen: bool,
    /// Nothing was created.
    stillborn: bool,
}

impl Outcome {
    fn last(&self) -> &State {
        self.states.last().unwrap()
    }
}

/// A history on its way.
struct Run<'a> {
    disk: &'a SimDisk,
    env: Arc<ManualEnv>,
    durability: Durability,
    outcome: Outcome,
}

/// Runs a history until a step fails for good, checking what must hold meanwhile.
fn run(disk: &SimDisk, steps: &[Step], durability: Durability) -> Outcome {
    let outcome = Outcome {
        states: vec![State::new()],
        durable: 0,
        failed: None,
        failed_was_seen: false,
        stillborn: true,
    };
    let env = Arc::new(ManualEnv::new(1 << 60, 5));
    let mut run = Run { disk, env, durability, outcome };
    run.take(steps);
    run.outcome
}

impl Run<'_> {
    fn take(&mut self, steps: &[Step]) {
        let disk = Arc::new(self.disk.reopen());
        let created = Bucket::create_on(disk, self.env.clone(), options(self.durability));
        let Ok(mut bucket) = created else { return };
        self.outcome.stillborn = false;
        for (number, step) in steps.iter().enumerate() {
            let result = match step {
                Step::Commit(changes) => self.commit(&bucket, changes),
                Step::Flush => bucket.flush().map(|()| self.note_durable()),
                Step::Compact(kind) => bucket.compact(*kind).map(drop),
                Step::Reopen => match self.reopen(bucket) {
                    Some(reopened) => {
                        bucket = reopened;
                        Ok(())
                    }
                    None => return,
                },
            };
            if !self.check_step(&bucket, result, &format!("step {number}")) {
                return;
            }
        }
        if bucket.close().is_ok() {
            self.note_durable();
        }
    }

    fn note_durable(&mut self) {
        self.outcome.durable = self.outcome.states.len() - 1;
    }

    fn commit(&mut self, bucket: &Bucket, changes: &[Mutation]) -> Result<(), Error> {
        let mut next = self.outcome.last().clone();
        apply(&mut next, changes);
        match bucket.commit(batch(changes)) {
            Ok(()) => {
                self.outcome.states.push(next);
                if self.durability > Durability::Relaxed {
                    self.note_durable();
                }
                Ok(())
            }
            Err(error) => {
                self.outcome.failed = Some(next);
                Err(error)
            }
        }
    }

    /// What opening after a failure must do is a test of its own, so a failed close ends the run.
    fn reopen(&mut self, bucket: Bucket) -> Option<Bucket> {
        bucket.close().ok()?;
        self.note_durable();
        let disk = Arc::new(self.disk.reopen());
        Bucket::open_on(disk, self.env.clone(), options(self.durability)).ok()
    }

    /// Checks what lookups show after a step, and tells whether the history goes on.
    fn check_step(&mut self, bucket: &Bucket, result: Result<(), Error>, context: &str) -> bool {
        let seen = state_of(bucket);
        let outcome = &mut self.outcome;
        let is_last = seen == *outcome.last();
        match result {
            Ok(()) => {
                assert!(is_last, "{context}: lookups do not show what was committed");
                true
            }
            // Nothing was changed, and the next step may find room.
            Err(Error::NoSpace) => {
                assert!(is_last, "{context}: no space, but something was committed");
                outcome.failed = None;
                true
            }
            // Work behind an earlier commit failed, so this one was refused before it began.
            Err(Error::Stopped(_)) => {
                assert!(is_last, "{context}: refused, but something was committed");
                outcome.failed = None;
                check_latched(bucket, &seen);
                false
            }
            Err(error @ Error::Io { .. }) => {
                let is_failed = outcome.failed.as_ref() == Some(&seen);
                outcome.failed_was_seen = is_failed && !is_last;
                assert!(
                    is_last || is_failed,
                    "{context}: after {error} lookups show neither state"
                );
                check_latched(bucket, &seen);
                false
            }
            Err(error) => panic!("{context}: {error:?}"),
        }
    }
}

/// After a failed write no other one is tried, and lookups go on.
fn check_latched(bucket: &Bucket, seen: &State) {
    let existing = seen.keys().next().cloned();
    let mut results = vec![
        ("put", bucket.put(key(0), "after the failure")),
        ("commit", bucket.commit(batch(&[(key(1), None)]))),
        ("flush", bucket.flush()),
        ("delete", bucket.delete("a key that is not there").map(drop)),
    ];
    results.extend(existing.map(|key| ("delete", bucket.delete(key).map(drop))));
    for (what, result) in results {
        assert!(matches!(result, Err(Error::Stopped(_))), "{what} after a failure: {result:?}");
    }
    assert!(state_of(bucket) == *seen, "a refused write changed something");
    bucket.stats().expect("statistics go on");
}

/// Opens what a crash would leave, and checks that it is a state it may be.
fn check_image(image: Vec<u8>, outcome: &Outcome, durable: usize, context: &str) {
    let disk = MemoryDisk::from_bytes(image);
    let open =
        || Bucket::open_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options(Durability::Sync));
    let opened = open();
    if outcome.stillborn && opened.is_err() {
        return;
    }
    let bucket = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = state_of(&bucket);
    let is_allowed =
        outcome.states[durable..].contains(&found) || outcome.failed.as_ref() == Some(&found);
    assert!(is_allowed, "{context}: the state is none of those it may be");
    assert!(scan_of(&bucket) == found, "{context}: a scan tells otherwise");
    assert!(seed_reader::read(&disk.to_bytes()).live() == found, "{context}: by the seed alone");
    // And it is a bucket like any other.
    bucket.put("new", "life").unwrap_or_else(|error| panic!("{context}: {error}"));
    bucket.close().unwrap_or_else(|error| panic!("{context}: {error}"));
    let bucket = open().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(bucket.get("new").unwrap().as_deref(), Some(&b"life"[..]), "{context}");
    assert!(state_of(&bucket) == found, "{context}: opening again changed something");
}

/// As `check_image`, and also as found by the seed alone before anything is repaired, by walking the segments when the
/// table is lost, and after a compaction.
fn check_image_deeply(image: Vec<u8>, outcome: &Outcome, durable: usize, context: &str) {
    eprintln!("{context}");
    if !outcome.stillborn {
        let raw = seed_reader::read(&image).live();
        let is_known = outcome.states.contains(&raw) || outcome.failed.as_ref() == Some(&raw);
        assert!(is_known, "{context}: by the seed alone, as it is");
        let mut damaged = image.clone();
        if destroy::segment_table(&mut damaged, 4096) {
            let disk = Arc::new(MemoryDisk::from_bytes(damaged));
            let bucket = Bucket::open_on(disk, Arc::new(SystemEnv), options(Durability::Sync))
                .unwrap_or_else(|error| panic!("{context}, no table: {error}"));
            assert!(bucket.mount_report().table_rebuilt);
            let found = state_of(&bucket);
            let is_allowed = outcome.states[durable..].contains(&found)
                || outcome.failed.as_ref() == Some(&found);
            assert!(is_allowed, "{context}, no table: the state is none of those it may be");
            assert!(scan_of(&bucket) == found, "{context}, no table: a scan tells otherwise");
            bucket
                .compact(Compact::Full)
                .unwrap_or_else(|error| panic!("{context}, no table: {error}"));
            assert!(scan_of(&bucket) == found, "{context}, no table, compacted");
            assert!(state_of(&bucket) == found, "{context}, no table, compacted");
        }
    }
    check_image(image, outcome, durable, context);
}

fn new_disk() -> SimDisk {
    SimDisk::with_region(Vec::new(), REGION)
}

/// Calls that the history makes when nothing fails.
fn call_count(steps: &[Step], durability: Durability) -> u64 {
    let disk = new_disk();
    let outcome = run(&disk, steps, durability);
    let commits = steps.iter().filter(|step| matches!(step, Step::Commit(_))).count();
    assert_eq!(outcome.states.len(), commits + 1, "nothing fails where nothing is told to");
    let calls = disk.op_count();
    let has = |wanted: fn(&Op) -> bool| disk.trace().ops().iter().any(wanted);
    assert!(has(|op| matches!(op, Op::Allocate { offset, .. } if *offset > 0)), "it must grow");
    let copy = Arc::new(SimDisk::with_region(disk.to_bytes(), REGION));
    let bucket = Bucket::open_on(copy, Arc::new(SystemEnv), options(durability)).unwrap();
    let report = bucket.mount_report();
    assert!(report.runs < report.segments, "and merge: {report:?}");
    calls
}

/// How a call fails, and whether all later ones fail with it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    fault: Fault,
    forever: bool,
}

const PLANS: [Plan; 8] = [
    Plan { fault: Fault::Eio, forever: false },
    Plan { fault: Fault::Eio, forever: true },
    Plan { fault: Fault::Enospc, forever: false },
    Plan { fault: Fault::Enospc, forever: true },
    Plan { fault: Fault::ShortWrite, forever: false },
    Plan { fault: Fault::ShortWrite, forever: true },
    Plan { fault: Fault::SyncFailsThenLies, forever: false },
    Plan { fault: Fault::SyncFailsThenLies, forever: true },
];

/// One history with one fault, and what each test wants to know of it.
fn with_fault(steps: &[Step], durability: Durability, plan: Plan, call: u64) -> (SimDisk, Outcome) {
    let disk = new_disk();
    if plan.forever {
        disk.fail_from(call, plan.fault);
    } else {
        disk.fail(call, plan.fault);
    }
    let outcome = run(&disk, steps, durability);
    (disk, outcome)
}

/// Fails every call of a history of compactions in one way.
fn sweep_compactions(test: &'static str, durability: Durability, plans: &'static [Plan]) {
    let seed = seed::seed(test);
    watch::within(LIMIT * u32::try_from(seed::rounds()).unwrap(), test, move || {
        for round in 0..seed::rounds() {
            let steps = compacting(seed.wrapping_add(round));
            let count = call_count(&steps, durability);
            for plan in plans {
                for call in 0..count {
                    let (disk, outcome) = with_fault(&steps, durability, *plan, call);
                    let trace = disk.trace();
                    let point = trace.point(trace.len());
                    let all = outcome.states.len() - 1;
                    let images = [
                        (Keep::All, all),
                        (Keep::None, outcome.durable),
                        (Keep::Random(seed ^ call), outcome.durable),
                    ];
                    for (keep, durable) in images {
                        let context = format!("{plan:?} at call {call} of {count}, {keep:?}");
                        // Half a header in a sector is more than power loss does to it.
                        let is_torn = plan.fault == Fault::ShortWrite;
                        let check = if is_torn { check_image } else { check_image_deeply };
                        check(point.image(keep), &outcome, durable, &context);
                    }
                    if outcome.stillborn {
                        continue;
                    }
                    check_reopened(
                        &disk,
                        outcome,
                        seed ^ call,
                        &format!("{plan:?} at call {call} of {count}"),
                    );
                }
            }
            let plans = u64::try_from(plans.len()).unwrap();
            eprintln!("{} calls of a bucket failed", count * plans);
        }
    });
}

/// Opens the bucket on the machine as it is after a failure, compacts, and loses power.
fn check_reopened(disk: &SimDisk, mut outcome: Outcome, seed: u64, context: &str) {
    disk.clear_faults();
    let env = Arc::new(ManualEnv::new(1 << 60, 6));
    let opened = Bucket::open_on(Arc::new(disk.reopen()), env, options(Durability::Sync));
    let bucket = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
    let mut state = state_of(&bucket);
    let is_allowed = state == *outcome.last() || outcome.failed.as_ref() == Some(&state);
    assert!(is_allowed, "{context}: reopened: the state is none of those it may be");
    let changes = [(key(3), Some(b"after".to_vec())), (key(4), None)];
    bucket.commit(batch(&changes)).unwrap_or_else(|error| panic!("{context}: {error}"));
    apply(&mut state, &changes);
    bucket.compact(Compact::Full).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(state_of(&bucket) == state, "{context}: reopened and compacted");
    // Acknowledged as durable, and everything before it with it.
    outcome.states = vec![state];
    outcome.failed = None;
    let trace = disk.trace();
    let point = trace.point(trace.len());
    for keep in [Keep::None, Keep::Random(seed), Keep::Random(!seed)] {
        let context = format!("{context}, reopened, {keep:?}");
        check_image_deeply(point.image(keep), &outcome, 0, &context);
    }
}

#[test]
fn every_call_of_a_compaction_fails() {
    sweep_compactions("every_call_of_a_compaction_fails", Durability::SyncOnce, &PLANS);
}

#[test]
fn every_call_of_a_compaction_fails_in_relaxed() {
    sweep_compactions("every_call_of_a_compaction_fails_in_relaxed", Durability::Relaxed, &PLANS);
}

/// Fails every call of a history in one way.
fn sweep(test: &'static str, durability: Durability, plans: &'static [Plan]) {
    let seed = seed::seed(test);
    watch::within(LIMIT * u32::try_from(seed::rounds()).unwrap(), test, move || {
        for round in 0..seed::rounds() {
            let steps = history(seed.wrapping_add(round));
            let count = call_count(&steps, durability);
            for plan in plans {
                for call in 0..count {
                    eprintln!("{plan:?} at call {call} of {count}");
                    let (disk, outcome) = with_fault(&steps, durability, *plan, call);
                    let trace = disk.trace();
                    let point = trace.point(trace.len());
                    let all = outcome.states.len() - 1;
                    let images = [
                        (Keep::All, all),
                        (Keep::None, outcome.durable),
                        (Keep::Random(seed ^ call), outcome.durable),
                        (Keep::Random(!seed ^ call), outcome.durable),
                    ];
                    for (keep, durable) in images {
                        let context = format!("{plan:?} at call {call}, {keep:?}");
                        check_image(point.image(keep), &outcome, durable, &context);
                    }
                }
            }
            let plans = u64::try_from(plans.len()).unwrap();
            eprintln!("{} calls of a bucket failed", count * plans);
        }
    });
}

#[test]
fn every_call_fails_once_or_for_good_in_sync() {
    sweep("every_call_fails_once_or_for_good_in_sync", Durability::Sync, &PLANS);
}

#[test]
fn every_call_fails_once_or_for_good_in_sync_once() {
    sweep("every_call_fails_once_or_for_good_in_sync_once", Durability::SyncOnce, &PLANS);
}

#[test]
fn every_call_fails_once_or_for_good_in_relaxed() {
    sweep("every_call_fails_once_or_for_good_in_relaxed", Durability::Relaxed, &PLANS);
}

/// A commit that returned an error shows nothing to lookups: whoever is told that it failed must
/// not find it done.
#[test]
fn a_commit_that_fails_is_not_seen() {
    let seed = seed::seed("a_commit_that_fails_is_not_seen");
    let steps = history(seed);
    let count = call_count(&steps, Durability::Sync);
    let mut seen = BTreeSet::new();
    for plan in PLANS {
        for call in 0..count {
            if with_fault(&steps, Durability::Sync, plan, call).1.failed_was_seen {
                seen.insert(call);
            }
        }
    }
    assert!(
        seen.is_empty(),
        "commits failed and were seen when these of {count} calls failed: {seen:?}"
    );
}

/// After a failed sync the system may show bytes that no later sync makes durable. Whoever opens
/// the bucket again, on the machine as it is, must write what it keeps once more before it calls it
/// durable.
#[test]
fn what_a_failed_sync_left_is_not_trusted_by_the_next_open() {
    let seed = seed::seed("what_a_failed_sync_left_is_not_trusted_by_the_next_open");
    let steps = history(seed);
    let plan = Plan { fault: Fault::SyncFailsThenLies, forever: false };
    for durability in [Durability::Sync, Durability::SyncOnce, Durability::Relaxed] {
        for call in 0..call_count(&steps, durability) {
            let (disk, mut outcome) = with_fault(&steps, durability, plan, call);
            if outcome.stillborn {
                continue;
            }
            let context = format!("{durability:?}, call {call}");
            let env = Arc::new(ManualEnv::new(1 << 60, 6));
            let opened = Bucket::open_on(Arc::new(disk.reopen()), env, options(Durability::Sync));
            let bucket = opened.unwrap_or_else(|error| panic!("{context}: {error}"));
            let mut state = state_of(&bucket);
            let changes = [(key(3), Some(b"after".to_vec()))];
            bucket.commit(batch(&changes)).unwrap_or_else(|error| panic!("{context}: {error}"));
            apply(&mut state, &changes);
            // Acknowledged as durable, and everything before it with it.
            outcome.states = vec![state];
            outcome.failed = None;
            let trace = disk.trace();
            for keep in [Keep::None, Keep::Random(seed ^ call)] {
                check_image(
                    trace.image(trace.len(), keep),
                    &outcome,
                    0,
                    &format!("{context}, {keep:?}"),
                );
            }
        }
    }
}

/// A read that fails while the bucket is opened fails the open; the next one works.
#[test]
fn every_read_of_an_open_fails() {
    let disk = new_disk();
    let steps = history(seed::seed("every_read_of_an_open_fails"));
    let outcome = run(&disk, &steps, Durability::Sync);
    for clean in [true, false] {
        let trace = disk.trace();
        let upto = if clean { trace.len() } else { trace.len() / 2 };
        let image = trace.image(upto, Keep::All);
        let open = |disk: &SimDisk| {
            Bucket::open_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options(Durability::Sync))
        };
        let intact = SimDisk::with_region(image.clone(), REGION);
        drop(open(&intact).unwrap());
        let reads = intact.read_count();
        assert!(reads > 0);
        for read in 0..reads {
            let failing = SimDisk::with_region(image.clone(), REGION);
            failing.fail_read(read, Fault::Eio);
            let result = open(&failing).map(drop);
            if failing.read_count() <= read {
                continue;
            }
            assert!(matches!(result, Err(Error::Io { .. })), "read {read} of {reads}: {result:?}");
            let bucket = open(&failing).unwrap();
            assert!(!clean || state_of(&bucket) == *outcome.last(), "read {read}");
        }
    }
}

/// Reads that fail later, while the index is merged, stop the writer like a failed write, and
/// nothing else.
#[test]
fn every_later_read_fails() {
    let steps = history(seed::seed("every_later_read_fails"));
    let disk = new_disk();
    run(&disk, &steps, Durability::Sync);
    for read in 0..disk.read_count() {
        let disk = new_disk();
        disk.fail_read(read, Fault::Eio);
        let outcome = run(&disk, &steps, Durability::Sync);
        let trace = disk.trace();
        let image = trace.image(trace.len(), Keep::None);
        check_image(image, &outcome, outcome.durable, &format!("read {read}"));
    }
}

/// How a disk is full: no file may be longer, or there are no more blocks, not even for holes.
type Kind = fn(u64) -> Limit;
const KINDS: [Kind; 2] = [Limit::Length, Limit::Blocks];

/// Leaves a disk so many bytes more than a file takes there now.
fn limit(disk: &SimDisk, kind: Kind, room: u64) {
    let taken = match kind(0) {
        Limit::Length(_) => u64::try_from(disk.to_bytes().len()).unwrap(),
        Limit::Blocks(_) => disk.block_bytes(),
    };
    disk.set_limit(Some(kind(taken + room)));
}

/// A bucket on a disk that has no more room than the bucket takes.
struct Full {
    kind: Kind,
    disk: SimDisk,
    bucket: Bucket,
    stored: Vec<Vec<u8>>,
}

impl Full {
    /// Puts until there is no room left.
    fn new(kind: Kind, options: Options) -> Full {
        Full::with_capacity(kind, options, 1 << 20)
    }

    fn with_capacity(kind: Kind, options: Options, bytes: u64) -> Full {
        let disk = SimDisk::with_region(Vec::new(), 64 << 20);
        let env = Arc::new(ManualEnv::new(1 << 60, 5));
        let bucket = Bucket::create_on(Arc::new(disk.reopen()), env, options).unwrap();
        let mut full = Full { kind, disk, bucket, stored: Vec::new() };
        full.disk.set_limit(Some(kind(bytes)));
        let error = full.fill();
        assert!(matches!(error, Error::NoSpace), "{error:?}");
        assert!(full.stored.len() > 100);
        full
    }

    fn fill(&mut self) -> Error {
        for number in self.stored.len()..100_000 {
            let key = format!("key {number}").into_bytes();
            match self.bucket.put(&key, [7; 500]) {
                Ok(()) => self.stored.push(key),
                Err(error) => {
                    assert!(!self.bucket.exists(&key).unwrap(), "no space, but the value is there");
                    return error;
                }
            }
        }
        panic!("the disk never fills");
    }

    fn check(&self) {
        check_stored(&self.bucket, &self.stored);
    }

    /// Goes on from a copy of the disk, as full as it was.
    fn kill(self, options: Options) -> Full {
        let image = self.disk.to_bytes();
        let len = u64::try_from(image.len()).unwrap();
        drop(self.bucket);
        let disk = SimDisk::with_region(image, 64 << 20);
        disk.set_limit(Some((self.kind)(len)));
        let bucket =
            Bucket::open_on(Arc::new(disk.reopen()), Arc::new(SystemEnv), options).unwrap();
        Full { kind: self.kind, disk, bucket, stored: self.stored }
    }
}

fn check_stored(bucket: &Bucket, stored: &[Vec<u8>]) {
    for key in stored {
        assert!(bucket.get(key).unwrap().is_some_and(|value| value == [7; 500]), "{key:?} is gone");
    }
}

fn on_full_disk(test: &'static str, background: bool, overlay_min: usize) {
    for kind in KINDS {
        on_disk_of(kind, test, background, overlay_min);
    }
}

fn on_disk_of(kind: Kind, test: &'static str, background: bool, overlay_min: usize) {
    watch::within(Duration::from_secs(30), test, move || {
        let options = options(Durability::SyncOnce).overlay_min(overlay_min).background(background);
        let mut full = Full::new(kind, options.clone());
        full.check();
        for number in 0..3 {
            let key = format!("another {number}").into_bytes();
            match full.bucket.put(&key, [7; 500]) {
                Err(Error::NoSpace) => {}
                // A merge that was under way may have given the old image's space back.
                Ok(()) if background => full.stored.push(key),
                again => panic!("{again:?}"),
            }
        }
        let big = full.bucket.put("big", vec![7; 4 << 20]);
        assert!(matches!(big, Err(Error::NoSpace)), "{big:?}");
        // Deletes work, alone and in batches.
        for _ in 0..30 {
            let key = full.stored.pop().unwrap();
            let deleted = full.bucket.delete(&key);
            assert!(matches!(deleted, Ok(true)), "{deleted:?}");
            assert!(!full.bucket.exists(&key).unwrap());
        }
        let mut batch = Batch::new();
        let deleted: Vec<Vec<u8>> = full.stored.drain(..20).collect();
        deleted.iter().for_each(|key| {
            batch.delete(key);
        });
        full.bucket.commit(batch).unwrap();
        full.check();
        // A killed bucket opens on the full disk, too.
        let mut full = full.kill(options.clone());
        full.check();
        assert!(deleted.iter().all(|key| !full.bucket.exists(key).unwrap()));
        // With room again everything goes on.
        full.disk.set_capacity(None);
        for number in 0..200 {
            let key = format!("later {number}").into_bytes();
            full.bucket.put(&key, [7; 500]).unwrap();
            full.stored.push(key);
        }
        full.check();
        full.bucket.close().unwrap();
        let bucket =
            Bucket::open_on(Arc::new(full.disk.reopen()), Arc::new(SystemEnv), options).unwrap();
        check_stored(&bucket, &full.stored);
    });
}

#[test]
fn a_full_disk() {
    on_full_disk("a_full_disk", false, 100_000);
}

#[test]
fn a_full_disk_with_background_threads() {
    on_full_disk("a_full_disk_with_background_threads", true, 100_000);
}

/// No room for a new index image is no reason to refuse what there is room for.
#[test]
fn a_full_disk_while_merges_are_due() {
    on_full_disk("a_full_disk_while_merges_are_due", false, 16);
}

#[test]
fn a_full_disk_while_merges_are_due_with_background_threads() {
    on_full_disk("a_full_disk_while_merges_are_due_with_background_threads", true, 16);
}

/// On a full disk deletes find room, and compactions then give back what they hid, so that puts find room again. Each may
/// be refused now and then, but whoever goes on deleting and compacting gets there. With threads that take room from each
/// other all of it may end up where none can move; an eighth more disk then sets it going. In a tiny bucket of segments of
/// four pages each there may be no way on, but nothing is lost.
fn compaction_on_full_disk(kind: Compact, background: bool, overlay_min: usize, is_tiny: bool) {
    for limit in KINDS {
        compaction_on_disk_of(limit, kind, background, overlay_min, is_tiny);
    }
}

fn compaction_on_disk_of(
    limit: Kind,
    kind: Compact,
    background: bool,
    overlay_min: usize,
    is_tiny: bool,
) {
    let name = format!(
        "{:?}, {kind:?}, background {background}, overlay {overlay_min}, {is_tiny}",
        limit(0)
    );
    watch::within(Duration::from_secs(60), &name.clone(), move || {
        let options = options(Durability::SyncOnce).overlay_min(overlay_min).background(background);
        // Segments of many pages: what is left over of each counts for little.
        let (segment_max, capacity) =
            if is_tiny { (16 << 10, 1 << 20) } else { (128 << 10, 4 << 20) };
        let options = options.segment_bytes_max(segment_max);
        let mut full = Full::with_capacity(limit, options.clone(), capacity);
        let before = full.stored.len();
        let mut rescues = 0;
        let mut rescue = |disk: &SimDisk| {
            rescues += 1;
            disk.set_limit(Some(limit(capacity + rescues * (capacity / 8))));
            background && rescues <= 3
        };
        for turn in 0..3 {
            // Every second key, so that no segment is all dead, as far as there is room for tombstones at a time.
            let keys = std::mem::take(&mut full.stored);
            let mut to_delete = Vec::new();
            for (at, key) in keys.into_iter().enumerate() {
                if at % 2 == 0 { full.stored.push(key) } else { to_delete.push(key) }
            }
            let deletes = to_delete.len();
            let mut refused = 0;
            while let Some(key) = to_delete.pop() {
                match full.bucket.delete(&key) {
                    Ok(true) => continue,
                    Err(Error::NoSpace) => to_delete.push(key),
                    other => panic!("{name}, turn {turn}: {other:?}"),
                }
                refused += 1;
                if is_tiny && refused == 5 {
                    full.stored.append(&mut to_delete);
                    break;
                }
                assert!(
                    refused % 20 != 0 || rescue(&full.disk),
                    "{name}, turn {turn}: {} are left",
                    to_delete.len()
                );
                let done = full.bucket.compact(kind);
                assert!(
                    matches!(done, Ok(_) | Err(Error::NoSpace)),
                    "{name}, turn {turn}: {done:?}"
                );
                eprintln!("{name}, turn {turn}: {} left, {done:?}", to_delete.len());
                full.check();
            }
            let done = full.bucket.compact(kind);
            eprintln!("{name}, turn {turn}: {deletes} deleted, {done:?}");
            full.check();
            // What was freed is worth something.
            let (mut added, mut is_refused) = (0, false);
            loop {
                let key = format!("turn {turn} key {added}").into_bytes();
                match full.bucket.put(&key, [7; 500]) {
                    Ok(()) => full.stored.push(key),
                    Err(Error::NoSpace)
                        if is_refused
                            && (is_tiny || added > deletes / 3 || !rescue(&full.disk)) =>
                    {
                        break;
                    }
                    Err(Error::NoSpace) => {
                        is_refused = true;
                        let done = full.bucket.compact(kind);
                        assert!(matches!(done, Ok(_) | Err(Error::NoSpace)), "{name}: {done:?}");
                        continue;
                    }
                    Err(error) => panic!("{name}, turn {turn}: {error:?}"),
                }
                is_refused = false;
                added += 1;
            }
            eprintln!("{name}, turn {turn}: {added} added, {before} before");
            // Whatever the power takes.
            if !background {
                let trace = full.disk.trace();
                for keep in [Keep::None, Keep::All] {
                    let image = trace.image(trace.len(), keep);
                    let disk = Arc::new(SimDisk::with_region(image, 64 << 20));
                    let bucket =
                        Bucket::open_on(disk, Arc::new(SystemEnv), options.clone()).unwrap();
                    check_stored(&bucket, &full.stored);
                    assert_eq!(bucket.scan(b"").count(), full.stored.len(), "{name}, {keep:?}");
                }
            }
            assert!(
                is_tiny || added > deletes / 3,
                "{name}, turn {turn}: room for {added}, {deletes} deleted"
            );
            full.check();
        }
        let full = full.kill(options);
        full.check();
        assert_eq!(full.bucket.scan(b"").count(), full.stored.len(), "{name}");
    });
}

#[test]
fn compaction_gives_room_back_on_a_full_disk() {
    for kind in [Compact::Auto, Compact::Full, Compact::LowSpace] {
        for overlay_min in [16, 300, 100_000] {
            for is_tiny in [false, true] {
                compaction_on_full_disk(kind, false, overlay_min, is_tiny);
            }
        }
    }
}

#[test]
fn compaction_gives_room_back_on_a_full_disk_with_background_threads() {
    for kind in [Compact::Auto, Compact::Full, Compact::LowSpace] {
        for overlay_min in [16, 100_000] {
            for is_tiny in [false, true] {
                compaction_on_full_disk(kind, true, overlay_min, is_tiny);
            }
        }
    }
}

/// An output was begun in any place that had blocks, and the round ended where one record was too long for it, although what is kept for
/// the next image or for the log would have done.
#[test]
fn compaction_moves_large_values_on_a_full_disk() {
    let seed = seed::seed("compaction_moves_large_values_on_a_full_disk");
    for limit in KINDS {
        for kind in [Compact::Auto, Compact::Full, Compact::LowSpace] {
            for round in 0..LARGE_ROUNDS {
                move_large_values(limit, kind, seed ^ round);
            }
        }
    }
}

const LARGE_ROUNDS: u64 = 6;

fn move_large_values(limit: Kind, kind: Compact, seed: u64) {
    let name = format!("{:?}, {kind:?}, seed {seed}", limit(0));
    let mut rng = Rng::with_seed(seed);
    let disk = SimDisk::with_region(Vec::new(), 64 << 20);
    let env = Arc::new(ManualEnv::new(1 << 60, 5));
    let options = options(Durability::SyncOnce).segment_bytes_max(512 << 10);
    let shared = || Arc::new(disk.reopen());
    let bucket = Bucket::create_on(shared(), env.clone(), options.clone()).unwrap();
    disk.set_limit(Some(limit(8 << 20)));
    let mut state = State::new();
    let mut number = 0_u32;
    let mut fill = |bucket: &Bucket, state: &mut State| {
        let mut added = 0;
        loop {
            number += 1;
            let value = vec![rng.u8(..); rng.usize(20 << 10..100 << 10)];
            match bucket.put(key(number), &value) {
                Ok(()) => {
                    added += value.len();
                    state.insert(key(number), value);
                }
                Err(Error::NoSpace) => return added,
                Err(error) => panic!("{name}: {error:?}"),
            }
        }
    };
    assert!(fill(&bucket, &mut state) > 4 << 20);
    let (mut all_deleted, mut all_added) = (0, 0);
    // Everything at once takes blocks for copies before it finds that there are too few for all of them.
    let is_sure = kind != Compact::Full;
    for turn in 0..4 {
        let mut deleted = 0;
        for (at, key) in state.keys().cloned().collect::<Vec<_>>().into_iter().enumerate() {
            if at % 2 == 0 {
                deleted += state[&key].len();
                assert!(bucket.delete(&key).unwrap(), "{name}, turn {turn}");
                state.remove(&key);
            }
        }
        let mut added = 0;
        for _ in 0..2 {
            let done = bucket.compact(kind);
            assert!(matches!(done, Ok(_) | Err(Error::NoSpace)), "{name}, turn {turn}: {done:?}");
            added += fill(&bucket, &mut state);
        }
        assert!(!is_sure || added > 0, "{name}, turn {turn}: {deleted} deleted");
        assert!(scan_of(&bucket) == state, "{name}, turn {turn}");
        (all_deleted, all_added) = (all_deleted + deleted, all_added + added);
    }
    // Now and then what is free is in pieces shorter than the next value.
    assert!(
        !is_sure || all_added > all_deleted / 2,
        "{name}: {all_deleted} deleted, {all_added} added"
    );
    bucket.close().unwrap();
    let bucket = Bucket::open_on(shared(), env, options).unwrap();
    assert!(scan_of(&bucket) == state, "{name}: opened again");
}

/// Room comes back while the bucket is open: the writer that was refused goes on by itself.
#[test]
fn room_comes_back() {
    for (kind, background) in KINDS.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        watch::within(Duration::from_secs(30), "room_comes_back", move || {
            let options = options(Durability::Sync).background(background);
            let mut full = Full::new(kind, options.clone());
            for capacity in [2 << 20, 3 << 20] {
                full.disk.set_limit(Some(kind(capacity)));
                let before = full.stored.len();
                let error = full.fill();
                assert!(matches!(error, Error::NoSpace), "{error:?}");
                assert!(
                    full.stored.len() > before + 100,
                    "only {} more",
                    full.stored.len() - before
                );
                full.check();
            }
            full.disk.set_capacity(None);
            full.bucket.put("big", vec![7; 4 << 20]).unwrap();
            full.bucket.close().unwrap();
            let bucket =
                Bucket::open_on(Arc::new(full.disk.reopen()), Arc::new(SystemEnv), options)
                    .unwrap();
            check_stored(&bucket, &full.stored);
            assert_eq!(bucket.get("big").unwrap().unwrap().len(), 4 << 20);
        });
    }
}

/// A batch larger than a segment is written piece by piece. If the disk is full before the last
/// piece, the pieces before it must not count, least of all as part of the next batch.
#[test]
fn the_disk_fills_in_the_middle_of_a_large_batch() {
    KINDS.into_iter().for_each(fill_in_the_middle);
}

fn fill_in_the_middle(kind: Kind) {
    let records = 60_u32;
    // Records of which a segment holds only one, so that most of every segment is wasted.
    let large = |value: u8| {
        let mut batch = Batch::new();
        (0..records).for_each(|index| {
            batch.put(index.to_le_bytes(), vec![value; 6300]);
        });
        batch
    };
    let mut refused = 0;
    let mut done = 0;
    // With something in the bucket, which then has room in reserve, and without.
    for (step, before) in (0..120).flat_map(|step| [(step, records), (step, 0)]) {
        let disk = SimDisk::with_region(Vec::new(), 16 << 20);
        let env = Arc::new(ManualEnv::new(1 << 60, 5));
        let options = options(Durability::SyncOnce).overlay_min(10_000);
        let bucket = Bucket::create_on(Arc::new(disk.reopen()), env, options.clone()).unwrap();
        for index in 0..before {
            bucket.put(index.to_le_bytes(), "old").unwrap();
        }
        limit(&disk, kind, step * (12 << 10));
        let is_done = match bucket.commit(large(7)) {
            Ok(()) => true,
            Err(Error::NoSpace) => false,
            Err(error) => panic!("step {step}: {error:?}"),
        };
        refused += u32::from(!is_done);
        done += u32::from(is_done);
        let count_new = |bucket: &Bucket| {
            let is_new = |index: &u32| {
                bucket.get(index.to_le_bytes()).unwrap().is_some_and(|value| value.len() == 6300)
            };
            (0..records).filter(is_new).count()
        };
        let expected = if is_done { usize::try_from(records).unwrap() } else { 0 };
        assert_eq!(
            count_new(&bucket),
            expected,
            "step {step}: seen after the commit returned, done: {is_done}"
        );
        // Whatever is said to have failed stays so, also when there is room for the next batch.
        disk.set_capacity(None);
        let next = bucket.put("next", "batch");
        assert!(matches!(next, Ok(()) | Err(Error::Stopped(_))), "step {step}: {next:?}");
        assert_eq!(count_new(&bucket), expected, "step {step}: seen after the next commit");
        let trace = disk.trace();
        for keep in [Keep::All, Keep::None] {
            let crashed = MemoryDisk::from_bytes(trace.image(trace.len(), keep));
            let reopened = Bucket::open_on(Arc::new(crashed), Arc::new(SystemEnv), options.clone());
            let reopened = reopened.unwrap_or_else(|error| panic!("step {step}: {error}"));
            assert_eq!(
                count_new(&reopened),
                expected,
                "step {step}, {keep:?}: found after a crash"
            );
            assert_eq!(reopened.exists("next").unwrap(), next.is_ok(), "step {step}");
        }
        // And the bucket still takes the same batch.
        if next.is_ok() {
            bucket.commit(large(8)).unwrap_or_else(|error| panic!("step {step}: {error}"));
            assert_eq!(count_new(&bucket), usize::try_from(records).unwrap());
        }
    }
    assert!(refused > 5 && done > 5, "{refused} refused, {done} done: the steps miss the edge");
}

/// Of the room that a batch larger than a segment was let in for, nothing else may take any: neither one of its pieces more than was
/// counted for it, nor segment tables, merges or compaction beside it.
fn large_batches_on_full_disk(background: bool) {
    let mut refused = 0;
    let mut done = 0;
    for (round, room) in (0..480_u64).map(|round| (round, round % 60)) {
        let kind = if round / 60 % 2 == 0 { Limit::Length } else { Limit::Blocks };
        let mut rng = Rng::with_seed(round / 60);
        let disk = SimDisk::with_region(Vec::new(), 16 << 20);
        let env = Arc::new(ManualEnv::new(1 << 60, 5));
        let options = options(Durability::SyncOnce).background(background);
        let bucket =
            Bucket::create_on(Arc::new(disk.reopen()), env.clone(), options.clone()).unwrap();
        let mut state = State::new();
        // Free extents between what is live, each of two segments' size.
        let gaps = rng.u32(3..8);
        let each = (KEYS - gaps) / gaps;
        for gap in 0..gaps {
            bucket.put(key(gap), vec![1; 26_000]).unwrap();
            for index in gaps + gap * each..gaps + (gap + 1) * each {
                let value = vec![rng.u8(..); 2500];
                bucket.put(key(index), &value).unwrap();
                state.insert(key(index), value);
            }
        }
        (0..gaps).for_each(|index| assert!(bucket.delete(key(index)).unwrap()));
        bucket.compact(Compact::Auto).unwrap();
        bucket.flush().unwrap();
        limit(&disk, kind, room * 4096);
        for number in 0..3 {
            let mut batch = Batch::new();
            let mut next = state.clone();
            for index in 0..rng.u32(10..30) {
                // Larger than a segment, or such that a segment holds only one.
                let value = vec![rng.u8(..); if index < gaps { 13_000 } else { 6300 }];
                batch.put(key(index), &value);
                next.insert(key(index), value);
            }
            match bucket.commit(batch) {
                Ok(()) => {
                    done += 1;
                    state = next;
                }
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("round {round}, batch {number}: {error:?}"),
            }
            assert!(state_of(&bucket) == state, "round {round}, batch {number}");
        }
        bucket.close().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let found = kvb::verify_on(
            Arc::new(disk.reopen()),
            Arc::<ManualEnv>::clone(&env),
            options.clone(),
            &mut |_| {},
        );
        assert!(found.unwrap().is_sound(), "round {round}");
        let bucket = Bucket::open_on(Arc::new(disk.reopen()), env, options).unwrap();
        assert!(state_of(&bucket) == state, "round {round}: opened again");
    }
    assert!(refused > 50 && done > 50, "{refused} refused, {done} done: the steps miss the edge");
}

#[test]
fn a_large_batch_finds_all_its_room_on_a_full_disk_or_none() {
    large_batches_on_full_disk(false);
}

#[test]
fn a_large_batch_finds_all_its_room_beside_background_threads() {
    watch::within(LIMIT, "a_large_batch_finds_all_its_room", || large_batches_on_full_disk(true));
}

/// A large record that has expired is copied once more if it hides an older one. On a full disk the copy may find less room
/// than it needs in one place, and must not go on behind that.
#[test]
fn a_large_record_that_expired_on_a_full_disk() {
    let mut refused = 0;
    let mut done = 0;
    for (room, large) in (0..48).flat_map(|room| [(room, 30_000), (room, 85_000)]) {
        let disk = SimDisk::with_region(Vec::new(), 16 << 20);
        let start = 1_u64 << 60;
        let env = Arc::new(ManualEnv::new(start, 5));
        let options = options(Durability::SyncOnce).overlay_min(10_000);
        let bucket =
            Bucket::create_on(Arc::new(disk.reopen()), env.clone(), options.clone()).unwrap();
        let mut state = State::new();
        for round in 0..3_u8 {
            for index in 0..40_u32 {
                bucket.put(key(index), vec![round; 300]).unwrap();
                state.insert(key(index), vec![round; 300]);
            }
            for index in 40..43_u32 {
                bucket.put(key(index), "old").unwrap();
            }
        }
        for index in 40..43_u32 {
            bucket.put_for(key(index), vec![9; large], Duration::from_secs(60)).unwrap();
        }
        bucket.flush().unwrap();
        env.set(start + 2 * 3600 * 1_000_000_000);
        limit(&disk, if room % 2 == 0 { Limit::Length } else { Limit::Blocks }, room * 4096);
        for kind in [Compact::Auto, Compact::LowSpace, Compact::Full] {
            match bucket.compact(kind) {
                Ok(_) => done += 1,
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{room}, {large}, {kind:?}: {error:?}"),
            }
            assert_eq!(state_of(&bucket), state, "{room}, {large}, {kind:?}");
        }
        bucket.close().unwrap();
        let found = kvb::verify_on(
            Arc::new(disk.reopen()),
            Arc::<ManualEnv>::clone(&env),
            options.clone(),
            &mut |_| {},
        );
        assert!(found.unwrap().is_sound(), "{room}, {large}");
        disk.set_capacity(None);
        let bucket = Bucket::open_on(Arc::new(disk.reopen()), env, options).unwrap();
        bucket.compact(Compact::Full).unwrap();
        assert_eq!(state_of(&bucket), state, "{room}, {large}: opened again");
    }
    assert!(refused > 5 && done > 5, "{refused} refused, {done} done: the steps miss the edge");
}

/// A disk that is full from the start gives no bucket, and no panic.
/// The page of the free-space map is a hole until something is written there, and nobody needs it.
#[test]
fn an_empty_bucket_is_closed_on_a_full_disk() {
    for kind in KINDS {
        let disk = new_disk();
        let shared = || Arc::new(disk.reopen());
        let options = || options(Durability::Sync);
        let bucket = Bucket::create_on(shared(), Arc::new(SystemEnv), options()).unwrap();
        limit(&disk, kind, 0);
        bucket.close().unwrap();
        Bucket::open_on(shared(), Arc::new(SystemEnv), options()).unwrap().close().unwrap();
    }
}

#[test]
fn no_room_for_a_bucket() {
    for capacity in (0..=128).map(|sectors| sectors * 512) {
        let disk = new_disk();
        disk.set_capacity(Some(capacity));
        let env = Arc::new(ManualEnv::new(1 << 60, 5));
        let result = Bucket::create_on(Arc::new(disk.reopen()), env, options(Durability::Sync));
        match result {
            Ok(bucket) => {
                let put = bucket.put("key", "value");
                assert!(matches!(put, Ok(()) | Err(Error::NoSpace)), "{capacity}: {put:?}");
            }
            Err(error) => assert!(matches!(error, Error::NoSpace), "{capacity}: {error:?}"),
        }
    }
}
