//! Verifying a bucket: everything that can be checked is, and every finding says where and what it means.
//!
//! A bucket is verified through a reader: beside a writer it sees one checkpoint, which it pins, so that nothing it looks at
//! is given up meanwhile. What a writer changes all the time (free space, the ring) is looked at again if it seems wrong.
//!
//! Cost: every byte of the segments and of the image once, records in key order once more, one lookup per key.

mod index;
mod segments;
mod space;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use host::{Disk, Env, FileDisk, SystemEnv};

use crate::core::Core;
use crate::error::{Corrupt, Error, Result, What};
use crate::options::Options;
use crate::progress::{self, Progress};
use crate::reader::{Pinned, Reader};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost and nothing needs to be done.
    Notice,
    /// Something that is derived from the log is wrong. Opening the bucket for writing, or compacting it, makes it anew.
    Derived,
    /// Records, or what leads to them, are damaged. Repair saves what is intact.
    Damage,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The structure it is about.
    pub what: What,
    /// Where that is in the file.
    pub at: u64,
    /// What was found, and what it means.
    pub meaning: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}: {}", self.at, self.what, self.meaning)
    }
}

/// What verifying a bucket found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// Everything that is not as it should be, in the order of the file.
    pub findings: Vec<Finding>,
    /// Epoch of the checkpoint that was looked at.
    pub epoch: u64,
    /// Its last commit.
    pub commit_seqno: u64,
    /// Segments looked at, the unsealed ones too.
    pub segments: u64,
    /// Records looked at.
    pub records: u64,
    /// Bytes of records looked at.
    pub record_bytes: u64,
    /// Keys in the index image.
    pub keys: u64,
}

impl Verification {
    /// True if nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.findings.iter().all(|finding| finding.severity == Severity::Notice)
    }

    fn add(&mut self, severity: Severity, what: What, at: u64, meaning: impl Into<String>) {
        self.findings.push(Finding { severity, what, at, meaning: meaning.into() });
    }
}

/// What the parts of a verification share.
struct Verifier<'a> {
    core: &'a Core,
    found: Verification,
    progress: &'a mut dyn FnMut(Progress<'_>),
    /// A writer may be at work.
    has_writer: bool,
}

impl Verifier<'_> {
    fn report(&mut self, stage: &'static str, done: u64, total: u64) -> Result<()> {
        progress::report(self.progress, stage, done, total)
    }

    fn damage(&mut self, what: What, at: u64, meaning: impl Into<String>) {
        self.found.add(Severity::Damage, what, at, meaning);
    }

    fn derived(&mut self, what: What, at: u64, meaning: impl Into<String>) {
        self.found.add(Severity::Derived, what, at, meaning);
    }

    fn notice(&mut self, what: What, at: u64, meaning: impl Into<String>) {
        self.found.add(Severity::Notice, what, at, meaning);
    }
}

/// Verifies a bucket, beside a writer or without one. Damage is no error but a finding; an error means that it could not be
/// looked at. The options need nothing but the keys of an encrypted bucket.
pub fn verify(
    path: impl AsRef<Path>,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Verification> {
    let disk = FileDisk::open_read_only(path).map_err(Error::io("open the bucket"))?;
    verify_on(Arc::new(disk), Arc::new(SystemEnv), options, progress)
}

/// Verifies the bucket on a disk of the caller's.
pub fn verify_on(
    disk: Arc<dyn Disk>,
    env: Arc<dyn Env>,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Verification> {
    let options = Options { takes_increments: true, ..options };
    let reader = match Reader::open_on_with(Arc::clone(&disk), env, options) {
        Ok(reader) => reader,
        Err(Error::Corrupt(Corrupt { what, at })) => {
            let mut found = Verification::default();
            found.add(Severity::Damage, what, at, "the bucket cannot be opened; repair it");
            return Ok(found);
        }
        Err(error) => return Err(error),
    };
    let has_writer = reader.has_writer()?;
    let pinned = reader.pin()?;
    verify_pinned(&reader, &pinned, has_writer, &*disk, progress)
}

fn verify_pinned(
    reader: &Reader,
    pinned: &Pinned,
    has_writer: bool,
    disk: &dyn Disk,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Verification> {
    let core = &pinned.mounted.core;
    let found = Verification {
        epoch: pinned.mounted.epoch,
        commit_seqno: core.position().seqno,
        ..Verification::default()
    };
    let mut verifier = Verifier { core, found, progress, has_writer };
    verifier.check_mount(&pinned.mounted.report);
    verifier.check_superblocks(disk)?;
    verifier.check_segments()?;
    verifier.check_index()?;
    verifier.check_space(disk)?;
    verifier.check_ring();
    verifier.check_book();
    let mut found = verifier.found;
    if has_writer && !reader.has_writer()? {
        found.add(Severity::Notice, What::Superblock, 0, "the writer ended meanwhile");
    }
    found.findings.sort_by_key(|finding| finding.at);
    Ok(found)
}

impl Verifier<'_> {
    /// What opening the bucket had to do without.
    fn check_mount(&mut self, report: &crate::mount::MountReport) {
        let keeper = self.core.lock_keeper();
        let geometry = self.core.geometry();
        let image_at = geometry.paddr(keeper.image.extent.start_page);
        let table_at = keeper.table.map_or(0, |table| geometry.paddr(table.extent.start_page));
        drop(keeper);
        if report.table_rebuilt {
            self.derived(What::Table, table_at, "the segment table does not hold");
        }
        if report.index_rebuilt {
            self.derived(What::IndexPage, image_at, "the head of the index image does not hold");
        }
        if let Some(Corrupt { what, at }) = report.damage {
            self.damage(what, at, "a record that was durable is gone, and all behind it");
        }
        if report.records_discarded > 0 {
            let count = report.records_discarded;
            let records = if count == 1 { "record" } else { "records" };
            let meaning = format!("{count} {records} of a batch that was never completed");
            self.notice(What::Record, self.core.position().paddr, meaning);
        }
    }
}
