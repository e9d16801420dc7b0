//! Walking the segment region by its headers, for when the tables are lost.
//!
//! A walk hops from header to header by the length each tells and never looks for headers inside an extent: a value
//! may contain a whole bucket.

use zerocopy::little_endian::{U32, U64};

use crate::core::Fixed;
use crate::error::{Error, Result, What};
use crate::extent::{Extent, Geometry};
use crate::format::footer::Footer;
use crate::format::index_page::slot_hash;
use crate::format::meta::{self, Meta};
use crate::format::roster::{SEGMENT_GUARD, SEGMENT_MOVED, SegmentEntry};
use crate::format::run::OFFSET_MAX;
use crate::format::segment::{Kind, SegmentHeader};
use crate::key_sort::chunk;
use crate::log::Log;
use crate::root::{Root, SEQNO_LIMIT};
use crate::segment::Segment;
use crate::tail::next_record;

pub(crate) fn header_at(log: &Log, geometry: Geometry, page: u64) -> Result<SegmentHeader> {
    let at = geometry.paddr(page);
    log.bytes(at, SegmentHeader::SIZE)
        .and_then(SegmentHeader::decode)
        .filter(|header| header.base_seqno.get() < SEQNO_LIMIT)
        .ok_or_else(|| Error::corrupt(What::SegmentHeader, at))
}

/// Finds every sealed segment that is in no named extent.
pub(crate) fn rebuild_table(log: &Log, fixed: &Fixed, root: &Root) -> Result<Vec<SegmentEntry>> {
    let geometry = fixed.geometry;
    let end = root.superblock.segment_end_page.get();
    let mut entries = Vec::new();
    let mut page = fixed.segment_start_page;
    while page < end {
        let header = header_at(log, geometry, page)?;
        let at = geometry.paddr(page);
        let named = root.roster.named.iter().find(|named| named.start_page.get() == page);
        let pages = match named {
            Some(named) => u64::from(named.page_count.get()),
            None => header
                .page_count(geometry.page_size)
                .ok_or_else(|| Error::corrupt(What::SegmentHeader, at))?,
        };
        let extent = Extent::new(page, pages);
        extent.check_within(page, end, at)?;
        if let (Some(vault), Some(Kind::Data)) = (log.vault(), header.kind()) {
            vault.admit_all([(at, geometry.paddr(extent.end_page()), header.seg_id.get())]);
        }
        if named.is_none() && header.kind() == Some(Kind::Data) {
            entries.push(entry_of(log, fixed, extent, &header)?);
        }
        page = extent.end_page();
    }
    Ok(entries)
}

fn entry_of(
    log: &Log,
    fixed: &Fixed,
    extent: Extent,
    header: &SegmentHeader,
) -> Result<SegmentEntry> {
    let geometry = fixed.geometry;
    let segment = read_records(log, fixed, extent, header);
    let footer_at = segment.end_paddr(geometry);
    let room = geometry.paddr(extent.end_page()) - footer_at;
    let footer = usize::try_from(room)
        .ok()
        .and_then(|room| log.bytes(footer_at, room))
        .and_then(Footer::decode)
        .filter(|footer| {
            footer.seg_id == segment.seg_id && footer.last_seqno == segment.last_seqno()
        })
        .ok_or_else(|| Error::corrupt(What::SegmentFooter, footer_at))?;
    let side = header_at(log, geometry, extent.end_page()).ok().and_then(|side| {
        let at = geometry.paddr(extent.end_page());
        let head = Meta::decode(log.bytes(at, geometry.page_len())?, meta::KIND_SIDE, fixed.uuid)?;
        (head.head.id == header.seg_id).then_some(side.page_count(geometry.page_size)?)
    });
    let count = |value: u64| U32::new(u32::try_from(value).unwrap_or(u32::MAX));
    Ok(SegmentEntry {
        start_page: U64::new(extent.start_page),
        data_page_count: count(extent.page_count),
        meta_page_count: count(side.unwrap_or(0)),
        seg_id: header.seg_id,
        base_seqno: header.base_seqno,
        last_seqno: U64::new(footer.last_seqno),
        dead_bytes: U64::new(0),
        record_count: count(segment.count()),
        flags: U32::new(segment.style.entry_flags()),
        record_bytes: U64::new(segment.len - segment.header_len()),
        delete_bytes: U64::new(segment.len - segment.header_len() - segment.live_bytes),
        expiring_bytes: U64::new(segment.expiring.bytes),
        expires_first_ns: U64::new(segment.expiring.first_ns),
        expires_last_ns: U64::new(segment.expiring.last_ns),
    })
}

/// Reads a registered segment whose run is lost.
pub(crate) fn rescan(log: &Log, fixed: &Fixed, entry: &SegmentEntry) -> Result<Segment> {
    let geometry = fixed.geometry;
    let page = entry.start_page.get();
    let header = header_at(log, geometry, page)?;
    let extent = Extent::new(page, u64::from(entry.data_page_count.get()));
    // The table is the one to believe about what kind of segment it is.
    let flags = entry.flags.get();
    let is_as_registered = header.is_moved() == (flags & SEGMENT_MOVED != 0)
        && header.is_guard() == (flags & SEGMENT_GUARD != 0);
    if !is_as_registered {
        return Err(Error::corrupt(What::SegmentHeader, geometry.paddr(page)));
    }
    let segment = read_records(log, fixed, extent, &header);
    if segment.count() == u64::from(entry.record_count.get()) {
        Ok(segment)
    } else {
        Err(Error::corrupt(What::Record, segment.end_paddr(geometry)))
    }
}

/// Reads records from the start of a segment until one does not hold.
pub(crate) fn read_records(
    log: &Log,
    fixed: &Fixed,
    extent: Extent,
    header: &SegmentHeader,
) -> Segment {
    let geometry = fixed.geometry;
    let is_moved = header.is_moved();
    let mut segment = Segment::new(
        extent,
        header.seg_id.get(),
        header.base_seqno.get(),
        header.start_unix_ns.get(),
        header.writer_pid.get(),
        fixed.style().of(header),
    );
    segment.cipher = log.cipher(geometry.paddr(extent.start_page)).map(|(_, cipher)| cipher);
    loop {
        let seqno = (!is_moved).then(|| segment.base_seqno + segment.count());
        let Some(record) = next_record(log, geometry, &segment, seqno) else { break };
        if segment.len > u64::from(OFFSET_MAX) {
            break;
        }
        let prefix = chunk(record.key(), 0);
        segment.push(slot_hash(record.header.hash64.get()), prefix, record.header);
    }
    if is_moved {
        segment.settle_seqnos();
    }
    segment
}
