//! Extents that are kept ready for the log grow with it, whatever happens meanwhile.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/seed.rs"]
mod seed;

use std::sync::Arc;

use fastrand::Rng;
use host::{Dir, Fault, ManualEnv, MemoryDisk, SimDir, SimDisk};
use kvb::{Batch, Bucket, Durability, Options};

/// Keys of a commit, and bytes of a value: far more than a bucket without anything keeps extents for.
const KEYS: usize = 30;
const LEN: usize = 3000;
/// Commits after which the log has outgrown its first extents.
const COMMITS: usize = 18;

fn options() -> Options {
    Options::default().background(false).durability(Durability::SyncOnce)
}

fn batch(commit: usize) -> Batch {
    let mut batch = Batch::new();
    for number in 0..KEYS {
        batch.put(
            format!("{commit:04} {number:02}"),
            vec![u8::try_from(commit % 251).unwrap(); LEN],
        );
    }
    batch
}

/// How many commits are there, all of them whole.
fn count(bucket: &Bucket) -> usize {
    let mut commits = 0;
    while let Some(first) = bucket.get(format!("{commits:04} 00")).unwrap() {
        assert_eq!(*first, vec![u8::try_from(commits % 251).unwrap(); LEN]);
        for number in 1..KEYS {
            let value = bucket.get(format!("{commits:04} {number:02}")).unwrap();
            assert!(value.is_some_and(|value| *value == *first), "commit {commits} is not whole");
        }
        commits += 1;
    }
    assert_eq!(bucket.scan(b"").count(), commits * KEYS);
    commits
}

#[test]
fn batches_do_not_take_an_extent_each() {
    for background in [false, true] {
        let options = options().background(background);
        let disk = Arc::new(MemoryDisk::with_capacity(1 << 30));
        let bucket = Bucket::create_on(disk, Arc::new(ManualEnv::new(1, 1)), options).unwrap();
        for commit in 0..400 {
            bucket.commit(batch(commit)).unwrap();
        }
        let segments = bucket.stats().unwrap().segments;
        assert!(segments < 150, "{segments} segments for 400 commits");
        assert_eq!(count(&bucket), 400);
    }
}

/// Commits until power fails. Gives how many were told to be done.
fn live(dir: &SimDir) -> usize {
    let Ok(disk) = dir.create("b") else { return 0 };
    let env = Arc::new(ManualEnv::new(1, 1));
    let Ok(bucket) = Bucket::create_on(disk, env, options()) else { return 0 };
    (0..COMMITS).take_while(|commit| bucket.commit(batch(*commit)).is_ok()).count()
}

#[test]
fn power_loss_while_extents_give_way_loses_nothing() {
    let mut rng = Rng::with_seed(seed::seed("power_loss_while_extents_give_way_loses_nothing"));
    let dir = SimDir::new();
    assert_eq!(live(&dir), COMMITS);
    let steps = dir.step_count();
    // The first commits are what other tests are about.
    for step in steps / 2..steps {
        let dir = SimDir::new();
        dir.power_off_at(step);
        let done = live(&dir);
        let found = dir.after_power_loss(rng.u64(..));
        let env = Arc::new(ManualEnv::new(1, 1));
        let bucket = Bucket::open_on(found.open("b").unwrap(), env, options())
            .unwrap_or_else(|error| panic!("step {step}: {error}"));
        let there = count(&bucket);
        assert!(there == done || there == done + 1, "step {step}: {there} after {done}");
        for commit in there..COMMITS {
            bucket.commit(batch(commit)).unwrap();
        }
        assert_eq!(count(&bucket), COMMITS, "step {step}");
    }
}

/// Commits until one fails, opens the bucket again, and commits the rest.
#[test]
fn a_call_that_fails_while_extents_give_way_loses_nothing() {
    let env = || Arc::new(ManualEnv::new(1, 1));
    let run = |disk: &SimDisk| {
        let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options()).ok()?;
        let done = (0..COMMITS).take_while(|commit| bucket.commit(batch(*commit)).is_ok()).count();
        assert!(count(&bucket) >= done);
        Some(done)
    };
    let calm = SimDisk::new();
    assert_eq!(run(&calm), Some(COMMITS));
    let calls = calm.op_count();
    for call in calls / 2..calls {
        for fault in [Fault::Eio, Fault::Enospc] {
            let disk = SimDisk::new();
            disk.fail(call, fault);
            let done = run(&disk).unwrap();
            disk.clear_faults();
            let bucket = Bucket::open_on(Arc::new(disk.reopen()), env(), options()).unwrap();
            let there = count(&bucket);
            assert!(there == done || there == done + 1, "call {call}: {there} after {done}");
            for commit in there..COMMITS {
                bucket.commit(batch(commit)).unwrap();
            }
            assert_eq!(count(&bucket), COMMITS, "call {call}");
        }
    }
}
