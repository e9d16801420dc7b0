//! The hash of a bucket, over plaintext key bytes.

use std::fmt;
use std::sync::Arc;

use siphasher::sip::SipHasher24;
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroize;

use crate::format::index_page::slot_hash;

/// The key of the keyed hash. It is overwritten when it is dropped, and never printed.
#[derive(Clone, Default)]
pub(crate) struct HashKey(pub(crate) [u8; 16]);

impl Drop for HashKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(..)")
    }
}

/// Hashes keys.
#[derive(Clone, Debug)]
pub(crate) enum KeyHash {
    /// XXH3-64.
    Xxh3,
    /// SipHash-2-4 under a key.
    Sip(Arc<HashKey>),
}

impl KeyHash {
    /// The keyed hash.
    pub(crate) fn sip(key: &HashKey) -> KeyHash {
        KeyHash::Sip(Arc::new(key.clone()))
    }

    /// `hash64` of a key as records store it.
    #[inline]
    pub(crate) fn hash64(&self, key: &[u8]) -> u64 {
        match self {
            KeyHash::Xxh3 => xxh3_64(key),
            // Made anew each time, because a hasher would keep its key in memory.
            KeyHash::Sip(secret) => SipHasher24::new_with_key(&secret.0).hash(key),
        }
    }

    /// The hash a key is indexed under.
    #[inline]
    pub(crate) fn slot_hash(&self, key: &[u8]) -> u64 {
        slot_hash(self.hash64(key))
    }
}
