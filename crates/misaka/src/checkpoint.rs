//! A final checkpoint, as execution gives it to the store and as the feed gives it on.
//!
//! ```text
//! file     "MSKCKPT1" | header, 166 | list<bytes[32]> digests | list<bytes> objects | list<string, bytes> parameters
//!          | list<u32 transaction, u32 number, bytes> events
//! ```

use ledger::Writer;

use crate::error::Rule;
use crate::format::checkpoint::{HEADER_LEN, Header};
use crate::format::mcs::{Decoder, put_bytes, put_list, whole};
use crate::hash::Hash;

/// What a checkpoint begins with where it is in a file.
pub(crate) const MAGIC: &[u8; 8] = b"MSKCKPT1";

/// An event of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event {
    /// The transaction, by its place in the checkpoint.
    pub tx: u32,
    /// The number of the event among those of the transaction.
    pub number: u32,
    /// What happened: bytes that nobody here looks into.
    pub bytes: Vec<u8>,
}

/// A final checkpoint: its header, and everything it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its header.
    pub header: Header,
    /// Digests of its transactions, in their order.
    pub tx_digests: Vec<Hash>,
    /// Objects that are written, tombstones too, every version, in the order of execution.
    pub writes: Vec<Vec<u8>>,
    /// Parameters that become others.
    pub params: Vec<(String, Vec<u8>)>,
    /// Events.
    pub events: Vec<Event>,
}

impl Checkpoint {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_with(&self.events)
    }

    /// As bytes, with other events.
    pub(crate) fn encode_with(&self, events: &[Event]) -> Vec<u8> {
        let mut writer = Writer::with_capacity(self.weight());
        writer.bytes(MAGIC).bytes(&self.header.encode());
        put_list(&mut writer, &self.tx_digests, |writer, digest| {
            writer.bytes(&digest.0);
        });
        put_list(&mut writer, &self.writes, |writer, object| put_bytes(writer, object));
        put_list(&mut writer, &self.params, |writer, (name, value)| {
            put_bytes(writer, name.as_bytes());
            put_bytes(writer, value);
        });
        put_list(&mut writer, events, |writer, event| {
            writer.u32_le(event.tx).u32_le(event.number);
            put_bytes(writer, &event.bytes);
        });
        writer.finish()
    }

    /// Reads those bytes.
    pub fn decode(bytes: &[u8]) -> Result<Checkpoint, Rule> {
        whole(bytes, |decoder| {
            if decoder.take(MAGIC.len())? != MAGIC {
                return Err(Rule::BadFormatVersion);
            }
            Ok(Checkpoint {
                header: Header::decode(decoder.take(HEADER_LEN)?)?,
                tx_digests: decoder.list(32, |item| item.array().map(Hash))?,
                writes: decoder.list(4, |item| item.bytes().map(<[u8]>::to_vec))?,
                params: decoder.list(8, |item: &mut Decoder<'_>| {
                    Ok((item.string()?.to_owned(), item.bytes()?.to_vec()))
                })?,
                events: decoder.list(12, |item| {
                    Ok(Event {
                        tx: item.u32()?,
                        number: item.u32()?,
                        bytes: item.bytes()?.to_vec(),
                    })
                })?,
            })
        })
    }

    /// Bytes of everything in it, about.
    pub(crate) fn weight(&self) -> usize {
        let writes: usize = self.writes.iter().map(|object| object.len() + 4).sum();
        let params: usize =
            self.params.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
        let events: usize = self.events.iter().map(|event| event.bytes.len() + 12).sum();
        8 + HEADER_LEN + 16 + 32 * self.tx_digests.len() + writes + params + events
    }
}
