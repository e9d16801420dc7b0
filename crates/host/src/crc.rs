//! CRC-32C of short pieces of bytes, such as records are.
//!
//! The processor's instruction takes three cycles for eight bytes, but one can begin every cycle. So three parts of the bytes
//! go through it side by side, and carry-less multiplication puts them together: behind a part come so many zero
//! bits, and that is a product with a power of x. `unsafe` here calls code for instructions that were asked for.

/// Eight bytes at a time, most that a part has.
#[cfg(target_arch = "x86_64")]
const WORDS_MAX: usize = 42;

/// Fewer bytes are not worth three parts.
#[cfg(target_arch = "x86_64")]
const BYTES_MIN: usize = 48;
#[cfg(target_arch = "x86_64")]
const BYTES_MAX: usize = 24 * WORDS_MAX + 23;

/// The CRC-32C (Castagnoli) of bytes with the usual initial value; `None` if they are too many or too few to be quick here, or
/// the processor lacks the instructions.
#[inline]
pub fn crc32c_short(bytes: &[u8]) -> Option<u32> {
    #[cfg(target_arch = "x86_64")]
    if (BYTES_MIN..=BYTES_MAX).contains(&bytes.len())
        && std::arch::is_x86_feature_detected!("sse4.2")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
    {
        // SAFETY: the processor has these instructions.
        #[allow(unsafe_code, reason = "instructions that not every processor has")]
        return Some(unsafe { x86::three_parts(bytes) });
    }
    let _unused = bytes;
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    };

    use super::WORDS_MAX;

    /// The polynomial, lowest power in the highest bit.
    const POLYNOMIAL: u32 = 0x82F6_3B78;

    /// Entry n: what takes a CRC past n words, and past twice as many.
    static PAST: [[u32; 2]; WORDS_MAX + 1] = powers();

    #[allow(clippy::indexing_slicing, reason = "made by the compiler")]
    const fn powers() -> [[u32; 2]; WORDS_MAX + 1] {
        let mut table = [[0; 2]; WORDS_MAX + 1];
        let mut n = 1;
        while n < table.len() {
            table[n] = [past(n), past(2 * n)];
            n += 1;
        }
        table
    }

    /// x to the 64 n - 33: the instruction that reduces a product multiplies it by x to the 32, and that both factors
    /// have their lowest power in the highest bit is once more x.
    const fn past(n: usize) -> u32 {
        let mut power: u32 = 1 << 31;
        let mut exponent = 0;
        while exponent < 64 * n - 33 {
            power = (power >> 1) ^ if power & 1 == 1 { POLYNOMIAL } else { 0 };
            exponent += 1;
        }
        power
    }

    /// Of at most `BYTES_MAX` bytes.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn three_parts(bytes: &[u8]) -> u32 {
        let words = bytes.len() / 24;
        let [past_one, past_two] = PAST.get(words).copied().unwrap_or_default();
        let (first, rest) = bytes.split_at(8 * words);
        let (second, rest) = rest.split_at(8 * words);
        let (third, tail) = rest.split_at(8 * words);
        let (first, second, third) =
            (first.as_chunks::<8>().0, second.as_chunks::<8>().0, third.as_chunks::<8>().0);
        let (mut a, mut b, mut c) = (u64::from(u32::MAX), 0, 0);
        for ((first, second), third) in first.iter().zip(second).zip(third) {
            a = _mm_crc32_u64(a, u64::from_le_bytes(*first));
            b = _mm_crc32_u64(b, u64::from_le_bytes(*second));
            c = _mm_crc32_u64(c, u64::from_le_bytes(*third));
        }
        let joined = product(a, past_two) ^ product(b, past_one);
        let mut crc = _mm_crc32_u64(0, joined) ^ c;
        let (words, tail) = tail.as_chunks::<8>();
        for word in words {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        }
        let [one, two, three, four, ..] = crc.to_le_bytes();
        let mut crc = u32::from_le_bytes([one, two, three, four]);
        for byte in tail {
            crc = _mm_crc32_u8(crc, *byte);
        }
        !crc
    }

    #[target_feature(enable = "pclmulqdq")]
    fn product(crc: u64, power: u32) -> u64 {
        let factors = _mm_cvtsi64_si128(crc.cast_signed());
        let power = _mm_cvtsi64_si128(i64::from(power));
        _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(factors, power)).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    use super::crc32c_short;

    /// Bit by bit, as it is defined.
    fn defined(bytes: &[u8]) -> u32 {
        let step = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        !bytes
            .iter()
            .fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
    }

    #[test]
    fn as_defined_at_every_length() {
        assert_eq!(defined(b"123456789"), 0xE306_9283);
        let mut random = fastrand::Rng::with_seed(1);
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1200).collect();
        let mut known = 0;
        for len in 0..1100 {
            for from in [0, 1, 7] {
                if let Some(crc) = crc32c_short(&bytes[from..from + len]) {
                    assert_eq!(crc, defined(&bytes[from..from + len]), "{len} bytes");
                    known += 1;
                }
            }
        }
        assert!(known == 0 || known > 2000, "{known}");
    }
}
