//! An index image: an immutable Robin Hood table in mapped pages.
//!
//! Invariants
//! - Entries stand in the order (home slot, hash, key bytes), each at its home or right behind the one before;
//!   so positions of one home, and of one hash, are contiguous, and "at or past (home, hash)" is monotone.
//! - A page is believed only after its digest held; it is checked on first touch.
//! - An image is never changed. A new one takes its place.

#![allow(
    clippy::expect_used,
    reason = "sizes of structures, and numbers that a mask has made small"
)]

use std::slice::ChunksExact;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result, What};
use crate::extent::{Extent, Geometry};
use crate::format::index_page::{self, EMPTY, IndexPageHeader, IndexSlot, SENTINEL};
use crate::group::{Member, find_in_group};
use crate::liveness::Liveness;
use crate::log::Log;
use crate::opened::Opened;
use crate::page_set::PageSet;
use crate::sealed::Sealed;
use crate::slot_filter::SlotFilter;

/// Pages that are read at once where all are.
const READ_AHEAD: u64 = 256;
/// How many slots are looked at in turn before halving.
const IN_TURN: u64 = 32;

/// Where an image lies and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImagePlace {
    /// Its extent: one page of heads, then the index pages.
    pub(crate) extent: Extent,
    /// `page_uuid` of its pages.
    pub(crate) id: u64,
    /// Keys in it.
    pub(crate) used: u64,
    /// It holds every record up to this seqno.
    pub(crate) seqno: u64,
    /// And every record moved to segments with ids up to this.
    pub(crate) seg_id: u64,
    /// Number of the key its pages are under, if there is one.
    pub(crate) key_no: u16,
}

impl ImagePlace {
    /// First index page.
    pub(crate) fn first_page(&self) -> u64 {
        self.extent.start_page + 1
    }

    /// Index pages.
    pub(crate) fn page_count(&self) -> u64 {
        self.extent.page_count - 1
    }
}

/// What is kept in memory of all slots of an image.
#[derive(Debug)]
pub(crate) struct Digest {
    filter: SlotFilter,
    liveness: Liveness,
}

impl Digest {
    /// Of no slot yet, for a table of so many slots, over a file of so many bytes, with about so many keys.
    pub(crate) fn new(slot_count: u64, file_bytes: u64, keys: u64) -> Digest {
        Digest { filter: SlotFilter::new(slot_count), liveness: Liveness::new(file_bytes, keys) }
    }

    /// Adds a slot; only one thread may do this, and nobody asks yet. Its record is to be added a little later.
    #[inline]
    pub(crate) fn add(&self, slot_hash: u64, paddr: u64) {
        self.filter.add(slot_hash);
        self.liveness.touch(paddr);
    }

    /// Adds the records that slots name. They lie anywhere, so what they need was asked for before.
    pub(crate) fn add_records(&self, paddrs: &[u64]) {
        paddrs.iter().for_each(|paddr| self.liveness.add(*paddr));
    }
}

/// What one slot says about a hash that is looked for.
enum Verdict {
    Found,
    Absent,
    Further,
}

/// An index image.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) place: ImagePlace,
    geometry: Geometry,
    slot_shift: u32,
    slot_mask: u64,
    checked: Box<[AtomicU64]>,
    /// Tells most absent keys without a look at the pages, and most dead records, once they are there.
    digest: OnceLock<Digest>,
    /// Stands for an image that is lost: every slot is empty.
    is_void: bool,
}

impl Image {
    /// The image at a place whose head was checked.
    pub(crate) fn new(place: ImagePlace, geometry: Geometry) -> Image {
        let slots_per_page = index_page::slots_per_page(geometry.page_size);
        let words = place.page_count().div_ceil(64);
        Image {
            place,
            geometry,
            slot_shift: slots_per_page.ilog2(),
            slot_mask: slots_per_page * place.page_count() - 1,
            checked: (0..words).map(|_| AtomicU64::new(0)).collect(),
            digest: OnceLock::new(),
            is_void: false,
        }
    }

    /// Takes what is known of exactly the slots in the image.
    pub(crate) fn set_digest(&self, digest: Digest) {
        let _ = self.digest.set(digest);
    }

    /// Which records it names, once that is known.
    #[inline]
    pub(crate) fn liveness(&self) -> Option<&Liveness> {
        self.digest.get().map(|digest| &digest.liveness)
    }

    /// True if what it says of a segment's records is all there was to say when it was made.
    pub(crate) fn covers(&self, segment: &Sealed) -> bool {
        let entry = &segment.entry;
        if segment.is_guard() {
            !self.is_void
        } else if segment.is_moved() {
            entry.seg_id.get() <= self.place.seg_id
        } else {
            entry.last_seqno.get() <= self.place.seqno
        }
    }

    /// Reads the whole image to make its digest, as long as `go_on` says so, and shows every record it names. It also
    /// warms and checks every page. False if it did not get to the end.
    pub(crate) fn read_in(
        &self,
        log: &Log,
        go_on: impl Fn() -> bool,
        mut visit: impl FnMut(u64),
    ) -> Result<bool> {
        if self.is_void || self.digest.get().is_some() {
            return Ok(false);
        }
        let digest = Digest::new(self.slot_count(), log.len(), self.place.used);
        let mut named = Vec::new();
        for page in 0..self.place.page_count() {
            if page % 64 == 0 && !go_on() {
                return Ok(false);
            }
            self.prefetch_from(log, page);
            for slot in index_page::slots(self.page(log, page)?, 0) {
                let (hash, paddr) = index_page::read_slot(slot);
                if hash > SENTINEL {
                    digest.add(hash, paddr);
                    named.push(paddr);
                    visit(paddr);
                }
            }
            digest.add_records(&named);
            named.clear();
        }
        self.set_digest(digest);
        Ok(true)
    }

    /// An empty image that is nowhere on disk.
    pub(crate) fn void(geometry: Geometry) -> Image {
        let place = ImagePlace {
            extent: Extent::new(0, 2),
            id: 0,
            used: 0,
            seqno: 0,
            seg_id: 0,
            key_no: 0,
        };
        Image { is_void: true, ..Image::new(place, geometry) }
    }

    /// True if there are pages behind this image.
    pub(crate) fn is_on_disk(&self) -> bool {
        !self.is_void
    }

    /// Slots in the whole table, a power of two.
    pub(crate) fn slot_count(&self) -> u64 {
        self.slot_mask + 1
    }

    /// The slots from a position, which may be past the end and then wraps, to the end of its page.
    pub(crate) fn slots_from<'a>(
        &self,
        log: &'a Log,
        position: u64,
    ) -> Result<ChunksExact<'a, u8>> {
        let position = position & self.slot_mask;
        let in_page = position & ((1 << self.slot_shift) - 1);
        let page = position >> self.slot_shift;
        self.prefetch_from(log, page);
        let page = self.page(log, page)?;
        Ok(index_page::slots(page, usize::try_from(in_page).expect("in a page")))
    }

    /// Asks the system for the pages behind this one, for those who go through all of them.
    fn prefetch_from(&self, log: &Log, page: u64) {
        if page.is_multiple_of(READ_AHEAD) && !self.is_void {
            let pages = READ_AHEAD.min(self.place.page_count() - page);
            let at = self.geometry.paddr(self.place.first_page() + page);
            log.prefetch(at, usize::try_from(self.geometry.paddr(pages)).unwrap_or(usize::MAX));
        }
    }

    /// The page of the file that a record is in.
    #[inline]
    pub(crate) fn page_of(&self, paddr: u64) -> u64 {
        self.geometry.page(paddr)
    }

    /// Home slot of a hash.
    #[inline]
    pub(crate) fn home(&self, hash: u64) -> u64 {
        hash & self.slot_mask
    }

    /// Page and slot within it of a hash's home, as journal entries name them.
    pub(crate) fn home_slot(&self, hash: u64) -> (u64, u64) {
        let home = self.home(hash);
        let in_page = home & ((1 << self.slot_shift) - 1);
        (self.place.first_page() + (home >> self.slot_shift), in_page)
    }

    /// The slot at a position, which may be past the end and then wraps.
    #[inline]
    pub(crate) fn slot(&self, log: &Log, position: u64) -> Result<IndexSlot> {
        if self.is_void {
            return Ok(IndexSlot { hash64: 0.into(), record_paddr: 0.into() });
        }
        let position = position & self.slot_mask;
        let page = position >> self.slot_shift;
        self.check(log, page)?;
        let in_page = position & ((1 << self.slot_shift) - 1);
        let header = u64::try_from(IndexPageHeader::SIZE).expect("28");
        let slot = u64::try_from(IndexSlot::SIZE).expect("16");
        let at = self.geometry.paddr(self.place.first_page() + page) + header + in_page * slot;
        log.bytes(at, IndexSlot::SIZE)
            .and_then(crate::format::read)
            .ok_or_else(|| Error::corrupt(What::IndexPage, at))
    }

    /// The bytes of a checked page.
    #[inline]
    pub(crate) fn page<'a>(&self, log: &'a Log, page: u64) -> Result<&'a [u8]> {
        self.check(log, page)?;
        let at = self.geometry.paddr(self.place.first_page() + page);
        log.bytes(at, self.geometry.page_len()).ok_or_else(|| Error::corrupt(What::IndexPage, at))
    }

    #[inline]
    fn check(&self, log: &Log, page: u64) -> Result<()> {
        let word = usize::try_from(page / 64).ok().and_then(|word| self.checked.get(word));
        match word {
            Some(word) if word.load(Ordering::Relaxed) >> (page % 64) & 1 == 1 => Ok(()),
            Some(word) => self.check_now(log, page, word),
            None => Err(Error::corrupt(What::IndexPage, self.geometry.paddr(page))),
        }
    }

    #[cold]
    fn check_now(&self, log: &Log, page: u64, word: &AtomicU64) -> Result<()> {
        let pageid = self.place.first_page() + page;
        let at = self.geometry.paddr(pageid);
        let check = |bytes| {
            let Some(keys) = log.keys() else {
                return index_page::check_page(bytes, self.place.id, pageid, None);
            };
            let key = keys.of(self.place.key_no)?;
            let mac = |before: &[u8], behind: &[u8]| key.image_mac(before, behind);
            index_page::check_page(bytes, self.place.id, pageid, Some(&mac))
        };
        log.bytes(at, self.geometry.page_len())
            .and_then(check)
            .ok_or_else(|| Error::corrupt(What::IndexPage, at))?;
        word.fetch_or(1 << (page % 64), Ordering::Relaxed);
        Ok(())
    }

    /// The newest record of a key in this image. Slots that lead to pages of segments that are gone say nothing:
    /// overlays know where those records are now, if they are anywhere.
    #[inline]
    pub(crate) fn find<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        gone: Option<&PageSet>,
    ) -> Result<Option<Opened<'a>>> {
        if self.digest.get().is_some_and(|digest| !digest.filter.may_contain(hash)) {
            return Ok(None);
        }
        match self.first_of(log, hash)? {
            Some(first) => find_in_group(log, hash, key, |index| {
                let slot = self.slot(log, first + index)?;
                if index > self.slot_mask || slot.hash64.get() != hash {
                    return Ok(Member::End);
                }
                let paddr = slot.record_paddr.get();
                let is_gone = gone.is_some_and(|gone| gone.contains(self.geometry.page(paddr)));
                Ok(if is_gone { Member::Gone } else { Member::At(paddr) })
            }),
            None => Ok(None),
        }
    }

    /// As `find`, with where the record is.
    pub(crate) fn find_at<'a>(
        &self,
        log: &'a Log,
        hash: u64,
        key: &[u8],
        gone: Option<&PageSet>,
    ) -> Result<Option<(u64, Opened<'a>)>> {
        let Some(record) = self.find(log, hash, key, gone)? else { return Ok(None) };
        // The slots of the hash are few; the one whose record has this seqno is it.
        let Some(first) = self.first_of(log, hash)? else { return Ok(None) };
        let mut position = first;
        loop {
            let slot = self.slot(log, position)?;
            if slot.hash64.get() != hash || position - first > self.slot_mask {
                return Ok(None);
            }
            let paddr = slot.record_paddr.get();
            let is_it = log.header(paddr).is_some_and(|header| header == record.header);
            if is_it {
                return Ok(Some((paddr, record)));
            }
            position += 1;
        }
    }

    /// Loads the filter's word of a hash into the cache.
    #[inline]
    pub(crate) fn touch_filter(&self, hash: u64) {
        if let Some(digest) = self.digest.get() {
            digest.filter.touch(hash);
        }
    }

    /// Loads the home of a hash into the cache, unless the filter knows that the hash is not there.
    #[inline]
    pub(crate) fn touch_home(&self, log: &Log, hash: u64) {
        let is_absent = self.digest.get().is_some_and(|digest| !digest.filter.may_contain(hash));
        if self.is_void || is_absent {
            return;
        }
        let (page, in_page) = self.home_slot(hash);
        let header = u64::try_from(IndexPageHeader::SIZE).expect("28");
        let slot = u64::try_from(IndexSlot::SIZE).expect("16");
        log.touch(self.geometry.paddr(page) + header + in_page * slot, 1);
    }

    /// Where the page of a hash's home is, and how long, unless the filter knows that the hash is not there.
    pub(crate) fn page_range(&self, hash: u64) -> Option<(u64, usize)> {
        let is_absent = self.digest.get().is_some_and(|digest| !digest.filter.may_contain(hash));
        let at = self.geometry.paddr(self.home_slot(hash).0);
        (!self.is_void && !is_absent).then(|| (at, self.geometry.page_len()))
    }

    /// Where the first record of a hash is, if that can be told.
    #[inline]
    pub(crate) fn peek(&self, log: &Log, hash: u64) -> Option<u64> {
        if self.digest.get().is_some_and(|digest| !digest.filter.may_contain(hash)) {
            return None;
        }
        let first = self.first_of(log, hash).ok()??;
        Some(self.slot(log, first).ok()?.record_paddr.get())
    }

    /// True if the image holds any key with this hash.
    pub(crate) fn has_hash(&self, log: &Log, hash: u64) -> Result<bool> {
        Ok(self.first_of(log, hash)?.is_some())
    }

    /// As `has_hash`, by the filter alone if there is one.
    pub(crate) fn may_have_hash(&self, log: &Log, hash: u64) -> Result<bool> {
        match self.digest.get() {
            Some(digest) => Ok(digest.filter.may_contain(hash)),
            None => self.has_hash(log, hash),
        }
    }

    /// Position of the first slot with this hash.
    #[inline]
    fn first_of(&self, log: &Log, hash: u64) -> Result<Option<u64>> {
        if self.is_void {
            return Ok(None);
        }
        let home = self.home(hash);
        let in_page = home & ((1 << self.slot_shift) - 1);
        // Nearly always the answer is within the page.
        let page = self.page(log, home >> self.slot_shift)?;
        let first = usize::try_from(in_page).expect("in a page");
        for (step, slot) in (0..IN_TURN).zip(index_page::slots(page, first)) {
            match self.judge(index_page::read_slot(slot).0, home, step, hash) {
                Verdict::Found => return Ok(Some(home + step)),
                Verdict::Absent => return Ok(None),
                Verdict::Further => {}
            }
        }
        self.first_by_halving(log, hash)
    }

    /// What the slot `step` behind a hash's home says about the hash.
    #[inline]
    fn judge(&self, found: u64, home: u64, step: u64, hash: u64) -> Verdict {
        if found == hash {
            return Verdict::Found;
        }
        if found == EMPTY {
            return Verdict::Absent;
        }
        let distance = (home + step).wrapping_sub(found) & self.slot_mask;
        let is_past = distance < step || (distance == step && found > hash);
        if is_past && found != SENTINEL { Verdict::Absent } else { Verdict::Further }
    }

    #[cold]
    fn first_by_halving(&self, log: &Log, hash: u64) -> Result<Option<u64>> {
        let home = self.home(hash);
        // True from the first position at or past (home, hash) in the table's order.
        let reached = |step: u64| -> Result<bool> {
            let mut step = step;
            // A sentinel says nothing about order; the slot behind it does.
            let found = loop {
                if step > self.slot_mask {
                    return Ok(true);
                }
                match self.slot(log, home + step)?.hash64.get() {
                    SENTINEL => step += 1,
                    found => break found,
                }
            };
            let distance = (home + step).wrapping_sub(found) & self.slot_mask;
            Ok(found == EMPTY || distance < step || (distance == step && found >= hash))
        };
        let (mut low, mut high) = (0, 1);
        while !reached(high)? {
            low = high;
            high *= 2;
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if reached(middle)? {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if low > self.slot_mask {
            return Ok(None);
        }
        let found = self.slot(log, home + low)?.hash64.get();
        Ok((found == hash).then_some(home + low))
    }
}
