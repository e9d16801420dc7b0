//! `MANIFEST.json`: the one authority on which block was applied last.

use std::cmp::Ordering;

use host::Dir;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::hash::Hash;
use crate::work::Work;

/// The file's name.
pub(crate) const NAME: &str = "MANIFEST.json";
/// The version of all encodings that this software writes.
pub const SCHEMA_VERSION: u32 = 1;

/// The applied end of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// The block.
    pub hash: Hash,
    /// Its height.
    pub height: u64,
    /// Work of the chain up to it.
    pub work: Work,
}

impl Tip {
    /// More work is better; of equal work the smaller hash.
    pub fn is_better_than(&self, other: &Tip) -> bool {
        match self.work.cmp(&other.work) {
            Ordering::Greater => true,
            Ordering::Equal => self.hash < other.hash,
            Ordering::Less => false,
        }
    }
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Version of the encodings.
    pub schema_version: u32,
    /// The chain.
    pub chain_id: Hash,
    /// The block applied last.
    pub tip: Tip,
}

/// The file, field by field.
#[derive(Serialize, Deserialize)]
struct Fields {
    schema_version: u32,
    chain_id_hex: String,
    tip_hash: String,
    tip_height: u64,
    tip_cumulative_work: String,
    last_applied_block_hash: String,
    last_applied_height: u64,
}

/// The one field that every version has.
#[derive(Deserialize)]
struct Version {
    schema_version: u32,
}

impl Manifest {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let fields = Fields {
            schema_version: self.schema_version,
            chain_id_hex: self.chain_id.to_string(),
            tip_hash: self.tip.hash.to_string(),
            tip_height: self.tip.height,
            tip_cumulative_work: self.tip.work.to_string(),
            last_applied_block_hash: self.tip.hash.to_string(),
            last_applied_height: self.tip.height,
        };
        // Numbers and texts always have a form.
        let mut bytes = serde_json::to_vec_pretty(&fields).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// From the file's bytes. A version that is not known is no reason to fail: whoever asks decides.
    pub fn decode(bytes: &[u8]) -> Result<Manifest, Error> {
        let wrong = |what: String| Error::Manifest(what);
        let fields: Fields = serde_json::from_slice(bytes).map_err(|error| {
            // Newer software may have other fields, too.
            match serde_json::from_slice(bytes) {
                Ok(Version { schema_version: found }) if found > SCHEMA_VERSION => {
                    Error::NewerSchema { found, supported: SCHEMA_VERSION }
                }
                _ => wrong(format!("is not one: {error}")),
            }
        })?;
        let hash = |name: &str, text: &str| {
            let is_plain = !text.contains(|letter: char| letter.is_ascii_uppercase());
            let hash = text.parse().ok().filter(|_| is_plain);
            hash.ok_or_else(|| wrong(format!("has a {name} that is not 64 lower-case hex digits")))
        };
        let tip = Tip {
            hash: hash("tip_hash", &fields.tip_hash)?,
            height: fields.tip_height,
            work: fields.tip_cumulative_work.parse().map_err(|_| {
                wrong("has a tip_cumulative_work that is not a decimal number".to_owned())
            })?,
        };
        let last = hash("last_applied_block_hash", &fields.last_applied_block_hash)?;
        if (last, fields.last_applied_height) != (tip.hash, tip.height) {
            return Err(wrong("names one block as tip and another as applied last".to_owned()));
        }
        let chain_id = hash("chain_id_hex", &fields.chain_id_hex)?;
        Ok(Manifest { schema_version: fields.schema_version, chain_id, tip })
    }

    /// Reads it from a directory; none if there is no such file.
    pub fn read(dir: &dyn Dir) -> Result<Option<Manifest>, Error> {
        let bytes = dir.read(NAME).map_err(Error::io("read MANIFEST.json"))?;
        bytes.map(|bytes| Manifest::decode(&bytes)).transpose()
    }

    /// Puts it in the place of the one before, atomically and durably.
    pub fn write(&self, dir: &dyn Dir) -> Result<(), Error> {
        dir.replace(NAME, &self.encode()).map_err(Error::io("write MANIFEST.json"))
    }

    /// Refuses versions other than this software's, and other chains.
    pub fn check(&self, chain_id: Hash) -> Result<(), Error> {
        let (found, supported) = (self.schema_version, SCHEMA_VERSION);
        if found > supported {
            return Err(Error::NewerSchema { found, supported });
        }
        if found < supported {
            return Err(Error::OlderSchema { found, supported });
        }
        if self.chain_id != chain_id {
            return Err(Error::ForeignChain {
                found: self.chain_id.to_string(),
                wanted: chain_id.to_string(),
            });
        }
        Ok(())
    }
}
