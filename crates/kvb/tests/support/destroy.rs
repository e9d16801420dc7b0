//! Takes derived structures away from a file, so that the engine has to do without them.

#![allow(clippy::expect_used, reason = "tests fail by panicking")]
#![allow(dead_code, reason = "every test file uses a part of this")]

use kvb::format::extension::{self, Extension};
use kvb::format::roster::{self, Roster};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::{FLAG_ENCRYPTED, Superblock};
use zerocopy::IntoBytes;

/// A superblock page that counts, and where it stands.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) at: usize,
    pub(crate) superblock: Superblock,
    pub(crate) extension: Extension,
    pub(crate) roster: Roster,
}

/// The superblock page at a byte, if it counts.
pub(crate) fn root_at(file: &[u8], at: usize) -> Option<Root> {
    let page = file.get(at..)?;
    let superblock = Superblock::decode(page).ok()?;
    let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
    let epoch = superblock.epoch.get();
    let extension = Extension::decode(page.get(extension::OFFSET..)?, epoch, uuid)?;
    let crc = extension.roster_crc32c.get();
    let roster = Roster::decode(page.get(roster::OFFSET..)?, epoch, uuid, crc)?;
    let is_own = extension.self_page.get() * u64::from(superblock.page_size.get())
        == u64::try_from(at).unwrap();
    is_own.then_some(Root { at, superblock, extension, roster })
}

/// Both superblock pages, as far as they count, the one that wins first.
pub(crate) fn roots(file: &[u8], page_size: usize) -> Vec<Root> {
    let last = file.len() / page_size * page_size - page_size;
    let mut roots: Vec<Root> = [0, last].into_iter().filter_map(|at| root_at(file, at)).collect();
    if let Some(b_page) = roots.first().map(|root| root.extension.b_page.get()) {
        let at = usize::try_from(b_page).unwrap() * page_size;
        roots.extend((at != last).then(|| root_at(file, at)).flatten());
    }
    roots.sort_by_key(|root| std::cmp::Reverse(root.superblock.epoch.get()));
    roots
}

/// Makes the segment table unreadable, so that the segments are found by walking. If there is none, the superblocks are
/// made to speak of one that is not there; false if there is no place left where it could have been.
pub(crate) fn segment_table(file: &mut [u8], page_size: usize) -> bool {
    let roots = roots(file, page_size);
    let Some(newest) = roots.first() else { return false };
    let table_page = usize::try_from(newest.extension.table_start_page.get()).unwrap();
    if table_page != 0 {
        file[table_page * page_size + 140] ^= 1;
        return true;
    }
    if newest.superblock.flags.get() & FLAG_ENCRYPTED != 0 {
        // Nobody without the key can make a superblock say so.
        return false;
    }
    let named = &newest.roster.named;
    let is_named = |page: u64| {
        let within = |start: u64, count: u64| (start..start + count).contains(&page);
        named.iter().any(|named| within(named.start_page.get(), named.page_count.get().into()))
    };
    let free = extents(file, &newest.superblock).into_iter();
    let mut free = free.filter(|(_, _, header)| header.kind() == Some(Kind::Free));
    let Some((page, ..)) = free.find(|(page, ..)| !is_named(*page)) else { return false };
    for root in &roots {
        let mut extension = root.extension;
        extension.table_start_page.set(page);
        extension.table_page_count.set(1);
        let at = root.at + extension::OFFSET;
        file[at..at + Extension::SIZE].copy_from_slice(extension.seal().as_bytes());
    }
    true
}

/// Makes the index image unreadable when the bucket is opened.
pub(crate) fn index_image(file: &mut [u8], page_size: usize) {
    let roots = roots(file, page_size);
    let first = roots[0].superblock.index_region_start_page.get();
    file[(usize::try_from(first).unwrap() - 1) * page_size + 140] ^= 1;
}

/// Page, length in pages and header of every extent of the segment region.
pub(crate) fn extents(file: &[u8], superblock: &Superblock) -> Vec<(u64, u64, SegmentHeader)> {
    let page_size = u64::from(superblock.page_size.get());
    let mut page = superblock.segment_start_page.get();
    let mut found = Vec::new();
    while page < superblock.segment_end_page.get() {
        let at = usize::try_from(page * page_size).unwrap();
        let header = SegmentHeader::decode(&file[at..]).expect("extents tile the region");
        let pages = header.page_count(page_size).expect("a header leads on");
        found.push((page, pages, header));
        page += pages;
    }
    found
}
