//! `verify`: it finds what is wrong, says where, and is right beside a writer.
//!
//! That nothing is found in sound buckets is checked by `crash.rs` and `model.rs` on every state they come to; that damage
//! anywhere is found, by `rot.rs`. Here the meaning of findings, and a writer that does everything at once.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/anatomy.rs"]
mod anatomy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use host::{Disk, Env, ManualEnv, SimDisk};
use kvb::format::segment::Kind;
use kvb::{
    Batch, Bucket, Compact, Compression, Durability, Finding, Key, Keyring, Options, Severity, What,
};

fn quiet(_: kvb::Progress) {}

fn env() -> Arc<dyn Env> {
    Arc::new(ManualEnv::new(1_700_000_000_000_000_000, 5))
}

fn findings(file: Vec<u8>) -> Vec<Finding> {
    let disk: Arc<dyn Disk> = Arc::new(SimDisk::from_image(file));
    kvb::verify_on(disk, env(), Options::default(), &mut quiet).unwrap().findings
}

fn bucket() -> Vec<u8> {
    let disk = SimDisk::new();
    let options = Options::default().background(false).segment_bytes_max(16 << 10).overlay_min(32);
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options).unwrap();
    for number in 0..300 {
        bucket
            .put(format!("key {:03}", number % 120), format!("value {number}").repeat(9))
            .unwrap();
        if number == 200 {
            bucket.compact(Compact::Full).unwrap();
        }
    }
    bucket.close().unwrap();
    disk.to_bytes()
}

#[test]
fn every_finding_says_where_and_what() {
    let file = bucket();
    assert_eq!(findings(file.clone()), []);
    let extents = anatomy::extents(&file);
    let record = &anatomy::sealed_records(&file)[3];
    let moved = extents.iter().find(|extent| extent.header.is_moved()).unwrap().bytes.start;
    let run = &anatomy::sections(&file, kvb::format::meta::SECTION_RUN)[0];
    let image =
        extents.iter().find(|extent| extent.is(Kind::Meta) && file[extent.bytes.start + 132] == 1);
    let page = image.unwrap().bytes.start + 4096;
    let last = file.len() - 4096;
    // Byte to change, byte that the finding must name, what it is about, and how bad it is.
    let cases = [
        (record.bytes.start + 50, record.bytes.start, What::Record, Severity::Damage),
        (moved + 10, moved, What::SegmentHeader, Severity::Damage),
        (run.start + 4, run.start + 4, What::Run, Severity::Derived),
        (page + 60, page, What::IndexPage, Severity::Derived),
        (100, 0, What::Superblock, Severity::Derived),
        (last + 140, last, What::Superblock, Severity::Derived),
    ];
    for (at, named, what, severity) in cases {
        let mut damaged = file.clone();
        damaged[at] ^= 4;
        let found = findings(damaged);
        let is_named = |finding: &&Finding| {
            finding.at == u64::try_from(named).unwrap()
                && finding.what == what
                && finding.severity == severity
                && !finding.meaning.is_empty()
        };
        assert!(found.iter().any(|finding| is_named(&finding)), "byte {at}: {found:?}");
        let shown = found[0].to_string();
        assert!(shown.contains(&format!("byte {}", found[0].at)), "{shown}");
    }
}

#[test]
fn a_slot_that_leads_to_an_older_record_is_found() {
    use kvb::format::index_page::{self, IndexSlot};
    use zerocopy::little_endian::U64;
    let disk = SimDisk::new();
    let options = Options::default().background(false);
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options).unwrap();
    bucket.put("key", "old").unwrap();
    bucket.put("key", "new").unwrap();
    bucket.put("other", "value").unwrap();
    bucket.close().unwrap();
    let file = disk.to_bytes();
    let old = file.windows(6).position(|window| window == b"keyold").unwrap() - 44;
    let new = file.windows(6).position(|window| window == b"keynew").unwrap() - 44;
    let superblock = kvb::format::superblock::Superblock::decode(&file).unwrap();
    let pageid = superblock.index_region_start_page.get();
    let at = usize::try_from(pageid).unwrap() * 4096;
    let (slot, found) = (0..128)
        .filter_map(|slot| Some((slot, index_page::slot(&file[at..at + 4096], slot)?)))
        .find(|(_, slot)| slot.record_paddr.get() == u64::try_from(new).unwrap())
        .unwrap();
    let image_id = u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let used = u32::from_le_bytes(file[at + 12..at + 16].try_into().unwrap());
    let change = |value: IndexSlot, used: u32| {
        let mut damaged = file.clone();
        let page = &mut damaged[at..at + 4096];
        index_page::set_slot(page, slot, value);
        index_page::seal_page(page, image_id, pageid, used, None).unwrap();
        findings(damaged)
    };
    let older =
        change(IndexSlot { record_paddr: U64::new(old.try_into().unwrap()), ..found }, used);
    assert!(older.iter().any(|one| one.meaning.contains("older record")), "{older:?}");
    let missing = change(IndexSlot { hash64: 0.into(), record_paddr: 0.into() }, used - 1);
    assert!(
        missing.iter().any(|one| one.meaning.contains("does not know this key")),
        "{missing:?}"
    );
    // A slot for a key that was deleted, or never there.
    let stray = IndexSlot { hash64: U64::new(77), record_paddr: U64::new(old.try_into().unwrap()) };
    let mut damaged = file.clone();
    let page = &mut damaged[at..at + 4096];
    index_page::set_slot(page, 77, stray);
    index_page::seal_page(page, image_id, pageid, used + 1, None).unwrap();
    let stray = findings(damaged);
    assert!(
        stray.iter().any(|one| one.meaning.contains("not the newest record of any key")),
        "{stray:?}"
    );
}

#[test]
fn beside_a_writer_nothing_is_found_that_is_not_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let keys = || Keyring::new().with(1, Key::new([1; 32]));
    let options = Options::default()
        .durability(Durability::Relaxed)
        .segment_bytes_max(64 << 10)
        .overlay_min(2000)
        .compression(Compression::Zstd)
        .encrypted(1)
        .keys(keys());
    let bucket = Bucket::create(&path, options).unwrap();
    let (is_done, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(3);
            while !is_done.load(Ordering::Acquire) {
                let mut batch = Batch::new();
                for _ in 0..50 {
                    let key = format!("key {}", rng.u32(..20_000));
                    match rng.u8(..4) {
                        0 => drop(batch.delete(key)),
                        _ => drop(batch.put(key, vec![b'x'; rng.usize(..500)])),
                    }
                }
                bucket.commit(batch).unwrap();
                match rng.u16(..400) {
                    0 => drop(bucket.compact(Compact::Auto).unwrap()),
                    1 => drop(bucket.compact(Compact::Full).unwrap()),
                    2 => bucket.flush().unwrap(),
                    _ => {}
                }
            }
        });
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(6) || rounds.load(Ordering::Relaxed) < 5 {
            let mut stages = BTreeSet::new();
            let mut note = |progress: kvb::Progress| {
                assert!(progress.done <= progress.total, "{progress:?}");
                stages.insert(progress.stage);
            };
            let options = Options::default().keys(keys());
            let found = kvb::verify(&path, options, &mut note).unwrap();
            if !found.is_sound() {
                is_done.store(true, Ordering::Release);
                panic!("{found:?}");
            }
            assert!(found.records == 0 || stages.contains("segments"), "{stages:?}");
            rounds.fetch_add(1, Ordering::Relaxed);
        }
        is_done.store(true, Ordering::Release);
    });
    println!("verified {} times beside a writer", rounds.into_inner());
}
