//! What operations come to for each entry.

use std::collections::HashMap;

use ledger::{Batch, Snapshot};

use crate::error::{Error, hex};
use crate::format::rollback::Operation;
use crate::hash::Hash;
use crate::settings::PathKind;
use crate::tables::KV;
use crate::tree::Change;

/// An entry that some operation touches.
struct Entry {
    before: Option<Vec<u8>>,
    now: Option<Vec<u8>>,
}

/// Operations one after the other, and what each entry is after them.
pub(super) struct Changes<'a> {
    snapshot: &'a dyn Snapshot,
    entries: HashMap<Vec<u8>, Entry>,
    /// Bytes of keys and values.
    pub(super) bytes: usize,
}

impl<'a> Changes<'a> {
    pub(super) fn new(snapshot: &'a dyn Snapshot) -> Changes<'a> {
        Changes { snapshot, entries: HashMap::new(), bytes: 0 }
    }

    /// Applies an operation, and gives what takes it back. To delete what is not there is an error.
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<Operation, Error> {
        let key = operation.key();
        if key.is_empty() {
            return Err(Error::EmptyKey);
        }
        if !self.entries.contains_key(key) {
            let before = self.snapshot.get(KV, key)?.map(|value| value.into_owned());
            self.bytes += key.len() + before.as_ref().map_or(0, Vec::len);
            self.entries.insert(key.to_vec(), Entry { now: before.clone(), before });
        }
        let value = operation.value().map(<[u8]>::to_vec);
        self.bytes += value.as_ref().map_or(0, Vec::len);
        // It was put there just now.
        let Some(entry) = self.entries.get_mut(key) else { return Err(Error::EmptyKey) };
        if value.is_none() && entry.now.is_none() {
            return Err(Error::Missing(hex(key)));
        }
        let key = key.to_vec();
        Ok(match std::mem::replace(&mut entry.now, value) {
            Some(value) => Operation::Insert { key, value },
            None => Operation::Delete { key },
        })
    }

    /// Adds the entries that become others to a batch, and gives the changes of the tree, sorted by path.
    pub(super) fn finish(self, kind: PathKind, batch: &mut Batch) -> Result<Vec<Change>, Error> {
        let mut changes = Vec::with_capacity(self.entries.len());
        for (key, Entry { before, now }) in self.entries {
            if before == now {
                continue;
            }
            let path = |value: &Option<Vec<u8>>| {
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
