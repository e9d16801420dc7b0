//! The tail: records that no registered segment holds, found by walking the extents the superblock names.
//!
//! The walk follows seqnos: a record counts only if its CRCs hold and its seqno is the next one; a segment goes on
//! where the one before ended. It ends at the first record that does not fit, and what counts ends at the last
//! commit mark before that.

use host::planted::{Bug, is_planted};

use crate::clock::Stamps;
use crate::core::Fixed;
use crate::extent::{Extent, Geometry};
use crate::format::index_page::slot_hash;
use crate::format::roster::{NAMED_LOG, NamedExtent};
use crate::format::segment::{Kind, SegmentHeader};
use crate::key_sort::chunk;
use crate::log::Log;
use crate::opened::Opened;
use crate::root::SEQNO_LIMIT;
use crate::segment::{Segment, Style};

/// What the walk found.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Segments with committed records, cut behind the last of them, in order.
    pub(crate) segments: Vec<Segment>,
    /// Extents with nothing committed in them but a segment begun.
    pub(crate) abandoned: Vec<NamedExtent>,
    /// Extents nothing was written to.
    pub(crate) untouched: Vec<NamedExtent>,
    /// The seqno the walk was looking for when it ended.
    pub(crate) next_seqno: u64,
    /// Where it looked.
    pub(crate) stopped_at: u64,
    /// Records that held.
    pub(crate) scanned: u64,
    /// Records that held but were committed by no mark.
    pub(crate) discarded: u64,
    /// Bytes looked at.
    pub(crate) bytes: u64,
    /// Time stamps of committed records.
    pub(crate) stamps: Stamps,
    /// The same with those of a batch whose end was not found yet. Any record of it may have the newest.
    pending: Stamps,
}

/// A point behind a commit mark.
#[derive(Clone, Copy)]
struct Cut {
    segment: usize,
    count: usize,
    len: u64,
    live_bytes: u64,
    scanned: u64,
}

/// Walks the named extents from `tail_seqno`, up to a seqno at most.
pub(crate) fn scan(
    log: &Log,
    fixed: &Fixed,
    named: &[NamedExtent],
    tail_seqno: u64,
    limit: u64,
    stamps: Stamps,
) -> Tail {
    let (geometry, style) = (fixed.geometry, fixed.style());
    let mut tail = Tail { next_seqno: tail_seqno, stamps, pending: stamps, ..Tail::default() };
    let mut begun = Vec::new();
    for extent in named {
        if extent.kind.get() != NAMED_LOG {
            // Output that was never registered counts for nothing.
            tail.abandoned.push(*extent);
            continue;
        }
        match begun_segment(log, geometry, extent, style) {
            Some(segment) => begun.push((segment, *extent)),
            None => tail.untouched.push(*extent),
        }
    }
    begun.sort_by_key(|(segment, _)| segment.base_seqno);
    let first = named.first().map_or(0, |extent| geometry.paddr(extent.start_page.get()));
    tail.stopped_at = begun.first().map_or(first, |(segment, _)| segment.end_paddr(geometry));
    let mut cut: Option<Cut> = None;
    let mut walked = 0;
    for (index, (segment, _)) in begun.iter_mut().enumerate() {
        if segment.base_seqno != tail.next_seqno {
            break;
        }
        let start = geometry.paddr(segment.extent.start_page);
        let len = geometry.paddr(segment.extent.page_count);
        log.prefetch(start, usize::try_from(len).unwrap_or(usize::MAX));
        walk(log, geometry, segment, index, limit, &mut tail, &mut cut);
        tail.stopped_at = segment.end_paddr(geometry);
        walked = index + 1;
    }
    tail.discarded = tail.scanned - cut.map_or(0, |cut| cut.scanned);
    let kept = cut.map_or(0, |cut| cut.segment + 1);
    tracing::debug!(begun = begun.len(), walked, kept, "tail walked");
    for (index, (mut segment, extent)) in begun.into_iter().enumerate() {
        match cut {
            Some(cut) if cut.segment == index => {
                segment.truncate(cut.count, cut.len, cut.live_bytes);
                tail.segments.push(segment);
            }
            _ if index < kept => tail.segments.push(segment),
            _ => tail.abandoned.push(extent),
        }
    }
    tail
}

/// The segment begun in a named extent, with no records yet.
pub(crate) fn begun_segment(
    log: &Log,
    geometry: Geometry,
    named: &NamedExtent,
    style: Style,
) -> Option<Segment> {
    let start = geometry.paddr(named.start_page.get());
    let header = log
        .bytes(start, SegmentHeader::SIZE)
        .and_then(SegmentHeader::decode)
        .filter(|header| header.kind() == Some(Kind::Data) && header.seg_id == named.seg_id)
        // No output of compaction was ever begun there.
        .filter(|header| !header.is_moved() && !header.is_guard())
        .filter(|header| header.base_seqno.get() < SEQNO_LIMIT)?;
    let extent = Extent::new(named.start_page.get(), u64::from(named.page_count.get()));
    let mut segment = Segment::new(
        extent,
        header.seg_id.get(),
        header.base_seqno.get(),
        header.start_unix_ns.get(),
        header.writer_pid.get(),
        style.of(&header),
    );
    if let Some(vault) = log.vault() {
        vault.admit_all([(start, geometry.paddr(extent.end_page()), segment.seg_id)]);
        // Without a cipher there are no records that anyone could read.
        segment.cipher = Some(log.cipher(start)?.1);
    }
    Some(segment)
}

fn walk(
    log: &Log,
    geometry: Geometry,
    segment: &mut Segment,
    index: usize,
    limit: u64,
    tail: &mut Tail,
    cut: &mut Option<Cut>,
) {
    while let Some(record) = next_record(log, geometry, segment, Some(tail.next_seqno)) {
        let len = record.header.record_len();
        // A writer always leaves room to seal.
        if !segment.fits(geometry, len) || tail.next_seqno > limit {
            break;
        }
        let prefix = chunk(record.key(), 0);
        segment.push(slot_hash(record.header.hash64.get()), prefix, record.header);
        tail.next_seqno += 1;
        tail.scanned += 1;
        tail.bytes += len;
        tail.pending.note(record.header.timestamp_ns.get());
        if record.header.is_commit() || is_planted(Bug::HalfABatch) {
            tail.stamps = tail.pending;
            *cut = Some(Cut {
                segment: index,
                count: segment.entries.len(),
                len: segment.len,
                live_bytes: segment.live_bytes,
                scanned: tail.scanned,
            });
        }
    }
}

/// The record at a segment's end, if it is whole and inside the extent: the one with this seqno, or a moved one.
pub(crate) fn next_record<'a>(
    log: &'a Log,
    geometry: Geometry,
    segment: &Segment,
    seqno: Option<u64>,
) -> Option<Opened<'a>> {
    let room = geometry.paddr(segment.extent.page_count).checked_sub(segment.len)?;
    let record = log.record_within(segment.end_paddr(geometry), room)?;
    let is_next = match seqno {
        Some(seqno) => record.header.seqno.get() == seqno,
        None => record.header.is_moved() && record.header.seqno.get() < SEQNO_LIMIT,
    };
    is_next.then_some(record)
}
