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

    /// The salt of a segment begun while the bucket was open with this session's.
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
