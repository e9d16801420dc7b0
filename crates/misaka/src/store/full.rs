//! Roots made from nothing but the rows: of everything there is, without what is kept in memory.
//!
//! Threads share the ids by their first byte. v1 goes through them twice, for the leaves of objects and for those of versions. v2 sorts
//! paths, as many at a time as memory has room for, by their first byte.

use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use ledger::{Batch, Snapshot};

use super::Store;
use super::draft::Touched;
use super::open::params_of;
use super::roots::{Progress, Stage};
use super::rows::ObjectRow;
use crate::error::{Error, Rule};
use crate::format::key;
use crate::format::node::{Child, Place};
use crate::format::params::Params;
use crate::hash::Hash;
use crate::leaf::{self, Hashed, Record};
use crate::merkle;
use crate::root1::{Leaves, Root1};
use crate::root2::Leaf;
use crate::settings::RootVersion;
use crate::tables::OBJECTS;
use crate::{threads, tree};

/// Records that are hashed at a time, and their bytes.
const TOGETHER: usize = 512;
const TOGETHER_BYTES: usize = 1 << 20;
/// Bytes of a leaf of v2 in memory.
const LEAF_BYTES: usize = size_of::<Leaf>();
/// Objects that are gone through in one go.
const SMALL: u64 = 1 << 13;
/// Of how many objects progress is told.
const TELL: u64 = 1 << 14;

/// What makes leaves of records.
type HashLeaves = fn(RootVersion, &[Record<'_>]) -> Vec<Hash>;

/// Goes through the records of objects whose ids begin with some bytes, a few at a time.
fn for_each_record(
    snapshot: &dyn Snapshot,
    first_bytes: Range<usize>,
    task: &mut dyn FnMut(&[Record<'_>]) -> Result<(), Error>,
) -> Result<(), Error> {
    let edge = |byte: usize| u8::try_from(byte).ok().map(|byte| [byte]);
    let from = edge(first_bytes.start);
    let to = edge(first_bytes.end);
    let range = (
        from.as_ref().map_or(Bound::Unbounded, |byte| Bound::Included(byte.as_slice())),
        to.as_ref().map_or(Bound::Unbounded, |byte| Bound::Excluded(byte.as_slice())),
    );
    let mut rows = Vec::with_capacity(TOGETHER);
    let mut bytes = 0;
    let mut scan = snapshot.scan(OBJECTS, range)?;
    loop {
        let row = scan.next().transpose()?;
        let is_end = row.is_none();
        if let Some((key, value)) = row {
            bytes += value.len();
            rows.push((key, value));
        }
        if rows.len() == TOGETHER || bytes >= TOGETHER_BYTES || is_end {
            let records: Result<Vec<Record<'_>>, Error> = rows
                .iter()
                .map(|(key, value)| {
                    let damaged = |rule: Rule| Error::damaged(OBJECTS, key, rule.text());
                    ObjectRow::decode(value).and_then(|row| row.record(key)).map_err(damaged)
                })
                .collect();
            task(&records?)?;
            rows.clear();
            bytes = 0;
        }
        if is_end {
            return Ok(());
        }
    }
}

/// First bytes, shared out.
fn shares(threads: usize) -> Vec<Range<usize>> {
    let each = 256_usize.div_ceil(threads.max(1) * 8);
    (0..256).step_by(each).map(|from| from..(from + each).min(256)).collect()
}

fn param_leaves(root: RootVersion, params: &Params) -> Vec<(String, Hash)> {
    let leaf = |(name, value): (&String, &Vec<u8>)| {
        let key = key::Key::Param(name.clone()).encode();
        (name.clone(), leaf::leaf(root, &key, value))
    };
    params.iter().map(leaf).collect()
}

impl Store {
    /// All leaves of v1.
    pub(super) fn load_leaves(
        &self,
        snapshot: &dyn Snapshot,
        objects: u64,
    ) -> Result<Root1, Error> {
        let shares = shares(self.effort.threads);
        let parts = threads::over(&shares, self.effort.threads, 1, |shares| {
            let mut leaves = Vec::new();
            for share in shares {
                for_each_record(snapshot, share.clone(), &mut |records| {
                    let hashed = leaf::hash_records(RootVersion::V1, records);
                    leaves.extend(records.iter().zip(hashed).map(|(record, hashed)| Leaves {
                        id: record.id,
                        object: hashed.object,
                        version: hashed.version,
                    }));
                    Ok(())
                })?;
            }
            Ok::<_, Error>(leaves)
        });
        let mut leaves = Vec::with_capacity(usize::try_from(objects).unwrap_or(0));
        for part in parts {
            leaves.append(&mut part?);
        }
        let params = param_leaves(RootVersion::V1, &params_of(snapshot)?);
        Ok(Root1::new(leaves, params, self.effort.threads))
    }

    /// The root of v1, with what a checkpoint changes, without keeping anything: objects in one pass, versions in another.
    pub(super) fn stream_root1(
        &self,
        snapshot: &dyn Snapshot,
        params: &Params,
        touched: &[Touched<'_>],
        objects: u64,
        progress: Progress<'_>,
    ) -> Result<Hash, Error> {
        let mut growing = merkle::Growing::default();
        let done = AtomicU64::new(0);
        for is_version in [false, true] {
            let mut new = touched.iter().map(|touched| touched.newest).peekable();
            let mut push = |records: &[Record<'_>]| {
                for Hashed { object, version, .. } in leaf::hash_records(RootVersion::V1, records) {
                    growing.push(if is_version { version } else { object });
                }
            };
            for_each_record(snapshot, 0..256, &mut |records| {
                let mut merged: Vec<Record<'_>> = Vec::with_capacity(records.len());
                for record in records {
                    while let Some(new) = new.next_if(|new| new.id < record.id) {
                        merged.push(new);
                    }
                    merged.push(new.next_if(|new| new.id == record.id).unwrap_or(*record));
                }
                push(&merged);
                tell(progress, Stage::Hashing, &done, records.len(), objects.saturating_mul(2));
                Ok(())
            })?;
            push(&new.collect::<Vec<_>>());
            if !is_version {
                let params = param_leaves(RootVersion::V1, params);
                params.into_iter().for_each(|(_, leaf)| growing.push(leaf));
            }
        }
        Ok(growing.finish())
    }

    /// The root of v1 of all rows. Threads hash the leaves of a few first bytes at a time, so that little is in memory, whatever is
    /// kept there besides.
    pub(super) fn full_root1(
        &self,
        snapshot: &dyn Snapshot,
        objects: u64,
        progress: Progress<'_>,
    ) -> Result<Hash, Error> {
        let mut growing = merkle::Growing::default();
        let (done, total) = (AtomicU64::new(0), objects.saturating_mul(2));
        // Not worth it for a few.
        let ranges: Vec<Range<usize>> = match objects < SMALL {
            true => std::iter::once(0..256).collect(),
            false => (0..256).map(|byte| byte..byte + 1).collect(),
        };
        let kinds: [HashLeaves; 2] = [leaf::object_leaves, leaf::version_leaves];
        let params = param_leaves(RootVersion::V1, &params_of(snapshot)?);
        // Parameters stand between objects and versions.
        for (hash, between) in kinds.into_iter().zip([params.as_slice(), &[]]) {
            for wave in ranges.chunks(self.effort.threads.max(1)) {
                let parts = threads::over(wave, self.effort.threads, 1, |ranges| {
                    let mut leaves = Vec::new();
                    for range in ranges {
                        for_each_record(snapshot, range.clone(), &mut |records| {
                            leaves.append(&mut hash(RootVersion::V1, records));
                            tell(progress, Stage::Hashing, &done, records.len(), total);
                            Ok(())
                        })?;
                    }
                    Ok::<_, Error>(leaves)
                });
                for part in parts {
                    part?.into_iter().for_each(|leaf| growing.push(leaf));
                }
            }
            between.iter().for_each(|(_, leaf)| growing.push(*leaf));
        }
        Ok(growing.finish())
    }

    /// What stands above all in the tree of v2 that the rows make. Rows of nodes go to `take`, if somebody wants them.
    pub(super) fn full_tree(
        &self,
        snapshot: &dyn Snapshot,
        objects: u64,
        progress: Progress<'_>,
        mut take: Option<&mut dyn FnMut(Batch) -> Result<(), Error>>,
    ) -> Result<Child, Error> {
        let params = param_leaves(RootVersion::V2, &params_of(snapshot)?);
        let params: Vec<Leaf> = params
            .into_iter()
            .map(|(name, digest)| {
                let path = leaf::path(&key::Key::Param(name).encode());
                Leaf { path, place: Place::Param(path), digest }
            })
            .collect();
        let entries = usize::try_from(objects).unwrap_or(usize::MAX).saturating_mul(2);
        let passes = passes(entries, self.effort.sorted());
        let total = objects.saturating_mul(u64::try_from(passes.len()).unwrap_or(1));
        let done = AtomicU64::new(0);
        let mut growing = tree::Growing::default();
        for pass in passes {
            let is_here =
                |path: &Hash| path.0.first().is_some_and(|byte| pass.contains(&usize::from(*byte)));
            let shares = shares(self.effort.threads);
            let parts = threads::over(&shares, self.effort.threads, 1, |shares| {
                let mut leaves: Vec<Leaf> = Vec::new();
                for share in shares {
                    for_each_record(snapshot, share.clone(), &mut |records| {
                        gather(records, &is_here, &mut leaves);
                        tell(progress, Stage::Hashing, &done, records.len(), total);
                        Ok(())
                    })?;
                }
                Ok::<_, Error>(leaves)
            });
            let mut leaves: Vec<Leaf> =
                params.iter().filter(|leaf| is_here(&leaf.path)).copied().collect();
            for part in parts {
                leaves.append(&mut part?);
            }
            leaves.sort_unstable();
            grow(&mut growing, &leaves, self.effort.threads, &mut take)?;
        }
        let mut batch = Batch::new();
        let top = growing.finish(&mut batch);
        if let Some(take) = &mut take {
            take(batch)?;
        }
        Ok(top)
    }
}

/// First bytes of paths, in as many passes as memory asks for.
pub(crate) fn passes(entries: usize, memory: usize) -> Vec<Range<usize>> {
    // Twice while the parts of threads come together.
    let needed = entries.saturating_mul(2 * LEAF_BYTES);
    let count = needed.div_ceil(memory.max(1)).clamp(1, 256);
    let each = 256_usize.div_ceil(count);
    (0..256).step_by(each).map(|from| from..(from + each).min(256)).collect()
}

/// Lets a tree grow by leaves, which are in the order of their paths, a few first bytes at a time.
pub(crate) fn grow(
    growing: &mut tree::Growing,
    leaves: &[Leaf],
    threads: usize,
    take: &mut Option<&mut dyn FnMut(Batch) -> Result<(), Error>>,
) -> Result<(), Error> {
    for part in leaves.chunk_by(|a, b| a.path.nibble(0) == b.path.nibble(0)) {
        let batches = growing.take(part, threads, take.is_some());
        if let Some(take) = take {
            batches.into_iter().try_for_each(take)?;
        }
    }
    Ok(())
}

/// The leaves of records whose paths are wanted.
fn gather(records: &[Record<'_>], is_here: &dyn Fn(&Hash) -> bool, leaves: &mut Vec<Leaf>) {
    let names: Vec<(Hash, u64)> =
        records.iter().map(|record| (record.id, record.version)).collect();
    let paths = leaf::paths(&names);
    let wanted: Vec<(Record<'_>, (Hash, Hash))> = records
        .iter()
        .copied()
        .zip(paths)
        .filter(|(_, (object, version))| is_here(object) || is_here(version))
        .collect();
    let records: Vec<Record<'_>> = wanted.iter().map(|(record, _)| *record).collect();
    let hashed = leaf::hash_records(RootVersion::V2, &records);
    for ((record, (object, version)), hashed) in wanted.into_iter().zip(hashed) {
        if is_here(&object) {
            let place = Place::Object(record.id);
            leaves.push(Leaf { path: object, place, digest: hashed.object });
        }
        if is_here(&version) {
            let place = Place::Version(record.id, record.version);
            leaves.push(Leaf { path: version, place, digest: hashed.version });
        }
    }
}

fn tell(progress: Progress<'_>, stage: Stage, done: &AtomicU64, count: usize, total: u64) {
    let count = u64::try_from(count).unwrap_or(0);
    let before = done.fetch_add(count, Ordering::Relaxed);
    if before / TELL != (before + count) / TELL {
        progress(stage, before + count, total);
    }
}
