//! A Cardano-like UTxO set with its tree on every engine: bootstrap, blocks, proofs.
//!
//! ```sh
//! cargo run --release --bin csmt -- --entries 1000000 --blocks 100 --dir /path/on/the/disk
//! ```

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::tables::ALL;
use csmt::{Effort, Entry, Error, Hash, PathKind, Settings, Store};
use fastrand::Rng;
use ledger::{Engine, FjallEngine, KvbEngine, RedbEngine, RocksEngine};
use serde_json::json;

/// Changes of a block: half of them delete, half insert.
const SIZES: [usize; 2] = [300, 1000];
/// Proofs made and checked.
const PROOFS: usize = 20_000;
/// How long engines may tidy up before blocks come.
const REST: Duration = Duration::from_secs(10);

struct Args {
    entries: usize,
    blocks: usize,
    engines: Vec<String>,
    dir: PathBuf,
    json: Option<PathBuf>,
}

fn args() -> Result<Args> {
    let all = ["kvb", "redb", "fjall", "rocksdb"].map(str::to_owned);
    let mut args = Args {
        entries: 1_000_000,
        blocks: 100,
        engines: all.to_vec(),
        dir: std::env::temp_dir(),
        json: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--entries" => args.entries = value.parse()?,
            "--blocks" => args.blocks = value.parse()?,
            "--dir" => args.dir = value.into(),
            "--json" => args.json = Some(value.into()),
            "--engines" => args.engines = value.split(',').map(str::to_owned).collect(),
            _ => bail!("no option {name}: there are --entries --blocks --dir --json --engines"),
        }
    }
    Ok(args)
}

fn create(name: &str, dir: &Path) -> Result<Box<dyn Engine>> {
    let path = dir.join(name);
    Ok(match name {
        "kvb" => Box::new(KvbEngine::create(path)?),
        "redb" => Box::new(RedbEngine::create(path, ALL)?),
        "fjall" => Box::new(FjallEngine::create(path, ALL)?),
        "rocksdb" => Box::new(RocksEngine::create(path, ALL)?),
        _ => bail!("no engine {name}"),
    })
}

/// The entry with a number: an output of one of many addresses, as most are on the chain.
fn entry(number: u64) -> Entry {
    let mut rng = Rng::with_seed(number);
    let mut key = vec![0x82, 0x58, 0x20];
    key.extend((0..32).map(|_| rng.u8(..)));
    key.push(rng.u8(..24));
    let mut owner = Rng::with_seed(rng.u64(..200_000) ^ 0xadd);
    let mut value = vec![0x82, 0x58, 0x39, 0x01];
    value.extend((0..56).map(|_| owner.u8(..)));
    value.push(0x1a);
    value.extend(rng.u32(1 << 16..).to_be_bytes());
    (key, value)
}

#[derive(Default)]
struct Figure {
    engine: String,
    bootstrap: Duration,
    bytes: u64,
    /// The same after all blocks.
    bytes_after: u64,
    /// Changes a second, by size of block.
    rates: Vec<f64>,
    proofs: f64,
    checks: f64,
}

fn main() -> Result<()> {
    let args = args()?;
    println!(
        "{} entries, then {} blocks each of {SIZES:?} changes, then {PROOFS} proofs",
        args.entries, args.blocks
    );
    println!(
        "{:10} {:>14} {:>12} {:>12} {:>10} {:>12} {:>12} {:>12}",
        "engine",
        "bootstrap/s",
        "changes/s",
        "changes/s",
        "proofs/s",
        "checks/s",
        "bytes/entry",
        "after blocks"
    );
    let mut figures = Vec::new();
    let mut root = None;
    for name in &args.engines {
        let figure = measure(name, &args, &mut root)?;
        println!(
            "{:10} {:>14.0} {:>12.0} {:>12.0} {:>10.0} {:>12.0} {:>12} {:>12}",
            figure.engine,
            args.entries as f64 / figure.bootstrap.as_secs_f64(),
            figure.rates[0],
            figure.rates[1],
            figure.proofs,
            figure.checks,
            figure.bytes / args.entries as u64,
            figure.bytes_after / args.entries as u64,
        );
        figures.push(figure);
    }
    if let Some(path) = &args.json {
        let rows: Vec<_> = figures
            .iter()
            .map(|figure| {
                json!({
                    "engine": figure.engine,
                    "entries": args.entries,
                    "bootstrap_seconds": figure.bootstrap.as_secs_f64(),
                    "changes_per_second": SIZES.iter().zip(&figure.rates).map(|(size, rate)| json!({"block": size, "rate": rate})).collect::<Vec<_>>(),
                    "proofs_per_second": figure.proofs,
                    "checks_per_second": figure.checks,
                    "bytes": figure.bytes,
                    "bytes_after_blocks": figure.bytes_after,
                })
            })
            .collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

fn measure(name: &str, args: &Args, root: &mut Option<Option<Hash>>) -> Result<Figure> {
    let dir = args.dir.join(format!("csmt-bench-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let settings = Settings { path: PathKind::Address, ..Settings::default() };
    let store = Store::init(create(name, &dir)?, settings, Effort::default())?;
    let mut figure = Figure { engine: name.to_owned(), ..Figure::default() };
    let start = Instant::now();
    let mut entries = (0..args.entries as u64).map(|number| Ok::<_, Error>(entry(number)));
    store.bootstrap(&mut entries, Point::block(0, Hash::of(b"start")), &mut |_| {})?;
    figure.bootstrap = start.elapsed();
    figure.bytes = size(&dir);
    // A service that follows a chain has been at it for long: nodes are in memory, and engines have tidied up behind the bootstrap.
    store.warm()?;
    std::thread::sleep(REST);
    let mut rng = Rng::with_seed(1);
    let (mut first, mut next, mut slot) = (0, args.entries as u64, 0);
    for size in SIZES {
        let mut spent = Duration::ZERO;
        for _ in 0..args.blocks {
            slot += 1;
            let mut operations = Vec::with_capacity(size);
            for _ in 0..size / 2 {
                operations.push(Operation::Delete { key: entry(first).0 });
                let (key, value) = entry(next);
                operations.push(Operation::Insert { key, value });
                (first, next) = (first + 1, next + 1);
            }
            let start = Instant::now();
            store.forward(Point::block(slot, Hash::of(&slot.to_le_bytes())), &operations)?;
            spent += start.elapsed();
        }
        figure.rates.push((size * args.blocks) as f64 / spent.as_secs_f64());
    }
    figure.bytes_after = size(&dir);
    let found = store.root()?;
    if *root.get_or_insert(found) != found {
        bail!("{name} comes to another root");
    }
    let keys: Vec<Entry> = (0..PROOFS).map(|_| entry(rng.u64(first..next))).collect();
    let start = Instant::now();
    let mut view = store.view()?;
    let mut proofs = Vec::with_capacity(PROOFS);
    for (key, _) in &keys {
        proofs.push(view.prove(key)?.context("it is there")?.to_v4());
    }
    figure.proofs = PROOFS as f64 / start.elapsed().as_secs_f64();
    let root = found.context("the tree is not empty")?;
    let start = Instant::now();
    for ((key, value), proof) in keys.iter().zip(&proofs) {
        let path = PathKind::Address.path(key, value)?;
        csmt::proof::Inclusion::from_v4(proof)?.verify(&root, &path, &Hash::of(value))?;
    }
    figure.checks = PROOFS as f64 / start.elapsed().as_secs_f64();
    drop(view);
    drop(store);
    std::fs::remove_dir_all(&dir)?;
    Ok(figure)
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
