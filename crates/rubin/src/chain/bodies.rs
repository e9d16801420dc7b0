//! Other bodies under the header of a block that was not validated yet.
//!
//! A hash says nothing of witnesses, so anybody can make more bodies for a header, and which one is good is known only when the
//! block's turn has come. Until then a few are kept beside the one that came first. If that turns out to be invalid, the others have
//! their turn as if they came just then; if one is applied, the rest is forgotten.

use std::collections::HashMap;
use std::ops::Bound;

use ledger::{Batch, Bytes, Snapshot};

use super::orphans::Orphan;
use super::{Chain, State};
use crate::block::Block;
use crate::error::Error;
use crate::hash::Hash;
use crate::index::Status;
use crate::store::Store;
use crate::tables::META;

/// Bodies kept beside the first one. More are not needed: once those are decided, whoever sends the good one again is heard.
const OTHERS_MAX: usize = 3;
/// Keys in the store's own table: this, the block's hash, and the hash of all its bytes.
const PREFIX: &[u8] = b"other_body/";
/// The end of these keys.
const PREFIX_END: &[u8] = b"other_body0";

/// A body, by the hash of the block's bytes.
#[derive(Clone, Copy, Debug)]
struct Body {
    digest: Hash,
    len: usize,
}

/// Bodies beside those that came first.
#[derive(Debug, Default)]
pub(super) struct OtherBodies {
    by_block: HashMap<Hash, Vec<Body>>,
    /// Blocks whose first body turned out to be invalid, and whose others have their turn.
    due: Vec<Hash>,
}

impl OtherBodies {
    /// Those that the store has.
    pub(super) fn load(snapshot: &dyn Snapshot) -> Result<OtherBodies, Error> {
        let mut bodies = OtherBodies::default();
        let range = (Bound::Included(PREFIX), Bound::Excluded(PREFIX_END));
        for row in snapshot.scan(META, range)? {
            let (key, bytes) = row?;
            let hashes = key.strip_prefix(PREFIX).and_then(|key| key.split_at_checked(32));
            let Some((Some(hash), Some(digest))) =
                hashes.map(|(hash, digest)| (Hash::from_slice(hash), Hash::from_slice(digest)))
            else {
                continue;
            };
            bodies.by_block.entry(hash).or_default().push(Body { digest, len: bytes.len() });
            // Whether it is their turn is looked at when it comes.
            bodies.call(hash);
        }
        Ok(bodies)
    }

    fn of(&self, hash: Hash) -> &[Body] {
        self.by_block.get(&hash).map_or(&[], Vec::as_slice)
    }

    /// Bytes of a block's other bodies.
    pub(super) fn len_of(&self, hash: Hash) -> usize {
        self.of(hash).iter().map(|body| body.len).sum()
    }

    /// A block's body is invalid: it is the turn of the others.
    pub(super) fn call(&mut self, hash: Hash) {
        if self.by_block.contains_key(&hash) && !self.due.contains(&hash) {
            self.due.push(hash);
        }
    }

    /// Forgets one body of a block. False if that was done.
    fn remove(&mut self, hash: Hash, digest: Hash) -> bool {
        let Some(bodies) = self.by_block.get_mut(&hash) else { return false };
        let count = bodies.len();
        bodies.retain(|body| body.digest != digest);
        let is_removed = bodies.len() < count;
        if bodies.is_empty() {
            self.by_block.remove(&hash);
        }
        is_removed
    }

    /// Forgets a block's other bodies, with their rows.
    pub(super) fn forget(&mut self, batch: &mut Batch, hash: Hash) {
        for body in self.by_block.remove(&hash).unwrap_or_default() {
            batch.delete_parts(META, &[PREFIX, hash.as_bytes(), body.digest.as_bytes()]);
        }
    }
}

impl Chain {
    /// Keeps another body of a block that is not decided yet, if there is room.
    pub(super) fn keep_other(&self, state: &mut State, block: &Block<'_>) -> Result<(), Error> {
        let (hash, digest) = (block.hash, Hash::of(&[block.bytes]));
        let others = state.bodies.of(hash);
        if others.len() >= OTHERS_MAX || others.iter().any(|other| other.digest == digest) {
            return Ok(());
        }
        let body = Body { digest, len: block.bytes.len() };
        let mut batch = Batch::new();
        let key = [PREFIX, hash.as_bytes(), digest.as_bytes()];
        batch.put_parts(META, &key, &[block.bytes]);
        if let Some(orphan) = state.orphans.get(hash).copied() {
            let orphan = Orphan { len: orphan.len + body.len, ..orphan };
            state.make_room(&mut batch, &orphan);
            state.orphans.put(orphan);
        }
        self.engine.commit(batch)?;
        state.bodies.by_block.entry(hash).or_default().push(body);
        Ok(())
    }

    /// Lets the other bodies of blocks that turned out to be invalid have their turn. Gives how many blocks were taken back and
    /// applied for that; none if it was nobody's turn.
    pub(super) fn try_others(
        &self,
        state: &mut State,
        local_time: Option<u64>,
    ) -> Result<Option<(u64, u64)>, Error> {
        let mut moved = None;
        while let Some(hash) = state.bodies.due.pop() {
            let index = Store::new(&*self.engine.snapshot()?).index(hash)?;
            if index.is_none_or(|index| index.status != Status::InvalidBody) {
                continue;
            }
            let Some(body) = state.bodies.of(hash).first().copied() else { continue };
            let (disconnected, connected) = moved.unwrap_or_default();
            let here = self.try_other(state, hash, body, local_time)?;
            let on_top = self.resume_orphans(state, hash, local_time)?;
            moved = Some((disconnected + here.0 + on_top.0, connected + here.1 + on_top.1));
            // If that one was no good either, it is the next one's turn.
            state.bodies.call(hash);
        }
        Ok(moved)
    }

    fn try_other(
        &self,
        state: &mut State,
        hash: Hash,
        body: Body,
        local_time: Option<u64>,
    ) -> Result<(u64, u64), Error> {
        let mut moved = (0, 0);
        let key = [PREFIX, hash.as_bytes(), body.digest.as_bytes()].concat();
        let bytes = self.engine.snapshot()?.get(META, &key)?.map(Bytes::into_owned);
        if let Some(bytes) = bytes {
            let block = Block::decode(&bytes).map_err(|wrong| Error::damaged(META, &key, wrong))?;
            if let Ok(import) = self.import_one(state, &block, local_time)? {
                moved = (import.disconnected, import.connected);
            }
        }
        // Order: until it had its turn it stays, should this be cut off.
        if state.bodies.remove(hash, body.digest) {
            let mut batch = Batch::new();
            batch.delete(META, &key);
            self.engine.commit(batch)?;
        }
        Ok(moved)
    }
}
