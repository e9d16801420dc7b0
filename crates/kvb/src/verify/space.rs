//! Superblocks, the tiling of the segment region, the free-space map, the ring, the book.

use host::Disk;

use crate::book;
use crate::error::{Error, Result, What};
use crate::extent::Extent;
use crate::format::free_map;
use crate::format::journal::{COMMIT, JournalEntry};
use crate::format::segment::{Kind, SegmentHeader};
use crate::ring::Ring;
use crate::root::{Unlock, load_copy};
use crate::verify::Verifier;

/// How often something that a writer may just be changing is looked at again.
const RETRIES: usize = 200;

impl Verifier<'_> {
    /// Both copies of the superblock must hold.
    pub(super) fn check_superblocks(&mut self, disk: &dyn Disk) -> Result<()> {
        let geometry = self.core.geometry();
        let keys = self.core.log.keys();
        let unlock = keys.as_deref().map_or(Unlock::With(None), Unlock::Known);
        let b_page = self.core.lock_keeper().b_page;
        let mut epochs = Vec::new();
        for page in [0, b_page] {
            let at = geometry.paddr(page);
            let mut copy = Err(String::new());
            for _ in 0..RETRIES {
                let len = disk.len().map_err(Error::io("read the bucket's length"))?;
                copy = load_copy(disk, len, at, unlock);
                if copy.is_ok() || !self.has_writer {
                    break;
                }
                std::thread::yield_now();
            }
            match copy {
                Ok(root) => epochs.push(root.superblock.epoch.get()),
                // A file that grows moves its second copy, another key makes other MACs, and the next checkpoint writes
                // both copies anew.
                Err(_) if self.has_writer => {}
                Err(meaning) => self.derived(What::Superblock, at, meaning),
            }
        }
        if let [a, b] = epochs.as_slice()
            && a != b
            && !self.has_writer
        {
            let meaning =
                format!("its two copies are of epochs {a} and {b}: a checkpoint was cut short");
            self.notice(What::Superblock, 0, meaning);
        }
        Ok(())
    }

    /// The extents must follow each other without a gap, and everything registered must be among them.
    pub(super) fn check_space(&mut self, disk: &dyn Disk) -> Result<()> {
        let mut result = Ok(());
        for _ in 0..if self.has_writer { RETRIES } else { 1 } {
            result = self.walk(disk)?;
            if result.is_ok() {
                break;
            }
            std::thread::yield_now();
        }
        match result {
            Ok(()) => {}
            Err(_) if self.has_writer => {
                self.notice(
                    What::SegmentHeader,
                    0,
                    "the writer was too busy to follow the extents",
                );
            }
            Err((at, meaning)) => self.damage(What::SegmentHeader, at, meaning),
        }
        if !self.has_writer {
            self.check_free_map();
        }
        Ok(())
    }

    /// Walks the segment region by its headers.
    fn walk(&self, disk: &dyn Disk) -> Result<std::result::Result<(), (u64, &'static str)>> {
        let core = self.core;
        let geometry = core.geometry();
        let (mut registered, end) = {
            let keeper = core.lock_keeper();
            let starts: Vec<Extent> =
                keeper.segments.values().map(|kept| kept.sealed.extent()).collect();
            (starts, keeper.space.high_water())
        };
        registered.sort_unstable();
        let mut page = core.fixed.segment_start_page;
        while page < end {
            let at = geometry.paddr(page);
            let mut bytes = [0; SegmentHeader::SIZE];
            disk.read_at(at, &mut bytes).map_err(Error::io("read a segment header"))?;
            let Some(header) = SegmentHeader::decode(&bytes) else {
                return Ok(Err((
                    at,
                    "the header of an extent does not hold, so that no walk gets past it",
                )));
            };
            let Some(pages) = header.page_count(geometry.page_size) else {
                return Ok(Err((at, "the header of an extent does not tell how long it is")));
            };
            let extent = Extent::new(page, pages);
            if extent.end_page() > end {
                return Ok(Err((at, "an extent reaches past the end of the segment region")));
            }
            let next = registered.partition_point(|one| one.start_page <= page);
            let is_inside = |one: &Extent| one.start_page < extent.end_page();
            if header.kind() == Some(Kind::Free) && registered.get(next).is_some_and(is_inside) {
                return Ok(Err((
                    at,
                    "an extent is marked free, and a segment is registered inside it",
                )));
            }
            page = extent.end_page();
        }
        Ok(Ok(()))
    }

    /// The map is advice, but if it claims to be of this checkpoint it must be right.
    fn check_free_map(&mut self) {
        let core = self.core;
        let geometry = core.geometry();
        let (map, space, b_page) = {
            let keeper = core.lock_keeper();
            (keeper.free_map, keeper.space.clone(), keeper.b_page)
        };
        let raw = Extent::new(space.high_water(), space.raw_pages());
        let stamp = free_map::Stamp { epoch: self.found.epoch, uuid_lo: core.fixed.uuid.1 };
        let coverage = free_map::coverage(geometry.page_size);
        let needed = (b_page + 1).div_ceil(coverage).min(map.page_count);
        for index in 0..needed {
            let pageid = map.start_page + index;
            let at = geometry.paddr(pageid);
            let Some(bytes) = core.log.bytes(at, geometry.page_len()) else { continue };
            if free_map::stamp_of(bytes) != Some(stamp) {
                // Of an earlier checkpoint, or damaged: nobody reads it.
                continue;
            }
            let Some(mut found) = free_map::decode(bytes, stamp, pageid) else {
                self.derived(What::FreeMap, at, "the page of the free-space map does not hold");
                continue;
            };
            let (from, to) = (index * coverage, (index + 1) * coverage);
            let clipped = |extent: Extent| extent.start_page.max(from)..extent.end_page().min(to);
            let mut wanted: Vec<u64> = space.iter().chain([raw]).flat_map(clipped).collect();
            wanted.sort_unstable();
            // What a writer had just taken when it wrote the map was not free to it.
            found.retain(|page| wanted.binary_search(page).is_err());
            if let Some(page) = found.first() {
                let meaning =
                    format!("page {page} is in use, and the free-space map says it is free");
                self.derived(What::FreeMap, at, meaning);
            }
        }
    }

    /// Entries of the ring hold, or were never written.
    pub(super) fn check_ring(&mut self) {
        let core = self.core;
        let fixed = &core.fixed;
        if self.has_writer {
            return;
        }
        let ring = Ring::new(fixed.geometry, fixed.journal_start_page, fixed.journal_page_count, 0);
        for at in ring.offsets() {
            let Some(bytes) = core.log.bytes(at, JournalEntry::SIZE) else { continue };
            match JournalEntry::decode(bytes) {
                None if bytes.iter().any(|byte| *byte != 0) => {
                    self.notice(
                        What::Journal,
                        at,
                        "an entry does not hold; recovery does without it",
                    );
                }
                Some(entry)
                    if entry.kind == COMMIT && entry.seqno.get() > core.position().seqno =>
                {
                    let ours = crate::ring::uuid_tag(fixed.uuid);
                    if entry.hash64.get() == ours {
                        self.damage(What::Journal, at, "it tells of a commit that is not there");
                    }
                }
                _ => {}
            }
        }
    }

    /// Both copies of the dictionaries must hold.
    pub(super) fn check_book(&mut self) {
        let core = self.core;
        let place = core.lock_keeper().book;
        let Some(place) = place else { return };
        for (at, copy) in book::copies(&core.log, core.geometry(), core.fixed.uuid, place) {
            if copy.is_none() {
                self.damage(What::Dictionary, at, "a copy of the dictionaries does not hold");
            }
        }
    }
}
