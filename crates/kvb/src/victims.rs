//! Which segments to compact (seed 002 section 13 and Appendix C).
//!
//! Dead are records that others replaced, tombstones, and records that expired. A segment is worth emptying when less
//! than [`LIVE_MAX`] of it is live; of those the score of Appendix C takes the best first. When the segments take more
//! than [`Choice::worth`] percent of what is live and none is that empty, fuller ones will do, but no fuller than needed:
//! every record moved is written once more, and so is its place in the index.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::{Core, lock};
use crate::error::Result;
use crate::extent::Extent;
use crate::format::roster::SegmentEntry;
use crate::keeper::{Keeper, OUTPUT_PAGES_MIN};
use crate::overlay::DELETE_BIT;
use crate::sealed::Sealed;
use crate::segment::sealed_page_count;
use crate::segment_sums::SegmentSums;
use crate::space::Space;

/// Least share of a segment that must be live for it to be left alone, unless the options grant more.
const LIVE_MAX: f64 = 0.6;
/// Shares that will do when too much of the whole is dead.
const RELAXED: [f64; 9] = [0.64, 0.68, 0.72, 0.76, 0.8, 0.84, 0.88, 0.92, 0.97];
/// Bytes of segments per live byte, in percent, from which on too much is dead: less if a segment is much of the whole,
/// because by so much it may be more before anything comes of it. More if the options grant more, less if they grant less.
const WORTH_MIN: u64 = 127;
const WORTH_MAX: u64 = 142;
/// What the options grant if nobody says otherwise: what is dead at [`WORTH_MAX`].
pub(crate) const SLACK: u32 = 42;
/// Bytes of segments per byte of records, in percent, that count.
const SIDE_MAX: u64 = 115;
/// What a segment gains in score by a record written since its last one: the `age_weight` of Appendix C.
const AGE_WEIGHT: f64 = 0.25;

/// Dead bytes that are never worth the trouble.
const TRIFLE_MIN: u64 = 64 << 10;
/// An expired record is dropped only when the wall clock is this far past its deadline.
pub(crate) const GRACE_NS: u64 = 3600 * 1_000_000_000;

/// Changes that are looked at for every segment, and altogether, to estimate what died where.
const SAMPLE_PER_SEGMENT: usize = 64;
const SAMPLE_MIN: usize = 1024;
const SAMPLE_MAX: usize = 4096;

/// A segment that may be emptied.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) sealed: Arc<Sealed>,
    /// Bytes of records.
    pub(crate) bytes: u64,
    /// Bytes of those that are dead, as far as known.
    pub(crate) dead: u64,
    /// Records written since its last one.
    pub(crate) age: u64,
}

impl Candidate {
    fn live_ratio(&self) -> f64 {
        1.0 - ratio(self.dead, self.bytes)
    }

    pub(crate) fn live(&self) -> u64 {
        self.bytes - self.dead
    }

    /// What there is to move at most: tombstones that hide records elsewhere are not dropped.
    fn live_at_most(&self) -> u64 {
        self.bytes.min(self.live().saturating_add(self.sealed.entry.delete_bytes.get()))
    }

    /// Appendix C: `(1 - live_ratio) * size_bytes + age_weight * segment_age`.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a heuristic")]
    fn score(&self) -> f64 {
        self.dead as f64 + AGE_WEIGHT * self.age as f64
    }
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a heuristic")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part.min(whole) as f64 / whole as f64 }
}

/// What there is to choose from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Choice {
    pub(crate) candidates: Vec<Candidate>,
    /// Bytes of records in segments, and in the tail of the log.
    pub(crate) total: u64,
    pub(crate) tail: u64,
    /// Bytes of those that are dead, estimated.
    pub(crate) dead: u64,
    /// Bytes of those that compaction can get at only after a new image.
    hidden: u64,
    /// Bytes that segments take with all that belongs to them.
    pub(crate) space: u64,
    /// Bytes of the next segment of the log.
    segment: u64,
    /// Dead bytes that the options grant beyond [`SLACK`], in percent of the live ones, or less than that.
    slack: u64,
    lack: u64,
    /// Most live bytes to move at once.
    pub(crate) budget: u64,
    /// Dead bytes not worth the trouble.
    pub(crate) trifle: u64,
    /// Pages that are free in one place and have their blocks.
    pub(crate) room: u64,
}

/// Neighbours that are to become one free extent: segments to empty, and what is free between them.
#[derive(Debug, Default)]
pub(crate) struct Clearing {
    pub(crate) victims: Vec<Arc<Sealed>>,
    pub(crate) free: Vec<Extent>,
}

impl Choice {
    /// What to clear so that so many pages are free in one place: the neighbours with the fewest pages in use, if those fit
    /// what is free elsewhere.
    pub(crate) fn clearing(&self, space: &Space, pages: u64) -> Option<Clearing> {
        let used = self.candidates.iter().map(|one| (one.sealed.extent(), Some(&one.sealed)));
        let mut all: Vec<_> = used.chain(space.iter().map(|extent| (extent, None))).collect();
        all.sort_unstable_by_key(|(extent, _)| extent.start_page);
        let worth = |extent: &Extent| extent.page_count >= OUTPUT_PAGES_MIN;
        let room: u64 = space.iter().filter(worth).map(|extent| extent.page_count).sum();
        let (mut least, mut best) = (u64::MAX, None);
        for from in 0..all.len() {
            let Some(rest) = all.get(from..) else { break };
            let (mut end, mut total, mut moved, mut lost) = (None, 0, 0, 0);
            for (count, (extent, sealed)) in rest.iter().enumerate() {
                if total >= pages || end.is_some_and(|end| end != extent.start_page) {
                    break;
                }
                end = Some(extent.end_page());
                total += extent.page_count;
                match sealed {
                    Some(_) => moved += extent.page_count,
                    None => lost += if worth(extent) { extent.page_count } else { 0 },
                }
                let fits = moved + lost <= room;
                if total >= pages && fits && moved < least {
                    (least, best) = (moved, rest.get(..=count));
                }
            }
        }
        let mut clearing = Clearing::default();
        for (extent, sealed) in best? {
            match sealed {
                Some(sealed) => clearing.victims.push(Arc::clone(sealed)),
                None => clearing.free.push(*extent),
            }
        }
        (!clearing.victims.is_empty()).then_some(clearing)
    }

    /// Bytes of records that are live, estimated.
    pub(crate) fn live(&self) -> u64 {
        (self.total + self.tail).saturating_sub(self.dead).max(1)
    }

    /// Bytes that segments take, or records, whichever is more. What belongs to very small records is more than any
    /// compaction can make up for, so it does not count.
    pub(crate) fn space_at_least(&self) -> u64 {
        self.space.min(self.total.saturating_mul(SIDE_MAX) / 100).max(self.total + self.tail)
    }

    /// True if too much is dead.
    fn is_worth_it(&self) -> bool {
        let percent = self.space_at_least().saturating_mul(100) / self.live();
        self.dead > self.trifle && percent > self.worth()
    }

    /// Bytes of segments per live byte, in percent, from which on too much is dead.
    pub(crate) fn worth(&self) -> u64 {
        let step = self.segment.saturating_mul(100) / self.live();
        let most = WORTH_MAX.saturating_sub(self.lack).max(WORTH_MIN);
        (WORTH_MAX + 5).saturating_sub(step * 5 / 2).clamp(WORTH_MIN, most) + self.slack
    }

    /// Least share of a segment that must be live for it to be left alone, if not too much is dead.
    fn live_max(&self) -> f64 {
        LIVE_MAX * ratio(WORTH_MAX, WORTH_MAX + self.slack)
    }

    /// True if too much is dead, and more than half of it where only a new image gives compaction access.
    pub(crate) fn wants_image(&self) -> bool {
        let known: u64 = self.candidates.iter().map(|one| one.dead).sum();
        // An image costs about a third of the log to write. From a sixteenth of the log, in buckets where that is a segment,
        // to a seventh, or a third if much may be dead.
        let least = self.total.saturating_mul((self.worth() - WORTH_MIN + 8).min(40)) / 128;
        self.is_worth_it() && self.hidden > known.max(least)
    }

    /// The segments to empty next; none if that is not worth the trouble.
    pub(crate) fn pick(&self) -> Vec<Arc<Sealed>> {
        let worth = self.is_worth_it();
        let relaxed = std::iter::once(LIVE_MAX).chain(RELAXED).filter(|_| worth);
        let limits = std::iter::once(self.live_max()).chain(relaxed);
        // What is too much has to go, even if it is little by little.
        let trifle = if worth { self.trifle / 8 } else { self.trifle };
        for limit in limits {
            let mut eligible: Vec<&Candidate> =
                self.candidates.iter().filter(|one| one.live_ratio() < limit).collect();
            let dead: u64 = eligible.iter().map(|one| one.dead).sum();
            if dead <= trifle && !eligible.iter().any(|one| one.live() == 0 && one.dead > 0) {
                continue;
            }
            eligible.sort_by(|a, b| b.score().total_cmp(&a.score()));
            return self.fill(&eligible);
        }
        Vec::new()
    }

    /// As many of the emptiest as the budget allows.
    pub(crate) fn fill_any(&self) -> Vec<Arc<Sealed>> {
        let mut all: Vec<&Candidate> = self.candidates.iter().collect();
        all.sort_by(|a, b| a.live_ratio().total_cmp(&b.live_ratio()));
        self.fill(&all)
    }

    /// Those with the least to move, so many at most and as many as fit the room there is in one place, for a disk that is
    /// full; none that would gain next to nothing.
    pub(crate) fn smallest(&self, core: &Core, most: usize) -> Vec<Arc<Sealed>> {
        // No output begins in less; what has nothing to move needs none.
        let room = if self.room < OUTPUT_PAGES_MIN { 0 } else { self.room };
        let gains = |one: &&Candidate| one.dead > one.bytes / 20;
        let mut all: Vec<&Candidate> = self.candidates.iter().filter(gains).collect();
        // Neighbours, if there is a choice: an image needs room in one place.
        let eighths = |one: &Candidate| one.live_at_most() * 8 / one.bytes.max(1);
        let moves = |one: &Candidate| one.live_at_most() > 0;
        all.sort_by_key(|one| (moves(one), eighths(one), one.sealed.entry.start_page.get()));
        let mut victims: Vec<Arc<Sealed>> = Vec::new();
        let (mut live, mut records, mut before, mut after) = (0, 0, 0, 0);
        for one in all {
            let count = u64::from(one.sealed.entry.record_count.get());
            let one_records = (count * one.live_at_most()).div_ceil(one.bytes.max(1));
            let style = core.fixed.style();
            let len = style.header_len() + live + one.live_at_most();
            let pages = match records + one_records {
                0 => 0,
                records => sealed_page_count(core.geometry(), style, len, records),
            };
            if pages <= room && victims.len() < most {
                live += one.live_at_most();
                records += one_records;
                before += one.sealed.extent().page_count;
                after = pages;
                victims.push(Arc::clone(&one.sealed));
            }
        }
        // What gains no place for another output is no way on.
        if before >= after + OUTPUT_PAGES_MIN { victims } else { Vec::new() }
    }

    /// As many as the budget allows, and at least one.
    fn fill(&self, eligible: &[&Candidate]) -> Vec<Arc<Sealed>> {
        let mut victims: Vec<Arc<Sealed>> = Vec::new();
        let mut live = 0;
        for one in eligible {
            if victims.is_empty() || live + one.live() <= self.budget {
                live += one.live();
                victims.push(Arc::clone(&one.sealed));
            }
        }
        victims
    }
}

/// Dead bytes of a segment: those known to be replaced, and of the others the share that has expired by `wall_ns`, going
/// by when the first and the last of its records do.
pub(crate) fn dead_bytes(entry: &SegmentEntry, wall_ns: u64) -> u64 {
    let bytes = entry.record_bytes.get();
    let dead = entry.dead_bytes.get().min(bytes);
    let (first, last) = (entry.expires_first_ns.get(), entry.expires_last_ns.get());
    let expiring = entry.expiring_bytes.get();
    let expired = match wall_ns.checked_sub(first) {
        None => 0,
        Some(_) if expiring == 0 => 0,
        Some(_) if wall_ns >= last => expiring,
        Some(since) => {
            let share = u128::from(expiring) * u128::from(since) / u128::from(last - first);
            u64::try_from(share).unwrap_or(expiring)
        }
    };
    let unknown = u128::from(bytes - dead) * u128::from(expired.min(bytes));
    let expired = u64::try_from(unknown / u128::from(bytes.max(1))).unwrap_or(0);
    dead + expired
}

impl Core {
    /// What compaction may choose from now, going by what merges counted as dead, and by a sample of what changed since.
    pub(crate) fn choice(&self) -> Choice {
        loop {
            let view = self.view.load_full();
            let sample =
                (SAMPLE_PER_SEGMENT * view.segments.sealed.len()).clamp(SAMPLE_MIN, SAMPLE_MAX);
            let deaths = view.deaths(&self.log, sample);
            let keeper = self.lock_keeper();
            // A merge that got in between has counted the same.
            if Arc::ptr_eq(&view.image, &self.view.load().image) {
                let mut replaced = SegmentSums::new(&keeper, self.geometry());
                for (paddr, bytes) in &deaths.replaced {
                    replaced.add(*paddr, *bytes);
                }
                return self.choice_beside(&keeper, &replaced.sums, deaths.hidden);
            }
        }
    }

    /// The same, going also by what every change in memory replaces: for a disk too full for a merge. Costs a lookup for
    /// each.
    pub(crate) fn exact_choice(&self) -> Result<Choice> {
        let view = self.view.load_full();
        let hidden = view.deaths(&self.log, SAMPLE_MIN).hidden;
        let mut replaced = SegmentSums::new(&self.lock_keeper(), self.geometry());
        let mut failed = Ok(());
        for overlay in view.overlays() {
            overlay.for_each(|hash, entry| {
                let paddr = entry & !DELETE_BIT;
                let Some((header, key)) = self.log.header(paddr).zip(self.log.try_key(paddr))
                else {
                    return;
                };
                let found = view.image.find_at(&self.log, hash, &key, view.gone.as_deref());
                match found {
                    Err(error) => failed = Err(error),
                    Ok(None) => {}
                    // A copy of it, which was counted when it was moved.
                    Ok(Some((_, record))) if record.header.seqno == header.seqno => {}
                    Ok(Some((paddr, record))) => {
                        replaced.add(paddr, record.header.record_len());
                    }
                }
            });
        }
        failed.map(|()| self.choice_beside(&self.lock_keeper(), &replaced.sums, hidden))
    }

    /// Beside what is counted there are bytes that died in segments, by their first pages, and such as no image knows of.
    fn choice_beside(
        &self,
        keeper: &Keeper,
        replaced_in: &HashMap<u64, u64>,
        hidden: u64,
    ) -> Choice {
        let wall = self.env.unix_ns().saturating_sub(GRACE_NS);
        // Under the lock, so that a segment is sealed in both or in neither.
        let view = self.view.load();
        let unreadable = lock(&self.unreadable);
        let record_bytes = keeper.segments.values().map(|kept| kept.entry.record_bytes.get());
        let mut choice = Choice {
            total: record_bytes.sum(),
            tail: view.segments.tail.iter().map(|unsealed| unsealed.record_bytes()).sum(),
            ..Choice::default()
        };
        let pages = keeper.segments.values().map(|kept| kept.sealed.extent().page_count);
        choice.space = self.geometry().paddr(pages.sum());
        let commit_seqno = self.position().seqno;
        let retired = self.counters.retired_bytes();
        for kept in keeper.segments.values() {
            let (entry, sealed) = (&kept.entry, &kept.sealed);
            let bytes = entry.record_bytes.get();
            let mut dead = dead_bytes(entry, wall);
            let replaced = replaced_in.get(&entry.start_page.get()).copied().unwrap_or(0);
            dead = (dead + replaced).min(bytes);
            // What had to be kept once is worth another look when much has changed.
            let is_ripe = retired.saturating_sub(sealed.born()) > choice.total / 2;
            if sealed.is_guard() {
                dead = if is_ripe { bytes } else { 0 };
            } else if is_ripe && sealed.is_moved() {
                dead = dead.saturating_add(entry.delete_bytes.get()).min(bytes);
            }
            if view.image.covers(sealed) {
                choice.dead += dead;
            } else {
                choice.hidden += dead;
            }
            let pages = u64::from(entry.data_page_count.get());
            let is_oversized = !sealed.is_moved() && pages > self.fixed.segment_page_max;
            // Mostly one large record; it is not worth moving, but what shares its last page is not worth keeping it for.
            let is_movable = !is_oversized || dead * 2 >= bytes;
            if is_movable && view.image.covers(sealed) && !unreadable.contains(&entry.seg_id.get())
            {
                choice.candidates.push(Candidate {
                    sealed: Arc::clone(sealed),
                    bytes,
                    dead,
                    age: commit_seqno.saturating_sub(entry.last_seqno.get()),
                });
            }
        }
        choice.hidden += hidden;
        choice.hidden += keeper.dead_early.values().sum::<u64>();
        choice.dead += choice.hidden;
        // Copies of records whose origins still count.
        choice.dead += self.copied_bytes.load(Ordering::Acquire);
        choice.dead = choice.dead.min(choice.total + choice.tail);
        let spare = keeper.image_spare.map_or(0, |extent| extent.page_count);
        let reserve =
            self.lock_supply().reserve.iter().skip(1).map(|one| one.page_count.get()).max();
        choice.room = keeper.warm_pages().max(spare).max(reserve.map_or(0, u64::from));
        choice.slack = u64::from(self.mode.slack.saturating_sub(SLACK));
        choice.lack = u64::from(SLACK.saturating_sub(self.mode.slack));
        choice.segment = self.geometry().paddr(keeper.next_segment_pages(self));
        // Larger rounds where there is room for them: some of what a round costs goes by how many segments there are.
        choice.budget = choice.total / 24 * (100 + choice.slack.min(100)) / 100;
        choice.trifle = (4 * choice.segment).min(choice.total / 16).max(TRIFLE_MIN);
        choice
    }
}
