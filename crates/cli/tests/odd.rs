//! Odd files, odd outputs, and input that never ends.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/run.rs"]
mod run;

use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kvb::{Bucket, Options, Reader};
use run::{Place, Ran};

/// A line of shell in which `kvb` is the program.
fn shell(place: &Place, line: &str) -> Ran {
    let line = format!("kvb() {{ {} \"$@\"; }}; {line}", env!("CARGO_BIN_EXE_kvb"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).current_dir(place.path()).env_remove("KVB_KEY").stdin(Stdio::null());
    shell.output().unwrap().into()
}

/// What it did, if it came to an end.
fn run_or_hang(place: &Place, args: &[&str]) -> Ran {
    let mut child = place.start(args);
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(20) {
            child.kill().unwrap();
            panic!("{args:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap().into()
}

#[test]
fn pipes_and_directories_are_no_buckets() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    assert!(shell(&place, "mkfifo pipe && mkdir directory").code == 0);
    for name in ["pipe", "directory"] {
        let commands: [&[&str]; 12] = [
            &["get", "-t", name, "a"],
            &["put", "-t", name, "a", "b"],
            &["scan", name],
            &["load", name, "/dev/null"],
            &["info", name],
            &["inspect", name, "0"],
            &["verify", name],
            &["repair", name],
            &["backup", name, "new.kvb"],
            &["restore", name, "--out", "new.kvb"],
            &["backup", "b.kvb", name, "--force"],
            &["rekey", "decrypt", name],
        ];
        for args in commands {
            let ran = run_or_hang(&place, args);
            assert_eq!(ran.code, 1, "{args:?}: {}", ran.err);
            assert!(ran.err.contains("not a regular file"), "{args:?}: {}", ran.err);
        }
    }
    let kind = std::fs::metadata(place.file("pipe")).unwrap().file_type();
    assert!(kind.is_fifo(), "a pipe is not replaced by a copy");
    assert_eq!(place.files(), ["b.kvb", "directory", "pipe"]);
}

#[test]
fn what_takes_the_place_of_a_linked_file_takes_its_place() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    place.run(&["put", "-t", "b.kvb", "alice", "100"]).ok();
    place.run(&["keygen", "key"]).ok();
    symlink("b.kvb", place.file("link")).unwrap();
    let is_link = || std::fs::symlink_metadata(place.file("link")).unwrap().is_symlink();
    place.run(&["rekey", "encrypt", "link", "--key-file", "key"]).ok();
    // The file that has the name is encrypted, and not a copy in the place of the link.
    assert!(is_link());
    assert!(matches!(Reader::open(place.file("b.kvb")), Err(kvb::Error::KeyMissing { .. })));
    place.run(&["rekey", "decrypt", "link", "--key-file", "key"]).ok();
    let file = std::fs::OpenOptions::new().write(true).open(place.file("b.kvb")).unwrap();
    std::os::unix::fs::FileExt::write_at(&file, b"XXXX", 40).unwrap();
    place.run(&["repair", "link", "--in-place", "--yes"]).ok();
    place.run(&["verify", "b.kvb"]).ok();
    place.run(&["init", "other.kvb"]).ok();
    place.run(&["backup", "other.kvb", "link", "--force"]).ok();
    assert!(is_link());
    assert_eq!(place.run(&["stats", "b.kvb", "--json"]).json()["keys"], 0);
    assert_eq!(place.files(), ["b.kvb", "key", "link", "other.kvb"]);
}

#[test]
fn words_that_nobody_can_hear_do_no_harm() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    std::fs::write(place.file("rows"), "a\t1\nb\t2\n").unwrap();
    for log in ["error", "trace"] {
        let lines = [
            ("load b.kvb rows", 0),
            ("get -t b.kvb nowhere", 1),
            ("scan b.kvb --limit 1", 0),
            ("compact b.kvb", 0),
            ("backup b.kvb copy.kvb --force", 0),
        ];
        for (line, code) in lines {
            let ran = shell(&place, &format!("RUST_LOG={log} kvb {line} 2> /dev/full"));
            assert_eq!(ran.code, code, "{line}");
        }
    }
    // Logs in a file have no colors.
    let ran = shell(&place, "RUST_LOG=debug kvb verify b.kvb");
    assert!(ran.err.contains("DEBUG") && !ran.err.contains('\x1b'), "{}", ran.err);
}

#[test]
fn what_never_ends_is_not_read_to_its_end() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    // So that a mistake here does not take all the memory there is.
    let within = "ulimit -v 4000000; ";
    for line in [
        "kvb get b.kvb /dev/zero",
        "kvb put b.kvb - value < /dev/zero",
        "kvb scan b.kvb --prefix /dev/zero",
        "kvb del b.kvb /dev/zero",
    ] {
        let ran = shell(&place, &format!("{within}{line}"));
        assert_eq!(ran.code, 1, "{line}: {}", ran.err);
        assert!(ran.err.contains("over the limit of 65535 bytes"), "{line}: {}", ran.err);
    }
    place.run(&["init", "small.kvb", "--max-value", "10"]).ok();
    let ran = shell(&place, "ulimit -v 1000000; kvb load small.kvb /dev/zero");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("line 1: no row of this bucket"), "{}", ran.err);
}

#[test]
fn what_is_ignored_takes_no_memory() {
    let place = Place::new();
    let mut line = b"{\"key\":\"61\",\"value\":\"62\",\"more\":[0".to_vec();
    line.extend(b",0".repeat(30 << 20));
    line.extend(b"]}\n");
    std::fs::write(place.file("rows"), line).unwrap();
    let ran = shell(&place, "ulimit -v 1000000; MALLOC_ARENA_MAX=2 kvb load b.kvb rows");
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert_eq!(place.run(&["get", "-t", "b.kvb", "a"]).ok().out, b"b");
}

/// A bucket used to reserve half of what address space there was, and what needed memory then found too little.
#[test]
fn a_limit_of_address_space_is_shared() {
    let place = Place::new();
    let row = |number: usize| format!("{number:08}\t{}\n", "x".repeat(16 << 10));
    std::fs::write(place.file("rows"), (0..12_000).map(row).collect::<String>()).unwrap();
    // The file is of about 200 MB in the end, and outgrows its mapping again and again.
    for line in ["kvb load b.kvb rows", "kvb verify b.kvb", "kvb compact --full b.kvb"] {
        let ran = shell(&place, &format!("ulimit -v 1200000; MALLOC_ARENA_MAX=2 {line}"));
        assert_eq!(ran.code, 0, "{line}: {}", ran.err);
    }
}

#[test]
fn a_pause_may_be_longer_than_any_clock_goes() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    for pause in ["18446744073709551615", "500000000000years"] {
        let mut watch = place.start(&["watch", "b.kvb", "--interval", pause]);
        std::thread::sleep(Duration::from_millis(300));
        assert!(watch.try_wait().unwrap().is_none(), "it ended");
        watch.kill().unwrap();
        watch.wait().unwrap();
    }
}

#[test]
fn damage_is_told_even_to_those_who_stop_reading() {
    let place = Place::new();
    let bucket = Bucket::create(place.file("b.kvb"), Options::default()).unwrap();
    let mut batch = kvb::Batch::new();
    for row in 0..2000 {
        batch.put(format!("row {row:06}"), format!("value {row:0100}"));
    }
    bucket.commit(batch).unwrap();
    bucket.close().unwrap();
    let mut file = std::fs::read(place.file("b.kvb")).unwrap();
    let starts: Vec<usize> =
        (0..file.len() - 10).filter(|at| file[*at..].starts_with(b"row 00")).collect();
    for at in starts.iter().step_by(2) {
        file[at + 20] ^= 1;
    }
    std::fs::write(place.file("b.kvb"), &file).unwrap();
    let repair = ["repair", "b.kvb", "--dry-run", "--json"];
    assert!(place.run(&repair).out.len() > 100_000, "more than a pipe takes at once");
    let mut child = place.start(&repair);
    drop(child.stdout.take());
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, 1, "{}", ran.err);
}

#[test]
fn half_a_key_is_not_left_behind() {
    let place = Place::new();
    // No file may have a byte, as on a disk that is full.
    let ran = shell(&place, "trap '' XFSZ; ulimit -f 0; kvb keygen key");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!(place.files(), Vec::<String>::new());
    for id in ["9223372036854775808", "-1", "x"] {
        assert_eq!(place.run(&["keygen", "key", "--id", id]).code, 2, "{id}");
    }
    place.run(&["keygen", "key", "--id", "5"]).ok();
    for id in ["6", "9223372036854775808"] {
        let ran = place.run(&["init", "b.kvb", "--encrypt", "--key-file", "key", "--key-id", id]);
        assert_eq!(ran.code, 2, "{}", ran.err);
    }
    assert_eq!(place.files(), ["key"]);
}

/// With every log there is, right keys and wrong ones, no command shows a key, whole or in part, in any form.
#[test]
fn no_key_is_ever_shown() {
    let place = Place::new();
    for name in ["one", "two", "three"] {
        place.run(&["keygen", name]).ok();
    }
    let digits: Vec<String> = ["one", "two", "three"]
        .map(|name| std::fs::read_to_string(place.file(name)).unwrap().trim().to_owned())
        .to_vec();
    let bytes = |digits: &str| -> Vec<u8> {
        let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(pair).collect()
    };
    std::fs::write(
        place.file("wrong"),
        digits[0].replace(|digit: char| digit.is_alphabetic(), "x"),
    )
    .unwrap();
    let with = |args: &'static str| -> Vec<&'static str> { args.split(' ').collect() };
    let commands = [
        "init b.kvb --encrypt --key-file one",
        "put -t b.kvb alice 100 --key-file one",
        "get -t b.kvb alice --key-file two",
        "get -t b.kvb alice --key-file wrong",
        "get -t b.kvb alice --key-file missing",
        "scan b.kvb --key-file one --json",
        "info b.kvb --key-file one --json",
        "inspect b.kvb superblock --key-file one",
        "verify b.kvb --key-file one",
        "verify b.kvb --key-file two",
        "backup b.kvb copy.kvb --key-file one",
        "rekey rotate b.kvb --key-file one --new-key-file two",
        "rekey rotate b.kvb --key-file three --new-key-file one",
        "get -t b.kvb alice --key-file two",
        "repair copy.kvb --out again.kvb --key-file one",
        "repair copy.kvb --out more.kvb --key-file three",
        "rekey decrypt b.kvb --key-file two",
        "compact b.kvb",
    ];
    let mut logged = 0;
    for command in commands {
        let output = place.command(&with(command)).env("RUST_LOG", "trace").output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        logged += said.len();
        let text = String::from_utf8_lossy(&said).to_lowercase();
        for key in &digits {
            let numbers: Vec<String> = bytes(key)[..6].iter().map(u8::to_string).collect();
            for shown in [key[..12].to_owned(), key[52..].to_owned(), numbers.join(", ")] {
                assert!(!text.contains(&shown), "{command} shows a key: {text}");
            }
        }
        let has = |part: &[u8]| said.windows(part.len()).any(|window| window == part);
        assert!(digits.iter().all(|key| !has(&bytes(key)[..8])), "{command} shows a key");
    }
    assert!(logged > 2000, "nothing was logged: {logged} bytes");
}

#[cfg(unix)]
#[test]
fn a_key_file_that_others_can_read_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.run(&["keygen", "key"]).ok();
    place.run(&["init", "b.kvb", "--encrypt", "--key-file", "key"]).ok();
    for (mode, is_told) in [(0o600, false), (0o640, true), (0o604, true), (0o400, false)] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(place.file("key"), mode).unwrap();
        let ran = place.run(&["stats", "b.kvb", "--key-file", "key"]).ok();
        assert_eq!(ran.err.contains("others may read the key file"), is_told, "{}", ran.err);
        let ran = place.run(&["stats", "b.kvb", "--key-file", "key", "--quiet"]).ok();
        assert_eq!(ran.err, "");
    }
}

#[test]
fn what_cannot_be_seen_is_shown_as_hex() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    for hidden in
        ['\u{1b}', '\u{61c}', '\u{202e}', '\u{3164}', '\u{fff9}', '\u{e0041}', '\u{f0000}']
    {
        let key = format!("a{hidden}b");
        place.run(&["put", "-t", "b.kvb", &key, "ü"]).ok();
        let shown = place.run(&["scan", "-t", "b.kvb", "--prefix", &key]).ok().text();
        assert!(shown.starts_with("0x61") && shown.ends_with("\tü\n"), "{shown:?}");
    }
}

#[test]
fn an_increment_can_be_looked_at() {
    let place = Place::new();
    place.run(&["init", "b.kvb"]).ok();
    // Since a backup of nothing, everything is new.
    place.run(&["put", "-t", "b.kvb", "first", "row"]).ok();
    place.run(&["backup", "b.kvb", "monday.kvb"]).ok();
    place.run(&["put", "-t", "b.kvb", "alice", "100"]).ok();
    place.run(&["backup", "b.kvb", "tuesday.kvb", "--since", "monday.kvb"]).ok();
    let is_increment =
        |name: &str| place.run(&["info", name, "--json"]).ok().json()["is_increment"].clone();
    assert_eq!(
        (is_increment("monday.kvb"), is_increment("tuesday.kvb")),
        (false.into(), true.into())
    );
    assert_eq!(place.run(&["put", "-t", "tuesday.kvb", "bob", "1"]).code, 1);
}
