//! `kvb compact`, `train`, `verify`, `repair`: keeping a bucket well.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kvb::{Bucket, Finding, Lost, Options, RepairTo, Severity};
use serde_json::{Value, json};

use super::Session;
use super::open::keep_private;
use crate::bar::Bar;
use crate::exit::{Done, Fail, about};
use crate::input::{self, to_hex};
use crate::{interrupt, show};

/// Give back the space of replaced, deleted and expired records
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb compact bucket.kvb                        what is worth it
  kvb compact bucket.kvb --full                 everything, into one run in key order

Expired records go an hour after their time, in case a clock is wrong. A bucket in use compacts itself. Ctrl-C leaves it
valid; what was compacted so far stays so.")]
pub(super) struct Compact {
    /// The bucket
    bucket: PathBuf,
    /// Everything, not only what is worth it. Needs as much free space as there is live data, or takes longer
    #[arg(long, conflicts_with = "low_space")]
    full: bool,
    /// A little at a time, on a disk that is nearly full
    #[arg(long)]
    low_space: bool,
}

impl Compact {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let kind = match (self.full, self.low_space) {
            (true, _) => kvb::Compact::Full,
            (_, true) => kvb::Compact::LowSpace,
            _ => kvb::Compact::Auto,
        };
        let bucket = session.writer(path, &Options::default())?;
        let before = bucket.stats().map_err(about(path))?;
        let done =
            beside_bar(&bucket, "compacting", before.bytes_live, session.common.quiet, || {
                bucket.compact(kind)
            })
            .map_err(about(path))?;
        bucket.flush().map_err(about(path))?;
        let after = bucket.stats().map_err(about(path))?;
        bucket.close().map_err(about(path))?;
        let facts = json!({
            "segments_emptied": done.segments_emptied,
            "segments_written": done.segments_written,
            "records_moved": done.records_moved,
            "bytes_moved": done.bytes_moved,
            "bytes_freed": done.bytes_freed,
            "seconds": done.seconds,
            "bytes_log": after.bytes_log,
            "bytes_live": after.bytes_live,
            "file_bytes": after.file_bytes,
        });
        session.report(&facts, || {
            format!(
                "moved {} in {}; the log is {} (was {}), the file {} (was {})",
                show::many(done.records_moved, "record", "records"),
                show::seconds(Duration::from_secs_f64(done.seconds)),
                show::size(after.bytes_log),
                show::size(before.bytes_log),
                show::size(after.file_bytes),
                show::size(before.file_bytes),
            )
        })
    }
}

/// Does something that moves records, with a bar that shows how many bytes of them. Ctrl-C ends the process, which a bucket
/// survives as it does power loss.
pub(super) fn beside_bar<T: Send>(
    bucket: &Bucket,
    stage: &'static str,
    total: u64,
    is_quiet: bool,
    task: impl FnOnce() -> kvb::Result<T> + Send,
) -> kvb::Result<T> {
    interrupt::listen();
    let start = bucket.stats()?.bytes_moved;
    let bar = Bar::bytes(stage, Some(total), is_quiet);
    let result = std::thread::scope(|scope| {
        let running = scope.spawn(task);
        for turn in 1_u64.. {
            if running.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
            if interrupt::is_asked() {
                bar.set(0);
                interrupt::end(
                    "\nkvb: interrupted; the bucket is valid, and the command can be run again",
                );
            }
            // Counting takes time from what is counted.
            if turn.is_multiple_of(12) && Bar::is_seen(is_quiet) {
                let moved = bucket.stats().map_or(0, |stats| stats.bytes_moved - start);
                bar.set_of(moved.min(total), total);
            }
        }
        running.join()
    });
    bar.clear();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Learn from the values in a bucket how to compress small ones
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb train bucket.kvb
  kvb train bucket.kvb --bytes 64KiB

The bucket must be made with --compression zstd. Values put from now on use what was learned; those that are there stay as
they are.")]
pub(super) struct Train {
    /// The bucket
    bucket: PathBuf,
    /// Longest dictionary
    #[arg(long, value_name = "BYTES", default_value = "16KiB", value_parser = input::size)]
    bytes: u64,
}

impl Train {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let bucket = session.writer(path, &Options::default())?;
        let max = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let learned = bucket.train_dictionary(max).map_err(about(path))?;
        bucket.close().map_err(about(path))?;
        let facts = json!({ "id": learned.id, "bytes": learned.bytes, "samples": learned.samples });
        session.report(&facts, || {
            format!(
                "dictionary {} of {} learned from {} values",
                learned.id,
                show::size(learned.bytes),
                show::count(learned.samples)
            )
        })
    }
}

/// Check everything in a bucket: checksums, index against log, space
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb verify bucket.kvb
  kvb verify bucket.kvb --json | jq '.findings[].at'

It works beside a writer. Exit code 0 means that nothing is wrong, 1 that something is. Each finding has the byte of the file
it is at; `kvb inspect` shows what stands there. Severities:
  notice    nothing is lost and nothing needs to be done
  derived   something made from the log is wrong: writing or `kvb compact --full` makes it anew
  damage    records, or what leads to them, are damaged: `kvb repair` saves what is intact")]
pub(super) struct Verify {
    /// The bucket
    bucket: PathBuf,
}

impl Verify {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        interrupt::listen();
        let mut bar = Bar::bytes("verifying", Some(0), session.common.quiet);
        let found = session.with_keys(path, &Options::default(), |options| {
            kvb::verify(path, options, &mut bar.watch())
        });
        bar.clear();
        let found = found?;
        let facts = json!({
            "sound": found.is_sound(),
            "findings": found.findings.iter().map(finding_json).collect::<Vec<Value>>(),
            "epoch": found.epoch,
            "commit_seqno": found.commit_seqno,
            "segments": found.segments,
            "records": found.records,
            "record_bytes": found.record_bytes,
            "keys": found.keys,
        });
        let told = session.tell(&facts, || {
            let mut text = findings_text(&found.findings);
            let state = if found.is_sound() { "sound" } else { "NOT SOUND" };
            let _ = writeln!(
                text,
                "{state}: {} of {} in {}, {} in the index, up to commit {}",
                show::many(found.records, "record", "records"),
                show::size(found.record_bytes),
                show::many(found.segments, "segment", "segments"),
                show::many(found.keys, "key", "keys"),
                found.commit_seqno
            );
            text
        });
        // Whoever does not read to the end must not take it for sound.
        if found.is_sound() {
            return told;
        }
        let fail = Fail::failed(format!("{} is not sound", path.display()));
        let is_damage = found.findings.iter().any(|finding| finding.severity == Severity::Damage);
        let shown = path.display();
        Err(fail.hint(if is_damage {
            format!("`kvb repair {shown}` makes a new file of everything that is intact")
        } else {
            format!("no record is lost; `kvb compact --full {shown}` makes the rest anew")
        }))
    }
}

fn findings_text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{}: {finding}", severity_name(finding.severity));
    }
    text
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": severity_name(finding.severity),
        "what": finding.what.to_string(),
        "at": finding.at,
        "meaning": finding.meaning,
    })
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Notice => "notice",
        Severity::Derived => "derived",
        Severity::Damage => "damage",
    }
}

/// Save every intact record of a damaged bucket into a new one
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb repair bucket.kvb --dry-run               what would be saved and what is lost
  kvb repair bucket.kvb                         into bucket.kvb.repaired
  kvb repair bucket.kvb --out saved.kvb
  kvb repair bucket.kvb --in-place              asks; --yes does not

The damaged file is only read. The new one gets its name when it is whole and verified, so that an interrupted repair changes
nothing. A bucket in which nothing is wrong is left alone. Exit code 0 means that nothing was lost, 1 that something was.")]
pub(super) struct Repair {
    /// The bucket
    bucket: PathBuf,
    /// Only tell what would be saved
    #[arg(long, short = 'n', conflicts_with_all = ["out", "in_place"])]
    dry_run: bool,
    /// The new file. Default: the bucket's name with .repaired
    #[arg(long, short, value_name = "FILE", conflicts_with = "in_place")]
    out: Option<PathBuf>,
    /// Put the new bucket in the place of the damaged one
    #[arg(long)]
    in_place: bool,
    /// Do not ask
    #[arg(long, short, requires = "in_place")]
    yes: bool,
}

impl Repair {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        let target = self.out.clone().unwrap_or_else(|| repaired_name(path));
        let to = if self.dry_run {
            RepairTo::DryRun
        } else if self.in_place {
            self.ask(path)?;
            RepairTo::InPlace
        } else {
            if target.exists() {
                return Err(Fail::failed(format!(
                    "{} is there already, and nothing was changed",
                    target.display()
                ))
                .hint("remove it, or choose another name with --out"));
            }
            keep_private(path);
            RepairTo::New(target.clone())
        };
        interrupt::listen();
        let mut bar = Bar::bytes("looking", Some(0), session.common.quiet);
        let done = session.with_keys(path, &Options::default(), |options| {
            kvb::repair(path, &to, options, &mut bar.watch())
        });
        bar.clear();
        let done = done?;
        let is_written = !done.is_sound && !self.dry_run;
        let file = match (is_written, self.in_place) {
            (false, _) => None,
            (true, true) => Some(path),
            (true, false) => Some(&target),
        };
        let facts = json!({
            "sound": done.is_sound,
            "written_to": file.map(|file| file.display().to_string()),
            "findings": done.findings.iter().map(finding_json).collect::<Vec<Value>>(),
            "records_found": done.records_found,
            "records_uncommitted": done.records_uncommitted,
            "keys": done.keys,
            "bytes": done.bytes,
            "seqno": done.seqno,
            "lost": done.lost.iter().map(lost_json).collect::<Vec<Value>>(),
        });
        let told = session.tell(&facts, || report(&done, file));
        if done.lost.is_empty() {
            return told;
        }
        Err(Fail::failed(format!("{} lost", places(&done))))
    }

    /// Makes sure that the user means it.
    fn ask(&self, path: &Path) -> Done {
        if self.yes {
            return Ok(());
        }
        let refused = || {
            Fail::usage(
                "--in-place puts a new file in the place of the damaged one, and needs a yes",
            )
            .hint("add --yes, or leave out --in-place to get a new file beside the damaged one")
        };
        if !std::io::stdin().is_terminal() {
            return Err(refused());
        }
        let shown = path.display();
        let _ = write!(
            std::io::stderr(),
            "Put a new file in the place of {shown}? Keep a copy first. [y/N] "
        );
        let mut answer = String::new();
        let _ = std::io::stdin().read_line(&mut answer);
        if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(refused()) }
    }
}

fn repaired_name(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".repaired");
    path.with_file_name(name)
}

fn report(done: &kvb::Repair, file: Option<&PathBuf>) -> String {
    let mut text = findings_text(&done.findings);
    if done.is_sound {
        text.push_str("nothing is wrong, and nothing was written\n");
        return text;
    }
    for lost in &done.lost {
        let key = lost
            .key
            .as_ref()
            .map_or_else(String::new, |key| format!(", key {}", show::short_of(key, 64)));
        let seqno = lost.seqno.map_or_else(String::new, |seqno| format!(", seqno {seqno}"));
        let _ = writeln!(
            text,
            "lost: byte {}, {} bytes{seqno}{key}: {}",
            lost.at, lost.len, lost.meaning
        );
    }
    let saved = match file {
        Some(file) => format!("saved to {}", file.display()),
        None => "would be saved".to_owned(),
    };
    let _ = writeln!(
        text,
        "{} of {} {saved}; {} found, {} lost",
        show::many(done.keys, "key", "keys"),
        show::size(done.bytes),
        show::many(done.records_found, "intact record", "intact records"),
        places(done)
    );
    text
}

fn places(done: &kvb::Repair) -> String {
    show::many(u64::try_from(done.lost.len()).unwrap_or(u64::MAX), "place", "places")
}

fn lost_json(lost: &Lost) -> Value {
    json!({
        "at": lost.at,
        "len": lost.len,
        "seqno": lost.seqno,
        "key": lost.key.as_ref().map(|key| to_hex(key)),
        "meaning": lost.meaning,
    })
}
