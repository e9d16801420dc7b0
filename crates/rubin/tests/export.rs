//! The chainstate in one file: what comes out goes in again, and nothing else does.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use fastrand::Rng;
use model::{Model, Tree};
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::tables::{HEADERS, HEIGHTS, UTXO};
use rubin::{Block, Datadir, EngineKind, Error, Genesis, Hash, Header, SetHash};

fn rules() -> Box<Rules> {
    Box::default()
}

#[test]
fn what_comes_out_goes_in_and_nothing_else() {
    let mut rng = Rng::with_seed(seed::seed("what_comes_out_goes_in_and_nothing_else"));
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree::grow(&mut rng, 30);
    let genesis = tree.genesis.clone();
    let datadir = Datadir::new(dir.path().join("a"), genesis.chain_id());
    let chain = datadir.init(genesis.clone(), EngineKind::Kvb, rules()).unwrap();
    let mut model = Model::new(&tree);
    let (first, rest): (Vec<usize>, Vec<usize>) =
        (0..tree.blocks.len()).partition(|number| *number < 22);
    for number in first {
        let _ = chain.import(&tree.blocks[number].bytes, None).unwrap();
        model.import(number);
    }
    let view = chain.view().unwrap();
    let mut bytes = Vec::new();
    let done = view.export(&genesis, 1000, &mut bytes, &mut |_, _| {}).unwrap();
    assert_eq!((done.utxo_count, done.utxo_set_hash), view.utxo_set_hash().unwrap());

    let copy = Datadir::new(dir.path().join("b"), genesis.chain_id());
    let take = |to: &Datadir, bytes: &[u8], expected| {
        to.import_snapshot(&genesis, EngineKind::Kvb, &mut &*bytes, expected, &mut |_, _| {})
    };
    assert_eq!(take(&copy, &bytes, Some(done.utxo_set_hash)).unwrap(), done);
    let again = take(&copy, &bytes, None).unwrap_err();
    assert!(matches!(again, Error::NotEmpty(_)), "{again}");
    let other = copy.open(genesis.clone(), rules()).unwrap();
    assert_eq!(other.tip(), chain.tip());
    for table in [UTXO, HEIGHTS] {
        let (a, b) = (chain.view().unwrap(), other.view().unwrap());
        assert_eq!(model::dump(a.snapshot(), table), model::dump(b.snapshot(), table));
    }
    assert!(!model::dump(other.view().unwrap().snapshot(), HEADERS).is_empty());
    let check = other.view().unwrap().verify(genesis.hash(), true, &mut |_, _| {}).unwrap();
    assert_eq!(check.findings, Vec::<String>::new());
    // It goes on, and back as far as there are blocks.
    for number in rest {
        let _ = chain.import(&tree.blocks[number].bytes, None).unwrap();
        let _ = other.import(&tree.blocks[number].bytes, None).unwrap();
        model.import(number);
    }
    // Blocks beside the chain are not in an export; whoever goes on from one is sent them.
    for node in &tree.blocks {
        let _ = other.import(&node.bytes, None).unwrap();
    }
    model.check_tip(&other, "from an export");
    assert_eq!(
        other.view().unwrap().utxo_set_hash().unwrap(),
        chain.view().unwrap().utxo_set_hash().unwrap()
    );

    // One changed byte anywhere, or one missing, is refused, and leaves nothing that counts.
    for turn in 0..300 {
        let mut broken = bytes.clone();
        match turn % 3 {
            0 => broken.truncate(rng.usize(..bytes.len())),
            _ => broken[rng.usize(..bytes.len())] ^= 1 << rng.u8(..8),
        }
        let to = Datadir::new(dir.path().join("c"), genesis.chain_id());
        assert!(take(&to, &broken, None).is_err());
        assert!(to.open(genesis.clone(), rules()).is_err());
    }
    let foreign = Datadir::new(dir.path().join("d"), Genesis::devnet().chain_id());
    let error = foreign
        .import_snapshot(&Genesis::devnet(), EngineKind::Kvb, &mut &*bytes, None, &mut |_, _| {})
        .unwrap_err();
    assert!(matches!(error, Error::ForeignChain { .. }), "{error}");
    let to = Datadir::new(dir.path().join("c"), genesis.chain_id());
    assert!(take(&to, &bytes, Some(genesis.hash())).is_err(), "another hash was expected");
    take(&to, &bytes, None).unwrap();
}

#[test]
fn a_chain_from_a_few_blocks_knows_itself_and_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let genesis = Genesis::devnet();
    let datadir = Datadir::new(dir.path().join("a"), genesis.chain_id());
    let chain = datadir.init(genesis.clone(), EngineKind::Kvb, rules()).unwrap();
    for height in 1..=20 {
        let coinbase = maker::coinbase(height, &[maker::coin(0)]);
        let block = maker::block(chain.tip().hash, height, &[coinbase]);
        chain.import(&block, None).unwrap().unwrap();
    }
    let mut bytes = Vec::new();
    chain.view().unwrap().export(&genesis, 3, &mut bytes, &mut |_, _| {}).unwrap();
    let copy = Datadir::new(dir.path().join("b"), genesis.chain_id());
    let take = |bytes: &[u8]| {
        copy.import_snapshot(&genesis, EngineKind::Kvb, &mut &*bytes, None, &mut |_, _| {})
    };
    let longer = [&bytes[..], b"more"].concat();
    assert!(matches!(take(&longer).unwrap_err(), Error::Export(_)), "bytes are left over");
    take(&bytes).unwrap();
    // Nobody need say which chain it is.
    assert_eq!(copy.genesis().unwrap(), genesis);
    let other = copy.open(genesis.clone(), rules()).unwrap();
    assert_eq!(other.tip(), chain.tip());
    let check = other.view().unwrap().verify(genesis.hash(), true, &mut |_, _| {}).unwrap();
    assert_eq!(check.findings, Vec::<String>::new());
    assert!(!check.is_replayed, "most blocks are not there");
    assert_eq!(check.blocks, 21);
    // What comes out of it has no more than it has.
    let mut again = Vec::new();
    let done = other.view().unwrap().export(&genesis, 100, &mut again, &mut |_, _| {}).unwrap();
    assert_eq!(done.blocks, 3);
    assert_eq!(again, bytes);
    // It goes back as far as there are blocks, and not further.
    let fork = |height: u64| {
        let mut prev = chain.view().unwrap().hash_at(height).unwrap();
        (height + 1..=21)
            .map(|height| {
                let coinbase = maker::coinbase(height, &[maker::coin(0), maker::coin(0)]);
                let block = maker::block(prev, 100 + height, &[coinbase]);
                prev = maker::hash_of(&block);
                block
            })
            .collect::<Vec<_>>()
    };
    let before = other.tip();
    let results: Vec<_> = fork(16).iter().map(|block| other.import(block, None)).collect();
    assert!(results.iter().any(|result| matches!(result, Err(Error::UndoMissing(_)))));
    assert_eq!(other.tip(), before);
    // Which does not keep it from going on where it is.
    let coinbase = maker::coinbase(21, &[]);
    let next = maker::block(before.hash, 22, &[coinbase]);
    drop(other);
    let other = copy.open(genesis, rules()).unwrap();
    assert_eq!(other.tip(), before);
    let _ = other.import(&next, None).unwrap().unwrap();
}

#[test]
fn headers_of_an_export_have_the_work_that_they_say() {
    let genesis = Genesis::devnet();
    // One header more than there is, with a target that nobody has met.
    let mut hard = [0; 32];
    hard[3] = 1;
    let coinbase = maker::coinbase(1, &[]);
    let easy = maker::block(Hash::ZERO, 1, std::slice::from_ref(&coinbase));
    let merkle_root = Block::decode(&easy).unwrap().header.merkle_root;
    let header = Header {
        version: 1,
        prev_hash: genesis.hash(),
        merkle_root,
        timestamp: 1,
        target: hard,
        nonce: 0,
    };
    let block = [&header.encode()[..], &[1], &coinbase].concat();
    let mut forged = Vec::new();
    let mut put = |bytes: &[u8]| forged.extend_from_slice(bytes);
    put(b"RUBNSNP1");
    put(genesis.chain_id().as_bytes());
    put(&1_u64.to_le_bytes());
    put(header.hash().as_bytes());
    put(&0_u64.to_le_bytes());
    put(SetHash::new(0).finish().as_bytes());
    put(&1_u32.to_le_bytes());
    put(&genesis.bytes()[..Header::LEN]);
    put(&header.encode());
    put(&u32::try_from(block.len()).unwrap().to_le_bytes());
    put(&block);
    put(&8_u32.to_le_bytes());
    put(&[0; 8]);
    let digest = Hash::of(&[&forged]);
    forged.extend_from_slice(digest.as_bytes());
    let dir = tempfile::tempdir().unwrap();
    let datadir = Datadir::new(dir.path(), genesis.chain_id());
    let error = datadir
        .import_snapshot(&genesis, EngineKind::Kvb, &mut &*forged, None, &mut |_, _| {})
        .unwrap_err();
    assert!(error.to_string().contains("work"), "{error}");
}
