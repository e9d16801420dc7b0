//! One crash point: what is durable there, and what is pending.
//!
//! The unit is the sector. Each pending change holds the full contents of every sector it touched
//! as they were after it.
//!
//! Invariants
//! - `durable` and `live` are whole sectors. Past the live length, `live` is zero.
//! - `durable` may know bytes past the durable length: a range sync made their sector durable while
//!   a shorter length is the one known to survive. They show if a longer length survives.
//! - Cutting a file off counts as writing zeros to what was cut, besides changing the length.

use std::collections::BTreeSet;
use std::ops::Range;

use super::trace::Op;
use crate::disk::SECTOR;

#[cfg(doc)]
use super::image::Keep;

pub(super) const UNIT: usize = 512;
const _: () = assert!(SECTOR == 512, "the simulated sector is the promised one");

/// The state of a disk just after some operation of its trace.
#[derive(Debug, Clone)]
pub struct Point {
    upto: usize,
    mark: Option<u64>,
    pub(super) durable: Vec<u8>,
    pub(super) durable_len: usize,
    pub(super) live: Vec<u8>,
    pub(super) live_len: usize,
    pub(super) pending: Vec<Change>,
}

/// The lasting effect of one operation, as far as it is not durable yet.
#[derive(Debug, Clone)]
pub(super) struct Change {
    /// Number of the first sector in `contents`.
    pub(super) first: usize,
    /// Whole sectors as they were after the operation.
    contents: Vec<u8>,
    /// One for every sector of `contents`.
    pub(super) states: Vec<State>,
    /// The length after the operation, if it changed the length.
    pub(super) len: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The next sync makes it durable.
    Dirty,
    /// A failed sync forgot it; it may or may not be on the medium.
    Forgotten,
    /// The sector has become durable in this or a newer version.
    Settled,
}

impl Change {
    /// The sectors that may or may not be found, with their contents.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let contents = self.contents.chunks_exact(UNIT).zip(&self.states).zip(self.first..);
        contents
            .filter(|((_, state), _)| **state != State::Settled)
            .map(|((bytes, _), sector)| (sector, bytes))
    }
}

impl Point {
    pub(super) fn new(initial: &[u8]) -> Self {
        let mut durable = initial.to_vec();
        durable.resize(initial.len().next_multiple_of(UNIT), 0);
        Point {
            upto: 0,
            mark: None,
            live: durable.clone(),
            live_len: initial.len(),
            durable,
            durable_len: initial.len(),
            pending: Vec::new(),
        }
    }

    /// How many operations of the trace lie before this point.
    pub fn upto(&self) -> usize {
        self.upto
    }

    /// The newest mark before this point.
    pub fn mark(&self) -> Option<u64> {
        self.mark
    }

    /// How many changes are pending; the numbers of [`Keep::DropOne`] and [`Keep::Prefix`] end
    /// here.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn apply(&mut self, op: &Op) {
        self.upto += 1;
        match op {
            Op::Write { offset, data } => self.write(position(*offset), data),
            Op::SetLen(len) => self.set_len(position(*len)),
            Op::Allocate { offset, len } => {
                let end = position(*offset) + position(*len);
                if *len > 0 && end > self.live_len {
                    self.set_len(end);
                }
            }
            Op::Punch { offset, len } => self.punch(*offset, *len),
            Op::Sync => self.sync(),
            Op::SyncRange { offset, len } => self.sync_range(*offset, *len),
            Op::SyncFailed { offset, len } => self.forget(&sectors(*offset, *len)),
            Op::Mark(mark) => self.mark = Some(*mark),
        }
    }

    fn write(&mut self, start: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let range = start..start + data.len();
        let longer = self.extend(range.end);
        let target = self.live.get_mut(range.clone()).expect("the live file covers the write");
        target.copy_from_slice(data);
        self.note(range, longer);
    }

    fn set_len(&mut self, len: usize) {
        if len < self.live_len {
            let cut = len..self.live_len;
            self.live.get_mut(cut.clone()).expect("the cut part is in the live file").fill(0);
            self.live_len = len;
            self.note(cut, Some(len));
        } else if let Some(len) = self.extend(len) {
            self.note(0..0, Some(len));
        }
    }

    fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.live_len.try_into().unwrap_or(u64::MAX));
        if offset < end {
            let range = position(offset)..position(end);
            self.live.get_mut(range.clone()).expect("the hole is in the live file").fill(0);
            self.note(range, None);
        }
    }

    /// Makes the live file at least this long; gives the length if that changed it.
    fn extend(&mut self, len: usize) -> Option<usize> {
        if len <= self.live_len {
            return None;
        }
        self.live_len = len;
        let whole = len.next_multiple_of(UNIT);
        if whole > self.live.len() {
            self.live.resize(whole, 0);
        }
        Some(len)
    }

    /// Adds a pending change: the live contents of a range, and a length.
    fn note(&mut self, range: Range<usize>, len: Option<usize>) {
        let (first, end) = (range.start / UNIT, range.end.div_ceil(UNIT));
        let contents = self.live.get(first * UNIT..end * UNIT).expect("whole sectors are live");
        let states = vec![State::Dirty; end - first];
        self.pending.push(Change { first, contents: contents.to_vec(), states, len });
    }

    fn sync(&mut self) {
        self.settle(&(0..usize::MAX));
        self.durable_len = self.live_len;
        let end = self.live_len.next_multiple_of(UNIT);
        self.live.truncate(end);
        self.durable.truncate(end);
        clear_tail(&mut self.durable, self.live_len);
        for change in &mut self.pending {
            change.len = None;
            // What a durable change of length has cut off cannot come back, not even the versions a
            // failed sync forgot.
            let start = change.first * UNIT;
            change.contents.truncate(end.saturating_sub(start));
            change.states.truncate(change.contents.len() / UNIT);
            clear_tail(&mut change.contents, self.live_len.saturating_sub(start));
        }
        self.prune();
    }

    fn sync_range(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        self.settle(&sectors(offset, len));
        // The range must be inside the surviving length, as far as it is inside the live one. Of
        // the lengths that serve, only the first is certain; those that do not serve are now
        // impossible.
        let end = usize::try_from(offset.saturating_add(len)).unwrap_or(usize::MAX);
        let needed = end.min(self.live_len);
        if self.durable_len < needed {
            let mut lengths = self.pending.iter().filter_map(|change| change.len);
            self.durable_len = lengths.find(|len| *len >= needed).unwrap_or(self.live_len);
        }
        for change in &mut self.pending {
            change.len = change.len.filter(|len| *len >= needed);
        }
        self.prune();
    }

    /// Makes the dirty sectors among `range` durable as they are live.
    fn settle(&mut self, range: &Range<usize>) {
        let mut settled = BTreeSet::new();
        for change in &self.pending {
            let states = change.states.iter().zip(change.first..);
            settled.extend(
                states
                    .filter(|(state, sector)| **state == State::Dirty && range.contains(sector))
                    .map(|(_, sector)| sector),
            );
        }
        if self.durable.len() < self.live.len() {
            self.durable.resize(self.live.len(), 0);
        }
        for sector in &settled {
            let at = sector * UNIT..(sector + 1) * UNIT;
            let live = self.live.get(at.clone()).expect("pending sectors are live");
            self.durable.get_mut(at).expect("as long as the live file").copy_from_slice(live);
        }
        // Older versions, forgotten ones included, can no longer be found.
        for change in &mut self.pending {
            for (state, sector) in change.states.iter_mut().zip(change.first..) {
                if settled.contains(&sector) {
                    *state = State::Settled;
                }
            }
        }
    }

    fn forget(&mut self, range: &Range<usize>) {
        for change in &mut self.pending {
            for (state, sector) in change.states.iter_mut().zip(change.first..) {
                if *state == State::Dirty && range.contains(&sector) {
                    *state = State::Forgotten;
                }
            }
        }
    }

    /// Drops changes with nothing left to choose.
    fn prune(&mut self) {
        self.pending.retain(|change| change.len.is_some() || change.open().next().is_some());
    }
}

/// Zeros the bytes from `end` on.
fn clear_tail(bytes: &mut [u8], end: usize) {
    bytes.get_mut(end..).unwrap_or_default().fill(0);
}

/// The sectors a range of bytes touches.
fn sectors(offset: u64, len: u64) -> Range<usize> {
    let end = offset.saturating_add(len).div_ceil(SECTOR);
    let bounded = |sector| usize::try_from(sector).unwrap_or(usize::MAX);
    bounded(offset / SECTOR)..bounded(end)
}

fn position(offset: u64) -> usize {
    usize::try_from(offset).expect("a simulated file fits in memory")
}
