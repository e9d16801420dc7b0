//! Checkpoints with any contents to a validator's store: taken or refused by a rule, and every row can be checked afterwards.

#![no_main]

use kvb_fuzz::{Choices, checkpoint};
use ledger::MemoryEngine;
use libfuzzer_sys::fuzz_target;
use misaka::{Checkpoint, Effort, Hash, Settings, Store};

/// No threads for a few rows.
const EFFORT: Effort = Effort { memory: 64 << 20, threads: 1, batch: 64 << 10 };

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let v2_at = match choices.byte() % 8 {
        7 => None,
        at => Some(u64::from(at)),
    };
    let settings = Settings { event_retention: 2, window: 3, v2_at, ..Settings::default() };
    let engine = Box::new(MemoryEngine::new());
    let store = Store::init(engine, settings, EFFORT).unwrap();
    let (mut prev, mut seq) = (Hash::ZERO, 1_u64);
    let mut tries = 0;
    while choices.is_left() && tries < 16 {
        tries += 1;
        let mut checkpoint = checkpoint(&mut choices, seq, prev);
        // Every other one with the root that it has.
        if choices.byte() % 8 != 0 {
            if let Ok(root) = store.root_after(&checkpoint) {
                checkpoint.header.state_root = root;
            }
        }
        let decoded = Checkpoint::decode(&checkpoint.encode());
        if store.apply(&checkpoint).is_ok() {
            assert_eq!(decoded.unwrap(), checkpoint, "what is taken can be written down");
            prev = checkpoint.header.digest();
            seq += 1;
        }
    }
    if seq > 1 {
        let check = store.verify(&|_, _, _| {}).expect("rows can be read");
        assert!(check.findings.is_empty(), "{:?}", check.findings);
    }
});
