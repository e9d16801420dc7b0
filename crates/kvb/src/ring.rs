//! The journal ring. Recovery never needs it: it tells more than the superblock about what was durable, and tells
//! readers of the seed what they expect to find. Overrunning it is harmless.

#![allow(clippy::expect_used, reason = "sizes of structures")]

use host::Disk;
use host::planted::{Bug, is_planted};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::extent::Geometry;
use crate::format::journal::{self, COMMIT, JournalEntry};
use crate::log::Log;
use crate::root::SEQNO_LIMIT;

/// Writes entries round and round.
#[derive(Debug)]
pub(crate) struct Ring {
    geometry: Geometry,
    start_page: u64,
    capacity: u64,
    next: u64,
}

impl Ring {
    /// A ring that goes on behind its newest entry.
    pub(crate) fn new(geometry: Geometry, start_page: u64, page_count: u64, next: u64) -> Ring {
        let capacity = page_count * journal::entries_per_page(geometry.page_size);
        Ring { geometry, start_page, capacity, next: next % capacity.max(1) }
    }

    /// How many index entries a commit may write: half the ring, so that the last commits stay readable.
    pub(crate) fn room(&self) -> u64 {
        self.capacity / 2
    }

    /// Where its entries stand.
    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> {
        (0..self.capacity).map(|index| self.offset(index))
    }

    fn offset(&self, index: u64) -> u64 {
        let per_page = journal::entries_per_page(self.geometry.page_size);
        let entry = u64::try_from(JournalEntry::SIZE).expect("52");
        self.geometry.paddr(self.start_page + index / per_page) + index % per_page * entry
    }

    /// Writes entries and makes them durable: with one sync, or two where the ring begins again.
    pub(crate) fn append(&mut self, disk: &dyn Disk, entries: &[JournalEntry]) -> Result<()> {
        let per_page = journal::entries_per_page(self.geometry.page_size);
        let mut rest = entries;
        let mut unsynced: Option<(u64, u64)> = None;
        let sync = |(from, to): (u64, u64)| {
            disk.sync_range(from, to - from).map_err(Error::io("sync the journal"))
        };
        while !rest.is_empty() {
            let room = usize::try_from(per_page - self.next % per_page).expect("fits a page");
            let (part, behind) = rest.split_at(room.min(rest.len()));
            let (at, bytes) = (self.offset(self.next), part.as_bytes());
            disk.write_at(at, bytes).map_err(Error::io("write the journal"))?;
            let end = at + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            unsynced = match unsynced {
                Some((from, to)) if to <= at => Some((from, end)),
                Some(before) => {
                    sync(before)?;
                    Some((at, end))
                }
                None => Some((at, end)),
            };
            let end =
                if is_planted(Bug::JournalOverrun) { 2 * self.capacity } else { self.capacity };
            self.next = (self.next + u64::try_from(part.len()).unwrap_or(0)) % end;
            rest = behind;
        }
        unsynced.map_or(Ok(()), sync)?;
        tracing::trace!(entries = entries.len(), "journal_fsync");
        Ok(())
    }
}

/// What a look at the ring tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingReport {
    /// The highest seqno that a Commit entry of this bucket knew to be durable.
    pub(crate) durable_seqno: u64,
    /// Where the entry behind the newest one goes.
    pub(crate) next: u64,
    /// Entries that hold.
    pub(crate) entries: u64,
}

/// Folds a bucket's uuid into the field that ties Commit entries to it.
pub(crate) fn uuid_tag(uuid: (u64, u64)) -> u64 {
    uuid.0.rotate_left(1) ^ uuid.1
}

/// Reads the whole ring.
pub(crate) fn read_ring(
    log: &Log,
    geometry: Geometry,
    start_page: u64,
    page_count: u64,
    uuid: (u64, u64),
) -> RingReport {
    let ring = Ring::new(geometry, start_page, page_count, 0);
    let mut report = RingReport::default();
    let mut newest = 0;
    for index in 0..ring.capacity {
        let bytes = log.bytes(ring.offset(index), JournalEntry::SIZE);
        let Some(entry) = bytes.and_then(JournalEntry::decode) else {
            continue;
        };
        report.entries += 1;
        if entry.seqno.get() >= newest {
            newest = entry.seqno.get();
            report.next = index + 1;
        }
        let is_ours =
            entry.hash64.get() == uuid_tag(uuid) && entry.index_pageid.get() < SEQNO_LIMIT;
        if entry.kind == COMMIT && is_ours {
            report.durable_seqno = report.durable_seqno.max(entry.index_pageid.get());
        }
    }
    report
}
