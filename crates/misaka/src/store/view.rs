//! The store as of one commit, for whoever looks at it. Keys and values are those of the specification.

use std::ops::Bound;

use ledger::{Snapshot, Table};

use super::events;
use super::open::{params_of, tip_of, tree_of};
use super::prune::{check_rows, note_of};
use super::rows::{Note, ObjectRow, decode_version_key, part_key, seq_key, version_key};
use super::{Store, Tip};
use crate::checkpoint::{Checkpoint, Event};
use crate::error::{Error, Rule};
use crate::format::checkpoint::{Header, decode_value};
use crate::format::key::Key;
use crate::format::node::Child;
use crate::format::object::Object;
use crate::format::params::Params;
use crate::format::version::Version;
use crate::hash::Hash;
use crate::order::Runs;
use crate::tables::{CHECKPOINTS, EVENTS, FEED, NOTES, OBJECTS, PARAMS, VERSIONS};

/// A key and its value, as the specification has them.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Versions of an object that are sorted in memory. Of more, each is looked up.
const SORTED: usize = 1 << 14;

/// Who is given pairs one after the other.
pub type Take<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), Error>;

/// Who is given objects one after the other: each, its bytes, the checkpoint that wrote it.
pub type TakeObject<'a> = &'a mut dyn FnMut(&Object<'_>, &[u8], u64) -> Result<(), Error>;

/// Versions of one object: its id, all numbers, and the rows as long as they are few.
type Group = (Hash, Runs, Vec<(u64, Vec<u8>)>);

/// The store as of one commit. Writing goes on meanwhile.
pub struct View<'a> {
    pub(super) store: &'a Store,
    pub(super) snapshot: Box<dyn Snapshot + 'a>,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl Store {
    /// The store as it is now.
    pub fn view(&self) -> Result<View<'_>, Error> {
        Ok(View { store: self, snapshot: self.engine.snapshot()? })
    }
}

impl View<'_> {
    /// The newest checkpoint; none of an empty store.
    pub fn tip(&self) -> Result<Option<Tip>, Error> {
        tip_of(&*self.snapshot)
    }

    /// The root of the state tree of v2; none if there is no tree.
    pub fn tree_root(&self) -> Result<Option<Hash>, Error> {
        Ok(tree_of(&*self.snapshot)?.map(|top: Child| top.digest()))
    }

    /// The newest record of an object, a tombstone too, and the checkpoint that wrote it.
    pub fn object(&self, id: &Hash) -> Result<Option<(Vec<u8>, u64)>, Error> {
        let Some(row) = self.snapshot.get(OBJECTS, &id.0)? else { return Ok(None) };
        let row = ObjectRow::decode(&row).map_err(damaged(OBJECTS, &id.0))?;
        Ok(Some((row.bytes.to_vec(), row.seq)))
    }

    /// A version of an object.
    pub fn version(&self, id: &Hash, version: u64) -> Result<Option<Version>, Error> {
        let key = version_key(id, version);
        let Some(row) = self.snapshot.get(VERSIONS, &key)? else { return Ok(None) };
        Version::decode(&row).map(Some).map_err(damaged(VERSIONS, &key))
    }

    /// The versions of an object that are kept, the oldest first.
    pub fn versions(
        &self,
        id: &Hash,
    ) -> Result<impl Iterator<Item = Result<(u64, Version), Error>>, Error> {
        let (from, to) = (version_key(id, 0), version_key(id, u64::MAX));
        let rows = self.snapshot.scan(VERSIONS, (Bound::Included(&from), Bound::Included(&to)))?;
        Ok(rows.map(|row| {
            let (key, value) = row?;
            let wrong = damaged(VERSIONS, &key);
            let (_, version) = decode_version_key(&key).ok_or(Rule::Truncated).map_err(&wrong)?;
            Ok((version, Version::decode(&value).map_err(&wrong)?))
        }))
    }

    /// A checkpoint that is kept: its header, and the digests of its transactions.
    pub fn checkpoint(&self, seq: u64) -> Result<Option<(Header, Vec<Hash>)>, Error> {
        let key = seq_key(seq);
        let Some(row) = self.snapshot.get(CHECKPOINTS, &key)? else { return Ok(None) };
        decode_value(&row).map(Some).map_err(damaged(CHECKPOINTS, &key))
    }

    /// The numbers of the checkpoints that are kept: the oldest, the newest.
    pub fn checkpoints(&self) -> Result<Option<(u64, u64)>, Error> {
        let Some(tip) = self.tip()? else { return Ok(None) };
        Ok(Some((oldest(&tip, self.store.settings().window), tip.header.seq)))
    }

    /// The events of a checkpoint, in the order of execution. None if they are not kept.
    pub fn events(&self, seq: u64) -> Result<Option<Vec<Event>>, Error> {
        match self.recent_note(seq)? {
            Some(note) => events::read(&*self.snapshot, seq, note).map(Some),
            None => Ok(None),
        }
    }

    /// What is noted of a checkpoint whose events and changes are kept.
    fn recent_note(&self, seq: u64) -> Result<Option<Note>, Error> {
        let Some(tip) = self.tip()? else { return Ok(None) };
        let from = oldest(&tip, self.store.settings().event_retention);
        if !(from..=tip.header.seq).contains(&seq) {
            return Ok(None);
        }
        note_of(&*self.snapshot, seq)
    }

    /// The value of a parameter.
    pub fn param(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        if name.is_empty() {
            return Ok(None);
        }
        Ok(self.snapshot.get(PARAMS, name.as_bytes())?.map(|value| value.into_owned()))
    }

    /// All parameters.
    pub fn params(&self) -> Result<Params, Error> {
        params_of(&*self.snapshot)
    }

    /// What a checkpoint changed: the item of the feed with its number. It is kept as long as its events are.
    pub fn change(&self, seq: u64) -> Result<Checkpoint, Error> {
        let kept = || match self.feed() {
            Ok(Some((from, to))) => format!("the feed has {from} to {to}"),
            _ => "the feed is empty".to_owned(),
        };
        let note = self.recent_note(seq)?.filter(|note| note.feed_rows > 0);
        let note = note.ok_or_else(|| Error::NotKept { seq, kept: kept() })?;
        check_rows(&*self.snapshot, FEED, seq, note.feed_rows)?;
        let mut bytes = Vec::new();
        for part in 0..note.feed_rows {
            let key = part_key(seq, part);
            let row = self.snapshot.get(FEED, &key)?;
            let row = row.ok_or_else(|| Error::damaged(FEED, &key, "the row is missing"))?;
            bytes.extend_from_slice(&row);
        }
        let mut checkpoint = Checkpoint::decode(&bytes).map_err(damaged(FEED, &seq_key(seq)))?;
        checkpoint.events = events::read(&*self.snapshot, seq, note)?;
        Ok(checkpoint)
    }

    /// The numbers of the first and the last item of the feed. After a restore it begins with the next checkpoint.
    pub fn feed(&self) -> Result<Option<(u64, u64)>, Error> {
        let Some(tip) = self.tip()? else { return Ok(None) };
        let from = oldest(&tip, self.store.settings().event_retention);
        let has = |seq| {
            Ok::<_, Error>(note_of(&*self.snapshot, seq)?.is_some_and(|note| note.feed_rows > 0))
        };
        // A restored store has no feed of the checkpoint it begins with.
        let from = if has(from)? { from } else { from.saturating_add(1) };
        Ok((from <= tip.header.seq).then_some((from, tip.header.seq)))
    }

    /// The value of any key of the stores.
    pub fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, Error> {
        match key {
            Key::Object(id) => Ok(self.object(id)?.map(|(bytes, _)| bytes)),
            Key::Version(id, version) => {
                Ok(self.version(id, *version)?.map(|version| version.encode().to_vec()))
            }
            Key::Checkpoint(seq) => {
                let row = self.snapshot.get(CHECKPOINTS, &seq_key(*seq))?;
                Ok(row.map(|value| value.into_owned()))
            }
            Key::Event(seq, tx, number) => {
                let events = self.events(*seq)?.unwrap_or_default();
                let mut events = events.into_iter();
                Ok(events
                    .find(|event| (event.tx, event.number) == (*tx, *number))
                    .map(|event| event.bytes))
            }
            Key::Param(name) => self.param(name),
        }
    }

    /// Gives all pairs of a store, in the order of their keys.
    pub fn for_each(&self, store: Table, take: Take<'_>) -> Result<(), Error> {
        match store {
            OBJECTS => self.for_each_object(None, take),
            VERSIONS => self.for_each_version(None, take),
            CHECKPOINTS => {
                let Some((from, to)) = self.checkpoints()? else { return Ok(()) };
                for seq in self.seqs(CHECKPOINTS, from, to)?.by_bytes() {
                    if let Some(value) = self.get(&Key::Checkpoint(seq))? {
                        take(&Key::Checkpoint(seq).encode(), &value)?;
                    }
                }
                Ok(())
            }
            EVENTS => {
                let Some(tip) = self.tip()? else { return Ok(()) };
                let from = oldest(&tip, self.store.settings().event_retention);
                for seq in self.seqs(NOTES, from, tip.header.seq)?.by_bytes() {
                    let events = self.events(seq)?.unwrap_or_default();
                    let mut pairs: Vec<Pair> = events
                        .into_iter()
                        .map(|event| {
                            (Key::Event(seq, event.tx, event.number).encode(), event.bytes)
                        })
                        .collect();
                    pairs.sort_unstable();
                    pairs.iter().try_for_each(|(key, value)| take(key, value))?;
                }
                Ok(())
            }
            PARAMS => {
                for (name, value) in self.params()? {
                    take(&Key::Param(name).encode(), &value)?;
                }
                Ok(())
            }
            other => Err(Error::Input(format!("{} is not one of the stores", other.name))),
        }
    }

    /// The checkpoints between two that a table has rows of: how many there should be is not counted on.
    fn seqs(&self, table: Table, from: u64, to: u64) -> Result<Runs, Error> {
        let (from, to) = (seq_key(from), seq_key(to));
        let mut seqs = Runs::default();
        if from > to {
            return Ok(seqs);
        }
        for row in self.snapshot.scan(table, (Bound::Included(&from), Bound::Included(&to)))? {
            let (key, _) = row?;
            // What has no number, whoever checks finds.
            if let Ok(seq) = <[u8; 8]>::try_from(&*key) {
                seqs.push(u64::from_be_bytes(seq));
            }
        }
        Ok(seqs)
    }

    /// Objects, those after one.
    pub(crate) fn for_each_object(&self, after: Option<Hash>, take: Take<'_>) -> Result<(), Error> {
        let from = after.as_ref().map_or(Bound::Unbounded, |id| Bound::Excluded(id.0.as_slice()));
        for row in self.snapshot.scan(OBJECTS, (from, Bound::Unbounded))? {
            let (key, value) = row?;
            let wrong = damaged(OBJECTS, &key);
            let row = ObjectRow::decode(&value).map_err(&wrong)?;
            let id = Hash::from_slice(&key).ok_or(Rule::Truncated).map_err(&wrong)?;
            take(&Key::Object(id).encode(), row.bytes)?;
        }
        Ok(())
    }

    /// Versions, those after a key. Numbers of one object come in the order of their bytes.
    pub(crate) fn for_each_version(
        &self,
        after: Option<(Hash, u64)>,
        take: Take<'_>,
    ) -> Result<(), Error> {
        let mut after = after;
        let from = after.map(|(id, _)| version_key(&id, 0));
        let from = from.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(key.as_slice()));
        let mut group: Option<Group> = None;
        for row in self.snapshot.scan(VERSIONS, (from, Bound::Unbounded))? {
            let (key, value) = row?;
            let (id, version) =
                decode_version_key(&key).ok_or(Rule::Truncated).map_err(damaged(VERSIONS, &key))?;
            match &mut group {
                Some((open, numbers, rows)) if *open == id => {
                    numbers.push(version);
                    if rows.len() < SORTED {
                        rows.push((version, value.into_owned()));
                    }
                }
                _ => {
                    if let Some(done) = group.take() {
                        self.give_group(done, &mut after, take)?;
                    }
                    let mut numbers = Runs::default();
                    numbers.push(version);
                    group = Some((id, numbers, vec![(version, value.into_owned())]));
                }
            }
        }
        match group {
            Some(done) => self.give_group(done, &mut after, take),
            None => Ok(()),
        }
    }

    fn give_group(
        &self,
        (id, numbers, mut rows): Group,
        after: &mut Option<(Hash, u64)>,
        take: Take<'_>,
    ) -> Result<(), Error> {
        let skip = after.take_if(|(at, _)| *at == id).map(|(_, version)| version.to_le_bytes());
        let is_new = |version: u64| skip.is_none_or(|skip| version.to_le_bytes() > skip);
        if rows.len() < SORTED {
            rows.sort_unstable_by_key(|(version, _)| version.to_le_bytes());
            for (version, value) in rows.iter().filter(|(version, _)| is_new(*version)) {
                take(&Key::Version(id, *version).encode(), value)?;
            }
            return Ok(());
        }
        // A gap is nothing to stumble over here: whoever checks finds it.
        for version in numbers.by_bytes().filter(|version| is_new(*version)) {
            if let Some(value) = self.get(&Key::Version(id, version))? {
                take(&Key::Version(id, version).encode(), &value)?;
            }
        }
        Ok(())
    }

    /// Objects in the order of their ids, with the checkpoint that wrote each: the state that an index can be made of.
    pub fn for_each_record(&self, take: TakeObject<'_>) -> Result<(), Error> {
        for row in self.snapshot.scan(OBJECTS, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, value) = row?;
            let wrong = damaged(OBJECTS, &key);
            let row = ObjectRow::decode(&value).map_err(&wrong)?;
            let object = Object::decode(row.bytes).map_err(&wrong)?;
            take(&object, row.bytes, row.seq)?;
        }
        Ok(())
    }

    /// Rows of a table as they are stored: how many, and their bytes.
    pub fn measure(&self, table: Table) -> Result<(u64, u64), Error> {
        let (mut rows, mut bytes) = (0, 0);
        for row in self.snapshot.scan(table, (Bound::Unbounded, Bound::Unbounded))? {
            let (key, value) = row?;
            rows += 1;
            bytes += u64::try_from(key.len() + value.len()).unwrap_or(0);
        }
        Ok((rows, bytes))
    }
}

/// The oldest checkpoint that is kept, of so many.
pub(super) fn oldest(tip: &Tip, window: u64) -> u64 {
    tip.first.max(tip.header.seq.saturating_add(1).saturating_sub(window))
}

pub(super) fn damaged(table: Table, key: &[u8]) -> impl Fn(Rule) -> Error {
    let key = key.to_vec();
    move |rule| Error::damaged(table, &key, rule.text())
}
