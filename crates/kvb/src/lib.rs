//! A bucket: crash-safe key/value storage in one file.
//!
//! ```
//! use kvb::{Batch, Bucket, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("ledger.kvb");
//! let bucket = Bucket::create(&path, Options::default())?;
//! bucket.put(b"alice", b"100")?;
//!
//! let mut batch = Batch::new();
//! batch.put(b"alice", b"70").put(b"bob", b"30");
//! bucket.commit(batch)?; // both or neither, even if the power fails here
//!
//! assert_eq!(bucket.get(b"bob")?.as_deref(), Some(&b"30"[..]));
//! bucket.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Where things are:
//!
//! - writing: [`Bucket`] with [`put`](Bucket::put), [`Batch`] with [`commit`](Bucket::commit); [`Durability`] says when it returns
//! - reading: [`Bucket::get`], [`Bucket::get_many`], [`Bucket::scan`] and [`Scan`]; [`Snapshot`] for one commit; [`Reader`] in other processes
//! - what is fixed when a bucket is made, and what is chosen at each opening: [`Options`]
//! - secrets: [`Options::encrypted`], [`Options::keys`], [`Keyring`], [`KeyProvider`], [`Bucket::rotate_key`]
//! - care: [`verify`], [`repair`], [`Snapshot::backup`], [`restore`], [`Bucket::compact`], [`remake`]; each tells its [`Progress`]
//! - looking inside: [`Bucket::stats`], [`inspect()`], [`mod@format`]
//! - what can go wrong, and what to do about it: [`Error`]
//!
//! Features, both on by default: `zstd` for compressed values, `encryption` for encrypted buckets. Without them such buckets are
//! refused by name.
//!
//! The log is the truth: values are read where they were appended, through a mapping of the file. The index is an
//! immutable hash table on disk plus recent changes in memory, and can always be rebuilt from the log.

#![cfg_attr(not(test), deny(clippy::panic, clippy::string_slice, clippy::unreachable))]

mod ahead;
mod assemble;
mod background;
mod backup;
mod batch;
mod book;
mod bucket;
mod bulletin;
mod checkpoint;
#[cfg(feature = "encryption")]
mod cipher;
#[cfg(not(feature = "encryption"))]
#[path = "no_cipher.rs"]
mod cipher;
mod clock;
mod codec;
mod compact;
mod copier;
mod core;
mod create;
mod dictionary;
mod elders;
mod error;
mod extent;
mod follow;
pub mod format;
mod group;
mod hash;
mod hash_filter;
mod image;
mod image_builder;
mod image_walk;
mod inspect;
mod keeper;
mod key_merge;
mod key_sort;
mod keys;
mod late_run;
mod level;
mod liveness;
mod log;
mod lookup;
mod merge;
mod mount;
mod opened;
mod options;
mod order;
mod output;
mod overlay;
#[cfg(all(test, loom))]
mod overlay_loom;
mod page_set;
mod progress;
mod promise;
mod queue;
mod reader;
mod recover;
mod relocate;
mod repair;
mod ring;
mod room;
mod root;
mod rotate;
mod round;
mod runs;
mod salvage;
mod scan;
mod sealed;
mod segment;
mod segment_sums;
mod slot_filter;
mod snapshot;
mod space;
mod spread_sort;
mod squeeze;
mod stats;
mod survey;
mod sync;
mod tail;
mod text;
mod throttle;
mod tidy;
mod unsealed;
mod value;
mod vault;
mod verify;
mod victims;
mod view;
mod walk;
mod warm;
mod writer;

/// The example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

pub use backup::{Backup, remake, remake_on, restore, restore_on};
pub use batch::Batch;
pub use book::Training;
pub use bucket::Bucket;
pub use compact::{Compact, Compaction};
pub use error::{Corrupt, Error, Result, What};
pub use inspect::{FieldFacts, Inspection, RecordFacts, Sense, Structure, inspect};
pub use keys::{Key, KeyProvider, Keyring};
pub use mount::MountReport;
pub use options::{Compression, Durability, HashKind, Options};
pub use progress::Progress;
pub use reader::Reader;
pub use repair::{Repair, RepairTo, repair, repair_on};
pub use rotate::Rotation;
pub use salvage::Lost;
pub use scan::{Row, Scan};
pub use snapshot::Snapshot;
pub use stats::Stats;
pub use survey::{
    Area, AreaKind, Checkpoint, IndexFacts, JournalFacts, SegmentFacts, SegmentKind, Settings,
    SuperblockCopy, Survey,
};
pub use value::Value;
pub use verify::{Finding, Severity, Verification, verify, verify_on};
