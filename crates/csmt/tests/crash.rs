//! Power loss at every step of a store's life: blocks, rollbacks, a bootstrap, a wipe. Whatever image is left must open as it was
//! before the step that was under way or as it is after it, with every row, and go on from there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/story.rs"]
mod story;

use std::sync::Arc;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::{BootstrapProgress, Effort, Entry, Error, PathKind, Settings, Store};
use fastrand::Rng;
use host::{Dir, ManualEnv, SimDir};
use ledger::{KvbEngine, MemoryEngine};
use story::{Story, all_rows, input, output, point};

const DATABASE: &str = "db";

/// What is done to a store.
#[derive(Clone, Debug)]
enum Deed {
    Forward(Point, Vec<Operation>),
    Rollback(Point),
    Bootstrap(Vec<Entry>),
    Wipe,
}

fn quiet(_: BootstrapProgress) {}

fn perform(store: &Store, deed: &Deed) -> Result<(), Error> {
    match deed {
        Deed::Forward(point, operations) => store.forward(*point, operations).map(drop),
        Deed::Rollback(to) => store.rollback(*to).map(drop),
        Deed::Bootstrap(entries) => {
            let mut entries = entries.iter().cloned().map(Ok);
            store.bootstrap(&mut entries, point(1), &mut quiet).map(drop)
        }
        Deed::Wipe => store.wipe(&mut |_| {}),
    }
}

fn settings(path: PathKind) -> Settings {
    Settings { path, k: 4 }
}

/// Opens the store, or makes it, as somebody would who does not know what happened.
fn start(dir: &SimDir, path: PathKind) -> Result<Store, Error> {
    let options =
        KvbEngine::options().background(false).segment_bytes_max(64 << 10).overlay_min(64);
    let env = || Arc::new(ManualEnv::new(1, 1));
    let mut engine = None;
    if let Ok(disk) = dir.open(DATABASE) {
        match KvbEngine::open_on(disk, env(), options.clone()) {
            Ok(opened) => engine = Some(opened),
            // Cut off while it was made.
            Err(_) => dir.remove(DATABASE).map_err(|_| Error::EmptyKey)?,
        }
    }
    let engine = match engine {
        Some(engine) => engine,
        None => {
            let disk = dir.create(DATABASE).map_err(|_| Error::EmptyKey)?;
            KvbEngine::create_on(disk, env(), options)?
        }
    };
    let effort = Effort { memory: 3 << 10, threads: 1, batch: 500 };
    Store::init(Box::new(engine), settings(path), effort)
}

/// Does deeds until power fails. Gives how many were done.
fn live(dir: &SimDir, path: PathKind, deeds: &[Deed]) -> usize {
    let Ok(store) = start(dir, path) else { return 0 };
    deeds.iter().take_while(|deed| perform(&store, deed).is_ok()).count()
}

fn random_deeds(rng: &mut Rng) -> Vec<Deed> {
    let entries: Vec<Entry> = (0..rng.usize(5..25)).map(|_| (input(rng), output(rng, 4))).collect();
    let mut deeds = Vec::new();
    deeds.push(Deed::Bootstrap(entries));
    deeds.push(Deed::Wipe);
    let story = Story::new(rng, 7, 8);
    let blocks: Vec<Deed> = story
        .blocks
        .iter()
        .map(|(at, operations)| Deed::Forward(*at, operations.clone()))
        .collect();
    deeds.extend(blocks.iter().cloned());
    deeds.push(Deed::Rollback(story.blocks[3].0));
    deeds.extend(blocks[4..].iter().cloned());
    deeds
}

#[test]
fn power_loss_at_every_step_loses_nothing() {
    let first = seed::seed("power_loss_at_every_step_loses_nothing");
    let (mut images, mut begun) = (0, 0);
    for round in 0..4 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let path = if round % 2 == 0 { PathKind::Address } else { PathKind::Raw };
        let deeds = random_deeds(&mut rng);
        // Every row after each deed, of a store that nobody cuts off.
        let calm = Store::init(Box::new(MemoryEngine::new()), settings(path), Effort::default());
        let calm = calm.unwrap();
        let mut wanted = vec![all_rows(&calm)];
        for deed in &deeds {
            perform(&calm, deed).unwrap();
            wanted.push(all_rows(&calm));
        }
        let dir = SimDir::new();
        assert_eq!(live(&dir, path, &deeds), deeds.len());
        let steps = dir.step_count();
        for step in 0..steps {
            let dir = SimDir::new();
            dir.power_off_at(step);
            let done = live(&dir, path, &deeds);
            for image in 0..2 {
                let mut found = dir.after_power_loss(rng.u64(..));
                if image > 0 {
                    // Power fails again while it recovers.
                    found.power_off_at(rng.u64(..20));
                    drop(start(&found, path));
                    found = found.after_power_loss(rng.u64(..));
                }
                images += 1;
                let store = start(&found, path)
                    .unwrap_or_else(|error| panic!("step {step}, after {done}: {error}"));
                let rows = all_rows(&store);
                let is_begun = rows[3] == [(b"app_config".to_vec(), vec![0x83, 0x80, 0xf5, 0x80])];
                if is_begun {
                    // In the middle of a bootstrap: nobody can follow a chain, and it can be gone on with.
                    begun += 1;
                    assert!(matches!(deeds[done], Deed::Bootstrap(_)), "step {step}, after {done}");
                    assert!(matches!(store.forward(point(9), &[]), Err(Error::Unfinished)));
                    go_on(&store, &deeds[done..], &wanted[done + 1..], step);
                } else if rows == wanted[done] {
                    go_on(&store, &deeds[done..], &wanted[done + 1..], step);
                } else {
                    assert!(wanted.get(done + 1) == Some(&rows), "step {step}: rows of no deed");
                    go_on(&store, &deeds[done + 1..], &wanted[done + 2..], step);
                }
            }
        }
    }
    assert!(begun > 50, "{begun}");
    eprintln!("{images} images, {begun} in the middle of a bootstrap");
}

fn go_on(store: &Store, deeds: &[Deed], wanted: &[Vec<Vec<Entry>>], step: u64) {
    for (deed, wanted) in deeds.iter().zip(wanted) {
        perform(store, deed).unwrap_or_else(|error| panic!("step {step}: {error}"));
        assert!(all_rows(store) == *wanted, "step {step}: {deed:?}");
    }
}
