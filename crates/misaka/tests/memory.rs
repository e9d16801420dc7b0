//! The memory that storage takes, measured at the worst block that the limits allow: with v1, when v2 begins, and in between.
//!
//! One test, so that nothing else is in the process.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![cfg(target_os = "linux")]

#[path = "support/chain.rs"]
mod chain;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ledger::EngineKind;
use misaka::format::checkpoint::tx_root;
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Database, Effort, Event, Hash, MEMORY_MAX, Settings, Store};

/// What the limits of the specification allow in a block.
const WRITES: u64 = 64_000;
const EVENTS: u32 = 256_000;
/// Objects that are there before.
const OBJECTS: u64 = 128_000;

/// Bytes of memory of this process that are not of files.
fn anonymous() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
}

/// The most that there was at any time of some work.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let (most, is_done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                most.fetch_max(anonymous(), Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let result = work();
        is_done.store(true, Ordering::SeqCst);
        most.fetch_max(anonymous(), Ordering::SeqCst);
        (result, most.load(Ordering::SeqCst))
    })
}

/// A checkpoint that writes the objects with these numbers, in a version.
fn checkpoint(
    store: &Store,
    numbers: std::ops::Range<u64>,
    version: u64,
    events: u32,
) -> Checkpoint {
    let tip = store.view().unwrap().tip().unwrap();
    let mut header = chain::header(tip.as_ref().map_or(1, |tip| tip.header.seq + 1));
    header.prev_digest = tip.map_or(Hash::ZERO, |tip| tip.digest);
    header.tx_root = tx_root(&[]);
    let write = |number: u64| {
        let object = Object {
            id: Hash::of(&[&number.to_le_bytes()]),
            version,
            owner: Owner::Address([7; 32]),
            type_tag: "0x2::coin::Coin<SUI>",
            payload: &version.to_le_bytes(),
            is_tombstone: false,
        };
        object.encode()
    };
    let event = |number: u32| Event { tx: number / 128, number: number % 128, bytes: vec![1; 64] };
    let mut checkpoint = Checkpoint {
        header,
        tx_digests: Vec::new(),
        writes: numbers.map(write).collect(),
        params: match version {
            3 => vec![("state_root_version".to_owned(), vec![2, 0])],
            _ => Vec::new(),
        },
        events: (0..events).map(event).collect(),
    };
    checkpoint.header.state_root = store.root_after(&checkpoint).unwrap();
    checkpoint
}

#[test]
fn storage_stays_within_its_budget_at_the_worst_block() {
    let before = anonymous();
    {
        let memory = MEMORY_MAX;
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { v2_at: Some(5), ..Settings::default() };
        let effort = Effort { memory, ..Effort::default() };
        let database = Database::new(dir.path().join("db"));
        let store = database.init(EngineKind::Kvb, settings, effort).unwrap();
        let (_, filling) = peak(|| {
            for part in 0..OBJECTS / WRITES {
                let numbers = part * WRITES..(part + 1) * WRITES;
                store.apply(&checkpoint(&store, numbers, 1, 0)).unwrap();
            }
        });
        // v1, then what brings v2, each as large as a block can be.
        let worst = |version| {
            store.apply(&checkpoint(&store, 0..WRITES, version, EVENTS)).unwrap();
        };
        let (_, v1) = peak(|| worst(2));
        let (_, calm) = peak(|| store.apply(&checkpoint(&store, WRITES..WRITES + 1, 2, 0)));
        let (_, v2) = peak(|| worst(3));
        let (_, rest) = peak(|| {
            store.verify(&|_, _, _| {}).unwrap();
        });
        for (name, peak) in
            [("filling", filling), ("v1", v1), ("between", calm), ("v2", v2), ("verify", rest)]
        {
            let taken = peak.saturating_sub(before);
            eprintln!("budget {} MiB, {name}: {} MiB", memory >> 20, taken >> 20);
            assert!(taken <= memory, "{name}: {taken} bytes of {memory}");
        }
    }
}
