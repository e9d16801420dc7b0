//! `kvb watch`: a bucket that another process writes, as it changes.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::Session;
use super::stats::stats_json;
use crate::exit::{Done, about};
use crate::{input, interrupt, show};

/// Rows between two headings.
const HEADING_EVERY: u64 = 20;

/// Show the counters of a bucket that another process writes, again and again
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb watch bucket.kvb                          a line a second, until Ctrl-C
  kvb watch bucket.kvb --interval 10s --count 6
  kvb watch bucket.kvb --json

records/s are puts and deletes of whoever writes; written/s is what they added to the log.")]
pub(super) struct Watch {
    /// The bucket
    bucket: PathBuf,
    /// Time between two lines
    #[arg(long, short, value_name = "TIME", default_value = "1", value_parser = input::duration)]
    interval: Duration,
    /// End after so many lines; 0 for never
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 0)]
    count: u64,
}

impl Watch {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let reader = session.reader(path)?;
        interrupt::listen();
        let mut before = (Instant::now(), reader.stats().map_err(about(path))?);
        let mut lines = 0;
        loop {
            loop {
                if interrupt::is_asked() {
                    return Ok(());
                }
                let left = self.interval.saturating_sub(before.0.elapsed());
                if left.is_zero() {
                    break;
                }
                std::thread::sleep(left.min(Duration::from_millis(50)));
            }
            let now = (Instant::now(), reader.stats().map_err(about(path))?);
            let survey = reader.survey().map_err(about(path))?;
            let took = now.0 - before.0;
            let stats = &now.1;
            let records = stats.commit_seqno.saturating_sub(before.1.commit_seqno);
            let records = show::per_second(records, took);
            let written = stats.bytes_log.saturating_sub(before.1.bytes_log);
            let written = show::per_second(written, took);
            if session.common.json {
                let mut facts = stats_json(stats);
                if let Some(facts) = facts.as_object_mut() {
                    facts.insert("records_per_second".to_owned(), json!(records));
                    facts.insert("bytes_per_second".to_owned(), json!(written));
                    facts.insert("has_writer".to_owned(), json!(survey.has_writer));
                }
                writeln!(session.out, "{facts}")?;
            } else {
                if lines % HEADING_EVERY == 0 {
                    writeln!(
                        session.out,
                        "{:>14} {:>10} {:>11} {:>13} {:>11} {:>8} {:>9} {:>11} {:>8} writer",
                        "commit",
                        "records/s",
                        "written/s",
                        "keys",
                        "live",
                        "garbage",
                        "segments",
                        "file",
                        "epoch"
                    )?;
                }
                writeln!(
                    session.out,
                    "{:>14} {:>10} {:>11} {:>13} {:>11} {:>8} {:>9} {:>11} {:>8} {}",
                    stats.commit_seqno,
                    show::count(records),
                    show::size(written),
                    show::count(stats.keys),
                    show::size(stats.bytes_live),
                    show::percent(stats.garbage_ratio()),
                    stats.segments,
                    show::size(stats.file_bytes),
                    stats.epoch,
                    if survey.has_writer { "yes" } else { "no" },
                )?;
            }
            session.out.flush()?;
            before = now;
            lines += 1;
            if lines == self.count {
                return Ok(());
            }
        }
    }
}
