//! One block more, or one less: a batch, and then the manifest.

use std::sync::PoisonError;

use host::planted::{Bug, is_planted};
use ledger::{Batch, Bytes};

use super::{Chain, State};
use crate::block::Block;
use crate::code::Code;
use crate::coins::{Before, Coins, Source};
use crate::error::Error;
use crate::hash::Hash;
use crate::manifest::Tip;
use crate::outpoint::Outpoint;
use crate::store::{APPLIED, Store, UTXO_COUNT};
use crate::tables::{HEIGHTS, META, UNDO, UTXO};
use crate::transition::Transition;
use crate::undo::UndoRecord;

/// Whether a block is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// It is.
    Body,
    /// It was before.
    Nothing,
    /// It was before, and the manifest is there already.
    Recovery,
}

/// What follows a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// The manifest.
    Manifest,
    /// Nothing: the manifest is where the database is brought to.
    Nothing,
}

impl Source for Store<'_> {
    fn entry(&self, outpoint: &Outpoint) -> Result<Option<Bytes<'_>>, Error> {
        Ok(self.snapshot.get(UTXO, outpoint.as_bytes())?)
    }
}

impl Chain {
    /// Applies a block on top of the tip. The batch has what else belongs to it.
    pub(super) fn connect(
        &self,
        state: &mut State,
        block: &Block<'_>,
        tip: Tip,
        mut batch: Batch,
        check: Check,
    ) -> Result<Result<(), Code>, Error> {
        let height = tip.height;
        if block.header.prev_hash != state.tip.hash {
            return Err(Error::Inconsistent(format!(
                "block {} was to be applied on block {}, and follows {}",
                block.hash, state.tip.hash, block.header.prev_hash
            )));
        }
        let utxo_count = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            let before = Before::read(&store, block)?;
            let transition = match self.transition(block, height, &before, check) {
                Ok(transition) => transition,
                Err(code) if check == Check::Body => return Ok(Err(code)),
                // It was valid a moment ago, or once: that says something of the store, and nothing of the block.
                Err(code) => {
                    return Err(Error::Inconsistent(format!(
                        "block {} fails now: {code}",
                        block.hash
                    )));
                }
            };
            transition.write(&mut batch);
            batch.put(UNDO, block.hash.as_bytes(), &transition.undo().encode());
            let (more, fewer) = transition.counts();
            (state.utxo_count + more).saturating_sub(fewer)
        };
        batch.put(HEIGHTS, &height.to_be_bytes(), block.hash.as_bytes());
        // It is decided which body it has.
        state.bodies.forget(&mut batch, block.hash);
        let follow = if check == Check::Recovery { Follow::Nothing } else { Follow::Manifest };
        self.step(state, tip, utxo_count, batch, follow)?;
        Ok(Ok(()))
    }

    /// What a block does to the set, if it follows the rules.
    pub(super) fn transition<'b>(
        &self,
        block: &'b Block<'b>,
        height: u64,
        before: &'b Before<'b>,
        check: Check,
    ) -> Result<Transition<'b>, Code> {
        if check == Check::Body {
            self.validator.check_body(block, height, &mut Coins::new(before, height))?;
        }
        Transition::of(block, height, before)
    }

    /// Takes the tip back.
    pub(super) fn disconnect(
        &self,
        state: &mut State,
        mut batch: Batch,
        follow: Follow,
    ) -> Result<(), Error> {
        let (parent, utxo_count) = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            let hash = state.tip.hash;
            let index = store.need_index(hash)?;
            let parent = store.need_index(index.prev_hash)?;
            let undo = store.need_undo(hash)?;
            let undo = UndoRecord::decode(&undo)
                .map_err(|wrong| Error::damaged(UNDO, hash.as_bytes(), wrong))?;
            let utxo_count = self.take_back(store, &undo, state.utxo_count, &mut batch)?;
            let tip = Tip { hash: index.prev_hash, height: parent.height, work: parent.work };
            (tip, utxo_count)
        };
        batch.delete(HEIGHTS, &state.tip.height.to_be_bytes());
        self.step(state, parent, utxo_count, batch, follow)
    }

    /// The changes that take a block back, and how many outputs there are then.
    fn take_back(
        &self,
        store: Store<'_>,
        undo: &UndoRecord<'_>,
        mut count: u64,
        batch: &mut Batch,
    ) -> Result<u64, Error> {
        for outpoint in &undo.created {
            // It may not be there, if this was begun before.
            count -= u64::from(store.entry(outpoint)?.is_some() && count > 0);
            batch.delete(UTXO, outpoint.as_bytes());
        }
        for (outpoint, entry) in &undo.spent {
            count += u64::from(store.entry(outpoint)?.is_none());
            batch.put(UTXO, outpoint.as_bytes(), entry);
        }
        Ok(count)
    }

    /// Commits a batch that makes a block the applied one, and lets the manifest follow.
    fn step(
        &self,
        state: &mut State,
        tip: Tip,
        utxo_count: u64,
        mut batch: Batch,
        follow: Follow,
    ) -> Result<(), Error> {
        note_applied(&mut batch, tip.hash, utxo_count);
        // Order: whoever looks at the set sees one that the manifest knows of.
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        *gate = false;
        if follow == Follow::Manifest && is_planted(Bug::ManifestFirst) {
            self.write_manifest(&tip)?;
        }
        self.engine.commit(batch)?;
        // Order: the manifest moves when everything it speaks of is durable.
        if follow == Follow::Manifest {
            self.write_manifest(&tip)?;
            *gate = true;
        }
        tracing::debug!(height = tip.height, hash = %tip.hash, "applied");
        state.tip = tip;
        state.utxo_count = utxo_count;
        Ok(())
    }
}

/// The block that the set is of, and how many outputs it has.
pub(super) fn note_applied(batch: &mut Batch, hash: Hash, utxo_count: u64) {
    batch.put(META, APPLIED, hash.as_bytes());
    batch.put(META, UTXO_COUNT, &utxo_count.to_le_bytes());
}
