//! A segment while it is written, and how it is sealed.
//!
//! Invariants
//! - Every record added leaves room behind it for the footer and the side data of all records so far, so a
//!   segment can always be sealed within its extent.
//! - Order of a seal: footer, side data and the header of what is left free; sync; then the segment's own
//!   header with its size. Until that header is on disk a walk hops over the whole extent, afterwards over
//!   its parts, which are durable by then.

#![allow(
    clippy::expect_used,
    reason = "sizes of structures, and offsets that the limits of a segment bound"
)]

use std::borrow::Cow;
use std::sync::Arc;

use host::Disk;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::cipher::{BucketKey, SegmentCipher};
use crate::error::{Error, Result};
use crate::extent::{Extent, Geometry};
use crate::format::directory::{self, STRIDE};
use crate::format::filter;
use crate::format::footer::{self, Footer, SparsePair};
use crate::format::meta::{self, MAC_LEN, Meta, MetaHead, Section};
use crate::format::record::{DELETE, RecordHeader};
use crate::format::roster::{SEGMENT_GUARD, SEGMENT_MOVED, SegmentEntry};
use crate::format::run::{DELETE_BIT, DELTA_FAR, OFFSET_MAX, RunEntry};
use crate::format::segment::{
    FLAG_DATA, FLAG_GUARD, FLAG_MOVED, FLAG_SALTED, KEY_NO_SHIFT, Kind, SALT_LEN, SegmentHeader,
};
use crate::key_sort::{Item, chunk, shared_len, sort_by_key};
use crate::log::Log;
use crate::spread_sort::sort_spread;
use crate::text::Text;
use crate::unsealed::Unsealed;

/// Bytes written at once, so that no commit waits long for the file's lock.
const WRITE_MAX: usize = 256 << 10;
/// Bytes written before they are synced, so that no commit's sync has to carry more of them.
const DIRTY_MAX: usize = 4 << 20;

/// What kind of segment it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Its side data has a key directory.
    pub(crate) has_directory: bool,
    /// Its records come from other segments, in key order.
    pub(crate) is_moved: bool,
    /// They hide older ones, and no image names them.
    pub(crate) is_guard: bool,
    /// They are encrypted.
    pub(crate) is_encrypted: bool,
    /// A salt stands before them.
    pub(crate) is_salted: bool,
}

impl Style {
    /// Bytes before the first record.
    pub(crate) fn header_len(self) -> u64 {
        let salt = if self.is_salted { SALT_LEN } else { 0 };
        u64::try_from(SegmentHeader::SIZE + salt).expect("less than a sector")
    }

    /// As the header of a segment says, for one of this kind.
    pub(crate) fn of(self, header: &SegmentHeader) -> Style {
        Style {
            is_moved: header.is_moved(),
            is_guard: header.is_guard(),
            is_salted: header.is_salted(),
            ..self
        }
    }

    /// Bytes of a directory of so many records. Key bytes are nobody's business if they are encrypted.
    fn directory_len(self, records: u64) -> u64 {
        if self.is_encrypted {
            directory::bare_len(records)
        } else {
            directory::encoded_len(records)
        }
    }

    fn header_flags(self) -> u64 {
        let moved = if self.is_moved { FLAG_MOVED } else { 0 };
        let salted = if self.is_salted { FLAG_SALTED } else { 0 };
        FLAG_DATA | moved | salted | if self.is_guard { FLAG_GUARD } else { 0 }
    }

    /// What the table says of such a segment.
    pub(crate) fn entry_flags(self) -> u32 {
        let moved = if self.is_moved { SEGMENT_MOVED } else { 0 };
        moved | if self.is_guard { SEGMENT_GUARD } else { 0 }
    }
}

/// Records that expire some day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiring {
    pub(crate) bytes: u64,
    pub(crate) first_ns: u64,
    pub(crate) last_ns: u64,
}

impl Expiring {
    fn add(&mut self, bytes: u64, deadline_ns: u64) {
        self.first_ns = if self.bytes == 0 { deadline_ns } else { self.first_ns.min(deadline_ns) };
        self.last_ns = self.last_ns.max(deadline_ns);
        self.bytes += bytes;
    }
}

/// A segment whose records are in one extent.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    /// Where it may grow.
    pub(crate) extent: Extent,
    /// Its id.
    pub(crate) seg_id: u64,
    /// Lowest seqno in it: of the log, that of its first record.
    pub(crate) base_seqno: u64,
    /// When it was begun.
    pub(crate) start_unix_ns: u64,
    /// Who began it.
    pub(crate) writer_pid: u32,
    pub(crate) style: Style,
    /// Bytes of header and records.
    pub(crate) len: u64,
    /// Bytes of PUT records, but for those that had expired by [`Segment::expired_by`].
    pub(crate) live_bytes: u64,
    /// Wall clock by which moved records had expired; they were moved for what they hide.
    pub(crate) expired_by: u64,
    pub(crate) expiring: Expiring,
    /// Seals its records, if they are encrypted.
    pub(crate) cipher: Option<Arc<SegmentCipher>>,
    /// What scans know of it, if it is the writer's.
    pub(crate) unsealed: Option<Arc<Unsealed>>,
    /// Its records in log order.
    pub(crate) entries: Vec<RunEntry>,
    /// Their first key bytes.
    prefixes: Vec<u64>,
    /// Their seqnos, if those do not follow each other.
    seqnos: Vec<u64>,
}

/// Pages of side data for so many records.
fn side_page_count(geometry: Geometry, style: Style, records: u64) -> u64 {
    let entry = u64::try_from(RunEntry::SIZE).expect("16");
    // At most: run, filter, directory, salt, MACs.
    let sections = if style.is_encrypted { 5 } else { 3 };
    let body = u64::try_from(meta::body_offset(sections)).expect("small");
    let seals = if style.is_encrypted { 6 * 16 } else { 0 };
    let directory = if style.has_directory { style.directory_len(records) } else { 0 };
    geometry.pages(body + records * entry + filter::word_count(records) * 8 + directory + seals)
}

/// Pages a sealed segment takes with its footer and side data.
pub(crate) fn sealed_page_count(geometry: Geometry, style: Style, len: u64, records: u64) -> u64 {
    geometry.pages(len + footer::encoded_len(records)) + side_page_count(geometry, style, records)
}

impl Segment {
    /// A segment without records.
    pub(crate) fn new(
        extent: Extent,
        seg_id: u64,
        base_seqno: u64,
        start_unix_ns: u64,
        writer_pid: u32,
        style: Style,
    ) -> Segment {
        Segment {
            extent,
            seg_id,
            base_seqno,
            start_unix_ns,
            writer_pid,
            style,
            len: style.header_len(),
            cipher: None,
            live_bytes: 0,
            expired_by: 0,
            expiring: Expiring::default(),
            unsealed: None,
            entries: Vec::new(),
            prefixes: Vec::new(),
            seqnos: Vec::new(),
        }
    }

    /// Makes room for so many records, which is cheaper at once than by and by.
    pub(crate) fn expect(&mut self, records: usize) {
        self.entries.reserve(records);
        if self.style.has_directory {
            self.prefixes.reserve(records);
        }
    }

    /// Paddr of the byte behind the last record.
    pub(crate) fn end_paddr(&self, geometry: Geometry) -> u64 {
        geometry.paddr(self.extent.start_page) + self.len
    }

    /// How many records it holds.
    pub(crate) fn count(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }

    /// Highest seqno in it; of the log one less than the first if there is none.
    pub(crate) fn last_seqno(&self) -> u64 {
        if self.style.is_moved {
            return self.seqnos.iter().copied().max().unwrap_or(self.base_seqno);
        }
        (self.base_seqno + self.count()).saturating_sub(1)
    }

    /// Pages it takes when it is sealed with so many more bytes and records.
    pub(crate) fn sealed_pages_with(&self, geometry: Geometry, bytes: u64, records: u64) -> u64 {
        sealed_page_count(geometry, self.style, self.len + bytes, self.count() + records)
    }

    /// True if one more record of this length leaves room to seal.
    pub(crate) fn fits(&self, geometry: Geometry, record_len: u64) -> bool {
        // A run can name only so far.
        self.len <= u64::from(OFFSET_MAX)
            && self.sealed_pages_with(geometry, record_len, 1) <= self.extent.page_count
    }

    /// Bytes before the first record.
    pub(crate) fn header_len(&self) -> u64 {
        self.style.header_len()
    }

    /// Notes the record that stands at the end, of which the first eight bytes of the key are these.
    pub(crate) fn push(&mut self, slot_hash: u64, prefix: u64, header: &RecordHeader) {
        let offset = u32::try_from(self.len).expect("records start below 2 GiB");
        let delta = u32::try_from(self.entries.len()).expect("an extent holds fewer records");
        let is_delete = header.kind == DELETE;
        let record_len = header.record_len();
        self.entries.push(RunEntry {
            slot_hash: U64::new(slot_hash),
            offset: U32::new(if is_delete { offset | DELETE_BIT } else { offset }),
            seqno_delta: U32::new(delta),
        });
        if self.style.has_directory {
            self.prefixes.push(prefix);
        }
        if self.style.is_moved {
            self.seqnos.push(header.seqno.get());
        }
        self.len += record_len;
        if is_delete || header.deadline_ns() <= self.expired_by {
            return;
        }
        self.live_bytes += record_len;
        if header.ttl_secs.get() != 0 {
            self.expiring.add(record_len, header.deadline_ns());
        }
    }

    /// Forgets records behind the first so many, which end at `len`.
    pub(crate) fn truncate(&mut self, count: usize, len: u64, live_bytes: u64) {
        self.entries.truncate(count);
        self.prefixes.truncate(count);
        self.seqnos.truncate(count);
        self.len = len;
        self.live_bytes = live_bytes;
    }

    /// Its header, and the salt behind it; `segment_size` is 0 until it is sealed.
    pub(crate) fn header(&self, segment_size: u64) -> Vec<u8> {
        let key_no = self.cipher.as_ref().map_or(0, |cipher| u64::from(cipher.key_no));
        let header = SegmentHeader {
            seg_id: U64::new(self.seg_id),
            base_seqno: U64::new(self.base_seqno),
            start_unix_ns: U64::new(self.start_unix_ns),
            flags: U64::new(self.style.header_flags() | key_no << KEY_NO_SHIFT),
            writer_pid: U32::new(self.writer_pid),
            reserved: U32::new(u32::try_from(self.extent.page_count).unwrap_or(0)),
            segment_size: U64::new(segment_size),
            header_crc32c: U32::new(0),
        };
        let mut bytes = header.seal().as_bytes().to_vec();
        if let Some(salt) = self.cipher.as_ref().and_then(|cipher| cipher.salt) {
            bytes.extend_from_slice(&salt);
        }
        bytes
    }

    /// Writes the seqnos of moved records into the run, now that the lowest is known.
    pub(crate) fn settle_seqnos(&mut self) {
        let base = self.seqnos.iter().copied().min().unwrap_or(self.base_seqno);
        self.base_seqno = base;
        for (entry, seqno) in self.entries.iter_mut().zip(&self.seqnos) {
            let delta = u32::try_from(seqno - base).unwrap_or(DELTA_FAR);
            entry.seqno_delta = U32::new(delta);
        }
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
        let used = data_page_count + meta_page_count;
        if used > self.extent.page_count {
            // Behind it is somebody else's.
            return Err(Error::Stopped("a segment does not fit its extent".to_owned()));
        }

        let write =
            |at, bytes: &[u8]| disk.write_at(at, bytes).map_err(Error::io("seal a segment"));
        let mut at = start + self.len;
        for bytes in [&bytes, &side] {
            for part in bytes.chunks(DIRTY_MAX) {
                let from = at;
                for slice in part.chunks(WRITE_MAX) {
                    write(at, slice)?;
                    at += u64::try_from(slice.len()).unwrap_or(0);
                }
                if bytes.len() > DIRTY_MAX {
                    disk.sync_range(from, at - from).map_err(Error::io("sync a sealed segment"))?;
                }
            }
        }
        let rest = (self.extent.page_count > used)
            .then(|| Extent::new(self.extent.start_page + used, self.extent.page_count - used));
        if let Some(rest) = rest {
            write_passive(disk, geometry, Kind::Free, rest)?;
        }
        // Order: the parts must be durable before the header leads a walk to them.
        disk.sync().map_err(Error::io("sync a sealed segment"))?;
        write(start, &self.header(segment_size))?;
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
            flags: U32::new(self.style.entry_flags()),
            record_bytes: U64::new(self.len - self.header_len()),
            delete_bytes: U64::new(self.len - self.header_len() - self.live_bytes),
            expiring_bytes: U64::new(self.expiring.bytes),
            expires_first_ns: U64::new(self.expiring.first_ns),
            expires_last_ns: U64::new(self.expiring.last_ns),
        };
        Ok((entry, rest))
    }

    /// Its footer, if it starts at this byte.
    pub(crate) fn footer(&self, log: &Log, start: u64) -> Footer {
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

    /// The extent behind the segment: header, head, run, filter, directory; salt and MACs if it is encrypted.
    pub(crate) fn side_data(&self, log: &Log, geometry: Geometry, uuid: (u64, u64)) -> Vec<u8> {
        let run = self.sorted_run(log, geometry);
        let filter = filter::build(run.iter().map(|entry| entry.slot_hash.get()));
        let mut parts =
            vec![(meta::SECTION_RUN, run.as_bytes().into()), (meta::SECTION_FILTER, filter.into())];
        if self.style.has_directory {
            parts.push((meta::SECTION_DIRECTORY, self.directory(log, geometry).into()));
        }
        let head = MetaHead {
            magic: U32::new(meta::MAGIC),
            kind: U16::new(meta::KIND_SIDE),
            section_count: U16::new(0),
            file_uuid_hi: U64::new(uuid.0),
            file_uuid_lo: U64::new(uuid.1),
            id: U64::new(self.seg_id),
            count: U64::new(self.count()),
            used: U64::new(0),
            seqno: U64::new(self.base_seqno),
            page_count: U64::new(0),
        };
        let key = self.cipher.as_ref().and_then(|cipher| {
            parts.extend(cipher.salt.map(|salt| (meta::SECTION_SALT, salt.to_vec().into())));
            log.keys()?.of(cipher.key_no).cloned()
        });
        meta_extent(geometry, self.seg_id, head, parts, key.as_deref())
    }

    /// Slot hash, overlay entry and seqno of every record, as they stand.
    pub(crate) fn changes(&self, geometry: Geometry) -> impl Iterator<Item = (u64, u64, u64)> {
        let start = geometry.paddr(self.extent.start_page);
        self.entries.iter().map(move |entry| {
            let delete = if entry.is_delete() { crate::overlay::DELETE_BIT } else { 0 };
            let seqno = self.base_seqno + u64::from(entry.seqno_delta.get());
            (entry.slot_hash.get(), (start + entry.record_offset()) | delete, seqno)
        })
    }

    /// The run in its order: slot hash, key, newest first.
    fn sorted_run(&self, log: &Log, geometry: Geometry) -> Vec<RunEntry> {
        let start = geometry.paddr(self.extent.start_page);
        // Plain numbers sort several times faster than entries.
        let mut order: Vec<Item> =
            (0_u32..).zip(&self.entries).map(|(at, entry)| (entry.slot_hash.get(), at)).collect();
        sort_spread(&mut order, |item| item.0, |item| *item);
        let entry = |item: &Item| usize::try_from(item.1).ok().and_then(|at| self.entries.get(at));
        for group in order.chunk_by_mut(|a, b| a.0 == b.0).filter(|group| group.len() > 1) {
            let key = |item: &Item| {
                entry(item).map_or(Text::lent(&[]), |entry| log.key(start + entry.record_offset()))
            };
            let delta = |item: &Item| entry(item).map_or(0, |entry| entry.seqno_delta.get());
            group.sort_unstable_by(|a, b| key(a).cmp(&key(b)).then(delta(b).cmp(&delta(a))));
        }
        order.iter().filter_map(entry).copied().collect()
    }

    /// The key directory.
    fn directory(&self, log: &Log, geometry: Geometry) -> Vec<u8> {
        let start = geometry.paddr(self.extent.start_page);
        let entry = |at: u32| usize::try_from(at).ok().and_then(|at| self.entries.get(at));
        let key = |at: u32| {
            entry(at).map_or(Text::lent(&[]), |entry| log.key(start + entry.record_offset()))
        };
        let mut order: Vec<Item> = self.prefixes.iter().copied().zip(0_u32..).collect();
        if !self.style.is_moved {
            sort_by_key(&mut order, key);
        }
        let offsets: Vec<U32> =
            order.iter().filter_map(|item| entry(item.1)).map(|entry| entry.offset).collect();
        if self.style.is_encrypted {
            return directory::encode(0, &offsets, &[]);
        }
        let skip = match (order.first(), order.last()) {
            (Some(first), Some(last)) => shared_len(&key(first.1), &key(last.1)),
            _ => 0,
        };
        let prefixes: Vec<U64> =
            order.iter().step_by(STRIDE).map(|item| U64::new(chunk(&key(item.1), skip))).collect();
        directory::encode(u32::try_from(skip).unwrap_or(0), &offsets, &prefixes)
    }
}

/// A section of derived data: its kind, and what is in it.
pub(crate) type Part<'a> = (u32, Cow<'a, [u8]>);

/// An extent of derived data with these sections, and their MACs if there is a key. The head's counts of sections and pages
/// are filled in, unless it says how many pages there are.
pub(crate) fn meta_extent(
    geometry: Geometry,
    seg_id: u64,
    mut head: MetaHead,
    mut parts: Vec<Part<'_>>,
    key: Option<&BucketKey>,
) -> Vec<u8> {
    let len = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    let section_count = parts.len() + usize::from(key.is_some());
    let body = meta::body_offset(section_count);
    let macs = if key.is_some() { (parts.len() + 1) * MAC_LEN } else { 0 };
    let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
    head.section_count = U16::new(u16::try_from(section_count).expect("a few"));
    if head.page_count.get() == 0 {
        head.page_count = U64::new(geometry.pages(len(body + bytes + macs)));
    }
    if let Some(key) = key {
        parts.push((meta::SECTION_MAC, key.section_macs(&head, &parts).into()));
    }
    let mut at = body;
    let mut sections = Vec::new();
    for (kind, bytes) in &parts {
        sections.push(Section {
            kind: U32::new(*kind),
            crc32c: U32::new(crate::format::crc(bytes)),
            offset: U64::new(len(at)),
            length: U64::new(len(bytes.len())),
        });
        at += bytes.len();
    }
    let page_count = head.page_count.get();
    let header = SegmentHeader::passive(Kind::Meta, seg_id, page_count, geometry.page_size);
    let mut extent = Vec::with_capacity(at.next_multiple_of(geometry.page_len()));
    extent.extend_from_slice(header.as_bytes());
    extent.resize(meta::OFFSET, 0);
    extent.extend_from_slice(&Meta { head, sections }.encode());
    extent.resize(body, 0);
    for (_, part) in &parts {
        extent.extend_from_slice(part);
    }
    // Something else may have been there before.
    extent.resize(extent.len().next_multiple_of(geometry.page_len()), 0);
    extent
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
