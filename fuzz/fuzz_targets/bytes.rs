//! Any bytes as a bucket's file.

#![no_main]

use kvb_fuzz::attack;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let (kind, bytes) = input.split_first().map_or((0, input), |(kind, rest)| (*kind, rest));
    attack(bytes.to_vec(), usize::from(kind));
});
