//! A MISAKA validator: checkpoints with their roots, a proof, a snapshot, and another validator that begins from it.
//!
//! `cargo run --release -p kvb-misaka --example validator`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use host::FileDir;
use ledger::EngineKind;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::key::Key;
use misaka::format::object::{Object, Owner};
use misaka::snapshot::{self, Trust, Watch};
use misaka::{Checkpoint, Database, Effort, Hash, Settings, Store};

/// The next checkpoint: a new coin, and a new version of the one before.
fn next(store: &Store, seq: u64, prev: Hash) -> Result<Checkpoint, Box<dyn Error>> {
    let coin = |number: u64, version: u64| {
        let object = Object {
            id: Hash::of(&[b"coin", &number.to_le_bytes()]),
            version,
            owner: Owner::Address([7; 32]),
            type_tag: "0x2::coin::Coin",
            payload: &(100 * version).to_le_bytes(),
            is_tombstone: false,
        };
        object.encode()
    };
    let transactions = vec![Hash::of(&[b"transaction", &seq.to_le_bytes()])];
    let mut checkpoint = Checkpoint {
        header: Header {
            chain_id: 7,
            epoch: 0,
            seq,
            prev_digest: prev,
            timestamp_ms: 1_700_000_000_000 + seq,
            tx_count: 1,
            tx_root: tx_root(&transactions),
            state_root: Hash::ZERO,
            validator_set_hash: Hash::of(&[b"validators"]),
        },
        tx_digests: transactions,
        writes: if seq == 1 { vec![coin(1, 1)] } else { vec![coin(seq - 1, 2), coin(seq, 1)] },
        params: if seq == 1 { vec![("state_root_version".to_owned(), vec![2, 0])] } else { vec![] },
        events: Vec::new(),
    };
    // Who proposes asks for the root. Who follows finds it in the header, and a wrong one is refused.
    checkpoint.header.state_root = store.root_after(&checkpoint)?;
    Ok(checkpoint)
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let settings = Settings { v2_at: Some(1), ..Settings::default() };
    let effort = Effort::default();
    let node = Database::new(dir.path().join("node"));
    let store = node.init(EngineKind::Kvb, settings, effort)?;
    let (mut prev, mut root) = (Hash::ZERO, Hash::ZERO);
    for seq in 1..=50 {
        let applied = store.apply(&next(&store, seq, prev)?)?;
        (prev, root) = (applied.digest, applied.root);
    }
    println!("checkpoint 50, digest {prev}, state_root {root}");

    let id = Hash::of(&[b"coin", &49_u64.to_le_bytes()]);
    let key = Key::Object(id).encode();
    let (value, proof) = store.view()?.prove(&key)?;
    proof.check_there(&root, &key, &value.ok_or("it is not there")?)?;
    println!("a proof of {} bytes holds", proof.encode().len());

    FileDir::make(dir.path().join("snapshot"))?;
    let files = FileDir::new(dir.path().join("snapshot"));
    snapshot::create(&store, &files, 1 << 20, 1, Watch::NOBODY)?;
    // The other one trusts the digest of the checkpoint, from wherever it has it, and nothing of the files.
    let trust = Trust { checkpoint: Some(prev), ..Trust::default() };
    let other = Database::new(dir.path().join("other"));
    let nobody = Watch::NOBODY;
    let restored =
        snapshot::restore(&files, &other, EngineKind::Kvb, settings, trust, effort, nobody)?;
    println!("{} objects restored, state_root {}", restored.objects, restored.root);
    assert_eq!(restored.root, root);

    let other = other.open(effort)?;
    let applied = other.apply(&next(&other, 51, prev)?)?;
    println!("and it goes on: checkpoint {}, state_root {}", applied.seq, applied.root);
    Ok(())
}
