//! A Cardano-like UTxO set with its tree: bootstrap, blocks, proofs.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::proof::Inclusion;
use csmt::tables::ALL;
use csmt::{Effort, Entry, Error, Hash, PathKind, Settings, Store};
use fastrand::Rng;
use ledger::{Engine, FjallEngine, KvbEngine, RedbEngine, RocksEngine};
use serde_json::{Value, json};

use super::{ROOT, Row, Task};
use crate::machine;

/// Changes of a block: half of them delete, half insert.
const SIZES: [usize; 2] = [300, 1000];
/// Proofs made and checked.
const PROOFS: usize = 20_000;
/// How long engines may tidy up before blocks come.
const REST: Duration = Duration::from_secs(10);

/// The entries that are there, and the number of the last block.
struct Progress {
    first: u64,
    next: u64,
    slot: u64,
}

pub(super) fn measure(task: &Task) -> Result<Row> {
    let (entries, blocks) = (task.size("entries")?, task.size("blocks")?);
    let settings = Settings { path: PathKind::Address, ..Settings::default() };
    let store = Store::init(create(&task.engine, &task.dir)?, settings, Effort::default())?;
    let start = Instant::now();
    let mut all = (0..entries as u64).map(|number| Ok::<_, Error>(entry(number)));
    store.bootstrap(&mut all, Point::block(0, Hash::of(b"start")), &mut |_| {})?;
    let bootstrap = start.elapsed().as_secs_f64();
    let bytes = machine::disk_bytes(&task.dir)?;
    // A service that follows a chain has been at it for long: nodes are in memory, and engines have tidied up behind the bootstrap.
    store.warm()?;
    std::thread::sleep(REST);
    let mut progress = Progress { first: 0, next: entries as u64, slot: 0 };
    let mut rates = Vec::new();
    for size in SIZES {
        let spent = forward(&store, &mut progress, size, blocks)?;
        let rate = (size * blocks) as f64 / spent.as_secs_f64();
        rates.push(json!({ "block": size, "rate": rate }));
    }
    let bytes_after = machine::disk_bytes(&task.dir)?;
    let root = store.root()?.context("the tree is not empty")?;
    let (proofs, checks) = prove(&store, &root, &progress)?;
    let row = json!({
        "entries": entries,
        "bootstrap_seconds": bootstrap,
        "changes_per_second": Value::Array(rates),
        "proofs_per_second": proofs,
        "checks_per_second": checks,
        "bytes": bytes,
        "bytes_after_blocks": bytes_after,
        ROOT: root.to_string(),
    });
    row.as_object().cloned().context("no row")
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

/// Applies so many blocks of so many changes, and says how long the store took.
fn forward(store: &Store, at: &mut Progress, size: usize, blocks: usize) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    for _ in 0..blocks {
        at.slot += 1;
        let mut operations = Vec::with_capacity(size);
        for _ in 0..size / 2 {
            operations.push(Operation::Delete { key: entry(at.first).0 });
            let (key, value) = entry(at.next);
            operations.push(Operation::Insert { key, value });
            (at.first, at.next) = (at.first + 1, at.next + 1);
        }
        let start = Instant::now();
        store.forward(Point::block(at.slot, Hash::of(&at.slot.to_le_bytes())), &operations)?;
        spent += start.elapsed();
    }
    Ok(spent)
}

/// Proofs made a second, and checked.
fn prove(store: &Store, root: &Hash, at: &Progress) -> Result<(f64, f64)> {
    let mut rng = Rng::with_seed(1);
    let keys: Vec<Entry> = (0..PROOFS).map(|_| entry(rng.u64(at.first..at.next))).collect();
    let start = Instant::now();
    let mut view = store.view()?;
    let mut proofs = Vec::with_capacity(PROOFS);
    for (key, _) in &keys {
        proofs.push(view.prove(key)?.context("it is there")?.to_v4());
    }
    let made = PROOFS as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    for ((key, value), proof) in keys.iter().zip(&proofs) {
        let path = PathKind::Address.path(key, value)?;
        Inclusion::from_v4(proof)?.verify(root, &path, &Hash::of(value))?;
    }
    Ok((made, PROOFS as f64 / start.elapsed().as_secs_f64()))
}
