//! Random gets, of what is there and of what is not, on one thread and on two.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fastrand::Rng;

use super::Run;
use crate::engine::{Engine, Reader};
use crate::machine;
use crate::record::{Live, Probe};

/// Probes made at a time, off the clock.
const CHUNK: usize = 1024;
/// Most gets of each reader off the clock, spread over all keys: caches of pages and blocks are full then, and who checks
/// long values when they are first read has checked them.
const WARM_MAX: usize = 300_000;
/// Keys that are never written, to choose from.
const MISSING: u64 = 1 << 32;

/// What is looked up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hit,
    Miss,
}

pub(super) struct Gets {
    /// On the clock, of each thread.
    pub count: usize,
    pub threads: usize,
    /// Off the clock before that, of each reader.
    pub warm: usize,
}

impl Run<'_> {
    pub(super) fn reads<E: Engine>(&mut self, engine: &E) -> Result<()> {
        let plan = self.plan;
        let all = [
            ("get", "get_per_s", Kind::Hit, 1),
            ("get2", "get2_per_s", Kind::Hit, 2),
            ("miss", "miss_per_s", Kind::Miss, 1),
            ("miss", "miss2_per_s", Kind::Miss, 2),
        ];
        for (workload, name, kind, threads) in all {
            if plan.wants(workload) {
                plan.say(&format!("{workload}, {threads} threads"));
                let warm = WARM_MAX.min(self.live.indices().len());
                let per_s = self.gets(engine, kind, &Gets { count: plan.gets, threads, warm })?;
                self.set(name, per_s);
            }
        }
        Ok(())
    }

    /// Random gets that must hit; the sum of the rates of all threads.
    pub(super) fn hits<E: Engine>(&mut self, engine: &E, gets: &Gets) -> Result<f64> {
        self.gets(engine, Kind::Hit, gets)
    }

    /// The reader that was warmed is the one that is timed: some have a cache for each.
    fn gets<E: Engine>(&mut self, engine: &E, kind: Kind, gets: &Gets) -> Result<f64> {
        let barrier = Barrier::new(gets.threads);
        let live = &self.live;
        let work = |mut rng: Rng| -> Result<(f64, u64)> {
            let warmed = warmed(engine, live, gets.warm);
            // Every thread must come to the barrier, whether or not its reader opens.
            barrier.wait();
            let mut reader = warmed?;
            let spent = match kind {
                Kind::Hit => {
                    timed_gets(&mut reader, gets.count, || live.probe(&mut rng), Probe::check)
                }
                Kind::Miss => {
                    let probe = || Probe::missing(rng.u64(..MISSING));
                    timed_gets(&mut reader, gets.count, probe, |_, found| {
                        ensure!(found.is_none(), "a key that was never written is there");
                        Ok(())
                    })
                }
            }?;
            // The memory counts what an open reader holds.
            Ok((gets.count as f64 / spent.as_secs_f64(), machine::anon_bytes()?))
        };
        let mut rngs: Vec<Rng> = (0..gets.threads).map(|_| self.rng.fork()).collect();
        let last = rngs.remove(0);
        let results: Result<Vec<_>> = std::thread::scope(|scope| {
            let others: Vec<_> = rngs.into_iter().map(|rng| scope.spawn(|| work(rng))).collect();
            let mine = work(last);
            let joined = others.into_iter().map(|other| other.join().expect("no panics"));
            std::iter::once(mine).chain(joined).collect()
        });
        let results = results?;
        let anon = results.iter().map(|(_, anon)| *anon).max().unwrap_or(0);
        self.set_memory(anon);
        Ok(results.iter().map(|(per_s, _)| per_s).sum())
    }

    /// Overwrites the memory measure, so that the last read phase counts.
    fn set_memory(&mut self, anon: u64) {
        self.set("anon_mb", anon.saturating_sub(self.anon_start) as f64 / 1e6);
    }
}

/// A reader that has looked up so many live records, each once: every so-manieth, in the order they were written, which
/// is no order of their keys.
fn warmed<'a, E: Engine>(engine: &'a E, live: &Live, count: usize) -> Result<E::Reader<'a>> {
    let mut reader = engine.reader()?;
    let all = live.indices();
    for number in 0..count {
        let probe = Probe::new(u64::from(all[number * all.len() / count]));
        reader.get(&probe.key, |found| probe.check(found))??;
    }
    Ok(reader)
}

/// Times `count` gets of what `probes` yields, each checked by `check`.
fn timed_gets<R: Reader>(
    reader: &mut R,
    count: usize,
    mut probes: impl FnMut() -> Probe,
    check: impl Fn(&Probe, Option<&[u8]>) -> Result<()>,
) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    for first in (0..count).step_by(CHUNK) {
        let chunk: Vec<Probe> = (first..count.min(first + CHUNK)).map(|_| probes()).collect();
        let start = Instant::now();
        for probe in &chunk {
            reader.get(&probe.key, |found| check(probe, found))??;
        }
        spent += start.elapsed();
    }
    Ok(spent)
}
