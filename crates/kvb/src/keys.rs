//! Keys of encrypted buckets, and where they come from.
//!
//! A bucket stores ids of keys and values to check them by, never keys. Whoever opens it supplies a [`KeyProvider`], which
//! gives a key for an id: from a file, from a key service, from memory.

use std::collections::HashMap;
use std::fmt;
use std::io;

use zeroize::Zeroize;

/// 256 bits of key. They are overwritten when it is dropped, and never printed.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// A key of these bytes, which should be random. Overwrite your own copy.
    pub fn new(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    #[cfg(feature = "encryption")]
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Gives keys by their ids.
///
/// It is asked when a bucket is created, opened or rotated, and not in between.
pub trait KeyProvider: Send + Sync {
    /// The key of an id; `None` if there is none.
    fn key(&self, id: u64) -> io::Result<Option<Key>>;

    /// Ids that may be tried when a damaged bucket does not tell any more which it used.
    fn ids(&self) -> Vec<u64> {
        Vec::new()
    }
}

/// Keys in memory.
///
#[cfg_attr(feature = "encryption", doc = "```")]
#[cfg_attr(not(feature = "encryption"), doc = "```ignore")]
/// use kvb::{Bucket, Key, Keyring, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("secret.kvb");
/// let keys = || Keyring::new().with(1, Key::new([7; 32])); // from somewhere safe, and not from the source
/// let bucket = Bucket::create(&path, Options::default().encrypted(1).keys(keys()))?;
/// bucket.put(b"alice", b"100")?;
/// bucket.close()?;
///
/// assert!(Bucket::open(&path, Options::default()).is_err()); // without the key nothing can be read
/// let bucket = Bucket::open(&path, Options::default().keys(keys()))?;
/// assert_eq!(bucket.get(b"alice")?.as_deref(), Some(&b"100"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    // Each in a place of its own: a table that grows leaves copies of what was in it.
    keys: HashMap<u64, Box<Key>>,
}

impl Keyring {
    /// One without keys.
    pub fn new() -> Keyring {
        Keyring::default()
    }

    /// Adds a key under an id.
    pub fn with(mut self, id: u64, key: Key) -> Keyring {
        self.keys.insert(id, Box::new(key));
        self
    }
}

impl KeyProvider for Keyring {
    fn key(&self, id: u64) -> io::Result<Option<Key>> {
        Ok(self.keys.get(&id).map(|key| Key::clone(key)))
    }

    fn ids(&self) -> Vec<u64> {
        self.keys.keys().copied().collect()
    }
}

impl fmt::Debug for dyn KeyProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyProvider(..)")
    }
}
