//! The root of the state after a checkpoint, and of the state as it is.

use ledger::{Batch, Snapshot};

use super::draft::{Draft, Touched};
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
            // The tree of nothing.
            (RootVersion::V2, None) if state.tip.is_none() => {
                self.root2_of(snapshot, Child::Empty, draft)
            }
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
            none => none.insert(self.load_leaves(snapshot, before)?),
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
        let parts = threads::over(&draft.touched, self.effort.threads, FOR_A_THREAD, changes_of);
        let mut changes = parts.concat();
        for (name, leaf) in self.param_leaves(RootVersion::V2, draft) {
            let path = leaf::path(&Key::Param(name).encode());
            changes.push(Change { path, place: Place::Param(path), digest: Some(leaf) });
        }
        let changes = sorted(changes);
        let (top, rows) = Nodes { snapshot }.change(top, &changes, self.effort.threads)?;
        Ok((top.digest(), NewRoot::V2(top, rows)))
    }
}

/// What objects that are written change in the tree.
fn changes_of(touched: &[Touched<'_>]) -> Vec<Change> {
    let records: Vec<Record<'_>> = touched.iter().map(|touched| touched.newest).collect();
    let hashed = leaf::hash_records(RootVersion::V2, &records);
    let newest: Vec<(Hash, u64)> =
        records.iter().map(|record| (record.id, record.version)).collect();
    let mut changes = Vec::with_capacity(3 * touched.len());
    for (((id, version), paths), hashed) in newest.iter().zip(leaf::paths(&newest)).zip(hashed) {
        let (object, newest) = (Place::Object(*id), Place::Version(*id, *version));
        changes.push(Change { path: paths.0, place: object, digest: Some(hashed.object) });
        changes.push(Change { path: paths.1, place: newest, digest: Some(hashed.version) });
    }
    let old: Vec<(Hash, u64)> = touched
        .iter()
        .filter_map(|touched| Some((touched.newest.id, touched.old?.version)))
        .collect();
    for ((id, version), path) in old.iter().zip(leaf::version_paths(&old)) {
        changes.push(Change { path, place: Place::Version(*id, *version), digest: None });
    }
    changes
}

/// Changes in the order of their paths. They are large, and mostly a few bytes of the path tell them apart.
fn sorted(changes: Vec<Change>) -> Vec<Change> {
    let first = |change: &Change| change.path.0.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
    let mut order: Vec<(u64, &Change)> =
        changes.iter().map(|change| (first(change), change)).collect();
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.cmp(b.1)));
    order.into_iter().map(|(_, change)| *change).collect()
}

impl View<'_> {
    /// The root of the state as it is, made anew from every object.
    pub fn full_root(&self, version: RootVersion, progress: Progress<'_>) -> Result<Hash, Error> {
        let objects = self.tip()?.map_or(0, |tip| tip.objects);
        match version {
            RootVersion::V1 => self.store.full_root1(&*self.snapshot, objects, progress),
            RootVersion::V2 => {
                let top = self.store.full_tree(&*self.snapshot, objects, progress, None)?;
                Ok(top.digest())
            }
        }
    }
}
