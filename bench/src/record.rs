//! The records every engine is fed: keys that look like outpoints, values that name their key.
//!
//! Record `index` always has the same key and value, so a read can be checked without keeping a
//! copy. Ascending indices give keys in random order.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail};
use fastrand::Rng;

/// Length of every key: a transaction id and an output number.
pub const KEY_LEN: usize = 36;
/// Length of every value, unless somebody says otherwise.
pub const VALUE_LEN: usize = 100;
/// From this length on fewer records make a batch.
const LARGE: usize = 16 << 10;

/// Where a value says which version it is, if it is not the first.
const VERSION_AT: usize = 8;

/// Indices from here on are never written; they serve as keys that must be missing.
const MISSING_START: u64 = 1 << 40;

/// The length of values in this process.
static LEN: AtomicUsize = AtomicUsize::new(VALUE_LEN);

/// Sets the length of every value, once, before there is any.
pub fn set_value_len(len: usize) {
    LEN.store(len, Ordering::Relaxed);
}

/// Length of every value.
pub fn value_len() -> usize {
    LEN.load(Ordering::Relaxed)
}

/// Records per batch of the load, and records spent and created per block.
pub fn batch() -> usize {
    if value_len() >= LARGE { 20 } else { 1000 }
}

/// A key as stored.
pub type Key = [u8; KEY_LEN];

/// A key and the index that must be found in its value.
#[derive(Clone)]
pub struct Probe {
    pub index: u64,
    pub key: Key,
}

/// A key and its value.
#[derive(Clone)]
pub struct Record {
    pub key: Key,
    pub value: Vec<u8>,
}

/// One block of the block workload.
pub struct Block {
    pub spent: Vec<Probe>,
    pub created: Vec<Record>,
}

/// One commit of the churn workload.
pub struct Change {
    pub deleted: Vec<Probe>,
    pub put: Vec<Record>,
}

/// The indices that are live in the store, and the next one to use.
pub struct Live {
    indices: Vec<u32>,
    /// So many of the first are never removed.
    kept: usize,
    next: u32,
}

impl Probe {
    /// The probe for record `index`.
    pub fn new(index: u64) -> Self {
        let mut key = [0; KEY_LEN];
        fill(&mut key, index.wrapping_mul(2));
        Self { index, key }
    }

    /// The probe for the `number`-th key that no store holds.
    pub fn missing(number: u64) -> Self {
        Self::new(MISSING_START + number)
    }

    /// Fails unless `found` is the whole value of this record.
    pub fn check(&self, found: Option<&[u8]>) -> Result<()> {
        if self.is(found) {
            return Ok(());
        }
        bail!("record {}: wrong or missing value ({:?} bytes)", self.index, found.map(<[u8]>::len))
    }

    /// Whether `found` has the right length, begins with the index and ends with its hash.
    pub fn is(&self, found: Option<&[u8]>) -> bool {
        found.is_some_and(|value| {
            value.len() == value_len()
                && value[..8] == self.index.to_le_bytes()
                && value[value.len() - 8..] == seal(self.index).to_le_bytes()
        })
    }
}

impl Record {
    /// Record `index`.
    pub fn new(index: u64) -> Self {
        let mut value = vec![0; value_len()];
        fill(&mut value, index.wrapping_mul(2) + 1);
        value[..8].copy_from_slice(&index.to_le_bytes());
        let end = value.len() - 8;
        value[end..].copy_from_slice(&seal(index).to_le_bytes());
        Self { key: Probe::new(index).key, value }
    }

    /// Record `index` when it is written for the `version`-th time after the first.
    pub fn version(index: u64, version: u64) -> Self {
        let mut record = Self::new(index);
        record.value[VERSION_AT..VERSION_AT + 8].copy_from_slice(&version.to_le_bytes());
        record
    }

    /// The version in a value that was written with one.
    pub fn version_of(value: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(value.get(VERSION_AT..VERSION_AT + 8)?.try_into().ok()?))
    }
}

impl Live {
    /// Room for `count_max` live records. The memory is touched now, so that a baseline taken
    /// afterwards contains it.
    pub fn new(count_max: usize) -> Self {
        let mut indices = vec![1; count_max];
        indices.clear();
        Self { indices, kept: 0, next: 0 }
    }

    /// The next `count` new records, live from now on.
    pub fn create(&mut self, count: usize) -> Vec<Record> {
        (0..count)
            .map(|_| {
                self.indices.push(self.next);
                self.next += 1;
                Record::new(u64::from(self.next - 1))
            })
            .collect()
    }

    /// A block that spends `count` random live records and creates as many.
    pub fn block(&mut self, rng: &mut Rng, count: usize) -> Block {
        let spent = self.remove(rng, count);
        Block { spent, created: self.create(count) }
    }

    /// Keeps half of the live records for good, and returns their indices.
    pub fn keep_half(&mut self) -> Vec<u32> {
        self.kept = self.indices.len() / 2;
        self.indices[..self.kept].to_vec()
    }

    /// Removes random live records, but none that are kept.
    pub fn remove(&mut self, rng: &mut Rng, count: usize) -> Vec<Probe> {
        (0..count.min(self.indices.len() - self.kept))
            .map(|_| self.indices.swap_remove(rng.usize(self.kept..self.indices.len())))
            .map(|index| Probe::new(u64::from(index)))
            .collect()
    }

    /// The indices of all live records, in no order.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// A random live record.
    pub fn probe(&self, rng: &mut Rng) -> Probe {
        Probe::new(u64::from(self.indices[rng.usize(..self.indices.len())]))
    }
}

/// Fills `bytes` with a stream that depends only on `seed` and does not compress.
fn fill(bytes: &mut [u8], seed: u64) {
    let mut state = mix(seed);
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        chunk.copy_from_slice(&mix(state).to_le_bytes()[..chunk.len()]);
    }
}

/// The last eight bytes of value `index`.
fn seal(index: u64) -> u64 {
    mix(index ^ 0x5ea1_5ea1_5ea1_5ea1)
}

/// The finalizer of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
