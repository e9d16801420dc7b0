//! `utxo-csmt`, `misaka-node` and `misaka-indexer` with input that somebody made up, and with nobody who reads what they say.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "shared with the tests of the crate")]
#[path = "../../csmt/tests/cardano/build.rs"]
mod build;
#[path = "support/misaka.rs"]
mod misaka_chain;
#[path = "support/run.rs"]
mod run;
#[path = "../../kvb/tests/support/touched.rs"]
mod touched;

use std::fmt::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use misaka::Settings;
use misaka_chain::{Chain, lines};
use run::{Place, Ran};
use touched::files;

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

/// Bits and digest as a node is hashed.
fn node(jump: &csmt::Path, digest: &csmt::Hash) -> Vec<u8> {
    let bits = u16::try_from(jump.len()).unwrap().to_be_bytes();
    [&bits[..], jump.bytes(), &[0, 0x20], digest.as_bytes()].concat()
}

#[test]
fn a_list_of_all_outputs_of_an_address_hides_none() {
    let place = Place::of(env!("CARGO_BIN_EXE_utxo-csmt"));
    place.run(&["init", "--db", "db"]).ok();
    let address = format!("70{}", "ab".repeat(28));
    let ops: Vec<String> = ["00", "80", "c0"]
        .iter()
        .map(|byte| {
            let key = format!("825820{}01", byte.repeat(32));
            format!(r#"["insert","{key}","82581d{address}1a000f4240"]"#)
        })
        .collect();
    let line = format!(r#"{{"slot":1,"hash":"{:064x}","ops":[{}]}}"#, 1, ops.join(","));
    std::fs::write(place.file("blocks"), line).unwrap();
    place.run(&["apply", "--db", "db", "blocks"]).ok();
    let root = place.run(&["root", "--db", "db"]).ok().text();
    let root = root.trim();
    let all = place.run(&["prove-prefix", "--db", "db", "--address", &address]).ok().text();
    std::fs::write(place.file("all"), &all).unwrap();
    let verify = |file: &str, which: [&str; 2]| {
        let args = ["--root", root, "--proof", file, "--leaves", file];
        place.run(&[&["verify-prefix"], &args[..], &which[..]].concat())
    };
    verify("all", ["--address", &address]).ok();

    // The second and the third stand behind a branch, which is shown instead of them.
    let leaves: Vec<csmt::proof::Leaf> = all
        .lines()
        .skip(1)
        .map(|line| {
            let (path, digest) = line.split_once(' ').unwrap();
            let digest: Vec<u8> = (0..64)
                .step_by(2)
                .map(|at| u8::from_str_radix(&digest[at..at + 2], 16).unwrap())
                .collect();
            (csmt::Path::parse(path).unwrap(), csmt::Hash::from_slice(&digest).unwrap())
        })
        .collect();
    let [first, left, right] = &leaves[..] else { panic!("{all}") };
    let end = left.0.common(0, &right.0);
    let side = |leaf: &csmt::proof::Leaf| node(&leaf.0.from(end + 1), &leaf.1);
    let branch = (left.0.part(0, end), csmt::Hash::of(&[side(left), side(right)].concat()));
    let forged = csmt::proof::Completeness::Leaves { merges: vec![(0, 1)], steps: Vec::new() };
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines: Vec<String> = std::iter::once(hex(&forged.to_bytes()))
        .chain([first, &branch].map(|(path, digest)| format!("{path} {digest}")))
        .collect();
    std::fs::write(place.file("forged"), lines.join("\n")).unwrap();
    let ran = verify("forged", ["--address", &address]);
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.err.contains("not the path of an output"), "{}", ran.err);
    // Whoever asks for bits is told to look.
    let bits = format!("0b{}", first.0.part(0, 256));
    verify("forged", ["--prefix", &bits]).ok();
}

#[test]
fn a_block_of_cardano_comes_behind_the_one_before_it() {
    let place = csmt();
    let mut previous = vec![9; 32];
    for number in 1..=4_u64 {
        let body = build::body(&[
            (0, build::list(&[])),
            (1, build::list(&[build::coins(1_000_000 + number)])),
        ]);
        let block = build::block_behind(&previous, 100 + number, 7, &[body], &[]);
        let point = csmt::cardano::block(&block).unwrap().point;
        let csmt::format::point::Point::Block { hash, .. } = point else { panic!("{point}") };
        previous = hash.as_bytes().to_vec();
        std::fs::write(place.file(&format!("{number}.chunk")), block).unwrap();
    }
    let apply =
        |files: &[&str]| place.run(&[&["apply", "--db", "db", "--cardano"], files].concat());
    apply(&["1.chunk"]).ok();
    let root = place.run(&["root", "--db", "db"]).ok().text();
    // One was forgotten.
    let ran = apply(&["3.chunk", "4.chunk"]);
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.err.contains("others are missing"), "{}", ran.err);
    assert_eq!(place.run(&["root", "--db", "db"]).ok().text(), root);
    assert_eq!(apply(&["1.chunk", "2.chunk", "3.chunk"]).ok().text().lines().count(), 2);
    assert_eq!(apply(&["2.chunk", "3.chunk", "4.chunk"]).ok().text().lines().count(), 1);
}

#[test]
fn blocks_of_one_slot_are_passed_over_when_they_come_again() {
    let place = csmt();
    let line = |slot: u64, number: u64| {
        format!(
            r#"{{"slot":{slot},"hash":"{number:064x}","ops":[["insert","{number:016x}","01"]]}}"#
        )
    };
    // As an epoch of Byron begins: a boundary, and a block with its slot.
    std::fs::write(place.file("two"), [line(5, 1), line(5, 2)].join("\n")).unwrap();
    std::fs::write(place.file("all"), [line(5, 1), line(5, 2), line(6, 3)].join("\n")).unwrap();
    let applied = |file: &str| place.run(&["apply", "--db", "db", file]).ok().text();
    assert_eq!(applied("two").lines().count(), 2);
    assert_eq!(applied("two"), "");
    assert_eq!(applied("all").lines().count(), 1);
    assert_eq!(applied("all"), "");
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

const PROGRAMS: [(&str, &str, &[&[&str]]); 4] = [
    (
        "utxo-csmt",
        env!("CARGO_BIN_EXE_utxo-csmt"),
        &[
            &["tip", "--db"],
            &["verify", "--db"],
            &["apply", "/dev/null", "--db"],
            &["init", "--db"],
        ],
    ),
    (
        "misaka-node",
        env!("CARGO_BIN_EXE_misaka-node"),
        &[
            &["tip", "--db"],
            &["verify", "--db"],
            &["apply", "/dev/null", "--db"],
            &["init", "--db"],
        ],
    ),
    (
        "rubin-node",
        env!("CARGO_BIN_EXE_rubin-node"),
        &[&["tip", "--datadir"], &["verify", "--datadir"], &["import", "/dev/null", "--datadir"]],
    ),
    (
        "misaka-indexer",
        env!("CARGO_BIN_EXE_misaka-indexer"),
        &[&["tip", "--index"], &["follow", "--db", "misaka-node", "--index"]],
    ),
];

#[test]
fn the_database_of_another_program_is_none() {
    let place = Place::of(env!("CARGO_BIN_EXE_utxo-csmt"));
    let run = |program: &str, args: &[&str]| -> Ran {
        let mut command = std::process::Command::new(program);
        command.args(args).current_dir(place.path()).stdin(Stdio::null()).output().unwrap().into()
    };
    let [csmt, misaka, rubin, indexer] = PROGRAMS.map(|(_, program, _)| program);
    std::fs::write(place.file("blocks"), blocks(3)).unwrap();
    run(csmt, &["init", "--db", "utxo-csmt", "--path", "raw"]).ok();
    run(csmt, &["apply", "--db", "utxo-csmt", "blocks"]).ok();
    let (checkpoints, _) = Chain::new(Settings::default()).grow(3, 3);
    std::fs::write(place.file("checkpoints"), lines(&checkpoints)).unwrap();
    run(misaka, &["init", "--db", "misaka-node"]).ok();
    run(misaka, &["apply", "--db", "misaka-node", "checkpoints"]).ok();
    run(rubin, &["init", "--datadir", "rubin-node"]).ok();
    run(indexer, &["follow", "--db", "misaka-node", "--index", "misaka-indexer"]).ok();
    for (owner, _, _) in PROGRAMS {
        for (name, program, commands) in PROGRAMS.iter().filter(|(name, ..)| *name != owner) {
            for command in *commands {
                // A datadir keeps its rows further down: there is nothing in the way of others in it.
                if owner == "rubin-node" && matches!(command[0], "init" | "follow") {
                    continue;
                }
                let before = files(&place.file(owner));
                let ran = run(program, &[command, &[owner][..]].concat());
                let what = format!("{name} {command:?} on the database of {owner}: {}", ran.err);
                assert_eq!(ran.code, 1, "{what}");
                // What to do is said, too.
                let said = ["there is no", "of another program"];
                assert!(said.iter().any(|said| ran.err.contains(said)), "{what}");
                assert!(ran.err.contains("hint: "), "{what}");
                // Whoever wants to write opens the file for that, and leaves its rows alone.
                if matches!(command[0], "tip" | "verify") {
                    assert_eq!(files(&place.file(owner)), before, "{what}");
                }
            }
        }
    }
    run(csmt, &["verify", "--db", "utxo-csmt"]).ok();
    run(misaka, &["verify", "--db", "misaka-node"]).ok();
}

/// Puts an older copy of a database in the place of it.
fn put_back(place: &Place, copy: &str) {
    std::fs::remove_dir_all(place.file("db")).unwrap();
    copy_all(&place.file(copy), &place.file("db"));
}

fn copy_all(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy_all(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn an_older_copy_of_a_set_is_the_set_as_it_was() {
    let place = csmt();
    let seen =
        || (place.run(&["tip", "--db", "db"]).text(), place.run(&["root", "--db", "db"]).text());
    std::fs::write(place.file("first"), blocks(3)).unwrap();
    std::fs::write(place.file("all"), blocks(6)).unwrap();
    place.run(&["apply", "--db", "db", "first"]).ok();
    let first = seen();
    copy_all(&place.file("db"), &place.file("copy"));
    place.run(&["apply", "--db", "db", "all"]).ok();
    let all = seen();
    put_back(&place, "copy");
    place.run(&["verify", "--db", "db"]).ok();
    assert_eq!(seen(), first);
    // A proof of what it has forgotten cannot be had, and what is missing comes again.
    assert_eq!(place.run(&["prove", "--db", "db", "0000000000000005"]).code, 1);
    assert_eq!(place.run(&["apply", "--db", "db", "all"]).ok().text().lines().count(), 3);
    assert_eq!(seen(), all);
    place.run(&["verify", "--db", "db"]).ok();
}

#[test]
fn an_older_copy_of_a_validator_is_the_validator_as_it_was() {
    let place = misaka_chain::place(&[]);
    let (checkpoints, answers) = Chain::new(Settings::default()).grow(6, 3);
    std::fs::write(place.file("first"), lines(&checkpoints[..3])).unwrap();
    std::fs::write(place.file("all"), lines(&checkpoints)).unwrap();
    std::fs::write(place.file("last"), lines(&checkpoints[5..])).unwrap();
    place.run(&["apply", "--db", "db", "first"]).ok();
    copy_all(&place.file("db"), &place.file("copy"));
    place.run(&["apply", "--db", "db", "all"]).ok();
    let (indexer, db) = (Place::of(env!("CARGO_BIN_EXE_misaka-indexer")), place.file("db"));
    let follow = ["follow", "--index", "index", "--db", db.to_str().unwrap()];
    indexer.run(&follow).ok();
    let tip = || indexer.run(&["tip", "--index", "index"]).ok().text();
    let ahead = tip();
    put_back(&place, "copy");
    place.run(&["verify", "--db", "db"]).ok();
    let root = || place.run(&["state-root", "--full", "--db", "db"]).ok().text();
    assert_eq!(root().trim(), answers[2].split(' ').nth(1).unwrap());
    // Whoever goes on where it was is told what is missing.
    let ran = place.run(&["apply", "--db", "db", "last"]);
    assert_eq!(ran.code, 1, "{}", ran.text());
    assert!(ran.err.contains("SEQ"), "{}", ran.err);
    // An index that has more than its validator keeps it.
    let ran = indexer.run(&follow);
    assert!(ran.code == 0 || ran.err.contains("hint: "), "{}", ran.err);
    assert_eq!(tip(), ahead);
    place.run(&["apply", "--db", "db", "all"]).ok();
    assert_eq!(root().trim(), answers[5].split(' ').nth(1).unwrap());
    place.run(&["verify", "--db", "db"]).ok();
    indexer.run(&follow).ok();
    assert_eq!(tip(), ahead);
}
