//! A filter over slot hashes: four bits in one 64-bit word per key, so that a probe is one load.

use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// Bits per key.
pub const BITS_PER_KEY: u64 = 12;

/// Where a hash lives in a filter: a word, and the bits that must be set in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Index of the word.
    pub word: usize,
    /// Bits that are set if the hash was added.
    pub mask: u64,
}

/// Words for so many keys.
pub const fn word_count(keys: u64) -> u64 {
    let words = (keys * BITS_PER_KEY).div_ceil(64);
    if words == 0 { 1 } else { words }
}

/// Scales a well-mixed number to `0..count`.
#[inline]
pub fn scale(mixed: u64, count: usize) -> usize {
    ((u128::from(mixed) * count as u128) >> 64) as usize
}

/// Finds a hash's place in a filter of `words` words.
#[inline]
pub fn probe(slot_hash: u64, words: usize) -> Probe {
    let mixed = slot_hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let word = scale(mixed, words);
    let mask = (1 << (mixed & 63))
        | (1 << ((mixed >> 6) & 63))
        | (1 << ((mixed >> 12) & 63))
        | (1 << ((mixed >> 18) & 63));
    Probe { word, mask }
}

/// Builds the filter's bytes over these hashes.
pub fn build(hashes: impl ExactSizeIterator<Item = u64>) -> Vec<u8> {
    let mut words = vec![U64::ZERO; word_count(hashes.len() as u64) as usize];
    for hash in hashes {
        let probe = probe(hash, words.len());
        if let Some(word) = words.get_mut(probe.word) {
            *word |= probe.mask;
        }
    }
    words.as_bytes().to_vec()
}

/// True if the hash may have been added; `bytes` is what [`build`] made.
#[inline]
pub fn may_contain(bytes: &[u8], slot_hash: u64) -> bool {
    let probe = probe(slot_hash, bytes.len() / 8);
    match bytes.get(probe.word * 8..probe.word * 8 + 8).and_then(|word| word.try_into().ok()) {
        Some(word) => u64::from_le_bytes(word) & probe.mask == probe.mask,
        None => true,
    }
}
