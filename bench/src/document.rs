//! The whole report: `results.md` and its charts, of whatever suites there are.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::chart;
use crate::headline;
use crate::ledger::{self, Figures, Found as Ledger};
use crate::measure::{self, Measure};
use crate::report::{self, head, short};
use crate::results::{self, Set};
use crate::suite::{self, GROWTH, Suite, Work};
use crate::targets;

/// What is shown of the growth: a table and a panel of the chart each.
const GROWING: &[&str] = &[
    "load_sync_per_s",
    "load_device",
    "block_per_s",
    "get_per_s",
    "miss_per_s",
    "reopen_clean_ms",
    "reopen_killed_ms",
    "anon_mb",
    "disk_load_mb",
];

/// Charts, by file name.
type Charts = Vec<(String, String)>;

/// A suite that was run: the sets of one on stores, or a ledger.
pub enum Found {
    Sets(Vec<Set>),
    Ledger(Ledger),
}

impl Found {
    /// How it was measured, for each set.
    fn configs(&self) -> Vec<&Value> {
        match self {
            Found::Sets(sets) => sets.iter().map(|set| &set.config).collect(),
            Found::Ledger(ledger) => vec![&ledger.config],
        }
    }
}

/// Reads all suites in `out`, and writes the report and the charts there, and the table of a README.
pub fn write(out: &Path, readme: Option<&Path>) -> Result<()> {
    let mut found = Vec::new();
    for suite in suite::ALL {
        let path = out.join(format!("{}.json", suite.name));
        if path.exists() {
            let read = match suite.work {
                Work::Stores(_) => results::read_sets(&path).map(Found::Sets),
                Work::Ledger(_) => ledger::read(&path).map(Found::Ledger),
            };
            found.push((suite, read.with_context(|| path.display().to_string())?));
        }
    }
    let mut text = String::from("# Results\n\n");
    let all = machines(found.iter().flat_map(|(_, found)| found.configs()));
    // A run that was made in pieces, on several machines or with several versions: each suite says on which.
    let is_one = all.len() <= 1;
    if is_one {
        text.push_str(&all.concat());
    }
    for (suite, found) in &found {
        let (part, charts) = match found {
            Found::Sets(sets) if suite.name == GROWTH => growth(suite, sets),
            Found::Sets(sets) => stores(suite, sets),
            Found::Ledger(found) => ledger(suite, found),
        };
        let own = if is_one { Vec::new() } else { machines(found.configs().into_iter()) };
        let _ = writeln!(text, "## {}\n\n{}{part}", suite.title, own.concat());
        for (file, chart) in charts {
            std::fs::write(out.join(&file), chart)?;
            let _ = writeln!(text, "![{file}]({file})\n");
        }
    }
    let said = |config: &&Value| config["settings"].as_str().map(str::to_owned);
    let configs = found.iter().flat_map(|(_, found)| found.configs());
    if let Some(settings) = configs.collect::<Vec<_>>().iter().find_map(said) {
        let _ = writeln!(text, "## Settings\n\n{settings}\n");
    }
    let find = |name: &str| {
        let (_, found) = found.iter().find(|(suite, _)| suite.name == name)?;
        match found {
            Found::Sets(sets) => Some(sets.as_slice()),
            Found::Ledger(_) => None,
        }
    };
    let _ = write!(text, "## Targets\n\n{}", targets::table(find));
    std::fs::write(out.join("results.md"), text)?;
    eprintln!("report: {}", out.join("results.md").display());
    let find =
        |name: &str| found.iter().find(|(suite, _)| suite.name == name).map(|(_, found)| found);
    readme.map_or(Ok(()), |readme| headline::write(readme, find))
}

/// Every machine, compiler and list of versions that is named.
fn machines<'a>(configs: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for config in configs.filter(|config| !config.is_null()) {
        let text = |name: &str| config[name].as_str().unwrap_or("?");
        let machine = text("machine");
        let machine = machine.split_once(", load ").map_or(machine, |(machine, _)| machine);
        let (disk, rustc, versions) = (text("file_system"), text("rustc"), text("versions"));
        let made = config["commit"].as_str().map(|commit| format!("; commit {commit}"));
        let made = made.unwrap_or_default();
        let line = format!("Machine: {machine}; {disk}; {rustc}{made}\n\nEngines: {versions}\n\n");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The load of the machine before something was measured.
fn load(config: &Value) -> &str {
    let machine = config["machine"].as_str().unwrap_or_default();
    machine.split_once(", load ").map_or("?", |(_, load)| load)
}

fn stores(suite: &Suite, sets: &[Set]) -> (String, Charts) {
    let mut text = String::new();
    let mut charts = Vec::new();
    for set in sets {
        let _ = write!(text, "Load before: {}. {}", load(&set.config), report::whole(set));
        let name = |(file, chart)| (format!("{}-{file}", suite.name), chart);
        charts.extend(chart::all(&set.results).into_iter().map(name));
    }
    (text, charts)
}

/// A table for each measure, with a column for each size.
fn growth(suite: &Suite, sets: &[Set]) -> (String, Charts) {
    let mut text = String::new();
    for set in sets {
        let _ = writeln!(text, "Load before: {}. {}\n", load(&set.config), report::settings(set));
        for failure in set.failures() {
            let _ = writeln!(text, "**Failed:** {failure}\n");
        }
    }
    let keys: Vec<u64> = sets.iter().map(Set::keys).collect();
    let columns: Vec<String> = keys.iter().map(|keys| format!("{} keys", count(*keys))).collect();
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut panels = Vec::new();
    for measure in GROWING.iter().filter_map(|name| measure::find(name)) {
        let lines = lines(sets, measure);
        if lines.is_empty() {
            continue;
        }
        text.push_str(&head(measure.title, &columns));
        for (engine, values) in &lines {
            let shown = |value: &Option<f64>| value.map_or("-".to_owned(), short);
            let cells: Vec<String> = values.iter().map(shown).collect();
            let _ = writeln!(text, "| {engine} | {} |", cells.join(" | "));
        }
        text.push('\n');
        panels.push(chart::Lines { title: measure.title, better: measure.better, lines });
    }
    let chart = chart::growth(suite.title, &keys, &panels);
    (text, vec![(format!("{}.svg", suite.name), chart)])
}

/// What each engine has of a measure at each size, if it has any.
fn lines<'a>(sets: &'a [Set], measure: &Measure) -> Vec<(&'a str, Vec<Option<f64>>)> {
    let mut engines: Vec<&str> = Vec::new();
    for results in sets.iter().flat_map(|set| &set.results) {
        if !engines.contains(&results.engine.as_str()) {
            engines.push(&results.engine);
        }
    }
    let line = |engine: &'a str| {
        let values = sets.iter().map(|set| set.figure(engine, measure.name)).collect();
        (engine, values)
    };
    let has_any = |(_, values): &(&str, Vec<Option<f64>>)| values.iter().any(Option::is_some);
    engines.into_iter().map(line).filter(has_any).collect()
}

fn ledger(suite: &Suite, found: &Ledger) -> (String, Charts) {
    let chart = chart::ledger(suite.name, suite.title, &found.engines);
    let charts = chart.map(|chart| (format!("{}.svg", suite.name), chart));
    (ledger_table(found), charts.into_iter().collect())
}

/// How it was measured, what failed, and a table of all figures with a column for each engine.
pub fn ledger_table(found: &Ledger) -> String {
    let config = &found.config;
    let mut text = String::new();
    if let Some(rounds) = config["rounds"].as_u64() {
        let cache = config["cache"].as_u64().unwrap_or(0) >> 20;
        let _ = writeln!(
            text,
            "Load before: {}. Caches of {cache} MiB, rounds: {rounds}{}.\n",
            load(config),
            report::took(config)
        );
    }
    for failure in config["failures"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "**Failed:** {}\n", failure.as_str().unwrap_or("?"));
    }
    let Some(first) = found.engines.first() else {
        text.push_str("Nothing was measured.\n");
        return text;
    };
    let (what, size) = &first.size;
    let engines: Vec<&str> = found.engines.iter().map(|of| of.engine.as_str()).collect();
    let title = format!("{} {what}: median, or max of the slowest (spread)", count(*size));
    text.push_str(&head(&title, &engines));
    for name in first.names() {
        let shown = |of: &Figures| match of.get(name) {
            Some(figure) => report::spread(figure, of.samples(name)),
            None => "-".to_owned(),
        };
        let cells: Vec<String> = found.engines.iter().map(shown).collect();
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    text
}

/// A count as people say it.
pub fn count(count: u64) -> String {
    match count {
        1_000_000.. if count.is_multiple_of(100_000) => format!("{} M", count as f64 / 1e6),
        1_000.. if count.is_multiple_of(100) => format!("{} k", count as f64 / 1e3),
        _ => count.to_string(),
    }
}
