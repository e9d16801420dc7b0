//! A bucket on a simulated disk, against a map.

mod model;
mod plan;
mod run;
mod step;

use crate::{Failure, Harm, System, Tally};
use run::Run;
use step::Step;

/// A bucket.
pub(crate) struct BucketSystem;

impl System for BucketSystem {
    type Step = Step;

    fn name(&self) -> &'static str {
        "bucket"
    }

    fn history(&self, seed: u64) -> Vec<Step> {
        step::history(seed)
    }

    fn harmed(&self, seed: u64, harm: Harm) -> Vec<Step> {
        step::harmed(seed, harm)
    }

    fn run(&self, seed: u64, steps: &[Step]) -> Result<Tally, Failure> {
        Run::new(seed).all(steps)
    }
}
