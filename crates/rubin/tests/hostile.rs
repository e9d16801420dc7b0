//! Blocks that somebody sends who wants harm: bodies that are not their headers', witnesses that were changed on the way, blocks from
//! the future, floods of orphans. None of them may keep a good block out.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/faults.rs"]
mod faults;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/model.rs"]
mod model;

use faults::Fault;
use machine::{
    Machine, branch, chain, check_sound, dump, import, import_at, orphan, status,
    with_another_body, with_another_witness,
};
use rubin::synthetic::{self as maker, coin};
use rubin::tables::CANONICAL;
use rubin::{Chain, Hash, Outpoint, Status};

#[test]
fn what_is_known_to_be_invalid_is_refused_at_once_and_nothing_is_written() {
    let genesis = maker::genesis(1);
    let chain = chain(&genesis);
    let missing = maker::spend(7, &[Outpoint::new(Hash::of(&[b"nothing"]), 0)], &[coin(0)]);
    let body = maker::block(genesis.hash(), 5, &[maker::coinbase(1, &[]), missing]);
    let old = maker::block(genesis.hash(), 0, &[maker::coinbase(1, &[])]);
    let mut easy = [0xff; 32];
    easy[0] = 0xfe;
    let target = maker::block_with(genesis.hash(), 5, easy, &[maker::coinbase(1, &[])]);
    let first = maker::block(Hash::ZERO, 5, &[maker::coinbase(0, &[])]);
    let child = branch(maker::hash_of(&body), 1, 1, 1).remove(0);
    let mixed = with_another_body(&branch(genesis.hash(), 0, 1, 2)[0]);
    let cases = [
        (&body, "TX_ERR_MISSING_UTXO", Status::InvalidBody),
        (&old, "BLOCK_ERR_TIMESTAMP_OLD", Status::InvalidHeader),
        (&target, "BLOCK_ERR_TARGET_INVALID", Status::InvalidHeader),
        (&first, "BLOCK_ERR_LINKAGE_INVALID", Status::InvalidHeader),
        (&child, "INVALID_ANCESTRY", Status::InvalidAncestry),
        (&mixed, "BLOCK_ERR_MERKLE_INVALID", Status::InvalidHeader),
    ];
    for (block, wanted, mark) in cases {
        assert_eq!(import(&chain, block), wanted);
        assert_eq!(status(&chain, block), Some(mark));
        let before = dump(&chain);
        assert_eq!(import(&chain, block), wanted, "again");
        assert_eq!(dump(&chain), before, "{wanted}");
    }
    // Another body does not make a bad header good, nor is a bad body better with one that is not the header's.
    assert_eq!(import(&chain, &with_another_body(&old)), "BLOCK_ERR_TIMESTAMP_OLD");
    assert_eq!(import(&chain, &with_another_body(&body)), "TX_ERR_MISSING_UTXO");
    assert_eq!(chain.tip().height, 0);
}

#[test]
fn a_body_that_is_not_the_headers_keeps_no_block_out() {
    let genesis = maker::genesis(1);
    let a = branch(genesis.hash(), 0, 4, 1);
    let mixed: Vec<Vec<u8>> = a.iter().map(|block| with_another_body(block)).collect();
    // Before the block.
    let one = chain(&genesis);
    for (block, mixed) in a.iter().zip(&mixed) {
        assert_eq!(import(&one, mixed), "BLOCK_ERR_MERKLE_INVALID");
        assert_eq!(import(&one, block), "APPLIED_AS_NEW_TIP");
        assert_eq!(import(&one, mixed), "APPLIED_AS_NEW_TIP", "it is known");
    }
    check_sound(&one);
    // After it, while it waits, and while another chain is better.
    let one = chain(&genesis);
    for block in branch(genesis.hash(), 0, 3, 2) {
        assert_eq!(import(&one, &block), "APPLIED_AS_NEW_TIP");
    }
    for number in [1, 0, 3, 2] {
        let block = &a[number];
        import(&one, block);
        let before = dump(&one);
        let wanted = match status(&one, block) {
            Some(Status::Valid) => "STORED_NOT_SELECTED",
            _ => "BLOCK_ERR_MERKLE_INVALID",
        };
        assert_eq!(import(&one, &mixed[number]), wanted);
        assert_eq!(dump(&one), before, "block {number}");
    }
    assert_eq!(one.tip().hash, maker::hash_of(&a[3]));
    check_sound(&one);
    // Before all others, with blocks on top of it.
    let one = chain(&genesis);
    assert_eq!(import(&one, &mixed[1]), "BLOCK_ERR_MERKLE_INVALID");
    assert_eq!(import(&one, &a[2]), "INVALID_ANCESTRY");
    assert_eq!(import(&one, &a[3]), "INVALID_ANCESTRY");
    assert_eq!(import(&one, &a[1]), "ORPHANED");
    for block in &a[1..] {
        assert_eq!(status(&one, block), Some(Status::Orphaned));
    }
    assert_eq!(import(&one, &a[0]), "APPLIED_AS_NEW_TIP");
    assert_eq!(one.tip().hash, maker::hash_of(&a[3]));
    check_sound(&one);
}

/// Where a block stands whose parent is not known, nobody knows, nor which timestamps and targets are right behind it.
#[test]
fn a_body_that_is_not_the_headers_keeps_no_block_behind_it_out() {
    let genesis = maker::genesis(1);
    let next = |prev: Hash, height: u64, timestamp: u64| {
        maker::block(prev, timestamp, &[maker::coinbase(height, &[])])
    };
    let mut a = vec![next(genesis.hash(), 1, 10)];
    // The last ones are older than the third, and newer than the median.
    for (height, timestamp) in [(2, 20), (3, 30), (4, 25), (5, 28)] {
        a.push(next(maker::hash_of(a.last().unwrap()), height, timestamp));
    }
    for is_anew in [false, true] {
        let machine = Machine::default();
        let none = Fault::new(0, false, false);
        let mut one = machine.start(&genesis, &none).unwrap();
        assert_eq!(import(&one, &with_another_body(&a[2])), "BLOCK_ERR_MERKLE_INVALID");
        assert_eq!(import(&one, &a[3]), "INVALID_ANCESTRY");
        assert_eq!(import(&one, &a[4]), "INVALID_ANCESTRY");
        if is_anew {
            one = machine.start(&genesis, &none).unwrap();
        }
        for block in &a[..3] {
            assert_eq!(import(&one, block), "APPLIED_AS_NEW_TIP");
        }
        assert_eq!(one.tip().hash, maker::hash_of(&a[4]));
        check_sound(&one);
    }
    // What is no good by what is really before it is found out then.
    let one = chain(&genesis);
    let old = next(maker::hash_of(&a[2]), 4, 5);
    assert_eq!(import(&one, &with_another_body(&a[2])), "BLOCK_ERR_MERKLE_INVALID");
    assert_eq!(import(&one, &old), "INVALID_ANCESTRY");
    a[..3].iter().for_each(|block| assert_eq!(import(&one, block), "APPLIED_AS_NEW_TIP"));
    assert_eq!(import(&one, &old), "BLOCK_ERR_TIMESTAMP_OLD");
    check_sound(&one);
}

#[test]
fn a_witness_that_was_changed_on_the_way_keeps_no_block_out() {
    let genesis = maker::genesis(1);
    let a = branch(genesis.hash(), 0, 4, 1);
    let one = chain(&genesis);
    assert_eq!(import(&one, &with_another_witness(&a[0], 1)), "TX_ERR_SIG_ALG_INVALID");
    assert_eq!(import(&one, &a[1]), "INVALID_ANCESTRY");
    assert_eq!(import(&one, &with_another_witness(&a[0], 2)), "TX_ERR_SIG_ALG_INVALID");
    assert_eq!(status(&one, &a[1]), Some(Status::InvalidAncestry), "still");
    assert_eq!(import(&one, &a[2]), "INVALID_ANCESTRY");
    assert_eq!(import(&one, &a[0]), "APPLIED_AS_NEW_TIP");
    assert_eq!(one.tip().hash, maker::hash_of(&a[2]), "and what stands on it");
    check_sound(&one);
    // On a branch that becomes the better one.
    let one = chain(&genesis);
    for block in branch(genesis.hash(), 0, 2, 2) {
        assert_eq!(import(&one, &block), "APPLIED_AS_NEW_TIP");
    }
    let tip = one.tip();
    import(&one, &with_another_witness(&a[0], 1));
    for block in &a[1..] {
        import(&one, block);
    }
    assert_eq!(one.tip(), tip);
    assert_eq!(import(&one, &a[0]), "STORED_NOT_SELECTED");
    assert_eq!(one.tip().hash, maker::hash_of(&a[3]));
    check_sound(&one);
}

#[test]
fn a_block_from_the_future_comes_in_when_its_time_has_come_and_what_stands_on_it() {
    let genesis = maker::genesis(1);
    let a = branch(genesis.hash(), 0, 3, 100_000);
    let early = Some(10_000);
    let live = |chain: &Chain| {
        assert_eq!(import_at(chain, &a[0], early), "BLOCK_ERR_TIMESTAMP_FUTURE");
        assert_eq!(status(chain, &a[0]), Some(Status::InvalidHeader));
        assert_eq!(import_at(chain, &a[1], Some(1 << 40)), "INVALID_ANCESTRY");
        assert_eq!(import_at(chain, &a[2], Some(1 << 40)), "INVALID_ANCESTRY");
        let before = dump(chain);
        assert_eq!(import_at(chain, &a[0], early), "BLOCK_ERR_TIMESTAMP_FUTURE");
        assert_eq!(dump(chain), before);
    };
    let none = Fault::new(0, false, false);
    let count = {
        let one = Machine::default().start(&genesis, &none).unwrap();
        live(&one);
        let before = none.count();
        assert_eq!(import_at(&one, &a[0], Some(100_000)), "APPLIED_AS_NEW_TIP");
        assert_eq!(one.tip().hash, maker::hash_of(&a[2]));
        check_sound(&one);
        none.count() - before
    };
    // The process dies on the way.
    for at in 1..=count {
        for is_made in [false, true] {
            let machine = Machine::default();
            live(&machine.start(&genesis, &none).unwrap());
            let dying = machine.start(&genesis, &Fault::new(at, is_made, true)).unwrap();
            assert!(dying.import(&a[0], Some(100_000)).is_err());
            drop(dying);
            let one = machine.start(&genesis, &none).unwrap();
            import_at(&one, &a[0], Some(100_000));
            assert_eq!(one.tip().hash, maker::hash_of(&a[2]), "change {at}, made: {is_made}");
            check_sound(&one);
        }
    }
}

#[test]
fn a_flood_of_orphans_is_bounded_and_keeps_no_good_one_out() {
    let genesis = maker::genesis(1);
    let machine = Machine::default();
    let none = Fault::new(0, false, false);
    let mut one = machine.start(&genesis, &none).unwrap();
    let a = branch(genesis.hash(), 0, 3, 1);
    // One that comes early and goes, and comes again.
    assert_eq!(import(&one, &a[2]), "ORPHANED");
    for number in 0..10_000 {
        assert_eq!(import(&one, &orphan(number)), "ORPHANED");
        if number == 5000 {
            // The same again takes no room.
            assert_eq!(import(&one, &orphan(number)), "ORPHANED");
        }
    }
    let rows = |chain: &Chain| dump(chain).iter().map(Vec::len).collect::<Vec<_>>();
    let full = rows(&one);
    assert_eq!(status(&one, &a[2]), None);
    assert_eq!(status(&one, &orphan(0)), Some(Status::Orphaned));
    assert_eq!(import(&one, &a[2]), "ORPHANED");
    assert_eq!(status(&one, &orphan(0)), None);
    assert_eq!(rows(&one), full, "one more, one less");
    drop(one);
    one = machine.start(&genesis, &none).unwrap();
    assert_eq!(rows(&one), full);
    assert_eq!(import(&one, &a[1]), "ORPHANED");
    assert_eq!(rows(&one), full, "also after it was opened anew");
    import(&one, &a[2]);
    assert_eq!(import(&one, &a[0]), "APPLIED_AS_NEW_TIP");
    assert_eq!(one.tip().hash, maker::hash_of(&a[2]));
    check_sound(&one);
}

#[test]
fn what_is_stored_or_waits_is_not_written_again() {
    let genesis = maker::genesis(1);
    let fault = Fault::new(0, false, false);
    let one = Machine::default().start(&genesis, &fault).unwrap();
    for block in branch(genesis.hash(), 0, 3, 1) {
        assert_eq!(import(&one, &block), "APPLIED_AS_NEW_TIP");
    }
    let side = branch(genesis.hash(), 0, 1, 2).remove(0);
    for (block, wanted) in [(&side, "STORED_NOT_SELECTED"), (&orphan(1), "ORPHANED")] {
        assert_eq!(import(&one, block), wanted);
        let (before, count) = (dump(&one), fault.count());
        assert_eq!(import(&one, block), wanted);
        assert_eq!(fault.count(), count, "nobody makes us write for nothing");
        assert_eq!(dump(&one), before);
    }
    // Whoever changes the witness later does not put that in the place of what is stored.
    let canonical = |chain: &Chain| dump(chain)[..CANONICAL.len()].to_vec();
    let before = canonical(&one);
    assert_eq!(import(&one, &with_another_witness(&side, 1)), "STORED_NOT_SELECTED");
    assert!(canonical(&one) == before);
}

#[test]
fn orphans_of_an_invalid_block_are_invalid_too() {
    let genesis = maker::genesis(1);
    let one = chain(&genesis);
    let missing = maker::spend(7, &[Outpoint::new(Hash::of(&[b"nothing"]), 0)], &[coin(0)]);
    let bad = maker::block(genesis.hash(), 5, &[maker::coinbase(1, &[]), missing]);
    let children = branch(maker::hash_of(&bad), 1, 3, 1);
    for child in children.iter().rev() {
        assert_eq!(import(&one, child), "ORPHANED");
    }
    assert_eq!(import(&one, &bad), "TX_ERR_MISSING_UTXO");
    for child in &children {
        assert_eq!(status(&one, child), Some(Status::InvalidAncestry));
        assert_eq!(import(&one, child), "INVALID_ANCESTRY");
    }
    assert_eq!(one.tip().height, 0);
}
