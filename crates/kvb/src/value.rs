//! A value as it lies in the bucket.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;

use crate::text::Text;
use crate::view::View;

/// A value borrowed from the bucket's mapping, or a copy of one. While it is held, the space it lies in is not reused.
pub struct Value<'a> {
    bytes: Text<'a>,
    /// Where it begins among them.
    from: usize,
    _pin: Pin,
}

/// Keeps alive what a value was found through.
pub(crate) enum Pin {
    /// Of a single lookup: costs no shared counter.
    Own { _view: Guard<Arc<View>> },
    /// Of one lookup among many.
    Shared { _view: Arc<View> },
    /// What it was found in is held elsewhere for longer.
    Elsewhere,
}

impl<'a> Value<'a> {
    pub(crate) fn new(bytes: Text<'a>, from: usize, pin: Pin) -> Value<'a> {
        Value { bytes, from, _pin: pin }
    }

    /// The bytes by themselves: a value of a [`Snapshot`](crate::Snapshot) is lent for as long as that is there, unless it
    /// had to be decrypted or expanded; any other is copied.
    pub fn into_bytes(self) -> Cow<'a, [u8]> {
        match self._pin {
            Pin::Elsewhere => self.bytes.part(self.from..),
            _ => Cow::Owned(self.to_vec()),
        }
    }

    /// One that needs nothing of the bucket any more.
    pub(crate) fn detached(self) -> Value<'static> {
        Value { bytes: self.bytes.detached(), from: self.from, _pin: Pin::Elsewhere }
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Value<'_> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Value<'_> {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}
