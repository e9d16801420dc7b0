//! A record that passed its checks, with key and stored value in the clear.

use crate::format::record::{Framed, RecordHeader};
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

    /// Its seqno.
    #[inline]
    pub(crate) fn seqno(&self) -> u64 {
        self.header.seqno.get()
    }
}
