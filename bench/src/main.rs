//! Measures kvb against other embedded stores on the workloads of a ledger.
//!
//! The parent runs every engine of every round in a process of its own, so that memory and caches
//! do not mix; a measuring process runs one more, which it kills. Rounds go over all engines in
//! turn, so that the noise of a busy machine hits all alike.

mod all;
mod chart;
mod compare;
mod document;
mod engine;
mod engines;
mod group;
mod headline;
mod ledger;
mod machine;
mod measure;
mod record;
mod report;
mod results;
mod suite;
mod targets;
mod times;
mod workload;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::compare::Comparison;
use crate::workload::Plan;

const USAGE: &str = "\
kvb-bench all --out DIR [--dir DIR] [--suites a,b,c] [--rounds N] [--engines a,b,c] [--quick]
          [--cgroup DIR] [--readme FILE]
kvb-bench report --out DIR [--readme FILE]
kvb-bench rubin [--coins 1000000] [--blocks 50] [--inputs 4000] ...
kvb-bench csmt [--entries 1000000] [--blocks 100] ...
kvb-bench misaka [--objects 1000000] ...
          [--rounds 2] [--engines a,b,c] [--dir DIR] [--json FILE]
kvb-bench [--keys 1000000] [--rounds 3] [--engines a,b,c] [--workloads a,b,c] [--dir DIR]
          [--json FILE] [--charts DIR] [--puts 2000] [--blocks 100] [--gets N] [--churn 5] [--churn-batch 100]
          [--seconds 20] [--value 100] [--cache 1073741824] [--cgroup DIR]

  all          runs suites one after the other, writes DIR/<suite>.json for each, and then the report
  report       writes DIR/results.md and charts of all suites that are in DIR
  rubin, csmt, misaka    ledgers, on each engine that they stand on

  --readme     a document with a place for the table of the most asked: a line <!-- performance -->
  --suites     of small,large,churn,kib,big,cold,limited,growth,rubin,csmt,misaka (default: all)
  --quick      a twentieth of the keys and one round, to see whether everything works
  --engines    default: all that were built in
  --workloads  of put,writers,block,get,get2,miss,reopen,kill,scan-full,scan-prefix,scan-reverse, and of
               churn,put-latency,mixed,cold,limited, which run only when named; the load always runs
  --dir        where the stores are made, on the disk to be measured (default: a temporary one)
  --gets       gets per thread (default: as many as keys, 200000 to 1000000)
  --churn      changes of the churn per key; --churn-batch of them make a durable commit
  --seconds    how long put-latency puts and mixed commits
  --value      bytes of a value; from 16384 on, batches and blocks are of 20 records, not 1000
  --cache      bytes for every engine that has a cache
  --cgroup     the control group below which limited makes its own (default: the one of this process)";

/// What this process is.
enum Role {
    Parent,
    Measure,
    Crash,
}

struct Arguments {
    role: Role,
    comparison: Comparison,
    json: Option<PathBuf>,
    charts: Option<PathBuf>,
    enter: Option<PathBuf>,
}

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1).peekable();
    let command = words.next_if(|word| !word.starts_with("--"));
    match command.as_deref() {
        Some("all") => return all::All::parse(words)?.run(),
        Some("report") => {
            let (out, readme) = all::parse_report(words)?;
            return document::write(&out, readme.as_deref());
        }
        Some(name) => {
            let ledger = ledger::find(name);
            let ledger = ledger.with_context(|| format!("unknown command {name}\n{USAGE}"))?;
            return ledger::command(ledger, words);
        }
        None => (),
    }
    let arguments = parse(words)?;
    let plan = &arguments.comparison.plan;
    if let Some(door) = &arguments.enter {
        group::enter(door)?;
    }
    match arguments.role {
        Role::Parent => compare(&arguments),
        Role::Measure => {
            let outcome = (engines::find(&plan.engine)?.measure)(plan)?;
            println!("{}", json!([outcome.measures, outcome.failure]));
            Ok(())
        }
        Role::Crash => (engines::find(&plan.engine)?.crash)(plan),
    }
}

/// The arguments that make a child process do `plan`.
pub fn child_args(role: &str, plan: &Plan) -> Vec<String> {
    let pairs = [
        ("--role", role.to_owned()),
        ("--engines", plan.engine.clone()),
        ("--dir", plan.dir.display().to_string()),
        ("--keys", plan.keys.to_string()),
        ("--puts", plan.puts.to_string()),
        ("--blocks", plan.blocks.to_string()),
        ("--gets", plan.gets.to_string()),
        ("--churn", plan.churn.to_string()),
        ("--churn-batch", plan.churn_batch.to_string()),
        ("--seconds", plan.seconds.to_string()),
        ("--seed", plan.seed.to_string()),
        ("--value", plan.value.to_string()),
        ("--cache", plan.cache.to_string()),
        ("--workloads", plan.workloads.join(",")),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut role = Role::Parent;
    let mut engines = engines::names();
    let mut rounds = 3;
    let (mut json, mut charts, mut enter, mut cgroup) = (None, None, None, None);
    let mut gets = None;
    let mut plan = Plan::default();
    while let Some(name) = words.next() {
        if name == "--help" {
            help();
        }
        let value = words.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        match name.as_str() {
            "--keys" => plan.keys = value.parse()?,
            "--rounds" => rounds = value.parse()?,
            "--engines" => engines = split(&value),
            "--workloads" => plan.workloads = split(&value),
            "--dir" => plan.dir = value.into(),
            "--json" => json = Some(value.into()),
            "--charts" => charts = Some(value.into()),
            "--puts" => plan.puts = value.parse()?,
            "--blocks" => plan.blocks = value.parse()?,
            "--gets" => gets = Some(value.parse()?),
            "--churn" => plan.churn = value.parse()?,
            "--churn-batch" => plan.churn_batch = value.parse()?,
            "--seconds" => plan.seconds = value.parse()?,
            "--seed" => plan.seed = value.parse()?,
            "--value" => plan.value = value.parse()?,
            "--cache" => plan.cache = value.parse()?,
            "--cgroup" => cgroup = Some(value.into()),
            "--enter" => enter = Some(value.into()),
            "--role" if value == "measure" => role = Role::Measure,
            "--role" if value == "crash" => role = Role::Crash,
            _ => bail!("unknown option {name} {value}\n{USAGE}"),
        }
    }
    for name in &engines {
        engines::find(name)?;
    }
    let is_known = |name: &str| [workload::USUAL, workload::LONG].concat().contains(&name);
    let unknown = plan.workloads.iter().find(|name| !is_known(name));
    ensure!(unknown.is_none(), "unknown workload {unknown:?}\n{USAGE}");
    let counts = [plan.keys, plan.puts, plan.blocks, plan.churn, plan.churn_batch];
    ensure!(!counts.contains(&0) && plan.seconds > 0, "counts must not be zero");
    ensure!(plan.value >= 24, "a value has 24 bytes at least");
    record::set_value_len(plan.value);
    engine::set_cache_bytes(plan.cache);
    engine::set_expected_keys(plan.keys);
    engine::set_cold(plan.workloads.iter().any(|name| ["cold", "limited"].contains(&&**name)));
    plan.gets = gets.unwrap_or(workload::gets(plan.keys));
    plan.engine = engines.first().cloned().unwrap_or_default();
    let comparison = Comparison { plan, rounds, engines, cgroup };
    Ok(Arguments { role, comparison, json, charts, enter })
}

fn split(list: &str) -> Vec<String> {
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn help() -> ! {
    println!("{USAGE}");
    std::process::exit(0);
}

/// Runs all rounds and prints the tables.
fn compare(arguments: &Arguments) -> Result<()> {
    let set = arguments.comparison.run()?;
    if let Some(path) = &arguments.json {
        results::write_json(path, &set.json())?;
    }
    if let Some(dir) = &arguments.charts {
        std::fs::create_dir_all(dir)?;
        for (file, text) in chart::all(&set.results) {
            std::fs::write(dir.join(file), text)?;
        }
    }
    println!("Machine: {}\n\nEngines: {}\n", set.text("machine"), set.text("versions"));
    println!("{}", report::whole(&set));
    Ok(())
}
