//! Ways to the entries of a bootstrap: paths and digests, sorted piece by piece as they come, and all of them in order when they are
//! needed.
//!
//! What comes with a batch is a run: sorted, and cut into rows of [`ROW`] bytes, so that there is a row for dozens of entries and not
//! one for each. Reading holds one row of every run. A run has the entries of a batch; so that is a thousandth of what was loaded.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ledger::{Batch, Reader, Snapshot, Writer};

use crate::error::Error;
use crate::hash::Hash;
use crate::path::Path;
use crate::tables::WAYS;

/// Bytes from which on a row is full.
const ROW: usize = 4 << 10;

/// The way to an entry: its path, and the digest of its value.
pub(super) type Way = (Path, Hash);

fn key(run: u32, row: u32) -> [u8; 8] {
    (u64::from(run) << 32 | u64::from(row)).to_be_bytes()
}

/// Adds a run to a batch.
pub(super) fn write(batch: &mut Batch, run: u32, mut ways: Vec<Way>) {
    ways.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let mut rest = ways.iter();
    for row in 0.. {
        let mut writer = Writer::new();
        for (path, digest) in rest.by_ref() {
            writer.compact_bytes(path.bytes()).bytes(&digest.0);
            if writer.len() >= ROW {
                break;
            }
        }
        if writer.is_empty() {
            break;
        }
        batch.put(WAYS, &key(run, row), &writer.finish());
    }
}

/// All runs, in the order of paths.
pub(super) struct Ways {
    runs: Vec<Run>,
    /// The first of every run, and which run that is.
    first: BinaryHeap<Reverse<(Path, usize)>>,
}

/// What is left of a run.
struct Run {
    row: Vec<u8>,
    at: usize,
    next_row: u32,
    /// Of the way that comes first.
    digest: Hash,
}

impl Ways {
    /// All ways behind a path.
    pub(super) fn after(snapshot: &dyn Snapshot, last: Option<&Path>) -> Result<Ways, Error> {
        let mut ways = Ways { runs: Vec::new(), first: BinaryHeap::new() };
        for number in 0.. {
            let Some(row) = snapshot.get(WAYS, &key(number, 0))? else { break };
            let row = row.into_owned();
            ways.runs.push(Run { row, at: 0, next_row: 1, digest: Hash::default() });
            ways.advance(snapshot, ways.runs.len() - 1, last)?;
        }
        Ok(ways)
    }

    /// The next way; none behind the last.
    pub(super) fn next(&mut self, snapshot: &dyn Snapshot) -> Result<Option<Way>, Error> {
        let Some(Reverse((path, number))) = self.first.pop() else { return Ok(None) };
        let digest = self.runs.get(number).map(|run| run.digest).unwrap_or_default();
        self.advance(snapshot, number, None)?;
        Ok(Some((path, digest)))
    }

    /// Finds the first way of a run that is behind a path.
    fn advance(
        &mut self,
        snapshot: &dyn Snapshot,
        number: usize,
        last: Option<&Path>,
    ) -> Result<(), Error> {
        let Some(run) = self.runs.get_mut(number) else { return Ok(()) };
        while let Some(path) = run.next(snapshot, number)? {
            if last.is_none_or(|last| path > *last) {
                self.first.push(Reverse((path, number)));
                break;
            }
        }
        Ok(())
    }
}

impl Run {
    fn next(&mut self, snapshot: &dyn Snapshot, number: usize) -> Result<Option<Path>, Error> {
        if self.at >= self.row.len() {
            let key = key(u32::try_from(number).unwrap_or(u32::MAX), self.next_row);
            let Some(row) = snapshot.get(WAYS, &key)? else { return Ok(None) };
            (self.row, self.at) = (row.into_owned(), 0);
            self.next_row += 1;
        }
        let wrong = || Error::Inconsistent("ways to entries are damaged: wipe it".to_owned());
        let mut reader = Reader::new(self.row.get(self.at..).unwrap_or(&[]));
        let path = Path::of_bytes(reader.compact_bytes().map_err(|_| wrong())?)?;
        self.digest = Hash(reader.array().map_err(|_| wrong())?);
        self.at = self.row.len() - reader.remaining();
        Ok(Some(path))
    }
}
