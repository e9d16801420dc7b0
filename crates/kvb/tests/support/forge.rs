//! Encrypted buckets by other means than the engine's: what is derived from keys, records sealed and opened, and everything
//! about changed bytes made right again that needs no key.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::ops::Range;

use blake2::digest::consts::{U16, U24, U32, U64};
use blake2::digest::{FixedOutput, KeyInit, Mac};
use blake2::{Blake2b, Blake2bMac, Digest};
use chacha20poly1305::{AeadInOut, XChaCha20Poly1305};
use kvb::format::record::{Framed, RecordHeader};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::Superblock;
use kvb::format::{crc, extension, key_block, meta, roster};
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) const PAGE: usize = 4096;

pub(crate) fn keyed_128(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Blake2bMac::<U16>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| Mac::update(&mut mac, part));
    mac.finalize_fixed().into()
}

pub(crate) fn keyed_256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Blake2bMac::<U32>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| Mac::update(&mut mac, part));
    mac.finalize_fixed().into()
}

pub(crate) fn hash_128(bytes: &[u8]) -> [u8; 16] {
    Blake2b::<U16>::digest(bytes).into()
}

pub(crate) fn hash_512(bytes: &[u8]) -> [u8; 64] {
    Blake2b::<U64>::digest(bytes).into()
}

/// The uuid of a file as it stands there.
pub(crate) fn uuid(file: &[u8]) -> [u8; 16] {
    file[12..28].try_into().unwrap()
}

/// Key and nonces of a segment.
#[derive(Clone)]
pub(crate) struct SegmentKey {
    key: [u8; 32],
    nonce: [u8; 24],
    seg_id: [u8; 8],
}

impl SegmentKey {
    pub(crate) fn new(key: &[u8; 32], uuid: [u8; 16], seg_id: u64, salt: Option<[u8; 16]>) -> Self {
        let seg_id = seg_id.to_le_bytes();
        let mut nonce = Blake2b::<U24>::new();
        for part in [&b"kvb-seg-nonce-v1"[..], &uuid, &seg_id] {
            Digest::update(&mut nonce, part);
        }
        let key = match salt {
            Some(salt) => keyed_256(key, &[b"kvb-seg-key-v1", &uuid, &seg_id, &salt]),
            None => *key,
        };
        SegmentKey { key, nonce: nonce.finalize_fixed().into(), seg_id }
    }

    /// What XChaCha20 makes of the key and the part of the nonce that all records share.
    #[cfg(feature = "encryption")]
    pub(crate) fn subkey(&self) -> [u8; 32] {
        let (head, _) = self.nonce.split_first_chunk::<16>().unwrap();
        chacha20::hchacha::<chacha20::R20>(&self.key.into(), &(*head).into()).into()
    }

    /// Nonce and AAD of a record.
    fn around(&self, header: &[u8], offset: usize) -> ([u8; 24], Vec<u8>) {
        let mut nonce = self.nonce;
        for (byte, seqno) in nonce[16..].iter_mut().zip(&header[4..12]) {
            *byte ^= seqno;
        }
        let offset = u64::try_from(offset).unwrap().to_le_bytes();
        (nonce, [&self.seg_id, &offset, &header[4..44]].concat())
    }

    /// Key and stored value of a record at an offset of its segment, if its tag holds.
    pub(crate) fn open(&self, record: &[u8], offset: usize) -> Option<Vec<u8>> {
        let framed = Framed::decode(record)?;
        let (nonce, aad) = self.around(record, offset);
        let tag: [u8; 16] = framed.tag.try_into().ok()?;
        let mut text = framed.body.to_vec();
        let cipher = XChaCha20Poly1305::new(&self.key.into());
        let body = text.as_mut_slice().into();
        cipher.decrypt_inout_detached(&nonce.into(), &aad, body, &tag.into()).ok()?;
        Some(text)
    }

    /// A record with the header of another, of this text at this offset.
    pub(crate) fn seal(&self, header: &[u8], offset: usize, text: &[u8]) -> Vec<u8> {
        let (nonce, aad) = self.around(header, offset);
        let mut body = text.to_vec();
        let cipher = XChaCha20Poly1305::new(&self.key.into());
        let tag: [u8; 16] = cipher
            .encrypt_inout_detached(&nonce.into(), &aad, body.as_mut_slice().into())
            .unwrap()
            .into();
        let mut record = [&header[..44], &body, &tag, &[0; 4]].concat();
        let whole = 0..record.len();
        repair_record(&mut record, &whole);
        record
    }
}

/// A segment of the log or of moved records, by its header.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) start: usize,
    pub(crate) header: SegmentHeader,
    pub(crate) salt: Option<[u8; 16]>,
}

/// All DATA headers of the segment region, wherever a page begins with one, whether it counts or not.
pub(crate) fn segments(file: &[u8]) -> Vec<Begun> {
    let Ok(superblock) = Superblock::decode(file) else { return Vec::new() };
    let first = usize::try_from(superblock.segment_start_page.get()).unwrap();
    let begun = |start: usize| {
        let header = SegmentHeader::decode(&file[start..])?;
        let salt = header.is_salted().then(|| file[start + 52..start + 68].try_into().unwrap());
        (header.kind() == Some(Kind::Data)).then_some(Begun { start, header, salt })
    };
    (first..file.len() / PAGE).filter_map(|page| begun(page * PAGE)).collect()
}

impl Begun {
    /// Where its records lie, as far as they hold by their CRCs.
    pub(crate) fn records(&self, file: &[u8]) -> Vec<Range<usize>> {
        let mut at = self.start + usize::try_from(self.header.records_at()).unwrap();
        let mut found = Vec::new();
        while let Some(record) = Framed::decode(&file[at.min(file.len())..]) {
            let end = at + usize::try_from(record.header.record_len()).unwrap();
            found.push(at..end);
            at = end;
        }
        found
    }

    pub(crate) fn key(&self, key: &[u8; 32], uuid: [u8; 16]) -> SegmentKey {
        SegmentKey::new(key, uuid, self.header.seg_id.get(), self.salt)
    }
}

/// Stores the CRC of a range.
fn put_crc(file: &mut [u8], at: usize, of: Range<usize>) {
    let crc = crc(&file[of]);
    file[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Makes both CRCs of a record right.
pub(crate) fn repair_record(file: &mut [u8], record: &Range<usize>) {
    put_crc(file, record.start, record.start + 4..record.start + RecordHeader::SIZE);
    put_crc(file, record.end - 4, record.start..record.end - 4);
}

/// Makes the CRC of an extent's header right.
pub(crate) fn repair_header(file: &mut [u8], start: usize) {
    put_crc(file, start + 48, start..start + 48);
}

/// Makes CRC and digest of an index page right.
pub(crate) fn repair_index_page(file: &mut [u8], at: usize) {
    put_crc(file, at + 24, at..at + 24);
    let id = extension::OFFSET + std::mem::offset_of!(extension::Extension, image_id);
    let id = u64::from_le_bytes(file[id..id + 8].try_into().unwrap());
    let page = &mut file[at..at + PAGE];
    let end = 28 + 16 * 128;
    let head = xxh3_64_with_seed(&page[..end], id);
    let digest = xxh3_64_with_seed(&page[end + 8..], head);
    page[end..end + 8].copy_from_slice(&digest.to_le_bytes());
}

/// Makes all CRCs of a superblock's page right, as far as its counts lead to them.
pub(crate) fn repair_page(file: &mut [u8], at: usize) {
    let page = &mut file[at..at + PAGE];
    let count = |at: usize| usize::from(u16::from_le_bytes(page[at..at + 2].try_into().unwrap()));
    let end = roster::OFFSET + roster::encoded_len(count(516), count(518)) - 4;
    if end + 4 <= PAGE {
        put_crc(page, end, roster::OFFSET..end);
        put_crc(page, extension::OFFSET + 160, roster::OFFSET..end);
    }
    for (start, len) in [(0, 136), (extension::OFFSET, 200), (key_block::OFFSET, 100)] {
        put_crc(page, start + len - 4, start..start + len - 4);
    }
}

/// Gives a superblock's page the MAC that only the key makes, and all CRCs.
pub(crate) fn sign_page(file: &mut [u8], at: usize, key: &[u8; 32]) {
    repair_page(file, at);
    let mac_key = keyed_256(key, &[b"kvb-mac-key-v1", &uuid(&file[at..])]);
    let page = &mut file[at..at + PAGE];
    let mac = keyed_128(&mac_key, &[b"kvb-checkpoint-v1", &page[..416], &page[436..]]);
    page[416..432].copy_from_slice(&mac);
    repair_page(file, at);
}

/// The same of an index page.
pub(crate) fn sign_index_page(file: &mut [u8], at: usize, key: &[u8; 32]) {
    let mac_key = keyed_256(key, &[b"kvb-mac-key-v1", &uuid(file)]);
    let page = &mut file[at..at + PAGE];
    let end = 28 + 16 * 128;
    let mac = keyed_128(&mac_key, &[b"kvb-image-v1", &page[..end], &page[end + 16..]]);
    page[end..end + 16].copy_from_slice(&mac);
}

/// Makes the CRCs of an extent of derived data right: of every section that lies within it, then of the head.
pub(crate) fn repair_meta(file: &mut [u8], extent: &Range<usize>) {
    let bytes = &mut file[extent.clone()];
    let number = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).ok()
    };
    let count = usize::from(u16::from_le_bytes(bytes[134..136].try_into().unwrap()));
    let head_end = meta::OFFSET + 64 + 24 * count;
    if head_end + 4 > bytes.len() {
        return;
    }
    for section in (0..count).map(|number| meta::OFFSET + 64 + 24 * number) {
        let range = number(bytes, section + 8).zip(number(bytes, section + 16));
        let range = range.and_then(|(from, len)| Some(from..from.checked_add(len)?));
        if let Some(range) = range.filter(|range| bytes.get(range.clone()).is_some()) {
            put_crc(bytes, section + 4, range);
        }
    }
    put_crc(bytes, head_end, meta::OFFSET..head_end);
}
