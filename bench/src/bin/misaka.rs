//! The stores of a MISAKA validator on every engine: roots of both versions, the worst block, snapshots.
//!
//! ```sh
//! cargo run --release --bin misaka -- --objects 1000000 --dir /path/on/the/disk
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fastrand::Rng;
use host::FileDir;
use ledger::EngineKind;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::object::{Object, Owner};
use misaka::snapshot::{CHUNK_BYTES, Trust, Watch, create, restore};
use misaka::{Checkpoint, Database, Effort, Event, Hash, RootVersion, Settings, Store};
use serde_json::json;

/// Objects of a checkpoint while the store is filled.
const FILL: u64 = 500_000;
/// Writes of a usual checkpoint, and how many of them are measured.
const WRITES: u64 = 2_000;
const USUAL: usize = 10;
/// Objects that are new in some of them.
const NEW: u64 = 10;
/// What the limits of the specification allow in a block.
const WORST_WRITES: u64 = 64_000;
const WORST_EVENTS: u32 = 256_000;
const EVENT_BYTES: usize = 64;
/// How long engines may tidy up before checkpoints come.
const REST: Duration = Duration::from_secs(10);

struct Args {
    objects: u64,
    engines: Vec<String>,
    dir: PathBuf,
    json: Option<PathBuf>,
}

fn args() -> Result<Args> {
    let all = ["kvb", "redb", "fjall", "rocksdb"].map(str::to_owned);
    let mut args =
        Args { objects: 1_000_000, engines: all.to_vec(), dir: std::env::temp_dir(), json: None };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--objects" => args.objects = value.parse()?,
            "--dir" => args.dir = value.into(),
            "--json" => args.json = Some(value.into()),
            "--engines" => args.engines = value.split(',').map(str::to_owned).collect(),
            _ => bail!("no option {name}: there are --objects --dir --json --engines"),
        }
    }
    Ok(args)
}

/// A chain that knows the version of every object.
struct Chain {
    versions: Vec<u32>,
    seq: u64,
    prev: Hash,
    rng: Rng,
}

impl Chain {
    /// An object with a number, in its next version.
    fn write(&mut self, number: u64) -> Vec<u8> {
        let at = number as usize;
        if self.versions.len() <= at {
            self.versions.resize(at + 1, 0);
        }
        self.versions[at] += 1;
        let payload: [u8; 3] = std::array::from_fn(|_| self.rng.u8(..));
        let object = Object {
            id: Hash::of(&[b"object", &number.to_le_bytes()]),
            version: self.versions[at].into(),
            owner: Owner::Address(Hash::of(&[&(number % 10_000).to_le_bytes()]).0),
            type_tag: "0x2::coin::Coin<SUI>",
            payload: &payload,
            is_tombstone: false,
        };
        object.encode()
    }

    /// A checkpoint with these writes. The root is that which the store comes to.
    fn next(
        &mut self,
        store: &Store,
        numbers: &[u64],
        events: u32,
        v2: bool,
    ) -> Result<Checkpoint> {
        self.seq += 1;
        let tx_digests: Vec<Hash> =
            (0..WRITES).map(|tx| Hash::of(&[&self.seq.to_le_bytes(), &tx.to_le_bytes()])).collect();
        let events = (0..events).map(|number| Event {
            tx: number / 128,
            number: number % 128,
            bytes: vec![number as u8; EVENT_BYTES],
        });
        let params = match v2 {
            true => vec![("state_root_version".to_owned(), vec![2, 0])],
            false => Vec::new(),
        };
        let header = Header {
            chain_id: 1,
            epoch: 0,
            seq: self.seq,
            prev_digest: self.prev,
            timestamp_ms: self.seq * 1000,
            tx_count: tx_digests.len() as u32,
            tx_root: tx_root(&tx_digests),
            state_root: Hash::ZERO,
            validator_set_hash: Hash::ZERO,
        };
        let writes = numbers.iter().map(|number| self.write(*number)).collect();
        let mut checkpoint =
            Checkpoint { header, tx_digests, writes, params, events: events.collect() };
        checkpoint.header.state_root = store.root_after(&checkpoint)?;
        self.prev = checkpoint.header.digest();
        Ok(checkpoint)
    }

    /// Numbers of so many objects, each once.
    fn choose(&mut self, count: u64) -> Vec<u64> {
        let all = self.versions.len() as u64;
        let mut chosen = std::collections::BTreeSet::new();
        while (chosen.len() as u64) < count.min(all) {
            chosen.insert(self.rng.u64(..all));
        }
        chosen.into_iter().collect()
    }
}

#[derive(Default)]
struct Figure {
    /// What was measured, in what unit.
    rows: Vec<(String, f64, String)>,
}

impl Figure {
    fn add(&mut self, name: &str, value: f64, unit: &str) {
        eprintln!("    {name}: {value:.3} {unit}");
        self.rows.push((name.to_owned(), value, unit.to_owned()));
    }
}

fn main() -> Result<()> {
    let args = args()?;
    let mut figures: Vec<Figure> = Vec::new();
    for name in &args.engines {
        eprintln!("{name}, {} objects", args.objects);
        figures.push(match args.engines.len() {
            1 => measure(name, &args)?,
            _ => measure_alone(name, &args)?,
        });
    }
    print!("{:34}", format!("{} objects", args.objects));
    args.engines.iter().for_each(|name| print!(" {name:>10}"));
    println!();
    let first = figures.first().context("no engine")?;
    for (at, (name, _, unit)) in first.rows.iter().enumerate() {
        print!("{:34}", format!("{name}, {unit}"));
        for figure in &figures {
            print!(" {:>10.3}", figure.rows[at].1);
        }
        println!();
    }
    if let Some(path) = &args.json {
        let rows: Vec<_> = args
            .engines
            .iter()
            .zip(&figures)
            .map(|(name, figure)| {
                let rows: serde_json::Map<_, _> = figure
                    .rows
                    .iter()
                    .map(|(name, value, unit)| (format!("{name}, {unit}"), json!(value)))
                    .collect();
                json!({"engine": name, "objects": args.objects, "figures": rows})
            })
            .collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

/// Measures an engine in a process of its own, so that memory is only its own.
fn measure_alone(name: &str, args: &Args) -> Result<Figure> {
    let out = args.dir.join(format!("misaka-bench-{name}-{}.json", std::process::id()));
    let status = Command::new(std::env::current_exe()?)
        .args(["--engines", name, "--objects", &args.objects.to_string()])
        .arg("--dir")
        .arg(&args.dir)
        .arg("--json")
        .arg(&out)
        .stdout(Stdio::null())
        .status()?;
    if !status.success() {
        bail!("{name} could not be measured");
    }
    let found: serde_json::Value = serde_json::from_slice(&std::fs::read(&out)?)?;
    std::fs::remove_file(&out)?;
    let rows = found[0]["figures"].as_object().context("no figures")?;
    let row = |(name, value): (&String, &serde_json::Value)| {
        let (name, unit) = name.rsplit_once(", ").unwrap_or((name, ""));
        Ok((name.to_owned(), value.as_f64().context("no number")?, unit.to_owned()))
    };
    Ok(Figure { rows: rows.iter().map(row).collect::<Result<_>>()? })
}

fn timed<T>(task: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = task()?;
    Ok((done, start.elapsed().as_secs_f64()))
}

/// The middle of some times.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(name: &str, args: &Args) -> Result<Figure> {
    let kind = EngineKind::ALL.iter().find(|kind| kind.name() == name);
    let kind = *kind.with_context(|| format!("no engine {name}"))?;
    let dir = args.dir.join(format!("misaka-bench-{name}-{}", std::process::id()));
    let fills = args.objects.div_ceil(FILL);
    let v2_at = fills + 2 * USUAL as u64 + 2;
    // No window is over while it is measured: that is a later checkpoint's work.
    let settings = Settings { v2_at: Some(v2_at), ..Settings::default() };
    let effort = Effort::default();
    let quiet = |_, _, _| {};
    let database = Database::new(dir.join("db"));
    let store = database.init(kind, settings, effort)?;
    let mut chain =
        Chain { versions: Vec::new(), seq: 0, prev: Hash::ZERO, rng: Rng::with_seed(1) };
    let mut figure = Figure::default();
    let mut filled = 0.0;
    for fill in 0..fills {
        let numbers: Vec<u64> = (fill * FILL..args.objects.min((fill + 1) * FILL)).collect();
        let checkpoint = chain.next(&store, &numbers, 0, false)?;
        filled += timed(|| Ok(store.apply(&checkpoint)?))?.1;
    }
    figure.add("filling", args.objects as f64 / filled, "objects/s");
    std::thread::sleep(REST);
    let (_, took) = timed(|| Ok(store.view()?.full_root(RootVersion::V1, &quiet)?))?;
    figure.add("v1 root from nothing", took, "s");
    for (name, new) in [("v1 checkpoint, 2,000 writes", 0), ("the same, 10 of them new", NEW)] {
        let mut times = Vec::new();
        for _ in 0..USUAL {
            let mut numbers = chain.choose(WRITES - new);
            let count = chain.versions.len() as u64;
            numbers.extend(count..count + new);
            let checkpoint = chain.next(&store, &numbers, 2_000, false)?;
            times.push(timed(|| Ok(store.apply(&checkpoint)?))?.1);
        }
        figure.add(name, median(&mut times), "s");
    }
    let numbers = chain.choose(WORST_WRITES);
    let checkpoint = chain.next(&store, &numbers, WORST_EVENTS, false)?;
    let (_, took) = timed(|| Ok(store.apply(&checkpoint)?))?;
    figure.add("v1 worst block", took, "s");
    figure.add("memory with v1 leaves", anonymous(), "MB");
    std::thread::sleep(REST);
    let numbers = chain.choose(WRITES);
    let (checkpoint, took) = timed(|| chain.next(&store, &numbers, 2_000, true))?;
    figure.add("making the tree, v1 checked", took, "s");
    if checkpoint.header.seq != v2_at {
        bail!("v2 begins elsewhere");
    }
    store.apply(&checkpoint)?;
    std::thread::sleep(REST);
    let mut times = Vec::new();
    for _ in 0..USUAL {
        let numbers = chain.choose(WRITES);
        let checkpoint = chain.next(&store, &numbers, 2_000, false)?;
        times.push(timed(|| Ok(store.apply(&checkpoint)?))?.1);
    }
    figure.add("v2 checkpoint, 2,000 writes", median(&mut times), "s");
    let numbers = chain.choose(WORST_WRITES);
    let checkpoint = chain.next(&store, &numbers, WORST_EVENTS, false)?;
    let (_, took) = timed(|| Ok(store.apply(&checkpoint)?))?;
    figure.add("v2 worst block", took, "s");
    let (root, took) = timed(|| Ok(store.view()?.full_root(RootVersion::V2, &quiet)?))?;
    figure.add("v2 root from nothing", took, "s");
    if root != checkpoint.header.state_root {
        bail!("{name} comes to another root");
    }
    let files = dir.join("snapshot");
    FileDir::make(&files)?;
    let files = FileDir::new(&files);
    let (created, took) =
        timed(|| Ok(create(&store, &files, CHUNK_BYTES, effort.threads, Watch::NOBODY)?))?;
    let megabytes = created.manifest.len() as f64 / 1e6;
    figure.add("snapshot", megabytes, "MB");
    figure.add("snapshot create", megabytes / took, "MB/s");
    let (_, took) =
        timed(|| Ok(misaka::snapshot::verify(&files, Trust::default(), effort, Watch::NOBODY)?))?;
    figure.add("snapshot verify", megabytes / took, "MB/s");
    figure.add("disk for an object", size(database.path()) as f64 / args.objects as f64, "bytes");
    drop(store);
    let other = Database::new(dir.join("restored"));
    let (_, took) = timed(|| {
        Ok(restore(&files, &other, kind, settings, Trust::default(), effort, Watch::NOBODY)?)
    })?;
    figure.add("snapshot restore", megabytes / took, "MB/s");
    std::fs::remove_dir_all(&dir)?;
    Ok(figure)
}

/// Memory of the process that is not of files.
fn anonymous() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1e3
}

fn size(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => size(&entry.path()),
            Ok(meta) => meta.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
