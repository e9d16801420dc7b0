//! `UndoRecord`: the value of `undo_by_block_hash`, what it takes to take a block back.
//!
//! | bytes | field |
//! |---|---|
//! | 4 | spent_count, u32le |
//! | each 36 + 4 + m | outpoint, length m of the entry as u32le, the `UtxoEntry` as it was before the block |
//! | 4 | created_count, u32le |
//! | each 36 | outpoint |
//!
//! It is the difference between the set before the block and after it: what was made and spent within the block is in
//! neither list.

use ledger::{Malformed, Reader, Writer};

use crate::entry::UtxoEntry;
use crate::outpoint::Outpoint;

/// Bytes of a spent output beside its entry.
const SPENT_LEN: usize = Outpoint::LEN + 4;

/// What it takes to take a block back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UndoRecord<'a> {
    /// Outputs that were there before and are gone or another, with their entries.
    pub spent: Vec<(Outpoint, &'a [u8])>,
    /// Outputs that were not there before.
    pub created: Vec<Outpoint>,
}

impl<'a> UndoRecord<'a> {
    /// Decodes one, entries too; nothing may be left over.
    pub fn decode(bytes: &'a [u8]) -> Result<UndoRecord<'a>, Malformed> {
        let mut reader = Reader::new(bytes);
        let count = u64::from(reader.u32_le()?);
        let count = reader.check_count(count, SPENT_LEN + UtxoEntry::LEN_MIN)?;
        let mut spent = Vec::with_capacity(count);
        for _ in 0..count {
            let outpoint = Outpoint::read(&mut reader)?;
            let len = u64::from(reader.u32_le()?);
            let len = reader.check_count(len, 1)?;
            let at = reader.position();
            let entry = reader.bytes(len)?;
            UtxoEntry::decode(entry).map_err(|error| Malformed { at: at + error.at, ..error })?;
            spent.push((outpoint, entry));
        }
        let count = u64::from(reader.u32_le()?);
        let count = reader.check_count(count, Outpoint::LEN)?;
        let mut created = Vec::with_capacity(count);
        for _ in 0..count {
            created.push(Outpoint::read(&mut reader)?);
        }
        reader.finish()?;
        Ok(UndoRecord { spent, created })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let entries: usize = self.spent.iter().map(|(_, entry)| entry.len() + SPENT_LEN).sum();
        let mut writer = Writer::with_capacity(8 + entries + self.created.len() * Outpoint::LEN);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        writer.u32_le(count(self.spent.len()));
        for (outpoint, entry) in &self.spent {
            writer.bytes(outpoint.as_bytes()).u32_le(count(entry.len())).bytes(entry);
        }
        writer.u32_le(count(self.created.len()));
        for outpoint in &self.created {
            writer.bytes(outpoint.as_bytes());
        }
        writer.finish()
    }
}
