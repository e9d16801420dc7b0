//! Blocks of a RUBIN chain on every engine: changes of the set of outputs a second, each block durable and in the manifest.
//!
//! ```sh
//! cargo run --release --bin rubin -- --coins 1000000 --blocks 50 --dir /path/on/the/disk
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rubin::rules::Rules;
use rubin::synthetic::Generator;
use rubin::{Datadir, EngineKind};
use serde_json::json;
use sha3::{Digest, Sha3_256};

/// Times that the set is hashed; the median counts.
const HASHES: usize = 5;
/// What every engine gets before.
const REST: Duration = Duration::from_secs(3);

struct Args {
    coins: usize,
    blocks: usize,
    inputs: usize,
    engines: Vec<EngineKind>,
    dir: PathBuf,
    json: Option<PathBuf>,
}

fn args() -> Result<Args> {
    let mut args = Args {
        coins: 1_000_000,
        blocks: 50,
        inputs: 4000,
        engines: EngineKind::ALL.to_vec(),
        dir: std::env::temp_dir(),
        json: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next().with_context(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--coins" => args.coins = value.parse()?,
            "--blocks" => args.blocks = value.parse()?,
            "--inputs" => args.inputs = value.parse()?,
            "--dir" => args.dir = value.into(),
            "--json" => args.json = Some(value.into()),
            "--engines" => {
                let known = |name: &str| EngineKind::ALL.iter().find(|kind| kind.name() == name);
                let find =
                    |name: &str| known(name).copied().with_context(|| format!("no engine {name}"));
                args.engines = value.split(',').map(find).collect::<Result<_>>()?;
            }
            _ => bail!(
                "no option {name}: there are --coins --blocks --inputs --dir --json --engines"
            ),
        }
    }
    Ok(args)
}

struct Figure {
    engine: &'static str,
    load: Duration,
    apply: Duration,
    slowest: Duration,
    hash: Duration,
    reorg: Duration,
    bytes: u64,
}

fn main() -> Result<()> {
    let args = args()?;
    let mut generator = Generator::new(1);
    let genesis = generator.genesis().clone();
    let mut load = Vec::new();
    while generator.coin_count() < args.coins {
        load.push(generator.make_coins(args.coins - generator.coin_count()));
    }
    let blocks: Vec<Vec<u8>> =
        (0..args.blocks).map(|_| generator.spend_coins(args.inputs)).collect();
    println!(
        "{} coins in {} blocks, then {} blocks of {} inputs and as many outputs ({} bytes each)",
        generator.coin_count(),
        load.len(),
        blocks.len(),
        args.inputs,
        blocks[0].len()
    );
    let mut figures = Vec::new();
    let mut set_hash = None;
    for kind in &args.engines {
        let dir = tempdir(&args.dir, kind.name())?;
        let datadir = Datadir::new(&dir, genesis.chain_id());
        let rules = || Box::new(<Rules>::default());
        let chain = datadir.init(genesis.clone(), *kind, rules())?;
        let start = Instant::now();
        for block in &load {
            chain.import(block, None)?.map_err(|rejected| anyhow::anyhow!("{rejected}"))?;
        }
        let loaded = start.elapsed();
        let (start, mut slowest) = (Instant::now(), Duration::ZERO);
        for block in &blocks {
            let start = Instant::now();
            chain.import(block, None)?.map_err(|rejected| anyhow::anyhow!("{rejected}"))?;
            slowest = slowest.max(start.elapsed());
        }
        let apply = start.elapsed();
        // Work in the background goes on for a while after the last block, and blocks do not come as fast as here.
        std::thread::sleep(REST);
        let mut hashes = Vec::new();
        for _ in 0..HASHES {
            let start = Instant::now();
            let found = chain.view()?.utxo_set_hash()?;
            hashes.push(start.elapsed());
            if *set_hash.get_or_insert(found) != found {
                bail!("{} comes to another set", kind.name());
            }
        }
        hashes.sort_unstable();
        let hash = hashes[HASHES / 2];
        let reorg = reorg(&chain, &generator, args.inputs)?;
        drop(chain);
        figures.push(Figure {
            engine: kind.name(),
            load: loaded,
            apply,
            slowest,
            hash,
            reorg,
            bytes: size(&dir),
        });
        std::fs::remove_dir_all(&dir)?;
    }
    report(&args, &figures, set_hash.map_or(0, |(count, _)| count))
}

/// How long it takes to go over to another chain: two blocks taken back, and two or three applied, by which hash is smaller.
fn reorg(chain: &rubin::Chain, generator: &Generator, inputs: usize) -> Result<Duration> {
    let (mut one, mut other) = (generator.clone(), generator.clone());
    other.skip_nonces();
    let import = |block: &[u8]| {
        let start = Instant::now();
        let import = chain.import(block, None)?;
        let import = import.map_err(|rejected| anyhow::anyhow!("{rejected}"))?;
        anyhow::Ok((start.elapsed(), import.disconnected))
    };
    for _ in 0..2 {
        import(&one.spend_coins(inputs))?;
    }
    loop {
        let (took, disconnected) = import(&other.spend_coins(inputs))?;
        if disconnected > 0 {
            return Ok(took);
        }
    }
}

fn report(args: &Args, figures: &[Figure], outputs: u64) -> Result<()> {
    let changes = (2 * args.inputs * args.blocks) as f64;
    // What the hash alone takes: the same bytes from memory.
    let bytes = vec![0x5a; usize::try_from(outputs)? * 65];
    let start = Instant::now();
    std::hint::black_box(Sha3_256::digest(&bytes));
    let floor = start.elapsed();
    println!(
        "{:10} {:>12} {:>14} {:>8} {:>12} {:>11} {:>11} {:>9} {:>9}",
        "engine",
        "load s",
        "changes/s",
        "ratio",
        "slowest ms",
        "reorg ms",
        "set hash s",
        "of SHA3",
        "MiB"
    );
    let best =
        figures.iter().filter(|figure| figure.engine != "kvb").map(|figure| figure.apply).min();
    for figure in figures {
        let rate = changes / figure.apply.as_secs_f64();
        let ratio = best.map_or(1.0, |best| best.as_secs_f64() / figure.apply.as_secs_f64());
        println!(
            "{:10} {:>12.2} {:>14.0} {:>7.2}x {:>12.1} {:>11.1} {:>11.2} {:>8.0}% {:>9}",
            figure.engine,
            figure.load.as_secs_f64(),
            rate,
            ratio,
            figure.slowest.as_secs_f64() * 1e3,
            figure.reorg.as_secs_f64() * 1e3,
            figure.hash.as_secs_f64(),
            100.0 * floor.as_secs_f64() / figure.hash.as_secs_f64(),
            figure.bytes >> 20,
        );
    }
    if let Some(path) = &args.json {
        let rows: Vec<_> = figures
            .iter()
            .map(|figure| {
                json!({
                    "engine": figure.engine,
                    "coins": args.coins,
                    "load_seconds": figure.load.as_secs_f64(),
                    "changes_per_second": changes / figure.apply.as_secs_f64(),
                    "slowest_seconds": figure.slowest.as_secs_f64(),
                    "reorg_seconds": figure.reorg.as_secs_f64(),
                    "set_hash_seconds": figure.hash.as_secs_f64(),
                    "sha3_seconds": floor.as_secs_f64(),
                    "bytes": figure.bytes,
                })
            })
            .collect();
        std::fs::write(path, serde_json::to_vec_pretty(&rows)?)?;
    }
    Ok(())
}

fn tempdir(dir: &std::path::Path, name: &str) -> Result<PathBuf> {
    let path = dir.join(format!("rubin-bench-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

fn size(path: &std::path::Path) -> u64 {
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
