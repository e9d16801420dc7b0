//! The parts that an area of the file consists of.

use crate::core::Core;
use crate::format::book::BookHead;
use crate::format::directory::{self, DirectoryHead};
use crate::format::extension::{self, Extension};
use crate::format::footer::{Footer, FooterHead, SparsePair};
use crate::format::free_map::{self, FreeExtent, FreeMapHead};
use crate::format::index_page::{self, IndexPageHeader, IndexSlot};
use crate::format::journal::{self, JournalEntry};
use crate::format::key_block::{self, KeyBlock};
use crate::format::lineage::{self, Lineage};
use crate::format::meta::{self, Meta, MetaHead, Section};
use crate::format::record::{Framed, RecordHeader, TAG, TRAILER};
use crate::format::roster::{self, NamedExtent, RosterHead, SegmentEntry};
use crate::format::run::RunEntry;
use crate::format::segment::{SALT_LEN, SegmentHeader};
use crate::format::superblock::{FLAG_ENCRYPTED, FLAG_LINEAGE, Superblock};
use crate::format::{Field, read, read_sealed};
use crate::inspect::Look;
use crate::log::Log;
use crate::survey::{Area, AreaKind};

/// Whether a structure holds, if that can be told from its bytes.
type Check = fn(&[u8]) -> Option<bool>;

/// Structures of one kind, one behind the other.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) at: u64,
    /// Length of each.
    pub(super) stride: u64,
    pub(super) count: u64,
    /// Number of the first.
    pub(super) first: u64,
    layout: &'static [Field],
    /// Whether one holds, if that can be told from its bytes.
    pub(super) check: Option<Check>,
}

impl Look<'_> {
    /// A record is lost in the area.
    fn is_lost_here(&self) -> bool {
        self.lost.is_some_and(|lost| (self.area.at..self.area.at + self.area.len).contains(&lost))
    }
}

/// The name of records, which have parts of any length.
const RECORD: &str = "Record";

impl Part {
    fn one(name: &'static str, at: u64, layout: &'static [Field]) -> Part {
        Part::many(name, at, layout, 1)
    }

    fn many(name: &'static str, at: u64, layout: &'static [Field], count: u64) -> Part {
        let stride = layout.iter().map(|field| field.offset + field.len).max().unwrap_or(0);
        Part { name, at, stride: wide(stride), count, first: 0, layout, check: None }
    }

    /// Bytes that are no structure.
    pub(super) fn bytes(name: &'static str, at: u64, len: u64) -> Part {
        Part { name, at, stride: len, count: 1, first: 0, layout: &[], check: None }
    }

    fn checked(self, check: Check) -> Part {
        Part { check: Some(check), ..self }
    }

    pub(super) fn end(&self) -> u64 {
        self.at.saturating_add(self.stride.saturating_mul(self.count))
    }

    /// As many of them as end before a byte, if there are any.
    pub(super) fn within(&self, end: u64) -> Option<Part> {
        let room = end.checked_sub(self.at)?;
        let count = self.count.min(room.checked_div(self.stride)?);
        (count > 0).then_some(Part { count, ..*self })
    }

    pub(super) fn is_record(&self) -> bool {
        self.name == RECORD
    }

    /// The fields of one of them.
    pub(super) fn fields(&self, bytes: &[u8]) -> Vec<Field> {
        if self.is_record() {
            return record_fields(bytes);
        }
        if self.layout.is_empty() {
            let len = bytes.len().min(64);
            return vec![Field { name: "bytes", offset: 0, len }];
        }
        self.layout.to_vec()
    }
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

fn record_fields(bytes: &[u8]) -> Vec<Field> {
    let mut fields = RecordHeader::LAYOUT.to_vec();
    let Some(header) = RecordHeader::of(bytes) else { return fields };
    let long = |len: u32| usize::try_from(len).unwrap_or(usize::MAX);
    let tag = if header.is_encrypted() { TAG } else { 0 };
    let rest = [
        ("key", long(header.key_len.get())),
        ("value", long(header.val_len.get())),
        ("tag", tag),
        ("record_crc32c", TRAILER),
    ];
    let mut offset = RecordHeader::SIZE;
    for (name, len) in rest {
        // Of one whose header does not hold, nothing else is known.
        if len > 0 && offset.saturating_add(len) <= bytes.len() {
            fields.push(Field { name, offset, len });
        }
        offset = offset.saturating_add(len);
    }
    fields
}

const WORD: &[Field] = &[Field { name: "word", offset: 0, len: 8 }];
const PLACE: &[Field] = &[Field { name: "place", offset: 0, len: 4 }];
const PREFIX: &[Field] = &[Field { name: "number", offset: 0, len: 8 }];
const MAC: &[Field] = &[Field { name: "mac", offset: 0, len: meta::MAC_LEN }];
const SALT: &[Field] = &[Field { name: "salt", offset: 0, len: SALT_LEN }];
const CRC: &[Field] = &[Field { name: "crc32c", offset: 0, len: 4 }];
const DIGEST: &[Field] = &[Field { name: "digest", offset: 0, len: 8 }];
const BULLETIN: &[Field] = &[
    Field { name: "session", offset: 0, len: 8 },
    Field { name: "published_seqno", offset: 8, len: 8 },
    Field { name: "given_up", offset: 16, len: 8 },
    Field { name: "image_id", offset: 24, len: 8 },
];

fn holds_superblock(bytes: &[u8]) -> Option<bool> {
    Some(Superblock::decode(bytes).is_ok())
}

fn holds_extension(bytes: &[u8]) -> Option<bool> {
    Some(read_sealed::<Extension>(bytes).is_some())
}

fn holds_key_block(bytes: &[u8]) -> Option<bool> {
    Some(read_sealed::<KeyBlock>(bytes).is_some())
}

fn holds_lineage(bytes: &[u8]) -> Option<bool> {
    Some(read_sealed::<Lineage>(bytes).is_some())
}

fn holds_segment_header(bytes: &[u8]) -> Option<bool> {
    Some(SegmentHeader::decode(bytes).is_some())
}

fn holds_record(bytes: &[u8]) -> Option<bool> {
    Some(Framed::decode(bytes).is_some())
}

fn holds_entry(bytes: &[u8]) -> Option<bool> {
    let is_written = bytes.iter().any(|byte| *byte != 0);
    is_written.then(|| JournalEntry::decode(bytes).is_some())
}

fn holds_page_header(bytes: &[u8]) -> Option<bool> {
    Some(read_sealed::<IndexPageHeader>(bytes).is_some())
}

/// What checks itself at exactly this byte of a file that cannot be opened.
pub(super) fn guess(log: &Log, at: u64) -> Option<Part> {
    let is = |part: Part| {
        let bytes = log.bytes(at, usize::try_from(part.stride).ok()?)?;
        part.check?(bytes)?.then_some(part)
    };
    let record = || {
        let header = RecordHeader::decode(log.bytes(at, RecordHeader::SIZE)?)?;
        Some(record_at(at, header.record_len()))
    };
    // Headers and entries are equally long and end with a CRC of the rest. No entry has anything where a header has how many
    // pages its extent was allotted.
    let has_pages = log.bytes(at.saturating_add(36), 4).is_some_and(|pages| pages != [0; 4]);
    is(superblock(at))
        .or_else(|| is(Part::one("Extension", at, Extension::LAYOUT).checked(holds_extension)))
        .or_else(|| is(segment_header(at)).filter(|_| has_pages))
        .or_else(|| is(Part::one("JournalEntry", at, JournalEntry::LAYOUT).checked(holds_entry)))
        .or_else(|| is(page_header(at)))
        .or_else(record)
        // A page that is a superblock's, and does not hold: its fields may tell why.
        .or_else(|| Some(superblock(at)).filter(|part| at == 0 && log.len() >= part.stride))
}

fn superblock(at: u64) -> Part {
    Part::one("Superblock", at, Superblock::LAYOUT).checked(holds_superblock)
}

fn segment_header(at: u64) -> Part {
    Part::one("SegmentHeader", at, SegmentHeader::LAYOUT).checked(holds_segment_header)
}

fn page_header(at: u64) -> Part {
    Part::one("IndexPageHeader", at, IndexPageHeader::LAYOUT).checked(holds_page_header)
}

fn record_at(at: u64, len: u64) -> Part {
    Part { stride: len, ..Part::one(RECORD, at, RecordHeader::LAYOUT).checked(holds_record) }
}

/// A record whose header does not hold.
fn lost_record(at: u64) -> Part {
    Part::one(RECORD, at, RecordHeader::LAYOUT).checked(holds_record)
}

impl Core {
    /// Where the parts are from and to that are looked for: in a page, if the area has the same in every page.
    pub(super) fn bounds(&self, look: &Look<'_>) -> (u64, u64) {
        let page_size = self.geometry().page_size;
        let (area, page_at) = (look.area, look.at / page_size * page_size);
        match area.kind {
            AreaKind::Journal | AreaKind::FreeMap | AreaKind::Index => {
                (page_at, page_at + page_size)
            }
            _ => (area.at, area.at + area.len),
        }
    }

    /// The parts of an area, those around a byte at least.
    pub(super) fn parts(&self, look: &Look<'_>) -> Vec<Part> {
        let page_size = self.geometry().page_size;
        let (area, page_at) = (look.area, look.at / page_size * page_size);
        match area.kind {
            AreaKind::Superblock => self.superblock_parts(area.at),
            AreaKind::Bulletin => vec![Part::one("Bulletin", area.at, BULLETIN)],
            AreaKind::Journal => {
                let count = journal::entries_per_page(page_size);
                let entries = Part::many("JournalEntry", page_at, JournalEntry::LAYOUT, count);
                let first = (page_at - area.at) / page_size * count;
                vec![Part { first, ..entries.checked(holds_entry) }]
            }
            AreaKind::FreeMap => self.map_parts(area, page_at),
            AreaKind::Segment(_) => self.segment_parts(look),
            AreaKind::Reserved if look.is_lost_here() => self.segment_parts(look),
            AreaKind::Side => self.meta_parts(area, meta::KIND_SIDE),
            AreaKind::Table => self.meta_parts(area, meta::KIND_TABLE),
            AreaKind::Index => self.index_parts(area, page_at),
            AreaKind::Book => self.book_parts(area),
            AreaKind::Reserved | AreaKind::Retired | AreaKind::Free => {
                vec![segment_header(area.at)]
            }
            AreaKind::Unused => Vec::new(),
        }
    }

    fn read<T>(&self, at: u64) -> Option<T>
    where
        T: zerocopy::FromBytes + zerocopy::Immutable,
    {
        read(self.log.bytes(at, size_of::<T>())?)
    }

    fn superblock_parts(&self, at: u64) -> Vec<Part> {
        let mut parts = vec![
            superblock(at),
            Part::one("Extension", at + wide(extension::OFFSET), Extension::LAYOUT)
                .checked(holds_extension),
        ];
        if self.fixed.flags & FLAG_ENCRYPTED != 0 {
            let at = at + wide(key_block::OFFSET);
            parts.push(Part::one("KeyBlock", at, KeyBlock::LAYOUT).checked(holds_key_block));
        }
        // Writing ends a lineage, whatever this handle found when it was opened.
        let flags = self.read::<Superblock>(at).map_or(0, |superblock| superblock.flags.get());
        if flags & FLAG_LINEAGE != 0 {
            let at = at + wide(lineage::OFFSET);
            parts.push(Part::one("Lineage", at, Lineage::LAYOUT).checked(holds_lineage));
        }
        let head_at = at + wide(roster::OFFSET);
        if let Some(head) = self.read::<RosterHead>(head_at) {
            let named = u64::from(head.named_count.get());
            let sealed = u64::from(head.sealed_count.get());
            let head = Part::one("RosterHead", head_at, RosterHead::LAYOUT);
            let named = Part::many("NamedExtent", head.end(), NamedExtent::LAYOUT, named);
            let sealed = Part::many("SegmentEntry", named.end(), SegmentEntry::LAYOUT, sealed);
            parts.extend([head, named, sealed, Part::one("roster CRC", sealed.end(), CRC)]);
        }
        parts
    }

    fn map_parts(&self, area: &Area, page_at: u64) -> Vec<Part> {
        let page_size = self.geometry().page_size;
        let is_in_region = area.at >= self.geometry().paddr(self.fixed.segment_start_page);
        if is_in_region && page_at == area.at {
            return vec![segment_header(area.at)];
        }
        let head = Part::one("FreeMapHead", page_at, FreeMapHead::LAYOUT);
        let bitmap = Part::bytes("bitmap", head.end(), free_map::bitmap_len(page_size));
        let count = self
            .read::<FreeMapHead>(page_at)
            .filter(|head| head.magic.get() == free_map::MAGIC)
            .map_or(0, |head| u64::from(head.extent_count.get()));
        let room = (page_size - (bitmap.end() - page_at) - 4) / wide(FreeExtent::SIZE);
        let extents = Part::many("FreeExtent", bitmap.end(), FreeExtent::LAYOUT, count.min(room));
        vec![head, bitmap, extents, Part::one("map CRC", page_at + page_size - 4, CRC)]
    }

    fn segment_parts(&self, look: &Look<'_>) -> Vec<Part> {
        let &Look { survey, area, at, .. } = look;
        let area_end = area.at + area.len;
        let mut parts = vec![segment_header(area.at)];
        let header: Option<SegmentHeader> = self.read(area.at);
        let Some(header) = header else { return parts };
        let records_at = area.at + header.records_at();
        if header.is_salted() {
            parts.push(Part::one("salt", area.at + wide(SegmentHeader::SIZE), SALT));
        }
        let facts = survey.segments.iter().find(|facts| facts.at == area.at);
        let end = records_at.saturating_add(facts.map_or(0, |facts| facts.record_bytes));
        // Behind a lost one there may be more that do not count.
        let end = if look.is_lost_here() { area_end } else { end.min(area_end) };
        let mut next = records_at;
        while next < end {
            let bytes = self.log.bytes(next, RecordHeader::SIZE).unwrap_or(&[]);
            let len = RecordHeader::decode(bytes).map(RecordHeader::record_len);
            let Some(len) = len.filter(|len| *len <= end - next) else {
                if bytes.iter().any(|byte| *byte != 0) {
                    // No way leads further; what is at the byte may say itself what it is.
                    let own = guess(&self.log, at).filter(|part| part.is_record() && at >= next);
                    parts.extend(own.filter(|part| part.end() <= end));
                    let lost = lost_record(next);
                    let behind = end.saturating_sub(lost.end());
                    parts.extend([lost, Part::bytes("(lost)", lost.end(), behind)]);
                }
                break;
            };
            if at < next + len {
                parts.push(record_at(next, len));
                return parts;
            }
            next += len;
        }
        // What is not a record begins behind those that were passed.
        parts.push(Part::bytes("(records)", records_at, next - records_at));
        if facts.is_some_and(|facts| facts.records.is_some())
            && let Some(bytes) = self.log.bytes_at_most(end, area_end - end)
            && let Some(footer) = Footer::decode(bytes)
        {
            let head = Part::one("FooterHead", end, FooterHead::LAYOUT);
            let count = wide(footer.pairs.len());
            let pairs = Part::many("SparsePair", head.end(), SparsePair::LAYOUT, count);
            parts.extend([head, pairs, Part::one("footer CRC", pairs.end(), CRC)]);
        }
        // The way to the byte is all that is wanted of the records.
        parts
    }

    fn meta_parts(&self, area: &Area, kind: u16) -> Vec<Part> {
        let head_at = area.at + wide(meta::OFFSET);
        let head = Part::one("MetaHead", head_at, MetaHead::LAYOUT);
        let mut parts = vec![segment_header(area.at), head];
        let bytes = self.log.bytes_at_most(area.at, area.len);
        let found = bytes.and_then(|bytes| Meta::decode(bytes, kind, self.fixed.uuid));
        let Some(found) = found else { return parts };
        let count = wide(found.sections.len());
        let sections = Part::many("Section", head.end(), Section::LAYOUT, count);
        parts.extend([sections, Part::one("head CRC", sections.end(), CRC)]);
        for section in &found.sections {
            let at = area.at.saturating_add(section.offset.get());
            let len = section.length.get();
            let many = |name, layout: &'static [Field]| {
                let one = Part::many(name, at, layout, 1);
                Part { count: len / one.stride.max(1), ..one }
            };
            match section.kind.get() {
                meta::SECTION_RUN => parts.push(many("RunEntry", RunEntry::LAYOUT)),
                meta::SECTION_FILTER => parts.push(many("filter", WORD)),
                meta::SECTION_TABLE => parts.push(many("SegmentEntry", SegmentEntry::LAYOUT)),
                meta::SECTION_MAC => parts.push(many("mac", MAC)),
                meta::SECTION_SALT => parts.push(many("salt", SALT)),
                meta::SECTION_DIRECTORY => {
                    let head = Part::one("DirectoryHead", at, DirectoryHead::LAYOUT);
                    let records = found.head.count.get();
                    let places = Part::many("place", head.end(), PLACE, records);
                    let numbers = directory::prefix_count(records);
                    parts.extend([head, places]);
                    if places.end() - at < len {
                        parts.push(Part::many("number", places.end(), PREFIX, numbers));
                    }
                }
                _ => parts.push(Part::bytes("section", at, len)),
            }
        }
        parts
    }

    fn index_parts(&self, area: &Area, page_at: u64) -> Vec<Part> {
        if page_at == area.at {
            return self.meta_parts(area, meta::KIND_IMAGE);
        }
        let slots = index_page::slots_per_page(self.geometry().page_size);
        let header = page_header(page_at);
        let slots = Part::many("IndexSlot", header.end(), IndexSlot::LAYOUT, slots);
        let is_encrypted = self.fixed.is_encrypted();
        let tag = if is_encrypted { ("mac", MAC) } else { ("digest", DIGEST) };
        vec![header, slots, Part::one(tag.0, slots.end(), tag.1)]
    }

    fn book_parts(&self, area: &Area) -> Vec<Part> {
        let page_size = self.geometry().page_size;
        let mut parts = vec![segment_header(area.at)];
        let copy_len = (area.len / page_size).saturating_sub(1) / 2 * page_size;
        for copy in 0..2 {
            let at = area.at + page_size + copy * copy_len;
            let Some(head) = self.read::<BookHead>(at) else { continue };
            let part = Part::one("BookHead", at, BookHead::LAYOUT);
            let room = copy_len.saturating_sub(part.stride + 4);
            let tag = if self.fixed.is_encrypted() { wide(TAG) } else { 0 };
            let len = head.length.get().min(room.saturating_sub(tag));
            let body = Part::bytes("dictionaries", part.end(), len + tag);
            parts.extend([part, body, Part::one("book CRC", body.end(), CRC)]);
        }
        parts
    }
}
