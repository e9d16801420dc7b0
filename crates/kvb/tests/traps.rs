//! Traps: files that replace each other, keys in any order, side data that lies, backups of what is not durable.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/forge.rs"]
mod forge;

use std::path::PathBuf;
use std::sync::Arc;

use host::{Env, Keep, ManualEnv, MemoryDisk, SimDisk};
use kvb::format::extension::{self, Extension};
use kvb::format::meta::{self, Meta};
use kvb::format::record::RecordHeader;
use kvb::format::roster;
use kvb::format::run::RunEntry;
use kvb::format::superblock::Superblock;
use kvb::{Bucket, Compact, Durability, Key, Keyring, Options, Reader, RepairTo};

fn quiet(_: kvb::Progress) {}

fn env() -> Arc<dyn Env> {
    Arc::new(ManualEnv::new(1_700_000_000_000_000_000, 5))
}

fn synced() -> Options {
    Options::default().background(false).durability(Durability::Sync)
}

fn plain() -> Options {
    Options::default().background(false).durability(Durability::Relaxed)
}

fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("kvb-review-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Offsets of records whose key is this.
fn find_records(file: &[u8], key: &[u8]) -> Vec<usize> {
    let at = |end: usize| end.checked_sub(RecordHeader::SIZE);
    (0..file.len() - key.len())
        .filter(|from| file[*from..].starts_with(key))
        .filter_map(at)
        .filter(|at| RecordHeader::decode(&file[*at..]).is_some())
        .collect()
}

fn repaired(file: Vec<u8>, options: Options) -> (kvb::Repair, Option<Bucket>) {
    let target = MemoryDisk::new();
    let report = kvb::repair_on(
        Arc::new(MemoryDisk::from_bytes(file)),
        Some(Arc::new(target.reopen())),
        env(),
        options.clone(),
        &mut quiet,
    )
    .unwrap();
    let bucket = Bucket::open_on(Arc::new(target.reopen()), env(), options).ok();
    (report, bucket)
}

#[test]
fn a_backup_over_the_bucket_itself_is_refused() {
    let dir = dir("self");
    let path = dir.join("live.kvb");
    let bucket = Bucket::create(&path, plain().durability(Durability::Sync)).unwrap();
    bucket.put(b"a", b"1").unwrap();
    let done = bucket.snapshot().backup(&path, &mut quiet);
    // Durable, or so it says.
    let put = bucket.put(b"b", b"2");
    let closed = bucket.close();
    let bucket = Bucket::open(&path, plain()).unwrap();
    assert!(
        done.is_err() || put.is_err() || bucket.get(b"b").unwrap().is_some(),
        "backup {done:?}, put {put:?}, close {closed:?}, and the put is gone"
    );
}

#[test]
fn an_increment_does_not_replace_what_it_goes_on_from() {
    let dir = dir("base");
    let bucket = Bucket::create(dir.join("live.kvb"), plain()).unwrap();
    bucket.put(b"a", b"1").unwrap();
    let base = dir.join("base.kvb");
    bucket.snapshot().backup(&base, &mut quiet).unwrap();
    bucket.put(b"b", b"2").unwrap();
    let done = bucket.snapshot().backup_since(&base, &[&base], &mut quiet);
    let restored = kvb::restore(&[&base], dir.join("restored.kvb"), plain(), &mut quiet);
    assert!(done.is_err() && restored.is_ok(), "{done:?}, and then {restored:?}");
}

#[test]
fn two_backups_to_one_name_do_not_mix() {
    let dir = dir("race");
    let bucket = Bucket::create(dir.join("live.kvb"), plain()).unwrap();
    for number in 0..3000_u32 {
        bucket.put(number.to_be_bytes(), [7; 100]).unwrap();
    }
    let target = dir.join("backup.kvb");
    let snapshot = bucket.snapshot();
    let unfinished = dir.join("backup.kvb.unfinished");
    let mut is_begun = false;
    // Another backup to the same name begins while this one copies: what it does first is done here by hand.
    let done = snapshot.backup(&target, &mut |_| {
        if !std::mem::replace(&mut is_begun, true) {
            let other = bucket.snapshot();
            let mut deep = |_: kvb::Progress| panic!("the other one is killed here");
            let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                other.backup(&target, &mut deep)
            }));
            // It learns that somebody is at it.
            assert!(matches!(killed, Ok(Err(kvb::Error::Locked { .. }))), "{killed:?}");
            assert!(unfinished.exists());
        }
    });
    let there = kvb::verify(&target, plain(), &mut quiet);
    let keys =
        Reader::open(&target).ok().map(|reader| reader.snapshot().unwrap().scan(b"").count());
    assert!(
        done.is_err() || keys == Some(3000),
        "{done:?}, and the file has {keys:?} keys; verify says {there:?}"
    );
}

#[test]
fn a_healthy_increment_survives_repair() {
    let dir = dir("increment");
    let bucket = Bucket::create(dir.join("live.kvb"), plain()).unwrap();
    bucket.put(b"a", b"1").unwrap();
    let (base, next) = (dir.join("base.kvb"), dir.join("next.kvb"));
    bucket.snapshot().backup(&base, &mut quiet).unwrap();
    bucket.delete(b"a").unwrap();
    bucket.put(b"b", b"2").unwrap();
    bucket.snapshot().backup_since(&next, &[&base], &mut quiet).unwrap();
    let before = std::fs::read(&next).unwrap();
    let report = kvb::repair(&next, &RepairTo::InPlace, plain(), &mut quiet);
    let is_same = std::fs::read(&next).unwrap() == before;
    let restored = kvb::restore(&[&base, &next], dir.join("r.kvb"), plain(), &mut quiet);
    assert!(is_same && restored.is_ok(), "{report:?}; unchanged: {is_same}; restore: {restored:?}");
}

#[test]
fn keys_given_for_a_healthy_plain_bucket_are_no_damage() {
    let dir = dir("plain-keys");
    let path = dir.join("live.kvb");
    let bucket = Bucket::create(&path, plain()).unwrap();
    bucket.put(b"a", b"1").unwrap();
    bucket.close().unwrap();
    let options = plain().keys(Keyring::new().with(1, Key::new([1; 32])));
    let report = kvb::repair(&path, &RepairTo::DryRun, options, &mut quiet);
    assert!(report.as_ref().is_ok_and(|report| report.is_sound) || report.is_err(), "{report:?}");
}

#[test]
fn repair_to_the_damaged_file_by_another_name_is_refused() {
    let dir = dir("alias");
    let path = dir.join("live.kvb");
    let bucket = Bucket::create(&path, plain()).unwrap();
    bucket.put(b"a", b"1").unwrap();
    bucket.close().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let alias = dir.join("..").join(dir.file_name().unwrap()).join("live.kvb");
    let report = kvb::repair(&path, &RepairTo::New(alias), plain(), &mut quiet);
    let is_same = std::fs::read(&path).unwrap() == bytes;
    assert!(is_same, "the damaged file is gone; {:?}", report.map(|report| report.keys));
}

/// Of an encrypted bucket without superblocks.
#[test]
fn any_key_of_a_ring_is_tried() {
    let ring = || (1..=12_u8).fold(Keyring::new(), |r, n| r.with(n.into(), Key::new([n; 32])));
    let disk = MemoryDisk::new();
    let options = plain().encrypted(5).keys(ring());
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options).unwrap();
    for number in 0..2000_u32 {
        bucket.put(number.to_be_bytes(), [7; 40]).unwrap();
    }
    bucket.compact(Compact::Full).unwrap();
    bucket.close().unwrap();
    let mut file = disk.to_bytes();
    let len = file.len();
    file[..4096].fill(0);
    file[len - 4096..].fill(0);
    let (report, _) = repaired(file, plain().keys(ring()));
    assert_eq!(report.keys, 2000, "{:?}", report.lost.first());
}

/// Records between two headers that are damaged, in a segment that was not sealed.
#[test]
fn records_between_two_damaged_headers_come_back() {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), synced()).unwrap();
    for number in 0..200_u32 {
        bucket.put(format!("key {number:04}"), [7; 40]).unwrap();
    }
    // Power goes out here: nothing is sealed.
    let mut file = disk.to_bytes();
    for key in ["key 0140", "key 0180"] {
        let at = find_records(&file, key.as_bytes())[0];
        file[at + 8] ^= 1;
    }
    let (report, _) = repaired(file, plain());
    assert_eq!(report.keys, 198, "{:?}", report.lost);
}

/// A snapshot from before a rotation that says it is complete.
#[test]
fn snapshots_outlive_a_rotation() {
    let ring = || (1..=2_u8).fold(Keyring::new(), |r, n| r.with(n.into(), Key::new([n; 32])));
    for count in [10_u32, 3000] {
        let disk = MemoryDisk::new();
        let options = plain().encrypted(1).keys(ring()).overlay_min(64).segment_bytes_max(64 << 10);
        let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options).unwrap();
        for number in 0..count {
            bucket.put(number.to_be_bytes(), [7; 40]).unwrap();
        }
        let snapshot = bucket.snapshot();
        let done = bucket.rotate_key(2);
        let rows = snapshot.scan(b"").filter(|row| row.is_ok()).count();
        let got = (0..count).filter(|n| snapshot.get(n.to_be_bytes()).is_ok_and(|v| v.is_some()));
        let count = usize::try_from(count).unwrap();
        assert_eq!((rows, got.count()), (count, count), "{done:?}");
    }
}

/// A backup of commits that power loss takes from the bucket afterwards.
#[test]
fn increments_go_on_from_what_the_bucket_still_has() {
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), plain()).unwrap();
    bucket.put(b"a", b"1").unwrap();
    bucket.flush().unwrap();
    bucket.put(b"a", b"2").unwrap();
    bucket.put(b"b", b"2").unwrap();
    let base = MemoryDisk::new();
    bucket.snapshot().backup_on(Arc::new(base.reopen()), env(), plain(), &mut quiet).unwrap();
    let trace = disk.trace();
    let file = trace.image(trace.len(), Keep::None);
    drop(bucket);
    let disk = MemoryDisk::from_bytes(file);
    let bucket = Bucket::open_on(Arc::new(disk.reopen()), env(), plain()).unwrap();
    bucket.put(b"c", b"3").unwrap();
    let next = MemoryDisk::new();
    let before: [Arc<dyn host::Disk>; 1] = [Arc::new(base.reopen())];
    let next_disk = Arc::new(next.reopen());
    let done = bucket.snapshot().backup_since_on(next_disk, env(), &before, plain(), &mut quiet);
    let Ok(done) = done else { return };
    let restored = MemoryDisk::new();
    let files: [Arc<dyn host::Disk>; 2] = [Arc::new(base.reopen()), Arc::new(next.reopen())];
    kvb::restore_on(&files, Arc::new(restored.reopen()), env(), plain(), &mut quiet).unwrap();
    let restored = Bucket::open_on(Arc::new(restored.reopen()), env(), plain()).unwrap();
    let rows = |bucket: &Bucket| -> Vec<_> {
        bucket
            .scan(b"")
            .map(|row| row.unwrap())
            .map(|row| (row.key().to_vec(), row.value().to_vec()))
            .collect()
    };
    assert_eq!(rows(&restored), rows(&bucket), "{done:?}");
}

/// A closed bucket with side data that holds and lies; `change` gets its head and run.
fn with_side_data(change: impl Fn(&mut Meta, &mut [u8])) -> Vec<u8> {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), plain()).unwrap();
    for number in 0..2000_u32 {
        bucket.put(number.to_be_bytes(), [7; 40]).unwrap();
    }
    bucket.compact(Compact::Full).unwrap();
    bucket.close().unwrap();
    let mut file = disk.to_bytes();
    let superblock = Superblock::decode(&file[..512]).ok().unwrap();
    let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
    for page in (0..file.len()).step_by(4096) {
        let Some(mut meta) = Meta::decode(&file[page..], meta::KIND_SIDE, uuid) else { continue };
        let place = meta.place(meta::SECTION_RUN).unwrap();
        let from = page + usize::try_from(meta.sections[place].offset.get()).unwrap();
        let to = from + usize::try_from(meta.sections[place].length.get()).unwrap();
        change(&mut meta, &mut file[from..to]);
        meta.sections[place].crc32c.set(kvb::format::crc(&file[from..to]));
        let head = meta.encode();
        file[page + meta::OFFSET..page + meta::OFFSET + head.len()].copy_from_slice(&head);
    }
    file
}

#[test]
fn a_run_with_places_past_the_segment_is_no_panic() {
    let file = with_side_data(|_, run| {
        // The last four bytes of some entry, or whichever hold its place: all of them are tried.
        for byte in run.iter_mut().take(RunEntry::SIZE) {
            *byte = 0x7F;
        }
    });
    repaired(file, plain());
}

#[test]
fn side_data_with_a_huge_seqno_is_no_panic() {
    repaired(with_side_data(|meta, _| meta.head.seqno.set(u64::MAX)), plain());
}

#[test]
fn side_data_with_a_huge_count_is_no_panic() {
    repaired(with_side_data(|meta, _| meta.head.count.set(u64::MAX)), plain());
}

/// A roster that names one segment many times: with a table it could be a million times.
#[test]
fn a_segment_named_twice_is_looked_at_once() {
    use kvb::format::extension::{self, Extension};
    use kvb::format::roster::{self, Roster};
    use zerocopy::IntoBytes;
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), plain()).unwrap();
    for number in 0..2000_u32 {
        bucket.put(number.to_be_bytes(), [7; 40]).unwrap();
    }
    bucket.close().unwrap();
    let mut file = disk.to_bytes();
    let last = file.len() - 4096;
    for page in [0, last] {
        let superblock = Superblock::decode(&file[page..page + 512]).ok().unwrap();
        let uuid = (superblock.file_uuid_hi.get(), superblock.file_uuid_lo.get());
        let epoch = superblock.epoch.get();
        let bytes = &file[page + extension::OFFSET..];
        let mut extension = Extension::decode(bytes, epoch, uuid).unwrap();
        let bytes = &file[page + roster::OFFSET..page + 4096];
        let crc = extension.roster_crc32c.get();
        let mut roster = Roster::decode(bytes, epoch, uuid, crc).unwrap();
        let one = roster.sealed[0];
        roster.sealed.extend([one; 20]);
        let bytes = roster.encode(epoch, uuid);
        file[page + roster::OFFSET..page + roster::OFFSET + bytes.len()].copy_from_slice(&bytes);
        extension.roster_crc32c.set(u32::from_le_bytes(*bytes.last_chunk().unwrap()));
        let end = page + extension::OFFSET + Extension::SIZE;
        file[page + extension::OFFSET..end].copy_from_slice(extension.seal().as_bytes());
    }
    let (report, _) = repaired(file, plain());
    assert_eq!((report.records_found, report.keys), (2000, 2000));
}

/// The key of the keyed hash is hidden on disk.
#[test]
fn nothing_secret_is_printed() {
    let ring = Keyring::new().with(1, Key::new([1; 32]));
    let options = plain().encrypted(1).keys(ring);
    let bucket = Bucket::create_on(Arc::new(MemoryDisk::new()), env(), options).unwrap();
    let text = format!("{bucket:?}");
    let at = text.find("hash_key");
    let shown = at.map(|at| text[at..].chars().take(100).collect::<String>());
    assert_eq!(shown, None);
}

/// A bucket with segments of every kind, in which both superblocks say something else, with checksums that hold.
fn forged(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let disk = MemoryDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), synced()).unwrap();
    for round in 0..3_u32 {
        for row in 0..50_u32 {
            bucket.put(format!("row {row}"), round.to_le_bytes()).unwrap();
        }
        bucket.compact(Compact::Full).unwrap();
    }
    bucket.put(b"last", b"1").unwrap();
    bucket.close().unwrap();
    let mut file = disk.to_bytes();
    for at in [0, file.len() - forge::PAGE] {
        change(&mut file[at..at + forge::PAGE]);
        forge::repair_page(&mut file, at);
    }
    file
}

fn put_word(page: &mut [u8], at: usize, value: u64) {
    page[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn pages_past_all_bytes_are_damage() {
    let of = |name: &str| {
        let field = Extension::LAYOUT.iter().find(|field| field.name == name).unwrap();
        extension::OFFSET + field.offset
    };
    // The first extent that is named stands behind the roster's head.
    let places = [of("book_start_page"), of("table_start_page"), roster::OFFSET + 32];
    for value in [1 << 62, u64::MAX - 1, u64::MAX] {
        for at in places {
            let file = forged(|page| put_word(page, at, value));
            let disk = || Arc::new(MemoryDisk::from_bytes(file.clone()));
            // Whatever they say, they say it.
            let _ = Reader::open_on(disk(), env()).map(|reader| reader.survey());
            let _ = kvb::verify_on(disk(), env(), plain(), &mut quiet);
            assert!(Bucket::open_on(disk(), env(), plain()).is_err(), "{value:x} at {at}");
            let target =
                Some(MemoryDisk::new()).map(|disk| -> Arc<dyn host::Disk> { Arc::new(disk) });
            let done = kvb::repair_on(disk(), target, env(), plain(), &mut quiet).unwrap();
            assert_eq!(done.keys, 51, "{value:x} at {at}");
        }
    }
}

#[test]
fn nobody_writes_where_ids_were_given_out_that_are_still_to_come() {
    let next = Extension::LAYOUT.iter().find(|field| field.name == "next_seg_id").unwrap();
    let file = forged(|page| put_word(page, extension::OFFSET + next.offset, 2));
    let disk = || Arc::new(MemoryDisk::from_bytes(file.clone()));
    assert!(Bucket::open_on(disk(), env(), plain()).is_err());
    let target: Arc<dyn host::Disk> = Arc::new(MemoryDisk::new());
    let done = kvb::repair_on(disk(), Some(target), env(), plain(), &mut quiet).unwrap();
    assert_eq!(done.keys, 51);
}
