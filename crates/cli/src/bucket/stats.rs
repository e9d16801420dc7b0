//! `kvb stats`: what a bucket holds.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::Session;
use crate::exit::{Done, about};
use crate::show;

/// Show what a bucket holds, and how well it uses its space
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb stats bucket.kvb
  kvb stats bucket.kvb --json | jq .keys
  kvb stats bucket.kvb --prometheus             for a textfile collector

Keys that have expired count as long as compaction has not dropped them. Epoch and commit_seqno only grow: whoever notes them
notices when an older copy of the file was put in its place.")]
pub(super) struct Stats {
    /// The bucket
    bucket: PathBuf,
    /// As Prometheus metrics
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

impl Stats {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let reader = session.reader(path)?;
        let stats = reader.stats().map_err(about(path))?;
        let disk_bytes = disk_bytes(path);
        let mut facts = stats_json(&stats);
        if let (Some(facts), Some(bytes)) = (facts.as_object_mut(), disk_bytes) {
            facts.insert("disk_bytes".to_owned(), json!(bytes));
        }
        if self.prometheus {
            write!(session.out, "{}", prometheus(&facts))?;
            return Ok(());
        }
        session.tell(&facts, || {
            show::list(&[
                ("keys", show::count(stats.keys)),
                ("file", size_and_blocks(stats.file_bytes, disk_bytes)),
                ("log", show::size(stats.bytes_log)),
                ("live", show::size(stats.bytes_live)),
                ("garbage", show::percent(stats.garbage_ratio())),
                ("index", show::size(stats.index_bytes)),
                ("free", show::size(stats.free_bytes)),
                ("segments", show::count(stats.segments)),
                ("index changes in memory", show::count(stats.overlay_entries)),
                ("commit_seqno", show::count(stats.commit_seqno)),
                ("epoch", show::count(stats.epoch)),
            ])
        })
    }
}

/// The same facts for machines.
pub(super) fn stats_json(stats: &kvb::Stats) -> Value {
    json!({
        "keys": stats.keys,
        "file_bytes": stats.file_bytes,
        "bytes_log": stats.bytes_log,
        "bytes_live": stats.bytes_live,
        "garbage_ratio": stats.garbage_ratio(),
        "index_bytes": stats.index_bytes,
        "free_bytes": stats.free_bytes,
        "segments": stats.segments,
        "segment_bytes": stats.segment_bytes,
        "overlay_entries": stats.overlay_entries,
        "commit_seqno": stats.commit_seqno,
        "epoch": stats.epoch,
    })
}

/// Bytes of the disk that a file takes. Free space inside a bucket has no blocks where the file system allows that.
fn disk_bytes(path: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some(std::fs::metadata(path).ok()?.blocks() * 512)
    }
    #[cfg(not(unix))]
    None
}

fn size_and_blocks(len: u64, disk: Option<u64>) -> String {
    match disk {
        Some(disk) => format!("{}, of which {} are on disk", show::size(len), show::size(disk)),
        None => show::size(len),
    }
}

fn prometheus(facts: &Value) -> String {
    let mut text = String::new();
    for (name, value) in facts.as_object().into_iter().flatten() {
        let _ = writeln!(text, "# TYPE kvb_{name} gauge\nkvb_{name} {value}");
    }
    text
}
