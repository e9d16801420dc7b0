//! `UtxoEntry`: the value of `utxo_by_outpoint`.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | value, u64le |
//! | 8 | 2 | covenant_type, u16le |
//! | 10 | 1, 3, 5 or 9 | covenant_data_len, CompactSize |
//! | .. | n | covenant_data |
//! | .. | 8 | creation_height, u64le |
//! | .. | 1 | created_by_coinbase, 0 or 1 |
//!
//! All but the last two fields are the output as it stands in its transaction.

use ledger::{Malformed, Reader, Writer};

/// An output that can be spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtxoEntry<'a> {
    /// Units.
    pub value: u64,
    /// What it takes to spend it.
    pub covenant_type: u16,
    /// More about that.
    pub covenant_data: &'a [u8],
    /// Height of the block that made it.
    pub creation_height: u64,
    /// A coinbase made it.
    pub created_by_coinbase: bool,
}

impl<'a> UtxoEntry<'a> {
    /// Fewest bytes of one.
    pub const LEN_MIN: usize = 20;

    /// Decodes one; nothing may be left over.
    pub fn decode(bytes: &'a [u8]) -> Result<UtxoEntry<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let entry = UtxoEntry {
            value: reader.u64_le()?,
            covenant_type: reader.u16_le()?,
            covenant_data: reader.compact_bytes()?,
            creation_height: reader.u64_le()?,
            created_by_coinbase: match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(reader.malformed("created_by_coinbase is neither 0 nor 1")),
            },
        };
        reader.finish()?;
        Ok(entry)
    }

    /// Adds its bytes.
    pub fn write(&self, writer: &mut Writer) {
        writer.u64_le(self.value).u16_le(self.covenant_type).compact_bytes(self.covenant_data);
        writer.u64_le(self.creation_height).u8(u8::from(self.created_by_coinbase));
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.covenant_data.len() + 28);
        self.write(&mut writer);
        writer.finish()
    }
}
