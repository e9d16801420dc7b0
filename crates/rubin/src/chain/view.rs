//! Looking at a chain while it goes on.

use std::sync::PoisonError;
use std::time::Duration;

use ledger::{Bytes, Snapshot};

use super::Chain;
use super::import::tip_of;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::BlockIndex;
use crate::manifest::Tip;
use crate::outpoint::Outpoint;
use crate::set_hash::utxo_set_hash;
use crate::store::Store;
use crate::tables::UTXO;

/// How often, and how long, somebody who only looks waits for whoever is between a batch and its manifest.
const RETRIES: usize = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// A chain as of one block.
pub struct ChainView<'a> {
    snapshot: Box<dyn Snapshot + 'a>,
    tip: Tip,
}

impl Chain {
    /// The chain as it is now, for as long as it is kept. Imports go on meanwhile.
    pub fn view(&self) -> Result<ChainView<'_>, Error> {
        if self.is_reader {
            return self.view_beside();
        }
        loop {
            {
                // Order: between a batch and its manifest nobody looks.
                let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
                if *gate {
                    return self.view_of_now();
                }
            }
            // A fault has left it open. Order: whoever imports takes the gate last, so it must not be held here.
            self.settle(&mut self.lock())?;
        }
    }

    /// The same beside another process: what it has committed counts when its manifest says so.
    fn view_beside(&self) -> Result<ChainView<'_>, Error> {
        for _ in 0..RETRIES {
            let manifest = self.read_manifest()?;
            let view = self.view_of_now()?;
            if view.tip == manifest.tip {
                return Ok(view);
            }
            if view.tip.hash == manifest.tip.hash {
                return Err(Error::Inconsistent(format!(
                    "MANIFEST.json says height {} and work {} of block {}, and the index height {} and work {}",
                    manifest.tip.height,
                    manifest.tip.work,
                    manifest.tip.hash,
                    view.tip.height,
                    view.tip.work
                )));
            }
            // Somebody is just between the two.
            std::thread::sleep(PAUSE);
        }
        Err(Error::Unfinished)
    }

    fn view_of_now(&self) -> Result<ChainView<'_>, Error> {
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        let hash = store.applied()?.ok_or(Error::IndexMissing(Hash::ZERO))?;
        let tip = tip_of(hash, &store.need_index(hash)?);
        Ok(ChainView { snapshot, tip })
    }
}

impl ChainView<'_> {
    /// The block that the set is of.
    pub fn tip(&self) -> &Tip {
        &self.tip
    }

    /// How many outputs can be spent, and the hash over them.
    pub fn utxo_set_hash(&self) -> Result<(u64, Hash), Error> {
        Ok(utxo_set_hash(&*self.snapshot, Some(self.utxo_count()?))?)
    }

    /// How many outputs can be spent, as the store keeps count.
    pub fn utxo_count(&self) -> Result<u64, Error> {
        Store::new(&*self.snapshot).utxo_count()
    }

    /// An output that can be spent, as its `UtxoEntry`.
    pub fn utxo(&self, outpoint: &Outpoint) -> Result<Option<Bytes<'_>>, Error> {
        Ok(self.snapshot.get(UTXO, outpoint.as_bytes())?)
    }

    /// Where a block stands.
    pub fn index(&self, hash: Hash) -> Result<Option<BlockIndex>, Error> {
        Store::new(&*self.snapshot).index(hash)
    }

    /// The bytes of a block.
    pub fn block(&self, hash: Hash) -> Result<Option<Bytes<'_>>, Error> {
        Store::new(&*self.snapshot).block(hash)
    }

    /// The tables themselves.
    pub fn snapshot(&self) -> &dyn Snapshot {
        &*self.snapshot
    }
}
