//! The targets of kvb, and whether what was measured meets them.

use std::fmt::Write;

use crate::document::count;
use crate::measure;
use crate::report::{best_peer, short, times};
use crate::results::Set;

/// What kvb is to reach.
struct Target {
    work: &'static str,
    /// The target in words.
    goal: &'static str,
    /// Where it is looked at: a row each.
    suites: &'static [&'static str],
    /// `kvb` or `kvb-sync`.
    engine: &'static str,
    tests: &'static [Test],
}

/// What can be compared.
enum Test {
    /// The measure is at least so many times as good as that of each of these engines. If none is
    /// named: as that of the best peer.
    Times(&'static str, &'static [&'static str], f64),
    /// The first measure divided by the second, both ours, is at least so much.
    Least(&'static str, &'static str, f64),
    /// The same, at most so much.
    Most(&'static str, &'static str, f64),
    /// The measure is at most so much.
    AtMost(&'static str, f64),
    /// The first measure is at most three times the second and once the third.
    Tail(&'static str, &'static str, &'static str),
    /// The measure, in megabytes, is at most 20 bytes a key and 16 MiB.
    Memory(&'static str),
}

/// What a test found.
struct Verdict {
    /// Of what.
    title: String,
    text: String,
    is_met: bool,
}

const PEERS: &[&str] = &[];
const SMALL_LARGE: &[&str] = &["small", "large"];

const MEMORY_PER_KEY: f64 = 20.0;
const MEMORY_BASE: f64 = (16 << 20) as f64;
const TAIL_TIMES: f64 = 3.0;

const TARGETS: &[Target] = &[
    Target {
        work: "block apply, SyncOnce",
        goal: "3 of every peer, 4 of rocksdb and fjall, 0.75 of the floor",
        suites: SMALL_LARGE,
        engine: "kvb",
        tests: &[
            Test::Times("block_per_s", PEERS, 3.0),
            Test::Times("block_per_s", &["rocksdb", "fjall"], 4.0),
            Test::Times("block_per_s", &["floor"], 0.75),
        ],
    },
    Target {
        work: "block apply, Sync",
        goal: "1.5 of every peer",
        suites: SMALL_LARGE,
        engine: "kvb-sync",
        tests: &[Test::Times("block_per_s", PEERS, 1.5)],
    },
    Target {
        work: "block apply without a rest, SyncOnce",
        goal: "3 of every peer, 4 of rocksdb and fjall, 0.75 of the floor",
        suites: &["churn"],
        engine: "kvb",
        tests: &[
            Test::Times("long_block_per_s", PEERS, 3.0),
            Test::Times("long_block_per_s", &["rocksdb", "fjall"], 4.0),
            Test::Times("long_block_per_s", &["floor"], 0.75),
        ],
    },
    Target {
        work: "bulk load",
        goal: "2.5 of candystore, 5 of fjall and parity-db, 10 of lmdb, 0.5 of the floor",
        suites: SMALL_LARGE,
        engine: "kvb",
        // The load of parity-db has no sync at its end, so this is its load alone.
        tests: &[
            Test::Times("load_sync_per_s", &["candystore"], 2.5),
            Test::Times("load_sync_per_s", &["fjall", "parity-db"], 5.0),
            Test::Times("load_sync_per_s", &["lmdb"], 10.0),
            Test::Times("load_sync_per_s", &["floor"], 0.5),
        ],
    },
    Target {
        work: "random hit, 1 thread",
        goal: "1.5 of lmdb, 1.2 of parity-db",
        suites: SMALL_LARGE,
        engine: "kvb",
        tests: &[
            Test::Times("get_per_s", &["lmdb"], 1.5),
            Test::Times("get_per_s", &["parity-db"], 1.2),
        ],
    },
    Target {
        work: "random hit, 2 threads",
        goal: "1.5 of every peer, 1.9 of our own with one thread",
        suites: SMALL_LARGE,
        engine: "kvb",
        tests: &[
            Test::Times("get2_per_s", PEERS, 1.5),
            Test::Least("get2_per_s", "get_per_s", 1.9),
        ],
    },
    Target {
        work: "random miss",
        goal: "2 of candystore, 8 of lmdb",
        suites: SMALL_LARGE,
        engine: "kvb",
        tests: &[
            Test::Times("miss_per_s", &["candystore"], 2.0),
            Test::Times("miss_per_s", &["lmdb"], 8.0),
        ],
    },
    Target {
        work: "single durable put, SyncOnce",
        goal: "1 of the best peer; at most 1.2 raw syncs",
        suites: &["small"],
        engine: "kvb",
        tests: &[
            Test::Times("put_p50_us", PEERS, 1.0),
            Test::Most("put_p50_us", "put_raw_us", 1.2),
        ],
    },
    Target {
        work: "single durable put, Sync",
        goal: "at most 2.4 raw syncs",
        suites: &["small"],
        engine: "kvb-sync",
        tests: &[Test::Most("put_p50_us", "put_raw_us", 2.4)],
    },
    Target {
        work: "durable puts of many writers",
        goal: "2, 4 and 8 writers 1.6, 3.2 and 6.4 of one, 16 and 32 writers 8 and 16 of one",
        suites: &["small"],
        engine: "kvb",
        tests: &[
            Test::Least("writers2_per_s", "writers1_per_s", 1.6),
            Test::Least("writers4_per_s", "writers1_per_s", 3.2),
            Test::Least("writers8_per_s", "writers1_per_s", 6.4),
            Test::Least("writers16_per_s", "writers1_per_s", 8.0),
            Test::Least("writers32_per_s", "writers1_per_s", 16.0),
        ],
    },
    Target {
        work: "values of 1 KiB",
        goal: "load 2.5, block 2.5, get 1.4 of every peer",
        suites: &["kib"],
        engine: "kvb",
        tests: &[
            Test::Times("load_sync_per_s", PEERS, 2.5),
            Test::Times("block_per_s", PEERS, 2.5),
            Test::Times("get_per_s", PEERS, 1.4),
        ],
    },
    Target {
        work: "values of 64 KiB",
        goal: "load 1, get 1 of lmdb",
        suites: &["big"],
        engine: "kvb",
        tests: &[
            Test::Times("load_sync_per_s", &["lmdb"], 1.0),
            Test::Times("get_per_s", &["lmdb"], 1.0),
        ],
    },
    Target {
        work: "full scan after compaction",
        goal: "1 of lmdb",
        suites: &["small"],
        engine: "kvb",
        tests: &[Test::Times("scan_full_compact_per_s", &["lmdb"], 1.0)],
    },
    Target {
        work: "full scan after churn",
        goal: "1.2 of fjall and rocksdb",
        suites: &["churn"],
        engine: "kvb",
        tests: &[Test::Times("churn_scan_per_s", &["fjall", "rocksdb"], 1.2)],
    },
    Target {
        work: "prefix scans after compaction",
        goal: "of 10 and of 100 rows, 1 of redb and of lmdb",
        suites: &["small"],
        engine: "kvb",
        tests: &[
            Test::Times("scan10_compact_per_s", &["redb", "lmdb"], 1.0),
            Test::Times("scan100_compact_per_s", &["redb", "lmdb"], 1.0),
        ],
    },
    Target {
        work: "open",
        goal: "at most 2 ms, after a kill at most 50 ms",
        suites: &["small", "large", "growth"],
        engine: "kvb",
        tests: &[Test::AtMost("reopen_clean_ms", 2.0), Test::AtMost("reopen_killed_ms", 50.0)],
    },
    Target {
        work: "durable put with work in the background",
        goal: "p99.9 at most 3 p50 and a raw sync, max at most 50 ms",
        suites: &["churn"],
        engine: "kvb",
        tests: &[
            Test::Tail("latency_p999_us", "latency_p50_us", "latency_raw_us"),
            Test::AtMost("latency_max_us", 50_000.0),
        ],
    },
    Target {
        work: "commit of the churn",
        goal: "p99.9 at most 3 p50 and a raw sync, max at most 50 ms",
        suites: &["churn"],
        engine: "kvb",
        tests: &[
            Test::Tail("churn_p999_us", "churn_p50_us", "churn_raw_us"),
            Test::AtMost("churn_max_us", 50_000.0),
        ],
    },
    Target {
        work: "commit beside gets",
        goal: "p99.9 at most 3 p50 and a raw sync, max at most 50 ms",
        suites: &["churn"],
        engine: "kvb",
        tests: &[
            Test::Tail("mixed_commit_p999_us", "mixed_commit_p50_us", "mixed_raw_us"),
            Test::AtMost("mixed_commit_max_us", 50_000.0),
        ],
    },
    Target {
        work: "cold get",
        goal: "0.9 of raw reads, 1 of the best peer; in batches 4 of single",
        suites: &["cold", "kib"],
        engine: "kvb",
        tests: &[
            Test::Least("cold_get_per_s", "cold_raw_per_s", 0.9),
            Test::Times("cold_get_per_s", PEERS, 1.0),
            Test::Least("cold_many_per_s", "cold_get_per_s", 4.0),
        ],
    },
    Target {
        work: "anonymous memory",
        goal: "at most 20 bytes a key and 16 MiB",
        suites: SMALL_LARGE,
        engine: "kvb",
        tests: &[Test::Memory("anon_mb")],
    },
    Target {
        work: "anonymous memory under churn",
        goal: "at most 20 bytes a key and 16 MiB, at its highest and at rest behind it",
        suites: &["churn"],
        engine: "kvb",
        tests: &[Test::Memory("churn_anon_max_mb"), Test::Memory("churn_anon_end_mb")],
    },
    Target {
        work: "space under churn",
        goal: "blocks without index images at most 1.6 of live records, compacted 1.15, and the same of sealed segments alone; \
               index images at most 80 bytes a key",
        suites: &["churn"],
        engine: "kvb",
        tests: &[
            Test::AtMost("churn_blocks_max_record", 1.6),
            Test::AtMost("churn_blocks_compact_record", 1.15),
            Test::AtMost("churn_segments_max_record", 1.6),
            Test::AtMost("churn_segments_compact_record", 1.15),
            Test::AtMost("churn_image_bytes_per_key", 80.0),
            Test::AtMost("churn_images_bytes_per_key", 80.0),
        ],
    },
    Target {
        work: "bytes written under churn",
        goal: "fewer than every peer",
        suites: &["churn"],
        engine: "kvb",
        tests: &[Test::Times("churn_device", PEERS, 1.0)],
    },
];

/// What limits each work now, in a sentence.
const LIMITS: &[(&str, &str)] = &[
    (
        "block apply, SyncOnce",
        "a third is reading 1,000 random records; more than a quarter of that is the processor's walk through the page tables of the mapped file, \
         before it can even ask for the record; the floor keeps its whole table in memory",
    ),
    ("block apply, Sync", "the second sync, of the journal"),
    (
        "block apply without a rest, SyncOnce",
        "compaction: every block makes as much garbage as it adds, and to stay within 1.6 times what is live half as much again as the log takes is moved, \
         on the second core and the same device; the floor never cleans up",
    ),
    (
        "commit beside gets",
        "as for the commit of the churn, with a thread of gets on one of the two cores",
    ),
    ("bulk load", "the processor: commits, sealing and merging are three threads on two cores"),
    (
        "random hit, 1 thread",
        "waiting for memory and page tables: a word of the filter, a slot and a record, each elsewhere",
    ),
    ("random hit, 2 threads", "the same; threads share nothing that is written but counters"),
    ("random miss", "a word of the filter and one of the overlay's; candystore looks at as little"),
    ("single durable put, SyncOnce", "the sync of the device"),
    (
        "single durable put, Sync",
        "two syncs, the second behind the first, as the specification asks",
    ),
    (
        "durable puts of many writers",
        "two cores that switch between the threads and make the records, while merges run in the background: the wait for the device is shared, the work is not",
    ),
    (
        "values of 1 KiB",
        "copies to the page cache, which the floor has, too, and is hardly faster; at the end of the load the device",
    ),
    (
        "values of 64 KiB",
        "copies to the page cache; gets lend what is mapped and was checked once, off the clock here, as LMDB lends it: both find a place and hand out a pointer, \
         and nine nanoseconds of two hundred lie between them",
    ),
    ("full scan after compaction", "a third of the time is checksums, which LMDB does not have"),
    ("full scan after churn", "merging: there are as many levels as compactions left"),
    (
        "prefix scans after compaction",
        "finding the start: a checked record at each step of the search, and taking the snapshot",
    ),
    ("open", "starting threads, reading the table of segments, a checkpoint"),
    (
        "durable put with work in the background",
        "syncs that carry up to 4 MiB of somebody else's pages, and three threads more on two cores",
    ),
    (
        "commit of the churn",
        "what our own merges and compaction write: a commit's sync waits behind it, two of three slow ones were seen to; and waiting for compaction \
         when space runs ahead of it",
    ),
    (
        "cold get",
        "beside the read two calls that ask for pages and the fault behind them; fjall has a shorter file and reads more of it for each get, so that some find \
         what they want already read, and gets more than raw reads beside it do",
    ),
    (
        "anonymous memory",
        "overlays, 23 bytes for each of up to half the keys that changed lately; filter and bits, 3 bytes a key",
    ),
    (
        "anonymous memory under churn",
        "two overlays while one is merged, and what the allocator keeps of them",
    ),
    (
        "space under churn",
        "beside the segments there are free pages that keep their blocks for what is written next, extents that are ready for the log, and what is being \
         moved; with less of the first commits wait for the file system, with fuller segments more is copied for every byte that is freed. The room for the next image \
         is what a merge on a full disk needs",
    ),
    (
        "bytes written under churn",
        "of 6.9 bytes the log is 1.4, for a record is 48 bytes longer than key and value; compaction moves 2.2 to stay within 1.6 times what is live; \
         the rest is side data, pages that the next commit writes again, and above all index images, 40 to 80 bytes for every key there is",
    ),
];

/// All targets; `find` gives the sets of a suite that was run.
pub fn table<'a>(find: impl Fn(&str) -> Option<&'a [Set]>) -> String {
    let mut text = String::from(
        "Where an engine is named, it is how many times as good kvb is; where a measure is quoted, \
         the quotient of two measures of kvb. What misses the target is bold.\n\n\
         | work | suite | target | measured | | what limits it now |\n|---|---|---|---|---|---|\n",
    );
    for target in TARGETS {
        let limit =
            LIMITS.iter().find(|(work, _)| *work == target.work).map_or("", |found| found.1);
        for suite in target.suites {
            let (measured, state) = look(target, find(suite).unwrap_or(&[]));
            let _ = writeln!(
                text,
                "| {} | {suite} | {} | {measured} | {state} | {limit} |",
                target.work, target.goal
            );
        }
    }
    text
}

/// What was measured, and whether it meets the target.
fn look(target: &Target, sets: &[Set]) -> (String, &'static str) {
    let mut all: Vec<Option<Verdict>> = Vec::new();
    for set in sets {
        for test in target.tests {
            let mut found = test.look(target.engine, set);
            if sets.len() > 1 {
                for verdict in found.iter_mut().flatten() {
                    verdict.title = format!("{} keys, {}", count(set.keys()), verdict.title);
                }
            }
            all.extend(found);
        }
    }
    let is_whole = !all.is_empty() && all.iter().all(Option::is_some);
    let verdicts: Vec<&Verdict> = all.iter().flatten().collect();
    let state = match verdicts.iter().all(|verdict| verdict.is_met) {
        // What is missed stays missed, whatever else there is to find.
        false => "missed",
        true if is_whole => "met",
        true => "missing",
    };
    (shown(&verdicts), state)
}

/// All verdicts, with the title of each unless the one before has the same.
fn shown(verdicts: &[&Verdict]) -> String {
    let mut text = String::new();
    let mut title = "";
    for verdict in verdicts {
        if !text.is_empty() {
            text.push_str("; ");
        }
        if verdict.title != title {
            let _ = write!(text, "{}: ", verdict.title);
            title = &verdict.title;
        }
        let _ = match verdict.is_met {
            true => write!(text, "{}", verdict.text),
            false => write!(text, "**{}**", verdict.text),
        };
    }
    text
}

impl Test {
    /// What comes of it: several if several engines are named, nothing where something is missing.
    fn look(&self, engine: &str, set: &Set) -> Vec<Option<Verdict>> {
        match *self {
            Test::Times(name, [], least) => vec![against_best(engine, set, name, least)],
            Test::Times(name, others, least) => {
                let against = |other: &&str| {
                    let theirs = set.figure(other, name)?;
                    against(engine, set, name, (other, theirs), least)
                };
                others.iter().map(against).collect()
            }
            Test::Least(first, second, least) => {
                vec![quotient(engine, set, first, second, |found| found >= least)]
            }
            Test::Most(first, second, most) => {
                vec![quotient(engine, set, first, second, |found| found <= most)]
            }
            Test::AtMost(name, most) => vec![at_most(engine, set, name, most)],
            Test::Tail(tail, median, raw) => vec![below_tail(engine, set, [tail, median, raw])],
            Test::Memory(name) => vec![memory(engine, set, name)],
        }
    }
}

fn against_best(engine: &str, set: &Set, name: &str, least: f64) -> Option<Verdict> {
    let (peer, best) = best_peer(&set.results, measure::find(name)?)?;
    against(engine, set, name, (&format!("the best peer, {peer}"), best), least)
}

fn against(
    engine: &str,
    set: &Set,
    name: &str,
    (other, theirs): (&str, f64),
    least: f64,
) -> Option<Verdict> {
    let measure = measure::find(name)?;
    let times = times(set.figure(engine, name)?, theirs, measure.better)?;
    let text = format!("{times:.2} of {other}");
    Some(Verdict { title: measure.title.to_owned(), text, is_met: times >= least })
}

fn quotient(
    engine: &str,
    set: &Set,
    first: &str,
    second: &str,
    is_met: impl Fn(f64) -> bool,
) -> Option<Verdict> {
    let found = set.figure(engine, first)? / set.figure(engine, second)?;
    let (first, second) = (measure::find(first)?.title, measure::find(second)?.title);
    let text = format!("{found:.2} of \"{second}\"");
    let verdict = || Verdict { title: first.to_owned(), text, is_met: is_met(found) };
    found.is_finite().then(verdict)
}

fn at_most(engine: &str, set: &Set, name: &str, most: f64) -> Option<Verdict> {
    let found = set.figure(engine, name)?;
    let title = measure::find(name)?.title.to_owned();
    Some(Verdict { title, text: short(found), is_met: found <= most })
}

fn below_tail(engine: &str, set: &Set, [tail, median, raw]: [&str; 3]) -> Option<Verdict> {
    let found = set.figure(engine, tail)?;
    let most = TAIL_TIMES * set.figure(engine, median)? + set.figure(engine, raw)?;
    let title = measure::find(tail)?.title.to_owned();
    let text = format!("{}, allowed {}", short(found), short(most));
    Some(Verdict { title, text, is_met: found <= most })
}

fn memory(engine: &str, set: &Set, name: &str) -> Option<Verdict> {
    let found = set.figure(engine, name)?;
    let most = (MEMORY_PER_KEY * set.keys() as f64 + MEMORY_BASE) / 1e6;
    let title = measure::find(name)?.title.to_owned();
    let text = format!("{}, allowed {}", short(found), short(most));
    Some(Verdict { title, text, is_met: found <= most })
}
