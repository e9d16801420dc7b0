//! StateRoot-v1, kept: all leaves and all nodes above them, in the order of keys.
//!
//! Objects come first, by id; then parameters, by name; then the newest version of each object, by id, because there is only one. So an
//! object has its two leaves at the same distance from two places, and a write of one that is there moves nothing: only nodes above its
//! leaves become others. A new object moves everything behind it, and all nodes above that are made again: 64 bytes each, as many as
//! there are leaves.
//!
//! 160 bytes an object: its id, two leaves, two nodes above them.

use crate::hash::Hash;
use crate::merkle::above;
use crate::threads;

/// Bytes that an object takes.
pub(crate) const OBJECT_BYTES: usize = 160;
/// Nodes that are worth a thread.
const FOR_A_THREAD: usize = 4096;

/// The leaves of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaves {
    pub(crate) id: Hash,
    pub(crate) object: Hash,
    pub(crate) version: Hash,
}

/// All leaves, and what is above them.
#[derive(Debug)]
pub(crate) struct Root1 {
    ids: Vec<Hash>,
    names: Vec<String>,
    /// The leaves, the nodes above them, and so on to one.
    levels: Vec<Vec<Hash>>,
    threads: usize,
}

/// What makes a change undone.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    /// Leaves of objects that were there.
    old: Vec<Leaves>,
    old_params: Vec<(String, Hash)>,
    /// Those that were not.
    new: Vec<Hash>,
    new_params: Vec<String>,
}

/// Leaves that became others: some by place, and all from a place on.
#[derive(Debug, Default)]
struct Dirty {
    places: Vec<usize>,
    from: Option<usize>,
}

impl Root1 {
    /// From all leaves, in the order of their keys.
    pub(crate) fn new(objects: Vec<Leaves>, params: Vec<(String, Hash)>, threads: usize) -> Root1 {
        let ids = objects.iter().map(|leaves| leaves.id).collect();
        let mut leaves = Vec::with_capacity(2 * objects.len() + params.len());
        leaves.extend(objects.iter().map(|leaves| leaves.object));
        leaves.extend(params.iter().map(|(_, leaf)| *leaf));
        leaves.extend(objects.iter().map(|leaves| leaves.version));
        drop(objects);
        let names = params.into_iter().map(|(name, _)| name).collect();
        let mut root = Root1 { ids, names, levels: vec![leaves], threads };
        root.settle(Dirty { places: Vec::new(), from: Some(0) });
        root
    }

    /// The root.
    pub(crate) fn root(&self) -> Hash {
        let top = self.levels.last().and_then(|level| level.first());
        top.copied().unwrap_or_else(|| Hash::of(&[]))
    }

    /// Sets leaves, and tells what makes that undone. Objects are in the order of their ids, each once, and so are parameters.
    pub(crate) fn change(&mut self, objects: &[Leaves], params: &[(String, Hash)]) -> Undo {
        let mut undo = Undo::default();
        let (mut new_leaves, mut new_ids, mut new_names) = (Vec::new(), Vec::new(), Vec::new());
        let (count, middle) = (self.ids.len(), self.ids.len() + self.names.len());
        for leaves in objects {
            if let Err(place) = self.ids.binary_search(&leaves.id) {
                new_ids.push((place, leaves.id));
                new_leaves.push((place, leaves.object));
                undo.new.push(leaves.id);
            }
        }
        for (name, leaf) in params {
            if let Err(place) = self.names.binary_search(name) {
                new_names.push((place, name.clone()));
                new_leaves.push((count + place, *leaf));
                undo.new_params.push(name.clone());
            }
        }
        let versions = objects.iter().filter_map(|leaves| {
            let place = self.ids.binary_search(&leaves.id).err()?;
            Some((middle + place, leaves.version))
        });
        new_leaves.extend(versions);
        let from = new_leaves.first().map(|(place, _)| *place);
        if let Some(level) = self.levels.first_mut() {
            insert(level, &new_leaves);
        }
        insert(&mut self.ids, &new_ids);
        insert(&mut self.names, &new_names);
        let mut dirty = Dirty { places: Vec::new(), from };
        let mut is_new = undo.new.iter().peekable();
        for leaves in objects {
            if is_new.next_if(|id| **id == leaves.id).is_none() {
                undo.old.extend(self.set(*leaves, &mut dirty));
            }
        }
        for (name, leaf) in params {
            if undo.new_params.binary_search(name).is_err() {
                undo.old_params.extend(self.set_param(name, *leaf, &mut dirty));
            }
        }
        self.settle(dirty);
        undo
    }

    /// Takes a change back. It must be the last one.
    pub(crate) fn undo(&mut self, undo: Undo) {
        let mut dirty = Dirty::default();
        let (count, middle) = (self.ids.len(), self.ids.len() + self.names.len());
        let ids: Vec<usize> =
            undo.new.iter().filter_map(|id| self.ids.binary_search(id).ok()).collect();
        let names: Vec<usize> =
            undo.new_params.iter().filter_map(|name| self.names.binary_search(name).ok()).collect();
        let mut leaves = ids.clone();
        leaves.extend(names.iter().map(|place| count + place));
        leaves.extend(ids.iter().map(|place| middle + place));
        dirty.from = leaves.first().copied();
        if let Some(level) = self.levels.first_mut() {
            remove(level, &leaves);
        }
        remove(&mut self.ids, &ids);
        remove(&mut self.names, &names);
        for leaves in undo.old {
            self.set(leaves, &mut dirty);
        }
        for (name, leaf) in undo.old_params {
            self.set_param(&name, leaf, &mut dirty);
        }
        self.settle(dirty);
    }

    /// Sets the leaves of an object that is there. Gives what they were.
    fn set(&mut self, leaves: Leaves, dirty: &mut Dirty) -> Option<Leaves> {
        let place = self.ids.binary_search(&leaves.id).ok()?;
        let second = self.ids.len() + self.names.len() + place;
        let level = self.levels.first_mut()?;
        let object = std::mem::replace(level.get_mut(place)?, leaves.object);
        let version = std::mem::replace(level.get_mut(second)?, leaves.version);
        dirty.places.extend([place, second]);
        Some(Leaves { id: leaves.id, object, version })
    }

    fn set_param(&mut self, name: &str, leaf: Hash, dirty: &mut Dirty) -> Option<(String, Hash)> {
        let place = self.names.binary_search_by(|other| other.as_str().cmp(name)).ok()?;
        let place = self.ids.len() + place;
        let level = self.levels.first_mut()?;
        let old = std::mem::replace(level.get_mut(place)?, leaf);
        dirty.places.push(place);
        Some((name.to_owned(), old))
    }

    /// Makes the nodes above leaves that became others.
    fn settle(&mut self, dirty: Dirty) {
        let Dirty { mut places, mut from } = dirty;
        places.sort_unstable();
        for height in 0.. {
            let below = self.levels.get(height).map_or(0, Vec::len);
            if below <= 1 {
                self.levels.truncate(height + 1);
                return;
            }
            let len = below.div_ceil(2);
            if self.levels.len() == height + 1 {
                self.levels.push(Vec::new());
                from = Some(0);
            }
            from = from.map(|from| from / 2);
            places.iter_mut().for_each(|place| *place /= 2);
            places.dedup();
            places.retain(|place| from.is_none_or(|from| *place < from));
            make_level(&mut self.levels, height, from, &places, len, self.threads);
        }
    }
}

/// Makes the nodes of the level above one: those at some places, and all from a place on.
fn make_level(
    levels: &mut [Vec<Hash>],
    height: usize,
    from: Option<usize>,
    places: &[usize],
    len: usize,
    threads: usize,
) {
    let Some(([below], [level, ..])) =
        levels.get_mut(height..).and_then(|levels| levels.split_at_mut_checked(1))
    else {
        return;
    };
    let below: &[Hash] = below;
    let parts = threads::over(places, threads, FOR_A_THREAD, |places| {
        let mut messages = Vec::with_capacity(places.len());
        for place in places {
            let mut message = [0; 64];
            let (left, right) = message.split_at_mut(32);
            let pair = below.get(2 * place..below.len().min(2 * place + 2)).unwrap_or(&[]);
            if let (Some(first), Some(last)) = (pair.first(), pair.last()) {
                left.copy_from_slice(&first.0);
                right.copy_from_slice(&last.0);
            }
            messages.push(message);
        }
        Hash::of_each(messages.iter().map(<[u8; 64]>::as_slice))
    });
    for (place, digest) in places.iter().zip(parts.into_iter().flatten()) {
        if let Some(node) = level.get_mut(*place) {
            *node = digest;
        }
    }
    if let Some(from) = from {
        reserve(level, len);
        level.truncate(from);
        // Some at a time: what is made need not be there twice.
        let mut start = from;
        while start < len {
            let end = len.min(start + (1 << 18));
            level.extend(above(below, start..end, threads));
            start = end;
        }
    }
    level.truncate(len);
}

/// Makes room without doubling.
fn reserve<T>(list: &mut Vec<T>, len: usize) {
    if list.capacity() < len {
        list.reserve_exact(len + len / 16 - list.len());
    }
}

/// Puts things into a list, each in front of what is at its place now.
fn insert<T: Clone + Default>(list: &mut Vec<T>, new: &[(usize, T)]) {
    let old = list.len();
    reserve(list, old + new.len());
    list.resize(old + new.len(), T::default());
    let mut end = old;
    for (count, (place, item)) in new.iter().enumerate().rev() {
        // What is behind the place moves to the right, once, over what was moved before.
        let shift = count + 1;
        match list.get_mut(*place..end + shift) {
            Some(tail) if end - place >= shift => tail.rotate_right(shift),
            _ => (*place..end).rev().for_each(|at| list.swap(at, at + shift)),
        }
        if let Some(slot) = list.get_mut(place + count) {
            *slot = item.clone();
        }
        end = *place;
    }
}

/// Takes what is at some places out of a list.
fn remove<T>(list: &mut Vec<T>, places: &[usize]) {
    let mut next = places.iter().peekable();
    let mut at = 0;
    list.retain(|_| {
        at += 1;
        next.next_if(|place| **place == at - 1).is_none()
    });
}
