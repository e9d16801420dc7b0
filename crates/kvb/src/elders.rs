//! Where older records may be: for the records of a round that hide others, the segments that have their hashes.
//!
//! To ask every segment about every tombstone would cost a cache miss or more each. Runs are in order of hash. So all hashes
//! that will be asked about are collected first, and looked for in one run after the other, both in order.
//!
//! Cost: 8 bytes of memory for each hash; of each run as many entries as there are hashes, or all of them, whichever is less.

use std::sync::Arc;

use crate::core::Fixed;
use crate::format::run::RunEntry;
use crate::log::Log;
use crate::sealed::Sealed;

/// Most hashes that are collected, and most places where they are found.
const HASHES_MAX: usize = 1 << 20;
const FOUND_MAX: usize = 4 << 20;
/// In a run with so many entries for each hash, its filter is asked first.
const SPARSE: usize = 64;

/// Stands for a hash that was looked for, whether it was found or not.
const LOOKED_FOR: u32 = u32::MAX;

/// Where hashes were found.
#[derive(Debug, Default)]
pub(crate) struct Elders {
    /// Hashes and numbers of segments that have them, in order. Behind those of a hash is a mark that it was looked for.
    found: Vec<(u64, u32)>,
    /// Where in that list the hashes begin whose highest bits are a number.
    starts: Vec<usize>,
    /// Bits below those.
    shift: u32,
    /// Segments that may have any.
    unknown: Vec<u32>,
}

impl Elders {
    /// Looks for the hashes of all records of some victims that may have to be asked about, in some segments. If there are too many,
    /// it knows of none.
    pub(crate) fn find<'a>(
        log: &Log,
        fixed: &Fixed,
        victims: &[Arc<Sealed>],
        segments: impl Iterator<Item = &'a Arc<Sealed>>,
    ) -> Elders {
        let Some(hashes) = hashes_of(log, fixed, victims) else { return Elders::default() };
        let mut found: Vec<(u64, u32)> = hashes.iter().map(|hash| (*hash, LOOKED_FOR)).collect();
        let mut unknown = Vec::new();
        if hashes.is_empty() {
            return Elders::default();
        }
        for (number, segment) in (0..).zip(segments) {
            match segment.run(log, fixed).and_then(|run| Some((run, run.entries(log)?))) {
                Some((run, entries)) => {
                    let is_sparse = run.count / SPARSE > hashes.len();
                    let may_have = |hash| !is_sparse || run.may_have_hash(log, hash);
                    meet(&hashes, entries, may_have, |hash| found.push((hash, number)));
                }
                None => unknown.push(number),
            }
            if found.len() > FOUND_MAX {
                return Elders::default();
            }
        }
        found.sort_unstable();
        Elders::index(found, unknown)
    }

    /// As many parts as there are hashes: most have one or none, and finding it takes no search.
    fn index(found: Vec<(u64, u32)>, unknown: Vec<u32>) -> Elders {
        let bits = found.len().max(1).ilog2().max(1);
        let shift = u64::BITS - bits;
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (at, (hash, _)) in found.iter().enumerate() {
            while to_index(starts.len()) <= hash >> shift {
                starts.push(at);
            }
        }
        starts.resize((1 << bits) + 1, found.len());
        Elders { found, starts, shift, unknown }
    }

    /// The numbers of the segments that may have a hash; `None` if nobody looked for it.
    pub(crate) fn of(&self, hash: u64) -> Option<impl Iterator<Item = usize>> {
        let part = usize::try_from(hash.checked_shr(self.shift)?).ok()?;
        let part = self.found.get(*self.starts.get(part)?..*self.starts.get(part + 1)?)?;
        let first = part.partition_point(|(found, _)| *found < hash);
        let known = part.get(first..)?.iter().take_while(move |(found, _)| *found == hash);
        known.clone().next()?;
        let known = known.map(|(_, number)| number).filter(|number| **number != LOOKED_FOR);
        Some(known.chain(&self.unknown).filter_map(|number| usize::try_from(*number).ok()))
    }
}

fn to_index(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Hashes of tombstones, and of everything in segments that hold more than live records and tombstones; in order.
fn hashes_of(log: &Log, fixed: &Fixed, victims: &[Arc<Sealed>]) -> Option<Vec<u64>> {
    let mut hashes = Vec::new();
    for victim in victims {
        let takes_all = victim.is_guard() || victim.entry.expiring_bytes.get() > 0;
        if !takes_all && victim.entry.delete_bytes.get() == 0 {
            continue;
        }
        let entries = victim.run(log, fixed)?.entries(log)?;
        let wanted = entries.iter().filter(|entry| takes_all || entry.is_delete());
        hashes.extend(wanted.map(|entry| entry.slot_hash.get()));
        if hashes.len() > HASHES_MAX {
            return None;
        }
    }
    hashes.sort_unstable();
    hashes.dedup();
    Some(hashes)
}

/// Tells of every hash that some entry has.
fn meet(
    hashes: &[u64],
    mut entries: &[RunEntry],
    may_have: impl Fn(u64) -> bool,
    mut tell: impl FnMut(u64),
) {
    for hash in hashes {
        if !may_have(*hash) {
            continue;
        }
        // In steps that double: what is next to each other is found at once, what is far apart is not passed one by one.
        let (mut step, mut low) = (1, 0);
        while entries.get(low + step - 1).is_some_and(|entry| entry.slot_hash.get() < *hash) {
            low += step;
            step *= 2;
        }
        let near = entries.get(low..entries.len().min(low + step)).unwrap_or(&[]);
        low += near.partition_point(|entry| entry.slot_hash.get() < *hash);
        entries = entries.get(low..).unwrap_or(&[]);
        match entries.first() {
            Some(entry) if entry.slot_hash.get() == *hash => tell(*hash),
            Some(_) => {}
            None => break,
        }
    }
}
