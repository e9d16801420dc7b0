//! Rows of blocks that are not applied: what is stored of them, and for how long.

use ledger::Batch;

use super::orphans::{Orphan, drop_rows, forget, note};
use super::{Chain, State};
use crate::block::Block;
use crate::code::Code;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::{BlockIndex, Status};
use crate::store::Store;
use crate::tables::{BLOCKS, HEADERS, INDEX, REASONS};

impl Chain {
    /// True if a block is marked like that already. Of bodies that are invalid, the first one stays.
    pub(super) fn is_noted(&self, hash: Hash, status: Status, code: Code) -> Result<bool, Error> {
        let snapshot = self.engine.snapshot()?;
        let store = Store::new(&*snapshot);
        if store.index(hash)?.is_none_or(|index| index.status != status) {
            return Ok(false);
        }
        Ok(status == Status::InvalidBody || store.reason(hash)? == Some(code))
    }

    /// Keeps a block that does not count, or the mark of an invalid header, as long as there is room.
    pub(super) fn keep(
        &self,
        state: &mut State,
        block: &Block<'_>,
        index: &BlockIndex,
        reason: Option<Code>,
    ) -> Result<(), Error> {
        let (hash, parent, status) = (block.hash, index.prev_hash, index.status);
        let mut batch = rows(block, index, reason);
        let mut len = 0;
        if status == Status::InvalidHeader {
            state.bodies.forget(&mut batch, hash);
        } else {
            len = block.bytes.len() + state.bodies.len_of(hash);
        }
        note(&mut batch, hash, parent);
        let orphan = Orphan { hash, parent, status, len };
        state.make_room(&mut batch, &orphan);
        state.orphans.put(orphan);
        if status == Status::Orphaned {
            self.wake(state, &mut batch, hash)?;
        }
        Ok(self.engine.commit(batch)?)
    }

    /// Stores a block that is not applied.
    pub(super) fn store(
        &self,
        state: &mut State,
        block: &Block<'_>,
        index: &BlockIndex,
        reason: Option<Code>,
    ) -> Result<(), Error> {
        self.engine.commit(rows(block, index, reason))?;
        state.orphans.remove(block.hash);
        if index.status == Status::InvalidBody {
            state.bodies.call(block.hash);
        }
        Ok(())
    }
}

impl State {
    /// Lets blocks go, with all their rows, so that another can be kept.
    pub(super) fn make_room(&mut self, batch: &mut Batch, orphan: &Orphan) {
        for hash in self.orphans.in_the_way_of(orphan) {
            drop_rows(batch, hash);
            self.bodies.forget(batch, hash);
            self.orphans.remove(hash);
        }
    }
}

/// The rows of a block that is stored and does not wait.
pub(super) fn rows(block: &Block<'_>, index: &BlockIndex, reason: Option<Code>) -> Batch {
    let mut batch = Batch::new();
    put_block(&mut batch, block, index);
    match reason {
        Some(code) => batch.put(REASONS, block.hash.as_bytes(), code.as_str().as_bytes()),
        None => batch.delete(REASONS, block.hash.as_bytes()),
    };
    forget(&mut batch, block.hash);
    batch
}

/// The rows of a block that is stored. With an invalid header the body is worth nothing.
pub(super) fn put_block(batch: &mut Batch, block: &Block<'_>, index: &BlockIndex) {
    let key = block.hash;
    batch.put(HEADERS, key.as_bytes(), block.header_bytes());
    match index.status {
        Status::InvalidHeader => batch.delete(BLOCKS, key.as_bytes()),
        _ => batch.put(BLOCKS, key.as_bytes(), block.bytes),
    };
    batch.put(INDEX, key.as_bytes(), &index.encode());
}
