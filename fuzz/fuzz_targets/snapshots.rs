//! Snapshots of a validator's state with changed entries, under right digests.

#![no_main]

use std::sync::LazyLock;

use host::{Dir, MemoryDir};
use kvb_fuzz::Choices;
use ledger::MemoryEngine;
use libfuzzer_sys::fuzz_target;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::manifest::Manifest;
use misaka::format::object::{Object, Owner};
use misaka::snapshot::{MANIFEST, Trust, Watch, chunk_name, create, verify};
use misaka::{Checkpoint, Effort, Hash, Settings, Store};

/// No threads for a few rows.
const EFFORT: Effort = Effort { memory: 64 << 20, threads: 1, batch: 64 << 10 };

/// A manifest and its chunks.
static WHOLE: LazyLock<(Manifest, Vec<Vec<u8>>)> = LazyLock::new(|| {
    let settings = Settings { v2_at: Some(1), ..Settings::default() };
    let store = Store::init(Box::new(MemoryEngine::new()), settings, EFFORT).unwrap();
    let object = |number: u8| Object {
        id: Hash::of(&[&[number]]),
        version: 1,
        owner: Owner::Address([7; 32]),
        type_tag: "0x2::coin::Coin",
        payload: &[9; 60],
        is_tombstone: false,
    };
    let digests = vec![Hash::of(&[b"transaction"])];
    let mut checkpoint = Checkpoint {
        header: Header {
            chain_id: 7,
            epoch: 0,
            seq: 1,
            prev_digest: Hash::ZERO,
            timestamp_ms: 1_700_000_000_000,
            tx_count: 1,
            tx_root: tx_root(&digests),
            state_root: Hash::ZERO,
            validator_set_hash: Hash::of(&[b"validators"]),
        },
        tx_digests: digests,
        writes: (0..12).map(|number| object(number).encode()).collect(),
        params: vec![("state_root_version".to_owned(), vec![2, 0])],
        events: Vec::new(),
    };
    checkpoint.header.state_root = store.root_after(&checkpoint).unwrap();
    store.apply(&checkpoint).unwrap();
    let dir = MemoryDir::new();
    let manifest = create(&store, &dir, 700, 1, Watch::NOBODY).unwrap().manifest;
    let chunks = manifest.chunks.iter().enumerate();
    let read = |(number, chunk): (usize, &misaka::format::manifest::Chunk)| {
        dir.read(&chunk_name(number, &chunk.digest)).unwrap().unwrap()
    };
    let chunks = chunks.map(read).collect();
    (manifest, chunks)
});

fuzz_target!(|input: &[u8]| {
    let (manifest, chunks) = &*WHOLE;
    let (mut manifest, mut chunks) = (manifest.clone(), chunks.clone());
    let mut choices = Choices(input);
    let whole = chunks.clone();
    while choices.is_left() {
        let number = usize::from(choices.byte()) % chunks.len();
        let chunk = &mut chunks[number];
        match choices.byte() % 4 {
            0 if !chunk.is_empty() => {
                let at = choices.short() % chunk.len();
                chunk[at] = choices.byte();
            }
            1 => chunk.truncate(choices.short()),
            2 => {
                let at = choices.short() % (chunk.len() + 1);
                let len = usize::from(choices.byte());
                let bytes = choices.bytes(len);
                chunk.splice(at..at, bytes.iter().copied());
            }
            _ => manifest.chunks[number].entries = choices.number(),
        }
    }
    let is_changed = chunks != whole;
    let dir = MemoryDir::new();
    for (number, bytes) in chunks.iter().enumerate() {
        let digest = Hash::of(&[bytes]);
        manifest.chunks[number].digest = digest;
        manifest.chunks[number].len = u64::try_from(bytes.len()).unwrap();
        dir.replace(&chunk_name(number, &digest), bytes).unwrap();
    }
    dir.replace(MANIFEST, &manifest.encode()).unwrap();
    let found = verify(&dir, Trust::default(), EFFORT, Watch::NOBODY);
    assert!(found.is_err() || !is_changed, "changed entries have the same root");
});
