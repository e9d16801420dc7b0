//! Blocks that were invalid and may be good after all.
//!
//! A block is known by the hash of its header. That says nothing of the witness, and of the transactions only through the merkle
//! root, so whoever is first with another body under a good header could keep the block out for good. And a block from the future
//! is not from the future any more, some time later.

use std::collections::HashMap;

use ledger::Batch;

use super::orphans::{Orphan, note};
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
        let reason = store.reason(block.hash)?;
        let is_of_body = match index.status {
            Status::InvalidHeader if reason == Some(Code::BlockTimestampFuture) => return Ok(true),
            Status::InvalidHeader => reason == Some(Code::BlockMerkleInvalid),
            status => status == Status::InvalidBody,
        };
        if !is_of_body || block.merkle_root() != Some(block.header.merkle_root) {
            return Ok(false);
        }
        let bytes = store.block(block.hash)?;
        Ok(bytes.is_none_or(|bytes| *bytes != *block.bytes))
    }

    /// Lets all blocks wait for a block that were marked as invalid because of it, and only because of it. Whatever becomes of
    /// it, they go on like any that waited, also if this is cut off.
    pub(super) fn wake(&self, state: &mut State, hash: Hash) -> Result<(), Error> {
        let mut batch = Batch::new();
        let mut woken = Vec::new();
        {
            let snapshot = self.engine.snapshot()?;
            let store = Store::new(&*snapshot);
            let mut children: HashMap<Hash, Vec<Hash>> = HashMap::new();
            self.for_each_index(store, |hash, index| {
                if index.status == Status::InvalidAncestry {
                    children.entry(index.prev_hash).or_default().push(hash);
                }
            })?;
            let mut open = vec![hash];
            while let Some(prev_hash) = open.pop() {
                for child in children.remove(&prev_hash).unwrap_or_default() {
                    let header = store.header(child)?.ok_or(Error::BlockMissing(child))?;
                    let work = Work::of_target(&header.target).unwrap_or_default();
                    let (height, status) = (0, Status::Orphaned);
                    let index = BlockIndex { height, prev_hash, status, work };
                    batch.put(INDEX, child.as_bytes(), &index.encode());
                    note(&mut batch, child, prev_hash);
                    let len = store.need_block(child)?.len();
                    woken.push(Orphan { hash: child, parent: prev_hash, len });
                    open.push(child);
                }
            }
        }
        self.engine.commit(batch)?;
        woken.into_iter().for_each(|orphan| state.orphans.add(orphan));
        Ok(())
    }
}
