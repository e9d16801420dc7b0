//! What a store is made with, and cannot be changed without making it anew.

use crate::address::address;
use crate::error::{Error, hex};
use crate::hash::Hash;
use crate::path::Path;

/// Blocks that can be taken back unless somebody says otherwise: what Cardano's mainnet has.
pub const K: u32 = 2160;

/// How rows of nodes are laid out. To change that is to count on.
const LAYOUT: u8 = 2;

/// How the path of an entry is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathKind {
    /// The bits of the digest of the output's address, then those of the key: outputs of an address are together.
    #[default]
    Address,
    /// The bits of the key.
    Raw,
}

impl PathKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PathKind::Address => "address",
            PathKind::Raw => "raw",
        }
    }

    /// What all outputs of an address begin with.
    pub fn of_address(address: &[u8]) -> Path {
        // 256 bits are never too many.
        Path::of_bytes(Hash::of(address).as_bytes()).unwrap_or_default()
    }

    /// The path of an entry.
    pub fn path(self, key: &[u8], value: &[u8]) -> Result<Path, Error> {
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        Ok(match self {
            PathKind::Raw => Path::of_bytes(key)?,
            PathKind::Address => {
                let address = address(value)
                    .map_err(|wrong| Error::Address { key: hex(key), wrong: wrong.wrong })?;
                let bytes = [Hash::of(address).as_bytes(), key].concat();
                let len = 8 * bytes.len();
                Path::new(bytes, len)?
            }
        })
    }

    /// The key at the end of the path of an entry.
    pub fn key(self, path: &Path) -> Option<Vec<u8>> {
        let from = match self {
            PathKind::Raw => 0,
            PathKind::Address => 256,
        };
        let key = path.from(from);
        (path.len() > from && key.len().is_multiple_of(8)).then(|| key.bytes().to_vec())
    }
}

/// What a store is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How paths are made.
    pub path: PathKind,
    /// Blocks that can be taken back.
    pub k: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { path: PathKind::default(), k: K }
    }
}

impl Settings {
    /// As they are noted in the store.
    pub(crate) fn to_bytes(self) -> [u8; 6] {
        let [a, b, c, d] = self.k.to_be_bytes();
        let path = match self.path {
            PathKind::Address => 0,
            PathKind::Raw => 1,
        };
        [LAYOUT, path, a, b, c, d]
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Settings> {
        let [LAYOUT, path, k @ ..] = bytes else { return None };
        let path = match path {
            0 => PathKind::Address,
            1 => PathKind::Raw,
            _ => return None,
        };
        Some(Settings { path, k: u32::from_be_bytes(k.try_into().ok()?) })
    }
}
