//! A value as it lies in the bucket.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::Guard;

use crate::view::View;

/// A value borrowed from the bucket's mapping, or a copy of one. While it is held, the space it lies in is not reused.
pub struct Value<'a> {
    bytes: Bytes<'a>,
    _pin: Pin,
}

enum Bytes<'a> {
    Lent(&'a [u8]),
    Copied(Box<[u8]>),
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
    pub(crate) fn new(bytes: &'a [u8], pin: Pin) -> Value<'a> {
        Value { bytes: Bytes::Lent(bytes), _pin: pin }
    }

    pub(crate) fn copied(bytes: &[u8]) -> Value<'static> {
        Value { bytes: Bytes::Copied(bytes.into()), _pin: Pin::Elsewhere }
    }
}

impl Deref for Value<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Lent(bytes) => bytes,
            Bytes::Copied(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Value<'_> {
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
