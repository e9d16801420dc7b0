//! Any bytes as blocks of Cardano and as its genesis files.

#![no_main]

use csmt::cardano;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = cardano::block(bytes);
    let _ = cardano::blocks(bytes).take(100).count();
    let _ = cardano::byron_genesis(bytes);
    let _ = cardano::shelley_genesis(bytes);
});
