//! Seeds of randomized tests, and how long those tests run.
//!
//! `KVB_SEED` replays a run, in decimal or as `0x` and hex digits; `KVB_ROUNDS` makes it that many
//! times longer.

#![allow(dead_code, reason = "every test file uses a part of this")]

/// The seed of a test: the one asked for, or a fresh one. It is printed, so that a failure can be
/// replayed.
pub(crate) fn seed(test: &str) -> u64 {
    let seed = match std::env::var("KVB_SEED") {
        Ok(text) => parse(&text).unwrap_or_else(|| panic!("KVB_SEED is not a number: {text}")),
        Err(_) => fastrand::u64(..),
    };
    eprintln!("{test}: replay with KVB_SEED={seed:#x}");
    seed
}

/// How many times as long as usual a test should run.
pub(crate) fn rounds() -> u64 {
    std::env::var("KVB_ROUNDS").ok().and_then(|text| parse(&text)).unwrap_or(1).max(1)
}

fn parse(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
