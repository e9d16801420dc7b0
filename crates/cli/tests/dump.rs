//! Dumps: what is loaded from one is equal to what was dumped, in every form, and nothing that is no dump does any harm.
//!
//! `KVB_SEED=n` replays a failing seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/run.rs"]
mod run;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use kvb::{Batch, Bucket, Compression, HashKind, Options, Reader};
use run::Place;
use seed::seed;

/// Key to value and deadline.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>)>;

fn rows(place: &Place, name: &str) -> Rows {
    let reader = Reader::open(place.file(name)).unwrap();
    let snapshot = reader.snapshot().unwrap();
    let rows = snapshot.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), (row.value().to_vec(), row.expires_unix_ns()))).collect()
}

fn now() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Bytes of every kind: empty, text, such as mean something in a dump, anything.
fn bytes(rng: &mut Rng, max: usize) -> Vec<u8> {
    match rng.u8(..6) {
        0 => Vec::new(),
        1 => b"#\\\t\n\r{}\" =:".iter().copied().cycle().take(rng.usize(..14)).collect(),
        2 => format!("# end {}", rng.u8(..)).into_bytes(),
        3 => format!("text {}", rng.u32(..)).into_bytes(),
        _ => (0..rng.usize(..=max)).map(|_| rng.u8(..)).collect(),
    }
}

fn fill(bucket: &Bucket, rng: &mut Rng, count: usize) {
    let mut batch = Batch::new();
    for _ in 0..count {
        let (key, value) = (bytes(rng, 40), bytes(rng, 300));
        match rng.u8(..4) {
            0 => batch.put_until(key, value, now() + rng.u64(1 << 40..1 << 60)),
            _ => batch.put(key, value),
        };
    }
    bucket.commit(batch).unwrap();
}

#[test]
fn what_is_loaded_is_what_was_dumped() {
    let mut rng = Rng::with_seed(seed("what_is_loaded_is_what_was_dumped"));
    for round in 0..12 {
        let place = Place::new();
        let options = Options::default()
            .page_size(if rng.bool() { 4096 } else { 16384 })
            .hash(if rng.bool() { HashKind::Xxh3 } else { HashKind::SipHash })
            .directories(rng.bool())
            .compression(if rng.bool() { Compression::Zstd } else { Compression::None });
        let bucket = Bucket::create(place.file("a.kvb"), options).unwrap();
        fill(&bucket, &mut rng, round * 40);
        bucket.close().unwrap();
        let wanted = rows(&place, "a.kvb");
        for form in ["text", "json", "mdb"] {
            let dumped = place.run(&["dump", "a.kvb", "--format", form]).ok();
            let copy = format!("{form}.kvb");
            place.run_with(&["load", &copy], &dumped.out).ok();
            let mut wanted = wanted.clone();
            if form == "mdb" {
                wanted.values_mut().for_each(|(_, until)| *until = None);
            } else {
                let settings =
                    |name: &str| place.run(&["info", name, "--json"]).json()["settings"].clone();
                let (from, to) = (settings("a.kvb"), settings(&copy));
                for name in [
                    "page_size",
                    "hash",
                    "compression",
                    "directories",
                    "journal_pages",
                    "max_value",
                ] {
                    assert_eq!(from[name], to[name], "{name}");
                }
                assert_eq!(place.run(&["dump", &copy, "--format", form]).ok().out, dumped.out);
            }
            assert_eq!(rows(&place, &copy), wanted, "{form}");
            assert_eq!(place.run(&["verify", &copy]).code, 0);
        }
        // What a scan prints can be loaded too.
        let scanned = place.run(&["scan", "a.kvb", "--json", "--limit", "0"]).ok();
        place.run_with(&["load", "scanned.kvb"], &scanned.out).ok();
        if !scanned.out.is_empty() {
            assert_eq!(rows(&place, "scanned.kvb"), wanted);
        }
    }
}

#[test]
fn lines_written_by_hand_are_rows() {
    let place = Place::new();
    let text = "# a remark\nalice\t100\n\n\\x23hash\ta\\tb\\\\\\n\r\nempty\t\n\tof the empty key\nutf8 ü\tö\n";
    place.run_with(&["load", "b.kvb"], text.as_bytes()).ok();
    let found: Vec<(Vec<u8>, Vec<u8>)> =
        rows(&place, "b.kvb").into_iter().map(|(key, (value, _))| (key, value)).collect();
    let row = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    let wanted = [
        row("", "of the empty key"),
        row("#hash", "a\tb\\\n"),
        row("alice", "100"),
        row("empty", ""),
        row("utf8 ü", "ö"),
    ];
    assert_eq!(found, wanted);
    place.run_with(&["load", "c.kvb"], b"").ok();
    assert!(rows(&place, "c.kvb").is_empty());
}

#[test]
fn rows_whose_time_is_over_are_left_out() {
    let place = Place::new();
    let text = format!("gone\t1\t{}\nthere\t2\t{}\n", now() - 1, now() + 3_600_000_000_000);
    let done = place.run_with(&["load", "b.kvb", "--json"], text.as_bytes()).ok().json();
    assert_eq!((&done["rows"], &done["expired"]), (&1.into(), &1.into()));
    assert_eq!(rows(&place, "b.kvb").keys().collect::<Vec<_>>(), [b"there"]);
}

#[test]
fn a_dump_cut_short_is_noticed() {
    let place = Place::new();
    let bucket = Bucket::create(place.file("a.kvb"), Options::default()).unwrap();
    fill(&bucket, &mut Rng::with_seed(5), 20);
    bucket.close().unwrap();
    for form in ["text", "json", "mdb"] {
        let whole = place.run(&["dump", "a.kvb", "--format", form]).ok().out;
        let ends: Vec<usize> = whole
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at + 1)
            .collect();
        // Cut behind every line but the last: nothing else shows that something is missing.
        for (index, end) in ends[..ends.len() - 1].iter().enumerate() {
            let copy = format!("{form}{index}.kvb");
            let ran = place.run_with(&["load", &copy], &whole[..*end]);
            assert_eq!(ran.code, 1, "{form}, {index} lines: {}", ran.err);
        }
    }
}

#[test]
fn what_follows_the_end_of_a_dump_is_not_lost_silently() {
    let place = Place::new();
    let bucket = Bucket::create(place.file("a.kvb"), Options::default()).unwrap();
    fill(&bucket, &mut Rng::with_seed(6), 20);
    bucket.close().unwrap();
    for form in ["text", "json", "mdb"] {
        let dump = place.run(&["dump", "a.kvb", "--format", form]).ok().out;
        let copy = format!("{form}.kvb");
        let ran = place.run_with(&["load", &copy], &[dump.clone(), dump.clone()].concat());
        assert_eq!(ran.code, 1, "{form}: {}", ran.err);
        assert!(ran.err.contains("line "), "{form}: {}", ran.err);
        assert_eq!(rows(&place, &copy).len(), rows(&place, "a.kvb").len(), "the first is loaded");
        place.run_with(&["load", &copy], &[dump, b"\n\n".to_vec()].concat()).ok();
    }
    // Only a dump has an end; else it is a remark.
    let text = b"a\t1\n# end of the first part\nb\t2\n# end 7\nc\t3\n";
    place.run_with(&["load", "hand.kvb"], text).ok();
    assert_eq!(rows(&place, "hand.kvb").len(), 3);
}

#[test]
fn rows_before_one_that_is_too_long_are_loaded() {
    let place = Place::new();
    let long = "x".repeat(65_536);
    for (name, line) in [("key.kvb", format!("{long}\t1\n")), ("value.kvb", format!("c\t{long}\n"))]
    {
        place.run(&["init", name, "--max-value", "1000"]).ok();
        let text = format!("a\t1\nb\t2\n{line}d\t4\n");
        let ran = place.run_with(&["load", name], text.as_bytes());
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("line 3: "), "{}", ran.err);
        assert!(ran.err.contains("2 rows were loaded"), "{}", ran.err);
        assert_eq!(rows(&place, name).len(), 2);
        let ran = place.run_with(&["load", name, "--atomic"], b"e\t1\nf\t");
        assert_eq!((ran.code, rows(&place, name).len()), (0, 4), "{}", ran.err);
    }
}

#[test]
fn the_first_row_may_be_long() {
    let place = Place::new();
    let (value, hex) = ("v".repeat(1 << 20), "76".repeat(1 << 20));
    let dumps = [
        format!("k\t{value}\nl\t2\n"),
        format!("{{\"key\":\"6b\",\"value\":\"{hex}\"}}\n{{\"key\":\"6c\",\"value\":\"32\"}}\n"),
        format!("VERSION=3\nHEADER=END\n 6b\n {hex}\n 6c\n 32\nDATA=END\n"),
        format!("l\t2\nk\t{value}"),
    ];
    for (index, dump) in dumps.iter().enumerate() {
        let name = format!("{index}.kvb");
        place.run_with(&["load", &name], dump.as_bytes()).ok();
        let found = rows(&place, &name);
        assert_eq!(found[&b"k"[..]].0, value.as_bytes());
        assert_eq!(found.len(), 2);
    }
    let ran = place.run_with(&["load", "no.kvb"], format!("# {value}\na\t1\n").as_bytes());
    assert_eq!(ran.code, 1, "{}", ran.err);
}

#[test]
fn nothing_that_is_no_dump_does_harm() {
    let mut rng = Rng::with_seed(seed("nothing_that_is_no_dump_does_harm"));
    let place = Place::new();
    let bucket = Bucket::create(place.file("a.kvb"), Options::default()).unwrap();
    fill(&bucket, &mut rng, 30);
    bucket.close().unwrap();
    let dumps: Vec<Vec<u8>> = ["text", "json", "mdb"]
        .iter()
        .map(|form| place.run(&["dump", "a.kvb", "--format", form]).ok().out)
        .collect();
    for round in 0..150 {
        let mut dump = dumps[round % 3].clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..dump.len());
            match rng.u8(..4) {
                0 => dump[at] = rng.u8(..),
                1 => drop(dump.drain(at..rng.usize(at..=dump.len()))),
                2 => dump.insert(at, [b'\n', b'\t', b'\\', b'"', b'{', 0, 255][rng.usize(..7)]),
                _ => {
                    let again = dump[at..rng.usize(at..=dump.len())].to_vec();
                    dump.splice(at..at, again);
                }
            }
            if dump.is_empty() {
                dump.push(b'x');
            }
        }
        let ran = place.run_with(&["load", "b.kvb"], &dump);
        assert!(matches!(ran.code, 0 | 1), "{} {}", ran.code, ran.err);
        assert!(ran.code == 0 || ran.err.starts_with("kvb: "), "{}", ran.err);
        if place.file("b.kvb").exists() {
            assert_eq!(place.run(&["verify", "b.kvb"]).code, 0);
        }
    }
    // Deep nesting, long numbers, endless lines.
    let deep = [b'['; 100_000].to_vec();
    let hostile: [Vec<u8>; 4] = [
        [b"{\"key\":".to_vec(), deep].concat(),
        b"{\"key\":\"\",\"value\":\"\",\"expires_at\":1e400}".to_vec(),
        b"a\tb\t99999999999999999999999999".to_vec(),
        [b"# kvb dump 1\n# max_value=16\n".to_vec(), vec![b'x'; 2 << 20]].concat(),
    ];
    for dump in hostile {
        let ran = place.run_with(&["load", "c.kvb"], &dump);
        assert_eq!(ran.code, 1, "{}", ran.err);
        assert!(!place.file("c.kvb").exists(), "nothing was loaded, so nothing is there");
    }
}

/// With LMDB's own programs, which are installed by `test.sh`.
#[test]
fn lmdb_reads_what_is_dumped_and_is_read() {
    let place = Place::new();
    let bucket = Bucket::create(place.file("a.kvb"), Options::default()).unwrap();
    let mut rng = Rng::with_seed(seed("lmdb_reads_what_is_dumped_and_is_read"));
    let mut batch = Batch::new();
    for _ in 0..300 {
        // LMDB has neither empty keys nor long ones, and some versions of mdb_dump -p do not escape backslashes.
        let key: Vec<u8> = (0..rng.usize(1..=400)).map(|_| rng.u8(..b'\\')).collect();
        let mut value = bytes(&mut rng, 3000);
        value.retain(|byte| *byte != b'\\');
        batch.put(key, value);
    }
    bucket.commit(batch).unwrap();
    bucket.close().unwrap();
    std::fs::write(place.file("dump"), place.run(&["dump", "a.kvb", "--format", "mdb"]).ok().out)
        .unwrap();
    std::fs::create_dir(place.file("lmdb")).unwrap();
    let lmdb = |program: &str, args: &[&str]| {
        let ran = Command::new(program).args(args).current_dir(place.path()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        ran.stdout
    };
    lmdb("mdb_load", &["-f", "dump", "lmdb"]);
    for (args, copy) in [(&["lmdb"][..], "b.kvb"), (&["-p", "lmdb"][..], "c.kvb")] {
        let dumped = lmdb("mdb_dump", args);
        place.run_with(&["load", copy], &dumped).ok();
        assert_eq!(rows(&place, copy), rows(&place, "a.kvb"));
    }
}
