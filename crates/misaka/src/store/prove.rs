//! Proofs from the tree of v2.

use super::open::tree_of;
use super::view::View;
use crate::error::Error;
use crate::format::key::Key;
use crate::format::node::{Child, Place};
use crate::leaf;
use crate::proof::{End, Proof};
use crate::root2::DEPTH_MAX;
use crate::tree::Nodes;

impl View<'_> {
    /// That a key is in the state, with its value, or that it is not. The key is one of an object, of a version, or of a parameter.
    pub fn prove(&self, key: &[u8]) -> Result<(Option<Vec<u8>>, Proof), Error> {
        let top = tree_of(&*self.snapshot)?;
        let mut at = top.ok_or_else(|| match self.store.settings().v2_at {
            Some(first) => Error::NoTree(format!("checkpoint {first}")),
            None => {
                Error::NoTree("no checkpoint: the database was made without --v2-at".to_owned())
            }
        })?;
        let path = leaf::path(key);
        let mut nodes = Vec::new();
        while let Child::Inner(_) = at {
            let depth = nodes.len();
            let children = Nodes { snapshot: &*self.snapshot }.children(&path, depth)?;
            let nibble = path.nibble(depth);
            nodes.push(Proof::others(&children, nibble));
            at = children.get(nibble).copied().unwrap_or_default();
        }
        let (value, end) = match at {
            Child::Leaf(place, _) => {
                let (other, value) = self.entry_at(&place)?;
                match other == key {
                    true => (Some(value), End::Entry),
                    false => (None, End::Other { key: other, value }),
                }
            }
            _ => (None, End::Nothing),
        };
        debug_assert!(nodes.len() <= DEPTH_MAX, "a path has 64 half bytes");
        Ok((value, Proof { nodes, end }))
    }

    /// An entry that the tree has.
    fn entry_at(&self, place: &Place) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let key = match place {
            Place::Object(id) => Some(Key::Object(*id)),
            Place::Version(id, version) => Some(Key::Version(*id, *version)),
            Place::Param(path) => {
                let mut keys = self.params()?.into_keys().map(Key::Param);
                keys.find(|key| leaf::path(&key.encode()) == *path)
            }
        };
        let missing =
            || Error::Inconsistent(format!("the tree has {place:?}, the stores have not"));
        let key = key.ok_or_else(missing)?;
        let value = self.get(&key)?.ok_or_else(missing)?;
        Ok((key.encode(), value))
    }
}
