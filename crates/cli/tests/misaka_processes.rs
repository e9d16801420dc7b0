//! `misaka-node` killed at its work: what it printed is there, and the next run goes on. And looked at while it works.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/kills.rs"]
mod kills;
#[path = "support/misaka.rs"]
mod misaka_chain;
#[path = "support/run.rs"]
mod run;
#[path = "../../kvb/tests/support/touched.rs"]
mod touched;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use misaka::{Checkpoint, Settings};
use misaka_chain::{Chain, MADE, binary, lines, place, trace_checkpoints};
use run::Ran;
use touched::files;

/// Times that it is killed on its way through a chain; `KVB_KILLS=n` goes that way until it was killed n times.
const KILLS: usize = 16;
const CHECKPOINTS: usize = 160;
/// Small windows, so that every checkpoint prunes; and v2 begins somewhere in the middle.
const WINDOWS: &[&str] = &["--event-retention", "5", "--window", "9", "--v2-at", "80"];

fn settings() -> Settings {
    Settings { event_retention: 5, window: 9, v2_at: Some(80), ..Settings::default() }
}

fn root_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap()
}

#[test]
fn killed_again_and_again_it_loses_nothing() {
    let (checkpoints, answers) = Chain::new(settings()).grow(CHECKPOINTS, 12);
    let (mut rng, rounds) = (Rng::with_seed(7), kills::rounds(KILLS));
    for _ in 0..rounds {
        kill_appliers(&checkpoints, &answers, &mut rng);
    }
    eprintln!("killed {} times", rounds * KILLS);
}

/// Kills it while it applies these checkpoints, and lets it go on, until they are all there.
fn kill_appliers(checkpoints: &[Checkpoint], answers: &[String], rng: &mut Rng) {
    let place = place(WINDOWS);
    std::fs::write(place.file("all"), lines(checkpoints)).unwrap();
    let mut there = 0;
    for _ in 0..KILLS {
        let mut apply = place.command(&["apply", "--quiet", "--db", "db", "-"]);
        let mut apply = apply.stdin(Stdio::piped()).spawn().unwrap();
        let count = rng.usize(1..CHECKPOINTS / KILLS);
        let mut input = apply.stdin.take().unwrap();
        // Now one form, now the other; the newest one again in front.
        let part = &checkpoints[there.max(1) - 1..there + count];
        let bytes = if rng.bool() { binary(part) } else { lines(part).into_bytes() };
        let writer = std::thread::spawn(move || {
            let _ = input.write_all(&bytes);
            // It waits for more until it is killed.
            input
        });
        let mut output = BufReader::new(apply.stdout.take().unwrap()).lines();
        let mut printed: Vec<String> =
            output.by_ref().take(rng.usize(..=count)).map_while(Result::ok).collect();
        apply.kill().unwrap();
        printed.extend(output.map_while(Result::ok));
        apply.wait().unwrap();
        drop(writer.join().unwrap());
        assert_eq!(printed, answers[there..there + printed.len()]);
        let now = place.run(&["state-root", "--full", "--json", "--db", "db"]).ok().json();
        let seq = usize::try_from(now["seq"].as_u64().unwrap_or(0)).unwrap();
        let newest = there + printed.len();
        assert!((newest..=newest + 1).contains(&seq), "{seq}, printed {newest}");
        if seq > 0 {
            assert_eq!(now["root"], *root_of(&answers[seq - 1]));
        }
        there = seq;
    }
    assert!(there > KILLS / 2, "only {there} checkpoints are there");
    // The same file from its beginning: what is too old to compare is passed over, because the newest one is in it.
    let ran = place.run(&["apply", "--quiet", "--db", "db", "all"]).ok();
    assert_eq!(ran.text().lines().collect::<Vec<_>>(), answers[there..]);
    let root = place.run(&["state-root", "--full", "--db", "db"]).ok().text();
    assert_eq!(root.trim(), root_of(&answers[CHECKPOINTS - 1]));
    place.run(&["verify", "--db", "db"]).ok();
}

#[test]
fn a_snapshot_that_is_killed_goes_on() {
    let place = place(&["--v2-at", "1"]);
    let settings = Settings { v2_at: Some(1), ..Settings::default() };
    let (checkpoints, answers) = Chain::with_payload(settings, 40_000).grow(1, 260);
    std::fs::write(place.file("all"), binary(&checkpoints)).unwrap();
    place.run(&["apply", "--quiet", "--db", "db", "all"]).ok();
    let args = ["snapshot", "create", "--quiet", "--db", "db", "snap"];
    let mut wait = Duration::from_millis(3);
    let mut killed = 0;
    let made: Ran = loop {
        let mut create = place.start(&args);
        std::thread::sleep(wait);
        wait = wait.mul_f64(1.4);
        if create.try_wait().unwrap().is_some() {
            break create.wait_with_output().unwrap().into();
        }
        create.kill().unwrap();
        create.wait().unwrap();
        killed += 1;
        // Half a snapshot is none, unless it was killed at its very end.
        let verified = place.run(&["snapshot", "verify", "snap"]);
        let is_whole = place.file("snap/manifest").exists();
        assert_eq!(verified.code, i32::from(!is_whole), "{}", verified.err);
    };
    assert!(killed > 1, "only {killed} were killed before their end");
    let digest = checkpoints[0].header.digest();
    assert_eq!(made.ok().text(), format!("1 {digest}\n"));
    place.run(&["snapshot", "verify", "snap"]).ok();
    // A restore that is killed goes on, too, and there is no database before its end.
    let args = ["snapshot", "restore", "--quiet", "snap", "--db", "new"];
    let mut wait = Duration::from_millis(3);
    loop {
        let mut restore = place.start(&args);
        std::thread::sleep(wait);
        wait = wait.mul_f64(1.4);
        if restore.try_wait().unwrap().is_some() {
            let ran: Ran = restore.wait_with_output().unwrap().into();
            // Killed at its very end, there is nothing left to go on with.
            assert!(ran.code == 0 || ran.err.contains("already"), "{}", ran.err);
            break;
        }
        restore.kill().unwrap();
        restore.wait().unwrap();
        let tip = place.run(&["tip", "--db", "new"]);
        assert!(tip.code == 1 || tip.text() == format!("1 {digest}\n"), "{}", tip.err);
    }
    let root = place.run(&["state-root", "--full", "--db", "new"]).ok().text();
    assert_eq!(root.trim(), root_of(&answers[0]));
    place.run(&["verify", "--db", "new"]).ok();
}

#[test]
fn whoever_looks_while_checkpoints_come_sees_whole_ones() {
    let place = place(WINDOWS);
    let (checkpoints, answers) = Chain::new(settings()).grow(CHECKPOINTS, 12);
    std::fs::write(place.file("all"), binary(&checkpoints)).unwrap();
    let mut apply = place.start(&["apply", "--quiet", "--db", "db", "all"]);
    let mut output = BufReader::new(apply.stdout.take().unwrap()).lines();
    let (mut looks, mut last) = (0, 0);
    let mut is_done = false;
    while !is_done {
        is_done = output.by_ref().take(8).count() < 8;
        // One command is of one commit: the root made anew is that of the header.
        let now = place.run(&["state-root", "--full", "--json", "--db", "db"]).ok().json();
        let seq = usize::try_from(now["seq"].as_u64().unwrap_or(0)).unwrap();
        assert_eq!(now["root"], *root_of(&answers[seq - 1]));
        assert!(seq >= last, "{seq} after {last}");
        last = seq;
        looks += 1;
        match looks % 4 {
            0 => drop(place.run(&["verify", "--quiet", "--db", "db"]).ok()),
            1 => {
                let snap = format!("snap{looks}");
                place.run(&["snapshot", "create", "--quiet", "--db", "db", &snap]).ok();
                place.run(&["snapshot", "verify", "--quiet", &snap]).ok();
            }
            _ => drop(place.run(&["stats", "--db", "db"]).ok()),
        }
    }
    assert!(apply.wait().unwrap().success());
    assert_eq!(last, CHECKPOINTS);
    assert!(looks > 10, "only {looks} looks");
}

#[test]
fn an_interrupt_while_nothing_comes_is_one() {
    let place = place(MADE);
    let checkpoints = trace_checkpoints();
    let mut apply = place.command(&["apply", "--quiet", "--db", "db", "-"]);
    let mut apply = apply.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = apply.stdin.take().unwrap();
    input.write_all(lines(&checkpoints[..1]).as_bytes()).unwrap();
    let mut output = BufReader::new(apply.stdout.take().unwrap()).lines();
    assert!(output.next().unwrap().unwrap().starts_with("250 "), "it is answered at once");
    // Meanwhile nobody else applies, and everybody can look.
    let second = place.run(&["apply", "--db", "db", "/dev/null"]);
    assert!(second.code == 1 && second.err.contains("in use by"), "{}", second.err);
    assert!(place.run(&["tip", "--db", "db"]).ok().text().starts_with("250 "));
    let kill = format!("kill -INT {}", apply.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let ran: Ran = apply.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 130);
    assert!(ran.err.contains("applied and safe"), "{}", ran.err);
    drop(input);
}

#[test]
fn commands_that_look_touch_no_file() {
    let place = place(MADE);
    std::fs::write(place.file("all"), binary(&trace_checkpoints())).unwrap();
    place.run(&["apply", "--db", "db", "all"]).ok();
    let id = "d23f37e7450c55a889a8d4cf2a32c240157fb4177c5784f7921ea68b20af7f92";
    let before = files(&place.file("db"));
    let mut commands: Vec<Vec<&str>> = vec![
        vec!["tip"],
        vec!["state-root"],
        vec!["state-root", "--full"],
        vec!["state-root", "--v", "1"],
        vec!["object", id],
        vec!["versions", id],
        vec!["checkpoint", "263"],
        vec!["events", "263"],
        vec!["params"],
        vec!["params", "--check"],
        vec!["prune", "--dry-run"],
        vec!["prove", "--object", id],
        vec!["snapshot", "create", "snap"],
        vec!["verify"],
        vec!["stats"],
    ];
    for table in misaka::tables::CANONICAL {
        commands.push(vec!["dump", "--table", table.name]);
    }
    for command in commands {
        for more in [&["--db", "db"][..], &["--db", "db", "--json"]] {
            let args: Vec<&str> = command.iter().chain(more).copied().collect();
            place.run(&args).ok();
            assert_eq!(files(&place.file("db")), before, "{args:?}");
        }
    }
}
