//! Any bytes as a bucket's file.
//!
//! The first byte says how it is opened, whether its superblocks get their checksums, and whether the others are the file or pieces of
//! one that is zeros elsewhere: page, place in it in units of 64 bytes, length in two bytes, contents.

#![no_main]

use kvb_fuzz::changes::repair_ends;
use kvb_fuzz::{Choices, attack};
use libfuzzer_sys::fuzz_target;

const PAGE: usize = 4096;

fn of_pieces(bytes: &[u8]) -> Vec<u8> {
    let mut choices = Choices(bytes);
    let mut file = Vec::new();
    while choices.is_left() {
        let page = usize::from(choices.byte()) * PAGE;
        let at = page + usize::from(choices.byte() % 64) * 64;
        let len = choices.short() % (PAGE + 1);
        let piece = choices.bytes(len);
        let end = at + piece.len();
        file.resize(file.len().max(page + PAGE).max(end.next_multiple_of(PAGE)), 0);
        file[at..end].copy_from_slice(piece);
    }
    file
}

fuzz_target!(|input: &[u8]| {
    let (first, bytes) = input.split_first().map_or((0, input), |(first, rest)| (*first, rest));
    let mut file = if first & 4 == 0 { bytes.to_vec() } else { of_pieces(bytes) };
    if first & 8 != 0 {
        repair_ends(&mut file);
    }
    attack(file, usize::from(first & 3));
});
