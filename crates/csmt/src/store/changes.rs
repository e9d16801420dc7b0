//! What operations come to for each entry.

use std::collections::{HashMap, hash_map};

use ledger::{Batch, Bytes, Snapshot};

use crate::error::{Error, hex};
use crate::hash::Hash;
use crate::settings::PathKind;
use crate::tables::KV;
use crate::tree::Change;

/// An entry that some operation touches.
struct Entry<'a> {
    before: Option<Bytes<'a>>,
    now: Option<Bytes<'a>>,
}

/// Operations one after the other, and what each entry is after them.
pub(super) struct Changes<'a> {
    snapshot: &'a dyn Snapshot,
    entries: HashMap<Bytes<'a>, Entry<'a>>,
    /// Bytes of keys and values.
    pub(super) bytes: usize,
}

impl<'a> Changes<'a> {
    pub(super) fn new(snapshot: &'a dyn Snapshot) -> Changes<'a> {
        Changes { snapshot, entries: HashMap::new(), bytes: 0 }
    }

    /// Gives an entry a value, or deletes it; gives what it had. To delete what is not there is an error.
    pub(super) fn apply(
        &mut self,
        key: Bytes<'a>,
        value: Option<Bytes<'a>>,
    ) -> Result<Option<Bytes<'a>>, Error> {
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        self.bytes += value.as_ref().map_or(0, |value| value.len());
        let entry = match self.entries.entry(key) {
            hash_map::Entry::Occupied(entry) => {
                if entry.get().now.is_none() && value.is_none() {
                    return Err(Error::Missing(hex(entry.key())));
                }
                entry.into_mut()
            }
            hash_map::Entry::Vacant(entry) => {
                let before = self.snapshot.get(KV, entry.key())?;
                self.bytes += entry.key().len() + before.as_ref().map_or(0, |value| value.len());
                if before.is_none() && value.is_none() {
                    return Err(Error::Missing(hex(entry.key())));
                }
                entry.insert(Entry { now: before.clone(), before })
            }
        };
        Ok(std::mem::replace(&mut entry.now, value))
    }

    /// Adds the entries that become others to a batch, and gives the changes of the tree, sorted by path.
    pub(super) fn finish(self, kind: PathKind, batch: &mut Batch) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::with_capacity(self.entries.len());
        for (key, Entry { before, now }) in self.entries {
            if before == now {
                continue;
            }
            let path = |value: &Option<Bytes<'_>>| {
                value.as_ref().map(|value| kind.path(&key, value)).transpose()
            };
            let (old, new) = (path(&before)?, path(&now)?);
            let value = now.as_deref().map(Hash::of);
            match &now {
                Some(value) => batch.put(KV, &key, value),
                None => batch.delete(KV, &key),
            };
            match (old, new) {
                (Some(old), Some(new)) if old == new => {
                    changes.push(Change { path: new, value, is_there: true });
                }
                (old, new) => {
                    // Under another address, the old leaf goes.
                    changes.extend(old.map(|path| Change { path, value: None, is_there: true }));
                    changes.extend(new.map(|path| Change { path, value, is_there: false }));
                }
            }
        }
        changes.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(changes)
    }
}
