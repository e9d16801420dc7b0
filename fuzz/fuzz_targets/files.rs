//! Buckets with changed bytes, under right checksums: whatever is in a file, opening, reading, writing, verifying and
//! repairing it end, and none of them panics.
//!
//! An input is a kind of bucket and changes to its bytes; after them every checksum that its structures lead to is made right.

#![no_main]

#[path = "../../crates/kvb/tests/support/forge.rs"]
mod forge;

use std::sync::LazyLock;

use forge::{
    PAGE, repair_header, repair_meta, repair_page, repair_record, segments, sign_index_page,
};
use kvb::format::index_page::seal_page;
use kvb::format::segment::{Kind, SegmentHeader};
use kvb_fuzz::{Choices, KEY, attack, small_bucket};
use libfuzzer_sys::fuzz_target;

static BUCKETS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..3).map(small_bucket).collect());

/// Pages of the index, with the image they are of.
fn index_pages(file: &[u8]) -> Vec<(usize, u64)> {
    let page = |number: usize| {
        let bytes = &file[number * PAGE..][..PAGE];
        let image = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let slots = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
        let pageid = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
        // As no other page begins.
        (slots == 128 && pageid == number as u64).then_some((number, image))
    };
    (1..file.len() / PAGE - 1).filter_map(page).collect()
}

/// Makes the digest, or the MAC, of an index page right.
fn repair_index_page(file: &mut [u8], (number, image): (usize, u64), kind: usize) {
    let start = number * PAGE;
    let page = &mut file[start..start + PAGE];
    let used = u32::from_le_bytes(page[12..16].try_into().unwrap());
    seal_page(page, image, number as u64, used, None);
    if kind == 2 {
        sign_index_page(file, start, &KEY);
    }
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let kind = usize::from(choices.byte() % 3);
    let mut file = BUCKETS[kind].clone();
    // Where records lay before anything was changed.
    let records: Vec<_> = segments(&file).iter().flat_map(|begun| begun.records(&file)).collect();
    let pages = index_pages(&file);
    let is_repaired = choices.byte() % 4 != 0;
    while choices.is_left() {
        let at = match choices.byte() % 4 {
            // Pages at the ends have the superblocks.
            0 => choices.short() % PAGE,
            1 => file.len() - PAGE + choices.short() % PAGE,
            2 => choices.short() % (file.len() / PAGE) * PAGE + choices.short() % 256,
            _ => choices.short() * 8 % file.len(),
        };
        let len = usize::from(choices.byte() % 9);
        let bytes = choices.bytes(len);
        let end = (at + bytes.len()).min(file.len());
        file[at..end].copy_from_slice(&bytes[..end - at]);
    }
    if is_repaired {
        for record in &records {
            repair_record(&mut file, record);
        }
        for page in 1..file.len() / PAGE - 1 {
            let start = page * PAGE;
            repair_header(&mut file, start);
            let header = SegmentHeader::decode(&file[start..]);
            let extent = header.filter(|header| header.kind() == Some(Kind::Meta));
            let pages = extent.and_then(|header| header.page_count(PAGE as u64)).unwrap_or(0);
            let end =
                start.saturating_add(usize::try_from(pages).unwrap_or(0).saturating_mul(PAGE));
            if pages > 0 && end <= file.len() {
                repair_meta(&mut file, &(start..end));
            }
        }
        for page in pages {
            repair_index_page(&mut file, page, kind);
        }
        let last = file.len() - PAGE;
        repair_page(&mut file, 0);
        repair_page(&mut file, last);
    }
    attack(file, kind);
});
