//! Looking at a chain while it goes on.

use std::sync::PoisonError;

use ledger::{Bytes, Snapshot};

use super::Chain;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::BlockIndex;
use crate::manifest::Tip;
use crate::outpoint::Outpoint;
use crate::set_hash::utxo_set_hash;
use crate::store::Store;
use crate::tables::UTXO;

/// A chain as of one block.
pub struct ChainView<'a> {
    snapshot: Box<dyn Snapshot + 'a>,
    tip: Tip,
}

impl Chain {
    /// The chain as it is now, for as long as it is kept. Imports go on meanwhile.
    pub fn view(&self) -> Result<ChainView<'_>, Error> {
        // Order: between a batch and its manifest nobody looks.
        let _open = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        let hash = store.applied()?.ok_or(Error::IndexMissing(Hash::ZERO))?;
        let index = store.need_index(hash)?;
        let tip = Tip { hash, height: index.height, work: index.work };
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
