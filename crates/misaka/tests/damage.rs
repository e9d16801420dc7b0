//! Rows that are gone or changed, and bytes that nobody wrote: found, refused, never a panic.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/chain.rs"]
mod chain;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::ops::Bound;

use chain::{Chain, effort, memory};
use fastrand::Rng;
use ledger::{Batch, Engine, MemoryEngine};
use misaka::format::checkpoint::{Header, decode_value};
use misaka::format::finality::FinalityProof;
use misaka::format::key::Key;
use misaka::format::manifest::Manifest;
use misaka::format::object::Object;
use misaka::format::transaction::Transaction;
use misaka::format::{node, validators};
use misaka::proof::Proof;
use misaka::tables::{ALL, EVENTS, FEED, META, NOTES, TREE, VERSIONS};
use misaka::{Checkpoint, Pair, RootVersion, Settings, Store};

fn settings() -> Settings {
    Settings { chain_id: Some(7), event_retention: 3, window: 5, v2_at: Some(254) }
}

/// Rows of all tables as they are stored.
fn stored(store: &Store) -> Vec<(ledger::Table, Pair)> {
    let snapshot = store.engine().snapshot().unwrap();
    let mut rows = Vec::new();
    for table in ALL {
        for row in snapshot.scan(*table, (Bound::Unbounded, Bound::Unbounded)).unwrap() {
            let (key, value) = row.unwrap();
            rows.push((*table, (key.into_owned(), value.into_owned())));
        }
    }
    rows
}

/// A store in memory with these rows.
fn engine(rows: &[(ledger::Table, Pair)]) -> Box<dyn Engine> {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    for (table, (key, value)) in rows {
        batch.put(*table, key, value);
    }
    engine.commit(batch).unwrap();
    Box::new(engine)
}

/// True if of the newest checkpoint only the number of the first one was changed, which stands in front of the number of objects.
fn is_other_first(row: &(ledger::Table, Pair), other: &[(ledger::Table, Pair)], at: usize) -> bool {
    let (table, (key, value)) = row;
    let first = value.len().saturating_sub(16)..value.len().saturating_sub(8);
    let is_same = |(same, (_, changed)): &(ledger::Table, Pair)| {
        let mut changed = changed.clone();
        if same == table && changed.len() == value.len() {
            changed[first.clone()].copy_from_slice(&value[first.clone()]);
        }
        changed == *value
    };
    *table == META && key == b"tip" && other.get(at).is_some_and(is_same)
}

#[test]
fn verify_finds_every_row_that_is_not_as_it_was() {
    let first = seed::seed("verify_finds_every_row_that_is_not_as_it_was");
    for (round, count) in [(0, 4), (1, 10)] {
        let mut rng = Rng::with_seed(first ^ round);
        let store = memory(settings());
        let mut chain = Chain::new(settings(), 250);
        for _ in 0..count {
            store.apply(&chain.grow(&mut rng, 8)).unwrap();
        }
        let next = chain.grow(&mut rng, 8);
        let rows = stored(&store);
        for at in 0..rows.len() {
            for kind in 0..3 {
                let mut other = rows.clone();
                let (table, (key, value)) = &mut other[at];
                let name = format!("{} {}", table.name, misaka::hex(key));
                match kind {
                    0 => drop(other.remove(at)),
                    1 if value.is_empty() => continue,
                    1 => {
                        let byte = rng.usize(..value.len());
                        value[byte] ^= 1 << rng.u8(..8);
                    }
                    _ => {
                        value.truncate(rng.usize(..=value.len()));
                        value.extend((0..rng.usize(1..4)).map(|_| rng.u8(..)));
                        if *value == rows[at].1.1 {
                            continue;
                        }
                    }
                }
                // Other settings are other settings, and not damage.
                if rows[at].0 == META && rows[at].1.0 == b"settings" {
                    let _ = Store::open(engine(&other), effort());
                    continue;
                }
                // Digests of old versions, events and what the feed has of parameters are nowhere else: the engine's checksums keep them.
                // And how many rows of events there were, or which checkpoint was the first, matters no more when they are pruned.
                let is_only_here = [VERSIONS, EVENTS, FEED, NOTES].contains(&rows[at].0)
                    || (count > 5 && is_other_first(&rows[at], &other, at));
                if let Ok(store) = Store::open(engine(&other), effort())
                    && let Ok(check) = store.verify(&|_, _, _| {})
                {
                    let is_found = !check.findings.is_empty();
                    assert!(is_found || (kind != 0 && is_only_here), "{name}, {kind}");
                    // Whatever becomes of it, it is an error and nothing worse.
                    let _ = store.apply(&next);
                    let view = store.view().unwrap();
                    let _ = view.full_root(RootVersion::V1, &|_, _, _| {});
                    for seq in 248..262 {
                        let _ = (view.change(seq), view.events(seq), view.checkpoint(seq));
                    }
                    for bytes in &next.writes {
                        let id = Object::decode(bytes).unwrap().id;
                        let _ = (view.object(&id), view.prove(&Key::Object(id).encode()));
                    }
                }
            }
        }
        // And a row too many.
        for table in &ALL[..9] {
            // Before v2 begins, rows of a tree are what is left of one that was not done.
            if *table == TREE && count == 4 {
                continue;
            }
            let mut other = rows.clone();
            other.push((*table, (vec![9; 40], vec![1; 41])));
            if let Ok(store) = Store::open(engine(&other), effort())
                && let Ok(check) = store.verify(&|_, _, _| {})
            {
                assert_ne!(check.findings, [""; 0], "{}", table.name);
            }
        }
    }
}

#[test]
fn bytes_of_any_kind_are_read_or_refused() {
    let mut rng = Rng::with_seed(seed::seed("bytes_of_any_kind_are_read_or_refused"));
    let mut chain = Chain::new(settings(), 250);
    let good = chain.grow(&mut rng, 12);
    let object = good.writes.first().cloned().unwrap_or_default();
    let kinds = [good.encode(), object, good.header.encode().to_vec(), vec![0; 300]];
    for _ in 0..30_000 * seed::rounds() {
        let mut bytes = rng.choice(&kinds).unwrap().clone();
        for _ in 0..rng.usize(..4) {
            match rng.u8(..4) {
                0 if !bytes.is_empty() => {
                    let at = rng.usize(..bytes.len());
                    bytes[at] = rng.u8(..);
                }
                1 => bytes.truncate(rng.usize(..=bytes.len())),
                2 if bytes.len() > 4 => {
                    // A length that lies.
                    let at = rng.usize(..bytes.len() - 4);
                    bytes[at..at + 4].copy_from_slice(&rng.u32(..).to_le_bytes());
                }
                _ => bytes.push(rng.u8(..)),
            }
        }
        if let Ok(checkpoint) = Checkpoint::decode(&bytes) {
            assert_eq!(checkpoint.encode(), bytes);
        }
        if let Ok(object) = Object::decode(&bytes) {
            assert_eq!(object.encode(), bytes);
        }
        if let Ok(header) = Header::decode(&bytes) {
            assert_eq!(header.encode().to_vec(), bytes);
        }
        if let Ok(transaction) = Transaction::decode(&bytes) {
            assert_eq!(transaction.encode(), bytes);
        }
        if let Ok(proof) = Proof::decode(&bytes) {
            assert_eq!(proof.encode(), bytes);
        }
        if let Ok(key) = Key::decode(&bytes) {
            assert_eq!(key.encode(), bytes);
        }
        if let Ok(finality) = FinalityProof::decode(&bytes) {
            assert_eq!(finality.encode(), bytes);
        }
        if let Ok(children) = node::decode(&bytes) {
            assert_eq!(node::value(&children), bytes);
        }
        let _ = (Manifest::decode(&bytes), decode_value(&bytes), validators::decode(&bytes));
    }
}
