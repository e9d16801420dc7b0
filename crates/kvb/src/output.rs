//! An output of compaction: a segment of moved records, written in key order.
//!
//! It counts only when it is sealed, synced and registered. Until then the superblock names its extent as output, and
//! mounting frees it.

use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::core::Core;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::index_page::slot_hash;
use crate::format::record::{self, MARK_MOVED, RecordHeader, Stamp};
use crate::format::roster::{NAMED_OUTPUT, NamedExtent, SegmentEntry};
use crate::format::segment::Kind;
use crate::keeper::OUTPUT_PAGES_MIN;
use crate::key_sort::chunk;
use crate::opened::Opened;
use crate::round::OUTPUT_BYTES_MAX;
use crate::segment::{Segment, Style, write_passive};

/// Bytes written at once, so that no commit waits long for the file's lock.
const SLICE: usize = 256 << 10;
/// Bytes written before they are synced, so that no commit's sync has to carry more of them.
const DIRTY_MAX: u64 = 4 << 20;

/// Fewer pages are taken for an output than are needed, if they have their blocks, but no fewer than this, nor than such a part of them.
const OUTPUT_PAGES_WARM: u64 = 256;
const WARM_PART: u64 = 4;

/// Origin of a record that was nowhere in this bucket.
pub(crate) const ORIGIN_NONE: u64 = 0;

/// How long an extent for an output is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputPages {
    pub(crate) wanted: u64,
    /// What the next record needs.
    pub(crate) least: u64,
}

/// A segment of moved records being written.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) segment: Segment,
    /// Where each record was.
    pub(crate) origins: Vec<u64>,
    slice: Vec<u8>,
    /// Offset up to which the segment is written, and up to which it is synced.
    written: u64,
    synced: u64,
}

impl Core {
    /// Begins an output in an extent of as many pages as there are of those wanted, for records of which some may have expired.
    pub(crate) fn begin_output(
        &self,
        pages: OutputPages,
        expired_by: u64,
        may_borrow: bool,
    ) -> Result<Output> {
        let named = {
            let mut keeper = self.lock_keeper();
            let named = keeper.name_output(self, pages, may_borrow)?;
            // Order: named before a byte is written there.
            keeper.checkpoint(self)?;
            named
        };
        debug_assert!(
            named.seg_id.get() > self.moved_seg_id.load(Ordering::Acquire),
            "an image would seem to know of the output"
        );
        let style = Style { is_moved: true, ..self.fixed.style() };
        let extent = Extent::new(named.start_page.get(), u64::from(named.page_count.get()));
        let mut segment =
            Segment::new(extent, named.seg_id.get(), 0, self.clock.now(), self.env.pid(), style);
        segment.expired_by = expired_by;
        self.lock_up(&mut segment);
        Ok(Output { slice: segment.header(0), segment, origins: Vec::new(), written: 0, synced: 0 })
    }

    /// Gives the extent of an output back that will not be finished.
    pub(crate) fn drop_output(&self, output: &Output) -> Result<()> {
        let mut keeper = self.lock_keeper();
        let extent = output.segment.extent;
        keeper.named.retain(|named| named.seg_id.get() != output.segment.seg_id);
        // Order: what is there now must not be found by a walk when it is named no more.
        write_passive(&*self.disk, self.geometry(), Kind::Free, extent)?;
        keeper.checkpoint(self)?;
        keeper.give_back(self, extent)
    }

    /// Seals an output and registers it.
    pub(crate) fn finish_output(
        &self,
        output: &mut Output,
        is_guard: bool,
    ) -> Result<SegmentEntry> {
        output.write_slice(self)?;
        output.segment.settle_seqnos();
        output.segment.style.is_guard = is_guard;
        let (entry, rest) =
            output.segment.seal(&*self.disk, &self.log, self.geometry(), self.fixed.uuid)?;
        let mut keeper = self.lock_keeper();
        let named = keeper.named.clone();
        keeper.named.retain(|named| named.seg_id.get() != output.segment.seg_id);
        keeper.add_segment(self, entry, None);
        if let Err(error) = keeper.checkpoint(self) {
            // Registered and not in the index, it would bring back what is replaced from now on.
            keeper.take_back(self, &entry);
            keeper.named = named;
            return Err(error);
        }
        if let Some(rest) = rest {
            keeper.give_back(self, rest)?;
        }
        Ok(entry)
    }
}

impl Output {
    /// True if a record of this length still fits.
    pub(crate) fn fits(&self, core: &Core, record_len: u64) -> bool {
        self.segment.fits(core.geometry(), record_len)
    }

    /// Copies a record that was read from `origin`.
    pub(crate) fn push(&mut self, core: &Core, record: &Opened<'_>, origin: u64) -> Result<()> {
        let mut header = *record.header;
        header.enc = header.form() | core.fixed.enc();
        self.push_as(core, header, record.key(), record.stored(), origin)
    }

    /// Adds a record with this header, but for the mark and what depends on key and value.
    pub(crate) fn push_as(
        &mut self,
        core: &Core,
        mut header: RecordHeader,
        key: &[u8],
        stored: &[u8],
        origin: u64,
    ) -> Result<()> {
        let start = self.slice.len();
        header.reserved16 = U16::new(MARK_MOVED);
        header.val_len = U32::new(u32::try_from(stored.len()).unwrap_or(u32::MAX));
        self.slice.extend_from_slice(header.as_bytes());
        self.slice.extend_from_slice(key);
        self.slice.extend_from_slice(stored);
        let end = usize::try_from(header.record_len()).unwrap_or(usize::MAX);
        self.slice.resize(start.saturating_add(end), 0);
        let stamp = Stamp {
            seqno: header.seqno.get(),
            hash64: header.hash64.get(),
            timestamp_ns: header.timestamp_ns.get(),
            ttl_secs: header.ttl_secs.get(),
            reserved16: MARK_MOVED,
        };
        self.slice
            .get_mut(start..)
            .and_then(|bytes| {
                let (cipher, offset) = (self.segment.cipher.as_deref(), self.segment.len);
                record::stamp_sealed(bytes, stamp, |header, body| {
                    Some(cipher?.seal(header, offset, body))
                })
            })
            .ok_or(Error::Invalid("short record"))?;
        let prefix = chunk(key, 0);
        self.segment.push(slot_hash(header.hash64.get()), prefix, &header);
        self.origins.push(origin);
        if self.slice.len() >= SLICE { self.write_slice(core) } else { Ok(()) }
    }

    fn write_slice(&mut self, core: &Core) -> Result<()> {
        let start = core.geometry().paddr(self.segment.extent.start_page);
        for part in self.slice.chunks(SLICE) {
            core.disk
                .write_at(start + self.written, part)
                .map_err(Error::io("write moved records"))?;
            self.written += u64::try_from(part.len()).unwrap_or(0);
        }
        self.slice.clear();
        if self.written - self.synced >= DIRTY_MAX {
            core.disk
                .sync_range(start + self.synced, self.written - self.synced)
                .map_err(Error::io("sync moved records"))?;
            self.synced = self.written;
        }
        Ok(())
    }

    /// True if nothing was copied to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.segment.len == self.segment.header_len()
    }
}

impl crate::keeper::Keeper {
    /// Makes sure that there is room for so many bytes of output.
    pub(crate) fn secure_output(&mut self, core: &Core, bytes: u64) -> Result<()> {
        let free = self.space.iter().map(|extent| extent.page_count);
        let free: u64 = free.filter(|pages| *pages >= OUTPUT_PAGES_MIN).sum();
        let missing = core.geometry().pages(bytes).saturating_sub(free);
        if missing > self.space.raw_pages() { self.grow(core, missing) } else { Ok(()) }
    }

    /// As many pages as are wanted, or fewer if those are in one place and have their blocks, and are worth an output. On a full disk any
    /// that have them and take one record.
    fn warm_or(&self, pages: OutputPages, is_full: bool) -> u64 {
        let OutputPages { wanted, least } = pages;
        let (most, worth) = if is_full {
            (self.warm_pages(), OUTPUT_PAGES_MIN)
        } else {
            (self.warm_pages_below(), OUTPUT_PAGES_WARM.max(wanted / WARM_PART))
        };
        if most >= worth.max(least) { most.min(wanted) } else { wanted }
    }

    /// Gives the largest free place its blocks, if no other has nearly as many: where the disk is full an output begins in what has some.
    pub(crate) fn warm_place(&mut self, core: &Core) -> Result<()> {
        let free = self.space.iter().map(|extent| extent.page_count).max().unwrap_or(0);
        let most = free.max(self.space.raw_pages()).min(core.geometry().pages(OUTPUT_BYTES_MAX));
        let warm = self.warm_pages();
        let is_place = most >= OUTPUT_PAGES_MIN && warm < most - most / 4;
        if is_place { self.warm_up(core, most, warm.max(OUTPUT_PAGES_MIN)) } else { Ok(()) }
    }

    /// Takes an extent for an output: one of so many pages, or what a full disk has left in one place, or what is kept for
    /// the next image or for the log, if it may.
    pub(crate) fn name_output(
        &mut self,
        core: &Core,
        pages: OutputPages,
        may_borrow: bool,
    ) -> Result<NamedExtent> {
        let OutputPages { wanted, least } = pages;
        match self.name_extent(core, self.warm_or(pages, may_borrow), NAMED_OUTPUT) {
            Err(Error::NoSpace) => {}
            result => return result,
        }
        let free = self.space.iter().map(|extent| extent.page_count).max().unwrap_or(0);
        let largest = free.max(self.space.raw_pages());
        if largest >= least.max(OUTPUT_PAGES_MIN) {
            match self.name_extent(core, largest.min(wanted), NAMED_OUTPUT) {
                Err(Error::NoSpace) => {}
                result => return result,
            }
        }
        if !may_borrow {
            return Err(Error::NoSpace);
        }
        if self.image_spare.is_some_and(|spare| spare.page_count >= least)
            && let Some(spare) = self.spend_image_spare(core)?
        {
            return self.name(spare, NAMED_OUTPUT);
        }
        let lent = core.lock_supply().lend(least).ok_or(Error::NoSpace)?;
        let named = self.named.iter_mut().find(|named| named.seg_id == lent.seg_id);
        let named = named.ok_or(Error::NoSpace)?;
        // By its old id an image would seem to know of it.
        named.seg_id = U64::new(self.next_seg_id);
        named.kind = U32::new(NAMED_OUTPUT);
        self.next_seg_id += 1;
        Ok(*named)
    }
}
