//! The header of a snapshot, 110 bytes, and an entry of its stream.

use ledger::Writer;

use super::checkpoint::Header;
use super::mcs::{self, Decoder, whole};
use crate::error::Rule;
use crate::hash::Hash;

/// Bytes of a header.
pub const HEADER_LEN: usize = 110;

/// What a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The chain.
    pub chain_id: u32,
    /// The checkpoint.
    pub seq: u64,
    /// Its digest.
    pub digest: Hash,
    /// The root of its state.
    pub state_root: Hash,
    /// How that was made, 1 or 2.
    pub state_root_version: u16,
    /// The validator set.
    pub validator_set_hash: Hash,
}

impl SnapshotHeader {
    /// That of the state after a checkpoint.
    pub fn of(header: &Header, state_root_version: u16) -> SnapshotHeader {
        SnapshotHeader {
            chain_id: header.chain_id,
            seq: header.seq,
            digest: header.digest(),
            state_root: header.state_root,
            state_root_version,
            validator_set_hash: header.validator_set_hash,
        }
    }

    /// Reads a header.
    pub fn decode(bytes: &[u8]) -> Result<SnapshotHeader, Rule> {
        whole(bytes, |decoder| {
            let header = SnapshotHeader {
                chain_id: decoder.u32()?,
                seq: decoder.u64()?,
                digest: Hash(decoder.array()?),
                state_root: Hash(decoder.array()?),
                state_root_version: decoder.u16()?,
                validator_set_hash: Hash(decoder.array()?),
            };
            match header.state_root_version {
                1 | 2 => Ok(header),
                _ => Err(Rule::StateRootVersion),
            }
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut writer = Writer::with_capacity(HEADER_LEN);
        writer.u32_le(self.chain_id).u64_le(self.seq).bytes(&self.digest.0);
        writer.bytes(&self.state_root.0).u16_le(self.state_root_version);
        writer.bytes(&self.validator_set_hash.0);
        writer.finish().try_into().unwrap_or([0; HEADER_LEN])
    }
}

/// Adds an entry to a stream: what a leaf of v1 is the digest of.
pub fn put_entry(stream: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    stream.extend_from_slice(&mcs::len(key.len()));
    stream.extend_from_slice(key);
    stream.extend_from_slice(&mcs::len(value.len()));
    stream.extend_from_slice(value);
}

/// A key and its value.
pub type Pair<'a> = (&'a [u8], &'a [u8]);

/// Reads the next entry; none at the end.
pub fn entry<'a>(stream: &mut Decoder<'a>) -> Result<Option<Pair<'a>>, Rule> {
    if stream.remaining() == 0 {
        return Ok(None);
    }
    Ok(Some((stream.bytes()?, stream.bytes()?)))
}
