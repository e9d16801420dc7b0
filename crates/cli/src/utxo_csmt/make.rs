//! `init`, `rollback`, `wipe`.

use clap::Args;
use csmt::format::point::Point;
use csmt::{RolledBack, Settings};
use ledger::EngineKind;
use serde_json::json;

use super::Session;
use super::open::{PathArg, Take, Where, because, point};
use crate::bar::Bar;
use crate::exit::{Done, Fail};
use crate::{engine, show};

/// Make a database
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt init --db utxos
  utxo-csmt init --db test --path raw -k 100

Doing it again with the same settings does no harm.")]
pub(super) struct Init {
    #[command(flatten)]
    place: Where,
    /// Where the tables are
    #[arg(long, default_value = "kvb", value_parser = engine::listed())]
    engine: EngineKind,
    /// What the path of an entry is made of
    #[arg(long, value_enum, default_value = "address")]
    path: PathArg,
    /// Blocks that can be taken back
    #[arg(short, value_name = "N", default_value_t = csmt::K)]
    k: u32,
}

impl Init {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let settings = Settings { path: self.path.into(), k: self.k };
        let effort = csmt::Effort::default();
        let store = self.place.database().init(self.engine, settings, effort);
        let store = store.map_err(because)?;
        let facts = json!({
            "path": settings.path.name(),
            "k": settings.k,
            "engine": store.engine().name(),
            "tip": tip(store.tip().map_err(because)?),
        });
        session.tell(&facts, || "OK\n".to_owned())
    }
}

/// A point as JSON: its slot and its hash; null for origin.
pub(super) fn tip(point: Point) -> serde_json::Value {
    match point {
        Point::Origin => serde_json::Value::Null,
        Point::Block { slot, hash } => json!({"slot": slot, "hash": hash.to_string()}),
    }
}

/// Go back to the state after a block
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt rollback --db utxos --to 12903843:00c4e5a3...
  utxo-csmt rollback --db utxos --to origin

A point that is not kept any more gives exit code 1, and changes nothing: then the way is `utxo-csmt wipe` and to begin anew.")]
pub(super) struct Rollback {
    #[command(flatten)]
    place: Where,
    /// The block, or origin
    #[arg(long, value_name = "SLOT:HASH", value_parser = point)]
    to: Point,
    #[command(flatten)]
    take: Take,
}

impl Rollback {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.open(self.take.effort())?;
        match store.rollback(self.to).map_err(because)? {
            RolledBack::Done { blocks, root } => {
                let root = root.map(|root| root.to_string());
                let facts = json!({"blocks": blocks, "tip": tip(self.to), "root": root});
                session.tell(&facts, || {
                    let blocks = show::many(blocks, "block", "blocks");
                    format!("{blocks} taken back, root {}\n", root.as_deref().unwrap_or("none"))
                })
            }
            _ => Err(Fail::failed(format!("not found: the point {} is not kept", self.to))
                .hint("`utxo-csmt roots` lists those that are; to begin anew, `utxo-csmt wipe`")),
        }
    }
}

/// Delete every entry, node and point, to begin anew
#[derive(Args)]
#[command(after_help = "\
Examples:
  utxo-csmt wipe --db utxos --yes

Settings stay. If it is cut off, whatever opens the database next goes on with it.")]
pub(super) struct Wipe {
    #[command(flatten)]
    place: Where,
    /// Yes, delete everything
    #[arg(long)]
    yes: bool,
}

impl Wipe {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        if !self.yes {
            return Err(Fail::usage("this deletes everything in the database")
                .hint("say that you want that with --yes"));
        }
        let store = self.place.open(csmt::Effort::default())?;
        let bar = Bar::bytes("deleting", None, session.common.quiet);
        let mut rows = 0;
        let done = store.wipe(&mut |done| {
            rows = done;
            bar.set(done);
        });
        bar.clear();
        done.map_err(because)?;
        session.tell(&json!({"rows": rows}), || "OK\n".to_owned())
    }
}
