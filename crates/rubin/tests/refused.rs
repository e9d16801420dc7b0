//! What anybody can make at no cost, and what it leaves behind: headers without work, blocks on top of them. It is bounded, and every
//! block gets an answer.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/faults.rs"]
mod faults;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/model.rs"]
mod model;

use faults::Fault;
use machine::{
    Machine, branch, chain, check_sound, dump, import, orphan, status, with_another_body,
    with_another_witness,
};
use rubin::synthetic::{self as maker, coin};
use rubin::tables::{ALL, BLOCKS, HEADERS, INDEX, META};
use rubin::{Block, Chain, Hash, Header, Status};

/// Blocks that are kept and do not count, at most.
const KEPT_MAX: usize = 10_000;

/// A block of which nobody has looked for a nonce.
fn without_work(prev_hash: Hash, timestamp: u64, target: [u8; 32]) -> Vec<u8> {
    let coinbase = maker::coinbase(1, &[coin(0)]);
    let easy = maker::block(prev_hash, timestamp, std::slice::from_ref(&coinbase));
    let header = Block::decode(&easy).unwrap().header;
    [&Header { target, ..header }.encode()[..], &[1], &coinbase].concat()
}

/// Rows of every table.
fn rows(chain: &Chain) -> Vec<(&'static str, usize)> {
    dump(chain).iter().zip(ALL).map(|(rows, table)| (table.name, rows.len())).collect()
}

fn has_body(chain: &Chain, block: &[u8]) -> bool {
    chain.view().unwrap().block(maker::hash_of(block)).unwrap().is_some()
}

#[test]
fn an_invalid_header_leaves_no_body() {
    let genesis = maker::genesis(1);
    let one = chain(&genesis);
    let mut hard = [0; 32];
    hard[5] = 1;
    let future = maker::block(genesis.hash(), 1 << 40, &[maker::coinbase(1, &[])]);
    let cases = [
        (without_work(Hash::of(&[b"unknown"]), 5, hard), "BLOCK_ERR_POW_INVALID"),
        (without_work(Hash::of(&[b"unknown"]), 5, [0; 32]), "BLOCK_ERR_POW_INVALID"),
        (without_work(genesis.hash(), 5, hard), "BLOCK_ERR_TARGET_INVALID"),
        (without_work(Hash::ZERO, 5, [0xff; 32]), "BLOCK_ERR_LINKAGE_INVALID"),
        (without_work(genesis.hash(), 0, [0xff; 32]), "BLOCK_ERR_TIMESTAMP_OLD"),
        (with_another_body(&branch(genesis.hash(), 0, 1, 2)[0]), "BLOCK_ERR_MERKLE_INVALID"),
        (future, "BLOCK_ERR_TIMESTAMP_FUTURE"),
    ];
    for (block, wanted) in &cases {
        for _ in 0..2 {
            let verdict = one.import(block, Some(100)).unwrap();
            assert_eq!(verdict.unwrap_err().code.as_str(), *wanted);
            assert_eq!(status(&one, block), Some(Status::InvalidHeader));
            assert!(!has_body(&one, block), "{wanted}");
        }
    }
}

#[test]
fn one_that_waited_leaves_no_body_either() {
    let genesis = maker::genesis(1);
    let one = chain(&genesis);
    let a = branch(genesis.hash(), 0, 2, 1);
    // Its target is no good, which only its parent tells.
    let mut other = [0xff; 32];
    other[0] = 0xfe;
    let coinbase = maker::coinbase(2, &[]);
    let bad = maker::block_with(maker::hash_of(&a[0]), 50, other, &[coinbase]);
    assert_eq!(import(&one, &bad), "ORPHANED");
    assert!(has_body(&one, &bad));
    assert_eq!(import(&one, &a[0]), "APPLIED_AS_NEW_TIP");
    assert_eq!(status(&one, &bad), Some(Status::InvalidHeader));
    assert!(!has_body(&one, &bad));
    assert_eq!(import(&one, &bad), "BLOCK_ERR_TARGET_INVALID");
}

#[test]
fn a_flood_of_what_costs_nothing_is_bounded() {
    let genesis = maker::genesis(1);
    let machine = Machine::default();
    let none = Fault::new(0, false, false);
    let mut one = machine.start(&genesis, &none).unwrap();
    let unknown = Hash::of(&[b"unknown"]);
    // A mark that goes and comes again, with blocks on top of it, each as cheap as the other.
    let first = without_work(Hash::ZERO, 1, [0xff; 32]);
    for number in 0..4000 {
        assert_eq!(import(&one, &first), "BLOCK_ERR_LINKAGE_INVALID");
        let on_top = without_work(maker::hash_of(&first), 10 + number, [0xff; 32]);
        assert_eq!(import(&one, &on_top), "INVALID_ANCESTRY");
        let weak = without_work(unknown, number, [0; 32]);
        assert_eq!(import(&one, &weak), "BLOCK_ERR_POW_INVALID");
        let zero = without_work(Hash::ZERO, 10 + number, [0xff; 32]);
        assert_eq!(import(&one, &zero), "BLOCK_ERR_LINKAGE_INVALID");
        if number == 2000 {
            // What was noted is known to whoever starts anew.
            one = machine.start(&genesis, &none).unwrap();
        }
    }
    for (name, count) in rows(&one) {
        assert!(count <= KEPT_MAX + 3, "{name} has {count} rows");
    }
    let view = one.view().unwrap();
    let bodies = model::dump(view.snapshot(), BLOCKS).len();
    assert!(bodies <= 4001, "{bodies}: only blocks that may be good some day have bodies");
    let count = |table| model::dump(view.snapshot(), table).len();
    assert_eq!((count(HEADERS), count(INDEX)), (KEPT_MAX + 1, KEPT_MAX + 1));
    drop(view);
    // The same answers as before, and none of it is in the way.
    assert_eq!(import(&one, &without_work(unknown, 0, [0; 32])), "BLOCK_ERR_POW_INVALID");
    for block in branch(genesis.hash(), 0, 3, 1).iter().rev() {
        import(&one, block);
    }
    assert_eq!(one.tip().height, 3);
    check_sound(&one);
}

#[test]
fn blocks_on_top_of_a_mark_that_was_pushed_out_go_on_with_the_good_one() {
    let genesis = maker::genesis(1);
    let a = branch(genesis.hash(), 0, 4, 1);
    for is_anew in [false, true] {
        let machine = Machine::default();
        let none = Fault::new(0, false, false);
        let mut one = machine.start(&genesis, &none).unwrap();
        assert_eq!(import(&one, &with_another_body(&a[0])), "BLOCK_ERR_MERKLE_INVALID");
        // All but those on top of it, which are as many as are kept.
        for number in 0..u64::try_from(KEPT_MAX).unwrap() - 3 {
            assert_eq!(import(&one, &orphan(number)), "ORPHANED");
        }
        for block in &a[1..] {
            assert_eq!(import(&one, block), "INVALID_ANCESTRY");
        }
        assert_eq!(status(&one, &a[0]), None, "pushed out");
        if is_anew {
            one = machine.start(&genesis, &none).unwrap();
        }
        assert_eq!(import(&one, &a[0]), "APPLIED_AS_NEW_TIP");
        assert_eq!(one.tip().hash, maker::hash_of(&a[3]));
        check_sound(&one);
    }
}

#[test]
fn more_witnesses_of_a_block_that_is_invalid_are_not_written() {
    let genesis = maker::genesis(1);
    let fault = Fault::new(0, false, false);
    let one = Machine::default().start(&genesis, &fault).unwrap();
    let a = branch(genesis.hash(), 0, 3, 1);
    assert_eq!(import(&one, &with_another_witness(&a[0], 1)), "TX_ERR_SIG_ALG_INVALID");
    assert_eq!(import(&one, &a[1]), "INVALID_ANCESTRY");
    assert_eq!(import(&one, &a[2]), "INVALID_ANCESTRY");
    let (before, count) = (dump(&one), fault.count());
    for suite in 2..100 {
        assert_eq!(import(&one, &with_another_witness(&a[0], suite)), "TX_ERR_SIG_ALG_INVALID");
    }
    assert_eq!(fault.count(), count, "nobody makes us write for nothing");
    assert_eq!(dump(&one), before);
    assert_eq!(import(&one, &a[0]), "APPLIED_AS_NEW_TIP");
    assert_eq!(one.tip().hash, maker::hash_of(&a[2]));
    check_sound(&one);
}

#[test]
fn a_block_whose_ancestors_were_pushed_out_gets_an_answer() {
    let genesis = maker::genesis(1);
    let machine = Machine::default();
    let none = Fault::new(0, false, false);
    let one = machine.start(&genesis, &none).unwrap();
    let next = |prev: &[u8], height: u64, timestamp: u64| {
        maker::block(maker::hash_of(prev), timestamp, &[maker::coinbase(height, &[])])
    };
    let x = orphan(1 << 40);
    let c = next(&x, 1, 100);
    let d = without_work(maker::hash_of(&c), 0, [0; 32]);
    assert_eq!(import(&one, &with_another_body(&x)), "BLOCK_ERR_MERKLE_INVALID");
    assert_eq!(import(&one, &c), "INVALID_ANCESTRY");
    assert_eq!(import(&one, &d), "BLOCK_ERR_POW_INVALID");
    assert_eq!(import(&one, &x), "ORPHANED");
    assert_eq!(status(&one, &c), Some(Status::Orphaned));
    let mut number = 0;
    while status(&one, &x).is_some() || status(&one, &c).is_some() {
        assert_eq!(import(&one, &orphan(number)), "ORPHANED");
        number += 1;
    }
    assert_eq!(status(&one, &d), Some(Status::InvalidHeader), "and this one stays");
    // Somebody who has just started knows no header.
    drop(one);
    let one = machine.start(&genesis, &none).unwrap();
    let e = next(&d, 3, 200);
    assert_eq!(import(&one, &e), "INVALID_ANCESTRY");
    assert_eq!(import(&one, &next(&e, 4, 300)), "INVALID_ANCESTRY");
    let weak = without_work(maker::hash_of(&d), 7, [0; 32]);
    assert_eq!(import(&one, &weak), "BLOCK_ERR_POW_INVALID");
    // And nobody is kept from anything.
    let a = branch(genesis.hash(), 0, 2, 1);
    a.iter().for_each(|block| assert_eq!(import(&one, block), "APPLIED_AS_NEW_TIP"));
    check_sound(&one);
    assert!(!model::dump(one.view().unwrap().snapshot(), META).is_empty());
}
