//! Importing a block: decode, header, ancestry, fork choice, validation, apply.

use std::collections::VecDeque;

use ledger::Bytes;

use super::keep::rows;
use super::reorg::decode;
use super::steps::Check;
use super::{Chain, State};
use crate::block::Block;
use crate::code::Code;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::{BlockIndex, Status};
use crate::manifest::Tip;
use crate::store::{REORG_TARGET, Store};
use crate::tables::{HEIGHTS, META};
use crate::work::Work;

/// Invalid blocks on top of each other that are gone through to find a height.
const INVALID_WALK: usize = 64;

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
/// Where a block stands by its header and what is before it, or the rule that its header breaks.
type Placed = Result<BlockIndex, (BlockIndex, Code)>;

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
        let (mut disconnected, mut connected) =
            self.resume_orphans(state, block.hash, local_time)?;
        if let Some(more) = self.try_others(state, local_time)? {
            disconnected += more.0;
            connected += more.1;
            verdict = self.look_again(state, block.hash, verdict)?;
        }
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
            let index = Store::new(&*self.engine.snapshot()?).index(parent)?;
            let Some(index) = index.filter(|index| index.status != Status::Orphaned) else {
                continue;
            };
            for child in state.orphans.going_on(parent, index.status.is_invalid()) {
                // One before it may have pushed it out.
                if state.orphans.get(child).is_none() {
                    continue;
                }
                let bytes = {
                    let snapshot = self.engine.snapshot()?;
                    Store::new(&*snapshot).need_block(child)?.into_owned()
                };
                if let Ok(import) = self.import_one(state, &decode(child, &bytes)?, local_time)? {
                    disconnected += import.disconnected;
                    connected += import.connected;
                }
                queue.push_back(child);
            }
        }
        Ok((disconnected, connected))
    }

    /// Imports a body of a block. Of a block that is not decided yet the body that came first is gone on with, and others are kept.
    pub(super) fn import_one(
        &self,
        state: &mut State,
        block: &Block<'_>,
        local_time: Option<u64>,
    ) -> Result<Verdict, Error> {
        let (known, first) = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            let known = store.index(block.hash)?;
            let first = match &known {
                Some(index) if is_undecided(index.status) && is_own_body(block) => {
                    store.block(block.hash)?.filter(|first| **first != *block.bytes)
                }
                _ => None,
            };
            (known, first.map(Bytes::into_owned))
        };
        let Some(first) = first else { return self.decide(state, block, known, local_time) };
        self.keep_other(state, block)?;
        self.decide(state, &decode(block.hash, &first)?, known, local_time)
    }

    fn decide(
        &self,
        state: &mut State,
        block: &Block<'_>,
        known: Option<BlockIndex>,
        local_time: Option<u64>,
    ) -> Result<Verdict, Error> {
        let status = known.as_ref().map(|index| index.status);
        let placed = {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            if let Some(index) = &known
                && let Some(verdict) = self.known(state, store, block, index)?
            {
                return Ok(verdict);
            }
            if status.is_some_and(|status| !status.is_invalid()) && !is_own_body(block) {
                // The one that is stored has passed, and this one has nothing to do with it.
                let code = Code::BlockMerkleInvalid;
                return Ok(Err(Rejected { hash: Some(block.hash), code }));
            }
            self.place(state, store, block, status, local_time)?
        };
        let index = match placed {
            Ok(index) => index,
            Err((index, code)) => return self.reject(state, block, &index, code),
        };
        let is_new = status != Some(index.status);
        let decision = match index.status {
            Status::Orphaned => Decision::Orphaned,
            Status::InvalidAncestry => Decision::InvalidAncestry,
            _ => return self.choose_or_store(state, block, index, is_new),
        };
        if is_new {
            self.keep(state, block, &index, None)?;
        }
        Ok(Ok(Import::of(block.hash, decision)))
    }

    /// Where a block stands by its header and by what is before it: orphaned, on top of an invalid block, or not validated yet.
    fn place(
        &self,
        state: &mut State,
        store: Store<'_>,
        block: &Block<'_>,
        known: Option<Status>,
        local_time: Option<u64>,
    ) -> Result<Placed, Error> {
        // A target of zero has no work, and fails its checks.
        let own = Work::of_target(&block.header.target).unwrap_or_default();
        let prev_hash = block.header.prev_hash;
        let index = |height, status, work| BlockIndex { height, prev_hash, status, work };
        let invalid = Status::InvalidHeader;
        if prev_hash == Hash::ZERO {
            // Only genesis has nothing before it, and that is known.
            return Ok(Err((index(0, invalid, own), Code::BlockLinkageInvalid)));
        }
        let parent = store.index(prev_hash)?.filter(|parent| parent.status != Status::Orphaned);
        let Some(parent) = parent else {
            return Ok(match self.validator.check_orphan(block) {
                Ok(()) => Ok(index(0, Status::Orphaned, own)),
                Err(code) => Err((index(0, invalid, own), code)),
            });
        };
        let height = parent.height.saturating_add(1);
        let work = parent.work.plus(&own);
        // What is stored beside the best chain has passed before; with another clock it need not again.
        if known != Some(Status::Unknown)
            && let Err(code) = self.check_header(state, store, block, &parent, local_time)?
        {
            return Ok(Err((index(height, invalid, work), code)));
        }
        let is_lost = parent.status.is_invalid();
        let status = if is_lost { Status::InvalidAncestry } else { Status::Unknown };
        Ok(Ok(index(height, status, work)))
    }

    /// Checks a header whose parent is known, as far as what is before it is there.
    fn check_header(
        &self,
        state: &mut State,
        store: Store<'_>,
        block: &Block<'_>,
        parent: &BlockIndex,
        local_time: Option<u64>,
    ) -> Result<Result<(), Code>, Error> {
        let checked = match is_placed(store, parent)? {
            // When what it stands on turns out to be good, it is looked at again.
            false => self.validator.check_orphan(block),
            true => {
                let height = parent.height.saturating_add(1);
                let prev_hash = block.header.prev_hash;
                let context = state.headers.context(store, prev_hash, height, local_time)?;
                self.validator.check_header(block, &context)
            }
        };
        // Whatever the validator thinks: what is stored must be what the header says.
        let is_own = || if is_own_body(block) { Ok(()) } else { Err(Code::BlockMerkleInvalid) };
        Ok(checked.and_then(|()| is_own()))
    }

    /// Applies a block if that makes a better chain, and stores it otherwise.
    fn choose_or_store(
        &self,
        state: &mut State,
        block: &Block<'_>,
        index: BlockIndex,
        is_new: bool,
    ) -> Result<Verdict, Error> {
        let tip = tip_of(block.hash, &index);
        if !tip.is_better_than(&state.tip) {
            if is_new {
                self.store(state, block, &index, None)?;
            }
            return Ok(Ok(Import::of(block.hash, Decision::StoredNotSelected)));
        }
        if index.prev_hash == state.tip.hash {
            return self.extend(state, block, tip);
        }
        let mut batch = rows(block, &index, None);
        // Should this be cut off, nobody need send the block again: it may have waited for long.
        batch.put(META, REORG_TARGET, block.hash.as_bytes());
        self.engine.commit(batch)?;
        state.orphans.remove(block.hash);
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
            Status::InvalidAncestry => {
                // The block that it was invalid for may be good now, or pushed out.
                let parent = store.index(index.prev_hash)?;
                let is_invalid = parent.is_some_and(|parent| parent.status.is_invalid());
                Ok(is_invalid.then(|| Ok(Import::of(hash, Decision::InvalidAncestry))))
            }
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

    /// Notes that a block breaks a rule, and says which.
    fn reject(
        &self,
        state: &mut State,
        block: &Block<'_>,
        index: &BlockIndex,
        code: Code,
    ) -> Result<Verdict, Error> {
        let hash = block.hash;
        if !self.is_noted(hash, index.status, code)? {
            match index.status {
                Status::InvalidHeader => self.keep(state, block, index, Some(code))?,
                _ => self.store(state, block, index, Some(code))?,
            }
        }
        Ok(Err(Rejected { hash: Some(hash), code }))
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
                state.orphans.remove(hash);
                Ok(Ok(Import { connected: 1, ..Import::of(hash, Decision::AppliedAsNewTip) }))
            }
            Err(code) => {
                let index = BlockIndex { status: Status::InvalidBody, ..index };
                self.reject(state, block, &index, code)
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

    /// What to say of a block that was refused for a body, its own or that of a block before it, of which others had their turn
    /// since.
    fn look_again(&self, state: &State, hash: Hash, verdict: Verdict) -> Result<Verdict, Error> {
        if verdict.as_ref().is_ok_and(|import| import.decision != Decision::InvalidAncestry) {
            return Ok(verdict);
        }
        let snapshot = self.engine.snapshot()?;
        let index = Store::new(&*snapshot).index(hash)?;
        let Some(index) = index.filter(|index| !index.status.is_invalid()) else {
            return Ok(verdict);
        };
        let is_applied = hash == state.tip.hash
            || snapshot.get(HEIGHTS, &index.height.to_be_bytes())?.as_deref()
                == Some(hash.as_bytes().as_slice());
        let decision = match index.status {
            Status::Orphaned => Decision::Orphaned,
            _ if is_applied => Decision::AppliedAsNewTip,
            _ => Decision::StoredNotSelected,
        };
        Ok(Ok(Import::of(hash, decision)))
    }
}

/// True if the height of a block is right for sure. One that is invalid may have come before its own parent, and then nobody knew, nor
/// of any block that stands on it.
fn is_placed(store: Store<'_>, index: &BlockIndex) -> Result<bool, Error> {
    let mut index = index.clone();
    for _ in 0..INVALID_WALK {
        match index.status {
            Status::Orphaned => return Ok(false),
            Status::InvalidBody => return Ok(true),
            status if !status.is_invalid() => return Ok(true),
            _ => {}
        }
        match store.index(index.prev_hash)? {
            Some(parent) if parent.height.checked_add(1) == Some(index.height) => index = parent,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// True of a block whose body was not validated yet.
fn is_undecided(status: Status) -> bool {
    matches!(status, Status::Unknown | Status::Orphaned | Status::InvalidAncestry)
}

/// The transactions are those of the header.
pub(super) fn is_own_body(block: &Block<'_>) -> bool {
    block.merkle_root() == Some(block.header.merkle_root)
}

/// The end of a chain, as the index has it.
pub(super) fn tip_of(hash: Hash, index: &BlockIndex) -> Tip {
    Tip { hash, height: index.height, work: index.work.clone() }
}
