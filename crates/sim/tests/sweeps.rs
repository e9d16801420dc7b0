//! One harm at every place: each call of the disk fails, once or with all that follow it; power fails, and again at each step of the
//! recovery from that. Of every ledger on a bucket; `kvb/tests/faults.rs` and `crash.rs` do more with buckets alone.

#![allow(
    clippy::panic,
    clippy::print_stderr,
    reason = "tests say what they did and fail by panicking"
)]

#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use host::Fault;
use sim::{Harm, Tally, Trial, find};

/// Histories of each ledger.
const SEEDS: u64 = 2;
/// So many calls in a row that change nothing are behind the last one of a history.
const QUIET: u64 = 60;
/// Steps between two first losses of power.
const STRIDE: usize = 9;
const FAULTS: [Fault; 4] = [Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::SyncFailsThenLies];

fn run(system: &dyn Trial, seed: u64, harm: Harm) -> Tally {
    match system.run_harmed(seed, harm) {
        Ok(tally) => tally,
        Err(failure) => panic!("{} {seed:#x}, {harm:?}: {failure}", system.name()),
    }
}

fn system(name: &str) -> &'static dyn Trial {
    find(name).unwrap_or_else(|| panic!("no system {name}"))
}

/// Lets every call of a history fail in every way, and tells how many did.
fn fail_every_call(name: &str) {
    let (system, first) = (system(name), seed::seed(name));
    let mut failed = 0_u64;
    let plans = FAULTS.into_iter().flat_map(|fault| [(fault, false), (fault, true)]);
    for seed in (0..SEEDS).map(|number| first.wrapping_add(number)) {
        for (fault, is_lasting) in plans.clone() {
            let (mut call, mut quiet) = (0, 0);
            while quiet < QUIET {
                let tally = run(system, seed, Harm::Fail { call, fault, is_lasting });
                let is_felt = tally.of("deeds that failed") + tally.of("recoveries cut off") > 0;
                quiet = if is_felt { 0 } else { quiet + 1 };
                failed += u64::from(is_felt);
                call += 1;
            }
        }
    }
    eprintln!("{name}: {failed} calls failed");
    assert!(failed > 100, "{name}: {failed}");
}

/// Cuts the power here and there, and then at every step of the recovery.
fn cut_every_recovery(name: &str) {
    let (system, first) = (system(name), seed::seed(name));
    let (mut cut, mut losses) = (0_u64, 0_u64);
    for seed in (0..SEEDS).map(|number| first.wrapping_add(number)) {
        for step in (0..).step_by(STRIDE) {
            let mut is_over = false;
            for again in 0.. {
                let harm = Harm::PowerLoss { step, image: seed ^ step, again };
                let tally = run(system, seed, harm);
                losses += tally.of("power losses");
                is_over = tally.of("power losses") == 0;
                if tally.of("recoveries cut off") == 0 {
                    break;
                }
                cut += tally.of("recoveries cut off");
            }
            if is_over {
                break;
            }
        }
    }
    eprintln!("{name}: {losses} power losses, {cut} recoveries cut off");
    assert!(cut > 20, "{name}: {cut}");
}

#[test]
fn every_call_for_the_manifest_of_a_rubin_chain_fails() {
    let (system, first) = (system("rubin"), seed::seed("rubin"));
    let mut failed = 0_u64;
    for (number, is_done) in (0..SEEDS).flat_map(|number| [(number, false), (number, true)]) {
        for call in 0.. {
            let harm = Harm::FailFile { call, is_done };
            match run(system, first.wrapping_add(number), harm).of("calls of files that failed") {
                0 => break,
                count => failed += count,
            }
        }
    }
    eprintln!("rubin: {failed} calls failed");
    assert!(failed > 20, "{failed}");
}

#[test]
fn every_call_of_a_rubin_chain_fails() {
    fail_every_call("rubin");
}

#[test]
fn every_call_of_a_set_with_its_tree_fails() {
    fail_every_call("csmt");
}

#[test]
fn every_call_of_a_misaka_store_fails() {
    fail_every_call("misaka");
}

#[test]
fn every_call_of_an_index_fails() {
    fail_every_call("indexer");
}

#[test]
fn every_recovery_of_a_rubin_chain_is_cut() {
    cut_every_recovery("rubin");
}

#[test]
fn every_recovery_of_a_set_with_its_tree_is_cut() {
    cut_every_recovery("csmt");
}

#[test]
fn every_recovery_of_a_misaka_store_is_cut() {
    cut_every_recovery("misaka");
}

#[test]
fn every_recovery_of_an_index_is_cut() {
    cut_every_recovery("indexer");
}
