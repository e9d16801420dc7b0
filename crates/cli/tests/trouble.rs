//! The programs where the machine fails them: power cuts, file systems that fill up, calls of the system that fail.
//!
//! Whatever happens, a block of which a line was printed is there afterwards, with the right root, and with the trouble
//! gone the rest can be applied.
//!
//! `KVB_POWER_CUTS=n` makes n cuts for each program and file system, `KVB_FAULTS=n` lets n calls fail in each program, and in some every one
//! that they make.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/follower.rs"]
mod follower;
#[path = "support/job.rs"]
mod job;
#[path = "support/misaka.rs"]
mod misaka_chain;
#[path = "../../kvb/tests/support/mount.rs"]
mod mount;
#[path = "support/run.rs"]
mod run;

use std::path::Path;
use std::process::{Command, Stdio};

use fastrand::Rng;
use follower::Follower;
use job::{Follow, Job, Load};
use mount::{Mounted, cuts, skipped};
use run::Ran;

/// Pieces of work that are done on a full file system, if it has room for them.
const PIECES_MAX: usize = 12;
/// Calls that are made to fail.
const CALLS: [&str; 6] = ["pwrite64", "fdatasync", "fsync", "ftruncate", "fallocate", "pread64"];

/// Cuts the power under each program in turn.
fn cut_power(kind: &str) {
    let cuts = cuts();
    for node in Follower::all(cuts * 8) {
        let dir = tempfile::tempdir().unwrap();
        let Some(mounted) = Mounted::new(kind, dir.path()) else { return };
        let place = mounted.point();
        node.init(place);
        let mut rng = Rng::with_seed(3);
        let mut there = 0;
        for cut in 0..cuts {
            let count = rng.usize(1..=8);
            let mut following = node.start(place, there, there + count);
            let mut acknowledged = following.acknowledged.iter().take(rng.usize(..=count)).count();
            let ended = mounted.cut_under(&mut following.child);
            acknowledged += following.acknowledged.try_iter().count();
            assert!(ended(), "the file system does not come back");
            let what = format!("{kind}, cut {cut}");
            let found = node.check(place, &what);
            let newest = there + acknowledged;
            assert!(
                (newest..=newest + 1).contains(&found),
                "{}, {what}: {newest} acknowledged, {found} there",
                node.name
            );
            there = found;
        }
        eprintln!("{kind}: {} lost power {cuts} times, {there} blocks", node.name);
        node.finish(place, there);
    }
}

#[test]
fn what_was_acknowledged_before_a_power_cut_is_there_on_ext4() {
    cut_power("ext4");
}

#[test]
fn what_was_acknowledged_before_a_power_cut_is_there_on_xfs() {
    cut_power("xfs");
}

/// Takes all the room that is left but a little.
fn fill_up(point: &Path, leave: u64) {
    let chunk = vec![0x5a; 64 << 10];
    let mut file = std::fs::File::create(point.join("filler")).unwrap();
    while std::io::Write::write_all(&mut file, &chunk).is_ok() {}
    let len = file.metadata().unwrap().len();
    file.set_len(len.saturating_sub(leave)).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_file_system_that_is_full_loses_nothing() {
    for node in Follower::all(120) {
        let dir = tempfile::tempdir().unwrap();
        let Some(mounted) = Mounted::of_size("ext4", dir.path(), "64M") else { return };
        let place = mounted.point();
        node.init(place);
        let mut there = 0;
        let mut refused = 0;
        for leave in [0, 100 << 10, 1 << 20, 3 << 20] {
            fill_up(place, leave);
            let ran = node.apply(place, there, node.blocks.len());
            let newest = there + ran.text().lines().count();
            if newest < node.blocks.len() {
                assert_eq!(ran.code, 1, "{}: {}", node.name, ran.err);
                let err = ran.err.to_lowercase();
                assert!(err.contains("space") || err.contains("full"), "{}: {err}", node.name);
                refused += 1;
            }
            std::fs::remove_file(place.join("filler")).unwrap();
            let found = node.check(place, "full");
            assert!((newest..=newest + 1).contains(&found), "{}: {newest}, {found}", node.name);
            there = found;
        }
        assert!(refused > 0, "{} never ran out of room", node.name);
        eprintln!("{} ran out of room {refused} times, {there} blocks", node.name);
        node.finish(place, there);
    }
}

#[test]
fn a_file_system_that_is_full_loses_no_piece_of_work() {
    let jobs: [&mut dyn Job; 2] = [&mut Load::new(), &mut Follow::new()];
    for job in jobs {
        let dir = tempfile::tempdir().unwrap();
        let Some(mounted) = Mounted::of_size("ext4", dir.path(), "64M") else { return };
        let place = mounted.point();
        let mut refused = 0;
        for leave in [0, 100 << 10, 1 << 20, 3 << 20] {
            // Until nothing that was set aside is left.
            for piece in 0..PIECES_MAX {
                if piece == 0 {
                    fill_up(place, leave);
                }
                let ran: Ran = job.next(place).output().unwrap().into();
                job.check(place, ran.code == 0, "full");
                if ran.code != 0 {
                    let err = ran.err.to_lowercase();
                    assert!(err.contains("space") || err.contains("full"), "{}: {err}", job.name());
                    refused += 1;
                    break;
                }
            }
            std::fs::remove_file(place.join("filler")).unwrap();
            job.finish(place);
        }
        assert!(refused > 0, "{} never ran out of room", job.name());
        eprintln!("{} ran out of room {refused} times", job.name());
    }
}

/// Runs a program with a call of the system failing, and gives what it printed.
fn with_fault(node: &Follower, dir: &Path, inject: &str, from: usize, to: usize) -> Ran {
    let input = dir.join("input");
    std::fs::write(&input, node.input(from, to)).unwrap();
    let mut command =
        traced(&node.command(dir, node.apply_args()), dir, "all", inject, Path::new("/dev/null"));
    command.stdin(std::fs::File::open(&input).unwrap()).output().unwrap().into()
}

/// The same command with a call of the system failing, and a log of such calls.
fn traced(inner: &Command, dir: &Path, calls: &str, inject: &str, log: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", &format!("trace={calls}"), "-e", inject, "-o"]).arg(log);
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(dir);
    command.env_remove("KVB_KEY").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn can_trace() -> bool {
    let probe = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).status();
    let is_traced = probe.is_ok_and(|status| status.success());
    if !is_traced {
        skipped("no strace here, or it may not trace");
    }
    is_traced
}

#[test]
fn calls_that_fail_lose_nothing() {
    if !can_trace() {
        return;
    }
    let faults = std::env::var("KVB_FAULTS").map_or(24, |text| text.parse().unwrap());
    let mut rng = Rng::with_seed(5);
    for node in Follower::all(40) {
        let (mut failed, mut there) = (0, 0);
        let mut dir = tempfile::tempdir().unwrap();
        node.init(dir.path());
        for _ in 0..faults {
            if there + 8 > node.blocks.len() {
                node.finish(dir.path(), there);
                dir = tempfile::tempdir().unwrap();
                node.init(dir.path());
                there = 0;
            }
            let call = CALLS[rng.usize(..CALLS.len())];
            let error = if rng.bool() { "EIO" } else { "ENOSPC" };
            let on = if rng.bool() { "+" } else { "" };
            let inject = format!("inject={call}:error={error}:when={}{on}", rng.u32(1..16));
            let ran = with_fault(&node, dir.path(), &inject, there, there + 8);
            if ran.err.contains("error while loading shared libraries") {
                // It was the loader's call that failed, and the program never began.
                continue;
            }
            let newest = there + ran.text().lines().count();
            assert!(matches!(ran.code, 0 | 1), "{}, {inject}: {}", node.name, ran.err);
            // One that closes badly has acknowledged everything.
            assert!(ran.code == 1 || newest == there + 8, "{}, {inject}: {}", node.name, ran.err);
            failed += ran.code;
            let found = node.check(dir.path(), &inject);
            assert!(
                (newest..=newest + 1).contains(&found),
                "{}, {inject}: {newest} acknowledged, {found} there",
                node.name
            );
            there = found;
        }
        eprintln!("{}: {failed} of {faults} runs failed", node.name);
        assert!(failed > faults / 8, "{}: only {failed} of {faults} runs failed", node.name);
        node.finish(dir.path(), there);
    }
}

/// Lets the first call of a kind fail, the second, and so on, until no run has so many.
fn fail_each(job: &mut dyn Job, stride: usize) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let (mut failed, mut runs) = (0, 0);
    for call in CALLS {
        for number in (1_usize..).step_by(stride) {
            let error = if number.is_multiple_of(2) { "EIO" } else { "ENOSPC" };
            let inject = format!("inject={call}:error={error}:when={number}");
            let mut command = traced(&job.next(dir.path()), dir.path(), call, &inject, &log);
            let ran: Ran = command.output().unwrap().into();
            // With 127, it was the loader's call.
            assert!(matches!(ran.code, 0 | 1 | 127), "{}, {inject}: {}", job.name(), ran.err);
            job.check(dir.path(), ran.code == 0, &inject);
            if !std::fs::read_to_string(&log).unwrap().contains("(INJECTED)") {
                break;
            }
            runs += 1;
            failed += usize::from(ran.code != 0);
        }
    }
    eprintln!("{}: {failed} of {runs} runs failed", job.name());
    assert!(failed > 8, "{}: only {failed} of {runs} runs failed", job.name());
    job.finish(dir.path());
}

#[test]
fn no_call_that_fails_loses_a_piece_of_work() {
    if !can_trace() {
        return;
    }
    let stride = if std::env::var_os("KVB_FAULTS").is_some() { 1 } else { 3 };
    fail_each(&mut Load::new(), stride);
    fail_each(&mut Follow::new(), stride);
}
