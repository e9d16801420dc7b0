//! Where things lie in a bucket's file, found by its headers, so that a test can damage them.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::ops::Range;

use kvb::format::meta::{self, Meta};
use kvb::format::record::{Framed, RecordHeader};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::Superblock;

/// An extent of the segment region.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) bytes: Range<usize>,
    pub(crate) header: SegmentHeader,
}

impl Found {
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.header.kind() == Some(kind)
    }

    /// It is a segment whose header tells its size.
    pub(crate) fn is_sealed(&self) -> bool {
        self.is(Kind::Data) && self.header.segment_size.get() != 0
    }
}

/// All extents.
pub(crate) fn extents(file: &[u8]) -> Vec<Found> {
    let superblock = Superblock::decode(file).unwrap();
    let page_size = u64::from(superblock.page_size.get());
    let at = |page: u64| usize::try_from(page * page_size).unwrap();
    let mut page = superblock.segment_start_page.get();
    let mut found = Vec::new();
    while page < superblock.segment_end_page.get() {
        let header = SegmentHeader::decode(&file[at(page)..]).unwrap();
        let end = page + header.page_count(page_size).unwrap();
        found.push(Found { bytes: at(page)..at(end), header });
        page = end;
    }
    found
}

/// The head of every segment's side data, and where its extent starts.
pub(crate) fn side_data(file: &[u8]) -> Vec<(usize, Meta)> {
    let superblock = Superblock::decode(file).unwrap();
    let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
    let metas = extents(file).into_iter().filter(|extent| extent.is(Kind::Meta));
    metas
        .filter_map(|extent| {
            let start = extent.bytes.start;
            Some((start, Meta::decode(&file[start..], meta::KIND_SIDE, uuid)?))
        })
        .collect()
}

/// Where a section of every segment's side data lies.
pub(crate) fn sections(file: &[u8], kind: u32) -> Vec<Range<usize>> {
    let place = |(start, meta): (usize, Meta)| {
        let section = meta.section(kind)?;
        let from = start + usize::try_from(section.offset.get()).unwrap();
        Some(from..from + usize::try_from(section.length.get()).unwrap())
    };
    side_data(file).into_iter().filter_map(place).collect()
}

/// A record of a sealed segment.
#[derive(Clone, Debug)]
pub(crate) struct Lying {
    pub(crate) bytes: Range<usize>,
    pub(crate) header: RecordHeader,
    pub(crate) key: Vec<u8>,
}

/// All records of sealed segments, in the order of the file.
pub(crate) fn sealed_records(file: &[u8]) -> Vec<Lying> {
    let mut records = Vec::new();
    for extent in extents(file).into_iter().filter(Found::is_sealed) {
        let mut at = extent.bytes.start + SegmentHeader::SIZE;
        while let Some(record) = Framed::decode(&file[at..extent.bytes.end]) {
            let end = at + usize::try_from(record.header.record_len()).unwrap();
            let key = record.key().to_vec();
            records.push(Lying { bytes: at..end, header: *record.header, key });
            at = end;
        }
    }
    records
}
