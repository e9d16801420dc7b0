//! A round of compaction: what is live in some segments goes to new ones, in key order, and their space comes back.
//!
//! Invariants
//! - A moved record keeps its seqno. Order is by seqno everywhere, so it never beats a newer one, and whichever copy a
//!   reader finds is right until the old one is gone.
//! - While an output is written no overlay is frozen. So an image that does not know of an output is older than
//!   everything that may replace its records, and mounting, which then loads the output, replays all of that.
//! - The segments emptied are given up in one checkpoint, when all outputs are registered and in the index. From then on
//!   slots of the image that lead to them say nothing.
//! - A tombstone, or an expired record, is dropped only if no other segment holds an older record of its key. If only
//!   segments of the same round do, it goes to a guard: an output that is given up in turn, once those are free on disk.
//!
//! Cost: the live records of the segments once, a lookup for each, and what [`Elders`] says for tombstones.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use crate::compact::Compaction;
use crate::core::{Core, lock};
use crate::elders::Elders;
use crate::error::{Error, Result, What};
use crate::format::index_page::slot_hash;
use crate::format::record::DELETE;
use crate::format::roster::SegmentEntry;
use crate::keeper::Kept;
use crate::key_merge::{Head, KeyMerge};
use crate::level::Level;
use crate::opened::Opened;
use crate::output::{Output, OutputPages};
use crate::overlay::Sight;
use crate::sealed::Sealed;
use crate::segment::sealed_page_count;
use crate::victims::GRACE_NS;
use crate::view::{Segments, View};

use host::planted::{Bug, is_planted};
use zerocopy::IntoBytes;

/// Largest output in bytes.
pub(crate) const OUTPUT_BYTES_MAX: u64 = 64 << 20;
/// Most records in an output; each takes 40 bytes of memory until it is in the index.
const OUTPUT_RECORDS_MAX: u64 = 512 << 10;
/// Records looked at between two looks at the world, and together.
const LOOK_EVERY: u64 = 256;
const TOGETHER: usize = 32;

/// What becomes of a record.
enum Verdict<'a> {
    Drop,
    Move(Opened<'a>),
    /// Only this round's segments hold something older.
    Guard(Opened<'a>),
    /// Others do, and the index must not know of it.
    Keep(Opened<'a>),
}

/// An output, and the promise that nothing is frozen while it is written.
struct Window<'a> {
    output: Output,
    _moving: MutexGuard<'a, ()>,
}

/// One round: some segments, emptied together.
struct Round<'a> {
    core: &'a Core,
    victims: Vec<Arc<Sealed>>,
    /// Where the victims start.
    starts: HashSet<u64>,
    /// Segments that stay, and those given up before whose records are still on disk.
    others: Vec<Arc<Sealed>>,
    /// Where older records may be. Numbers are of the segments that stay, and then of the victims.
    elders: Elders,
    /// Wall clock by which records are expired.
    expired_by: u64,
    /// How often the index had been rebuilt when the round began.
    rebuilds: u64,
    /// Live bytes still to come, estimated.
    bytes_ahead: u64,
    window: Option<Window<'a>>,
    /// Guards that are given up with the round, and such as are not.
    guard: Option<Output>,
    keep: Option<Output>,
    guards: Vec<u64>,
    done: Compaction,
    is_background: bool,
    /// The disk is full: there may be no room for a guard beside an output.
    is_frugal: bool,
    /// Highest seqno of a record that hid others and is dropped.
    dropped_seqno: Cell<u64>,
}

impl Core {
    /// Empties segments.
    pub(crate) fn round(
        &self,
        victims: Vec<Arc<Sealed>>,
        is_background: bool,
    ) -> Result<Compaction> {
        tracing::debug!(victims = victims.len(), "compaction_start");
        let geometry = self.geometry();
        let starts: HashSet<u64> = victims.iter().map(|one| one.start(geometry)).collect();
        let (others, bytes_ahead, rebuilds) = {
            let keeper = self.lock_keeper();
            // The index may have been given up since they were chosen. What is made of runs instead names them where commits are named, and no
            // commit must be taken for a record that is moved.
            let image = Arc::clone(&self.view.load().image);
            if !victims.iter().all(|one| image.covers(one)) {
                return Ok(Compaction::default());
            }
            let stay = keeper.segments.values().map(|kept| &kept.sealed);
            let leaving = keeper.retired.iter().filter_map(|retired| retired.sealed.as_ref());
            let is_other = |one: &&Arc<Sealed>| !starts.contains(&one.start(geometry));
            let others: Vec<_> = stay.chain(leaving).filter(is_other).cloned().collect();
            let chosen = |one: &&Kept| starts.contains(&one.sealed.start(geometry));
            let live = keeper.segments.values().filter(chosen).map(|kept| {
                kept.entry.record_bytes.get().saturating_sub(kept.entry.dead_bytes.get())
            });
            (others, live.sum(), self.rebuilds.load(Ordering::Acquire))
        };
        let all = others.iter().chain(&victims);
        let elders = Elders::find(&self.log, &self.fixed, &victims, all);
        let mut round = Round {
            core: self,
            starts,
            others,
            elders,
            expired_by: self.env.unix_ns().saturating_sub(GRACE_NS),
            rebuilds,
            bytes_ahead,
            window: None,
            guard: None,
            keep: None,
            guards: Vec::new(),
            done: Compaction::default(),
            is_background,
            is_frugal: self.lock_supply().starved,
            dropped_seqno: Cell::new(0),
            victims,
        };
        // Order: nothing may be written behind a write that failed, not even to give back what was taken.
        let result = self.latch_unless_damage(round.run());
        if let Err(error) = &result {
            round.abandon();
            self.note_damage(error);
        }
        self.counters.moved(round.done.bytes_moved);
        tracing::debug!("compaction_stop");
        result.map(|()| round.done)
    }

    /// Leaves a segment alone from now on that has a record which cannot be read.
    pub(crate) fn note_damage(&self, error: &Error) {
        let Error::Corrupt(corrupt) = error else { return };
        tracing::error!(%corrupt, "a segment cannot be compacted");
        let page = self.geometry().page(corrupt.at);
        let keeper = self.lock_keeper();
        if corrupt.what == What::IndexPage {
            self.index_bad.store(true, Ordering::Release);
        } else if let Some((_, kept)) = keeper.segments.range(..=page).next_back() {
            lock(&self.unreadable).insert(kept.entry.seg_id.get());
        }
    }

    /// Gives segments up: nothing in them is needed any more. False if the index may still need them.
    fn retire(&self, victims: Vec<Arc<Sealed>>, rebuilds: u64, dropped_seqno: u64) -> Result<bool> {
        let _merging = lock(&self.merging);
        let mut keeper = self.lock_keeper();
        // An index made of all runs may name either copy of a record.
        if self.rebuilds.load(Ordering::Acquire) != rebuilds {
            return Ok(false);
        }
        // Order: before any superblock that leaves them out.
        keeper.dropped_seqno = keeper.dropped_seqno.max(dropped_seqno);
        let ids: HashSet<u64> = victims.iter().map(|one| one.entry.seg_id.get()).collect();
        match keeper.remove_segments(self, &ids) {
            // The segments are still there, so the disk is as full as it was: what was kept for an image must do.
            Err(Error::NoSpace) if keeper.spare_image_for_table(self)? => {
                keeper.remove_segments(self, &ids)?;
            }
            result => result?,
        }
        self.change_view(|view| {
            let mut sealed = view.segments.sealed.clone();
            sealed.retain(|one| !ids.contains(&one.entry.seg_id.get()));
            let mut gone = view.gone.as_deref().cloned().unwrap_or_default();
            victims.iter().for_each(|one| gone.add(one.extent()));
            View {
                segments: Arc::new(Segments::new(sealed, view.segments.tail.clone())),
                gone: Some(Arc::new(gone)),
                ..view.clone()
            }
        });
        // Whoever still holds one keeps its space from being given back.
        drop(victims);
        keeper.checkpoint(self)?;
        Ok(true)
    }
}

impl<'a> Round<'a> {
    fn run(&mut self) -> Result<()> {
        let (core, log) = (self.core, &self.core.log);
        let image = Arc::clone(&core.view.load().image);
        let mut merge = KeyMerge::new(core, image, u64::MAX, false);
        for level in Level::arrange(log, &core.fixed, &self.victims)? {
            merge.add(level, Bound::Unbounded);
        }
        let mut looked_at: u64 = 0;
        let mut heads = Vec::with_capacity(TOGETHER);
        loop {
            heads.clear();
            while heads.len() < TOGETHER
                && let Some(head) = merge.next(|_, _| true)
            {
                heads.push(head?);
            }
            if heads.is_empty() {
                break;
            }
            self.touch(&heads);
            for head in &heads {
                self.settle(head)?;
                looked_at += 1;
            }
            if looked_at.is_multiple_of(LOOK_EVERY) {
                if core.stop_compacting.load(Ordering::Acquire) {
                    return Err(Error::Invalid("compaction was stopped"));
                }
                // An overlay is full: it may be frozen as soon as the output is in the index.
                if core.freeze_wanted.load(Ordering::Acquire) {
                    self.close_window()?;
                }
                if self.is_background {
                    std::thread::yield_now();
                }
            }
        }
        drop(merge);
        self.close_window()?;
        self.finish_guard(true)?;
        self.finish_guard(false)?;
        self.give_up()
    }

    /// Loads what the index says of some records into the cache: all at the same time, which is faster than one after the other.
    fn touch(&self, heads: &[Head<'a>]) {
        let hash = |head: &Head<'a>| slot_hash(head.record.header.hash64.get());
        let hashes: Vec<u64> = heads.iter().map(hash).collect();
        self.core.view.load().touch_index(&self.core.log, &hashes);
    }

    /// Decides about the newest record of a key among the victims, and does it.
    fn settle(&mut self, head: &Head<'a>) -> Result<()> {
        match self.judge(head)? {
            Verdict::Drop => Ok(()),
            Verdict::Guard(record) => self.add_guard(&record, head.paddr, true),
            Verdict::Keep(record) => self.add_guard(&record, head.paddr, false),
            Verdict::Move(record) => {
                let len = record.header.record_len();
                let is_full = |window: &Window<'_>| {
                    let output = &window.output;
                    let is_long = output.segment.count() >= OUTPUT_RECORDS_MAX;
                    !output.is_empty() && (is_long || !output.fits(self.core, len))
                };
                if self.window.as_ref().is_some_and(is_full) {
                    self.close_window()?;
                }
                if self.window.is_none() {
                    self.open_window(len)?;
                    // Whatever came before the window may be in an image that does not know of the output.
                    return self.settle(head);
                }
                let Some(window) = &mut self.window else { return Ok(()) };
                if !window.output.fits(self.core, len) {
                    // The little that a full disk has left is too little.
                    return Err(Error::NoSpace);
                }
                window.output.push(self.core, &record, head.paddr)?;
                self.bytes_ahead = self.bytes_ahead.saturating_sub(len);
                self.done.records_moved += 1;
                self.done.bytes_moved += len;
                Ok(())
            }
        }
    }

    fn judge(&self, head: &Head<'a>) -> Result<Verdict<'a>> {
        let core = self.core;
        let record = &head.record;
        let hash = slot_hash(record.header.hash64.get());
        let view = core.view.load();
        let newest =
            view.find_any(&core.log, hash, record.key(), Sight::Latest(&core.published))?;
        if record.header.kind != DELETE
            && newest.as_ref().is_some_and(|newest| self.is_copied(head, newest))
        {
            return Ok(Verdict::Drop);
        }
        let newest = newest.map(|newest| newest.header.seqno.get());
        if record.header.kind != DELETE {
            return Ok(if newest.is_none() && self.is_of_guard(head) {
                // No index knows of it, nor may it; whether it still hides something only the segments tell.
                match self.judge_last(head, hash) {
                    Verdict::Move(record) => Verdict::Keep(record),
                    verdict => verdict,
                }
            } else if newest != Some(head.seqno()) {
                Verdict::Drop
            } else if record.header.deadline_ns() > self.expired_by {
                Verdict::Move(record.clone())
            } else {
                self.judge_last(head, hash)
            });
        }
        match newest {
            // Replaced by a put, or by another tombstone.
            Some(newest) if newest > head.seqno() => Ok(Verdict::Drop),
            _ => Ok(self.judge_last(head, hash)),
        }
    }

    /// True if the index names another copy of a record, in a segment that stays: a round that failed had moved it.
    fn is_copied(&self, head: &Head<'_>, newest: &Opened<'_>) -> bool {
        if newest.header.seqno.get() != head.seqno() {
            return false;
        }
        let (own, Some(named)) = (head.paddr, self.core.log.address(newest.header.as_bytes()))
        else {
            return false;
        };
        let page = self.core.geometry().page(named);
        let is_there = |one: &Arc<Sealed>| {
            let extent = one.extent();
            (extent.start_page..extent.end_page()).contains(&page)
        };
        // Of copies in victims only one is judged.
        own != named && !self.victims.iter().any(is_there)
    }

    /// What becomes of a record that hides older ones and is of no other use.
    fn judge_last(&self, head: &Head<'a>, hash: u64) -> Verdict<'a> {
        let record = head.record.clone();
        let hides = |one: &Arc<Sealed>| self.has_older(one, head, hash);
        let own = |one: &&Arc<Sealed>| one.start(self.core.geometry()) == head.segment;
        if is_planted(Bug::TombstoneDropped) {
            return Verdict::Drop;
        }
        let mut is_hiding = false;
        for number in self.suspects(hash) {
            match number.checked_sub(self.others.len()) {
                None if self.others.get(number).is_some_and(hides) => return Verdict::Move(record),
                None => {}
                Some(at) => {
                    let victim = self.victims.get(at).filter(|one| !own(one));
                    is_hiding = is_hiding || victim.is_some_and(hides);
                }
            }
        }
        if is_hiding && self.is_frugal {
            return Verdict::Move(record);
        }
        self.dropped_seqno.set(self.dropped_seqno.get().max(head.seqno()));
        if is_hiding { Verdict::Guard(record) } else { Verdict::Drop }
    }

    /// Numbers of segments that may hold something older under a hash.
    fn suspects(&self, hash: u64) -> Box<dyn Iterator<Item = usize> + '_> {
        match self.elders.of(hash) {
            Some(found) => Box::new(found),
            None => Box::new(0..self.others.len() + self.victims.len()),
        }
    }

    fn is_of_guard(&self, head: &Head<'_>) -> bool {
        let geometry = self.core.geometry();
        self.victims.iter().any(|one| one.is_guard() && one.start(geometry) == head.segment)
    }

    fn has_older(&self, segment: &Sealed, head: &Head<'_>, hash: u64) -> bool {
        let core = self.core;
        if segment.entry.base_seqno.get() >= head.seqno() {
            return false;
        }
        match segment.run(&core.log, &core.fixed) {
            Some(run) => run.has_older(&core.log, hash, head.key(), head.seqno()),
            // Nobody can tell.
            None => true,
        }
    }

    /// Pages for an output that takes what is still to come, as far as that fits one.
    fn output_pages(&self, record_len: u64) -> OutputPages {
        let geometry = self.core.geometry();
        let style = self.core.fixed.style();
        // Side data takes about an eighth of small records, and never more than it took before.
        let ahead = geometry.pages(self.bytes_ahead + self.bytes_ahead / 4 + (64 << 10));
        let before: u64 = self.victims.iter().map(|one| one.extent().page_count).sum();
        let least = sealed_page_count(geometry, style, style.header_len() + record_len, 1);
        let wanted = ahead.min(before).min(geometry.pages(OUTPUT_BYTES_MAX)).max(least);
        OutputPages { wanted, least }
    }

    /// Pages for a guard. Most of what goes there are tombstones.
    fn guard_pages(&self, record_len: u64) -> OutputPages {
        // Somebody may have forged them.
        let deletes = self.victims.iter().map(|one| one.entry.delete_bytes.get());
        let deletes = deletes.fold(0, u64::saturating_add).min(OUTPUT_BYTES_MAX);
        let geometry = self.core.geometry();
        let pages = geometry.pages(deletes + deletes / 4 + (64 << 10));
        let OutputPages { wanted, least } = self.output_pages(record_len);
        OutputPages { wanted: pages.min(wanted).max(least), least }
    }

    fn open_window(&mut self, record_len: u64) -> Result<()> {
        let core = self.core;
        let moving = lock(&core.moving);
        {
            // Freezing happens under the writer's lock: from here on it does not.
            let _no_commits = core.lock_writer();
            core.is_moving.store(true, Ordering::Release);
        }
        let pages = self.output_pages(record_len);
        match core.begin_output(pages, self.expired_by, self.is_frugal) {
            Ok(output) => {
                self.window = Some(Window { output, _moving: moving });
                Ok(())
            }
            Err(error) => {
                let failed = core.latch_unless_damage(Err(error));
                core.end_moving(None).and(failed)
            }
        }
    }

    /// Registers the output being written and brings it into the index.
    fn close_window(&mut self) -> Result<()> {
        let core = self.core;
        let Some(window) = &mut self.window else { return Ok(()) };
        if window.output.is_empty() {
            // What it was opened for was replaced meanwhile.
            core.drop_output(&window.output)?;
            core.end_moving(None)?;
            self.window = None;
            return Ok(());
        }
        let entry = core.finish_output(&mut window.output, false)?;
        core.copied_bytes.store(entry.record_bytes.get(), Ordering::Release);
        // From here on the output counts. Were it not in the index whole before an overlay is frozen, mounting would
        // bring back what has been replaced since.
        let dead = core.apply_output(&window.output).or_else(|error| {
            core.latch(Err(Error::Stopped(format!("compaction could not finish: {error}"))))
        })?;
        {
            let mut keeper = core.lock_keeper();
            for (start_page, bytes) in dead {
                keeper.add_dead(start_page, bytes);
            }
            core.copied_bytes.store(0, Ordering::Release);
        }
        core.end_moving(Some(entry.seg_id.get()))?;
        self.window = None;
        self.note_written(&entry);
        Ok(())
    }

    fn note_written(&mut self, entry: &SegmentEntry) {
        let pages = u64::from(entry.data_page_count.get()) + u64::from(entry.meta_page_count.get());
        self.done.segments_written += 1;
        self.done.bytes_freed -= signed(self.core.geometry().paddr(pages));
    }

    fn guard(&mut self, is_for_round: bool) -> &mut Option<Output> {
        if is_for_round { &mut self.guard } else { &mut self.keep }
    }

    /// Adds a record that hides others to a guard, or to the next one.
    fn add_guard(&mut self, record: &Opened<'_>, origin: u64, is_for_round: bool) -> Result<()> {
        let core = self.core;
        let len = record.header.record_len();
        if self.guard(is_for_round).as_ref().is_some_and(|guard| !guard.fits(core, len)) {
            self.finish_guard(is_for_round)?;
        }
        if self.guard(is_for_round).is_none() {
            let pages = self.guard_pages(len);
            let begun = core.begin_output(pages, self.expired_by, self.is_frugal)?;
            *self.guard(is_for_round) = Some(begun);
        }
        let guard = self.guard(is_for_round).as_mut().filter(|guard| guard.fits(core, len));
        // The little that a full disk has left is too little.
        guard.ok_or(Error::NoSpace)?.push(core, record, origin)
    }

    /// Registers a guard, if one was begun.
    fn finish_guard(&mut self, is_for_round: bool) -> Result<()> {
        let core = self.core;
        let Some(guard) = self.guard(is_for_round) else { return Ok(()) };
        let entry = core.finish_output(guard, true)?;
        *self.guard(is_for_round) = None;
        if is_for_round {
            self.guards.push(entry.seg_id.get());
        } else {
            self.note_written(&entry);
        }
        Ok(())
    }

    /// Gives the victims up, and then the guards, if nothing they hide is on disk any more.
    fn give_up(&mut self) -> Result<()> {
        let core = self.core;
        // Nothing is judged any more, so nothing is held that could be given back.
        self.others.clear();
        let victims = std::mem::take(&mut self.victims);
        let count = u64::try_from(victims.len()).unwrap_or(0);
        let pages: u64 = victims.iter().map(|one| one.extent().page_count).sum();
        let bytes: u64 = victims.iter().map(|one| one.entry.record_bytes.get()).sum();
        if !core.retire(victims, self.rebuilds, self.dropped_seqno.get())? {
            return Ok(());
        }
        self.done.segments_emptied += count;
        self.done.bytes_freed += signed(core.geometry().paddr(pages));
        core.counters.retired(bytes);
        let starts = &self.starts;
        let guards: Vec<Arc<Sealed>> = {
            let keeper = core.lock_keeper();
            let leaving = keeper.retired.iter().filter_map(|retired| retired.sealed.as_ref());
            let is_victim = |one: &Arc<Sealed>| starts.contains(&one.start(core.geometry()));
            if leaving.clone().any(is_victim) {
                return Ok(());
            }
            let kept = keeper.segments.values().map(|kept| &kept.sealed);
            kept.filter(|one| self.guards.contains(&one.entry.seg_id.get())).cloned().collect()
        };
        if !guards.is_empty() {
            // No slot leads to a guard, whatever the image knows.
            core.retire(guards, self.rebuilds, 0)?;
        }
        Ok(())
    }

    /// After an error: gives back what was not registered.
    fn abandon(&mut self) {
        let core = self.core;
        let outputs = self.window.as_ref().map(|window| &window.output);
        for output in outputs.into_iter().chain(&self.guard).chain(&self.keep) {
            let is_registered = {
                let keeper = core.lock_keeper();
                let start_page = output.segment.extent.start_page;
                let known = keeper.segments.get(&start_page);
                known.is_some_and(|kept| kept.entry.seg_id.get() == output.segment.seg_id)
            };
            if !is_registered && !core.stopped.load(Ordering::Acquire) {
                let dropped = core.drop_output(output);
                let _ = core.latch(dropped);
            }
        }
        if let Some(window) = self.window.take() {
            let ended = core.end_moving(None);
            let _ = core.latch(ended);
            drop(window);
        }
        (self.guard, self.keep) = (None, None);
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
