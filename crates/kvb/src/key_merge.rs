//! Merging levels by key: of every key the newest record in sight, lowest key first, or highest first.
//!
//! Tombstones are always looked at: a dead record that looks live by its bit must meet the one that hides it.
//! Keys are read unchecked where records lie; whoever uses a record checks it.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::Bound;
use std::sync::Arc;

use crate::error::{Error, Result, What};
use crate::image::Image;
use crate::key_sort::chunk;
use crate::level::Level;
use crate::liveness::Liveness;
use crate::log::Log;

/// All levels in one order.
pub(crate) struct KeyMerge<'a> {
    log: &'a Log,
    image: Arc<Image>,
    /// No record with a higher one is looked at.
    seqno: u64,
    is_reverse: bool,
    cursors: Vec<Cursor>,
    heads: BinaryHeap<Head<'a>>,
    /// Key of the last record given.
    last: Option<(u64, &'a [u8])>,
    /// What could not be read, to be told before the next record.
    failed: Option<Error>,
}

/// A place in a level.
struct Cursor {
    level: Level,
    part: usize,
    /// Place in the part of the next record, or backwards of the one before that.
    next: usize,
    /// Of which parts the image's bits speak.
    has_bits: Vec<bool>,
}

/// A record in the merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    prefix: u64,
    pub(crate) key: &'a [u8],
    pub(crate) seqno: u64,
    pub(crate) paddr: u64,
    /// Where its segment starts.
    pub(crate) segment: u64,
    cursor: usize,
    is_reverse: bool,
}

impl Ord for Head<'_> {
    /// The greatest comes first: of the lowest key (or the highest, backwards) the newest.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = self.prefix.cmp(&other.prefix).then_with(|| self.key.cmp(other.key));
        let keys = if self.is_reverse { keys } else { keys.reverse() };
        keys.then_with(|| self.seqno.cmp(&other.seqno))
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head<'_> {}

impl<'a> KeyMerge<'a> {
    /// A merge of nothing yet, of records up to a seqno. The image's bits tell which records of the segments it covers
    /// are dead.
    pub(crate) fn new(
        log: &'a Log,
        image: Arc<Image>,
        seqno: u64,
        is_reverse: bool,
    ) -> KeyMerge<'a> {
        KeyMerge {
            log,
            image,
            seqno,
            is_reverse,
            cursors: Vec::new(),
            heads: BinaryHeap::new(),
            last: None,
            failed: None,
        }
    }

    /// Adds a level from a bound on.
    pub(crate) fn add(&mut self, level: Level, from: Bound<&[u8]>) {
        let covers = |part: &crate::level::Part| {
            let sealed = part.sealed.as_ref().filter(|sealed| !sealed.is_guard());
            sealed.is_some_and(|sealed| self.image.covers(sealed))
        };
        let has_bits = level.parts.iter().map(covers).collect();
        let mut cursor = Cursor { level, part: 0, next: 0, has_bits };
        cursor.start(self.log, from, self.is_reverse);
        self.cursors.push(cursor);
        if let Some(head) = self.fetch(self.cursors.len() - 1) {
            self.heads.push(head);
        }
    }

    /// Gives an error before the next record.
    pub(crate) fn fail(&mut self, error: Error) {
        self.failed = Some(error);
    }

    /// Gives no more records.
    pub(crate) fn end(&mut self) {
        self.heads.clear();
    }

    /// The newest record in sight of the next key.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Result<Head<'a>>> {
        loop {
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let head = *self.heads.peek()?;
            let next = self.fetch(head.cursor);
            if let Some(mut top) = self.heads.peek_mut() {
                match next {
                    Some(next) => *top = next,
                    None => drop(PeekMut::pop(top)),
                }
            }
            if self.last.is_some_and(|last| last.0 == head.prefix && last.1 == head.key) {
                // An older record of the key before.
                continue;
            }
            self.last = Some((head.prefix, head.key));
            return Some(Ok(head));
        }
    }

    /// The next record of a cursor that is in sight and may be live.
    #[inline]
    fn fetch(&mut self, index: usize) -> Option<Head<'a>> {
        let bits: Option<&Liveness> = self.image.liveness();
        let cursor = self.cursors.get_mut(index)?;
        while let Some(step) = cursor.step(self.log, self.is_reverse) {
            let is_passed_over = step.has_bits
                && !step.is_delete
                && bits.is_some_and(|bits| !bits.may_be_live(step.paddr));
            if is_passed_over {
                continue;
            }
            let Some((header, key)) = self.log.head(step.paddr) else {
                self.failed = Some(Error::corrupt(What::Record, step.paddr));
                continue;
            };
            let seqno = header.seqno.get();
            if seqno <= self.seqno {
                return Some(Head {
                    prefix: chunk(key, 0),
                    key,
                    seqno,
                    paddr: step.paddr,
                    segment: step.segment,
                    cursor: index,
                    is_reverse: self.is_reverse,
                });
            }
        }
        None
    }
}

/// Where a cursor comes to next.
struct Step {
    segment: u64,
    paddr: u64,
    is_delete: bool,
    has_bits: bool,
}

impl Cursor {
    /// Goes to the first record inside a bound.
    fn start(&mut self, log: &Log, from: Bound<&[u8]>, is_reverse: bool) {
        let last = self.level.parts.len().saturating_sub(1);
        (self.part, self.next) = match (from, is_reverse) {
            (Bound::Included(key), false) => self.level.seek(log, key, false),
            (Bound::Excluded(key), false) => self.level.seek(log, key, true),
            // Backwards: behind the last record inside.
            (Bound::Included(key), true) => self.level.seek(log, key, true),
            (Bound::Excluded(key), true) => self.level.seek(log, key, false),
            (Bound::Unbounded, false) => (0, 0),
            (Bound::Unbounded, true) => {
                (last, self.level.parts.last().map_or(0, |part| part.order.len()))
            }
        };
    }

    #[inline]
    fn step(&mut self, log: &Log, is_reverse: bool) -> Option<Step> {
        let at = if is_reverse {
            while self.next == 0 {
                self.part = self.part.checked_sub(1)?;
                self.next = self.level.parts.get(self.part)?.order.len();
            }
            self.next -= 1;
            self.next
        } else {
            while self.next >= self.level.parts.get(self.part)?.order.len() {
                self.part += 1;
                self.next = 0;
            }
            self.next += 1;
            self.next - 1
        };
        let part = self.level.parts.get(self.part)?;
        let place = part.order.place(log, at)?;
        Some(Step {
            segment: part.start,
            paddr: part.start + place.offset(),
            is_delete: place.is_delete(),
            has_bits: self.has_bits.get(self.part) == Some(&true),
        })
    }
}
