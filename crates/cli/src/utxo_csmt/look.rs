//! Commands that only look: `root`, `roots`, `tip`, `get`, `by-address`, `dump`, `verify`, `stats`.

use clap::{Args, ValueEnum};
use csmt::tables::{CANONICAL, CONFIG, CSMT, KV, ROLLBACKS};
use ledger::Table;
use serde_json::json;

use super::Session;
use super::make::tip;
use super::open::{Where, address, because, hex};
use crate::bar::Bar;
use crate::exit::{Done, Fail};
use crate::input::to_hex;
use crate::{show, verdict};

/// Print the root of the tree
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt root --db utxos

A tree without entries has none: then the exit code is 1, and nothing is printed, or with --json that it is null.")]
pub(super) struct Root {
    #[command(flatten)]
    place: Where,
}

impl Root {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let root = store.root().map_err(because)?;
        if session.common.json {
            let facts = json!({"root": root.map(|root| root.to_string()), "tip": tip(store.tip().map_err(because)?)});
            writeln!(session.out, "{facts}")?;
            return root.map(drop).ok_or(Fail::silent(1));
        }
        let root = root.ok_or_else(|| Fail::failed("the tree has no entries, and so no root"))?;
        Ok(writeln!(session.out, "{root}")?)
    }
}

/// Print the points that can be gone back to with their roots, the newest first
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt roots --db utxos
  utxo-csmt roots --db utxos --json | head -1")]
pub(super) struct Roots {
    #[command(flatten)]
    place: Where,
}

impl Roots {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        for facts in view.points() {
            let facts = facts.map_err(because)?;
            let root = facts.root.map(|root| root.to_string());
            if session.common.json {
                let line = json!({
                    "point": tip(facts.point),
                    "root": root,
                    "operations": facts.operations,
                });
                writeln!(session.out, "{line}")?;
            } else {
                writeln!(session.out, "{} {}", facts.point, root.as_deref().unwrap_or("none"))?;
            }
        }
        Ok(())
    }
}

/// Print the block applied last
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt tip --db utxos")]
pub(super) struct Tip {
    #[command(flatten)]
    place: Where,
}

impl Tip {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let point = self.place.look()?.tip().map_err(because)?;
        session.tell(&json!({"tip": tip(point)}), || format!("{point}\n"))
    }
}

/// Print the value of an entry in hex
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt get --db utxos 8258200101010101010101010101010101010101010101010101010101010101010101010100

The key is the reference of an output, in hex: 82 5820, the id of the transaction, the number.")]
pub(super) struct Get {
    #[command(flatten)]
    place: Where,
    /// The key in hex
    #[arg(value_name = "KEY", value_parser = hex)]
    key: std::vec::Vec<u8>,
}

impl Get {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        let value = view.get(&self.key).map_err(because)?;
        let value =
            value.ok_or_else(|| Fail::failed(format!("not found: {}", to_hex(&self.key))))?;
        let value = to_hex(&value);
        session.tell(&json!({"key": to_hex(&self.key), "value": value}), || format!("{value}\n"))
    }
}

/// Print the entries of an address
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt by-address --db utxos addr1q9...
  utxo-csmt by-address --db utxos 01ab...

A line for each: its key and its value in hex. The database must have been made with --path address.")]
pub(super) struct ByAddress {
    #[command(flatten)]
    place: Where,
    /// The address, in hex or bech32
    #[arg(value_name = "ADDRESS", value_parser = address)]
    address: std::vec::Vec<u8>,
}

impl ByAddress {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        if store.settings().path != csmt::PathKind::Address {
            return Err(Fail::failed(
                "the database was made with --path raw: nothing leads from an address to its entries",
            ));
        }
        let found = store.view().map_err(because)?.by_address(&self.address).map_err(because)?;
        for (key, value) in found {
            session.row(&key, &value)?;
        }
        Ok(())
    }
}

/// A table, as an argument.
#[derive(Clone, Copy, ValueEnum)]
enum TableArg {
    Kv,
    Csmt,
    Rollbacks,
    Config,
}

impl From<TableArg> for Table {
    fn from(argument: TableArg) -> Table {
        match argument {
            TableArg::Kv => KV,
            TableArg::Csmt => CSMT,
            TableArg::Rollbacks => ROLLBACKS,
            TableArg::Config => CONFIG,
        }
    }
}

/// Print all rows of a table: key and value in hex, in key order
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt dump --db utxos --table kv > utxos.txt
  utxo-csmt dump --db utxos --table csmt | wc -l

What `dump --table kv` prints, `bootstrap` takes.")]
pub(super) struct Dump {
    #[command(flatten)]
    place: Where,
    /// Which table
    #[arg(long, value_enum)]
    table: TableArg,
}

impl Dump {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        for row in view.rows(self.table.into()).map_err(because)? {
            let (key, value) = row.map_err(because)?;
            session.row(&key, &value)?;
        }
        Ok(())
    }
}

/// Check everything against everything: the tree against the entries, points against the root
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt verify --db utxos

Every node's digest is computed again, every leaf compared with its entry, and every row counted. Exit code 1 if anything is wrong.")]
pub(super) struct Verify {
    #[command(flatten)]
    place: Where,
}

impl Verify {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let bar = Bar::count("nodes", 0, session.common.quiet);
        let check = store.verify(&mut |done| bar.set(done));
        bar.clear();
        let check = check.map_err(because)?;
        let facts = json!({
            "sound": check.findings.is_empty(),
            "entries": check.entries,
            "nodes": check.nodes,
            "points": check.points,
            "root": check.root.map(|root| root.to_string()),
            "findings": check.findings,
        });
        let counts = [
            show::many(check.entries, "entry", "entries"),
            show::many(check.nodes, "node", "nodes"),
            show::many(check.points, "point", "points"),
        ];
        verdict::tell(session, &facts, &check.findings, &counts)
    }
}

/// Print how much there is
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt stats --db utxos --json")]
pub(super) struct Stats {
    #[command(flatten)]
    place: Where,
}

impl Stats {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let settings = store.settings();
        let engine = self.place.database().engine_kind().map_err(because)?;
        let mut view = store.view().map_err(because)?;
        let root = view.root().map_err(because)?.map(|root| root.to_string());
        let mut tables = serde_json::Map::new();
        let mut text = vec![
            ("engine", engine.name().to_owned()),
            ("path", settings.path.name().to_owned()),
            ("k", settings.k.to_string()),
            ("tip", view.tip().to_string()),
            ("root", root.clone().unwrap_or_else(|| "none".to_owned())),
        ];
        for table in CANONICAL {
            let (mut rows, mut bytes) = (0_u64, 0_u64);
            for row in view.rows(*table).map_err(because)? {
                let (key, value) = row.map_err(because)?;
                rows += 1;
                bytes += u64::try_from(key.len() + value.len()).unwrap_or(0);
            }
            tables.insert(table.name.to_owned(), json!({"rows": rows, "bytes": bytes}));
            let rows = show::many(rows, "row", "rows");
            text.push((table.name, format!("{rows}, {}", show::size(bytes))));
        }
        let facts = json!({
            "engine": engine.name(),
            "path": settings.path.name(),
            "k": settings.k,
            "tip": tip(view.tip()),
            "root": root,
            "tables": tables,
        });
        session.tell(&facts, || show::list(&text))
    }
}
