//! MCS-1: integers little-endian and of fixed width, u32 in front of whatever has no fixed length, no padding, no tags. Every value has one
//! encoding, and nothing else is taken.

use ledger::Writer;

use crate::error::Rule;

/// Reads MCS-1 from the front, strictly.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Reads these bytes.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { rest: bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Rule> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Rule::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// `bytes[N]`.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Rule> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(Rule::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// `u8`.
    pub fn u8(&mut self) -> Result<u8, Rule> {
        self.array().map(u8::from_le_bytes)
    }

    /// `u16`.
    pub fn u16(&mut self) -> Result<u16, Rule> {
        self.array().map(u16::from_le_bytes)
    }

    /// `u32`.
    pub fn u32(&mut self) -> Result<u32, Rule> {
        self.array().map(u32::from_le_bytes)
    }

    /// `u64`.
    pub fn u64(&mut self) -> Result<u64, Rule> {
        self.array().map(u64::from_le_bytes)
    }

    /// `bool`.
    pub fn bool(&mut self) -> Result<bool, Rule> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Rule::BadBool),
        }
    }

    /// `bytes`.
    pub fn bytes(&mut self) -> Result<&'a [u8], Rule> {
        let len = usize::try_from(self.u32()?).map_err(|_| Rule::Truncated)?;
        self.take(len)
    }

    /// `string`.
    pub fn string(&mut self) -> Result<&'a str, Rule> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Rule::BadUtf8)
    }

    /// `list<T>`, of things that have so many bytes at least: no more is announced than there is room for.
    pub fn list<T>(
        &mut self,
        least: usize,
        mut item: impl FnMut(&mut Decoder<'a>) -> Result<T, Rule>,
    ) -> Result<Vec<T>, Rule> {
        let count = usize::try_from(self.u32()?).map_err(|_| Rule::Truncated)?;
        if count.checked_mul(least).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(Rule::Truncated);
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// Ends reading: nothing may be left.
    pub fn finish(self) -> Result<(), Rule> {
        if self.rest.is_empty() { Ok(()) } else { Err(Rule::TrailingBytes) }
    }
}

/// One value, and nothing after it.
pub fn whole<'a, T>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Decoder<'a>) -> Result<T, Rule>,
) -> Result<T, Rule> {
    let mut decoder = Decoder::new(bytes);
    let value = read(&mut decoder)?;
    decoder.finish()?;
    Ok(value)
}

/// A length as it is encoded. Nothing here has four gigabytes.
pub fn len(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes()
}

/// Adds `bytes` or a `string`.
pub fn put_bytes(writer: &mut Writer, bytes: &[u8]) {
    writer.bytes(&len(bytes.len())).bytes(bytes);
}

/// Adds a `list<T>`.
pub fn put_list<T>(writer: &mut Writer, items: &[T], mut put: impl FnMut(&mut Writer, &T)) {
    writer.bytes(&len(items.len()));
    items.iter().for_each(|item| put(writer, item));
}
