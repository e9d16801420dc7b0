//! The header of a checkpoint, 166 bytes, and the digests of its transactions, which follow it in the store.

use ledger::Writer;

use super::mcs::{Decoder, put_list, whole};
use crate::error::Rule;
use crate::hash::Hash;
use crate::merkle::merkle;

/// Bytes of a header.
pub const HEADER_LEN: usize = 166;

/// The header of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The chain.
    pub chain_id: u32,
    /// The epoch.
    pub epoch: u64,
    /// The number of the checkpoint.
    pub seq: u64,
    /// The digest of the checkpoint before.
    pub prev_digest: Hash,
    /// When, in milliseconds since 1970.
    pub timestamp_ms: u64,
    /// Transactions.
    pub tx_count: u32,
    /// Merkle root over their digests.
    pub tx_root: Hash,
    /// The root of the state after them.
    pub state_root: Hash,
    /// The validator set.
    pub validator_set_hash: Hash,
}

impl Header {
    /// Reads a header.
    pub fn decode(bytes: &[u8]) -> Result<Header, Rule> {
        whole(bytes, |decoder| {
            let format = decoder.u16()?;
            let header = Header {
                chain_id: decoder.u32()?,
                epoch: decoder.u64()?,
                seq: decoder.u64()?,
                prev_digest: Hash(decoder.array()?),
                timestamp_ms: decoder.u64()?,
                tx_count: decoder.u32()?,
                tx_root: Hash(decoder.array()?),
                state_root: Hash(decoder.array()?),
                validator_set_hash: Hash(decoder.array()?),
            };
            match (format, decoder.u16()?, decoder.u16()?) {
                (1, 1, 1) => Ok(header),
                _ => Err(Rule::HeaderConst),
            }
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut writer = Writer::with_capacity(HEADER_LEN);
        writer.u16_le(1).u32_le(self.chain_id).u64_le(self.epoch).u64_le(self.seq);
        writer.bytes(&self.prev_digest.0).u64_le(self.timestamp_ms).u32_le(self.tx_count);
        writer.bytes(&self.tx_root.0).bytes(&self.state_root.0);
        writer.bytes(&self.validator_set_hash.0).u16_le(1).u16_le(1);
        writer.finish().try_into().unwrap_or([0; HEADER_LEN])
    }

    /// The digest of the checkpoint.
    pub fn digest(&self) -> Hash {
        Hash::of(&[&self.encode()])
    }

    /// Checks the digests of a body against what the header says of them.
    pub fn check_body(&self, digests: &[Hash]) -> Result<(), Rule> {
        if usize::try_from(self.tx_count) != Ok(digests.len()) {
            return Err(Rule::TxCount);
        }
        match tx_root(digests) == self.tx_root {
            true => Ok(()),
            false => Err(Rule::TxMerkle),
        }
    }
}

/// The Merkle root over digests of transactions.
pub fn tx_root(digests: &[Hash]) -> Hash {
    merkle(&Hash::of_each(digests.iter().map(|digest| digest.0.as_slice())))
}

/// The value of a checkpoint in its store.
pub fn value(header: &Header, digests: &[Hash]) -> Vec<u8> {
    let mut writer = Writer::with_capacity(HEADER_LEN + 4 + 32 * digests.len());
    writer.bytes(&header.encode());
    put_list(&mut writer, digests, |writer, digest| {
        writer.bytes(&digest.0);
    });
    writer.finish()
}

/// Reads such a value, and checks the digests against the header.
pub fn decode_value(bytes: &[u8]) -> Result<(Header, Vec<Hash>), Rule> {
    let (head, body) = bytes.split_at_checked(HEADER_LEN).ok_or(Rule::Truncated)?;
    let header = Header::decode(head)?;
    let digests =
        whole(body, |decoder| decoder.list(32, |item: &mut Decoder<'_>| item.array().map(Hash)))?;
    header.check_body(&digests)?;
    Ok((header, digests))
}
