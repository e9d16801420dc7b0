//! A writer dies and leaves what it wrote unsynced; the next one recovers from what it sees, and power fails.
//!
//! What a process sees after another died need not be on disk. A history runs once for each of its calls to the disk, which
//! fails together with all that follow: nothing of it is done, or half of a write, or a sync fails and the system takes the
//! bytes for clean. The next writer opens the file while power lasts, and everything it does is recorded. For every
//! operation of that recovery, images that power loss may leave there must open and hold every commit that was acknowledged
//! as durable, the one under way whole or not at all, and what the recovery showed if it ended.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "it counts the images it checked")]

use std::collections::BTreeMap;
use std::sync::Arc;

use host::{Fault, Keep, ManualEnv, Point, SimDisk};
use kvb::{Batch, Bucket, Compact, Durability, Error, Options};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const COMMITS: u32 = 14;
const KEYS: u32 = 24;

fn options() -> Options {
    Options::default()
        .durability(Durability::SyncOnce)
        .background(false)
        .overlay_min(16)
        .segment_bytes_max(16 << 10)
}

fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(1 << 60, 7))
}

/// The states after each commit that may be found, and which of them is the last durable one.
struct Lived {
    states: Vec<State>,
    durable: usize,
}

/// Commits, checkpoints, a compaction, growth and a reopening, until a call fails.
fn live(disk: &SimDisk) -> (Lived, Result<(), Error>) {
    let mut lived = Lived { states: vec![State::new()], durable: 0 };
    let end = try_live(disk, &mut lived);
    (lived, end)
}

fn try_live(disk: &SimDisk, lived: &mut Lived) -> Result<(), Error> {
    let mut random = fastrand::Rng::with_seed(11);
    let mut bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options())?;
    for number in 0..COMMITS {
        let mut next = lived.states.last().unwrap().clone();
        let mut batch = Batch::new();
        for _ in 0..random.u32(1..6) {
            let key = random.u32(..KEYS).to_be_bytes();
            if random.u8(..4) == 0 {
                batch.delete(key);
                next.remove(key.as_slice());
            } else {
                let value = vec![random.u8(..); random.usize(100..1500)];
                batch.put(key, &value);
                next.insert(key.to_vec(), value);
            }
        }
        lived.states.push(next);
        bucket.commit(batch)?;
        lived.durable = lived.states.len() - 1;
        match number {
            3 | 10 => bucket.flush()?,
            5 => {
                bucket.compact(Compact::Full)?;
            }
            8 => {
                bucket.close()?;
                bucket = Bucket::open_on(Arc::new(disk.reopen()), env(), options())?;
            }
            _ => {}
        }
    }
    bucket.close()
}

fn state_of(bucket: &Bucket) -> State {
    let rows = bucket.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

/// Opens what power loss left; `wanted` are the states that may be there.
fn check(point: &Point, keep: Keep, wanted: &[State], what: &str) {
    let disk = SimDisk::from_image(point.image(keep));
    let what = || format!("{what}, recovery cut after operation {} {keep:?}", point.upto());
    let bucket = Bucket::open_on(Arc::new(disk.reopen()), env(), options());
    let bucket = bucket.unwrap_or_else(|error| panic!("{}: {error}", what()));
    let found = state_of(&bucket);
    assert!(wanted.contains(&found), "{}: {} rows of no commit", what(), found.len());
    bucket.put(b"later", b"1").unwrap_or_else(|error| panic!("{}: {error}", what()));
    drop(bucket);
    let report = kvb::verify_on(Arc::new(disk.reopen()), env(), options(), &mut |_| {}).unwrap();
    assert!(report.is_sound(), "{}: {:?}", what(), report.findings);
}

#[test]
fn power_loss_while_recovering_from_a_death() {
    let whole = SimDisk::new();
    let (_, end) = live(&whole);
    end.unwrap();
    let calls = whole.op_count();
    let created = {
        let disk = SimDisk::new();
        drop(Bucket::create_on(Arc::new(disk.reopen()), env(), options()).unwrap());
        disk.op_count()
    };
    let mut images = 0_u64;
    for call in created..calls {
        for fault in [Fault::Eio, Fault::ShortWrite, Fault::SyncFailsThenLies] {
            let what = format!("{fault:?} from call {call} on");
            let disk = SimDisk::new();
            disk.fail_from(call + 1, Fault::Eio);
            disk.fail(call, fault);
            let (lived, end) = live(&disk);
            assert!(end.is_err(), "{what}: nobody noticed");
            let next = disk.after_death();
            let before = next.trace().len();
            let bucket = Bucket::open_on(Arc::new(next.reopen()), env(), options());
            let bucket = bucket.unwrap_or_else(|error| panic!("{what}: {error}"));
            let seen = state_of(&bucket);
            let wanted = &lived.states[lived.durable..];
            assert!(wanted.contains(&seen), "{what}: rows of no commit");
            let opened = next.trace().len();
            next.power_off();
            drop(bucket);
            let trace = next.trace();
            let mut points = trace.points();
            while let Some(point) = points.advance() {
                if point.upto() < before {
                    continue;
                }
                let is_open = point.upto() >= opened;
                let wanted = if is_open { std::slice::from_ref(&seen) } else { wanted };
                let seed = u64::try_from(point.upto()).unwrap() ^ call << 32;
                for keep in [Keep::None, Keep::All, Keep::Random(seed), Keep::Random(!seed)] {
                    check(point, keep, wanted, &what);
                    images += 1;
                }
            }
        }
    }
    println!("{images} images of recoveries from {} deaths", (calls - created) * 3);
    assert!(images > 5000, "only {images} images");
}
