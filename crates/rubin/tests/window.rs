//! The end of a window of 2016 blocks, where the target changes: two branches come to it with other clocks, so that their targets
//! differ, and a shorter chain has more work.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::sync::Arc;

use host::{Dir, MemoryDir};
use ledger::{Engine, KvbEngine, MemoryEngine};
use rubin::rules::Rules;
use rubin::synthetic::{self as maker, EASY, coin};
use rubin::{Chain, Code, Genesis, Hash};

/// The last block that both branches share.
const FORK: u64 = 2000;
const WINDOW: u64 = 2016;
/// Seconds that a window should take.
const WINDOW_SECONDS: u64 = 1_209_600;

/// A chain that grows at a pace.
#[derive(Clone)]
struct Branch {
    tip: Hash,
    height: u64,
    timestamp: u64,
    target: [u8; 32],
    blocks: Vec<Vec<u8>>,
}

impl Branch {
    fn new(genesis: &Genesis) -> Branch {
        let (tip, target) = (genesis.hash(), EASY);
        Branch { tip, height: 0, timestamp: 0, target, blocks: Vec::new() }
    }

    fn next(&self, timestamp: u64, target: [u8; 32]) -> Vec<u8> {
        let coinbase = maker::coinbase(self.height + 1, &[coin(1)]);
        maker::block_with(self.tip, timestamp, target, &[coinbase])
    }

    /// Grows to a height, by blocks that are so many seconds apart.
    fn grow(&mut self, height: u64, seconds: u64) {
        while self.height < height {
            self.timestamp += seconds;
            let block = self.next(self.timestamp, self.target);
            self.height += 1;
            self.tip = maker::hash_of(&block);
            self.blocks.push(block);
        }
    }
}

fn open(engine: Box<dyn Engine>, home: &Arc<dyn Dir>, genesis: &Genesis) -> Chain {
    let rules: Box<Rules> = Box::default();
    Chain::init(engine, Arc::clone(home), rules, genesis.clone()).unwrap()
}

fn import(chain: &Chain, blocks: &[Vec<u8>]) {
    for block in blocks {
        chain.import(block, None).unwrap().unwrap();
    }
}

/// Two branches from one fork: one as slow as it should be, whose target stays, and one as fast as can be, whose target
/// is a quarter.
fn branches(genesis: &Genesis) -> (Branch, Branch, Branch) {
    let mut trunk = Branch::new(genesis);
    trunk.grow(FORK, 1);
    let fork = Branch { blocks: Vec::new(), ..trunk.clone() };
    let (mut slow, mut fast) = (fork.clone(), fork);
    slow.grow(WINDOW - 2, 1);
    // From genesis, whose timestamp is zero, to the last block of the window.
    slow.grow(WINDOW - 1, WINDOW_SECONDS - slow.timestamp);
    fast.grow(WINDOW - 1, 1);
    fast.target = [0xff; 32];
    fast.target[0] = 0x3f;
    (trunk, slow, fast)
}

fn shorter_wins(engine: Box<dyn Engine>) {
    let genesis = maker::genesis(0);
    let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
    let (trunk, mut slow, mut fast) = branches(&genesis);
    slow.grow(WINDOW + 4, 600);
    fast.grow(WINDOW + 1, 1);
    let chain = open(engine, &home, &genesis);
    import(&chain, &trunk.blocks);
    import(&chain, &slow.blocks);
    assert_eq!((chain.tip().hash, chain.tip().height), (slow.tip, WINDOW + 4));
    assert_eq!(chain.tip().work.to_string(), (WINDOW + 5).to_string());
    // Opened again, nothing of the headers is in memory.
    let chain = open(chain.into_engine(), &home, &genesis);
    import(&chain, &fast.blocks);
    let tip = chain.tip();
    assert_eq!((tip.hash, tip.height), (fast.tip, WINDOW + 1));
    // Genesis and 2015 blocks of one unit, two of four.
    assert_eq!(tip.work.to_string(), (WINDOW + 8).to_string());
    let chain = open(chain.into_engine(), &home, &genesis);
    let more = slow.blocks.len();
    slow.grow(WINDOW + 8, 600);
    import(&chain, &slow.blocks[more..]);
    assert_eq!(chain.tip().hash, slow.tip);
    // As if the other branch had never been.
    let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
    let direct = open(Box::new(MemoryEngine::new()), &home, &genesis);
    import(&direct, &trunk.blocks);
    import(&direct, &slow.blocks);
    let set = |chain: &Chain| chain.view().unwrap().utxo_set_hash().unwrap();
    assert_eq!(set(&chain), set(&direct));
}

#[test]
fn a_shorter_chain_with_a_harder_target_wins_and_loses_again() {
    let dir = tempfile::tempdir().unwrap();
    shorter_wins(Box::new(MemoryEngine::new()));
    shorter_wins(Box::new(KvbEngine::create(dir.path().join("kvb")).unwrap()));
}

#[test]
fn a_block_must_have_the_target_of_its_own_branch() {
    let genesis = maker::genesis(0);
    let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
    let (trunk, slow, fast) = branches(&genesis);
    let chain = open(Box::new(MemoryEngine::new()), &home, &genesis);
    for branch in [&trunk, &slow, &fast] {
        import(&chain, &branch.blocks);
    }
    for (branch, other) in [(&slow, &fast), (&fast, &slow)] {
        let wrong = branch.next(branch.timestamp + 1, other.target);
        let rejected = chain.import(&wrong, None).unwrap().unwrap_err();
        assert_eq!(rejected.code, Code::BlockTargetInvalid);
        let right = branch.next(branch.timestamp + 2, branch.target);
        chain.import(&right, None).unwrap().unwrap();
    }
    // The one that is harder to find.
    assert_eq!(chain.tip().height, WINDOW);
    assert_eq!(chain.tip().work.to_string(), (WINDOW + 4).to_string());
}
