//! Buckets with changed bytes, under right checksums: whatever is in a file, opening, reading, writing, verifying and
//! repairing it end, and none of them panics.
//!
//! An input is a kind of bucket and changes to its bytes; after them every checksum that its structures lead to is made right.

#![no_main]

use std::sync::LazyLock;

use kvb_fuzz::changes::Changed;
use kvb_fuzz::{Choices, attack, small_bucket};
use libfuzzer_sys::fuzz_target;

static BUCKETS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..3).map(small_bucket).collect());

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let kind = usize::from(choices.byte() % 3);
    let mut changed = Changed::new(&BUCKETS[kind], kind == 2);
    let is_repaired = choices.byte() % 4 != 0;
    while choices.is_left() {
        changed.change(&mut choices);
    }
    if is_repaired {
        changed.repair();
    }
    attack(changed.file, kind);
});
