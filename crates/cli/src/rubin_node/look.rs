//! Commands that only look: `utxo-set-hash`, `tip`, `block`, `utxo`, `reorg-plan`, `dump`, `stats`, `verify`.

use std::ops::Bound;

use clap::Args;
use rubin::tables::{ALL, CANONICAL};
use rubin::{Hash, Outpoint, UtxoEntry};
use serde_json::json;

use super::Session;
use super::open::{Where, because};
use crate::bar::Bar;
use crate::exit::{Done, Fail};
use crate::input::to_hex;
use crate::{show, verdict};

/// Print the hash over all outputs that can be spent, as one line of JSON
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node utxo-set-hash --datadir data

It is of one block, whatever is imported meanwhile.")]
pub(super) struct UtxoSetHash {
    #[command(flatten)]
    chain: Where,
}

impl UtxoSetHash {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let chain = self.chain.look()?;
        let view = chain.view().map_err(because)?;
        let (count, hash) = view.utxo_set_hash().map_err(because)?;
        let facts = json!({
            "tip_height": view.tip().height,
            "tip_hash_hex": view.tip().hash.to_string(),
            "utxo_count": count,
            "utxo_set_hash_hex": hash.to_string(),
        });
        Ok(writeln!(session.out, "{facts}")?)
    }
}

/// Print the block applied last
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node tip --datadir data
  rubin-node tip --datadir data --json")]
pub(super) struct Tip {
    #[command(flatten)]
    chain: Where,
}

impl Tip {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let tip = self.chain.look()?.tip();
        let facts = json!({
            "tip_height": tip.height,
            "tip_hash_hex": tip.hash.to_string(),
            "tip_cumulative_work": tip.work.to_string(),
        });
        session.tell(&facts, || format!("{} {} {}\n", tip.height, tip.hash, tip.work))
    }
}

/// Print a block: where it stands, and its bytes in hex
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node block --datadir data 72bb8336ac8247fb3a9f530f9548e147c1d256adb49cc536057fd26addb0ff27")]
pub(super) struct Block {
    #[command(flatten)]
    chain: Where,
    /// Its hash
    hash: Hash,
}

impl Block {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let chain = self.chain.look()?;
        let view = chain.view().map_err(because)?;
        let index = view.index(self.hash).map_err(because)?;
        let index = index.ok_or_else(|| Fail::failed(format!("not found: block {}", self.hash)))?;
        let bytes = view.block(self.hash).map_err(because)?;
        let is_applied = view.hash_at(index.height).is_ok_and(|hash| hash == self.hash);
        let facts = json!({
            "block_hash_hex": self.hash.to_string(),
            "height": index.height,
            "prev_hash_hex": index.prev_hash.to_string(),
            "status": index.status.name(),
            "cumulative_work": index.work.to_string(),
            "applied": is_applied,
            "block_hex": bytes.as_ref().map(|bytes| to_hex(bytes)),
        });
        session.tell(&facts, || {
            show::list(&[
                ("height", index.height.to_string()),
                ("prev", index.prev_hash.to_string()),
                ("status", index.status.name().to_owned()),
                ("work", index.work.to_string()),
                ("applied", if is_applied { "yes" } else { "no" }.to_owned()),
                ("bytes", bytes.as_ref().map_or_else(|| "-".to_owned(), |bytes| to_hex(bytes))),
            ])
        })
    }
}

/// Print an output that can be spent
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node utxo --datadir data 9dd29b013ce865020b6faf6cd7bf8aebea76692cdb97e5bbc53d22232d91a3e4:0")]
pub(super) struct Utxo {
    #[command(flatten)]
    chain: Where,
    /// The transaction and the number of its output
    #[arg(value_name = "TXID:VOUT", value_parser = outpoint)]
    outpoint: Outpoint,
}

fn outpoint(text: &str) -> Result<Outpoint, String> {
    let parsed = text.split_once(':').and_then(|(txid, vout)| {
        let is_number = vout.bytes().all(|digit| digit.is_ascii_digit());
        Some(Outpoint::new(txid.parse().ok()?, vout.parse().ok().filter(|_| is_number)?))
    });
    parsed.ok_or_else(|| "give 64 hex digits, a colon and a number".to_owned())
}

impl Utxo {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let chain = self.chain.look()?;
        let view = chain.view().map_err(because)?;
        let bytes = view.utxo(&self.outpoint).map_err(because)?;
        let bytes =
            bytes.ok_or_else(|| Fail::failed(format!("not found: output {}", self.outpoint)))?;
        let entry = UtxoEntry::decode(&bytes).map_err(|wrong| {
            Fail::failed(format!("output {} is damaged: {wrong}", self.outpoint))
        })?;
        let facts = json!({
            "txid_hex": self.outpoint.txid().to_string(),
            "vout": self.outpoint.vout(),
            "value": entry.value,
            "covenant_type": entry.covenant_type,
            "covenant_data_hex": to_hex(entry.covenant_data),
            "creation_height": entry.creation_height,
            "created_by_coinbase": entry.created_by_coinbase,
        });
        session.tell(&facts, || {
            show::list(&[
                ("value", entry.value.to_string()),
                ("covenant_type", format!("0x{:04x}", entry.covenant_type)),
                ("covenant_data", to_hex(entry.covenant_data)),
                ("creation_height", entry.creation_height.to_string()),
                ("created_by_coinbase", entry.created_by_coinbase.to_string()),
            ])
        })
    }
}

/// Print what going over to a block would take
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node reorg-plan --datadir data HASH

Nothing is changed, and nothing is said about whether the blocks are valid.")]
pub(super) struct Plan {
    #[command(flatten)]
    chain: Where,
    /// The block
    hash: Hash,
}

impl Plan {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let plan = self.chain.look()?.reorg_plan(self.hash).map_err(because)?;
        let hashes = |hashes: &[Hash]| hashes.iter().map(Hash::to_string).collect::<Vec<_>>();
        let facts = json!({
            "fork_hash_hex": plan.fork.to_string(),
            "fork_height": plan.fork_height,
            "disconnect": hashes(&plan.disconnect),
            "connect": hashes(&plan.connect),
        });
        session.tell(&facts, || {
            let mut text = format!("fork {} at height {}\n", plan.fork, plan.fork_height);
            plan.disconnect.iter().for_each(|hash| text.push_str(&format!("disconnect {hash}\n")));
            plan.connect.iter().for_each(|hash| text.push_str(&format!("connect {hash}\n")));
            text
        })
    }
}

/// Print all rows of a table: key and value in hex, in key order
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node dump --datadir data --table utxo_by_outpoint
  rubin-node dump --datadir data --table block_index_by_hash | wc -l

With --json every row is an object with key and value, one a line.")]
pub(super) struct Dump {
    #[command(flatten)]
    chain: Where,
    /// The table: headers_by_hash, blocks_by_hash, block_index_by_hash, utxo_by_outpoint, undo_by_block_hash
    #[arg(long, value_name = "NAME")]
    table: String,
}

impl Dump {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let table = ALL.iter().find(|table| table.name == self.table).ok_or_else(|| {
            let names: Vec<&str> = CANONICAL.iter().map(|table| table.name).collect();
            Fail::usage(format!("there is no table {}", self.table))
                .hint(format!("there are {}", names.join(", ")))
        })?;
        let chain = self.chain.look()?;
        let view = chain.view().map_err(because)?;
        let all = (Bound::Unbounded, Bound::Unbounded);
        for row in view.snapshot().scan(*table, all).map_err(|error| because(error.into()))? {
            let (key, value) = row.map_err(|error| because(error.into()))?;
            session.row(&key, &value)?;
        }
        Ok(())
    }
}

/// Print how much there is of everything
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node stats --datadir data
  rubin-node stats --datadir data --json")]
pub(super) struct Stats {
    #[command(flatten)]
    chain: Where,
}

impl Stats {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let chain = self.chain.look()?;
        let view = chain.view().map_err(because)?;
        let mut tables = serde_json::Map::new();
        let mut rows = vec![["table", "rows", "bytes"].map(str::to_owned).to_vec()];
        for table in CANONICAL {
            let (mut count, mut bytes) = (0_u64, 0_u64);
            let all = (Bound::Unbounded, Bound::Unbounded);
            for row in view.snapshot().scan(*table, all).map_err(|error| because(error.into()))? {
                let (key, value) = row.map_err(|error| because(error.into()))?;
                count += 1;
                bytes += u64::try_from(key.len() + value.len()).unwrap_or(0);
            }
            tables.insert(table.name.to_owned(), json!({ "rows": count, "bytes": bytes }));
            rows.push(vec![table.name.to_owned(), show::count(count), show::count(bytes)]);
        }
        let tip = view.tip();
        let facts = json!({
            "engine": chain.engine().name(),
            "chain_id_hex": chain.genesis().chain_id().to_string(),
            "tip_height": tip.height,
            "tip_hash_hex": tip.hash.to_string(),
            "utxo_count": view.utxo_count().map_err(because)?,
            "tables": tables,
        });
        session.tell(&facts, || {
            format!(
                "{}{}",
                show::list(&[
                    ("engine", chain.engine().name().to_owned()),
                    ("chain", chain.genesis().chain_id().to_string()),
                    ("tip", format!("{} at height {}", tip.hash, tip.height)),
                ]),
                show::table(&rows, &[1, 2])
            )
        })
    }
}

/// Check everything: the index, blocks and undo records along the chain, and the outputs against all blocks
#[derive(Args)]
#[command(after_help = "\
Examples:
  rubin-node verify --datadir data
  rubin-node verify --datadir data --no-replay      without applying all blocks in memory

A chain from an export has not all blocks, so its outputs cannot be compared with them. Exit code 0 means that nothing is wrong,
1 that something is.")]
pub(super) struct Verify {
    #[command(flatten)]
    chain: Where,
    /// Do not compare outputs and undo records with what the blocks make of them, which takes as much memory as the outputs
    #[arg(long)]
    no_replay: bool,
}

impl Verify {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let chain = self.chain.look()?;
        let view = chain.view().map_err(because)?;
        let bar = Bar::count("blocks", 0, session.common.quiet);
        let check = view.verify(chain.genesis().hash(), !self.no_replay, &mut |done, total| {
            bar.set_of(done, total);
        });
        bar.clear();
        let check = check.map_err(because)?;
        let is_sound = check.findings.is_empty();
        let facts = json!({
            "sound": is_sound,
            "findings": check.findings,
            "blocks": check.blocks,
            "outputs": check.outputs,
            "replayed": check.is_replayed,
        });
        let mut counts = vec![
            show::many(check.blocks, "block", "blocks"),
            show::many(check.outputs, "output", "outputs"),
        ];
        if !check.is_replayed {
            counts.push("not compared with the blocks".to_owned());
        }
        let told = session.tell(&facts, || verdict::words(&check.findings, &counts));
        // Whether anybody has read it or not.
        if is_sound { told } else { Err(Fail::failed("the chain is not sound")) }
    }
}
