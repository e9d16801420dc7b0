//! `init`, `prune`, `verify`, `stats`: a database as a whole.

use clap::Args;
use ledger::EngineKind;
use misaka::tables::ALL;
use misaka::{Effort, Settings};
use serde_json::{Value, json};

use super::Session;
use super::look::tip;
use super::open::{Stages, Take, Where, Windows, because};
use crate::exit::{Done, Fail};
use crate::{engine, show, verdict};

/// Make a database
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node init --db node
  misaka-node init --db node --chain-id 2 --v2-at 100000
  misaka-node init --db test --event-retention 4 --window 6

Doing it again with the same settings does no harm. Settings cannot be changed afterwards.")]
pub(super) struct Init {
    #[command(flatten)]
    place: Where,
    /// Where the tables are
    #[arg(long, default_value = "kvb", value_parser = engine::listed())]
    engine: EngineKind,
    /// The chain. Default: that of the first checkpoint
    #[arg(long, value_name = "N")]
    chain_id: Option<u32>,
    #[command(flatten)]
    windows: Windows,
}

impl Init {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let settings = self.windows.settings(self.chain_id);
        let store = self.place.database().init(self.engine, settings, Effort::default());
        let store = store.map_err(because)?;
        let now = store.view().and_then(|view| view.tip()).map_err(because)?;
        let mut facts = facts_of(settings);
        facts.insert("engine".to_owned(), json!(store.engine().name()));
        facts.insert("tip".to_owned(), tip(now.as_ref(), settings));
        session.tell(&Value::Object(facts), || "OK\n".to_owned())
    }
}

/// Settings as JSON.
fn facts_of(settings: Settings) -> serde_json::Map<String, Value> {
    let facts = json!({
        "chain_id": settings.chain_id,
        "event_retention": settings.event_retention,
        "window": settings.window,
        "v2_at": settings.v2_at,
    });
    match facts {
        Value::Object(facts) => facts,
        _ => serde_json::Map::new(),
    }
}

/// Print what the next checkpoint lets go
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node prune --db node --dry-run

Events, checkpoints and versions of objects are deleted together with the checkpoint that puts them out of their windows, so there is
never anything left to prune. What is counted is what goes even if the next checkpoint writes nothing; each object that it writes
can let one more version go.")]
pub(super) struct Prune {
    #[command(flatten)]
    place: Where,
    /// Only tell
    #[arg(long, short = 'n')]
    dry_run: bool,
}

impl Prune {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        if !self.dry_run {
            return Err(Fail::usage("there is nothing to prune: that is part of every checkpoint")
                .hint("--dry-run tells what the next one lets go"));
        }
        let store = self.place.look()?;
        let view = store.view().map_err(because)?;
        let pruned = view.next_pruned().map_err(because)?;
        let next = view.tip().map_err(because)?.and_then(|tip| tip.header.seq.checked_add(1));
        let facts = json!({
            "seq": next,
            "versions": pruned.versions,
            "checkpoints": pruned.checkpoints,
            "events": pruned.events,
        });
        session.tell(&facts, || {
            let counts = [pruned.versions, pruned.checkpoints, pruned.events].map(show::count);
            let [versions, checkpoints, events] = counts;
            let next = next.map_or_else(|| "none".to_owned(), |next| next.to_string());
            show::list(&[
                ("checkpoint", next),
                ("versions", versions),
                ("checkpoints", checkpoints),
                ("events", events),
            ])
        })
    }
}

/// Check everything against everything: objects, versions, checkpoints, events, the root
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node verify --db node

Every object is compared with its versions, every checkpoint with the one before it, every row counted, nothing may be left that should
have been pruned, and the root is made anew and compared with the newest header. Exit code 1 if anything is wrong.")]
pub(super) struct Verify {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    take: Take,
}

impl Verify {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look_with(self.take.effort())?;
        let stages = Stages::of_store(session.common.quiet);
        let check = store.verify(&|stage, done, total| stages.show(stage, done, total));
        drop(stages);
        let check = check.map_err(because)?;
        let facts = json!({
            "sound": check.findings.is_empty(),
            "objects": check.objects,
            "versions": check.versions,
            "checkpoints": check.checkpoints,
            "events": check.events,
            "root": check.root.map(|root| root.to_string()),
            "findings": check.findings,
        });
        let counts = [
            show::many(check.objects, "object", "objects"),
            show::many(check.versions, "version", "versions"),
            show::many(check.checkpoints, "checkpoint", "checkpoints"),
            show::many(check.events, "event", "events"),
        ];
        verdict::tell(session, &facts, &check.findings, &counts)
    }
}

/// Print how much there is
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-node stats --db node
  misaka-node stats --db node --json

Tables are counted row by row. Those after sys_params are the database's own, and no part of the state.")]
pub(super) struct Stats {
    #[command(flatten)]
    place: Where,
}

impl Stats {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = self.place.look()?;
        let settings = store.settings();
        let engine = self.place.database().engine_kind().map_err(because)?;
        let view = store.view().map_err(because)?;
        let now = view.tip().map_err(because)?;
        let kept = view.checkpoints().map_err(because)?;
        let none = || "none".to_owned();
        let mut text = vec![
            ("engine", engine.name().to_owned()),
            ("chain", settings.chain_id.map_or_else(|| "any".to_owned(), |id| id.to_string())),
            ("events of", show::many(settings.event_retention, "checkpoint", "checkpoints")),
            ("window", show::many(settings.window, "checkpoint", "checkpoints")),
            ("v2 from", settings.v2_at.map_or_else(none, |first| first.to_string())),
            ("tip", now.as_ref().map_or_else(none, |tip| tip.header.seq.to_string())),
            ("kept", kept.map_or_else(none, |(from, to)| format!("{from} to {to}"))),
            ("root", now.as_ref().map_or_else(none, |tip| tip.header.state_root.to_string())),
            ("objects", show::count(now.as_ref().map_or(0, |tip| tip.objects))),
        ];
        let mut tables = serde_json::Map::new();
        for table in ALL {
            let (rows, bytes) = view.measure(*table).map_err(because)?;
            tables.insert(table.name.to_owned(), json!({"rows": rows, "bytes": bytes}));
            let rows = show::many(rows, "row", "rows");
            text.push((table.name, format!("{rows}, {}", show::size(bytes))));
        }
        let mut facts = serde_json::Map::new();
        facts.insert("engine".to_owned(), json!(engine.name()));
        facts.append(&mut facts_of(settings));
        facts.insert("tip".to_owned(), tip(now.as_ref(), settings));
        facts.insert("tables".to_owned(), Value::Object(tables));
        session.tell(&Value::Object(facts), || show::list(&text))
    }
}
