//! An object: 56 bytes, its owner, the name of its type, its payload.

use ledger::Writer;

use super::mcs::{Decoder, put_bytes};
use crate::error::Rule;
use crate::hash::Hash;

/// Who owns an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// An address.
    Address([u8; 32]),
    /// Another object.
    Object([u8; 32]),
    /// Nobody: all may use it, from this version on.
    Shared(u64),
    /// Nobody, and nobody may write it.
    Immutable,
}

impl Owner {
    /// The number of its kind.
    pub fn kind(&self) -> u8 {
        match self {
            Owner::Address(_) => 0,
            Owner::Object(_) => 1,
            Owner::Shared(_) => 2,
            Owner::Immutable => 3,
        }
    }

    /// What follows the kind.
    pub fn data(&self) -> Vec<u8> {
        match self {
            Owner::Address(id) | Owner::Object(id) => id.to_vec(),
            Owner::Shared(version) => version.to_le_bytes().to_vec(),
            Owner::Immutable => Vec::new(),
        }
    }

    fn of(kind: u8, data: &[u8]) -> Result<Owner, Rule> {
        let wrong = |_| Rule::BadOwnerDataLen;
        Ok(match kind {
            0 => Owner::Address(data.try_into().map_err(wrong)?),
            1 => Owner::Object(data.try_into().map_err(wrong)?),
            2 => Owner::Shared(u64::from_le_bytes(data.try_into().map_err(wrong)?)),
            3 if data.is_empty() => Owner::Immutable,
            3 => return Err(Rule::BadOwnerDataLen),
            _ => return Err(Rule::BadOwnerKind),
        })
    }
}

/// An object, as its bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its id.
    pub id: Hash,
    /// Its version, from 1.
    pub version: u64,
    /// Who owns it.
    pub owner: Owner,
    /// The name of its type.
    pub type_tag: &'a str,
    /// What it holds; nothing of a tombstone.
    pub payload: &'a [u8],
    /// It was deleted.
    pub is_tombstone: bool,
}

impl<'a> Object<'a> {
    /// Reads an object.
    pub fn decode(bytes: &'a [u8]) -> Result<Object<'a>, Rule> {
        let mut decoder = Decoder::new(bytes);
        if decoder.u16()? != 1 {
            return Err(Rule::BadFormatVersion);
        }
        let id = Hash(decoder.array()?);
        let version = decoder.u64()?;
        let kind = decoder.u8()?;
        if kind > 3 {
            return Err(Rule::BadOwnerKind);
        }
        let owner = Owner::of(kind, decoder.bytes()?)?;
        let type_tag = decoder.string()?;
        let payload = decoder.bytes()?;
        let lifecycle = decoder.u8()?;
        decoder.finish()?;
        match lifecycle {
            0 => {}
            1 if payload.is_empty() => {}
            1 => return Err(Rule::TombstonePayload),
            _ => return Err(Rule::BadLifecycle),
        }
        if version == 0 {
            return Err(Rule::BadVersion);
        }
        Ok(Object { id, version, owner, type_tag, payload, is_tombstone: lifecycle == 1 })
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let owner = self.owner.data();
        let len = 56 + owner.len() + self.type_tag.len() + self.payload.len();
        let mut writer = Writer::with_capacity(len);
        writer.u16_le(1).bytes(&self.id.0).u64_le(self.version).u8(self.owner.kind());
        put_bytes(&mut writer, &owner);
        put_bytes(&mut writer, self.type_tag.as_bytes());
        put_bytes(&mut writer, self.payload);
        writer.u8(u8::from(self.is_tombstone));
        writer.finish()
    }
}
