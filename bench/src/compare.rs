//! One plan on several engines, in turn.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::engine;
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
        let existed = plan.dir.exists();
        let new = |engine: &String| Results { engine: engine.clone(), rounds: Vec::new() };
        let mut all: Vec<Results> = self.engines.iter().map(new).collect();
        let mut failures = Vec::new();
        let count = all.len();
        for round in 0..self.rounds {
            for position in 0..count {
                // Each round begins with another engine, so nobody always follows the same one.
                let results = &mut all[(position + round) % count];
                eprintln!("round {} of {}: {}", round + 1, self.rounds, results.engine);
                let outcome = self.measure(&results.engine, round);
                if let Some(failure) = outcome.failure {
                    let failure = format!("{}, round {}: {failure}", results.engine, round + 1);
                    eprintln!("    FAILED: {failure}");
                    failures.push(failure);
                }
                results.rounds.push(outcome.measures);
            }
        }
        if !existed && plan.dir.exists() {
            std::fs::remove_dir_all(&plan.dir)?;
        }
        let config = json!({
            "machine": machine, "versions": machine::versions(), "keys": plan.keys,
            "value": plan.value, "rounds": self.rounds, "puts": plan.puts, "blocks": plan.blocks,
            "gets": plan.gets, "churn": plan.churn, "churn_batch": plan.churn_batch,
            "seconds": plan.seconds, "workloads": plan.workloads, "failures": failures,
        });
        Ok(Set { config, results: all })
    }

    /// Measures one engine once: what needs little memory in a process apart from the rest.
    fn measure(&self, engine: &str, round: usize) -> Outcome {
        let plan = Plan {
            engine: engine.to_owned(),
            dir: self.plan.dir.join(format!("{engine}-{round}")),
            seed: self.plan.seed + round as u64,
            ..self.plan.clone()
        };
        let all = plan.workloads.clone();
        let (limited, usual): (Vec<_>, Vec<_>) = all.into_iter().partition(|name| name == LIMITED);
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
        let group = match Group::new(self.cgroup.as_deref(), limit) {
            Ok(group) => group,
            Err(error) => {
                eprintln!("    no memory group can be made, so {LIMITED} is left out: {error:#}");
                return Ok(Outcome { measures: Measures::new(), failure: None });
            }
        };
        let cache = usize::try_from(limit / CACHE_PART)?.min(engine::CACHE_BYTES);
        // A process that is killed here most likely wanted more memory.
        run(&Plan { cache, ..plan.clone() }, Some(&group.door())).context(LIMITED)
    }
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
