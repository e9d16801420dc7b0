//! What a reader that knows only the specification sees in a file: superblocks, segments, records.
//!
//! It walks headers as the seed says and knows nothing of the engine's tables, nor of any flag in the low half: moved
//! records are records like others. Anything that does not fit is a panic with the byte it stands at.
//!
//! - A walk hops by `segment_size` rounded up to a page, and by the pages in `reserved` while that is 0.
//! - Of a sealed segment all records count, and its footer must stand behind them. Of one that is not sealed those count
//!   that follow each other from `base_seqno` on.
//! - Nothing above the superblock's `commit_seqno` counts. Per key the greatest seqno wins. Two records may share a seqno
//!   only if they are the same, and one is marked as moved.

#![allow(clippy::expect_used, reason = "tests fail by panicking")]
#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::{BTreeMap, BTreeSet};

use kvb::format::footer::Footer;
use kvb::format::record::{DELETE, Framed};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::Superblock;

/// The newest visible record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) seqno: u64,
    /// Its value; none of a DELETE.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) deadline_ns: u64,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The newest visible record of every key.
    pub(crate) newest: BTreeMap<Vec<u8>, Newest>,
    /// Pages of FREE extents.
    pub(crate) free_pages: BTreeSet<u64>,
    /// Visible records that are marked as moved.
    pub(crate) moved: usize,
    /// The superblock's.
    pub(crate) commit_seqno: u64,
}

impl Seen {
    /// Keys with a value at a time.
    pub(crate) fn live_at(&self, now_ns: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let alive = self.newest.iter().filter(|(_, newest)| newest.deadline_ns > now_ns);
        alive.filter_map(|(key, newest)| Some((key.clone(), newest.value.clone()?))).collect()
    }

    /// Keys with a value, if none ever expires.
    pub(crate) fn live(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.live_at(0)
    }
}

/// The superblock with the greater epoch of page 0 and the last page.
pub(crate) fn superblock(file: &[u8]) -> Superblock {
    let first = Superblock::decode(file).ok();
    let page_size = first.map_or(4096, |block| usize::try_from(block.page_size.get()).unwrap());
    let last =
        file.len().checked_sub(page_size).and_then(|at| Superblock::decode(&file[at..]).ok());
    let newest = first.into_iter().chain(last).max_by_key(|block| block.epoch.get());
    newest.expect("one of the superblocks holds")
}

/// Walks a file.
pub(crate) fn read(file: &[u8]) -> Seen {
    let superblock = superblock(file);
    let page_size = u64::from(superblock.page_size.get());
    let mut seen = Seen { commit_seqno: superblock.commit_seqno.get(), ..Seen::default() };
    let mut by_seqno: BTreeMap<u64, Framed<'_>> = BTreeMap::new();
    let mut page = superblock.segment_start_page.get();
    while page < superblock.segment_end_page.get() {
        let at = usize::try_from(page * page_size).unwrap();
        let header = SegmentHeader::decode(&file[at..])
            .unwrap_or_else(|| panic!("no extent header at page {page}"));
        let pages =
            header.page_count(page_size).unwrap_or_else(|| panic!("page {page} leads nowhere"));
        if header.kind() == Some(Kind::Free) {
            seen.free_pages.extend(page..page + pages);
        }
        let extent = &file[at..at + usize::try_from(pages * page_size).unwrap()];
        for record in records(extent, &header, page) {
            let seqno = record.header.seqno.get();
            if seqno > seen.commit_seqno {
                continue;
            }
            seen.moved += usize::from(record.header.is_moved());
            if let Some(other) = by_seqno.insert(seqno, record) {
                check_same(&record, &other, page);
            }
        }
        page += pages;
    }
    assert_eq!(page, superblock.segment_end_page.get(), "the walk ends past the segment region");
    // From old to new.
    for (seqno, record) in by_seqno {
        let value = (record.header.kind != DELETE).then(|| record.value().to_vec());
        let deadline_ns = record.header.deadline_ns();
        seen.newest.insert(record.key().to_vec(), Newest { seqno, value, deadline_ns });
    }
    seen
}

/// The records of an extent that count by themselves.
fn records<'a>(extent: &'a [u8], header: &SegmentHeader, page: u64) -> Vec<Framed<'a>> {
    let mut found = Vec::new();
    let mut at = SegmentHeader::SIZE;
    if extent[at..at + 44].iter().all(|byte| *byte == 0) {
        return found;
    }
    let size = usize::try_from(header.segment_size.get()).unwrap();
    let mut next_seqno = header.base_seqno.get();
    while let Some(record) = Framed::decode(&extent[at..]) {
        if size == 0 && record.header.seqno.get() != next_seqno {
            break;
        }
        next_seqno += 1;
        at += usize::try_from(record.header.record_len()).unwrap();
        found.push(record);
    }
    if size != 0 {
        let footer = Footer::decode(&extent[at..size])
            .unwrap_or_else(|| panic!("no footer behind the records of page {page}"));
        assert_eq!(footer.encode().len(), size - at, "page {page}: where the footer ends");
        assert_eq!(footer.seg_id, header.seg_id.get(), "page {page}: whose footer");
        let last = found.iter().map(|record| record.header.seqno.get()).max();
        assert_eq!(Some(footer.last_seqno), last, "page {page}: last seqno");
        assert!(
            found.iter().all(|record| record.header.seqno.get() >= header.base_seqno.get()),
            "page {page}: a record below base_seqno"
        );
    }
    found
}

/// A seqno is never issued twice; only moving makes copies.
fn check_same(a: &Framed<'_>, b: &Framed<'_>, page: u64) {
    let (seqno, mut head, mut other) = (a.header.seqno.get(), *a.header, *b.header);
    assert!(head.is_moved() || other.is_moved(), "page {page}: seqno {seqno} was used twice");
    for header in [&mut head, &mut other] {
        header.reserved16.set(0);
        header.header_crc32c.set(0);
    }
    assert!(head == other && a.body == b.body, "page {page}: copies of seqno {seqno} differ");
}
