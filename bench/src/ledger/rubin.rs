//! Blocks of a RUBIN chain: changes of the set of outputs a second, each block durable and in the manifest.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rubin::rules::Rules;
use rubin::synthetic::Generator;
use rubin::{Chain, Datadir, EngineKind};
use serde_json::json;
use sha3::{Digest, Sha3_256};

use super::{ROOT, Row, Task};
use crate::machine;

/// Times that the set is hashed; the median counts.
const HASHES: usize = 5;
/// What every engine gets before.
const REST: Duration = Duration::from_secs(3);
/// Bytes that go into the hash for each output.
const HASHED_LEN: usize = 65;

pub(super) fn measure(task: &Task) -> Result<Row> {
    let kind = EngineKind::ALL.iter().find(|kind| kind.name() == task.engine);
    let kind = *kind.with_context(|| format!("no engine {}", task.engine))?;
    let (coins, inputs) = (task.size("coins")?, task.size("inputs")?);
    let mut generator = Generator::new(1);
    let genesis = generator.genesis().clone();
    let mut load = Vec::new();
    while generator.coin_count() < coins {
        load.push(generator.make_coins(coins - generator.coin_count()));
    }
    let blocks: Vec<Vec<u8>> =
        (0..task.size("blocks")?).map(|_| generator.spend_coins(inputs)).collect();

    let datadir = Datadir::new(&task.dir, genesis.chain_id());
    let chain = datadir.init(genesis, kind, Box::new(<Rules>::default()))?;
    let loaded = import_all(&chain, &load)?;
    let applied = import_all(&chain, &blocks)?;
    // Work in the background goes on for a while after the last block, and blocks do not come as fast as here.
    std::thread::sleep(REST);
    let (outputs, root, hash) = hash_set(&chain)?;
    let reorg = reorg(&chain, &generator, inputs)?;
    drop(chain);

    let changes = (2 * inputs * blocks.len()) as f64;
    let row = json!({
        "coins": coins,
        "load_seconds": loaded.iter().sum::<f64>(),
        "changes_per_second": changes / applied.iter().sum::<f64>(),
        "slowest_seconds": applied.iter().copied().fold(0.0, f64::max),
        "reorg_seconds": reorg,
        "set_hash_seconds": hash,
        "sha3_seconds": sha3_seconds(usize::try_from(outputs)?),
        "bytes": machine::disk_bytes(&task.dir)?,
        ROOT: root,
    });
    row.as_object().cloned().context("no row")
}

/// Imports one block, and says how many were taken back for it.
fn import(chain: &Chain, block: &[u8]) -> Result<u64> {
    let imported = chain.import(block, None)?;
    Ok(imported.map_err(|rejected| anyhow!("{rejected}"))?.disconnected)
}

/// Imports all blocks; how many seconds each took.
fn import_all(chain: &Chain, blocks: &[Vec<u8>]) -> Result<Vec<f64>> {
    let one = |block: &Vec<u8>| {
        let start = Instant::now();
        import(chain, block)?;
        Ok(start.elapsed().as_secs_f64())
    };
    blocks.iter().map(one).collect()
}

/// How many outputs there are, what they hash to, and how many seconds that takes.
fn hash_set(chain: &Chain) -> Result<(u64, String, f64)> {
    let mut found = None;
    let mut times = Vec::new();
    for _ in 0..HASHES {
        let start = Instant::now();
        let hashed = chain.view()?.utxo_set_hash()?;
        times.push(start.elapsed().as_secs_f64());
        ensure!(*found.get_or_insert(hashed) == hashed, "the set changes by itself");
    }
    times.sort_by(f64::total_cmp);
    let (outputs, hash) = found.context("no hash")?;
    Ok((outputs, format!("{hash:?}"), times[HASHES / 2]))
}

/// Seconds that it takes to go over to another chain: two blocks taken back, and two or three applied, by which hash is
/// smaller.
fn reorg(chain: &Chain, generator: &Generator, inputs: usize) -> Result<f64> {
    let (mut one, mut other) = (generator.clone(), generator.clone());
    other.skip_nonces();
    for _ in 0..2 {
        import(chain, &one.spend_coins(inputs))?;
    }
    loop {
        let block = other.spend_coins(inputs);
        let start = Instant::now();
        if import(chain, &block)? > 0 {
            return Ok(start.elapsed().as_secs_f64());
        }
    }
}

/// What the hash alone takes: the same bytes from memory.
fn sha3_seconds(outputs: usize) -> f64 {
    let bytes = vec![0x5a; outputs * HASHED_LEN];
    let start = Instant::now();
    std::hint::black_box(Sha3_256::digest(&bytes));
    start.elapsed().as_secs_f64()
}
