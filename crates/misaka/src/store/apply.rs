//! A checkpoint, applied: everything it changes in one batch, after its root was made and found to be right.

use ledger::{Batch, Snapshot};

use super::draft::Draft;
use super::events;
use super::open::{TIP, TREE_TOP};
use super::prune::Pruned;
use super::roots::NewRoot;
use super::rows::{Note, ROW, TipRow, journal_entry, part_key, seq_key, version_key};
use super::{State, Store, Tip};
use crate::checkpoint::Checkpoint;
use crate::error::{Error, Rule};
use crate::format::checkpoint::value;
use crate::format::node;
use crate::format::version::Version;
use crate::hash::Hash;
use crate::settings::RootVersion;
use crate::tables::{CHECKPOINTS, FEED, JOURNAL, META, NOTES, OBJECTS, PARAMS, VERSIONS};

/// Bytes of a row of the feed.
const FEED_ROW: usize = 1 << 20;

/// What applying a checkpoint came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Applied {
    /// The number of the checkpoint.
    pub seq: u64,
    /// Its digest.
    pub digest: Hash,
    /// The root of the state after it.
    pub root: Hash,
    /// What it let go.
    pub pruned: Pruned,
}

impl Store {
    /// Applies a checkpoint, whole or not at all.
    pub fn apply(&self, checkpoint: &Checkpoint) -> Result<Applied, Error> {
        let mut state = self.lock();
        self.settle(&mut state)?;
        self.prepare(&mut state, checkpoint)?;
        let snapshot = self.engine.snapshot()?;
        let draft = self.draft(&*snapshot, &state, checkpoint)?;
        let (root, mut new) = self.root_of(&*snapshot, &mut state, &draft)?;
        let header = &checkpoint.header;
        if root != header.state_root {
            undo(&mut state, new);
            let what = format!("the state has {root}, the header {}", header.state_root);
            return Err(Error::refused(Rule::StateRoot, what));
        }
        let made = self.batch(&*snapshot, &state, &draft, &mut new);
        let (batch, pruned, tip) = match made {
            Ok(made) => made,
            Err(error) => {
                undo(&mut state, new);
                return Err(error);
            }
        };
        let params = draft.all_params;
        drop(snapshot);
        if let Err(error) = self.engine.commit(batch) {
            // Whether it is there now, the tables will tell.
            state.is_settled = false;
            return Err(error.into());
        }
        let digest = tip.digest;
        state.tip = Some(tip);
        state.params = params;
        if let NewRoot::V2(top, _) = new {
            state.tree = Some(top);
        }
        tracing::debug!(seq = header.seq, %root, "checkpoint applied");
        Ok(Applied { seq: header.seq, digest, root, pruned })
    }

    /// The root of the state after a checkpoint, whatever its header says of it. Nothing is written but, before the first checkpoint with
    /// a root of v2, the tree for it.
    pub fn root_after(&self, checkpoint: &Checkpoint) -> Result<Hash, Error> {
        let mut state = self.lock();
        self.settle(&mut state)?;
        self.prepare(&mut state, checkpoint)?;
        let snapshot = self.engine.snapshot()?;
        let draft = self.draft(&*snapshot, &state, checkpoint)?;
        let (root, new) = self.root_of(&*snapshot, &mut state, &draft)?;
        undo(&mut state, new);
        Ok(root)
    }

    /// Makes the tree before the first checkpoint that needs it, if that is one which could follow.
    fn prepare(&self, state: &mut State, checkpoint: &Checkpoint) -> Result<(), Error> {
        let is_v1 = self.settings.root_version(checkpoint.header.seq) == RootVersion::V1;
        // The first checkpoint may have any number, and if it is refused another may come first, from before there is a tree.
        if is_v1 || state.tree.is_some() || state.tip.is_none() {
            return Ok(());
        }
        // Not for something that is refused anyway.
        let snapshot = self.engine.snapshot()?;
        self.draft(&*snapshot, state, checkpoint)?;
        drop(snapshot);
        self.make_tree(state)
    }

    /// Everything that a checkpoint changes.
    fn batch(
        &self,
        snapshot: &dyn Snapshot,
        state: &State,
        draft: &Draft<'_>,
        new: &mut NewRoot,
    ) -> Result<(Batch, Pruned, Tip), Error> {
        let (seq, checkpoint) = (draft.seq, draft.checkpoint);
        let mut batch = Batch::new();
        if let NewRoot::V2(top, rows) = new {
            // The rows of the tree are most of it: the others are added to them.
            let mut rows = std::mem::take(rows).into_iter();
            batch = rows.next().unwrap_or_default();
            rows.for_each(|rows| {
                batch.append(&rows);
            });
            batch.put(META, TREE_TOP, &node::top_value(top));
        }
        for touched in &draft.touched {
            let newest = &touched.newest;
            batch.put_parts(OBJECTS, &[&newest.id.0], &[&newest.seq.to_le_bytes(), newest.bytes]);
        }
        let mut note = Note::default();
        let mut journal = Vec::with_capacity(ROW);
        for (at, write) in draft.writes.iter().enumerate() {
            let version = Version { digest: write.digest, is_tombstone: write.is_tombstone, seq };
            batch.put(VERSIONS, &version_key(&write.id, write.version), &version.encode());
            journal.extend_from_slice(&journal_entry(&write.id, write.version));
            if journal.len() >= ROW || at + 1 == draft.writes.len() {
                batch.put(JOURNAL, &part_key(seq, note.journal_rows), &journal);
                note.journal_rows += 1;
                journal.clear();
            }
        }
        for (name, value) in &draft.params {
            batch.put(PARAMS, name.as_bytes(), value);
        }
        note.event_rows = events::write(&mut batch, seq, &draft.events);
        note.events = u64::try_from(draft.events.len()).unwrap_or(u64::MAX);
        for row in checkpoint.encode_with(&[]).chunks(FEED_ROW) {
            batch.put(FEED, &part_key(seq, note.feed_rows), row);
            note.feed_rows += 1;
        }
        let header = &checkpoint.header;
        batch.put(CHECKPOINTS, &seq_key(seq), &value(header, &checkpoint.tx_digests));
        batch.put(NOTES, &seq_key(seq), &note.encode());
        let before = state.tip.as_ref();
        let tip = Tip {
            header: header.clone(),
            digest: header.digest(),
            first: before.map_or(seq, |tip| tip.first),
            objects: before.map_or(0, |tip| tip.objects).saturating_add(draft.created()),
        };
        batch.put(META, TIP, &TipRow::encode(header, tip.first, tip.objects));
        let pruned = self.prune(snapshot, seq, &draft.touched, &mut batch)?;
        Ok((batch, pruned, tip))
    }
}

/// Leaves in memory as they were.
fn undo(state: &mut State, new: NewRoot) {
    if let (NewRoot::V1(Some(undo)), Some(root1)) = (new, &mut state.root1) {
        root1.undo(undo);
    }
}
