//! The command among other processes: signals, locks, terminals, pipes.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/run.rs"]
mod run;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kvb::{Batch, Bucket, Durability, Options, Reader};
use run::{Place, Ran};

/// Makes a bucket with so many rows.
fn fill(place: &Place, name: &str, rows: u32) {
    let options = Options::default().durability(Durability::Relaxed);
    let bucket = Bucket::create(place.file(name), options).unwrap();
    for first in (0..rows).step_by(10_000) {
        let mut batch = Batch::new();
        for row in first..(first + 10_000).min(rows) {
            batch.put(format!("row {row:09}"), format!("value {row:0100}"));
        }
        bucket.commit(batch).unwrap();
    }
    bucket.close().unwrap();
}

fn signal(child: &Child, signal: &str) {
    // The shell has it built in; not every system has a program for it.
    let line = format!("kill {signal} {}", child.id());
    let _ = Command::new("sh").args(["-c", &line]).stderr(Stdio::null()).status().unwrap();
}

fn ended(child: Child) -> Ran {
    child.wait_with_output().unwrap().into()
}

fn rows(place: &Place, name: &str) -> usize {
    let reader = Reader::open(place.file(name)).unwrap();
    let snapshot = reader.snapshot().unwrap();
    snapshot.scan(b"").filter(|row| row.is_ok()).count()
}

/// Runs a command in a terminal, with answers to its questions.
fn in_terminal(place: &Place, answers: &[(&str, &str)], args: &[&str]) -> (i32, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/terminal.py");
    let ran = Command::new("python3")
        .arg(script)
        .arg(serde_json::to_string(answers).unwrap())
        .arg(env!("CARGO_BIN_EXE_kvb"))
        .args(args)
        .current_dir(place.path())
        .env_remove("KVB_KEY")
        .env_remove("NO_COLOR")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(!shown.contains("panicked"), "{shown}");
    (ran.status.code().unwrap(), shown)
}

#[test]
fn whoever_finds_it_locked_is_told_by_whom() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    place.run(&["put", "-t", "b.kvb", "seen", "value"]).ok();
    let mut writer = place.command(&["load", "b.kvb"]).stdin(Stdio::piped()).spawn().unwrap();
    writer.stdin.as_mut().unwrap().write_all(b"a\t1\n").unwrap();
    let holder = format!("process {} (kvb)", writer.id());
    let writes: [&[&str]; 6] = [
        &["put", "-t", "b.kvb", "x", "y"],
        &["del", "-t", "b.kvb", "seen"],
        &["load", "b.kvb", "/dev/null"],
        &["compact", "b.kvb"],
        &["train", "b.kvb"],
        &["repair", "b.kvb"],
    ];
    let start = Instant::now();
    let has_writer = || place.run(&["info", "b.kvb", "--json"]).json()["has_writer"] == true;
    while !has_writer() {
        assert!(start.elapsed() < Duration::from_secs(60), "the writer does not open the bucket");
    }
    for args in writes {
        let ran = place.run(args);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains(&holder), "{args:?}: {}", ran.err);
    }
    let reads: [&[&str]; 10] = [
        &["get", "-t", "b.kvb", "seen"],
        &["exists", "-t", "b.kvb", "seen"],
        &["scan", "b.kvb"],
        &["dump", "b.kvb"],
        &["stats", "b.kvb"],
        &["info", "b.kvb"],
        &["inspect", "b.kvb", "0"],
        &["verify", "b.kvb"],
        &["backup", "b.kvb", "copy.kvb"],
        &["watch", "b.kvb", "--count", "1", "--interval", "10ms"],
    ];
    for args in reads {
        place.run(args).ok();
    }
    assert!(has_writer());
    drop(writer.stdin.take());
    ended(writer).ok();
    assert!(!has_writer());
}

#[test]
fn a_load_that_is_interrupted_keeps_what_it_has() {
    let place = Place::new();
    let mut load = place.command(&["load", "b.kvb"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = load.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        for row in 0_u64.. {
            if writeln!(stdin, "row {row:012}\t{row:0100}").is_err() {
                return;
            }
        }
    });
    let start = Instant::now();
    while Reader::open(place.file("b.kvb")).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    std::thread::sleep(Duration::from_millis(300));
    signal(&load, "-INT");
    let ran = ended(load);
    assert_eq!(ran.code, 130, "{}", ran.err);
    feeder.join().unwrap();
    let count = rows(&place, "b.kvb");
    let digits: String = ran.err.chars().filter(char::is_ascii_digit).collect();
    assert_eq!(digits, count.to_string(), "{}", ran.err);
    assert!(count > 0);
    place.run(&["verify", "b.kvb"]).ok();
}

#[test]
fn a_load_that_waits_for_input_can_be_interrupted() {
    let place = Place::new();
    let mut load = place.command(&["load", "b.kvb"]).stdin(Stdio::piped()).spawn().unwrap();
    load.stdin.as_mut().unwrap().write_all(b"a\t1\n").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    let stdin = load.stdin.take();
    signal(&load, "-INT");
    let ran = ended(load);
    drop(stdin);
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn whatever_is_interrupted_leaves_valid_buckets() {
    let place = Place::new();
    fill(&place, "b.kvb", 150_000);
    place.run(&["backup", "b.kvb", "backup.kvb"]).ok();
    place.run(&["put", "-t", "b.kvb", "new", "row"]).ok();
    let key = "0123456789abcdef".repeat(4);
    std::fs::write(place.file("key"), &key).unwrap();
    std::fs::copy(place.file("b.kvb"), place.file("damaged")).unwrap();
    // A record near the end of the first segment.
    let at = place.run(&["inspect", "-t", "damaged", "--key", "row 000000100", "--json"]).json();
    let at = at["at"].as_u64().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(place.file("damaged")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"XXXX", at + 60).unwrap();
    let tasks: [(&[&str], &str); 7] = [
        (&["backup", "b.kvb", "new.kvb"], "b.kvb"),
        (&["restore", "backup.kvb", "--out", "new.kvb"], "backup.kvb"),
        (&["verify", "b.kvb"], "b.kvb"),
        (&["dump", "b.kvb", "--out", "new.kvb"], "b.kvb"),
        (&["repair", "damaged", "--out", "new.kvb"], "b.kvb"),
        (&["compact", "b.kvb", "--full"], "b.kvb"),
        (&["rekey", "encrypt", "b.kvb", "--key-file", "key"], "b.kvb"),
    ];
    let count = rows(&place, "b.kvb");
    let mut interrupted = 0;
    for (args, source) in tasks {
        for delay in [10, 60, 150] {
            let before = place.files();
            let child = place.start(args);
            std::thread::sleep(Duration::from_millis(delay));
            signal(&child, "-INT");
            let ran = ended(child);
            if ran.code == 130 || ran.code == -1 {
                // Before the handler is there, a signal just ends the process.
                interrupted += 1;
                assert_eq!(place.files(), before, "{args:?}: {}", ran.err);
            }
            let _ = std::fs::remove_file(place.file("new.kvb"));
            if args[0] == "rekey" && ran.code == 0 {
                place.run(&["rekey", "decrypt", "b.kvb", "--key-file", "key"]).ok();
            }
            let found = place.run(&["verify", source]);
            assert_eq!(found.code, 0, "{args:?}: {}", found.text());
        }
    }
    assert_eq!(rows(&place, "b.kvb"), count);
    assert!(interrupted >= 5, "only {interrupted} were slow enough");
}

#[test]
fn the_tour_cleans_up_when_it_is_interrupted() {
    let place = Place::new();
    let child = place.command(&["demo"]).env("TMPDIR", place.path()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(400));
    signal(&child, "-INT");
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn a_terminal_shows_how_far_it_has_come() {
    let place = Place::new();
    // Until it takes longer than the first look at how far it is.
    for rows in [400_000, 1_600_000, 6_400_000] {
        let text: String =
            (0..rows).map(|row| format!("row {row:09}\tvalue {row:0100}\n")).collect();
        std::fs::write(place.file("rows.txt"), text).unwrap();
        let _ = std::fs::remove_file(place.file("b.kvb"));
        let (code, shown) = in_terminal(&place, &[], &["load", "b.kvb", "rows.txt"]);
        assert_eq!(code, 0, "{shown}");
        assert!(shown.contains("loading") && shown.contains("00,000 rows in"), "{shown}");
        if shown.contains("MiB/s") && shown.contains(" left") {
            break;
        }
        assert!(rows < 6_400_000, "a rate and an estimate: {shown}");
    }
    let (code, shown) = in_terminal(&place, &[], &["load", "-q", "b.kvb", "rows.txt"]);
    assert_eq!((code, shown.as_str()), (0, ""));
    let (code, shown) = in_terminal(&place, &[], &["verify", "b.kvb"]);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.contains("segments"), "{shown}");
    // Without a terminal nothing of that is written.
    let ran = place.run(&["load", "c.kvb", "rows.txt"]).ok();
    assert!(!ran.err.contains("MiB/s"), "{}", ran.err);
}

#[test]
fn a_map_has_colors_only_where_they_are_wanted() {
    let place = Place::new();
    fill(&place, "b.kvb", 100);
    let (_, shown) = in_terminal(&place, &[], &["info", "b.kvb"]);
    assert!(shown.contains("\x1b[32m@"), "{shown}");
    assert!(!place.run(&["info", "b.kvb"]).text().contains('\x1b'));
    let script = format!("NO_COLOR=1 {} info b.kvb", env!("CARGO_BIN_EXE_kvb"));
    let ran = Command::new("python3")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/terminal.py"))
        .args(["[]", "sh", "-c", &script])
        .current_dir(place.path())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(shown.contains('@') && !shown.contains("\x1b["), "{shown}");
}

#[test]
fn passphrases_are_asked_for_and_never_shown() {
    let place = Place::new();
    let phrase = "correct horse";
    let (code, shown) = in_terminal(
        &place,
        &[("New passphrase", phrase), ("again", phrase)],
        &["init", "b.kvb", "--encrypt"],
    );
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains(phrase), "{shown}");
    let put = ["put", "-t", "b.kvb", "alice", "100"];
    let (code, shown) = in_terminal(&place, &[("Passphrase of b.kvb", phrase)], &put);
    assert_eq!(code, 0, "{shown}");
    let get = ["get", "-t", "b.kvb", "alice"];
    let (code, shown) = in_terminal(&place, &[("Passphrase", phrase)], &get);
    assert_eq!(code, 0, "{shown}");
    assert!(shown.ends_with("100"), "{shown}");
    let (code, shown) = in_terminal(&place, &[("Passphrase", "wrong horse")], &get);
    assert_eq!(code, 1, "{shown}");
    assert!(shown.contains("is not the one"), "{shown}");
    let ran = place.run(&get);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("terminal"), "{}", ran.err);
    // To a key, and back to another passphrase.
    place.run(&["keygen", "key"]).ok();
    let rotate = ["rekey", "rotate", "b.kvb", "--new-key-file", "key"];
    let (code, shown) = in_terminal(&place, &[("Passphrase", phrase)], &rotate);
    assert_eq!(code, 0, "{shown}");
    assert_eq!(place.run(&["get", "-t", "b.kvb", "alice", "--key-file", "key"]).ok().out, b"100");
    let digits = std::fs::read_to_string(place.file("key")).unwrap();
    let (code, shown) = in_terminal(&place, &[("Key 1 of b.kvb", digits.trim())], &get);
    assert_eq!(code, 0, "{shown}");
    assert!(!shown.contains(digits.trim()), "{shown}");
    let (code, shown) = in_terminal(
        &place,
        &[("New passphrase", "a"), ("again", "b")],
        &["rekey", "rotate", "b.kvb", "--key-file", "key"],
    );
    assert_eq!(code, 2, "{shown}");
    assert!(shown.contains("differ"), "{shown}");
    let (code, shown) =
        in_terminal(&place, &[("New passphrase", "")], &["init", "c.kvb", "--encrypt"]);
    assert_eq!(code, 2, "{shown}");
    assert!(shown.contains("empty") && !place.file("c.kvb").exists(), "{shown}");
}

#[test]
fn one_passphrase_takes_the_place_of_another() {
    let place = Place::new();
    let init = ["init", "b.kvb", "--encrypt"];
    let (code, shown) = in_terminal(&place, &[("New passphrase", "one"), ("again", "one")], &init);
    assert_eq!(code, 0, "{shown}");
    let rotate = [("Passphrase of", "one"), ("New passphrase", "two"), ("again", "two")];
    let (code, shown) = in_terminal(&place, &rotate, &["rekey", "rotate", "b.kvb"]);
    assert_eq!(code, 0, "{shown}");
    // Each is asked for once, however often the bucket is opened.
    let put = ["put", "-t", "b.kvb", "alice", "100"];
    let commands: [&[&str]; 4] = [
        &put,
        &["compact", "b.kvb", "--full"],
        &["inspect", "-t", "b.kvb", "--key", "alice"],
        &["get", "-t", "b.kvb", "alice"],
    ];
    for args in commands {
        let (code, shown) = in_terminal(&place, &[("Passphrase of", "two")], args);
        assert_eq!(code, 0, "{args:?}: {shown}");
        let (code, shown) = in_terminal(&place, &[("Passphrase of", "one")], args);
        assert_eq!(code, 1, "{args:?}: {shown}");
    }
    let ran = place.run(&put);
    assert!(ran.err.contains("under a passphrase"), "{}", ran.err);
}

#[test]
fn a_rotation_that_did_not_get_to_its_end_is_run_again() {
    let place = Place::new();
    place.run(&["keygen", "key1"]).ok();
    place.run(&["keygen", "key2"]).ok();
    place.run(&["init", "b.kvb", "--encrypt", "--key-file", "key1"]).ok();
    place.run(&["put", "-t", "b.kvb", "alice", "100", "--key-file", "key1"]).ok();
    let digits = std::fs::read_to_string(place.file("key1")).unwrap();
    let key: Vec<u8> = kvb_hex(&format!("0x{}", digits.trim()));
    let keys = kvb::Keyring::new().with(1, kvb::Key::new(key.try_into().unwrap()));
    let reader = Reader::open_with(place.file("b.kvb"), Options::default().keys(keys)).unwrap();
    // Somebody who still reads what is under the old key.
    let snapshot = reader.snapshot().unwrap();
    let rotate =
        ["rekey", "rotate", "b.kvb", "--key-file", "key1", "--new-key-file", "key2", "--json"];
    let ran = place.run(&rotate);
    assert_eq!((ran.code, &ran.json()["complete"]), (1, &false.into()), "{}", ran.err);
    for key in ["key1", "key2"] {
        assert_eq!(place.run(&["get", "-t", "b.kvb", "alice", "--key-file", key]).code, 1);
    }
    drop(snapshot);
    drop(reader);
    let begun = std::fs::read(place.file("b.kvb")).unwrap();
    let both = ["key1", "key2"].map(|name| std::fs::read_to_string(place.file(name)).unwrap());
    std::fs::write(place.file("both"), format!("1:{}2:{}", both[0], both[1])).unwrap();
    let ways: [&[&str]; 4] = [
        &["--key-file", "key1", "--new-key-file", "key2"],
        &["--key-file", "key1", "--new-key-file", "key2", "--new-key-id", "2"],
        &["--key-file", "both"],
        &["--key-file", "both", "--new-key-file", "key2"],
    ];
    for args in ways {
        std::fs::write(place.file("b.kvb"), &begun).unwrap();
        let done = place.run(&[&["rekey", "rotate", "b.kvb", "--json"], args].concat()).ok().json();
        assert_eq!((&done["key_id"], &done["complete"]), (&"2".into(), &true.into()), "{args:?}");
        let get = ["get", "-t", "b.kvb", "alice", "--key-file", "key2"];
        assert_eq!(place.run(&get).ok().out, b"100");
    }
    // Another key has to wait.
    std::fs::write(place.file("b.kvb"), &begun).unwrap();
    place.run(&["keygen", "key3"]).ok();
    let other = ["rekey", "rotate", "b.kvb", "--key-file", "both", "--new-key-file", "key3"];
    let ran = place.run(&other);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("rotate to that one first"), "{}", ran.err);
}

#[test]
fn a_key_that_is_there_is_used_or_refused() {
    let place = Place::new();
    std::fs::write(place.file("rows"), "a\t1\n").unwrap();
    let key = "5a".repeat(32);
    let with_key = |args: &[&str]| -> Ran {
        let mut command = place.command(args);
        command.env("KVB_KEY", &key).env("TMPDIR", place.path()).output().unwrap().into()
    };
    // Whoever has set a key must not find his rows in the clear.
    for args in [&["init", "b.kvb"][..], &["load", "b.kvb", "rows"]] {
        let ran = with_key(args);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains("--encrypt"), "{}", ran.err);
        assert!(!place.file("b.kvb").exists());
    }
    with_key(&["load", "b.kvb", "rows", "--encrypt"]).ok();
    place.run(&["init", "plain.kvb"]).ok();
    let ran = place.run(&["load", "plain.kvb", "rows", "--encrypt"]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(rows(&place, "plain.kvb"), 0);
    // The tour has nothing to do with it.
    with_key(&["demo", "--keys", "1000"]).ok();
}

#[test]
fn a_bucket_that_was_not_made_is_not_there() {
    let place = Place::new();
    let child = place.start(&["init", "b.kvb", "--index-mb", "4096"]);
    let start = Instant::now();
    while !place.file("b.kvb").exists() {
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    signal(&child, "-INT");
    let ran = ended(child);
    assert_eq!(ran.code, 130, "{}", ran.err);
    assert_eq!(place.files(), Vec::<String>::new());
}

#[test]
fn keys_come_from_the_environment_too() {
    let place = Place::new();
    place.run(&["keygen", "key", "--id", "7"]).ok();
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(place.file("key")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    let line = std::fs::read_to_string(place.file("key")).unwrap();
    let with = |args: &[&str], key: &str| -> Ran {
        place.command(args).env("KVB_KEY", key).output().unwrap().into()
    };
    with(&["init", "b.kvb", "--encrypt"], &line).ok();
    with(&["put", "-t", "b.kvb", "alice", "100"], &line).ok();
    assert_eq!(with(&["info", "b.kvb", "--json"], &line).ok().json()["settings"]["key_id"], "7");
    // Bare digits are for any id, and 32 bytes in a file are too.
    let digits = line.trim().trim_start_matches("7:");
    assert_eq!(with(&["get", "-t", "b.kvb", "alice"], digits).ok().out, b"100");
    let raw: Vec<u8> =
        (0..32).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    std::fs::write(place.file("raw"), raw).unwrap();
    let get = ["get", "-t", "b.kvb", "alice", "--key-file", "raw"];
    assert_eq!(place.run(&get).ok().out, b"100");
    let several = format!("# keys\n1:{}\n{line}", "00".repeat(32));
    assert_eq!(with(&["get", "-t", "b.kvb", "alice"], &several).ok().out, b"100");
    let other = format!("1:{digits}");
    assert_eq!(with(&["get", "-t", "b.kvb", "alice"], &other).code, 1);
    assert_eq!(with(&["get", "-t", "b.kvb", "alice"], "7:short").code, 2);
}

#[test]
fn repairing_in_place_asks_first() {
    let place = Place::new();
    fill(&place, "b.kvb", 50);
    let damage = || {
        let file = std::fs::OpenOptions::new().write(true).open(place.file("b.kvb")).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, b"XXXX", 40).unwrap();
        std::fs::read(place.file("b.kvb")).unwrap()
    };
    let before = damage();
    let repair = ["repair", "b.kvb", "--in-place"];
    let (code, shown) = in_terminal(&place, &[("[y/N]", "n")], &repair);
    assert_eq!(code, 2, "{shown}");
    assert_eq!(std::fs::read(place.file("b.kvb")).unwrap(), before);
    let (code, shown) = in_terminal(&place, &[("[y/N]", "y")], &repair);
    assert_eq!(code, 0, "{shown}");
    place.run(&["verify", "b.kvb"]).ok();
    damage();
    place.run(&["repair", "b.kvb", "--in-place", "--yes"]).ok();
    place.run(&["verify", "b.kvb"]).ok();
    assert_eq!(rows(&place, "b.kvb"), 50);
}

#[test]
fn watching_shows_what_another_process_writes() {
    let place = Place::new();
    let bucket = Bucket::create(place.file("b.kvb"), Options::default()).unwrap();
    let mut watch = place.start(&["watch", "b.kvb", "--interval", "100ms", "--json"]);
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["keys"], 0);
    for row in 0..500 {
        bucket.put(format!("row {row}"), b"value").unwrap();
    }
    let start = Instant::now();
    loop {
        let facts = next();
        assert_eq!(facts["has_writer"], true);
        if facts["keys"] == 500 && facts["records_per_second"] == 0 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{facts}");
    }
    signal(&watch, "-INT");
    assert!(watch.wait().unwrap().success(), "that is how watching ends");
    drop(bucket);
}

#[test]
fn whoever_reads_may_stop_reading() {
    let place = Place::new();
    fill(&place, "b.kvb", 50_000);
    for command in
        [&["scan", "b.kvb", "--limit", "0"][..], &["dump", "b.kvb"], &["dump", "b.kvb", "--json"]]
    {
        let mut child = place.start(command);
        let mut some = [0; 100];
        child.stdout.take().unwrap().read_exact(&mut some).unwrap();
        let ran = ended(child);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{command:?}");
    }
}

#[test]
fn values_of_any_bytes_and_any_length_come_back() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    let all: Vec<u8> = (0..=255).collect();
    let long = vec![b'x'; 3 << 20];
    for (key, value) in
        [("0x", &b"of the empty key"[..]), ("0x00", &[]), ("0xFFff", &all), ("0x10", &long)]
    {
        place.run_with(&["put", "b.kvb", key, "-"], value).ok();
        assert_eq!(place.run(&["get", "b.kvb", key]).ok().out, value);
        std::fs::write(place.file("key"), kvb_hex(key)).unwrap();
        assert_eq!(place.run(&["get", "b.kvb", "key"]).ok().out, value);
        assert_eq!(place.run_with(&["get", "b.kvb", "-"], &kvb_hex(key)).ok().out, value);
    }
    // With --text nothing but the word counts.
    place.run(&["put", "-t", "b.kvb", "0x41", "0x42"]).ok();
    assert_eq!(place.run(&["get", "-t", "b.kvb", "0x41"]).ok().out, b"0x42");
    assert_eq!(place.run(&["get", "b.kvb", "0x41"]).code, 1);
    assert!(
        place
            .run(&["scan", "-t", "b.kvb", "--prefix", "0x4"])
            .ok()
            .text()
            .starts_with("0x30783431\t")
    );
}

fn kvb_hex(key: &str) -> Vec<u8> {
    let digits = &key.as_bytes()[2..];
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn what_is_made_of_a_private_bucket_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    fill(&place, "b.kvb", 20);
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(place.file("b.kvb"), private).unwrap();
    let mode =
        |name: &str| std::fs::metadata(place.file(name)).unwrap().permissions().mode() & 0o777;
    place.run(&["backup", "b.kvb", "copy.kvb"]).ok();
    place.run(&["restore", "copy.kvb", "--out", "again.kvb"]).ok();
    place.run(&["dump", "b.kvb", "--out", "rows.txt"]).ok();
    place.run(&["keygen", "key"]).ok();
    place.run(&["rekey", "encrypt", "b.kvb", "--key-file", "key"]).ok();
    assert_eq!(mode("b.kvb"), 0o600);
    place.run(&["rekey", "decrypt", "b.kvb", "--key-file", "key"]).ok();
    let file = std::fs::OpenOptions::new().write(true).open(place.file("b.kvb")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"XXXX", 40).unwrap();
    place.run(&["repair", "b.kvb", "--out", "saved.kvb"]).ok();
    place.run(&["repair", "b.kvb", "--in-place", "--yes"]).ok();
    for name in ["b.kvb", "copy.kvb", "again.kvb", "rows.txt", "saved.kvb"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    place.run(&["init", "usual.kvb"]).ok();
    assert_eq!(mode("usual.kvb"), 0o644);
}
