//! Checkpoints: both superblocks, with the extension and the roster behind each.
//!
//! Order of every checkpoint: sync what it names; superblock B; sync; superblock A; sync. A crash in it leaves at
//! least one whole superblock, old or new.

#![allow(clippy::expect_used, reason = "sizes of structures")]

use std::sync::Arc;

use host::planted::{Bug, is_planted};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::core::{Core, Fixed, Position};
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::extension::{self, Extension};
use crate::format::free_map::{self, FreeExtent};
use crate::format::key_block::{self, KeyBlock};
use crate::format::lineage::{self, Lineage};
use crate::format::meta::{self, MetaHead};
use crate::format::roster::{self, Roster};
use crate::format::superblock::{
    FLAG_DICTIONARY, FLAG_INCREMENT, FLAG_LINEAGE, MAGIC, Superblock, VERSION_MAJOR, VERSION_MINOR,
};
use crate::keeper::{Keeper, TablePlace};
use crate::room::{Retired, is_full};
use crate::segment::meta_extent;
use crate::vault::Keys;

/// Entries of each kind that a roster keeps room for.
const ROSTER_SPARE: usize = 12;

impl Keeper {
    /// Writes a checkpoint of everything registered and committed so far.
    pub(crate) fn checkpoint(&mut self, core: &Core) -> Result<()> {
        self.fit_roster(core)?;
        // Read before the sync, so that what is claimed durable is.
        let position = core.position();
        if !is_planted(Bug::CheckpointEarly) {
            core.disk.sync().map_err(Error::io("sync the log"))?;
        }
        self.write_superblocks(core, position)
    }

    /// A checkpoint with the free-space map, as a flush or a clean close leaves it.
    pub(crate) fn full_checkpoint(&mut self, core: &Core) -> Result<()> {
        self.fit_free_map(core)?;
        if self.is_table_stale && self.table.is_some() {
            match self.write_table(core) {
                // What the table says of dead records is a hint.
                Ok(()) | Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        self.fit_roster(core)?;
        self.write_free_map(core)?;
        let position = core.position();
        core.disk.sync().map_err(Error::io("sync the log"))?;
        self.write_superblocks(core, position)
    }

    /// Moves segments from the roster to a new table before the roster is full. It always keeps some room, because
    /// making a table may grow the file, and that writes superblocks too.
    fn fit_roster(&mut self, core: &Core) -> Result<()> {
        let room = core.geometry().page_len() - roster::OFFSET;
        let fits =
            |spare| roster::encoded_len(self.named.len() + spare, self.fresh.len() + spare) <= room;
        if fits(ROSTER_SPARE) {
            return Ok(());
        }
        let fits_bare = fits(0);
        match self.write_table(core) {
            Err(Error::NoSpace) if fits_bare => Ok(()),
            result => result,
        }
    }

    /// Writes both superblocks and then frees what they stopped using. All they name must be synced.
    pub(crate) fn write_superblocks(&mut self, core: &Core, position: Position) -> Result<()> {
        let geometry = core.geometry();
        if roster::encoded_len(self.named.len(), self.fresh.len()) + roster::OFFSET
            > geometry.page_len()
        {
            // Only after a lost table, on a file with no room for a new one.
            return Err(Error::NoSpace);
        }
        if is_planted(Bug::FreedEarly) {
            self.release(core)?;
        }
        self.epoch += 1;
        for page in [self.b_page, 0] {
            let sealed = core.log.keys().map(|keys| (keys, core.session_salt));
            let sealed = sealed.as_ref().map(|(keys, salt)| (&**keys, salt));
            let bytes =
                self.superblock_page(&core.fixed, position, core.clock.newest(), page, sealed);
            core.disk
                .write_at(geometry.paddr(page), &bytes)
                .map_err(Error::io("write a superblock"))?;
            if page > 0 && is_planted(Bug::SuperblocksTogether) {
                continue;
            }
            core.disk
                .sync_range(geometry.paddr(page), geometry.page_size)
                .map_err(Error::io("sync a superblock"))?;
        }
        self.space.note_durable();
        self.release(core)
    }

    /// The page of superblock, extension and roster for the copy that stands in `self_page`.
    pub(crate) fn superblock_page(
        &self,
        fixed: &Fixed,
        position: Position,
        clock_unix_ns: u64,
        self_page: u64,
        sealed: Option<(&Keys, &[u8; 16])>,
    ) -> Vec<u8> {
        let superblock = Superblock {
            magic: U32::new(MAGIC),
            version_major: U16::new(VERSION_MAJOR),
            version_minor: U16::new(VERSION_MINOR),
            page_size: U32::new(u32::try_from(fixed.geometry.page_size).expect("at most 64 KiB")),
            file_uuid_hi: U64::new(fixed.uuid.0),
            file_uuid_lo: U64::new(fixed.uuid.1),
            created_unix_ns: U64::new(fixed.created_unix_ns),
            flags: U64::new(self.flags(fixed)),
            index_region_start_page: U64::new(self.image.first_page()),
            index_region_page_count: U64::new(self.image.page_count()),
            fsm_start_page: U64::new(self.free_map.start_page),
            fsm_page_count: U64::new(self.free_map.page_count),
            journal_start_page: U64::new(fixed.journal_start_page),
            journal_page_count: U64::new(fixed.journal_page_count),
            segment_start_page: U64::new(fixed.segment_start_page),
            segment_end_page: U64::new(self.space.high_water()),
            commit_seqno: U64::new(position.seqno),
            commit_paddr: U64::new(position.paddr),
            epoch: U64::new(self.epoch),
            crc32c: U32::new(0),
        }
        .seal();
        let roster = Roster {
            named: self.named.clone(),
            sealed: self
                .fresh
                .iter()
                .filter_map(|page| self.segments.get(page).map(|kept| kept.entry))
                .collect(),
        }
        .encode(self.epoch, fixed.uuid);
        let roster_crc = roster.last_chunk().copied().map_or(0, u32::from_le_bytes);
        let table =
            self.table.unwrap_or(TablePlace { extent: Extent::new(0, 0), id: 0, key_no: 0 });
        let extension = Extension {
            magic: U32::new(extension::MAGIC),
            length: U16::new(u16::try_from(Extension::SIZE).expect("fits a sector")),
            hash_kind: U16::new(fixed.hash_kind),
            epoch: U64::new(self.epoch),
            file_uuid_hi: U64::new(fixed.uuid.0),
            file_uuid_lo: U64::new(fixed.uuid.1),
            self_page: U64::new(self_page),
            b_page: U64::new(self.b_page),
            durable_seqno: U64::new(position.seqno),
            tail_seqno: U64::new(self.tail_seqno),
            next_seg_id: U64::new(self.next_seg_id),
            clock_unix_ns: U64::new(clock_unix_ns),
            image_id: U64::new(self.image.id),
            image_seqno: U64::new(self.image.seqno),
            image_seg_id: U64::new(self.image.seg_id),
            table_start_page: U64::new(table.extent.start_page),
            table_page_count: U64::new(table.extent.page_count),
            table_id: U64::new(table.id),
            index_page_min: U64::new(fixed.index_page_min),
            max_value: U32::new(fixed.max_value),
            segment_page_max: U32::new(u32::try_from(fixed.segment_page_max).unwrap_or(u32::MAX)),
            hash_key: match sealed {
                Some((keys, _)) => keys.current.wrap_hash_key(fixed.hash_key.0),
                None => fixed.hash_key.0,
            },
            roster_crc32c: U32::new(roster_crc),
            bulletin_page: U64::new(fixed.bulletin_page),
            image_gone: U64::new(self.image_gone),
            book_start_page: U64::new(self.book.map_or(0, |book| book.extent.start_page)),
            dropped_seqno: U64::new(self.dropped_seqno),
            crc32c: U32::new(0),
        }
        .seal();
        let mut page = superblock.as_bytes().to_vec();
        page.extend_from_slice(extension.as_bytes());
        page.resize(roster::OFFSET, 0);
        page.extend_from_slice(&roster);
        page.resize(fixed.geometry.page_len(), 0);
        let room = page.get_mut(lineage::OFFSET..lineage::OFFSET + Lineage::SIZE);
        if let (Some(lineage), Some(room)) = (self.lineage, room) {
            room.copy_from_slice(lineage.seal().as_bytes());
        }
        if let Some((keys, session_salt)) = sealed {
            self.key_block(keys, session_salt)
                .place(&mut page, |before, behind| keys.current.page_mac(before, behind));
        }
        page
    }

    /// What the superblock says there is beside it.
    fn flags(&self, fixed: &Fixed) -> u64 {
        let book = if self.book.is_some() { FLAG_DICTIONARY } else { 0 };
        let lineage = match &self.lineage {
            None => 0,
            Some(lineage) if lineage.since.get() == 0 => FLAG_LINEAGE,
            Some(_) => FLAG_LINEAGE | FLAG_INCREMENT,
        };
        fixed.flags & !(FLAG_LINEAGE | FLAG_INCREMENT | FLAG_DICTIONARY) | book | lineage
    }

    fn key_block(&self, keys: &Keys, session_salt: &[u8; 16]) -> KeyBlock {
        let old = keys.old.as_deref();
        KeyBlock {
            magic: U32::new(key_block::MAGIC),
            length: U16::new(u16::try_from(KeyBlock::SIZE).expect("fits a sector")),
            key_no: U16::new(keys.current.no),
            key_id: U64::new(keys.current.id),
            key_check: keys.current.check(),
            old_key_no: U16::new(old.map_or(0, |old| old.no)),
            image_key_no: U16::new(self.image.key_no),
            table_key_no: U16::new(self.table.map_or(0, |table| table.key_no)),
            book_key_no: U16::new(self.book.map_or(0, |book| book.key_no)),
            old_key_id: U64::new(old.map_or(0, |old| old.id)),
            old_key_check: old.map_or([0; 16], |old| old.check()),
            session_salt: *session_salt,
            mac: [0; 16],
            crc32c: U32::new(0),
        }
    }

    /// Writes the table of all segments to an extent of its own. The checkpoint that follows syncs and names it.
    pub(crate) fn write_table(&mut self, core: &Core) -> Result<()> {
        let geometry = core.geometry();
        let entries: Vec<_> = self.segments.values().map(|kept| kept.entry).collect();
        let bytes = entries.as_bytes().to_vec();
        let len = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        let key = core.log.keys().map(|keys| Arc::clone(&keys.current));
        let macs = if key.is_some() { 2 * meta::MAC_LEN } else { 0 };
        let body = meta::body_offset(1 + usize::from(key.is_some()));
        let pages = geometry.pages(len(body + bytes.len() + macs));
        let extent = match self.allot(core, pages) {
            Err(Error::NoSpace) => {
                let spare = self.table_spare.take_if(|spare| spare.page_count >= pages);
                spare.or_else(|| self.promise.table(pages)).ok_or(Error::NoSpace)?
            }
            result => result?,
        };
        let id = core.env.random_u64();
        let head = MetaHead {
            magic: U32::new(meta::MAGIC),
            kind: U16::new(meta::KIND_TABLE),
            section_count: U16::new(0),
            file_uuid_hi: U64::new(core.fixed.uuid.0),
            file_uuid_lo: U64::new(core.fixed.uuid.1),
            id: U64::new(id),
            count: U64::new(len(entries.len())),
            used: U64::new(0),
            seqno: U64::new(self.tail_seqno),
            page_count: U64::new(extent.page_count),
        };
        let page = meta_extent(
            geometry,
            0,
            head,
            vec![(meta::SECTION_TABLE, bytes.into())],
            key.as_deref(),
        );
        core.disk
            .write_at(geometry.paddr(extent.start_page), &page)
            .map_err(Error::io("write the segment table"))?;
        let key_no = key.map_or(0, |key| key.no);
        let old = self.table.replace(TablePlace { extent, id, key_no });
        let epoch = self.epoch + 1;
        self.retired.extend(old.map(|old| Retired {
            extent: old.extent,
            image: None,
            sealed: None,
            epoch,
        }));
        self.fresh.clear();
        self.is_table_stale = false;
        Ok(())
    }

    /// Writes the free-space map for the checkpoint that follows.
    fn write_free_map(&mut self, core: &Core) -> Result<()> {
        let geometry = core.geometry();
        let raw = Extent::new(self.space.high_water(), self.space.raw_pages());
        let mut space = self.space.clone();
        // What the checkpoint does not name is free to whoever opens the bucket next.
        let retired = self.retired.iter().map(|retired| retired.extent);
        for spare in self.table_spare.into_iter().chain(self.image_spare).chain(retired) {
            space.give_back(spare);
        }
        let free: Vec<FreeExtent> = space
            .iter()
            .chain(std::iter::once(raw).filter(|raw| raw.page_count > 0))
            .map(|extent| FreeExtent {
                start_page: U64::new(extent.start_page),
                page_count: U64::new(extent.page_count),
            })
            .collect();
        let stamp = free_map::Stamp { epoch: self.epoch + 1, uuid_lo: core.fixed.uuid.1 };
        let coverage = free_map::coverage(geometry.page_size);
        let needed = (self.b_page + 1).div_ceil(coverage).min(self.free_map.page_count);
        for index in 0..needed {
            let pageid = self.free_map.start_page + index;
            let page = free_map::encode(stamp, pageid, index * coverage, geometry.page_size, &free);
            match core.disk.write_at(geometry.paddr(pageid), &page) {
                // It is derived, and may never have had a block: without room for it there is none.
                Err(error) if is_full(&error) => return Ok(()),
                written => written.map_err(Error::io("write the free-space map"))?,
            }
        }
        Ok(())
    }
}
