//! The tables: medians with their spread, and how far kvb is from the best peer.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::engines;
use crate::workload::Measures;

/// Which way a measure is good.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    High,
    Low,
    /// Shown, but not compared.
    Neither,
}

/// A row of the tables.
pub struct Measure {
    pub name: &'static str,
    pub title: &'static str,
    pub better: Better,
}

/// All measures in the order they are shown.
pub const MEASURES: &[Measure] = &[
    high("load_per_s", "load, batches of 1000 /s"),
    high("load_sync_per_s", "load incl. final sync /s"),
    low("put_mean_us", "durable put mean us"),
    low("put_p10_us", "durable put p10 us"),
    low("put_p50_us", "durable put p50 us"),
    low("put_p99_us", "durable put p99 us"),
    high("writers1_per_s", "durable puts, 1 writer /s"),
    high("writers8_per_s", "durable puts, 8 writers /s"),
    high("writers32_per_s", "durable puts, 32 writers /s"),
    low("block_mean_ms", "block apply mean ms"),
    low("block_p50_ms", "block apply p50 ms"),
    low("block_p99_ms", "block apply p99 ms"),
    high("block_per_s", "block apply /s"),
    high("get_per_s", "get hit, 1 thread /s"),
    high("get2_per_s", "get hit, 2 threads /s"),
    high("miss_per_s", "get miss, 1 thread /s"),
    high("scan_full_loaded_per_s", "full scan as loaded, rows/s"),
    high("scan_full_compact_per_s", "full scan compacted, rows/s"),
    high("scan10_loaded_per_s", "scan of 10 as loaded /s"),
    high("scan10_compact_per_s", "scan of 10 compacted /s"),
    high("scan100_loaded_per_s", "scan of 100 as loaded /s"),
    high("scan100_compact_per_s", "scan of 100 compacted /s"),
    high("scan_back_loaded_per_s", "100 rows back as loaded /s"),
    high("scan_back_compact_per_s", "100 rows back compacted /s"),
    low("compact_s", "compaction after load s"),
    low("disk_compact_mb", "disk after load, compacted MB"),
    high("churn_per_s", "churn, changes /s"),
    neither("churn_raw_us", "raw sync beside the churn us"),
    low("churn_p50_us", "churn commit p50 us"),
    low("churn_p99_us", "churn commit p99 us"),
    low("churn_p999_us", "churn commit p99.9 us"),
    low("churn_max_us", "churn commit max us"),
    low("churn_space_max", "churn, disk / live bytes, max"),
    low("churn_space_end", "churn, disk / live bytes, end"),
    low("churn_space_compact", "churn, disk / live bytes, compacted"),
    low("churn_space_max_record", "churn, disk / live records, max"),
    low("churn_space_end_record", "churn, disk / live records, end"),
    low("churn_space_compact_record", "churn, disk / live records, compacted"),
    low("churn_device", "churn, device written / bytes put"),
    low("churn_written", "churn, dirtied / bytes put"),
    low("churn_written_record", "churn, dirtied / records put"),
    low("churn_compact_s", "compaction after churn s"),
    high("latency_per_s", "busy durable put /s"),
    neither("latency_raw_us", "raw sync beside the puts us"),
    low("latency_p50_us", "busy durable put p50 us"),
    low("latency_p99_us", "busy durable put p99 us"),
    low("latency_p999_us", "busy durable put p99.9 us"),
    low("latency_max_us", "busy durable put max us"),
    low("reopen_clean_ms", "reopen clean ms"),
    low("reopen_killed_ms", "reopen after kill -9 ms"),
    neither("fresh_kept_pct", "unsynced kept after kill %"),
    low("anon_mb", "anonymous memory MB"),
    low("disk_load_mb", "disk after load MB"),
    low("disk_end_mb", "disk at the end MB"),
];

const fn high(name: &'static str, title: &'static str) -> Measure {
    Measure { name, title, better: Better::High }
}

const fn neither(name: &'static str, title: &'static str) -> Measure {
    Measure { name, title, better: Better::Neither }
}

const fn low(name: &'static str, title: &'static str) -> Measure {
    Measure { name, title, better: Better::Low }
}

/// The results of one engine, one entry per round.
pub struct Results {
    pub engine: String,
    pub rounds: Vec<Measures>,
}

impl Results {
    fn samples(&self, measure: &Measure) -> Vec<f64> {
        let mut samples: Vec<f64> =
            self.rounds.iter().filter_map(|round| round.get(measure.name).copied()).collect();
        samples.sort_by(f64::total_cmp);
        samples
    }

    pub fn median(&self, measure: &Measure) -> Option<f64> {
        let samples = self.samples(measure);
        let upper = *samples.get(samples.len() / 2)?;
        let lower = samples[(samples.len() - 1) / 2];
        Some((lower + upper) / 2.0)
    }

    /// Median and spread, as shown in a cell.
    fn cell(&self, measure: &Measure) -> String {
        let Some(median) = self.median(measure) else {
            return "-".to_owned();
        };
        let samples = self.samples(measure);
        let range = samples[samples.len() - 1] - samples[0];
        if samples.len() < 2 || median == 0.0 {
            return short(median);
        }
        format!("{} ({:.0}%)", short(median), 100.0 * range / median)
    }
}

/// Medians of all engines; the spread is the range divided by the median.
pub fn medians(all: &[Results]) -> String {
    let mut text = String::from("| measure: median (spread) |");
    for results in all {
        let _ = write!(text, " {} |", results.engine);
    }
    text.push_str("\n|---|");
    text.push_str(&"--:|".repeat(all.len()));
    text.push('\n');
    for measure in MEASURES {
        if all.iter().all(|results| results.median(measure).is_none()) {
            continue;
        }
        let _ = write!(text, "| {} |", measure.title);
        for results in all {
            let _ = write!(text, " {} |", results.cell(measure));
        }
        text.push('\n');
    }
    text
}

/// kvb against the best peer of each measure, or nothing if kvb was not measured.
pub fn ratios(all: &[Results]) -> Option<String> {
    let of = |name: &str| all.iter().find(|results| results.engine == name);
    let subjects: Vec<&Results> = ["kvb", "kvb-sync"].into_iter().filter_map(of).collect();
    if subjects.is_empty() {
        return None;
    }
    let mut text = String::from("| times better than | best peer |");
    for results in &subjects {
        let _ = write!(text, " {0} / best | {0} / floor |", results.engine);
    }
    text.push_str("\n|---|---|");
    text.push_str(&"--:|--:|".repeat(subjects.len()));
    text.push('\n');
    for measure in MEASURES.iter().filter(|measure| measure.better != Better::Neither) {
        let Some((peer, best)) = best_peer(all, measure) else {
            continue;
        };
        let _ = write!(text, "| {} | {peer} {} |", measure.title, short(best));
        let floor = of("floor").and_then(|floor| floor.median(measure));
        for results in &subjects {
            let ours = results.median(measure);
            let against = |other| times(ours, other, measure.better);
            let _ = write!(text, " {} | {} |", against(Some(best)), against(floor));
        }
        text.push('\n');
    }
    Some(text)
}

/// Everything measured, for other programs.
pub fn json(all: &[Results], config: Value) -> Value {
    let results: Vec<Value> = all
        .iter()
        .map(|results| json!({ "engine": results.engine, "rounds": results.rounds }))
        .collect();
    json!({ "config": config, "results": results })
}

fn best_peer<'a>(all: &'a [Results], measure: &Measure) -> Option<(&'a str, f64)> {
    let peers = all.iter().filter(|results| engines::is_peer(&results.engine));
    let medians = peers.filter_map(|peer| Some((peer.engine.as_str(), peer.median(measure)?)));
    match measure.better {
        Better::High => medians.max_by(|a, b| a.1.total_cmp(&b.1)),
        Better::Low | Better::Neither => medians.min_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

/// How many times better `ours` is: above 1 is good whichever way the measure goes.
fn times(ours: Option<f64>, other: Option<f64>, better: Better) -> String {
    match (ours, other) {
        (Some(ours), Some(other)) if better == Better::High => format!("{:.2}", ours / other),
        (Some(ours), Some(other)) => format!("{:.2}", other / ours),
        _ => "-".to_owned(),
    }
}

/// A number in three or four digits.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        large if large >= 1e6 => (value / 1e6, " M"),
        large if large >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}{unit}"),
        size if size >= 10.0 => format!("{value:.1}{unit}"),
        _ => format!("{value:.2}{unit}"),
    }
}
