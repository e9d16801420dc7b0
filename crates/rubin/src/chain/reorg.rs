//! Going over to another chain.
//!
//! First all blocks of the other chain are validated on top of the set as it would be, in memory; only then is anything taken
//! back. A chain so long that this would take too much memory is validated while it is applied instead. If a block turns out to
//! be invalid, it and everything on it is marked, and the best chain that is left is gone over to.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;

use ledger::{Batch, Bytes};

use super::import::tip_of;
use super::orphans::{Orphan, forget, note};
use super::steps::{Check, Follow};
use super::{Chain, State};
use crate::block::Block;
use crate::code::Code;
use crate::coins::{Before, Source};
use crate::error::Error;
use crate::hash::Hash;
use crate::index::{BlockIndex, Status};
use crate::manifest::Tip;
use crate::outpoint::Outpoint;
use crate::store::{REORG_TARGET, Store};
use crate::tables::{BLOCKS, INDEX, META, REASONS, UNDO};
use crate::undo::UndoRecord;

/// Changes of the set that are kept in memory while another chain is validated, unless somebody says otherwise.
pub(super) const CHANGES_MAX: usize = 1 << 20;

/// What going over to a block would take.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReorgPlan {
    /// The last block that both chains have.
    pub fork: Hash,
    /// Its height.
    pub fork_height: u64,
    /// Blocks that would be taken back, the tip first.
    pub disconnect: Vec<Hash>,
    /// Blocks that would be applied, in order.
    pub connect: Vec<Hash>,
}

/// The way from one block to another.
pub(super) fn plan(store: Store<'_>, from: Hash, to: Hash) -> Result<ReorgPlan, Error> {
    let (mut a, mut b) = (from, to);
    let (mut disconnect, mut connect) = (Vec::new(), Vec::new());
    let mut index_a = store.need_index(a)?;
    let mut index_b = store.need_index(b)?;
    while a != b {
        let (height_a, height_b) = (index_a.height, index_b.height);
        if height_a >= height_b {
            disconnect.push(a);
            a = index_a.prev_hash;
            index_a = store.need_index(a)?;
            check_height(a, &index_a, height_a)?;
        }
        if height_b >= height_a {
            connect.push(b);
            b = index_b.prev_hash;
            index_b = store.need_index(b)?;
            check_height(b, &index_b, height_b)?;
        }
    }
    connect.reverse();
    Ok(ReorgPlan { fork: a, fork_height: index_a.height, disconnect, connect })
}

/// Heights go down by one, or the walk might never end.
fn check_height(hash: Hash, index: &BlockIndex, child: u64) -> Result<(), Error> {
    if index.height.checked_add(1) == Some(child) {
        return Ok(());
    }
    Err(Error::Inconsistent(format!(
        "block {hash} has height {}, and its child {child}",
        index.height
    )))
}

/// The set as it would be after blocks that were taken back or applied in memory only.
struct Overlay<'a> {
    store: Store<'a>,
    changes: HashMap<Outpoint, Option<Vec<u8>>>,
}

impl Source for Overlay<'_> {
    fn entry(&self, outpoint: &Outpoint) -> Result<Option<Bytes<'_>>, Error> {
        match self.changes.get(outpoint) {
            Some(change) => Ok(change.as_deref().map(Bytes::Borrowed)),
            None => self.store.entry(outpoint),
        }
    }
}

/// How far going over to a block came.
#[derive(Default)]
struct Move {
    disconnected: u64,
    connected: u64,
    /// A block that turned out to be invalid.
    failed: Option<(Hash, Code)>,
}

/// What validating a chain in memory came to.
enum Trial {
    Valid,
    Invalid(Hash, Code),
    TooLong,
}

impl Chain {
    /// What going over to a block would take. Nothing is changed.
    pub fn reorg_plan(&self, to: Hash) -> Result<ReorgPlan, Error> {
        let state = self.lock();
        let snapshot = self.engine.snapshot()?;
        plan(Store::new(&*snapshot), state.tip.hash, to)
    }

    /// Goes over to a block, or if it is no good, to the best there is. Gives how many blocks were taken back and applied.
    pub(super) fn go_to_best(
        &self,
        state: &mut State,
        mut target: Hash,
    ) -> Result<(u64, u64), Error> {
        let (mut disconnected, mut connected) = (0, 0);
        loop {
            let moved = self.try_going_to(state, target)?;
            disconnected += moved.disconnected;
            connected += moved.connected;
            let Some((hash, code)) = moved.failed else {
                return Ok((disconnected, connected));
            };
            tracing::warn!(%hash, %code, "a block of a better chain is invalid");
            self.condemn(state, hash, code)?;
            match self.best()? {
                Some(best) if best.is_better_than(&state.tip) => target = best.hash,
                _ => {
                    self.forget_target()?;
                    return Ok((disconnected, connected));
                }
            }
        }
    }

    /// Goes over to a block. Nothing is taken back for a block that is known to be invalid.
    fn try_going_to(&self, state: &mut State, target: Hash) -> Result<Move, Error> {
        let (plan, trial) = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            let plan = plan(store, state.tip.hash, target)?;
            // Everything that is needed is there before anything is taken back.
            for hash in &plan.disconnect {
                store.need_undo(*hash)?;
            }
            for hash in &plan.connect {
                store.need_block(*hash)?;
                if store.need_index(*hash)?.status.is_invalid() {
                    let failed = Some((*hash, Code::BlockLinkageInvalid));
                    return Ok(Move { failed, ..Move::default() });
                }
            }
            let trial = self.try_in_memory(store, &plan)?;
            (plan, trial)
        };
        if let Trial::Invalid(hash, code) = trial {
            return Ok(Move { failed: Some((hash, code)), ..Move::default() });
        }
        let check = match trial {
            Trial::Valid => Check::Nothing,
            _ => Check::Body,
        };
        let mut moved = Move::default();
        for _ in &plan.disconnect {
            let mut batch = Batch::new();
            batch.put(META, REORG_TARGET, target.as_bytes());
            self.disconnect(state, batch, Follow::Manifest)?;
            moved.disconnected += 1;
        }
        for hash in &plan.connect {
            if let Err(code) = self.connect_stored(state, *hash, Some(target), check)? {
                return Ok(Move { failed: Some((*hash, code)), ..moved });
            }
            moved.connected += 1;
        }
        Ok(moved)
    }

    /// Applies a block that is stored on top of the tip, maybe on the way to another.
    pub(super) fn connect_stored(
        &self,
        state: &mut State,
        hash: Hash,
        target: Option<Hash>,
        check: Check,
    ) -> Result<Result<(), Code>, Error> {
        let (bytes, index) = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            (store.need_block(hash)?.into_owned(), store.need_index(hash)?)
        };
        let block = decode(hash, &bytes)?;
        let mut batch = Batch::new();
        let valid = BlockIndex { status: Status::Valid, ..index };
        batch.put(INDEX, hash.as_bytes(), &valid.encode());
        forget(&mut batch, hash);
        match target {
            Some(target) if hash == target => drop(batch.delete(META, REORG_TARGET)),
            Some(target) => drop(batch.put(META, REORG_TARGET, target.as_bytes())),
            None => {}
        }
        let tip = Tip { hash, height: valid.height, work: valid.work };
        self.connect(state, &block, tip, batch, check)
    }

    /// Validates a chain on top of the set as it would be.
    fn try_in_memory(&self, store: Store<'_>, plan: &ReorgPlan) -> Result<Trial, Error> {
        let mut overlay = Overlay { store, changes: HashMap::new() };
        for hash in &plan.disconnect {
            let undo = store.need_undo(*hash)?;
            let undo = UndoRecord::decode(&undo)
                .map_err(|wrong| Error::damaged(UNDO, hash.as_bytes(), wrong))?;
            for outpoint in &undo.created {
                overlay.changes.insert(*outpoint, None);
            }
            for (outpoint, entry) in &undo.spent {
                overlay.changes.insert(*outpoint, Some(entry.to_vec()));
            }
            if overlay.changes.len() > self.reorg_changes_max {
                return Ok(Trial::TooLong);
            }
        }
        for hash in &plan.connect {
            let index = store.need_index(*hash)?;
            let bytes = store.need_block(*hash)?;
            let block = decode(*hash, &bytes)?;
            let mut changes = Vec::new();
            {
                let before = Before::read(&overlay, &block)?;
                match self.transition(&block, index.height, &before, Check::Body) {
                    Ok(transition) => {
                        transition.for_each(|outpoint, entry| changes.push((outpoint, entry)))
                    }
                    Err(code) => return Ok(Trial::Invalid(*hash, code)),
                }
            }
            overlay.changes.extend(changes);
            if overlay.changes.len() > self.reorg_changes_max {
                return Ok(Trial::TooLong);
            }
        }
        Ok(Trial::Valid)
    }

    /// Marks a block as invalid, and everything that stands on it.
    fn condemn(&self, state: &mut State, hash: Hash, code: Code) -> Result<(), Error> {
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        let mut batch = Batch::new();
        let index = store.need_index(hash)?;
        let mark = |batch: &mut Batch, hash: Hash, index: BlockIndex, status: Status| {
            batch.put(INDEX, hash.as_bytes(), &BlockIndex { status, ..index }.encode());
        };
        if !index.status.is_invalid() {
            mark(&mut batch, hash, index, Status::InvalidBody);
            batch.put(REASONS, hash.as_bytes(), code.as_str().as_bytes());
        }
        let mut children: HashMap<Hash, Vec<(Hash, BlockIndex)>> = HashMap::new();
        self.for_each_index(store, |hash, index| {
            children.entry(index.prev_hash).or_default().push((hash, index));
        })?;
        let mut open = vec![hash];
        let mut seen = HashSet::from([hash]);
        while let Some(parent) = open.pop() {
            for (child, index) in children.remove(&parent).unwrap_or_default() {
                if seen.insert(child) {
                    open.push(child);
                    if matches!(index.status, Status::Unknown | Status::Valid) {
                        let status = Status::InvalidAncestry;
                        mark(&mut batch, child, index, status);
                        // Should another body of the block be good, they go on.
                        note(&mut batch, child, parent);
                        let len = store.block(child)?.map_or(0, |bytes| bytes.len());
                        let len = len + state.bodies.len_of(child);
                        state.orphans.put(Orphan { hash: child, parent, status, len });
                    }
                }
            }
        }
        drop(snapshot);
        self.engine.commit(batch)?;
        state.bodies.call(hash);
        Ok(())
    }

    /// The best block that may be valid.
    pub(super) fn best(&self) -> Result<Option<Tip>, Error> {
        let snapshot = self.engine.snapshot()?;
        let mut best: Option<Tip> = None;
        self.for_each_index(Store::new(&*snapshot), |hash, index| {
            if matches!(index.status, Status::Unknown | Status::Valid) {
                let tip = tip_of(hash, &index);
                if best.as_ref().is_none_or(|best| tip.is_better_than(best)) {
                    best = Some(tip);
                }
            }
        })?;
        Ok(best)
    }

    pub(super) fn for_each_index(
        &self,
        store: Store<'_>,
        mut see: impl FnMut(Hash, BlockIndex),
    ) -> Result<(), Error> {
        for row in store.snapshot.scan(INDEX, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, value) = row?;
            let index =
                BlockIndex::decode(&value).map_err(|wrong| Error::damaged(INDEX, &key, wrong))?;
            if let Some(hash) = Hash::from_slice(&key) {
                see(hash, index);
            }
        }
        Ok(())
    }

    /// No reorg is under way.
    pub(super) fn forget_target(&self) -> Result<(), Error> {
        let mut batch = Batch::new();
        batch.delete(META, REORG_TARGET);
        Ok(self.engine.commit(batch)?)
    }
}

pub(super) fn decode<'a>(hash: Hash, bytes: &'a [u8]) -> Result<Block<'a>, Error> {
    Block::decode(bytes).map_err(|wrong| Error::damaged(BLOCKS, hash.as_bytes(), wrong))
}
