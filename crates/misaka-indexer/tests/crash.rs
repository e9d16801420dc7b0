//! Power loss at every step of an index's life: it follows, is built anew, and follows again. Whatever image is left must have whole
//! checkpoints, all that were acknowledged and at most one more, or say that it must be built anew; and go on from there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../misaka/tests/support/chain.rs"]
mod chain;
#[path = "support/model.rs"]
mod model;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::cell::Cell;
use std::sync::Arc;

use chain::{Chain, memory as validator};
use fastrand::Rng;
use host::{Dir, ManualEnv, SimDir};
use ledger::{KvbEngine, MemoryEngine};
use misaka::{Settings, Store};
use misaka_indexer::{Embedded, Error, Index, Watch, follow, rebuild};
use model::Model;

const DATABASE: &str = "index";

/// A validator at two times.
struct Story {
    early: Store,
    late: Store,
    /// After each checkpoint of an index that was only fed.
    fed: Vec<Model>,
    /// The same of one that was built anew from the early validator; none before that.
    built: Vec<Option<Model>>,
}

impl Story {
    fn new(rng: &mut Rng) -> Story {
        let (early, late) = (validator(Settings::default()), validator(Settings::default()));
        let mut chain = Chain::new(Settings::default(), 0);
        let (mut fed, mut built) = (vec![Model::default()], vec![None]);
        for number in 0..7 {
            let checkpoint = chain.grow(rng, 8);
            if number < 4 {
                early.apply(&checkpoint).unwrap();
            }
            late.apply(&checkpoint).unwrap();
            let mut model: Model = fed[fed.len() - 1].clone();
            model.apply(&checkpoint);
            built.push(match built.last().cloned().flatten() {
                Some(mut begun) => {
                    Model::apply(&mut begun, &checkpoint);
                    Some(begun)
                }
                None => (number == 3).then(|| model.rebuilt()),
            });
            fed.push(model);
        }
        Story { early, late, fed, built }
    }
}

/// How far an index came, as it was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Fed(usize),
    Rebuilding,
    Built(usize),
}

/// Opens the index, or makes it, as somebody would who does not know what happened.
fn start(dir: &SimDir) -> Option<Embedded> {
    let options =
        KvbEngine::options().background(false).segment_bytes_max(64 << 10).overlay_min(64);
    let env = || Arc::new(ManualEnv::new(1, 1));
    if let Ok(disk) = dir.open(DATABASE) {
        match KvbEngine::open_on(disk, env(), options.clone()) {
            Ok(engine) => return Embedded::on(Box::new(engine)).ok(),
            // Cut off while it was made.
            Err(_) => dir.remove(DATABASE).ok()?,
        }
    }
    let engine = KvbEngine::create_on(dir.create(DATABASE).ok()?, env(), options).ok()?;
    Embedded::on(Box::new(engine)).ok()
}

/// Lives until power fails.
fn live(dir: &SimDir, story: &Story) -> Reached {
    let count = Cell::new(0);
    let progress = |done, _| count.set(usize::try_from(done).unwrap());
    let watch = Watch { progress: &progress, stop: &|| false };
    let Some(index) = start(dir) else { return Reached::Fed(0) };
    if follow(&index, &story.early, watch).is_err() {
        return Reached::Fed(count.get());
    }
    let view = story.early.view().unwrap();
    if rebuild::from_view(&index, &view, Watch::NOBODY).is_err() {
        return Reached::Rebuilding;
    }
    count.set(0);
    let _ = follow(&index, &story.late, watch);
    Reached::Built(4 + count.get())
}

/// Checks what an image has against what was acknowledged. Gives the model that it fits, and where that is in its list.
fn check(index: &Embedded, story: &Story, reached: Reached, rng: &mut Rng) -> Option<bool> {
    let tip = match index.tip() {
        Err(Error::Unfinished) => {
            assert_eq!(reached, Reached::Rebuilding);
            return None;
        }
        tip => tip.unwrap(),
    };
    let there = tip.map_or(0, |tip| usize::try_from(tip.seq).unwrap() + 1);
    let is_built = tip.is_some_and(|tip| tip.base.is_some());
    match reached {
        Reached::Fed(acknowledged) => {
            assert!(!is_built && (acknowledged..=acknowledged + 1).contains(&there));
        }
        // The note was not made yet, or the last step was.
        Reached::Rebuilding => assert_eq!(there, 4),
        Reached::Built(acknowledged) => {
            assert!(is_built && (acknowledged..=acknowledged + 1).contains(&there));
        }
    }
    match is_built {
        true => story.built[there].as_ref().unwrap().check(index, rng),
        false => story.fed[there].check(index, rng),
    }
    Some(is_built)
}

#[test]
fn power_loss_at_every_step_loses_nothing_and_doubles_nothing() {
    let name = "power_loss_at_every_step_loses_nothing_and_doubles_nothing";
    let first = seed::seed(name);
    let (mut images, mut unfinished) = (0, 0);
    for round in 0..3 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let story = Story::new(&mut rng);
        let dir = SimDir::new();
        assert_eq!(live(&dir, &story), Reached::Built(7));
        for step in 0..dir.step_count() {
            let dir = SimDir::new();
            dir.power_off_at(step);
            let reached = live(&dir, &story);
            for image in 0..2 {
                let mut found = dir.after_power_loss(rng.u64(..));
                if image > 0 {
                    // Power fails again while it recovers.
                    found.power_off_at(rng.u64(..20));
                    drop(start(&found));
                    found = found.after_power_loss(rng.u64(..));
                }
                images += 1;
                let index = start(&found).unwrap_or_else(|| panic!("step {step}: not opened"));
                let is_built = check(&index, &story, reached, &mut rng);
                if is_built.is_none() {
                    unfinished += 1;
                    assert!(matches!(
                        follow(&index, &story.late, Watch::NOBODY),
                        Err(Error::Unfinished)
                    ));
                    let view = story.early.view().unwrap();
                    rebuild::from_view(&index, &view, Watch::NOBODY).unwrap();
                }
                follow(&index, &story.late, Watch::NOBODY).unwrap();
                match is_built {
                    Some(false) => story.fed[7].check(&index, &mut rng),
                    _ => story.built[7].as_ref().unwrap().check(&index, &mut rng),
                }
            }
        }
    }
    assert!(unfinished > 20, "{unfinished}");
    eprintln!("{images} images, {unfinished} in the middle of a rebuild");
}

#[test]
fn the_story_without_power_loss_is_the_model() {
    let mut rng = Rng::with_seed(seed::seed("the_story_without_power_loss_is_the_model"));
    let story = Story::new(&mut rng);
    let index = Embedded::on(Box::new(MemoryEngine::new())).unwrap();
    follow(&index, &story.late, Watch::NOBODY).unwrap();
    story.fed[7].check(&index, &mut rng);
}
