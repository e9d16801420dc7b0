//! The stores of a validator.

use std::sync::Arc;

use fastrand::Rng;
use host::Dir;
use ledger::Engine;
use misaka::tables::CANONICAL;
use misaka::{Checkpoint, Effort, Error, Settings, Store};

use super::ledger::{Ledger, Rows};
use super::refusal::Refusal;
use crate::dice::one_of;

#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unused_imports,
    reason = "shared with the tests of the crate"
)]
#[path = "../../../misaka/tests/support/chain.rs"]
pub(super) mod chain;

/// Little, so that trees are written in several batches.
const EFFORT: Effort = Effort { memory: 1 << 20, threads: 1, batch: 600 };

pub(crate) struct Misaka;

fn settings(seed: u64) -> Settings {
    let v2_at = one_of(&mut Rng::with_seed(seed ^ 2), None, &[Some(254), Some(250)]);
    Settings { chain_id: Some(7), event_retention: 2, window: 3, v2_at }
}

impl Ledger for Misaka {
    type Deed = Checkpoint;
    type Store = Store;

    fn name(&self) -> &'static str {
        "misaka"
    }

    fn deeds(&self, seed: u64) -> Vec<Checkpoint> {
        let mut rng = Rng::with_seed(seed);
        let mut chain = chain::Chain::new(settings(seed), 250);
        (0..rng.usize(2..16)).map(|_| chain.grow(&mut rng, 8)).collect()
    }

    fn start(
        &self,
        seed: u64,
        engine: Box<dyn Engine>,
        _home: Arc<dyn Dir>,
    ) -> Result<Store, Refusal> {
        Store::init(engine, settings(seed), EFFORT).map_err(Refusal::from)
    }

    fn look(
        &self,
        _seed: u64,
        engine: Box<dyn Engine>,
        _home: Arc<dyn Dir>,
    ) -> Result<Store, Refusal> {
        Store::open(engine, EFFORT).map_err(Refusal::from)
    }

    fn perform(&self, store: &Store, checkpoint: &Checkpoint) -> Result<(), Refusal> {
        store.apply(checkpoint).map(drop).map_err(Refusal::from)
    }

    fn rows(&self, store: &Store) -> Result<Rows, String> {
        let said = |error: Error| error.to_string();
        let view = store.view().map_err(said)?;
        let mut all = Rows::new();
        for table in CANONICAL {
            let mut rows = Vec::new();
            let note = &mut |key: &[u8], value: &[u8]| {
                rows.push((key.to_vec(), value.to_vec()));
                Ok(())
            };
            view.for_each(*table, note).map_err(said)?;
            all.push(rows);
        }
        Ok(all)
    }
}
