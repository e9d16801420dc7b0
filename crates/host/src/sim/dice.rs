//! Small random choices from a seed.

use crate::env::{STEP, mix};

/// A reproducible sequence of choices.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Dice(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `count`, which is not 0.
    pub(super) fn below(&mut self, count: u32) -> u32 {
        // The upper half of the product of 32 random bits and the count.
        let bits = self.next() >> 32;
        u32::try_from((bits * u64::from(count)) >> 32).expect("less than the count")
    }

    /// True in `hits` of `sides` cases.
    pub(super) fn roll(&mut self, hits: u32, sides: u32) -> bool {
        self.below(sides) < hits
    }
}
