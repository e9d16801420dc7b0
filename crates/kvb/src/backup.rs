//! Backups: a copy of one commit, taken while the bucket is in use, and what changed since an earlier one.
//!
//! A **backup** is a bucket of its own, compacted, with the seqnos of the one it was made of. An **increment** is a bucket too:
//! it holds the records that are newer than the last one of the backup before it, and a DELETE for every key that was there
//! then and is not any more. A backup and increments that follow each other, merged by key, are the bucket as of the last.
//!
//! What was deleted since is in the log, unless compaction has dropped it; the superblock tells up to which seqno that may
//! be so. If the backup before is older than that, its keys are compared with those of the bucket.
//!
//! Invariants
//! - The new file gets its name when it is whole, synced and verified. What was under that name before stays until then.
//! - The bucket that is copied is only read.
//!
//! Cost: a backup reads every live record once and writes it once. An increment reads the segments written since, or, if it
//! must compare keys, every record of both.

#![allow(clippy::expect_used, reason = "sizes of structures")]

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{Disk, Env, FileDisk, SystemEnv};
use zerocopy::little_endian::{U16, U32, U64};

use crate::copier::Copier;
use crate::error::{Error, Result};
use crate::format::lineage::{self, Lineage};
use crate::format::record::{DELETE, ENC_RAW, RecordHeader};
use crate::key_merge::{Head, KeyMerge};
use crate::opened::Opened;
use crate::options::Options;
use crate::progress::{Progress, report};
use crate::reader::Reader;
use crate::snapshot::Snapshot;
use crate::verify::{Severity, verify_on};

/// Records between two reports of progress.
const REPORT_EVERY: u64 = 1 << 10;

/// What a backup is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backup {
    /// Seqno of the commit it is of.
    pub seqno: u64,
    /// Seqno of the backup it goes on from; 0 if it is whole.
    pub since: u64,
    /// Records in it.
    pub records: u64,
    /// Bytes of those.
    pub bytes: u64,
}

/// Tells whoever waits how far a copy has come, and hears whether to stop.
struct Pace<'a> {
    progress: &'a mut dyn FnMut(Progress<'_>),
    records: u64,
    bytes: u64,
    total: u64,
}

impl<'a> Pace<'a> {
    fn new(progress: &'a mut dyn FnMut(Progress<'_>), total: u64) -> Pace<'a> {
        Pace { progress, records: 0, bytes: 0, total }
    }

    /// Another record was looked at, whether it is copied or not.
    fn step(&mut self, record: &Opened<'_>) -> Result<()> {
        self.records += 1;
        self.bytes += record.header.record_len();
        if self.records.is_multiple_of(REPORT_EVERY) {
            report(self.progress, "copying", self.bytes, self.total.max(self.bytes))?;
        }
        Ok(())
    }
}

/// A backup, and increments that follow it, opened for reading.
struct Chain {
    snapshots: Vec<Snapshot<'static>>,
    lineage: Lineage,
}

impl Chain {
    /// Opens files that must follow each other.
    fn open(files: &[Arc<dyn Disk>], env: &Arc<dyn Env>, options: &Options) -> Result<Chain> {
        let options = Options { takes_increments: true, ..options.clone() };
        let mut snapshots = Vec::new();
        let mut last: Option<Lineage> = None;
        for file in files {
            let reader = Reader::open_on_with(Arc::clone(file), Arc::clone(env), options.clone())?;
            let snapshot = reader.snapshot()?;
            let lineage =
                snapshot.core().lock_keeper().lineage.ok_or(Error::Invalid(
                    "the file is no backup, or was opened for writing since",
                ))?;
            let follows = match last {
                None => lineage.since.get() == 0,
                Some(last) => {
                    let origin = |one: &Lineage| (one.origin_uuid_hi, one.origin_uuid_lo);
                    origin(&lineage) == origin(&last) && lineage.since == last.until
                }
            };
            if !follows {
                return Err(Error::Invalid(
                    "the files do not follow each other: give the backup, then its increments in order",
                ));
            }
            last = Some(lineage);
            snapshots.push(snapshot);
        }
        let lineage = last.ok_or(Error::Invalid("give at least one backup"))?;
        Ok(Chain { snapshots, lineage })
    }

    /// All keys of all files, and of each the record of the newest file that has one.
    fn records(&self) -> Result<Layers<'_>> {
        let merges = self.snapshots.iter().map(|snapshot| snapshot.rows().changes(0));
        Layers::new(merges.collect::<Result<_>>()?)
    }
}

/// Records of several buckets by key; of one key that of the last bucket counts.
struct Layers<'a> {
    merges: Vec<KeyMerge<'a>>,
    heads: Vec<Option<Head<'a>>>,
}

impl<'a> Layers<'a> {
    fn new(merges: Vec<KeyMerge<'a>>) -> Result<Layers<'a>> {
        let mut layers = Layers { heads: merges.iter().map(|_| None).collect(), merges };
        for index in 0..layers.merges.len() {
            layers.advance(index)?;
        }
        Ok(layers)
    }

    fn advance(&mut self, index: usize) -> Result<()> {
        let next = self.merges.get_mut(index).and_then(|merge| merge.next(|_, _| true));
        if let Some(head) = self.heads.get_mut(index) {
            *head = next.transpose()?;
        }
        Ok(())
    }

    /// The key that comes next.
    fn key(&self) -> Option<&[u8]> {
        self.heads.iter().flatten().map(Head::key).min()
    }

    /// Which layer has the record that counts next, and that record.
    fn next(&mut self) -> Result<Option<(usize, Opened<'a>)>> {
        let Some(key) = self.key().map(<[u8]>::to_vec) else { return Ok(None) };
        let mut found = None;
        for index in 0..self.heads.len() {
            let head =
                self.heads.get_mut(index).and_then(|head| head.take_if(|head| head.key() == key));
            if let Some(head) = head {
                found = Some((index, head.record));
                self.advance(index)?;
            }
        }
        Ok(found)
    }
}

impl Snapshot<'_> {
    /// Copies the bucket as of this snapshot to a new file: a bucket of its own, compacted and verified, with the settings
    /// and under the key of this one. A file that is there is replaced when the copy is whole.
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Backup> {
        let options = self.options_alike();
        write_file(path.as_ref(), |disk| {
            self.backup_on(disk, Arc::new(SystemEnv), options, progress)
        })
    }

    /// Copies the bucket to an empty disk of the caller's, as a bucket with these options: encrypted or not, with another key,
    /// compressed or not.
    pub fn backup_on(
        &self,
        disk: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        options: Options,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Backup> {
        let copier = self.copy_all(&disk, &env, &options, progress)?;
        self.end(copier, 0, &disk, env, options, progress)
    }

    /// Copies every record that counts.
    fn copy_all(
        &self,
        disk: &Arc<dyn Disk>,
        env: &Arc<dyn Env>,
        options: &Options,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Copier> {
        self.make_durable()?;
        let total = self.core().stats()?.bytes_live;
        let mut merge = self.rows().changes(0)?;
        let mut copier = Copier::new(
            Arc::clone(disk),
            Arc::clone(env),
            options.clone(),
            total,
            self.seqno(),
            self.core().clock.newest(),
        )?;
        let mut pace = Pace::new(progress, total);
        while let Some(head) = merge.next(|_, _| true) {
            let record = head?.record;
            pace.step(&record)?;
            if record.header.kind != DELETE && !record.header.is_expired(self.now()) {
                self.copy(&mut copier, &record)?;
            }
        }
        Ok(copier)
    }

    /// Writes what changed since a backup, to a new file. `before` is that backup, and increments that followed it, in order.
    pub fn backup_since<P: AsRef<Path>>(
        &self,
        path: impl AsRef<Path>,
        before: &[P],
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Backup> {
        let options = self.options_alike();
        let before = open_all(before, path.as_ref())?;
        write_file(path.as_ref(), |disk| {
            self.backup_since_on(disk, Arc::new(SystemEnv), &before, options, progress)
        })
    }

    /// The same with disks of the caller's. The options have the keys of the files before.
    pub fn backup_since_on(
        &self,
        disk: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        before: &[Arc<dyn Disk>],
        options: Options,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Backup> {
        self.make_durable()?;
        let chain = Chain::open(before, &env, &options)?;
        let origin = (chain.lineage.origin_uuid_hi.get(), chain.lineage.origin_uuid_lo.get());
        if origin != self.core().fixed.uuid {
            return Err(Error::Invalid("the backup is of another bucket"));
        }
        let since = chain.lineage.until.get();
        if since > self.seqno() {
            return Err(Error::Invalid("the backup is newer than the bucket"));
        }
        let mut copier = Copier::new(
            Arc::clone(&disk),
            Arc::clone(&env),
            options.clone(),
            1 << 20,
            self.seqno(),
            self.core().clock.newest(),
        )?;
        if self.core().lock_keeper().dropped_seqno <= since {
            self.copy_changes(&mut copier, since, progress)?;
        } else {
            self.copy_differences(&mut copier, &chain, since, progress)?;
        }
        self.end(copier, since, &disk, env, options, progress)
    }

    /// What is backed up must not be lost in the bucket itself, or later increments would go on from something else.
    fn make_durable(&self) -> Result<()> {
        let core = self.core();
        if core.mode.read_only {
            // Whoever wrote it: a file is synced for all.
            return core.disk.sync().map_err(Error::io("sync the bucket"));
        }
        core.sync_log(&mut core.lock_writer())
    }

    /// The log knows everything that happened since.
    fn copy_changes(
        &self,
        copier: &mut Copier,
        since: u64,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let mut pace = Pace::new(progress, self.core().stats()?.bytes_log);
        let mut merge = self.rows().changes(since)?;
        while let Some(head) = merge.next(|_, _| true) {
            let record = head?.record;
            pace.step(&record)?;
            if record.seqno() > since {
                self.copy_or_delete(copier, &record)?;
            }
        }
        Ok(())
    }

    /// Something that was deleted since may be in the log no more: the keys themselves tell.
    fn copy_differences(
        &self,
        copier: &mut Copier,
        chain: &Chain,
        since: u64,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<()> {
        let mut pace = Pace::new(progress, self.core().stats()?.bytes_live);
        let mut before = chain.records()?;
        let mut now = Layers::new(vec![self.rows().changes(0)?])?;
        loop {
            let key = match (before.key(), now.key()) {
                (None, None) => return Ok(()),
                (Some(a), Some(b)) => a.min(b).to_vec(),
                (Some(a), None) => a.to_vec(),
                (None, Some(b)) => b.to_vec(),
            };
            let old = if before.key() == Some(&key) { before.next()? } else { None };
            let new = if now.key() == Some(&key) { now.next()? } else { None };
            if let Some((_, record)) = new.as_ref().or(old.as_ref()) {
                pace.step(record)?;
            }
            match (old, new) {
                (_, Some((_, record))) if record.seqno() > since => {
                    self.copy_or_delete(copier, &record)?;
                }
                (Some((_, old)), None) if old.header.kind != DELETE => {
                    // The record that deleted it is gone; this takes its place. It keeps the seqno of what it deletes, which no other record
                    // of the increment has: in an encrypted one a nonce is made of it.
                    copier.push(&tombstone(old.header), &key, &[], || Ok(Vec::new()))?;
                }
                _ => {}
            }
        }
    }

    /// Copies a record, or that it is not there any more.
    fn copy_or_delete(&self, copier: &mut Copier, record: &Opened<'_>) -> Result<()> {
        if record.header.kind != DELETE && !record.header.is_expired(self.now()) {
            return self.copy(copier, record);
        }
        copier.push(&tombstone(record.header), record.key(), &[], || Ok(Vec::new()))
    }

    fn copy(&self, copier: &mut Copier, record: &Opened<'_>) -> Result<()> {
        copier.push_opened(record, || self.core().expanded(record))
    }

    /// Finishes a copy and verifies it.
    fn end(
        &self,
        copier: Copier,
        since: u64,
        disk: &Arc<dyn Disk>,
        env: Arc<dyn Env>,
        options: Options,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Backup> {
        let uuid = self.core().fixed.uuid;
        let lineage = Lineage {
            magic: U32::new(lineage::MAGIC),
            length: U16::new(u16::try_from(Lineage::SIZE).expect("small")),
            reserved: U16::new(0),
            origin_uuid_hi: U64::new(uuid.0),
            origin_uuid_lo: U64::new(uuid.1),
            since: U64::new(since),
            until: U64::new(self.seqno()),
            crc32c: U32::new(0),
        };
        let (records, bytes) = copier.finish(Some(lineage))?;
        check(disk, env, options, progress)?;
        Ok(Backup { seqno: self.seqno(), since, records, bytes })
    }

    fn options_alike(&self) -> Options {
        let core = self.core();
        let mut options = Options::like(&core.fixed, &Options::default());
        options.keys = core.keys.clone();
        options.key_id = core.log.keys().map(|keys| keys.current.id);
        options
    }
}

/// Makes a bucket anew in its own place with other settings: `change` gets those it has. So it is encrypted, or not any
/// more, or compressed from now on. Nobody may have it open for writing. The new bucket takes the place of the old one when
/// it is whole and verified; blocks that the old one had may keep what was in them until the disk uses them again.
pub fn remake(
    path: impl AsRef<Path>,
    options: Options,
    change: impl FnOnce(Options) -> Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Backup> {
    let path = &FileDisk::resolve(path).map_err(Error::io("open the bucket"))?;
    let disk: Arc<dyn Disk> = Arc::new(open_locked(path, FileDisk::open_read_only)?);
    // Order: it stays locked until it has lost its name, or somebody could write to it meanwhile, in vain.
    let source = Arc::clone(&disk);
    let done = write_over(path, |target| {
        remake_on(source, target, Arc::new(SystemEnv), options, change, progress)
    });
    drop(disk);
    done
}

/// The same with disks of the caller's: from one, which the caller has locked, to an empty one.
pub fn remake_on(
    source: Arc<dyn Disk>,
    target: Arc<dyn Disk>,
    env: Arc<dyn Env>,
    options: Options,
    change: impl FnOnce(Options) -> Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Backup> {
    let reader = Reader::open_on_with(source, Arc::clone(&env), options)?;
    let snapshot = reader.snapshot()?;
    let options = change(snapshot.options_alike());
    let copier = snapshot.copy_all(&target, &env, &options, progress)?;
    let (records, bytes) = copier.finish(None)?;
    check(&target, env, options, progress)?;
    Ok(Backup { seqno: snapshot.seqno(), since: 0, records, bytes })
}

/// Makes one bucket of a backup and the increments that follow it, in order. The options have the keys of all of them; the
/// new bucket has the settings of the backup, and is under the key of the last.
pub fn restore<P: AsRef<Path>>(
    files: &[P],
    path: impl AsRef<Path>,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Backup> {
    let files = open_all(files, path.as_ref())?;
    write_file(path.as_ref(), |disk| {
        restore_on(&files, disk, Arc::new(SystemEnv), options, progress)
    })
}

/// The same with disks of the caller's.
pub fn restore_on(
    files: &[Arc<dyn Disk>],
    disk: Arc<dyn Disk>,
    env: Arc<dyn Env>,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Backup> {
    let chain = Chain::open(files, &env, &options)?;
    let last = chain.snapshots.last().ok_or(Error::Invalid("give at least one backup"))?;
    let options = Options { keys: options.keys.clone(), ..last.options_alike() };
    let mut total = 0;
    for snapshot in &chain.snapshots {
        total += snapshot.core().stats()?.bytes_log;
    }
    let seqno = chain.lineage.until.get();
    let clock_ns = last.core().clock.newest();
    let mut copier =
        Copier::new(Arc::clone(&disk), Arc::clone(&env), options.clone(), total, seqno, clock_ns)?;
    let mut records = chain.records()?;
    let mut pace = Pace::new(progress, total);
    while let Some((index, record)) = records.next()? {
        pace.step(&record)?;
        let snapshot = chain.snapshots.get(index).unwrap_or(last);
        if record.header.kind != DELETE {
            snapshot.copy(&mut copier, &record)?;
        }
    }
    let (records, bytes) = copier.finish(None)?;
    check(&disk, env, options, progress)?;
    Ok(Backup { seqno, since: 0, records, bytes })
}

/// A DELETE of the key that a record is of, in its place.
fn tombstone(header: &RecordHeader) -> RecordHeader {
    let mut header = *header;
    header.kind = DELETE;
    header.enc = ENC_RAW;
    header.val_len = U32::new(0);
    header.ttl_secs = U32::new(0);
    header
}

/// Nothing may be wrong with a bucket that was just written.
pub(crate) fn check(
    disk: &Arc<dyn Disk>,
    env: Arc<dyn Env>,
    options: Options,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<()> {
    let options = Options { takes_increments: true, ..options };
    let found = verify_on(Arc::clone(disk), env, options, progress)?;
    match found.findings.iter().find(|finding| finding.severity > Severity::Notice) {
        None => Ok(()),
        Some(finding) => {
            tracing::error!(%finding, "the copy is not sound");
            Err(Error::corrupt(finding.what, finding.at))
        }
    }
}

/// Opens files that a new one is made of, which it must not replace.
fn open_all<P: AsRef<Path>>(paths: &[P], target: &Path) -> Result<Vec<Arc<dyn Disk>>> {
    let open = |path: &P| -> Result<Arc<dyn Disk>> {
        let disk = FileDisk::open_read_only(path).map_err(Error::io("open a backup"))?;
        if disk.is_at(target).map_err(Error::io("look at the new file"))? {
            return Err(Error::Invalid("the new file would take the place of one it is made of"));
        }
        Ok(Arc::new(disk))
    };
    paths.iter().map(open).collect()
}

/// Writes a bucket under another name, and gives it its own when it is whole. Nobody who has the file open that it takes
/// the place of may have it for writing.
pub(crate) fn write_file<T>(
    path: &Path,
    write: impl FnOnce(Arc<dyn Disk>) -> Result<T>,
) -> Result<T> {
    // Order: whoever wants to write to the file in the way is kept from it until it has lost its name.
    let (done, _locked) = write_over(path, |disk| Ok((write(disk)?, lock_file(path)?)))?;
    Ok(done)
}

/// The same over a file that the caller has locked.
pub(crate) fn write_over<T>(
    path: &Path,
    write: impl FnOnce(Arc<dyn Disk>) -> Result<T>,
) -> Result<T> {
    // A link stays one: what it leads to is replaced, or that would be left as it was.
    let path = &FileDisk::resolve(path).unwrap_or_else(|_| path.to_owned());
    let replaced = open_if_there(path)?;
    let unfinished = unfinished(path);
    if let Some(left_behind) = lock_file(&unfinished)? {
        // By somebody who was interrupted: whoever is still at it has the lock.
        FileDisk::remove(&unfinished).map_err(Error::io("remove an unfinished file"))?;
        drop(left_behind);
    }
    let disk = FileDisk::create_new(&unfinished).map_err(Error::io("create the new file"))?;
    let disk = Arc::new(disk);
    disk.lock()?;
    if let Some(replaced) = replaced {
        disk.take_after(&replaced).map_err(Error::io("give the new file its mode"))?;
    }
    let written = write({
        let shared: Arc<dyn Disk> = Arc::<FileDisk>::clone(&disk);
        shared
    })
    .and_then(|done| {
        let is_ours = disk.is_at(&unfinished).map_err(Error::io("look at the new file"))?;
        if !is_ours {
            return Err(Error::Invalid("somebody else took the name of the unfinished file"));
        }
        FileDisk::rename(&unfinished, path).map_err(Error::io("name the new file"))?;
        Ok(done)
    });
    if written.is_err() && disk.is_at(&unfinished).unwrap_or(false) {
        let _ = FileDisk::remove(&unfinished);
    }
    written
}

/// Opens a file and locks it. Whoever puts another one in its place has the lock meanwhile; so when it is had here, the name
/// may lead to that one.
pub(crate) fn open_locked<'a>(
    path: &'a Path,
    open: impl Fn(&'a Path) -> io::Result<FileDisk>,
) -> Result<FileDisk> {
    loop {
        let disk = open(path).map_err(Error::io("open the bucket"))?;
        disk.lock()?;
        // Elsewhere a file that is open keeps its name.
        if !cfg!(unix) || disk.is_at(path).map_err(Error::io("open the bucket"))? {
            return Ok(disk);
        }
    }
}

/// A file that is there, if nobody has it open for writing.
fn lock_file(path: &Path) -> Result<Option<FileDisk>> {
    match open_locked(path, FileDisk::open_read_only) {
        Ok(disk) => Ok(Some(disk)),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(Error::Io { source, .. }) => {
            Err(Error::Io { doing: "look at the file in the way", source })
        }
        Err(error) => Err(error),
    }
}

/// A file that is there. What is no file, a device for one, is not to be replaced.
fn open_if_there(path: &Path) -> Result<Option<FileDisk>> {
    match FileDisk::open_read_only(path) {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Io { doing: "look at the file in the way", source: error }),
    }
}

/// The name of a file that is not whole yet.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".unfinished");
    path.with_file_name(name)
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_file_that_loses_its_name_before_it_is_locked_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        std::fs::write(&path, b"old").unwrap();
        std::fs::write(&other, b"new").unwrap();
        let opened = Cell::new(0);
        let disk = open_locked(&path, |path| {
            let disk = FileDisk::open(path);
            if opened.replace(opened.get() + 1) == 0 {
                std::fs::rename(&other, path)?;
            }
            disk
        });
        let disk = disk.unwrap();
        let mut bytes = [0; 3];
        disk.read_at(0, &mut bytes).unwrap();
        assert_eq!((&bytes, opened.get()), (b"new", 2));
        let again = open_locked(&path, FileDisk::open);
        assert!(matches!(again, Err(Error::Locked { .. })), "{again:?}");
    }

    #[test]
    fn a_file_in_the_way_is_not_taken_from_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"old").unwrap();
        let old = FileDisk::open(&path).unwrap();
        write_file(&path, |disk| disk.write_at(0, b"new").map_err(Error::io("write"))).unwrap();
        // Whoever had it open and locks it now sees that it is nobody's any more.
        assert!(old.lock().is_ok() && !old.is_at(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let held = FileDisk::open(&path).unwrap();
        held.lock().unwrap();
        let refused = write_file(&path, |_| Ok(()));
        assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
