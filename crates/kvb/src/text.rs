//! Bytes in the clear: lent from the mapping, or decrypted or decompressed into memory of their own.

use std::borrow::Cow;
use std::ops::{Deref, RangeBounds};
use std::sync::Arc;

/// Bytes that are read and never changed. A clone shares them.
///
/// Scans move these by the million: three words, and no tag beside them.
#[derive(Clone, Debug)]
pub(crate) struct Text<'a> {
    /// As they lie in the file; nothing if there are others.
    lent: &'a [u8],
    owned: Option<Arc<Vec<u8>>>,
}

impl<'a> Text<'a> {
    /// Bytes that are lent.
    #[inline]
    pub(crate) const fn lent(bytes: &'a [u8]) -> Text<'a> {
        Text { lent: bytes, owned: None }
    }

    /// Bytes in memory.
    pub(crate) fn owned(bytes: Vec<u8>) -> Text<'static> {
        Text { lent: &[], owned: Some(Arc::new(bytes)) }
    }

    /// A part of the bytes: as they are lent, or in memory of its own.
    pub(crate) fn part(self, range: impl RangeBounds<usize>) -> Cow<'a, [u8]> {
        let range = (range.start_bound().cloned(), range.end_bound().cloned());
        match self.owned {
            None => Cow::Borrowed(self.lent.get(range).unwrap_or(&[])),
            Some(owned) => Cow::Owned(owned.get(range).unwrap_or(&[]).to_vec()),
        }
    }

    /// The same bytes in memory of their own.
    pub(crate) fn detached(self) -> Text<'static> {
        match self.owned {
            Some(owned) => Text { lent: &[], owned: Some(owned) },
            None => Text::owned(self.lent.to_vec()),
        }
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.owned {
            None => self.lent,
            Some(owned) => owned,
        }
    }
}

impl AsRef<[u8]> for Text<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}
