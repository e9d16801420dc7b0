//! Segments that follow each other in key order.
//!
//! What one compaction writes is one level, however many segments that takes; a segment of the log is a level of its
//! own. A scan merges levels, so after a compaction of everything there is next to nothing to merge.

use std::sync::Arc;

use crate::core::Fixed;
use crate::error::Result;
use crate::key_sort::chunk;
use crate::log::Log;
use crate::order::Order;
use crate::sealed::Sealed;
use crate::text::Text;

/// Records in key order, part by part.
#[derive(Debug)]
pub(crate) struct Level {
    pub(crate) parts: Vec<Part>,
    /// Of every part the first eight bytes of its first key, and where that stands; none if there is one part.
    firsts: Vec<(u64, u64)>,
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

    /// True if its first and its last record can be read. Otherwise nobody can tell what it follows: behind a part that it overlaps, a
    /// damaged record would be met too late to hide older ones of its key.
    fn has_ends(&self, log: &Log) -> bool {
        let is_sound = |index: Option<usize>| {
            let paddr = index.and_then(|index| self.paddr(log, index));
            paddr.is_some_and(|paddr| log.try_record(paddr).is_some())
        };
        is_sound(Some(0)) && is_sound(self.order.len().checked_sub(1))
    }

    /// Where the first record is whose key can be read.
    fn first(&self, log: &Log) -> Option<u64> {
        let paddrs = (0..self.order.len()).filter_map(|index| self.paddr(log, index));
        paddrs.into_iter().find(|paddr| log.try_record(*paddr).is_some())
    }

    /// The first key that can be read.
    fn first_key<'a>(&self, log: &'a Log) -> Text<'a> {
        self.first(log).map_or(Text::lent(&[]), |paddr| log.key(paddr))
    }

    /// The last key that can be read.
    fn last_key<'a>(&self, log: &'a Log) -> Text<'a> {
        let paddrs = (0..self.order.len()).rev().filter_map(|index| self.paddr(log, index));
        let last = paddrs.into_iter().find(|paddr| log.try_record(*paddr).is_some());
        last.map_or(Text::lent(&[]), |paddr| log.key(paddr))
    }
}

impl Level {
    /// A level of one part.
    pub(crate) fn of(part: Part) -> Level {
        Level { parts: vec![part], firsts: Vec::new() }
    }

    /// Its segments, as far as they are registered.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = &Arc<Sealed>> {
        self.parts.iter().filter_map(|part| part.sealed.as_ref())
    }

    /// Bytes of records in those.
    pub(crate) fn bytes(&self) -> u64 {
        self.sealed().map(|sealed| sealed.entry.record_bytes.get()).sum()
    }

    /// Orders registered segments into as few levels as their keys allow, going by where each begins.
    pub(crate) fn arrange(
        log: &Log,
        fixed: &Fixed,
        sealed: &[Arc<Sealed>],
    ) -> Result<Vec<Arc<Level>>> {
        let mut levels: Vec<Level> = Vec::new();
        let mut moved = Vec::new();
        for segment in sealed {
            let part = Part {
                start: segment.start(fixed.geometry),
                order: segment.order(log, fixed)?,
                sealed: Some(Arc::clone(segment)),
            };
            if part.order.len() == 0 && part.order.lost().is_empty() {
                continue;
            }
            if segment.is_moved() && part.has_ends(log) {
                moved.push(part);
            } else {
                levels.push(Level::of(part));
            }
        }
        moved.sort_by(|a, b| a.first_key(log).cmp(&b.first_key(log)));
        let alone = levels.len();
        for part in moved {
            let follows = |level: &&mut Level| {
                level.parts.last().is_some_and(|last| last.last_key(log) < part.first_key(log))
            };
            match levels.iter_mut().skip(alone).find(follows) {
                Some(level) => level.parts.push(part),
                None => levels.push(Level::of(part)),
            }
        }
        for level in levels.iter_mut().filter(|level| level.parts.len() > 1) {
            let firsts = level.parts.iter().map(|part| part.first(log).unwrap_or(u64::MAX));
            level.firsts = firsts.map(|paddr| (chunk(&log.key(paddr), 0), paddr)).collect();
        }
        Ok(levels.into_iter().map(Arc::new).collect())
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
        let wanted = chunk(key, 0);
        let begins_before = |&(prefix, paddr): &(u64, u64)| {
            prefix < wanted || prefix == wanted && *log.key(paddr) <= *key
        };
        let part = self.firsts.partition_point(begins_before).saturating_sub(1);
        match self.parts.get(part) {
            Some(found) => (part, found.order.seek(log, found.start, key, skip_equal, is_reverse)),
            None => (part, 0),
        }
    }
}
