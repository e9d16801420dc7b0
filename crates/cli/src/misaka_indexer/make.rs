//! Commands that change an index: `follow`, `rebuild`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use host::FileDir;
use ledger::EngineKind;
use misaka::{Database, Effort};
use misaka_indexer::rebuild::{self, Rebuilt};
use misaka_indexer::{Error, Followed, Index, Watch, follow};
use serde_json::json;

use super::Session;
use super::open::{Where, because, tip};
use crate::bar::Bar;
use crate::exit::{Done, Fail, say};
use crate::feed::Answers;
use crate::{engine, interrupt, show};

/// How often somebody who waits looks whether there is more, and how often whether the server is back.
const LOOK: Duration = Duration::from_millis(200);
const AGAIN: Duration = Duration::from_secs(2);
/// Somebody who waits looks so often whether to end.
const STEP: Duration = Duration::from_millis(20);

/// Apply what a validator has and the index has not
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer follow --db node --index index
  misaka-indexer follow --db node --index index --wait
  misaka-indexer follow --db node --postgres postgresql://indexer@db.example/misaka

The database of the validator is only read, and may be written to meanwhile. An index that is not there is made. Every checkpoint is on
disk, whole, before the next one is read; if it is cut off, run it again. With --wait it goes on until it is interrupted, and waits for a
server that is down.

A validator keeps its feed for so many checkpoints (10,000 unless it was made otherwise). An index that was left behind further than that
must be built anew.")]
pub(super) struct Follow {
    /// The directory of the validator's database
    #[arg(long, value_name = "DIRECTORY")]
    db: PathBuf,
    #[command(flatten)]
    place: Where,
    /// Where the tables of a new index are
    #[arg(long, default_value = "kvb", value_parser = engine::listed())]
    engine: EngineKind,
    /// Go on until interrupted
    #[arg(long)]
    wait: bool,
}

/// Opens the database of a validator to read it.
fn validator(path: &Path) -> Done<misaka::Open> {
    Database::new(path)
        .open_to_read(Effort::default())
        .map_err(|error| because(Error::Validator(error)))
}

impl Follow {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let store = validator(&self.db)?;
        let index = self.place.open(self.engine)?;
        interrupt::listen();
        let start = Instant::now();
        let (mut sum, mut answers) = (Followed::default(), Answers::default());
        let mut is_down = false;
        loop {
            let bar = Bar::count("checkpoints", 0, session.common.quiet);
            let show = |done, total| bar.set_of(done, total);
            let watch = Watch { progress: &show, stop: &interrupt::is_asked };
            let followed = follow(&*index, &store, watch);
            bar.clear();
            match followed {
                Ok(more) => {
                    is_down = false;
                    sum.checkpoints += more.checkpoints;
                    sum.writes += more.writes;
                    sum.events += more.events;
                    if !self.wait {
                        break;
                    }
                    if more.checkpoints > 0 {
                        let line = report(session, &*index, more)?;
                        answers.line(session, &line)?;
                    }
                    pause(LOOK)?;
                }
                Err(error) if self.wait && error.is_lost_connection() => {
                    if !is_down && !session.common.quiet {
                        say(format_args!("{error}; waiting for it"));
                    }
                    is_down = true;
                    pause(AGAIN)?;
                }
                Err(error) => return Err(because(error)),
            }
        }
        let line = report(session, &*index, sum)?;
        answers.line(session, &line)?;
        if !session.common.quiet && !session.common.json && sum.checkpoints > 0 {
            let took = start.elapsed();
            let rate = show::rate(sum.checkpoints, took);
            say(format_args!("{}, {rate}", show::seconds(took)));
        }
        Ok(())
    }
}

/// What following came to, in a line.
fn report(session: &Session<'_>, index: &dyn Index, followed: Followed) -> Done<String> {
    let now = index.tip().map_err(because)?;
    let Followed { checkpoints, writes, events, .. } = followed;
    let facts =
        json!({"checkpoints": checkpoints, "writes": writes, "events": events, "tip": tip(now)});
    if session.common.json {
        return Ok(facts.to_string());
    }
    let newest = now.map_or_else(|| "none".to_owned(), |tip| tip.seq.to_string());
    Ok(format!(
        "{} with {} and {}, the newest is {newest}",
        show::many(checkpoints, "checkpoint", "checkpoints"),
        show::many(writes, "write", "writes"),
        show::many(events, "event", "events"),
    ))
}

/// Waits, unless somebody wants an end.
fn pause(time: Duration) -> Done {
    let start = Instant::now();
    while start.elapsed() < time {
        if interrupt::is_asked() {
            return Err(because(Error::Interrupted));
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Forget everything, and build the index anew from objects
#[derive(Args)]
#[command(after_help = "\
Examples:
  misaka-indexer rebuild --from-db node --index index
  misaka-indexer rebuild --from-snapshot snap --index index
  misaka-indexer rebuild --from-snapshot snap --postgres postgresql://indexer@db.example/misaka

A validator and a snapshot have the newest version of every object, so owners and types are complete afterwards; older versions,
transactions and events are known from there on, as `follow` brings them. The chunks of a snapshot are checked against its manifest; that
its state has the root that it should, `misaka-node snapshot verify` checks.

Until it is done, the index answers nothing. If it is cut off, run it again: it starts over.")]
pub(super) struct Rebuild {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    place: Where,
    /// Where the tables of a new index are
    #[arg(long, default_value = "kvb", value_parser = engine::listed())]
    engine: EngineKind,
}

/// What an index is built of.
#[derive(Args, Clone)]
#[group(required = true, multiple = false)]
struct Source {
    /// The directory of a validator's database
    #[arg(long, value_name = "DIRECTORY")]
    from_db: Option<PathBuf>,
    /// The directory of a snapshot
    #[arg(long, value_name = "DIRECTORY")]
    from_snapshot: Option<PathBuf>,
}

impl Rebuild {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        // Nothing is made for something that cannot be read.
        if let Some(path) = &self.source.from_snapshot {
            let manifest = misaka::snapshot::manifest(&FileDir::new(path));
            manifest.map_err(|error| because(Error::Validator(error)).within(path))?;
        }
        let store = self.source.from_db.as_deref().map(validator).transpose()?;
        let index = self.place.open(self.engine)?;
        interrupt::listen();
        let start = Instant::now();
        let bar = Bar::count("objects", 0, session.common.quiet);
        let show = |done, total| bar.set_of(done, total);
        let watch = Watch { progress: &show, stop: &interrupt::is_asked };
        let rebuilt = match (&store, &self.source.from_snapshot) {
            (Some(store), _) => store
                .view()
                .map_err(Error::Validator)
                .and_then(|view| rebuild::from_view(&*index, &view, watch)),
            (None, Some(path)) => rebuild::from_snapshot(&*index, &FileDir::new(path), watch),
            (None, None) => return Err(Fail::usage("give --from-db or --from-snapshot")),
        };
        bar.clear();
        let Rebuilt { tip: now, objects } = rebuilt.map_err(unfinished)?;
        session.tell(&json!({"objects": objects, "tip": tip(Some(now))}), || {
            let objects = show::many(objects, "object", "objects");
            format!("{objects} after checkpoint {}\n", now.seq)
        })?;
        if !session.common.quiet && !session.common.json {
            let took = start.elapsed();
            let rate = show::rate(objects, took);
            say(format_args!("{}, {rate}", show::seconds(took)));
        }
        Ok(())
    }
}

/// What became of a rebuild that did not come to its end.
fn unfinished(error: Error) -> Fail {
    match error {
        Error::Interrupted => {
            Fail::interrupted("interrupted; the index is not whole, and answers nothing")
                .hint("run it again: it starts over")
        }
        other => because(other),
    }
}
