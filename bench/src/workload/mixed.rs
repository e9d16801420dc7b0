//! Durable commits on one thread and random gets on another, while the store has work to do in the
//! background.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::Run;
use super::churn::Changes;
use crate::engine::{Engine, Reader};
use crate::machine;
use crate::record::Probe;
use crate::times::Times;

/// Gets of one reader; then it is renewed, so that it does not keep an old state for long.
const GETS_PER_READER: usize = 1000;

impl Run<'_> {
    pub(super) fn mixed<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let engine: E = self.open_busy()?;
        // What is read may be overwritten, which a check does not mind, but is never deleted.
        let kept = self.live.keep_half();
        ensure!(!kept.is_empty(), "too few keys");
        let rng = self.rng.fork();
        let mut changes = Changes::new(plan.keys, 0);
        let before = engine.space()?;
        let raw_us = machine::raw_sync_us(&plan.dir)?;
        plan.say("durable commits and gets with work in the background");
        let is_over = AtomicBool::new(false);
        let (commits, gets) = std::thread::scope(|scope| {
            let gets = scope.spawn(|| get_until(&engine, &kept, rng, &is_over));
            let commits = self.commit_for(&engine, &mut changes);
            is_over.store(true, Ordering::Relaxed);
            (commits, gets.join().expect("no panics"))
        });
        self.set_mixed("commit", commits.context("commit")?)?;
        self.set_mixed("get", gets.context("get")?)?;
        self.set("mixed_raw_us", (raw_us + machine::raw_sync_us(&plan.dir)?) / 2.0);
        self.set_background("mixed", before, engine.space()?);
        engine.close().context("close")
    }

    /// Commits for as long as the plan says; how long each took, in microseconds.
    fn commit_for<E: Engine>(&mut self, engine: &E, changes: &mut Changes) -> Result<Vec<f64>> {
        let time = Duration::from_secs(self.plan.seconds);
        let mut times = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < time {
            let change = self.next_change(changes);
            let start = Instant::now();
            engine.write(&change)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(times)
    }

    fn set_mixed(&mut self, what: &str, times: Vec<f64>) -> Result<()> {
        let times = Times::new(times)?;
        self.set(&format!("mixed_{what}_per_s"), 1e6 / times.mean());
        for (name, part) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)] {
            self.set(&format!("mixed_{what}_{name}_us"), times.at(part));
        }
        Ok(())
    }
}

/// Gets random records of `kept` until it is over; how long each took, in microseconds.
fn get_until<E: Engine>(
    engine: &E,
    kept: &[u32],
    mut rng: Rng,
    is_over: &AtomicBool,
) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let random = |_| Probe::new(u64::from(kept[rng.usize(..kept.len())]));
        let probes: Vec<Probe> = (0..GETS_PER_READER).map(random).collect();
        let mut reader = engine.reader()?;
        for probe in &probes {
            let start = Instant::now();
            reader.get(&probe.key, |found| probe.check(found))??;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times)
}
