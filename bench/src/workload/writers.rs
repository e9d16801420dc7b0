//! Durable puts of several threads, each of which waits for its own.
//!
//! They overwrite what is there, so that a quick engine is not left with more keys than a slow one.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;

use super::Run;
use crate::engine::Engine;
use crate::record::Record;

/// Threads that put at once.
const WRITERS: [(usize, &str); 6] = [
    (1, "writers1_per_s"),
    (2, "writers2_per_s"),
    (4, "writers4_per_s"),
    (8, "writers8_per_s"),
    (16, "writers16_per_s"),
    (32, "writers32_per_s"),
];
/// How long each number of threads puts.
const TIME: Duration = Duration::from_millis(1500);
/// The version that they write.
const VERSION: u64 = 3;

impl Run<'_> {
    pub(super) fn writers<E: Engine>(&mut self, engine: &E) -> Result<()> {
        for (threads, name) in WRITERS {
            self.plan.say(&format!("{threads} writers"));
            let rngs: Vec<Rng> = (0..threads).map(|_| self.rng.fork()).collect();
            let live = self.live.indices();
            // All begin together: starting threads takes as long as many puts.
            let barrier = Barrier::new(threads);
            let work = |rng: Rng| {
                barrier.wait();
                put_until(engine, live, rng, Instant::now() + TIME)
            };
            let start = Instant::now();
            let counts: Result<Vec<u64>> = std::thread::scope(|scope| {
                let all: Vec<_> = rngs.into_iter().map(|rng| scope.spawn(|| work(rng))).collect();
                all.into_iter().map(|writer| writer.join().expect("no panics")).collect()
            });
            self.set(name, counts?.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64());
        }
        Ok(())
    }
}

/// Overwrites random records until then; how many.
fn put_until<E: Engine>(engine: &E, live: &[u32], mut rng: Rng, end: Instant) -> Result<u64> {
    let mut count = 0;
    while Instant::now() < end {
        let index = live[rng.usize(..live.len())];
        engine.put(&Record::version(u64::from(index), VERSION))?;
        count += 1;
    }
    Ok(count)
}
