//! Numbers of ranges in the order of their little-endian bytes, without sorting them.
//!
//! An object can have more versions than memory has room for, and a snapshot lists them in the order of their keys. What there is has few
//! gaps, so it is few ranges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

/// Numbers as ranges without gaps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<RangeInclusive<u64>>,
}

impl Runs {
    /// Adds a number that is larger than all before.
    pub(crate) fn push(&mut self, number: u64) {
        match self.runs.last_mut() {
            Some(run) if run.end().checked_add(1) == Some(number) => *run = *run.start()..=number,
            _ => self.runs.push(number..=number),
        }
    }

    /// All of them, ordered by their bytes, the lowest byte first.
    pub(crate) fn by_bytes(self) -> impl Iterator<Item = u64> {
        let mut runs: Vec<ByBytes> = self.runs.into_iter().map(by_bytes).collect();
        let first =
            |(at, run): (usize, &mut ByBytes)| Some(Reverse((run.next()?.to_le_bytes(), at)));
        let mut next: BinaryHeap<_> = runs.iter_mut().enumerate().filter_map(first).collect();
        std::iter::from_fn(move || {
            let Reverse((bytes, at)) = next.pop()?;
            let more = runs.get_mut(at).and_then(ByBytes::next);
            next.extend(more.map(|number| Reverse((number.to_le_bytes(), at))));
            Some(u64::from_le_bytes(bytes))
        })
    }
}

/// The numbers of a range, ordered by their bytes, the lowest byte first.
fn by_bytes(range: RangeInclusive<u64>) -> ByBytes {
    let next = least(&range, 0, 0);
    ByBytes { range, next }
}

/// See [`by_bytes`].
#[derive(Clone, Debug)]
struct ByBytes {
    range: RangeInclusive<u64>,
    next: Option<u64>,
}

impl Iterator for ByBytes {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let found = self.next?;
        self.next = after(&self.range, found);
        Some(found)
    }
}

/// The lowest so many bytes of a number.
fn low(number: u64, bytes: u32) -> u64 {
    if bytes >= 8 { number } else { number & ((1 << (8 * bytes)) - 1) }
}

/// True if a number of the range has these lowest bytes.
fn has(range: &RangeInclusive<u64>, suffix: u64, bytes: u32) -> bool {
    smallest(range, suffix, bytes).is_some()
}

/// The smallest number of the range with these lowest bytes.
fn smallest(range: &RangeInclusive<u64>, suffix: u64, bytes: u32) -> Option<u64> {
    let start = *range.start();
    let found = if bytes >= 8 {
        suffix
    } else {
        let base = start - low(start, bytes);
        match base.checked_add(suffix)? {
            number if number >= start => number,
            number => number.checked_add(1 << (8 * bytes))?,
        }
    };
    range.contains(&found).then_some(found)
}

/// The first in order of those that begin with these lowest bytes.
fn least(range: &RangeInclusive<u64>, mut suffix: u64, from: u32) -> Option<u64> {
    if !has(range, suffix, from) {
        return None;
    }
    for byte in from..8 {
        let more = (0..=255_u64).map(|value| suffix | value << (8 * byte));
        suffix = more.into_iter().find(|more| has(range, *more, byte + 1))?;
    }
    Some(suffix)
}

/// The next one in order.
fn after(range: &RangeInclusive<u64>, number: u64) -> Option<u64> {
    for byte in (0..8).rev() {
        let prefix = low(number, byte);
        let value = (number >> (8 * byte)) & 255;
        for value in value + 1..=255 {
            let more = prefix | value << (8 * byte);
            if has(range, more, byte + 1) {
                return least(range, more, byte + 1);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Runs, by_bytes};

    #[test]
    fn ranges_with_gaps_are_in_order_too() {
        let mut numbers: Vec<u64> = (0..3).chain(250..700).chain([1 << 40, u64::MAX]).collect();
        let mut runs = Runs::default();
        numbers.iter().for_each(|number| runs.push(*number));
        assert_eq!(runs.runs.len(), 4);
        numbers.sort_by_key(|number| number.to_le_bytes());
        assert_eq!(runs.by_bytes().collect::<Vec<_>>(), numbers);
        assert_eq!(Runs::default().by_bytes().count(), 0);
    }

    #[test]
    fn the_same_as_sorting() {
        let top = u64::MAX;
        for range in [
            0..=0,
            1..=300,
            250..=263,
            255..=257,
            500..=1800,
            65_000..=66_000,
            70_000..=70_001,
            (1 << 32) - 300..=(1 << 32) + 300,
            top - 700..=top,
            top..=top,
        ] {
            let mut sorted: Vec<u64> = range.clone().collect();
            sorted.sort_by_key(|number| number.to_le_bytes());
            assert_eq!(by_bytes(range.clone()).collect::<Vec<_>>(), sorted, "{range:?}");
        }
        #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
        let none = by_bytes(5..=4);
        assert_eq!(none.count(), 0);
    }
}
