//! What can be simulated.

use std::fmt::Debug;

use host::Fault;

use crate::{Failure, Tally};

/// Characters shown of a step. The rest can be had from its seed.
const SHOWN: usize = 200;

/// The one harm that comes to a history in which nothing else happens.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    /// A call of the disk fails, or all from it on.
    Fail {
        /// Its number, from 0.
        call: u64,
        /// How.
        fault: Fault,
        /// All that follow fail, too.
        is_lasting: bool,
    },
    /// A call fails that reads or replaces a file beside the database.
    FailFile {
        /// Its number, from 0.
        call: u64,
        /// It is done all the same.
        is_done: bool,
    },
    /// Power fails, and once more while somebody recovers from that.
    PowerLoss {
        /// The step of the machine during which it fails first, from 0.
        step: u64,
        /// Decides what it leaves.
        image: u64,
        /// The step of the recovery.
        again: u64,
    },
}

/// A kind of store, with what may happen to it.
pub trait System: Send + Sync {
    /// One thing that happens. It must mean something wherever it stands: histories lose steps when they are made shorter.
    type Step: Clone + Debug;

    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// The history of a seed.
    fn history(&self, seed: u64) -> Vec<Self::Step>;

    /// What is done under a seed, with one harm.
    fn harmed(&self, seed: u64, harm: Harm) -> Vec<Self::Step>;

    /// Runs a history, or part of one, under the settings of a seed.
    fn run(&self, seed: u64, steps: &[Self::Step]) -> Result<Tally, Failure>;
}

/// A system whose steps nobody has to name.
pub trait Trial: Send + Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// Runs the history of a seed.
    fn run_seed(&self, seed: u64) -> Result<Tally, Failure>;

    /// Runs what is done under a seed, with one harm.
    fn run_harmed(&self, seed: u64, harm: Harm) -> Result<Tally, Failure>;

    /// Makes the history of a failing seed shorter and tells what is left of it.
    fn explain(&self, seed: u64) -> Option<Explanation<'_>>;
}

/// What is left of a history that fails.
pub struct Explanation<'s> {
    /// Steps of the whole history.
    pub drawn: usize,
    /// A line for each step that is left.
    pub steps: Vec<String>,
    /// What is wrong in the end.
    pub failure: Failure,
    run: Box<dyn Fn() -> Result<Tally, Failure> + 's>,
}

impl Explanation<'_> {
    /// Runs the steps that are left once more.
    pub fn run(&self) -> Result<Tally, Failure> {
        (self.run)()
    }
}

impl<S: System> Trial for S {
    fn name(&self) -> &'static str {
        System::name(self)
    }

    fn run_seed(&self, seed: u64) -> Result<Tally, Failure> {
        self.run(seed, &self.history(seed))
    }

    fn run_harmed(&self, seed: u64, harm: Harm) -> Result<Tally, Failure> {
        self.run(seed, &self.harmed(seed, harm))
    }

    fn explain(&self, seed: u64) -> Option<Explanation<'_>> {
        let (left, failure) = crate::shrink(self, seed)?;
        let shown =
            |step: &S::Step| -> String { format!("{step:?}").chars().take(SHOWN).collect() };
        let steps = left.iter().map(shown).collect();
        let run = Box::new(move || self.run(seed, &left));
        Some(Explanation { drawn: self.history(seed).len(), steps, failure, run })
    }
}
