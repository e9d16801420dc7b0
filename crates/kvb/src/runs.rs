//! Runs of sealed segments, read through the mapping.
//!
//! After a crash the image may be behind by many segments. Their runs are then probed where they lie, until they have been
//! folded into the index; opening does not wait for that, nor for checking them (`late_run.rs`).

#![allow(clippy::expect_used, reason = "sizes of structures")]

use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;

use zerocopy::{FromBytes, IntoBytes};

use crate::cipher::BucketKey;
use crate::error::Result;
use crate::extent::{Extent, Geometry};
use crate::format::filter;
use crate::format::meta::{self, Meta};
use crate::format::roster::SegmentEntry;
use crate::format::run::{DELTA_FAR, RunEntry};
use crate::format::segment::SegmentHeader;
use crate::group::{Member, find_in_group};
use crate::log::Log;
use crate::opened::Opened;
use crate::overlay::DELETE_BIT;

/// A sealed segment's run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Where the segment starts.
    pub(crate) segment_paddr: u64,
    /// Seqno of its first record.
    pub(crate) base_seqno: u64,
    /// Entries in the run.
    pub(crate) count: usize,
    entries_at: u64,
    filter_at: u64,
    filter_len: usize,
}

/// What stands in the extent behind a registered segment.
pub(crate) struct SideData<'a> {
    log: &'a Log,
    at: u64,
    extent: &'a [u8],
    meta: Meta,
    /// What vouches for it in an encrypted bucket.
    key: Option<Arc<BucketKey>>,
}

impl<'a> SideData<'a> {
    /// Asks the system for the head and for where the filter mostly is, for those who are about to read many.
    pub(crate) fn prefetch(log: &Log, geometry: Geometry, entry: &SegmentEntry) {
        let page = entry.start_page.get() + u64::from(entry.data_page_count.get());
        let at = geometry.paddr(page);
        log.prefetch(at, geometry.page_len());
        let records = u64::from(entry.record_count.get());
        let words = usize::try_from(filter::word_count(records)).unwrap_or(0);
        let run = records * u64::try_from(RunEntry::SIZE).expect("16");
        // Behind the heads of three sections: run, filter, directory.
        log.prefetch(at + run, meta::body_offset(3) + words * size_of::<u64>());
    }

    /// The head of a registered segment's side data; `None` if it is damaged.
    pub(crate) fn load(
        log: &'a Log,
        geometry: Geometry,
        uuid: (u64, u64),
        entry: &SegmentEntry,
    ) -> Option<SideData<'a>> {
        let side = Extent::new(
            entry.start_page.get() + u64::from(entry.data_page_count.get()),
            u64::from(entry.meta_page_count.get()),
        );
        let at = geometry.paddr(side.start_page);
        let len = usize::try_from(geometry.paddr(side.page_count)).ok()?;
        let extent = log.bytes(at, len)?;
        let meta = Meta::decode(extent, meta::KIND_SIDE, uuid)?;
        let is_own = meta.head.id.get() == entry.seg_id.get()
            && meta.head.seqno.get() == entry.base_seqno.get()
            && meta.head.count.get() == u64::from(entry.record_count.get());
        let key = match log.vault() {
            Some(_) => {
                let start = geometry.paddr(entry.start_page.get());
                let header = SegmentHeader::decode(log.bytes(start, SegmentHeader::SIZE)?)?;
                Some(log.keys()?.of(header.key_no()).cloned()?)
            }
            None => None,
        };
        let side = SideData { log, at, extent, meta, key };
        (is_own && side.is_vouched_for(0, side.meta.head.as_bytes())).then_some(side)
    }

    /// True unless the bucket is encrypted and the MAC does not hold.
    fn is_vouched_for(&self, section: u32, bytes: &[u8]) -> bool {
        let Some(key) = &self.key else { return true };
        let macs = self.bytes_of(meta::SECTION_MAC);
        macs.is_some_and(|(_, macs)| key.vouches(&self.meta, macs, section, bytes))
    }

    /// Paddr and bytes of a section that is there and holds.
    pub(crate) fn section(&self, kind: u32) -> Option<(u64, &'a [u8])> {
        self.bytes_of(kind).filter(|(_, bytes)| self.is_vouched_for(kind, bytes))
    }

    fn bytes_of(&self, kind: u32) -> Option<(u64, &'a [u8])> {
        let section = self.meta.section(kind)?;
        let offset = usize::try_from(section.offset.get()).ok()?;
        let len = usize::try_from(section.length.get()).ok()?;
        let bytes = self.extent.get(offset..offset.checked_add(len)?)?;
        let at = self.at + section.offset.get();
        // All of it is about to be read, whoever may have told the system that nothing is read in order.
        self.log.prefetch(at, len);
        (crate::format::crc(bytes) == section.crc32c.get()).then_some((at, bytes))
    }
}

impl Run {
    /// Finds and checks the run of a registered segment; `None` if its side data is damaged.
    pub(crate) fn load(
        log: &Log,
        geometry: Geometry,
        uuid: (u64, u64),
        entry: &SegmentEntry,
    ) -> Option<Run> {
        let side = SideData::load(log, geometry, uuid, entry)?;
        let (entries_at, bytes) = side.section(meta::SECTION_RUN)?;
        let (filter_at, filter) = side.section(meta::SECTION_FILTER)?;
        let count = usize::try_from(entry.record_count.get()).ok()?;
        (bytes.len() == count.checked_mul(RunEntry::SIZE)?).then_some(Run {
            segment_paddr: geometry.paddr(entry.start_page.get()),
            base_seqno: entry.base_seqno.get(),
            count,
            entries_at,
            filter_at,
            filter_len: filter.len(),
        })
    }

    /// Where its filter stands, and how long it is.
    pub(crate) fn filter_place(&self) -> (u64, usize) {
        (self.filter_at, self.filter_len)
    }

    /// The i-th entry in order.
    #[inline]
    pub(crate) fn entry(&self, log: &Log, index: usize) -> Option<RunEntry> {
        if index >= self.count {
            return None;
        }
        let at = u64::try_from(index * RunEntry::SIZE).ok()?;
        log.bytes(self.entries_at + at, RunEntry::SIZE).and_then(crate::format::read)
    }

    /// All entries in order.
    pub(crate) fn entries<'a>(&self, log: &'a Log) -> Option<&'a [RunEntry]> {
        let bytes = log.bytes(self.entries_at, self.count.checked_mul(RunEntry::SIZE)?)?;
        <[RunEntry]>::ref_from_bytes(bytes).ok()
    }

    /// Where an entry's record starts.
    pub(crate) fn paddr(&self, entry: &RunEntry) -> u64 {
        self.segment_paddr + entry.record_offset()
    }

    /// Seqno of an entry's record.
    pub(crate) fn seqno(&self, log: &Log, entry: &RunEntry) -> u64 {
        match entry.seqno_delta.get() {
            // The header tells, and of a long record nothing else is read: many entries of a made-up run may name one.
            DELTA_FAR if log.vault().is_none() => {
                log.lost_record(self.paddr(entry)).map_or(0, |(_, seqno)| seqno)
            }
            DELTA_FAR => {
                log.record(self.paddr(entry)).map_or(0, |record| record.header.seqno.get())
            }
            delta => self.base_seqno + u64::from(delta),
        }
    }

    /// Slot hash, overlay entry and seqno of every record, oldest first.
    pub(crate) fn in_log_order(&self, log: &Log) -> Vec<(u64, u64, u64)> {
        let mut entries: Vec<RunEntry> =
            (0..self.count).filter_map(|index| self.entry(log, index)).collect();
        entries.sort_unstable_by_key(|entry| entry.seqno_delta.get());
        let change = |entry: &RunEntry| {
            let delete = if entry.is_delete() { DELETE_BIT } else { 0 };
            let seqno = self.seqno(log, entry);
            (entry.slot_hash.get(), self.paddr(entry) | delete, seqno)
        };
        entries.iter().map(change).collect()
    }

    /// True unless no record of the segment has this hash.
    pub(crate) fn may_have_hash(&self, log: &Log, hash: u64) -> bool {
        let filter = log.bytes(self.filter_at, self.filter_len);
        filter.is_none_or(|bytes| filter::may_contain(bytes, hash))
    }

    /// True if the segment has a record of a key that is older than a seqno, or if that cannot be told.
    pub(crate) fn has_older(&self, log: &Log, hash: u64, key: &[u8], seqno: u64) -> bool {
        if !self.may_have_hash(log, hash) {
            return false;
        }
        // Within a hash they are ordered by key; a key that cannot be read tells nothing about the others.
        let is_lost = Cell::new(false);
        let is_before = |entry: &RunEntry| match entry.slot_hash.get().cmp(&hash) {
            Ordering::Equal => match log.try_record(self.paddr(entry)) {
                Some(record) => record.key() < key,
                None => {
                    is_lost.set(true);
                    false
                }
            },
            other => other == Ordering::Less,
        };
        let first = self.first_unless(log, is_before);
        let has_older = |entry: RunEntry| self.seqno(log, &entry) < seqno;
        let is_key = |entry: &RunEntry| match log.try_record(self.paddr(entry)) {
            Some(record) => record.key() == key,
            None => true,
        };
        is_lost.get()
            || (first..self.count)
                .map_while(|at| self.entry(log, at).filter(|entry| entry.slot_hash.get() == hash))
                .take_while(is_key)
                .any(has_older)
    }

    /// Place of the first entry with a hash at or past this one.
    fn first_of(&self, log: &Log, hash: u64) -> usize {
        self.first_unless(log, |entry| entry.slot_hash.get() < hash)
    }

    /// Place of the first entry that is not before what is looked for.
    fn first_unless(&self, log: &Log, is_before: impl Fn(&RunEntry) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(log, middle).is_some_and(|entry| is_before(&entry)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The newest record of a key in this segment.
    pub(crate) fn find<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Opened<'a>>> {
        if !self.may_have_hash(log, hash) {
            return Ok(None);
        }
        let low = self.first_of(log, hash);
        find_in_group(log, hash, key, |index| {
            let at = usize::try_from(index).ok().and_then(|index| low.checked_add(index));
            let entry = at.and_then(|at| self.entry(log, at));
            let entry = entry.filter(|entry| entry.slot_hash.get() == hash);
            Ok(entry.map_or(Member::End, |entry| Member::At(self.paddr(&entry))))
        })
    }
}
