//! `init`, `chain-id`, `migrate`, `export`, `import-snapshot`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use rubin::{Datadir, EngineKind, Hash};
use serde_json::json;

use super::Session;
use super::open::{Trust, Where, because, genesis};
use crate::bar::Bar;
use crate::engine;
use crate::exit::{Done, Fail};
use crate::file::sync_name;

/// Make a chain
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node init --datadir data
  rubin-node init --datadir data --profile mainnet
  rubin-node init --datadir data --profile my-chain.md --engine kvb

Doing it again does no harm.")]
pub(super) struct Init {
    /// The directory of all chains
    #[arg(long, value_name = "DIRECTORY")]
    datadir: PathBuf,
    /// devnet, mainnet, or a file with genesis_header_bytes and genesis_tx_bytes
    #[arg(long, value_name = "PROFILE", default_value = "devnet")]
    profile: String,
    /// The engine that the tables are in
    #[arg(long, value_name = "ENGINE", default_value = "kvb", value_parser = engine::listed())]
    engine: EngineKind,
}

impl Init {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let genesis = genesis(&self.profile)?;
        let datadir = Datadir::new(&self.datadir, genesis.chain_id());
        let chain =
            datadir.init(genesis, self.engine, Trust::default().validator()).map_err(because)?;
        let facts = json!({
            "chain_id_hex": datadir.chain_id().to_string(),
            "genesis_hash_hex": chain.genesis().hash().to_string(),
            "tip_height": chain.tip().height,
            "engine": chain.engine().name(),
        });
        session.tell(&facts, || "OK\n".to_owned())
    }
}

/// Print the identity of a chain
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node chain-id --profile devnet")]
pub(super) struct ChainId {
    /// devnet, mainnet, or a file with genesis_header_bytes and genesis_tx_bytes
    #[arg(long, value_name = "PROFILE", default_value = "devnet")]
    profile: String,
}

impl ChainId {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let genesis = genesis(&self.profile)?;
        let facts = json!({
            "chain_id_hex": genesis.chain_id().to_string(),
            "genesis_hash_hex": genesis.hash().to_string(),
        });
        session.tell(&facts, || format!("{}\n", genesis.chain_id()))
    }
}

/// Bring a datadir of an older version to this one
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node migrate --datadir data --dry-run
  rubin-node migrate --datadir data

If it is cut off, run it again. Keep a backup.")]
pub(super) struct Migrate {
    #[command(flatten)]
    chain: Where,
    /// Only try every row
    #[arg(long, short = 'n')]
    dry_run: bool,
}

impl Migrate {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let (datadir, _) = self.chain.find()?;
        let bar = Bar::count("rows", 0, session.common.quiet);
        let done = datadir.migrate(self.dry_run, &mut |rows| bar.set_of(rows, rows));
        bar.clear();
        let done = done.map_err(because)?;
        let facts = json!({
            "from": done.from,
            "to": done.to,
            "steps": done.steps,
            "rows": done.rows,
            "dry_run": self.dry_run,
        });
        session.tell(&facts, || {
            if done.steps.is_empty() {
                return format!("the datadir has version {} already\n", done.to);
            }
            let tense = if self.dry_run { "would be" } else { "were" };
            let steps = done.steps.join("\n  ");
            format!(
                "version {} to {}:\n  {steps}\n{} rows {tense} changed\n",
                done.from, done.to, done.rows
            )
        })
    }
}

/// Write the chainstate to a file: headers, outputs with their hash, and the newest blocks
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node export --datadir data --out chainstate.snap
  rubin-node import-snapshot --datadir fresh --profile devnet chainstate.snap --expect HASH")]
pub(super) struct Export {
    #[command(flatten)]
    chain: Where,
    /// The file to make; it must not exist
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Newest blocks to take along: as far back can whoever imports it go
    #[arg(long, default_value_t = 144)]
    blocks: u32,
}

impl Export {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let chain = self.chain.look()?;
        let view = chain.view().map_err(because)?;
        let file = File::create_new(&self.out).map_err(|error| {
            Fail::failed(format!("cannot make {}: {error}", self.out.display()))
        })?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        let bar = Bar::count("outputs", 0, session.common.quiet);
        let done = view
            .export(chain.genesis(), self.blocks, &mut file, &mut |done, total| {
                if done % 4096 == 0 {
                    bar.set_of(done, total);
                }
            })
            .map_err(because)
            .and_then(|done| {
                file.flush()?;
                file.get_ref().sync_all()?;
                sync_name(&self.out)?;
                Ok(done)
            });
        bar.clear();
        if done.is_err() {
            let _ = std::fs::remove_file(&self.out);
        }
        tell(session, &done?)
    }
}

fn tell(session: &mut Session<'_>, done: &rubin::Export) -> Done {
    let facts = json!({
        "tip_height": done.tip_height,
        "tip_hash_hex": done.tip_hash.to_string(),
        "utxo_count": done.utxo_count,
        "utxo_set_hash_hex": done.utxo_set_hash.to_string(),
        "blocks": done.blocks,
        "file_sha3_256_hex": done.digest.to_string(),
    });
    session.tell(&facts, || {
        format!(
            "height {}, tip {}\n{} outputs, utxo_set_hash {}\nSHA3-256 of the file {}\n",
            done.tip_height, done.tip_hash, done.utxo_count, done.utxo_set_hash, done.digest
        )
    })
}

/// Make a chain from a file that `export` wrote
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node import-snapshot --datadir fresh --profile devnet chainstate.snap --expect HASH

Headers, hashes and links are checked, and that an undo record is one of its block. That the chain and its outputs are those that
you mean, only --expect can tell: with the SHA3-256 of the file, as export prints it, of every byte; with a utxo_set_hash of the
outputs, but not of what undo records say of spent ones, which counts when blocks are taken back.")]
pub(super) struct ImportSnapshot {
    /// The directory of all chains
    #[arg(long, value_name = "DIRECTORY")]
    datadir: PathBuf,
    /// devnet, mainnet, or a file with genesis_header_bytes and genesis_tx_bytes
    #[arg(long, value_name = "PROFILE", default_value = "devnet")]
    profile: String,
    /// The engine that the tables are in
    #[arg(long, value_name = "ENGINE", default_value = "kvb", value_parser = engine::listed())]
    engine: EngineKind,
    /// The SHA3-256 of the file, or the utxo_set_hash, that you trust
    #[arg(long, value_name = "HASH")]
    expect: Option<Hash>,
    /// The file
    file: PathBuf,
}

impl ImportSnapshot {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let genesis = genesis(&self.profile)?;
        let file = File::open(&self.file).map_err(|error| {
            Fail::failed(format!("cannot read {}: {error}", self.file.display()))
        })?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        let datadir = Datadir::new(&self.datadir, genesis.chain_id());
        let bar = Bar::count("outputs", 0, session.common.quiet);
        let done = datadir.import_snapshot(
            &genesis,
            self.engine,
            &mut file,
            self.expect,
            &mut |done, total| {
                if done % 4096 == 0 {
                    bar.set_of(done, total);
                }
            },
        );
        bar.clear();
        tell(session, &done.map_err(because)?)
    }
}
