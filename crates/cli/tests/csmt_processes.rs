//! `utxo-csmt` killed at its work: what it acknowledged is there, and the next run goes on. And looked at while it works.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/kills.rs"]
mod kills;
#[path = "support/run.rs"]
mod run;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::process::Stdio;
use std::time::Duration;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::{Effort, Hash, PathKind, Settings, Store};
use fastrand::Rng;
use ledger::MemoryEngine;
use run::Place;

/// Times that it is killed on its way through a chain; `KVB_KILLS=n` goes that way until it was killed n times.
const KILLS: usize = 20;
const BLOCKS: usize = 300;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn store() -> Store {
    let settings = Settings { path: PathKind::Raw, ..Settings::default() };
    Store::init(Box::new(MemoryEngine::new()), settings, Effort::default()).unwrap()
}

/// Lines of blocks, and after each its line of output.
fn blocks(model: &Store, rng: &mut Rng) -> (String, Vec<String>) {
    let mut there: Vec<Vec<u8>> = Vec::new();
    let (mut lines, mut roots) = (String::new(), Vec::new());
    for slot in 1..=BLOCKS {
        let mut operations = Vec::new();
        for _ in 0..40 {
            let key: Vec<u8> = (0..8).map(|_| rng.u8(..)).collect();
            operations.push(Operation::Insert { key: key.clone(), value: vec![rng.u8(..); 30] });
            there.push(key);
            if there.len() > 500 {
                let key = there.swap_remove(rng.usize(..there.len()));
                operations.push(Operation::Delete { key });
            }
        }
        let hash = Hash::of(&slot.to_le_bytes());
        let ops: Vec<String> = operations
            .iter()
            .map(|operation| match operation {
                Operation::Insert { key, value } => {
                    format!(r#"["insert","{}","{}"]"#, hex(key), hex(value))
                }
                Operation::Delete { key } => format!(r#"["delete","{}"]"#, hex(key)),
            })
            .collect();
        writeln!(lines, r#"{{"slot":{slot},"hash":"{hash}","ops":[{}]}}"#, ops.join(",")).unwrap();
        let point = Point::block(u64::try_from(slot).unwrap(), hash);
        let root = model.forward(point, &operations).unwrap().root.unwrap();
        roots.push(format!("{slot}:{hash} {root}"));
    }
    (lines, roots)
}

#[test]
fn killed_again_and_again_it_loses_nothing() {
    let mut rng = Rng::with_seed(7);
    let (lines, roots) = blocks(&store(), &mut rng);
    let rounds = kills::rounds(KILLS);
    for _ in 0..rounds {
        kill_appliers(&lines, &roots, &mut rng);
    }
    eprintln!("killed {} times", rounds * KILLS);
}

/// Kills it while it applies these blocks, and lets it go on, until they are all there.
fn kill_appliers(lines: &str, roots: &[String], rng: &mut Rng) {
    let place = Place::of(env!("CARGO_BIN_EXE_utxo-csmt"));
    std::fs::write(place.file("blocks.jsonl"), lines).unwrap();
    place.run(&["init", "--db", "db", "--path", "raw"]).ok();
    let lines: Vec<&str> = lines.split_inclusive('\n').collect();
    let mut there = 0;
    for _ in 0..KILLS {
        let mut apply = place.command(&["apply", "--quiet", "--db", "db", "-"]);
        let mut apply = apply.stdin(Stdio::piped()).spawn().unwrap();
        let count = rng.usize(1..BLOCKS / KILLS);
        let mut input = apply.stdin.take().unwrap();
        input.write_all(lines[there..there + count].concat().as_bytes()).unwrap();
        // Killed somewhere between one block and the next: it would wait for more input.
        let mut output = BufReader::new(apply.stdout.take().unwrap()).lines();
        let mut acknowledged: Vec<String> =
            output.by_ref().take(rng.usize(..=count)).map_while(Result::ok).collect();
        apply.kill().unwrap();
        acknowledged.extend(output.map_while(Result::ok));
        apply.wait().unwrap();
        assert_eq!(acknowledged, roots[there..there + acknowledged.len()]);
        let slot = match place.run(&["tip", "--db", "db", "--json"]).ok().json()["tip"] {
            serde_json::Value::Null => 0,
            ref tip => usize::try_from(tip["slot"].as_u64().unwrap()).unwrap(),
        };
        let newest = there + acknowledged.len();
        assert!((newest..=newest + 1).contains(&slot), "{slot}, acknowledged {newest}");
        if slot > 0 {
            let root = place.run(&["root", "--db", "db"]).ok().text();
            assert_eq!(root.trim(), roots[slot - 1].split(' ').nth(1).unwrap());
        }
        there = slot;
    }
    assert!(there > KILLS, "only {there} blocks are there");
    place.run(&["apply", "--db", "db", "blocks.jsonl"]).ok();
    let root = place.run(&["root", "--db", "db"]).ok().text();
    assert_eq!(root.trim(), roots[BLOCKS - 1].split(' ').nth(1).unwrap());
    place.run(&["verify", "--db", "db"]).ok();
    // Back to a block that it was killed after or before, and forward again.
    let back = roots[BLOCKS / 2].split(' ').next().unwrap();
    place.run(&["rollback", "--db", "db", "--to", back]).ok();
    let root = place.run(&["root", "--db", "db"]).ok().text();
    assert_eq!(root.trim(), roots[BLOCKS / 2].split(' ').nth(1).unwrap());
    place.run(&["verify", "--db", "db"]).ok();
}

#[test]
fn a_bootstrap_that_is_killed_goes_on() {
    let place = Place::of(env!("CARGO_BIN_EXE_utxo-csmt"));
    let mut rng = Rng::with_seed(8);
    let mut list = String::new();
    let mut operations = Vec::new();
    for _ in 0..60_000 {
        let (key, value): (Vec<u8>, Vec<u8>) =
            ((0..16).map(|_| rng.u8(..)).collect(), (0..40).map(|_| rng.u8(..)).collect());
        writeln!(list, "{} {}", hex(&key), hex(&value)).unwrap();
        operations.push(Operation::Insert { key, value });
    }
    std::fs::write(place.file("list"), list).unwrap();
    let model = store();
    let root = model.forward(Point::block(1, Hash::of(b"1")), &operations).unwrap().root.unwrap();
    place.run(&["init", "--db", "db", "--path", "raw"]).ok();
    let args = ["bootstrap", "--quiet", "--db", "db", "list"];
    let mut killed = 0;
    let mut wait = Duration::from_millis(5);
    let output = loop {
        let mut bootstrap = place.start(&args);
        std::thread::sleep(wait);
        wait = wait.mul_f64(1.3);
        if bootstrap.try_wait().unwrap().is_some() {
            break bootstrap.wait_with_output().unwrap();
        }
        bootstrap.kill().unwrap();
        bootstrap.wait().unwrap();
        killed += 1;
        // Half a tree is nothing to go on from.
        let block = place.run_with(&["apply", "--db", "db", "-"], b"");
        assert_eq!(block.code, 0, "{}", block.err);
    };
    assert!(killed > 5, "only {killed} were killed before their end");
    // Killed right at its end, there is nothing left to go on with.
    if output.status.success() {
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), root.to_string());
    }
    assert_eq!(place.run(&["root", "--db", "db"]).ok().text().trim(), root.to_string());
    place.run(&["verify", "--db", "db"]).ok();
}

#[test]
fn whoever_looks_while_blocks_come_sees_whole_blocks() {
    let place = Place::of(env!("CARGO_BIN_EXE_utxo-csmt"));
    let model = store();
    let (lines, roots) = blocks(&model, &mut Rng::with_seed(9));
    std::fs::write(place.file("blocks.jsonl"), lines).unwrap();
    place.run(&["init", "--db", "db", "--path", "raw"]).ok();
    let mut apply = place.start(&["apply", "--quiet", "--db", "db", "blocks.jsonl"]);
    let mut output = BufReader::new(apply.stdout.take().unwrap()).lines();
    let (mut looks, mut last) = (0, 0);
    let mut is_done = false;
    while !is_done {
        is_done = output.by_ref().take(8).count() < 8;
        // One command is of one commit: the newest point has the root.
        let points = place.run(&["roots", "--db", "db"]).ok().text();
        let (point, root) = points.lines().next().unwrap().split_once(' ').unwrap();
        if point != "origin" {
            let slot: usize = point.split(':').next().unwrap().parse().unwrap();
            assert_eq!(root, roots[slot - 1].split(' ').nth(1).unwrap());
            assert!(slot >= last, "{slot} after {last}");
            last = slot;
        }
        looks += 1;
        if looks % 8 == 0 {
            place.run(&["verify", "--quiet", "--db", "db"]).ok();
        }
    }
    assert!(apply.wait().unwrap().success());
    assert!(looks > 10, "only {looks} looks");
}
