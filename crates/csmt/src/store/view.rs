//! The store as of one commit, for whoever looks at it.

use std::ops::Bound;
use std::sync::MutexGuard;

use ledger::{Bytes, Snapshot, Table};

use super::rollback::point_of;
use super::{State, Store};
use crate::error::Error;
use crate::format::node;
use crate::format::point::Point;
use crate::format::rollback;
use crate::format::tuft::Form;
use crate::hash::Hash;
use crate::path::Path;
use crate::proof::{Completeness, Exclusion, Inclusion, Leaf};
use crate::settings::PathKind;
use crate::tables::{CSMT, KV};
use crate::tree::{complete, exclude, include, nodes};

/// An entry: its key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A point that can be gone back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointFacts {
    /// The point; origin is before the first block.
    pub point: Point,
    /// The root after it; none of an empty tree.
    pub root: Option<Hash>,
    /// Operations that take its block back.
    pub operations: usize,
}

/// The store as of one commit. Nobody changes it as long as this is there.
pub struct View<'a> {
    state: MutexGuard<'a, State>,
    snapshot: Box<dyn Snapshot + 'a>,
    path: PathKind,
    form: Form,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("tip", &self.state.tip).finish_non_exhaustive()
    }
}

impl Store {
    /// The store as it is now.
    pub fn view(&self) -> Result<View<'_>, Error> {
        let mut state = self.lock();
        let snapshot = self.engine.snapshot()?;
        if self.is_reader || !state.is_settled {
            state.read(&*snapshot)?;
        }
        Ok(View { state, snapshot, path: self.settings.path, form: self.form })
    }
}

impl Store {
    /// Reads nodes into memory, those at the top first, as many as there is room for. Gives how many. Whoever follows a chain for long
    /// need not wait until blocks have brought them there.
    pub fn warm(&self) -> Result<u64, Error> {
        let mut view = self.view()?;
        let View { state, snapshot, .. } = &mut view;
        state.tree.warm(&**snapshot)
    }
}

impl View<'_> {
    /// The block applied last.
    pub fn tip(&self) -> Point {
        self.state.tip
    }

    /// The rows of a table in the order of their keys, as the service has them.
    pub fn rows(
        &self,
        table: Table,
    ) -> Result<impl Iterator<Item = Result<(Bytes<'_>, Bytes<'_>), Error>>, Error> {
        let is_packed = table == CSMT && self.form == Form::Packed;
        let (plain, packed) = match is_packed {
            true => (None, Some(nodes(&*self.snapshot))),
            false => (Some(self.snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded))?), None),
        };
        let plain = plain.into_iter().flatten().map(|row| Ok(row?));
        let packed = packed.into_iter().flatten().map(|node| {
            let (position, node) = node?;
            Ok((node::key(&position).into(), node::value(&node).into()))
        });
        Ok(plain.chain(packed))
    }

    /// The root; none of an empty tree.
    pub fn root(&mut self) -> Result<Option<Hash>, Error> {
        self.state.tree.root(&*self.snapshot)
    }

    /// The value of an entry.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes<'_>>, Error> {
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        Ok(self.snapshot.get(KV, key)?)
    }

    /// The points that can be gone back to, the newest first.
    pub fn points(&self) -> impl Iterator<Item = Result<PointFacts, Error>> + '_ {
        (self.state.first_arrival..self.state.next_arrival).rev().map(|number| {
            let (key, row) = point_of(&*self.snapshot, number)?;
            let point = rollback::point(&key)
                .map_err(|wrong| Error::damaged(crate::tables::ROLLBACKS, &key, wrong))?;
            Ok(PointFacts { point, root: row.root, operations: row.operations.len() })
        })
    }

    /// The path of an entry that is there.
    pub fn path(&self, key: &[u8]) -> Result<Option<Path>, Error> {
        let Some(value) = self.get(key)? else { return Ok(None) };
        self.path.path(key, &value).map(Some)
    }

    /// That an entry is there; none if it is not.
    pub fn prove(&mut self, key: &[u8]) -> Result<Option<Inclusion>, Error> {
        let Some(path) = self.path(key)? else { return Ok(None) };
        let place = self.state.tree.place(&*self.snapshot)?;
        let proof = include(place, &path)?;
        proof.map(Some).ok_or_else(|| {
            Error::Inconsistent(format!("the tree has no leaf for {}", crate::error::hex(key)))
        })
    }

    /// That nothing begins with a path; none if something does.
    pub fn prove_absent(&mut self, path: &Path) -> Result<Option<Exclusion>, Error> {
        exclude(self.state.tree.place(&*self.snapshot)?, path)
    }

    /// All leaves that begin with a prefix, and the proof of it. A tree without entries needs none.
    pub fn prove_prefix(
        &mut self,
        prefix: &Path,
    ) -> Result<(Vec<Leaf>, Option<Completeness>), Error> {
        complete(self.state.tree.place(&*self.snapshot)?, prefix)
    }

    /// The entries of an address, by key and value.
    pub fn by_address(&mut self, address: &[u8]) -> Result<Vec<Entry>, Error> {
        let prefix = PathKind::of_address(address);
        let (leaves, _) = self.prove_prefix(&prefix)?;
        let mut entries = Vec::with_capacity(leaves.len());
        for (path, _) in leaves {
            let key = self.path.key(&path);
            let value = match &key {
                Some(key) => self.snapshot.get(KV, key)?,
                None => None,
            };
            let (Some(key), Some(value)) = (key, value) else {
                return Err(Error::Inconsistent(format!("the leaf at {path} has no entry")));
            };
            entries.push((key, value.into_owned()));
        }
        Ok(entries)
    }
}
