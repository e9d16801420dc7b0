//! Commands that look at one thing: `tx`, `checkpoint`, `tip`, `stats`.

use clap::Args;
use misaka::Hash;
use serde_json::json;

use super::Session;
use super::open::{Where, absent, because, hash, tip};
use crate::exit::{Done, Fail};
use crate::show;

/// Print where a transaction is: its checkpoint, and its place in it
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer tx --index index 5cfd3dd7...
  misaka-indexer tx --index index 5cfd3dd7... --json")]
pub(super) struct Tx {
    #[command(flatten)]
    place: Where,
    /// The digest of the transaction, 64 hex digits
    #[arg(value_name = "DIGEST", value_parser = hash)]
    digest: Hash,
}

impl Tx {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        let found = index.transaction(&self.digest).map_err(because)?;
        let what = format!("no transaction {} is known", self.digest);
        let found = found.ok_or_else(|| absent(&*index, &what))?;
        session.tell(&json!({"checkpoint_seq": found.seq, "tx_index": found.index}), || {
            format!("{} {}\n", found.seq, found.index)
        })
    }
}

/// Print what a checkpoint came to
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer checkpoint --index index 17
  misaka-indexer checkpoint --index index 17 --json")]
pub(super) struct Checkpoint {
    #[command(flatten)]
    place: Where,
    /// The number of the checkpoint
    #[arg(value_name = "CHECKPOINT")]
    seq: u64,
}

impl Checkpoint {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        let found = index.summary(self.seq).map_err(because)?;
        let what = format!("checkpoint {} is not known", self.seq);
        let found = found.ok_or_else(|| absent(&*index, &what))?;
        let facts = json!({
            "seq": found.seq,
            "digest": found.digest.to_string(),
            "epoch": found.epoch,
            "timestamp_ms": found.timestamp_ms,
            "transactions": found.transactions,
            "writes": found.writes,
            "created": found.created,
            "deleted": found.deleted,
            "events": found.events,
            "event_bytes": found.event_bytes,
        });
        session.tell(&facts, || {
            show::list(&[
                ("checkpoint", found.seq.to_string()),
                ("digest", found.digest.to_string()),
                ("epoch", found.epoch.to_string()),
                ("time", show::time(found.timestamp_ms.saturating_mul(1_000_000))),
                ("transactions", show::count(found.transactions)),
                ("writes", show::count(found.writes)),
                ("created", show::count(found.created)),
                ("deleted", show::count(found.deleted)),
                ("events", show::count(found.events)),
                ("event bytes", show::count(found.event_bytes)),
            ])
        })
    }
}

/// Print the newest checkpoint of the index: its number and its digest
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer tip --index index
  misaka-indexer tip --postgres postgresql://indexer@db.example/misaka --json

An index without checkpoints has none: then the exit code is 1.")]
pub(super) struct Tip {
    #[command(flatten)]
    place: Where,
}

impl Tip {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        let now = index.tip().map_err(because)?;
        if session.common.json {
            writeln!(session.out, "{}", json!({"tip": tip(now)}))?;
            return now.map(drop).ok_or(Fail::silent(1));
        }
        let now = now.ok_or_else(|| {
            Fail::failed("the index is empty").hint("`misaka-indexer follow` fills it")
        })?;
        Ok(writeln!(session.out, "{} {}", now.seq, now.digest)?)
    }
}

/// Print how much there is. Everything is counted for it
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer stats --index index
  misaka-indexer stats --index index --json")]
pub(super) struct Stats {
    #[command(flatten)]
    place: Where,
}

impl Stats {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let index = self.place.look()?;
        let now = index.tip().map_err(because)?;
        let counts = index.counts().map_err(because)?;
        let facts = json!({
            "engine": index.name(),
            "tip": tip(now),
            "objects": counts.objects,
            "versions": counts.versions,
            "transactions": counts.transactions,
            "events": counts.events,
            "checkpoints": counts.checkpoints,
        });
        session.tell(&facts, || {
            let newest =
                now.map_or_else(|| "none".to_owned(), |tip| format!("{} {}", tip.seq, tip.digest));
            let base = now.and_then(|tip| tip.base);
            let from = base.map_or_else(
                || "the feed".to_owned(),
                |base| format!("the objects after checkpoint {base}"),
            );
            show::list(&[
                ("engine", index.name().to_owned()),
                ("tip", newest),
                ("built from", from),
                ("objects", show::count(counts.objects)),
                ("versions", show::count(counts.versions)),
                ("transactions", show::count(counts.transactions)),
                ("events", show::count(counts.events)),
                ("checkpoints", show::count(counts.checkpoints)),
            ])
        })
    }
}
