//! A segment while it is written, and how it is sealed.
//!
//! Invariants
//! - Every record added leaves room behind it for the footer and the side data of all records so far, so a
//!   segment can always be sealed within its extent.
//! - Order of a seal: footer, side data and the header of what is left free; sync; then the segment's own
//!   header with its size. Until that header is on disk a walk hops over the whole extent, afterwards over
//!   its parts, which are durable by then.

use host::Disk;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::error::{Error, Result};
use crate::extent::{Extent, Geometry};
use crate::format::filter;
use crate::format::footer::{self, Footer, SparsePair};
use crate::format::meta::{self, Meta, MetaHead, Section};
use crate::format::roster::SegmentEntry;
use crate::format::run::{DELETE_BIT, OFFSET_MAX, RunEntry};
use crate::format::segment::{FLAG_DATA, Kind, SegmentHeader};
use crate::log::Log;

/// Bytes of the segment header.
pub(crate) const HEADER_LEN: u64 = 52;

/// Bytes written at once, so that no commit waits long for the file's lock.
const WRITE_MAX: usize = 256 << 10;

/// A segment whose records are in one extent.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Where it may grow.
    pub(crate) extent: Extent,
    /// Its id.
    pub(crate) seg_id: u64,
    /// Seqno of its first record.
    pub(crate) base_seqno: u64,
    /// When it was begun.
    pub(crate) start_unix_ns: u64,
    /// Who began it.
    pub(crate) writer_pid: u32,
    /// Bytes of header and records.
    pub(crate) len: u64,
    /// Bytes of PUT records.
    pub(crate) live_bytes: u64,
    /// Its records in log order.
    pub(crate) entries: Vec<RunEntry>,
}

/// Pages of side data for so many records.
fn side_page_count(geometry: Geometry, records: u64) -> u64 {
    let entry = u64::try_from(RunEntry::SIZE).expect("16");
    let body = u64::try_from(meta::body_offset(2)).expect("small");
    geometry.pages(body + records * entry + filter::word_count(records) * 8)
}

/// Pages a sealed segment takes with its footer and side data.
pub(crate) fn sealed_page_count(geometry: Geometry, len: u64, records: u64) -> u64 {
    geometry.pages(len + footer::encoded_len(records)) + side_page_count(geometry, records)
}

impl Segment {
    /// Paddr of the byte behind the last record.
    pub(crate) fn end_paddr(&self, geometry: Geometry) -> u64 {
        geometry.paddr(self.extent.start_page) + self.len
    }

    /// How many records it holds.
    pub(crate) fn count(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }

    /// Seqno of the last record; one less than the first if there is none.
    pub(crate) fn last_seqno(&self) -> u64 {
        (self.base_seqno + self.count()).saturating_sub(1)
    }

    /// True if one more record of this length leaves room to seal.
    pub(crate) fn fits(&self, geometry: Geometry, record_len: u64) -> bool {
        // A run can name only so far.
        self.len <= u64::from(OFFSET_MAX)
            && sealed_page_count(geometry, self.len + record_len, self.count() + 1)
                <= self.extent.page_count
    }

    /// Notes the record that stands at the end.
    pub(crate) fn push(&mut self, slot_hash: u64, is_delete: bool, record_len: u64) {
        let offset = u32::try_from(self.len).expect("records start below 2 GiB");
        let delta = u32::try_from(self.entries.len()).expect("an extent holds fewer records");
        self.entries.push(RunEntry {
            slot_hash: U64::new(slot_hash),
            offset: U32::new(if is_delete { offset | DELETE_BIT } else { offset }),
            seqno_delta: U32::new(delta),
        });
        self.len += record_len;
        if !is_delete {
            self.live_bytes += record_len;
        }
    }

    /// Its header; `segment_size` is 0 until it is sealed.
    pub(crate) fn header(&self, segment_size: u64) -> SegmentHeader {
        SegmentHeader {
            seg_id: U64::new(self.seg_id),
            base_seqno: U64::new(self.base_seqno),
            start_unix_ns: U64::new(self.start_unix_ns),
            flags: U64::new(FLAG_DATA),
            writer_pid: U32::new(self.writer_pid),
            reserved: U32::new(u32::try_from(self.extent.page_count).unwrap_or(0)),
            segment_size: U64::new(segment_size),
            header_crc32c: U32::new(0),
        }
        .seal()
    }

    /// Seals the segment and tells what is left of its extent. The caller syncs before it relies on the header.
    pub(crate) fn seal(
        &self,
        disk: &dyn Disk,
        log: &Log,
        geometry: Geometry,
        uuid: (u64, u64),
    ) -> Result<(SegmentEntry, Option<Extent>)> {
        let start = geometry.paddr(self.extent.start_page);
        let mut bytes = self.footer(log, start).encode();
        let segment_size = self.len + u64::try_from(bytes.len()).unwrap_or(0);
        let data_page_count = geometry.pages(segment_size);
        let side_at = geometry.paddr(data_page_count);
        let pad = usize::try_from(side_at - segment_size).expect("less than a page");
        bytes.resize(bytes.len() + pad, 0);
        let side = self.side_data(log, geometry, uuid);
        let side_len = u64::try_from(side.len()).unwrap_or(u64::MAX);
        let meta_page_count = geometry.pages(side_len);
        bytes.extend_from_slice(&side);

        let write =
            |at, bytes: &[u8]| disk.write_at(at, bytes).map_err(Error::io("seal a segment"));
        let mut at = start + self.len;
        for slice in bytes.chunks(WRITE_MAX) {
            write(at, slice)?;
            at += u64::try_from(slice.len()).unwrap_or(0);
        }
        let used = data_page_count + meta_page_count;
        let rest = (self.extent.page_count > used)
            .then(|| Extent::new(self.extent.start_page + used, self.extent.page_count - used));
        if let Some(rest) = rest {
            write_passive(disk, geometry, Kind::Free, rest)?;
        }
        // Order: the parts must be durable before the header leads a walk to them.
        disk.sync().map_err(Error::io("sync a sealed segment"))?;
        write(start, self.header(segment_size).as_bytes())?;
        tracing::trace!(seg_id = self.seg_id, records = self.count(), "segment_seal");
        let entry = SegmentEntry {
            start_page: U64::new(self.extent.start_page),
            data_page_count: U32::new(u32::try_from(data_page_count).unwrap_or(u32::MAX)),
            meta_page_count: U32::new(u32::try_from(meta_page_count).unwrap_or(u32::MAX)),
            seg_id: U64::new(self.seg_id),
            base_seqno: U64::new(self.base_seqno),
            last_seqno: U64::new(self.last_seqno()),
            dead_bytes: U64::new(0),
            record_count: U32::new(u32::try_from(self.entries.len()).unwrap_or(u32::MAX)),
            flags: U32::new(0),
        };
        Ok((entry, rest))
    }

    fn footer(&self, log: &Log, start: u64) -> Footer {
        let stride = usize::try_from(footer::STRIDE).expect("64");
        let pairs = self.entries.iter().step_by(stride).map(|entry| {
            let paddr = start + entry.record_offset();
            // Slot hashes 2 and 3 may stand for the hashes 0 and 1; the record tells.
            let hash64 = match entry.slot_hash.get() {
                2 | 3 => log.record(paddr).map_or(entry.slot_hash, |record| record.header.hash64),
                _ => entry.slot_hash,
            };
            SparsePair { hash64, paddr: U64::new(paddr) }
        });
        Footer {
            seg_id: self.seg_id,
            last_seqno: self.last_seqno(),
            live_bytes: self.live_bytes,
            pairs: pairs.collect(),
        }
    }

    /// The extent behind the segment: header, head, run, filter.
    fn side_data(&self, log: &Log, geometry: Geometry, uuid: (u64, u64)) -> Vec<u8> {
        let run = self.sorted_run(log, geometry);
        let filter = filter::build(run.iter().map(|entry| entry.slot_hash.get()));
        let body = meta::body_offset(2);
        let section = |kind, offset: usize, bytes: &[u8]| Section {
            kind: U32::new(kind),
            crc32c: U32::new(crate::format::crc(bytes)),
            offset: U64::new(u64::try_from(offset).unwrap_or(u64::MAX)),
            length: U64::new(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
        };
        let run_bytes = run.as_bytes();
        let sections = vec![
            section(meta::SECTION_RUN, body, run_bytes),
            section(meta::SECTION_FILTER, body + run_bytes.len(), &filter),
        ];
        let page_count = side_page_count(geometry, self.count());
        let head = MetaHead {
            magic: U32::new(meta::MAGIC),
            kind: U16::new(meta::KIND_SIDE),
            section_count: U16::new(2),
            file_uuid_hi: U64::new(uuid.0),
            file_uuid_lo: U64::new(uuid.1),
            id: U64::new(self.seg_id),
            count: U64::new(self.count()),
            used: U64::new(0),
            seqno: U64::new(self.base_seqno),
            page_count: U64::new(page_count),
        };
        let mut bytes = meta_page(geometry, self.seg_id, &Meta { head, sections });
        bytes.resize(body, 0);
        bytes.extend_from_slice(run_bytes);
        bytes.extend_from_slice(&filter);
        bytes
    }

    /// The run in its order: slot hash, key, newest first.
    fn sorted_run(&self, log: &Log, geometry: Geometry) -> Vec<RunEntry> {
        let start = geometry.paddr(self.extent.start_page);
        let mut run = self.entries.clone();
        run.sort_unstable_by(|a, b| {
            a.slot_hash.get().cmp(&b.slot_hash.get()).then_with(|| {
                // An unreadable record has no key to order by; lookups that meet it report it.
                let key = |entry: &RunEntry| {
                    log.record(start + entry.record_offset()).map_or(&[][..], |record| record.key)
                };
                key(a).cmp(key(b)).then(b.seqno_delta.get().cmp(&a.seqno_delta.get()))
            })
        });
        run
    }
}

/// The first bytes of an extent of derived data, up to the end of its head.
pub(crate) fn meta_page(geometry: Geometry, seg_id: u64, meta: &Meta) -> Vec<u8> {
    let page_count = meta.head.page_count.get();
    let header = SegmentHeader::passive(Kind::Meta, seg_id, page_count, geometry.page_size);
    let mut bytes = header.as_bytes().to_vec();
    bytes.resize(meta::OFFSET, 0);
    bytes.extend_from_slice(&meta.encode());
    bytes
}

/// Writes the header of a free or side-data extent, and the zeros that tell a walk there is no record.
pub(crate) fn write_passive(
    disk: &dyn Disk,
    geometry: Geometry,
    kind: Kind,
    extent: Extent,
) -> Result<()> {
    let header = SegmentHeader::passive(kind, 0, extent.page_count, geometry.page_size);
    let mut sector = header.as_bytes().to_vec();
    sector.resize(512, 0);
    disk.write_at(geometry.paddr(extent.start_page), &sector)
        .map_err(Error::io("write an extent header"))
}
