//! Files that somebody made to do harm: right checksums over numbers that no writer writes, files that are exchanged.
//!
//! Every number in the structures of a bucket is set to those that break arithmetic: nothing, one, the edges of 31, 32, 63 and 64
//! bits, and places in the file, so that extents overlap, lead back to themselves, or have no end, and superblocks lead
//! into each other. Then everything is done to the file that can be. It may be refused; nothing may panic or hang, and no
//! lookup may answer with a value that was never put, unless the record itself was forged.
//!
//! The fuzzer does the same without a plan (`fuzz/fuzz_targets/files.rs`).

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "it counts what it tried")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/watch.rs"]
mod watch;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forge::{
    PAGE, repair_header, repair_index_page, repair_meta, repair_page, repair_record, segments,
};
use host::{ManualEnv, SimDisk};
use kvb::format::extension::{self, Extension};
use kvb::format::journal::JournalEntry;
use kvb::format::record::RecordHeader;
use kvb::format::roster::{NamedExtent, RosterHead};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::Superblock;
use kvb::format::{crc, meta, roster};
use kvb::{Batch, Bucket, Compact, Durability, Error, Options, Reader};

/// All values that each key ever had.
type Ever = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;
/// Makes the checksums of a structure right again.
type Mend = Box<dyn Fn(&mut [u8])>;

/// One file may take so long; the slowest take milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

fn options() -> Options {
    // With entries in the journal.
    Options::default()
        .durability(Durability::Sync)
        .background(false)
        .overlay_min(16)
        .segment_bytes_max(16 << 10)
}

fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(1 << 60, 3))
}

fn value(key: u32, number: u32) -> Vec<u8> {
    format!("value {number} of key {key}").repeat(8).into_bytes()
}

/// A small bucket with a bit of everything, and all values that each key ever had.
fn bucket() -> (Vec<u8>, Ever) {
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options()).unwrap();
    let mut ever: Ever = Ever::new();
    for number in 0..40_u32 {
        let mut batch = Batch::new();
        for at in 0..4 {
            let key = (number * 7 + at) % 50;
            if key % 5 == 0 {
                batch.delete(key.to_be_bytes());
            } else {
                batch.put(key.to_be_bytes(), value(key, number));
                ever.entry(key.to_be_bytes().to_vec()).or_default().push(value(key, number));
            }
        }
        bucket.commit(batch).unwrap();
        if number == 25 {
            bucket.compact(Compact::Full).unwrap();
        }
    }
    bucket.flush().unwrap();
    bucket.put(7_u32.to_be_bytes(), b"tail").unwrap();
    ever.entry(7_u32.to_be_bytes().to_vec()).or_default().push(b"tail".to_vec());
    let bytes = disk.to_bytes();
    drop(bucket);
    (bytes, ever)
}

/// Does everything to a file. `is_honest` if no record in it is forged.
fn attack(file: &[u8], ever: &Ever, is_honest: bool) {
    let disk = || Arc::new(SimDisk::with_region(file.to_vec(), 4 << 20));
    let is_known = |key: &[u8], value: &[u8]| {
        let mut values = ever.get(key).into_iter().flatten();
        !is_honest || values.any(|known| known == value)
    };
    let _ = kvb::verify_on(disk(), env(), options(), &mut |_| {});
    if let Ok(reader) = Reader::open_on(disk(), env()) {
        for key in ever.keys() {
            if let Ok(Some(found)) = reader.get(key) {
                assert!(is_known(key, &found), "a value that was never put");
            }
        }
        for at in (0..file.len()).step_by(PAGE) {
            let _ = reader.inspect(u64::try_from(at).unwrap());
        }
    }
    if let Ok(bucket) = Bucket::open_on(disk(), env(), options()) {
        for row in bucket.scan(b"").take(1000).flatten() {
            assert!(is_known(row.key(), row.value()), "a row that was never put");
        }
        let _ = bucket.scan(b"").rev().take(1000).count();
        let _ = bucket.put(b"new", [5; 300]);
        let _ = bucket.compact(Compact::Full);
        let _ = bucket.flush();
    }
    let target = Arc::new(SimDisk::with_region(Vec::new(), 4 << 20));
    let _ = kvb::repair_on(disk(), Some(target), env(), options(), &mut |_| {});
}

/// The name of the structure that answers are made of.
const RECORD: &str = "record";

/// A structure: where it lies, and how its checksums are made right again.
struct Structure {
    name: String,
    bytes: Range<usize>,
    is_record: bool,
    repair: Mend,
}

fn structures(file: &[u8]) -> Vec<Structure> {
    let last = file.len() - PAGE;
    let mut found = Vec::new();
    let mut add = |name: &str, bytes: Range<usize>, repair: Mend| {
        let is_record = name == RECORD;
        found.push(Structure { name: name.to_owned(), bytes, is_record, repair });
    };
    // One copy lies, and both do.
    let end = roster::OFFSET + 96;
    for (name, from, to) in [
        ("superblock", 0, 136),
        ("extension", extension::OFFSET, 336),
        ("roster", roster::OFFSET, end),
    ] {
        add(&format!("{name} A"), from..to, Box::new(|file| repair_page(file, 0)));
        add(
            &format!("{name} A and B"),
            from..to,
            Box::new(move |file| {
                let changed = file[from..to].to_vec();
                file[last + from..last + to].copy_from_slice(&changed);
                if from == extension::OFFSET {
                    // Each knows its own place.
                    let own = u64::try_from(last / PAGE).unwrap().to_le_bytes();
                    let at = from + std::mem::offset_of!(Extension, self_page);
                    file[last + at..last + at + 8].copy_from_slice(&own);
                }
                repair_page(file, 0);
                repair_page(file, last);
            }),
        );
    }
    let journal =
        usize::try_from(Superblock::decode(file).unwrap().journal_start_page.get()).unwrap();
    let entries = (journal * PAGE..).step_by(JournalEntry::SIZE);
    let entries = entries.take_while(|at| JournalEntry::decode(&file[*at..]).is_some());
    let entries: Vec<usize> = entries.collect();
    for at in [entries[0], *entries.last().unwrap()] {
        add(
            "journal entry",
            at..at + 48,
            Box::new(move |file| {
                let sum = crc(&file[at..at + 48]);
                file[at + 48..at + 52].copy_from_slice(&sum.to_le_bytes());
            }),
        );
    }
    let begun = segments(file);
    for segment in [&begun[0], begun.last().unwrap()] {
        let start = segment.start;
        add(
            "segment",
            start..start + SegmentHeader::SIZE,
            Box::new(move |file| repair_header(file, start)),
        );
        let records = segment.records(file);
        for record in [records[0].clone(), records.last().unwrap().clone()] {
            let header = record.start..record.start + RecordHeader::SIZE;
            add(RECORD, header, Box::new(move |file| repair_record(file, &record)));
        }
    }
    let superblock = Superblock::decode(file).unwrap();
    let at = |page: zerocopy::little_endian::U64| usize::try_from(page.get()).unwrap() * PAGE;
    let map = at(superblock.fsm_start_page);
    let seal_map: fn(&mut [u8], usize) = |file, at| {
        let sum = crc(&file[at..at + PAGE - 4]);
        file[at + PAGE - 4..at + PAGE].copy_from_slice(&sum.to_le_bytes());
    };
    // Head, the first pages of the bitmap, the list behind it.
    for bytes in [0..48 + 16, 48 + PAGE / 4 * 3..48 + PAGE / 4 * 3 + 32] {
        let bytes = map + bytes.start..map + bytes.end;
        add("free-space map", bytes, Box::new(move |file| seal_map(file, map)));
    }
    let index = at(superblock.index_region_start_page);
    let used = (0..128).find(|slot| file[index + 28 + slot * 16] != 0).unwrap();
    for bytes in [0..28, 28 + used * 16..28 + used * 16 + 32] {
        let bytes = index + bytes.start..index + bytes.end;
        add("index page", bytes, Box::new(move |file| repair_index_page(file, index)));
    }
    for page in 1..file.len() / PAGE - 1 {
        let start = page * PAGE;
        let Some(header) = SegmentHeader::decode(&file[start..]) else { continue };
        if header.kind() != Some(Kind::Meta) {
            continue;
        }
        // Pages that are free may still have what was there before.
        let Some(pages) = header.page_count(4096) else { continue };
        let extent = start..start + usize::try_from(pages).unwrap() * PAGE;
        add(
            "extent header",
            start..start + SegmentHeader::SIZE,
            Box::new(move |file| repair_header(file, start)),
        );
        let head = start + meta::OFFSET..start + meta::OFFSET + 160;
        let whole = extent.clone();
        add("derived head", head, Box::new(move |file| repair_meta(file, &whole)));
        let body = start + meta::OFFSET + 160..(start + meta::OFFSET + 400).min(extent.end);
        add("derived rows", body, Box::new(move |file| repair_meta(file, &extent)));
    }
    found
}

#[test]
fn numbers_at_every_edge() {
    let (file, ever) = bucket();
    let pages = u64::try_from(file.len() / PAGE).unwrap();
    let first = u64::try_from(segments(&file)[0].start).unwrap();
    let mut tried = 0_u64;
    for structure in structures(&file) {
        let mut mended = file.clone();
        (structure.repair)(&mut mended);
        // A superblock's page also gets those of structures that are not in it.
        let is_known = mended == file || structure.name.contains(" A");
        assert!(is_known, "{}: not its checksums", structure.name);
        for at in structure.bytes.clone().step_by(4) {
            for width in [4, 8] {
                let old = file[at..at + 8].to_vec();
                let numbers = [
                    0,
                    1,
                    u64::from_le_bytes(old.clone().try_into().unwrap()).wrapping_add(1),
                    pages - 1,
                    pages,
                    first / 4096,
                    first,
                    0x7FFF_FFFF,
                    0xFFFF_FFFF,
                    1 << 32,
                    (1 << 45) - 1,
                    1 << 61,
                    u64::MAX >> 1,
                    u64::MAX,
                ];
                for number in numbers {
                    if width == 4 && number > 0xFFFF_FFFF {
                        continue;
                    }
                    let mut changed = file.clone();
                    changed[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
                    (structure.repair)(&mut changed);
                    if changed == file {
                        continue;
                    }
                    tried += 1;
                    let what = format!("{} at {at}: {number:#x} in {width} bytes", structure.name);
                    let ever = ever.clone();
                    let is_honest = !structure.is_record;
                    watch::within(LIMIT, &what, move || attack(&changed, &ever, is_honest));
                }
            }
        }
    }
    println!("{tried} files");
    assert!(tried > 5000, "only {tried} files");
}

/// Attacks a file that was changed by hand.
fn attack_within(what: &str, file: Vec<u8>, ever: &Ever) {
    let ever = ever.clone();
    watch::within(LIMIT, what, move || attack(&file, &ever, true));
}

fn put_number(file: &mut [u8], at: usize, number: u64) {
    file[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// Each place that a superblock names is that of the other superblock, its own, or that of another structure.
#[test]
fn superblocks_that_point_into_each_other() {
    let (file, ever) = bucket();
    let last = file.len() - PAGE;
    let superblock = Superblock::decode(&file).unwrap();
    let last_page = u64::try_from(last / PAGE).unwrap();
    let pages = [
        0,
        last_page,
        superblock.index_region_start_page.get(),
        superblock.segment_start_page.get(),
        superblock.fsm_start_page.get(),
    ];
    let fields = [
        std::mem::offset_of!(Superblock, index_region_start_page),
        std::mem::offset_of!(Superblock, fsm_start_page),
        std::mem::offset_of!(Superblock, journal_start_page),
        std::mem::offset_of!(Superblock, segment_start_page),
        std::mem::offset_of!(Superblock, segment_end_page),
        extension::OFFSET + std::mem::offset_of!(Extension, self_page),
        extension::OFFSET + std::mem::offset_of!(Extension, b_page),
        extension::OFFSET + std::mem::offset_of!(Extension, table_start_page),
        extension::OFFSET + std::mem::offset_of!(Extension, bulletin_page),
        extension::OFFSET + std::mem::offset_of!(Extension, book_start_page),
    ];
    for field in fields {
        for (of_a, of_b) in pages.iter().flat_map(|a| pages.map(|b| (*a, b))) {
            let mut changed = file.clone();
            put_number(&mut changed, field, of_a);
            put_number(&mut changed, last + field, of_b);
            repair_page(&mut changed, 0);
            repair_page(&mut changed, last);
            let what = format!("field at {field}: {of_a} in A, {of_b} in B");
            attack_within(&what, changed, &ever);
        }
    }
    // Each in the other's place, and twice the same.
    for (a, b) in [(last, 0), (0, 0), (last, last)] {
        let mut changed = file.clone();
        changed[..PAGE].copy_from_slice(&file[a..a + PAGE]);
        changed[last..].copy_from_slice(&file[b..b + PAGE]);
        attack_within(&format!("copies of {a} and {b}"), changed, &ever);
    }
}

/// Sizes in headers of extents that lead back, by going once around all numbers, or nowhere, and rosters and tables that
/// name what was there before.
#[test]
fn extents_that_form_a_cycle() {
    let (file, ever) = bucket();
    let size = std::mem::offset_of!(SegmentHeader, segment_size);
    let pages = 1..file.len() / PAGE - 1;
    let is_header = |page: &usize| SegmentHeader::decode(&file[page * PAGE..]).is_some();
    let starts: Vec<usize> = pages.filter(is_header).map(|page| page * PAGE).collect();
    let mut tried = 0;
    for from in &starts {
        for to in &starts {
            let mut changed = file.clone();
            let distance = u64::try_from(*to).unwrap().wrapping_sub(u64::try_from(*from).unwrap());
            put_number(&mut changed, from + size, distance);
            repair_header(&mut changed, *from);
            // And back again.
            put_number(&mut changed, to + size, distance.wrapping_neg());
            repair_header(&mut changed, *to);
            attack_within(&format!("from {from} to {to} and back"), changed, &ever);
            tried += 1;
        }
    }
    // Every row of the roster names the extent of the row before.
    let named = roster::OFFSET + RosterHead::SIZE;
    let (len, first) = (NamedExtent::SIZE, file[named..named + NamedExtent::SIZE].to_vec());
    for shift in 0..8 {
        let mut changed = file.clone();
        for at in [0, file.len() - PAGE] {
            let row = at + named + shift * len;
            changed[row..row + len].copy_from_slice(&first);
            repair_page(&mut changed, at);
        }
        attack_within(&format!("row {shift} of the roster again"), changed, &ever);
    }
    assert!(tried > 20, "only {tried} files");
}

fn write_over(path: &Path, bytes: &[u8]) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
}

/// A bucket is put back to an earlier state, or exchanged for another one, between two openings and under a reader.
#[test]
fn a_file_that_is_exchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("bucket.kvb"), dir.path().join("other.kvb"));
    let make = |path: &Path, word: &str| {
        let bucket = Bucket::create(path, options()).unwrap();
        for number in 0..200 {
            bucket.put(format!("key {number}"), format!("{word} {number}")).unwrap();
        }
        bucket.close().unwrap();
        std::fs::read(path).unwrap()
    };
    let early = make(&path, "first");
    let foreign = make(&other, "other");
    let bucket = Bucket::open(&path, options()).unwrap();
    for number in 0..200 {
        bucket.put(format!("key {number}"), format!("second {number}")).unwrap();
    }
    bucket.close().unwrap();
    let late = std::fs::read(&path).unwrap();
    assert!(early.len() <= late.len() && foreign.len() <= late.len());
    for exchanged in [&early, &foreign] {
        let reader = Reader::open(&path).unwrap();
        assert_eq!(&reader.get("key 5").unwrap().unwrap()[..], b"second 5");
        write_over(&path, exchanged);
        // It answers with what was there once, or says that something is wrong.
        for number in 0..200 {
            match reader.get(format!("key {number}")) {
                Ok(found) => {
                    let words = ["first", "second", "other"];
                    let known = words.map(|word| format!("{word} {number}").into_bytes());
                    assert!(found.is_none_or(|found| known.contains(&found.to_vec())));
                }
                Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
            }
        }
        drop(reader);
        // Cut to its own length it is just another bucket.
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(u64::try_from(exchanged.len()).unwrap()).unwrap();
        let bucket = Bucket::open(&path, options()).unwrap();
        assert_eq!(bucket.scan(b"").filter(|row| row.is_ok()).count(), 200);
        drop(bucket);
        std::fs::write(&path, &late).unwrap();
    }
    // Half of one and half of the other is neither.
    for cut in [PAGE, late.len() / 2 / PAGE * PAGE, late.len() - PAGE] {
        for (head, tail) in [(&early, &late), (&late, &early), (&late, &foreign)] {
            let mut mixed = head[..cut.min(head.len())].to_vec();
            mixed.extend_from_slice(tail.get(mixed.len()..).unwrap_or(&[]));
            std::fs::write(&path, &mixed).unwrap();
            if let Ok(bucket) = Bucket::open(&path, options()) {
                for row in bucket.scan(b"").flatten() {
                    let text = String::from_utf8_lossy(row.value()).into_owned();
                    assert!(["first", "second", "other"].iter().any(|word| text.starts_with(word)));
                }
            }
        }
    }
}

/// What may not be read or written says so, and what lies around it stays as it is.
#[test]
fn files_that_are_not_ours() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    Bucket::create(&path, options()).unwrap().close().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    // A link to nowhere, to itself, to a directory, to a device that never ends.
    for (name, target) in
        [("nowhere", "nothing"), ("self", "self"), ("dir", "."), ("zero", "/dev/zero")]
    {
        let link = dir.path().join(name);
        symlink(target, &link).unwrap();
        assert!(Bucket::open(&link, options()).is_err(), "{name}");
        assert!(Reader::open(&link).is_err(), "{name}");
        assert!(Bucket::create(&link, options()).is_err(), "{name}: a link is not written through");
    }
    assert!(!dir.path().join("nothing").exists());
    // Nobody may write it. Root may all the same.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    match Bucket::open(&path, options()) {
        Ok(bucket) => drop(bucket),
        Err(error) => {
            assert!(error.to_string().to_lowercase().contains("permission"), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }
    assert!(Reader::open(&path).is_ok());
}

/// Many entries of an index or of a directory may name one record, and whoever finds out that it does not hold reads all of it.
#[test]
fn a_long_record_that_does_not_hold_is_read_once() {
    const LEN: usize = 32 << 20;
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options()).unwrap();
    bucket.put(b"long", vec![7; LEN]).unwrap();
    bucket.close().unwrap();
    let mut file = disk.to_bytes();
    let inside = file.windows(64).position(|bytes| bytes.iter().all(|byte| *byte == 7)).unwrap();
    file[inside + LEN / 2] ^= 1;
    watch::within(LIMIT, "a_long_record_that_does_not_hold_is_read_once", move || {
        let bucket =
            Bucket::open_on(Arc::new(SimDisk::from_image(file)), env(), options()).unwrap();
        // All of it every time would be three TiB.
        for _ in 0..100_000 {
            assert!(matches!(bucket.get(b"long"), Err(Error::Corrupt(_))));
        }
    });
}
