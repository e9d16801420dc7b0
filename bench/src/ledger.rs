//! The ledgers on every engine that `crates/ledger` knows: rounds like those of the stores, each engine in a process of
//! its own.

mod csmt;
mod misaka;
mod rubin;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::compare::turns;
use crate::results::{median, write_json};
use crate::workload::Plan;
use crate::{USAGE, document, help, machine, split};

/// Engines that ledgers stand on. The caches of all are of as many bytes: what redb takes if nobody says otherwise.
const ENGINES: &[&str] = &["kvb", "redb", "fjall", "rocksdb"];
const CACHE_BYTES: usize = 1 << 30;
/// Rounds, unless somebody says otherwise.
pub const ROUNDS: usize = 2;
/// How many of what there were: the same for all engines, so no figure.
const SIZES: &[&str] = &["coins", "entries", "objects"];
/// What all engines must come to; no figure either.
const ROOT: &str = "root";

/// A ledger to be measured.
pub struct Ledger {
    pub name: &'static str,
    pub title: &'static str,
    /// The options that say how much there is, with what they are if nobody says otherwise, and if it is to be quick.
    sizes: &'static [(&'static str, usize, usize)],
    measure: fn(&Task) -> Result<Row>,
    /// What a round takes on two cores, about.
    pub minutes: f64,
}

pub const RUBIN: Ledger = Ledger {
    name: "rubin",
    title: "Blocks of a RUBIN chain",
    sizes: &[("coins", 1_000_000, 50_000), ("blocks", 50, 5), ("inputs", 4000, 4000)],
    measure: rubin::measure,
    minutes: 2.0,
};
pub const CSMT: Ledger = Ledger {
    name: "csmt",
    title: "A UTxO set with its tree",
    sizes: &[("entries", 1_000_000, 50_000), ("blocks", 100, 10)],
    measure: csmt::measure,
    minutes: 2.0,
};
pub const MISAKA: Ledger = Ledger {
    name: "misaka",
    title: "The stores of a MISAKA validator",
    sizes: &[("objects", 1_000_000, 50_000)],
    measure: misaka::measure,
    minutes: 2.0,
};
const ALL: &[&Ledger] = &[&RUBIN, &CSMT, &MISAKA];

/// What one process measures.
struct Task {
    engine: String,
    /// Exists, and is empty.
    dir: PathBuf,
    sizes: Vec<(&'static str, usize)>,
}

impl Task {
    fn size(&self, name: &str) -> Result<usize> {
        let found = self.sizes.iter().find(|(size, _)| *size == name);
        found.map(|(_, count)| *count).with_context(|| format!("no {name}"))
    }
}

/// What one process measured, by name.
type Row = Map<String, Value>;

/// All rounds of a ledger.
pub struct Rounds {
    pub ledger: &'static Ledger,
    pub sizes: Vec<(&'static str, usize)>,
    pub rounds: usize,
    /// Those that no ledger stands on are left out.
    pub engines: Option<Vec<String>>,
    pub dir: PathBuf,
}

impl Rounds {
    pub fn new(ledger: &'static Ledger, is_quick: bool) -> Self {
        let size = |(name, usual, quick): &(_, usize, usize)| {
            (*name, if is_quick { *quick } else { *usual })
        };
        Self {
            ledger,
            sizes: ledger.sizes.iter().map(size).collect(),
            rounds: if is_quick { 1 } else { ROUNDS },
            engines: None,
            dir: Plan::default().dir,
        }
    }

    /// Runs all rounds, and returns what `read` understands.
    pub fn run(&self) -> Result<Value> {
        let wanted = |name: &&&str| match &self.engines {
            Some(engines) => engines.iter().any(|engine| engine == **name),
            None => true,
        };
        let engines: Vec<&str> = ENGINES.iter().filter(wanted).copied().collect();
        // Taken first: afterwards the load is our own.
        let machine = machine::description();
        machine::touch_memory()?;
        let begin = Instant::now();
        let existed = self.dir.exists();
        std::fs::create_dir_all(&self.dir)?;
        let file_system = machine::file_system(&self.dir);
        let mut failures = Vec::new();
        let mut all: Vec<Vec<Row>> = engines.iter().map(|_| Vec::new()).collect();
        let mut root = None;
        for (round, at) in turns(self.rounds, engines.len()) {
            eprintln!("round {} of {}: {}", round + 1, self.rounds, engines[at]);
            match self.measure_alone(engines[at], &mut root) {
                Ok(row) => all[at].push(row),
                Err(error) => {
                    let failure = format!("{}, round {}: {error:#}", engines[at], round + 1);
                    eprintln!("    FAILED: {failure}");
                    failures.push(failure);
                }
            }
        }
        if !existed {
            std::fs::remove_dir_all(&self.dir)?;
        }
        let results: Vec<Value> = (engines.iter().zip(all))
            .map(|(engine, rounds)| json!({ "engine": engine, "rounds": rounds }))
            .collect();
        let config = json!({
            "machine": machine, "file_system": file_system, "rustc": machine::rustc(),
            "commit": machine::commit(), "versions": machine::versions(), "cache": CACHE_BYTES, "rounds": self.rounds,
            "failures": failures, "took_s": begin.elapsed().as_secs_f64(),
        });
        Ok(json!({ "config": config, "results": results }))
    }

    /// Measures an engine in a process and a directory of its own. All must come to the same root.
    fn measure_alone(&self, engine: &str, root: &mut Option<Value>) -> Result<Row> {
        let dir = self.dir.join(format!("{}-{engine}", self.ledger.name));
        if dir.exists() {
            std::fs::remove_dir_all(&dir)?;
        }
        std::fs::create_dir_all(&dir)?;
        machine::settle(&dir)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args([self.ledger.name, "--alone", engine, "--dir"]).arg(&dir);
        for (name, count) in &self.sizes {
            command.args([format!("--{name}"), count.to_string()]);
        }
        let output = command.stderr(Stdio::inherit()).output();
        std::fs::remove_dir_all(&dir)?;
        let output = output?;
        ensure!(output.status.success(), "the measuring process ended with {}", output.status);
        let row: Row = serde_json::from_slice(&output.stdout)?;
        let found = row.get(ROOT).context("no root")?;
        ensure!(root.get_or_insert(found.clone()) == found, "it comes to another root");
        Ok(row)
    }
}

/// The ledger called `name`.
pub fn find(name: &str) -> Option<&'static Ledger> {
    ALL.iter().find(|ledger| ledger.name == name).copied()
}

/// Measures a ledger, or one engine of it in this process, as the words of a command say.
pub fn command(ledger: &'static Ledger, mut words: impl Iterator<Item = String>) -> Result<()> {
    let mut rounds = Rounds::new(ledger, false);
    let (mut json, mut alone) = (None, None);
    while let Some(name) = words.next() {
        if name == "--help" {
            help();
        }
        let value = words.next().with_context(|| format!("{name} needs a value\n{USAGE}"))?;
        match name.as_str() {
            "--dir" => rounds.dir = value.into(),
            "--json" => json = Some(PathBuf::from(value)),
            "--rounds" => rounds.rounds = value.parse()?,
            "--engines" => rounds.engines = Some(split(&value)),
            "--alone" => alone = Some(value),
            _ => {
                let is_it = |size: &&mut (&str, usize)| name.strip_prefix("--") == Some(size.0);
                let Some(size) = rounds.sizes.iter_mut().find(is_it) else {
                    bail!("unknown option {name} {value}\n{USAGE}");
                };
                size.1 = value.parse()?;
            }
        }
    }
    ensure!(
        rounds.rounds > 0 && rounds.sizes.iter().all(|size| size.1 > 0),
        "counts must not be zero"
    );
    if let Some(engine) = alone {
        let row = (ledger.measure)(&Task { engine, dir: rounds.dir, sizes: rounds.sizes })?;
        println!("{}", Value::Object(row));
        return Ok(());
    }
    let found = rounds.run()?;
    if let Some(path) = &json {
        write_json(path, &found)?;
    }
    println!("{}", document::ledger_table(&parse_all(&found)?));
    Ok(())
}

/// What was measured of a ledger.
pub struct Found {
    /// The machine, the versions, and what failed. Nothing in what was written when there were no rounds.
    pub config: Value,
    pub engines: Vec<Figures>,
}

/// The figures of one engine, by their names.
pub struct Figures {
    pub engine: String,
    /// What there was, and how many.
    pub size: (String, u64),
    figures: Vec<(String, Vec<f64>)>,
}

impl Figures {
    /// What counts of all rounds: the median, and of what was slowest the slowest.
    pub fn get(&self, name: &str) -> Option<f64> {
        let samples = &self.figures.iter().find(|(figure, _)| figure == name)?.1;
        if name.contains("slowest") { samples.last().copied() } else { median(samples) }
    }

    /// All rounds of a figure, the smallest first.
    pub fn samples(&self, name: &str) -> &[f64] {
        let found = self.figures.iter().find(|(figure, _)| figure == name);
        found.map_or(&[], |(_, samples)| samples)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.figures.iter().map(|(name, _)| name.as_str())
    }
}

/// Reads what was measured of a ledger.
pub fn read(path: &Path) -> Result<Found> {
    parse_all(&serde_json::from_slice(&std::fs::read(path)?)?)
}

fn parse_all(value: &Value) -> Result<Found> {
    // Before there were rounds, a list of what each engine had.
    if let Some(rows) = value.as_array() {
        let one = |row: &Value| {
            let engine = row["engine"].as_str().context("no engine")?;
            parse(engine, std::slice::from_ref(row))
        };
        let engines = rows.iter().map(one).collect::<Result<_>>()?;
        return Ok(Found { config: Value::Null, engines });
    }
    let mut engines = Vec::new();
    for results in value["results"].as_array().context("no results")? {
        let engine = results["engine"].as_str().context("no engine")?;
        let rounds = results["rounds"].as_array().context("no rounds")?;
        if !rounds.is_empty() {
            engines.push(parse(engine, rounds)?);
        }
    }
    Ok(Found { config: value["config"].clone(), engines })
}

fn parse(engine: &str, rounds: &[Value]) -> Result<Figures> {
    let mut figures: Vec<(String, Vec<f64>)> = Vec::new();
    for (name, value) in rounds.iter().flat_map(flat) {
        match figures.iter_mut().find(|(figure, _)| *figure == name) {
            Some((_, samples)) => samples.push(value),
            None => figures.push((name, vec![value])),
        }
    }
    for (_, samples) in &mut figures {
        samples.sort_by(f64::total_cmp);
    }
    let first = rounds.first().context("no round")?;
    let size = SIZES.iter().find_map(|name| Some(((*name).to_owned(), first[*name].as_u64()?)));
    Ok(Figures { engine: engine.to_owned(), size: size.context("no size")?, figures })
}

/// The figures of one round.
fn flat(round: &Value) -> Vec<(String, f64)> {
    let mut figures = Vec::new();
    for (name, value) in round.as_object().into_iter().flatten() {
        let title = name.replace('_', " ");
        match value {
            _ if SIZES.contains(&name.as_str()) => (),
            Value::Number(_) => figures.push((title, value)),
            // Rates by the size of blocks.
            Value::Array(rates) => figures.extend(
                rates
                    .iter()
                    .map(|rate| (format!("{title}, blocks of {}", rate["block"]), &rate["rate"])),
            ),
            Value::Object(more) => figures.extend(more.iter().map(|(name, v)| (name.clone(), v))),
            _ => (),
        }
    }
    let number = |(name, value): (String, &Value)| Some((name, value.as_f64()?));
    figures.into_iter().filter_map(number).collect()
}
