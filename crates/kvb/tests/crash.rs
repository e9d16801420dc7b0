//! Power loss at every disk operation, several images each, and again during the recovery from it.
//!
//! A history runs once on a simulated disk that records every operation. For every prefix of the record, images
//! are made that a disk may legally show after power loss there; each is mounted and must hold exactly the state
//! after some commit that is not older than the last one acknowledged as durable and not newer than the last one
//! begun. Then it must take another commit and open again. For some images the recovery itself is recorded and cut
//! at every operation; the state found must be the same again.
//!
//! Every image must also be walkable by its headers before anything is repaired, and after the recovery a reader that
//! knows only superblocks, segments and records must see the same state.
//!
//! `KVB_CRASH_SEED=n` runs with other random choices, `KVB_CRASH_IMAGES=n` with n random images a point.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "it counts the images it checked")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use host::{Disk, Keep, ManualEnv, Op, SimDisk, Trace};
use kvb::{Batch, Bucket, Durability, HashKind, Options};

const START_NS: u64 = 1_700_000_000_000_000_000;
const KEYS: u64 = 70;
const COUNTER: &[u8] = b"commit number";

#[path = "support/seed_reader.rs"]
mod seed_reader;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// One kind of history.
#[derive(Clone)]
struct Plan {
    name: &'static str,
    commits: u64,
    options: Options,
    /// Durability of the n-th commit.
    durability: fn(u64) -> Durability,
    /// Operations in the n-th batch.
    batch: fn(u64) -> u64,
    /// Length of a value.
    value: fn(u64) -> usize,
    /// What happens after the n-th commit.
    after: fn(u64) -> After,
    /// Look at one point in so many.
    stride: usize,
    /// Cut the recovery of one image in so many.
    recovery_stride: usize,
    /// Random images for every cut of a recovery.
    recovery_images: u64,
}

#[derive(PartialEq)]
enum After {
    Nothing,
    Flush,
    Reopen,
}

/// A history that ran: its record, and the state after each commit.
struct History {
    trace: Trace,
    states: Vec<State>,
    /// Per number of operations: commits acknowledged durable, and commits begun.
    bounds: Vec<(u64, u64)>,
}

fn key(n: u64) -> Vec<u8> {
    // Some keys share one XXH3 hash, two hash to the index's sentinels.
    match n % 10 {
        0 => {
            let mut key = vec![0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];
            key.extend_from_slice(&n.to_le_bytes());
            key.extend_from_slice(&[7; 16]);
            key
        }
        1 if n == 1 => hex("46c6bd15848c7d973a5296093bbc56af"),
        1 if n == 11 => hex("b1e3cc0e6658ae493a5296093bbc56af"),
        2 if n == 2 => Vec::new(),
        _ => format!("key {n}").into_bytes(),
    }
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn env(seed: u64) -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(START_NS, seed))
}

/// Acknowledged and begun commits are noted in the record as even and odd marks.
fn run(plan: &Plan, seed: u64) -> History {
    let disk = SimDisk::new();
    let env = env(seed);
    let mut random = fastrand::Rng::with_seed(seed);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut bucket = Bucket::create_on(shared, env.clone(), plan.options.clone()).unwrap();
    disk.mark(0);
    let mut states = vec![State::new()];
    for number in 1..=plan.commits {
        env.advance(1_000_000);
        let mut state = states.last().unwrap().clone();
        let mut batch = Batch::new();
        for _ in 0..(plan.batch)(number) {
            let key = key(random.u64(0..KEYS));
            if random.u8(0..4) == 0 {
                batch.delete(&key);
                state.remove(&key);
            } else {
                let value = vec![random.u8(..); (plan.value)(number)];
                batch.put_for(&key, &value, Duration::from_secs(1 << 20));
                state.insert(key, value);
            }
        }
        batch.put(COUNTER, number.to_le_bytes());
        state.insert(COUNTER.to_vec(), number.to_le_bytes().to_vec());
        states.push(state);
        let durability = (plan.durability)(number);
        disk.mark(number * 2 + 1);
        bucket.commit_with(batch, durability).unwrap();
        if durability != Durability::Relaxed {
            disk.mark(number * 2);
        }
        match (plan.after)(number) {
            After::Nothing => {}
            After::Flush => {
                bucket.flush().unwrap();
                disk.mark(number * 2);
            }
            After::Reopen => {
                bucket.close().unwrap();
                disk.mark(number * 2);
                let shared: Arc<dyn Disk> = Arc::new(disk.reopen());
                bucket = Bucket::open_on(shared, env.clone(), plan.options.clone()).unwrap();
            }
        }
    }
    bucket.close().unwrap();
    disk.mark(plan.commits * 2);
    let trace = disk.trace();
    let (mut acknowledged, mut begun) = (0, 0);
    let mut bounds = vec![(0, 0)];
    for op in trace.ops() {
        if let Op::Mark(mark) = op {
            if mark % 2 == 0 { acknowledged = mark / 2 } else { begun = mark / 2 }
        }
        bounds.push((acknowledged, begun));
    }
    History { trace, states, bounds }
}

/// Mounts an image and checks its state; gives the commit it holds and the record of the recovery.
fn check(
    plan: &Plan,
    image: Vec<u8>,
    states: &[State],
    (least, most): (u64, u64),
    context: &str,
) -> (u64, Trace) {
    // The headers must lead through the file in any state a crash can leave.
    seed_reader::read(&image);
    let disk = SimDisk::from_image(image);
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let env = env(99);
    env.advance(1 << 40);
    let bucket = Bucket::open_on(shared, env, plan.options.clone())
        .unwrap_or_else(|error| panic!("{context}: cannot open: {error}"));
    let recovery = disk.trace();
    let report = bucket.mount_report();
    // Power loss costs a walk of the tail, never the index or a table.
    assert!(
        !report.index_rebuilt && !report.table_rebuilt && report.runs_rebuilt == 0,
        "{context}: {report:?}"
    );
    let found = verify(&bucket, states, context);
    assert!(least <= found, "{context}: commit {least} was durable, found only {found}");
    assert!(found <= most, "{context}: commit {found} was never begun (last: {most})");
    let seen = seed_reader::read(&disk.to_bytes()).live;
    assert!(seen == states[usize::try_from(found).unwrap()], "{context}: read by the seed alone");
    bucket.put(b"written after recovery", b"yes").unwrap();
    let shown = bucket.mount_report().clone();
    drop(bucket);
    let again: Arc<dyn Disk> = Arc::new(disk.reopen());
    let bucket = Bucket::open_on(again, self::env(100), plan.options.clone()).unwrap();
    assert_eq!(
        verify(&bucket, states, context),
        found,
        "{context}: changed by reopening; {shown:?}"
    );
    let value = bucket.get(b"written after recovery").unwrap();
    assert_eq!(value.as_deref(), Some(&b"yes"[..]), "{context}");
    // Also what was cut must stay away when seqnos have gone past it.
    let mut seen = seed_reader::read(&disk.to_bytes()).live;
    assert!(seen.remove(&b"written after recovery"[..]).is_some(), "{context}");
    assert!(seen == states[usize::try_from(found).unwrap()], "{context}: later, by the seed alone");
    (found, recovery)
}

/// The number of the commit whose state the bucket holds exactly.
fn verify(bucket: &Bucket, states: &[State], context: &str) -> u64 {
    let counter = bucket.get(COUNTER).unwrap();
    let found = counter.map_or(0, |value| u64::from_le_bytes(value[..].try_into().unwrap()));
    let state = &states[usize::try_from(found).unwrap()];
    for number in 0..KEYS {
        let key = key(number);
        let value = bucket.get(&key).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(
            value.as_deref().map(<[u8]>::len),
            state.get(&key).map(Vec::len),
            "{context}: key {number} after commit {found}"
        );
        assert!(value.as_deref() == state.get(&key).map(Vec::as_slice), "{context}: key {number}");
    }
    found
}

fn sweep(plan: &Plan, seed: u64, random_images: u64, images: &AtomicUsize) {
    let history = run(plan, seed);
    let last = history.bounds.len() - 1;
    let mut points = history.trace.points();
    let mut count = 0_usize;
    while let Some(point) = points.advance() {
        let upto = point.upto();
        let created = history.bounds[..=upto].len() > 1
            && history.trace.ops()[..upto].iter().any(|op| matches!(op, Op::Mark(0)));
        if !created || (upto % plan.stride != 0 && upto != last) {
            continue;
        }
        let pending = point.pending();
        let mut keeps = vec![Keep::All];
        if pending > 0 {
            keeps.push(Keep::None);
            keeps.push(Keep::OnlyLast);
            keeps.push(Keep::DropOne(usize::try_from(seed).unwrap().wrapping_add(upto) % pending));
            keeps.push(Keep::Prefix(upto % pending));
            let base = seed.wrapping_mul(1000).wrapping_add(u64::try_from(upto).unwrap() * 16);
            keeps.extend((0..random_images).map(|n| Keep::Random(base + n)));
        }
        for keep in keeps {
            let context = format!("{} seed {seed} operation {upto}/{last} {keep:?}", plan.name);
            let bounds = history.bounds[upto];
            let (found, recovery) =
                check(plan, point.image(keep), &history.states, bounds, &context);
            count += 1;
            if count.is_multiple_of(plan.recovery_stride) || plan.recovery_stride == 1 {
                count += cut_recovery(plan, &recovery, &history.states, found, &context);
            }
        }
    }
    println!("{}: {count} images of {last} operations", plan.name);
    images.fetch_add(count, Ordering::Relaxed);
}

/// Cuts a recovery at every operation; whatever it had done, the state must be the same.
fn cut_recovery(
    plan: &Plan,
    recovery: &Trace,
    states: &[State],
    found: u64,
    context: &str,
) -> usize {
    let mut points = recovery.points();
    let mut count = 0;
    while let Some(point) = points.advance() {
        let base = u64::try_from(point.upto()).unwrap() * 16;
        let random = (0..plan.recovery_images).map(|n| Keep::Random(base + n));
        for keep in [Keep::None, Keep::All].into_iter().chain(random) {
            let context = format!("{context}; recovery cut at {} {keep:?}", point.upto());
            check(plan, point.image(keep), states, (found, found), &context);
            count += 1;
        }
    }
    count
}

fn small() -> Options {
    Options::default().background(false).overlay_min(48).segment_bytes_max(16 << 10)
}

fn plans() -> Vec<Plan> {
    let plan = Plan {
        name: "sync",
        commits: 60,
        options: small(),
        durability: |_| Durability::Sync,
        batch: |n| n % 5,
        value: |n| usize::try_from(n * 37 % 900).unwrap(),
        after: |_| After::Nothing,
        stride: 1,
        recovery_stride: 40,
        recovery_images: 1,
    };
    vec![
        Plan {
            name: "sync once",
            durability: |_| Durability::SyncOnce,
            commits: 90,
            ..plan.clone()
        },
        Plan {
            name: "relaxed",
            durability: |n| {
                if n % 7 == 0 { Durability::SyncOnce } else { Durability::Relaxed }
            },
            commits: 120,
            ..plan.clone()
        },
        Plan {
            name: "all relaxed",
            durability: |_| Durability::Relaxed,
            batch: |n| 4 + n % 12,
            commits: 60,
            ..plan.clone()
        },
        Plan {
            name: "flush and reopen",
            commits: 40,
            after: |n| match n % 6 {
                2 => After::Flush,
                5 => After::Reopen,
                _ => After::Nothing,
            },
            ..plan.clone()
        },
        Plan {
            name: "batches larger than a segment",
            commits: 12,
            durability: |n| {
                if n % 3 == 0 { Durability::Relaxed } else { Durability::SyncOnce }
            },
            batch: |n| if n % 2 == 0 { 60 } else { 3 },
            value: |n| if n % 2 == 0 { 1000 } else { 100 },
            ..plan.clone()
        },
        Plan {
            name: "values larger than a segment",
            commits: 12,
            durability: |n| {
                if n % 4 == 0 { Durability::Relaxed } else { Durability::SyncOnce }
            },
            batch: |_| 2,
            value: |n| if n % 3 == 0 { 40_000 } else { 100 },
            ..plan.clone()
        },
        Plan {
            name: "many segments",
            commits: 130,
            durability: |n| {
                if n % 16 == 0 { Durability::SyncOnce } else { Durability::Relaxed }
            },
            batch: |_| 4,
            value: |_| 3000,
            stride: 2,
            recovery_stride: 500,
            ..plan.clone()
        },
        Plan {
            name: "a batch of many pieces",
            commits: 3,
            durability: |_| Durability::SyncOnce,
            batch: |n| if n == 2 { 330 } else { 2 },
            value: |n| if n == 2 { 3000 } else { 100 },
            stride: 7,
            recovery_stride: 400,
            ..plan.clone()
        },
        Plan {
            name: "every recovery",
            commits: 9,
            durability: |n| {
                if n % 2 == 0 { Durability::SyncOnce } else { Durability::Relaxed }
            },
            batch: |n| 2 + n,
            value: |_| 500,
            recovery_stride: 1,
            recovery_images: 4,
            ..plan.clone()
        },
        Plan {
            name: "keyed hash and large pages",
            commits: 30,
            options: small()
                .page_size(16 << 10)
                .segment_bytes_max(64 << 10)
                .hash(HashKind::SipHash),
            durability: |n| {
                if n % 2 == 0 { Durability::Sync } else { Durability::Relaxed }
            },
            ..plan.clone()
        },
        plan,
    ]
}

/// Power loss while a bucket is made leaves a bucket or something that is refused.
#[test]
fn power_loss_in_creation_leaves_an_empty_bucket_or_none() {
    let disk = SimDisk::new();
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    drop(Bucket::create_on(shared, env(1), small().index_bytes(8192)).unwrap());
    let trace = disk.trace();
    let mut points = trace.points();
    let (mut opened, mut refused) = (0, 0);
    while let Some(point) = points.advance() {
        for seed in 0..20 {
            let shared: Arc<dyn Disk> =
                Arc::new(SimDisk::from_image(point.image(Keep::Random(seed))));
            match Bucket::open_on(shared, env(2), small()) {
                Ok(bucket) => {
                    assert_eq!(bucket.stats().unwrap().keys, 0);
                    bucket.put(b"k", b"v").unwrap();
                    opened += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(opened > 0 && refused > 0);
}

/// A crash leaves all of a batch but its first sector; the next writer puts a batch of the same shape at the same place
/// and crashes with only its first sectors on disk. The two together must never look like one batch.
#[test]
fn records_left_by_an_earlier_crash_never_complete_a_later_batch() {
    let options = small();
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(1), options.clone()).unwrap();
    bucket.put(b"before", b"everything").unwrap();
    bucket.close().unwrap();

    let batch = |fill: u8| {
        let mut batch = Batch::new();
        for record in 0..6_u8 {
            // Behind the segment header, every record ends with a sector.
            let len = if record == 0 { 512 - 52 } else { 512 };
            batch.put([record], vec![fill; len - 48 - 1]);
        }
        batch
    };
    // Mounts an image, commits a batch, and gives the bytes before it and with its segment header and records.
    let write = |image: Vec<u8>, fill: u8| {
        let disk = SimDisk::from_image(image);
        let bucket = Bucket::open_on(Arc::new(disk.clone()), env(2), options.clone()).unwrap();
        let before = disk.to_bytes();
        let from = disk.trace().len();
        bucket.commit_with(batch(fill), Durability::Relaxed).unwrap();
        let mut after = before.clone();
        for op in &disk.trace().ops()[from..] {
            if let Op::Write { offset, data } = op
                && matches!(data.len(), 52 | 3020)
            {
                let at = usize::try_from(*offset).unwrap();
                after[at..at + data.len()].copy_from_slice(data);
            }
        }
        (before, after)
    };
    let changed = |before: &[u8], after: &[u8]| -> Vec<usize> {
        (0..before.len() / 512)
            .filter(|n| before[n * 512..][..512] != after[n * 512..][..512])
            .collect()
    };
    let keep = |before: &[u8], after: &[u8], sectors: &[usize]| {
        let mut image = before.to_vec();
        for n in sectors {
            image[n * 512..][..512].copy_from_slice(&after[n * 512..][..512]);
        }
        image
    };
    let (before, after) = write(disk.to_bytes(), 1);
    let first = changed(&before, &after);
    let image = keep(&before, &after, &first[1..]);
    let (before, after) = write(image, 2);
    let second = changed(&before, &after);
    assert_eq!(first[0], second[0], "the batch went to the same place again");
    for kept in 0..=second.len() {
        let image = keep(&before, &after, &second[..kept]);
        let shared: Arc<dyn Disk> = Arc::new(SimDisk::from_image(image));
        let bucket = Bucket::open_on(shared, env(3), options.clone()).unwrap();
        let values: Vec<Option<u8>> =
            (0..6_u8).map(|record| Some(bucket.get([record]).unwrap()?[0])).collect();
        let is_whole = values.iter().all(|value| *value == Some(2));
        let is_absent = values.iter().all(Option::is_none);
        assert!(is_whole || is_absent, "{kept} sectors kept: {values:?}");
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn power_loss_at_every_operation_keeps_every_durable_commit() {
    let seed = from_env("KVB_CRASH_SEED", 1);
    let random_images = from_env("KVB_CRASH_IMAGES", 3);
    let images = AtomicUsize::new(0);
    let next = AtomicU64::new(0);
    let plans = plans();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(plan) =
                    plans.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap())
                {
                    sweep(plan, seed, random_images, &images);
                }
            });
        }
    });
    let total = images.into_inner();
    println!("crash images checked: {total} (seed {seed})");
    assert!(total >= 20_000, "only {total} images");
}
