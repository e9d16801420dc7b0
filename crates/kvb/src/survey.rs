//! A survey of a bucket's file: how it was made, and what every byte of it is for.
//!
//! Cost: grows with the number of segments, not with what is in them.

use std::collections::HashMap;

use host::Disk;

use crate::bucket::Bucket;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::extent::Extent;
use crate::format::index_page;
use crate::format::roster::{SEGMENT_GUARD, SEGMENT_MOVED};
use crate::format::superblock::{FLAG_INCREMENT, FLAG_NO_DIRECTORY, FLAG_SIPHASH, FLAG_ZSTD};
use crate::keeper::Keeper;
use crate::options::{Compression, HashKind};
use crate::reader::{Pinned, Reader};
use crate::ring::read_ring;
use crate::root::{Unlock, load_copy};
use crate::victims::dead_bytes;

/// How a bucket was made. None of it changes, but for the key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Bytes in a page.
    pub page_size: u64,
    /// Random since creation.
    pub uuid: u128,
    /// When it was made, in nanoseconds since 1970.
    pub created_unix_ns: u64,
    /// Which hash finds keys.
    pub hash: HashKind,
    /// Whether values are compressed.
    pub compression: Compression,
    /// Whether sealed segments have key directories.
    pub directories: bool,
    /// Id of the key it is encrypted with, if it is.
    pub key_id: Option<u64>,
    /// Id of the key before, which is needed too until a rotation gets to its end.
    pub old_key_id: Option<u64>,
    /// Longest value in bytes.
    pub max_value: u32,
    /// Largest ordinary segment in bytes.
    pub segment_bytes_max: u64,
    /// Pages of the journal ring.
    pub journal_pages: u64,
    /// Bytes that the index has at least.
    pub index_bytes_min: u64,
}

/// One of the two copies of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuperblockCopy {
    /// Where it stands.
    pub at: u64,
    /// Epoch and last commit, or what is wrong with it.
    pub state: std::result::Result<Checkpoint, String>,
}

/// What a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Checkpoint {
    /// How many checkpoints there were.
    pub epoch: u64,
    /// The last commit that was durable then.
    pub commit_seqno: u64,
    /// Where the log ended.
    pub commit_paddr: u64,
}

/// A segment: records, one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentFacts {
    /// Its id.
    pub seg_id: u64,
    /// Where it begins.
    pub at: u64,
    /// Bytes it takes, without its side data.
    pub len: u64,
    /// Bytes of its side data: run, filter, key directory. Not sealed yet, it has none.
    pub side_len: u64,
    /// How it came to be.
    pub kind: SegmentKind,
    /// Records in it, if it is sealed.
    pub records: Option<u64>,
    /// Bytes of those.
    pub record_bytes: u64,
    /// Bytes of records known to be dead.
    pub dead_bytes: u64,
    /// Lowest and highest seqno in it, if it is sealed.
    pub seqnos: Option<(u64, u64)>,
}

impl SegmentFacts {
    /// Share of its records that is live, as far as is known.
    #[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "a ratio")]
    pub fn live_ratio(&self) -> f64 {
        match self.record_bytes {
            0 => 0.0,
            all => all.saturating_sub(self.dead_bytes) as f64 / all as f64,
        }
    }
}

/// How a segment came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SegmentKind {
    /// Commits are written to it, or it waits to be sealed.
    Tail,
    /// Written by commits, and sealed.
    Log,
    /// Written by compaction.
    Moved,
    /// Written by compaction; its records hide older ones until those are free.
    Guard,
}

/// The index on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexFacts {
    /// Where its first page of slots stands.
    pub at: u64,
    /// Bytes of its pages.
    pub len: u64,
    /// Slots in all pages.
    pub slots: u64,
    /// Slots in use.
    pub used: u64,
    /// It knows the log up to this seqno; what is newer is in memory.
    pub seqno: u64,
}

/// The journal ring.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalFacts {
    /// Where it begins.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
    /// Entries that it has room for.
    pub capacity: u64,
    /// Entries that hold.
    pub entries: u64,
    /// Number of the entry that is written next.
    pub next: u64,
    /// The highest seqno it knows to be durable.
    pub durable_seqno: u64,
}

/// A stretch of the file with one use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Area {
    /// Where it begins.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
    /// Its use.
    pub kind: AreaKind,
}

/// What a stretch of the file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AreaKind {
    /// A copy of the superblock.
    Superblock,
    /// The free-space map.
    FreeMap,
    /// What a writer tells readers in other processes.
    Bulletin,
    /// The journal ring.
    Journal,
    /// Records.
    Segment(SegmentKind),
    /// Side data of a segment.
    Side,
    /// The index image.
    Index,
    /// The segment table.
    Table,
    /// Dictionaries of compressed values.
    Book,
    /// Kept ready for the log, or for outputs of compaction.
    Reserved,
    /// Given up, and not free yet: somebody may read it.
    Retired,
    /// Free.
    Free,
    /// Past the end of what was ever used.
    Unused,
}

/// What a bucket's file consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// How it was made.
    pub settings: Settings,
    /// Its length in bytes.
    pub file_bytes: u64,
    /// Epoch of the checkpoint that counts.
    pub epoch: u64,
    /// The last commit.
    pub commit_seqno: u64,
    /// A writer has it open.
    pub has_writer: bool,
    /// Only what changed since a backup; see [`crate::restore`].
    pub is_increment: bool,
    /// Both copies of the superblock.
    pub superblocks: Vec<SuperblockCopy>,
    /// The index on disk.
    pub index: IndexFacts,
    /// The journal ring.
    pub journal: JournalFacts,
    /// All segments, in the order of the file.
    pub segments: Vec<SegmentFacts>,
    /// The whole file, piece by piece.
    pub areas: Vec<Area>,
}

impl Survey {
    /// The area that a byte is in.
    pub fn area_of(&self, at: u64) -> Option<&Area> {
        let behind = self.areas.partition_point(|area| area.at <= at);
        let area = self.areas.get(behind.checked_sub(1)?)?;
        (at - area.at < area.len).then_some(area)
    }
}

impl Bucket {
    /// What the bucket's file consists of.
    pub fn survey(&self) -> Result<Survey> {
        self.core().survey()
    }
}

impl Reader {
    /// What the bucket's file consists of.
    pub fn survey(&self) -> Result<Survey> {
        let (_, survey) = self.survey_newest()?;
        Ok(Survey { has_writer: self.has_writer()?, ..survey })
    }

    /// The same, and the bucket as it was mounted for it. What is where changes with every checkpoint, so it is of the newest.
    pub(crate) fn survey_newest(&self) -> Result<(Pinned, Survey)> {
        self.newest(Core::survey)
    }
}

impl Core {
    pub(crate) fn survey(&self) -> Result<Survey> {
        // Held throughout, so that all of it is of one moment.
        let keeper = self.lock_keeper();
        let segments = self.segment_facts(&keeper);
        let geometry = self.geometry();
        let place = keeper.image;
        let slots = index_page::slots_per_page(geometry.page_size) * place.page_count();
        Ok(Survey {
            settings: self.settings(),
            file_bytes: geometry.paddr(keeper.b_page + 1),
            epoch: keeper.epoch,
            commit_seqno: self.position().seqno,
            has_writer: !self.mode.read_only,
            is_increment: self.fixed.flags & FLAG_INCREMENT != 0,
            superblocks: self.superblocks(&*self.disk, keeper.b_page)?,
            index: IndexFacts {
                at: geometry.paddr(place.first_page()),
                len: geometry.paddr(place.page_count()),
                slots,
                used: place.used,
                seqno: place.seqno,
            },
            journal: self.journal_facts(),
            areas: self.areas(&keeper, &segments),
            segments,
        })
    }

    fn settings(&self) -> Settings {
        let fixed = &self.fixed;
        let is = |flag: u64| fixed.flags & flag != 0;
        let keys = self.log.keys();
        Settings {
            page_size: fixed.geometry.page_size,
            uuid: u128::from(fixed.uuid.0) << 64 | u128::from(fixed.uuid.1),
            created_unix_ns: fixed.created_unix_ns,
            hash: if is(FLAG_SIPHASH) { HashKind::SipHash } else { HashKind::Xxh3 },
            compression: if is(FLAG_ZSTD) { Compression::Zstd } else { Compression::None },
            directories: !is(FLAG_NO_DIRECTORY),
            key_id: keys.as_ref().map(|keys| keys.current.id),
            old_key_id: keys.as_ref().and_then(|keys| keys.old.as_ref()).map(|old| old.id),
            max_value: fixed.max_value,
            segment_bytes_max: fixed.geometry.paddr(fixed.segment_page_max),
            journal_pages: fixed.journal_page_count,
            index_bytes_min: fixed.geometry.paddr(fixed.index_page_min),
        }
    }

    fn superblocks(&self, disk: &dyn Disk, b_page: u64) -> Result<Vec<SuperblockCopy>> {
        let keys = self.log.keys();
        let unlock = keys.as_deref().map_or(Unlock::With(None), Unlock::Known);
        let len = disk.len().map_err(Error::io("read the bucket's length"))?;
        let copy = |page: u64| {
            let at = self.geometry().paddr(page);
            let state = load_copy(disk, len, at, unlock).map(|root| Checkpoint {
                epoch: root.superblock.epoch.get(),
                commit_seqno: root.superblock.commit_seqno.get(),
                commit_paddr: root.superblock.commit_paddr.get(),
            });
            SuperblockCopy { at, state }
        };
        Ok([0, b_page].into_iter().map(copy).collect())
    }

    fn journal_facts(&self) -> JournalFacts {
        let fixed = &self.fixed;
        let (start, count) = (fixed.journal_start_page, fixed.journal_page_count);
        let report = read_ring(&self.log, fixed.geometry, start, count, fixed.uuid);
        let per_page = crate::format::journal::entries_per_page(fixed.geometry.page_size);
        JournalFacts {
            at: fixed.geometry.paddr(start),
            len: fixed.geometry.paddr(count),
            capacity: per_page * count,
            entries: report.entries,
            next: report.next % (per_page * count).max(1),
            durable_seqno: report.durable_seqno,
        }
    }

    fn segment_facts(&self, keeper: &Keeper) -> Vec<SegmentFacts> {
        let geometry = self.geometry();
        let wall = self.env.unix_ns();
        let mut facts: Vec<SegmentFacts> = Vec::new();
        for kept in keeper.segments.values() {
            let entry = &kept.entry;
            let kind = match entry.flags.get() {
                flags if flags & SEGMENT_GUARD != 0 => SegmentKind::Guard,
                flags if flags & SEGMENT_MOVED != 0 => SegmentKind::Moved,
                _ => SegmentKind::Log,
            };
            facts.push(SegmentFacts {
                seg_id: entry.seg_id.get(),
                at: geometry.paddr(entry.start_page.get()),
                len: geometry.paddr(entry.data_page_count.get().into()),
                side_len: geometry.paddr(entry.meta_page_count.get().into()),
                kind,
                records: Some(entry.record_count.get().into()),
                record_bytes: entry.record_bytes.get(),
                dead_bytes: dead_bytes(entry, wall),
                seqnos: Some((entry.base_seqno.get(), entry.last_seqno.get())),
            });
        }
        let named: HashMap<u64, u64> = keeper
            .named
            .iter()
            .map(|one| (one.start_page.get(), u64::from(one.page_count.get())))
            .collect();
        let view = self.view.load();
        for unsealed in &view.segments.tail {
            let page = geometry.page(unsealed.start);
            // Sealed since the view was made.
            if keeper.segments.contains_key(&page) {
                continue;
            }
            let written = geometry.pages(unsealed.record_bytes());
            facts.push(SegmentFacts {
                seg_id: unsealed.seg_id,
                at: unsealed.start,
                len: geometry.paddr(named.get(&page).copied().unwrap_or(written).max(1)),
                side_len: 0,
                kind: SegmentKind::Tail,
                records: None,
                record_bytes: unsealed.record_bytes(),
                dead_bytes: 0,
                seqnos: None,
            });
        }
        facts.sort_by_key(|facts| facts.at);
        facts
    }

    /// The whole file. What two claim is the first one's; what nobody claims is free.
    fn areas(&self, keeper: &Keeper, segments: &[SegmentFacts]) -> Vec<Area> {
        let geometry = self.geometry();
        let fixed = &self.fixed;
        let mut pieces: Vec<(Extent, AreaKind)> = Vec::new();
        for facts in segments {
            let data = Extent::new(geometry.page(facts.at), geometry.pages(facts.len));
            pieces.push((data, AreaKind::Segment(facts.kind)));
            let side = Extent::new(data.end_page(), geometry.pages(facts.side_len));
            pieces.push((side, AreaKind::Side));
        }
        pieces.push((keeper.image.extent, AreaKind::Index));
        pieces.extend(keeper.table.map(|table| (table.extent, AreaKind::Table)));
        pieces.extend(keeper.book.map(|book| (book.extent, AreaKind::Book)));
        let mut map = keeper.free_map;
        if map.start_page >= fixed.segment_start_page {
            // With the page of its header.
            map = Extent::new(map.start_page - 1, map.page_count + 1);
        }
        pieces.push((map, AreaKind::FreeMap));
        pieces.push((Extent::new(0, 1), AreaKind::Superblock));
        pieces.push((Extent::new(keeper.b_page, 1), AreaKind::Superblock));
        pieces.push((Extent::new(fixed.bulletin_page, 1), AreaKind::Bulletin));
        let ring = Extent::new(fixed.journal_start_page, fixed.journal_page_count);
        pieces.push((ring, AreaKind::Journal));
        let named = keeper.named.iter().map(crate::mount::named_extent);
        let spare = keeper.table_spare.into_iter().chain(keeper.image_spare);
        pieces.extend(named.chain(spare).map(|extent| (extent, AreaKind::Reserved)));
        pieces.extend(keeper.retired.iter().map(|retired| (retired.extent, AreaKind::Retired)));
        let raw = Extent::new(keeper.space.high_water(), keeper.space.raw_pages());
        pieces.push((raw, AreaKind::Unused));
        let end = keeper.b_page + 1;
        // Stable: what was pushed first of one start comes first.
        pieces.retain(|(extent, _)| extent.page_count > 0);
        pieces.sort_by_key(|(extent, _)| extent.start_page);
        let mut areas: Vec<Area> = Vec::new();
        let mut push = |from: u64, to: u64, kind: AreaKind| {
            if from < to {
                let (at, len) = (geometry.paddr(from), geometry.paddr(to - from));
                areas.push(Area { at, len, kind });
            }
        };
        // A map that moved away leaves a page behind that nobody uses.
        let gap = |page: u64| match page < fixed.segment_start_page {
            true => AreaKind::Unused,
            false => AreaKind::Free,
        };
        let mut page = 0;
        for (extent, kind) in pieces {
            let (from, to) = (extent.start_page.max(page), extent.end_page().min(end));
            push(page, from.min(end), gap(page));
            push(from, to, kind);
            page = page.max(from).max(to);
        }
        push(page, end, gap(page));
        areas
    }
}
