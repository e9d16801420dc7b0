//! The simulated directory: names obey power loss too.
//!
//! Every change of names is one atomic step that stays pending until the directory is synced. Power
//! loss keeps any of the pending steps, in their order, and leaves each file with a legal image of
//! its own.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::dice::Dice;
use super::{Keep, Power, SimDisk};
use crate::buffer::REGION;
use crate::dir::{Dir, check_name, temporary};
use crate::disk::Disk;

/// Names and the numbers of the files they lead to.
type Names = BTreeMap<String, usize>;

/// A directory of simulated disks, all on one power supply.
#[derive(Debug, Default)]
pub struct SimDir {
    state: Mutex<Catalog>,
    power: Arc<Power>,
}

#[derive(Debug, Default)]
struct Catalog {
    /// Never shrinks: a file without a live name may still have a durable one.
    files: Vec<SimDisk>,
    live: Names,
    durable: Names,
    pending: Vec<Step>,
}

/// Names that change together, each with its new file or none.
type Step = Vec<(String, Option<usize>)>;

impl SimDir {
    /// An empty directory.
    pub fn new() -> Self {
        SimDir::default()
    }

    /// Lets power fail during the step with this number, counted from 0: each changing or syncing
    /// call on any disk of this directory is a step, and so is each change and each sync of names.
    pub fn power_off_at(&self, step: u64) {
        self.power.dies_at.store(step, Ordering::SeqCst);
    }

    /// Steps made so far.
    pub fn step_count(&self) -> u64 {
        self.power.steps.load(Ordering::SeqCst)
    }

    /// A handle to a file, for its trace and its faults.
    pub fn disk(&self, name: &str) -> Option<SimDisk> {
        self.catalog().find(name).map(SimDisk::reopen)
    }

    /// What may be found when power returns.
    pub fn after_power_loss(&self, seed: u64) -> SimDir {
        let mut dice = Dice::new(seed);
        let catalog = self.catalog();
        let mut names = catalog.durable.clone();
        for step in &catalog.pending {
            if dice.roll(1, 2) {
                take(&mut names, step);
            }
        }
        let power = Arc::<Power>::default();
        let mut found = Catalog::default();
        for (name, number) in names {
            let Some(disk) = catalog.files.get(number) else {
                continue;
            };
            let trace = disk.trace();
            let image = trace.image(trace.len(), Keep::Random(dice.next()));
            found.live.insert(name, found.files.len());
            found.files.push(SimDisk::powered(image, REGION, Arc::clone(&power)));
        }
        found.durable = found.live.clone();
        SimDir { state: Mutex::new(found), power }
    }

    /// What the next process finds if all that use the directory die now while power lasts.
    pub fn after_death(&self) -> SimDir {
        let catalog = self.catalog();
        let power = Arc::<Power>::default();
        let found = Catalog {
            files: catalog.files.iter().map(|disk| disk.buried(Arc::clone(&power))).collect(),
            live: catalog.live.clone(),
            durable: catalog.durable.clone(),
            pending: catalog.pending.clone(),
        };
        SimDir { state: Mutex::new(found), power }
    }

    /// Cuts the power of all disks now, between two calls.
    pub fn power_off(&self) {
        self.power.cut();
    }

    /// True once power is gone.
    pub fn is_off(&self) -> bool {
        self.power.check().is_err()
    }

    fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one step of names; if power fails during it, it is pending all the same.
    fn change(&self, catalog: &mut Catalog, step: Step) -> io::Result<()> {
        self.power.check()?;
        take(&mut catalog.live, &step);
        catalog.pending.push(step);
        if self.power.dies_now() {
            self.power.cut();
        }
        self.power.check()
    }

    fn settle(&self, catalog: &mut Catalog) -> io::Result<()> {
        self.power.check()?;
        if self.power.dies_now() {
            self.power.cut();
            return self.power.check();
        }
        catalog.durable = catalog.live.clone();
        catalog.pending.clear();
        Ok(())
    }

    fn add(&self, catalog: &mut Catalog, name: String) -> io::Result<(usize, SimDisk)> {
        let number = catalog.files.len();
        let disk = SimDisk::powered(Vec::new(), REGION, Arc::clone(&self.power));
        catalog.files.push(disk.reopen());
        self.change(catalog, vec![(name, Some(number))])?;
        Ok((number, disk))
    }
}

impl Catalog {
    fn find(&self, name: &str) -> Option<&SimDisk> {
        self.live.get(name).and_then(|number| self.files.get(*number))
    }
}

fn take(names: &mut Names, step: &Step) {
    for (name, file) in step {
        match file {
            Some(number) => names.insert(name.clone(), *number),
            None => names.remove(name),
        };
    }
}

impl Dir for SimDir {
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        check_name(name)?;
        let mut catalog = self.catalog();
        if catalog.live.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let (_, disk) = self.add(&mut catalog, name.to_owned())?;
        self.settle(&mut catalog)?;
        Ok(Arc::new(disk))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        check_name(name)?;
        self.power.check()?;
        let catalog = self.catalog();
        let disk = catalog.find(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(disk.reopen()))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        check_name(name)?;
        self.power.check()?;
        Ok(self.catalog().find(name).map(SimDisk::to_bytes))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        check_name(name)?;
        let mut catalog = self.catalog();
        let prepared = temporary(name);
        // Order: contents, sync, name, sync; as the real directory does it.
        let (number, disk) = self.add(&mut catalog, prepared.clone())?;
        disk.write_at(0, bytes)?;
        disk.sync()?;
        let renamed = vec![(prepared, None), (name.to_owned(), Some(number))];
        self.change(&mut catalog, renamed)?;
        self.settle(&mut catalog)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        let mut catalog = self.catalog();
        if !catalog.live.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change(&mut catalog, vec![(name.to_owned(), None)])?;
        self.settle(&mut catalog)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.power.check()?;
        let catalog = self.catalog();
        Ok(catalog.live.keys().filter(|name| check_name(name).is_ok()).cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        self.settle(&mut self.catalog())
    }
}
