//! Proofs that need no store to be checked: that an entry is there, that it is not, and which ones begin with a prefix.
//!
//! Whoever checks one brings the root, and what it is about: the key, the value's digest, the prefix, the leaves. A proof's own
//! words about these are compared, never believed. Everything that a proof does not need for the root to come out is fixed, so
//! there is one proof of a fact in each form, and a proof with any bit changed is refused.

mod completeness;
mod exclusion;
mod inclusion;

#[cfg(feature = "store")]
pub(crate) use completeness::subtree;
pub use completeness::{Completeness, Leaf};
pub use exclusion::Exclusion;
pub use inclusion::{Form, Inclusion, Step, verify};

use core::fmt;

use crate::cbor::Malformed;

/// Why a proof proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// Its bytes are not a proof in this form.
    Malformed(Malformed),
    /// It is about something else.
    Other(&'static str),
    /// It does not hold together.
    Broken(&'static str),
    /// It comes to another root.
    Root,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Malformed(malformed) => write!(f, "the proof is malformed: {malformed}"),
            Refused::Other(what) => write!(f, "the proof is about another {what}"),
            Refused::Broken(wrong) => write!(f, "the proof does not hold together: {wrong}"),
            Refused::Root => f.write_str("the proof comes to another root"),
        }
    }
}

impl core::error::Error for Refused {}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Refused {
        Refused::Malformed(malformed)
    }
}
