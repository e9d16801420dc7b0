//! Scans: rows in key order, from both ends, as of one commit.
//!
//! A scan merges the key directories of all segments with the sorted tail. All records of a key meet in the merge, so
//! the newest one in sight is the row, and no index is asked: the log is the truth. Records an image knows to be dead
//! are passed over by their bits. Cost of a start: a search in every level; of a row: a step of the merge and the record.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::core::Core;
use crate::error::{Error, Result, What};
use crate::format::record::{DELETE, Record};
use crate::key_sort::chunk;
use crate::level::{Level, Part};
use crate::liveness::Liveness;
use crate::log::Log;
use crate::view::View;

/// A row of a scan: a key, its value, and what the log knows of it.
pub struct Row<'a> {
    record: Record<'a>,
    _pin: Option<Arc<View>>,
}

impl Row<'_> {
    /// The key.
    pub fn key(&self) -> &[u8] {
        self.record.key
    }

    /// The value.
    pub fn value(&self) -> &[u8] {
        self.record.value
    }

    /// Seqno of the record that put it.
    pub fn seqno(&self) -> u64 {
        self.record.header.seqno.get()
    }

    /// Nanosecond since 1970 at which it expires, if it does.
    pub fn expires_unix_ns(&self) -> Option<u64> {
        Some(self.record.header.deadline_ns()).filter(|_| self.record.header.ttl_secs.get() != 0)
    }
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Row").field(&self.record.key).field(&self.record.value).finish()
    }
}

/// What a scan may see.
#[derive(Clone)]
pub(crate) struct Rows<'a> {
    pub(crate) core: &'a Core,
    pub(crate) view: Arc<View>,
    pub(crate) seqno: u64,
    pub(crate) now: u64,
    /// Rows outlive the scan, so each must hold the view.
    pub(crate) pins: bool,
}

/// A range of keys.
pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys that begin with `prefix`.
pub(crate) fn prefix_range(prefix: &[u8]) -> KeyRange {
    let mut end = prefix.to_vec();
    // The first key behind them: the last byte that can be is one more.
    while end.pop_if(|last| *last == u8::MAX).is_some() {}
    let to = match end.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(end)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), to)
}

/// The keys in a range of anything like bytes.
pub(crate) fn key_range<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyRange {
    let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    (owned(range.start_bound()), owned(range.end_bound()))
}

/// Rows in key order, each as of the scan's commit. Iterate it from either end, or both.
///
/// A row that is damaged is an error in its place, and the scan goes on behind it.
pub struct Scan<'a> {
    rows: Rows<'a>,
    range: KeyRange,
    front: Option<Merge<'a>>,
    back: Option<Merge<'a>>,
    /// The last keys given from either end.
    front_key: Option<&'a [u8]>,
    back_key: Option<&'a [u8]>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(rows: Rows<'a>, range: KeyRange) -> Scan<'a> {
        Scan { rows, range, front: None, back: None, front_key: None, back_key: None }
    }

    /// Goes to a key: the next row from the front is the first at or past it. May go back, but not out of the range.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        self.front_key = None;
        let from = Bound::Included(key.as_ref());
        let is_inside = match &self.range.0 {
            Bound::Included(first) | Bound::Excluded(first) => key.as_ref() > first.as_slice(),
            Bound::Unbounded => true,
        };
        let from = if is_inside { from } else { as_slice(&self.range.0) };
        self.front = Some(Merge::new(&self.rows, from, false));
    }

    /// Goes to a key: the next row from the back is the last at or before it. May go forward, but not out of the
    /// range.
    pub fn seek_back(&mut self, key: impl AsRef<[u8]>) {
        self.back_key = None;
        let to = Bound::Included(key.as_ref());
        let is_inside = match &self.range.1 {
            Bound::Included(last) | Bound::Excluded(last) => key.as_ref() < last.as_slice(),
            Bound::Unbounded => true,
        };
        let to = if is_inside { to } else { as_slice(&self.range.1) };
        self.back = Some(Merge::new(&self.rows, to, true));
    }

    fn row(&self, record: Record<'a>) -> Row<'a> {
        Row { record, _pin: self.rows.pins.then(|| Arc::clone(&self.rows.view)) }
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl<'a> Iterator for Scan<'a> {
    type Item = Result<Row<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (rows, range) = (&self.rows, &self.range);
        let merge =
            self.front.get_or_insert_with(|| Merge::new(rows, as_slice(&range.0), false));
        let record = match merge.next(rows)? {
            Ok(record) => record,
            Err(error) => return Some(Err(error)),
        };
        let is_inside = match &range.1 {
            Bound::Included(last) => record.key <= last.as_slice(),
            Bound::Excluded(last) => record.key < last.as_slice(),
            Bound::Unbounded => true,
        };
        if !is_inside || self.back_key.is_some_and(|back| record.key >= back) {
            merge.end();
            return None;
        }
        self.front_key = Some(record.key);
        Some(Ok(self.row(record)))
    }
}

impl DoubleEndedIterator for Scan<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (rows, range) = (&self.rows, &self.range);
        let merge = self.back.get_or_insert_with(|| Merge::new(rows, as_slice(&range.1), true));
        let record = match merge.next(rows)? {
            Ok(record) => record,
            Err(error) => return Some(Err(error)),
        };
        let is_inside = match &range.0 {
            Bound::Included(first) => record.key >= first.as_slice(),
            Bound::Excluded(first) => record.key > first.as_slice(),
            Bound::Unbounded => true,
        };
        if !is_inside || self.front_key.is_some_and(|front| record.key <= front) {
            merge.end();
            return None;
        }
        self.back_key = Some(record.key);
        Some(Ok(self.row(record)))
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("seqno", &self.rows.seqno).finish_non_exhaustive()
    }
}

/// All levels in one order.
struct Merge<'a> {
    cursors: Vec<Cursor>,
    heads: BinaryHeap<Head<'a>>,
    /// Key of the last group.
    last: Option<(u64, &'a [u8])>,
    /// What could not be read, to be told before the next row.
    failed: Option<Error>,
}

/// A place in a level.
struct Cursor {
    level: Level,
    part: usize,
    /// The next record's place in the part, counted from behind if the cursor goes backwards.
    next: usize,
    is_reverse: bool,
    /// Which parts the image's bits speak of.
    has_bits: Vec<bool>,
}

/// The record a cursor stands at.
struct Head<'a> {
    prefix: u64,
    key: &'a [u8],
    seqno: u64,
    paddr: u64,
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

impl<'a> Merge<'a> {
    /// A merge from a bound on, backwards if `is_reverse`.
    fn new(rows: &Rows<'a>, from: Bound<&[u8]>, is_reverse: bool) -> Merge<'a> {
        let mut merge =
            Merge { cursors: Vec::new(), heads: BinaryHeap::new(), last: None, failed: None };
        let (core, log) = (rows.core, &rows.core.log);
        let levels = match rows.view.segments.levels(log, &core.fixed) {
            Ok(levels) => levels,
            Err(error) => {
                merge.failed = Some(error);
                return merge;
            }
        };
        let tail = rows.view.segments.tail.iter().flat_map(|unsealed| {
            let part = |order| Part { start: unsealed.start, order, sealed: None };
            unsealed.orders(log).into_iter().map(move |order| Level { parts: vec![part(order)] })
        });
        for level in levels.iter().cloned().chain(tail) {
            let has_bits = level.parts.iter().map(|part| {
                part.sealed.as_ref().is_some_and(|sealed| rows.view.image.covers(sealed))
            });
            let has_bits = has_bits.collect();
            let mut cursor = Cursor { level, part: 0, next: 0, is_reverse, has_bits };
            cursor.start(log, from);
            let index = merge.cursors.len();
            if let Some(head) = cursor.fetch(rows, index, &mut merge.failed) {
                merge.heads.push(head);
            }
            merge.cursors.push(cursor);
        }
        merge
    }

    /// Gives no more rows.
    fn end(&mut self) {
        self.heads.clear();
    }

    /// The next row.
    fn next(&mut self, rows: &Rows<'a>) -> Option<Result<Record<'a>>> {
        loop {
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            let mut top = self.heads.peek_mut()?;
            let (prefix, key, paddr, index) = (top.prefix, top.key, top.paddr, top.cursor);
            let cursor = self.cursors.get_mut(index)?;
            match cursor.fetch(rows, index, &mut self.failed) {
                Some(head) => *top = head,
                None => drop(PeekMut::pop(top)),
            }
            if self.last.is_some_and(|last| last.0 == prefix && last.1 == key) {
                // An older record of the key before.
                continue;
            }
            self.last = Some((prefix, key));
            let record = match rows.core.log.record(paddr) {
                Ok(record) => record,
                Err(error) => return Some(Err(error)),
            };
            if record.header.kind != DELETE && record.header.deadline_ns() > rows.now {
                return Some(Ok(record));
            }
        }
    }
}

impl Cursor {
    /// Goes to the first record inside a bound.
    fn start(&mut self, log: &Log, from: Bound<&[u8]>) {
        let last = self.level.parts.len().saturating_sub(1);
        let place = match (from, self.is_reverse) {
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
        (self.part, self.next) = place;
    }

    /// Where the next record is, and whether bits speak of it.
    #[inline]
    fn step(&mut self, log: &Log) -> Option<(u64, bool)> {
        if self.is_reverse {
            while self.next == 0 {
                self.part = self.part.checked_sub(1)?;
                self.next = self.level.parts.get(self.part)?.order.len();
            }
            self.next -= 1;
            let paddr = self.level.parts.get(self.part)?.paddr(log, self.next)?;
            return Some((paddr, self.has_bits.get(self.part) == Some(&true)));
        }
        loop {
            let part = self.level.parts.get(self.part)?;
            if self.next < part.order.len() {
                let paddr = part.paddr(log, self.next)?;
                self.next += 1;
                return Some((paddr, self.has_bits.get(self.part) == Some(&true)));
            }
            self.part += 1;
            self.next = 0;
        }
    }

    /// The next record in sight that may be live.
    #[inline]
    fn fetch<'a>(
        &mut self,
        rows: &Rows<'a>,
        cursor: usize,
        failed: &mut Option<Error>,
    ) -> Option<Head<'a>> {
        let log = &rows.core.log;
        let bits: Option<&Liveness> = rows.view.image.liveness();
        while let Some((paddr, has_bits)) = self.step(log) {
            if has_bits && bits.is_some_and(|bits| !bits.may_be_live(paddr)) {
                continue;
            }
            let Some((header, key)) = log.head(paddr) else {
                *failed = Some(Error::corrupt(What::Record, paddr));
                continue;
            };
            let seqno = header.seqno.get();
            if seqno <= rows.seqno {
                let is_reverse = self.is_reverse;
                return Some(Head { prefix: chunk(key, 0), key, seqno, paddr, cursor, is_reverse });
            }
        }
        None
    }
}
