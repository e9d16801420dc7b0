//! The part of CBOR that rows and proofs are made of, in one form only: lengths known, heads as short as can be.

use alloc::vec::Vec;
use core::fmt;

use crate::hash::{Hash, Node};
use crate::path::{BITS_MAX, Bits, Path};

/// Bytes that are not in the one form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where.
    pub at: usize,
    /// What is wrong.
    pub wrong: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.wrong, self.at)
    }
}

impl core::error::Error for Malformed {}

const UINT: u8 = 0;
const BYTES: u8 = 2;
const ARRAY: u8 = 4;
#[cfg(feature = "cardano")]
const MAP: u8 = 5;
#[cfg(feature = "cardano")]
const TAG: u8 = 6;
const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;

/// Writes items one behind the other.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// Nothing yet.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Nothing yet, with room.
    pub fn with_capacity(len: usize) -> Encoder {
        Encoder { bytes: Vec::with_capacity(len) }
    }

    fn head(&mut self, major: u8, number: u64) -> &mut Encoder {
        let bytes = number.to_be_bytes();
        let (info, used) = match number {
            0..24 => (bytes.last().copied().unwrap_or(0), 0),
            24..0x100 => (24, 1),
            0x100..0x1_0000 => (25, 2),
            0x1_0000..0x1_0000_0000 => (26, 4),
            _ => (27, 8),
        };
        self.bytes.push(major << 5 | info);
        self.bytes.extend_from_slice(bytes.get(8 - used..).unwrap_or(&[]));
        self
    }

    /// An unsigned number.
    pub fn uint(&mut self, number: u64) -> &mut Encoder {
        self.head(UINT, number)
    }

    /// A boolean.
    pub fn bool(&mut self, value: bool) -> &mut Encoder {
        self.bytes.push(if value { TRUE } else { FALSE });
        self
    }

    /// A byte string.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.head(BYTES, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The head of an array of so many items.
    pub fn array(&mut self, count: usize) -> &mut Encoder {
        self.head(ARRAY, u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// The head of a map of so many pairs.
    #[cfg(feature = "cardano")]
    pub(crate) fn map(&mut self, count: usize) -> &mut Encoder {
        self.head(MAP, u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// The head of a map that a break ends.
    #[cfg(feature = "cardano")]
    pub(crate) fn open_map(&mut self) -> &mut Encoder {
        self.raw(&[MAP << 5 | 31])
    }

    /// The break.
    #[cfg(feature = "cardano")]
    pub(crate) fn end(&mut self) -> &mut Encoder {
        self.raw(&[0xff])
    }

    /// The tag of the item that comes next.
    #[cfg(feature = "cardano")]
    pub(crate) fn tag(&mut self, tag: u64) -> &mut Encoder {
        self.head(TAG, tag)
    }

    /// A path: an array with a number for each bit.
    pub fn path(&mut self, path: &Path) -> &mut Encoder {
        self.bits(path.bits())
    }

    /// The same from bits.
    pub fn bits(&mut self, bits: impl ExactSizeIterator<Item = bool>) -> &mut Encoder {
        self.array(bits.len());
        self.bytes.extend(bits.map(u8::from));
        self
    }

    /// A node: its jump and its digest.
    pub fn node(&mut self, node: &Node) -> &mut Encoder {
        self.array(2).path(&node.jump).bytes(&node.value.0)
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// What was written.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads items one behind the other, and refuses every other form of them.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    /// From the first byte on.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, at: 0 }
    }

    /// What is wrong here.
    pub fn wrong(&self, wrong: &'static str) -> Malformed {
        Malformed { at: self.at, wrong }
    }

    /// Bytes left.
    pub fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Bytes as they are.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| self.wrong("the bytes end too early"))?;
        self.at += len;
        Ok(bytes)
    }

    fn head(&mut self, major: u8, wanted: &'static str) -> Result<u64, Malformed> {
        let start = self.clone();
        let first = self.raw(1)?.first().copied().unwrap_or(0);
        if first >> 5 != major {
            return Err(start.wrong(wanted));
        }
        let used = match first & 0x1f {
            info @ 0..24 => return Ok(u64::from(info)),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            _ => return Err(start.wrong("a length that is not known")),
        };
        let number = self.raw(used)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let least = match used {
            1 => 24,
            2 => 1 << 8,
            4 => 1 << 16,
            _ => 1 << 32,
        };
        if number < least {
            return Err(start.wrong("a number that is longer than it has to be"));
        }
        Ok(number)
    }

    /// An unsigned number.
    pub fn uint(&mut self) -> Result<u64, Malformed> {
        self.head(UINT, "this should be a number")
    }

    /// A boolean.
    pub fn bool(&mut self) -> Result<bool, Malformed> {
        let start = self.clone();
        match self.raw(1)? {
            [TRUE] => Ok(true),
            [FALSE] => Ok(false),
            _ => Err(start.wrong("this should be true or false")),
        }
    }

    /// A byte string.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let start = self.clone();
        let len = self.head(BYTES, "this should be a byte string")?;
        let len = usize::try_from(len).map_err(|_| start.wrong("the bytes end too early"))?;
        self.raw(len)
    }

    /// A digest.
    pub fn hash(&mut self) -> Result<Hash, Malformed> {
        let start = self.clone();
        Hash::from_slice(self.bytes()?).ok_or_else(|| start.wrong("a digest has 32 bytes"))
    }

    /// The number of items of an array. Each takes a byte at least, so there are never more than bytes.
    pub fn array(&mut self) -> Result<usize, Malformed> {
        let start = self.clone();
        let count = self.head(ARRAY, "this should be an array")?;
        let count = usize::try_from(count).ok().filter(|count| *count <= self.left());
        count.ok_or_else(|| start.wrong("the bytes end too early"))
    }

    /// The head of an array of so many items.
    pub fn array_of(&mut self, count: usize, wanted: &'static str) -> Result<(), Malformed> {
        let start = self.clone();
        if self.array()? != count {
            return Err(start.wrong(wanted));
        }
        Ok(())
    }

    /// A path.
    pub fn path(&mut self) -> Result<Path, Malformed> {
        let start = self.clone();
        let count = self.array()?;
        if count > BITS_MAX {
            return Err(start.wrong("a path has at most 65,535 bits"));
        }
        let mut bits = Bits::default();
        for number in self.raw(count)? {
            match number {
                0 | 1 => bits.push(*number == 1),
                _ => return Err(start.wrong("the bits of a path are 0 and 1")),
            }
        }
        bits.finish().map_err(|_| start.wrong("a path has at most 65,535 bits"))
    }

    /// A node.
    pub fn node(&mut self) -> Result<Node, Malformed> {
        self.array_of(2, "a node has two fields")?;
        Ok(Node { jump: self.path()?, value: self.hash()? })
    }

    /// Nothing must be left.
    pub fn finish(self) -> Result<(), Malformed> {
        match self.left() {
            0 => Ok(()),
            _ => Err(self.wrong("there are bytes behind the end")),
        }
    }
}
