//! Keys made so that XXH3-64 gives them chosen hashes.
//!
//! Two holes of the function serve. For 17 to 128 bytes it adds products of input and a public
//! secret; where eight bytes of the input equal the secret the product is zero, and the eight bytes
//! beside them no longer matter. For 9 to 16 bytes it can be run backwards once the last eight
//! bytes cancel the secret.

#![allow(dead_code, reason = "every test file uses a part of this")]

use xxhash_rust::xxh3::xxh3_64;

/// The bytes that make the first product of a 32-byte key vanish.
const VANISHING: [u8; 8] = [0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];
/// The same for what is added behind it of a 36-byte key.
const VANISHING_TOO: [u8; 8] = [0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c];
/// The last eight bytes of a 16-byte key that cancel the secret beside them.
const CANCELLING: [u8; 8] = [0x3a, 0x52, 0x96, 0x09, 0x3b, 0xbc, 0x56, 0xaf];
/// The first eight bytes of the key whose hash is 0.
const HASHES_TO_ZERO: [u8; 8] = [0x46, 0xc6, 0xbd, 0x15, 0x84, 0x8c, 0x7d, 0x97];
/// The odd factor of the last step of the function.
const FACTOR: u64 = 0x1656_6791_9E37_79F9;

/// The key number `index` of group `group`: all keys of a group have one hash.
pub(crate) fn colliding(group: u64, index: u64) -> Vec<u8> {
    let mut key = VANISHING.to_vec();
    key.extend_from_slice(&index.to_be_bytes());
    key.extend_from_slice(&group.to_le_bytes());
    key.extend_from_slice(b"the rest");
    key
}

/// The same of 36 bytes, as a transaction's hash and an index have.
pub(crate) fn colliding_outpoint(index: u32) -> Vec<u8> {
    [&VANISHING[..], &index.to_be_bytes(), &VANISHING_TOO, b"sixteen the same"].concat()
}

/// A key of 16 bytes with exactly this hash.
pub(crate) fn hashing_to(hash: u64) -> Vec<u8> {
    // The steps of the function in reverse: xor-shift, multiply, xor-shift, add the length, swap
    // the bytes, xor.
    let mixed = hash ^ (hash >> 32);
    let mixed = mixed.wrapping_mul(inverse(FACTOR));
    let sum = mixed ^ (mixed >> 37);
    let low = sum.wrapping_sub(16).swap_bytes() ^ flip();
    let mut key = low.to_le_bytes().to_vec();
    key.extend_from_slice(&CANCELLING);
    key
}

/// What the function xors the first eight bytes of a 16-byte key with, taken from the key that
/// hashes to zero.
fn flip() -> u64 {
    u64::from_le_bytes(HASHES_TO_ZERO) ^ 0_u64.wrapping_sub(16).swap_bytes()
}

/// The inverse of an odd number modulo 2^64, by Newton's steps: each doubles the bits that are
/// right.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess))))
}

/// Panics if the keys do not do what they are made for; every test that uses them calls this first.
pub(crate) fn check() {
    for group in 0..3 {
        let hash = xxh3_64(&colliding(group, 0));
        assert!((1..1000).all(|index| xxh3_64(&colliding(group, index)) == hash));
    }
    let hash = xxh3_64(&colliding_outpoint(0));
    assert!((1..1000).all(|index| xxh3_64(&colliding_outpoint(index)) == hash));
    for hash in [0, 1, 2, 3, 0xdead_beef_cafe_f00d, u64::MAX, 1 << 63] {
        assert_eq!(xxh3_64(&hashing_to(hash)), hash);
    }
}
