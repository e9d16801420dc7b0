//! Blocks taken back.

use std::ops::Bound;

use ledger::{Batch, Snapshot};

use super::changes::Changes;
use super::{State, Store};
use crate::error::Error;
use crate::format::config::{self, Config};
use crate::format::point::Point;
use crate::format::rollback::{self, RollbackPoint};
use crate::hash::Hash;
use crate::tables::{ARRIVALS, CONFIG, ROLLBACKS};

/// Bytes of entries that are held at once. A rollback of more is done in several batches, each of which ends after a block.
const BYTES: usize = 64 << 20;

/// What a rollback came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RolledBack {
    /// The state is that after the block that was asked for.
    Done {
        /// Blocks taken back.
        blocks: u64,
        /// The root now; none of an empty tree.
        root: Option<Hash>,
    },
    /// The point is not among those that are kept. Nothing was changed.
    Unknown,
}

impl Store {
    /// Goes back to the state right after a block, or to that before any.
    pub fn rollback(&self, to: Point) -> Result<RolledBack, Error> {
        let mut state = self.lock();
        let state = &mut *state;
        self.settle(state)?;
        if state.is_unfinished {
            return Err(Error::Unfinished);
        }
        let Some(number) = self.arrival(state, &to)? else { return Ok(RolledBack::Unknown) };
        // Whatever fails from here on may have changed the store all the same.
        state.is_settled = false;
        let mut blocks = 0;
        while state.next_arrival > number + 1 {
            blocks += self.take_back(state, number)?;
        }
        let root = state.tree.root(&*self.engine.snapshot()?)?;
        state.is_settled = true;
        Ok(RolledBack::Done { blocks, root })
    }

    /// The number of a point that is kept.
    fn arrival(&self, state: &State, point: &Point) -> Result<Option<u64>, Error> {
        let key = rollback::key(point);
        let snapshot = self.engine.snapshot()?;
        let from = state.first_arrival.to_be_bytes();
        let rows = snapshot.scan(ARRIVALS, (Bound::Included(&from), Bound::Unbounded))?;
        for row in rows.rev() {
            let (number, found) = row?;
            if *found == key {
                let number = <[u8; 8]>::try_from(&*number).ok().map(u64::from_be_bytes);
                return Ok(number.filter(|number| *number < state.next_arrival));
            }
        }
        Ok(None)
    }

    /// Takes blocks back in one batch, the newest first, as many as fit. Gives how many.
    fn take_back(&self, state: &mut State, to: u64) -> Result<u64, Error> {
        let mut batch = Batch::new();
        let mut last = state.next_arrival;
        let tip = {
            let snapshot = self.engine.snapshot()?;
            let mut changes = Changes::new(&*snapshot);
            while last > to + 1 && changes.bytes < BYTES {
                let (key, point) = point_of(&*snapshot, last - 1)?;
                for operation in point.operations {
                    let (key, value) = operation.into_parts();
                    changes.apply(key.into(), value.map(Into::into))?;
                }
                batch.delete(ROLLBACKS, &key);
                batch.delete(ARRIVALS, &(last - 1).to_be_bytes());
                last -= 1;
            }
            let (key, point) = point_of(&*snapshot, last - 1)?;
            let tip =
                rollback::point(&key).map_err(|wrong| Error::damaged(ROLLBACKS, &key, wrong))?;
            let changes = changes.finish(self.settings.path, &mut batch)?;
            state.tree.apply(&*snapshot, &changes, &mut batch)?;
            let root = state.tree.root(&*snapshot)?;
            if root != point.root {
                return Err(Error::Inconsistent(format!(
                    "going back to {tip} does not come to its root"
                )));
            }
            tip
        };
        let config = Config { base: Some(tip), ..Config::default() };
        batch.put(CONFIG, config::KEY, &config.to_bytes());
        self.engine.commit(batch)?;
        let blocks = state.next_arrival - last;
        (state.next_arrival, state.tip) = (last, tip);
        state.tree.trim();
        Ok(blocks)
    }
}

/// The key of the point with a number, and what it says.
pub(super) fn point_of(
    snapshot: &dyn Snapshot,
    number: u64,
) -> Result<(Vec<u8>, RollbackPoint), Error> {
    let missing = || Error::Inconsistent(format!("rollback point {number} is not there"));
    let key = snapshot.get(ARRIVALS, &number.to_be_bytes())?.ok_or_else(missing)?.into_owned();
    let row = snapshot.get(ROLLBACKS, &key)?.ok_or_else(missing)?;
    let point = RollbackPoint::from_bytes(&row);
    Ok((key.clone(), point.map_err(|wrong| Error::damaged(ROLLBACKS, &key, wrong))?))
}
