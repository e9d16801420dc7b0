//! Keys of the stores as everybody sees them: little-endian numbers, so their order is not that of the numbers.
//!
//! They are read by place only: a number can have the byte of the slash in it.

use super::mcs::{Decoder, whole};
use crate::error::Rule;
use crate::hash::Hash;

/// What parameters begin with.
pub const PARAMS: &str = "sys/params/";
/// Longest name of a parameter.
pub const PARAM_NAME_MAX: usize = 1024;

/// A key of one of the stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// The newest record of an object.
    Object(Hash),
    /// A version of an object.
    Version(Hash, u64),
    /// A checkpoint.
    Checkpoint(u64),
    /// An event: its checkpoint, its transaction, its number.
    Event(u64, u32, u32),
    /// A parameter, by its name.
    Param(String),
}

impl Key {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Key::Object(id) => object(id).to_vec(),
            Key::Version(id, number) => version(id, *number).to_vec(),
            Key::Checkpoint(seq) => [b"ckpt/".as_slice(), &seq.to_le_bytes()].concat(),
            Key::Event(seq, tx, event) => [
                b"evt/".as_slice(),
                &seq.to_le_bytes(),
                b"/",
                &tx.to_le_bytes(),
                b"/",
                &event.to_le_bytes(),
            ]
            .concat(),
            Key::Param(name) => [PARAMS.as_bytes(), name.as_bytes()].concat(),
        }
    }

    /// Reads a key.
    pub fn decode(bytes: &[u8]) -> Result<Key, Rule> {
        let parts = [b"obj/".as_slice(), b"ver/", b"ckpt/", b"evt/", PARAMS.as_bytes()];
        let found = parts.iter().find_map(|prefix| Some((*prefix, bytes.strip_prefix(*prefix)?)));
        let (prefix, rest) = found.ok_or(Rule::KeyPrefix)?;
        if prefix == PARAMS.as_bytes() {
            return param_name(rest).map(|name| Key::Param(name.to_owned()));
        }
        let key = whole(rest, |rest| {
            Ok(match prefix {
                b"obj/" => Key::Object(Hash(rest.array()?)),
                b"ver/" => {
                    let id = Hash(rest.array()?);
                    slash(rest)?;
                    Key::Version(id, rest.u64()?)
                }
                b"ckpt/" => Key::Checkpoint(rest.u64()?),
                _ => {
                    let seq = rest.u64()?;
                    slash(rest)?;
                    let tx = rest.u32()?;
                    slash(rest)?;
                    Key::Event(seq, tx, rest.u32()?)
                }
            })
        });
        key.map_err(|_| Rule::KeyPrefix)
    }
}

fn slash(rest: &mut Decoder<'_>) -> Result<(), Rule> {
    match rest.u8()? {
        b'/' => Ok(()),
        _ => Err(Rule::KeyPrefix),
    }
}

/// A name that a parameter can have.
pub fn param_name(bytes: &[u8]) -> Result<&str, Rule> {
    let is_good =
        (1..=PARAM_NAME_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic);
    match std::str::from_utf8(bytes) {
        Ok(name) if is_good => Ok(name),
        _ => Err(Rule::BadParamName),
    }
}

/// The key of an object.
pub fn object(id: &Hash) -> [u8; 36] {
    let mut key = [0; 36];
    let (prefix, rest) = key.split_at_mut(4);
    prefix.copy_from_slice(b"obj/");
    rest.copy_from_slice(&id.0);
    key
}

/// The key of a version.
pub fn version(id: &Hash, version: u64) -> [u8; 45] {
    let mut key = [0; 45];
    let (prefix, rest) = key.split_at_mut(4);
    prefix.copy_from_slice(b"ver/");
    let (place, rest) = rest.split_at_mut(32);
    place.copy_from_slice(&id.0);
    let (slash, number) = rest.split_at_mut(1);
    slash.copy_from_slice(b"/");
    number.copy_from_slice(&version.to_le_bytes());
    key
}
