//! The writer: appends groups of batches to the log, makes them durable, and publishes them.
//!
//! Invariants
//! - A seqno is given only to a record that goes to an extent a durable superblock names.
//! - Records of one group are contiguous in seqno; a batch's last record carries the commit mark.
//! - Order: records, sync (journal, sync), overlay, `published`. A reader never sees what may still be lost,
//!   unless the commit was relaxed.
//! - A segment goes to be sealed only when all its batches are published, except the pieces of a batch that is
//!   larger than a segment; those begin on a fresh segment, so that they can be freed whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::planted::{Bug, is_planted};
use zerocopy::little_endian::{U32, U64};

use crate::batch::{Batch, Life};
use crate::core::{Core, Position, lock};
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::index_page::slot_hash;
use crate::format::journal::{COMMIT, INDEX_DELETE, INDEX_INSERT, INDEX_UPDATE, JournalEntry};
use crate::format::record::{self, DELETE, MARK_COMMIT, RecordHeader, Stamp};
use crate::format::roster::{NAMED_LOG, NamedExtent};
use crate::key_sort::chunk;
use crate::options::Durability;
use crate::overlay::{DELETE_BIT, Keep};
use crate::ring::{Ring, uuid_tag};
use crate::segment::{Segment, sealed_page_count};
use crate::unsealed::Unsealed;
use crate::view::{Segments, View};

/// Overlay entries whose home slots are loaded ahead together.
const AHEAD: usize = 32;

/// Bytes of records up to which a copy is cheaper than a write of their own.
const PENDING_MAX: usize = 32 << 10;

/// Entries of scratch memory kept from one group to the next.
const CHANGES_KEPT: usize = 64 << 10;

/// The log's end.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) active: Option<Segment>,
    /// Room for a segment that takes what of the group does not fit the active one. Taken before anything is written, or others could take it
    /// when it is too late to refuse the group.
    next: Option<NamedExtent>,
    pub(crate) next_seqno: u64,
    pub(crate) ring: Ring,
    /// Bytes of the log that no sync has covered yet stand before what is written next.
    pub(crate) unsynced: bool,
    /// Scratch: slot hash and overlay entry of every record of the group.
    pub(crate) changes: Vec<(u64, u64)>,
    /// Scratch: ranges written by the group.
    written: Vec<(u64, u64)>,
    /// Scratch: records of small batches that are written together, and where they go.
    pending: Vec<u8>,
    pending_at: u64,
    /// Segments the group filled.
    pub(crate) filled: Vec<Segment>,
    /// Segments the group filled and handed over already, because it is larger than one.
    handed_over: Vec<Arc<Unsealed>>,
}

/// What a group needs.
#[derive(Clone, Copy, Debug)]
struct Demand {
    bytes: u64,
    count: u64,
    deletes_only: bool,
    /// Larger than a segment.
    is_big: bool,
}

impl Writer {
    pub(crate) fn new(next_seqno: u64, ring: Ring) -> Writer {
        Writer {
            active: None,
            next: None,
            next_seqno,
            ring,
            unsynced: false,
            changes: Vec::new(),
            written: Vec::new(),
            pending: Vec::new(),
            pending_at: 0,
            filled: Vec::new(),
            handed_over: Vec::new(),
        }
    }
}

impl Core {
    /// Commits a group of batches, each atomic by itself.
    pub(crate) fn commit_group(
        &self,
        writer: &mut Writer,
        batches: &mut [Batch],
        durability: Durability,
    ) -> Result<()> {
        self.check_writable()?;
        let demand = self.demand(batches);
        if demand.count == 0 {
            return if durability == Durability::Relaxed { Ok(()) } else { self.sync_log(writer) };
        }
        self.note_group(demand.bytes);
        self.secure_room(writer, batches, demand)?;
        let count = usize::try_from(demand.count).unwrap_or(usize::MAX);
        let result = self.secure_overlay(count).and_then(|()| {
            let result = self.append_group(writer, batches, demand, durability);
            self.latch(result)
        });
        if demand.is_big {
            // The group is what it is. What fails here stops the next one.
            let ended = self.lock_keeper().end_promise(self);
            let _ = self.latch(ended);
        }
        result
    }

    /// Only the one who holds the writer does this.
    fn note_group(&self, bytes: u64) {
        let before = self.group_bytes.load(Ordering::Relaxed);
        self.group_bytes.store(bytes.max(before - before.div_ceil(8)), Ordering::Relaxed);
    }

    fn demand(&self, batches: &[Batch]) -> Demand {
        let bytes = batches.iter().map(|batch| batch.bytes.len()).sum::<usize>();
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let puts: u64 = batches.iter().map(|batch| batch.puts).sum();
        Demand {
            bytes,
            count: batches.iter().map(|batch| batch.count).sum(),
            deletes_only: puts == 0,
            is_big: bytes > self.geometry().paddr(self.fixed.segment_page_max),
        }
    }

    fn append_group(
        &self,
        writer: &mut Writer,
        batches: &mut [Batch],
        demand: Demand,
        durability: Durability,
    ) -> Result<()> {
        writer.changes.clear();
        writer.changes.shrink_to(CHANGES_KEPT);
        writer.written.clear();
        writer.pending.clear();
        writer.handed_over.clear();
        if demand.is_big {
            self.roll(writer);
            self.hand_over(writer);
        }
        let timestamp_ns = self.clock.stamp();
        for batch in batches.iter_mut() {
            let appended = self.append_batch(writer, batch, demand, timestamp_ns);
            appended.map_err(|error| match error {
                // Too late to say that nothing was written.
                Error::NoSpace if !writer.written.is_empty() => Error::Io {
                    doing: "find space for the rest of a batch",
                    source: std::io::ErrorKind::StorageFull.into(),
                },
                other => other,
            })?;
        }
        self.write_pending(writer)?;
        self.make_durable(writer, durability)?;
        self.publish(writer)?;
        let oversized = |segment: &Segment| segment.extent.page_count > self.fixed.segment_page_max;
        if writer.active.as_ref().is_some_and(oversized) {
            self.roll(writer);
        }
        self.hand_over(writer);
        self.counters.wrote(demand.bytes, demand.count, batches.iter().map(|b| b.puts).sum());
        // The commit is done and seen. What fails from here on stops the next one.
        let after = self.after_commit(writer);
        let _ = self.latch(after);
        Ok(())
    }

    /// Stamps a batch's records where they lie and writes them, segment by segment.
    fn append_batch(
        &self,
        writer: &mut Writer,
        batch: &mut Batch,
        demand: Demand,
        timestamp_ns: u64,
    ) -> Result<()> {
        let geometry = self.geometry();
        let mut rest = batch.bytes.as_mut_slice();
        while !rest.is_empty() {
            let first_len = record_len(rest)?;
            if !writer.active.as_ref().is_some_and(|active| active.fits(geometry, first_len)) {
                self.write_pending(writer)?;
                self.begin_segment(writer, first_len, demand, timestamp_ns)?;
            }
            let active = writer.active.as_mut().ok_or(Error::Invalid("no active segment"))?;
            let start = geometry.paddr(active.extent.start_page);
            let piece_at = active.len;
            let mut piece_len = 0;
            while let Some(bytes) = rest.get_mut(piece_len..).filter(|bytes| !bytes.is_empty()) {
                let len = record_len(bytes)?;
                if !active.fits(geometry, len) {
                    break;
                }
                let len_usize = usize::try_from(len).unwrap_or(usize::MAX);
                let is_last = bytes.len() == len_usize;
                let bytes = bytes.get_mut(..len_usize).ok_or(Error::Invalid("short record"))?;
                let header: RecordHeader =
                    crate::format::read(bytes).ok_or(Error::Invalid("short record"))?;
                let key_len = usize::try_from(header.key_len.get()).unwrap_or(0);
                let key =
                    bytes.get(RecordHeader::SIZE..RecordHeader::SIZE + key_len).unwrap_or(&[]);
                let hash64 = self.hash.hash64(key);
                let prefix = chunk(key, 0);
                let (timestamp_ns, ttl_secs) = Life::of(&header).stamp(timestamp_ns);
                let stamp = Stamp {
                    seqno: writer.next_seqno,
                    hash64,
                    timestamp_ns,
                    ttl_secs,
                    reserved16: if is_last { MARK_COMMIT } else { 0 },
                };
                let (cipher, offset) = (active.cipher.as_deref(), active.len);
                record::stamp_sealed(bytes, stamp, |header, body| {
                    Some(cipher?.seal(header, offset, body))
                })
                .ok_or(Error::Invalid("short record"))?;
                let is_delete = header.kind == DELETE;
                let entry = start + active.len + if is_delete { DELETE_BIT } else { 0 };
                writer.changes.push((slot_hash(hash64), entry));
                let stamped = RecordHeader::of(bytes).ok_or(Error::Invalid("short record"))?;
                active.push(slot_hash(hash64), prefix, stamped);
                writer.next_seqno += 1;
                piece_len += len_usize;
            }
            let (piece, behind) = rest.split_at_mut(piece_len);
            self.write_piece(writer, start + piece_at, piece)?;
            rest = behind;
        }
        Ok(())
    }

    /// Writes records at the end of the active segment, or puts them aside to be written with others.
    fn write_piece(&self, writer: &mut Writer, at: u64, piece: &[u8]) -> Result<()> {
        if piece.len() > PENDING_MAX {
            self.write_pending(writer)?;
            return self.write_records(writer, at, piece);
        }
        if writer.pending.is_empty() {
            writer.pending_at = at;
        }
        writer.pending.extend_from_slice(piece);
        if writer.pending.len() > PENDING_MAX { self.write_pending(writer) } else { Ok(()) }
    }

    /// Writes what was put aside.
    fn write_pending(&self, writer: &mut Writer) -> Result<()> {
        if writer.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut writer.pending);
        let result = self.write_records(writer, writer.pending_at, &pending);
        writer.pending = pending;
        writer.pending.clear();
        result
    }

    fn write_records(&self, writer: &mut Writer, at: u64, records: &[u8]) -> Result<()> {
        let active = writer.active.as_ref().ok_or(Error::Invalid("no active segment"))?;
        self.disk.write_at(at, records).map_err(Error::io("write the log"))?;
        let start = self.geometry().paddr(active.extent.start_page);
        let end = at + u64::try_from(records.len()).unwrap_or(u64::MAX);
        if let Some(unsealed) = &active.unsealed {
            unsealed.reach(end - start);
        }
        // The header of a new segment is as undurable as its first records.
        let from = if at == start + active.header_len() { start } else { at };
        match writer.written.last_mut() {
            Some((last, len)) if *last + *len == from => *len += end - from,
            _ => writer.written.push((from, end - from)),
        }
        Ok(())
    }

    /// Puts the active segment aside and begins another one that can take a record of `first_len`.
    fn begin_segment(
        &self,
        writer: &mut Writer,
        first_len: u64,
        demand: Demand,
        now: u64,
    ) -> Result<()> {
        let geometry = self.geometry();
        self.roll(writer);
        if demand.is_big {
            let unsealed = writer.filled.iter().filter_map(|segment| segment.unsealed.clone());
            writer.handed_over.extend(unsealed);
            self.hand_over(writer);
        }
        let extent = match demand.is_big {
            true => self.piece_extent(first_len)?,
            false => writer.next.take().ok_or(Error::Invalid("a group without room"))?,
        };
        let mut segment = Segment::new(
            Extent::new(extent.start_page.get(), u64::from(extent.page_count.get())),
            extent.seg_id.get(),
            writer.next_seqno,
            now,
            self.env.pid(),
            self.fixed.style(),
        );
        let is_as_long = |before: &&Segment| before.extent.page_count == segment.extent.page_count;
        let expected = writer.filled.last().filter(is_as_long).map_or(0, |it| it.entries.len());
        segment.expect(expected);
        self.lock_up(&mut segment);
        let at = geometry.paddr(segment.extent.start_page);
        self.disk.write_at(at, &segment.header(0)).map_err(Error::io("begin a segment"))?;
        let unsealed = Arc::new(Unsealed::new(segment.seg_id, at, segment.len, segment.len));
        segment.unsealed = Some(Arc::clone(&unsealed));
        self.change_view(|view| {
            let mut segments = Segments::clone(&view.segments);
            segments.tail.push(unsealed);
            View { segments: Arc::new(segments), ..view.clone() }
        });
        writer.active = Some(segment);
        Ok(())
    }

    /// Gives a new segment of an encrypted bucket its cipher.
    pub(crate) fn lock_up(&self, segment: &mut Segment) {
        let Some(vault) = self.log.vault() else { return };
        let keys = vault.keys.load();
        let salt = keys.current.salt(&self.session_salt, segment.seg_id);
        let cipher = Arc::new(keys.current.segment(segment.seg_id, Some(salt)));
        let geometry = self.geometry();
        let (start, end) = (segment.extent.start_page, segment.extent.end_page());
        vault.admit(geometry.paddr(start), geometry.paddr(end), segment.seg_id, &cipher);
        segment.cipher = Some(cipher);
    }

    /// Ends the active segment, to be handed over when its batches are published.
    pub(crate) fn roll(&self, writer: &mut Writer) {
        writer.filled.extend(writer.active.take());
    }

    /// Gives ended segments to the keeper to be sealed.
    pub(crate) fn hand_over(&self, writer: &mut Writer) {
        if !writer.filled.is_empty() {
            self.lock_supply().sealing.extend(writer.filled.drain(..).map(Arc::new));
            self.supply_changed.notify_all();
        }
    }

    fn make_durable(&self, writer: &mut Writer, durability: Durability) -> Result<()> {
        if durability == Durability::Relaxed {
            writer.unsynced = true;
            return Ok(());
        }
        if durability == Durability::Sync && is_planted(Bug::JournalEarly) {
            let entries = self.journal_entries(writer)?;
            writer.ring.append(&*self.disk, &entries)?;
        }
        // Order: a durable commit behind an undurable one would be lost with it.
        let before = self.env.monotonic_ns();
        match *writer.written.as_slice() {
            [_] if is_planted(Bug::CommitNotSynced) => {}
            [(at, len)] if !writer.unsynced => {
                self.disk.sync_range(at, len).map_err(Error::io("sync the log"))?;
            }
            _ => self.sync_log(writer)?,
        }
        self.queue.synced_in(self.env.monotonic_ns().saturating_sub(before));
        if durability == Durability::Sync {
            let entries = self.journal_entries(writer)?;
            // Order: journal entries only after their records are durable (seed 002 section 7).
            writer.ring.append(&*self.disk, &entries)?;
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    pub(crate) fn sync_log(&self, writer: &mut Writer) -> Result<()> {
        let result = self.disk.sync().map_err(Error::io("sync the log"));
        self.latch(result)?;
        writer.unsynced = false;
        Ok(())
    }

    /// The seed's entries for the group: one per record where they fit, and the Commit.
    fn journal_entries(&self, writer: &Writer) -> Result<Vec<JournalEntry>> {
        let mut entries = Vec::new();
        let count = u64::try_from(writer.changes.len()).unwrap_or(u64::MAX);
        let first_seqno = writer.next_seqno - count;
        if count < writer.ring.room() {
            let view = self.view.load();
            for (seqno, &(hash, entry)) in (first_seqno..).zip(&writer.changes) {
                let is_delete = entry & DELETE_BIT != 0;
                // A damaged page must not fail a commit that is durable already.
                let is_known = view.has_hash(&self.log, hash).unwrap_or(false);
                let (index_pageid, slot_idx) = view.image.home_slot(hash);
                let kind = match (is_delete, is_known) {
                    (true, _) => INDEX_DELETE,
                    (false, true) => INDEX_UPDATE,
                    (false, false) => INDEX_INSERT,
                };
                let paddr = if is_delete { 0 } else { entry };
                // Slot hashes 2 and 3 may stand for the hashes 0 and 1; the record tells.
                let hash64 = match hash {
                    2 | 3 => self.log.record(entry & !DELETE_BIT)?.header.hash64.get(),
                    _ => hash,
                };
                entries.push(journal_entry(kind, seqno, hash64, index_pageid, slot_idx, paddr));
            }
        }
        let last = writer.next_seqno - 1;
        let active = writer.active.as_ref();
        let end = active.map_or(0, |active| active.end_paddr(self.geometry()));
        let seg_id = active.map_or(0, |active| active.seg_id);
        entries.push(journal_entry(COMMIT, last, uuid_tag(self.fixed.uuid), last, seg_id, end));
        Ok(entries)
    }

    /// Shows the group to readers.
    pub(crate) fn publish(&self, writer: &Writer) -> Result<()> {
        // Snapshots are taken between commits.
        let snapshots = lock(&self.snapshots);
        let view = self.view.load();
        let keep = Keep {
            published: self.published.load(Ordering::Relaxed),
            snapshot: snapshots.newest().unwrap_or(0),
        };
        if keep.snapshot == 0 {
            view.active.forget_history();
        }
        let still_here = writer.filled.iter().chain(&writer.active);
        let still_here = still_here.filter_map(|segment| segment.unsealed.as_ref());
        for unsealed in writer.handed_over.iter().chain(still_here) {
            view.active.hold(&unsealed.hold, unsealed.start);
        }
        for chunk in writer.changes.chunks(AHEAD) {
            // Independent loads first: their cache misses overlap.
            chunk.iter().for_each(|(hash, _)| view.active.touch(*hash));
            chunk.iter().for_each(|(hash, _)| view.active.touch_named(&self.log, *hash));
            for &(hash, entry) in chunk {
                view.active.set(&self.log, hash, entry, keep)?;
            }
        }
        let last = writer.next_seqno - 1;
        let end = writer.active.as_ref().map_or(0, |active| active.end_paddr(self.geometry()));
        *lock(&self.position) = Position { seqno: last, paddr: end };
        self.published.store(last, Ordering::Release);
        if let Some(bulletin) = &self.bulletin {
            bulletin.publish(last);
        }
        view.active.forget_undo();
        Ok(())
    }

    /// Makes sure, before a byte is written, that the group will find room.
    fn secure_room(&self, writer: &mut Writer, batches: &[Batch], demand: Demand) -> Result<()> {
        let geometry = self.geometry();
        if demand.is_big {
            let pieces = self.pieces(batches)?;
            let result = self.lock_keeper().promise(self, &pieces);
            return self.room_or_compaction(result);
        }
        // A group that failed before it got there.
        self.lock_supply().reserve.extend(writer.next.take());
        let in_active = writer.active.as_ref().is_some_and(|active| {
            let pages = active.sealed_pages_with(geometry, demand.bytes, demand.count);
            pages <= active.extent.page_count
        });
        let style = self.fixed.style();
        let needed =
            sealed_page_count(geometry, style, style.header_len() + demand.bytes, demand.count);
        if in_active {
            return Ok(());
        }
        writer.next = self.pick_extent(needed, demand.deletes_only);
        if writer.next.is_some() {
            return Ok(());
        }
        let requested = self.request_extent(needed, demand);
        self.room_or_compaction(requested.map(|extent| writer.next = Some(extent)))
    }

    /// On a full disk compaction may find something.
    fn room_or_compaction(&self, result: Result<()>) -> Result<()> {
        if matches!(result, Err(Error::NoSpace)) {
            self.ask_for_compaction();
        }
        self.latch(result)
    }

    fn request_extent(&self, needed: u64, demand: Demand) -> Result<NamedExtent> {
        let mut keeper = self.lock_keeper();
        keeper.tend(self)?;
        if let Some(extent) = self.pick_extent(needed, demand.deletes_only) {
            return Ok(extent);
        }
        {
            let supply = self.lock_supply();
            if supply.starved && supply.reserve.len() <= supply.spare(demand.deletes_only) {
                return Err(Error::NoSpace);
            }
        }
        let named = keeper.name_extent(self, needed, NAMED_LOG)?;
        keeper.checkpoint(self)?;
        Ok(named)
    }

    /// Takes the smallest extent of the reserve that is large enough, unless too much waits to be sealed already.
    fn pick_extent(&self, needed: u64, deletes_only: bool) -> Option<NamedExtent> {
        let mut supply = self.lock_supply();
        if supply.unsealed_pages() >= self.fixed.segment_page_max
            || supply.reserve.len() <= supply.spare(deletes_only)
        {
            return None;
        }
        let pages = |extent: &NamedExtent| u64::from(extent.page_count.get());
        let fitting =
            supply.reserve.iter().enumerate().filter(|(_, extent)| pages(extent) >= needed);
        let (at, _) = fitting.min_by_key(|(_, extent)| pages(extent))?;
        supply.drawn = true;
        let extent = supply.reserve.remove(at);
        self.supply_changed.notify_all();
        extent
    }

    /// Pages of the extents that the pieces of a group larger than a segment will take.
    fn pieces(&self, batches: &[Batch]) -> Result<Vec<u64>> {
        let geometry = self.geometry();
        let (max, style) = (self.fixed.segment_page_max, self.fixed.style());
        let mut pieces = Vec::new();
        let (mut len, mut count) = (style.header_len(), 0);
        for batch in batches {
            let mut rest = batch.bytes.as_slice();
            while !rest.is_empty() {
                let record = record_len(rest)?;
                if count == 0 || sealed_page_count(geometry, style, len + record, count + 1) > max {
                    (len, count) = (style.header_len(), 0);
                    pieces.push(sealed_page_count(geometry, style, len + record, 1).max(max));
                }
                len += record;
                count += 1;
                rest = usize::try_from(record).ok().and_then(|len| rest.get(len..)).unwrap_or(&[]);
            }
        }
        Ok(pieces)
    }
}

fn record_len(bytes: &[u8]) -> Result<u64> {
    let header: RecordHeader = crate::format::read(bytes).ok_or(Error::Invalid("short record"))?;
    Ok(header.record_len())
}

fn journal_entry(
    kind: u8,
    seqno: u64,
    hash64: u64,
    index_pageid: u64,
    slot_idx: u64,
    record_paddr: u64,
) -> JournalEntry {
    JournalEntry {
        kind,
        reserved: [0; 7],
        seqno: U64::new(seqno),
        hash64: U64::new(hash64),
        index_pageid: U64::new(index_pageid),
        slot_idx: U64::new(slot_idx),
        record_paddr: U64::new(record_paddr),
        crc32c: U32::new(0),
    }
    .seal()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use host::{Disk, Limit, ManualEnv, SimDisk};

    use super::*;
    use crate::bucket::Bucket;
    use crate::options::Options;

    fn batch(first: u32, count: u32, len: usize) -> Batch {
        let mut batch = Batch::new();
        for number in first..first + count {
            batch.put(number.to_be_bytes(), vec![7; len]);
        }
        batch
    }

    /// Room was counted for the whole of a group and then taken batch by batch: several small extents, until none was left but that for
    /// deletes. The bucket stopped where it should have refused.
    #[test]
    fn a_group_finds_all_its_room_on_a_full_disk_or_none() {
        let (mut taken, mut refused) = (0, 0);
        for room in 0..80 {
            for (history, is_many) in [(2, true), (6, true), (30, true), (2, false), (30, false)] {
                let disk = SimDisk::new();
                let env = Arc::new(ManualEnv::new(1 << 60, room));
                let options = Options::default().background(false).segment_bytes_max(128 << 10);
                let bucket = Bucket::create_on(Arc::new(disk.reopen()), env, options).unwrap();
                for number in 0..history {
                    bucket.commit(batch(number * 20, 1 + number / 8, 300)).unwrap();
                }
                disk.set_limit(Some(match room % 2 {
                    0 => Limit::Length(disk.len().unwrap() + room * 4096),
                    _ => Limit::Blocks(disk.block_bytes() + room * 4096),
                }));
                let core = bucket.core();
                for round in 0..6 {
                    // Many batches of many threads; or one of records that are hardly longer than what the index keeps of them.
                    let mut group: Vec<Batch> = match is_many {
                        true => (0..60).map(|one| batch(10_000 + one, 1, 1000)).collect(),
                        false => vec![batch(20_000, 1800, 2)],
                    };
                    let mut writer = core.lock_writer();
                    match core.commit_group(&mut writer, &mut group, Durability::SyncOnce) {
                        Ok(()) => taken += 1,
                        Err(Error::NoSpace) => refused += 1,
                        Err(error) => panic!(
                            "room {room}, history {history}, many: {is_many}, {round}: {error}"
                        ),
                    }
                }
            }
        }
        assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
    }
}
