//! What a caller may choose.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::superblock::{PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use crate::keys::KeyProvider;
use crate::squeeze;
use crate::victims::SLACK;

/// Pages that the journal ring may have.
pub(crate) const JOURNAL_PAGES: RangeInclusive<u64> = 8..=4096;
/// Least and most slack in percent.
const SLACK_MIN: u32 = 36;
const SLACK_MAX: u32 = 400;

/// What a commit waits for before it returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Visible at once. After power loss what is back is a prefix of the commit order.
    Relaxed,
    /// One write, one sync: the commit survives power loss.
    SyncOnce,
    /// As `SyncOnce`, in the order of the specification: records, sync, journal, sync.
    #[default]
    Sync,
}

/// Which hash finds keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashKind {
    /// XXH3-64: fast, but anyone can make keys that collide.
    #[default]
    Xxh3,
    /// SipHash-2-4 under a random key, for keys chosen by others.
    SipHash,
}

/// Whether values are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Values are stored as they are.
    #[default]
    None,
    /// Each value by itself with zstd, if that makes it shorter by a sixteenth at least.
    Zstd,
}

/// Settings of a bucket. Those of the file are fixed when it is created and read back when it is opened.
#[derive(Clone)]
pub struct Options {
    pub(crate) page_size: u32,
    pub(crate) index_bytes: u64,
    pub(crate) journal_pages: u64,
    pub(crate) max_value: u32,
    pub(crate) segment_bytes_max: u64,
    pub(crate) hash: HashKind,
    pub(crate) directories: bool,
    pub(crate) compression: Compression,
    pub(crate) compression_level: i32,
    pub(crate) compression_min: usize,
    pub(crate) key_id: Option<u64>,
    pub(crate) keys: Option<Arc<dyn KeyProvider>>,
    pub(crate) takes_increments: bool,
    pub(crate) despite_damage: bool,
    pub(crate) durability: Durability,
    pub(crate) background: bool,
    pub(crate) overlay_min: usize,
    pub(crate) slack: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            page_size: 4096,
            index_bytes: 0,
            journal_pages: 8,
            max_value: 1 << 30,
            segment_bytes_max: 8 << 20,
            hash: HashKind::Xxh3,
            directories: true,
            compression: Compression::None,
            compression_level: 3,
            compression_min: 64,
            key_id: None,
            keys: None,
            takes_increments: false,
            despite_damage: false,
            durability: Durability::Sync,
            background: true,
            overlay_min: 512 << 10,
            slack: SLACK,
        }
    }
}

impl Options {
    /// Bytes in a page: a power of two from 4096 to 65536. Default 4096. Fixed at creation.
    pub fn page_size(mut self, bytes: u32) -> Self {
        self.page_size = bytes;
        self
    }

    /// Bytes of index pages to make at once, rounded up to a power of two of pages. Default 0: one page,
    /// grown as needed. Fixed at creation.
    pub fn index_bytes(mut self, bytes: u64) -> Self {
        self.index_bytes = bytes;
        self
    }

    /// Pages of the journal ring, 8 to 4096. Default 8. Fixed at creation.
    pub fn journal_pages(mut self, pages: u64) -> Self {
        self.journal_pages = pages;
        self
    }

    /// Largest value in bytes. Default 1 GiB. Fixed at creation.
    pub fn max_value(mut self, bytes: u32) -> Self {
        self.max_value = bytes;
        self
    }

    /// Largest foreground segment in bytes, 16 KiB to 8 MiB. Default 8 MiB. Twice this bounds what is
    /// scanned after a crash. Fixed at creation.
    pub fn segment_bytes_max(mut self, bytes: u64) -> Self {
        self.segment_bytes_max = bytes;
        self
    }

    /// Which hash finds keys. Default XXH3-64. Fixed at creation.
    pub fn hash(mut self, hash: HashKind) -> Self {
        self.hash = hash;
        self
    }

    /// Whether sealed segments get a key directory. Default true: 5 bytes a record, and scans need not sort. Fixed at
    /// creation.
    pub fn directories(mut self, directories: bool) -> Self {
        self.directories = directories;
        self
    }

    /// Whether values are compressed. Default no. Fixed at creation.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// How hard zstd tries, -7 to 19. Default 3. Higher levels are slower to write and as fast to read.
    pub fn compression_level(mut self, level: i32) -> Self {
        self.compression_level = level;
        self
    }

    /// Values shorter than this are stored as they are. Default 64 bytes.
    pub fn compression_min(mut self, bytes: usize) -> Self {
        self.compression_min = bytes;
        self
    }

    /// Encrypts the bucket with the key of this id, which [`Options::keys`] must have. Default no. Fixed at creation, but
    /// keys can be rotated.
    pub fn encrypted(mut self, key_id: u64) -> Self {
        self.key_id = Some(key_id);
        self
    }

    /// Takes encryption back, and the keys with it.
    pub fn plain(mut self) -> Self {
        self.key_id = None;
        self.keys = None;
        self
    }

    /// Where the keys of an encrypted bucket come from. A bucket that is not encrypted is not opened with keys: somebody may
    /// have put it in the place of one that was.
    pub fn keys(mut self, keys: impl KeyProvider + 'static) -> Self {
        self.keys = Some(Arc::new(keys));
        self
    }

    /// Whether an increment is opened like a bucket: to look at, because what it lacks is in the backup before it. Default
    /// no: that is an error.
    pub fn takes_increments(mut self, takes: bool) -> Self {
        self.takes_increments = takes;
        self
    }

    /// Whether a reader answers although records that were durable are lost at the end of the log: then it may give an
    /// older value, or a key that was deleted. Default no: such answers are errors. `repair` does not need this.
    pub fn despite_damage(mut self, despite: bool) -> Self {
        self.despite_damage = despite;
        self
    }

    /// What `put`, `delete` and `commit` wait for. Default [`Durability::Sync`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether sealing, checkpoints and index merges run on threads of the bucket's own. Default true;
    /// without them the same work is done inside the call that makes it due, in a fixed order.
    pub fn background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Index changes kept in memory before they are merged into the index on disk. Default 524288; half of
    /// that and a quarter of the number of keys if that is more.
    pub fn overlay_min(mut self, entries: usize) -> Self {
        self.overlay_min = entries;
        self
    }

    /// Dead bytes of records that may be there for every hundred live ones before compaction takes them away, 36 to 400.
    /// Default 42. With more, the file is longer, and less is copied: a bucket whose keys are replaced all the time is faster.
    pub fn slack(mut self, percent: u32) -> Self {
        self.slack = percent;
        self
    }

    /// Checks what creation depends on.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |message| Err(Error::Invalid(message));
        if !self.page_size.is_power_of_two()
            || !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&self.page_size)
        {
            return invalid("page size must be a power of two from 4096 to 65536");
        }
        if !JOURNAL_PAGES.contains(&self.journal_pages) {
            return invalid("the journal must have 8 to 4096 pages");
        }
        if !((16 << 10)..=(8 << 20)).contains(&self.segment_bytes_max)
            || self.segment_bytes_max < 4 * u64::from(self.page_size)
        {
            return invalid("segments must be 16 KiB to 8 MiB and at least four pages");
        }
        if self.index_bytes > 1 << 40 {
            return invalid("the index may not start larger than 1 TiB");
        }
        if !(-7..=19).contains(&self.compression_level) {
            return invalid("the compression level must be from -7 to 19");
        }
        if self.compression == Compression::Zstd && !squeeze::IS_AVAILABLE {
            return invalid("this build cannot compress: its feature `zstd` is off");
        }
        if !(SLACK_MIN..=SLACK_MAX).contains(&self.slack) {
            return invalid("the slack must be from 36 to 400 percent");
        }
        if self.overlay_min == 0 {
            return invalid("the overlay must hold at least one entry");
        }
        Ok(())
    }
}

impl fmt::Debug for Options {
    /// Whatever gives keys stays out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("page_size", &self.page_size)
            .field("compression", &self.compression)
            .field("key_id", &self.key_id)
            .field("durability", &self.durability)
            .finish_non_exhaustive()
    }
}
