//! Compaction as it is asked for, and as the background does it. How it works: `round.rs`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::core::{Core, lock};
use crate::error::{Error, Result};
use crate::image_walk::ImageWalk;
use crate::sealed::Sealed;
use crate::segment_sums::SegmentSums;
use crate::writer::Writer;

/// How long the background lets others go first at a time.
const MAKE_WAY: Duration = Duration::from_millis(1);

/// How much to compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compact {
    /// Segments that are worth it, as the background does, of those there are when it begins.
    Auto,
    /// Everything, into one run in key order. Needs as much free space as there is live data.
    Full,
    /// Every segment with anything dead in it, a few at a time, in little space. Order is per step.
    LowSpace,
}

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Compaction {
    /// Segments emptied and given up.
    pub segments_emptied: u64,
    /// Segments written.
    pub segments_written: u64,
    /// Records moved.
    pub records_moved: u64,
    /// Bytes of records moved.
    pub bytes_moved: u64,
    /// Bytes of the segments given up, less those of the segments written.
    pub bytes_freed: i64,
    /// How long it took.
    pub seconds: f64,
}

impl Core {
    /// Compacts, in the calling thread.
    pub(crate) fn compact(&self, kind: Compact) -> Result<Compaction> {
        self.check_writable()?;
        let _alone = self.lock_compacting();
        let start = self.env.monotonic_ns();
        // What died shortly before a crash is counted when the image is read in.
        let image = Arc::clone(&self.view.load().image);
        if let Err(error) = self.read_in(&image, || true) {
            self.note_damage(&error);
        }
        drop(image);
        let result = match kind {
            Compact::Auto => self.compact_while_worth(false),
            Compact::Full => self.compact_all_somehow(),
            Compact::LowSpace => self.compact_little_by_little(),
        };
        self.throttle.relax();
        let mut done = self.latch_unless_damage(result)?;
        if kind != Compact::Auto {
            let shortened = self.lock_keeper().shorten_reserve(self);
            self.latch(shortened)?;
        }
        self.cool()?;
        let nanos = self.env.monotonic_ns().saturating_sub(start);
        self.counters.compacted(nanos);
        done.seconds = Duration::from_nanos(nanos).as_secs_f64();
        Ok(done)
    }

    /// Gives the blocks of all free space back to the disk, for those who are done.
    pub(crate) fn cool(&self) -> Result<()> {
        if self.mode.read_only {
            return Ok(());
        }
        self.check_writable()?;
        let cooled = self.lock_keeper().cool(self, 0);
        self.latch(cooled)
    }

    /// Compacts in the background as long as it is worth the trouble.
    pub(crate) fn compact_in_background(&self) -> Result<()> {
        let _alone = loop {
            let alone = lock(&self.compacting);
            if !self.is_compaction_asked() {
                break alone;
            }
            drop(alone);
            std::thread::sleep(MAKE_WAY);
        };
        let start = self.env.monotonic_ns();
        let result = self.compact_while_worth(true);
        // Nobody waits for a compaction that has nothing to do.
        self.throttle.relax();
        let result = result.and_then(|_| self.tidy());
        self.counters.compacted(self.env.monotonic_ns().saturating_sub(start));
        self.latch_unless_damage(result)
    }

    /// Somebody was told to compact and waits for whoever does.
    pub(crate) fn is_compaction_asked(&self) -> bool {
        self.compaction_asked.load(Ordering::Acquire) > 0
    }

    /// A record that cannot be read stays where it is; that is no reason to stop writing.
    pub(crate) fn latch_unless_damage<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Err(Error::Corrupt(_)) => result,
            result => self.latch(result),
        }
    }

    /// The background goes on as long as it is worth the trouble, or until somebody else wants to. Who was told to compact
    /// takes what there is when it begins: beside a busy writer there would be no end to it.
    fn compact_while_worth(&self, is_background: bool) -> Result<Compaction> {
        let newest = if is_background { u64::MAX } else { self.lock_keeper().next_seg_id };
        let mut done = Compaction::default();
        let mut is_renewed = false;
        loop {
            if self.lock_supply().starved {
                done.add(&self.compact_little_by_little()?);
                return Ok(done);
            }
            let mut choice = self.choice();
            self.throttle.adjust(&choice);
            if is_background && self.is_compaction_asked() {
                return Ok(done);
            }
            if !is_background {
                choice.trifle = 0;
                choice.candidates.retain(|one| one.sealed.entry.seg_id.get() < newest);
            }
            // Once, and again when something came of it: what is hidden for another reason stays so.
            if choice.wants_image() && !is_renewed {
                let is_tail_long = choice.tail > choice.total / 16;
                drop(choice);
                is_renewed = true;
                match self.renew_image(is_tail_long) {
                    // What is known must do.
                    Err(Error::NoSpace) => continue,
                    result => result?,
                };
                continue;
            }
            let victims = choice.pick();
            // Whoever holds a segment keeps its space from being given back.
            drop(choice);
            if victims.is_empty() {
                return Ok(done);
            }
            if !self.has_room_for(&victims)? {
                done.add(&self.compact_little_by_little()?);
                return Ok(done);
            }
            let start = self.env.monotonic_ns();
            let round = match self.round(victims, is_background) {
                // Free pages were room that the disk had no blocks for.
                Err(Error::NoSpace) => {
                    done.add(&self.compact_little_by_little()?);
                    return Ok(done);
                }
                round => round?,
            };
            done.add(&round);
            is_renewed = false;
            let nanos = self.env.monotonic_ns().saturating_sub(start);
            self.throttle.measured(u64::try_from(round.bytes_freed).unwrap_or(0), nanos);
            // The index needs them a while longer, or all of it had to stay, or nobody wants this any more.
            if round.bytes_freed <= 0 || self.stop_compacting.load(Ordering::Acquire) {
                return Ok(done);
            }
        }
    }

    /// Everything at once, and if there is no room for that, when little by little has made some.
    fn compact_all_somehow(&self) -> Result<Compaction> {
        match self.compact_all() {
            Err(Error::NoSpace) => {
                let mut done = self.compact_little_by_little()?;
                done.add(&self.compact_all()?);
                Ok(done)
            }
            result => result,
        }
    }

    /// Makes sure of room for all that is not known to be dead in some segments, before anything is moved: half a round on a
    /// full disk would only make it fuller.
    pub(crate) fn has_room_for(&self, victims: &[Arc<Sealed>]) -> Result<bool> {
        let mut keeper = self.lock_keeper();
        let entries =
            victims.iter().filter_map(|one| keeper.segments.get(&one.entry.start_page.get()));
        let live = entries.map(|kept| {
            let entry = &kept.entry;
            entry.record_bytes.get().saturating_sub(entry.dead_bytes.get())
        });
        let live: u64 = live.sum();
        match keeper.secure_output(self, live + live / 4) {
            Err(Error::NoSpace) => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// Brings the image up to date as far as commits have come, and ends the tail if much of the log is there; false if
    /// nothing came of it.
    pub(crate) fn renew_image(&self, is_tail_long: bool) -> Result<bool> {
        let before = self.view.load().image.place.id;
        if self.mode.background {
            self.wait_for_merge()?;
        }
        let is_rolled = {
            let mut writer = self.lock_writer();
            self.freeze();
            is_tail_long && self.roll_tail(&mut writer)
        };
        if is_rolled {
            self.lock_keeper().tend(self)?;
        }
        if self.mode.background {
            self.wait_for_merge()?;
        } else {
            self.merge()?;
        }
        Ok(is_rolled || self.view.load().image.place.id != before)
    }

    /// Hands the tail to the keeper; false if there is none, or on a full disk, which may have no extent for the log to go
    /// on in.
    fn roll_tail(&self, writer: &mut Writer) -> bool {
        if writer.active.is_none() || self.lock_supply().starved {
            return false;
        }
        self.roll(writer);
        self.hand_over(writer);
        true
    }

    /// Counts what the image names in each segment, for what died there and was forgotten in a crash.
    fn recount(&self) -> Result<()> {
        let image = Arc::clone(&self.view.load().image);
        let mut named = SegmentSums::new(&self.lock_keeper(), self.geometry());
        let mut walk = ImageWalk::new(&image, &self.log, image.slot_count(), None);
        while let Some((_, paddr)) = walk.peek()? {
            named.add(paddr, 1);
            walk.advance();
        }
        self.lock_keeper().note_named(&image, &named.sums);
        Ok(())
    }

    fn compact_all(&self) -> Result<Compaction> {
        self.cover_all()?;
        self.recount()?;
        let candidates = self.choice().candidates;
        let is_sorted = {
            let (view, _) = self.current();
            view.segments.levels(&self.log, &self.fixed)?.len() <= 1
        };
        if is_sorted && candidates.iter().all(|one| one.dead == 0) {
            return Ok(Compaction::default());
        }
        let victims: Vec<_> = candidates.into_iter().map(|one| one.sealed).collect();
        if !self.has_room_for(&victims)? {
            return Err(Error::NoSpace);
        }
        let done = self.round(victims, false)?;
        // So that the index is one image again, and nothing of what was emptied is held by its changes.
        self.cover_all()?;
        Ok(done)
    }

    /// A few segments at a time. If the disk is too full for a new image, first those that the old one covers, until there
    /// is room for one, and if that is in many places, then such as stand between them.
    fn compact_little_by_little(&self) -> Result<Compaction> {
        let mut done = Compaction::default();
        loop {
            let is_covered = match self.cover_all() {
                Err(Error::NoSpace) => false,
                result => result.map(|()| true)?,
            };
            let steps = self.compact_steps(is_covered)?;
            done.add(&steps);
            if is_covered {
                return Ok(done);
            }
            if steps.segments_emptied == 0 {
                match self.clear_for_image()? {
                    Some(cleared) => done.add(&cleared),
                    None => return Ok(done),
                }
            }
        }
    }

    /// Moves segments out of the way of the next image; `None` if that is no use.
    fn clear_for_image(&self) -> Result<Option<Compaction>> {
        let choice = self.choice();
        let mut sizes = self.image_extent_pages();
        let mut keeper = self.lock_keeper();
        let found = sizes.find_map(|pages| choice.clearing(&keeper.space, pages));
        let Some(clearing) = found else { return Ok(None) };
        drop(choice);
        // Nothing may go there meanwhile.
        clearing.free.iter().for_each(|extent| keeper.space.take_at(*extent));
        drop(keeper);
        let round = self.round(clearing.victims, false);
        let mut keeper = self.lock_keeper();
        for extent in clearing.free {
            keeper.space.give_back(extent);
        }
        match round {
            Err(Error::NoSpace) => Ok(None),
            round => {
                let round = round?;
                keeper.tend(self)?;
                Ok((round.segments_emptied > 0 && keeper.image_spare.is_some()).then_some(round))
            }
        }
    }

    /// Gives compaction a place to begin in, if there is less than the most that could be had since anything was freed.
    fn warm_place(&self, most: &mut Option<u64>) -> Result<()> {
        let mut keeper = self.lock_keeper();
        if most.is_some_and(|pages| keeper.warm_pages() >= pages) {
            return Ok(());
        }
        match keeper.warm_place(self) {
            Err(Error::NoSpace) => {}
            warmed => warmed?,
        }
        *most = Some(keeper.warm_pages());
        Ok(())
    }

    fn compact_steps(&self, is_covered: bool) -> Result<Compaction> {
        let newest = self.lock_keeper().next_seg_id;
        let mut done = Compaction::default();
        // Segments that had more to move than is known, and too much for the disk.
        let mut too_full: HashSet<u64> = HashSet::new();
        let mut most = usize::MAX;
        let mut warm_most = None;
        loop {
            self.warm_place(&mut warm_most)?;
            // On a full disk no merge counts what died.
            let mut choice = if is_covered { self.choice() } else { self.exact_choice()? };
            choice.candidates.retain(|one| {
                let id = one.sealed.entry.seg_id.get();
                one.dead > 0 && id < newest && !too_full.contains(&id)
            });
            // In the room there is; or in more, if the disk has it.
            let mut victims = choice.smallest(self, most);
            let is_first = most == usize::MAX;
            if victims.is_empty() && is_first && is_covered && !self.lock_supply().starved {
                victims = choice.fill_any();
            }
            drop(choice);
            if victims.is_empty() {
                return Ok(done);
            }
            let (count, first) = (victims.len(), victims.first().map(|one| one.entry.seg_id.get()));
            let round = match self.round(victims, false) {
                // The emptiest of them may still do, or another.
                Err(Error::NoSpace) => {
                    most = (count / 2).max(1);
                    if count == 1 {
                        too_full.extend(first);
                    }
                    continue;
                }
                round => round?,
            };
            (most, warm_most) = (usize::MAX, None);
            done.add(&round);
            // What was taken from the reserve comes back to it.
            self.lock_keeper().tend(self)?;
            if round.bytes_freed <= 0 || self.stop_compacting.load(Ordering::Acquire) {
                return Ok(done);
            }
        }
    }

    /// Seals the tail and brings the image up to date, so that everything written so far can be compacted.
    pub(crate) fn cover_all(&self) -> Result<()> {
        let moving = lock(&self.moving);
        {
            let mut writer = self.lock_writer();
            self.roll_tail(&mut writer);
            self.lock_keeper().tend(self)?;
        }
        // What is frozen first, then what has come since.
        self.merge()?;
        {
            let _no_commits = self.lock_writer();
            // Also if nothing has: what the image does not know of may have been moved, or be gone.
            self.freeze_any();
        }
        drop(moving);
        self.merge()
    }
}

impl Compaction {
    pub(crate) fn add(&mut self, other: &Compaction) {
        self.segments_emptied += other.segments_emptied;
        self.segments_written += other.segments_written;
        self.records_moved += other.records_moved;
        self.bytes_moved += other.bytes_moved;
        self.bytes_freed += other.bytes_freed;
    }
}
