//! What a reader that knows only the specification sees in a file: superblocks, segments, records.
//!
//! It walks headers as the seed says and knows nothing of the engine's tables. Anything that does not fit is a panic
//! with the byte it stands at.

use std::collections::{BTreeMap, BTreeSet};

use kvb::format::record::{DELETE, Record};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::Superblock;

/// What a walk found.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Newest visible record of every key, DELETEs left out.
    pub(crate) live: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Pages of FREE extents.
    pub(crate) free_pages: BTreeSet<u64>,
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

/// Walks a file. Records above the superblock's commit_seqno do not count.
pub(crate) fn read(file: &[u8]) -> Seen {
    let superblock = superblock(file);
    let page_size = u64::from(superblock.page_size.get());
    let mut seen = Seen::default();
    let mut newest: BTreeMap<Vec<u8>, (u64, Option<Vec<u8>>)> = BTreeMap::new();
    let mut page = superblock.segment_start_page.get();
    while page < superblock.segment_end_page.get() {
        let at = usize::try_from(page * page_size).unwrap();
        let header = SegmentHeader::decode(&file[at..])
            .unwrap_or_else(|| panic!("no extent header at page {page}"));
        let pages =
            header.page_count(page_size).unwrap_or_else(|| panic!("page {page} leads nowhere"));
        match header.kind().unwrap() {
            Kind::Free => seen.free_pages.extend(page..page + pages),
            Kind::Meta => {}
            Kind::Data => {
                let end = at + usize::try_from(pages * page_size).unwrap();
                let mut offset = at + SegmentHeader::SIZE;
                while let Some(record) = Record::decode(&file[offset..end]) {
                    let seqno = record.header.seqno.get();
                    offset += usize::try_from(record.header.record_len()).unwrap();
                    if seqno > superblock.commit_seqno.get() {
                        continue;
                    }
                    let value = (record.header.kind != DELETE).then(|| record.value.to_vec());
                    let entry = newest.entry(record.key.to_vec()).or_insert((0, None));
                    assert_ne!(entry.0, seqno, "seqno {seqno} was used twice");
                    if seqno > entry.0 {
                        *entry = (seqno, value);
                    }
                }
            }
        }
        page += pages;
    }
    assert_eq!(page, superblock.segment_end_page.get(), "the walk ends past the segment region");
    for (key, (_, value)) in newest {
        if let Some(value) = value {
            seen.live.insert(key, value);
        }
    }
    seen
}
