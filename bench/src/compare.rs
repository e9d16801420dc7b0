//! One plan on several engines, in turn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::engine;
use crate::engines;
use crate::group::Group;
use crate::machine;
use crate::record::KEY_LEN;
use crate::results::{Results, Set};
use crate::workload::{Measures, Outcome, Plan};

/// The workload that runs in a process with little memory.
const LIMITED: &str = "limited";
/// The least memory such a process gets.
const LIMIT_MIN: u64 = 64 << 20;
/// Of that memory, one in so many bytes is for the cache of an engine.
const CACHE_PART: u64 = 4;

/// What is compared.
pub struct Comparison {
    pub plan: Plan,
    pub rounds: usize,
    pub engines: Vec<String>,
    /// Where a memory group may be made.
    pub cgroup: Option<PathBuf>,
}

impl Comparison {
    /// Runs all rounds.
    pub fn run(&self) -> Result<Set> {
        let plan = &self.plan;
        // Taken first: afterwards the load is our own.
        let machine = machine::description();
        machine::touch_memory()?;
        let begin = Instant::now();
        let existed = plan.dir.exists();
        std::fs::create_dir_all(&plan.dir)?;
        let file_system = machine::file_system(&plan.dir);
        let mut failures = Vec::new();
        let workloads = self.possible(&mut failures);
        // No workload at all means the load alone, but not if what was wanted cannot be done.
        let is_idle = workloads.is_empty() && !plan.workloads.is_empty();
        let rounds = if is_idle { 0 } else { self.rounds };
        let mut results: Vec<Results> =
            self.engines.iter().map(|engine| Results::new(engine)).collect();
        for (round, engine) in turns(rounds, results.len()) {
            let results = &mut results[engine];
            eprintln!("round {} of {rounds}: {}", round + 1, results.engine);
            let outcome = self.measure(&results.engine, &workloads, round);
            if let Some(failure) = outcome.failure {
                let failure = format!("{}, round {}: {failure}", results.engine, round + 1);
                eprintln!("    FAILED: {failure}");
                failures.push(failure);
            }
            results.rounds.push(outcome.measures);
        }
        if !existed {
            std::fs::remove_dir_all(&plan.dir)?;
        }
        let config = json!({
            "machine": machine, "file_system": file_system, "rustc": machine::rustc(),
            "commit": machine::commit(), "settings": engines::settings(plan.cache),
            "versions": machine::versions(), "cache": plan.cache, "keys": plan.keys,
            "value": plan.value, "rounds": self.rounds, "puts": plan.puts, "blocks": plan.blocks,
            "gets": plan.gets, "churn": plan.churn, "churn_batch": plan.churn_batch,
            "seconds": plan.seconds, "workloads": plan.workloads, "failures": failures,
            "took_s": begin.elapsed().as_secs_f64(),
        });
        Ok(Set { config, results })
    }

    /// The workloads that can run here. What cannot is said once, and not for every engine.
    fn possible(&self, failures: &mut Vec<String>) -> Vec<String> {
        let mut workloads = self.plan.workloads.clone();
        if workloads.iter().any(|name| name == LIMITED)
            && let Err(error) = Group::new(self.cgroup.as_deref(), LIMIT_MIN)
        {
            let failure =
                format!("{LIMITED} is left out, for no memory group can be made: {error:#}");
            eprintln!("    FAILED: {failure}");
            failures.push(failure);
            workloads.retain(|name| name != LIMITED);
        }
        workloads
    }

    /// Measures one engine once: what needs little memory in a process apart from the rest.
    fn measure(&self, engine: &str, workloads: &[String], round: usize) -> Outcome {
        let plan = Plan {
            engine: engine.to_owned(),
            dir: self.plan.dir.join(format!("{engine}-{round}")),
            seed: self.plan.seed + round as u64,
            ..self.plan.clone()
        };
        let all = workloads.iter().cloned();
        let (limited, usual): (Vec<_>, Vec<_>) = all.partition(|name| name == LIMITED);
        let mut outcome = Outcome { measures: Measures::new(), failure: None };
        if !usual.is_empty() || limited.is_empty() {
            outcome = or_failure(run(&Plan { workloads: usual, ..plan.clone() }, None));
        }
        if !limited.is_empty() {
            let other = or_failure(self.measure_limited(&Plan { workloads: limited, ..plan }));
            for (name, value) in other.measures {
                // What both measure, such as memory, is that of the process that is not limited.
                outcome.measures.entry(name).or_insert(value);
            }
            let failures = [outcome.failure, other.failure];
            outcome.failure = failures.into_iter().flatten().reduce(|a, b| format!("{a}; {b}"));
        }
        outcome
    }

    /// Measures in a process that may have half as much memory as there is data.
    fn measure_limited(&self, plan: &Plan) -> Result<Outcome> {
        let data = (plan.keys * (KEY_LEN + plan.value)) as u64;
        let limit = (data / 2).max(LIMIT_MIN);
        let group = Group::new(self.cgroup.as_deref(), limit).context(LIMITED)?;
        let cache = usize::try_from(limit / CACHE_PART)?.min(engine::CACHE_BYTES);
        // A process that is killed here most likely wanted more memory.
        run(&Plan { cache, ..plan.clone() }, Some(&group.door())).context(LIMITED)
    }
}

/// The number of the round and that of who is measured in it, in order. Each round begins with another, so that nobody
/// always follows the same one.
pub fn turns(rounds: usize, count: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rounds).flat_map(move |round| (0..count).map(move |at| (round, (at + round) % count)))
}

fn or_failure(outcome: Result<Outcome>) -> Outcome {
    outcome.unwrap_or_else(|error| Outcome {
        measures: Measures::new(),
        failure: Some(format!("{error:#}")),
    })
}

/// Does `plan` in a process and a directory of its own, in the group with this door.
fn run(plan: &Plan, door: Option<&Path>) -> Result<Outcome> {
    if plan.dir.exists() {
        std::fs::remove_dir_all(&plan.dir)?;
    }
    std::fs::create_dir_all(&plan.dir)?;
    machine::settle(&plan.dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(crate::child_args("measure", plan)).stderr(Stdio::inherit());
    if let Some(door) = door {
        command.arg("--enter").arg(door);
    }
    let output = command.output();
    std::fs::remove_dir_all(&plan.dir)?;
    let output = output?;
    ensure!(output.status.success(), "the measuring process ended with {}", output.status);
    let (measures, failure) = serde_json::from_slice(&output.stdout)?;
    Ok(Outcome { measures, failure })
}
