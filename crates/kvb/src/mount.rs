//! Mounting: from a file to an open bucket, whatever the last writer left (seed 002 section 20).
//!
//! Choose a superblock, load the table of segments, find the image, bring it up to date with the runs of segments
//! sealed since, walk the tail, cut it at the last complete batch. A writer then makes the cut physical, leaves a
//! gap in the seqnos, and writes a checkpoint; all of that can be repeated after a crash in it. A reader does the
//! same in memory and writes nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::{Disk, Env};
use zerocopy::IntoBytes;

use crate::assemble::assemble;
use crate::book::{self, BookPlace};
use crate::bulletin::Bulletin;
use crate::clock::Stamps;
use crate::core::{Core, Fixed, Position};
use crate::error::{Corrupt, Error, Result, What};
use crate::extent::{Extent, Geometry};
use crate::format::index_page::slots_per_page;
use crate::format::meta::{self, Meta};
use crate::format::roster::{NAMED_LOG, NamedExtent, SEGMENT_FLAGS, SegmentEntry};
use crate::format::segment::{Kind, SegmentHeader};
use crate::format::superblock::FLAG_INCREMENT;
use crate::hash::HashKey;
use crate::image::ImagePlace;
use crate::keeper::TablePlace;
use crate::log::Log;
use crate::options::Options;
use crate::recover::recover;
use crate::ring::{RingReport, read_ring};
use crate::root::{Root, SEQNO_LIMIT, Unlock, choose_steadily};
use crate::runs::Run;
use crate::tail::{self, Tail};
use crate::unsealed::Unsealed;
use crate::vault::Vault;
use crate::walk::rebuild_table;

/// The smallest record: a header and a CRC.
const RECORD_MIN: u64 = 48;

/// What opening a bucket found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountReport {
    /// Epoch of the superblock that counted.
    pub epoch: u64,
    /// The page it stood in.
    pub superblock_page: u64,
    /// Registered segments.
    pub segments: u64,
    /// Segments newer than the index image, whose runs were applied.
    pub runs: u64,
    /// Records walked in the tail.
    pub records_scanned: u64,
    /// Bytes of records walked in the tail.
    pub bytes_scanned: u64,
    /// Records that were whole but belonged to no complete batch, and were cut.
    pub records_discarded: u64,
    /// Entries of the journal ring that held.
    pub journal_entries: u64,
    /// The segment table was lost and rebuilt by walking the segments.
    pub table_rebuilt: bool,
    /// The index image was lost and is rebuilt from the log.
    pub index_rebuilt: bool,
    /// Runs that were lost; their segments were read instead.
    pub runs_rebuilt: u64,
    /// Damage in records that were durable. Only a read-only bucket opens in spite of it.
    pub damage: Option<Corrupt>,
}

/// What a bucket is mounted for.
#[derive(Clone, Copy)]
pub(crate) enum MountAs<'a> {
    /// To write. The caller has the lock.
    Writer,
    /// To read, with no writer there.
    Reader,
    /// To read beside a writer, which has published up to the seqno that this tells.
    Beside(&'a dyn Fn() -> u64),
}

/// Opens the bucket on a disk.
pub(crate) fn mount(
    disk: Arc<dyn Disk>,
    env: Arc<dyn Env>,
    options: &Options,
    purpose: MountAs<'_>,
) -> Result<(Core, MountReport)> {
    let (root, file_len) = choose_steadily(&*disk, Unlock::With(options.keys.as_deref()))?;
    if root.locked.is_none() && options.keys.is_some() {
        // Whoever gives keys expects that nobody without them has written here.
        return Err(Error::Invalid("keys were given, and the bucket is not encrypted"));
    }
    let is_taken = options.takes_increments && !matches!(purpose, MountAs::Writer);
    if root.superblock.flags.get() & FLAG_INCREMENT != 0 && !is_taken {
        return Err(Error::Invalid(
            "the file has only what changed since a backup; restore it together with that",
        ));
    }
    let vault = root.locked.as_ref().map(|(_, keys)| Vault::new(keys.clone()));
    let log = Log::new(Arc::clone(&disk), file_len, vault)?;
    let mut report = MountReport {
        epoch: root.superblock.epoch.get(),
        superblock_page: root.extension.self_page.get(),
        ..MountReport::default()
    };
    let fixed = fixed(&root);
    let read_only = !matches!(purpose, MountAs::Writer);
    // Order: readers must know before anything changes.
    let bulletin = match purpose {
        MountAs::Writer => Some(Bulletin::take_over(&disk, &fixed)?),
        _ => None,
    };
    // Order: behind the superblock, so that what that registers is published.
    let limit = match purpose {
        MountAs::Beside(published) => published(),
        _ => u64::MAX,
    };
    let segments = load_segments(&log, &fixed, &root, &mut report)?;
    let book = book::place(&log, fixed.geometry, &root);
    if book.is_none() && root.extension.book_start_page.get() != 0 && !read_only {
        // Nobody knows where it ends, so what is behind it may not be written to.
        let page = root.extension.book_start_page.get();
        let at = page.saturating_mul(fixed.geometry.page_size);
        return Err(Error::corrupt(What::Dictionary, at));
    }
    check_extents(&fixed, &root, &segments, book)?;
    let next_seg_id = root.extension.next_seg_id.get();
    if !read_only && segments.iter().any(|entry| entry.seg_id.get() >= next_seg_id) {
        // The next id might not be new, and compaction would write what the index seems to know already.
        let at = fixed.geometry.paddr(root.extension.self_page.get());
        return Err(Error::corrupt(What::Region, at));
    }
    let image = load_image(&log, &fixed, &root, &mut report);
    let ring = read_ring(
        &log,
        fixed.geometry,
        fixed.journal_start_page,
        fixed.journal_page_count,
        fixed.uuid,
    );
    report.journal_entries = ring.entries;
    let mut stamps = Stamps::seen_at(env.unix_ns());
    stamps.note(root.extension.clock_unix_ns.get());
    let tail_seqno = root.extension.tail_seqno.get();
    let mut tail = tail::scan(&log, &fixed, &root.roster.named, tail_seqno, limit, stamps);
    for segment in &mut tail.segments {
        let start = fixed.geometry.paddr(segment.extent.start_page);
        segment.unsealed =
            Some(Arc::new(Unsealed::new(segment.seg_id, start, segment.header_len(), segment.len)));
    }
    report.records_scanned = tail.scanned;
    report.bytes_scanned = tail.bytes;
    report.records_discarded = tail.discarded;

    // Torn is not rotten: what was known durable must be there.
    let durable_seqno = root.extension.durable_seqno.get().max(ring.durable_seqno).min(limit);
    if tail.next_seqno <= durable_seqno {
        let damage = Corrupt { what: What::Record, at: tail.stopped_at };
        if !read_only {
            return Err(damage.into());
        }
        report.damage = Some(damage);
    }
    let (segments, aborted) = split_aborted(&log, &fixed, &root, segments, &tail);
    report.segments = u64::try_from(segments.len()).unwrap_or(u64::MAX);
    let is_table_sound = !report.table_rebuilt;
    let parts = Parts {
        fixed,
        root,
        segments,
        aborted,
        tail,
        ring,
        image,
        book,
        durable_seqno,
        is_table_sound,
    };
    let core = assemble(disk, env, options, bulletin, log, &parts, &mut report)?;
    if let Some(bulletin) = &core.bulletin {
        let result = recover(&core, &parts);
        core.latch(result)?;
        let published = core.published.load(Ordering::Acquire);
        bulletin.begin(core.env.random_u64(), published, core.view.load().image.place.id);
    }
    Ok((core, report))
}

/// What was found, before anything is built of it.
pub(crate) struct Parts {
    pub(crate) fixed: Fixed,
    pub(crate) root: Root,
    pub(crate) segments: Vec<SegmentEntry>,
    /// Registered pieces of a batch that was never completed.
    pub(crate) aborted: Vec<SegmentEntry>,
    pub(crate) tail: Tail,
    pub(crate) ring: RingReport,
    pub(crate) image: Option<ImagePlace>,
    pub(crate) book: Option<BookPlace>,
    pub(crate) durable_seqno: u64,
    pub(crate) is_table_sound: bool,
}

impl Parts {
    /// The end of what is committed.
    pub(crate) fn position(&self) -> Position {
        let superblock = &self.root.superblock;
        let geometry = self.fixed.geometry;
        if let Some(last) = self.tail.segments.last() {
            return Position { seqno: last.last_seqno(), paddr: last.end_paddr(geometry) };
        }
        let registered = self.segments.iter().max_by_key(|entry| entry.last_seqno.get());
        match registered {
            Some(last) if last.last_seqno.get() > superblock.commit_seqno.get() => Position {
                seqno: last.last_seqno.get(),
                paddr: geometry
                    .paddr(last.start_page.get() + u64::from(last.data_page_count.get())),
            },
            _ => Position {
                seqno: superblock.commit_seqno.get(),
                paddr: superblock.commit_paddr.get(),
            },
        }
    }

    /// A seqno above every one that may ever have been given out. Records that were are in the named extents, so what
    /// those could hold bounds how far the last writer got.
    pub(crate) fn next_seqno(&self) -> u64 {
        let geometry = self.fixed.geometry;
        let named = self.root.roster.named.iter().filter(|named| named.kind.get() == NAMED_LOG);
        let room: u64 = named.map(|extent| geometry.paddr(extent.page_count.get().into())).sum();
        self.tail.next_seqno.max(self.durable_seqno + 1) + room / RECORD_MIN + 1
    }
}

pub(crate) fn fixed(root: &Root) -> Fixed {
    let (superblock, extension) = (&root.superblock, &root.extension);
    Fixed {
        geometry: Geometry { page_size: u64::from(superblock.page_size.get()) },
        uuid: (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get()),
        created_unix_ns: superblock.created_unix_ns.get(),
        flags: superblock.flags.get(),
        hash_key: HashKey(match &root.locked {
            Some((_, keys)) => keys.current.wrap_hash_key(extension.hash_key),
            None => extension.hash_key,
        }),
        hash_kind: extension.hash_kind.get(),
        max_value: extension.max_value.get(),
        segment_page_max: u64::from(extension.segment_page_max.get()),
        index_page_min: extension.index_page_min.get(),
        journal_start_page: superblock.journal_start_page.get(),
        journal_page_count: superblock.journal_page_count.get(),
        segment_start_page: superblock.segment_start_page.get(),
        bulletin_page: extension.bulletin_page.get(),
    }
}

/// The table of registered segments: what is on disk, and what was sealed since.
fn load_segments(
    log: &Log,
    fixed: &Fixed,
    root: &Root,
    report: &mut MountReport,
) -> Result<Vec<SegmentEntry>> {
    let mut segments = Vec::new();
    if root.extension.table_start_page.get() != 0 {
        match load_table(log, fixed, root) {
            Some(table) => segments = table,
            // Headers are under no MAC: whoever can write to the file could bring segments back, or take them away.
            None if fixed.is_encrypted() => {
                let at = fixed.geometry.paddr(root.extension.table_start_page.get());
                return Err(Error::corrupt(What::Table, at));
            }
            None => {
                tracing::warn!("the segment table is damaged; walking the segments");
                report.table_rebuilt = true;
                return rebuild_table(log, fixed, root);
            }
        }
    }
    segments.extend_from_slice(&root.roster.sealed);
    if let Some(vault) = log.vault() {
        let geometry = fixed.geometry;
        vault.admit_all(segments.iter().map(|entry| {
            let start = geometry.paddr(entry.start_page.get());
            let end = start.saturating_add(geometry.paddr(entry.data_page_count.get().into()));
            (start, end, entry.seg_id.get())
        }));
    }
    Ok(segments)
}

pub(crate) fn load_table(log: &Log, fixed: &Fixed, root: &Root) -> Option<Vec<SegmentEntry>> {
    let extent = table_place(root)?.extent;
    let len = usize::try_from(extent.page_count.checked_mul(fixed.geometry.page_size)?).ok()?;
    let at = extent.start_page.checked_mul(fixed.geometry.page_size)?;
    let bytes = log.bytes(at, len)?;
    let meta = Meta::decode(bytes, meta::KIND_TABLE, fixed.uuid)?;
    let section = meta.section(meta::SECTION_TABLE)?;
    let offset = usize::try_from(section.offset.get()).ok()?;
    let body =
        bytes.get(offset..offset.checked_add(usize::try_from(section.length.get()).ok()?)?)?;
    let entries: Vec<SegmentEntry> =
        body.chunks_exact(SegmentEntry::SIZE).filter_map(crate::format::read).collect();
    if let Some((block, keys)) = &root.locked {
        let key = keys.of(block.table_key_no.get())?;
        let macs = macs_of(&meta, bytes)?;
        let is_own = key.vouches(&meta, macs, 0, meta.head.as_bytes())
            && key.vouches(&meta, macs, meta::SECTION_TABLE, body);
        if !is_own {
            return None;
        }
    }
    let sound = meta.head.id.get() == root.extension.table_id.get()
        && crate::format::crc(body) == section.crc32c.get()
        && u64::try_from(entries.len()).ok()? == meta.head.count.get()
        && entries.iter().all(|entry| entry.flags.get() & !SEGMENT_FLAGS == 0);
    sound.then_some(entries)
}

/// The MACs in an extent of derived data.
fn macs_of<'a>(meta: &Meta, extent: &'a [u8]) -> Option<&'a [u8]> {
    let section = meta.section(meta::SECTION_MAC)?;
    let offset = usize::try_from(section.offset.get()).ok()?;
    let len = usize::try_from(section.length.get()).ok()?;
    extent.get(offset..offset.checked_add(len)?)
}

pub(crate) fn table_place(root: &Root) -> Option<TablePlace> {
    let extension = &root.extension;
    let start_page = extension.table_start_page.get();
    (start_page != 0).then(|| TablePlace {
        extent: Extent::new(start_page, extension.table_page_count.get()),
        id: extension.table_id.get(),
        key_no: root.locked.as_ref().map_or(0, |(block, _)| block.table_key_no.get()),
    })
}

pub(crate) fn segment_extent(entry: &SegmentEntry) -> Extent {
    let pages = u64::from(entry.data_page_count.get()) + u64::from(entry.meta_page_count.get());
    Extent::new(entry.start_page.get(), pages)
}

pub(crate) fn named_extent(named: &NamedExtent) -> Extent {
    Extent::new(named.start_page.get(), u64::from(named.page_count.get()))
}

/// Every extent must lie in the segment region and hold what it is said to, no two may overlap, and seqnos must make sense.
fn check_extents(
    fixed: &Fixed,
    root: &Root,
    segments: &[SegmentEntry],
    book: Option<BookPlace>,
) -> Result<()> {
    let at = fixed.geometry.paddr(root.extension.self_page.get());
    let (from, to) = (fixed.segment_start_page, root.superblock.segment_end_page.get());
    let mut extents: Vec<Extent> = segments.iter().map(segment_extent).collect();
    extents.extend(root.roster.named.iter().map(named_extent));
    extents.extend(table_place(root).map(|table| table.extent));
    extents.extend(book.map(|book| book.extent));
    let image_page = root.superblock.index_region_start_page.get();
    let image_count = root.superblock.index_region_page_count.get();
    let image = image_page.checked_sub(1).zip(image_count.checked_add(1));
    let image = image.map(|(start, count)| Extent::new(start, count));
    extents.extend(image.filter(|image| image.check_within(from, to, at).is_ok()));
    let map_page = root.superblock.fsm_start_page.get();
    if map_page >= from {
        extents.push(Extent::new(map_page - 1, root.superblock.fsm_page_count.get() + 1));
    }
    for extent in &extents {
        extent.check_within(from, to, at)?;
    }
    extents.sort_unstable();
    let overlaps =
        extents.windows(2).any(|pair| matches!(pair, [a, b] if a.end_page() > b.start_page));
    let is_sane = |entry: &SegmentEntry| {
        entry.base_seqno.get() <= entry.last_seqno.get()
            && entry.last_seqno.get() < SEQNO_LIMIT
            && entry.record_bytes.get() <= fixed.geometry.paddr(entry.data_page_count.get().into())
    };
    if overlaps || !segments.iter().all(is_sane) {
        return Err(Error::corrupt(What::Region, at));
    }
    Ok(())
}

/// The image's head, if it is the one the superblock means.
pub(crate) fn load_image(
    log: &Log,
    fixed: &Fixed,
    root: &Root,
    report: &mut MountReport,
) -> Option<ImagePlace> {
    let superblock = &root.superblock;
    let geometry = fixed.geometry;
    let first_page = superblock.index_region_start_page.get();
    let page_count = superblock.index_region_page_count.get();
    let place = || {
        let extent = Extent::new(first_page.checked_sub(1)?, page_count.checked_add(1)?);
        let end = superblock.segment_end_page.get();
        extent.check_within(fixed.segment_start_page, end, 0).ok()?;
        let page = log.bytes(geometry.paddr(extent.start_page), geometry.page_len())?;
        SegmentHeader::decode(page).filter(|header| header.kind() == Some(Kind::Meta))?;
        let meta = Meta::decode(page, meta::KIND_IMAGE, fixed.uuid)?;
        if let Some((block, keys)) = &root.locked {
            let key = keys.of(block.image_key_no.get())?;
            let is_own = key.vouches(&meta, macs_of(&meta, page)?, 0, meta.head.as_bytes());
            is_own.then_some(())?;
        }
        let head = meta.head;
        let sound = head.id == root.extension.image_id
            && head.count.get() == page_count
            && head.seqno == root.extension.image_seqno
            && page_count.is_power_of_two()
            && head.used.get() <= page_count * slots_per_page(geometry.page_size);
        sound.then(|| ImagePlace {
            extent,
            id: head.id.get(),
            used: head.used.get(),
            seqno: head.seqno.get(),
            seg_id: root.extension.image_seg_id.get(),
            key_no: root.locked.as_ref().map_or(0, |(block, _)| block.image_key_no.get()),
        })
    };
    let place = place();
    report.index_rebuilt = place.is_none();
    place
}

/// Separates registered pieces of a batch that was never completed: those behind the last commit, unless their last
/// record or the tail completes them.
fn split_aborted(
    log: &Log,
    fixed: &Fixed,
    root: &Root,
    mut segments: Vec<SegmentEntry>,
    tail: &Tail,
) -> (Vec<SegmentEntry>, Vec<SegmentEntry>) {
    segments.sort_by_key(|entry| entry.base_seqno.get());
    let commit_seqno = root.superblock.commit_seqno.get();
    let is_pending = |entry: &SegmentEntry| entry.last_seqno.get() > commit_seqno;
    if !tail.segments.is_empty() || !segments.iter().any(is_pending) {
        return (segments, Vec::new());
    }
    let is_complete = |entry: &SegmentEntry| {
        let run = Run::load(log, fixed.geometry, fixed.uuid, entry)?;
        let last = (0..run.count)
            .filter_map(|index| run.entry(log, index))
            .max_by_key(|entry| entry.seqno_delta.get())?;
        Some(log.record(run.paddr(&last)).ok()?.header.is_commit())
    };
    let kept = segments
        .iter()
        .rposition(|entry| !is_pending(entry) || is_complete(entry).unwrap_or(false))
        .map_or(0, |at| at + 1);
    let aborted = segments.split_off(kept);
    (segments, aborted)
}
