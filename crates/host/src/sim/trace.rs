//! What happened to a simulated disk, and the walk along its crash points.

use std::sync::Arc;

use super::image::Keep;
use super::point::Point;

/// One thing that happened to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Bytes were written, extending the file if they end past its end.
    Write {
        /// Where they begin.
        offset: u64,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// The length was set.
    SetLen(u64),
    /// A range was reserved, extending the file if it ends past its end.
    Allocate {
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// A range was turned into zeros.
    Punch {
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Everything before was made durable.
    Sync,
    /// A range was made durable.
    SyncRange {
        /// Where it begins.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// A sync failed, and what was dirty in the range is no longer known to be dirty.
    SyncFailed {
        /// Where the range begins.
        offset: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// The test left a note.
    Mark(u64),
}

/// The history of a simulated disk: its initial image, and all that happened since.
#[derive(Debug, Clone)]
pub struct Trace {
    initial: Arc<Vec<u8>>,
    ops: Vec<Op>,
}

impl Trace {
    pub(super) fn new(initial: Arc<Vec<u8>>, ops: Vec<Op>) -> Self {
        Trace { initial, ops }
    }

    /// How many operations, marks included.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True if nothing happened.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The operations in the order they took effect.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The crash just after the first `upto` operations. Replays them all; to look at many crashes
    /// walk along [`Trace::points`].
    pub fn point(&self, upto: usize) -> Point {
        let mut point = Point::new(&self.initial);
        for op in self.ops.iter().take(upto) {
            point.apply(op);
        }
        point
    }

    /// One legal image of the file after a crash just after the first `upto` operations.
    pub fn image(&self, upto: usize, keep: Keep) -> Vec<u8> {
        self.point(upto).image(keep)
    }

    /// Walks along all crashes: before the first operation, and after each.
    pub fn points(&self) -> Points<'_> {
        Points { ops: &self.ops, point: Point::new(&self.initial), started: false }
    }
}

/// A walk along the crash points of a trace.
#[derive(Debug)]
pub struct Points<'a> {
    ops: &'a [Op],
    point: Point,
    started: bool,
}

impl Points<'_> {
    /// Moves on to the next crash point; the first call stays before the first operation. Not an
    /// `Iterator` because each point is the previous one brought forward.
    pub fn advance(&mut self) -> Option<&Point> {
        if self.started {
            self.point.apply(self.ops.get(self.point.upto())?);
        }
        self.started = true;
        Some(&self.point)
    }
}
