//! Durable blocks: a few behind a rest, and as many as there is time for, so that what they leave
//! behind has to be cleaned up meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Run;
use crate::engine::{Engine, Reader};
use crate::machine;
use crate::record::{Probe, batch};
use crate::times::Times;

impl Run<'_> {
    /// As many blocks as the plan says.
    pub(super) fn blocks<E: Engine>(&mut self, engine: &E) -> Result<()> {
        self.plan.say("durable blocks");
        let blocks = self.plan.blocks;
        let times = self.apply_while(engine, |count| count < blocks)?;
        self.set("block_mean_ms", times.mean());
        self.set("block_p50_ms", times.at(0.50));
        self.set("block_p99_ms", times.at(0.99));
        self.set("block_per_s", 1e3 / times.mean());
        Ok(())
    }

    /// Blocks one after the other for so many seconds, on a store of its own.
    pub(super) fn long_blocks<E: Engine>(&mut self) -> Result<()> {
        let engine: E = self.create()?;
        let engine = self.load(engine).context("load")?;
        self.plan.say("durable blocks without a rest");
        let raw_us = machine::raw_sync_us(&self.plan.dir)?;
        let end = Instant::now() + Duration::from_secs(self.plan.seconds);
        let times = self.apply_while(&engine, |_| Instant::now() < end)?;
        self.set("long_raw_us", (raw_us + machine::raw_sync_us(&self.plan.dir)?) / 2.0);
        self.set("long_block_per_s", 1e3 / times.mean());
        self.set("long_block_p50_ms", times.at(0.50));
        self.set("long_block_p99_ms", times.at(0.99));
        self.set("long_block_p999_ms", times.at(0.999));
        self.set("long_block_max_ms", times.at(1.0));
        engine.close().context("close")
    }

    /// Applies blocks while `goes_on` says so of how many there were; how long each took, in milliseconds.
    fn apply_while<E: Engine>(
        &mut self,
        engine: &E,
        goes_on: impl Fn(usize) -> bool,
    ) -> Result<Times> {
        let mut times = Vec::new();
        let mut last_spent: Vec<Probe> = Vec::new();
        while goes_on(times.len()) {
            let block = self.live.block(&mut self.rng, batch());
            let start = Instant::now();
            engine.apply(&block)?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            last_spent = block.spent;
        }
        let mut reader = engine.reader()?;
        for probe in last_spent {
            let found = reader.get(&probe.key, |found| found.is_some())?;
            ensure!(!found, "record {} was deleted and is still there", probe.index);
        }
        Times::new(times)
    }
}
