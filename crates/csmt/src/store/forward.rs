//! One block more.

use ledger::{Batch, Bytes};

use super::changes::Changes;
use super::{State, Store};
use crate::error::Error;
use crate::format::config::{self, Config};
use crate::format::point::Point;
use crate::format::rollback::{self, Operation};
use crate::hash::Hash;
use crate::tables::{ARRIVALS, CONFIG, ROLLBACKS};

/// What a block came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The root after it; none of an empty tree.
    pub root: Option<Hash>,
    /// Operations applied.
    pub operations: usize,
}

impl Store {
    /// Applies a block, with everything in one batch, durably.
    pub fn forward(&self, point: Point, operations: &[Operation]) -> Result<Applied, Error> {
        let mut state = self.lock();
        let state = &mut *state;
        self.settle(state)?;
        if state.is_unfinished {
            return Err(Error::Unfinished);
        }
        let Point::Block { slot, hash } = point else {
            return Err(Error::NotAfter(point, state.tip));
        };
        if let Point::Block { slot: last, .. } = state.tip
            && slot < last
        {
            return Err(Error::NotAfter(point, state.tip));
        }
        // Whatever fails from here on may have changed the store all the same.
        state.is_settled = false;
        let done = self.try_forward(state, point, hash, operations)?;
        state.is_settled = true;
        Ok(done)
    }

    fn try_forward(
        &self,
        state: &mut State,
        point: Point,
        hash: Hash,
        operations: &[Operation],
    ) -> Result<Applied, Error> {
        let mut batch = Batch::new();
        let root = {
            let snapshot = self.engine.snapshot()?;
            let key = rollback::key(&point);
            if snapshot.get(ROLLBACKS, &key)?.is_some() {
                return Err(Error::NotAfter(point, state.tip));
            }
            let mut changes = Changes::new(&*snapshot);
            let mut inverse = Vec::with_capacity(operations.len());
            for operation in operations {
                let value = operation.value().map(Bytes::Borrowed);
                let before = changes.apply(Bytes::Borrowed(operation.key()), value)?;
                inverse.push((operation.key(), before));
            }
            let changes = changes.finish(self.settings.path, &mut batch)?;
            state.tree.apply(&*snapshot, &changes, &mut batch)?;
            let root = state.tree.root(&*snapshot)?;
            let inverse = inverse.iter().rev().map(|(key, value)| (*key, value.as_deref()));
            batch.put(ROLLBACKS, &key, &rollback::row(Some(&hash), inverse, root.as_ref()));
            batch.put(ARRIVALS, &state.next_arrival.to_be_bytes(), &key);
            self.prune(state, &*snapshot, &mut batch)?;
            root
        };
        let config = Config { base: Some(point), ..Config::default() };
        batch.put(CONFIG, config::KEY, &config.to_bytes());
        self.engine.commit(batch)?;
        state.next_arrival += 1;
        state.first_arrival = state.first_kept(self.settings.k);
        state.tip = point;
        state.tree.trim();
        Ok(Applied { root, operations: operations.len() })
    }

    /// Forgets the oldest points, so that as many are left as blocks can be taken back, and the one before them.
    fn prune(
        &self,
        state: &State,
        snapshot: &dyn ledger::Snapshot,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let next = state.next_arrival + 1;
        let first = next.saturating_sub(u64::from(self.settings.k) + 1).max(state.first_arrival);
        match first - state.first_arrival {
            0 => return Ok(()),
            1 => {}
            // Each that comes lets one go: nobody counts to numbers that somebody made up.
            _ => return Err(Error::Inconsistent("there are too many rollback points".to_owned())),
        }
        let number = state.first_arrival.to_be_bytes();
        if let Some(key) = snapshot.get(ARRIVALS, &number)? {
            batch.delete(ROLLBACKS, &key);
        }
        batch.delete(ARRIVALS, &number);
        Ok(())
    }
}

impl State {
    /// The oldest point that is kept of those there are.
    fn first_kept(&self, k: u32) -> u64 {
        self.next_arrival.saturating_sub(u64::from(k) + 1).max(self.first_arrival)
    }
}
