//! An index beside a validator: fed with checkpoints, some of them twice or too early, and built anew now and then.

use std::sync::Arc;

use fastrand::Rng;
use host::Dir;
use ledger::{Engine, MemoryEngine};
use misaka::{Checkpoint, Effort, Settings, Store};
use misaka_indexer::{Embedded, Index, TABLES, Watch, rebuild};

use super::ledger::{Ledger, Rows, rows_of};
use super::misaka::chain::Chain;
use super::refusal::Refusal;

/// Its chains begin where numbers grow by a byte.
const FIRST: u64 = 250;

pub(crate) struct Indexer;

#[derive(Clone, Debug)]
pub(crate) enum Deed {
    /// A checkpoint comes.
    Feed(Box<Checkpoint>),
    /// The index is built of what a validator has after these.
    Rebuild(Vec<Checkpoint>),
}

impl Ledger for Indexer {
    type Deed = Deed;
    type Store = Embedded;

    fn name(&self) -> &'static str {
        "indexer"
    }

    fn deeds(&self, seed: u64) -> Vec<Deed> {
        let mut rng = Rng::with_seed(seed);
        let mut chain = Chain::new(Settings::default(), FIRST);
        let checkpoints: Vec<Checkpoint> =
            (0..rng.usize(2..16)).map(|_| chain.grow(&mut rng, 8)).collect();
        let mut deeds = Vec::new();
        for (number, checkpoint) in checkpoints.iter().enumerate() {
            deeds.push(Deed::Feed(Box::new(checkpoint.clone())));
            match rng.u8(..12) {
                // Any of them, whether it is there or cannot be yet.
                0 | 1 => {
                    deeds.extend(rng.choice(&checkpoints).cloned().map(Box::new).map(Deed::Feed))
                }
                2 => {
                    deeds.push(Deed::Rebuild(
                        checkpoints.iter().take(number + 1).cloned().collect(),
                    ));
                }
                _ => {}
            }
        }
        deeds
    }

    fn start(
        &self,
        _seed: u64,
        engine: Box<dyn Engine>,
        _home: Arc<dyn Dir>,
    ) -> Result<Embedded, Refusal> {
        Embedded::on(engine).map_err(Refusal::from)
    }

    fn look(
        &self,
        seed: u64,
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
    ) -> Result<Embedded, Refusal> {
        self.start(seed, engine, home)
    }

    fn perform(&self, index: &Embedded, deed: &Deed) -> Result<(), Refusal> {
        match deed {
            Deed::Feed(checkpoint) => index.apply(checkpoint).map(drop).map_err(Refusal::from),
            Deed::Rebuild(checkpoints) => {
                let engine = Box::new(MemoryEngine::new());
                let validator = Store::init(engine, Settings::default(), Effort::default())?;
                for checkpoint in checkpoints {
                    validator.apply(checkpoint)?;
                }
                rebuild::from_view(index, &validator.view()?, Watch::NOBODY)?;
                Ok(())
            }
        }
    }

    fn rows(&self, index: &Embedded) -> Result<Rows, String> {
        let snapshot = index.engine().snapshot().map_err(|error| error.to_string())?;
        TABLES.iter().map(|table| rows_of(&*snapshot, *table)).collect()
    }

    fn has_steps(&self, deed: &Deed) -> bool {
        matches!(deed, Deed::Rebuild(_))
    }
}
