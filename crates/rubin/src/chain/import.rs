//! Importing a block: decode, header, ancestry, fork choice, validation, apply.

use std::collections::VecDeque;

use ledger::Batch;

use super::orphans::{Orphan, drop_rows, forget, note};
use super::steps::Check;
use super::{Chain, State};
use crate::block::Block;
use crate::code::Code;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::{BlockIndex, Status};
use crate::manifest::Tip;
use crate::store::{REORG_TARGET, Store};
use crate::tables::{BLOCKS, HEADERS, INDEX, META, REASONS};
use crate::work::Work;

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// Its parent is not known. It waits.
    Orphaned,
    /// A block before it is invalid.
    InvalidAncestry,
    /// It is stored, and another chain is better.
    StoredNotSelected,
    /// It is the tip now.
    AppliedAsNewTip,
}

impl Decision {
    /// As all implementations write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Decision::Orphaned => "ORPHANED",
            Decision::InvalidAncestry => "INVALID_ANCESTRY",
            Decision::StoredNotSelected => "STORED_NOT_SELECTED",
            Decision::AppliedAsNewTip => "APPLIED_AS_NEW_TIP",
        }
    }
}

/// A block that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
pub struct Rejected {
    /// The block; none if it is not well formed.
    pub hash: Option<Hash>,
    /// The rule.
    pub code: Code,
}

/// What importing a block did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Import {
    /// The block.
    pub hash: Hash,
    /// What became of it.
    pub decision: Decision,
    /// Blocks taken back for it.
    pub disconnected: u64,
    /// Blocks applied with it, and orphans that waited for it.
    pub connected: u64,
}

impl Import {
    fn of(hash: Hash, decision: Decision) -> Import {
        Import { hash, decision, disconnected: 0, connected: 0 }
    }
}

/// What importing comes to, if nothing fails.
type Verdict = Result<Import, Rejected>;

impl Chain {
    /// Imports a block. A local time in seconds since 1970 makes blocks from the future be refused. The outer error is a fault of
    /// the store and says nothing about the block; the inner one says which rule it breaks.
    pub fn import(&self, bytes: &[u8], local_time: Option<u64>) -> Result<Verdict, Error> {
        let Ok(block) = Block::decode(bytes) else {
            return Ok(Err(Rejected { hash: None, code: Code::BlockParse }));
        };
        let mut state = self.lock();
        let state = &mut *state;
        self.settle(state)?;
        // Whatever fails from here on may have changed the store all the same.
        state.is_settled = false;
        let mut verdict = self.import_one(state, &block, local_time)?;
        let (disconnected, connected) = self.resume_orphans(state, block.hash, local_time)?;
        if let Ok(import) = &mut verdict {
            import.disconnected += disconnected;
            import.connected += connected;
        }
        state.is_settled = true;
        Ok(verdict)
    }

    /// Goes on with blocks that waited for one, and with those that waited for them.
    pub(super) fn resume_orphans(
        &self,
        state: &mut State,
        known: Hash,
        local_time: Option<u64>,
    ) -> Result<(u64, u64), Error> {
        let (mut disconnected, mut connected) = (0, 0);
        let mut queue = VecDeque::from([known]);
        while let Some(parent) = queue.pop_front() {
            {
                let snapshot = self.engine.snapshot()?;
                let index = Store::new(&*snapshot).index(parent)?;
                if index.is_none_or(|index| index.status == Status::Orphaned) {
                    continue;
                }
            }
            for child in state.orphans.take(parent) {
                let bytes = {
                    let snapshot = self.engine.snapshot()?;
                    Store::new(&*snapshot).need_block(child)?.into_owned()
                };
                let block = Block::decode(&bytes)
                    .map_err(|wrong| Error::damaged(BLOCKS, child.as_bytes(), wrong))?;
                if let Ok(import) = self.import_one(state, &block, local_time)? {
                    disconnected += import.disconnected;
                    connected += import.connected;
                }
                queue.push_back(child);
            }
        }
        Ok((disconnected, connected))
    }

    fn import_one(
        &self,
        state: &mut State,
        block: &Block<'_>,
        local_time: Option<u64>,
    ) -> Result<Verdict, Error> {
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        let known = store.index(block.hash)?;
        if let Some(index) = &known
            && let Some(verdict) = self.known(state, store, block, index)?
        {
            return Ok(verdict);
        }
        let was_invalid = known.as_ref().is_some_and(|index| index.status.is_invalid());
        let is_own_body = || block.merkle_root() == Some(block.header.merkle_root);
        if known.is_some() && !was_invalid && !is_own_body() {
            // The one that is stored has passed, and this one has nothing to do with it.
            let code = Code::BlockMerkleInvalid;
            return Ok(Err(Rejected { hash: Some(block.hash), code }));
        }
        // A target of zero has no work, and fails its checks.
        let own = Work::of_target(&block.header.target).unwrap_or_default();
        let prev_hash = block.header.prev_hash;
        let index = |height, status, work| BlockIndex { height, prev_hash, status, work };
        if prev_hash == Hash::ZERO {
            // Only genesis has nothing before it, and that is known.
            let index = index(0, Status::InvalidHeader, own);
            return self.reject(block, &index, Code::BlockLinkageInvalid);
        }
        let parent = store.index(prev_hash)?.filter(|parent| parent.status != Status::Orphaned);
        let Some(parent) = parent else {
            if let Err(code) = self.validator.check_orphan(block) {
                return self.reject(block, &index(0, Status::InvalidHeader, own), code);
            }
            drop(snapshot);
            if was_invalid {
                self.wake(state, block.hash)?;
            }
            return self.keep_orphan(state, block, &index(0, Status::Orphaned, own));
        };
        let height = parent.height.saturating_add(1);
        let work = parent.work.plus(&own);
        let context = state.headers.context(store, prev_hash, height, local_time)?;
        if let Err(code) = self.validator.check_header(block, &context) {
            return self.reject(block, &index(height, Status::InvalidHeader, work), code);
        }
        if !is_own_body() {
            // Whatever the validator thinks: what is stored must be what the header says.
            let index = index(height, Status::InvalidHeader, work);
            return self.reject(block, &index, Code::BlockMerkleInvalid);
        }
        if parent.status.is_invalid() {
            self.store(block, &index(height, Status::InvalidAncestry, work), None)?;
            return Ok(Ok(Import::of(block.hash, Decision::InvalidAncestry)));
        }
        drop(snapshot);
        if was_invalid {
            self.wake(state, block.hash)?;
        }
        let tip = Tip { hash: block.hash, height, work: work.clone() };
        if !tip.is_better_than(&state.tip) {
            if known.is_some_and(|index| index.status == Status::Unknown) {
                return Ok(Ok(Import::of(block.hash, Decision::StoredNotSelected)));
            }
            self.store(block, &index(height, Status::Unknown, work), None)?;
            return Ok(Ok(Import::of(block.hash, Decision::StoredNotSelected)));
        }
        if prev_hash == state.tip.hash {
            return self.extend(state, block, tip);
        }
        let mut batch = rows(block, &index(height, Status::Unknown, work), None);
        // Should this be cut off, nobody need send the block again: it may have waited for long.
        batch.put(META, REORG_TARGET, block.hash.as_bytes());
        self.engine.commit(batch)?;
        self.choose(state, tip.hash)
    }

    /// What to say of a block that is known already, unless there is more to do.
    fn known(
        &self,
        state: &mut State,
        store: Store<'_>,
        block: &Block<'_>,
        index: &BlockIndex,
    ) -> Result<Option<Verdict>, Error> {
        let hash = block.hash;
        match index.status {
            Status::Valid if hash == state.tip.hash => {
                Ok(Some(Ok(Import::of(hash, Decision::AppliedAsNewTip))))
            }
            // A crash may have taken it back.
            Status::Valid if tip_of(hash, index).is_better_than(&state.tip) => {
                self.choose(state, hash).map(Some)
            }
            Status::Valid => Ok(Some(Ok(Import::of(hash, Decision::StoredNotSelected)))),
            Status::InvalidAncestry => Ok(Some(Ok(Import::of(hash, Decision::InvalidAncestry)))),
            Status::Invalid | Status::InvalidHeader | Status::InvalidBody => {
                if self.may_be_good(store, block, index)? {
                    return Ok(None);
                }
                let code = store.reason(hash)?.unwrap_or(Code::BlockParse);
                Ok(Some(Err(Rejected { hash: Some(hash), code })))
            }
            Status::Unknown | Status::Orphaned => Ok(None),
        }
    }

    /// Stores a block that breaks a rule, and says which.
    fn reject(&self, block: &Block<'_>, index: &BlockIndex, code: Code) -> Result<Verdict, Error> {
        self.store(block, index, Some(code))?;
        Ok(Err(Rejected { hash: Some(block.hash), code }))
    }

    fn keep_orphan(
        &self,
        state: &mut State,
        block: &Block<'_>,
        index: &BlockIndex,
    ) -> Result<Verdict, Error> {
        if state.orphans.contains(block.hash) {
            return Ok(Ok(Import::of(block.hash, Decision::Orphaned)));
        }
        let orphan = Orphan { hash: block.hash, parent: index.prev_hash, len: block.bytes.len() };
        let mut batch = rows(block, index, None);
        note(&mut batch, orphan.hash, orphan.parent);
        let gone = state.orphans.in_the_way_of(&orphan);
        gone.iter().for_each(|hash| drop_rows(&mut batch, *hash));
        self.engine.commit(batch)?;
        gone.into_iter().for_each(|hash| state.orphans.remove(hash));
        state.orphans.add(orphan);
        Ok(Ok(Import::of(block.hash, Decision::Orphaned)))
    }

    /// Stores a block that is not applied.
    fn store(
        &self,
        block: &Block<'_>,
        index: &BlockIndex,
        reason: Option<Code>,
    ) -> Result<(), Error> {
        Ok(self.engine.commit(rows(block, index, reason))?)
    }

    /// Applies a block on top of the tip, with everything in one batch.
    fn extend(&self, state: &mut State, block: &Block<'_>, tip: Tip) -> Result<Verdict, Error> {
        let hash = block.hash;
        let index = BlockIndex {
            height: tip.height,
            prev_hash: block.header.prev_hash,
            status: Status::Valid,
            work: tip.work.clone(),
        };
        let batch = rows(block, &index, None);
        match self.connect(state, block, tip, batch, Check::Body)? {
            Ok(()) => {
                Ok(Ok(Import { connected: 1, ..Import::of(hash, Decision::AppliedAsNewTip) }))
            }
            Err(code) => {
                self.reject(block, &BlockIndex { status: Status::InvalidBody, ..index }, code)
            }
        }
    }

    /// Goes over to the best chain, which may be that of a block that was just stored.
    fn choose(&self, state: &mut State, hash: Hash) -> Result<Verdict, Error> {
        let moved = self.go_to_best(state, hash)?;
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        let index = store.need_index(hash)?;
        let decision = match index.status {
            Status::InvalidBody => {
                let code = store.reason(hash)?.unwrap_or(Code::BlockParse);
                return Ok(Err(Rejected { hash: Some(hash), code }));
            }
            Status::InvalidAncestry => Decision::InvalidAncestry,
            _ if state.tip.hash == hash => Decision::AppliedAsNewTip,
            _ => Decision::StoredNotSelected,
        };
        let (disconnected, connected) = moved;
        Ok(Ok(Import { hash, decision, disconnected, connected }))
    }
}

/// The rows of a block that is stored and does not wait.
fn rows(block: &Block<'_>, index: &BlockIndex, reason: Option<Code>) -> Batch {
    let mut batch = Batch::new();
    put_block(&mut batch, block, index);
    match reason {
        Some(code) => batch.put(REASONS, block.hash.as_bytes(), code.as_str().as_bytes()),
        None => batch.delete(REASONS, block.hash.as_bytes()),
    };
    forget(&mut batch, block.hash);
    batch
}

/// The rows of a block that is stored.
pub(super) fn put_block(batch: &mut Batch, block: &Block<'_>, index: &BlockIndex) {
    let key = block.hash;
    batch.put(HEADERS, key.as_bytes(), block.header_bytes());
    batch.put(BLOCKS, key.as_bytes(), block.bytes);
    batch.put(INDEX, key.as_bytes(), &index.encode());
}

/// The end of a chain, as the index has it.
pub(super) fn tip_of(hash: Hash, index: &BlockIndex) -> Tip {
    Tip { hash, height: index.height, work: index.work.clone() }
}
