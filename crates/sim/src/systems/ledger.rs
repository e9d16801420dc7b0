//! A ledger's store on a simulated directory, against the same store in memory.
//!
//! Every deed that is acknowledged is durable. One that was cut off was done or was not, unless the ledger does such a thing
//! in several durable steps; then doing it again must end where it would have ended.

use std::fmt::Debug;
use std::sync::Arc;

use fastrand::Rng;
use host::{Dir, Fault, ManualEnv, MemoryDir, SimDir};
use ledger::{Engine, KvbEngine, MemoryEngine};

use super::excuse::Excuse;
use super::refusal::Refusal;
use crate::dice::one_of;
use crate::{Failure, System, Tally};

const DATABASE: &str = "db";
/// How often a store may have to be opened until it is open.
const OPENS_MAX: usize = 8;

/// All rows of all tables.
pub(crate) type Rows = Vec<Vec<(Vec<u8>, Vec<u8>)>>;

type Checked<T = ()> = Result<T, String>;

/// A kind of store.
pub(crate) trait Ledger: Send + Sync {
    type Deed: Clone + Debug;
    type Store;

    fn name(&self) -> &'static str;

    /// What is done under a seed. Deeds that stand alone may be refused, by every store alike.
    fn deeds(&self, seed: u64) -> Vec<Self::Deed>;

    /// Makes a store, or opens the one that is there.
    fn start(
        &self,
        seed: u64,
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
    ) -> Result<Self::Store, Refusal>;

    fn perform(&self, store: &Self::Store, deed: &Self::Deed) -> Result<(), Refusal>;

    fn rows(&self, store: &Self::Store) -> Checked<Rows>;

    /// Deeds consist of several steps, each of them durable by itself.
    fn has_steps(&self) -> bool {
        false
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step<D> {
    Deed(D),
    /// All rows are compared.
    Look,
    /// The process dies.
    Kill,
    /// Power fails so many steps of the machine from now.
    PowerLoss {
        steps: u64,
        image: u64,
    },
    /// A call of the database's disk fails, so many from now, or all from then on.
    Fail {
        calls: u64,
        fault: Fault,
        is_lasting: bool,
    },
    /// The disk has so many bytes of room, then none.
    Full {
        room: u64,
    },
    /// There is room again, and nothing fails any more.
    Relief,
}

/// Makes a system of a ledger.
pub(crate) struct On<L>(pub(super) L);

impl<L: Ledger> System for On<L> {
    type Step = Step<L::Deed>;

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn history(&self, seed: u64) -> Vec<Self::Step> {
        let mut rng = Rng::with_seed(seed ^ 0x5eed);
        let mut steps = Vec::new();
        for deed in self.0.deeds(seed) {
            while rng.u8(..3) == 0 {
                steps.push(disturbance(&mut rng));
            }
            steps.push(Step::Deed(deed));
        }
        steps
    }

    fn run(&self, seed: u64, steps: &[Self::Step]) -> Result<Tally, Failure> {
        Run::new(&self.0, seed)
            .and_then(|mut run| {
                run.all(steps)?;
                Ok(run.tally)
            })
            .map_err(|(step, what)| Failure { step, what })
    }
}

fn disturbance<D>(rng: &mut Rng) -> Step<D> {
    let soon = |rng: &mut Rng| match rng.u8(..3) {
        0 => rng.u64(..4),
        1 => rng.u64(..30),
        _ => rng.u64(..150),
    };
    match rng.u8(..20) {
        0..4 => Step::Kill,
        4..12 => Step::PowerLoss { steps: soon(rng), image: rng.u64(..) },
        12..15 => {
            let others = [Fault::Enospc, Fault::ShortWrite, Fault::SyncFailsThenLies];
            let fault = one_of(rng, Fault::Eio, &others);
            Step::Fail { calls: soon(rng), fault, is_lasting: rng.bool() }
        }
        15 => Step::Full { room: rng.u64(..300_000) },
        16..18 => Step::Relief,
        _ => Step::Look,
    }
}

fn is_excused(excuse: &Excuse, refusal: &Refusal) -> bool {
    match refusal {
        Refusal::Machine { is_full: true, .. } => excuse.covers_full(),
        Refusal::Machine { .. } => excuse.covers_failure() || excuse.limit.is_some(),
        Refusal::Other(_) => false,
    }
}

struct Run<'l, L: Ledger> {
    ledger: &'l L,
    seed: u64,
    dir: Arc<SimDir>,
    store: Option<L::Store>,
    /// What was acknowledged, and a store in memory to which it was done.
    done: Vec<L::Deed>,
    calm: L::Store,
    doubtful: Option<L::Deed>,
    excuse: Excuse,
    tally: Tally,
}

impl<'l, L: Ledger> Run<'l, L> {
    fn new(ledger: &'l L, seed: u64) -> Result<Self, (usize, String)> {
        let calm = calm(ledger, seed, &[]).map_err(|what| (0, what))?;
        let mut run = Run {
            ledger,
            seed,
            dir: Arc::new(SimDir::new()),
            store: None,
            done: Vec::new(),
            calm,
            doubtful: None,
            excuse: Excuse::default(),
            tally: Tally::default(),
        };
        run.store = Some(run.start(true).map_err(|refusal| (0, refusal.said()))?);
        Ok(run)
    }

    fn all(&mut self, steps: &[Step<L::Deed>]) -> Result<(), (usize, String)> {
        for (number, step) in steps.iter().enumerate() {
            self.step(step).map_err(|what| (number, what))?;
            self.tally.count("steps");
        }
        let last = steps.len().saturating_sub(1);
        self.relieve();
        self.restart().map_err(|what| (last, what))
    }

    fn step(&mut self, step: &Step<L::Deed>) -> Checked {
        match step {
            Step::Deed(deed) => self.perform(deed),
            Step::Look => self.compare(),
            Step::Kill => {
                self.tally.count("kills");
                self.restart()
            }
            Step::PowerLoss { steps, image } => {
                let at = self.dir.step_count() + steps;
                self.dir.power_off_at(at);
                self.excuse.power = Some((at, *image));
                Ok(())
            }
            Step::Fail { calls, fault, is_lasting } => {
                if let Some(disk) = self.dir.disk(DATABASE) {
                    let at = disk.op_count() + calls;
                    match is_lasting {
                        true => disk.fail_from(at, *fault),
                        false => disk.fail(at, *fault),
                    }
                    self.excuse.is_faulty = true;
                }
                Ok(())
            }
            Step::Full { room } => {
                if let Some(disk) = self.dir.disk(DATABASE) {
                    self.excuse.fill(&disk, *room);
                }
                Ok(())
            }
            Step::Relief => {
                self.relieve();
                Ok(())
            }
        }
    }

    fn relieve(&mut self) {
        if self.dir.is_off() {
            return;
        }
        if let Some(disk) = self.dir.disk(DATABASE) {
            disk.clear_faults();
            disk.set_capacity(None);
        }
        self.dir.power_off_at(u64::MAX);
        self.excuse.relieve();
    }

    fn start(&self, is_new: bool) -> Result<L::Store, Refusal> {
        let options =
            KvbEngine::options().background(false).segment_bytes_max(64 << 10).overlay_min(64);
        let env = Arc::new(ManualEnv::new(1, 1));
        let engine = match is_new {
            true => {
                let disk = self.dir.create(DATABASE).map_err(|error| Refusal::io(&error))?;
                KvbEngine::create_on(disk, env, options)
            }
            false => {
                let disk = self.dir.open(DATABASE).map_err(|error| Refusal::io(&error))?;
                KvbEngine::open_on(disk, env, options)
            }
        };
        let engine = engine.map_err(|error| Refusal::engine(&error))?;
        let home: Arc<dyn Dir> = Arc::<SimDir>::clone(&self.dir);
        self.ledger.start(self.seed, Box::new(engine), home)
    }

    fn perform(&mut self, deed: &L::Deed) -> Checked {
        let Some(store) = &self.store else { return Err("no store is open".to_owned()) };
        match self.ledger.perform(store, deed) {
            Ok(()) => {
                self.tally.count("deeds");
                self.done.push(deed.clone());
                let calm = self.ledger.perform(&self.calm, deed);
                calm.map_err(|refusal| format!("done, but in memory: {}", refusal.said()))
            }
            Err(refusal) if is_excused(&self.excuse, &refusal) => {
                self.tally.count("deeds that failed");
                self.doubtful = Some(deed.clone());
                self.restart()
            }
            Err(refusal) => {
                self.tally.count("deeds that were refused");
                let what = refusal.said();
                match self.ledger.perform(&self.calm, deed) {
                    Err(other) => {
                        let other = other.said();
                        let is_same = other == what;
                        is_same.then_some(()).ok_or_else(|| format!("{what}; in memory: {other}"))
                    }
                    Ok(()) => Err(format!("refused, but done in memory: {what}")),
                }
            }
        }
    }

    fn compare(&self) -> Checked {
        let Some(store) = &self.store else { return Err("no store is open".to_owned()) };
        match self.ledger.rows(store)? == self.ledger.rows(&self.calm)? {
            true => Ok(()),
            false => Err("rows differ from those in memory".to_owned()),
        }
    }

    /// The process ends, by itself or with the power.
    fn die(&mut self) {
        let steps = self.dir.step_count();
        let left = match self.dir.is_off() {
            true => {
                self.tally.count("power losses");
                self.dir.after_power_loss(self.excuse.take_image())
            }
            false => self.dir.after_death(),
        };
        self.dir.power_off();
        self.store = None;
        self.dir = Arc::new(left);
        if let Some(disk) = self.dir.disk(DATABASE) {
            disk.set_limit(self.excuse.limit);
        }
        if let Some(at) = self.excuse.begin_anew(steps) {
            self.dir.power_off_at(at);
        }
    }

    fn restart(&mut self) -> Checked {
        for _ in 0..OPENS_MAX {
            self.die();
            match self.start(false) {
                Ok(store) => {
                    self.store = Some(store);
                    self.tally.count("recoveries");
                    return self.recovered();
                }
                Err(refusal) if is_excused(&self.excuse, &refusal) => {
                    self.tally.count("recoveries cut off");
                    if matches!(refusal, Refusal::Machine { is_full: true, .. }) {
                        self.relieve();
                    }
                }
                Err(refusal) => return Err(format!("cannot be opened: {}", refusal.said())),
            }
        }
        Err("cannot be opened, however often".to_owned())
    }

    fn recovered(&mut self) -> Checked {
        let Some(store) = &self.store else { return Err("no store is open".to_owned()) };
        let found = self.ledger.rows(store)?;
        let Some(deed) = self.doubtful.take() else {
            return match found == self.ledger.rows(&self.calm)? {
                true => Ok(()),
                false => Err("rows are not those of what was acknowledged".to_owned()),
            };
        };
        if found == self.ledger.rows(&self.calm)? {
            return Ok(());
        }
        // Done after all, or partly; then it is done again.
        self.calm = calm(self.ledger, self.seed, &self.done)?;
        let _refused = self.ledger.perform(&self.calm, &deed);
        self.done.push(deed.clone());
        if found == self.ledger.rows(&self.calm)? {
            self.tally.count("deeds that were done after all");
            return Ok(());
        }
        if !self.ledger.has_steps() {
            return Err("rows are neither those before the deed nor those after it".to_owned());
        }
        self.tally.count("deeds that were half done");
        match self.ledger.perform(store, &deed) {
            Ok(()) => self.compare(),
            Err(refusal) if is_excused(&self.excuse, &refusal) => {
                self.done.pop();
                self.doubtful = Some(deed);
                self.restart()
            }
            Err(refusal) => Err(format!("half done, and then: {}", refusal.said())),
        }
    }
}

/// A store in memory to which deeds were done.
fn calm<L: Ledger>(ledger: &L, seed: u64, deeds: &[L::Deed]) -> Checked<L::Store> {
    let (engine, home) = (Box::new(MemoryEngine::new()), Arc::new(MemoryDir::new()));
    let store = ledger.start(seed, engine, home).map_err(Refusal::said)?;
    for deed in deeds {
        // Some were refused once, or done in part by recovery.
        let _refused = ledger.perform(&store, deed);
    }
    Ok(store)
}
