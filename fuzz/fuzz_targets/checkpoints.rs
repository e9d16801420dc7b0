//! Checkpoints with any contents to a validator's store: taken or refused by a rule, and every row can be checked afterwards.

#![no_main]

use kvb_fuzz::Choices;
use ledger::MemoryEngine;
use libfuzzer_sys::fuzz_target;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Effort, Event, Hash, Settings, Store};

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let v2_at = match choices.byte() % 8 {
        7 => None,
        at => Some(u64::from(at)),
    };
    let settings = Settings { event_retention: 2, window: 3, v2_at, ..Settings::default() };
    let engine = Box::new(MemoryEngine::new());
    let store = Store::init(engine, settings, Effort::default()).unwrap();
    let (mut prev, mut seq) = (Hash::ZERO, 1_u64);
    let mut tries = 0;
    while choices.is_left() && tries < 16 {
        tries += 1;
        let digests: Vec<Hash> =
            (0..choices.byte() % 3).map(|at| Hash::of(&[&seq.to_le_bytes(), &[at]])).collect();
        let mut writes = Vec::new();
        for _ in 0..choices.byte() % 6 {
            if choices.byte() == 255 {
                let len = choices.short() % 200;
                writes.push(choices.bytes(len).to_vec());
                continue;
            }
            let len = usize::from(choices.byte());
            let object = Object {
                id: Hash::of(&[&[choices.byte() % 8]]),
                version: choices.number() % 6,
                owner: match choices.byte() % 2 {
                    0 => Owner::Address([choices.byte(); 32]),
                    _ => Owner::Immutable,
                },
                type_tag: "0x2::coin::Coin",
                payload: &vec![7; len],
                is_tombstone: choices.byte() % 4 == 0,
            };
            writes.push(object.encode());
        }
        let params = match choices.byte() % 4 {
            0 => vec![("state_root_version".to_owned(), vec![2, 0])],
            1 => vec![(format!("p{}", choices.byte()), choices.bytes(4).to_vec())],
            _ => Vec::new(),
        };
        let count = choices.byte() % 3;
        let event = |number| Event {
            tx: u32::from(choices.byte() % 2),
            number: u32::from(number),
            bytes: vec![number],
        };
        let events: Vec<Event> = (0..count).map(event).collect();
        let mut checkpoint = Checkpoint {
            header: Header {
                chain_id: 7,
                epoch: u64::from(choices.byte() % 2),
                seq,
                prev_digest: prev,
                timestamp_ms: 1_700_000_000_000 + seq,
                tx_count: u32::try_from(digests.len()).unwrap(),
                tx_root: tx_root(&digests),
                state_root: Hash::ZERO,
                validator_set_hash: Hash::of(&[b"validators"]),
            },
            tx_digests: digests,
            writes,
            params,
            events,
        };
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
