//! Sorting by key bytes when the keys lie elsewhere.
//!
//! Eight bytes of every key are compared at a time as one number; only keys that are equal so far are looked at again,
//! further on. Cost: a sort of numbers, and one look at a key for every eight bytes it shares with another.

use crate::spread_sort::sort_spread;

/// A key to sort: its bytes at the current depth as a number, and who it is.
pub(crate) type Item = (u64, u32);

/// Groups up to this size are compared key by key.
const FEW: usize = 8;

/// Eight bytes of a key as a number that compares like them, zeros behind its end.
#[inline]
pub(crate) fn chunk(key: &[u8], at: usize) -> u64 {
    let rest = key.get(at..).unwrap_or(&[]);
    match rest.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(rest) {
                *to = *from;
            }
            u64::from_be_bytes(bytes)
        }
    }
}

/// How many bytes two keys share at their start.
pub(crate) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Sorts items whose numbers are the first bytes of their keys. Of equal keys the higher id comes first.
pub(crate) fn sort_by_key<K: AsRef<[u8]>>(items: &mut Vec<Item>, key: impl Fn(u32) -> K) {
    sort_spread(items, |item| item.0, |item| *item);
    let mut work = vec![(0..items.len(), 0)];
    while let Some((range, depth)) = work.pop() {
        let Some(part) = items.get_mut(range.clone()) else { continue };
        if depth > 0 {
            for item in part.iter_mut() {
                item.0 = chunk(key(item.1).as_ref(), depth);
            }
            part.sort_unstable();
        }
        let mut at = range.start;
        for group in part.chunk_by_mut(|a, b| a.0 == b.0) {
            let start = at;
            at += group.len();
            let Some((first, others)) = group.split_first() else { continue };
            if others.is_empty() {
                continue;
            }
            let first = key(first.1);
            // What all share is skipped, so that long equal keys cost one look.
            let shared = |item: &Item| shared_len(first.as_ref(), key(item.1).as_ref());
            let next = others.iter().map(shared).min().unwrap_or(0).max(depth + 8);
            let is_done =
                group.len() <= FEW || group.iter().all(|item| key(item.1).as_ref().len() <= next);
            if is_done {
                group.sort_unstable_by(|a, b| {
                    key(a.1).as_ref().cmp(key(b.1).as_ref()).then(b.1.cmp(&a.1))
                });
            } else {
                work.push((start..at, next));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::as_conversions, reason = "a test")]

    use super::*;

    fn check(keys: &[Vec<u8>]) {
        let key = |id: u32| keys[id as usize].as_slice();
        let mut items: Vec<Item> =
            (0..keys.len() as u32).map(|id| (chunk(key(id), 0), id)).collect();
        sort_by_key(&mut items, key);
        let mut ids: Vec<u32> = (0..keys.len() as u32).collect();
        ids.sort_by(|a, b| key(*a).cmp(key(*b)).then(b.cmp(a)));
        assert_eq!(items.iter().map(|item| item.1).collect::<Vec<_>>(), ids);
    }

    #[test]
    fn sorts_as_a_map_does() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let alphabet = [0_u8, 1, b'a', 255];
            let stem: Vec<u8> = vec![b's'; rng.usize(0..40)];
            let keys: Vec<Vec<u8>> = (0..rng.usize(0..200))
                .map(|_| {
                    let mut key = if rng.bool() { stem.clone() } else { Vec::new() };
                    key.extend((0..rng.usize(0..20)).map(|_| alphabet[rng.usize(0..4)]));
                    key
                })
                .collect();
            check(&keys);
        }
        check(&vec![vec![7; 60_000]; 50]);
        check(&(0..100_u8).map(|last| [vec![7; 60_000], vec![last]].concat()).collect::<Vec<_>>());
    }
}
