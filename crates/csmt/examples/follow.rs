//! A UTxO set that follows a chain: blocks forward, a rollback, and proofs that are checked without the store.
//!
//! `cargo run --release -p kvb-csmt --example follow`

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::{Database, Effort, Hash, PathKind, RolledBack, Settings};
use ledger::EngineKind;

/// The block of a slot: it makes ten outputs and spends five of the one before.
fn block(slot: u64) -> (Point, Vec<Operation>) {
    let key = |slot: u64, number: u64| format!("output {number} of {slot:04}").into_bytes();
    let mut operations: Vec<Operation> = (0..10)
        .map(|number| Operation::Insert { key: key(slot, number), value: vec![7; 40] })
        .collect();
    if slot > 1 {
        operations.extend((0..5).map(|number| Operation::Delete { key: key(slot - 1, number) }));
    }
    (Point::block(slot, Hash::of(&slot.to_le_bytes())), operations)
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    // With `PathKind::Raw` the key is the place in the tree. The default puts the output's address in front.
    let settings = Settings { path: PathKind::Raw, ..Settings::default() };
    let store = Database::new(dir.path()).init(EngineKind::Kvb, settings, Effort::default())?;
    let mut roots = Vec::new();
    for slot in 1..=20 {
        let (point, operations) = block(slot);
        roots.push((point, store.forward(point, &operations)?.root.ok_or("no root")?));
    }
    let (tip, root) = *roots.last().ok_or("no block")?;
    println!("at {tip}: root {root}");

    let key = b"output 7 of 0020";
    let proof = store.view()?.prove(key)?.ok_or("it is not there")?;
    proof.verify(&root, &proof.key, &Hash::of(&[7; 40]))?;
    println!("a proof of {} bytes holds", proof.to_v4().len());

    // Another chain is better from slot 15 on: go back there, and the root is what it was.
    let (point, wanted) = *roots.get(14).ok_or("no such block")?;
    match store.rollback(point)? {
        RolledBack::Done { blocks, .. } => println!("{blocks} blocks taken back to {point}"),
        _ => println!("{point} is further back than blocks are kept"),
    }
    assert_eq!(store.view()?.root()?, Some(wanted));
    assert!(store.view()?.prove(key)?.is_none());

    let check = store.verify(&mut |_| {})?;
    println!("{} entries, {} findings", check.entries, check.findings.len());
    Ok(())
}
