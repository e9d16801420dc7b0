//! `kvb backup` and `restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use kvb::Options;
use serde_json::json;

use super::Session;
use super::open::keep_private;
use crate::bar::Bar;
use crate::exit::{Done, Fail, about};
use crate::{interrupt, show};

/// Copy a bucket, also while a process writes to it
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb backup bucket.kvb monday.kvb              a whole copy: a bucket of its own, compacted and verified
  kvb backup bucket.kvb tuesday.kvb --since monday.kvb
  kvb backup bucket.kvb wednesday.kvb --since monday.kvb --since tuesday.kvb
  kvb restore monday.kvb tuesday.kvb wednesday.kvb --out again.kvb

A copy is of one commit. An increment has only what changed since the backups it is given, in their order; it cannot be
opened by itself. The copy of an encrypted bucket is under the same key. The new file gets its name when it is whole.")]
pub(super) struct Backup {
    /// The bucket
    bucket: PathBuf,
    /// The new file
    to: PathBuf,
    /// Only what changed since a backup, and the increments that followed it
    #[arg(long, value_name = "FILE")]
    since: Vec<PathBuf>,
    /// Replace a file that is there
    #[arg(long, short)]
    force: bool,
}

impl Backup {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        let path = &self.bucket;
        refuse_existing(&self.to, self.force)?;
        refuse_same(path, &self.to)?;
        keep_private(path);
        let reader = session.reader(path)?;
        let snapshot = reader.snapshot().map_err(about(path))?;
        interrupt::listen();
        let mut bar = Bar::bytes("copying", Some(0), session.common.quiet);
        let done = match self.since.is_empty() {
            true => snapshot.backup(&self.to, &mut bar.watch()),
            false => snapshot.backup_since(&self.to, &self.since, &mut bar.watch()),
        };
        bar.clear();
        let done = done.map_err(about_copy(path))?;
        session.report(&facts(&done, &self.to), || words(&done, &self.to))
    }
}

/// Make a bucket of a backup and the increments that followed it
#[derive(Args)]
#[command(after_help = "\
Examples:
  kvb restore monday.kvb --out again.kvb
  kvb restore monday.kvb tuesday.kvb wednesday.kvb --out again.kvb

The new file gets its name when it is whole and verified.")]
pub(super) struct Restore {
    /// The backup, then its increments in order
    #[arg(required = true)]
    backups: Vec<PathBuf>,
    /// The new bucket
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    /// Replace a file that is there
    #[arg(long, short)]
    force: bool,
}

impl Restore {
    pub(super) fn run(self, session: &mut Session<'_>) -> Done {
        refuse_existing(&self.out, self.force)?;
        interrupt::listen();
        let mut bar = Bar::bytes("copying", Some(0), session.common.quiet);
        let first = self.backups.first().map_or(Path::new(""), PathBuf::as_path);
        keep_private(first);
        if let Some(missing) = self.backups.iter().find(|backup| !backup.exists()) {
            return Err(Fail::failed(format!("{} does not exist", missing.display())));
        }
        let done = session.with_keys(first, &Options::default(), |options| {
            kvb::restore(&self.backups, &self.out, options, &mut bar.watch())
        });
        bar.clear();
        let done = done?;
        session.report(&facts(&done, &self.out), || words(&done, &self.out))
    }
}

/// Replacing a file must be asked for.
pub(super) fn refuse_existing(path: &Path, force: bool) -> Done {
    if path.exists() && !force {
        let message = format!("{} is there already, and nothing was changed", path.display());
        return Err(Fail::failed(message).hint("choose another name, or add --force to replace it"));
    }
    Ok(())
}

/// A copy of a bucket in its own place is no backup.
fn refuse_same(path: &Path, to: &Path) -> Done {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    if real(path).is_some_and(|path| Some(path) == real(to)) {
        return Err(Fail::usage("the copy would take the place of the bucket itself"));
    }
    Ok(())
}

/// Errors of a copy may be about either file.
fn about_copy(path: &Path) -> impl Fn(kvb::Error) -> Fail + '_ {
    move |error| match &error {
        kvb::Error::Io { .. } => Fail::failed(error.to_string()),
        _ => about(path)(error),
    }
}

fn facts(done: &kvb::Backup, to: &Path) -> serde_json::Value {
    json!({
        "written_to": to.display().to_string(),
        "seqno": done.seqno,
        "since": done.since,
        "records": done.records,
        "bytes": done.bytes,
    })
}

fn words(done: &kvb::Backup, to: &Path) -> String {
    let since = match done.since {
        0 => String::new(),
        since => format!(" since {since}"),
    };
    format!(
        "{} of {}{since}, up to commit {}, verified, in {}",
        show::many(done.records, "record", "records"),
        show::size(done.bytes),
        done.seqno,
        to.display()
    )
}
