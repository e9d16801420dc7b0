//! The bucket as its users see it.

use std::fmt;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use host::planted::{Bug, is_planted};
use host::{Disk, Env, FileDisk, SystemEnv};

use crate::background;
use crate::backup::open_locked;
use crate::batch::Batch;
use crate::book::Training;
use crate::compact::{Compact, Compaction};
use crate::core::{Core, lock};
use crate::create::create;
use crate::error::{Error, Result};
use crate::mount::{MountAs, MountReport, mount};
use crate::options::{Durability, Options};
use crate::reader::Reader;
use crate::rotate::Rotation;
use crate::scan::{Rows, Scan};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::value::{Pin, Value};

/// A tail of at least this many bytes is sealed by a flush.
const SEAL_AT_FLUSH: u64 = 1 << 20;
/// An image of at most this many bytes is brought up to date by a flush.
const IMAGE_AT_FLUSH: u64 = 4 << 20;

/// A bucket, open in this process. Share it between threads by reference: reads take no lock, commits queue.
///
/// Dropping it closes it and ignores errors; [`Bucket::close`] reports them.
pub struct Bucket {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
    report: MountReport,
}

impl Bucket {
    /// Creates a bucket.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the file exists already or cannot be made, [`Error::Invalid`] if options do not fit together. No file is
    /// left behind.
    pub fn create(path: impl AsRef<Path>, options: Options) -> Result<Bucket> {
        let path = path.as_ref();
        options.check()?;
        let disk = FileDisk::create_new(path).map_err(Error::io("create the bucket"))?;
        let created = Bucket::create_on(Arc::new(disk), Arc::new(SystemEnv), options);
        if created.is_err() {
            // Half a bucket helps nobody, and would be in the way of the next try.
            let _ = FileDisk::remove(path);
        }
        created
    }

    /// Opens a bucket for reading and writing, recovering it if its last writer crashed.
    ///
    /// # Errors
    ///
    /// [`Error::Locked`] if somebody else writes, [`Error::Corrupt`] if records that were durable are damaged at the log's end (a
    /// [`Reader`] may still read, [`repair`](crate::repair) saves what is intact), [`Error::Version`] if newer software made it,
    /// [`Error::KeyMissing`] or [`Error::KeyWrong`] if it is encrypted.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Bucket> {
        options.check()?;
        let disk = open_locked(path.as_ref(), FileDisk::open)?;
        Bucket::start(Arc::new(disk), Arc::new(SystemEnv), &options)
    }

    /// Opens a bucket for reading, beside a writer or without one. See [`Reader`]; for an encrypted bucket,
    /// [`Reader::open_with`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Reader> {
        Reader::open(path)
    }

    /// Creates a bucket on an empty disk of the caller's.
    pub fn create_on(disk: Arc<dyn Disk>, env: Arc<dyn Env>, options: Options) -> Result<Bucket> {
        disk.lock()?;
        create(&disk, &env, &options)?;
        Bucket::start(disk, env, &options)
    }

    /// Opens the bucket on a disk of the caller's.
    pub fn open_on(disk: Arc<dyn Disk>, env: Arc<dyn Env>, options: Options) -> Result<Bucket> {
        options.check()?;
        if !is_planted(Bug::TwoWriters) {
            disk.lock()?;
        }
        Bucket::start(disk, env, &options)
    }

    /// Opens the bucket on a disk of the caller's for reading only.
    pub fn open_read_only_on(disk: Arc<dyn Disk>, env: Arc<dyn Env>) -> Result<Reader> {
        Reader::open_on(disk, env)
    }

    fn start(disk: Arc<dyn Disk>, env: Arc<dyn Env>, options: &Options) -> Result<Bucket> {
        let (core, report) = mount(disk, env, options, MountAs::Writer)?;
        let core = Arc::new(core);
        if !options.background && !core.view.load().runs.is_empty() {
            core.merge()?;
        }
        let threads = background::start(&core)?;
        Ok(Bucket { core, threads, report })
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// What opening found and did.
    pub fn mount_report(&self) -> &MountReport {
        &self.report
    }

    /// Stores a value. Returns when it is as durable as the bucket's [`Durability`] asks. Fails as [`Bucket::commit`] does.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(key, value);
        self.commit(batch)
    }

    /// Stores a value that is gone after `ttl`, rounded up to whole seconds.
    pub fn put_for(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<()> {
        let mut batch = Batch::new();
        batch.put_for(key, value, ttl);
        self.commit(batch)
    }

    /// Deletes a key and tells whether it was there when the call began. A key that was not costs no write.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.core.check_writable()?;
        let key = key.as_ref();
        if !self.exists(key)? {
            return Ok(false);
        }
        let mut batch = Batch::new();
        batch.delete(key);
        self.commit(batch)?;
        Ok(true)
    }

    /// Applies a batch, whole or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] and [`Error::NoSpace`] change nothing, and the next commit may succeed. After [`Error::Io`] every later
    /// write is [`Error::Stopped`] until the bucket is opened again, and reading goes on at the last commit: what the failed write left
    /// behind is not known, and the next opening finds out.
    pub fn commit(&self, batch: Batch) -> Result<()> {
        self.commit_with(batch, self.core.mode.durability)
    }

    /// Applies a batch with a durability of its own. Waiting for one durable commit makes all earlier ones durable.
    pub fn commit_with(&self, batch: Batch, durability: Durability) -> Result<()> {
        self.core.commit(batch, durability)
    }

    /// The value of a key, borrowed from the bucket.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'_>>> {
        let key = key.as_ref();
        let hash = self.core.hash.slot_hash(key);
        let (found, view) = self.core.find(hash, key)?;
        self.core.counters.got(1, u64::from(found.is_some()));
        found.map(|record| self.core.value(record, Pin::Own { _view: view })).transpose()
    }

    /// The values of many keys as of one commit, in their order.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value<'_>>>> {
        self.core.get_many(keys)
    }

    /// True if the key has a value.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        let key = key.as_ref();
        let (found, _) = self.core.find(self.core.hash.slot_hash(key), key)?;
        self.core.counters.got(1, u64::from(found.is_some()));
        Ok(found.is_some())
    }

    /// The rows whose keys begin with `prefix`, in key order, as of now; from the back in the opposite order. An empty
    /// prefix means all rows.
    ///
    /// ```
    /// # use kvb::{Bucket, Options};
    /// # fn main() -> kvb::Result<()> {
    /// # let dir = tempfile::tempdir().expect("a directory");
    /// # let bucket = Bucket::create(dir.path().join("b.kvb"), Options::default())?;
    /// bucket.put(b"coin/1", b"50")?;
    /// bucket.put(b"coin/2", b"20")?;
    /// bucket.put(b"tip", b"2")?;
    /// for row in bucket.scan(b"coin/").take(1000) {
    ///     let row = row?;
    ///     println!("{:?} is {:?}", row.key(), row.value());
    /// }
    /// assert_eq!(bucket.scan(b"coin/").count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Scan<'_> {
        Scan::new(self.rows(), crate::scan::prefix_range(prefix.as_ref()))
    }

    /// The rows whose keys are in a range, in key order, as of now; from the back in the opposite order.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Scan<'_> {
        Scan::new(self.rows(), crate::scan::key_range(&range))
    }

    fn rows(&self) -> Rows<'_> {
        let (view, seqno) = self.core.current();
        Rows { core: &self.core, view, seqno, now: self.core.clock.now(), pins: true }
    }

    /// The bucket as of now, to be read for as long as it is kept.
    pub fn snapshot(&self) -> Snapshot<'_> {
        self.core.snapshot()
    }

    /// Makes everything committed durable and writes a checkpoint; of a small bucket also its index pages.
    pub fn flush(&self) -> Result<()> {
        let core = &self.core;
        core.check_writable()?;
        // An output of compaction is finished first, so that the index can be brought up to date.
        core.freeze_wanted.store(core.is_moving.load(Ordering::Acquire), Ordering::Release);
        let _not_moving = lock(&core.moving);
        let mut writer = core.lock_writer();
        core.sync_log(&mut writer)?;
        if writer.active.as_ref().is_some_and(|active| active.len >= SEAL_AT_FLUSH) {
            core.roll(&mut writer);
            core.hand_over(&mut writer);
        }
        let indexed = match self.flush_index() {
            // No room for an image: the log is what counts.
            Err(Error::NoSpace) => Ok(()),
            result => result,
        };
        let result = indexed.and_then(|()| {
            let mut keeper = core.lock_keeper();
            if !core.lock_supply().sealing.is_empty() {
                keeper.tend(core)?;
            }
            keeper.full_checkpoint(core)
        });
        core.latch(result)
    }

    /// Brings a small image up to date.
    fn flush_index(&self) -> Result<()> {
        let core = &self.core;
        let is_small = || {
            let view = core.view.load();
            let keys = view.image.place.used + u64::try_from(view.active.len()).unwrap_or(u64::MAX);
            core.image_bytes(keys) <= IMAGE_AT_FLUSH
        };
        if core.view.load().frozen.is_some() && is_small() {
            core.merge()?;
        }
        if is_small() && core.freeze() { core.merge() } else { Ok(()) }
    }

    /// Gives space back that dead records take: replaced, deleted or expired. The bucket stays in use meanwhile. It is
    /// done in the background as far as it is worth it; this does it now, or does more.
    pub fn compact(&self, kind: Compact) -> Result<Compaction> {
        self.core.compact(kind)
    }

    /// Learns from values that are there now how to compress small ones, and uses that for values put from now on; values
    /// that are there stay as they are. The dictionary has at most so many bytes; 16 KiB is a good length.
    pub fn train_dictionary(&self, max_bytes: usize) -> Result<Training> {
        self.core.train(max_bytes)
    }

    /// Encrypts everything anew with the key of an id, which the provider that the bucket was opened with must have. The
    /// bucket stays in use meanwhile. Until this is complete, both keys are needed to open it; if it was interrupted, call
    /// it again. Free space is overwritten at the end.
    pub fn rotate_key(&self, key_id: u64) -> Result<Rotation> {
        self.core.rotate(key_id)
    }

    /// What the bucket holds and has done.
    pub fn stats(&self) -> Result<Stats> {
        self.core.stats()
    }

    /// Flushes and closes the bucket.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    fn shut(&mut self) -> Result<()> {
        self.core.end_compaction();
        let flushed = self.flush();
        self.core.begin_closing();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        flushed.and_then(|()| self.core.cool())
    }
}

impl fmt::Debug for Bucket {
    /// Neither keys nor the hash's secret belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket")
            .field("commit_seqno", &self.core.position().seqno)
            .finish_non_exhaustive()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if !self.core.is_closing() {
            let _ = self.shut();
        }
    }
}
