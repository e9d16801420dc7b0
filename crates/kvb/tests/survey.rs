//! Surveys: what every byte of the file is for, and sums that agree with everything else that is known.
//!
//! Random histories of all kinds of buckets are surveyed after every step, by their writer, by readers beside it, after
//! crashes and repairs. The file itself tells where extents begin, how many slots are in use and which journal entries
//! hold; the survey must say the same. `KVB_SEED=n` replays a failing seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/destroy.rs"]
mod destroy;
#[path = "support/seed.rs"]
mod seed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use host::{Disk, Env, Keep, ManualEnv, MemoryDisk, SimDisk};
use kvb::format::index_page::{self, EMPTY, SENTINEL};
use kvb::format::journal::{self, JournalEntry};
use kvb::format::record::Framed;
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::{
    AreaKind, Batch, Bucket, Compact, Compression, Durability, HashKind, Key, Keyring, Options,
    Reader, SegmentKind, Snapshot, Stats, Survey,
};

const START_NS: u64 = 1_700_000_000_000_000_000;

fn quiet(_: kvb::Progress) {}

fn keys() -> Keyring {
    Keyring::new().with(1, Key::new([1; 32])).with(2, Key::new([2; 32]))
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn kinds() -> Vec<(&'static str, Options)> {
    let base = Options::default().background(false).durability(Durability::Relaxed).overlay_min(64);
    let plain = base.clone().segment_bytes_max(16 << 10);
    let large = |page: u32| base.clone().page_size(page).segment_bytes_max(4 * u64::from(page));
    let zstd = plain.clone().compression(Compression::Zstd).compression_min(16);
    vec![
        ("plain", plain.clone()),
        ("durable", plain.clone().durability(Durability::Sync)),
        ("no directories", plain.clone().directories(false)),
        ("keyed hash", plain.clone().hash(HashKind::SipHash)),
        ("compressed", zstd.clone()),
        ("encrypted", plain.encrypted(1).keys(keys())),
        ("encrypted, compressed", zstd.encrypted(1).keys(keys())),
        ("large pages", large(16_384)),
        ("largest pages", large(65_536)),
        ("long journal, large index", base.journal_pages(30).index_bytes(100_000)),
    ]
}

/// What must hold of every survey.
fn check(survey: &Survey, context: &str) {
    let page = survey.settings.page_size;
    // The areas are the file, piece by piece.
    let mut end = 0;
    for area in &survey.areas {
        assert_eq!(area.at, end, "{context}: a gap or an overlap before {area:?}");
        assert!(area.len > 0, "{context}: {area:?}");
        assert!(area.at.is_multiple_of(page) && area.len.is_multiple_of(page), "{context}");
        end += area.len;
    }
    assert_eq!(end, survey.file_bytes, "{context}: where the areas end");
    for at in (0..survey.file_bytes).step_by(size(page)) {
        for at in [at, at + 1, at + page - 1] {
            let area = survey.area_of(at).unwrap();
            assert!(at >= area.at && at - area.at < area.len, "{context}: byte {at}: {area:?}");
        }
    }
    assert_eq!(survey.area_of(survey.file_bytes), None, "{context}");
    assert_eq!(survey.area_of(u64::MAX), None, "{context}");

    // Everything it tells of lies where an area is for it.
    let kind_at = |at: u64| survey.area_of(at).map(|area| (area.kind, area.at, area.len));
    let superblocks: Vec<u64> = survey.superblocks.iter().map(|copy| copy.at).collect();
    assert_eq!(superblocks, [0, survey.file_bytes - page], "{context}");
    for at in superblocks {
        assert_eq!(kind_at(at), Some((AreaKind::Superblock, at, page)), "{context}");
    }
    let journal = (survey.journal.at, survey.journal.len);
    assert_eq!(kind_at(journal.0), Some((AreaKind::Journal, journal.0, journal.1)), "{context}");
    assert_eq!(journal.1, survey.settings.journal_pages * page, "{context}");
    if survey.index.len > 0 {
        let area = (AreaKind::Index, survey.index.at - page, survey.index.len + page);
        assert_eq!(kind_at(survey.index.at), Some(area), "{context}");
    }
    let mut begin = 0;
    for facts in &survey.segments {
        assert!(facts.at >= begin, "{context}: segments are not in order");
        begin = facts.at + facts.len + facts.side_len;
        let data = (AreaKind::Segment(facts.kind), facts.at, facts.len);
        assert_eq!(kind_at(facts.at), Some(data), "{context}: {facts:?}");
        if facts.side_len > 0 {
            let side = (AreaKind::Side, facts.at + facts.len, facts.side_len);
            assert_eq!(kind_at(facts.at + facts.len), Some(side), "{context}: {facts:?}");
        }
        let is_sealed = facts.kind != SegmentKind::Tail;
        assert_eq!((facts.records.is_some(), facts.seqnos.is_some()), (is_sealed, is_sealed));
        assert!(facts.record_bytes <= facts.len, "{context}: {facts:?}");
        assert!(facts.dead_bytes <= facts.record_bytes, "{context}: {facts:?}");
        assert!((0.0..=1.0).contains(&facts.live_ratio()), "{context}: {facts:?}");
    }
    let count = |kind: AreaKind| survey.areas.iter().filter(|area| area.kind == kind).count();
    let is_segment = |kind: AreaKind| matches!(kind, AreaKind::Segment(_));
    let segments = survey.areas.iter().filter(|area| is_segment(area.kind)).count();
    assert_eq!(segments, survey.segments.len(), "{context}");
    for kind in [AreaKind::FreeMap, AreaKind::Bulletin, AreaKind::Journal] {
        assert_eq!(count(kind), 1, "{context}: {kind:?}");
    }
}

fn sum(survey: &Survey, is_it: impl Fn(AreaKind) -> bool) -> u64 {
    survey.areas.iter().filter(|area| is_it(area.kind)).map(|area| area.len).sum()
}

/// What the bucket knows of itself by other means.
fn check_stats(survey: &Survey, stats: &Stats, context: &str) {
    let records: u64 = survey.segments.iter().map(|facts| facts.record_bytes).sum();
    assert_eq!(records, stats.bytes_log, "{context}: bytes of records");
    assert_eq!(survey.file_bytes, stats.file_bytes, "{context}");
    assert_eq!(survey.epoch, stats.epoch, "{context}");
    assert_eq!(survey.commit_seqno, stats.commit_seqno, "{context}");
    assert_eq!(survey.index.len, stats.index_bytes, "{context}");
    let sealed = survey.segments.iter().filter(|facts| facts.kind != SegmentKind::Tail);
    let (mut count, mut bytes) = (0, 0);
    for facts in sealed {
        count += 1;
        bytes += facts.len + facts.side_len;
    }
    assert_eq!((count, bytes), (stats.segments, stats.segment_bytes), "{context}: sealed segments");
    let retired = sum(survey, |kind| kind == AreaKind::Retired);
    assert_eq!(retired, stats.pinned_bytes, "{context}: what is kept for others");
}

/// Nobody has anything that the survey does not know of.
fn check_free(survey: &Survey, stats: &Stats, context: &str) {
    let region = survey.journal.at + survey.journal.len;
    let nothing = survey.areas.iter().filter(|area| area.at >= region);
    let nothing = nothing.filter(|area| matches!(area.kind, AreaKind::Free | AreaKind::Unused));
    let free: u64 = nothing.map(|area| area.len).sum();
    assert_eq!(free, stats.free_bytes, "{context}: pages that are free");
}

/// What the bytes themselves say. Nobody may be writing them.
fn check_file(survey: &Survey, file: &[u8], context: &str) {
    let page = size(survey.settings.page_size);
    assert!(file.len() >= size(survey.file_bytes), "{context}");
    let newest = &destroy::roots(&file[..size(survey.file_bytes)], page)[0];
    assert_eq!(newest.superblock.epoch.get(), survey.epoch, "{context}");
    let known: Vec<_> =
        survey.superblocks.iter().filter_map(|copy| copy.state.as_ref().ok()).collect();
    let newest_known = known.iter().max_by_key(|copy| copy.epoch).unwrap();
    assert_eq!(newest_known.epoch, survey.epoch, "{context}");
    assert_eq!(newest_known.commit_seqno, newest.superblock.commit_seqno.get(), "{context}");
    assert_eq!(newest_known.commit_paddr, newest.superblock.commit_paddr.get(), "{context}");

    // Areas of the segment region begin where extents do.
    let extents = destroy::extents(file, &newest.superblock);
    let starts: BTreeSet<u64> = extents.iter().map(|(start, ..)| *start).collect();
    let region =
        newest.superblock.segment_start_page.get()..newest.superblock.segment_end_page.get();
    for area in &survey.areas {
        let first = area.at / survey.settings.page_size;
        let is_inside = region.contains(&first);
        assert!(!is_inside || starts.contains(&first), "{context}: no extent at {area:?}");
        if matches!(area.kind, AreaKind::Segment(_) | AreaKind::Side | AreaKind::Index) {
            assert!(is_inside, "{context}: {area:?}");
        }
    }
    for facts in &survey.segments {
        check_segment(facts, file, context);
    }
    check_index(survey, file, context);
    check_journal(survey, file, context);
}

fn check_segment(facts: &kvb::SegmentFacts, file: &[u8], context: &str) {
    let header = SegmentHeader::decode(&file[size(facts.at)..]).unwrap();
    assert_eq!(header.kind(), Some(Kind::Data), "{context}: {facts:?}");
    assert_eq!(header.seg_id.get(), facts.seg_id, "{context}: {facts:?}");
    if facts.kind != SegmentKind::Tail {
        let is = (header.is_moved(), header.is_guard());
        let wanted = match facts.kind {
            SegmentKind::Moved => (true, false),
            SegmentKind::Guard => (true, true),
            _ => (false, false),
        };
        assert_eq!(is, wanted, "{context}: {facts:?}");
    }
    let mut at = size(facts.at + header.records_at());
    let end = at + size(facts.record_bytes);
    let mut seqnos = Vec::new();
    while at < end {
        let record = Framed::decode(&file[at..end]).unwrap_or_else(|| panic!("{context}: {at}"));
        seqnos.push(record.header.seqno.get());
        at += size(record.header.record_len());
    }
    assert_eq!(at, end, "{context}: {facts:?}");
    if let (Some(records), Some((lowest, highest))) = (facts.records, facts.seqnos) {
        assert_eq!(records, u64::try_from(seqnos.len()).unwrap(), "{context}: {facts:?}");
        assert_eq!(Some(&lowest), seqnos.iter().min(), "{context}: {facts:?}");
        assert_eq!(Some(&highest), seqnos.iter().max(), "{context}: {facts:?}");
    }
}

fn check_index(survey: &Survey, file: &[u8], context: &str) {
    let page = size(survey.settings.page_size);
    let index = &survey.index;
    let (mut slots, mut used) = (0, 0);
    for bytes in file[size(index.at)..size(index.at + index.len)].chunks_exact(page) {
        for slot in index_page::slots(bytes, 0) {
            let (hash, _) = index_page::read_slot(slot);
            slots += 1;
            used += u64::from(hash != EMPTY && hash != SENTINEL);
        }
    }
    assert_eq!((index.slots, index.used), (slots, used), "{context}: slots");
    assert!(index.seqno <= survey.commit_seqno, "{context}");
}

fn check_journal(survey: &Survey, file: &[u8], context: &str) {
    let journal = &survey.journal;
    let page = survey.settings.page_size;
    let per_page = journal::entries_per_page(page);
    assert_eq!(journal.capacity, per_page * survey.settings.journal_pages, "{context}");
    let at = |index: u64| size(journal.at + index / per_page * page + index % per_page * 52);
    let entries: BTreeMap<u64, JournalEntry> = (0..journal.capacity)
        .filter_map(|index| Some((index, JournalEntry::decode(&file[at(index)..])?)))
        .collect();
    assert_eq!(journal.entries, u64::try_from(entries.len()).unwrap(), "{context}: entries");
    let newest = entries.iter().max_by_key(|(index, entry)| (entry.seqno.get(), **index));
    let next = newest.map_or(0, |(index, _)| (index + 1) % journal.capacity);
    assert_eq!(journal.next, next, "{context}: where the next entry goes");
    let commits = entries.values().filter(|entry| entry.kind == journal::COMMIT);
    let durable = commits.map(|entry| entry.index_pageid.get()).max().unwrap_or(0);
    assert_eq!(journal.durable_seqno, durable, "{context}");
}

/// A bucket in memory, and what goes on in it.
struct Story {
    disk: MemoryDisk,
    env: Arc<ManualEnv>,
    options: Options,
    rng: Rng,
}

impl Story {
    fn new(options: Options, rng: Rng) -> Story {
        let env = Arc::new(ManualEnv::new(START_NS, 7));
        Story { disk: MemoryDisk::new(), env, options, rng }
    }

    fn env(&self) -> Arc<dyn Env> {
        Arc::<ManualEnv>::clone(&self.env)
    }

    fn create(&self) -> Bucket {
        let disk = Arc::new(self.disk.reopen());
        Bucket::create_on(disk, self.env(), self.options.clone()).unwrap()
    }

    fn open(&self) -> Bucket {
        let disk = Arc::new(self.disk.reopen());
        Bucket::open_on(disk, self.env(), self.options.clone()).unwrap()
    }

    fn reader(&self) -> Reader {
        let disk = Arc::new(self.disk.reopen());
        Reader::open_on_with(disk, self.env(), self.options.clone()).unwrap()
    }

    fn commit(&mut self, bucket: &Bucket) {
        let mut batch = Batch::new();
        for _ in 0..self.rng.usize(1..12) {
            let key = format!("key {:03}", self.rng.usize(..400));
            let len = match self.rng.u8(..40) {
                0 => self.rng.usize(..40_000),
                _ => self.rng.usize(..400),
            };
            let mut value = vec![b'v'; len];
            self.rng.fill(&mut value[..len / 3]);
            match self.rng.u8(..10) {
                0..3 => drop(batch.delete(key)),
                3 => drop(batch.put_for(key, value, Duration::from_secs(100))),
                _ => drop(batch.put(key, value)),
            }
        }
        bucket.commit(batch).unwrap();
    }
}

#[test]
fn areas_tile_the_file_through_random_histories() {
    let seed = seed::seed("areas_tile_the_file_through_random_histories");
    let mut seen = BTreeSet::new();
    for round in 0..seed::rounds() {
        for (index, (name, options)) in (0_u64..).zip(kinds()) {
            let rng = Rng::with_seed(seed ^ index ^ round << 8);
            live_through(name, Story::new(options, rng), &mut seen);
        }
    }
    // Otherwise the histories were too short to show anything.
    let wanted = [
        AreaKind::Segment(SegmentKind::Tail),
        AreaKind::Segment(SegmentKind::Log),
        AreaKind::Segment(SegmentKind::Moved),
        AreaKind::Segment(SegmentKind::Guard),
        AreaKind::Table,
        AreaKind::Book,
        AreaKind::Reserved,
        AreaKind::Retired,
        AreaKind::Free,
        AreaKind::Unused,
    ];
    for kind in wanted {
        assert!(seen.contains(&kind), "no {kind:?} in {seen:?}");
    }
}

fn live_through(name: &str, mut story: Story, seen: &mut BTreeSet<AreaKind>) {
    let mut bucket = story.create();
    let mut readers: Vec<(Reader, Option<Snapshot<'static>>)> = Vec::new();
    for step in 0..60 {
        for _ in 0..story.rng.usize(..20) {
            story.commit(&bucket);
        }
        let what = story.rng.u8(..14);
        let held = (story.rng.u8(..3) == 0).then(|| bucket.snapshot());
        match what {
            0 => bucket.flush().unwrap(),
            1 => drop(bucket.compact(Compact::Full).unwrap()),
            2 => drop(bucket.compact(Compact::Auto).unwrap()),
            3 => drop(bucket.compact(Compact::LowSpace).unwrap()),
            4 if name.contains("compressed") => drop(bucket.train_dictionary(1024)),
            // Not if one to the other key is still held up by a snapshot.
            5 if name.starts_with("encrypted") => {
                drop(bucket.rotate_key(1 + story.rng.u64(..2)));
            }
            6 => readers.push((story.reader(), None)),
            7 => {
                if let Some((reader, snapshot)) = readers.last_mut() {
                    *snapshot = Some(reader.snapshot().unwrap());
                }
            }
            8 if !readers.is_empty() => drop(readers.remove(0)),
            9 => story.env.advance(2 * 3600 * 1_000_000_000),
            _ => {}
        }
        let context = format!("{name}, step {step}, {what}");
        let survey = bucket.survey().unwrap();
        assert!(survey.has_writer && !survey.is_increment, "{context}");
        check(&survey, &context);
        check_stats(&survey, &bucket.stats().unwrap(), &context);
        check_free(&survey, &bucket.stats().unwrap(), &context);
        check_file(&survey, &story.disk.to_bytes(), &context);
        seen.extend(survey.areas.iter().map(|area| area.kind));
        for (index, (reader, _)) in readers.iter().enumerate() {
            let context = format!("{context}, reader {index}");
            let beside = reader.survey().unwrap();
            assert!(beside.has_writer, "{context}");
            check(&beside, &context);
            check_file(&beside, &story.disk.to_bytes(), &context);
            assert_eq!(beside.commit_seqno, survey.commit_seqno, "{context}");
            assert_eq!(beside.epoch, survey.epoch, "{context}");
            assert_eq!(beside.settings, survey.settings, "{context}");
        }
        drop(held);
        match what {
            10 => {
                bucket.close().unwrap();
                let survey = story.reader().survey().unwrap();
                assert!(!survey.has_writer, "{context}");
                check(&survey, &format!("{context}, closed"));
                check_file(&survey, &story.disk.to_bytes(), &format!("{context}, closed"));
                let copies = survey.superblocks.iter().map(|copy| copy.state.clone().unwrap());
                assert!(copies.clone().all(|copy| copy.epoch == survey.epoch), "{context}");
                assert!(copies.clone().all(|copy| copy.commit_seqno == survey.commit_seqno));
                bucket = story.open();
            }
            11 => {
                // As if the process were killed.
                readers.clear();
                story.disk = MemoryDisk::from_bytes(story.disk.to_bytes());
                drop(bucket);
                let reader = story.reader();
                let survey = reader.survey().unwrap();
                check(&survey, &format!("{context}, killed"));
                check_stats(&survey, &reader.stats().unwrap(), &format!("{context}, killed"));
                check_file(&survey, &story.disk.to_bytes(), &format!("{context}, killed"));
                drop(reader);
                bucket = story.open();
            }
            _ => {}
        }
    }
}

/// Room for the next image may be made by growing the file, and the checkpoint in that may free the image before, which then
/// is room enough.
#[test]
fn no_page_is_lost_when_an_image_is_let_go() {
    let options = Options::default().background(false).durability(Durability::Relaxed);
    // A large one, for which there is seldom a place.
    let options = options.overlay_min(64).segment_bytes_max(16 << 10).index_bytes(64 << 10);
    for seed in 0..20 {
        let mut story = Story::new(options.clone(), Rng::with_seed(seed));
        let bucket = story.create();
        for step in 0..12 {
            // The image is held, so that the next one finds no room kept for it.
            let snapshot = bucket.snapshot();
            for _ in 0..story.rng.usize(..8) {
                story.commit(&bucket);
            }
            bucket.flush().unwrap();
            drop(snapshot);
            for _ in 0..story.rng.usize(..8) {
                story.commit(&bucket);
            }
            let survey = bucket.survey().unwrap();
            check_free(&survey, &bucket.stats().unwrap(), &format!("seed {seed}, step {step}"));
        }
    }
}

#[test]
fn settings_are_those_asked_for() {
    for (name, options) in kinds() {
        let story = Story::new(options, Rng::with_seed(1));
        let bucket = story.create();
        let settings = bucket.survey().unwrap().settings;
        let page = match name {
            "large pages" => 16_384,
            "largest pages" => 65_536,
            _ => 4096,
        };
        assert_eq!(settings.page_size, page, "{name}");
        assert_eq!(settings.created_unix_ns, START_NS, "{name}");
        // Encrypted buckets have no other.
        let is_keyed = name == "keyed hash" || name.starts_with("encrypted");
        assert_eq!(settings.hash == HashKind::SipHash, is_keyed, "{name}");
        let is_compressed = settings.compression == Compression::Zstd;
        assert_eq!(is_compressed, name.contains("compressed"), "{name}");
        assert_eq!(settings.directories, name != "no directories", "{name}");
        assert_eq!(settings.key_id, name.starts_with("encrypted").then_some(1), "{name}");
        assert_eq!(settings.max_value, 1 << 30, "{name}");
        let is_long = name.starts_with("long journal");
        assert_eq!(settings.journal_pages, if is_long { 30 } else { 8 }, "{name}");
        // A power of two of pages.
        assert_eq!(settings.index_bytes_min, if is_long { 131_072 } else { page }, "{name}");
        bucket.close().unwrap();
        assert_eq!(story.reader().survey().unwrap().settings, settings, "{name}");
    }
}

#[test]
fn the_journal_is_where_commits_have_left_it() {
    let options = Options::default().background(false);
    let story = Story::new(options, Rng::with_seed(2));
    let bucket = story.create();
    let journal = bucket.survey().unwrap().journal;
    assert_eq!((journal.entries, journal.next, journal.durable_seqno), (0, 0, 0));
    // Round and round: each commit of one record leaves two entries.
    for number in 1..=2 * journal.capacity {
        bucket.put(b"key", number.to_le_bytes()).unwrap();
        let survey = bucket.survey().unwrap();
        let written = 2 * number;
        assert_eq!(survey.journal.entries, written.min(journal.capacity), "commit {number}");
        assert_eq!(survey.journal.next, written % journal.capacity, "commit {number}");
        assert_eq!(survey.journal.durable_seqno, survey.commit_seqno, "commit {number}");
    }
}

#[test]
fn what_a_crash_leaves_is_surveyed_whole() {
    let seed = seed::seed("what_a_crash_leaves_is_surveyed_whole");
    let mut images = 0;
    for (index, (name, options)) in (0_u64..).zip(kinds()) {
        let mut story = Story::new(options.clone(), Rng::with_seed(seed ^ index));
        let disk = SimDisk::new();
        let bucket =
            Bucket::create_on(Arc::new(disk.reopen()), story.env(), options.clone()).unwrap();
        let begun = disk.trace().len();
        for step in 0..40 {
            story.commit(&bucket);
            if step % 13 == 12 {
                bucket.compact(Compact::Full).unwrap();
            }
        }
        bucket.close().unwrap();
        let trace = disk.trace();
        for _ in 0..40 {
            let upto = story.rng.usize(begun..=trace.len());
            let keep = Keep::Random(story.rng.u64(..));
            let context = format!("{name}, operation {upto}, {keep:?}");
            let image = trace.image(upto, keep);
            let lost: Arc<dyn Disk> = Arc::new(SimDisk::from_image(image.clone()));
            let reader = Reader::open_on_with(lost, story.env(), options.clone()).unwrap();
            let survey = reader.survey().unwrap();
            check(&survey, &context);
            check_stats(&survey, &reader.stats().unwrap(), &context);
            assert!(survey.superblocks.iter().any(|copy| copy.state.is_ok()), "{context}");
            images += 1;
        }
    }
    assert!(images >= 400);
}

#[test]
fn copies_and_what_repair_saves_are_surveyed_whole() {
    for (name, options) in kinds() {
        let mut story = Story::new(options.clone(), Rng::with_seed(3));
        let bucket = story.create();
        for _ in 0..60 {
            story.commit(&bucket);
        }
        let full: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let to = Arc::clone(&full);
        bucket.snapshot().backup_on(to, story.env(), options.clone(), &mut quiet).unwrap();
        for _ in 0..30 {
            story.commit(&bucket);
        }
        let part: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let (to, before) = (Arc::clone(&part), [Arc::clone(&full)]);
        let snapshot = bucket.snapshot();
        snapshot.backup_since_on(to, story.env(), &before, options.clone(), &mut quiet).unwrap();
        drop(snapshot);
        // Whatever else is where it should be, a record is not.
        let damaged = bucket.survey().unwrap().segments[0].clone();
        bucket.close().unwrap();
        let restored: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let (to, files) = (Arc::clone(&restored), [Arc::clone(&full), Arc::clone(&part)]);
        kvb::restore_on(&files, to, story.env(), options.clone(), &mut quiet).unwrap();
        let mut file = story.disk.to_bytes();
        file[size(damaged.at + 100)] ^= 1;
        let source: Arc<dyn Disk> = Arc::new(MemoryDisk::from_bytes(file));
        let mended: Arc<dyn Disk> = Arc::new(MemoryDisk::new());
        let to = Some(Arc::clone(&mended));
        let report = kvb::repair_on(source, to, story.env(), options.clone(), &mut quiet).unwrap();
        assert!(!report.is_sound, "{name}");
        let copies =
            [("backup", full), ("increment", part), ("restored", restored), ("repaired", mended)];
        let opening = options.clone().takes_increments(true);
        for (what, disk) in copies {
            let context = format!("{name}, {what}");
            let mut file = vec![0; size(disk.len().unwrap())];
            disk.read_at(0, &mut file).unwrap();
            let reader = Reader::open_on_with(disk, story.env(), opening.clone()).unwrap();
            let survey = reader.survey().unwrap();
            assert_eq!(survey.is_increment, what == "increment", "{context}");
            check(&survey, &context);
            check_stats(&survey, &reader.stats().unwrap(), &context);
            check_free(&survey, &reader.stats().unwrap(), &context);
            check_file(&survey, &file, &context);
            let is_moved = |facts: &kvb::SegmentFacts| facts.kind == SegmentKind::Moved;
            assert!(survey.segments.iter().all(is_moved), "{context}");
        }
    }
}

#[test]
fn a_damaged_superblock_shows() {
    for (name, options) in kinds() {
        let mut story = Story::new(options.clone(), Rng::with_seed(4));
        let bucket = story.create();
        for _ in 0..30 {
            story.commit(&bucket);
        }
        bucket.close().unwrap();
        let whole = story.reader().survey().unwrap();
        for (index, copy) in whole.superblocks.iter().enumerate() {
            for at in [8, 140, 530] {
                let mut file = story.disk.to_bytes();
                file[size(copy.at) + at] ^= 1;
                let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::from_bytes(file));
                let reader = Reader::open_on_with(disk, story.env(), options.clone()).unwrap();
                let survey = reader.survey().unwrap();
                check(&survey, name);
                assert!(survey.superblocks[index].state.is_err(), "{name}, copy {index}");
                assert_eq!(survey.superblocks[1 - index], whole.superblocks[1 - index], "{name}");
            }
        }
    }
}

/// Tells a thread to end when it is dropped, also by a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Threads of the bucket's own seal, merge, compact and grow the file while it is surveyed, by itself and beside it.
#[test]
fn surveys_of_a_running_writer_are_whole() {
    for (name, options) in kinds().into_iter().filter(|(name, _)| *name != "durable") {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bucket.kvb");
        let bucket = Bucket::create(&path, options.clone().background(true)).unwrap();
        let is_done = AtomicBool::new(false);
        let mut story = Story::new(options.clone(), Rng::with_seed(5));
        std::thread::scope(|scope| {
            let _done = Done(&is_done);
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    story.commit(&bucket);
                }
            });
            look_on(name, &bucket, || Reader::open_with(&path, options.clone()).unwrap());
        });
    }
}

fn look_on(name: &str, bucket: &Bucket, open: impl Fn() -> Reader) {
    let start = std::time::Instant::now();
    let mut reader = open();
    let (mut surveys, mut last) = (0, 0);
    while start.elapsed() < Duration::from_millis(250) || surveys < 20 {
        let survey = bucket.survey().unwrap();
        let context = format!("{name}, survey {surveys}");
        check(&survey, &context);
        // They are written under a lock that a survey waits for.
        let is_ok = survey.superblocks.iter().all(|copy| copy.state.is_ok());
        assert!(is_ok, "{context}: {:?}", survey.superblocks);
        if surveys % 10 == 0 {
            reader = open();
        }
        let context = format!("{context}, beside");
        let beside = reader.survey().unwrap();
        check(&beside, &context);
        assert!(beside.has_writer, "{context}");
        let is_ok = beside.superblocks.iter().any(|copy| copy.state.is_ok());
        assert!(is_ok, "{context}: {:?}", beside.superblocks);
        assert!(beside.commit_seqno >= last, "{context}: it went back");
        last = beside.commit_seqno;
        surveys += 1;
    }
}
