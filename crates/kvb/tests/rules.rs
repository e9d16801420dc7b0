//! Rules that no state shows by itself: the order of writes and syncs, what is reused when, what is bounded.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use host::{Disk, Fault, Keep, ManualEnv, MemoryDisk, Op, SimDisk, Trace};
use kvb::format::extension::{self, Extension};
use kvb::format::journal::{COMMIT, JournalEntry};
use kvb::format::meta::{self, MetaHead};
use kvb::format::roster::{self, Roster};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::Superblock;
use kvb::{Batch, Bucket, Compact, Durability, Options};

#[path = "support/destroy.rs"]
mod destroy;
#[path = "support/seed_reader.rs"]
mod seed_reader;

const START_NS: u64 = 1_700_000_000_000_000_000;
const PAGE: u64 = 4096;

fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(START_NS, 11))
}

fn options() -> Options {
    Options::default().background(false).durability(Durability::SyncOnce)
}

fn sim(options: Options) -> (SimDisk, Bucket) {
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options).unwrap();
    (disk, bucket)
}

/// What the disk was asked to do from one moment on.
fn since(disk: &SimDisk, from: usize) -> Vec<Op> {
    disk.trace().ops()[from..].to_vec()
}

fn superblock(bytes: &[u8]) -> (Superblock, Extension, Roster) {
    let superblock = Superblock::decode(bytes).unwrap();
    let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
    let epoch = superblock.epoch.get();
    let extension = Extension::decode(&bytes[extension::OFFSET..], epoch, uuid).unwrap();
    let crc = extension.roster_crc32c.get();
    (superblock, extension, Roster::decode(&bytes[roster::OFFSET..], epoch, uuid, crc).unwrap())
}

/// Every extent of the segment region.
fn extents(bytes: &[u8]) -> Vec<(u64, u64, SegmentHeader)> {
    let superblock = Superblock::decode(bytes).unwrap();
    let mut page = superblock.segment_start_page.get();
    let mut found = Vec::new();
    while page < superblock.segment_end_page.get() {
        let at = usize::try_from(page * PAGE).unwrap();
        let header = SegmentHeader::decode(&bytes[at..]).unwrap();
        let pages = header.page_count(PAGE).unwrap();
        found.push((page, pages, header));
        page += pages;
    }
    found
}

#[test]
fn sync_once_is_one_write_and_one_sync_and_never_grows_the_file() {
    let (disk, bucket) = sim(options());
    bucket.put(b"warm", b"up").unwrap();
    let from = disk.trace().len();
    bucket.put(b"key", b"value").unwrap();
    let ops = since(&disk, from);
    assert!(
        matches!(ops.as_slice(), [Op::Write { .. }, Op::SyncRange { .. }]),
        "one write, one sync: {ops:?}"
    );
}

#[test]
fn sync_writes_the_journal_only_after_the_records_are_durable() {
    let (disk, bucket) = sim(options().durability(Durability::Sync));
    bucket.put(b"warm", b"up").unwrap();
    let (superblock, _, _) = superblock(&disk.to_bytes());
    let ring = superblock.journal_start_page.get() * PAGE
        ..(superblock.journal_start_page.get() + superblock.journal_page_count.get()) * PAGE;
    let from = disk.trace().len();
    bucket.put(b"key", b"value").unwrap();
    match since(&disk, from).as_slice() {
        [
            Op::Write { offset: record, .. },
            Op::SyncRange { offset: synced, len },
            Op::Write { offset: entry, data },
            Op::SyncRange { offset: journal, .. },
        ] => {
            assert!(!ring.contains(record) && (*synced..synced + len).contains(record));
            assert!(ring.contains(entry) && ring.contains(journal));
            let entries: Vec<_> =
                data.chunks_exact(JournalEntry::SIZE).filter_map(JournalEntry::decode).collect();
            assert_eq!(entries.len(), 2, "one index entry and the Commit");
            let commit = entries.last().unwrap();
            assert_eq!((commit.kind, commit.index_pageid), (COMMIT, commit.seqno));
        }
        ops => panic!("records, sync, journal, sync: {ops:?}"),
    }
}

#[test]
fn a_commit_whose_sync_failed_is_not_shown() {
    for durability in [Durability::SyncOnce, Durability::Sync] {
        let (disk, bucket) = sim(options().durability(durability));
        bucket.put(b"key", b"old").unwrap();
        disk.fail(disk.op_count() + 1, Fault::Eio);
        bucket.put(b"key", b"new").unwrap_err();
        assert_eq!(bucket.get(b"key").unwrap().as_deref(), Some(&b"old"[..]));
    }
}

#[test]
fn segment_ids_are_given_once_even_to_extents_nobody_used() {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options()).unwrap();
    bucket.put(b"key", b"value").unwrap();
    bucket.close().unwrap();
    let (_, before, _) = superblock(&disk.to_bytes());
    let bucket = Bucket::open_on(Arc::new(disk.reopen()), env(), options()).unwrap();
    let (_, after, roster) = superblock(&disk.to_bytes());
    assert!(!roster.named.is_empty());
    for named in &roster.named {
        assert!(named.seg_id.get() >= before.next_seg_id.get(), "an id that may have been used");
        assert!(named.seg_id.get() < after.next_seg_id.get());
    }
    drop(bucket);
}

#[test]
fn an_image_that_a_reader_may_use_is_not_given_back() {
    let images = |disk: &MemoryDisk| {
        let bytes = disk.to_bytes();
        let is_image = |page: u64| {
            let at = usize::try_from(page * PAGE).unwrap() + meta::OFFSET;
            let head = &bytes[at..at + MetaHead::SIZE];
            head[..4] == meta::MAGIC.to_le_bytes() && head[4..6] == meta::KIND_IMAGE.to_le_bytes()
        };
        let extents = extents(&bytes);
        extents
            .iter()
            .filter(|(page, _, header)| header.kind() == Some(Kind::Meta) && is_image(*page))
            .count()
    };
    let disk = MemoryDisk::new();
    let options = options().overlay_min(20);
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options).unwrap();
    let fill = |from: u32| {
        for n in from..from + 100 {
            bucket.put(n.to_be_bytes(), b"value").unwrap();
        }
    };
    fill(0);
    let held = bucket.get(1_u32.to_be_bytes()).unwrap();
    fill(100);
    assert_eq!(images(&disk), 2, "the newest image and the one the value was found through");
    assert_eq!(held.as_deref(), Some(&b"value"[..]));
    drop(held);
    fill(200);
    assert_eq!(images(&disk), 1);
}

#[test]
fn no_more_than_two_segments_are_ever_unsealed() {
    let max = 32 << 10;
    let (disk, bucket) = sim(options().segment_bytes_max(max));
    let mut batch = Batch::new();
    for n in 0..2_000_u32 {
        batch.put(n.to_be_bytes(), [7; 100]);
    }
    bucket.commit(batch).unwrap();
    for n in 0..2_000_u32 {
        bucket
            .commit_with(
                {
                    let mut batch = Batch::new();
                    batch.put(n.to_be_bytes(), [8; 100]);
                    batch
                },
                Durability::Relaxed,
            )
            .unwrap();
    }
    let trace = disk.trace();
    let mut points = trace.points();
    let mut most = 0;
    while let Some(point) = points.advance() {
        if point.upto() % 7 != 0 {
            continue;
        }
        let image = point.image(Keep::All);
        if Superblock::decode(&image).is_err() {
            continue;
        }
        let unsealed = extents(&image)
            .iter()
            // What compaction writes counts only when it is sealed, and nobody reads it before.
            .filter(|(_, _, header)| {
                header.kind() == Some(Kind::Data)
                    && header.segment_size.get() == 0
                    && !header.is_moved()
            })
            .map(|(_, pages, _)| pages * PAGE)
            .sum::<u64>();
        most = most.max(unsealed);
    }
    assert!(most > 0 && most <= 2 * max, "{most} bytes unsealed");
}

#[test]
fn deadlines_beyond_the_end_of_time_saturate() {
    let env = Arc::new(ManualEnv::new(u64::MAX - 5_000_000_000, 1));
    let disk = Arc::new(MemoryDisk::new());
    let bucket = Bucket::create_on(disk, env.clone(), options()).unwrap();
    bucket.put_for(b"key", b"value", Duration::from_secs(10)).unwrap();
    assert!(bucket.exists(b"key").unwrap(), "the deadline wrapped around");
    env.set(u64::MAX - 1);
    assert!(bucket.exists(b"key").unwrap());
}

#[test]
fn the_clock_never_goes_back_unless_a_stamp_is_absurd() {
    let disk = MemoryDisk::new();
    let env = env();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env.clone(), options()).unwrap();
    bucket.put_for(b"short", b"value", Duration::from_secs(10)).unwrap();
    env.advance(60_000_000_000);
    bucket.put(b"later", b"value").unwrap();
    assert!(!bucket.exists(b"short").unwrap());
    // The wall goes back; the stamp of the later record keeps the key expired, also after reopening.
    env.set(START_NS);
    assert!(!bucket.exists(b"short").unwrap());
    bucket.close().unwrap();
    let reopen = || Bucket::open_on(Arc::new(disk.reopen()), env.clone(), options()).unwrap();
    let bucket = reopen();
    assert!(!bucket.exists(b"short").unwrap());
    bucket.put_for(b"lasting", b"value", Duration::from_secs(3_600)).unwrap();
    drop(bucket);
    // Seen from two days before, the stamps are those of a clock gone wrong: they are not adopted.
    env.set(START_NS - 2 * 86_400_000_000_000);
    let bucket = reopen();
    bucket.put_for(b"now", b"value", Duration::from_secs(1)).unwrap();
    assert!(bucket.exists(b"now").unwrap());
    env.advance(2_000_000_000);
    assert!(!bucket.exists(b"now").unwrap(), "expires by the wall");
}

#[test]
fn an_empty_bucket_is_small_and_opening_it_does_not_change_that() {
    let disk = MemoryDisk::new();
    drop(Bucket::create_on(Arc::new(disk.clone()), env(), Options::default()).unwrap());
    drop(Bucket::open_on(Arc::new(disk.reopen()), env(), Options::default()).unwrap());
    let shared: Arc<dyn Disk> = Arc::new(disk);
    assert!(shared.len().unwrap() < 64 << 10);
}

#[test]
fn opening_and_closing_again_and_again_does_not_grow_the_file() {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env(), options()).unwrap();
    for n in 0..3_000_u32 {
        bucket.put(n.to_be_bytes(), [1; 50]).unwrap();
    }
    bucket.close().unwrap();
    let open = || Bucket::open_on(Arc::new(disk.reopen()), env(), options()).unwrap();
    open().close().unwrap();
    let len = disk.len().unwrap();
    for _ in 0..20 {
        open().close().unwrap();
    }
    assert_eq!(disk.len().unwrap(), len);
}

/// What the disk was asked to do while segments were compacted in every way, also under a snapshot.
fn compactions() -> Trace {
    let (disk, bucket) = sim(options().segment_bytes_max(16 << 10).overlay_min(40));
    let mut random = fastrand::Rng::with_seed(5);
    for round in 0..24 {
        for _ in 0..20 {
            let key = random.u8(..60).to_be_bytes();
            if random.u8(..3) == 0 {
                bucket.delete(key).unwrap();
            } else {
                bucket.put(key, vec![random.u8(..); random.usize(..900)]).unwrap();
            }
        }
        let snapshot = (round % 5 == 0).then(|| bucket.snapshot());
        let kinds = [Compact::Auto, Compact::Full, Compact::LowSpace];
        bucket.compact(kinds[round % 3]).unwrap();
        drop(snapshot);
    }
    drop(bucket);
    disk.trace()
}

/// Segments are begun only where both superblocks on disk say they may be, in an extent of their kind.
#[test]
fn segments_are_begun_only_in_extents_that_are_named_on_disk() {
    let trace = compactions();
    let mut points = trace.points();
    let (mut log, mut moved) = (0, 0);
    while let Some(point) = points.advance() {
        let Some(Op::Write { offset, data }) = trace.ops().get(point.upto()) else { continue };
        let header = SegmentHeader::decode(data).filter(|_| offset.is_multiple_of(PAGE));
        let Some(header) = header.filter(|header| header.kind() == Some(Kind::Data)) else {
            continue;
        };
        if header.segment_size.get() != 0 {
            // Sealed; begun long ago.
            continue;
        }
        let kind = if header.is_moved() { roster::NAMED_OUTPUT } else { roster::NAMED_LOG };
        let durable = point.image(Keep::None);
        let roots = destroy::roots(&durable, 4096);
        assert_eq!(roots.len(), 2, "both superblocks hold");
        for root in roots {
            let is_named = root.roster.named.iter().any(|named| {
                named.start_page.get() * PAGE == *offset
                    && named.seg_id == header.seg_id
                    && named.kind.get() == kind
            });
            assert!(is_named, "operation {}: page {} is not named", point.upto(), offset / PAGE);
        }
        log += usize::from(!header.is_moved());
        moved += usize::from(header.is_moved());
    }
    assert!(log > 20 && moved > 10, "{log} of the log, {moved} of moved records");
}

/// Whatever is punched lies in no segment, going by the headers on disk, and the page of a header stays.
#[test]
fn a_segment_is_punched_only_when_its_header_is_free_on_disk() {
    let trace = compactions();
    let mut points = trace.points();
    let mut punched = 0;
    while let Some(point) = points.advance() {
        let Some(Op::Punch { offset, len }) = trace.ops().get(point.upto()) else { continue };
        let durable = point.image(Keep::None);
        let superblock = seed_reader::superblock(&durable);
        let extents = destroy::extents(&durable, &superblock);
        let (first, last) = (offset / PAGE, (offset + len - 1) / PAGE);
        for (page, pages, header) in extents {
            if page <= last && first < page + pages {
                let context = format!("operation {}: pages {first} to {last}", point.upto());
                assert_ne!(header.kind(), Some(Kind::Data), "{context}");
                assert!(page < first, "{context}: a header is punched");
                punched += usize::from(header.kind() == Some(Kind::Free));
            }
        }
    }
    assert!(punched > 20, "only {punched} extents punched");
}

/// A clock that was wrong for less than an hour costs nothing: what has expired stays that much longer.
#[test]
fn what_has_expired_is_dropped_an_hour_later() {
    let env = env();
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env.clone(), options()).unwrap();
    let is_stored = || seed_reader::read(&disk.to_bytes()).newest.contains_key(&b"short-lived"[..]);
    bucket.put_for(b"short-lived", b"value", Duration::from_secs(60)).unwrap();
    bucket.put(b"lasting", b"value").unwrap();
    for (minutes, is_there) in [(30, true), (29, true), (3, false)] {
        env.advance(minutes * 60 * 1_000_000_000);
        bucket.put(b"overwritten", minutes.to_be_bytes()).unwrap();
        bucket.compact(Compact::Full).unwrap();
        assert_eq!(is_stored(), is_there, "{minutes} minutes later");
        assert!(!bucket.exists(b"short-lived").unwrap());
    }
    assert!(bucket.exists(b"lasting").unwrap());
}

/// What compaction moves keeps its place in history.
#[test]
fn moved_records_keep_seqno_stamp_and_deadline() {
    let env = env();
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env.clone(), options()).unwrap();
    for n in 0..50_u32 {
        bucket.put_for(n.to_be_bytes(), b"value", Duration::from_secs(7200)).unwrap();
        env.advance(1_000_000_000);
        bucket.put(b"again and again", n.to_be_bytes()).unwrap();
    }
    bucket.flush().unwrap();
    let before = seed_reader::read(&disk.to_bytes());
    bucket.compact(Compact::Full).unwrap();
    bucket.flush().unwrap();
    let after = seed_reader::read(&disk.to_bytes());
    assert_eq!(before.newest, after.newest);
    assert_eq!((before.moved, after.moved), (0, 51));
}
