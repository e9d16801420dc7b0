//! The Merkle rule of StateRoot-v1 and of the digests of a checkpoint: pairs, and the last node of an odd level twice.
//!
//! Nothing tells a node from a leaf here. So a node must never be taken for the proof of a leaf.

use crate::hash::Hash;
use crate::threads;

/// Nodes that are worth a thread.
const FOR_A_THREAD: usize = 4096;

/// The root over leaves: SHA3-256 of nothing if there are none, and a single leaf itself.
pub fn merkle(leaves: &[Hash]) -> Hash {
    let mut level = leaves.to_vec();
    while level.len() > 1 {
        level = above(&level, 0..level.len().div_ceil(2), 1);
    }
    level.first().copied().unwrap_or_else(|| Hash::of(&[]))
}

/// Nodes of the level above one, those in a range.
pub(crate) fn above(level: &[Hash], range: std::ops::Range<usize>, threads: usize) -> Vec<Hash> {
    let places: &[Hash] = level.get(range.start * 2..level.len().min(range.end * 2)).unwrap_or(&[]);
    let work = |part: &[Hash]| {
        let mut messages = Vec::with_capacity(part.len().div_ceil(2));
        for pair in part.chunks(2) {
            let mut message = [0; 64];
            let (left, right) = message.split_at_mut(32);
            if let (Some(first), Some(last)) = (pair.first(), pair.last()) {
                left.copy_from_slice(&first.0);
                right.copy_from_slice(&last.0);
            }
            messages.push(message);
        }
        Hash::of_each(messages.iter().map(<[u8; 64]>::as_slice))
    };
    // Parts must begin at even places.
    let pairs: Vec<&[Hash]> = places.chunks(2 * FOR_A_THREAD).collect();
    let parts = threads::over(&pairs, threads, 1, |parts| {
        parts.iter().flat_map(|part| work(part)).collect::<Vec<_>>()
    });
    parts.concat()
}

/// A root over leaves that come one after the other, and are not kept.
#[derive(Debug)]
pub(crate) struct Growing {
    /// For each level the nodes that have no pair yet; a few, so that many can be hashed beside each other.
    levels: Vec<Vec<Hash>>,
    count: u64,
}

/// Nodes of a level that wait for each other.
const TOGETHER: usize = 2048;
/// More levels than anybody counts leaves for.
const LEVELS: usize = 64;

impl Default for Growing {
    fn default() -> Growing {
        Growing { levels: vec![Vec::new(); LEVELS], count: 0 }
    }
}

impl Growing {
    pub(crate) fn push(&mut self, leaf: Hash) {
        self.count += 1;
        let mut made = vec![leaf];
        for level in &mut self.levels {
            level.append(&mut made);
            if level.len() < TOGETHER {
                return;
            }
            made = above(level, 0..TOGETHER / 2, 1);
            level.clear();
        }
    }

    /// The root. What waits is as many as there are, so the last of an odd level is known now.
    pub(crate) fn finish(mut self) -> Hash {
        if self.count == 0 {
            return Hash::of(&[]);
        }
        let mut below: Vec<Hash> = Vec::new();
        let mut remaining = self.count;
        for level in &mut self.levels {
            let mut nodes = std::mem::take(level);
            nodes.append(&mut below);
            if remaining == 1 {
                return nodes.first().copied().unwrap_or_default();
            }
            below = above(&nodes, 0..nodes.len().div_ceil(2), 1);
            remaining = remaining.div_ceil(2);
        }
        Hash::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_root_is_that_of_the_list() {
        let leaves: Vec<Hash> = (0..9000_u32).map(|i| Hash::of(&[&i.to_le_bytes()])).collect();
        for count in (0..70).chain([2047, 2048, 2049, 4095, 4096, 4097, 6001, 8999, 9000]) {
            let mut growing = Growing::default();
            let part = leaves.get(..count).unwrap_or(&[]);
            part.iter().for_each(|leaf| growing.push(*leaf));
            assert_eq!(growing.finish(), merkle(part), "{count} leaves");
        }
    }
}
