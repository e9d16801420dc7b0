//! What was measured, and as JSON.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::measure::{self, Measure};
use crate::workload::Measures;

/// The results of one engine, one entry per round.
pub struct Results {
    pub engine: String,
    pub rounds: Vec<Measures>,
}

/// The results of all engines with one plan.
pub struct Set {
    /// The machine, the versions, the plan, and what failed.
    pub config: Value,
    pub results: Vec<Results>,
}

impl Results {
    /// No round yet.
    pub fn new(engine: &str) -> Self {
        Self { engine: engine.to_owned(), rounds: Vec::new() }
    }

    /// All rounds of `measure`, the smallest first.
    pub fn samples(&self, measure: &Measure) -> Vec<f64> {
        let mut samples: Vec<f64> =
            self.rounds.iter().filter_map(|round| round.get(measure.name).copied()).collect();
        samples.sort_by(f64::total_cmp);
        samples
    }

    /// What counts of all rounds: the median, and of what is the most of something the most.
    pub fn figure(&self, measure: &Measure) -> Option<f64> {
        let samples = self.samples(measure);
        if measure.is_max() { samples.last().copied() } else { median(&samples) }
    }
}

/// The middle of sorted samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let upper = samples.get(samples.len() / 2)?;
    let lower = samples.get((samples.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

impl Set {
    /// The results of `engine`.
    pub fn engine(&self, engine: &str) -> Option<&Results> {
        self.results.iter().find(|results| results.engine == engine)
    }

    /// What counts of a measure of `engine`.
    pub fn figure(&self, engine: &str, name: &str) -> Option<f64> {
        self.engine(engine)?.figure(measure::find(name)?)
    }

    /// How many keys were loaded.
    pub fn keys(&self) -> u64 {
        self.config["keys"].as_u64().unwrap_or(0)
    }

    /// A text of the configuration.
    pub fn text(&self, name: &str) -> &str {
        self.config[name].as_str().unwrap_or("?")
    }

    /// What failed, in words.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.config["failures"].as_array().into_iter().flatten().filter_map(Value::as_str)
    }

    pub fn json(&self) -> Value {
        let results: Vec<Value> = self
            .results
            .iter()
            .map(|results| json!({ "engine": results.engine, "rounds": results.rounds }))
            .collect();
        json!({ "config": self.config, "results": results })
    }

    fn parse(value: &Value) -> Result<Self> {
        let results = value["results"].as_array().context("no results")?;
        let parse = |results: &Value| {
            let engine = results["engine"].as_str().context("no engine")?.to_owned();
            let rounds = serde_json::from_value(results["rounds"].clone()).context("rounds")?;
            Ok(Results { engine, rounds })
        };
        let results = results.iter().map(parse).collect::<Result<_>>()?;
        Ok(Self { config: value["config"].clone(), results })
    }
}

/// Writes `value` to a file that is there whole or not at all.
pub fn write_json(path: &Path, value: &Value) -> Result<()> {
    let part = path.with_extension("part");
    std::fs::write(&part, serde_json::to_string_pretty(value)?)?;
    Ok(std::fs::rename(part, path)?)
}

/// Writes the sets of a suite, one for each size.
pub fn write_sets(path: &Path, sets: &[Set]) -> Result<()> {
    write_json(path, &json!({ "sets": sets.iter().map(Set::json).collect::<Vec<_>>() }))
}

/// Reads what [`write_sets`] wrote.
pub fn read_sets(path: &Path) -> Result<Vec<Set>> {
    let value: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    value["sets"].as_array().context("no sets")?.iter().map(Set::parse).collect()
}
