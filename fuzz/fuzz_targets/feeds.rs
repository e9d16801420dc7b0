//! Checkpoints with any contents to an index: taken or refused, and everything it then has can be asked for.

#![no_main]

use kvb_fuzz::{Choices, checkpoint};
use ledger::MemoryEngine;
use libfuzzer_sys::fuzz_target;
use misaka::format::object::Object;
use misaka::{Checkpoint, Hash};
use misaka_indexer::{Embedded, EventsOf, Holder, Index, Page, Step};

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let index = Embedded::on(Box::new(MemoryEngine::new())).unwrap();
    let (mut prev, mut seq) = (Hash::ZERO, 1_u64);
    let mut written: Vec<(Hash, u64)> = Vec::new();
    let mut tries = 0;
    while choices.is_left() && tries < 16 {
        tries += 1;
        let mut checkpoint = checkpoint(&mut choices, seq, prev);
        match choices.byte() {
            // As it comes over a wire, with something changed.
            0..8 => {
                let mut bytes = checkpoint.encode();
                let at = choices.short() % bytes.len();
                bytes[at] = choices.byte();
                let Ok(changed) = Checkpoint::decode(&bytes) else { continue };
                checkpoint = changed;
            }
            8..16 => checkpoint.header.seq = choices.number(),
            16..24 => checkpoint.header.prev_digest = Hash::of(&[b"another"]),
            _ => {}
        }
        if let Ok(Step::Applied(_)) = index.apply(&checkpoint) {
            let objects = checkpoint.writes.iter().map(|bytes| Object::decode(bytes).unwrap());
            written.extend(objects.map(|object| (object.id, object.version)));
            prev = checkpoint.header.digest();
            seq = checkpoint.header.seq.saturating_add(1);
        }
    }
    let known = index.counts().unwrap();
    assert_eq!(known.versions, u64::try_from(written.len()).unwrap());
    for (id, version) in written {
        let records = index.history(&id, Page::first(1000)).unwrap();
        let versions: Vec<u64> = records.iter().map(|record| record.version).collect();
        assert!(versions.contains(&version) && versions.is_sorted(), "{versions:?}");
        assert_eq!(index.newest(&id).unwrap().as_ref(), records.last());
    }
    index.events(EventsOf::All, Page::first(1000)).unwrap();
    index.owned(&Holder::Address([0; 32]), Page::first(1000)).unwrap();
    index.of_type("0x2::coin::Coin", Page::first(1000)).unwrap();
});
