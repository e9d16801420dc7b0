//! The first seeds of every system; with `KVB_SIM_SECONDS` fresh ones for so long, beginning with `KVB_SEED` if it is set.

#![allow(clippy::panic, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::time::{Duration, Instant};

use sim::{Tally, find};

/// Seeds of every system that are run if nothing else is asked for.
const SEEDS: u64 = 100;

fn run(name: &str, needed: &[&str]) {
    let seconds = std::env::var("KVB_SIM_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(0));
    let first = if seconds.is_some() { seed::seed(name) } else { 0 };
    let Some(system) = find(name) else { panic!("no system {name}") };
    let (begin, mut count, mut tally) = (Instant::now(), 0, Tally::default());
    while begin.elapsed() < time || count < SEEDS {
        let seed = first.wrapping_add(count);
        match system.run_seed(seed) {
            Ok(found) => tally.add(&found),
            Err(failure) => {
                panic!(
                    "{failure}; `cargo run -p kvb-sim -- replay {name} {seed:#x}` shows the shortest history"
                )
            }
        }
        count += 1;
    }
    eprintln!("{name}: {count} seeds: {tally}");
    for what in needed {
        assert!(tally.of(what) > 0, "no {what}: {tally}");
    }
}

/// What must have happened to every system.
const EVERYWHERE: [&str; 11] = [
    "calls that failed",
    "calls that found no room",
    "flipped bits",
    "full disks",
    "jumps of the clock",
    "kills",
    "power losses",
    "reads that failed",
    "recoveries cut off",
    "second openers",
    "syncs that failed",
];

fn run_ledger(name: &str, more: &[&str]) {
    let own =
        ["deeds that failed", "deeds that were done after all", "flipped bits that were told"];
    run(name, &[&own[..], &EVERYWHERE, more].concat());
}

#[test]
fn buckets() {
    let own = [
        "backups",
        "commits that failed",
        "commits without room",
        "compactions",
        "snapshots",
        "verifications",
    ];
    run("bucket", &[&own[..], &EVERYWHERE].concat());
}

#[test]
fn chains_of_rubin() {
    run_ledger("rubin", &["calls of files that failed"]);
}

#[test]
fn sets_with_trees() {
    run_ledger("csmt", &[]);
}

#[test]
fn stores_of_misaka() {
    run_ledger("misaka", &[]);
}

#[test]
fn indexes_of_misaka() {
    run_ledger("indexer", &[]);
}
