//! A chain of RUBIN blocks, with its manifest.

use std::sync::Arc;

use fastrand::Rng;
use host::Dir;
use ledger::Engine;
use rubin::Chain;
use rubin::rules::Rules;
use rubin::tables::{BLOCKS, HEIGHTS, UTXO};

use super::ledger::{Ledger, Rows, rows_of};
use super::refusal::Refusal;

#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    unused_imports,
    reason = "shared with the tests of the crate"
)]
#[path = "../../../rubin/tests/support/model.rs"]
mod model;

use model::Tree;

pub(crate) struct Rubin;

fn tree(seed: u64) -> Tree {
    let mut rng = Rng::with_seed(seed);
    let count = rng.usize(3..18);
    Tree::grow(&mut rng, count)
}

impl Ledger for Rubin {
    /// A block.
    type Deed = Vec<u8>;
    type Store = Chain;

    fn name(&self) -> &'static str {
        "rubin"
    }

    fn deeds(&self, seed: u64) -> Vec<Vec<u8>> {
        let mut rng = Rng::with_seed(seed ^ 1);
        let mut blocks: Vec<_> = tree(seed).blocks.into_iter().map(|node| node.bytes).collect();
        if rng.bool() {
            rng.shuffle(&mut blocks);
        }
        blocks
    }

    fn start(
        &self,
        seed: u64,
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
    ) -> Result<Chain, Refusal> {
        let rules: Box<Rules> = Box::default();
        Chain::init(engine, home, rules, tree(seed).genesis).map_err(Refusal::from)
    }

    fn look(
        &self,
        seed: u64,
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
    ) -> Result<Chain, Refusal> {
        let rules: Box<Rules> = Box::default();
        Chain::open_to_read(engine, home, rules, tree(seed).genesis).map_err(Refusal::from)
    }

    fn perform(&self, chain: &Chain, block: &Vec<u8>) -> Result<(), Refusal> {
        chain.import(block, None).map(drop).map_err(Refusal::from)
    }

    fn rows(&self, chain: &Chain) -> Result<Rows, String> {
        let view = chain.view().map_err(|error| error.to_string())?;
        let mut all = Rows::new();
        // What is known, and what is applied. Which side blocks were ever applied depends on where power failed.
        for table in [UTXO, BLOCKS, HEIGHTS] {
            all.push(rows_of(view.snapshot(), table)?);
        }
        let tip = chain.tip();
        all.push(vec![(tip.hash.as_bytes().to_vec(), tip.height.to_be_bytes().to_vec())]);
        Ok(all)
    }

    fn has_steps(&self, _import: &Self::Deed) -> bool {
        true
    }

    /// The manifest.
    fn has_files(&self) -> bool {
        true
    }
}
