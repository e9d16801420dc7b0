//! Paths: bits from the root of the tree to somewhere in it, packed.
//!
//! Invariant: bits behind the end of the last byte are zero, so that equal paths have equal bytes.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

/// Most bits a path can have: hashes have room for no more.
pub const BITS_MAX: usize = 65_535;

/// A way down the tree: 0 is left, 1 is right.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Path {
    bytes: Box<[u8]>,
    len: u16,
}

/// More bits than a path can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a path has at most {BITS_MAX} bits")
    }
}

impl core::error::Error for TooLong {}

impl Path {
    /// All bits of some bytes, the most significant of each first.
    pub fn of_bytes(bytes: &[u8]) -> Result<Path, TooLong> {
        Path::new(bytes.into(), bytes.len().saturating_mul(8))
    }

    /// The first so many bits of some bytes. What is behind them is dropped.
    pub fn new(mut bytes: Vec<u8>, len: usize) -> Result<Path, TooLong> {
        let short = u16::try_from(len).map_err(|_| TooLong)?;
        bytes.resize(len.div_ceil(8), 0);
        if let Some(last) = bytes.last_mut() {
            *last &= mask(len);
        }
        Ok(Path { bytes: bytes.into(), len: short })
    }

    /// From a bit for each character, `0` or `1`.
    pub fn parse(text: &str) -> Option<Path> {
        let mut bits = Bits::default();
        for letter in text.bytes() {
            match letter {
                b'0' => bits.push(false),
                b'1' => bits.push(true),
                _ => return None,
            }
        }
        bits.finish().ok()
    }

    /// How many bits it has.
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bits, packed; those behind the last are zero.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bits, as it is hashed and stored.
    pub(crate) fn head(&self) -> [u8; 2] {
        self.len.to_be_bytes()
    }

    /// A bit; false behind the end.
    pub fn bit(&self, at: usize) -> bool {
        let byte = self.bytes.get(at / 8).copied().unwrap_or(0);
        at < self.len() && byte & (0x80 >> (at % 8)) != 0
    }

    /// The bits from one on and before another.
    #[must_use]
    pub fn part(&self, from: usize, to: usize) -> Path {
        let to = to.min(self.len());
        let len = to.saturating_sub(from);
        let mut bytes = Vec::with_capacity(len.div_ceil(8));
        let mut at = from;
        while at < to {
            bytes.push(self.window(at, 8));
            at += 8;
        }
        Path::new(bytes, len).unwrap_or_default()
    }

    /// The bits from one on.
    #[must_use]
    pub fn from(&self, from: usize) -> Path {
        self.part(from, self.len())
    }

    /// Up to eight bits from one on, at the top of a byte.
    fn window(&self, at: usize, count: usize) -> u8 {
        let byte = |number: usize| u16::from(self.bytes.get(number).copied().unwrap_or(0));
        let two = byte(at / 8) << 8 | byte(at / 8 + 1);
        let [high, _] = (two << (at % 8)).to_be_bytes();
        high & mask(count)
    }

    /// How many bits from one on are the same as the first of another path.
    pub fn common(&self, from: usize, other: &Path) -> usize {
        let most = self.len().saturating_sub(from).min(other.len());
        let mut same = 0;
        while same < most {
            let count = (most - same).min(8);
            let differ = self.window(from + same, count) ^ other.window(same, count);
            let equal = usize::try_from(differ.leading_zeros()).unwrap_or(0);
            if equal < count {
                return same + equal;
            }
            same += count;
        }
        most
    }

    /// True if it begins with another.
    pub fn starts_with(&self, other: &Path) -> bool {
        self.common(0, other) == other.len()
    }

    /// The bits, from the root on.
    pub fn bits(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        (0..self.len()).map(|at| self.bit(at))
    }
}

/// Ones for the bits of the last byte of so many.
fn mask(len: usize) -> u8 {
    match len % 8 {
        0 => 0xff,
        used => !(0xff >> used),
    }
}

/// In the order of the tree; a path that another begins with comes before it.
impl Ord for Path {
    fn cmp(&self, other: &Path) -> Ordering {
        (&self.bytes, self.len).cmp(&(&other.bytes, other.len))
    }
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Path) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bits().try_for_each(|bit| f.write_str(if bit { "1" } else { "0" }))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

/// A path that grows at its end.
#[derive(Clone, Debug, Default)]
pub struct Bits {
    bytes: Vec<u8>,
    len: usize,
}

impl Bits {
    /// One bit more.
    pub fn push(&mut self, bit: bool) {
        if self.len.is_multiple_of(8) {
            self.bytes.push(0);
        }
        if let Some(last) = self.bytes.last_mut().filter(|_| bit) {
            *last |= 0x80 >> (self.len % 8);
        }
        self.len += 1;
    }

    /// All bits of a path more.
    pub fn append(&mut self, path: &Path) {
        if self.len.is_multiple_of(8) {
            self.bytes.extend_from_slice(path.bytes());
            self.len += path.len();
            return;
        }
        let shift = self.len % 8;
        for byte in path.bytes() {
            let [high, low] = (u16::from(*byte) << (8 - shift)).to_be_bytes();
            if let Some(last) = self.bytes.last_mut() {
                *last |= high;
            }
            self.bytes.push(low);
        }
        self.len += path.len();
        self.bytes.truncate(self.len.div_ceil(8));
    }

    /// The first so many bits.
    #[must_use]
    pub fn first(&self, len: usize) -> Bits {
        let len = len.min(self.len);
        let mut bytes: Vec<u8> = self.bytes.iter().take(len.div_ceil(8)).copied().collect();
        if let Some(last) = bytes.last_mut() {
            *last &= mask(len);
        }
        Bits { bytes, len }
    }

    /// Back to the first so many bits.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            self.bytes.truncate(len.div_ceil(8));
            if let Some(last) = self.bytes.last_mut() {
                *last &= mask(len);
            }
        }
    }

    /// How many bits there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bits, from the first on.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = bool> + '_ {
        self.iter_from(0)
    }

    /// The bits from one on.
    pub fn iter_from(&self, from: usize) -> impl ExactSizeIterator<Item = bool> + '_ {
        (from..self.len)
            .map(|at| self.bytes.get(at / 8).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0))
    }

    /// The bits, packed; those behind the last are zero.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The number of bits, as it is hashed and stored. Paths are never longer.
    pub(crate) fn head(&self) -> [u8; 2] {
        u16::try_from(self.len).unwrap_or(u16::MAX).to_be_bytes()
    }

    /// The path.
    pub fn finish(self) -> Result<Path, TooLong> {
        Path::new(self.bytes, self.len)
    }

    /// The path so far.
    pub fn to_path(&self) -> Result<Path, TooLong> {
        self.clone().finish()
    }
}

impl From<&Path> for Bits {
    fn from(path: &Path) -> Bits {
        Bits { bytes: path.bytes().into(), len: path.len() }
    }
}
