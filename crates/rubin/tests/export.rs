//! The chainstate in one file: what comes out goes in again, and nothing else does.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use fastrand::Rng;
use model::{Model, Tree};
use rubin::rules::Rules;
use rubin::tables::{HEADERS, HEIGHTS, UTXO};
use rubin::{Datadir, EngineKind, Error, Genesis};

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
