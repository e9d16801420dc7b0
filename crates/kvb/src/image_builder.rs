//! Writing an image: entries come in table order and leave as pages.
//!
//! Entries that would stand past the end wrap to the front, where they push what is there. They are few, and are
//! put in when all pages are written; nobody reads the image yet.

#![allow(clippy::expect_used, reason = "numbers that a mask has made small")]

use std::collections::VecDeque;
use std::sync::Arc;

use zerocopy::little_endian::U64;

use crate::cipher::BucketKey;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::index_page::{self, EMPTY, IndexSlot};
use crate::image::Digest;
use crate::room::no_space_or;
use crate::vault::seal_index_page;

/// Bytes written at once: little enough to stay in the cache, and not to keep a commit waiting for the file's lock.
const SLICE: usize = 128 << 10;
/// Bytes written before they are synced, so that no commit's sync has to carry more of them.
const DIRTY_MAX: u64 = 4 << 20;

/// Records of which the digest is told together.
const AHEAD: usize = 64;

/// Builds an image in an extent.
pub(crate) struct ImageBuilder<'a> {
    core: &'a Core,
    first_page: u64,
    page_count: u64,
    id: u64,
    /// What vouches for the pages in an encrypted bucket.
    key: Option<Arc<BucketKey>>,
    slot_shift: u32,
    /// First position that is still free.
    next: u64,
    used: u64,
    page: Vec<u8>,
    page_used: u32,
    page_index: u64,
    slice: Vec<u8>,
    slice_page: u64,
    synced_page: u64,
    spilled: Vec<(u64, u64)>,
    digest: Digest,
    /// Records named since the digest was told.
    named: Vec<u64>,
}

impl<'a> ImageBuilder<'a> {
    /// A builder for the pages behind the first of an extent.
    pub(crate) fn new(
        core: &'a Core,
        extent: Extent,
        id: u64,
        keys: u64,
        key: Option<Arc<BucketKey>>,
    ) -> ImageBuilder<'a> {
        let geometry = core.geometry();
        let slots_per_page = index_page::slots_per_page(geometry.page_size);
        ImageBuilder {
            core,
            first_page: extent.start_page + 1,
            page_count: extent.page_count - 1,
            id,
            key,
            slot_shift: slots_per_page.ilog2(),
            next: 0,
            used: 0,
            page: vec![0; geometry.page_len()],
            page_used: 0,
            page_index: 0,
            slice: Vec::new(),
            slice_page: 0,
            synced_page: 0,
            spilled: Vec::new(),
            named: Vec::with_capacity(AHEAD),
            digest: Digest::new(slots_per_page * (extent.page_count - 1), core.log.len(), keys),
        }
    }

    /// Slots of the table.
    pub(crate) fn slot_count(&self) -> u64 {
        self.page_count << self.slot_shift
    }

    /// True if more than 15 of 16 slots are taken: probes would be long, and soon there would be no room at all.
    pub(crate) fn is_too_full(&self) -> bool {
        self.used > self.slot_count() / 16 * 15
    }

    fn home(&self, hash: u64) -> u64 {
        hash & (self.slot_count() - 1)
    }

    /// Adds the next entry in the order (home, hash, key).
    pub(crate) fn push(&mut self, hash: u64, paddr: u64) -> Result<()> {
        self.used += 1;
        self.digest.add(hash, paddr);
        self.named.push(paddr);
        if self.named.len() >= AHEAD {
            self.note_named();
        }
        let position = self.home(hash).max(self.next);
        self.next = position + 1;
        if position >= self.slot_count() {
            self.spilled.push((hash, paddr));
            return Ok(());
        }
        while self.page_index < position >> self.slot_shift {
            self.finish_page()?;
        }
        self.set(position, hash, paddr);
        Ok(())
    }

    fn note_named(&mut self) {
        self.digest.add_records(&self.named);
        self.named.clear();
    }

    fn set(&mut self, position: u64, hash: u64, paddr: u64) {
        let slot = usize::try_from(position & ((1 << self.slot_shift) - 1)).expect("in a page");
        let value = IndexSlot { hash64: U64::new(hash), record_paddr: U64::new(paddr) };
        index_page::set_slot(&mut self.page, slot, value);
        self.page_used += 1;
    }

    /// Seals the page being filled as the image's page `index`.
    fn seal_page(&mut self, index: u64) -> Result<()> {
        let used = std::mem::take(&mut self.page_used);
        let pageid = self.first_page + index;
        let key = self.key.as_deref();
        let sealed = seal_index_page(&mut self.page, self.id, pageid, used, key);
        sealed.ok_or(Error::Invalid("page too small"))
    }

    fn finish_page(&mut self) -> Result<()> {
        self.seal_page(self.page_index)?;
        self.slice.extend_from_slice(&self.page);
        index_page::clear(&mut self.page);
        self.page_index += 1;
        if self.slice.len() >= SLICE { self.write_slice() } else { Ok(()) }
    }

    fn write_slice(&mut self) -> Result<()> {
        let geometry = self.core.geometry();
        let at = geometry.paddr(self.first_page + self.slice_page);
        let doing = "write the new index image";
        self.core.disk.write_at(at, &self.slice).map_err(no_space_or(doing))?;
        self.slice.clear();
        self.slice_page = self.page_index;
        let dirty = geometry.paddr(self.page_index - self.synced_page);
        if dirty >= DIRTY_MAX {
            let from = geometry.paddr(self.first_page + self.synced_page);
            self.core
                .disk
                .sync_range(from, dirty)
                .map_err(Error::io("sync the new index image"))?;
            self.synced_page = self.page_index;
        }
        Ok(())
    }

    /// Writes what is left and gives the number of entries and what is kept of them.
    pub(crate) fn finish(mut self) -> Result<(u64, Digest)> {
        while self.page_index < self.page_count {
            self.finish_page()?;
        }
        self.write_slice()?;
        self.note_named();
        self.wrap()?;
        Ok((self.used, self.digest))
    }

    /// Lays what spilled past the end to the front, moving entries there as far as it takes.
    fn wrap(&mut self) -> Result<()> {
        let geometry = self.core.geometry();
        let mut queue: VecDeque<(u64, u64)> = std::mem::take(&mut self.spilled).into();
        let spilled = queue.len();
        let mut placed = 0;
        let mut page_index = 0;
        while !queue.is_empty() && page_index < self.page_count {
            let at = geometry.paddr(self.first_page + page_index);
            let mut before = vec![0; geometry.page_len()];
            self.core
                .disk
                .read_at(at, &mut before)
                .map_err(Error::io("read back the new index image"))?;
            self.page.fill(0);
            for slot in 0..1_usize << self.slot_shift {
                let old = index_page::slot(&before, slot).filter(|old| old.hash64 != EMPTY);
                queue.extend(old.map(|old| (old.hash64.get(), old.record_paddr.get())));
                let position =
                    (page_index << self.slot_shift) + u64::try_from(slot).unwrap_or(u64::MAX);
                let fits = queue
                    .front()
                    .is_some_and(|&(hash, _)| placed < spilled || self.home(hash) <= position);
                if fits && let Some((hash, paddr)) = queue.pop_front() {
                    self.set(position, hash, paddr);
                    placed += 1;
                }
            }
            self.seal_page(page_index)?;
            self.core
                .disk
                .write_at(at, &self.page)
                .map_err(Error::io("write the new index image"))?;
            page_index += 1;
        }
        if queue.is_empty() {
            Ok(())
        } else {
            Err(Error::Invalid("an index image has no room for its entries"))
        }
    }
}
