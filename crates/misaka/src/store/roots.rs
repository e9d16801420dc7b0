//! The root of the state after a checkpoint, and of the state as it is.

use ledger::{Batch, Snapshot};

use super::draft::Draft;
use super::view::View;
use super::{State, Store};
use crate::error::Error;
use crate::format::key::Key;
use crate::format::node::{Child, Place};
use crate::hash::Hash;
use crate::leaf::{self, Hashed, Record};
use crate::root1::{Leaves, OBJECT_BYTES, Undo};
use crate::settings::RootVersion;
use crate::threads;
use crate::tree::{Change, Nodes};

/// Objects that are worth a thread.
const FOR_A_THREAD: usize = 512;

/// What takes long is done in stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Objects are hashed.
    Hashing,
    /// Rows are compared with each other.
    Checking,
    /// Chunks of a snapshot are written.
    Writing,
    /// Chunks of a snapshot are read.
    Reading,
}

impl Stage {
    /// What is done.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Hashing => "hashing",
            Stage::Checking => "checking",
            Stage::Writing => "writing",
            Stage::Reading => "reading",
        }
    }
}

/// Who is told how far something is: the stage, how much is done, of how much. Any thread may call it.
pub(crate) type Progress<'a> = &'a (dyn Fn(Stage, u64, u64) + Sync);

/// What comes with a new root.
#[derive(Debug)]
pub(super) enum NewRoot {
    /// Leaves of v1 that became others; none if they are not kept.
    V1(Option<Undo>),
    /// What stands above all in the tree of v2, and the rows of its nodes.
    V2(Child, Vec<Batch>),
}

impl Store {
    /// The root after a checkpoint. Leaves in memory are those after it then.
    pub(super) fn root_of(
        &self,
        snapshot: &dyn Snapshot,
        state: &mut State,
        draft: &Draft<'_>,
    ) -> Result<(Hash, NewRoot), Error> {
        match (self.settings.root_version(draft.seq), state.tree) {
            (RootVersion::V1, _) => self.root1_of(snapshot, state, draft),
            (RootVersion::V2, Some(top)) => self.root2_of(snapshot, top, draft),
            (RootVersion::V2, None) => Err(Error::Inconsistent("there is no tree".to_owned())),
        }
    }

    fn hash_touched(&self, root: RootVersion, draft: &Draft<'_>) -> Vec<Hashed> {
        let records: Vec<Record<'_>> = draft.touched.iter().map(|touched| touched.newest).collect();
        let parts = threads::over(&records, self.effort.threads, FOR_A_THREAD, |records| {
            leaf::hash_records(root, records)
        });
        parts.concat()
    }

    fn param_leaves(&self, root: RootVersion, draft: &Draft<'_>) -> Vec<(String, Hash)> {
        let leaf = |(name, value): &(&str, &[u8])| {
            let name = (*name).to_owned();
            let leaf = leaf::leaf(root, &Key::Param(name.clone()).encode(), value);
            (name, leaf)
        };
        draft.params.iter().map(leaf).collect()
    }

    fn root1_of(
        &self,
        snapshot: &dyn Snapshot,
        state: &mut State,
        draft: &Draft<'_>,
    ) -> Result<(Hash, NewRoot), Error> {
        let before = state.tip.as_ref().map_or(0, |tip| tip.objects);
        let objects = before.saturating_add(draft.created());
        let needed = usize::try_from(objects).unwrap_or(usize::MAX).saturating_mul(OBJECT_BYTES);
        if needed > self.effort.kept() {
            state.root1 = None;
            let root = self.stream_root1(
                snapshot,
                &draft.all_params,
                &draft.touched,
                objects,
                &|_, _, _| {},
            )?;
            return Ok((root, NewRoot::V1(None)));
        }
        let root1 = match &mut state.root1 {
            Some(root1) => root1,
            none => none.insert(self.load_leaves(snapshot, before, &|_, _, _| {})?),
        };
        let hashed = self.hash_touched(RootVersion::V1, draft);
        let leaves: Vec<Leaves> = draft
            .touched
            .iter()
            .zip(hashed)
            .map(|(touched, hashed)| Leaves {
                id: touched.newest.id,
                object: hashed.object,
                version: hashed.version,
            })
            .collect();
        let undo = root1.change(&leaves, &self.param_leaves(RootVersion::V1, draft));
        Ok((root1.root(), NewRoot::V1(Some(undo))))
    }

    fn root2_of(
        &self,
        snapshot: &dyn Snapshot,
        top: Child,
        draft: &Draft<'_>,
    ) -> Result<(Hash, NewRoot), Error> {
        let hashed = self.hash_touched(RootVersion::V2, draft);
        let mut changes: Vec<Change> = Vec::with_capacity(3 * hashed.len());
        let newest: Vec<(Hash, u64)> = draft
            .touched
            .iter()
            .map(|touched| (touched.newest.id, touched.newest.version))
            .collect();
        let mut change = |path, place, digest| changes.push(Change { path, place, digest });
        for (((id, version), paths), hashed) in newest.iter().zip(leaf::paths(&newest)).zip(hashed)
        {
            change(paths.0, Place::Object(*id), Some(hashed.object));
            change(paths.1, Place::Version(*id, *version), Some(hashed.version));
        }
        let old: Vec<(Hash, u64)> = draft
            .touched
            .iter()
            .filter_map(|touched| Some((touched.newest.id, touched.old?.version)))
            .collect();
        for ((id, version), paths) in old.iter().zip(leaf::paths(&old)) {
            change(paths.1, Place::Version(*id, *version), None);
        }
        for (name, leaf) in self.param_leaves(RootVersion::V2, draft) {
            let path = leaf::path(&Key::Param(name).encode());
            change(path, Place::Param(path), Some(leaf));
        }
        changes.sort_unstable();
        let (top, rows) = Nodes { snapshot }.change(top, &changes, self.effort.threads)?;
        Ok((top.digest(), NewRoot::V2(top, rows)))
    }
}

impl View<'_> {
    /// The root of the state as it is, made anew from every object.
    pub fn full_root(&self, version: RootVersion, progress: Progress<'_>) -> Result<Hash, Error> {
        let objects = self.tip()?.map_or(0, |tip| tip.objects);
        match version {
            RootVersion::V1 => {
                let needed = usize::try_from(objects).unwrap_or(usize::MAX);
                if needed.saturating_mul(OBJECT_BYTES) <= self.store.effort.kept() {
                    let root1 = self.store.load_leaves(&*self.snapshot, objects, progress)?;
                    return Ok(root1.root());
                }
                let params = self.params()?;
                self.store.stream_root1(&*self.snapshot, &params, &[], objects, progress)
            }
            RootVersion::V2 => {
                let top = self.store.full_tree(&*self.snapshot, objects, progress, None)?;
                Ok(top.digest())
            }
        }
    }
}
