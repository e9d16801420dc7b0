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
        __m512i, _mm512_rol_epi64, _mm512_set1_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    };

    use super::{LANES, RATE};
    use crate::hash::Hash;

    /// The state of each lane, word by word.
    type State = [[u64; LANES]; 25];

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

    pub(super) fn is_wide() -> bool {
        std::arch::is_x86_feature_detected!("avx512f")
    }

    /// The digests of eight messages of any lengths.
    pub(super) fn hash_wide(messages: &[&[u8]; LANES]) -> [Hash; LANES] {
        let mut state: State = [[0; LANES]; 25];
        let mut digests = [Hash::ZERO; LANES];
        let longest = messages.iter().map(|message| message.len()).max().unwrap_or(0);
        for block in 0..=longest / RATE {
            for (lane, message) in messages.iter().enumerate() {
                let rest = message.get(block * RATE..).unwrap_or(&[]);
                if let Some(whole) = rest.get(..RATE) {
                    absorb(&mut state, lane, whole);
                } else if block == message.len() / RATE {
                    let mut padded = [0; RATE];
                    for (to, from) in padded.iter_mut().zip(rest) {
                        *to = *from;
                    }
                    if let Some(byte) = padded.get_mut(rest.len()) {
                        *byte ^= 0x06;
                    }
                    if let Some(byte) = padded.last_mut() {
                        *byte ^= 0x80;
                    }
                    absorb(&mut state, lane, &padded);
                }
            }
            #[allow(unsafe_code, reason = "the only thing it asks for was looked for")]
            // SAFETY: `hash_each` comes here only if `is_wide` found that the processor has AVX-512F.
            unsafe {
                permute(&mut state);
            }
            for (lane, message) in messages.iter().enumerate() {
                if block == message.len() / RATE
                    && let Some(digest) = digests.get_mut(lane)
                {
                    for (bytes, word) in digest.0.chunks_exact_mut(8).zip(&state) {
                        bytes.copy_from_slice(&word.get(lane).copied().unwrap_or(0).to_le_bytes());
                    }
                }
            }
        }
        digests
    }

    fn absorb(state: &mut State, lane: usize, block: &[u8]) {
        for (word, bytes) in state.iter_mut().zip(block.chunks_exact(8)) {
            if let (Some(word), Ok(bytes)) = (word.get_mut(lane), bytes.try_into()) {
                *word ^= u64::from_le_bytes(bytes);
            }
        }
    }

    /// Keccak-f[1600] of every lane.
    #[allow(clippy::indexing_slicing, reason = "all indices are constants below the lengths")]
    #[target_feature(enable = "avx512f")]
    fn permute(state: &mut State) {
        #[allow(unsafe_code, reason = "eight words are eight words")]
        // SAFETY: both are 25 times 64 bytes, and any bytes are a value of both.
        let mut a: [__m512i; 25] = unsafe { std::mem::transmute(*state) };
        for round in ROUNDS {
            let mut c = [a[0]; 5];
            for x in 0..5 {
                c[x] = xor3(xor3(a[x], a[x + 5], a[x + 10]), a[x + 15], a[x + 20]);
            }
            let mut d = [a[0]; 5];
            for x in 0..5 {
                d[x] = _mm512_xor_si512(c[(x + 4) % 5], _mm512_rol_epi64::<1>(c[(x + 1) % 5]));
            }
            let mut b = a;
            macro_rules! turn {
                ($($to:literal $from:literal $by:literal),*) => {
                    $(b[$to] = _mm512_rol_epi64::<$by>(_mm512_xor_si512(a[$from], d[$from % 5]));)*
                };
            }
            turn!(0 0 0, 1 6 44, 2 12 43, 3 18 21, 4 24 14);
            turn!(5 3 28, 6 9 20, 7 10 3, 8 16 45, 9 22 61);
            turn!(10 1 1, 11 7 6, 12 13 25, 13 19 8, 14 20 18);
            turn!(15 4 27, 16 5 36, 17 11 10, 18 17 15, 19 23 56);
            turn!(20 2 62, 21 8 55, 22 14 39, 23 15 41, 24 21 2);
            for y in [0, 5, 10, 15, 20] {
                for x in 0..5 {
                    // The first, changed where the second is not and the third is.
                    a[y + x] = _mm512_ternarylogic_epi64::<0xd2>(
                        b[y + x],
                        b[y + (x + 1) % 5],
                        b[y + (x + 2) % 5],
                    );
                }
            }
            a[0] = _mm512_xor_si512(a[0], _mm512_set1_epi64(round.cast_signed()));
        }
        #[allow(unsafe_code, reason = "eight words are eight words")]
        // SAFETY: as above.
        let done: State = unsafe { std::mem::transmute(a) };
        *state = done;
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
