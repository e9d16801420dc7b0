//! The hash of a bucket, over plaintext key bytes.

use siphasher::sip::SipHasher24;
use xxhash_rust::xxh3::xxh3_64;

use crate::format::index_page::slot_hash;

/// Hashes keys.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyHash {
    /// XXH3-64.
    Xxh3,
    /// SipHash-2-4 under a key.
    Sip(SipHasher24),
}

impl KeyHash {
    /// The keyed hash.
    pub(crate) fn sip(key: &[u8; 16]) -> KeyHash {
        KeyHash::Sip(SipHasher24::new_with_key(key))
    }

    /// `hash64` of a key as records store it.
    #[inline]
    pub(crate) fn hash64(&self, key: &[u8]) -> u64 {
        match self {
            KeyHash::Xxh3 => xxh3_64(key),
            KeyHash::Sip(keyed) => keyed.hash(key),
        }
    }

    /// The hash a key is indexed under.
    #[inline]
    pub(crate) fn slot_hash(&self, key: &[u8]) -> u64 {
        slot_hash(self.hash64(key))
    }
}
