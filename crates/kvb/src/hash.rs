//! The hash of a bucket, over plaintext key bytes.

use std::fmt;
use std::sync::Arc;

use siphasher::sip::SipHasher24;
use xxhash_rust::xxh3::xxh3_64;
use zeroize::Zeroize;

use crate::format::index_page::slot_hash;

/// Longest key that XXH3 is asked to vouch for. It takes longer ones in another way, of which less is known.
const VOUCHED_MAX: usize = 240;

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

    /// True if a key that has the hash it should have cannot be another one that damage made of it. Of keys made to collide, some bytes
    /// may be anything.
    pub(crate) fn vouches_for(&self, key: &[u8]) -> bool {
        if matches!(self, KeyHash::Sip(_)) {
            return true;
        }
        if key.len() > VOUCHED_MAX {
            return false;
        }
        let hash = self.hash64(key);
        let mut changed = key.to_vec();
        (0..key.len()).all(|at| {
            let flip = |changed: &mut Vec<u8>| {
                changed.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1)
            };
            flip(&mut changed);
            let is_other = self.hash64(&changed) != hash;
            flip(&mut changed);
            is_other
        })
    }

    /// The hash a key is indexed under.
    #[inline]
    pub(crate) fn slot_hash(&self, key: &[u8]) -> u64 {
        slot_hash(self.hash64(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_vouches_for_keys_but_not_for_those_made_to_collide() {
        let keys = (0..=240).map(|len: usize| (0..=255).cycle().take(len).collect::<Vec<u8>>());
        assert!(keys.into_iter().all(|key| KeyHash::Xxh3.vouches_for(&key)));
        // What stands behind these eight bytes is multiplied by zero.
        let mut made = vec![0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];
        made.resize(32, 9);
        assert!(!KeyHash::Xxh3.vouches_for(&made));
        assert!(KeyHash::sip(&HashKey::default()).vouches_for(&made));
        // Of these nobody knows.
        assert!(!KeyHash::Xxh3.vouches_for(&[1; 241]));
    }
}
