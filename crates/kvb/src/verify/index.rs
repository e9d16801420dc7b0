//! The index image against the log, both ways.

use std::collections::{HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::error::{Error, Result, What};
use crate::format::index_page::{self, SENTINEL, slot_hash};
use crate::format::record::DELETE;
use crate::image::Image;
use crate::key_merge::{Head, KeyMerge};
use crate::level::{Level, Part};
use crate::sealed::Sealed;
use crate::verify::Verifier;
use crate::view::View;

/// Keys between two reports of progress.
const REPORT_EVERY: u64 = 1 << 12;

/// Registered segments by where they start.
type Starts<'a> = HashMap<u64, &'a Arc<Sealed>>;

/// What slots should be there, as a count and a sum that does not depend on their order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Slots {
    count: u64,
    sum: u128,
}

impl Slots {
    fn add(&mut self, hash: u64, paddr: u64) {
        self.count += 1;
        let mixed = u128::from(hash | 1).wrapping_mul(u128::from(paddr) << 64 | u128::from(!paddr));
        self.sum = self.sum.wrapping_add(mixed ^ mixed >> 61);
    }
}

impl Verifier<'_> {
    /// Checks the pages of the image, and that its slots are those the log asks for.
    pub(super) fn check_index(&mut self) -> Result<()> {
        let (view, _) = self.core.current();
        let image = &view.image;
        if !image.is_on_disk() {
            return Ok(());
        }
        self.found.keys = image.place.used;
        let Some(there) = self.check_pages(&view)? else { return Ok(()) };
        let wanted = match self.wanted(&view, None) {
            Ok(wanted) => wanted,
            // Records that cannot be read were found already.
            Err(Error::Corrupt(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        if wanted != there {
            self.find_stray_slots(&view)?;
        }
        Ok(())
    }

    /// Checks every page and the order of the slots; tells which slots there are, if all pages hold.
    fn check_pages(&mut self, view: &View) -> Result<Option<Slots>> {
        let (core, image) = (self.core, &view.image);
        let geometry = core.geometry();
        let total = geometry.paddr(image.place.page_count());
        let mut slots = Slots::default();
        let (mut is_whole, mut used) = (true, 0);
        for page in 0..image.place.page_count() {
            if page % 256 == 0 {
                let done = geometry.paddr(page);
                self.report("index pages", done, total)?;
            }
            let at = geometry.paddr(image.place.first_page() + page);
            let Ok(bytes) = image.page(&core.log, page) else {
                self.derived(What::IndexPage, at, "the index page does not hold");
                is_whole = false;
                continue;
            };
            for slot in index_page::slots(bytes, 0) {
                let (hash, paddr) = index_page::read_slot(slot);
                if hash > SENTINEL {
                    used += 1;
                    if !is_gone(view, paddr) {
                        slots.add(hash, paddr);
                    }
                }
            }
        }
        if is_whole && used != image.place.used {
            let at = geometry.paddr(image.place.extent.start_page);
            let meaning =
                format!("{used} slots are in use, and the head says {}", image.place.used);
            self.derived(What::IndexPage, at, meaning);
        }
        Ok(is_whole.then_some(slots))
    }

    /// The slots that the log asks for. Every key whose slot is wrong or missing is a finding; the others are noted.
    fn wanted(&mut self, view: &View, mut right: Option<&mut HashSet<u64>>) -> Result<Slots> {
        let core = self.core;
        let image = &view.image;
        let no_bits = Arc::new(Image::void(core.geometry()));
        let mut merge: KeyMerge<'_> = KeyMerge::new(core, no_bits, core.position().seqno, false);
        for level in Level::arrange(&core.log, &core.fixed, &view.segments.sealed)? {
            merge.add(level, Bound::Unbounded);
        }
        for unsealed in &view.segments.tail {
            for order in unsealed.orders(&core.log, &core.hash) {
                let part = Part { start: unsealed.start, order, sealed: None };
                merge.add(Arc::new(Level::of(part)), Bound::Unbounded);
            }
        }
        let geometry = core.geometry();
        let starts: Starts<'_> =
            view.segments.sealed.iter().map(|one| (one.start(geometry), one)).collect();
        let total = self.found.record_bytes;
        let (mut slots, mut keys, mut done) = (Slots::default(), 0_u64, 0);
        while let Some(head) = merge.next(|_, _| true) {
            let head = head?;
            keys += 1;
            done += head.record.header.record_len();
            if keys.is_multiple_of(REPORT_EVERY) {
                self.report("index against log", done, total)?;
            }
            let hash = slot_hash(head.record.header.hash64.get());
            let found = image.find_at(&core.log, hash, head.key(), view.gone.as_deref())?;
            let found = found.map(|(paddr, record)| (paddr, record.seqno()));
            if let Some((paddr, _)) = found {
                slots.add(hash, paddr);
            }
            match self.judge(view, &starts, &head, found.map(|(_, seqno)| seqno)) {
                Some(meaning) => self.derived(What::IndexPage, head.paddr, meaning),
                None => {
                    if let (Some(right), Some((paddr, _))) = (right.as_deref_mut(), found) {
                        right.insert(paddr);
                    }
                }
            }
        }
        Ok(slots)
    }

    /// What is wrong with what the index says of a key, whose newest record is given.
    fn judge(
        &self,
        view: &View,
        starts: &Starts<'_>,
        head: &Head<'_>,
        slot_seqno: Option<u64>,
    ) -> Option<&'static str> {
        let sealed = starts.get(&head.segment).copied();
        let is_put = head.record.header.kind != DELETE && !sealed.is_some_and(|one| one.is_guard());
        if head.seqno() > view.image.place.seqno {
            // Runs or the tail tell of it, whatever the image knew.
            return None;
        }
        match (is_put, slot_seqno) {
            // Also if the other copy is in a guard, as long as the segment it came from is there.
            (_, Some(seqno)) if seqno == head.seqno() && head.record.header.kind != DELETE => None,
            (true, Some(_)) => Some("the index names an older record of this key"),
            // Its run tells of a record that was moved since the image was made.
            (true, None) if sealed.is_some_and(|one| one.is_moved() && !view.image.covers(one)) => {
                None
            }
            (true, None) => Some("the index does not know this key"),
            (false, Some(_)) => Some("the index names a key that was deleted"),
            (false, None) => None,
        }
    }

    /// There are slots that no key of the log asks for: says which.
    fn find_stray_slots(&mut self, view: &View) -> Result<()> {
        let before = self.found.findings.len();
        let mut right = HashSet::new();
        self.wanted(view, Some(&mut right))?;
        // What is wrong with keys that there are was found the first time.
        self.found.findings.truncate(before);
        let (core, image) = (self.core, &view.image);
        for page in 0..image.place.page_count() {
            let page_at = core.geometry().paddr(image.place.first_page() + page);
            for (index, slot) in (0_u64..).zip(index_page::slots(image.page(&core.log, page)?, 0)) {
                let (hash, paddr) = index_page::read_slot(slot);
                if hash > SENTINEL && !is_gone(view, paddr) && !right.contains(&paddr) {
                    let at = page_at + 28 + index * 16;
                    let meaning = format!(
                        "the slot leads to byte {paddr}, which is not the newest record of any key"
                    );
                    self.derived(What::IndexPage, at, meaning);
                }
            }
        }
        Ok(())
    }
}

fn is_gone(view: &View, paddr: u64) -> bool {
    view.gone.as_ref().is_some_and(|gone| gone.contains(view.image.page_of(paddr)))
}
