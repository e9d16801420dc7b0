//! `misaka-node` from end to end over the vectors, with wrong arguments, and with files that somebody made to do harm.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/misaka.rs"]
mod misaka_chain;
#[path = "support/run.rs"]
mod run;

use misaka::tables::CANONICAL;
use misaka_chain::{MADE, binary, lines, place, trace, trace_checkpoints};
use run::{Place, Ran};
use serde_json::Value;

const VAULT: &str = "d23f37e7450c55a889a8d4cf2a32c240157fb4177c5784f7921ea68b20af7f92";

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// A database with the whole trace.
fn full() -> Place {
    let place = place(MADE);
    std::fs::write(place.file("trace"), lines(&trace_checkpoints())).unwrap();
    place.run(&["apply", "--db", "db", "trace"]).ok();
    place
}

/// What all dumps together print.
fn dumps(place: &Place, db: &str, tables: &[&str]) -> Vec<String> {
    let dump = |table: &&str| place.run(&["dump", "--db", db, "--table", table]).ok().text();
    tables.iter().map(dump).collect()
}

fn all_dumps(place: &Place, db: &str) -> Vec<String> {
    let names: Vec<&str> = CANONICAL.iter().map(|table| table.name).collect();
    dumps(place, db, &names)
}

/// The dumps that the trace ends with.
fn wanted_dumps() -> Vec<String> {
    let kv = trace()["final"]["kv"].clone();
    let rows = |prefix: &str| {
        let prefix = misaka::hex(prefix.as_bytes());
        let rows = kv.as_array().unwrap().iter();
        let rows = rows.map(|row| (text(&row["key_hex"]), text(&row["value_hex"])));
        let rows = rows.filter(|(key, _)| key.starts_with(&prefix));
        rows.map(|(key, value)| format!("{key} {value}\n")).collect::<String>()
    };
    ["obj/", "ver/", "ckpt/", "evt/", "sys/params/"].map(rows).to_vec()
}

/// The root of a checkpoint of the trace in the version that it has.
fn root_of(checkpoint: &Value) -> &str {
    let is_v2 = checkpoint["seq"].as_u64().unwrap() >= 260;
    let name = if is_v2 { "state_root_v2_hex" } else { "state_root_v1_hex" };
    text(&checkpoint["expected"][name])
}

#[test]
fn the_trace_comes_out_the_same_from_every_form_of_file() {
    let trace = trace();
    let checkpoints = trace["checkpoints"].as_array().unwrap();
    let wanted: String = checkpoints
        .iter()
        .map(|checkpoint| format!("{} {}\n", checkpoint["seq"], root_of(checkpoint)))
        .collect();
    let json: String = checkpoints.iter().map(|checkpoint| format!("{checkpoint}\n")).collect();
    let forms: Vec<(&str, Vec<u8>)> = vec![
        ("lines of the trace", json.clone().into_bytes()),
        ("lines with an end of their own", json.replace('\n', "\r\n\n").into_bytes()),
        ("lines without an end", json.trim_end().as_bytes().to_vec()),
        ("lines with the header on top", lines(&trace_checkpoints()).into_bytes()),
        ("binary", binary(&trace_checkpoints())),
        ("an array", trace["checkpoints"].to_string().into_bytes()),
        ("an array over many lines", serde_json::to_vec_pretty(&trace["checkpoints"]).unwrap()),
        ("all of the trace", trace.to_string().into_bytes()),
    ];
    for (form, bytes) in forms {
        let place = place(MADE);
        std::fs::write(place.file("file"), bytes).unwrap();
        let ran = place.run(&["apply", "--db", "db", "--quiet", "file"]).ok();
        assert_eq!(ran.text(), wanted, "{form}");
        assert_eq!(ran.err, "", "{form}");
        assert_eq!(all_dumps(&place, "db"), wanted_dumps(), "{form}");
        let again = place.run(&["apply", "--db", "db", "file"]).ok();
        assert_eq!(again.text(), "", "{form}");
        assert!(again.err.contains("14 were applied before"), "{}", again.err);
    }
    // The same through a pipe, in two parts that overlap, as JSON.
    let place = place(MADE);
    let ran =
        place.run_with(&["apply", "--db", "db", "--json", "-"], &json.as_bytes()[..json.len() / 2]);
    assert_eq!(ran.code, 1, "cut off in the middle of a line");
    assert!(ran.err.contains("line "), "{}", ran.err);
    let more = place.run_with(&["apply", "--db", "db", "--json", "-"], json.as_bytes()).ok();
    let facts = ran.text() + &more.text();
    let facts: Vec<Value> = facts.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(facts.len(), checkpoints.len());
    for (facts, checkpoint) in facts.iter().zip(checkpoints) {
        assert_eq!(facts["seq"], checkpoint["seq"]);
        assert_eq!(text(&facts["root"]), root_of(checkpoint));
        assert_eq!(facts["digest"], checkpoint["expected"]["checkpoint_digest_hex"]);
        assert!(facts["pruned"]["versions"].is_u64());
    }
    assert_eq!(all_dumps(&place, "db"), wanted_dumps());
}

#[test]
fn whoever_looks_sees_what_the_trace_says() {
    let place = full();
    let trace = trace();
    let last = trace["checkpoints"].as_array().unwrap().last().unwrap().clone();
    let expected = &last["expected"];
    let run = |args: &[&str]| place.run(&[args, &["--db", "db"]].concat());
    for (args, name) in [
        (&["state-root"][..], "state_root_v2_hex"),
        (&["state-root", "--full"], "state_root_v2_hex"),
        (&["state-root", "--v", "2", "--full", "--threads", "3"], "state_root_v2_hex"),
        (&["state-root", "--v", "1"], "state_root_v1_hex"),
        (&["state-root", "--v", "1", "--full", "--memory", "1M"], "state_root_v1_hex"),
    ] {
        assert_eq!(run(args).ok().text().trim(), text(&expected[name]), "{args:?}");
    }
    let tip = run(&["tip"]).ok().text();
    assert_eq!(tip, format!("263 {}\n", text(&expected["checkpoint_digest_hex"])));
    assert_eq!(run(&["tip", "--json"]).ok().json()["tip"]["state_root_version"], 2);

    let object = run(&["object", VAULT, "--json"]).ok().json();
    assert_eq!(object["version"], trace["final"]["vault_latest_version"]);
    assert_eq!(object["owner"]["kind"], "shared");
    let dump = run(&["dump", "--table", "object_store"]).ok().text();
    let row = format!("{}{VAULT} {}", misaka::hex(b"obj/"), text(&object["bytes"]));
    assert!(dump.lines().any(|line| line == row));
    assert!(run(&["object", VAULT]).ok().text().contains("fee_vault"));
    let versions = run(&["versions", VAULT]).ok().text();
    let numbers: Vec<u64> =
        versions.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers.last(), Some(&763), "numbers have their own order here");
    assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "{numbers:?}");
    let lines: Vec<Value> = run(&["versions", VAULT, "--json"])
        .ok()
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.last().unwrap()["digest"], object["digest"]);
    let nobody = "00".repeat(32);
    for command in ["object", "versions"] {
        let ran = run(&[command, &nobody]);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("not found"), "{}", ran.err);
    }

    let checkpoint = run(&["checkpoint", "263", "--json"]).ok().json();
    assert_eq!(checkpoint["header_bytes_hex"], expected["header_bytes_hex"]);
    assert_eq!(checkpoint["tx_digests"], last["tx_digests"]);
    let text_of = run(&["checkpoint", "258"]).ok().text();
    assert!(text_of.contains("2023-11-14T22:17:38Z"), "{text_of}");
    for seq in ["257", "264", "18446744073709551615"] {
        let ran = run(&["checkpoint", seq]);
        assert!(ran.code == 1 && ran.err.contains("there are 258 to 263"), "{}", ran.err);
    }

    let mut events: Vec<(u64, u64, &str)> = last["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            let number = |name: &str| event[name].as_u64().unwrap();
            (number("tx_index"), number("event_index"), text(&event["event_hex"]))
        })
        .collect();
    events.sort_unstable();
    let shown = |keep: &dyn Fn(u64) -> bool| -> String {
        let events = events.iter().filter(|(tx, ..)| keep(*tx));
        events.map(|(tx, number, bytes)| format!("{tx} {number} {bytes}\n")).collect()
    };
    assert_eq!(run(&["events", "263"]).ok().text(), shown(&|_| true));
    assert_eq!(run(&["events", "263", "--tx", "1"]).ok().text(), shown(&|tx| tx == 1));
    assert_eq!(run(&["events", "263", "--tx", "99999"]).ok().text(), "");
    for seq in ["259", "264"] {
        let ran = run(&["events", seq]);
        assert!(ran.code == 1 && ran.err.contains("kept for 4 checkpoints"), "{}", ran.err);
    }

    let params = run(&["params"]).ok().text();
    assert_eq!(params.lines().count(), 11);
    assert!(params.contains("state_root_version 0200\n"), "{params}");
    assert_eq!(run(&["params", "committee_n"]).ok().text(), "05000000\n");
    assert_eq!(run(&["params", "sys/params/committee_n"]).ok().text(), "05000000\n");
    assert_eq!(run(&["params", "nothing"]).code, 1);
    assert_eq!(run(&["params", "--check"]).ok().text(), "OK\n");
    assert_eq!(run(&["prune", "--dry-run", "--json"]).ok().json()["checkpoints"], 1);
    let verified = run(&["verify", "--json"]).ok().json();
    assert_eq!((&verified["sound"], &verified["versions"]), (&true.into(), &525.into()));
    let stats = run(&["stats", "--json"]).ok().json();
    assert_eq!(stats["tables"]["object_store"]["rows"], 8);
    assert!(run(&["stats"]).ok().text().contains("258 to 263"));
}

#[test]
fn a_database_without_checkpoints_says_so() {
    let place = place(MADE);
    let run = |args: &[&str]| place.run(&[args, &["--db", "db"]].concat());
    assert_eq!(run(&["tip"]).ok().text(), "none\n");
    assert_eq!(run(&["tip", "--json"]).ok().json()["tip"], Value::Null);
    // The vectors' roots of nothing.
    let root = run(&["state-root"]).ok().text();
    assert_eq!(root.trim(), misaka::Hash::of(&[]).to_string());
    assert_eq!(run(&["state-root", "--v", "2"]).ok().text().trim(), "00".repeat(32));
    assert_eq!(run(&["verify"]).ok().text().split(':').next(), Some("sound"));
    assert_eq!(run(&["params"]).ok().text(), "");
    assert_eq!(run(&["dump", "--table", "checkpoint_store"]).ok().text(), "");
    run(&["stats"]).ok();
    for args in [
        &["checkpoint", "1"][..],
        &["events", "1"],
        &["prune", "--dry-run"],
        &["snapshot", "create", "snap"],
        &["prove", "--param", "a"],
    ] {
        let ran = run(args);
        assert_eq!(ran.code, 1, "{args:?}");
        assert!(!ran.err.is_empty(), "{args:?}");
    }
}

#[test]
fn parameters_that_do_not_fit_together_are_named() {
    let place = place(&["--window", "5"]);
    let mut chain = misaka_chain::Chain::new(misaka::Settings { window: 5, ..Default::default() });
    let mut checkpoint = chain.next(0);
    checkpoint.params = vec![("p_grants".to_owned(), vec![1, 0])];
    chain.finish(&mut checkpoint);
    let ran = place.run_with(&["apply", "--db", "db", "-"], &binary(&[checkpoint]));
    ran.ok();
    let ran = place.run(&["params", "--db", "db", "--check"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("SPLIT_SUM"), "{}", ran.err);
    let ran = place.run(&["params", "--db", "db", "--check", "--json"]);
    assert_eq!((ran.code, ran.json()["rule"].as_str()), (1, Some("SPLIT_SUM")));
}

#[test]
fn a_snapshot_becomes_a_database_that_goes_on() {
    let place = place(MADE);
    let checkpoints = trace_checkpoints();
    std::fs::write(place.file("first"), lines(&checkpoints[..12])).unwrap();
    std::fs::write(place.file("all"), lines(&checkpoints)).unwrap();
    place.run(&["apply", "--db", "db", "first"]).ok();
    let digest = checkpoints[11].header.digest().to_string();
    let validators = checkpoints[11].header.validator_set_hash.to_string();
    let made = place.run(&["snapshot", "create", "--db", "db", "some/where/snap"]).ok();
    assert_eq!(made.text(), format!("261 {digest}\n"));
    std::fs::rename(place.file("some/where/snap"), place.file("snap")).unwrap();
    let trusted = ["--checkpoint-digest", &digest, "--validator-set-hash", &validators];
    let verify = [&["snapshot", "verify", "snap", "--json"], &trusted[..]].concat();
    let verified = place.run(&verify).ok().json();
    assert_eq!((&verified["objects"], &verified["seq"]), (&8.into(), &261.into()));
    let windows = ["--event-retention", "4", "--window", "6", "--v2-at", "260"];
    // The versions of the window come with the digest that is of them.
    let whole = ["--manifest-digest", verified["manifest_digest"].as_str().unwrap()];
    let restore =
        [&["snapshot", "restore", "snap", "--db", "new"], &trusted[..], &whole, &windows].concat();
    assert_eq!(place.run(&restore).ok().text().split(' ').next(), Some("261"));
    let same = ["object_store", "version_index", "sys_params"];
    assert_eq!(dumps(&place, "new", &same), dumps(&place, "db", &same));
    let again = place.run(&restore);
    assert!(again.code == 1 && again.err.contains("already"), "{}", again.err);
    for db in ["db", "new"] {
        let ran = place.run(&["apply", "--db", db, "--quiet", "all"]).ok();
        assert_eq!(ran.text().lines().count(), 2, "{db}");
        place.run(&["verify", "--db", db]).ok();
    }
    assert_eq!(dumps(&place, "new", &same), dumps(&place, "db", &same));
    assert_eq!(all_dumps(&place, "db"), wanted_dumps());
    // The directory has one already, and of another checkpoint.
    let ran = place.run(&["snapshot", "create", "--db", "db", "snap"]);
    assert!(ran.code == 1 && ran.err.contains("choose another"), "{}", ran.err);

    let wrong = "11".repeat(32);
    for (name, rule) in [
        ("--checkpoint-digest", "CHECKPOINT_DIGEST_MISMATCH"),
        ("--manifest-digest", "MANIFEST_DIGEST_MISMATCH"),
        ("--validator-set-hash", "ERR_WS_VALIDATOR_SET_MISMATCH"),
    ] {
        for args in [&["verify", "snap"][..], &["restore", "snap", "--db", "none"]] {
            let args = [&["snapshot"], args, &[name, &wrong]].concat();
            let ran = place.run(&args);
            assert!(ran.code == 1 && ran.err.contains(rule), "{args:?}: {}", ran.err);
        }
    }
    let chunk = std::fs::read_dir(place.file("snap")).unwrap();
    let chunk = chunk.map(|entry| entry.unwrap().path()).find(|path| !path.ends_with("manifest"));
    let chunk = chunk.unwrap();
    let mut bytes = std::fs::read(&chunk).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&chunk, bytes).unwrap();
    for args in [&["verify", "snap"][..], &["restore", "snap", "--db", "none"]] {
        let ran = place.run(&[&["snapshot"], args].concat());
        assert!(ran.code == 1 && ran.err.contains("is damaged"), "{args:?}: {}", ran.err);
        assert_eq!(place.run(&["tip", "--db", "none"]).code, 1, "nothing has its name");
    }
    for dir in ["nowhere", "all", "new"] {
        let ran = place.run(&["snapshot", "verify", dir]);
        assert!(ran.code == 1 && ran.err.contains(dir), "{dir}: {}", ran.err);
        let ran = place.run(&["snapshot", "restore", dir, "--db", "none"]);
        assert_eq!(ran.code, 1, "{dir}");
    }
    for dir in ["all", "new"] {
        let ran = place.run(&["snapshot", "create", "--db", "db", dir]);
        assert_eq!(ran.code, 1, "{dir}: {}", ran.err);
    }
}

#[test]
fn proofs_hold_for_what_they_are_of_and_for_nothing_else() {
    let place = full();
    let root = place.run(&["state-root", "--db", "db"]).ok().text().trim().to_owned();
    let nobody = "00".repeat(32);
    let kinds: [&[&str]; 5] = [
        &["--object", VAULT],
        &["--version-of", VAULT],
        &["--param", "committee_n"],
        &["--object", &nobody],
        &["--key", "00ff"],
    ];
    for (at, which) in kinds.iter().enumerate() {
        let args = [&["prove", "--db", "db"], *which].concat();
        let facts = place.run(&[&args[..], &["--json"]].concat()).ok().json();
        assert_eq!(facts["root"], *root);
        let printed = place.run(&args).ok().text();
        let out = format!("proof{at}");
        let value = place.run(&[&args[..], &["--out", &out]].concat()).ok().text();
        assert_eq!(printed, format!("{}\n{value}", text(&facts["proof"])));
        std::fs::write(place.file("hex"), &printed).unwrap();
        let is_there = facts["value"].is_string();
        assert_eq!(is_there, at < 3);
        let key = text(&facts["key"]);
        let said = match facts["value"].as_str() {
            Some(value) => vec!["--value", value],
            None => vec!["--absent"],
        };
        let check = |root: &str, key: &str, said: &[&str], file: &str| {
            let args = [&["verify-proof", "--root", root, "--key", key, "--proof", file], said];
            place.run(&args.concat())
        };
        assert_eq!(check(&root, key, &said, &out).ok().text(), "OK\n");
        check(&root, key, &said, "hex").ok();
        let args = ["verify-proof", "--root", &root, "--key", key, "--proof", "-"];
        place.run_with(&[&args, &said[..]].concat(), printed.as_bytes()).ok();
        // In a small tree one proof can do for many keys that are not there, but for none that is.
        let other = if is_there { "00fe".to_owned() } else { misaka::hex(b"sys/params/p_grants") };
        let opposite = if is_there { vec!["--absent"] } else { vec!["--value", "00"] };
        for ran in [
            check(&nobody, key, &said, &out),
            check(&root, &other, &said, &out),
            check(&root, key, &opposite, &out),
            check(&root, key, &said, "trace"),
            check(&root, key, &said, "nothing"),
            check(&root, key, &said, "/dev/zero"),
            check(&root, key, &said, "."),
        ] {
            assert_eq!(ran.code, 1, "{which:?}: {}", ran.err);
            assert!(!ran.err.is_empty());
        }
        let taken = place.run(&[&["prove", "--db", "db"], *which, &["--out", &out]].concat());
        assert!(taken.code == 1 && taken.err.contains("choose another name"), "{}", taken.err);
    }
    // Without a tree there are none.
    let early = misaka_chain::place(&["--v2-at", "5000"]);
    early.run_with(&["apply", "--db", "db", "-"], &binary(&trace_checkpoints()[..1])).ok();
    let ran = early.run(&["prove", "--db", "db", "--param", "committee_n"]);
    assert!(ran.code == 1 && ran.err.contains("checkpoint 5000"), "{}", ran.err);
}

#[test]
fn what_is_refused_is_named_and_changes_nothing() {
    let place = place(MADE);
    let checkpoints = trace_checkpoints();
    std::fs::write(place.file("first"), binary(&checkpoints[..8])).unwrap();
    place.run(&["apply", "--db", "db", "first"]).ok();
    let before = all_dumps(&place, "db");
    let good = &checkpoints[8];
    let changed = |change: &dyn Fn(&mut misaka::Checkpoint)| {
        let mut checkpoint = good.clone();
        change(&mut checkpoint);
        checkpoint
    };
    let wrong = [
        ("CHECKPOINT_SEQ_NOT_NEXT", checkpoints[9].clone()),
        ("CHAIN_ID_MISMATCH", changed(&|wrong| wrong.header.chain_id += 1)),
        ("PREV_CHECKPOINT_DIGEST_MISMATCH", changed(&|wrong| wrong.header.prev_digest.0[0] ^= 1)),
        ("STATE_ROOT_MISMATCH", changed(&|wrong| wrong.header.state_root.0[0] ^= 1)),
        ("TX_COUNT_MISMATCH", changed(&|wrong| wrong.tx_digests.truncate(0))),
        ("ERR_TX_MERKLE_MISMATCH", changed(&|wrong| wrong.tx_digests[0].0[0] ^= 1)),
        ("VERSION_NOT_NEXT", changed(&|wrong| wrong.writes.push(wrong.writes[0].clone()))),
        ("TRUNCATED", changed(&|wrong| wrong.writes[0].truncate(40))),
        ("TRAILING_BYTES", changed(&|wrong| wrong.writes[0].push(0))),
        ("BAD_PARAM_NAME", changed(&|wrong| wrong.params.push((String::new(), vec![1])))),
    ];
    for (rule, checkpoint) in wrong {
        let checkpoint = [checkpoint];
        for bytes in [binary(&checkpoint), lines(&checkpoint).into_bytes()] {
            std::fs::write(place.file("wrong"), bytes).unwrap();
            let ran = place.run(&["apply", "--db", "db", "wrong"]);
            assert_eq!((ran.code, ran.text().as_str()), (1, ""), "{rule}");
            assert!(ran.err.contains(rule) && ran.err.contains("wrong"), "{rule}: {}", ran.err);
            assert!(ran.err.contains("hint: nothing of it was written"), "{}", ran.err);
        }
    }
    assert_eq!(all_dumps(&place, "db"), before);
    // Those before it stay, and the right one still follows.
    let mut bad = checkpoints[9].clone();
    bad.header.state_root.0[31] ^= 1;
    std::fs::write(place.file("some"), lines(&[good.clone(), bad])).unwrap();
    let ran = place.run(&["apply", "--db", "db", "first", "some"]);
    assert_eq!((ran.code, ran.text().lines().count()), (1, 1), "{}", ran.err);
    place.run(&["verify", "--db", "db"]).ok();
    // Another checkpoint with a number that was applied is of another chain.
    let mut other = good.clone();
    other.header.timestamp_ms += 1;
    for bytes in [binary(&[other.clone()]), binary(&[checkpoints[7].clone(), other])] {
        let ran = place.run_with(&["apply", "--db", "db", "-"], &bytes);
        assert!(ran.code == 1 && ran.err.contains("another one"), "{}", ran.err);
    }
    // What is not kept any more cannot be compared: then the file must go on.
    std::fs::write(place.file("rest"), binary(&checkpoints)).unwrap();
    place.run(&["apply", "--db", "db", "rest"]).ok();
    std::fs::write(place.file("old"), binary(&checkpoints[..3])).unwrap();
    let ran = place.run(&["apply", "--db", "db", "old"]);
    assert!(ran.code == 1 && ran.err.contains("not kept any more"), "{}", ran.err);
    place.run(&["apply", "--db", "db", "old", "rest"]).ok();
    assert_eq!(all_dumps(&place, "db"), wanted_dumps());
}

#[test]
fn wrong_arguments_are_told_from_failures() {
    let place = full();
    let long = "00".repeat(33);
    let wrong: Vec<Vec<&str>> = vec![
        vec![],
        vec!["nothing"],
        vec!["init"],
        vec!["init", "--db", "x", "--engine", "none"],
        vec!["init", "--db", "x", "--window", "0"],
        vec!["init", "--db", "x", "--event-retention", "0"],
        vec!["init", "--db", "x", "--chain-id", "4294967296"],
        vec!["init", "--db", "x", "--v2-at", "-1"],
        vec!["apply", "--db", "db"],
        vec!["apply", "trace"],
        vec!["apply", "--db", "db", "trace", "--memory", "2561M"],
        vec!["apply", "--db", "db", "trace", "--memory", "99999999999T"],
        vec!["apply", "--db", "db", "trace", "--threads", "0"],
        vec!["state-root", "--db", "db", "--v", "3"],
        vec!["object", "--db", "db"],
        vec!["object", "--db", "db", "00"],
        vec!["object", "--db", "db", &long],
        vec!["versions", "--db", "db", "zz"],
        vec!["checkpoint", "--db", "db", "-1"],
        vec!["events", "--db", "db", "263", "--tx", "4294967296"],
        vec!["params", "--db", "db", "committee_n", "--check"],
        vec!["prune", "--db", "db"],
        vec!["snapshot"],
        vec!["snapshot", "create", "--db", "db"],
        vec!["snapshot", "create", "snap"],
        vec!["snapshot", "verify", "snap", "--checkpoint-digest", "00"],
        vec!["prove", "--db", "db"],
        vec!["prove", "--db", "db", "--object", VAULT, "--param", "x"],
        vec!["prove", "--db", "db", "--param", "with space"],
        vec!["prove", "--db", "db", "--key", "0"],
        vec!["verify-proof", "--root", VAULT, "--key", "00", "--proof", "-"],
        vec![
            "verify-proof",
            "--root",
            VAULT,
            "--key",
            "00",
            "--proof",
            "-",
            "--absent",
            "--value",
            "00",
        ],
        vec!["dump", "--db", "db"],
        vec!["dump", "--db", "db", "--table", "state_tree"],
    ];
    for args in &wrong {
        let ran = place.run(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(!ran.err.is_empty(), "{args:?}");
    }
    assert_eq!(place.files(), ["db", "trace"]);
    // Nothing is there: that is no wrong usage.
    for args in [
        &["apply", "--db", "none", "trace"][..],
        &["apply", "--db", "trace", "trace"],
        &["tip", "--db", "none"],
        &["verify", "--db", "."],
        &["apply", "--db", "db", "none"],
        &["apply", "--db", "db", "."],
    ] {
        let ran = place.run(args);
        assert_eq!((ran.code, ran.text().as_str()), (1, ""), "{args:?}: {}", ran.err);
    }
    place.run(&[&["init", "--db", "db"], MADE].concat()).ok();
    let ran = place.run(&["init", "--db", "db", "--window", "7"]);
    assert!(ran.code == 1 && ran.err.contains("--window 6"), "{}", ran.err);
}

/// Applies a file, which must end with exit code 1 and these words.
#[track_caller]
fn fails(place: &Place, bytes: impl AsRef<[u8]>, words: &str) -> Ran {
    std::fs::write(place.file("file"), bytes).unwrap();
    let ran = place.run(&["apply", "--db", "db", "file"]);
    assert_eq!(ran.code, 1, "{words}: {}", ran.err);
    assert!(ran.err.contains(words), "{words}: {}", ran.err);
    ran
}

#[test]
fn json_that_is_no_checkpoint_is_refused() {
    let place = place(MADE);
    let checkpoints = trace_checkpoints();
    let one = lines(&checkpoints[..1]);
    let one = one.trim_end();
    let with = |old: &str, new: &str| {
        assert!(one.contains(old), "{old}");
        one.replacen(old, new, 1)
    };
    for cut in 1..60 {
        let cut = one.len() * cut / 60;
        fails(&place, &one[..cut], "line 1: ");
        fails(&place, format!("[{}", &one[..cut]), "line 1: ");
    }
    for (bytes, words) in [
        (with("\"seq\":250", "\"seq\":251"), "seq is 251, and 250 in the header"),
        (with("\"seq\":250", "\"seq\":18446744073709551616"), "not a checkpoint"),
        (with("\"seq\":250", "\"seq\":1e999"), "not a checkpoint"),
        (with("\"seq\":250", "\"seq\":-250"), "not a checkpoint"),
        (with("\"seq\":250", "\"seq\":\"250\""), "not a checkpoint"),
        (with("\"seq\":250", "\"seq\":250,\"seq\":250"), "duplicate"),
        (with("header_bytes_hex", "header"), "no header_bytes_hex"),
        (with("\"header_bytes_hex\":\"0100", "\"header_bytes_hex\":\"zz00"), "not hex: \"zz00"),
        (with("\"header_bytes_hex\":\"0100", "\"header_bytes_hex\":\"100"), "not hex"),
        (with("\"header_bytes_hex\":\"0100", "\"header_bytes_hex\":\"\\u00e9é"), "not hex"),
        (with("\",\"tx_digests", "00\",\"tx_digests"), "TRAILING_BYTES"),
        (with("\"header_bytes_hex\":\"0100", "\"header_bytes_hex\":\"0200"), "BAD_HEADER_CONST"),
        (with("\"tx_digests\":[\"", "\"tx_digests\":[\"00"), "64 hex digits"),
        (
            with(
                "\"events\":[",
                "\"events\":[{\"tx_index\":4294967296,\"event_index\":0,\"event_hex\":\"\"}",
            ),
            "not a checkpoint",
        ),
        (with("\"writes\":[", "\"writes\":[7,"), "not a checkpoint"),
        (format!("{{\"deep\":{}", "[".repeat(1 << 20)), "cut off"),
        (
            format!("{{\"seq\":{}1{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20)),
            "not a checkpoint",
        ),
        (format!("{{\"checkpoints\":[{one},{{}}]}}"), "no header_bytes_hex"),
        (format!("[{one} {one}]"), "no comma"),
        ("null".to_owned(), "not a checkpoint"),
        ("\u{feff}{}".to_owned(), "not a checkpoint"),
        ("{}".to_owned(), "no header_bytes_hex"),
    ] {
        fails(&place, bytes, words);
    }
    assert_eq!(
        place.run(&["tip", "--db", "db"]).ok().text(),
        "250 ".to_owned() + &checkpoints[0].header.digest().to_string() + "\n",
        "one in a list was good"
    );
    // A line that is cut off takes the next one with it, and those before it stay.
    let three = lines(&checkpoints[..3]);
    let (first, rest) = three.split_once('\n').unwrap();
    let (second, third) = rest.split_once('\n').unwrap();
    let ran = fails(
        &place,
        format!("{first}\n{}\n{third}", &second[..50]),
        "line 2: a text does not end",
    );
    assert_eq!(ran.text(), "");
    place.run_with(&["apply", "--db", "db", "-"], three.as_bytes()).ok();
}

#[test]
fn binary_files_that_lie_are_refused() {
    let place = place(MADE);
    let checkpoints = trace_checkpoints();
    let two = binary(&checkpoints[..2]);
    let frame = checkpoints[0].encode();
    fails(&place, b"M", "not a file of checkpoints");
    fails(&place, b"MSKFILE2", "not a file of checkpoints");
    fails(&place, [b"MSKFILE1", &frame[..]].concat(), "too long");
    for len in [u64::MAX, 1 << 63, (2 << 30) + 1] {
        let lie = [b"MSKFILE1", &len.to_le_bytes()[..], &frame].concat();
        fails(&place, lie, "too long");
    }
    // Room is made only for what comes.
    let lie = [b"MSKFILE1", &(2_u64 << 30).to_le_bytes()[..], &frame].concat();
    fails(&place, lie, "number 1 of it is cut off");
    let short = [b"MSKFILE1", &10_u64.to_le_bytes()[..], &frame].concat();
    fails(&place, short, "number 1 of it is wrong: ");
    fails(&place, [b"MSKFILE1", &[0; 8][..]].concat(), "TRUNCATED");
    let first = 16 + frame.len();
    for cut in [9, 15, 16, 17, first - 1] {
        fails(&place, &two[..cut], "number 1 of it is cut off");
    }
    place.run_with(&["apply", "--db", "db", "-"], &two[..8]).ok();
    let ran = fails(&place, &two[..two.len() - 1], "number 2 of it is cut off");
    assert_eq!(ran.text().lines().count(), 1, "the first one is whole");
    let mut odd = two.clone();
    odd[first + 8] ^= 1;
    fails(&place, odd, "BAD_FORMAT_VERSION");
    // Any byte of a checkpoint that is another one: it ends, and never with that in the database.
    for at in (16..first).step_by(7) {
        let mut odd = two[..first].to_vec();
        odd[at] ^= 0x10;
        std::fs::write(place.file("file"), &odd).unwrap();
        let ran = place.run(&["apply", "--db", "db", "file"]);
        // The first one was applied: a body that differs under the same header is not looked at.
        assert!(ran.code == 0 || ran.code == 1, "{at}: {}", ran.err);
        assert_eq!(ran.text(), "");
    }
    place.run_with(&["apply", "--db", "db", "-"], &two).ok();
    place.run(&["verify", "--db", "db"]).ok();
}

#[test]
fn input_that_never_ends_is_given_up() {
    let place = place(MADE);
    let ran = place.run(&["apply", "--db", "db", "/dev/zero"]);
    assert!(ran.code == 1 && ran.err.contains("line 1"), "{}", ran.err);
    let shell = |line: &str| -> Ran {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", line]).env("node", env!("CARGO_BIN_EXE_misaka-node"));
        shell.current_dir(place.path()).output().unwrap().into()
    };
    let ran = shell("yes | tr -d '\\n' | $node apply --db db -");
    assert!(ran.code == 1 && ran.err.contains("line 1"), "{}", ran.err);
    let ran = shell(
        "(printf '{\"seq\":\"'; head -c 60000000 /dev/zero | tr '\\0' 7) | $node apply --db db -",
    );
    assert!(ran.code == 1 && ran.err.contains("cut off"), "{}", ran.err);
    let ran = shell("(printf '{\"seq\":\"'; yes) | $node apply --db db -");
    assert!(ran.code == 1 && ran.err.contains("a text does not end"), "{}", ran.err);
    assert_eq!(place.run(&["tip", "--db", "db"]).ok().text(), "none\n");
}
