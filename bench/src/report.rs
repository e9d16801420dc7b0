//! The tables of one set: medians with their spread, and how far kvb is from the best peer.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::engines;
use crate::measure::{Better, MEASURES, Measure};
use crate::record::KEY_LEN;
use crate::results::{Results, Set};

/// How it was measured, what failed, and both tables.
pub fn whole(set: &Set) -> String {
    let mut text = format!("{}\n\n", settings(set));
    for failure in set.failures() {
        let _ = writeln!(text, "**Failed:** {failure}\n");
    }
    if set.results.iter().flat_map(|results| &results.rounds).all(BTreeMap::is_empty) {
        text.push_str("Nothing was measured.\n");
        return text;
    }
    text.push_str(&medians(&set.results));
    text.push('\n');
    match ratios(&set.results) {
        Some(table) => {
            let _ = writeln!(text, "Ratios of these; above 1 kvb is better.\n\n{table}");
        }
        None => text.push_str("kvb was not measured: no ratios.\n"),
    }
    text
}

/// A sentence that says how it was measured.
pub fn settings(set: &Set) -> String {
    let number = |name: &str| set.config[name].as_u64().unwrap_or(0);
    format!(
        "{} keys of {KEY_LEN} bytes, values of {} bytes, {} durable puts, {} blocks, {} gets per \
         thread, churn of {} changes per key in commits of {}, {} s where a time is measured, \
         caches of {} MiB, rounds: {}{}.",
        number("keys"),
        number("value"),
        number("puts"),
        number("blocks"),
        number("gets"),
        number("churn"),
        number("churn_batch"),
        number("seconds"),
        number("cache") >> 20,
        number("rounds"),
        took(&set.config)
    )
}

/// How long it all took, if that was written down.
pub fn took(config: &Value) -> String {
    config["took_s"].as_f64().map_or(String::new(), |took| format!(", {:.0} min", took / 60.0))
}

/// What counts of all rounds, and the spread, as shown in a cell.
fn cell(results: &Results, measure: &Measure) -> String {
    let figure = results.figure(measure);
    figure.map_or("-".to_owned(), |figure| spread(figure, &results.samples(measure)))
}

/// A figure, and the range of its sorted samples divided by it.
pub fn spread(figure: f64, samples: &[f64]) -> String {
    match samples {
        [least, .., most] if figure != 0.0 => {
            format!("{} ({:.0}%)", short(figure), 100.0 * (most - least) / figure)
        }
        _ => short(figure),
    }
}

/// What counts of all engines; the spread is the range divided by that.
fn medians(all: &[Results]) -> String {
    let engines: Vec<&str> = all.iter().map(|results| results.engine.as_str()).collect();
    let mut text = head("measure: median, or max where it says so (spread)", &engines);
    for measure in MEASURES {
        if all.iter().all(|results| results.figure(measure).is_none()) {
            continue;
        }
        let _ = write!(text, "| {} |", measure.title);
        for results in all {
            let _ = write!(text, " {} |", cell(results, measure));
        }
        text.push('\n');
    }
    text
}

/// The head of a table whose columns but the first are numbers.
pub fn head(first: &str, columns: &[&str]) -> String {
    let rules = "--:|".repeat(columns.len());
    format!("| {first} | {} |\n|---|{rules}\n", columns.join(" | "))
}

/// kvb against the best peer of each measure, or nothing if kvb was not measured.
fn ratios(all: &[Results]) -> Option<String> {
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
        let floor = of("floor").and_then(|floor| floor.figure(measure));
        for results in &subjects {
            let ours = results.figure(measure);
            let against = |other| {
                let times = times(ours?, other?, measure.better)?;
                Some(format!("{times:.2}"))
            };
            let shown = |other| against(other).unwrap_or_else(|| "-".to_owned());
            let _ = write!(text, " {} | {} |", shown(Some(best)), shown(floor));
        }
        text.push('\n');
    }
    Some(text)
}

/// The peer that is best at `measure`, and what it has.
pub fn best_peer<'a>(all: &'a [Results], measure: &Measure) -> Option<(&'a str, f64)> {
    let peers = all.iter().filter(|results| engines::is_peer(&results.engine));
    let figures = peers.filter_map(|peer| Some((peer.engine.as_str(), peer.figure(measure)?)));
    match measure.better {
        Better::High => figures.max_by(|a, b| a.1.total_cmp(&b.1)),
        Better::Low | Better::Neither => figures.min_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

/// How many times better `ours` is: above 1 is good whichever way the measure goes. Nothing if
/// that is no number.
pub fn times(ours: f64, other: f64, better: Better) -> Option<f64> {
    let times = if better == Better::High { ours / other } else { other / ours };
    times.is_finite().then_some(times)
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
