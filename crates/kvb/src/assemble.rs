//! From what mounting found to an open bucket in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use arc_swap::ArcSwap;
use host::{Disk, Env};

use crate::ahead::Pace;
use crate::book;
use crate::bulletin::Bulletin;
use crate::clock::Clock;
use crate::codec::Codec;
use crate::core::{Core, Mode, Supply};
use crate::error::{Error, Result};
use crate::extent::{Extent, Geometry};
use crate::format::roster::{SEGMENT_MOVED, SegmentEntry};
use crate::format::superblock::FLAG_ZSTD;
use crate::image::Image;
use crate::keeper::{DEAD_MAX_MIN, Keeper, Kept};
use crate::late_run::LateRun;
use crate::log::Log;
use crate::mount::{MountReport, Parts, named_extent, segment_extent, table_place};
use crate::options::Options;
use crate::overlay::Overlay;
use crate::page_set::PageSet;
use crate::promise::Promise;
use crate::queue::Queue;
use crate::ring::Ring;
use crate::sealed::{Hold, Sealed};
use crate::segment::Segment;
use crate::snapshot::Snapshots;
use crate::space::Space;
use crate::squeeze;
use crate::stats::Counters;
use crate::throttle::Throttle;
use crate::tidy::Tidy;
use crate::view::{Segments, View};
use crate::walk::rescan;
use crate::warm::Warm;
use crate::writer::Writer;

/// Runs with more entries than this in all are probed where they lie and folded in later, so that opening stays
/// quick.
const LOAD_MAX: usize = 32 << 10;

/// Builds the bucket.
pub(crate) fn assemble(
    disk: Arc<dyn Disk>,
    env: Arc<dyn Env>,
    options: &Options,
    bulletin: Option<Bulletin>,
    log: Log,
    parts: &Parts,
    report: &mut MountReport,
) -> Result<Core> {
    let fixed = parts.fixed.clone();
    let read_only = bulletin.is_none();
    let geometry = fixed.geometry;
    let clock = Clock::new(Arc::clone(&env), parts.tail.stamps);
    let sealed: Vec<Arc<Sealed>> = parts
        .segments
        .iter()
        .map(|entry| Arc::new(Sealed::new(*entry, Hold::default(), 0)))
        .collect();
    let mut load_max = LOAD_MAX;
    let view = loop {
        match build_view(&log, &env, parts, &sealed, read_only, load_max, report) {
            // Loading a run compares records where there are several of one hash. Whoever only reads can do without that, and learns of a
            // damaged one when it is asked for.
            Err(Error::Corrupt(_)) if read_only && load_max > 0 => load_max = 0,
            view => break view?,
        }
    };
    let has_runs = !view.runs.is_empty();
    let tail_damage = report.damage.filter(|_| !options.despite_damage);
    let position = parts.position();
    let hash = fixed.hash();
    let session_salt = if fixed.is_encrypted() { random_salt(&*env) } else { [0; 16] };
    let ring =
        Ring::new(geometry, fixed.journal_start_page, fixed.journal_page_count, parts.ring.next);
    Ok(Core {
        disk,
        env,
        mode: Mode {
            durability: options.durability,
            background: options.background,
            overlay_min: options.overlay_min,
            slack: options.slack,
            read_only,
            tail_damage,
            durable_seqno: parts.durable_seqno,
        },
        bulletin,
        hash,
        codec: codec(&log, parts, options, read_only)?,
        session_salt,
        keys: options.keys.clone(),
        log,
        clock,
        view: ArcSwap::from_pointee(view),
        view_change: Mutex::new(()),
        published: crate::sync::AtomicU64::new(position.seqno),
        position: Mutex::new(position),
        moved_seg_id: AtomicU64::new(moved_seg_id(parts)),
        compacting: Mutex::new(()),
        compaction_asked: AtomicUsize::new(0),
        stop_compacting: AtomicBool::new(false),
        compact_due: Mutex::new(false),
        compact_changed: Condvar::new(),
        moving: Mutex::new(()),
        is_moving: AtomicBool::new(false),
        freeze_wanted: AtomicBool::new(false),
        merge_again_at: AtomicUsize::new(0),
        tidy: Tidy::default(),
        copied_bytes: AtomicU64::new(0),
        rebuilds: AtomicU64::new(0),
        throttle: Throttle::default(),
        pace: Pace::default(),
        group_bytes: AtomicU64::new(0),
        dead_max: AtomicU64::new(DEAD_MAX_MIN),
        unreadable: Mutex::default(),
        snapshots: Mutex::new(Snapshots::default()),
        queue: Queue::default(),
        writer: Mutex::new(writer(parts, ring, read_only)),
        keeper: Mutex::new(keeper(parts, &sealed, read_only)),
        supply: Mutex::new(Supply::default()),
        supply_changed: Condvar::new(),
        merging: Mutex::new(()),
        merge_due: Mutex::new(has_runs),
        merge_changed: Condvar::new(),
        index_bad: AtomicBool::new(false),
        stopped: AtomicBool::new(false),
        stop_reason: OnceLock::new(),
        counters: Counters::default(),
        fixed,
    })
}

/// Sixteen random bytes.
pub(crate) fn random_salt(env: &dyn Env) -> [u8; 16] {
    let wide = u128::from(env.random_u64()) << 64 | u128::from(env.random_u64());
    wide.to_le_bytes()
}

fn codec(log: &Log, parts: &Parts, options: &Options, is_read_only: bool) -> Result<Codec> {
    let fixed = &parts.fixed;
    let is_compressed = fixed.flags & FLAG_ZSTD != 0;
    if is_compressed && !squeeze::IS_AVAILABLE {
        return Err(Error::Invalid(
            "the bucket has compressed values, and this build cannot read them: its feature `zstd` is off",
        ));
    }
    let level = is_compressed.then_some(options.compression_level);
    let codec = Codec::new(level, options.compression_min, fixed.max_value);
    if let Some(book) = parts.book {
        match book::read(log, fixed, book, options.compression_level) {
            Ok(dictionaries) => codec.set_dictionaries(dictionaries),
            // What needs none can still be read.
            Err(_) if is_read_only => {}
            Err(error) => return Err(error),
        }
    }
    Ok(codec)
}

/// Every moved record that is registered is in the image or gets into the overlay before it is frozen.
fn moved_seg_id(parts: &Parts) -> u64 {
    let moved = parts.segments.iter().filter(|entry| entry.flags.get() & SEGMENT_MOVED != 0);
    let newest = moved.map(|entry| entry.seg_id.get()).max();
    newest.unwrap_or(0).max(parts.root.extension.image_seg_id.get())
}

/// A writer begins a new segment behind a gap; a reader goes on where the tail ends.
fn writer(parts: &Parts, ring: Ring, read_only: bool) -> Writer {
    if !read_only {
        return Writer::new(parts.next_seqno(), ring);
    }
    let last = parts.tail.segments.last();
    // Pieces of a batch that are left out are those of one that somebody may be writing: once it is published, the way to go on is lost
    // without them, and the bucket is mounted again.
    let left_out = parts.aborted.first().map(|first| first.base_seqno.get());
    let next_seqno = match last {
        Some(last) => last.last_seqno() + 1,
        None => left_out.unwrap_or(parts.root.extension.tail_seqno.get()),
    };
    let mut writer = Writer::new(next_seqno, ring);
    writer.active = last.cloned();
    writer
}

fn keeper(parts: &Parts, sealed: &[Arc<Sealed>], is_read_only: bool) -> Keeper {
    let superblock = &parts.root.superblock;
    let b_page = parts.root.extension.b_page.get();
    let free_map = Extent::new(superblock.fsm_start_page.get(), superblock.fsm_page_count.get());
    let table = table_place(&parts.root).filter(|_| parts.is_table_sound);
    let mut used: Vec<Extent> = parts.segments.iter().map(segment_extent).collect();
    used.extend(parts.root.roster.named.iter().map(named_extent));
    used.extend(parts.aborted.iter().map(segment_extent));
    used.extend(parts.image.map(|image| image.extent));
    used.extend(table.map(|table| table.extent));
    used.extend(parts.book.map(|book| book.extent));
    if free_map.start_page >= parts.fixed.segment_start_page {
        used.push(Extent::new(free_map.start_page - 1, free_map.page_count + 1));
    }
    let high_water = superblock.segment_end_page.get();
    let in_table = |entry: &&SegmentEntry| {
        table.is_some()
            && !parts.root.roster.sealed.iter().any(|fresh| fresh.seg_id == entry.seg_id)
    };
    let fresh = parts.segments.iter().filter(|entry| !in_table(entry));
    let kept = |sealed: &Arc<Sealed>| {
        let entry = sealed.entry;
        (entry.start_page.get(), Kept { entry, sealed: Arc::clone(sealed) })
    };
    Keeper {
        epoch: superblock.epoch.get(),
        b_page,
        space: Space::complement(parts.fixed.segment_start_page, high_water, b_page, &mut used),
        segments: sealed.iter().map(kept).collect(),
        fresh: fresh.map(|entry| entry.start_page.get()).collect(),
        table,
        table_spare: None,
        promise: Promise::default(),
        image_spare: None,
        is_spare_taken: false,
        warm: Warm::default(),
        raw_warm_end: 0,
        is_raw_warm: true,
        is_table_stale: false,
        named: parts.root.roster.named.clone(),
        next_seg_id: parts.root.extension.next_seg_id.get(),
        tail_seqno: parts.root.extension.tail_seqno.get(),
        image: parts.image.unwrap_or(Image::void(parts.fixed.geometry).place),
        image_gone: parts.root.extension.image_gone.get(),
        // Whoever opens it for writing makes it a bucket of its own.
        lineage: parts.root.lineage.filter(|_| is_read_only),
        book: parts.book,
        dropped_seqno: parts.root.extension.dropped_seqno.get(),
        free_map,
        retired: Vec::new(),
        damaged: None,
        dead_early: HashMap::new(),
    }
}

/// The index as of the last commit: image, then runs of what it does not cover, then the tail. Runs of no more than `load_max` records
/// in all are loaded.
fn build_view(
    log: &Log,
    env: &Arc<dyn Env>,
    parts: &Parts,
    sealed: &[Arc<Sealed>],
    read_only: bool,
    load_max: usize,
    report: &mut MountReport,
) -> Result<View> {
    let geometry = parts.fixed.geometry;
    let image = match parts.image {
        Some(place) => Image::new(place, geometry),
        None => Image::void(geometry),
    };
    let image_seqno = image.place.seqno;
    let newer: Vec<&Arc<Sealed>> = sealed.iter().filter(|sealed| !image.covers(sealed)).collect();
    let count = |sealed: &&Arc<Sealed>| usize::try_from(sealed.entry.record_count.get());
    let in_runs: usize = newer.iter().filter_map(|sealed| count(sealed).ok()).sum();
    let is_late =
        |sealed: &Arc<Sealed>| in_runs > load_max || sealed.run(log, &parts.fixed).is_some();
    let mut layers = Vec::new();
    for sealed in &newer {
        layers.push(if is_late(sealed) {
            Layer::Run(LateRun::new(&parts.fixed, sealed))
        } else {
            report.runs_rebuilt += 1;
            Layer::Rescanned(Box::new(rescan(log, &parts.fixed, &sealed.entry)?))
        });
    }
    report.runs = u64::try_from(layers.len()).unwrap_or(u64::MAX);
    let in_tail: usize = parts.tail.segments.iter().map(|segment| segment.entries.len()).sum();
    let must_load = report.runs_rebuilt > 0;
    let load_runs = in_runs <= load_max || must_load;
    let to_load: usize = if load_runs { layers.iter().map(Layer::len).sum() } else { 0 };
    let room = in_tail + to_load;
    let active = Overlay::with_room(room.max(1024), env.random_u64());
    newer.iter().for_each(|sealed| active.hold(&sealed.hold, sealed.start(geometry)));
    let unsealed = parts.tail.segments.iter().filter_map(|segment| segment.unsealed.clone());
    let unsealed: Vec<_> = unsealed.collect();
    unsealed.iter().for_each(|unsealed| active.hold(&unsealed.hold, unsealed.start));
    let set = |hash, entry| active.set_if_newest(log, hash, entry);
    let mut runs = Vec::new();
    for layer in layers {
        match layer {
            Layer::Run(run) if !load_runs => runs.push(run),
            Layer::Run(run) => {
                for (hash, entry, seqno) in run.in_log_order(log)? {
                    if run.is_moved() || seqno > image_seqno {
                        set(hash, entry)?;
                    }
                }
            }
            Layer::Rescanned(segment) => load_segment(&segment, geometry, image_seqno, set)?,
        }
    }
    // A reader never seals the tail, so if it has to give up the image, only the overlay knows of these. Where the tail
    // is damaged, the image may know newer ones.
    let known_seqno = if read_only && report.damage.is_none() { 0 } else { image_seqno };
    for segment in &parts.tail.segments {
        load_segment(segment, geometry, known_seqno, set)?;
    }
    Ok(View {
        active: Arc::new(active),
        frozen: None,
        runs: runs.into(),
        gone: gone(parts, sealed, &image, log.len()),
        image: Arc::new(image),
        segments: Arc::new(Segments::new(sealed.to_vec(), unsealed)),
    })
}

/// The pages to which slots of the image may lead in vain: all but those of segments it covers.
fn gone(
    parts: &Parts,
    sealed: &[Arc<Sealed>],
    image: &Image,
    file_bytes: u64,
) -> Option<Arc<PageSet>> {
    if parts.root.extension.image_gone.get() == 0 {
        return None;
    }
    let mut gone = PageSet::below(parts.fixed.geometry.pages(file_bytes));
    // A segment of the log that the image covers in part was there when it was made. No slot leads to a guard, which
    // may stand where a segment was that slots do lead to.
    let was_there = |sealed: &&Arc<Sealed>| {
        (image.covers(sealed) && !sealed.is_guard())
            || (!sealed.is_moved() && sealed.entry.base_seqno.get() <= image.place.seqno)
    };
    sealed.iter().filter(was_there).for_each(|sealed| gone.remove(sealed.extent()));
    for segment in &parts.tail.segments {
        if segment.base_seqno <= image.place.seqno {
            gone.remove(segment.extent);
        }
    }
    Some(Arc::new(gone))
}

enum Layer {
    Run(LateRun),
    Rescanned(Box<Segment>),
}

impl Layer {
    fn len(&self) -> usize {
        match self {
            Layer::Run(run) => run.count(),
            Layer::Rescanned(segment) => segment.entries.len(),
        }
    }
}

fn load_segment(
    segment: &Segment,
    geometry: Geometry,
    image_seqno: u64,
    set: impl Fn(u64, u64) -> Result<()>,
) -> Result<()> {
    for (hash, entry, seqno) in segment.changes(geometry) {
        if segment.style.is_moved || seqno > image_seqno {
            set(hash, entry)?;
        }
    }
    Ok(())
}
