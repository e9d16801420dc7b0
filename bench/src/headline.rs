//! The table of the README: a row for each thing that people ask about, won or lost.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::document::Found;
use crate::ledger::Figures;
use crate::measure::{self, Better};
use crate::report::{best_peer, head, short, times};
use crate::results::Set;

/// Between these two lines of the README it stands.
const BEGIN: &str = "<!-- performance -->\n";
const END: &str = "<!-- /performance -->";

/// A row: the suite, the measure or figure in it, which way that is good, and what it is called here.
type Row = (&'static str, &'static str, Better, &'static str);

const ROWS: &[Row] = &[
    (
        "small",
        "block_per_s",
        Better::High,
        "durable blocks of 1,000 reads, deletes and puts, per second",
    ),
    ("small", "load_sync_per_s", Better::High, "bulk load in random order, keys per second"),
    ("small", "put_p50_us", Better::Low, "durable put, median, us"),
    ("small", "writers32_per_s", Better::High, "durable puts of 32 threads, per second"),
    ("small", "get_per_s", Better::High, "random get, per second"),
    ("small", "get2_per_s", Better::High, "random get of two threads, per second"),
    ("small", "miss_per_s", Better::High, "random get of what is not there, per second"),
    (
        "small",
        "scan_full_compact_per_s",
        Better::High,
        "full scan after compaction, rows per second",
    ),
    (
        "small",
        "scan100_compact_per_s",
        Better::High,
        "scan of 100 rows after compaction, per second",
    ),
    ("small", "scan_back_compact_per_s", Better::High, "the same backwards, per second"),
    (
        "small",
        "scan100_loaded_per_s",
        Better::High,
        "scan of 100 rows right after the load, per second",
    ),
    ("churn", "churn_per_s", Better::High, "durable churn in commits of 100, changes per second"),
    ("churn", "churn_p99_us", Better::Low, "churn, p99 of a commit, us"),
    ("churn", "churn_device", Better::Low, "churn, bytes written to the device per byte put"),
    ("churn", "churn_space_end", Better::Low, "churn, disk per byte of live data"),
    ("kib", "cold_get_per_s", Better::High, "get of 1 KiB that is not in memory, per second"),
    ("small", "reopen_clean_ms", Better::Low, "open after a clean close, ms"),
    ("small", "reopen_killed_ms", Better::Low, "open after kill -9, ms"),
    ("small", "anon_mb", Better::Low, "memory of the process, MB"),
    ("small", "disk_load_mb", Better::Low, "disk after the load, MB"),
    ("rubin", "changes per second", Better::High, "RUBIN: outputs made and spent, per second"),
    (
        "csmt",
        "changes per second, blocks of 1000",
        Better::High,
        "CSMT: changes with tree and root, per second",
    ),
    (
        "misaka",
        "v2 checkpoint, 2,000 writes, s",
        Better::Low,
        "MISAKA: checkpoint of 2,000 writes with its root, s",
    ),
];

/// Puts the table into a README. `find` gives what there is of a suite.
pub fn write<'a>(readme: &Path, find: impl Fn(&str) -> Option<&'a Found>) -> Result<()> {
    let text = std::fs::read_to_string(readme).with_context(|| readme.display().to_string())?;
    let (before, rest) = text.split_once(BEGIN).context("the README has no place for the table")?;
    let (_, after) = rest.split_once(END).context("the table in the README has no end")?;
    let text = format!("{before}{BEGIN}\n{}\n{END}{after}", table(find));
    Ok(std::fs::write(readme, text)?)
}

fn table<'a>(find: impl Fn(&str) -> Option<&'a Found>) -> String {
    let mut text = head("1 M keys of 36 + 100 bytes", &["kvb", "best peer", "kvb is better by"]);
    for (suite, name, better, title) in ROWS {
        let row = match find(suite) {
            Some(Found::Sets(sets)) => sets.first().and_then(|set| measured(set, name)),
            Some(Found::Ledger(ledger)) => figured(&ledger.engines, name, *better),
            None => None,
        };
        let Some((ours, peer, best)) = row else { continue };
        let Some(times) = times(ours, best, *better) else { continue };
        let mark = if times < 1.0 { "**" } else { "" };
        let (ours, best) = (short(ours), short(best));
        let _ = writeln!(text, "| {title} | {ours} | {best} ({peer}) | {mark}{times:.2}{mark} |");
    }
    text.push_str("\nBold: somebody else is better.\n");
    text
}

/// What kvb has, and who is best of the others with what.
fn measured<'a>(set: &'a Set, name: &str) -> Option<(f64, &'a str, f64)> {
    let (peer, best) = best_peer(&set.results, measure::find(name)?)?;
    Some((set.figure("kvb", name)?, peer, best))
}

fn figured<'a>(all: &'a [Figures], name: &str, better: Better) -> Option<(f64, &'a str, f64)> {
    let ours = all.iter().find(|figures| figures.engine == "kvb")?.get(name)?;
    let others = all.iter().filter(|figures| figures.engine != "kvb");
    let others = others.filter_map(|figures| Some((figures.engine.as_str(), figures.get(name)?)));
    let (peer, best) = match better {
        Better::High => others.max_by(|a, b| a.1.total_cmp(&b.1)),
        Better::Low | Better::Neither => others.min_by(|a, b| a.1.total_cmp(&b.1)),
    }?;
    Some((ours, peer, best))
}
