//! Power loss at every step of a chain's life: making it, blocks, a reorg, an orphan, an invalid block, and recovery itself.
//!
//! Database and manifest are on one power supply. Whatever image is left, opening it must come to a chain that is where it was
//! before the block that was under way, or where it is after it, or on the way between, with exactly that set; and it must go on. The test
//! also counts in which of the states between database and manifest it found the images.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;
use host::{Dir, ManualEnv, SimDir};
use kvb::Options;
use ledger::{Engine, KvbEngine};
use model::{Model, Tree};
use rubin::rules::Rules;
use rubin::tables::META;
use rubin::{Chain, Error, Hash, Manifest};

const DATABASE: &str = "db";

fn options() -> Options {
    KvbEngine::options().background(false).segment_bytes_max(64 << 10).overlay_min(64)
}

fn engine(dir: &SimDir) -> Option<Box<dyn Engine>> {
    let env = || Arc::new(ManualEnv::new(1, 1));
    if let Ok(disk) = dir.open(DATABASE) {
        if let Ok(engine) = KvbEngine::open_on(disk, env(), options()) {
            return Some(Box::new(engine));
        }
        // Cut off while it was made: as long as there is no manifest, nobody needs it.
        if Manifest::read(dir).ok()?.is_some() {
            return None;
        }
        dir.remove(DATABASE).ok()?;
    }
    let disk = dir.create(DATABASE).ok()?;
    let engine = KvbEngine::create_on(disk, env(), options()).ok()?;
    Some(Box::new(engine))
}

/// Makes the chain or opens it, as somebody would who does not know what happened.
fn start(dir: &Arc<SimDir>, tree: &Tree) -> Result<Chain, Error> {
    let home: Arc<dyn Dir> = Arc::<SimDir>::clone(dir);
    let rules: Box<Rules> = Box::default();
    let engine = engine(dir).ok_or_else(|| Error::NotInitialised("power".to_owned()))?;
    Chain::init(engine, home, rules, tree.genesis.clone())
}

/// Imports blocks until power fails. Gives how many were imported.
fn live(dir: &Arc<SimDir>, tree: &Tree, order: &[usize]) -> usize {
    let Ok(chain) = start(dir, tree) else { return 0 };
    for (done, number) in order.iter().enumerate() {
        if chain.import(&tree.blocks[*number].bytes, None).is_err() {
            return done;
        }
    }
    order.len()
}

/// Where database and manifest are, seen from each other.
fn state(dir: &SimDir, tree: &Tree) -> &'static str {
    let manifest = Manifest::read(dir).unwrap().map(|manifest| manifest.tip.hash);
    let Some(engine) = engine(&dir.after_power_loss(0)) else { return "no database" };
    let snapshot = engine.snapshot().unwrap();
    let applied = snapshot.get(META, b"applied").unwrap();
    let applied = applied.and_then(|bytes| Hash::from_slice(&bytes));
    let parent = |hash: Hash| {
        let node = tree.blocks.iter().find(|node| node.hash == hash)?;
        Some(node.parent.map_or(tree.genesis.hash(), |parent| tree.blocks[parent].hash))
    };
    match (manifest, applied) {
        (None, None) => "nothing",
        (None, Some(_)) => "genesis without a manifest",
        (Some(_), None) => "a manifest without a database",
        (Some(manifest), Some(applied)) if manifest == applied => "together",
        (Some(manifest), Some(applied)) if parent(applied) == Some(manifest) => "database ahead",
        (Some(manifest), Some(applied)) if parent(manifest) == Some(applied) => "database behind",
        _ => "apart",
    }
}

#[test]
fn power_loss_at_every_step_loses_nothing() {
    let first = seed::seed("power_loss_at_every_step_loses_nothing");
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    let mut images = 0;
    let wanted =
        ["nothing", "genesis without a manifest", "together", "database ahead", "database behind"];
    // Some chains leave out a state; one of the next will not.
    let (enough, most) = (4 * seed::rounds(), 40 * seed::rounds());
    for round in 0..most {
        if round >= enough && wanted.iter().all(|state| states.contains_key(state)) {
            break;
        }
        let mut rng = Rng::with_seed(first ^ round);
        let tree = Tree::grow(&mut rng, 14);
        let mut order: Vec<usize> = (0..tree.blocks.len()).collect();
        if round % 2 == 1 {
            rng.shuffle(&mut order);
        }
        let dir = Arc::new(SimDir::new());
        assert_eq!(live(&dir, &tree, &order), order.len());
        let steps = dir.step_count();
        assert!(steps > 100, "{steps}");
        for step in 0..steps {
            let dir = Arc::new(SimDir::new());
            dir.power_off_at(step);
            let done = live(&dir, &tree, &order);
            for image in 0..3 {
                let found = Arc::new(dir.after_power_loss(rng.u64(..)));
                *states.entry(state(&found, &tree)).or_default() += 1;
                images += 1;
                // Power fails again while it recovers.
                let found = if image > 0 {
                    found.power_off_at(rng.u64(..40));
                    drop(start(&found, &tree));
                    Arc::new(found.after_power_loss(rng.u64(..)))
                } else {
                    found
                };
                check(&found, &tree, &order, done, step);
            }
        }
    }
    eprintln!("{images} images: {states:?}");
    for wanted in wanted {
        assert!(states.contains_key(wanted), "{wanted} was never seen: {states:?}");
    }
    assert!(!states.contains_key("apart"), "{states:?}");
    assert!(!states.contains_key("a manifest without a database"), "{states:?}");
}

/// A chain that was cut off while it imported the block behind so many.
fn check(dir: &Arc<SimDir>, tree: &Tree, order: &[usize], done: usize, step: u64) {
    let chain = start(dir, tree).unwrap_or_else(|error| panic!("step {step}: {error}"));
    let mut model = Model::new(tree);
    order[..done].iter().for_each(|number| model.import(*number));
    let before = model.tip();
    let least = model.rank(before);
    if let Some(next) = order.get(done) {
        model.import(*next);
    }
    let after = model.tip();
    let found = chain.tip().hash;
    // Between them there are others, if blocks waited for the one that was under way.
    let rank = model.rank(found);
    let is_between = rank >= least && rank <= model.rank(after);
    assert!(is_between, "step {step}: {found} is not between {before} and {after}");
    // Everything again, and the rest.
    for number in order {
        let _ = chain.import(&tree.blocks[*number].bytes, None).unwrap();
        model.import(*number);
    }
    model.check_all(&chain);
}
