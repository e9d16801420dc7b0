//! Everything deleted, to begin anew.
//!
//! It is noted first that this is under way, so that whoever opens the store after a crash goes on with it. Nobody ever sees half of
//! it.

use std::ops::Bound;

use ledger::Batch;

use super::Store;
use super::open::{WIPING, first_rows};
use crate::error::Error;
use crate::tables::{ARRIVALS, CONFIG, CSMT, KV, META, ROLLBACKS, WAYS};

impl Store {
    /// Deletes every entry, node and point, and begins anew before the first block.
    pub fn wipe(&self, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let mut state = self.lock();
        state.is_settled = false;
        let mut batch = Batch::new();
        batch.put(META, WIPING, &[1]);
        self.engine.commit(batch)?;
        self.wipe_all(progress)?;
        self.settle(&mut state)
    }

    /// Goes on with it after a crash.
    pub(super) fn finish_wiping(&self) -> Result<(), Error> {
        let is_wiping = self.engine.snapshot()?.get(META, WIPING)?.is_some();
        if is_wiping {
            tracing::info!("deleting what a wipe that was cut off left behind");
            self.wipe_all(&mut |_| {})?;
        }
        Ok(())
    }

    fn wipe_all(&self, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let mut rows = 0;
        for table in [KV, CSMT, ROLLBACKS, CONFIG, ARRIVALS, WAYS] {
            loop {
                let mut batch = Batch::new();
                {
                    let snapshot = self.engine.snapshot()?;
                    let all = snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded))?;
                    for row in all {
                        batch.delete(table, &row?.0);
                        if batch.byte_len() >= self.batch {
                            break;
                        }
                    }
                }
                if batch.is_empty() {
                    break;
                }
                rows += u64::try_from(batch.len()).unwrap_or(0);
                self.engine.commit(batch)?;
                progress(rows);
            }
        }
        // What else is noted belongs to work that is gone.
        let mut batch = Batch::new();
        {
            let snapshot = self.engine.snapshot()?;
            for row in snapshot.scan(META, (Bound::Unbounded, Bound::Unbounded))? {
                batch.delete(META, &row?.0);
            }
        }
        batch.append(&first_rows(self.settings));
        Ok(self.engine.commit(batch)?)
    }
}
