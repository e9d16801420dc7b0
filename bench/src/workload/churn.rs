//! Churn: overwrites, deletes and inserts in small durable commits, for several times the keys.
//!
//! The number of live records stays the same, so what the store takes on the disk can be compared
//! with what is live at any moment.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::look::{Most, with_looks};
use super::{Run, SAMPLE, touched};
use crate::engine::{Engine, Reader, Span};
use crate::machine;
use crate::record::{Change, KEY_LEN, Probe, Record, value_len};
use crate::times::Times;

/// Of each commit, this many hundredths are deletes, and as many inserts of new keys; the rest are
/// overwrites.
const DELETE_PERCENT: usize = 15;
/// Bytes that a record of kvb takes besides its key and its value.
const KVB_FRAME: usize = 48;
/// A churn ends after so many times the plan's seconds, whatever it has come to: who is slow has shown by then how slow.
const TIMES: u64 = 3;

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
    /// None yet, on so many records as they were loaded, with room for `more` that will be new.
    pub(super) fn new(records: usize, more: usize) -> Self {
        let mut versions = touched(records + more);
        versions.resize(records, 0);
        Self { versions, ..Self::default() }
    }
}

impl Run<'_> {
    pub(super) fn churn<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let commits = plan.keys * plan.churn / plan.churn_batch;
        let mut changes = Changes::new(plan.keys, commits * self.replaced());
        let mut times = touched(commits);
        // What the benchmark itself holds is in it.
        self.anon_start = machine::anon_bytes()?;
        let engine: E = self.create()?;
        let engine = self.load(engine).context("load")?;
        let raw_us = machine::raw_sync_us(&plan.dir)?;
        let before = (machine::written_bytes()?, machine::device_bytes(&plan.dir)?);
        let space_before = engine.space()?;
        plan.say("churn");
        let change = || self.change(&engine, &mut changes, &mut times, commits);
        let ((), most) = with_looks(&plan.dir, &engine, change)?;
        self.set_times(times)?;
        machine::rest()?;
        let written = machine::written_bytes()? - before.0;
        machine::settle(&plan.dir)?;
        let device = machine::device_bytes(&plan.dir)? - before.1;
        self.set("churn_raw_us", (raw_us + machine::raw_sync_us(&plan.dir)?) / 2.0);
        self.set("churn_written", written as f64 / changes.bytes as f64);
        self.set("churn_device", device as f64 / changes.bytes as f64);
        if self.is_kvb() {
            let bytes = changes.bytes + changes.records * KVB_FRAME as u64;
            self.set("churn_written_record", written as f64 / bytes as f64);
        }
        self.set_most(&most)?;
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
        self.set_compacted(&engine)?;
        self.check_churned(&engine, &changes).context("check after compaction")?;
        engine.close().context("close")
    }

    /// What was taken at most while the churn went on, and what is taken at rest behind it.
    fn set_most(&mut self, most: &Most) -> Result<()> {
        let disk = machine::disk_bytes(&self.plan.dir)?;
        self.set_space("max", most.disk.max(disk));
        self.set_space("end", disk);
        let anon = |bytes: u64| bytes.saturating_sub(self.anon_start) as f64 / 1e6;
        let (highest, end) = (anon(most.anon), anon(machine::anon_bytes()?));
        self.set("churn_anon_max_mb", highest);
        self.set("churn_anon_end_mb", end);
        if let Some(space) = most.space {
            self.set_per_record("churn_segments_max_record", space.segments);
        }
        if let Some(without_index) = most.without_index {
            self.set_per_record("churn_blocks_max_record", without_index);
        }
        Ok(())
    }

    /// What is taken after the full compaction.
    fn set_compacted<E: Engine>(&mut self, engine: &E) -> Result<()> {
        let disk = machine::disk_bytes(&self.plan.dir)?;
        self.set_space("compact", disk);
        if let Some(space) = engine.space()? {
            self.set_per_record("churn_segments_compact_record", space.segments);
            self.set_per_record("churn_blocks_compact_record", space.without_index(disk));
            let image = space.image as f64 / self.live.indices().len() as f64;
            self.set("churn_image_bytes_per_key", image);
            self.set("churn_images_bytes_per_key", 2.0 * image);
        }
        Ok(())
    }

    fn is_kvb(&self) -> bool {
        self.plan.engine.starts_with("kvb")
    }

    /// Records of each commit that are deleted; as many are new.
    fn replaced(&self) -> usize {
        self.plan.churn_batch * DELETE_PERCENT / 100
    }

    /// So many commits, or as many as there is time for; how long each took, in microseconds.
    fn change<E: Engine>(
        &mut self,
        engine: &E,
        changes: &mut Changes,
        times: &mut Vec<f64>,
        commits: usize,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(TIMES * self.plan.seconds);
        for _ in 0..commits {
            if Instant::now() > end {
                break;
            }
            let change = self.next_change(changes);
            let start = Instant::now();
            engine.write(&change)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
            changes.last_deleted = change.deleted;
        }
        Ok(())
    }

    /// The next commit, of which a part deletes, as large a part inserts, and the rest overwrites.
    pub(super) fn next_change(&mut self, changes: &mut Changes) -> Change {
        let replaced = self.replaced();
        changes.commits += 1;
        let deleted = self.live.remove(&mut self.rng, replaced);
        let overwritten = self.plan.churn_batch - 2 * replaced;
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

    /// So many bytes against those of live records of kvb.
    fn set_per_record(&mut self, name: &str, bytes: u64) {
        let record = KEY_LEN + value_len() + KVB_FRAME;
        let live = self.live.indices().len() * record;
        self.set(name, bytes as f64 / live as f64);
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
