//! Making a chain, opening it, and mending what a crash left between database and manifest.

use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use host::Dir;
use ledger::{Batch, Engine};

use super::bodies::OtherBodies;
use super::header_window::HeaderWindow;
use super::import::tip_of;
use super::keep::put_block;
use super::orphans::Orphans;
use super::reorg::{CHANGES_MAX, plan};
use super::steps::{Check, Follow, note_applied};
use super::{Chain, State};
use crate::block::Block;
use crate::coins::Before;
use crate::error::Error;
use crate::genesis::Genesis;
use crate::hash::Hash;
use crate::index::{BlockIndex, Status};
use crate::manifest::{Manifest, Tip};
use crate::store::{REORG_TARGET, Store};
use crate::tables::{ALL, BLOCKS, HEIGHTS, META, UNDO};
use crate::transition::Transition;
use crate::validator::Validator;
use crate::work::Work;

impl Chain {
    /// Makes a chain in an engine that has none. Doing it again does no harm; an engine that has anything else is refused.
    pub fn init(
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
        validator: Box<dyn Validator>,
        genesis: Genesis,
    ) -> Result<Chain, Error> {
        if Manifest::read(&*home)?.is_some() {
            return Chain::open(engine, home, validator, genesis);
        }
        let applied = Store::new(&*engine.snapshot()?).applied()?;
        match applied {
            None => {
                check_empty(&*engine)?;
                apply_genesis(&*engine, &genesis)?;
            }
            // The last try was cut off before the manifest.
            Some(hash) if hash == genesis.hash() => {}
            Some(hash) => {
                return Err(Error::Inconsistent(format!(
                    "there is no MANIFEST.json, and the database is at block {hash}"
                )));
            }
        }
        let tip = genesis_tip(&genesis);
        let manifest =
            Manifest { schema_version: crate::SCHEMA_VERSION, chain_id: genesis.chain_id(), tip };
        manifest.write(&*home)?;
        Chain::open(engine, home, validator, genesis)
    }

    /// Opens a chain that was made before.
    pub fn open(
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
        validator: Box<dyn Validator>,
        genesis: Genesis,
    ) -> Result<Chain, Error> {
        let chain = Chain::of(engine, home, validator, genesis);
        chain.settle(&mut chain.lock())?;
        Ok(chain)
    }

    /// Opens a chain to look at it. Nothing is written, so a chain that a crash left between two blocks is refused.
    pub fn open_to_read(
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
        validator: Box<dyn Validator>,
        genesis: Genesis,
    ) -> Result<Chain, Error> {
        let chain = Chain { is_reader: true, ..Chain::of(engine, home, validator, genesis) };
        let tip = chain.view()?.tip().clone();
        chain.check_tip(&tip).map_err(inconsistent)?;
        chain.lock().tip = tip;
        Ok(chain)
    }

    /// A chain that nothing was read of yet.
    fn of(
        engine: Box<dyn Engine>,
        home: Arc<dyn Dir>,
        validator: Box<dyn Validator>,
        genesis: Genesis,
    ) -> Chain {
        let state = Mutex::new(State {
            tip: genesis_tip(&genesis),
            utxo_count: 0,
            orphans: Orphans::default(),
            bodies: OtherBodies::default(),
            headers: HeaderWindow::default(),
            is_settled: false,
        });
        let gate = RwLock::new(false);
        let (is_reader, reorg_changes_max) = (false, CHANGES_MAX);
        Chain { engine, home, validator, genesis, state, gate, is_reader, reorg_changes_max }
    }

    /// Reads the manifest, and refuses other versions and other chains.
    pub(super) fn read_manifest(&self) -> Result<Manifest, Error> {
        let manifest = Manifest::read(&*self.home)?;
        let manifest = manifest.ok_or_else(|| Error::NotInitialised("the datadir".to_owned()))?;
        manifest.check(self.genesis.chain_id())?;
        Ok(manifest)
    }

    /// Reads what the store has, and goes on with whatever was cut off. Does nothing if that was done.
    pub(super) fn settle(&self, state: &mut State) -> Result<(), Error> {
        if state.is_settled {
            return Ok(());
        }
        let manifest = self.read_manifest()?;
        let (applied, target) = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            let applied = store.applied()?.ok_or_else(|| {
                Error::Inconsistent(
                    "the database has no block, and MANIFEST.json has one".to_owned(),
                )
            })?;
            state.tip = tip_of(applied, &store.need_index(applied)?);
            state.utxo_count = store.utxo_count()?;
            state.bodies = OtherBodies::load(&*snapshot)?;
            state.orphans = Orphans::load(&*snapshot, &state.bodies)?;
            (applied, store.reorg_target()?)
        };
        self.recover(state, &manifest.tip, target).map_err(inconsistent)?;
        self.check_tip(&manifest.tip).map_err(inconsistent)?;
        *self.gate.write().unwrap_or_else(PoisonError::into_inner) = true;
        let before = state.tip.clone();
        match self.finish_reorg(state, applied, target) {
            // A better chain that cannot be gone over to keeps nobody from the one that is there. Whoever sends more of it is
            // told again.
            Err(error) if state.tip == before && is_missing(&error) => {
                tracing::warn!(%error, "there is a better chain");
                self.forget_target()?;
            }
            done => done?,
        }
        self.finish_orphans(state)?;
        self.try_others(state, None)?;
        state.is_settled = true;
        Ok(())
    }

    /// Brings the set to the manifest's block, if a crash left it elsewhere.
    fn recover(&self, state: &mut State, wanted: &Tip, target: Option<Hash>) -> Result<(), Error> {
        if state.tip.hash == wanted.hash {
            return Ok(());
        }
        let plan = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            let index = store.need_index(wanted.hash)?;
            // A block that was never applied cannot be what the manifest means.
            if index.status != Status::Valid {
                return Err(Error::Inconsistent(format!(
                    "MANIFEST.json names block {}, which the database never applied",
                    wanted.hash
                )));
            }
            let plan = plan(store, state.tip.hash, wanted.hash)?;
            for hash in plan.disconnect.iter().chain(&plan.connect) {
                store.need_undo(*hash)?;
            }
            for hash in &plan.connect {
                store.need_block(*hash)?;
            }
            plan
        };
        tracing::info!(
            from = %state.tip.hash, to = %wanted.hash, "bringing the database to the manifest's block"
        );
        // Where it was on the way to must not be forgotten, should this be cut off too.
        let onward = target.unwrap_or(state.tip.hash);
        for _ in &plan.disconnect {
            let mut batch = Batch::new();
            batch.put(META, REORG_TARGET, onward.as_bytes());
            self.disconnect(state, batch, Follow::Nothing)?;
        }
        for hash in &plan.connect {
            let applied = self.connect_stored(state, *hash, None, Check::Recovery)?;
            applied.map_err(|code| Error::Inconsistent(format!("block {hash}: {code}")))?;
        }
        Ok(())
    }

    /// Everything that the manifest speaks of must be there.
    fn check_tip(&self, wanted: &Tip) -> Result<(), Error> {
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        let index = store.need_index(wanted.hash)?;
        let found = (index.height, &index.work, index.status);
        if found != (wanted.height, &wanted.work, Status::Valid) {
            return Err(Error::Inconsistent(format!(
                "MANIFEST.json says height {} and work {} of block {}, and the index height {}, work {} and {}",
                wanted.height,
                wanted.work,
                wanted.hash,
                index.height,
                index.work,
                index.status.name()
            )));
        }
        store.header(wanted.hash)?.ok_or(Error::BlockMissing(wanted.hash))?;
        store.need_block(wanted.hash)?;
        store.need_undo(wanted.hash)?;
        let genesis = store.need_index(self.genesis.hash())?;
        if genesis.height != 0 {
            return Err(Error::Inconsistent("genesis is not at height 0".to_owned()));
        }
        Ok(())
    }

    /// Goes on with blocks whose parent came just before the end.
    fn finish_orphans(&self, state: &mut State) -> Result<(), Error> {
        for parent in state.orphans.parents() {
            self.resume_orphans(state, parent, None)?;
        }
        Ok(())
    }

    /// Goes on with a reorg that was cut off, or comes back from it, to the best chain that there is now.
    fn finish_reorg(
        &self,
        state: &mut State,
        applied: Hash,
        target: Option<Hash>,
    ) -> Result<(), Error> {
        let best = match target {
            // It may have turned out to be invalid, and then another one is.
            Some(_) => self.best()?,
            // A block whose manifest was lost is on the way to somewhere too.
            None => {
                let snapshot = self.engine.snapshot()?;
                Some(tip_of(applied, &Store::new(&*snapshot).need_index(applied)?))
            }
        };
        if let Some(best) = best.filter(|best| best.is_better_than(&state.tip)) {
            self.go_to_best(state, best.hash)?;
        }
        if target.is_some() { self.forget_target() } else { Ok(()) }
    }
}

/// What the manifest's block needs and the database does not have was lost: the two do not fit together.
fn inconsistent(error: Error) -> Error {
    match error {
        Error::IndexMissing(hash) => {
            Error::Inconsistent(format!("the index does not know block {hash}"))
        }
        Error::UndoMissing(hash) => {
            Error::Inconsistent(format!("there is no undo record of block {hash}"))
        }
        Error::BlockMissing(hash) => {
            Error::Inconsistent(format!("the bytes of block {hash} are not there"))
        }
        other => other,
    }
}

/// Something that was looked for before anything was changed is not there.
fn is_missing(error: &Error) -> bool {
    use Error::{BlockMissing, Damaged, IndexMissing, UndoMissing};
    matches!(error, IndexMissing(_) | UndoMissing(_) | BlockMissing(_) | Damaged { .. })
}

/// Rows that nobody has named the block of are not ours to go on with.
fn check_empty(engine: &dyn Engine) -> Result<(), Error> {
    let snapshot = engine.snapshot()?;
    for table in ALL {
        if snapshot.scan(*table, (Bound::Unbounded, Bound::Unbounded))?.next().is_some() {
            return Err(Error::Inconsistent(format!(
                "there is no MANIFEST.json, and {} has rows",
                table.name
            )));
        }
    }
    Ok(())
}

fn genesis_tip(genesis: &Genesis) -> Tip {
    let target = Block::decode(genesis.bytes()).map(|block| block.header.target);
    let work = target.ok().and_then(|target| Work::of_target(&target)).unwrap_or_default();
    Tip { hash: genesis.hash(), height: 0, work }
}

fn apply_genesis(engine: &dyn Engine, genesis: &Genesis) -> Result<(), Error> {
    let hash = genesis.hash();
    let block = Block::decode(genesis.bytes())
        .map_err(|wrong| Error::damaged(BLOCKS, hash.as_bytes(), wrong))?;
    let tip = genesis_tip(genesis);
    let index =
        BlockIndex { height: 0, prev_hash: Hash::ZERO, status: Status::Valid, work: tip.work };
    let before = Before::default();
    // It spends nothing.
    let transition = Transition::of(&block, 0, &before)
        .map_err(|code| Error::Inconsistent(format!("genesis: {code}")))?;
    let mut batch = Batch::new();
    put_block(&mut batch, &block, &index);
    transition.write(&mut batch);
    batch.put(UNDO, hash.as_bytes(), &transition.undo().encode());
    batch.put(HEIGHTS, &0_u64.to_be_bytes(), hash.as_bytes());
    note_applied(&mut batch, hash, transition.counts().0);
    Ok(engine.commit(batch)?)
}
