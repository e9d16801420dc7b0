//! A store filled from a list of entries, of any length, with little memory.
//!
//! First the entries are stored, and their ways down the tree beside them, sorted batch by batch; then nodes are made in the order of
//! all ways, each once; then the ways are deleted. Every batch notes how far it came. As long as it is not done, `config` says so, and
//! nobody follows a chain from there.

use std::collections::HashSet;
use std::ops::Bound;

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};
use ledger::{Batch, Reader, Rows, Snapshot, Writer};

use super::view::Entry;
use super::ways::{self, Way, Ways};
use super::{State, Store};
use crate::error::{Error, hex};
use crate::format::config::{self, Config};
use crate::format::point::Point;
use crate::format::rollback::{self, RollbackPoint};
use crate::hash::{Hash, Node};
use crate::path::{Bits, Path};
use crate::settings::PathKind;
use crate::tables::{ARRIVALS, CONFIG, KV, META, ROLLBACKS, WAYS};
use crate::tree::{Gatherer, Grower, Nodes, Progress as Grown};

/// Where it is noted how far a bootstrap came.
const NOTE: &[u8] = b"bootstrap";

/// Entries, one after the other, the same ones every time.
pub trait Entries {
    /// The next; none behind the last.
    fn next(&mut self) -> Result<Option<Entry>, Error>;
}

impl<I: Iterator<Item = Result<Entry, Error>>> Entries for I {
    fn next(&mut self) -> Result<Option<Entry>, Error> {
        Iterator::next(self).transpose()
    }
}

/// What a bootstrap is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stage {
    /// Storing entries.
    Loading,
    /// Making nodes.
    Building,
    /// Deleting what is not needed any more.
    Tidying,
}

/// How far a bootstrap came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootstrapProgress {
    /// What it is at.
    pub stage: Stage,
    /// Entries of that stage that are done.
    pub done: u64,
    /// Entries there are, once that is known.
    pub total: Option<u64>,
}

/// What a bootstrap came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bootstrapped {
    /// Entries.
    pub entries: u64,
    /// The root; none of an empty tree.
    pub root: Option<Hash>,
}

/// How far it came, as it is noted.
#[derive(Clone, Debug)]
enum Note {
    /// So many entries are stored, which have this digest, and so many runs of ways.
    Loading { point: Point, count: u64, digest: Hash, runs: u32 },
    /// So many of all entries are in the tree.
    Building { point: Point, count: u64, done: u64, grown: Option<Grown> },
    /// The tree is whole, and has this root.
    Tidying { point: Point, count: u64, root: Option<Hash> },
}

impl Note {
    fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        match self {
            Note::Loading { point, count, digest, runs } => {
                writer.u8(1).compact_bytes(&point.to_bytes()).u64_le(*count).bytes(&digest.0);
                writer.u32_le(*runs);
            }
            Note::Building { point, count, done, grown } => {
                writer.u8(2).compact_bytes(&point.to_bytes()).u64_le(*count).u64_le(*done);
                if let Some(grown) = grown {
                    writer.u64_le(wide(grown.last.len())).compact_bytes(grown.last.bytes());
                    writer.bytes(&grown.value.0).compact_size(wide(grown.branches.len()));
                    for branch in &grown.branches {
                        writer.u16_le(*branch);
                    }
                }
            }
            Note::Tidying { point, count, root } => {
                writer.u8(3).compact_bytes(&point.to_bytes()).u64_le(*count);
                writer.bytes(root.as_ref().map_or(&[], |root| &root.0));
            }
        }
        writer.finish()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Note> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8().ok()?;
        let point = Point::from_bytes(reader.compact_bytes().ok()?).ok()?;
        let count = reader.u64_le().ok()?;
        let note = match kind {
            1 => {
                let digest = Hash(reader.array().ok()?);
                Note::Loading { point, count, digest, runs: reader.u32_le().ok()? }
            }
            2 => {
                let done = reader.u64_le().ok()?;
                let grown = if reader.remaining() == 0 {
                    None
                } else {
                    let len = usize::try_from(reader.u64_le().ok()?).ok()?;
                    let last = Path::new(reader.compact_bytes().ok()?.to_vec(), len).ok()?;
                    let value = Hash(reader.array().ok()?);
                    let branches = reader.compact_size().ok()?;
                    let branches = reader.check_count(branches, 2).ok()?;
                    let branches =
                        (0..branches).map(|_| reader.u16_le().ok()).collect::<Option<_>>()?;
                    Some(Grown { last, value, branches })
                };
                Note::Building { point, count, done, grown }
            }
            3 if reader.remaining() == 0 => Note::Tidying { point, count, root: None },
            3 => Note::Tidying { point, count, root: Some(Hash(reader.array().ok()?)) },
            _ => return None,
        };
        reader.finish().ok()?;
        Some(note)
    }
}

impl Store {
    /// Fills an empty store with entries, and lets the chain go on from a point. If it is cut off, calling it again with the same
    /// entries goes on.
    pub fn bootstrap(
        &self,
        entries: &mut dyn Entries,
        point: Point,
        progress: &mut dyn FnMut(BootstrapProgress),
    ) -> Result<Bootstrapped, Error> {
        let mut state = self.lock();
        self.settle(&mut state)?;
        let mut note = self.begin(&state, point)?;
        state.is_settled = false;
        loop {
            note = match note {
                Note::Loading { point, count, digest, runs } => {
                    self.load(entries, point, (count, digest, runs), progress)?
                }
                Note::Building { point, count, done, grown } => {
                    self.build(point, count, done, grown, progress)?
                }
                Note::Tidying { point, count, root } => {
                    self.tidy(point, count, root, progress)?;
                    self.settle(&mut state)?;
                    return Ok(Bootstrapped { entries: count, root });
                }
            }
        }
    }

    /// Where to go on, or where to begin.
    fn begin(&self, state: &State, point: Point) -> Result<Note, Error> {
        let snapshot = self.engine.snapshot()?;
        if let Some(bytes) = snapshot.get(META, NOTE)? {
            let note = Note::from_bytes(&bytes);
            let note = note.ok_or_else(|| {
                Error::Inconsistent("nothing tells how far a bootstrap came: wipe it".to_owned())
            })?;
            let (Note::Loading { point: found, .. }
            | Note::Building { point: found, .. }
            | Note::Tidying { point: found, .. }) = &note;
            if *found != point {
                return Err(Error::Settings {
                    found: format!("a bootstrap to {found}"),
                    wanted: format!("one to {point}"),
                });
            }
            return Ok(note);
        }
        let has_entries =
            snapshot.scan(KV, (Bound::Unbounded, Bound::Unbounded))?.next().transpose()?.is_some();
        if has_entries || state.tip != Point::Origin || state.next_arrival != 1 {
            return Err(Error::NotEmpty);
        }
        let note = Note::Loading { point, count: 0, digest: digest(&Blake2b::new()), runs: 0 };
        let mut batch = Batch::new();
        batch.put(META, NOTE, &note.to_bytes());
        let config = Config { in_progress: true, ..Config::default() };
        batch.put(CONFIG, config::KEY, &config.to_bytes());
        self.engine.commit(batch)?;
        Ok(note)
    }

    /// Stores entries and their ways.
    fn load(
        &self,
        entries: &mut dyn Entries,
        point: Point,
        (loaded, wanted, mut runs): (u64, Hash, u32),
        progress: &mut dyn FnMut(BootstrapProgress),
    ) -> Result<Note, Error> {
        let mut seen = Blake2b::<U32>::new();
        for _ in 0..loaded {
            let entry = entries.next()?;
            let (key, value) = entry.ok_or_else(other_entries)?;
            note_entry(&mut seen, &key, &value);
        }
        if digest(&seen) != wanted {
            return Err(other_entries());
        }
        let mut count = loaded;
        let mut is_done = false;
        while !is_done {
            let mut batch = Batch::new();
            {
                let snapshot = self.engine.snapshot()?;
                let mut keys = HashSet::new();
                let mut ways = Vec::new();
                while batch.byte_len() < self.batch {
                    let Some((key, value)) = entries.next()? else {
                        is_done = true;
                        break;
                    };
                    if snapshot.get(KV, &key)?.is_some() {
                        return Err(Error::Input(format!("the list has {} twice", hex(&key))));
                    }
                    let path = self.settings.path.path(&key, &value)?;
                    batch.put(KV, &key, &value);
                    // Keys in order are ways in order, if nothing is in front of them.
                    if self.settings.path != PathKind::Raw {
                        ways.push((path, Hash::of(&value)));
                    }
                    note_entry(&mut seen, &key, &value);
                    count += 1;
                    if !keys.insert(key) {
                        return Err(Error::Input("the list has a key twice".to_owned()));
                    }
                }
                ways::write(&mut batch, runs, ways);
                runs += 1;
            }
            let digest = digest(&seen);
            let note = match is_done {
                false => Note::Loading { point, count, digest, runs },
                true => Note::Building { point, count, done: 0, grown: None },
            };
            batch.put(META, NOTE, &note.to_bytes());
            self.engine.commit(batch)?;
            progress(BootstrapProgress { stage: Stage::Loading, done: count, total: None });
        }
        Ok(Note::Building { point, count, done: 0, grown: None })
    }

    /// Makes nodes from the ways in their order.
    fn build(
        &self,
        point: Point,
        count: u64,
        mut done: u64,
        grown: Option<Grown>,
        progress: &mut dyn FnMut(BootstrapProgress),
    ) -> Result<Note, Error> {
        let mut from = grown.as_ref().map(|grown| grown.last.clone());
        let mut out = Gatherer::new(self.form);
        let mut grower = match grown {
            Some(grown) => {
                let snapshot = self.engine.snapshot()?;
                Grower::resume(grown, |left| out.resume(left, Nodes::new(&*snapshot, self.form)))?
            }
            None => Grower::new(),
        };
        let mut ways = match self.settings.path {
            PathKind::Raw => None,
            PathKind::Address => Some(Ways::after(&*self.engine.snapshot()?, from.as_ref())?),
        };
        loop {
            let mut batch = Batch::new();
            let mut rows = 0;
            {
                let snapshot = self.engine.snapshot()?;
                let mut entries = match &mut ways {
                    Some(ways) => Source::Ways(ways, &*snapshot),
                    None => Source::entries(&*snapshot, from.as_ref())?,
                };
                while batch.byte_len() < self.batch
                    && let Some((path, digest)) = entries.next()?
                {
                    let mut take = |position: &Bits, node: &Node| {
                        out.take(position, node, &mut batch);
                    };
                    grower.push(path, digest, &mut take)?;
                    rows += 1;
                }
            }
            if rows == 0 {
                let mut take = |position: &Bits, node: &Node| out.take(position, node, &mut batch);
                let root = grower.finish(&mut take);
                if done != count {
                    return Err(Error::Inconsistent(format!(
                        "{count} entries were stored, and {done} have a way"
                    )));
                }
                let note = Note::Tidying { point, count, root };
                batch.put(META, NOTE, &note.to_bytes());
                self.engine.commit(batch)?;
                return Ok(note);
            }
            done += rows;
            out.write_open(&mut batch);
            let grown = grower.progress();
            from = grown.as_ref().map(|grown| grown.last.clone());
            let note = Note::Building { point, count, done, grown };
            batch.put(META, NOTE, &note.to_bytes());
            self.engine.commit(batch)?;
            progress(BootstrapProgress { stage: Stage::Building, done, total: Some(count) });
        }
    }

    /// Deletes the ways, and lets the chain go on.
    fn tidy(
        &self,
        point: Point,
        count: u64,
        root: Option<Hash>,
        progress: &mut dyn FnMut(BootstrapProgress),
    ) -> Result<(), Error> {
        let mut done = 0;
        loop {
            let mut batch = Batch::new();
            {
                let snapshot = self.engine.snapshot()?;
                let ways = snapshot.scan(WAYS, (Bound::Unbounded, Bound::Unbounded))?;
                for row in ways {
                    batch.delete(WAYS, &row?.0);
                    if batch.byte_len() >= self.batch {
                        break;
                    }
                }
            }
            if batch.is_empty() {
                break;
            }
            done += wide(batch.len());
            self.engine.commit(batch)?;
            let done = done.min(count);
            progress(BootstrapProgress { stage: Stage::Tidying, done, total: Some(count) });
        }
        let hash = match point {
            Point::Origin => Hash::of(&[]),
            Point::Block { hash, .. } => hash,
        };
        let row = RollbackPoint { hash: Some(hash), operations: Vec::new(), root };
        let mut batch = Batch::new();
        // Nothing that comes before the list can be gone back to.
        batch.delete(ROLLBACKS, rollback::SENTINEL);
        batch.put(ROLLBACKS, &rollback::key(&point), &row.to_bytes());
        batch.put(ARRIVALS, &0_u64.to_be_bytes(), &rollback::key(&point));
        let config = Config { base: Some(point), ..Config::default() };
        batch.put(CONFIG, config::KEY, &config.to_bytes());
        batch.delete(META, NOTE);
        Ok(self.engine.commit(batch)?)
    }
}

/// Where ways come from in their order.
enum Source<'a> {
    Ways(&'a mut Ways, &'a dyn Snapshot),
    /// Entries in the order of their keys.
    Entries(Rows<'a>),
}

impl<'a> Source<'a> {
    fn entries(snapshot: &'a dyn Snapshot, last: Option<&Path>) -> Result<Source<'a>, Error> {
        let after = last.map_or(Bound::Unbounded, |last| Bound::Excluded(last.bytes()));
        Ok(Source::Entries(snapshot.scan(KV, (after, Bound::Unbounded))?))
    }

    fn next(&mut self) -> Result<Option<Way>, Error> {
        match self {
            Source::Ways(ways, snapshot) => ways.next(*snapshot),
            Source::Entries(rows) => {
                let Some((key, value)) = rows.next().transpose()? else { return Ok(None) };
                Ok(Some((Path::of_bytes(&key)?, Hash::of(&value))))
            }
        }
    }
}

fn other_entries() -> Error {
    Error::Input(
        "these are not the entries that the bootstrap was begun with: give the same, or wipe it"
            .to_owned(),
    )
}

/// Lengths, too, so that bytes cannot move from one to the next.
fn note_entry(seen: &mut Blake2b<U32>, key: &[u8], value: &[u8]) {
    for part in [key, value] {
        seen.update(wide(part.len()).to_le_bytes());
        seen.update(part);
    }
}

fn digest(seen: &Blake2b<U32>) -> Hash {
    Hash(seen.clone().finalize().into())
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
