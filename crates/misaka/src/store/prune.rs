//! What falls out of the windows, found without looking for it.
//!
//! A checkpoint notes which versions it wrote. When the newest one is so far ahead that its window is over, those are gone through: each
//! that is not the newest of its object goes. A version that is the newest then stays, however old, and goes with the write that comes
//! after it. So every version is looked at once or twice, and nothing else is.

use ledger::{Batch, Snapshot, Table};

use super::Store;
use super::draft::Touched;
use super::open::tip_of;
use super::rows::{Note, ObjectRow, journal_entries, part_key, seq_key, version_key};
use super::view::View;
use crate::error::{Error, Rule};
use crate::format::object::Object;
use crate::hash::Hash;
use crate::tables::{CHECKPOINTS, EVENTS, FEED, JOURNAL, NOTES, OBJECTS, VERSIONS};
use crate::threads;

/// Versions that are worth a thread.
const FOR_A_THREAD: usize = 512;

/// What a checkpoint lets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Versions.
    pub versions: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Events.
    pub events: u64,
}

impl Store {
    /// Adds what goes when a checkpoint comes.
    pub(super) fn prune(
        &self,
        snapshot: &dyn Snapshot,
        seq: u64,
        touched: &[Touched<'_>],
        batch: &mut Batch,
    ) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        let (window, retention) = (self.settings.window, self.settings.event_retention);
        if let Some(over) = seq.checked_sub(retention)
            && let Some(note) = note_of(snapshot, over)?
        {
            check_rows(snapshot, EVENTS, over, note.event_rows)?;
            check_rows(snapshot, FEED, over, note.feed_rows)?;
            pruned.events = note.events;
            (0..note.event_rows).for_each(|row| {
                batch.delete(EVENTS, &part_key(over, row));
            });
            (0..note.feed_rows).for_each(|row| {
                batch.delete(FEED, &part_key(over, row));
            });
        }
        if let Some(over) = seq.checked_sub(window) {
            if let Some(note) = note_of(snapshot, over)? {
                self.prune_versions(snapshot, over, note, touched, batch, &mut pruned)?;
            }
            if snapshot.get(CHECKPOINTS, &seq_key(over))?.is_some() {
                batch.delete(CHECKPOINTS, &seq_key(over));
                pruned.checkpoints = 1;
            }
        }
        if let Some(over) = seq.checked_sub(window.max(retention)) {
            batch.delete(NOTES, &seq_key(over));
        }
        // Versions that were the newest beyond the window, and are not any more.
        for touched in touched {
            let Some(old) = touched.old else { continue };
            // Those whose window is over right now are in the journal.
            if is_beyond(old.seq, window, seq.saturating_sub(1)) {
                batch.delete(VERSIONS, &version_key(&touched.newest.id, old.version));
                pruned.versions += 1;
            }
        }
        Ok(pruned)
    }

    fn prune_versions(
        &self,
        snapshot: &dyn Snapshot,
        over: u64,
        note: Note,
        touched: &[Touched<'_>],
        batch: &mut Batch,
        pruned: &mut Pruned,
    ) -> Result<(), Error> {
        check_rows(snapshot, JOURNAL, over, note.journal_rows)?;
        for row in 0..note.journal_rows {
            let key = part_key(over, row);
            let bytes = snapshot.get(JOURNAL, &key)?;
            let bytes = bytes.ok_or_else(|| Error::damaged(JOURNAL, &key, "the row is missing"))?;
            let entries = journal_entries(&bytes)
                .ok_or_else(|| Error::damaged(JOURNAL, &key, "an entry is cut off"))?;
            let parts = threads::over(&entries, self.effort.threads, FOR_A_THREAD, |entries| {
                let mut gone = Vec::new();
                for (id, version) in entries {
                    if newest_version(snapshot, id, touched)? != Some(*version) {
                        gone.push(version_key(id, *version));
                    }
                }
                Ok::<_, Error>(gone)
            });
            for part in parts {
                for key in part? {
                    batch.delete(VERSIONS, &key);
                    pruned.versions += 1;
                }
            }
            batch.delete(JOURNAL, &key);
        }
        Ok(())
    }
}

/// The newest version of an object after a checkpoint.
fn newest_version(
    snapshot: &dyn Snapshot,
    id: &Hash,
    touched: &[Touched<'_>],
) -> Result<Option<u64>, Error> {
    if let Ok(at) = touched.binary_search_by(|touched| touched.newest.id.cmp(id)) {
        return Ok(touched.get(at).map(|touched| touched.newest.version));
    }
    let Some(row) = snapshot.get(OBJECTS, &id.0)? else { return Ok(None) };
    let damaged = |rule: Rule| Error::damaged(OBJECTS, &id.0, rule.text());
    let row = ObjectRow::decode(&row).map_err(damaged)?;
    Ok(Some(Object::decode(row.bytes).map_err(damaged)?.version))
}

/// That a checkpoint has so many rows in a table: the last one is there. A number that is damaged is not to be counted to.
pub(super) fn check_rows(
    snapshot: &dyn Snapshot,
    table: Table,
    seq: u64,
    count: u32,
) -> Result<(), Error> {
    let Some(last) = count.checked_sub(1) else { return Ok(()) };
    let key = part_key(seq, last);
    match snapshot.get(table, &key)?.is_some() {
        true => Ok(()),
        false => Err(Error::damaged(table, &key, "the row is missing")),
    }
}

pub(super) fn note_of(snapshot: &dyn Snapshot, seq: u64) -> Result<Option<Note>, Error> {
    let key = seq_key(seq);
    let Some(row) = snapshot.get(NOTES, &key)? else { return Ok(None) };
    Note::decode(&row).map(Some).map_err(|rule| Error::damaged(NOTES, &key, rule.text()))
}

impl View<'_> {
    /// What the next checkpoint lets go, if it writes nothing itself. Everything that had to go before is gone.
    pub fn next_pruned(&self) -> Result<Pruned, Error> {
        let tip = tip_of(&*self.snapshot)?.ok_or(Error::NoCheckpoint)?;
        let Some(next) = tip.header.seq.checked_add(1) else { return Ok(Pruned::default()) };
        self.store.prune(&*self.snapshot, next, &[], &mut Batch::new())
    }
}

/// Whether a version is kept only because it is the newest.
pub(crate) fn is_beyond(seq: u64, window: u64, tip: u64) -> bool {
    seq.checked_add(window).is_some_and(|end| end <= tip)
}
