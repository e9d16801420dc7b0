//! A store that does not fit in memory. Whoever starts this process has limited what it may have,
//! page cache included.

use std::time::Instant;

use anyhow::{Context, Result};

use super::Run;
use super::get::Gets;
use crate::engine::Engine;
use crate::record::batch;

/// Of the keys, one in so many is looked up, but no fewer and no more than these.
const GETS_PART: usize = 50;
const GETS_MIN: usize = 2000;
const GETS_MAX: usize = 20_000;
const BLOCKS: usize = 10;

impl Run<'_> {
    pub(super) fn limited<E: Engine>(&mut self) -> Result<()> {
        let plan = self.plan;
        let engine: E = self.create()?;
        let mut spent = self.load_batches(&engine).context("load")?;
        let start = Instant::now();
        let engine = engine.finish_load(&plan.dir).context("sync")?;
        spent += start.elapsed();
        self.set("limited_load_per_s", plan.keys as f64 / spent.as_secs_f64());

        plan.say("gets with little memory");
        let count = (plan.keys / GETS_PART).clamp(GETS_MIN, GETS_MAX);
        let per_s = self.hits(&engine, &Gets { count, threads: 1, warm: 0 }).context("get")?;
        self.set("limited_get_per_s", per_s);

        if E::IS_DURABLE {
            plan.say("blocks with little memory");
            let mut spent = 0.0;
            for _ in 0..BLOCKS {
                let block = self.live.block(&mut self.rng, batch());
                let start = Instant::now();
                engine.apply(&block).context("block")?;
                spent += start.elapsed().as_secs_f64();
            }
            self.set("limited_block_per_s", BLOCKS as f64 / spent);
        }
        engine.close().context("close")
    }
}
