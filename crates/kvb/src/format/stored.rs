//! A stored value that is compressed (seed 002 section 11): its length as a varint, then one zstd frame.
//!
//! The varint is unsigned LEB128 in its shortest form. What a frame's header claims is checked before memory is taken for
//! what it holds.

/// Most bytes of a varint.
pub const VARINT_MAX: usize = 10;
/// First bytes of a zstd frame, little-endian.
pub const FRAME_MAGIC: u32 = 0xFD2F_B528;
/// Largest window a frame may ask for, in bytes.
pub const WINDOW_MAX: u64 = 8 << 20;
/// Most bytes that one block of a frame holds.
pub const BLOCK_MAX: u64 = 128 << 10;
/// Fewest bytes a block takes in the frame.
pub const BLOCK_MIN: u64 = 3;

/// Appends a varint.
pub fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Reads a varint in its shortest form, and how many bytes it took.
pub fn read_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value: u64 = 0;
    for (at, byte) in bytes.iter().take(VARINT_MAX).enumerate() {
        let low = u64::from(byte & 0x7F);
        let shift = 7 * at as u32;
        if low != 0 && low.leading_zeros() < shift {
            return None;
        }
        value |= low << shift;
        if byte & 0x80 == 0 {
            return (*byte != 0 || at == 0).then_some((value, at + 1));
        }
    }
    None
}

/// What the header of a zstd frame claims (RFC 8878, section 3.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of what it holds, if it says so.
    pub content_len: Option<u64>,
    /// Memory needed to expand it piece by piece; `None` if it is to be expanded at once.
    pub window: Option<u64>,
    /// Which dictionary it needs; 0 is none.
    pub dictionary: u32,
    /// Bytes of the header.
    pub len: usize,
}

impl FrameHeader {
    /// Reads the header at the start of a frame.
    pub fn decode(frame: &[u8]) -> Option<FrameHeader> {
        let (magic, rest) = frame.split_first_chunk::<4>()?;
        let (&descriptor, rest) = rest.split_first()?;
        // Bit 3 is reserved.
        if u32::from_le_bytes(*magic) != FRAME_MAGIC || descriptor & 0x08 != 0 {
            return None;
        }
        let is_single = descriptor & 0x20 != 0;
        let (window, rest) = if is_single {
            (None, rest)
        } else {
            let (&byte, rest) = rest.split_first()?;
            let base = 1_u64 << (10 + u32::from(byte >> 3));
            (Some(base + base / 8 * u64::from(byte & 7)), rest)
        };
        let dictionary_len = [0, 1, 2, 4].get(usize::from(descriptor & 3))?;
        let (dictionary, rest) = number(rest, *dictionary_len)?;
        let content_len_len = match descriptor >> 6 {
            0 => usize::from(is_single),
            1 => 2,
            2 => 4,
            _ => 8,
        };
        let (content_len, rest) = number(rest, content_len_len)?;
        let content_len = match content_len_len {
            0 => None,
            // Two bytes count from 256 on.
            2 => Some(content_len + 256),
            _ => Some(content_len),
        };
        Some(FrameHeader {
            content_len,
            window,
            dictionary: u32::try_from(dictionary).ok()?,
            len: frame.len() - rest.len(),
        })
    }
}

/// A little-endian number of so many bytes, and what is behind it.
fn number(bytes: &[u8], len: usize) -> Option<(u64, &[u8])> {
    let (own, rest) = bytes.split_at_checked(len)?;
    let mut wide = [0; 8];
    wide.get_mut(..len)?.copy_from_slice(own);
    Some((u64::from_le_bytes(wide), rest))
}

/// Splits a stored value into its length and its frame, if both are as they must be: of a value of at most `max` bytes, in
/// a frame that can hold as much and claims nothing else.
pub fn decode(stored: &[u8], max: u64) -> Option<(u64, FrameHeader, &[u8])> {
    let (len, varint_len) = read_varint(stored)?;
    let frame = stored.get(varint_len..)?;
    let header = FrameHeader::decode(frame)?;
    let blocks = (frame.len() - header.len) as u64 / BLOCK_MIN;
    let fits = len <= max
        && header.content_len.is_none_or(|claimed| claimed == len)
        && header.window.is_none_or(|window| window <= WINDOW_MAX)
        && len <= blocks.saturating_mul(BLOCK_MAX);
    fits.then_some((len, header, frame))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn varints_have_one_form() {
        for value in [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            push_varint(&mut bytes, value);
            assert_eq!(read_varint(&bytes), Some((value, bytes.len())));
            assert_eq!(read_varint(bytes.get(..bytes.len() - 1).unwrap()), None);
        }
        let refused: [&[u8]; 4] = [
            &[],
            &[0x80, 0x00],
            &[0xFF, 0x80, 0x00],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02],
        ];
        for bytes in refused {
            assert_eq!(read_varint(bytes), None, "{bytes:x?}");
        }
    }
}
