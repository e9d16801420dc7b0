//! What is measured, for one engine in a process of its own.
//!
//! Only the engine's work is on the clock: records and probes are made in chunks beforehand, and
//! the checks of what was read cost the same for everyone.

mod blocks;
mod churn;
mod cold;
mod get;
mod latency;
mod limited;
mod look;
mod mixed;
mod scan;
mod writers;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use crate::engine::{self, Engine, Phase, Reader};
use crate::machine;
use crate::record::{self, KEY_LEN, Live, Probe, Record, batch, value_len};
use crate::times::Times;

/// Gets per thread, unless somebody says otherwise: as many as keys, but no fewer and no more than these.
const GETS_MIN: usize = 200_000;
const GETS_MAX: usize = 1_000_000;
/// Fresh records written before the kill: this part of the keys, but no more than the second.
const FRESH_PART: usize = 5;
const FRESH_MAX: usize = 200_000;
/// Times that a store is opened after a clean close; the median counts.
const REOPENS: usize = 5;
/// Records looked up, off the clock, where a sample is enough.
const SAMPLE: usize = 1000;

/// Results by the names in [`crate::measure::MEASURES`].
pub type Measures = BTreeMap<String, f64>;

/// The workloads that run unless others are chosen.
pub const USUAL: &[&str] = &[
    "put",
    "writers",
    "block",
    "get",
    "get2",
    "miss",
    "reopen",
    "kill",
    "scan-full",
    "scan-prefix",
    "scan-reverse",
];
/// Those that run only when they are chosen, because they take minutes.
pub const LONG: &[&str] = &["churn", "put-latency", "mixed", "blocks", "cold", "limited"];

/// What one process is to do.
#[derive(Clone)]
pub struct Plan {
    pub engine: String,
    pub dir: PathBuf,
    pub keys: usize,
    pub puts: usize,
    pub blocks: usize,
    pub gets: usize,
    /// Changes of the churn per key, and changes per commit.
    pub churn: usize,
    pub churn_batch: usize,
    /// How long `put-latency` puts, `mixed` commits and `blocks` applies blocks, and three times how long a churn may take.
    pub seconds: u64,
    pub seed: u64,
    /// Bytes of a value.
    pub value: usize,
    /// Bytes for every engine that has a cache.
    pub cache: usize,
    pub workloads: Vec<String>,
}

/// Gets per thread for so many keys.
pub fn gets(keys: usize) -> usize {
    keys.clamp(GETS_MIN, GETS_MAX)
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            engine: String::new(),
            dir: std::env::temp_dir().join(format!("kvb-bench-{}", std::process::id())),
            keys: 1_000_000,
            puts: 2000,
            blocks: 100,
            gets: GETS_MAX,
            churn: 5,
            churn_batch: 100,
            seconds: 20,
            seed: 1,
            value: record::VALUE_LEN,
            cache: engine::CACHE_BYTES,
            workloads: USUAL.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

impl Plan {
    fn wants(&self, workload: &str) -> bool {
        self.workloads.iter().any(|name| name == workload)
    }

    /// Records that `measure` makes at most.
    fn records_max(&self) -> usize {
        self.keys + self.puts + self.blocks * batch()
    }

    fn fresh(&self) -> usize {
        (self.keys / FRESH_PART).clamp(1, FRESH_MAX)
    }

    fn say(&self, what: &str) {
        eprintln!("    {}: {what}", self.engine);
    }
}

/// The state of one measured run; the engine is passed along because reopening replaces it.
struct Run<'a> {
    plan: &'a Plan,
    live: Live,
    rng: Rng,
    anon_start: u64,
    measures: Measures,
}

/// What a measuring process hands to its parent.
pub struct Outcome {
    pub measures: Measures,
    /// Why it stopped before the end; the measures are those taken until then.
    pub failure: Option<String>,
}

/// A store of its own: the name of its directory, the workloads it is for, and what runs them.
type Group = (&'static str, &'static [&'static str], fn(&mut Run<'_>) -> Result<()>);

/// Runs all workloads of `plan` in an empty directory.
pub fn measure<E: Engine>(plan: &Plan) -> Result<Outcome> {
    let groups: [Group; 8] = [
        ("ledger", &["put", "writers", "block", "get", "get2", "miss", "reopen", "kill"], |run| {
            run.ledger::<E>()
        }),
        ("scan", &["scan-full", "scan-prefix", "scan-reverse"], |run| run.scans::<E>()),
        ("churn", &["churn"], |run| run.churn::<E>()),
        ("latency", &["put-latency"], |run| run.latency::<E>()),
        ("mixed", &["mixed"], |run| run.mixed::<E>()),
        ("blocks", &["blocks"], |run| run.long_blocks::<E>()),
        ("cold", &["cold"], |run| run.cold::<E>()),
        ("limited", &["limited"], |run| run.limited::<E>()),
    ];
    let is_possible =
        |name: &str| E::IS_DURABLE || !["churn", "latency", "mixed", "blocks"].contains(&name);
    let mut outcome = Outcome { measures: Measures::new(), failure: None };
    for (name, workloads, work) in groups {
        let is_load_alone = plan.workloads.is_empty() && name == "ledger";
        let is_wanted = is_load_alone || workloads.iter().any(|workload| plan.wants(workload));
        if !is_wanted || !is_possible(name) {
            continue;
        }
        let plan = Plan { dir: plan.dir.join(name), ..plan.clone() };
        std::fs::create_dir(&plan.dir)?;
        machine::settle(&plan.dir)?;
        let mut run = Run::new(&plan)?;
        let failure = work(&mut run).err().map(|error| format!("{name}: {error:#}"));
        for (measure, value) in run.measures {
            // The first of several loads counts.
            outcome.measures.entry(measure).or_insert(value);
        }
        std::fs::remove_dir_all(&plan.dir)?;
        if failure.is_some() {
            outcome.failure = failure;
            break;
        }
    }
    Ok(outcome)
}

/// Loads fresh records into the store of `plan`, says so and waits for the kill.
///
/// One record in the middle is put, so that the store is one that was at work: without it, an
/// engine that keeps non-durable batches in memory would be killed before it touched its file.
pub fn crash<E: Engine>(plan: &Plan) -> Result<()> {
    let engine = E::open(&plan.dir, Phase::Load)?;
    let first = fresh_start(plan);
    let middle = first + plan.fresh() as u64 / 2;
    let end = first + plan.fresh() as u64;
    load_range(&engine, first..middle)?;
    engine.put(&Record::new(end))?;
    load_range(&engine, middle..end)?;
    println!("loaded");
    std::io::stdout().flush()?;
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn load_range<E: Engine>(engine: &E, range: Range<u64>) -> Result<()> {
    for first in range.clone().step_by(batch()) {
        let indices = first..range.end.min(first + batch() as u64);
        engine.load(&indices.map(Record::new).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The first index after everything that `measure` writes.
fn fresh_start(plan: &Plan) -> u64 {
    plan.records_max() as u64
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan) -> Result<Self> {
        let live = Live::new(plan.records_max());
        let rng = Rng::with_seed(plan.seed);
        Ok(Run { plan, live, rng, anon_start: machine::anon_bytes()?, measures: Measures::new() })
    }

    fn ledger<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let engine: E = self.create()?;
        let engine = self.load(engine).context("load")?;
        if (plan.wants("put") || plan.wants("writers")) && E::IS_DURABLE {
            let raw_us = machine::raw_sync_us(&plan.dir)?;
            if plan.wants("put") {
                self.puts(&engine).context("put")?;
            }
            if plan.wants("writers") {
                self.writers(&engine).context("writers")?;
            }
            self.set("put_raw_us", (raw_us + machine::raw_sync_us(&plan.dir)?) / 2.0);
        }
        if plan.wants("block") && E::IS_DURABLE {
            machine::rest()?;
            self.blocks(&engine).context("block")?;
        }
        self.reads(&engine).context("get")?;
        let start = Instant::now();
        engine.close().context("close")?;
        self.set("close_ms", start.elapsed().as_secs_f64() * 1e3);
        self.set("disk_end_mb", machine::disk_bytes(&plan.dir)? as f64 / 1e6);
        if plan.wants("reopen") {
            self.reopen_clean::<E>().context("reopen")?;
        }
        if plan.wants("kill") && E::IS_DURABLE {
            self.reopen_killed::<E>().context("reopen after kill")?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: f64) {
        self.measures.insert(name.to_owned(), value);
    }

    /// A new store, to be loaded.
    fn create<E: Engine>(&self) -> Result<E> {
        E::open(&self.plan.dir, Phase::Load).context("create")
    }

    /// Loads all keys, makes them durable, and lets the engine come to rest: what is measured next takes less time than
    /// what some still have to do for the load.
    fn load<E: Engine>(&mut self, engine: E) -> Result<E> {
        let plan = self.plan;
        let device = machine::device_bytes(&plan.dir)?;
        let begin = Instant::now();
        let mut spent = self.load_batches(&engine)?;
        self.set("load_per_s", plan.keys as f64 / spent.as_secs_f64());
        let start = Instant::now();
        let engine = engine.finish_load(&plan.dir)?;
        spent += start.elapsed();
        self.set("load_sync_per_s", plan.keys as f64 / spent.as_secs_f64());
        self.set("disk_load_mb", machine::disk_bytes(&plan.dir)? as f64 / 1e6);
        self.set("load_rest_s", (machine::rest()? - begin).as_secs_f64());
        machine::settle(&plan.dir)?;
        let written = machine::device_bytes(&plan.dir)? - device;
        let bytes = plan.keys * (KEY_LEN + value_len());
        self.set("load_device", written as f64 / bytes as f64);
        Ok(engine)
    }

    /// Writes all keys without waiting for the disk.
    fn load_batches<E: Engine>(&mut self, engine: &E) -> Result<Duration> {
        self.plan.say("load");
        let keys = self.plan.keys;
        let mut spent = Duration::ZERO;
        for first in (0..keys).step_by(batch()) {
            let records = self.live.create(batch().min(keys - first));
            let start = Instant::now();
            engine.load(&records)?;
            spent += start.elapsed();
        }
        Ok(spent)
    }

    fn puts<E: Engine>(&mut self, engine: &E) -> Result<()> {
        self.plan.say("durable puts");
        let mut times = Vec::new();
        for _ in 0..self.plan.puts {
            let record = self.live.create(1).remove(0);
            let start = Instant::now();
            engine.put(&record)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        let times = Times::new(times)?;
        self.set("put_mean_us", times.mean());
        self.set("put_p10_us", times.at(0.10));
        self.set("put_p50_us", times.at(0.50));
        self.set("put_p99_us", times.at(0.99));
        Ok(())
    }

    fn reopen_clean<E: Engine>(&mut self) -> Result<()> {
        self.plan.say("reopen");
        let mut times = Vec::new();
        for _ in 0..REOPENS {
            machine::settle(&self.plan.dir)?;
            let (engine, ms) = self.open_and_get::<E>()?;
            times.push(ms);
            engine.close()?;
        }
        self.set("reopen_clean_ms", Times::new(times)?.at(0.5));
        Ok(())
    }

    fn reopen_killed<E: Engine>(&mut self) -> Result<()> {
        self.plan.say("reopen after kill");
        load_and_kill(self.plan)?;
        let (engine, ms) = self.open_and_get::<E>()?;
        self.set("reopen_killed_ms", ms);

        // How much of what was never synced a killed process leaves behind.
        let first = fresh_start(self.plan);
        let fresh = self.plan.fresh();
        let mut reader = engine.reader()?;
        let mut kept = 0;
        let sample = fresh.min(SAMPLE);
        for number in 0..sample {
            let probe = Probe::new(first + (number * fresh / sample) as u64);
            kept += usize::from(reader.get(&probe.key, |found| probe.is(found))?);
        }
        self.set("fresh_kept_pct", 100.0 * kept as f64 / sample as f64);

        // What was durable before the kill must all be there.
        let put = Probe::new(first + fresh as u64);
        reader.get(&put.key, |found| put.check(found))??;
        for _ in 0..sample {
            let probe = self.live.probe(&mut self.rng);
            reader.get(&probe.key, |found| probe.check(found))??;
        }
        drop(reader);
        engine.close()
    }

    fn open_and_get<E: Engine>(&mut self) -> Result<(E, f64)> {
        let probe = self.live.probe(&mut self.rng);
        let start = Instant::now();
        let engine = E::open(&self.plan.dir, Phase::Durable)?;
        engine.reader()?.get(&probe.key, |found| probe.check(found))??;
        Ok((engine, start.elapsed().as_secs_f64() * 1e3))
    }
}

/// An empty list with room for so many, whose memory is touched already, so that a baseline taken afterwards contains it.
fn touched<T: Clone + From<u8>>(count: usize) -> Vec<T> {
    let mut list = vec![T::from(1); count];
    list.clear();
    list
}

/// Runs [`crash`] in another process and ends it with SIGKILL once it has loaded.
fn load_and_kill(plan: &Plan) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(crate::child_args("crash", plan));
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut line);
    child.kill()?;
    child.wait()?;
    read?;
    ensure!(line.trim() == "loaded", "the process to be killed ended by itself");
    Ok(())
}
