//! The log record (seed 002 section 9): header, key, stored value, CRC.
//!
//! `reserved16` carries the commit mark: bit 0 is set in the last record of a batch, bit 1 in a record that
//! compaction moved and that is therefore committed by itself.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::{crc, on_disk};

/// `kind` of a record that stores a value.
pub const PUT: u8 = 0;
/// `kind` of a record that deletes a key.
pub const DELETE: u8 = 1;
/// The stored value is the value.
pub const ENC_RAW: u8 = 0;
/// The stored value is the value's length as a varint and a zstd frame.
pub const ENC_ZSTD: u8 = 1;
/// The same, and the frame names a dictionary.
pub const ENC_DICTIONARY: u8 = 2;
/// Bit of `enc`: key and stored value are encrypted, and a tag follows them.
pub const ENC_AEAD: u8 = 128;
/// Bytes of the tag.
pub const TAG: usize = 16;
/// `reserved16`: last record of a batch.
pub const MARK_COMMIT: u16 = 1 << 0;
/// `reserved16`: moved by compaction, committed by itself.
pub const MARK_MOVED: u16 = 1 << 1;
/// Bytes of the record CRC behind the value.
pub const TRAILER: usize = 4;
/// Longest key.
pub const KEY_MAX: usize = 65_535;

on_disk! {
    /// Header of one log record; the key bytes, value bytes and record CRC follow it.
    pub struct RecordHeader (44 bytes) {
        /// CRC-32C of the fields below.
        pub header_crc32c: U32,
        /// Position of this mutation in the bucket's history. Never reused.
        pub seqno: U64,
        /// Hash of the key bytes.
        pub hash64: U64,
        /// Wall clock when written.
        pub timestamp_ns: U64,
        /// [`PUT`] or [`DELETE`]; the specification calls it `type`.
        pub kind: u8,
        /// How the value is stored.
        pub enc: u8,
        /// Commit mark.
        pub reserved16: U16,
        /// Bytes of the key.
        pub key_len: U32,
        /// Bytes of the stored value.
        pub val_len: U32,
        /// Seconds until the record expires; 0 is never.
        pub ttl_secs: U32,
    }
}

impl RecordHeader {
    /// Bytes of the whole record.
    #[inline]
    pub fn record_len(&self) -> u64 {
        RecordHeader::SIZE as u64
            + u64::from(self.key_len.get())
            + u64::from(self.val_len.get())
            + if self.is_encrypted() { TAG as u64 } else { 0 }
            + TRAILER as u64
    }

    /// True if key and value are encrypted.
    #[inline]
    pub fn is_encrypted(&self) -> bool {
        self.enc & ENC_AEAD != 0
    }

    /// How the value is stored, encrypted or not.
    #[inline]
    pub fn form(&self) -> u8 {
        self.enc & !ENC_AEAD
    }

    /// Nanosecond at which the record expires, `u64::MAX` if never.
    #[inline]
    pub fn deadline_ns(&self) -> u64 {
        match self.ttl_secs.get() {
            0 => u64::MAX,
            secs => self
                .timestamp_ns
                .get()
                .saturating_add(u64::from(secs).saturating_mul(1_000_000_000)),
        }
    }

    /// True if the record is gone at this time.
    #[inline]
    pub fn is_expired(&self, now_ns: u64) -> bool {
        self.ttl_secs.get() != 0 && self.deadline_ns() <= now_ns
    }

    /// True if the record carries the commit mark.
    pub fn is_commit(&self) -> bool {
        self.reserved16.get() & MARK_COMMIT != 0
    }

    /// True if compaction moved the record here.
    pub fn is_moved(&self) -> bool {
        self.reserved16.get() & MARK_MOVED != 0
    }

    /// The header at the start of `bytes`, unchecked.
    #[inline]
    pub fn of(bytes: &[u8]) -> Option<&RecordHeader> {
        RecordHeader::ref_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// Decodes a header and checks its CRC and that its fields are ones this code writes.
    pub fn decode(bytes: &[u8]) -> Option<&RecordHeader> {
        let header = RecordHeader::of(bytes)?;
        let covered = bytes.get(4..RecordHeader::SIZE)?;
        (crc(covered) == header.header_crc32c.get() && header.is_sane()).then_some(header)
    }

    fn is_sane(&self) -> bool {
        let form_fits = match self.kind {
            PUT => self.form() <= ENC_DICTIONARY,
            DELETE => self.val_len.get() == 0 && self.form() == ENC_RAW,
            _ => false,
        };
        form_fits && self.key_len.get() as usize <= KEY_MAX
    }
}

/// A whole record whose CRCs held, as it lies.
#[derive(Clone, Copy, Debug)]
pub struct Framed<'a> {
    /// Its header.
    pub header: &'a RecordHeader,
    /// Key and stored value, encrypted if the header says so.
    pub body: &'a [u8],
    /// The tag, if they are; otherwise nothing.
    pub tag: &'a [u8],
}

impl<'a> Framed<'a> {
    /// Decodes the record at the start of `bytes`, with all its checks.
    pub fn decode(bytes: &'a [u8]) -> Option<Framed<'a>> {
        let header = RecordHeader::decode(bytes)?;
        Framed::decode_body(header, bytes)
    }

    /// Decodes the record whose header was read from the start of `bytes`, checking the record CRC,
    /// which covers the header too.
    #[inline]
    pub fn decode_body(header: &'a RecordHeader, bytes: &'a [u8]) -> Option<Framed<'a>> {
        let record = Framed::split(header, bytes)?;
        let len = RecordHeader::SIZE + record.body.len() + record.tag.len();
        let (covered, behind) = bytes.split_at_checked(len)?;
        let stored = behind.get(..TRAILER)?;
        (crc(covered).to_le_bytes() == stored && header.is_sane()).then_some(record)
    }

    /// Splits bytes as the header says, without checking any CRC.
    #[inline]
    pub fn split(header: &'a RecordHeader, bytes: &'a [u8]) -> Option<Framed<'a>> {
        let rest = bytes.get(RecordHeader::SIZE..)?;
        let len = (header.key_len.get() as usize).checked_add(header.val_len.get() as usize)?;
        let (body, rest) = rest.split_at_checked(len)?;
        let tag = rest.get(..if header.is_encrypted() { TAG } else { 0 })?;
        Some(Framed { header, body, tag })
    }

    /// The key, if it is not encrypted.
    pub fn key(&self) -> &'a [u8] {
        self.body.get(..self.header.key_len.get() as usize).unwrap_or(&[])
    }

    /// The stored value, if it is not encrypted.
    pub fn value(&self) -> &'a [u8] {
        self.body.get(self.header.key_len.get() as usize..).unwrap_or(&[])
    }
}

/// What a record gets when it is committed; the rest is known when it is put into a batch.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Its seqno.
    pub seqno: u64,
    /// The hash of its key.
    pub hash64: u64,
    /// When it is written.
    pub timestamp_ns: u64,
    /// Seconds from then on for which it counts; 0 is for ever.
    pub ttl_secs: u32,
    /// Its commit mark.
    pub reserved16: u16,
}

/// Appends a record to `buf` with everything but its stamp, and returns its length.
pub fn push(buf: &mut Vec<u8>, kind: u8, key: &[u8], value: &[u8], ttl_secs: u32) -> usize {
    buf.reserve(RecordHeader::SIZE + key.len() + value.len() + TRAILER);
    push_with(buf, kind, key, ttl_secs, 0, |buf| {
        buf.extend_from_slice(value);
        ENC_RAW
    })
}

/// The same, of a value that `store` appends in the form it tells. With [`ENC_AEAD`] in `enc` there is room for a tag.
pub fn push_with(
    buf: &mut Vec<u8>,
    kind: u8,
    key: &[u8],
    ttl_secs: u32,
    enc: u8,
    store: impl FnOnce(&mut Vec<u8>) -> u8,
) -> usize {
    let start = buf.len();
    let header = RecordHeader {
        header_crc32c: U32::new(0),
        seqno: U64::new(0),
        hash64: U64::new(0),
        timestamp_ns: U64::new(0),
        kind,
        enc,
        reserved16: U16::new(0),
        key_len: U32::new(key.len() as u32),
        val_len: U32::new(0),
        ttl_secs: U32::new(ttl_secs),
    };
    buf.extend_from_slice(header.as_bytes());
    buf.extend_from_slice(key);
    let value_at = buf.len();
    let form = store(buf);
    let val_len = (buf.len() - value_at) as u32;
    let own = buf.get_mut(start..).and_then(|own| RecordHeader::mut_from_prefix(own).ok());
    if let Some((header, _)) = own {
        header.enc |= form;
        header.val_len = U32::new(val_len);
    }
    let tag = if enc & ENC_AEAD != 0 { TAG } else { 0 };
    buf.resize(buf.len() + tag + TRAILER, 0);
    buf.len() - start
}

/// Stamps the record that fills `bytes` exactly and computes both CRCs.
pub fn stamp(bytes: &mut [u8], stamp: Stamp) -> Option<()> {
    stamp_sealed(bytes, stamp, |_, _| None)
}

/// The same, of a record whose key and value `seal` encrypts if it gives a tag.
pub fn stamp_sealed(
    bytes: &mut [u8],
    stamp: Stamp,
    seal: impl FnOnce(&RecordHeader, &mut [u8]) -> Option<[u8; TAG]>,
) -> Option<()> {
    let (header, _) = RecordHeader::mut_from_prefix(bytes).ok()?;
    header.seqno = U64::new(stamp.seqno);
    header.hash64 = U64::new(stamp.hash64);
    header.timestamp_ns = U64::new(stamp.timestamp_ns);
    header.ttl_secs = U32::new(stamp.ttl_secs);
    header.reserved16 = U16::new(stamp.reserved16);
    let (covered, trailer) = bytes.split_at_mut_checked(bytes.len().checked_sub(TRAILER)?)?;
    let (head, body) = covered.split_at_mut_checked(RecordHeader::SIZE)?;
    let header_crc = crc(head.get(4..)?);
    head.get_mut(..4)?.copy_from_slice(&header_crc.to_le_bytes());
    let header = RecordHeader::of(head)?;
    if header.is_encrypted() {
        let (text, room) = body.split_at_mut_checked(body.len().checked_sub(TAG)?)?;
        room.copy_from_slice(&seal(header, text)?);
    }
    trailer.copy_from_slice(&crc(covered).to_le_bytes());
    Some(())
}
