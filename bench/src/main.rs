//! Measures kvb against other embedded stores on the workloads of a ledger.
//!
//! The parent runs every engine of every round in a process of its own, so that memory and caches
//! do not mix; a measuring process runs one more, which it kills. Rounds go over all engines in
//! turn, so that the noise of a busy machine hits all alike.

mod chart;
mod engine;
mod engines;
mod machine;
mod record;
mod report;
mod times;
mod workload;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use crate::report::Results;
use crate::workload::{Measures, Outcome, Plan};

const USAGE: &str = "\
kvb-bench [--keys 1000000] [--rounds 3] [--engines a,b,c] [--workloads a,b,c] [--dir DIR]
          [--json FILE] [--charts DIR] [--puts 300] [--blocks 30] [--gets N] [--churn 5] [--churn-batch 100]
          [--seconds 20] [--value 100]

  --engines    default: all that were built in
  --workloads  of put,writers,block,get,get2,miss,reopen,kill,scan-full,scan-prefix,scan-reverse, and of
               churn,put-latency, which take minutes and run only when named; the load always runs
  --dir        where the stores are made, on the disk to be measured (default: a temporary one)
  --gets       gets per thread (default: as many as keys, at most 1000000)
  --churn      changes of the churn per key; --churn-batch of them make a durable commit
  --seconds    how long put-latency puts
  --value      bytes of a value; from 16384 on, batches and blocks are of 20 records, not 1000";

const GETS_MAX: usize = 1_000_000;

/// What this process is.
enum Role {
    Parent,
    Measure,
    Crash,
}

struct Arguments {
    role: Role,
    plan: Plan,
    rounds: usize,
    engines: Vec<String>,
    json: Option<PathBuf>,
    charts: Option<PathBuf>,
}

fn main() -> Result<()> {
    let arguments = parse(std::env::args().skip(1))?;
    let plan = &arguments.plan;
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
        ("--workloads", plan.workloads.join(",")),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut role = Role::Parent;
    let mut engines: Vec<String> = engines::ALL.iter().map(|entry| entry.name.into()).collect();
    let mut rounds = 3;
    let mut json = None;
    let mut charts = None;
    let mut gets = None;
    let mut plan = Plan {
        engine: String::new(),
        dir: std::env::temp_dir().join(format!("kvb-bench-{}", std::process::id())),
        keys: 1_000_000,
        puts: 300,
        blocks: 30,
        gets: 0,
        churn: 5,
        churn_batch: 100,
        seconds: 20,
        seed: 1,
        value: record::VALUE_LEN,
        workloads: workload::USUAL.iter().map(|name| (*name).to_owned()).collect(),
    };
    while let Some(name) = words.next() {
        if name == "--help" {
            println!("{USAGE}");
            std::process::exit(0);
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
    plan.gets = gets.unwrap_or(plan.keys.min(GETS_MAX));
    plan.engine = engines.first().cloned().unwrap_or_default();
    Ok(Arguments { role, plan, rounds, engines, json, charts })
}

fn split(list: &str) -> Vec<String> {
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Runs all rounds and prints the tables.
fn compare(arguments: &Arguments) -> Result<()> {
    let plan = &arguments.plan;
    // Taken first: afterwards the load is our own.
    let machine = machine::description();
    let existed = plan.dir.exists();
    let mut all: Vec<Results> = arguments
        .engines
        .iter()
        .map(|engine| Results { engine: engine.clone(), rounds: Vec::new() })
        .collect();
    let mut failures = Vec::new();
    let count = all.len();
    for round in 0..arguments.rounds {
        for position in 0..count {
            // Each round begins with another engine, so nobody always follows the same one.
            let results = &mut all[(position + round) % count];
            eprintln!("round {} of {}: {}", round + 1, arguments.rounds, results.engine);
            let outcome = measure(plan, &results.engine, round).unwrap_or_else(|error| Outcome {
                measures: Measures::new(),
                failure: Some(format!("{error:#}")),
            });
            if let Some(failure) = outcome.failure {
                let failure = format!("{}, round {}: {failure}", results.engine, round + 1);
                eprintln!("    FAILED: {failure}");
                failures.push(failure);
            }
            results.rounds.push(outcome.measures);
        }
    }
    if !existed {
        std::fs::remove_dir_all(&plan.dir)?;
    }
    let config = json!({
        "machine": machine, "versions": machine::versions(), "keys": plan.keys, "value": plan.value,
        "rounds": arguments.rounds, "puts": plan.puts, "blocks": plan.blocks, "gets": plan.gets,
        "churn": plan.churn, "churn_batch": plan.churn_batch, "seconds": plan.seconds,
        "failures": failures,
    });
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report::json(&all, config))?;
        std::fs::write(path, text)?;
    }
    if let Some(dir) = &arguments.charts {
        std::fs::create_dir_all(dir)?;
        for (file, text) in chart::all(&all) {
            std::fs::write(dir.join(file), text)?;
        }
    }
    println!("Machine: {machine}\n\nEngines: {}\n", machine::versions());
    println!(
        "{} keys of {} bytes, values of {} bytes, {} durable puts, {} blocks, {} gets per thread, \
         churn of {} changes per key in commits of {}, rounds: {}.\n",
        plan.keys,
        record::KEY_LEN,
        record::value_len(),
        plan.puts,
        plan.blocks,
        plan.gets,
        plan.churn,
        plan.churn_batch,
        arguments.rounds
    );
    for failure in &failures {
        println!("**Failed:** {failure}\n");
    }
    println!("{}", report::medians(&all));
    match report::ratios(&all) {
        Some(table) => println!("Ratios of medians; above 1 kvb is better.\n\n{table}"),
        None => println!("kvb was not measured: no ratios."),
    }
    Ok(())
}

/// Measures one engine once, in a process and a directory of its own.
fn measure(plan: &Plan, engine: &str, round: usize) -> Result<Outcome> {
    let dir = plan.dir.join(format!("{engine}-{round}"));
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir)?;
    machine::settle(&dir)?;
    let plan = Plan {
        engine: engine.to_owned(),
        dir: dir.clone(),
        seed: plan.seed + round as u64,
        ..plan.clone()
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.args(child_args("measure", &plan)).stderr(Stdio::inherit());
    let output = command.output();
    std::fs::remove_dir_all(&dir)?;
    let output = output?;
    ensure!(output.status.success(), "the measuring process ended with {}", output.status);
    let (measures, failure) = serde_json::from_slice(&output.stdout)?;
    Ok(Outcome { measures, failure })
}
