//! The stores of a MISAKA validator: roots of both versions, the worst block, snapshots.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use host::FileDir;
use ledger::EngineKind;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::object::{Object, Owner};
use misaka::snapshot::{CHUNK_BYTES, Trust, Watch, create, restore, verify};
use misaka::{Checkpoint, Database, Effort, Event, Hash, RootVersion, Settings, Store};
use serde_json::{Map, Value, json};

use super::{ROOT, Row, Task};
use crate::machine;

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

/// A chain that knows the version of every object.
struct Chain {
    versions: Vec<u32>,
    seq: u64,
    prev: Hash,
    rng: Rng,
}

impl Chain {
    fn new() -> Self {
        Self { versions: Vec::new(), seq: 0, prev: Hash::ZERO, rng: Rng::with_seed(1) }
    }

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

/// What was measured, with its unit in its name.
#[derive(Default)]
struct Figures(Map<String, Value>);

impl Figures {
    fn add(&mut self, name: &str, value: f64, unit: &str) {
        eprintln!("    {name}: {value:.3} {unit}");
        self.0.insert(format!("{name}, {unit}"), json!(value));
    }
}

pub(super) fn measure(task: &Task) -> Result<Row> {
    let kind = EngineKind::ALL.iter().find(|kind| kind.name() == task.engine);
    let kind = *kind.with_context(|| format!("no engine {}", task.engine))?;
    let objects = task.size("objects")? as u64;
    let fills = objects.div_ceil(FILL);
    let v2_at = fills + 2 * USUAL as u64 + 2;
    // No window is over while it is measured: that is a later checkpoint's work.
    let settings = Settings { v2_at: Some(v2_at), ..Settings::default() };
    let database = Database::new(task.dir.join("db"));
    let store = database.init(kind, settings, Effort::default())?;
    let mut chain = Chain::new();
    let mut figures = Figures::default();
    fill(&store, &mut chain, objects, &mut figures)?;
    std::thread::sleep(REST);
    measure_v1(&store, &mut chain, &mut figures)?;
    std::thread::sleep(REST);
    let numbers = chain.choose(WRITES);
    let (checkpoint, took) = timed(|| chain.next(&store, &numbers, 2_000, true))?;
    figures.add("making the tree, v1 checked", took, "s");
    ensure!(checkpoint.header.seq == v2_at, "v2 begins elsewhere");
    store.apply(&checkpoint)?;
    std::thread::sleep(REST);
    let root = measure_v2(&store, &mut chain, &mut figures)?;
    let files = task.dir.join("snapshot");
    let megabytes = measure_snapshot(&store, &files, &mut figures)?;
    let disk = machine::disk_bytes(database.path())?;
    figures.add("disk for an object", disk as f64 / objects as f64, "bytes");
    drop(store);
    let other = Database::new(task.dir.join("restored"));
    let files = FileDir::new(&files);
    let effort = Effort::default();
    let (_, took) = timed(|| {
        Ok(restore(&files, &other, kind, settings, Trust::default(), effort, Watch::NOBODY)?)
    })?;
    figures.add("snapshot restore", megabytes / took, "MB/s");
    let row = json!({ "objects": objects, "figures": figures.0, ROOT: root.to_string() });
    row.as_object().cloned().context("no row")
}

fn fill(store: &Store, chain: &mut Chain, objects: u64, figures: &mut Figures) -> Result<()> {
    let mut filled = 0.0;
    for first in (0..objects).step_by(usize::try_from(FILL)?) {
        let numbers: Vec<u64> = (first..objects.min(first + FILL)).collect();
        let checkpoint = chain.next(store, &numbers, 0, false)?;
        filled += timed(|| Ok(store.apply(&checkpoint)?))?.1;
    }
    figures.add("filling", objects as f64 / filled, "objects/s");
    Ok(())
}

fn measure_v1(store: &Store, chain: &mut Chain, figures: &mut Figures) -> Result<()> {
    let quiet = |_, _, _| {};
    let (_, took) = timed(|| Ok(store.view()?.full_root(RootVersion::V1, &quiet)?))?;
    figures.add("v1 root from nothing", took, "s");
    for (name, new) in [("v1 checkpoint, 2,000 writes", 0), ("the same, 10 of them new", NEW)] {
        let mut times = Vec::new();
        for _ in 0..USUAL {
            let mut numbers = chain.choose(WRITES - new);
            let count = chain.versions.len() as u64;
            numbers.extend(count..count + new);
            let checkpoint = chain.next(store, &numbers, 2_000, false)?;
            times.push(timed(|| Ok(store.apply(&checkpoint)?))?.1);
        }
        figures.add(name, middle(&mut times), "s");
    }
    let numbers = chain.choose(WORST_WRITES);
    let checkpoint = chain.next(store, &numbers, WORST_EVENTS, false)?;
    let (_, took) = timed(|| Ok(store.apply(&checkpoint)?))?;
    figures.add("v1 worst block", took, "s");
    figures.add("memory with v1 leaves", machine::anon_bytes()? as f64 / 1e6, "MB");
    Ok(())
}

/// Also the root in the end.
fn measure_v2(store: &Store, chain: &mut Chain, figures: &mut Figures) -> Result<Hash> {
    let mut times = Vec::new();
    for _ in 0..USUAL {
        let numbers = chain.choose(WRITES);
        let checkpoint = chain.next(store, &numbers, 2_000, false)?;
        times.push(timed(|| Ok(store.apply(&checkpoint)?))?.1);
    }
    figures.add("v2 checkpoint, 2,000 writes", middle(&mut times), "s");
    let numbers = chain.choose(WORST_WRITES);
    let checkpoint = chain.next(store, &numbers, WORST_EVENTS, false)?;
    let (_, took) = timed(|| Ok(store.apply(&checkpoint)?))?;
    figures.add("v2 worst block", took, "s");
    let quiet = |_, _, _| {};
    let (root, took) = timed(|| Ok(store.view()?.full_root(RootVersion::V2, &quiet)?))?;
    figures.add("v2 root from nothing", took, "s");
    ensure!(root == checkpoint.header.state_root, "made from nothing, it is another root");
    Ok(root)
}

/// Makes a snapshot in a new directory, and says how many megabytes it has.
fn measure_snapshot(store: &Store, dir: &Path, figures: &mut Figures) -> Result<f64> {
    FileDir::make(dir)?;
    let files = FileDir::new(dir);
    let effort = Effort::default();
    let (created, took) =
        timed(|| Ok(create(store, &files, CHUNK_BYTES, effort.threads, Watch::NOBODY)?))?;
    let megabytes = created.manifest.len() as f64 / 1e6;
    figures.add("snapshot", megabytes, "MB");
    figures.add("snapshot create", megabytes / took, "MB/s");
    let (_, took) = timed(|| Ok(verify(&files, Trust::default(), effort, Watch::NOBODY)?))?;
    figures.add("snapshot verify", megabytes / took, "MB/s");
    Ok(megabytes)
}

fn timed<T>(task: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let done = task()?;
    Ok((done, start.elapsed().as_secs_f64()))
}

/// The middle of some times.
fn middle(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
