//! Bugs on purpose, to prove that the simulator finds bugs of their kind.
//!
//! Without the feature `planted` there is none, and the places where one could be come to nothing when they are compiled. Only the
//! simulator turns the feature on, and only to be tested itself.

/// A bug that can be planted, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A durable commit is not synced.
    CommitNotSynced,
    /// The first superblock is not durable when the second is written.
    SuperblocksTogether,
    /// What a checkpoint names is not durable when it is written.
    CheckpointEarly,
    /// Extents are used again before both superblocks have stopped naming what was there.
    FreedEarly,
    /// A grown file's length is not durable when the superblock moves to its end.
    LengthLate,
    /// The journal goes on behind its end.
    JournalOverrun,
    /// The journal tells of records that are not durable yet.
    JournalEarly,
    /// A batch counts without its last record.
    HalfABatch,
    /// Compaction drops a tombstone that still hides something.
    TombstoneDropped,
    /// A record's checksum is not looked at.
    RecordUnchecked,
    /// Keys of one hash are taken for each other.
    KeyNotCompared,
    /// Writing goes on after a failure.
    FailureIgnored,
    /// A second writer is let in.
    TwoWriters,
    /// RUBIN's manifest names a block before the database has it.
    ManifestFirst,
}

impl Bug {
    /// All of them.
    pub const ALL: &[Bug] = &[
        Bug::CommitNotSynced,
        Bug::SuperblocksTogether,
        Bug::CheckpointEarly,
        Bug::FreedEarly,
        Bug::LengthLate,
        Bug::JournalOverrun,
        Bug::JournalEarly,
        Bug::HalfABatch,
        Bug::TombstoneDropped,
        Bug::RecordUnchecked,
        Bug::KeyNotCompared,
        Bug::FailureIgnored,
        Bug::TwoWriters,
        Bug::ManifestFirst,
    ];
}

/// The number of the bug in `ALL`, or more than there are.
#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(usize::MAX);

#[cfg(feature = "planted")]
fn number(bug: Bug) -> usize {
    Bug::ALL.iter().position(|known| *known == bug).unwrap_or(usize::MAX)
}

/// Plants a bug, or takes it away.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(usize::MAX, number), std::sync::atomic::Ordering::SeqCst);
}

/// True if this bug is planted.
#[cfg(feature = "planted")]
#[inline]
pub fn is_planted(bug: Bug) -> bool {
    let planted = PLANTED.load(std::sync::atomic::Ordering::Relaxed);
    planted != usize::MAX && planted == number(bug)
}

/// True if this bug is planted: never.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is_planted(_: Bug) -> bool {
    false
}
