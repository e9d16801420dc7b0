//! A UTxO set with its tree.

use std::sync::Arc;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::tables::CANONICAL;
use csmt::{Effort, PathKind, Settings, Store};
use fastrand::Rng;
use host::Dir;
use ledger::Engine;

use super::ledger::{Ledger, Rows};
use super::refusal::Refusal;

#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unused_imports,
    reason = "shared with the tests of the crate"
)]
#[path = "../../../csmt/tests/support/story.rs"]
mod story;

/// Little, so that nothing is in memory for long.
const EFFORT: Effort = Effort { memory: 3 << 10, threads: 1, batch: 500 };

pub(crate) struct Csmt;

#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Forward(Point, Vec<Operation>),
    Rollback(Point),
}

impl Ledger for Csmt {
    type Deed = Deed;
    type Store = Store;

    fn name(&self) -> &'static str {
        "csmt"
    }

    fn deeds(&self, seed: u64) -> Vec<Deed> {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(3..20);
        let blocks = story::Story::new(&mut rng, count, 12).blocks;
        let mut deeds = Vec::new();
        let mut at = 0;
        for _ in 0..2 * count {
            let Some((point, operations)) = blocks.get(at) else { break };
            deeds.push(Deed::Forward(*point, operations.clone()));
            at += 1;
            if rng.u8(..5) == 0 {
                at = at.saturating_sub(rng.usize(..4));
                let to = at.checked_sub(1).and_then(|before| blocks.get(before));
                deeds.extend(to.map(|(point, _)| Deed::Rollback(*point)));
            }
        }
        deeds
    }

    fn start(
        &self,
        seed: u64,
        engine: Box<dyn Engine>,
        _home: Arc<dyn Dir>,
    ) -> Result<Store, Refusal> {
        let path = if seed.is_multiple_of(2) { PathKind::Address } else { PathKind::Raw };
        Store::init(engine, Settings { path, k: 4 }, EFFORT).map_err(Refusal::from)
    }

    fn look(
        &self,
        _seed: u64,
        engine: Box<dyn Engine>,
        _home: Arc<dyn Dir>,
    ) -> Result<Store, Refusal> {
        Store::open_to_read(engine, EFFORT).map_err(Refusal::from)
    }

    fn perform(&self, store: &Store, deed: &Deed) -> Result<(), Refusal> {
        match deed {
            Deed::Forward(point, operations) => store.forward(*point, operations).map(drop),
            Deed::Rollback(to) => store.rollback(*to).map(drop),
        }
        .map_err(Refusal::from)
    }

    fn rows(&self, store: &Store) -> Result<Rows, String> {
        let view = store.view().map_err(|error| error.to_string())?;
        let mut all = Rows::new();
        for table in CANONICAL {
            let mut rows = Vec::new();
            for row in view.rows(*table).map_err(|error| error.to_string())? {
                let (key, value) = row.map_err(|error| error.to_string())?;
                rows.push((key.into_owned(), value.into_owned()));
            }
            all.push(rows);
        }
        Ok(all)
    }
}
