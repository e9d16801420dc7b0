//! Several bodies under one header: the hash says nothing of witnesses, so anybody can make more of them. Where a chain ends must
//! not depend on which came first.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/faults.rs"]
mod faults;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/model.rs"]
mod model;

use faults::Fault;
use machine::{Machine, branch, chain, check_sound, import, orphan, status, with_another_witness};
use rubin::synthetic as maker;
use rubin::tables::{BLOCKS, META};
use rubin::{Chain, Genesis, Status};

/// All orders of so many things.
fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for order in orders(count - 1) {
        for at in 0..count {
            let mut order = order.clone();
            order.insert(at, count - 1);
            all.push(order);
        }
    }
    all
}

/// Imports blocks in every order, in one process and in one for each block: the end is always the same.
#[track_caller]
fn check_orders(genesis: &Genesis, first: &[Vec<u8>], blocks: &[Vec<u8>], tip: &[u8]) {
    let none = Fault::new(0, false, false);
    for order in orders(blocks.len()) {
        for is_restarted in [false, true] {
            let machine = Machine::default();
            let mut one = machine.start(genesis, &none).unwrap();
            first.iter().for_each(|block| assert_eq!(import(&one, block), "APPLIED_AS_NEW_TIP"));
            for number in &order {
                import(&one, &blocks[*number]);
                if is_restarted {
                    drop(one);
                    one = machine.start(genesis, &none).unwrap();
                }
            }
            assert_eq!(one.tip().hash, maker::hash_of(tip), "{order:?}, anew: {is_restarted}");
            check_sound(&one);
            assert_eq!(others(&one), 0, "{order:?}: what is decided has one body");
        }
    }
}

/// Bodies that are kept beside the first ones.
fn others(chain: &Chain) -> usize {
    let view = chain.view().unwrap();
    let rows = model::dump(view.snapshot(), META);
    rows.iter().filter(|(key, _)| key.starts_with(b"other_body/")).count()
}

#[test]
fn a_block_that_waits_comes_in_whichever_body_was_first() {
    let genesis = maker::genesis(1);
    let a = branch(genesis.hash(), 0, 2, 1);
    let bad = |suite| with_another_witness(&a[1], suite);
    check_orders(&genesis, &[], &[a[0].clone(), a[1].clone(), bad(1)], &a[1]);
    let blocks = [a[0].clone(), a[1].clone(), bad(1), bad(2)];
    check_orders(&genesis, &[], &blocks, &a[1]);
}

#[test]
fn so_does_one_that_waits_for_another_with_two_bodies() {
    let genesis = maker::genesis(1);
    let a = branch(genesis.hash(), 0, 3, 1);
    let bad = |number: usize| with_another_witness(&a[number], 1);
    let blocks = [a[0].clone(), a[1].clone(), bad(1), a[2].clone(), bad(2)];
    check_orders(&genesis, &[], &blocks, &a[2]);
}

#[test]
fn so_does_one_of_a_chain_that_is_not_the_best_yet() {
    let genesis = maker::genesis(1);
    let trunk = branch(genesis.hash(), 0, 2, 9);
    let a = branch(genesis.hash(), 0, 3, 1);
    let bad = |number: usize| with_another_witness(&a[number], 1);
    let blocks = [a[0].clone(), bad(0), a[1].clone(), bad(1), a[2].clone()];
    check_orders(&genesis, &trunk, &blocks, &a[2]);
}

#[test]
fn whoever_brings_the_block_that_decides_is_told_the_truth() {
    let genesis = maker::genesis(1);
    let one = chain(&genesis);
    for block in branch(genesis.hash(), 0, 1, 9) {
        assert_eq!(import(&one, &block), "APPLIED_AS_NEW_TIP");
    }
    // Of equal work, and not as good.
    let tip = one.tip().hash;
    let mut sides = (10..).map(|salt| branch(genesis.hash(), 0, 2, salt));
    let a = sides.find(|side| maker::hash_of(&side[0]) > tip).unwrap();
    assert_eq!(import(&one, &with_another_witness(&a[0], 1)), "STORED_NOT_SELECTED");
    assert_eq!(import(&one, &a[0]), "STORED_NOT_SELECTED");
    // The body that was first is given up on the way.
    let done = one.import(&a[1], None).unwrap().unwrap();
    assert_eq!(done.decision.as_str(), "APPLIED_AS_NEW_TIP");
    assert_eq!((done.disconnected, done.connected), (1, 2));
    assert_eq!(one.tip().hash, maker::hash_of(&a[1]));
    check_sound(&one);
}

#[test]
fn only_a_few_bodies_are_kept_and_a_good_one_comes_in_later() {
    let genesis = maker::genesis(1);
    let fault = Fault::new(0, false, false);
    let one = Machine::default().start(&genesis, &fault).unwrap();
    let a = branch(genesis.hash(), 0, 2, 1);
    for suite in 1..=100 {
        assert_eq!(import(&one, &with_another_witness(&a[1], suite)), "ORPHANED");
    }
    assert_eq!((others(&one), fault.count()), (3, 2 + 4), "and nothing is written for more");
    assert_eq!(import(&one, &a[1]), "ORPHANED");
    assert_eq!(import(&one, &a[0]), "APPLIED_AS_NEW_TIP");
    assert_eq!(status(&one, &a[1]), Some(Status::InvalidBody));
    assert_eq!((one.tip().height, others(&one)), (1, 0));
    assert_eq!(import(&one, &a[1]), "APPLIED_AS_NEW_TIP");
    check_sound(&one);
}

#[test]
fn bodies_go_with_their_block() {
    let genesis = maker::genesis(1);
    let one = chain(&genesis);
    let a = branch(genesis.hash(), 0, 2, 1);
    import(&one, &a[1]);
    import(&one, &with_another_witness(&a[1], 1));
    assert_eq!(others(&one), 1);
    (0..10_000).for_each(|number| assert_eq!(import(&one, &orphan(number)), "ORPHANED"));
    assert_eq!((status(&one, &a[1]), others(&one)), (None, 0));
    let bytes = model::dump(one.view().unwrap().snapshot(), BLOCKS);
    assert_eq!(bytes.len(), 10_001, "those that wait, and genesis");
}

#[test]
fn a_process_that_dies_on_the_way_loses_no_body() {
    let genesis = maker::genesis(1);
    let trunk = branch(genesis.hash(), 0, 1, 9);
    let a = branch(genesis.hash(), 0, 3, 1);
    let none = Fault::new(0, false, false);
    let live = |chain: &Chain| {
        trunk.iter().for_each(|block| _ = import(chain, block));
        // In the order in which both go wrong first.
        for number in [2, 1] {
            import(chain, &with_another_witness(&a[number], 1));
            import(chain, &with_another_witness(&a[number], 2));
            import(chain, &a[number]);
        }
    };
    let count = {
        let one = Machine::default().start(&genesis, &none).unwrap();
        live(&one);
        let before = none.count();
        import(&one, &a[0]);
        assert_eq!(one.tip().hash, maker::hash_of(&a[2]));
        none.count() - before
    };
    for at in 1..=count {
        for is_made in [false, true] {
            let machine = Machine::default();
            live(&machine.start(&genesis, &none).unwrap());
            let dying = machine.start(&genesis, &Fault::new(at, is_made, true)).unwrap();
            assert!(dying.import(&a[0], None).is_err());
            drop(dying);
            let one = machine.start(&genesis, &none).unwrap();
            import(&one, &a[0]);
            assert_eq!(one.tip().hash, maker::hash_of(&a[2]), "change {at}, made: {is_made}");
            check_sound(&one);
            assert_eq!(others(&one), 0);
        }
    }
}
