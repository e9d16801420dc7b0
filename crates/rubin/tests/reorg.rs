//! Reorgs of any depth, in memory and step by step, blocks in every order, and targets that change on the way.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::sync::Arc;

use host::{Dir, MemoryDir};
use ledger::{Engine, MemoryEngine};
use rubin::rules::{Rules, WINDOW, expected_target};
use rubin::synthetic::{self as maker, Generator, coin};
use rubin::{
    Block, Chain, Code, Decision, Genesis, Hash, Header, HeaderContext, Outpoint, Status, Work,
};

fn chain(genesis: &Genesis) -> Chain {
    let rules: Box<Rules> = Box::default();
    let engine: Box<dyn Engine> = Box::new(MemoryEngine::new());
    Chain::init(engine, Arc::new(MemoryDir::new()), rules, genesis.clone()).unwrap()
}

/// What became of a block: a decision or a code.
fn import(chain: &Chain, block: &[u8]) -> &'static str {
    match chain.import(block, None).unwrap() {
        Ok(import) => import.decision.as_str(),
        Err(rejected) => rejected.code.as_str(),
    }
}

fn import_all(chain: &Chain, blocks: &[Vec<u8>]) {
    for block in blocks {
        import(chain, block);
    }
}

fn status(chain: &Chain, block: &[u8]) -> Status {
    chain.view().unwrap().index(maker::hash_of(block)).unwrap().unwrap().status
}

#[track_caller]
fn check_sound(chain: &Chain) {
    let view = chain.view().unwrap();
    let check = view.verify(chain.genesis().hash(), true, &mut |_, _| {}).unwrap();
    assert_eq!(check.findings, Vec::<String>::new());
    assert_eq!(check.blocks, chain.tip().height + 1);
}

/// Blocks on top of one, each spending the coin that the one before made.
fn branch(from: Hash, height: u64, count: u64, salt: u64) -> Vec<Vec<u8>> {
    let (mut prev, mut last) = (from, None::<Outpoint>);
    (height + 1..=height + count)
        .map(|height| {
            let inputs: Vec<Outpoint> = last.into_iter().collect();
            let nonce = salt * 1_000_000 + height;
            let spend = maker::spend(nonce, &inputs, &[coin(0), coin(0)]);
            let txid = rubin::Transaction::decode(&spend).unwrap().txid;
            last = Some(Outpoint::new(txid, 1));
            let transactions = [maker::coinbase(height, &[coin(salt)]), spend];
            let block = maker::block(prev, salt + height, &transactions);
            prev = maker::hash_of(&block);
            block
        })
        .collect()
}

/// A block that spends what is not there.
fn bad(prev: Hash, height: u64, timestamp: u64) -> Vec<u8> {
    let missing = maker::spend(7, &[Outpoint::new(Hash::of(&[b"nothing"]), 0)], &[coin(0)]);
    maker::block(prev, timestamp, &[maker::coinbase(height, &[]), missing])
}

#[test]
fn any_depth_gives_the_set_of_the_better_chain() {
    let genesis = maker::genesis(3);
    let (a, b) = (branch(genesis.hash(), 0, 300, 1), branch(genesis.hash(), 0, 301, 2));
    let fresh = chain(&genesis);
    b.iter().for_each(|block| assert_eq!(import(&fresh, block), "APPLIED_AS_NEW_TIP"));
    let wanted = fresh.view().unwrap().utxo_set_hash().unwrap();
    // In memory, step by step, and the former until it is too much.
    for changes_max in [1 << 20, 0, 500] {
        let chain = chain(&genesis).reorg_changes_max(changes_max);
        a.iter().for_each(|block| assert_eq!(import(&chain, block), "APPLIED_AS_NEW_TIP"));
        let (last, others) = b.split_last().unwrap();
        import_all(&chain, others);
        let done = chain.import(last, None).unwrap().unwrap();
        assert_eq!(done.decision, Decision::AppliedAsNewTip);
        assert_eq!(chain.tip(), fresh.tip());
        assert_eq!(chain.view().unwrap().utxo_set_hash().unwrap(), wanted);
        check_sound(&chain);
    }
}

#[test]
fn more_changes_than_are_kept_in_memory() {
    // As many as it takes for real, without any setting.
    let mut a = Generator::new(1);
    let genesis = a.genesis().clone();
    let mut b = a.clone();
    b.skip_nonces();
    let coins = 46 * 1024;
    let chain = chain(&genesis);
    for _ in 0..12 {
        assert_eq!(import(&chain, &a.make_coins(coins)), "APPLIED_AS_NEW_TIP");
    }
    let mut disconnected = 0;
    for _ in 0..13 {
        disconnected += chain.import(&b.make_coins(coins), None).unwrap().unwrap().disconnected;
    }
    assert_eq!((disconnected, chain.tip().height), (12, 13));
    let (count, _) = chain.view().unwrap().utxo_set_hash().unwrap();
    assert_eq!(count, 13 * u64::try_from(coins).unwrap());
}

#[test]
fn a_connect_that_fails_ends_on_the_best_valid_chain() {
    let genesis = maker::genesis(3);
    let a = branch(genesis.hash(), 0, 20, 1);
    let mut b = branch(genesis.hash(), 0, 14, 2);
    b.push(bad(maker::hash_of(&b[13]), 15, 100));
    b.extend(branch(maker::hash_of(&b[14]), 15, 7, 3));
    for changes_max in [1 << 20, 0, 60] {
        let chain = chain(&genesis).reorg_changes_max(changes_max);
        a.iter().for_each(|block| assert_eq!(import(&chain, block), "APPLIED_AS_NEW_TIP"));
        let before = (chain.tip(), chain.view().unwrap().utxo_set_hash().unwrap());
        for (number, block) in b.iter().enumerate() {
            let wanted = match number {
                ..19 => "STORED_NOT_SELECTED",
                // Of equal work: the smaller hash is tried, and given up again.
                19 if maker::hash_of(block) > before.0.hash => "STORED_NOT_SELECTED",
                _ => "INVALID_ANCESTRY",
            };
            assert_eq!(import(&chain, block), wanted, "{number}");
            assert_eq!((chain.tip(), chain.view().unwrap().utxo_set_hash().unwrap()), before);
        }
        assert_eq!(status(&chain, &b[14]), Status::InvalidBody);
        assert_eq!(import(&chain, &b[14]), "TX_ERR_MISSING_UTXO", "at once");
        for block in &b[15..] {
            assert_eq!(status(&chain, block), Status::InvalidAncestry);
        }
        for block in &b[..14] {
            assert!(!status(&chain, block).is_invalid());
        }
        check_sound(&chain);
        // What is valid of it can still win.
        let more = branch(maker::hash_of(&b[13]), 14, 7, 4);
        import_all(&chain, &more);
        assert_eq!(chain.tip().hash, maker::hash_of(more.last().unwrap()));
        check_sound(&chain);
    }
}

#[test]
fn every_order_of_a_small_tree_comes_to_the_same() {
    let genesis = maker::genesis(3);
    let a = branch(genesis.hash(), 0, 2, 1);
    let b = branch(genesis.hash(), 0, 2, 2);
    let bad = bad(maker::hash_of(&b[1]), 3, 50);
    let child = branch(maker::hash_of(&bad), 3, 1, 3).remove(0);
    // With the bad one at the end of the better branch, of the longest, and of none.
    let last = branch(maker::hash_of(&a[1]), 2, 1, 4).remove(0);
    let trees = [
        vec![a[0].clone(), a[1].clone(), b[0].clone(), b[1].clone(), bad.clone(), child.clone()],
        vec![a[0].clone(), a[1].clone(), last, b[0].clone(), b[1].clone(), bad],
    ];
    for tree in trees {
        let mut orders = Vec::new();
        permute(&mut (0..tree.len()).collect(), 0, &mut orders);
        assert_eq!(orders.len(), 720);
        let mut ends = Vec::new();
        for order in orders {
            let chain = chain(&genesis);
            for number in &order {
                import(&chain, &tree[*number]);
            }
            let view = chain.view().unwrap();
            let bad: Vec<bool> =
                tree.iter().map(|block| status(&chain, block) == Status::InvalidBody).collect();
            ends.push((view.tip().clone(), view.utxo_set_hash().unwrap()));
            assert!(bad.iter().filter(|bad| **bad).count() <= 1);
            drop(view);
            check_sound(&chain);
        }
        assert!(ends.iter().all(|end| *end == ends[0]));
    }
}

fn permute(order: &mut Vec<usize>, from: usize, orders: &mut Vec<Vec<usize>>) {
    if from == order.len() {
        orders.push(order.clone());
    }
    for other in from..order.len() {
        order.swap(from, other);
        permute(order, from + 1, orders);
        order.swap(from, other);
    }
}

/// Blocks with nothing but a coinbase, so many seconds apart, with the target that they should have.
struct Miner {
    headers: Vec<Header>,
}

impl Miner {
    fn new(genesis: &Genesis) -> Miner {
        Miner { headers: vec![Block::decode(genesis.bytes()).unwrap().header] }
    }

    fn height(&self) -> u64 {
        u64::try_from(self.headers.len()).unwrap()
    }

    fn target(&self) -> [u8; 32] {
        let parent = self.headers.last().unwrap().clone();
        let at = self.headers.len().checked_sub(usize::try_from(WINDOW).unwrap());
        expected_target(&HeaderContext {
            height: self.height(),
            parent_hash: parent.hash(),
            parent,
            timestamps: Vec::new(),
            window_start: at.map(|at| self.headers[at].timestamp),
            local_time: None,
        })
    }

    fn block(&self, seconds: u64, target: [u8; 32]) -> Vec<u8> {
        let parent = self.headers.last().unwrap();
        let coinbase = maker::coinbase(self.height(), &[coin(0)]);
        maker::block_with(parent.hash(), parent.timestamp + seconds, target, &[coinbase])
    }

    fn mine(&mut self, seconds: u64) -> Vec<u8> {
        let block = self.block(seconds, self.target());
        self.headers.push(Block::decode(&block).unwrap().header);
        block
    }
}

#[test]
fn targets_change_where_a_window_ends_on_every_branch() {
    let mut old = [0xff; 32];
    old[0] = 0x7f;
    let first = maker::block_with(Hash::ZERO, 0, old, &[maker::coinbase(0, &[])]);
    let genesis = Genesis::new(first).unwrap();
    let files: Arc<dyn Dir> = Arc::new(MemoryDir::new());
    let tables = Box::new(MemoryEngine::new());
    let rules: Box<Rules> = Box::default();
    let mut chain = Chain::init(tables, Arc::clone(&files), rules, genesis.clone()).unwrap();
    let mut fast = Miner::new(&genesis);
    for _ in 1..2010 {
        assert_eq!(import(&chain, &fast.mine(1)), "APPLIED_AS_NEW_TIP");
    }
    // The other branch takes a long time for its last blocks, and has the easier target then.
    let mut slow = Miner { headers: fast.headers.clone() };
    for _ in 2010..WINDOW {
        import(&chain, &fast.mine(1));
        import(&chain, &slow.mine(200_000));
    }
    assert_eq!((fast.height(), slow.height()), (WINDOW, WINDOW));
    assert_eq!(fast.target()[0], 0x1f, "a quarter");
    assert!(slow.target() < old && slow.target() > fast.target());
    // Somebody who has just started knows no header yet.
    let engine = chain.into_engine();
    chain = Chain::open(engine, files, Box::<Rules>::default(), genesis).unwrap();
    for (own, other) in [(&fast, &slow), (&slow, &fast)] {
        for target in [old, other.target(), [0xff; 32]] {
            assert_eq!(import(&chain, &own.block(1, target)), "BLOCK_ERR_TARGET_INVALID");
        }
    }
    let (a, b) = (fast.mine(1), slow.mine(1));
    import(&chain, &b);
    import(&chain, &a);
    // Harder blocks are more work.
    assert_eq!(chain.tip().hash, maker::hash_of(&a));
    let work = |target: [u8; 32]| Work::of_target(&target).unwrap();
    let wanted = (0..WINDOW).fold(work(fast.headers[2016].target), |sum, _| sum.plus(&work(old)));
    assert_eq!(chain.tip().work, wanted);
    // And stay what they are until the next window.
    assert_eq!(import(&chain, &fast.block(1, old)), "BLOCK_ERR_TARGET_INVALID");
    assert_eq!(import(&chain, &fast.mine(1)), "APPLIED_AS_NEW_TIP");
    assert_eq!(Code::BlockTargetInvalid.as_str(), "BLOCK_ERR_TARGET_INVALID");
    assert_eq!(chain.tip().height, 2017);
}
