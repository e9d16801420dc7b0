//! From StateRoot-v1 to v2: before the checkpoint that brings it, the tree is made of everything there is.
//!
//! That takes several batches, and nobody else sees them: only what is noted at the end makes the tree one. If it is cut off, it is made
//! again, of the same state, and so of the same rows.

use ledger::Batch;

use super::open::TREE_TOP;
use super::roots::Progress;
use super::{State, Store};
use crate::error::{Error, Rule};
use crate::format::node;
use crate::hash::Hash;
use crate::tables::META;

impl Store {
    /// Makes the tree, if there is none, once the v1 root of the state was found to be that of the newest header.
    pub(super) fn make_tree(&self, state: &mut State) -> Result<(), Error> {
        if state.tree.is_some() {
            return Ok(());
        }
        state.root1 = None;
        let objects = state.tip.as_ref().map_or(0, |tip| tip.objects);
        if let Some(tip) = &state.tip {
            let root = self.view()?.full_root(crate::RootVersion::V1, &|_, _, _| {})?;
            if root != tip.header.state_root {
                let what = format!("{root} is not {}", tip.header.state_root);
                return Err(Error::refused(Rule::RootBeforeV2, what));
            }
        }
        self.write_tree(state, objects, &|_, _, _| {})?;
        Ok(())
    }

    /// Makes the tree of a store that was restored. Gives its root.
    pub(crate) fn restore_tree(&self, objects: u64, progress: Progress<'_>) -> Result<Hash, Error> {
        self.write_tree(&mut self.lock(), objects, progress)
    }

    /// Makes the tree of everything there is.
    fn write_tree(
        &self,
        state: &mut State,
        objects: u64,
        progress: Progress<'_>,
    ) -> Result<Hash, Error> {
        let snapshot = self.engine.snapshot()?;
        let mut gathered = Batch::new();
        let mut take = |rows: Batch| {
            gathered.append(&rows);
            if gathered.byte_len() >= self.effort.batch {
                self.engine.commit(std::mem::take(&mut gathered))?;
            }
            Ok(())
        };
        let top = self.full_tree(&*snapshot, objects, progress, Some(&mut take))?;
        drop(snapshot);
        gathered.put(META, TREE_TOP, &node::top_value(&top));
        self.engine.commit(gathered)?;
        state.tree = Some(top);
        Ok(top.digest())
    }
}
