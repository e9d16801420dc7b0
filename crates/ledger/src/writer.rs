//! Writing the bytes of ledger values, canonically: one way to write everything.

/// Bytes that grow at the end.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Nothing yet.
    pub fn new() -> Writer {
        Writer::default()
    }

    /// Nothing yet, with room for so many bytes.
    pub fn with_capacity(bytes: usize) -> Writer {
        Writer { bytes: Vec::with_capacity(bytes) }
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds a byte.
    pub fn u8(&mut self, value: u8) -> &mut Writer {
        self.bytes(&[value])
    }

    /// Adds two bytes, little-endian.
    pub fn u16_le(&mut self, value: u16) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Adds four bytes, little-endian.
    pub fn u32_le(&mut self, value: u32) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Adds eight bytes, little-endian.
    pub fn u64_le(&mut self, value: u64) -> &mut Writer {
        self.bytes(&value.to_le_bytes())
    }

    /// Adds a CompactSize number in its shortest form.
    pub fn compact_size(&mut self, value: u64) -> &mut Writer {
        match (u8::try_from(value), u16::try_from(value), u32::try_from(value)) {
            (Ok(value), _, _) if value < 0xfd => self.u8(value),
            (_, Ok(value), _) => self.u8(0xfd).u16_le(value),
            (_, _, Ok(value)) => self.u8(0xfe).u32_le(value),
            _ => self.u8(0xff).u64_le(value),
        }
    }

    /// Adds bytes with a CompactSize in front that says how many.
    pub fn compact_bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        self.compact_size(u64::try_from(bytes.len()).unwrap_or(u64::MAX)).bytes(bytes)
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of them, lent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of them.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}
