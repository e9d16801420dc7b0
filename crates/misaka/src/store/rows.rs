//! Rows as they are stored, where they differ from what everybody sees.

use ledger::Writer;

use crate::error::Rule;
use crate::format::checkpoint::{HEADER_LEN, Header};
use crate::format::mcs::whole;
use crate::format::object::Object;
use crate::hash::Hash;
use crate::leaf::Record;
use crate::store::Tip;

/// Bytes of a row that many things share.
pub(super) const ROW: usize = 64 << 10;

/// The key of a checkpoint.
pub(crate) fn seq_key(seq: u64) -> [u8; 8] {
    seq.to_be_bytes()
}

/// The key of a row of a checkpoint.
pub(crate) fn part_key(seq: u64, part: u32) -> [u8; 12] {
    let mut key = [0; 12];
    let (first, last) = key.split_at_mut(8);
    first.copy_from_slice(&seq.to_be_bytes());
    last.copy_from_slice(&part.to_be_bytes());
    key
}

/// The key of a version.
pub(crate) fn version_key(id: &Hash, version: u64) -> [u8; 40] {
    let mut key = [0; 40];
    let (first, last) = key.split_at_mut(32);
    first.copy_from_slice(&id.0);
    last.copy_from_slice(&version.to_be_bytes());
    key
}

/// Reads such a key.
pub(super) fn decode_version_key(key: &[u8]) -> Option<(Hash, u64)> {
    let (id, version) = key.split_first_chunk::<32>()?;
    Some((Hash(*id), u64::from_be_bytes(version.try_into().ok()?)))
}

/// The newest record of an object: the checkpoint that wrote it, and its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectRow<'a> {
    pub(crate) seq: u64,
    pub(crate) bytes: &'a [u8],
}

impl<'a> ObjectRow<'a> {
    pub(crate) fn decode(row: &'a [u8]) -> Result<ObjectRow<'a>, Rule> {
        let (seq, bytes) = row.split_first_chunk().ok_or(Rule::Truncated)?;
        Ok(ObjectRow { seq: u64::from_le_bytes(*seq), bytes })
    }

    /// Under its id, strictly.
    pub(crate) fn record(&self, key: &[u8]) -> Result<Record<'a>, Rule> {
        let object = Object::decode(self.bytes)?;
        if object.id.0 != key {
            return Err(Rule::ObjectId);
        }
        Ok(Record {
            id: object.id,
            version: object.version,
            is_tombstone: object.is_tombstone,
            seq: self.seq,
            bytes: self.bytes,
        })
    }
}

/// An entry of the journal.
pub(crate) fn journal_entry(id: &Hash, version: u64) -> [u8; 40] {
    version_key(id, version)
}

/// Entries of a row of the journal.
pub(super) fn journal_entries(row: &[u8]) -> Option<Vec<(Hash, u64)>> {
    row.chunks(40).map(decode_version_key).collect()
}

/// Of a checkpoint: how many rows it has in other tables, and what is in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) event_rows: u32,
    pub(crate) feed_rows: u32,
    pub(crate) journal_rows: u32,
    pub(crate) events: u64,
}

impl Note {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u32_le(self.event_rows).u32_le(self.feed_rows).u32_le(self.journal_rows);
        writer.u64_le(self.events);
        writer.finish()
    }

    pub(super) fn decode(row: &[u8]) -> Result<Note, Rule> {
        whole(row, |decoder| {
            Ok(Note {
                event_rows: decoder.u32()?,
                feed_rows: decoder.u32()?,
                journal_rows: decoder.u32()?,
                events: decoder.u64()?,
            })
        })
    }
}

/// The row that says where the store is.
pub(crate) struct TipRow;

impl TipRow {
    pub(crate) fn encode(header: &Header, first: u64, objects: u64) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.bytes(&header.encode()).u64_le(first).u64_le(objects);
        writer.finish()
    }

    pub(super) fn decode(row: &[u8]) -> Result<Tip, Rule> {
        whole(row, |decoder| {
            let header = Header::decode(decoder.take(HEADER_LEN)?)?;
            let digest = header.digest();
            Ok(Tip { header, digest, first: decoder.u64()?, objects: decoder.u64()? })
        })
    }
}
