//! Churn: overwrites, deletes and inserts in small durable commits, for several times the keys.
//!
//! The number of live records stays the same, so what the store takes on the disk can be compared
//! with what is live at any moment.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Run, SAMPLE};
use crate::engine::{Engine, Phase, Reader, Space, Span};
use crate::machine;
use crate::record::{Change, KEY_LEN, Probe, Record, value_len};
use crate::times::Times;

/// Of each commit, this many hundredths are deletes, and as many inserts of new keys; the rest are
/// overwrites.
const DELETE_PERCENT: usize = 15;
/// How often the disk use is looked at, and at which of those looks an engine is asked what it
/// takes: that costs it some work.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const ASK_EVERY: usize = 8;
/// Bytes that a record of kvb takes besides its key and its value.
const KVB_FRAME: usize = 48;

/// Changes, made one commit at a time, and what must be there after them.
#[derive(Default)]
pub(super) struct Changes {
    /// The version of each record that was ever written, by index.
    versions: Vec<u64>,
    commits: u64,
    /// Bytes of keys and values written, and how many records.
    bytes: u64,
    records: u64,
    last_deleted: Vec<Probe>,
}

impl Changes {
    /// None yet, on so many records as they were loaded.
    pub(super) fn new(records: usize) -> Self {
        Self { versions: vec![0; records], ..Self::default() }
    }
}

impl Run<'_> {
    pub(super) fn churn<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let engine = E::open(&plan.dir, Phase::Load).context("create")?;
        self.load(&engine).context("load")?;
        machine::rest()?;
        let raw_us = machine::raw_sync_us(&plan.dir)?;
        let before = (machine::written_bytes()?, machine::device_bytes(&plan.dir)?);
        let space_before = engine.space()?;
        let mut changes = Changes::new(plan.keys);
        plan.say("churn");
        let looked = with_looks(&plan.dir, &engine, || self.change(&engine, &mut changes))?;
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
        if let Some(space) = looked.space_max {
            self.set_segments("max", space);
        }
        if let Some((before, now)) = space_before.zip(engine.space()?) {
            let part = |before: u64, now: u64| (now - before) as f64 / changes.bytes as f64;
            self.set("churn_logged", part(before.logged, now.logged));
            self.set("churn_moved", part(before.moved, now.moved));
        }
        // Before anything else reads: a scan may make an engine tidy up.
        self.scan_churned(&engine).context("scan")?;
        self.check_churned(&engine, &changes).context("check")?;
        plan.say("compaction");
        let start = Instant::now();
        let engine = engine.compact(&plan.dir).context("compact")?;
        self.set("churn_compact_s", start.elapsed().as_secs_f64());
        machine::rest()?;
        self.set_space("compact", machine::disk_bytes(&plan.dir)?);
        if let Some(space) = engine.space()? {
            self.set_segments("compact", space);
            let live = self.live.indices().len();
            self.set("churn_image_bytes_per_key", space.image as f64 / live as f64);
        }
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

    /// The next commit, of which a part deletes, as large a part inserts, and the rest overwrites.
    pub(super) fn next_change(&mut self, changes: &mut Changes) -> Change {
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

    /// Segments alone against the bytes of live records.
    fn set_segments(&mut self, state: &str, space: Space) {
        let record = KEY_LEN + value_len() + KVB_FRAME;
        let live = self.live.indices().len() * record;
        self.set(&format!("churn_segments_{state}_record"), space.segments as f64 / live as f64);
    }

    /// One scan of everything, as the churn left it.
    fn scan_churned<E: Engine>(&mut self, engine: &E) -> Result<()> {
        if !E::IS_ORDERED {
            return Ok(());
        }
        self.plan.say("full scan after the churn");
        let mut reader = engine.reader()?;
        let (mut rows, mut bytes) = (0, 0);
        let start = Instant::now();
        reader.scan(Span::All, |key, value| {
            rows += 1;
            bytes += key.len() + value.len();
        })?;
        let spent = start.elapsed();
        let live = self.live.indices().len();
        let is_whole = rows == live && bytes == live * (KEY_LEN + value_len());
        ensure!(is_whole, "{rows} rows of {bytes} bytes are there, not {live} rows");
        self.set("churn_scan_per_s", rows as f64 / spent.as_secs_f64());
        Ok(())
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

/// What some work gave, and the most that was taken meanwhile.
struct Looked<T> {
    result: T,
    disk_max: u64,
    /// What the engine said when its segments took the most.
    space_max: Option<Space>,
}

/// Does `work` while another thread looks at the disk.
fn with_looks<T, E: Engine>(
    dir: &Path,
    engine: &E,
    work: impl FnOnce() -> Result<T>,
) -> Result<Looked<T>> {
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let looker = scope.spawn(move || look(dir, engine, &is_done));
        let result = work();
        drop(done);
        let (disk_max, space_max) = looker.join().expect("no panics")?;
        Ok(Looked { result: result?, disk_max, space_max })
    })
}

fn look<E: Engine>(dir: &Path, engine: &E, is_done: &Receiver<()>) -> Result<(u64, Option<Space>)> {
    let mut disk_max = 0;
    let mut space_max: Option<Space> = None;
    for number in 0.. {
        disk_max = disk_max.max(machine::disk_bytes(dir)?);
        let is_last = is_done.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout);
        if is_last || number % ASK_EVERY == 0 {
            let largest = |space: &Space| space.segments;
            space_max = space_max.into_iter().chain(engine.space()?).max_by_key(largest);
        }
        if is_last {
            break;
        }
    }
    Ok((disk_max, space_max))
}
