//! Changed bytes in a bucket's file, and every checksum that its structures lead to made right.

use std::ops::Range;

use kvb::format::index_page::seal_page;
use kvb::format::segment::{Kind, SegmentHeader};

use crate::forge::{
    PAGE, repair_header, repair_meta, repair_page, repair_record, segments, sign_index_page,
};
use crate::{Choices, KEY};

/// A bucket's file, and where its structures lay before anything was changed.
pub struct Changed {
    /// Its bytes.
    pub file: Vec<u8>,
    records: Vec<Range<usize>>,
    /// Pages of the index, with the image they are of.
    pages: Vec<(usize, u64)>,
    is_encrypted: bool,
}

impl Changed {
    /// A file in which nothing is changed yet.
    pub fn new(file: &[u8], is_encrypted: bool) -> Changed {
        let records = segments(file).iter().flat_map(|begun| begun.records(file)).collect();
        Changed { file: file.to_vec(), records, pages: index_pages(file), is_encrypted }
    }

    /// Changes some bytes.
    pub fn change(&mut self, choices: &mut Choices<'_>) {
        let file = &mut self.file;
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

    /// Makes checksums right, from records up to superblocks.
    pub fn repair(&mut self) {
        let file = &mut self.file;
        for record in &self.records {
            repair_record(file, record);
        }
        for page in 1..file.len() / PAGE - 1 {
            let start = page * PAGE;
            repair_header(file, start);
            let header = SegmentHeader::decode(&file[start..]);
            let extent = header.filter(|header| header.kind() == Some(Kind::Meta));
            let pages = extent.and_then(|header| header.page_count(PAGE as u64)).unwrap_or(0);
            let end =
                start.saturating_add(usize::try_from(pages).unwrap_or(0).saturating_mul(PAGE));
            if pages > 0 && end <= file.len() {
                repair_meta(file, &(start..end));
            }
        }
        for (number, image) in &self.pages {
            repair_index_page(file, *number, *image, self.is_encrypted);
        }
        repair_ends(file);
    }
}

/// Makes the checksums of both superblocks right, if the file is long enough to have them.
pub fn repair_ends(file: &mut [u8]) {
    if file.len() >= 2 * PAGE {
        let last = file.len() - PAGE;
        repair_page(file, 0);
        repair_page(file, last);
    }
}

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
fn repair_index_page(file: &mut [u8], number: usize, image: u64, is_encrypted: bool) {
    let start = number * PAGE;
    let page = &mut file[start..start + PAGE];
    let used = u32::from_le_bytes(page[12..16].try_into().unwrap());
    seal_page(page, image, number as u64, used, None);
    if is_encrypted {
        sign_index_page(file, start, &KEY);
    }
}
