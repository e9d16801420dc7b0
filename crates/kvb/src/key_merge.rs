//! Merging levels by key: of every key the newest record in sight, lowest key first, or highest first.
//!
//! Invariants
//! - Tombstones are always looked at: a dead record that looks live by its bit must meet the one that hides it.
//! - A record that cannot be read is an error in its place. What its header or its run says of it keeps older records of
//!   its hash from being taken for the newest: each key of those is an error, too. If not even that is known, the merge ends
//!   there. Its key counts only if the hash vouches for it: keys made to collide can be a flipped bit apart.

use std::cmp::Ordering;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

use crate::core::Core;
use crate::error::{Error, Result, What};
use crate::image::Image;
use crate::key_sort::chunk;
use crate::level::{Level, Part};
use crate::log::Log;
use crate::opened::{Held, Opened};
use crate::order::Place;
use crate::sealed::ByOffset;

/// How many records later one is loaded.
const AHEAD: usize = 8;
/// Bytes that are loaded of each of the first ones.
const FIRST_BYTES: usize = 192;

/// All levels in one order.
pub(crate) struct KeyMerge<'a, R = Opened<'a>> {
    core: &'a Core,
    image: Arc<Image>,
    /// Asked once: what is passed over must not change on the way.
    has_bits: bool,
    /// No record with a higher one is looked at.
    seqno: u64,
    is_reverse: bool,
    cursors: Vec<Cursor<'a, R>>,
    /// The next of all, and those of the other cursors. Behind a full compaction there are no others.
    top: Option<Head<'a, R>>,
    heads: BinaryHeap<Head<'a, R>>,
    /// The last record given, and its prefix.
    last: Option<(u64, R)>,
    damage: Damage,
}

/// A place in a level.
struct Cursor<'a, R> {
    level: Arc<Level>,
    part: usize,
    /// Place in the part of the next record, or backwards of the one before that.
    next: usize,
    /// The image's bits speak of the part.
    has_bits: bool,
    /// Backwards: the record behind the last one given.
    ahead: Option<Head<'a, R>>,
}

/// A record in the merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a, R = Opened<'a>> {
    prefix: u64,
    pub(crate) record: R,
    /// Its value cannot be read.
    is_damaged: bool,
    pub(crate) paddr: u64,
    /// Where its segment starts.
    pub(crate) segment: u64,
    cursor: u32,
    is_reverse: bool,
    _log: PhantomData<&'a ()>,
}

impl<'a, R: Held<'a>> Head<'a, R> {
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.record.key()
    }

    #[inline]
    pub(crate) fn seqno(&self) -> u64 {
        self.record.header().seqno.get()
    }

    fn has_key_of(&self, other: &Head<'a, R>) -> bool {
        self.prefix == other.prefix && self.key() == other.key()
    }
}

impl<'a, R: Held<'a>> Ord for Head<'a, R> {
    /// The greatest comes first: of the lowest key (or the highest, backwards) the newest.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = self.prefix.cmp(&other.prefix).then_with(|| self.key().cmp(other.key()));
        let keys = if self.is_reverse { keys } else { keys.reverse() };
        keys.then_with(|| self.seqno().cmp(&other.seqno()))
    }
}

impl<'a, R: Held<'a>> PartialOrd for Head<'a, R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a, R: Held<'a>> PartialEq for Head<'a, R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<'a, R: Held<'a>> Eq for Head<'a, R> {}

/// What could not be read.
#[derive(Default)]
struct Damage {
    /// To be told before the next record.
    errors: VecDeque<Error>,
    /// Records that cannot be read, by slot hash: the newest one's seqno, and where it is.
    lost: HashMap<u64, (u64, u64)>,
    /// What the run of one segment says of its records, if that was needed.
    told: Option<(u64, ByOffset)>,
    /// Of some record not even that is known, so everything behind it would be a guess.
    is_blind: bool,
}

impl Damage {
    /// Slot hash and seqno of a record of a registered segment, as its run tells.
    fn by_run(&mut self, core: &Core, part: &Part, paddr: u64) -> Option<(u64, u64)> {
        let sealed = part.sealed.as_ref()?;
        if self.told.as_ref().is_none_or(|(start, _)| *start != part.start) {
            self.told = Some((part.start, sealed.by_offset(&core.log, &core.fixed)));
        }
        self.told.as_ref()?.1.get(&(paddr - part.start)).copied()
    }
}

impl<'a, R: Held<'a>> KeyMerge<'a, R> {
    /// A merge of nothing yet, of records up to a seqno. The image's bits tell which records of the segments it covers
    /// are dead.
    pub(crate) fn new(
        core: &'a Core,
        image: Arc<Image>,
        seqno: u64,
        is_reverse: bool,
    ) -> KeyMerge<'a, R> {
        KeyMerge {
            core,
            has_bits: image.liveness().is_some(),
            image,
            seqno,
            is_reverse,
            cursors: Vec::new(),
            top: None,
            heads: BinaryHeap::new(),
            last: None,
            damage: Damage::default(),
        }
    }

    /// Adds a level from a bound on.
    pub(crate) fn add(&mut self, level: Arc<Level>, from: Bound<&[u8]>) {
        for part in &level.parts {
            for place in part.order.lost() {
                self.note_damage(part, part.start + Place(*place).offset());
            }
        }
        let mut cursor = Cursor { level, part: 0, next: 0, has_bits: false, ahead: None };
        cursor.start(&self.core.log, from, self.is_reverse);
        cursor.touch_first(&self.core.log, self.is_reverse);
        cursor.note_part(self.bits_of());
        self.cursors.push(cursor);
        self.heads.extend(self.top.take());
        self.fetch(self.cursors.len() - 1);
    }

    /// Key of the last record given.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        self.last.as_ref().map(|(_, last)| last.key())
    }

    /// The image, if its bits are to be asked.
    fn bits_of(&self) -> Option<&Image> {
        self.has_bits.then_some(&*self.image)
    }

    /// Gives an error before the next record.
    pub(crate) fn fail(&mut self, error: Error) {
        self.damage.errors.push_back(error);
        self.damage.is_blind = true;
    }

    /// The newest record in sight of the next key, if its key, told also by its first eight bytes, is inside. Behind that
    /// there are no more.
    #[inline]
    pub(crate) fn next(
        &mut self,
        is_inside: impl Fn(u64, &[u8]) -> bool,
    ) -> Option<Result<Head<'a, R>>> {
        loop {
            if let Some(error) = self.damage.errors.pop_front() {
                return Some(Err(error));
            }
            if self.damage.is_blind {
                return None;
            }
            let head = self.top.take()?;
            if !is_inside(head.prefix, head.key()) {
                self.heads.clear();
                return None;
            }
            self.fetch(usize::try_from(head.cursor).unwrap_or(usize::MAX));
            let last = self.last.as_ref();
            let is_older = last
                .is_some_and(|(prefix, last)| *prefix == head.prefix && last.key() == head.key());
            if is_older {
                continue;
            }
            let hider = self.hider(&head);
            self.last = Some((head.prefix, head.record.clone()));
            return Some(match hider.or(head.is_damaged.then_some(head.paddr)) {
                Some(paddr) => Err(Error::corrupt(What::Record, paddr)),
                None => Ok(head),
            });
        }
    }

    /// A record that cannot be read and may be a newer one of the key.
    #[inline]
    fn hider(&self, head: &Head<'a, R>) -> Option<u64> {
        if self.damage.lost.is_empty() {
            return None;
        }
        let (seqno, paddr) = self.damage.lost.get(&self.core.hash.slot_hash(head.key()))?;
        (*seqno > head.seqno()).then_some(*paddr)
    }

    #[cold]
    fn note_damage(&mut self, part: &Part, paddr: u64) {
        if self.hide_older(part, paddr) {
            self.damage.errors.push_back(Error::corrupt(What::Record, paddr));
        }
    }

    /// Keeps what is older than a record that cannot be read from being taken for the newest. False if nobody should see it.
    fn hide_older(&mut self, part: &Part, paddr: u64) -> bool {
        let known = self.core.log.lost_record(paddr);
        match known.or_else(|| self.damage.by_run(self.core, part, paddr)) {
            Some((_, seqno)) if seqno > self.seqno => return false,
            Some((hash, seqno)) => {
                let lost = self.damage.lost.entry(hash).or_default();
                *lost = (seqno, paddr).max(*lost);
            }
            None => self.damage.is_blind = true,
        }
        true
    }

    /// A record that cannot be read, in its place if that can be told by its key.
    #[cold]
    fn damaged_head(&mut self, index: usize, paddr: u64) -> Option<R> {
        let cursor = self.cursors.get(index)?;
        let (level, number) = (Arc::clone(&cursor.level), cursor.part);
        let part = level.parts.get(number)?;
        match R::read_head(&self.core.log, paddr, &self.core.hash) {
            Some(head) => self.hide_older(part, paddr).then_some(head),
            None => {
                self.note_damage(part, paddr);
                None
            }
        }
    }

    /// Makes the first of the heads and of the next record of a cursor the top, of which there is none.
    #[inline]
    fn fetch(&mut self, index: usize) {
        if self.is_reverse {
            self.fetch_newest(index);
        } else {
            self.fetch_any(index);
        }
        if let Some(mut other) = self.heads.peek_mut() {
            match &mut self.top {
                None => self.top = Some(PeekMut::pop(other)),
                Some(top) if *top < *other => std::mem::swap(top, &mut *other),
                Some(_) => {}
            }
        }
    }

    /// Makes the next record of a cursor the top, backwards: of one key the oldest comes first that way.
    fn fetch_newest(&mut self, index: usize) {
        let ahead = self.cursors.get_mut(index).and_then(|cursor| cursor.ahead.take());
        match ahead {
            Some(head) => self.top = Some(head),
            None => self.fetch_any(index),
        }
        while let Some(head) = self.top.take() {
            self.fetch_any(index);
            let is_next_key = self.top.as_ref().is_none_or(|next| !next.has_key_of(&head));
            if is_next_key {
                let next = self.top.replace(head);
                if let Some(cursor) = self.cursors.get_mut(index) {
                    cursor.ahead = next;
                }
                return;
            }
        }
    }

    /// Makes the next record of a cursor that is in sight and may be live the top. It is made in its place: copying what
    /// has just been written stalls, and scans do this by the million.
    #[inline]
    fn fetch_any(&mut self, index: usize) {
        let log = &self.core.log;
        self.top = None;
        loop {
            let image = self.has_bits.then_some(&*self.image);
            let Some(cursor) = self.cursors.get_mut(index) else { return };
            let Some(step) = cursor.step(log, image, self.is_reverse) else { return };
            cursor.touch_ahead(log, self.is_reverse);
            let bits = if cursor.has_bits { self.image.liveness() } else { None };
            if !step.is_delete && bits.is_some_and(|bits| !bits.may_be_live(step.paddr)) {
                continue;
            }
            let sound = R::read(log, step.paddr);
            let is_damaged = sound.is_none();
            let Some(record) = sound.or_else(|| self.damaged_head(index, step.paddr)) else {
                continue;
            };
            if record.header().seqno.get() <= self.seqno {
                self.top = Some(Head {
                    prefix: chunk(record.key(), 0),
                    record,
                    is_damaged,
                    paddr: step.paddr,
                    segment: step.segment,
                    cursor: u32::try_from(index).unwrap_or(u32::MAX),
                    is_reverse: self.is_reverse,
                    _log: PhantomData,
                });
                return;
            }
        }
    }
}

/// Where a cursor comes to next.
struct Step {
    segment: u64,
    paddr: u64,
    is_delete: bool,
}

impl<R> Cursor<'_, R> {
    /// Goes to the first record inside a bound.
    fn start(&mut self, log: &Log, from: Bound<&[u8]>, is_reverse: bool) {
        let last = self.level.parts.len().saturating_sub(1);
        (self.part, self.next) = match (from, is_reverse) {
            (Bound::Included(key), false) => self.level.seek(log, key, false, false),
            (Bound::Excluded(key), false) => self.level.seek(log, key, true, false),
            // Backwards: behind the last record inside.
            (Bound::Included(key), true) => self.level.seek(log, key, true, true),
            (Bound::Excluded(key), true) => self.level.seek(log, key, false, true),
            (Bound::Unbounded, false) => (0, 0),
            (Bound::Unbounded, true) => {
                (last, self.level.parts.last().map_or(0, |part| part.order.len()))
            }
        };
    }

    /// Notes whether an image's bits speak of the part the cursor is in.
    fn note_part(&mut self, image: Option<&Image>) {
        let part = self.level.parts.get(self.part);
        let sealed = part.and_then(|part| part.sealed.as_ref()).filter(|one| !one.is_guard());
        self.has_bits = image.zip(sealed).is_some_and(|(image, sealed)| image.covers(sealed));
    }

    /// Loads the first records into the cache.
    fn touch_first(&self, log: &Log, is_reverse: bool) {
        let Some(part) = self.level.parts.get(self.part) else { return };
        for ahead in 0..AHEAD {
            let at = if is_reverse { self.next.wrapping_sub(ahead + 1) } else { self.next + ahead };
            let Some(paddr) = part.paddr(log, at) else { return };
            log.touch(paddr, FIRST_BYTES);
        }
    }

    /// Loads a record that comes a little later into the cache.
    #[inline]
    fn touch_ahead(&self, log: &Log, is_reverse: bool) {
        let part = self.level.parts.get(self.part);
        let at = if is_reverse { self.next.wrapping_sub(AHEAD) } else { self.next + AHEAD };
        if let Some(paddr) = part.and_then(|part| part.paddr(log, at)) {
            log.touch(paddr, 1);
        }
    }

    #[inline]
    fn step(&mut self, log: &Log, image: Option<&Image>, is_reverse: bool) -> Option<Step> {
        let at = if is_reverse {
            while self.next == 0 {
                self.part = self.part.checked_sub(1)?;
                self.next = self.level.parts.get(self.part)?.order.len();
                self.note_part(image);
            }
            self.next -= 1;
            self.next
        } else {
            while self.next >= self.level.parts.get(self.part)?.order.len() {
                self.part += 1;
                self.next = 0;
                self.note_part(image);
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
        })
    }
}
