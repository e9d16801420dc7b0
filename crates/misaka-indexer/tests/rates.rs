//! How fast an index is fed: checkpoints of 2,000 writes. Run by hand: `cargo test -p kvb-misaka-indexer --features postgres --test rates
//! -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[cfg(feature = "postgres")]
#[path = "support/cluster.rs"]
mod cluster;

use std::time::Instant;

use fastrand::Rng;
use ledger::EngineKind;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Event, Hash};
use misaka_indexer::{Embedded, Holder, Index, Page};

const WRITES: usize = 2000;
const CHECKPOINTS: u64 = 100;

/// Checkpoints that write old objects and new ones, half and half, with payloads of 200 bytes.
fn checkpoints() -> Vec<Checkpoint> {
    let mut rng = Rng::with_seed(1);
    let mut objects: Vec<(Hash, u64)> = Vec::new();
    let mut prev_digest = Hash::ZERO;
    let mut all = Vec::new();
    for seq in 0..CHECKPOINTS {
        let mut writes = Vec::with_capacity(WRITES);
        for number in 0..WRITES {
            let at = match rng.bool() && !objects.is_empty() {
                true => rng.usize(..objects.len()),
                false => {
                    let name = [seq.to_le_bytes(), u64::try_from(number).unwrap().to_le_bytes()];
                    objects.push((Hash::of(&[&name.concat()]), 0));
                    objects.len() - 1
                }
            };
            objects[at].1 += 1;
            let (id, version) = objects[at];
            let owner = Owner::Address(Hash::of(&[&[rng.u8(..)]]).0);
            let payload: Vec<u8> = (0..200).map(|_| rng.u8(..)).collect();
            let (type_tag, is_tombstone) = ("0x2::coin::Coin", false);
            let object = Object { id, version, owner, type_tag, payload: &payload, is_tombstone };
            writes.push(object.encode());
        }
        let tx_digests: Vec<Hash> =
            writes.chunks(4).map(|writes| Hash::of(&[&writes.concat()])).collect();
        let events = (0..u32::try_from(WRITES / 2).unwrap())
            .map(|number| Event { tx: number / 2, number: number % 2, bytes: vec![7; 60] })
            .collect();
        let header = Header {
            chain_id: 1,
            epoch: 0,
            seq,
            prev_digest,
            timestamp_ms: seq,
            tx_count: u32::try_from(tx_digests.len()).unwrap(),
            tx_root: tx_root(&tx_digests),
            state_root: Hash::ZERO,
            validator_set_hash: Hash::ZERO,
        };
        prev_digest = header.digest();
        all.push(Checkpoint { header, tx_digests, writes, params: Vec::new(), events });
    }
    all
}

fn measure(name: &str, index: &dyn Index, checkpoints: &[Checkpoint]) {
    let start = Instant::now();
    for checkpoint in checkpoints {
        index.apply(checkpoint).unwrap();
    }
    let took = start.elapsed().as_secs_f64();
    let rate = f64::from(u32::try_from(checkpoints.len()).unwrap()) / took;
    let holder = Holder::Address(Hash::of(&[&[3]]).0);
    let start = Instant::now();
    for _ in 0..100 {
        assert_eq!(index.owned(&holder, Page::first(100)).unwrap().len(), 100);
    }
    let asked = start.elapsed().as_secs_f64() * 10.0;
    eprintln!(
        "{name}: {rate:.1} checkpoints/s of {WRITES} writes; 100 objects of an owner in {asked:.2} ms"
    );
}

#[test]
#[ignore = "measures, and takes its time"]
fn rates() {
    let checkpoints = checkpoints();
    for kind in EngineKind::ALL {
        let dir = tempfile::tempdir_in(".").unwrap();
        let index = Embedded::init(dir.path().join("index"), *kind).unwrap();
        measure(kind.name(), &index, &checkpoints);
    }
    #[cfg(feature = "postgres")]
    for (fsync, name) in [("on", "postgresql"), ("off", "postgresql without fsync")] {
        let Some(cluster) = cluster::Cluster::start_with(fsync) else { return };
        let index = misaka_indexer::Server::init(&cluster.database("rates")).unwrap();
        measure(name, &index, &checkpoints);
    }
}
