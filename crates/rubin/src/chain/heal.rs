//! Blocks that were invalid and may be good after all.
//!
//! A block is known by the hash of its header. That says nothing of the witness, and of the transactions only through the merkle
//! root, so whoever is first with another body under a good header could keep the block out for good. And a block from the future
//! is not from the future any more, some time later.

use ledger::Batch;

use super::import::is_own_body;
use super::orphans::Orphan;
use super::{Chain, State};
use crate::block::Block;
use crate::code::Code;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::{BlockIndex, Status};
use crate::store::Store;
use crate::tables::INDEX;
use crate::work::Work;

impl Chain {
    /// True if a block that is marked as invalid is to be looked at again.
    pub(super) fn may_be_good(
        &self,
        store: Store<'_>,
        block: &Block<'_>,
        index: &BlockIndex,
    ) -> Result<bool, Error> {
        if index.status == Status::InvalidHeader {
            return Ok(match store.reason(block.hash)? {
                Some(Code::BlockTimestampFuture) => true,
                // The body that came before was another then.
                Some(Code::BlockMerkleInvalid) => is_own_body(block),
                _ => false,
            });
        }
        if index.status != Status::InvalidBody || !is_own_body(block) {
            return Ok(false);
        }
        let bytes = store.block(block.hash)?;
        Ok(bytes.is_none_or(|bytes| *bytes != *block.bytes))
    }

    /// Lets all blocks wait that were marked as invalid because of a block which waits itself now. Those on top of a block that is
    /// good go on by themselves.
    pub(super) fn wake(
        &self,
        state: &mut State,
        batch: &mut Batch,
        hash: Hash,
    ) -> Result<(), Error> {
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        let mut open = vec![hash];
        while let Some(prev_hash) = open.pop() {
            let children = state.orphans.children(prev_hash);
            let woken = children.filter(|child| child.status == Status::InvalidAncestry);
            let woken: Vec<Orphan> = woken.copied().collect();
            for child in woken {
                let header = store.header(child.hash)?.ok_or(Error::BlockMissing(child.hash))?;
                let work = Work::of_target(&header.target).unwrap_or_default();
                let status = Status::Orphaned;
                let index = BlockIndex { height: 0, prev_hash, status, work };
                batch.put(INDEX, child.hash.as_bytes(), &index.encode());
                state.orphans.put(Orphan { status, ..child });
                open.push(child.hash);
            }
        }
        Ok(())
    }
}
