//! `utxo-csmt`, `misaka-node` and `misaka-indexer` with input that somebody made up, and with nobody who reads what they say.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/misaka.rs"]
mod misaka_chain;
#[path = "support/run.rs"]
mod run;

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use misaka::Settings;
use misaka_chain::{Chain, lines};
use run::{Place, Ran};

/// A pipe that nobody reads from.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn csmt() -> Place {
    let place = Place::of(env!("CARGO_BIN_EXE_utxo-csmt"));
    place.run(&["init", "--db", "db", "--path", "raw"]).ok();
    place
}

/// Blocks with an entry each.
fn blocks(count: u64) -> String {
    (1..=count).fold(String::new(), |mut text, slot| {
        writeln!(
            text,
            r#"{{"slot":{slot},"hash":"{slot:064x}","ops":[["insert","{slot:016x}","01"]]}}"#
        )
        .unwrap();
        text
    })
}

#[test]
fn leaves_behind_the_longest_file_are_not_taken_for_nothing() {
    let place = csmt();
    std::fs::write(place.file("blocks"), blocks(3)).unwrap();
    place.run(&["apply", "--db", "db", "blocks"]).ok();
    let root = place.run(&["root", "--db", "db"]).ok().text();
    let root = root.trim();
    let mut all = place.run(&["prove-prefix", "--db", "db", "--prefix", "00"]).ok().out;
    std::fs::write(place.file("all"), &all).unwrap();
    let verify = |leaves: &str| {
        let args = ["--root", root, "--prefix", "00", "--proof", "all", "--leaves", leaves];
        place.run(&[&["verify-prefix"], &args[..]].concat())
    };
    verify("all").ok();
    all.resize(all.len() + (64 << 20), b'\n');
    all.extend(format!("{:064b} {}\n", 9, "11".repeat(32)).bytes());
    std::fs::write(place.file("more"), &all).unwrap();
    let ran = verify("more");
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.err.contains("too long"), "{}", ran.err);
    // The same of a proof.
    let args = ["--root", root, "--prefix", "00", "--proof", "more", "--leaves", "all"];
    let ran = place.run(&[&["verify-prefix"], &args[..]].concat());
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.err.contains("too long"), "{}", ran.err);
}

#[test]
fn blocks_are_applied_whether_somebody_reads_the_answers_or_not() {
    let place = csmt();
    std::fs::write(place.file("first"), blocks(100)).unwrap();
    std::fs::write(place.file("all"), blocks(200)).unwrap();
    for (more, files, last) in
        [(&[][..], &["first"][..], 100), (&["--json"], &["first", "all"], 200)]
    {
        let args = [&["apply", "--db", "db"], more, files].concat();
        let ran: Ran = place.command(&args).stdout(unread()).output().unwrap().into();
        let words = ran.ok().err;
        assert!(more.len() == 1 || words.starts_with("100 blocks"), "{words}");
        let tip = place.run(&["tip", "--db", "db"]).ok().text();
        assert!(tip.starts_with(&format!("{last}:")), "{tip}");
    }
    // What is wrong is wrong all the same.
    std::fs::write(place.file("wrong"), "no block\n").unwrap();
    let args = ["apply", "--db", "db", "wrong"];
    let ran: Ran = place.command(&args).stdout(unread()).output().unwrap().into();
    assert_eq!(ran.code, 1, "{}", ran.err);
}

#[test]
fn checkpoints_are_applied_whether_somebody_reads_the_answers_or_not() {
    let place = misaka_chain::place(&[]);
    let (checkpoints, answers) = Chain::new(Settings::default()).grow(60, 3);
    std::fs::write(place.file("first"), lines(&checkpoints[..30])).unwrap();
    std::fs::write(place.file("all"), lines(&checkpoints)).unwrap();
    for (more, file, last) in [(&[][..], "first", 30), (&["--json"], "all", 60)] {
        let args = [&["apply", "--db", "db", file], more].concat();
        let ran: Ran = place.command(&args).stdout(unread()).output().unwrap().into();
        ran.ok();
        let tip = place.run(&["tip", "--db", "db"]).ok().text();
        assert!(tip.starts_with(&format!("{last} ")), "{tip}");
        let root = place.run(&["state-root", "--db", "db"]).ok().text();
        assert_eq!(root.trim(), answers[last - 1].split(' ').nth(1).unwrap());
    }
    // A follower that waits goes on, too.
    let indexer = Place::of(env!("CARGO_BIN_EXE_misaka-indexer"));
    let db = place.file("db");
    let args = ["follow", "--wait", "--index", "index", "--db", db.to_str().unwrap()];
    let mut follow = indexer.command(&args).stdout(unread()).stderr(unread()).spawn().unwrap();
    let start = Instant::now();
    let tip = || indexer.run(&["tip", "--index", "index"]).text();
    while !tip().starts_with("60 ") && start.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_millis(500));
    let ended = follow.try_wait().unwrap();
    follow.kill().unwrap();
    follow.wait().unwrap();
    assert!(ended.is_none(), "{ended:?}");
    assert!(tip().starts_with("60 "));
}

#[test]
fn nobody_who_hears_what_is_said_is_no_reason_to_fail() {
    let place = csmt();
    let quiet = |place: &Place, args: &[&str]| {
        let ran = place.command(args).stderr(unread()).output().unwrap();
        assert_eq!(ran.status.code(), Some(0), "{args:?}");
    };
    std::fs::write(place.file("list"), "00aa 01\n00bb 02\n").unwrap();
    std::fs::write(place.file("blocks"), blocks(3)).unwrap();
    quiet(&place, &["bootstrap", "--db", "db", "list"]);
    quiet(&place, &["apply", "--db", "db", "blocks"]);
    let place = misaka_chain::place(&[]);
    let (checkpoints, _) = Chain::new(Settings::default()).grow(4, 3);
    std::fs::write(place.file("all"), lines(&checkpoints)).unwrap();
    let digest = checkpoints[3].header.digest().to_string();
    quiet(&place, &["apply", "--db", "db", "all"]);
    quiet(&place, &["snapshot", "create", "--db", "db", "snap"]);
    quiet(&place, &["snapshot", "verify", "snap"]);
    quiet(&place, &["snapshot", "restore", "snap", "--db", "new", "--checkpoint-digest", &digest]);
    let (indexer, db) = (Place::of(env!("CARGO_BIN_EXE_misaka-indexer")), place.file("db"));
    let (db, snap) = (db.to_str().unwrap(), place.file("snap"));
    quiet(&indexer, &["follow", "--index", "index", "--db", db]);
    quiet(&indexer, &["rebuild", "--index", "index", "--from-db", db]);
    quiet(&indexer, &["rebuild", "--index", "index", "--from-snapshot", snap.to_str().unwrap()]);
}

#[test]
fn nothing_is_no_success_as_json_either() {
    let place = csmt();
    let ran = place.run(&["root", "--db", "db", "--json"]);
    assert_eq!(ran.code, 1);
    assert!(ran.json()["root"].is_null() && ran.err.is_empty(), "{}", ran.err);
    assert_eq!(place.run(&["root", "--db", "db"]).code, 1);
    let (node, indexer) =
        (misaka_chain::place(&[]), Place::of(env!("CARGO_BIN_EXE_misaka-indexer")));
    let db = node.file("db");
    indexer.run(&["follow", "--index", "index", "--db", db.to_str().unwrap()]).ok();
    let ran = indexer.run(&["tip", "--index", "index", "--json"]);
    assert_eq!(ran.code, 1);
    assert!(ran.json()["tip"].is_null() && ran.err.is_empty(), "{}", ran.err);
    assert_eq!(indexer.run(&["tip", "--index", "index"]).code, 1);
}

#[test]
fn what_a_checkpoint_digest_is_not_of_is_not_restored() {
    let place = misaka_chain::place(&[]);
    let (checkpoints, _) = Chain::new(Settings::default()).grow(6, 5);
    std::fs::write(place.file("all"), lines(&checkpoints)).unwrap();
    place.run(&["apply", "--db", "db", "all", "--quiet"]).ok();
    let made = place.run(&["snapshot", "create", "--db", "db", "snap", "--json"]).ok().json();
    let manifest = made["manifest_digest"].as_str().unwrap();
    let seen = place.run(&["snapshot", "verify", "snap", "--json"]).ok().json();
    assert_eq!(seen["manifest_digest"], manifest);
    let digest = checkpoints[5].header.digest().to_string();
    let restore = |name: &str, more: &[&str]| {
        let args = ["snapshot", "restore", "snap", "--db", name, "--json"];
        let restored = place.run(&[&args[..], more].concat()).ok().json();
        let rows = place.run(&["dump", "--db", name, "--table", "version_index"]).ok().text();
        (restored["older_versions"].as_bool().unwrap(), rows.lines().count())
    };
    let all = place.run(&["dump", "--db", "db", "--table", "version_index"]).ok().text();
    let all = all.lines().count();
    let objects = usize::try_from(seen["objects"].as_u64().unwrap()).unwrap();
    assert!(all > objects);
    assert_eq!(restore("a", &[]), (true, all));
    assert_eq!(restore("b", &["--checkpoint-digest", &digest]), (false, objects));
    let both = ["--checkpoint-digest", &digest, "--manifest-digest", manifest];
    assert_eq!(restore("c", &both), (true, all));
    let wrong = ["snapshot", "verify", "snap", "--manifest-digest", &digest];
    let ran = place.run(&wrong);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("MANIFEST_DIGEST_MISMATCH"), "{}", ran.err);
    // In words it is said, too.
    let args = ["snapshot", "restore", "snap", "--db", "d", "--checkpoint-digest", &digest];
    assert!(place.run(&args).ok().err.contains("left out"));
}
