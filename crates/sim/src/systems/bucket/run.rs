//! A history as it runs.
//!
//! Invariants
//! - An error needs an excuse: a call that was made to fail, power that is gone, a disk that is full. Everything else a
//!   bucket says is right or a failure.
//! - After a commit that failed the bucket is opened again before anything else happens, as its documentation asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use host::{Disk, Env, Fault, Keep, ManualEnv, SimDisk};
use kvb::{Batch, Bucket, Durability, Error, Reader, Row};

use super::model::{Change, Expected, Found, Model, Span};
use super::plan::Plan;
use super::step::Step;
use crate::systems::excuse::Excuse;
use crate::{Failure, Tally};

/// Where the wall clock begins.
const START: u64 = 20_000 * 86_400 * 1_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// How often a bucket may have to be opened until it is open.
const OPENS_MAX: usize = 8;

type Checked<T = ()> = Result<T, String>;

pub(crate) struct Run {
    plan: Plan,
    disk: SimDisk,
    env: Arc<ManualEnv>,
    /// The latest the wall clock ever was.
    latest: u64,
    bucket: Option<Bucket>,
    model: Model,
    excuse: Excuse,
    /// A call failed, or was to fail, since the last recovery. Without that, nothing that is derived is ever lost.
    was_faulty: bool,
    tally: Tally,
}

fn is_excused(excuse: &Excuse, error: &Error) -> bool {
    match error {
        Error::NoSpace => excuse.covers_full(),
        Error::Io { .. } | Error::Stopped(_) => excuse.covers_failure(),
        _ => false,
    }
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
            was_faulty: false,
            tally: Tally::default(),
        }
    }

    /// Runs a history, and in the end everything that was durable must be there.
    pub(crate) fn all(mut self, steps: &[Step]) -> Result<Tally, Failure> {
        let last = steps.len().saturating_sub(1);
        let failure = |step| move |what| Failure { step, what };
        let created = Bucket::create_on(self.handle(), self.env(), self.plan.options());
        self.bucket = Some(created.map_err(|error| Failure { step: 0, what: error.to_string() })?);
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
        self.bucket.as_ref().ok_or_else(|| "no bucket is open".to_owned())
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
                let at = self.disk.op_count() + calls;
                match is_lasting {
                    true => self.disk.fail_from(at, *fault),
                    false => self.disk.fail(at, *fault),
                }
                self.excuse.is_faulty = true;
                self.was_faulty = true;
                Ok(())
            }
            Step::FailRead { reads } => {
                self.disk.fail_read(self.disk.read_count() + reads, Fault::Eio);
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

    fn move_clock(&mut self, seconds: i64) {
        let by = seconds.saturating_mul(SECOND.cast_signed());
        self.env.set(self.env.unix_ns().saturating_add_signed(by));
        self.latest = self.latest.max(self.env.unix_ns());
    }

    /// Nothing fails any more, and there is room.
    fn relieve(&mut self) {
        if self.disk.len().is_ok() {
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
            Err(Error::NoSpace) if is_excused(&self.excuse, &Error::NoSpace) => {
                self.tally.count("commits without room");
                Ok(())
            }
            Err(error) if is_excused(&self.excuse, &error) => {
                self.tally.count("commits that failed");
                self.model.doubt(changes, at);
                let mut another = Batch::new();
                another.put(self.plan.key(0), b"another");
                match self.open_bucket()?.commit_with(another, Durability::Relaxed) {
                    Ok(()) => Err("a commit is taken after one that failed".to_owned()),
                    Err(_) => self.restart(),
                }
            }
            Err(error) => Err(format!("a commit: {error}")),
        }
    }

    /// True if something was done. If it was not, for a good reason, the bucket is opened again.
    fn is_done(&mut self, done: kvb::Result<()>, what: &str) -> Checked<bool> {
        match done {
            Ok(()) => Ok(true),
            Err(error) if is_excused(&self.excuse, &error) => {
                self.tally.count("other calls that failed");
                self.restart()?;
                Ok(false)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    /// Closes the bucket as it should be.
    fn close(&mut self) -> Checked {
        let Some(bucket) = self.bucket.take() else { return Ok(()) };
        match bucket.close() {
            Ok(()) => {
                self.model.settle();
                Ok(())
            }
            Err(error) if is_excused(&self.excuse, &error) => Ok(()),
            Err(error) => Err(format!("close: {error}")),
        }
    }

    /// The process ends, by itself or with the power. True if power is gone.
    fn die(&mut self) -> bool {
        let is_off = self.disk.len().is_err();
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
                    self.bucket = Some(bucket);
                    self.tally.count("recoveries");
                    return self.check_recovered(is_power_lost);
                }
                Err(error) if is_excused(&self.excuse, &error) => {
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
        let found = self.found()?;
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
                Err(format!("no prefix of the commits explains key {key:?}, found {found:?}"))
            }
        }
    }

    /// Everything a scan finds.
    fn found(&self) -> Checked<BTreeMap<u16, Found>> {
        let mut found = BTreeMap::new();
        for row in self.open_bucket()?.scan([]) {
            let row = row.map_err(|error| format!("a scan: {error}"))?;
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
        let found = self.found()?;
        if let Some(key) = rows.differs(&found, self.plan.keys, self.now()) {
            return Err(format!("a scan is wrong about key {key}"));
        }
        let keys: Vec<u16> = (0..self.plan.keys).collect();
        self.look(&keys)
    }

    fn look(&self, keys: &[u16]) -> Checked {
        let rows = self.model.visible();
        for key in keys {
            let found = self.open_bucket()?.get(self.plan.key(*key));
            let found = found.map_err(|error| format!("a lookup of key {key}: {error}"))?;
            is_right(&rows.expect(*key, self.now()), found.as_deref())
                .then_some(())
                .ok_or_else(|| format!("a lookup of key {key} is wrong"))?;
        }
        Ok(())
    }

    fn scan(&self, is_reverse: bool) -> Checked {
        let mut keys = Vec::new();
        let mut note = |row: kvb::Result<Row<'_>>| -> Checked {
            keys.push(row.map_err(|error| format!("a scan: {error}"))?.key().to_vec());
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
            self.check_rotten(&bucket).map_err(|what| format!("byte {at} flipped: {what}"))?;
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
                Err(error) => return Err(format!("a lookup of key {key}: {error}")),
                Ok(found) if is_right(&rows.expect(key, self.now()), found.as_deref()) => {}
                Ok(_) => return Err(format!("a lookup of key {key} is wrong")),
            }
        }
        let (mut shown, mut is_told) = (BTreeSet::new(), false);
        for row in bucket.scan([]) {
            match row {
                Err(Error::Corrupt(_)) => is_told = true,
                Err(error) => return Err(format!("a scan: {error}")),
                Ok(row) => {
                    let key = self.number(&row)?;
                    if !is_right(&rows.expect(key, self.now()), Some(row.value())) {
                        return Err(format!("a scan is wrong about key {key}"));
                    }
                    shown.insert(key);
                }
            }
        }
        let is_left_out =
            |key: &u16| !shown.contains(key) && !is_right(&rows.expect(*key, self.now()), None);
        match (0..self.plan.keys).find(is_left_out) {
            Some(key) if !is_told => Err(format!("a scan leaves key {key} out without a word")),
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
            Err(error) => return Err(format!("a second writer: {error}")),
            Ok(_) => return Err("a second writer is let in".to_owned()),
        }
        let reader = Reader::open_on_with(self.handle(), self.env(), self.plan.options());
        let reader = reader.map_err(|error| format!("a reader: {error}"))?;
        let rows = self.model.visible();
        for key in 0..self.plan.keys {
            let found = reader.get(self.plan.key(key));
            let found = found.map_err(|error| format!("a reader, key {key}: {error}"))?;
            if !is_right(&rows.expect(key, self.now()), found.as_deref()) {
                return Err(format!("a reader is wrong about key {key}"));
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
