//! The run of a segment that the image does not cover yet, when the bucket was just opened.
//!
//! Opening reads nothing of it, or it would take the longer the more runs there are. The filter is checked when the first key is looked
//! for, the entries when a key may be among them, or when they are folded in. If they do not hold, the segment is read instead.

use std::sync::{Arc, OnceLock};

use crate::core::Fixed;
use crate::error::{Corrupt, Error, Result, What};
use crate::format::filter;
use crate::format::meta;
use crate::log::Log;
use crate::opened::Opened;
use crate::overlay::DELETE_BIT;
use crate::runs::{Run, SideData};
use crate::sealed::Sealed;
use crate::walk::rescan;

/// A run that may not have been checked yet.
#[derive(Debug)]
pub(crate) struct LateRun {
    sealed: Arc<Sealed>,
    fixed: Fixed,
    /// Where its filter stands and how long it is, unless that or the head before it is damaged.
    filter: OnceLock<Option<(u64, usize)>>,
    /// What the segment tells if the run does not hold, by slot hash, then by seqno.
    rescanned: OnceLock<std::result::Result<Vec<Change>, Corrupt>>,
}

/// Slot hash, overlay entry and seqno of a record.
pub(crate) type Change = (u64, u64, u64);

/// Where to look.
enum Entries<'a> {
    Run(&'a Run),
    Rescanned(&'a [Change]),
}

impl LateRun {
    /// The run of a registered segment.
    pub(crate) fn new(fixed: &Fixed, sealed: &Arc<Sealed>) -> LateRun {
        LateRun {
            sealed: Arc::clone(sealed),
            fixed: fixed.clone(),
            filter: OnceLock::new(),
            rescanned: OnceLock::new(),
        }
    }

    /// Asks the system for what the first lookup needs of all runs, unless there was one: it goes through all of them.
    #[inline]
    pub(crate) fn prefetch_first(runs: &[LateRun], log: &Log) {
        if runs.first().is_some_and(|run| run.filter.get().is_none()) {
            for run in runs {
                SideData::prefetch(log, run.fixed.geometry, &run.sealed.entry);
            }
        }
    }

    fn load_filter(&self, log: &Log) -> Option<(u64, usize)> {
        let (fixed, entry) = (&self.fixed, &self.sealed.entry);
        if fixed.is_encrypted() {
            // One MAC is for the whole run, so there is nothing to put off.
            return Some(self.sealed.run(log, fixed)?.filter_place());
        }
        let side = SideData::load(log, fixed.geometry, fixed.uuid, entry)?;
        let (at, filter) = side.section(meta::SECTION_FILTER)?;
        Some((at, filter.len()))
    }

    /// Records in the segment.
    pub(crate) fn count(&self) -> usize {
        usize::try_from(self.sealed.entry.record_count.get()).unwrap_or(usize::MAX)
    }

    /// It is of moved records.
    pub(crate) fn is_moved(&self) -> bool {
        self.sealed.is_moved()
    }

    /// The newest record of a key in the segment.
    pub(crate) fn find<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Opened<'a>>> {
        let filter = *self.filter.get_or_init(|| self.load_filter(log));
        let filter = filter.and_then(|(at, len)| log.bytes(at, len));
        if filter.is_some_and(|bytes| !filter::may_contain(bytes, hash)) {
            return Ok(None);
        }
        match self.entries(log)? {
            Entries::Run(run) => run.find(log, hash, key),
            Entries::Rescanned(changes) => {
                let first = changes.partition_point(|change| change.0 < hash);
                let same = changes.iter().skip(first).take_while(|change| change.0 == hash);
                let mut newest = None;
                for (_, entry, _) in same {
                    let record = log.record(entry & !DELETE_BIT)?;
                    if record.key() == key {
                        newest = Some(record);
                    }
                }
                Ok(newest)
            }
        }
    }

    /// Slot hash, overlay entry and seqno of every record, oldest first.
    pub(crate) fn in_log_order(&self, log: &Log) -> Result<Vec<Change>> {
        Ok(match self.entries(log)? {
            Entries::Run(run) => run.in_log_order(log),
            Entries::Rescanned(changes) => {
                let mut changes = changes.to_vec();
                changes.sort_unstable_by_key(|change| change.2);
                changes
            }
        })
    }

    fn entries(&self, log: &Log) -> Result<Entries<'_>> {
        if let Some(run) = self.sealed.run(log, &self.fixed) {
            return Ok(Entries::Run(run));
        }
        let at = self.sealed.start(self.fixed.geometry);
        let rescanned = self.rescanned.get_or_init(|| {
            tracing::warn!(at, "a run is damaged; reading its segment");
            match rescan(log, &self.fixed, &self.sealed.entry) {
                Ok(segment) => {
                    let mut changes: Vec<_> = segment.changes(self.fixed.geometry).collect();
                    changes.sort_unstable_by_key(|change| (change.0, change.2));
                    Ok(changes)
                }
                Err(Error::Corrupt(corrupt)) => Err(corrupt),
                Err(_) => Err(Corrupt { what: What::Run, at }),
            }
        });
        match rescanned {
            Ok(changes) => Ok(Entries::Rescanned(changes)),
            Err(corrupt) => Err(Error::Corrupt(*corrupt)),
        }
    }
}
