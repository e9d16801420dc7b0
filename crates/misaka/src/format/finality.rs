//! `finality_proof_v1`: its layout. Signatures are for whoever knows what they cover.

use ledger::Writer;

use super::mcs::{put_list, whole};
use super::validators::Validator;
use crate::error::Rule;
use crate::hash::Hash;

/// That a checkpoint is final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalityProof {
    /// The chain.
    pub chain_id: u32,
    /// The checkpoint.
    pub seq: u64,
    /// Its digest.
    pub digest: Hash,
    /// The height of the block.
    pub block_height: u64,
    /// The round.
    pub round: u32,
    /// The block.
    pub block_id: Hash,
    /// The validator set.
    pub validator_set_hash: Hash,
    /// Its members.
    pub validators: Vec<Validator>,
    /// Who signed.
    pub signatures: Vec<([u8; 32], [u8; 64])>,
}

impl FinalityProof {
    /// Reads a proof.
    pub fn decode(bytes: &[u8]) -> Result<FinalityProof, Rule> {
        whole(bytes, |decoder| {
            if decoder.u16()? != 1 {
                return Err(Rule::BadFormatVersion);
            }
            Ok(FinalityProof {
                chain_id: decoder.u32()?,
                seq: decoder.u64()?,
                digest: Hash(decoder.array()?),
                block_height: decoder.u64()?,
                round: decoder.u32()?,
                block_id: Hash(decoder.array()?),
                validator_set_hash: Hash(decoder.array()?),
                validators: decoder.list(40, |item| Ok((item.array()?, item.u64()?)))?,
                signatures: decoder.list(96, |item| Ok((item.array()?, item.array()?)))?,
            })
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u16_le(1).u32_le(self.chain_id).u64_le(self.seq).bytes(&self.digest.0);
        writer.u64_le(self.block_height).u32_le(self.round).bytes(&self.block_id.0);
        writer.bytes(&self.validator_set_hash.0);
        put_list(&mut writer, &self.validators, |writer, (key, power)| {
            writer.bytes(key).u64_le(*power);
        });
        put_list(&mut writer, &self.signatures, |writer, (key, signature)| {
            writer.bytes(key).bytes(signature);
        });
        writer.finish()
    }
}
