//! What keys do: everything derived from one, records sealed and opened, and MACs.
//!
//! ```text
//! check     = BLAKE2b-128(K, "kvb-key-check-v1" uuid)
//! hash pad  = BLAKE2b-128(K, "kvb-hash-wrap-v1" uuid)          hides the key of the keyed hash on disk
//! hash key  = BLAKE2b-128(K, "kvb-hash-key-v1" uuid)           of the first key
//! MAC key   = BLAKE2b-256(K, "kvb-mac-key-v1" uuid)
//! salt      = BLAKE2b-128(K, "kvb-seg-salt-v1" uuid session_salt seg_id)
//! K_seg     = BLAKE2b-256(K, "kvb-seg-key-v1" uuid seg_id salt)
//! N_seg     = BLAKE2b-192("kvb-seg-nonce-v1" uuid seg_id)      not keyed
//! nonce     = N_seg, its last 8 bytes XOR seqno
//! AAD       = seg_id, offset in the segment, record header from `seqno` to `ttl_secs`
//! ```
//!
//! Invariants
//! - No two records are ever sealed under one key and nonce: a seg_id and a seqno are never issued twice, and two copies of
//!   a bucket that go on separately have different salts from then on.
//! - Nothing is given out before its tag held, but for keys that only serve to order records.

#![allow(
    clippy::expect_used,
    reason = "keys and nonces of fixed length, and records that the limits bound"
)]

use std::fmt;

use blake2::digest::consts::{U16, U24, U32};
use blake2::digest::{FixedOutput, KeyInit, Mac};
use blake2::{Blake2b, Blake2bMac, Digest};
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use chacha20::{ChaCha20, R20, hchacha};
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, XChaCha20Poly1305};
use zerocopy::IntoBytes;
use zeroize::Zeroize;

use crate::error::{Error, Result};
use crate::format::book::BookHead;
use crate::format::record::{Framed, RecordHeader, TAG};
use crate::keys::{Key, KeyProvider};

/// A bucket's uuid as it stands in the file.
type Uuid = [u8; 16];

/// A key of a bucket, and what is derived from it once and for all.
pub(crate) struct BucketKey {
    key: Key,
    uuid: Uuid,
    mac_key: [u8; 32],
    /// Number in the bucket.
    pub(crate) no: u16,
    /// What the caller calls it.
    pub(crate) id: u64,
}

impl Drop for BucketKey {
    fn drop(&mut self) {
        self.mac_key.zeroize();
    }
}

impl fmt::Debug for BucketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketKey")
            .field("no", &self.no)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

fn keyed_128(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Blake2bMac::<U16>::new_from_slice(key).expect("32 bytes are a key");
    parts.iter().for_each(|part| Mac::update(&mut mac, part));
    mac.finalize_fixed().into()
}

fn keyed_256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Blake2bMac::<U32>::new_from_slice(key).expect("32 bytes are a key");
    parts.iter().for_each(|part| Mac::update(&mut mac, part));
    mac.finalize_fixed().into()
}

impl BucketKey {
    /// Asks for the key of an id.
    pub(crate) fn find(
        provider: Option<&dyn KeyProvider>,
        uuid: (u64, u64),
        no: u16,
        id: u64,
    ) -> Result<BucketKey> {
        let key = match provider {
            Some(provider) => provider.key(id).map_err(Error::io("get a key"))?,
            None => None,
        };
        let key = key.ok_or(Error::KeyMissing { id })?;
        Ok(BucketKey::new(key, uuid, no, id))
    }

    pub(crate) fn new(key: Key, uuid: (u64, u64), no: u16, id: u64) -> BucketKey {
        let mut bytes = [0; 16];
        let (hi, lo) = bytes.split_at_mut(8);
        hi.copy_from_slice(&uuid.0.to_le_bytes());
        lo.copy_from_slice(&uuid.1.to_le_bytes());
        let mac_key = keyed_256(key.bytes(), &[b"kvb-mac-key-v1", &bytes]);
        BucketKey { key, uuid: bytes, mac_key, no, id }
    }

    /// The value that tells the right key from others.
    pub(crate) fn check(&self) -> [u8; 16] {
        keyed_128(self.key.bytes(), &[b"kvb-key-check-v1", &self.uuid])
    }

    /// The key of the keyed hash that a bucket begins with.
    pub(crate) fn hash_key(&self) -> [u8; 16] {
        keyed_128(self.key.bytes(), &[b"kvb-hash-key-v1", &self.uuid])
    }

    /// Hides the key of the keyed hash, or shows it again.
    pub(crate) fn wrap_hash_key(&self, hash_key: [u8; 16]) -> [u8; 16] {
        let pad = keyed_128(self.key.bytes(), &[b"kvb-hash-wrap-v1", &self.uuid]);
        (u128::from_le_bytes(hash_key) ^ u128::from_le_bytes(pad)).to_le_bytes()
    }

    /// The salt of a segment, from the one that is drawn whenever the bucket is opened for writing.
    pub(crate) fn salt(&self, session_salt: &[u8; 16], seg_id: u64) -> [u8; 16] {
        let seg_id = seg_id.to_le_bytes();
        let parts: [&[u8]; 4] = [b"kvb-seg-salt-v1", &self.uuid, session_salt, &seg_id];
        keyed_128(self.key.bytes(), &parts)
    }

    /// The MAC of something, under a name for its kind.
    pub(crate) fn mac(&self, name: &[u8], parts: &[&[u8]]) -> [u8; 16] {
        let mut mac = Blake2bMac::<U16>::new_from_slice(&self.mac_key).expect("a key");
        Mac::update(&mut mac, name);
        parts.iter().for_each(|part| Mac::update(&mut mac, part));
        mac.finalize_fixed().into()
    }

    fn book_cipher(&self) -> XChaCha20Poly1305 {
        let mut key = keyed_256(self.key.bytes(), &[b"kvb-book-key-v1", &self.uuid]);
        let cipher = XChaCha20Poly1305::new(&key.into());
        key.zeroize();
        cipher
    }

    /// Encrypts dictionaries under a nonce that is random.
    pub(crate) fn seal_book(&self, nonce: &[u8; 24], head: &[u8], body: &mut [u8]) -> [u8; TAG] {
        let cipher = self.book_cipher();
        let sealed = cipher.encrypt_inout_detached(&(*nonce).into(), head, body.into());
        sealed.expect("shorter than 2^38 bytes").into()
    }

    /// Decrypts dictionaries, if their tag holds.
    pub(crate) fn open_book(&self, head: &BookHead, body: &[u8], tag: &[u8]) -> Option<Vec<u8>> {
        let tag: [u8; TAG] = tag.try_into().ok()?;
        let mut body = body.to_vec();
        let (nonce, aad) = (head.nonce.into(), head.as_bytes());
        self.book_cipher()
            .decrypt_inout_detached(&nonce, aad, body.as_mut_slice().into(), &tag.into())
            .ok()?;
        Some(body)
    }

    /// The cipher of a segment. Without a salt it is the specification's own derivation, which is read and never written.
    pub(crate) fn segment(&self, seg_id: u64, salt: Option<[u8; 16]>) -> SegmentCipher {
        let seg_id_bytes = seg_id.to_le_bytes();
        let mut key = match &salt {
            Some(salt) => {
                keyed_256(self.key.bytes(), &[b"kvb-seg-key-v1", &self.uuid, &seg_id_bytes, salt])
            }
            None => *self.key.bytes(),
        };
        let mut nonce = Blake2b::<U24>::new();
        for part in [&b"kvb-seg-nonce-v1"[..], &self.uuid, &seg_id_bytes] {
            Digest::update(&mut nonce, part);
        }
        let nonce: [u8; 24] = nonce.finalize_fixed().into();
        let (head, tail) = nonce.split_first_chunk::<16>().expect("24 bytes");
        // All nonces of a segment begin with the same 16 bytes, and what XChaCha20 makes of those is the same too.
        let mut subkey = hchacha::<R20>(&key.into(), &(*head).into());
        key.zeroize();
        let cipher = SegmentCipher {
            aead: ChaCha20Poly1305::new(&subkey),
            subkey: subkey.into(),
            nonce_tail: u64::from_le_bytes(tail.try_into().expect("8 bytes")),
            seg_id,
            salt,
            key_no: self.no,
        };
        subkey.zeroize();
        cipher
    }
}

/// Seals and opens the records of one segment.
pub(crate) struct SegmentCipher {
    aead: ChaCha20Poly1305,
    subkey: [u8; 32],
    nonce_tail: u64,
    seg_id: u64,
    pub(crate) salt: Option<[u8; 16]>,
    pub(crate) key_no: u16,
}

impl Drop for SegmentCipher {
    fn drop(&mut self) {
        self.subkey.zeroize();
    }
}

impl fmt::Debug for SegmentCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentCipher").field("seg_id", &self.seg_id).finish_non_exhaustive()
    }
}

impl SegmentCipher {
    fn nonce(&self, seqno: u64) -> [u8; 12] {
        let mut nonce = [0; 12];
        let (_, tail) = nonce.split_at_mut(4);
        tail.copy_from_slice(&(self.nonce_tail ^ seqno).to_le_bytes());
        nonce
    }

    fn aad(&self, header: &RecordHeader, offset: u64) -> [u8; 56] {
        let mut aad = [0; 56];
        let (places, fields) = aad.split_at_mut(16);
        let (seg_id, at) = places.split_at_mut(8);
        seg_id.copy_from_slice(&self.seg_id.to_le_bytes());
        at.copy_from_slice(&offset.to_le_bytes());
        fields.copy_from_slice(header.as_bytes().get(4..).expect("44 bytes"));
        aad
    }

    /// Encrypts key and value of a stamped record where they lie, and gives the tag.
    pub(crate) fn seal(&self, header: &RecordHeader, offset: u64, body: &mut [u8]) -> [u8; TAG] {
        let nonce = self.nonce(header.seqno.get());
        let aad = self.aad(header, offset);
        let sealed = self.aead.encrypt_inout_detached(&nonce.into(), &aad, body.into());
        sealed.expect("a record is shorter than 2^38 bytes").into()
    }

    /// Key and value of a record, if its tag holds.
    pub(crate) fn open(&self, framed: &Framed<'_>, offset: u64) -> Option<Vec<u8>> {
        let nonce = self.nonce(framed.header.seqno.get());
        let aad = self.aad(framed.header, offset);
        let tag: [u8; TAG] = framed.tag.try_into().ok()?;
        let mut body = framed.body.to_vec();
        let buffer = body.as_mut_slice().into();
        self.aead.decrypt_inout_detached(&nonce.into(), &aad, buffer, &tag.into()).ok()?;
        Some(body)
    }

    /// The key of a record, which nothing vouches for yet.
    pub(crate) fn peek_key(&self, header: &RecordHeader, key: &[u8]) -> Vec<u8> {
        let mut stream = ChaCha20::new(&self.subkey.into(), &self.nonce(header.seqno.get()).into());
        // The first block is the key of the tag.
        stream.seek(64_u64);
        let mut key = key.to_vec();
        stream.apply_keystream(&mut key);
        key
    }
}

#[cfg(test)]
mod tests {
    //! Every entry of `vectors/kvb/sealed.json`, which a script made that shares no code with the engine. Records are
    //! computed once more by the XChaCha20-Poly1305 of the crate, which knows nothing of subkeys.

    #![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

    use std::sync::Arc;

    use serde_json::Value as Json;
    use zerocopy::FromBytes;

    use super::*;
    use crate::format::key_block::KeyBlock;
    use crate::format::meta::{Meta, MetaHead, SECTION_MAC, Section};
    use crate::format::record::{self, Stamp};
    use crate::format::{book, index_page, stored};
    use crate::hash::{HashKey, KeyHash};
    use crate::segment::Part;
    use crate::vault::{Keys, seal_index_page};

    const VECTORS: &str = include_str!("../../../vectors/kvb/sealed.json");

    /// The entries of a list, which has some.
    fn list(name: &str) -> Vec<Json> {
        let all: Json = serde_json::from_str(VECTORS).unwrap();
        let list = all[name].as_array().unwrap().clone();
        assert!(!list.is_empty(), "{name}");
        list
    }

    fn hex(text: &Json) -> Vec<u8> {
        let text = text.as_str().unwrap();
        let text = text.strip_prefix("hex:").unwrap_or(text);
        let pairs = (0..text.len()).step_by(2).map(|at| &text[at..at + 2]);
        pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
    }

    fn array<const N: usize>(text: &Json) -> [u8; N] {
        hex(text).try_into().unwrap()
    }

    fn number(text: &Json) -> u64 {
        text.as_str().unwrap().parse().unwrap()
    }

    fn salt(entry: &Json) -> Option<[u8; 16]> {
        entry["salt"].is_string().then(|| array(&entry["salt"]))
    }

    /// A key of the vectors under a number.
    fn bucket_key(entry: &Json, no: u16) -> BucketKey {
        let uuid: [u8; 16] = array(&entry["uuid"]);
        let words = u128::from_le_bytes(uuid);
        let (hi, lo) = (u64::try_from(words & u128::from(u64::MAX)), u64::try_from(words >> 64));
        BucketKey::new(Key::new(array(&entry["key"])), (hi.unwrap(), lo.unwrap()), no, 7)
    }

    fn current() -> BucketKey {
        bucket_key(&list("keys")[0], 2)
    }

    /// What the crate makes of key, nonce, AAD and text.
    fn directly(key: [u8; 32], nonce: [u8; 24], aad: &[u8], text: &[u8]) -> (Vec<u8>, [u8; TAG]) {
        let mut text = text.to_vec();
        let cipher = XChaCha20Poly1305::new(&key.into());
        let tag = cipher.encrypt_inout_detached(&nonce.into(), aad, text.as_mut_slice().into());
        (text, tag.unwrap().into())
    }

    #[test]
    fn values_derived_from_a_key() {
        for entry in list("keys") {
            let key = bucket_key(&entry, 1);
            let hash_key: [u8; 16] = array(&entry["hash_key"]);
            assert_eq!(key.check(), array(&entry["check"]));
            assert_eq!(key.hash_key(), hash_key);
            assert_eq!(key.wrap_hash_key([0; 16]), array(&entry["hash_pad"]));
            assert_eq!(key.wrap_hash_key(hash_key), array(&entry["hidden_hash_key"]));
            assert_eq!(key.wrap_hash_key(array(&entry["hidden_hash_key"])), hash_key);
            assert_eq!(key.mac_key, array(&entry["mac_key"]));
            let (text, tag) = directly(array(&entry["book_key"]), [3; 24], b"head", b"dictionary");
            let mut body = b"dictionary".to_vec();
            assert_eq!(key.seal_book(&[3; 24], b"head", &mut body), tag);
            assert_eq!(body, text);
        }
    }

    #[test]
    fn the_hash_key_outlives_a_rotation() {
        let all: Json = serde_json::from_str(VECTORS).unwrap();
        let rotated = &all["rotated_hash_key"];
        let old = bucket_key(&list("keys")[1], 1);
        assert_eq!(old.hash_key(), array(&rotated["hash_key"]));
        assert_eq!(current().wrap_hash_key(old.hash_key()), array(&rotated["hidden"]));
    }

    #[test]
    fn salts_keys_and_nonces_of_segments() {
        let key = current();
        let (mut salted, mut plain) = (0, 0);
        for entry in list("segments") {
            let seg_id = number(&entry["seg_id"]);
            match salt(&entry) {
                Some(salt) => {
                    assert_eq!(key.salt(&array(&entry["session_salt"]), seg_id), salt);
                    salted += 1;
                }
                None => plain += 1,
            }
            let cipher = key.segment(seg_id, salt(&entry));
            for pair in entry["nonces"].as_array().unwrap() {
                let seqno = number(&pair["seqno"]);
                let nonce: [u8; 24] = array(&pair["nonce"]);
                assert_eq!(cipher.nonce(seqno)[4..], nonce[16..]);
                assert_eq!(nonce[..16], hex(&entry["segment_nonce"])[..16]);
                check_segment_key(&cipher, seqno, nonce, array(&entry["segment_key"]));
            }
        }
        assert!(salted > 0 && plain > 0);
    }

    /// The key of a segment is known by what it makes of a record.
    fn check_segment_key(cipher: &SegmentCipher, seqno: u64, nonce: [u8; 24], key: [u8; 32]) {
        let mut header = RecordHeader::read_from_bytes(&[0; RecordHeader::SIZE]).unwrap();
        header.seqno.set(seqno);
        let mut body = b"some text".to_vec();
        let tag = cipher.seal(&header, 68, &mut body);
        let made = directly(key, nonce, &cipher.aad(&header, 68), b"some text");
        assert_eq!((body, tag), made);
    }

    /// The key of the segment that a record says it is in.
    fn segment_key(entry: &Json) -> [u8; 32] {
        let mut segments = list("segments").into_iter();
        array(&segments.find(|one| one["seg_id"] == entry["seg_id"]).unwrap()["segment_key"])
    }

    #[test]
    fn records_are_sealed_and_opened() {
        let key = current();
        let hash = KeyHash::sip(&HashKey(key.hash_key()));
        for entry in list("records") {
            let what = &entry["what"];
            let cipher = key.segment(number(&entry["seg_id"]), salt(&entry));
            let (offset, bytes) = (number(&entry["offset"]), hex(&entry["bytes"]));
            let (own, text) = (hex(&entry["key"]), [hex(&entry["key"]), hex(&entry["stored"])]);
            let framed = Framed::decode(&bytes).unwrap();
            let header = framed.header;
            assert_eq!(header.hash64.get(), hash.hash64(&own), "{what}");
            assert_eq!(cipher.aad(header, offset)[..], hex(&entry["aad"]), "{what}");
            assert_eq!(cipher.open(&framed, offset), Some(text.concat()), "{what}");
            assert_eq!(cipher.peek_key(header, &framed.body[..own.len()]), own, "{what}");
            let (nonce, aad) = (array(&entry["nonce"]), hex(&entry["aad"]));
            let (sealed, tag) = directly(segment_key(&entry), nonce, &aad, &text.concat());
            assert_eq!((framed.body, framed.tag), (&sealed[..], &tag[..]), "{what}");
            assert_eq!((sealed, tag), (hex(&entry["sealed"]), array(&entry["tag"])), "{what}");
            assert_eq!(made(&cipher, header, offset, &text), bytes, "{what}");
        }
    }

    /// A record as the engine writes it.
    fn made(cipher: &SegmentCipher, like: &RecordHeader, offset: u64, text: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        record::push_with(&mut bytes, like.kind, &text[0], like.ttl_secs.get(), like.enc, |buf| {
            buf.extend_from_slice(&text[1]);
            like.form()
        });
        let stamp = Stamp {
            seqno: like.seqno.get(),
            hash64: like.hash64.get(),
            timestamp_ns: like.timestamp_ns.get(),
            ttl_secs: like.ttl_secs.get(),
            reserved16: like.reserved16.get(),
        };
        let seal = |header: &RecordHeader, body: &mut [u8]| Some(cipher.seal(header, offset, body));
        record::stamp_sealed(&mut bytes, stamp, seal).unwrap();
        bytes
    }

    #[test]
    fn changed_records_are_refused() {
        let key = current();
        for entry in list("refused") {
            let bytes = hex(&entry["bytes"]);
            // Nothing but the tag is wrong.
            let framed = Framed::decode(&bytes).unwrap();
            let cipher = key.segment(number(&entry["seg_id"]), salt(&entry));
            let opened = cipher.open(&framed, number(&entry["offset"]));
            assert_eq!(opened, None, "{}", entry["why"]);
        }
    }

    #[test]
    fn the_mac_of_a_superblock_page() {
        let entry = &list("pages")[0];
        let mut page = hex(&entry["bytes"]);
        let block = KeyBlock::decode(&page).unwrap();
        let old = Arc::new(bucket_key(&list("keys")[1], 1));
        let keys = Keys { current: Arc::new(current()), old: Some(Arc::clone(&old)) };
        assert_eq!(block.mac, array(&entry["mac"]));
        assert_eq!(block.key_check, keys.current.check());
        assert_eq!(block.old_key_check, old.check());
        assert!(keys.vouch_for_page(&page, &block));
        let swapped = Keys { current: old, old: None };
        assert!(!swapped.vouch_for_page(&page, &block), "of another key");
        let mut again = page.clone();
        block.place(&mut again, |before, behind| keys.current.page_mac(before, behind)).unwrap();
        assert!(again == page);
        for at in [0, 335, 336, 415, 436, 4095] {
            page[at] ^= 1;
            assert!(!keys.vouch_for_page(&page, &block), "byte {at}");
            page[at] ^= 1;
        }
    }

    #[test]
    fn the_mac_of_an_index_page() {
        let key = current();
        let entry = &list("pages")[1];
        let page = hex(&entry["bytes"]);
        let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
        let (image_id, pageid) = (word(0), word(16));
        let mac = |before: &[u8], behind: &[u8]| key.image_mac(before, behind);
        let check = |page: &[u8]| index_page::check_page(page, image_id, pageid, Some(&mac));
        let used = check(&page).unwrap().used.get();
        let at = index_page::digest_offset(128);
        assert_eq!(page[at..at + 16], hex(&entry["mac"]));
        let mut again = page.clone();
        again[at..at + 16].fill(0);
        seal_index_page(&mut again, image_id, pageid, used, Some(&key)).unwrap();
        assert!(again == page);
        for at in [28, 1000, at, at + 15, at + 16, 4095] {
            again[at] ^= 1;
            assert!(check(&again).is_none(), "byte {at}");
            again[at] ^= 1;
        }
    }

    #[test]
    fn macs_of_derived_data() {
        let key = current();
        let entries = list("sections");
        let (head, _) = MetaHead::read_from_prefix(&hex(&entries[0]["bytes"])).unwrap();
        let kind = |entry: &Json| u32::try_from(number(&entry["kind"])).unwrap();
        let parts: Vec<Part<'_>> =
            entries[1..].iter().map(|entry| (kind(entry), hex(&entry["bytes"]).into())).collect();
        let macs: Vec<u8> = entries.iter().flat_map(|entry| hex(&entry["mac"])).collect();
        assert_eq!(key.section_macs(&head, &parts), macs);
        let named = parts.iter().map(|(kind, _)| *kind).chain([SECTION_MAC]);
        let section = |kind: u32| {
            let mut section = Section::read_from_bytes(&[0; Section::SIZE]).unwrap();
            section.kind.set(kind);
            section
        };
        let meta = Meta { head, sections: named.map(section).collect() };
        for (at, entry) in entries.iter().enumerate() {
            let mut bytes = hex(&entry["bytes"]);
            let (id, head_kind) = (head.id.get(), u64::from(head.kind.get()));
            assert_eq!((number(&entry["id"]), number(&entry["head_kind"])), (id, head_kind));
            assert!(key.vouches(&meta, &macs, kind(entry), &bytes), "section {at}");
            bytes[0] ^= 1;
            assert!(!key.vouches(&meta, &macs, kind(entry), &bytes), "section {at}, changed");
        }
        assert!(!key.vouches(&meta, &macs, SECTION_MAC, &macs), "nothing vouches for MACs");
    }

    #[test]
    fn books_are_sealed_and_opened() {
        let key = current();
        for entry in list("books") {
            let mut bytes = hex(&entry["bytes"]);
            let uuid =
                (number(&entry["head"]["file_uuid_hi"]), number(&entry["head"]["file_uuid_lo"]));
            let (head, body, tag) = book::decode(&bytes, uuid, true).unwrap();
            let text = key.open_book(&head, body, tag).unwrap();
            let wanted: Vec<Vec<u8>> =
                entry["dictionaries"].as_array().unwrap().iter().map(hex).collect();
            assert_eq!(book::split(&head, &text).unwrap(), wanted);
            assert_eq!(book::body(wanted.iter().map(Vec::as_slice)), text);
            assert_eq!(tag, hex(&entry["tag"]));
            assert_eq!(head.nonce, array(&entry["head"]["nonce"]));
            let seal = |aad: &[u8], body: &mut [u8]| Some(key.seal_book(&head.nonce, aad, body));
            assert_eq!(book::encode(head, text, seal), bytes);
            let mut other = head;
            other.count.set(1);
            assert_eq!(key.open_book(&other, body, tag), None, "another head");
            bytes[60] ^= 1;
            let (body, tag) =
                (&bytes[56..bytes.len() - 20], &bytes[bytes.len() - 20..bytes.len() - 4]);
            assert_eq!(key.open_book(&head, body, tag), None, "another body");
        }
    }

    #[test]
    fn varints_have_their_shortest_form() {
        for entry in list("varints") {
            let bytes = hex(&entry["bytes"]);
            let wanted =
                entry["number"].is_string().then(|| (number(&entry["number"]), bytes.len()));
            assert_eq!(stored::read_varint(&bytes), wanted, "{bytes:02x?}");
            if let Some((number, _)) = wanted {
                let mut made = Vec::new();
                stored::push_varint(&mut made, number);
                assert_eq!(made, bytes);
            }
        }
    }
}
