//! A history as it runs.
//!
//! Invariants
//! - An error needs an excuse: a call that was made to fail, power that is gone, a disk that is full. Everything else a
//!   bucket says is right or a failure.
//! - After a commit that failed the bucket is opened again before anything else happens, as its documentation asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use host::{Disk, Env, Fault, Keep, ManualEnv, SimDisk};
use kvb::{Batch, Bucket, Durability, Error, Reader, Row, Scan, Severity};

use super::model::{Change, Expected, Found, Model, Span};
use super::plan::Plan;
use super::step::Step;
use crate::systems::excuse::Excuse;
use crate::systems::faults::Faults;
use crate::{Failure, Tally};

/// Where the wall clock begins.
const START: u64 = 20_000 * 86_400 * 1_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// How often a bucket may have to be opened until it is open.
const OPENS_MAX: usize = 8;
/// One recovery in so many is verified.
const VERIFIED: u64 = 4;

type Checked<T = ()> = Result<T, String>;

pub(crate) struct Run {
    plan: Plan,
    disk: SimDisk,
    env: Arc<ManualEnv>,
    /// The latest the wall clock ever was.
    latest: u64,
    /// Shared with whoever holds a snapshot.
    bucket: Option<Arc<Bucket>>,
    model: Model,
    excuse: Excuse,
    faults: Faults,
    /// A call failed, or was to fail, since the last recovery. Without that, nothing that is derived is ever lost.
    was_faulty: bool,
    tally: Tally,
}

impl Run {
    pub(crate) fn new(seed: u64) -> Run {
        Run {
            plan: Plan::draw(seed),
            disk: SimDisk::new(),
            env: Arc::new(ManualEnv::new(START, seed)),
            latest: START,
            bucket: None,
            model: Model::default(),
            excuse: Excuse::default(),
            faults: Faults::default(),
            was_faulty: false,
            tally: Tally::default(),
        }
    }

    /// Runs a history, and in the end everything that was durable must be there.
    pub(crate) fn all(mut self, steps: &[Step]) -> Result<Tally, Failure> {
        let last = steps.len().saturating_sub(1);
        let failure = |step| move |what| Failure { step, what };
        let created = Bucket::create_on(self.handle(), self.env(), self.plan.options());
        let created = created.map_err(|error| Failure { step: 0, what: error.to_string() })?;
        self.bucket = Some(Arc::new(created));
        for (number, step) in steps.iter().enumerate() {
            self.step(step).map_err(failure(number))?;
            self.tally.count("steps");
        }
        self.relieve();
        self.restart().map_err(failure(last))?;
        Ok(self.tally)
    }

    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.disk.reopen())
    }

    fn env(&self) -> Arc<dyn Env> {
        Arc::<ManualEnv>::clone(&self.env)
    }

    /// When it may be for the bucket.
    fn now(&self) -> Span {
        Span { from: self.env.unix_ns(), to: self.latest }
    }

    fn open_bucket(&self) -> Checked<&Bucket> {
        self.bucket.as_deref().ok_or_else(|| "no bucket is open".to_owned())
    }

    fn step(&mut self, step: &Step) -> Checked {
        self.move_clock(1);
        match step {
            Step::Commit(changes, durability) => self.commit(changes, *durability),
            Step::Look(keys) => self.look(keys),
            Step::Scan { is_reverse } => self.scan(*is_reverse),
            Step::Flush => {
                let done = self.open_bucket()?.flush();
                if self.is_done(done, "flush")? {
                    self.model.settle();
                }
                Ok(())
            }
            Step::Compact(kind) => {
                let done = self.open_bucket()?.compact(*kind);
                if self.is_done(done.map(drop), "compaction")? {
                    self.tally.count("compactions");
                    self.check_all()?;
                }
                Ok(())
            }
            Step::Hold { meanwhile, is_backed_up } => self.hold(meanwhile, *is_backed_up),
            Step::Close => self.close().and_then(|_| self.restart()),
            Step::Kill => {
                self.tally.count("kills");
                self.restart()
            }
            Step::PowerLoss { calls, image, again } => {
                let at = self.disk.op_count() + calls;
                self.disk.fail(at, Fault::PowerLoss);
                self.excuse.lose_power(at, *image, *again);
                Ok(())
            }
            Step::Fail { calls, fault, is_lasting } => {
                self.faults.fail(&self.disk, *calls, *fault, *is_lasting);
                self.excuse.is_faulty = true;
                self.was_faulty = true;
                Ok(())
            }
            Step::FailRead { reads } => {
                self.faults.fail_read(&self.disk, *reads);
                self.excuse.is_faulty = true;
                self.was_faulty = true;
                Ok(())
            }
            Step::Full { room } => {
                self.excuse.fill(&self.disk, *room);
                Ok(())
            }
            Step::Relief => {
                self.relieve();
                Ok(())
            }
            Step::Rot { place, bit } => self.rot(*place, *bit),
            Step::Clock { seconds } => {
                self.move_clock(*seconds);
                self.tally.count("jumps of the clock");
                Ok(())
            }
            Step::Second => self.second(),
        }
    }

    /// True if there was a reason to fail.
    fn is_excused(&mut self, error: &Error) -> bool {
        match error {
            Error::NoSpace => {
                if self.excuse.limit.is_some() && !self.excuse.is_faulty {
                    self.tally.count("full disks");
                }
                self.excuse.covers_full()
            }
            Error::Io { .. } | Error::Stopped(_) => self.excuse.covers_failure(),
            _ => false,
        }
    }

    fn move_clock(&mut self, seconds: i64) {
        let by = seconds.saturating_mul(SECOND.cast_signed());
        self.env.set(self.env.unix_ns().saturating_add_signed(by));
        self.latest = self.latest.max(self.env.unix_ns());
    }

    /// Nothing fails any more, and there is room.
    fn relieve(&mut self) {
        if self.disk.len().is_ok() {
            self.faults.count(&self.disk, false, &mut self.tally);
            self.faults.clear();
            self.disk.clear_faults();
            self.disk.set_capacity(None);
            self.excuse.relieve();
        }
    }

    fn commit(&mut self, changes: &[Change], durability: Durability) -> Checked {
        let mut batch = Batch::new();
        for change in changes {
            let key = self.plan.key(change.key);
            match change.value {
                None => batch.delete(key),
                Some(value) => match value.ttl {
                    None => batch.put(key, value.bytes()),
                    Some(ttl) => {
                        let ttl = std::time::Duration::from_secs(u64::from(ttl));
                        batch.put_for(key, value.bytes(), ttl)
                    }
                },
            };
        }
        let at = self.now();
        match self.open_bucket()?.commit_with(batch, durability) {
            Ok(()) => {
                self.tally.count("commits");
                self.model.commit(changes, at, durability != Durability::Relaxed);
                Ok(())
            }
            Err(Error::NoSpace) if self.is_excused(&Error::NoSpace) => {
                self.tally.count("commits without room");
                Ok(())
            }
            Err(error) if self.is_excused(&error) => {
                self.tally.count("commits that failed");
                self.model.doubt(changes, at);
                let mut another = Batch::new();
                another.put(self.plan.key(0), b"another");
                match self.open_bucket()?.commit_with(another, Durability::Relaxed) {
                    Ok(()) => Err("a commit is taken after one that failed".to_owned()),
                    Err(_) => self.restart(),
                }
            }
            Err(error) => Err(format!("a commit fails: {error}")),
        }
    }

    /// True if something was done. If it was not, for a good reason, the bucket is opened again.
    fn is_done(&mut self, done: kvb::Result<()>, what: &str) -> Checked<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(error) if self.is_excused(&error) => {
                self.tally.count("other calls that failed");
                self.restart()?;
                Ok(false)
            }
            Err(error) => Err(format!("a {what} fails: {error}")),
        }
    }

    /// Closes the bucket as it should be.
    fn close(&mut self) -> Checked {
        let Some(bucket) = self.bucket.take().and_then(Arc::into_inner) else { return Ok(()) };
        match bucket.close() {
            Ok(()) => {
                self.model.settle();
                Ok(())
            }
            Err(error) if self.is_excused(&error) => Ok(()),
            Err(error) => Err(format!("a close fails: {error}")),
        }
    }

    /// The process ends, by itself or with the power. True if power is gone.
    fn die(&mut self) -> bool {
        let is_off = self.disk.len().is_err();
        self.faults.count(&self.disk, is_off, &mut self.tally);
        let left = if is_off {
            let image = self.excuse.take_image();
            let trace = self.disk.trace();
            let keep = match image % 8 {
                0 => Keep::None,
                1 => Keep::All,
                2 => Keep::OnlyLast,
                _ => Keep::Random(image),
            };
            self.tally.count("power losses");
            SimDisk::from_image(trace.image(trace.len(), keep))
        } else {
            self.disk.after_death()
        };
        // What a bucket does when it is dropped was not done.
        let calls = self.disk.op_count();
        self.disk.power_off();
        self.bucket = None;
        self.disk = left;
        self.disk.set_limit(self.excuse.limit);
        if let Some(at) = self.excuse.begin_anew(calls) {
            self.disk.fail(at, Fault::PowerLoss);
        }
        if self.faults.begin_anew(&self.disk) {
            self.excuse.is_faulty = true;
            self.was_faulty = true;
        }
        is_off
    }

    /// Begins anew with what there is on the disk, and checks that it is what should be there.
    fn restart(&mut self) -> Checked {
        let mut is_power_lost = false;
        for _ in 0..OPENS_MAX {
            is_power_lost |= self.die();
            self.move_clock(1);
            match Bucket::open_on(self.handle(), self.env(), self.plan.options()) {
                Ok(bucket) => {
                    self.bucket = Some(Arc::new(bucket));
                    self.tally.count("recoveries");
                    return self.check_recovered(is_power_lost);
                }
                Err(error) if self.is_excused(&error) => {
                    self.tally.count("recoveries cut off");
                    if matches!(error, Error::NoSpace) {
                        self.relieve();
                    }
                }
                Err(error) => return Err(format!("cannot be opened: {error}")),
            }
        }
        Err("cannot be opened, however often".to_owned())
    }

    fn check_recovered(&mut self, is_power_lost: bool) -> Checked {
        let was_faulty = std::mem::take(&mut self.was_faulty);
        let report = self.open_bucket()?.mount_report();
        let is_rebuilt = report.index_rebuilt || report.table_rebuilt || report.runs_rebuilt > 0;
        if is_rebuilt && !was_faulty {
            return Err(format!("something had to be made again: {report:?}"));
        }
        if self.tally.of("recoveries").is_multiple_of(VERIFIED) {
            self.verify()?;
        }
        let found = self.found(self.open_bucket()?.scan([]))?;
        let (keys, now) = (self.plan.keys, self.now());
        let before = self.model.visible();
        match self.model.recover(&found, keys, now, is_power_lost) {
            Some(0) => Ok(()),
            Some(_) => {
                self.tally.count("recoveries without what was not durable");
                Ok(())
            }
            None => {
                let key = before.differs(&found, keys, now);
                let found = key.map(|key| found.get(&key).map(|found| found.value.len()));
                Err(format!(
                    "no prefix of the commits explains what is found: key {key:?}, found {found:?}"
                ))
            }
        }
    }

    /// Looks at every byte of what was recovered.
    fn verify(&mut self) -> Checked {
        let looked = kvb::verify_on(self.handle(), self.env(), self.plan.options(), &mut |_| {});
        match looked {
            Ok(found) if found.is_sound() => {
                self.tally.count("verifications");
                Ok(())
            }
            // What an image does not know yet may be known in memory: lookups tell.
            Ok(found) if found.findings.iter().all(|one| one.severity != Severity::Damage) => {
                self.tally.count("verifications with findings about the index");
                self.check_lookups()
            }
            Ok(found) => Err(format!("something is wrong after a recovery: {:?}", found.findings)),
            Err(error) if self.is_excused(&error) => Ok(()),
            Err(error) => Err(format!("a verification fails: {error}")),
        }
    }

    /// Every row that a scan shows is found by its key, too.
    fn check_lookups(&self) -> Checked {
        let bucket = self.open_bucket()?;
        for (key, row) in self.found(bucket.scan([]))? {
            let found = bucket.get(self.plan.key(key));
            let found = found.map_err(|error| format!("a lookup fails: key {key}: {error}"))?;
            if found.as_deref() != Some(&row.value[..]) {
                return Err(format!("a lookup is wrong behind a recovery: key {key}"));
            }
        }
        Ok(())
    }

    /// Holds a snapshot, which must not change.
    fn hold(&mut self, meanwhile: &[Step], is_backed_up: bool) -> Checked {
        let Some(bucket) = self.bucket.clone() else { return Err("no bucket is open".to_owned()) };
        let (rows, now) = (self.model.visible(), self.now());
        let snapshot = bucket.snapshot();
        for step in meanwhile {
            self.step(step)?;
            if !self.bucket.as_ref().is_some_and(|open| Arc::ptr_eq(open, &bucket)) {
                // The process died, and the snapshot with it.
                return Ok(());
            }
        }
        if let Some(key) = rows.differs(&self.found(snapshot.scan([]))?, self.plan.keys, now) {
            return Err(format!("a snapshot is wrong: key {key}"));
        }
        self.tally.count("snapshots");
        if !is_backed_up {
            return Ok(());
        }
        let (target, options) = (Arc::new(SimDisk::new()), self.plan.options());
        let copy: Arc<dyn Disk> = Arc::<SimDisk>::clone(&target);
        let done = snapshot.backup_on(copy, self.env(), options.clone(), &mut |_| {});
        if !self.is_done(done.map(drop), "backup")? {
            return Ok(());
        }
        let copy = Bucket::open_on(target, self.env(), options);
        let copy = copy.map_err(|error| format!("a backup cannot be opened: {error}"))?;
        self.tally.count("backups");
        match rows.differs(&self.found(copy.scan([]))?, self.plan.keys, self.now()) {
            Some(key) => Err(format!("a backup is wrong: key {key}")),
            None => Ok(()),
        }
    }

    /// Everything a scan finds.
    fn found(&self, scan: Scan<'_>) -> Checked<BTreeMap<u16, Found>> {
        let mut found = BTreeMap::new();
        for row in scan {
            let row = row.map_err(|error| format!("a scan fails: {error}"))?;
            let (value, deadline) = (row.value().to_vec(), row.expires_unix_ns());
            found.insert(self.number(&row)?, Found { value, deadline });
        }
        Ok(found)
    }

    fn number(&self, row: &Row<'_>) -> Checked<u16> {
        self.plan.number(row.key()).ok_or_else(|| format!("a scan finds the key {:?}", row.key()))
    }

    /// Compares all rows, and each key by itself.
    fn check_all(&self) -> Checked {
        let rows = self.model.visible();
        let found = self.found(self.open_bucket()?.scan([]))?;
        if let Some(key) = rows.differs(&found, self.plan.keys, self.now()) {
            return Err(format!("a scan is wrong: key {key}"));
        }
        let keys: Vec<u16> = (0..self.plan.keys).collect();
        self.look(&keys)
    }

    fn look(&self, keys: &[u16]) -> Checked {
        let rows = self.model.visible();
        for key in keys {
            let found = self.open_bucket()?.get(self.plan.key(*key));
            let found = found.map_err(|error| format!("a lookup fails: key {key}: {error}"))?;
            is_right(&rows.expect(*key, self.now()), found.as_deref())
                .then_some(())
                .ok_or_else(|| format!("a lookup is wrong: key {key}"))?;
        }
        Ok(())
    }

    fn scan(&self, is_reverse: bool) -> Checked {
        let mut keys = Vec::new();
        let mut note = |row: kvb::Result<Row<'_>>| -> Checked {
            keys.push(row.map_err(|error| format!("a scan fails: {error}"))?.key().to_vec());
            Ok(())
        };
        let mut scan = self.open_bucket()?.scan([]);
        match is_reverse {
            true => scan.rev().try_for_each(&mut note)?,
            false => scan.try_for_each(&mut note)?,
        }
        if is_reverse {
            keys.reverse();
        }
        match keys.is_sorted() {
            true => self.check_all(),
            false => Err("a scan is out of order".to_owned()),
        }
    }

    /// Flips a bit of the closed file and looks at what is said. Then all is well again.
    fn rot(&mut self, place: u64, bit: u8) -> Checked {
        if self.excuse.covers_failure() {
            return Ok(());
        }
        self.close()?;
        let mut bytes = self.disk.to_bytes();
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let at = place.checked_rem(len).and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
        self.tally.count("flipped bits");
        let rotten = Arc::new(SimDisk::from_image(bytes));
        if let Ok(bucket) = Bucket::open_on(rotten, self.env(), self.plan.options()) {
            self.check_rotten(&bucket).map_err(|what| format!("{what}; byte {at} was flipped"))?;
        } else {
            self.tally.count("flipped bits that refuse the open");
        }
        self.restart()
    }

    fn check_rotten(&self, bucket: &Bucket) -> Checked {
        let rows = self.model.visible();
        for key in 0..self.plan.keys {
            match bucket.get(self.plan.key(key)) {
                Err(Error::Corrupt(_)) => {}
                Err(error) => return Err(format!("a lookup fails: key {key}: {error}")),
                Ok(found) if is_right(&rows.expect(key, self.now()), found.as_deref()) => {}
                Ok(_) => return Err(format!("a lookup is wrong: key {key}")),
            }
        }
        let (mut shown, mut is_told) = (BTreeSet::new(), false);
        for row in bucket.scan([]) {
            match row {
                Err(Error::Corrupt(_)) => is_told = true,
                Err(error) => return Err(format!("a scan fails: {error}")),
                Ok(row) => {
                    let key = self.number(&row)?;
                    if !is_right(&rows.expect(key, self.now()), Some(row.value())) {
                        return Err(format!("a scan is wrong: key {key}"));
                    }
                    shown.insert(key);
                }
            }
        }
        let is_left_out =
            |key: &u16| !shown.contains(key) && !is_right(&rows.expect(*key, self.now()), None);
        match (0..self.plan.keys).find(is_left_out) {
            Some(key) if !is_told => {
                Err(format!("a scan leaves a key out without a word: key {key}"))
            }
            _ => Ok(()),
        }
    }

    /// Others open the bucket.
    fn second(&mut self) -> Checked {
        if self.excuse.covers_failure() {
            return Ok(());
        }
        self.tally.count("second openers");
        match Bucket::open_on(self.handle(), self.env(), self.plan.options()) {
            Err(Error::Locked { .. }) => {}
            Err(error) => {
                return Err(format!("a second writer is refused for something else: {error}"));
            }
            Ok(_) => return Err("a second writer is let in".to_owned()),
        }
        let reader = Reader::open_on_with(self.handle(), self.env(), self.plan.options());
        let reader = reader.map_err(|error| format!("a reader fails: {error}"))?;
        let rows = self.model.visible();
        for key in 0..self.plan.keys {
            let found = reader.get(self.plan.key(key));
            let found = found.map_err(|error| format!("a reader fails: key {key}: {error}"))?;
            if !is_right(&rows.expect(key, self.now()), found.as_deref()) {
                return Err(format!("a reader is wrong: key {key}"));
            }
        }
        Ok(())
    }
}

fn is_right(expected: &Expected, found: Option<&[u8]>) -> bool {
    match expected {
        Expected::Nothing => found.is_none(),
        Expected::Value(value) => found.is_some_and(|found| *found == value.bytes()),
        Expected::Either(value) => found.is_none_or(|found| *found == value.bytes()),
    }
}
