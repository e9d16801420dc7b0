//! Fewer levels for those who scan.
//!
//! A scan looks into every level, and every segment of the log is one. Whoever scans over more than [`EASY`] asks for
//! fewer; when nothing else is to be compacted the background then merges small levels into larger ones. A level is
//! merged only with others that are together at least as large, so a record is moved once per doubling of its level,
//! and nothing is moved in a bucket that nobody scans.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::core::Core;
use crate::error::Result;
use crate::level::Level;
use crate::sealed::Sealed;

/// Levels over which a scan is fast enough.
const EASY: usize = 4;
/// Fewest levels worth merging.
const MERGE_MIN: usize = 4;
/// Bytes of segments per live byte, in percent, that a merge must not exceed while it lasts, unless it is small.
const SPACE_MAX: u64 = 138;
/// The same where next to nothing is dead.
const SPACE_MAX_CALM: u64 = 150;

/// What scans ask for.
#[derive(Debug, Default)]
pub(crate) struct Tidy {
    is_wanted: AtomicBool,
    /// The image when nothing was worth merging any more. The next one may cover more.
    done_at: AtomicU64,
}

impl Core {
    /// A scan looks into so many levels.
    #[inline]
    pub(crate) fn note_levels(&self, levels: usize) {
        if levels > EASY {
            self.want_fewer_levels();
        }
    }

    /// Not beside an image with which nothing was worth merging; an old snapshot may ask for ever.
    #[cold]
    fn want_fewer_levels(&self) {
        let is_done = self.view.load().image.place.id == self.tidy.done_at.load(Ordering::Relaxed);
        if self.mode.background && !is_done && !self.tidy.is_wanted.swap(true, Ordering::AcqRel) {
            self.ask_for_compaction();
        }
    }

    /// Merges levels as long as that is worth it, if a scan asked for it.
    pub(crate) fn tidy(&self) -> Result<()> {
        if !self.tidy.is_wanted.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let result = self.merge_levels();
        self.tidy.done_at.store(self.view.load().image.place.id, Ordering::Relaxed);
        result
    }

    fn merge_levels(&self) -> Result<()> {
        let mut is_renewed = false;
        // What is written from here on is for the next scan to ask about: else there would be no end to it beside a busy writer.
        let newest = self.position().seqno;
        while !self.stop_compacting.load(Ordering::Acquire) && !self.is_compaction_asked() {
            let (uncovered, victims) = self.levels_to_merge(newest)?;
            if victims.is_empty() && uncovered >= MERGE_MIN && !is_renewed {
                is_renewed = true;
                if self.renew_image(true)? {
                    continue;
                }
            }
            // On a disk that is nearly full order has to wait.
            if victims.is_empty() || !self.has_room_for(&victims)? {
                break;
            }
            if self.round(victims, true)?.segments_emptied == 0 {
                break;
            }
        }
        Ok(())
    }

    /// How many levels could be merged only after a new image, and the segments of those to merge next, if they have nothing that is
    /// newer than a seqno.
    fn levels_to_merge(&self, newest: u64) -> Result<(usize, Vec<Arc<Sealed>>)> {
        let (view, _) = self.current();
        let is_old =
            |level: &&Arc<Level>| level.sealed().all(|one| one.entry.base_seqno.get() <= newest);
        let levels = view.segments.levels(&self.log, &self.fixed)?.iter().filter(is_old);
        let levels: Vec<&Arc<Level>> = levels.collect();
        let choice = self.choice();
        let movable: HashSet<u64> =
            choice.candidates.iter().map(|one| one.sealed.entry.seg_id.get()).collect();
        let is_movable = |one: &Arc<Sealed>| movable.contains(&one.entry.seg_id.get());
        let mut small: Vec<(u64, Vec<Arc<Sealed>>)> = levels
            .iter()
            .map(|level| (level.bytes(), level.sealed().cloned().collect::<Vec<_>>()))
            .filter(|(_, sealed)| sealed.iter().all(is_movable))
            .collect();
        let uncovered = levels.len() - small.len();
        small.sort_by_key(|(bytes, _)| *bytes);
        let is_calm = choice.dead < choice.live() / 16;
        let percent = if is_calm { SPACE_MAX_CALM } else { SPACE_MAX };
        let most = choice.live().saturating_mul(percent) / 100;
        let room = most.saturating_sub(choice.space_at_least()).max(choice.budget);
        let (mut count, mut total) = (0, 0);
        for (at, (bytes, _)) in small.iter().enumerate() {
            if total + bytes > room {
                break;
            }
            // As many as possible, if the largest is no more than all others.
            if *bytes <= total {
                count = at + 1;
            }
            total += bytes;
        }
        let victims = if count < MERGE_MIN || levels.len() <= EASY {
            Vec::new()
        } else {
            small.into_iter().take(count).flat_map(|(_, sealed)| sealed).collect()
        };
        Ok((uncovered, victims))
    }
}
