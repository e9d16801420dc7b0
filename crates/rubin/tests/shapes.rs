//! Chains of the shape of real ones: block 702861 of Bitcoin, with its 2,500 transactions, and 206 blocks of a regtest chain.
//!
//! They are imported, given up for a branch that has the same transactions elsewhere, and taken back; after each of these the
//! set and every undo record are compared with a plain model, in several engines.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "support/shape.rs"]
mod shape;
#[path = "support/vectors.rs"]
mod vectors;

use std::path::Path;
use std::sync::Arc;

use host::{Dir, MemoryDir};
use ledger::{Engine, KvbEngine, MemoryEngine};
use model::{Model, Tree};
use rubin::rules::{Rules, TrustSignatures};
use rubin::synthetic as maker;
use rubin::tables::{CANONICAL, UNDO};
use rubin::{Chain, UndoRecord};
use shape::{Counts, Shape, ShapedBlock};

/// Branches of a tree, by the numbers of their blocks.
struct Story {
    tree: Tree,
    /// The chain as it was.
    first: Vec<usize>,
    /// A branch that wins, and how many blocks of the first it does not share.
    rival: Vec<usize>,
    given_up: u64,
    /// What goes on top of the first so that it wins again.
    comeback: Vec<usize>,
}

/// Adds a block to a tree.
fn add(tree: &mut Tree, parent: Option<usize>, shaped: &ShapedBlock) -> usize {
    let height = parent.map_or(1, |parent| tree.blocks[parent].height + 1);
    let mut transactions = vec![maker::coinbase(height, &shaped.coinbase)];
    transactions.extend_from_slice(&shaped.transactions);
    let bytes = maker::block(tree.hash(parent), shaped.timestamp, &transactions);
    tree.add(parent, bytes)
}

/// Adds blocks one on top of the other.
fn add_all<'a>(
    tree: &mut Tree,
    mut parent: Option<usize>,
    blocks: impl IntoIterator<Item = &'a ShapedBlock>,
) -> Vec<usize> {
    let add_one = |block| {
        let number = add(tree, parent, block);
        parent = Some(number);
        number
    };
    blocks.into_iter().map(add_one).collect()
}

/// A later block without transactions.
fn empty(after: &ShapedBlock, seconds: u64) -> ShapedBlock {
    ShapedBlock {
        timestamp: after.timestamp + seconds,
        coinbase: after.coinbase.clone(),
        transactions: Vec::new(),
    }
}

/// The mainnet block, a rival that has its transactions in two blocks, and two blocks more.
fn mainnet() -> (Story, Counts) {
    let shape = Shape::load("block-702861-shape.json");
    let whole = &shape.blocks[0];
    let half = whole.transactions.len() / 2;
    let (mut early, mut late) = (empty(whole, 1), empty(whole, 2));
    early.transactions = whole.transactions[..half].to_vec();
    late.transactions = whole.transactions[half..].to_vec();
    let mut tree = Tree::on(shape.genesis);
    let mut first = add_all(&mut tree, None, &shape.before);
    let fork = first.last().copied();
    first.extend(add_all(&mut tree, fork, [whole]));
    let rival = add_all(&mut tree, fork, [&early, &late]);
    let tip = first.last().copied();
    let comeback = add_all(&mut tree, tip, [&empty(whole, 3), &empty(whole, 4)]);
    (Story { tree, first, rival, given_up: 1, comeback }, shape.counts)
}

/// The regtest chain, and a rival in which transactions come a block later.
fn regtest() -> (Story, Counts) {
    const SHARED: usize = 200;
    let shape = Shape::load("regtest-shape.json");
    assert!(shape.before.is_empty(), "heights are those of the real chain");
    let last = shape.blocks.last().unwrap();
    let mut tree = Tree::on(shape.genesis);
    let first = add_all(&mut tree, None, &shape.blocks);
    let delayed: Vec<ShapedBlock> = (SHARED..=shape.blocks.len())
        .zip(1..)
        .map(|(at, seconds)| {
            let own = shape.blocks.get(at).unwrap_or(last);
            let before = &shape.blocks[at - 1];
            let mut block = empty(last, seconds);
            // The coinbases of both branches have the same txid.
            block.coinbase.clone_from(&own.coinbase);
            if at > SHARED {
                block.transactions.clone_from(&before.transactions);
            }
            block
        })
        .collect();
    let rival = add_all(&mut tree, Some(first[SHARED - 1]), &delayed);
    let comeback = add_all(&mut tree, first.last().copied(), [&empty(last, 50), &empty(last, 51)]);
    let given_up = u64::try_from(first.len() - SHARED).unwrap();
    (Story { tree, first, rival, given_up, comeback }, shape.counts)
}

fn engines(dir: &Path) -> Vec<Box<dyn Engine>> {
    #[allow(unused_mut, reason = "without features there are no more")]
    let mut engines: Vec<Box<dyn Engine>> =
        vec![Box::new(MemoryEngine::new()), Box::new(KvbEngine::create(dir.join("kvb")).unwrap())];
    #[cfg(feature = "redb")]
    engines
        .push(Box::new(ledger::RedbEngine::create(dir.join("redb"), rubin::tables::ALL).unwrap()));
    #[cfg(feature = "fjall")]
    engines.push(Box::new(
        ledger::FjallEngine::create(dir.join("fjall"), rubin::tables::ALL).unwrap(),
    ));
    #[cfg(feature = "rocksdb")]
    engines.push(Box::new(
        ledger::RocksEngine::create(dir.join("rocksdb"), rubin::tables::ALL).unwrap(),
    ));
    engines
}

/// The engine from what it left on disk, if it did.
fn reopen(engine: Box<dyn Engine>, dir: &Path) -> Box<dyn Engine> {
    if engine.name() != "kvb" {
        return engine;
    }
    drop(engine);
    Box::new(KvbEngine::open(dir.join("kvb")).unwrap())
}

/// Outputs take signatures, as the real ones do, but nobody made any.
fn rules() -> Box<Rules<TrustSignatures>> {
    Box::new(Rules::new(TrustSignatures))
}

/// Imports blocks, the last of which must become the tip. Gives how many were taken back, and how many applied.
fn import(chain: &Chain, model: &mut Model<'_>, tree: &Tree, blocks: &[usize]) -> (u64, u64) {
    let mut moved = (0, 0);
    for number in blocks {
        let import = chain.import(&tree.blocks[*number].bytes, None).unwrap().unwrap();
        // A branch may win already when it is as long as the other.
        moved = (moved.0 + import.disconnected, moved.1 + import.connected);
        model.import(*number);
        model.check_tip(chain, "after a block");
    }
    assert_eq!(chain.tip().hash, tree.hash(blocks.last().copied()));
    moved
}

fn tell(story: &Story) {
    let dir = tempfile::tempdir().unwrap();
    let tree = &story.tree;
    let mut dumps = Vec::new();
    for engine in engines(dir.path()) {
        let name = engine.name();
        let home: Arc<dyn Dir> = Arc::new(MemoryDir::new());
        let chain = Chain::init(engine, Arc::clone(&home), rules(), tree.genesis.clone()).unwrap();
        let mut model = Model::new(tree);
        import(&chain, &mut model, tree, &story.first);
        model.check_all(&chain);
        let rivals = u64::try_from(story.rival.len()).unwrap();
        let moved = import(&chain, &mut model, tree, &story.rival);
        assert_eq!(moved, (story.given_up, rivals), "{name}");
        model.check_all(&chain);
        let returned = story.given_up + u64::try_from(story.comeback.len()).unwrap();
        let moved = import(&chain, &mut model, tree, &story.comeback);
        assert_eq!(moved, (rivals, returned), "{name}");
        model.check_all(&chain);
        let engine = reopen(chain.into_engine(), dir.path());
        let chain = Chain::open(engine, home, rules(), tree.genesis.clone()).unwrap();
        model.check_all(&chain);
        let view = chain.view().unwrap();
        let dump: Vec<_> =
            CANONICAL.iter().map(|table| model::dump(view.snapshot(), *table)).collect();
        dumps.push((name, view.utxo_set_hash().unwrap(), dump));
    }
    for other in &dumps[1..] {
        assert_eq!(dumps[0].1, other.1, "{} and {}", dumps[0].0, other.0);
        assert!(dumps[0].2 == other.2, "{} and {} have other rows", dumps[0].0, other.0);
    }
}

#[test]
fn a_mainnet_block_is_applied_given_up_and_taken_back() {
    let (story, counts) = mainnet();
    let wanted =
        Counts { transactions: 2500, inputs: 6517, within: 327, outputs: 6015, anchors: 23 };
    assert_eq!(counts, wanted);
    tell(&story);
}

#[test]
fn a_regtest_chain_is_applied_given_up_and_taken_back() {
    let (story, counts) = regtest();
    let wanted = Counts { transactions: 231, inputs: 26, within: 0, outputs: 462, anchors: 206 };
    assert_eq!(counts, wanted);
    assert_eq!(story.first.len(), 206);
    tell(&story);
}

#[test]
fn the_undo_record_of_a_mainnet_block_has_what_crosses_its_border() {
    let (story, counts) = mainnet();
    let tree = &story.tree;
    let engine = Box::new(MemoryEngine::new());
    let home = Arc::new(MemoryDir::new());
    let chain = Chain::init(engine, home, rules(), tree.genesis.clone()).unwrap();
    import(&chain, &mut Model::new(tree), tree, &story.first);
    let view = chain.view().unwrap();
    let undo = view.snapshot().get(UNDO, view.tip().hash.as_bytes()).unwrap().unwrap();
    let undo = UndoRecord::decode(&undo).unwrap();
    assert_eq!(undo.spent.len(), counts.inputs - counts.within);
    assert_eq!(undo.created.len(), counts.outputs - counts.within - counts.anchors);
    // Beside what it makes there is the rest of the coin that all others were made of.
    assert_eq!(view.utxo_count().unwrap(), u64::try_from(undo.created.len() + 1).unwrap());
}
