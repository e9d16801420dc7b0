//! Any bytes to every decoder of a bucket's file, as they are and with right checksums.

#![no_main]

use kvb::format::book;
use kvb::format::extension::Extension;
use kvb::format::footer::Footer;
use kvb::format::free_map;
use kvb::format::journal::JournalEntry;
use kvb::format::key_block::{self, KeyBlock};
use kvb::format::lineage::{self, Lineage};
use kvb::format::meta::{self, Meta};
use kvb::format::record::{Framed, RecordHeader};
use kvb::format::roster::Roster;
use kvb::format::segment::SegmentHeader;
use kvb::format::superblock::Superblock;
use kvb::format::{crc, directory, index_page, stored};
use libfuzzer_sys::fuzz_target;

const UUID: (u64, u64) = (1, 2);

fn decode_all(bytes: &[u8]) {
    let _ = Superblock::decode(bytes);
    let _ = Extension::decode(bytes, 1, UUID);
    let _ = Roster::decode(
        bytes,
        1,
        UUID,
        crc(bytes.get(..bytes.len().saturating_sub(4)).unwrap_or(&[])),
    );
    let _ = KeyBlock::decode(bytes);
    let _ = Lineage::decode(bytes);
    if let Some(header) = SegmentHeader::decode(bytes) {
        let _ = (header.page_count(4096), header.records_at(), header.is_salted());
    }
    let _ = JournalEntry::decode(bytes);
    if let Some(header) = RecordHeader::decode(bytes) {
        let _ = (header.record_len(), header.deadline_ns(), header.is_expired(u64::MAX));
    }
    if let Some(record) = Framed::decode(bytes) {
        let _ = (record.key(), record.value(), record.header.form());
    }
    let _ = Footer::decode(bytes);
    let _ = stored::read_varint(bytes);
    let _ = stored::decode(bytes, 1 << 30);
    let stamp = free_map::Stamp { epoch: 1, uuid_lo: 2 };
    let _ = free_map::decode(bytes, stamp, 1);
    for has_prefixes in [false, true] {
        let _ = directory::decode_head(bytes, has_prefixes);
        let _ = book::decode(bytes, UUID, has_prefixes);
    }
    for kind in 0..4 {
        let _ = Meta::decode(bytes, kind, UUID);
    }
    let _ = index_page::check_page(bytes, 1, 1, None);
    let _ = index_page::read_slot(bytes);
}

/// The same bytes with the checksum that a structure of this length ends with.
fn seal(bytes: &[u8], start: usize, len: usize) -> Option<Vec<u8>> {
    let mut copy = bytes.to_vec();
    let body = copy.get_mut(start..)?.get_mut(..len)?;
    let (covered, stored) = body.split_at_mut(len - 4);
    stored.copy_from_slice(&crc(covered).to_le_bytes());
    Some(copy)
}

fuzz_target!(|bytes: &[u8]| {
    decode_all(bytes);
    let sizes = [
        (0, Superblock::SIZE),
        (0, Extension::SIZE),
        (0, SegmentHeader::SIZE),
        (0, JournalEntry::SIZE),
        (key_block::OFFSET, KeyBlock::SIZE),
        (lineage::OFFSET, Lineage::SIZE),
        (0, bytes.len().max(4)),
        (meta::OFFSET, bytes.len().saturating_sub(meta::OFFSET).max(4)),
    ];
    for (start, size) in sizes {
        if let Some(sealed) = seal(bytes, start, size) {
            decode_all(&sealed);
        }
    }
    // A record has its first checksum in front.
    let mut record = bytes.to_vec();
    if let Some((first, rest)) = record.split_first_chunk_mut::<4>() {
        if let Some(covered) = rest.get(..RecordHeader::SIZE - 4) {
            *first = crc(covered).to_le_bytes();
            decode_all(&record);
        }
    }
});
