//! A bucket read beside its writer, which may be another process.
//!
//! Invariants
//! - Nothing is ever written to the file.
//! - What a lookup found was copied and checked, and then nothing had been given up since the bucket was mounted here;
//!   otherwise it is mounted again and looked at again. So no answer comes from space that was reused.
//! - A snapshot pins the epoch it was mounted at: the writer gives nothing up that it may need.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use host::{Disk, Env, FileDisk, Pin, SystemEnv};

use crate::bulletin::{Bulletin, Stamp};
use crate::core::{Core, lock};
use crate::error::{Error, Result};
use crate::mount::{MountAs, MountReport, mount};
use crate::options::Options;
use crate::root::{Unlock, choose_steadily};
use crate::snapshot::Snapshot;
use crate::stats::Stats;
use crate::value::{Pin as ValuePin, Value};

/// How often mounting starts over because the writer got in between, before it gives up.
const RETRIES: usize = 1000;
/// An overlay of so many changes is worth mounting again for, if the writer has a newer image.
const OVERLAY_MAX: usize = 64 << 10;

/// A bucket open for reading only, as of its writer's last commit at every call.
///
/// Any number of readers, in any process, may have a bucket open beside one writer. They take no lock and change
/// nothing. Lookups copy what they find. To scan, take a [`Reader::snapshot`].
///
/// ```
/// use kvb::{Bucket, Options, Reader};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("ledger.kvb");
/// let bucket = Bucket::create(&path, Options::default())?;
/// let reader = Reader::open(&path)?; // here, or in any other process
/// bucket.put(b"alice", b"100")?;
/// assert_eq!(reader.get(b"alice")?.as_deref(), Some(&b"100"[..]));
/// for row in reader.snapshot()?.scan(b"a") {
///     println!("{:?}", row?.key());
/// }
/// # Ok(())
/// # }
/// ```
pub struct Reader {
    disk: Arc<dyn Disk>,
    env: Arc<dyn Env>,
    bulletin: Bulletin,
    options: Options,
    mounted: ArcSwap<Mounted>,
    /// Held while the bucket is mounted again.
    mounting: Mutex<()>,
    report: MountReport,
}

/// The bucket as it was mounted, and taken up from there.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) core: Core,
    pub(crate) report: MountReport,
    stamp: Stamp,
    pub(crate) epoch: u64,
    image_id: u64,
}

impl Reader {
    /// Opens a bucket for reading. Damage does not keep what is intact from being read, as long as it can be told what is
    /// the newest; see [`Options::despite_damage`].
    pub fn open(path: impl AsRef<Path>) -> Result<Reader> {
        let disk = FileDisk::open_read_only(path).map_err(Error::io("open the bucket"))?;
        Reader::open_on(Arc::new(disk), Arc::new(SystemEnv))
    }

    /// The same with options: the keys of a bucket that is encrypted, for one. Others than those for reading do nothing.
    pub fn open_with(path: impl AsRef<Path>, options: Options) -> Result<Reader> {
        let disk = FileDisk::open_read_only(path).map_err(Error::io("open the bucket"))?;
        Reader::open_on_with(Arc::new(disk), Arc::new(SystemEnv), options)
    }

    /// Opens the bucket on a disk of the caller's for reading.
    pub fn open_on(disk: Arc<dyn Disk>, env: Arc<dyn Env>) -> Result<Reader> {
        Reader::open_on_with(disk, env, Options::default())
    }

    /// The same, with options that have keys.
    pub fn open_on_with(
        disk: Arc<dyn Disk>,
        env: Arc<dyn Env>,
        options: Options,
    ) -> Result<Reader> {
        let (root, _) = choose_steadily(&*disk, Unlock::With(options.keys.as_deref()))?;
        let fixed = crate::mount::fixed(&root);
        let bulletin = Bulletin::read(&disk, &fixed)?;
        let (mounted, report) = mount_steadily(&disk, &env, &bulletin, &options)?;
        Ok(Reader {
            disk,
            env,
            bulletin,
            options,
            mounted: ArcSwap::from_pointee(mounted),
            mounting: Mutex::new(()),
            report,
        })
    }

    /// What opening found.
    pub fn mount_report(&self) -> &MountReport {
        &self.report
    }

    /// The value of a key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value<'static>>> {
        let key = key.as_ref();
        self.look(|core| {
            let hash = core.hash.slot_hash(key);
            let (found, _view) = core.find(hash, key)?;
            core.counters.got(1, u64::from(found.is_some()));
            let value = found.map(|record| core.value(record, ValuePin::Elsewhere)).transpose()?;
            Ok(value.map(Value::detached))
        })
    }

    /// The values of many keys as of one commit, in their order.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value<'static>>>> {
        self.look(|core| {
            let snapshot = core.snapshot();
            let get = |key: &K| Ok(snapshot.get(key)?.map(Value::detached));
            keys.iter().map(get).collect()
        })
    }

    /// True if the key has a value.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The bucket as of now, to be read for as long as it is kept. The writer goes on, but gives no space back meanwhile
    /// that the snapshot may need.
    pub fn snapshot(&self) -> Result<Snapshot<'static>> {
        self.pin().map(Snapshot::of_reader)
    }

    /// The bucket as it is mounted now, which the writer leaves as it is as long as it is pinned.
    pub(crate) fn pin(&self) -> Result<Pinned> {
        for _ in 0..RETRIES {
            let mounted = self.current()?;
            let pin = self.bulletin.pin(mounted.epoch)?;
            // Order: what the writer has given up before it could see the pin shows now.
            if self.bulletin.stamp() == mounted.stamp {
                return Ok(Pinned { mounted, _pin: pin });
            }
        }
        Err(too_busy())
    }

    /// Looks at the bucket as the newest checkpoint has it, pinned. Otherwise a reader may stay with an older one for as long
    /// as that and the log tell all.
    pub(crate) fn newest<T>(&self, look: impl Fn(&Core) -> Result<T>) -> Result<(Pinned, T)> {
        for _ in 0..RETRIES {
            let pinned = self.pin()?;
            let seen = look(&pinned.mounted.core);
            let unlock = Unlock::With(self.options.keys.as_deref());
            let (root, _) = choose_steadily(&*self.disk, unlock)?;
            // Order: behind the look, so that no checkpoint got in between.
            if root.superblock.epoch.get() == pinned.mounted.epoch {
                return Ok((pinned, seen?));
            }
            self.mount_again(&pinned.mounted)?;
        }
        Err(too_busy())
    }

    /// What the writer tells now.
    pub(crate) fn bulletin_words(&self) -> [u64; 4] {
        self.bulletin.words()
    }

    /// True if somebody has the bucket open for writing.
    pub(crate) fn has_writer(&self) -> Result<bool> {
        self.bulletin.has_writer()
    }

    /// What the bucket holds, and what this reader has done.
    pub fn stats(&self) -> Result<Stats> {
        self.look(Core::stats)
    }

    /// Ends reading. Dropping does the same.
    pub fn close(self) -> Result<()> {
        Ok(())
    }

    /// Looks at the bucket until nothing got in between.
    pub(crate) fn look<T>(&self, look: impl Fn(&Core) -> Result<T>) -> Result<T> {
        for _ in 0..RETRIES {
            let mounted = self.current()?;
            let result = look(&mounted.core);
            // Order: what was read before the stamp was looked at was read before anything was written over it.
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            if self.bulletin.stamp() == mounted.stamp {
                return result;
            }
        }
        Err(too_busy())
    }

    /// The bucket as of the last commit that is published.
    fn current(&self) -> Result<Arc<Mounted>> {
        let mounted = self.mounted.load_full();
        if self.bulletin.stamp() != mounted.stamp || self.is_stale(&mounted) {
            return self.mount_again(&mounted);
        }
        if mounted.stamp.session != 0 {
            let published = self.bulletin.published();
            let is_there = mounted.core.follow(published).unwrap_or(false);
            if !is_there {
                return self.mount_again(&mounted);
            }
        }
        Ok(mounted)
    }

    /// True if the writer has an image that makes most of the overlay superfluous.
    fn is_stale(&self, mounted: &Mounted) -> bool {
        mounted.core.view.load().active.len() > OVERLAY_MAX
            && self.bulletin.image_id() != mounted.image_id
    }

    fn mount_again(&self, old: &Arc<Mounted>) -> Result<Arc<Mounted>> {
        let _alone = lock(&self.mounting);
        let mounted = self.mounted.load_full();
        if !Arc::ptr_eq(&mounted, old) {
            // Somebody else just did.
            return Ok(mounted);
        }
        let (mounted, _) = mount_steadily(&self.disk, &self.env, &self.bulletin, &self.options)?;
        let mounted = Arc::new(mounted);
        self.mounted.store(Arc::clone(&mounted));
        Ok(mounted)
    }
}

fn too_busy() -> Error {
    Error::Io { doing: "read beside the writer", source: std::io::ErrorKind::ResourceBusy.into() }
}

/// Mounts the bucket in memory, again and again until nothing got in between.
fn mount_steadily(
    disk: &Arc<dyn Disk>,
    env: &Arc<dyn Env>,
    bulletin: &Bulletin,
    options: &Options,
) -> Result<(Mounted, MountReport)> {
    for _ in 0..RETRIES {
        let stamp = bulletin.stamp();
        let has_writer = bulletin.has_writer()?;
        let image_id = bulletin.image_id();
        let published = || bulletin.published();
        let is_beside = has_writer && stamp.session != 0;
        let purpose = if is_beside { MountAs::Beside(&published) } else { MountAs::Reader };
        let result = mount(Arc::clone(disk), Arc::clone(env), options, purpose);
        if bulletin.stamp() != stamp || bulletin.has_writer()? != has_writer {
            continue;
        }
        match result {
            // Not even the newest superblock may know where the log goes on.
            Ok((core, _)) if is_beside && !core.follow(published()).unwrap_or(false) => {
                std::thread::yield_now();
            }
            Ok((mut core, mut report)) => {
                if is_beside {
                    // The journal may have told of records that the superblock did not lead to yet. They were found since.
                    core.mode.tail_damage = None;
                    report.damage = None;
                }
                let epoch = report.epoch;
                let mounted = Mounted { core, report: report.clone(), stamp, epoch, image_id };
                return Ok((mounted, report));
            }
            // A writer that mounts changes what it finds.
            Err(Error::Corrupt(_)) if has_writer && stamp.session == 0 => {
                std::thread::yield_now();
            }
            Err(error) => return Err(error),
        }
    }
    Err(too_busy())
}

/// What a reader's snapshot keeps.
#[derive(Debug)]
pub(crate) struct Pinned {
    pub(crate) mounted: Arc<Mounted>,
    pub(crate) _pin: Pin,
}

impl fmt::Debug for Reader {
    /// Neither keys nor the hash's secret belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("stamp", &self.bulletin.stamp()).finish_non_exhaustive()
    }
}
