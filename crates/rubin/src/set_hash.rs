//! `utxo_set_hash`: one hash over all outputs that can be spent, the same in every implementation.

use std::ops::Bound;

use ledger::{EngineError, Snapshot};
use sha3::{Digest, Sha3_256};

use crate::hash::Hash;
use crate::tables::UTXO;

/// What the hash begins with.
pub const TAG: &[u8; 22] = b"RUBINv1-utxo-set-hash/";

/// The hash as it grows: entries in the order of their keys.
#[derive(Clone, Debug)]
pub struct SetHash {
    digest: Sha3_256,
}

impl SetHash {
    /// Of so many entries.
    pub fn new(count: u64) -> SetHash {
        let mut digest = Sha3_256::new();
        digest.update(TAG);
        digest.update(count.to_le_bytes());
        SetHash { digest }
    }

    /// Adds the next entry.
    pub fn add(&mut self, key: &[u8], entry: &[u8]) {
        self.digest.update(key);
        self.digest.update(entry);
    }

    /// Adds entries that lie one behind the other.
    pub fn add_all(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// The hash of all of them.
    pub fn finish(self) -> Hash {
        Hash(self.digest.finalize().into())
    }
}

/// Outputs that can be spent in a snapshot, and the hash over them. Counts first, because the count comes before the entries.
pub fn utxo_set_hash(snapshot: &dyn Snapshot) -> Result<(u64, Hash), EngineError> {
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut count = 0;
    for row in snapshot.scan(UTXO, all)? {
        row?;
        count += 1;
    }
    let mut hash = SetHash::new(count);
    for row in snapshot.scan(UTXO, all)? {
        let (key, entry) = row?;
        hash.add(&key, &entry);
    }
    Ok((count, hash.finish()))
}
