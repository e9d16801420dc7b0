//! `utxo_set_hash`: one hash over all outputs that can be spent, the same in every implementation.

use std::ops::Bound;
use std::sync::mpsc::sync_channel;

use ledger::{EngineError, Snapshot};
use sha3::{Digest, Sha3_256};

use crate::hash::Hash;
use crate::tables::UTXO;

/// What the hash begins with.
pub const TAG: &[u8; 22] = b"RUBINv1-utxo-set-hash/";

/// Bytes handed over at once, and how many such pieces may wait.
const BUFFER: usize = 256 << 10;
const AHEAD: usize = 4;
/// Room left in a piece: most entries are shorter.
const SLACK: usize = 1 << 10;

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

/// Outputs that can be spent in a snapshot, and the hash over them. The count comes before the entries: `expected` is what
/// somebody has kept; if it is wrong, or nobody has, the entries are counted first.
///
/// One thread reads rows while another hashes them, so that it takes as long as hashing does.
pub fn utxo_set_hash(
    snapshot: &dyn Snapshot,
    expected: Option<u64>,
) -> Result<(u64, Hash), EngineError> {
    let mut count = match expected {
        Some(count) => count,
        None => read(snapshot, |_| {})?,
    };
    loop {
        let mut hash = SetHash::new(count);
        let found = read(snapshot, |entries| hash.add_all(entries))?;
        if found == count {
            return Ok((count, hash.finish()));
        }
        count = found;
    }
}

/// Hands over all entries, keys and values one behind the other, and counts them.
fn read(snapshot: &dyn Snapshot, mut take: impl FnMut(&[u8])) -> Result<u64, EngineError> {
    std::thread::scope(|scope| {
        let (full, take_full) = sync_channel::<Vec<u8>>(AHEAD);
        let (empty, take_empty) = sync_channel::<Vec<u8>>(AHEAD + 1);
        let reader = scope.spawn(move || {
            let mut count = 0;
            let mut buffer = Vec::with_capacity(BUFFER);
            for row in snapshot.scan(UTXO, (Bound::Unbounded, Bound::Unbounded))? {
                let (key, entry) = row?;
                buffer.extend_from_slice(&key);
                buffer.extend_from_slice(&entry);
                count += 1;
                if buffer.len() >= BUFFER - SLACK {
                    let next = take_empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BUFFER));
                    // Nobody takes them only if whoever does has panicked.
                    let _ = full.send(std::mem::replace(&mut buffer, next));
                }
            }
            let _ = full.send(buffer);
            Ok(count)
        });
        for mut buffer in take_full {
            take(&buffer);
            buffer.clear();
            let _ = empty.try_send(buffer);
        }
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
