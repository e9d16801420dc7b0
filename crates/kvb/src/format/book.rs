//! The book: the dictionaries that compressed values need. It is not derived from anything, so it is there twice.
//!
//! An extent whose first page has only the header of derived data; from the second page on one copy, from the next page
//! behind that another. Each copy is a head, the dictionaries one behind the other, each as a 32-bit length and its bytes,
//! a tag if they are encrypted, and a CRC-32C of it all.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::record::TAG;
use super::{crc, on_disk, read};

/// `magic` of a copy: `KVBD` read as little-endian.
pub const MAGIC: u32 = 0x4442_564B;
/// Most dictionaries of a bucket.
pub const COUNT_MAX: u32 = 16;
/// Longest dictionary.
pub const LEN_MAX: u64 = 1 << 20;

on_disk! {
    /// Head of a copy.
    pub struct BookHead (56 bytes) {
        /// [`MAGIC`].
        pub magic: U32,
        /// How many dictionaries there are.
        pub count: U32,
        /// The bucket's.
        pub file_uuid_hi: U64,
        /// The bucket's.
        pub file_uuid_lo: U64,
        /// Bytes of dictionaries with their lengths.
        pub length: U64,
        /// Random, if they are encrypted; else zeros.
        pub nonce: [u8; 24],
    }
}

/// Bytes of a copy of dictionaries with these lengths.
pub fn encoded_len(lens: impl Iterator<Item = usize>, is_encrypted: bool) -> usize {
    let body: usize = lens.map(|len| len + 4).sum();
    BookHead::SIZE + body + if is_encrypted { TAG } else { 0 } + 4
}

/// The dictionaries one behind the other.
pub fn body<'a>(dictionaries: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for dictionary in dictionaries {
        bytes.extend_from_slice(&(dictionary.len() as u32).to_le_bytes());
        bytes.extend_from_slice(dictionary);
    }
    bytes
}

/// Encodes a copy; `seal` encrypts the body if it gives a tag.
pub fn encode(
    head: BookHead,
    mut body: Vec<u8>,
    seal: impl FnOnce(&[u8], &mut [u8]) -> Option<[u8; TAG]>,
) -> Vec<u8> {
    let tag = seal(head.as_bytes(), &mut body);
    let mut bytes = head.as_bytes().to_vec();
    bytes.append(&mut body);
    bytes.extend_from_slice(tag.as_ref().map_or(&[], |tag| tag));
    bytes.extend_from_slice(&crc(&bytes).to_le_bytes());
    bytes
}

/// A copy whose CRC held: its head, its body as it lies, and its tag.
pub fn decode(
    bytes: &[u8],
    uuid: (u64, u64),
    is_encrypted: bool,
) -> Option<(BookHead, &[u8], &[u8])> {
    let head: BookHead = read(bytes)?;
    let is_own = head.magic.get() == MAGIC
        && (head.file_uuid_hi.get(), head.file_uuid_lo.get()) == uuid
        && head.count.get() <= COUNT_MAX
        && head.length.get() <= u64::from(COUNT_MAX) * (LEN_MAX + 4);
    if !is_own {
        return None;
    }
    let body_end = BookHead::SIZE + head.length.get() as usize;
    let end = body_end + if is_encrypted { TAG } else { 0 };
    let covered = bytes.get(..end)?;
    let is_whole = crc(covered).to_le_bytes() == bytes.get(end..end + 4)?;
    is_whole.then_some((head, covered.get(BookHead::SIZE..body_end)?, covered.get(body_end..)?))
}

/// The dictionaries of a body in the clear.
pub fn split(head: &BookHead, body: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = body;
    let mut dictionaries = Vec::new();
    for _ in 0..head.count.get() {
        let (len, behind) = rest.split_first_chunk::<4>()?;
        let (own, behind) = behind.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        dictionaries.push(own.to_vec());
        rest = behind;
    }
    rest.is_empty().then_some(dictionaries)
}
