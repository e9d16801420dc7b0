//! A ledger's store on a simulated directory, against the same store in memory.
//!
//! Every deed that is acknowledged is durable. One that was cut off was done or was not, unless the ledger does such a thing
//! in several durable steps; then doing it again must end where it would have ended.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use fastrand::Rng;
use host::{Dir, Disk, Env, Fault, ManualEnv, MemoryDir, SimDir, SimDisk};
use kvb::Options;
use ledger::{
    Batch, Engine, EngineError, KvbEngine, KvbReadOnly, MemoryEngine, Snapshot, Table, Trouble,
};

use super::excuse::Excuse;
use super::faults::Faults;
use super::home::{Home, Plan};
use super::refusal::Refusal;
use crate::dice::{clock_jump, one_of};
use crate::{Failure, Harm, System, Tally};

const DATABASE: &str = "db";
/// Where the wall clock begins.
const START: u64 = 20_000 * 86_400 * SECOND;
const SECOND: u64 = 1_000_000_000;
/// Deeds of a history to which one harm comes.
const DEEDS: usize = 30;
/// What fills a disk.
const FILLER: Table = Table { name: "filler", id: 200 };
const FILLERS_MAX: u64 = 1000;
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

    /// Opens the store that is there to look at it, beside whoever changes it.
    fn look(
        &self,
        seed: u64,
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
    ) -> Result<Self::Store, Refusal>;

    fn perform(&self, store: &Self::Store, deed: &Self::Deed) -> Result<(), Refusal>;

    fn rows(&self, store: &Self::Store) -> Checked<Rows>;

    /// The deed consists of several steps, each of them durable by itself.
    fn has_steps(&self, _deed: &Self::Deed) -> bool {
        false
    }

    /// It has files beside the database.
    fn has_files(&self) -> bool {
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
    /// Power fails so many steps of the machine from now, and perhaps once more so many steps into the recovery.
    PowerLoss {
        steps: u64,
        image: u64,
        again: Option<u64>,
    },
    /// A call of the database's disk fails, so many from now, or all from then on.
    Fail {
        calls: u64,
        fault: Fault,
        is_lasting: bool,
    },
    /// A call fails that reads or replaces a file beside the database.
    FailFile(Plan),
    /// The disk has so many bytes of room, then none.
    Full {
        room: u64,
    },
    /// There is room again, and nothing fails any more.
    Relief,
    /// A read of the database's disk fails, so many from now.
    FailRead {
        reads: u64,
    },
    /// A bit of the closed database is flipped, looked at what comes of it, and flipped back.
    Rot {
        place: u64,
        bit: u8,
    },
    /// The wall clock jumps.
    Clock {
        seconds: i64,
    },
    /// Others open it: somebody who wants to write, and a reader.
    Second,
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
            while rng.u8(..5) < 2 {
                steps.push(disturbance(&mut rng, self.0.has_files()));
            }
            steps.push(Step::Deed(deed));
        }
        steps
    }

    fn harmed(&self, seed: u64, harm: Harm) -> Vec<Self::Step> {
        let first = match harm {
            Harm::Fail { call: calls, fault, is_lasting } => {
                Step::Fail { calls, fault, is_lasting }
            }
            Harm::FailFile { call: calls, is_done } => Step::FailFile(Plan { calls, is_done }),
            Harm::PowerLoss { step: steps, image, again } => {
                Step::PowerLoss { steps, image, again: Some(again) }
            }
        };
        let deeds = self.0.deeds(seed).into_iter().take(DEEDS).map(Step::Deed);
        std::iter::once(first).chain(deeds).collect()
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

fn disturbance<D>(rng: &mut Rng, has_files: bool) -> Step<D> {
    let soon = |rng: &mut Rng| match rng.u8(..3) {
        0 => rng.u64(..4),
        1 => rng.u64(..15),
        _ => rng.u64(..80),
    };
    match rng.u8(..33) {
        0..4 => Step::Kill,
        4..12 => {
            let again = (rng.u8(..3) == 0).then(|| rng.u64(..40));
            Step::PowerLoss { steps: soon(rng), image: rng.u64(..), again }
        }
        12 if has_files => Step::FailFile(Plan { calls: rng.u64(..6), is_done: rng.bool() }),
        12..19 => {
            // Not every call is a sync.
            let sync = Fault::SyncFailsThenLies;
            let others = [Fault::Enospc, Fault::ShortWrite, sync, sync];
            let fault = one_of(rng, Fault::Eio, &others);
            Step::Fail { calls: soon(rng), fault, is_lasting: rng.bool() }
        }
        19..21 => Step::Full { room: rng.u64(..300_000) },
        21 => Step::Relief,
        22..26 => Step::Look,
        26..28 => Step::FailRead { reads: rng.u64(..8) },
        28..31 => Step::Rot { place: rng.u64(..), bit: rng.u8(..8) },
        31 => Step::Clock { seconds: clock_jump(rng) },
        _ => Step::Second,
    }
}

fn options() -> Options {
    KvbEngine::options().background(false).segment_bytes_max(64 << 10).overlay_min(64)
}

struct Run<'l, L: Ledger> {
    ledger: &'l L,
    seed: u64,
    env: Arc<ManualEnv>,
    dir: Arc<SimDir>,
    home: Arc<Home>,
    store: Option<L::Store>,
    /// What was acknowledged, and a store in memory to which it was done.
    done: Vec<L::Deed>,
    calm: L::Store,
    doubtful: Option<L::Deed>,
    excuse: Excuse,
    faults: Faults,
    tally: Tally,
}

impl<'l, L: Ledger> Run<'l, L> {
    fn new(ledger: &'l L, seed: u64) -> Result<Self, (usize, String)> {
        let calm = calm(ledger, seed, &[]).map_err(|what| (0, what))?;
        let dir = Arc::new(SimDir::new());
        let mut run = Run {
            ledger,
            seed,
            env: Arc::new(ManualEnv::new(START, seed)),
            home: Arc::new(Home::new(Arc::clone(&dir), None)),
            dir,
            store: None,
            done: Vec::new(),
            calm,
            doubtful: None,
            excuse: Excuse::default(),
            faults: Faults::default(),
            tally: Tally::default(),
        };
        let disk = run.dir.create(DATABASE).map_err(|error| (0, error.to_string()))?;
        let made = KvbEngine::create_on(disk, run.env(), options());
        let made = made.map_err(|error| Refusal::engine(&error));
        let made =
            made.and_then(|engine| run.begin(Box::new(engine), Arc::<Home>::clone(&run.home)));
        run.store = Some(made.map_err(|refusal| (0, refusal.said()))?);
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
            Step::PowerLoss { steps, image, again } => {
                let at = self.dir.step_count() + steps;
                self.dir.power_off_at(at);
                self.excuse.lose_power(at, *image, *again);
                Ok(())
            }
            Step::Fail { calls, fault, is_lasting } => {
                if let Some(disk) = self.dir.disk(DATABASE) {
                    self.faults.fail(&disk, *calls, *fault, *is_lasting);
                    self.excuse.is_faulty = true;
                }
                Ok(())
            }
            Step::FailFile(plan) => {
                self.home.set_plan(Some(*plan));
                self.excuse.is_faulty = true;
                Ok(())
            }
            Step::Full { room } => self.fill(*room),
            Step::Relief => {
                self.relieve();
                Ok(())
            }
            Step::FailRead { reads } => {
                if let Some(disk) = self.dir.disk(DATABASE) {
                    self.faults.fail_read(&disk, *reads);
                    self.excuse.is_faulty = true;
                }
                Ok(())
            }
            Step::Rot { place, bit } => self.rot(*place, *bit),
            Step::Clock { seconds } => {
                let by = seconds.saturating_mul(SECOND.cast_signed());
                self.env.set(self.env.unix_ns().saturating_add_signed(by));
                self.tally.count("jumps of the clock");
                Ok(())
            }
            Step::Second => self.second(),
        }
    }

    /// The disk has no more than so much room, and the database has filled it with rows of somebody else: with what it has set
    /// aside it could go on for longer than a history is.
    fn fill(&mut self, room: u64) -> Checked {
        let disk = self.dir.disk(DATABASE).ok_or_else(|| "there is no database".to_owned())?;
        self.excuse.fill(&disk, room);
        if self.excuse.covers_failure() {
            return Ok(());
        }
        self.store = None;
        let said = |error: EngineError| format!("rows that fill the disk: {error}");
        match KvbEngine::open_on(Arc::new(disk), self.env(), options()) {
            Ok(engine) => {
                let row = |number: u64| {
                    let mut batch = Batch::new();
                    batch.put(FILLER, &number.to_be_bytes(), &[0x5a; 4000]);
                    engine.commit(batch)
                };
                match (0..FILLERS_MAX).find_map(|number| row(number).err()) {
                    Some(error) if matches!(error.trouble, Trouble::Full) => {}
                    Some(error) => return Err(said(error)),
                    None => return Err("a full disk takes row after row".to_owned()),
                }
            }
            // Not even an open has room.
            Err(error) if matches!(error.trouble, Trouble::Full) => {}
            Err(error) => return Err(said(error)),
        }
        self.restart()
    }

    fn relieve(&mut self) {
        if self.dir.is_off() {
            return;
        }
        self.count_faults();
        if let Some(disk) = self.dir.disk(DATABASE) {
            disk.clear_faults();
            disk.set_capacity(None);
        }
        self.faults.clear();
        self.home.set_plan(None);
        self.dir.power_off_at(u64::MAX);
        self.excuse.relieve();
    }

    /// Counts what failed so far.
    fn count_faults(&mut self) {
        if let Some(disk) = self.dir.disk(DATABASE) {
            self.faults.count(&disk, self.dir.is_off(), &mut self.tally);
        }
        if self.home.take_failure() {
            self.tally.count("calls of files that failed");
        }
    }

    /// Somebody makes room on a full disk: what has to be done there would be refused again for ever.
    fn make_room(&mut self) {
        if self.excuse.limit.is_some() {
            self.relieve();
        }
    }

    fn env(&self) -> Arc<dyn Env> {
        Arc::<ManualEnv>::clone(&self.env)
    }

    /// Makes or opens a store on an engine.
    fn begin(&self, engine: Box<dyn Engine>, home: Arc<dyn Dir>) -> Result<L::Store, Refusal> {
        self.ledger.start(self.seed, engine, home)
    }

    /// Opens the store of a directory.
    fn open(&self, dir: Arc<dyn Dir>) -> Result<L::Store, Refusal> {
        let disk = dir.open(DATABASE).map_err(|error| Refusal::io(&error))?;
        let engine = KvbEngine::open_on(disk, self.env(), options());
        self.begin(Box::new(engine.map_err(|error| Refusal::engine(&error))?), dir)
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
            Err(refusal) if self.is_excused(&refusal) => {
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

    /// True if the machine had a reason to fail.
    fn is_excused(&mut self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::Machine { is_full: true, .. } => {
                if self.excuse.limit.is_some() && !self.excuse.is_faulty {
                    self.tally.count("full disks");
                }
                self.excuse.covers_full()
            }
            Refusal::Machine { .. } => self.excuse.covers_failure() || self.excuse.limit.is_some(),
            Refusal::Other(_) => false,
        }
    }

    fn compare(&self) -> Checked {
        let Some(store) = &self.store else { return Err("no store is open".to_owned()) };
        match self.ledger.rows(store)? == self.ledger.rows(&self.calm)? {
            true => Ok(()),
            false => Err("rows differ from those in memory".to_owned()),
        }
    }

    /// Flips a bit of the closed database and looks at what is said. Then all is well again.
    fn rot(&mut self, place: u64, bit: u8) -> Checked {
        if self.excuse.covers_failure() || self.excuse.limit.is_some() {
            return Ok(());
        }
        // Closed as it should be.
        self.store = None;
        let rotten = Arc::new(self.dir.after_death());
        let disk = rotten.disk(DATABASE).ok_or_else(|| "there is no database".to_owned())?;
        let at = flip(&disk, place, bit)?;
        self.tally.count("flipped bits");
        match self.open(rotten).map_err(Refusal::said).and_then(|store| self.ledger.rows(&store)) {
            Err(_) => self.tally.count("flipped bits that were told"),
            Ok(rows) if rows == self.ledger.rows(&self.calm)? => {}
            Ok(_) => return Err(format!("rows are wrong after a flipped bit: byte {at}")),
        }
        self.restart()
    }

    /// Others open the store.
    fn second(&mut self) -> Checked {
        if self.excuse.covers_failure() {
            return Ok(());
        }
        let disk = || self.dir.open(DATABASE).map_err(|error| error.to_string());
        match KvbEngine::open_on(disk()?, self.env(), options()) {
            Err(error) if matches!(error.trouble, Trouble::Locked(_)) => {}
            Err(error) => return Err(format!("a second writer: {error}")),
            Ok(_) => return Err("a second writer is let in".to_owned()),
        }
        let said = |what: String| format!("a reader: {what}");
        let engine = KvbReadOnly::open_on(disk()?, self.env());
        let engine = Box::new(engine.map_err(|error| said(error.to_string()))?);
        let home: Arc<dyn Dir> = Arc::<SimDir>::clone(&self.dir);
        let reader = self.ledger.look(self.seed, engine, home);
        let reader = reader.map_err(|refusal| said(refusal.said()))?;
        self.tally.count("second openers");
        match self.ledger.rows(&reader).map_err(said)? == self.ledger.rows(&self.calm)? {
            true => Ok(()),
            false => Err("a reader sees other rows than those in memory".to_owned()),
        }
    }

    /// The process ends, by itself or with the power.
    fn die(&mut self) {
        let steps = self.dir.step_count();
        self.count_faults();
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
        if let Some(at) = self.excuse.begin_anew(steps) {
            self.dir.power_off_at(at);
        }
        let plan = self.home.plan();
        self.excuse.is_faulty |= plan.is_some();
        self.home = Arc::new(Home::new(Arc::clone(&self.dir), plan));
        if let Some(disk) = self.dir.disk(DATABASE) {
            disk.set_limit(self.excuse.limit);
            self.excuse.is_faulty |= self.faults.begin_anew(&disk);
        }
    }

    fn restart(&mut self) -> Checked {
        for _ in 0..OPENS_MAX {
            self.die();
            match self.open(Arc::<Home>::clone(&self.home)) {
                Ok(store) => {
                    self.store = Some(store);
                    self.tally.count("recoveries");
                    return self.recovered();
                }
                Err(refusal) if self.is_excused(&refusal) => {
                    self.tally.count("recoveries cut off");
                    self.make_room();
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
        if !self.ledger.has_steps(&deed) {
            return Err("rows are neither those before the deed nor those after it".to_owned());
        }
        self.tally.count("deeds that were half done");
        match self.ledger.perform(store, &deed) {
            Ok(()) => self.compare(),
            Err(refusal) if self.is_excused(&refusal) => {
                self.done.pop();
                self.calm = calm(self.ledger, self.seed, &self.done)?;
                self.doubtful = Some(deed);
                self.make_room();
                self.restart()
            }
            Err(refusal) => Err(format!("half done, and then: {}", refusal.said())),
        }
    }
}

/// All rows of a table.
pub(crate) fn rows_of(snapshot: &dyn Snapshot, table: Table) -> Checked<Vec<(Vec<u8>, Vec<u8>)>> {
    let rows = snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded));
    let mut found = Vec::new();
    for row in rows.map_err(|error| error.to_string())? {
        let (key, value) = row.map_err(|error| error.to_string())?;
        found.push((key.into_owned(), value.into_owned()));
    }
    Ok(found)
}

/// Flips a bit somewhere in a file, where something was written, and tells in which byte.
fn flip(disk: &SimDisk, place: u64, bit: u8) -> Checked<u64> {
    let bytes = disk.to_bytes();
    let written: Vec<(u64, u8)> = (0..).zip(bytes).filter(|(_, byte)| *byte != 0).collect();
    let count = u64::try_from(written.len()).unwrap_or(u64::MAX);
    let number = place.checked_rem(count).and_then(|number| usize::try_from(number).ok());
    let &(at, byte) = number.and_then(|number| written.get(number)).ok_or("an empty file")?;
    disk.write_at(at, &[byte ^ (1 << bit)]).map_err(|error| error.to_string())?;
    Ok(at)
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
