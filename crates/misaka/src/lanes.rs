//! SHA3-256 of eight messages at once, where the processor has registers for eight words.
//!
//! A block of a validator has hundreds of thousands of short messages to hash, and nothing in Keccak can be done beside itself but other
//! messages. Elsewhere they are hashed one after the other.

use sha3::{Digest, Sha3_256};

use crate::hash::Hash;

/// Messages that are hashed beside each other.
const LANES: usize = 8;
/// Bytes of a message that are taken in at a time.
const RATE: usize = 136;

/// The digests of messages, in their order.
pub(crate) fn hash_each<'a>(messages: impl Iterator<Item = &'a [u8]>) -> Vec<Hash> {
    let mut digests = Vec::with_capacity(messages.size_hint().0);
    let mut group: [&[u8]; LANES] = [&[]; LANES];
    let mut count = 0;
    let is_wide = is_wide();
    for message in messages {
        if !is_wide {
            digests.push(Hash(Sha3_256::digest(message).into()));
            continue;
        }
        if let Some(slot) = group.get_mut(count) {
            *slot = message;
        }
        count += 1;
        if count == LANES {
            digests.extend(hash_wide(&group));
            count = 0;
        }
    }
    if count > 0 {
        group.iter_mut().skip(count).for_each(|slot| *slot = &[]);
        digests.extend(hash_wide(&group).into_iter().take(count));
    }
    digests
}

#[cfg(not(target_arch = "x86_64"))]
fn is_wide() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn hash_wide(messages: &[&[u8]; LANES]) -> [Hash; LANES] {
    messages.map(|message| Hash(Sha3_256::digest(message).into()))
}

#[cfg(target_arch = "x86_64")]
use wide::{hash_wide, is_wide};

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512i, _mm512_rol_epi64, _mm512_set_epi64, _mm512_set1_epi64, _mm512_setzero_si512,
        _mm512_ternarylogic_epi64, _mm512_xor_si512,
    };

    use super::{LANES, RATE};
    use crate::hash::Hash;

    /// The state of all lanes: a word of each in a register.
    type State = [__m512i; 25];
    /// Bytes that a lane takes in.
    type Block = [u8; RATE];

    const ROUNDS: [u64; 24] = [
        0x0000_0000_0000_0001,
        0x0000_0000_0000_8082,
        0x8000_0000_0000_808a,
        0x8000_0000_8000_8000,
        0x0000_0000_0000_808b,
        0x0000_0000_8000_0001,
        0x8000_0000_8000_8081,
        0x8000_0000_0000_8009,
        0x0000_0000_0000_008a,
        0x0000_0000_0000_0088,
        0x0000_0000_8000_8009,
        0x0000_0000_8000_000a,
        0x0000_0000_8000_808b,
        0x8000_0000_0000_008b,
        0x8000_0000_0000_8089,
        0x8000_0000_0000_8003,
        0x8000_0000_0000_8002,
        0x8000_0000_0000_0080,
        0x0000_0000_0000_800a,
        0x8000_0000_8000_000a,
        0x8000_0000_8000_8081,
        0x8000_0000_0000_8080,
        0x0000_0000_8000_0001,
        0x8000_0000_8000_8008,
    ];

    /// What a lane takes in that is done already.
    const NOTHING: Block = [0; RATE];

    pub(super) fn is_wide() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
    }

    /// The digests of eight messages of any lengths.
    pub(super) fn hash_wide(messages: &[&[u8]; LANES]) -> [Hash; LANES] {
        #[allow(unsafe_code, reason = "the only thing it asks for was looked for")]
        // SAFETY: `hash_each` comes here only if `is_wide` found that the processor has AVX-512F.
        unsafe {
            hash(messages)
        }
    }

    #[target_feature(enable = "avx512f")]
    fn hash(messages: &[&[u8]; LANES]) -> [Hash; LANES] {
        let mut state: State = [_mm512_setzero_si512(); 25];
        let mut digests = [Hash::ZERO; LANES];
        let longest = messages.iter().map(|message| message.len()).max().unwrap_or(0);
        for number in 0..=longest / RATE {
            let mut padded = [NOTHING; LANES];
            let mut blocks: [&Block; LANES] = [&NOTHING; LANES];
            for ((block, padded), message) in blocks.iter_mut().zip(&mut padded).zip(messages) {
                let rest = message.get(number * RATE..).unwrap_or(&[]);
                if let Some(whole) = rest.first_chunk() {
                    *block = whole;
                } else if number == message.len() / RATE {
                    pad(padded, rest);
                    *block = padded;
                }
            }
            absorb(&mut state, &blocks);
            permute(&mut state);
            if messages.iter().any(|message| number == message.len() / RATE) {
                let words = first_words(&state);
                for (lane, (digest, message)) in digests.iter_mut().zip(messages).enumerate() {
                    if number == message.len() / RATE {
                        for (bytes, word) in digest.0.chunks_exact_mut(8).zip(&words) {
                            let word = word.get(lane).copied().unwrap_or(0);
                            bytes.copy_from_slice(&word.to_le_bytes());
                        }
                    }
                }
            }
        }
        digests
    }

    /// The end of a message, as SHA3 ends it.
    fn pad(block: &mut Block, rest: &[u8]) {
        if let Some((to, behind)) = block.split_at_mut_checked(rest.len()) {
            to.copy_from_slice(rest);
            if let Some(first) = behind.first_mut() {
                *first = 0x06;
            }
            if let Some(last) = behind.last_mut() {
                *last ^= 0x80;
            }
        }
    }

    /// Takes a block of every lane in.
    #[allow(clippy::indexing_slicing, reason = "all indices are constants below the lengths")]
    #[target_feature(enable = "avx512f")]
    fn absorb(state: &mut State, blocks: &[&Block; LANES]) {
        for (word, to) in state.iter_mut().take(RATE / 8).enumerate() {
            let of = |lane: usize| {
                let bytes = blocks[lane][8 * word..].first_chunk().copied().unwrap_or_default();
                i64::from_le_bytes(bytes)
            };
            let words = _mm512_set_epi64(of(7), of(6), of(5), of(4), of(3), of(2), of(1), of(0));
            *to = _mm512_xor_si512(*to, words);
        }
    }

    /// The words that digests are made of.
    fn first_words(state: &State) -> [[u64; LANES]; 4] {
        let first: [__m512i; 4] = state.first_chunk().copied().unwrap_or([state[0]; 4]);
        #[allow(unsafe_code, reason = "eight words are eight words")]
        // SAFETY: both are four times 64 bytes, and any bytes are a value of both.
        unsafe {
            std::mem::transmute(first)
        }
    }

    /// Keccak-f[1600] of every lane.
    #[target_feature(enable = "avx512f")]
    fn permute(a: &mut State) {
        let mut e = *a;
        for two in ROUNDS.as_chunks::<2>().0 {
            round(a, &mut e, two[0]);
            round(&e, a, two[1]);
        }
    }

    /// A round: row by row, so that few words are on their way at a time.
    #[allow(clippy::indexing_slicing, reason = "all indices are constants below the lengths")]
    #[target_feature(enable = "avx512f")]
    fn round(a: &State, e: &mut State, constant: u64) {
        let mut c = [a[0]; 5];
        for x in 0..5 {
            c[x] = xor3(xor3(a[x], a[x + 5], a[x + 10]), a[x + 15], a[x + 20]);
        }
        let mut d = c;
        for x in 0..5 {
            d[x] = _mm512_xor_si512(c[(x + 4) % 5], _mm512_rol_epi64::<1>(c[(x + 1) % 5]));
        }
        macro_rules! row {
            ($y:literal: $($from:literal $by:literal),*) => {{
                let b = [$(_mm512_rol_epi64::<$by>(_mm512_xor_si512(a[$from], d[$from % 5]))),*];
                for x in 0..5 {
                    // The first, changed where the second is not and the third is.
                    e[$y + x] =
                        _mm512_ternarylogic_epi64::<0xd2>(b[x], b[(x + 1) % 5], b[(x + 2) % 5]);
                }
            }};
        }
        row!(0: 0 0, 6 44, 12 43, 18 21, 24 14);
        row!(5: 3 28, 9 20, 10 3, 16 45, 22 61);
        row!(10: 1 1, 7 6, 13 25, 19 8, 20 18);
        row!(15: 4 27, 5 36, 11 10, 17 15, 23 56);
        row!(20: 2 62, 8 55, 14 39, 15 41, 21 2);
        e[0] = _mm512_xor_si512(e[0], _mm512_set1_epi64(constant.cast_signed()));
    }

    #[target_feature(enable = "avx512f")]
    fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        _mm512_ternarylogic_epi64::<0x96>(a, b, c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_beside_every_other_is_the_same_as_alone() {
        let bytes: Vec<u8> =
            (0..2000_u32).map(|i| u8::try_from(i * 31 % 251).unwrap_or(0)).collect();
        let message = |i: usize| bytes.get(i % 7..i % 7 + i * 13 % 700).unwrap_or(&[]);
        let found = hash_each((0..700).map(message));
        for (i, digest) in found.iter().enumerate() {
            assert_eq!(digest.0, <[u8; 32]>::from(Sha3_256::digest(message(i))), "message {i}");
        }
        for edge in [0, 1, 135, 136, 137, 271, 272, 273, 407, 408] {
            let message = bytes.get(..edge).unwrap_or(&[]);
            assert_eq!(hash_each([message].into_iter()), [Hash::of(&[message])], "{edge} bytes");
        }
    }
}
