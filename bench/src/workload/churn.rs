//! Churn: overwrites, deletes and inserts in small durable commits, for several times the keys.
//!
//! The number of live records stays the same, so what the store takes on the disk can be compared
//! with what is live at any moment.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Run, SAMPLE};
use crate::engine::{Engine, Phase, Reader, Span};
use crate::machine;
use crate::record::{Change, KEY_LEN, Probe, Record, value_len};
use crate::times::Times;

/// Of each commit, this many hundredths are deletes, and as many inserts of new keys; the rest are
/// overwrites.
const DELETE_PERCENT: usize = 15;
/// How often the disk use is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Bytes that a record of kvb takes besides its key and its value.
const KVB_FRAME: usize = 48;

/// Changes, made one commit at a time, and what must be there after them.
#[derive(Default)]
struct Changes {
    /// The version of each record that was ever written, by index.
    versions: Vec<u64>,
    commits: u64,
    /// Bytes of keys and values written, and how many records.
    bytes: u64,
    records: u64,
    last_deleted: Vec<Probe>,
}

impl Run<'_> {
    pub(super) fn churn<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let engine = E::open(&plan.dir, Phase::Load).context("create")?;
        self.load(&engine).context("load")?;
        machine::rest()?;
        let raw_us = machine::raw_sync_us(&plan.dir)?;
        let before = (machine::written_bytes()?, machine::device_bytes(&plan.dir)?);
        let mut changes = Changes { versions: vec![0; plan.keys], ..Changes::default() };
        plan.say("churn");
        let looked = with_looks(&plan.dir, || self.change(&engine, &mut changes))?;
        self.set_times(looked.result)?;
        machine::rest()?;
        let written = machine::written_bytes()? - before.0;
        machine::settle(&plan.dir)?;
        let device = machine::device_bytes(&plan.dir)? - before.1;
        self.set("churn_raw_us", (raw_us + machine::raw_sync_us(&plan.dir)?) / 2.0);
        let disk_max = looked.disk_max.max(machine::disk_bytes(&plan.dir)?);
        self.set_space("max", disk_max);
        self.set_space("end", machine::disk_bytes(&plan.dir)?);
        self.set("churn_written", written as f64 / changes.bytes as f64);
        self.set("churn_device", device as f64 / changes.bytes as f64);
        if self.is_kvb() {
            let bytes = changes.bytes + changes.records * KVB_FRAME as u64;
            self.set("churn_written_record", written as f64 / bytes as f64);
        }
        self.check_churned(&engine, &changes).context("check")?;
        plan.say("compaction");
        let start = Instant::now();
        let engine = engine.compact(&plan.dir).context("compact")?;
        self.set("churn_compact_s", start.elapsed().as_secs_f64());
        machine::rest()?;
        self.set_space("compact", machine::disk_bytes(&plan.dir)?);
        self.check_churned(&engine, &changes).context("check after compaction")?;
        engine.close().context("close")
    }

    fn is_kvb(&self) -> bool {
        self.plan.engine.starts_with("kvb")
    }

    /// All commits; how long each took, in microseconds.
    fn change<E: Engine>(&mut self, engine: &E, changes: &mut Changes) -> Result<Vec<f64>> {
        let count = self.plan.keys * self.plan.churn / self.plan.churn_batch;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let change = self.next_change(changes);
            let start = Instant::now();
            engine.write(&change)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
            changes.last_deleted = change.deleted;
        }
        Ok(times)
    }

    fn next_change(&mut self, changes: &mut Changes) -> Change {
        let batch = self.plan.churn_batch;
        let replaced = batch * DELETE_PERCENT / 100;
        changes.commits += 1;
        let deleted = self.live.remove(&mut self.rng, replaced);
        let overwritten = batch - 2 * replaced;
        let mut put = Vec::with_capacity(overwritten + replaced);
        for _ in 0..overwritten {
            let index = self.live.probe(&mut self.rng).index;
            changes.versions[index as usize] = changes.commits;
            put.push(Record::version(index, changes.commits));
        }
        put.extend(self.live.create(replaced));
        changes.versions.resize(changes.versions.len() + replaced, 0);
        changes.bytes += (deleted.len() * KEY_LEN + put.len() * (KEY_LEN + value_len())) as u64;
        changes.records += (deleted.len() + put.len()) as u64;
        Change { deleted, put }
    }

    fn set_times(&mut self, times: Vec<f64>) -> Result<()> {
        let times = Times::new(times)?;
        self.set("churn_per_s", self.plan.churn_batch as f64 * 1e6 / times.mean());
        self.set("churn_p50_us", times.at(0.50));
        self.set("churn_p99_us", times.at(0.99));
        self.set("churn_p999_us", times.at(0.999));
        self.set("churn_max_us", times.at(1.0));
        Ok(())
    }

    /// Disk use against the bytes of live keys and values, and of live records of kvb.
    fn set_space(&mut self, state: &str, disk: u64) {
        let live = self.live.indices().len();
        let ratio = |bytes: usize| disk as f64 / (live * bytes) as f64;
        let payload = KEY_LEN + value_len();
        self.set(&format!("churn_space_{state}"), ratio(payload));
        if self.is_kvb() {
            self.set(&format!("churn_space_{state}_record"), ratio(payload + KVB_FRAME));
        }
    }

    /// Looks up a sample of what must be there and what must not, and counts all rows.
    fn check_churned<E: Engine>(&mut self, engine: &E, changes: &Changes) -> Result<()> {
        let mut reader = engine.reader()?;
        for _ in 0..SAMPLE {
            let probe = self.live.probe(&mut self.rng);
            let version = changes.versions[probe.index as usize];
            reader.get(&probe.key, |found| -> Result<()> {
                probe.check(found)?;
                let found = found.and_then(Record::version_of);
                ensure!(version == 0 || found == Some(version), "an old version came back");
                Ok(())
            })??;
        }
        for probe in &changes.last_deleted {
            let is_there = reader.get(&probe.key, |found| found.is_some())?;
            ensure!(!is_there, "record {} was deleted and is still there", probe.index);
        }
        if E::IS_ORDERED {
            let mut rows = 0;
            reader.scan(Span::All, |_, _| rows += 1)?;
            let live = self.live.indices().len();
            ensure!(rows == live, "{rows} rows are there, not {live}");
        }
        Ok(())
    }
}

/// What some work gave, and the most that was on the disk meanwhile.
struct Looked<T> {
    result: T,
    disk_max: u64,
}

/// Does `work` while another thread looks at the disk.
fn with_looks<T>(dir: &Path, work: impl FnOnce() -> Result<T>) -> Result<Looked<T>> {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let looker = scope.spawn(move || look(dir, &is_done));
        let result = work();
        drop(done);
        let disk_max = looker.join().expect("no panics")?;
        Ok(Looked { result: result?, disk_max })
    })
}

fn look(dir: &Path, is_done: &Receiver<()>) -> Result<u64> {
    let mut disk_max = 0;
    loop {
        disk_max = disk_max.max(machine::disk_bytes(dir)?);
        if is_done.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
            return Ok(disk_max);
        }
    }
}
