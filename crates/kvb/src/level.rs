//! Segments that follow each other in key order.
//!
//! What one compaction writes is one level, however many segments that takes; a segment of the log is a level of its
//! own. A scan merges levels, so after a compaction of everything there is next to nothing to merge.

use std::sync::Arc;

use crate::core::Fixed;
use crate::error::Result;
use crate::log::Log;
use crate::order::Order;
use crate::sealed::Sealed;

/// Records in key order, part by part.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    pub(crate) parts: Vec<Part>,
}

/// Records of one segment in key order.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Where the segment starts.
    pub(crate) start: u64,
    pub(crate) order: Order,
    /// The segment, if it is registered.
    pub(crate) sealed: Option<Arc<Sealed>>,
}

impl Part {
    /// Where the record at a place in the order is.
    #[inline]
    pub(crate) fn paddr(&self, log: &Log, index: usize) -> Option<u64> {
        Some(self.start + self.order.place(log, index)?.offset())
    }

    /// The first key that can be read.
    fn first_key<'a>(&self, log: &'a Log) -> &'a [u8] {
        let sound = |index| log.sound_key(self.paddr(log, index)?);
        (0..self.order.len()).find_map(sound).unwrap_or(&[])
    }

    /// The last key that can be read.
    fn last_key<'a>(&self, log: &'a Log) -> &'a [u8] {
        let sound = |index| log.sound_key(self.paddr(log, index)?);
        (0..self.order.len()).rev().find_map(sound).unwrap_or(&[])
    }
}

impl Level {
    /// Orders registered segments into as few levels as their keys allow, going by where each begins.
    pub(crate) fn arrange(log: &Log, fixed: &Fixed, sealed: &[Arc<Sealed>]) -> Result<Vec<Level>> {
        let mut levels = Vec::new();
        let mut moved = Vec::new();
        for segment in sealed {
            let part = Part {
                start: segment.start(fixed.geometry),
                order: segment.order(log, fixed)?,
                sealed: Some(Arc::clone(segment)),
            };
            if part.order.len() == 0 {
                continue;
            }
            if segment.is_moved() {
                moved.push(part);
            } else {
                levels.push(Level { parts: vec![part] });
            }
        }
        moved.sort_by(|a, b| a.first_key(log).cmp(b.first_key(log)));
        let alone = levels.len();
        for part in moved {
            let follows = |level: &&mut Level| {
                level.parts.last().is_some_and(|last| last.last_key(log) < part.first_key(log))
            };
            match levels.iter_mut().skip(alone).find(follows) {
                Some(level) => level.parts.push(part),
                None => levels.push(Level { parts: vec![part] }),
            }
        }
        Ok(levels)
    }

    /// Part and place of the first record whose key is at or past `key`, or past it if `skip_equal`.
    pub(crate) fn seek(
        &self,
        log: &Log,
        key: &[u8],
        skip_equal: bool,
        is_reverse: bool,
    ) -> (usize, usize) {
        // The last part that begins at or before the key, or the first of all.
        let part = self.parts.partition_point(|part| part.first_key(log) <= key).saturating_sub(1);
        match self.parts.get(part) {
            Some(found) => (part, found.order.seek(log, found.start, key, skip_equal, is_reverse)),
            None => (part, 0),
        }
    }
}
