//! Power loss at every step of a store's life: checkpoints that prune, the one that brings v2, a snapshot, a restore from it. Whatever is
//! left must open as a whole checkpoint, with the root that its header has, and go on from there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/chain.rs"]
mod chain;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::io;
use std::sync::Arc;

use chain::{Chain, dump};
use fastrand::Rng;
use host::{Dir, Disk, ManualEnv, SimDir};
use ledger::KvbEngine;
use misaka::snapshot::{Trust, Watch, create, manifest, restore_into, verify};
use misaka::{Checkpoint, Effort, Error, Pair, Settings, Store};

const DATABASE: &str = "db";
const RESTORED: &str = "restored";
const CHUNK: usize = 700;

/// The files of a directory whose names begin with something: a snapshot beside the database.
#[derive(Debug)]
struct Below<'a>(&'a SimDir);

const BELOW: &str = "snapshot-";

impl Dir for Below<'_> {
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.0.create(&format!("{BELOW}{name}"))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.0.open(&format!("{BELOW}{name}"))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.0.read(&format!("{BELOW}{name}"))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.replace(&format!("{BELOW}{name}"), bytes)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(&format!("{BELOW}{name}"))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = self.0.names()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(BELOW)).map(str::to_owned).collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

/// What is done to a store.
#[derive(Clone, Debug)]
enum Deed {
    Apply(Box<Checkpoint>),
    Snapshot,
    Restore,
}

fn effort() -> Effort {
    Effort { memory: 1 << 20, threads: 1, batch: 600 }
}

/// Tables in a file, as somebody would open them who does not know what happened.
fn engine(dir: &SimDir, name: &str) -> Result<KvbEngine, Error> {
    let options =
        KvbEngine::options().background(false).segment_bytes_max(64 << 10).overlay_min(64);
    let env = || Arc::new(ManualEnv::new(1, 1));
    let io = |source| Error::Io { doing: "make a file".to_owned(), source };
    if let Ok(disk) = dir.open(name) {
        match KvbEngine::open_on(disk, env(), options.clone()) {
            Ok(opened) => return Ok(opened),
            // Cut off while it was made.
            Err(_) => dir.remove(name).map_err(io)?,
        }
    }
    Ok(KvbEngine::create_on(dir.create(name).map_err(io)?, env(), options)?)
}

fn start(dir: &SimDir, settings: Settings) -> Result<Store, Error> {
    Store::init(Box::new(engine(dir, DATABASE)?), settings, effort())
}

fn perform(dir: &SimDir, store: &Store, deed: &Deed) -> Result<(), Error> {
    match deed {
        Deed::Apply(checkpoint) => store.apply(checkpoint).map(drop),
        Deed::Snapshot => create(store, &Below(dir), CHUNK, 1, Watch::NOBODY).map(drop),
        Deed::Restore => {
            let (below, nobody) = (Below(dir), Watch::NOBODY);
            let whole = manifest(&below)?;
            let engine = Box::new(engine(dir, RESTORED)?);
            restore_into(engine, &below, &whole, store.settings(), effort(), nobody).map(drop)
        }
    }
}

/// Does deeds until power fails. Gives how many were done.
fn live(dir: &SimDir, settings: Settings, deeds: &[Deed]) -> usize {
    let Ok(store) = start(dir, settings) else { return 0 };
    deeds.iter().take_while(|deed| perform(dir, &store, deed).is_ok()).count()
}

/// That the store is as it should be after so many deeds, and can do the rest.
fn go_on(
    dir: &SimDir,
    settings: Settings,
    deeds: &[Deed],
    wanted: &[Vec<Vec<Pair>>],
    done: usize,
    when: &str,
) {
    let store = start(dir, settings).unwrap_or_else(|error| panic!("{when}: {error}"));
    let rows = dump(&store);
    let at = match rows == wanted[done] {
        true => done,
        false => done + 1,
    };
    assert!(wanted.get(at) == Some(&rows), "{when}: rows of no checkpoint");
    let check = store.verify(&|_, _, _| {}).unwrap();
    assert_eq!(check.findings, [""; 0], "{when}");
    for (deed, wanted) in deeds[at..].iter().zip(&wanted[at + 1..]) {
        perform(dir, &store, deed).unwrap_or_else(|error| panic!("{when}, {deed:?}: {error}"));
        assert!(dump(&store) == *wanted, "{when}");
    }
    verify(&Below(dir), Trust::default(), effort(), Watch::NOBODY).unwrap();
    let engine = Box::new(engine(dir, RESTORED).unwrap());
    let restored = Store::open(engine, effort()).unwrap();
    assert_eq!(restored.verify(&|_, _, _| {}).unwrap().findings, [""; 0], "{when}");
    let (found, wanted) = (dump(&restored), &wanted[wanted.len() - 1]);
    for table in [0, 1, 4] {
        assert!(found[table] == wanted[table], "{when}: the restored store");
    }
}

#[test]
fn power_loss_at_every_step_loses_nothing() {
    let first = seed::seed("power_loss_at_every_step_loses_nothing");
    let mut images = 0;
    for round in 0..6 * seed::rounds() {
        let mut rng = Rng::with_seed(first ^ round);
        let v2_at = [None, Some(254)][usize::try_from(round % 2).unwrap()];
        let settings = Settings { chain_id: Some(7), event_retention: 2, window: 3, v2_at };
        let mut chain = Chain::new(settings, 250);
        let mut deeds = Vec::new();
        let mut wanted = vec![chain.model.dump()];
        for _ in 0..7 {
            deeds.push(Deed::Apply(Box::new(chain.grow(&mut rng, 6))));
            wanted.push(chain.model.dump());
        }
        for deed in [Deed::Snapshot, Deed::Restore] {
            deeds.push(deed);
            wanted.push(chain.model.dump());
        }
        let dir = SimDir::new();
        assert_eq!(live(&dir, settings, &deeds), deeds.len());
        go_on(&dir, settings, &deeds, &wanted, deeds.len(), "without power loss");
        let steps = dir.step_count();
        for step in 0..steps {
            let dir = SimDir::new();
            dir.power_off_at(step);
            let done = live(&dir, settings, &deeds);
            for image in 0..2 {
                let mut found = dir.after_power_loss(rng.u64(..));
                if image > 0 {
                    // Power fails again while it recovers, or goes on.
                    found.power_off_at(rng.u64(..60));
                    if let Ok(store) = start(&found, settings)
                        && let Some(deed) = deeds.get(done)
                    {
                        let _ = perform(&found, &store, deed);
                    }
                    found = found.after_power_loss(rng.u64(..));
                }
                images += 1;
                let when = format!("step {step} of {steps}, image {image}, after {done}");
                go_on(&found, settings, &deeds, &wanted, done, &when);
            }
        }
    }
    eprintln!("{images} images");
}
