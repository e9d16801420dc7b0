//! Faults of the engine and of the directory: whatever fails, and whether or not it was done all the same, the chain that is open
//! goes on with the next block as if nothing had been.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/faults.rs"]
mod faults;
#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::sync::Arc;

use fastrand::Rng;
use faults::{Fault, FaultyDir, FaultyEngine};
use host::MemoryDir;
use ledger::MemoryEngine;
use model::{Model, Tree};
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::{Chain, Error, Hash, Header};

/// What outlives a process.
#[derive(Default)]
struct Machine {
    tables: Arc<MemoryEngine>,
    files: Arc<MemoryDir>,
    changes_max: usize,
}

impl Machine {
    /// A machine with a chain that has only genesis.
    fn new(tree: &Tree, changes_max: usize) -> Machine {
        let machine = Machine { changes_max, ..Machine::default() };
        machine.start(tree, &Fault::new(0, false, false)).unwrap();
        machine
    }

    /// Opens the chain; changes fail as told.
    fn start(&self, tree: &Tree, fault: &Arc<Fault>) -> Result<Chain, Error> {
        let (tables, files) = (Arc::clone(&self.tables), Arc::clone(&self.files));
        let engine = Box::new(FaultyEngine { tables, fault: Arc::clone(fault) });
        let home = Arc::new(FaultyDir { files, fault: Arc::clone(fault) });
        let rules: Box<Rules> = Box::default();
        let chain = Chain::init(engine, home, rules, tree.genesis.clone())?;
        Ok(chain.reorg_changes_max(self.changes_max))
    }
}

/// Imports all blocks, and again those that failed.
fn live(tree: &Tree, order: &[usize], changes_max: usize, fault: &Arc<Fault>) {
    let chain = Machine::new(tree, changes_max).start(tree, fault).unwrap();
    let mut model = Model::new(tree);
    for (turn, number) in order.iter().enumerate() {
        let bytes = &tree.blocks[*number].bytes;
        if turn % 3 == 0 {
            // Somebody is first with another body under that header, which keeps out neither the block nor what waits for it.
            let other = maker::block(Hash::ZERO, 0, &[maker::coinbase(77, &[])]);
            let mixed = [&bytes[..Header::LEN], &other[Header::LEN..]].concat();
            let _ = chain.import(&mixed, None);
        }
        if chain.import(bytes, None).is_err() {
            // Whoever looks now sees a set that belongs to its block.
            let view = chain.view().unwrap();
            let check = view.verify(tree.genesis.hash(), true, &mut |_, _| {}).unwrap();
            assert_eq!(check.findings, Vec::<String>::new());
            drop(view);
            let _ = chain.import(bytes, None).unwrap();
        }
        model.import(*number);
        model.check_tip(&chain, &format!("block {number}"));
    }
    model.check_all(&chain);
}

#[test]
fn a_fault_anywhere_does_no_harm_to_a_chain_that_stays_open() {
    let first = seed::seed("a_fault_anywhere_does_no_harm_to_a_chain_that_stays_open");
    for round in 0..6 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let tree = Tree::grow(&mut rng, 14);
        let mut order: Vec<usize> = (0..tree.blocks.len()).collect();
        if round % 2 == 1 {
            rng.shuffle(&mut order);
        }
        let none = Fault::new(0, false, false);
        // Better chains are validated in memory, as they are applied, or begun in memory and then applied.
        let changes_max = [1 << 20, 0, 10][usize::try_from(round % 3).unwrap()];
        live(&tree, &order, changes_max, &none);
        for at in 1..=none.count() {
            for is_made in [false, true] {
                live(&tree, &order, changes_max, &Fault::new(at, is_made, false));
            }
        }
    }
}

#[test]
fn a_process_that_dies_anywhere_needs_no_block_again_but_the_last() {
    let first = seed::seed("a_process_that_dies_anywhere_needs_no_block_again_but_the_last");
    for round in 0..6 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let tree = Tree::grow(&mut rng, 14);
        let mut order: Vec<usize> = (0..tree.blocks.len()).collect();
        if round % 2 == 1 {
            rng.shuffle(&mut order);
        }
        let none = Fault::new(0, false, false);
        // Better chains are validated in memory, as they are applied, or begun in memory and then applied.
        let changes_max = [1 << 20, 0, 10][usize::try_from(round % 3).unwrap()];
        live(&tree, &order, changes_max, &none);
        for at in 1..=none.count() {
            for is_made in [false, true] {
                let fault = Fault::new(at, is_made, true);
                die(&tree, &order, changes_max, fault, &mut rng);
            }
        }
    }
}

/// Imports blocks until the process dies, dies again while it opens the chain, and goes on with the block that was under way.
fn die(tree: &Tree, order: &[usize], changes_max: usize, mut fault: Arc<Fault>, rng: &mut Rng) {
    let machine = Machine::new(tree, changes_max);
    let mut model = Model::new(tree);
    let mut rest = order;
    while let Some((number, later)) = rest.split_first() {
        let Ok(chain) = machine.start(tree, &fault) else {
            fault = Fault::new(0, false, false);
            continue;
        };
        let mut next = Some((number, later));
        while let Some((number, later)) = next {
            if chain.import(&tree.blocks[*number].bytes, None).is_err() {
                break;
            }
            model.import(*number);
            model.check_tip(&chain, &format!("block {number}"));
            rest = later;
            next = later.split_first();
        }
        fault = Fault::new(rng.u64(1..4), rng.bool(), true);
    }
    let chain = machine.start(tree, &Fault::new(0, false, false)).unwrap();
    model.check_all(&chain);
}
