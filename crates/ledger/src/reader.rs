//! Reading the bytes of ledger values, strictly: nothing is believed that was not checked, nothing is reserved that is not
//! there, and nothing may be left over.

/// Bytes that are not what they should be, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
    /// Where, from the first byte that was given.
    pub at: usize,
}

/// Bytes that are read from the front.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, at: 0 }
    }

    /// How many bytes were read.
    pub fn position(&self) -> usize {
        self.at
    }

    /// How many are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// An error where the reader stands.
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { what, at: self.at }
    }

    /// The next bytes, lent.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) =
            self.rest.split_at_checked(len).ok_or(self.malformed("the bytes end too early"))?;
        self.rest = rest;
        self.at += len;
        Ok(taken)
    }

    /// The next bytes, as many as the type has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| self.malformed("the bytes end too early"))
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_le_bytes)
    }

    /// Two bytes, little-endian.
    pub fn u16_le(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes, little-endian.
    pub fn u32_le(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes, little-endian.
    pub fn u64_le(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A CompactSize number in its shortest form.
    pub fn compact_size(&mut self) -> Result<u64, Malformed> {
        let start = self.malformed("a CompactSize is longer than it needs to be");
        let (value, least) = match self.u8()? {
            0xfd => (u64::from(self.u16_le()?), 0xfd),
            0xfe => (u64::from(self.u32_le()?), 0x1_0000),
            0xff => (self.u64_le()?, 0x1_0000_0000),
            small => (u64::from(small), 0),
        };
        if value < least { Err(start) } else { Ok(value) }
    }

    /// A CompactSize that says how many things follow, each of at least so many bytes: never more than there is room for.
    pub fn compact_count(&mut self, least_len: usize) -> Result<usize, Malformed> {
        let count = self.compact_size()?;
        self.check_count(count, least_len)
    }

    /// The same of a number that was read already.
    pub fn check_count(&self, count: u64, least_len: usize) -> Result<usize, Malformed> {
        usize::try_from(count)
            .ok()
            .filter(|count| {
                count.checked_mul(least_len).is_some_and(|needed| needed <= self.rest.len())
            })
            .ok_or(self.malformed("more is announced than there is room for"))
    }

    /// Bytes with a CompactSize in front that says how many.
    pub fn compact_bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.compact_count(1)?;
        self.bytes(len)
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = std::mem::take(&mut self.rest);
        self.at += rest.len();
        rest
    }

    /// Ends reading: nothing may be left.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.malformed("bytes are left over")) }
    }
}
