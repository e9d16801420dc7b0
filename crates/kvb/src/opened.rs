//! A record that passed its checks, with key and stored value in the clear.

use std::borrow::Cow;

use crate::format::record::{Framed, RecordHeader};
use crate::hash::KeyHash;
use crate::log::Log;
use crate::text::Text;

/// A record, opened. A clone shares its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Opened<'a> {
    /// Its header, where it lies: a copy would be the greatest part of it.
    pub(crate) header: &'a RecordHeader,
    /// Key and stored value, one behind the other.
    body: Text<'a>,
}

impl<'a> Opened<'a> {
    /// A record of which only the key may be known.
    pub(crate) fn new(header: &'a RecordHeader, body: Text<'a>) -> Opened<'a> {
        Opened { header, body }
    }

    /// One that is not encrypted.
    #[inline]
    pub(crate) fn plain(framed: Framed<'a>) -> Opened<'a> {
        Opened::new(framed.header, Text::lent(framed.body))
    }

    #[inline]
    fn key_len(&self) -> usize {
        usize::try_from(self.header.key_len.get()).unwrap_or(usize::MAX)
    }

    /// Its key.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.body.get(..self.key_len()).unwrap_or(&self.body)
    }

    /// Its stored value, which may be compressed.
    #[inline]
    pub(crate) fn stored(&self) -> &[u8] {
        self.body.get(self.key_len()..).unwrap_or(&[])
    }

    /// Its stored value to be kept: all bytes, and where it begins among them.
    #[inline]
    pub(crate) fn into_stored(self) -> (Text<'a>, usize) {
        let from = self.key_len();
        (self.body, from)
    }

    /// Its key to be kept.
    pub(crate) fn into_key(self) -> Cow<'a, [u8]> {
        let len = self.key_len().min(self.body.len());
        self.body.part(..len)
    }

    /// Its seqno.
    #[inline]
    pub(crate) fn seqno(&self) -> u64 {
        self.header.seqno.get()
    }
}

/// A record as a merge holds it: as it lies, or opened.
pub(crate) trait Held<'a>: Clone {
    /// The record at a byte, if it holds.
    fn read(log: &'a Log, paddr: u64) -> Option<Self>;

    /// As far as its key, if that seems to hold.
    fn read_head(log: &'a Log, paddr: u64, hash: &KeyHash) -> Option<Self>;

    /// Its header.
    fn header(&self) -> &'a RecordHeader;

    /// Its key.
    fn key(&self) -> &[u8];

    /// The record as it lies, if it did not have to be opened.
    fn lent(&self) -> Option<Lent<'a>>;

    /// The record, opened.
    fn open(self) -> Opened<'a>;
}

impl<'a> Held<'a> for Opened<'a> {
    #[inline(always)]
    fn read(log: &'a Log, paddr: u64) -> Option<Self> {
        log.try_record(paddr)
    }

    fn read_head(log: &'a Log, paddr: u64, hash: &KeyHash) -> Option<Self> {
        log.plain_head(paddr, hash)
    }

    #[inline]
    fn header(&self) -> &'a RecordHeader {
        self.header
    }

    #[inline]
    fn key(&self) -> &[u8] {
        Opened::key(self)
    }

    fn lent(&self) -> Option<Lent<'a>> {
        None
    }

    #[inline]
    fn open(self) -> Opened<'a> {
        self
    }
}

/// A record of a bucket that is not encrypted, where it lies. It is copied as plain words, which scans do by the million.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent<'a> {
    header: &'a RecordHeader,
    body: &'a [u8],
}

impl<'a> Held<'a> for Lent<'a> {
    #[inline(always)]
    fn read(log: &'a Log, paddr: u64) -> Option<Self> {
        let framed = log.try_framed(paddr)?;
        (!framed.header.is_encrypted()).then_some(Lent { header: framed.header, body: framed.body })
    }

    fn read_head(log: &'a Log, paddr: u64, hash: &KeyHash) -> Option<Self> {
        let header = log.plain_head(paddr, hash)?.header;
        Some(Lent { header, body: log.lent_key(paddr)? })
    }

    #[inline]
    fn header(&self) -> &'a RecordHeader {
        self.header
    }

    #[inline]
    fn key(&self) -> &[u8] {
        let len = usize::try_from(self.header.key_len.get()).unwrap_or(usize::MAX);
        self.body.get(..len).unwrap_or(self.body)
    }

    #[inline]
    fn lent(&self) -> Option<Lent<'a>> {
        Some(*self)
    }

    #[inline]
    fn open(self) -> Opened<'a> {
        Opened::new(self.header, Text::lent(self.body))
    }
}
