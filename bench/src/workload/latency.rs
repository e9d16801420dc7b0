//! Single durable puts while the store has work to do in the background.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::Run;
use crate::engine::{Engine, Space};
use crate::machine;
use crate::record::{Record, batch};
use crate::times::Times;

/// Of the keys, this part is overwritten after the load and before the puts, without waiting for
/// the disk, so that merges and compactions are due or under way when the puts begin.
const OVERWRITTEN_PART: usize = 2;
/// Of the puts, one in so many is of a new key, so that the index grows meanwhile; the others overwrite.
const NEW_PART: usize = 4;
/// Syncs to tell the slowest of a thousand by.
const RAW_SYNCS: u64 = 20_000;

impl Run<'_> {
    pub(super) fn latency<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let engine: E = self.open_busy()?;
        plan.say("durable puts with work in the background");
        let before = engine.space()?;
        let raw_us = machine::raw_sync_us(&plan.dir)?;
        let time = Duration::from_secs(plan.seconds);
        let mut times = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < time {
            let record = match times.len() % NEW_PART {
                0 => self.live.create(1).remove(0),
                _ => self.overwrite(2),
            };
            let start = Instant::now();
            engine.put(&record).context("put")?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        self.set_background("latency", before, engine.space()?);
        self.set("latency_raw_us", (raw_us + machine::raw_sync_us(&plan.dir)?) / 2.0);
        let times = Times::new(times)?;
        self.set("latency_per_s", 1e6 / times.mean());
        self.set("latency_p50_us", times.at(0.50));
        self.set("latency_p99_us", times.at(0.99));
        self.set("latency_p999_us", times.at(0.999));
        self.set("latency_max_us", times.at(1.0));
        engine.close().context("close")?;
        // What the device does when it has nothing else to do.
        self.set("latency_raw_p999_us", machine::raw_syncs(&plan.dir, RAW_SYNCS)?.at(0.999));
        Ok(())
    }

    /// What the engine did in the background meanwhile, if it can tell.
    pub(super) fn set_background(&mut self, of: &str, before: Option<Space>, now: Option<Space>) {
        if let Some((before, now)) = before.zip(now) {
            self.set(&format!("{of}_moved_mb"), (now.moved - before.moved) as f64 / 1e6);
            let checkpoints = now.checkpoints - before.checkpoints;
            self.set(&format!("{of}_checkpoints"), checkpoints as f64);
        }
    }

    /// A store with all keys that has work to do in the background.
    pub(super) fn open_busy<E: Engine>(&mut self) -> Result<E> {
        let plan = self.plan;
        let engine: E = self.create()?;
        self.load_batches(&engine).context("load")?;
        for _ in 0..plan.keys / OVERWRITTEN_PART / batch() {
            let records: Vec<Record> = (0..batch()).map(|_| self.overwrite(1)).collect();
            engine.load(&records).context("overwrite")?;
        }
        engine.finish_load(&plan.dir).context("sync")
    }

    /// A random live record with another value.
    fn overwrite(&mut self, version: u64) -> Record {
        Record::version(self.live.probe(&mut self.rng).index, version)
    }
}
