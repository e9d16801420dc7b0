//! Scans: rows in key order, from both ends, as of one commit.
//!
//! A scan merges the key directories of all segments with the sorted tail. All records of a key meet in the merge, so
//! the newest one in sight is the row, and no index is asked: the log is the truth. Records an image knows to be dead
//! are passed over by their bits. Cost of a start: a search in every level; of a row: a step of the merge and the record.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::core::Core;
use crate::error::Result;
use crate::format::record::{DELETE, ENC_RAW};
use crate::key_merge::{Head, KeyMerge};
use crate::key_sort::chunk;
use crate::level::{Level, Part};
use crate::opened::{Held, Lent, Opened};
use crate::view::View;

/// A row of a scan: a key, its value, and what the log knows of it.
pub struct Row<'a> {
    pub(crate) record: Opened<'a>,
    /// The value, if the stored one is not it. Rows are moved by the million: one word, not three.
    expanded: Option<Arc<Vec<u8>>>,
    _pin: Option<Arc<View>>,
}

impl<'a> Row<'a> {
    /// Key and value by themselves: rows of a [`Snapshot`](crate::Snapshot) are lent for as long as that is there, unless
    /// they had to be decrypted or expanded; others are copied.
    pub fn into_bytes(self) -> (Cow<'a, [u8]>, Cow<'a, [u8]>) {
        if self._pin.is_some() {
            return (Cow::Owned(self.key().to_vec()), Cow::Owned(self.value().to_vec()));
        }
        let (body, key_len) = self.record.into_stored();
        let key = body.clone().part(..key_len);
        match self.expanded {
            Some(expanded) => (key, Cow::Owned(Arc::unwrap_or_clone(expanded))),
            None => (key, body.part(key_len..)),
        }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.record.key()
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> &[u8] {
        match &self.expanded {
            Some(expanded) => expanded,
            None => self.record.stored(),
        }
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
        f.debug_tuple("Row").field(&self.key()).field(&self.value()).finish()
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

impl<'a> Rows<'a> {
    /// Merges all segments and the tail from a bound on, backwards if `is_reverse`.
    fn merge<R: Held<'a>>(&self, from: Bound<&[u8]>, is_reverse: bool) -> KeyMerge<'a, R> {
        let (core, log) = (self.core, &self.core.log);
        let image = Arc::clone(&self.view.image);
        let mut merge = KeyMerge::new(core, image, self.seqno, is_reverse);
        if let Err(error) = core.check_scan() {
            merge.fail(error);
            return merge;
        }
        match self.view.segments.levels(log, &core.fixed) {
            Ok(levels) => {
                core.note_levels(levels.len());
                levels.iter().for_each(|level| merge.add(Arc::clone(level), from));
            }
            Err(error) => merge.fail(error),
        }
        for unsealed in &self.view.segments.tail {
            for order in unsealed.orders(log, &core.hash) {
                let part = Part { start: unsealed.start, order, sealed: None };
                merge.add(Arc::new(Level::of(part)), from);
            }
        }
        merge
    }

    /// The newest record of every key in order, DELETEs and expired ones too, of segments with any seqno above `since`.
    pub(crate) fn changes(&self, since: u64) -> Result<KeyMerge<'a>> {
        let (core, log) = (self.core, &self.core.log);
        core.check_scan()?;
        // Whatever the image knows to be dead is left out: it is the newest of no key.
        let image = Arc::clone(&self.view.image);
        let mut merge = KeyMerge::new(core, image, self.seqno, false);
        let mut sealed = self.view.segments.sealed.clone();
        sealed.retain(|one| one.entry.last_seqno.get() > since);
        for level in Level::arrange(log, &core.fixed, &sealed)? {
            merge.add(level, Bound::Unbounded);
        }
        for unsealed in &self.view.segments.tail {
            for order in unsealed.orders(log, &core.hash) {
                let part = Part { start: unsealed.start, order, sealed: None };
                merge.add(Arc::new(Level::of(part)), Bound::Unbounded);
            }
        }
        Ok(merge)
    }

    /// Tells the next row of a merge, if its key is inside.
    #[inline(always)]
    fn next<R: Held<'a>>(
        &self,
        merge: &mut KeyMerge<'a, R>,
        is_inside: impl Fn(u64, &[u8]) -> bool,
        next: &mut Next<'a>,
    ) {
        next.lent = None;
        loop {
            match merge.next(&is_inside) {
                None => return,
                Some(Err(error)) => return next.set(Err(error)),
                Some(Ok(Head { record, .. })) => {
                    let header = record.header();
                    if header.kind == DELETE || header.is_expired(self.now) {
                        continue;
                    }
                    next.lent = record.lent().filter(|_| header.form() == ENC_RAW && !self.pins);
                    if next.lent.is_none() {
                        next.set(self.row(record.open()));
                    }
                    return;
                }
            }
        }
    }

    /// A row that was decrypted, or has to be expanded or pinned.
    fn row(&self, record: Opened<'a>) -> Result<Row<'a>> {
        let expanded = self.core.expand(&record)?.map(Arc::new);
        let _pin = self.pins.then(|| Arc::clone(&self.view));
        Ok(Row { record, expanded, _pin })
    }
}

/// What a scan comes to next. A row that is all lent is told by three words and put together where it is used; handing it over
/// whole, which is done by the million, would be most of the work.
#[derive(Default)]
struct Next<'a> {
    lent: Option<Lent<'a>>,
    other: Option<Result<Row<'a>>>,
}

impl<'a> Next<'a> {
    #[inline(never)]
    fn set(&mut self, row: Result<Row<'a>>) {
        self.other = Some(row);
    }

    #[inline]
    fn take(&mut self) -> Option<Result<Row<'a>>> {
        match self.lent {
            Some(lent) => Some(Ok(Row { record: lent.open(), expanded: None, _pin: None })),
            None => self.other.take(),
        }
    }
}

/// A merge of records as they lie, or of such as have to be opened.
enum Merge<'a> {
    Plain(KeyMerge<'a, Lent<'a>>),
    Sealed(KeyMerge<'a, Opened<'a>>),
}

impl<'a> Merge<'a> {
    fn new(rows: &Rows<'a>, from: Bound<&[u8]>, is_reverse: bool) -> Merge<'a> {
        match rows.core.log.vault() {
            None => Merge::Plain(rows.merge(from, is_reverse)),
            Some(_) => Merge::Sealed(rows.merge(from, is_reverse)),
        }
    }

    /// Tells the next row, if its key is inside.
    #[inline(always)]
    fn next(
        &mut self,
        rows: &Rows<'a>,
        is_inside: impl Fn(u64, &[u8]) -> bool,
        next: &mut Next<'a>,
    ) {
        match self {
            Merge::Plain(merge) => rows.next(merge, is_inside, next),
            Merge::Sealed(merge) => rows.next(merge, is_inside, next),
        }
    }

    fn last_key(&self) -> Option<&[u8]> {
        match self {
            Merge::Plain(merge) => merge.last_key(),
            Merge::Sealed(merge) => merge.last_key(),
        }
    }
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
/// A record that is damaged is an error, and the scan goes on behind it. If older records of its key are left, or of others with
/// its hash, those keys are errors, too, for nobody can tell whether they are the newest.
pub struct Scan<'a> {
    rows: Rows<'a>,
    range: KeyRange,
    /// The first eight bytes of both bounds, by which most keys are told.
    prefixes: (u64, u64),
    front: Option<Merge<'a>>,
    back: Option<Merge<'a>>,
    next: Next<'a>,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(rows: Rows<'a>, range: KeyRange) -> Scan<'a> {
        let prefix = |bound: &Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => chunk(key, 0),
            Bound::Unbounded => 0,
        };
        let prefixes = (prefix(&range.0), prefix(&range.1));
        Scan { rows, range, prefixes, front: None, back: None, next: Next::default() }
    }

    /// Goes to a key: the next row from the front is the first at or past it. May go back, but not out of the range.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
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
        let to = Bound::Included(key.as_ref());
        let is_inside = match &self.range.1 {
            Bound::Included(last) | Bound::Excluded(last) => key.as_ref() < last.as_slice(),
            Bound::Unbounded => true,
        };
        let to = if is_inside { to } else { as_slice(&self.range.1) };
        self.back = Some(Merge::new(&self.rows, to, true));
    }
}

/// Compares a key with another, both told by their first eight bytes too.
#[inline]
fn compare(prefix: u64, key: &[u8], other_prefix: u64, other: &[u8]) -> Ordering {
    prefix.cmp(&other_prefix).then_with(|| key.cmp(other))
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

impl<'a> Scan<'a> {
    fn go_forward(&mut self) {
        let (rows, range) = (&self.rows, &self.range);
        let back_key = self.back.as_ref().and_then(Merge::last_key);
        let merge = self.front.get_or_insert_with(|| Merge::new(rows, as_slice(&range.0), false));
        let is_inside = |prefix: u64, key: &[u8]| {
            back_key.is_none_or(|back| key < back)
                && match &range.1 {
                    Bound::Included(last) => compare(prefix, key, self.prefixes.1, last).is_le(),
                    Bound::Excluded(last) => compare(prefix, key, self.prefixes.1, last).is_lt(),
                    Bound::Unbounded => true,
                }
        };
        merge.next(rows, is_inside, &mut self.next);
    }

    fn go_back(&mut self) {
        let (rows, range) = (&self.rows, &self.range);
        let front_key = self.front.as_ref().and_then(Merge::last_key);
        let merge = self.back.get_or_insert_with(|| Merge::new(rows, as_slice(&range.1), true));
        let is_inside = |prefix: u64, key: &[u8]| {
            front_key.is_none_or(|front| key > front)
                && match &range.0 {
                    Bound::Included(first) => compare(prefix, key, self.prefixes.0, first).is_ge(),
                    Bound::Excluded(first) => compare(prefix, key, self.prefixes.0, first).is_gt(),
                    Bound::Unbounded => true,
                }
        };
        merge.next(rows, is_inside, &mut self.next);
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = Result<Row<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.go_forward();
        self.next.take()
    }
}

impl DoubleEndedIterator for Scan<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.go_back();
        self.next.take()
    }
}

impl fmt::Debug for Scan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").field("seqno", &self.rows.seqno).finish_non_exhaustive()
    }
}
