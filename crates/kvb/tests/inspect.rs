//! Inspection: every byte of a file is in a structure, and that is told field by field as `docs/format/kvb.md` has it.
//!
//! Small buckets of all kinds are looked at byte by byte. What is found is compared with the layouts of the structures,
//! with what the grammar says of each area, with counts of the survey, and, of records, with what was put. Then bytes are
//! changed, and lengths and counts forged: a structure says that it does not hold, or there is a typed error.
//!
//! In CI bytes between structures, and those of long values, are looked at here and there. `KVB_ROT=all` looks at all.
//! `KVB_SEED=n` replays a failing seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/forge.rs"]
mod forge;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/structures.rs"]
mod structures;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fastrand::Rng;
use host::{Disk, Env, ManualEnv, MemoryDisk};
use kvb::format::Field;
use kvb::format::record::{Framed, RecordHeader};
use kvb::{
    AreaKind, Batch, Bucket, Compact, Compression, Durability, Error, FieldFacts, HashKind,
    Inspection, Key, Keyring, Options, Reader, Sense, Structure, Survey,
};

const START_NS: u64 = 1_700_000_000_000_000_000;
const HOUR_NS: u64 = 3600 * 1_000_000_000;
/// What bytes are called that are part of no structure.
const NOTHING: &str = "(nothing)";

fn quiet(_: kvb::Progress) {}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap()
}

fn wide(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap()
}

/// What the page calls structures, and their fields.
fn layouts() -> BTreeMap<&'static str, &'static [Field]> {
    // A record is told as a whole, with what its header speaks of.
    let told = structures::ALL.iter().filter(|known| known.name != "RecordHeader");
    told.map(|known| (known.name, known.layout)).collect()
}

/// Words of the page for what has no table of its own: their fields and lengths. Of 0 it is any length.
const OTHERS: &[(&str, &str, usize)] = &[
    ("salt", "salt", 16),
    ("mac", "mac", 16),
    ("digest", "digest", 8),
    ("place", "place", 4),
    ("number", "number", 8),
    ("filter", "word", 8),
    ("roster CRC", "crc32c", 4),
    ("map CRC", "crc32c", 4),
    ("footer CRC", "crc32c", 4),
    ("head CRC", "crc32c", 4),
    ("book CRC", "crc32c", 4),
    ("bitmap", "bytes", 0),
    ("dictionaries", "bytes", 0),
    (NOTHING, "bytes", 0),
];

/// Structures that carry a checksum of their own.
const CHECKED: &[&str] = &[
    "Superblock",
    "Extension",
    "KeyBlock",
    "Lineage",
    "SegmentHeader",
    "Record",
    "JournalEntry",
    "IndexPageHeader",
];

/// What every seqno did: a key, and its value unless it was deleted.
type History = BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>;

/// A bucket to be looked at.
struct Subject {
    name: &'static str,
    file: Vec<u8>,
    options: Options,
    history: History,
    /// Keys that a lookup finds, with their values.
    rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(START_NS, 5))
}

fn keys() -> Keyring {
    Keyring::new().with(4, Key::new([4; 32]))
}

/// A bucket that is filled.
struct Maker {
    disk: MemoryDisk,
    env: Arc<ManualEnv>,
    options: Options,
    history: History,
}

impl Maker {
    fn new(options: Options) -> Maker {
        let options = options.background(false).overlay_min(16);
        Maker { disk: MemoryDisk::new(), env: env(), options, history: History::new() }
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

    fn put(&mut self, bucket: &Bucket, key: &str, value: &[u8]) {
        bucket.put(key, value).unwrap();
        let seqno = bucket.snapshot().seqno();
        self.history.insert(seqno, (key.into(), Some(value.to_vec())));
    }

    fn delete(&mut self, bucket: &Bucket, key: &str) {
        let mut batch = Batch::new();
        batch.delete(key);
        bucket.commit(batch).unwrap();
        self.history.insert(bucket.snapshot().seqno(), (key.into(), None));
    }

    /// Keys put once, replaced, deleted, expired; small values and one of several pages.
    fn fill(&mut self, bucket: &Bucket, round: usize) {
        for number in 0..40 {
            let value = format!("value {number} of {round} ").repeat(number % 9);
            self.put(bucket, &format!("key {number:02}"), value.as_bytes());
        }
        for number in (0..40).step_by(7) {
            self.delete(bucket, &format!("key {number:02}"));
        }
        self.put(bucket, "", b"of the empty key");
        self.put(bucket, "long", &b"a long value ".repeat(700));
        let mut batch = Batch::new();
        batch.put_until(format!("over {round}"), b"before it was there", START_NS / 2);
        bucket.commit(batch).unwrap();
        let key = format!("over {round}").into_bytes();
        let value = b"before it was there".to_vec();
        self.history.insert(bucket.snapshot().seqno(), (key, Some(value)));
    }

    fn subject(self, name: &'static str, bucket: Bucket) -> Subject {
        let rows = bucket.scan(b"").map(|row| row.unwrap());
        let rows = rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect();
        bucket.close().unwrap();
        let (file, options) = (self.disk.to_bytes(), opening(name));
        Subject { name, file, options, history: self.history, rows }
    }
}

/// What only opens it.
fn opening(name: &str) -> Options {
    let is_encrypted = name.contains("encrypted");
    let options = Options::default().takes_increments(name == "increment");
    if is_encrypted { options.keys(keys()) } else { options }
}

/// Sealed and compacted segments, an unsealed one, things retired.
fn bucket(name: &'static str, options: Options) -> Subject {
    let mut maker = Maker::new(options);
    let bucket = maker.create();
    maker.fill(&bucket, 0);
    if name.contains("dictionary") {
        bucket.train_dictionary(512).unwrap();
        maker.fill(&bucket, 1);
    }
    bucket.compact(Compact::Full).unwrap();
    bucket.close().unwrap();
    let bucket = maker.open();
    maker.fill(&bucket, 2);
    bucket.close().unwrap();
    let bucket = maker.open();
    for number in 0..5 {
        maker.put(&bucket, &format!("last {number}"), b"in the tail");
        maker.put(&bucket, "again and again", format!("time {number}").as_bytes());
    }
    maker.subject(name, bucket)
}

/// So many segments that the superblock has no room to list them.
fn with_table(name: &'static str, options: Options) -> Subject {
    let mut maker = Maker::new(options.segment_bytes_max(16 << 10));
    let bucket = maker.create();
    for number in 0..50 {
        maker.put(&bucket, &format!("key {number:03}"), &[b'v'; 8000]);
    }
    maker.subject(name, bucket)
}

/// A backup of a bucket, and what changed since.
fn copies(options: Options) -> [Subject; 2] {
    let mut maker = Maker::new(options);
    let bucket = maker.create();
    maker.fill(&bucket, 0);
    let full = MemoryDisk::new();
    let to = Arc::new(full.reopen());
    let like = maker.options.clone();
    bucket.snapshot().backup_on(to, maker.env(), like.clone(), &mut quiet).unwrap();
    let rows = |bucket: &Bucket| -> BTreeMap<Vec<u8>, Vec<u8>> {
        let rows = bucket.scan(b"").map(|row| row.unwrap());
        rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
    };
    let before = rows(&bucket);
    let history = maker.history.clone();
    maker.put(&bucket, "key 03", b"another value");
    maker.delete(&bucket, "key 04");
    let part = MemoryDisk::new();
    let (to, chain): (_, [Arc<dyn Disk>; 1]) = (Arc::new(part.reopen()), [Arc::new(full.reopen())]);
    bucket.snapshot().backup_since_on(to, maker.env(), &chain, like, &mut quiet).unwrap();
    let changed = BTreeMap::from([(b"key 03".to_vec(), b"another value".to_vec())]);
    let subject = |name, disk: &MemoryDisk, history, rows| {
        let (file, options) = (disk.to_bytes(), opening(name));
        Subject { name, file, options, history, rows }
    };
    [subject("backup", &full, history, before), subject("increment", &part, maker.history, changed)]
}

fn subjects() -> Vec<Subject> {
    let plain = Options::default();
    let zstd = plain.clone().compression(Compression::Zstd).compression_min(16);
    let secret = plain.clone().encrypted(4).keys(keys());
    let large = plain.clone().page_size(16_384).segment_bytes_max(64 << 10);
    let mut subjects = vec![
        bucket("plain", plain.clone()),
        bucket("keyed hash, no directories", {
            plain.clone().hash(HashKind::SipHash).directories(false)
        }),
        bucket("compressed, with a dictionary", zstd.clone()),
        bucket("encrypted", secret.clone()),
        bucket("encrypted and compressed, with a dictionary", zstd.encrypted(4).keys(keys())),
        bucket("large pages", large),
        with_table("with a table", plain.clone()),
        with_table("with a table, encrypted", secret),
    ];
    subjects.extend(copies(plain));
    subjects
}

impl Subject {
    /// It is a backup, or what changed since.
    fn is_copy(&self) -> bool {
        ["backup", "increment"].contains(&self.name)
    }

    fn disk(file: Vec<u8>) -> Arc<dyn Disk> {
        Arc::new(MemoryDisk::from_bytes(file))
    }

    fn open(&self, file: Vec<u8>) -> kvb::Result<Reader> {
        Reader::open_on_with(Subject::disk(file), env(), self.options.clone())
    }

    fn reader(&self) -> Reader {
        self.open(self.file.clone()).unwrap()
    }
}

/// All subjects, and their structures.
fn buckets() -> &'static [(Subject, Vec<Inspection>)] {
    static BUCKETS: OnceLock<Vec<(Subject, Vec<Inspection>)>> = OnceLock::new();
    BUCKETS.get_or_init(|| {
        let found = |subject| {
            let structures = structures(&subject);
            (subject, structures)
        };
        subjects().into_iter().map(found).collect()
    })
}

/// What must hold of every answer about a sound file.
fn check(found: &Inspection, file: &[u8], at: u64, context: &str) {
    let structure = &found.structure;
    let end = structure.at + structure.len;
    assert!((structure.at..end).contains(&at), "{context}: {structure:?}");
    let area = found.area.unwrap();
    assert!(structure.at >= area.at && end <= area.at + area.len, "{context}: {structure:?}");
    check_fields(structure, file, context);
    let bytes = &file[size(structure.at)..size(end)];
    let is_checked = CHECKED.contains(&structure.name);
    let is_blank = structure.name == "JournalEntry" && bytes.iter().all(|byte| *byte == 0);
    let holds = (is_checked && !is_blank).then_some(true);
    assert_eq!(structure.holds, holds, "{context}: {structure:?}");
    assert_eq!(found.record.is_some(), structure.name == "Record", "{context}: {structure:?}");
    // What may hold anything is free, or not written yet, or the first page of a book.
    let may_be_old = match area.kind {
        AreaKind::Reserved | AreaKind::Retired | AreaKind::Free | AreaKind::Unused => true,
        AreaKind::Segment(kind) => kind == kvb::SegmentKind::Tail,
        AreaKind::Book => at - area.at < 4096,
        _ => false,
    };
    if structure.name == NOTHING && !may_be_old {
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        assert!(is_zero, "{context}: something is called nothing: {structure:?} in {area:?}");
    }
}

/// Fields are those of the page, one behind the other, with the bytes of the file.
fn check_fields(structure: &Structure, file: &[u8], context: &str) {
    let fields: Vec<(&str, usize, usize)> = structure
        .fields
        .iter()
        .map(|field| (field.name, size(field.at - structure.at), size(field.len)))
        .collect();
    let len = size(structure.len);
    if let Some(layout) = layouts().get(structure.name) {
        let layout: Vec<_> = layout.iter().map(|one| (one.name, one.offset, one.len)).collect();
        assert_eq!(fields, layout, "{context}: {}", structure.name);
        let end = layout.last().map(|(_, offset, len)| offset + len);
        assert_eq!(end, Some(len), "{context}: {}", structure.name);
    } else if structure.name == "Record" {
        let (head, body) = fields.split_at(RecordHeader::LAYOUT.len());
        let layout = RecordHeader::LAYOUT.iter().map(|one| (one.name, one.offset, one.len));
        assert_eq!(head, layout.collect::<Vec<_>>(), "{context}");
        let mut end = RecordHeader::SIZE;
        for (name, offset, len) in body {
            assert!(["key", "value", "tag", "record_crc32c"].contains(name), "{context}: {name}");
            assert_eq!(*offset, end, "{context}: {name}");
            end += len;
        }
        assert_eq!(end, len, "{context}: {structure:?}");
    } else if structure.name == "Bulletin" {
        let words = ["session", "published_seqno", "given_up", "image_id"];
        let words = words.into_iter().enumerate().map(|(index, name)| (name, 8 * index, 8));
        assert_eq!(fields, words.collect::<Vec<_>>(), "{context}");
        // In memory the page itself is never written to.
        return;
    } else {
        let known = OTHERS.iter().find(|(name, ..)| *name == structure.name);
        let (_, name, known_len) = known.unwrap_or_else(|| panic!("{context}: {structure:?}"));
        let wanted = if *known_len == 0 { len.min(64) } else { *known_len };
        assert_eq!(fields, [(*name, 0, wanted)], "{context}: {}", structure.name);
        assert!(*known_len == 0 || len == *known_len, "{context}: {structure:?}");
    }
    for field in &structure.fields {
        let bytes = &file[size(field.at)..size(field.at + field.len)];
        let shown = &bytes[..bytes.len().min(4096)];
        assert!(field.bytes == shown, "{context}: {} of {}", field.name, structure.name);
        check_sense(&field.sense, bytes, &format!("{context}: {}", field.name));
    }
}

/// A field that says a number says the one that stands there.
fn check_sense(sense: &Sense, bytes: &[u8], context: &str) {
    let said = match sense {
        Sense::Bytes => return,
        Sense::Number(value) | Sense::Word(value) | Sense::Time(value) => *value,
        Sense::Page(value) | Sense::Offset(value) | Sense::Named(value, _) => *value,
        Sense::Flags(value, names) => {
            assert!(names.len() <= size(u64::from(value.count_ones())), "{context}");
            *value
        }
        other => panic!("{context}: {other:?}"),
    };
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    assert_eq!(said, u64::from_le_bytes(word), "{context}");
}

/// Which bytes of a structure to look at.
fn places(structure: &Structure, rng: &mut Rng) -> Vec<u64> {
    let (at, end) = (structure.at, structure.at + structure.len);
    let is_all = std::env::var("KVB_ROT").is_ok_and(|value| value == "all");
    let is_one_of_many = structure.index.is_some_and(|index| index > 3);
    let is_long = structure.len > 300;
    if is_all || !is_one_of_many && !is_long {
        return (at..end).collect();
    }
    let count = if is_long { 20 } else { 0 };
    let random = (0..count).map(|_| rng.u64(at..end));
    random.chain([end - 1]).collect()
}

/// All structures of a file from its first byte on, each found at every byte of it.
fn walk(
    name: &str,
    file: &[u8],
    from: u64,
    to: u64,
    inspect: impl Fn(u64) -> kvb::Result<Inspection>,
) -> Vec<Inspection> {
    let mut rng = Rng::with_seed(from);
    let mut all = Vec::new();
    let mut at = from;
    while at < to {
        let context = format!("{name}, byte {at}");
        let first = inspect(at).unwrap_or_else(|error| panic!("{context}: {error}"));
        check(&first, file, at, &context);
        assert_eq!(first.structure.at, at, "{context}: it begins before the one before ends");
        for place in places(&first.structure, &mut rng) {
            let again = inspect(place);
            let again = again.unwrap_or_else(|error| panic!("{name}, byte {place}: {error}"));
            assert!(again == first, "{name}, byte {place}: {again:?} and not {first:?}");
        }
        at += first.structure.len;
        all.push(first);
    }
    assert_eq!(at, to, "{name}: the last one ends elsewhere");
    all
}

/// Calls with every item on two threads.
fn share<T: Sync, U: Send>(items: &[T], call: impl Fn(&T) -> U + Sync) -> Vec<U> {
    let next = AtomicUsize::new(0);
    let mut found: Vec<(usize, U)> = std::thread::scope(|scope| {
        let work = || {
            let mut found = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(index) else { return found };
                found.push((index, call(item)));
            }
        };
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, found)| found).collect()
}

/// All structures of a subject.
fn structures(subject: &Subject) -> Vec<Inspection> {
    let reader = subject.reader();
    let survey = reader.survey().unwrap();
    let areas = share(&survey.areas, |area| {
        let inspect = |at| reader.inspect(at);
        walk(subject.name, &subject.file, area.at, area.at + area.len, inspect)
    });
    areas.into_iter().flatten().collect()
}

#[test]
fn every_byte_is_in_a_structure_of_the_page() {
    let mut seen = BTreeSet::new();
    for (subject, found) in buckets() {
        let survey = subject.reader().survey().unwrap();
        check_areas(subject, &survey, found);
        check_records(subject, found);
        seen.extend(found.iter().map(|one| one.structure.name));
    }
    let layouts = layouts();
    let others = OTHERS.iter().map(|(name, ..)| name);
    let known: BTreeSet<&str> =
        layouts.keys().chain(others).copied().chain(["Record", "Bulletin"]).collect();
    assert_eq!(seen, known, "structures found (left) and those there are");
}

/// What each area consists of, as the grammar says.
fn check_areas(subject: &Subject, survey: &Survey, found: &[Inspection]) {
    let is_encrypted = subject.name.contains("encrypted");
    for area in &survey.areas {
        let inside: Vec<&Structure> =
            found.iter().filter(|one| one.area == Some(*area)).map(|one| &one.structure).collect();
        let context = format!("{}, {area:?}", subject.name);
        // How many of each follow each other, without what is between.
        let mut groups: Vec<(&str, u64)> = Vec::new();
        for structure in inside.iter().filter(|one| one.name != NOTHING) {
            match groups.last_mut() {
                Some((name, count)) if *name == structure.name => {
                    *count += 1;
                    // Records have numbers of their own.
                    let index = (*name != "Record").then_some(*count - 1);
                    assert_eq!(structure.index, index, "{context}: {structure:?}");
                }
                _ => groups.push((structure.name, 1)),
            }
        }
        let names: Vec<&str> = groups.iter().map(|(name, _)| *name).collect();
        let count = |name: &str| {
            groups.iter().filter(|(group, _)| *group == name).map(|(_, count)| count).sum::<u64>()
        };
        let pages = area.len / survey.settings.page_size;
        let facts = survey.segments.iter();
        match area.kind {
            AreaKind::Superblock => {
                let mut wanted = vec!["Superblock", "Extension"];
                wanted.extend(is_encrypted.then_some("KeyBlock"));
                wanted.extend(subject.is_copy().then_some("Lineage"));
                wanted.push("RosterHead");
                wanted.extend((count("NamedExtent") > 0).then_some("NamedExtent"));
                wanted.extend((count("SegmentEntry") > 0).then_some("SegmentEntry"));
                wanted.push("roster CRC");
                assert_eq!(names, wanted, "{context}");
            }
            AreaKind::FreeMap => {
                let wanted = ["FreeMapHead", "bitmap", "FreeExtent", "map CRC"];
                assert_eq!(names, wanted, "{context}");
            }
            AreaKind::Bulletin => assert_eq!(names, ["Bulletin"], "{context}"),
            AreaKind::Journal => {
                assert_eq!(count("JournalEntry"), survey.journal.capacity, "{context}");
                let held = inside.iter().filter(|one| one.holds == Some(true)).count();
                assert_eq!(wide(held), survey.journal.entries, "{context}");
            }
            AreaKind::Index => {
                assert_eq!(count("IndexPageHeader"), pages - 1, "{context}");
                assert_eq!(count("IndexSlot"), survey.index.slots, "{context}");
                let tag = if is_encrypted { "mac" } else { "digest" };
                let heads: u64 = if is_encrypted { 1 } else { 0 };
                assert_eq!(count(tag), pages - 1 + heads, "{context}");
                assert_eq!(names[..2], ["SegmentHeader", "MetaHead"], "{context}");
                assert_eq!((count("Section"), count("head CRC")), (heads, 1), "{context}");
            }
            AreaKind::Segment(_) => {
                let facts = facts.clone().find(|facts| facts.at == area.at).unwrap();
                let mut wanted = vec!["SegmentHeader"];
                wanted.extend(is_encrypted.then_some("salt"));
                wanted.push("Record");
                if let Some(records) = facts.records {
                    wanted.extend(["FooterHead", "SparsePair", "footer CRC"]);
                    assert_eq!(count("Record"), records, "{context}");
                    assert_eq!(count("SparsePair"), records.div_ceil(64), "{context}");
                }
                assert_eq!(names, wanted, "{context}");
                let records = inside.iter().filter(|one| one.name == "Record");
                let bytes: u64 = records.map(|one| one.len).sum();
                assert_eq!(bytes, facts.record_bytes, "{context}");
            }
            AreaKind::Side => {
                let facts = facts.clone().find(|facts| facts.at + facts.len == area.at).unwrap();
                let records = facts.records.unwrap();
                let has_directory = survey.settings.directories;
                let mut wanted = vec!["SegmentHeader", "MetaHead", "Section", "head CRC"];
                wanted.extend(["RunEntry", "filter"]);
                wanted.extend(has_directory.then_some(["DirectoryHead", "place"]).iter().flatten());
                wanted.extend((has_directory && !is_encrypted).then_some("number"));
                wanted.extend(is_encrypted.then_some(["salt", "mac"]).iter().flatten());
                assert_eq!(names, wanted, "{context}");
                assert_eq!(count("RunEntry"), records, "{context}");
                assert_eq!(count("filter"), (records * 12).div_ceil(64), "{context}");
                let places = if has_directory { records } else { 0 };
                assert_eq!(count("place"), places, "{context}");
                let has_numbers = has_directory && !is_encrypted;
                let numbers = if has_numbers { records.div_ceil(8) } else { 0 };
                assert_eq!(count("number"), numbers, "{context}");
            }
            AreaKind::Table => {
                let mut wanted = vec!["SegmentHeader", "MetaHead", "Section", "head CRC"];
                wanted.push("SegmentEntry");
                wanted.extend(is_encrypted.then_some("mac"));
                assert_eq!(names, wanted, "{context}");
            }
            AreaKind::Book => {
                let copy = ["BookHead", "dictionaries", "book CRC"];
                let wanted = [&["SegmentHeader"][..], &copy, &copy].concat();
                assert_eq!(names, wanted, "{context}");
            }
            AreaKind::Reserved | AreaKind::Retired | AreaKind::Free => {
                assert_eq!(names, ["SegmentHeader"], "{context}");
            }
            AreaKind::Unused => assert_eq!(names, [""; 0], "{context}"),
            other => panic!("{context}: {other:?}"),
        }
    }
    // All segments are listed, in one of the two superblocks as in the other.
    let listed = found.iter().filter(|one| one.structure.name == "SegmentEntry");
    let mut listed: Vec<u64> = listed.map(|one| number(&one.structure, "seg_id")).collect();
    listed.sort_unstable();
    listed.dedup();
    let mut sealed: Vec<u64> = survey
        .segments
        .iter()
        .filter(|facts| facts.records.is_some())
        .map(|facts| facts.seg_id)
        .collect();
    sealed.sort_unstable();
    assert_eq!(listed, sealed, "{}", subject.name);
}

/// The number a field says.
fn number(structure: &Structure, name: &str) -> u64 {
    let field = structure.fields.iter().find(|field| field.name == name).unwrap();
    let mut word = [0; 8];
    word[..field.bytes.len()].copy_from_slice(&field.bytes);
    u64::from_le_bytes(word)
}

/// Every record is one that was written, and says so.
fn check_records(subject: &Subject, found: &[Inspection]) {
    let context = subject.name;
    let mut current: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut others = 0;
    for one in found.iter().filter(|one| one.structure.name == "Record") {
        let seqno = number(&one.structure, "seqno");
        let record = one.record.as_ref().unwrap();
        let (key, value) = &subject.history[&seqno];
        assert_eq!(&record.key, key, "{context}, seqno {seqno}");
        let value = value.clone().unwrap_or_default();
        assert_eq!(record.value_len, wide(value.len()), "{context}, seqno {seqno}");
        assert!(record.value == value, "{context}, seqno {seqno}");
        let is_newest = subject.history.range(seqno + 1..).all(|(_, (other, _))| other != key);
        let is_live = is_newest && subject.rows.contains_key(key);
        assert_eq!(record.is_current, is_live, "{context}, seqno {seqno}");
        match record.is_current {
            true => drop(current.insert(record.key.clone(), record.value.clone())),
            false => others += 1,
        }
    }
    assert!(current == subject.rows, "{context}: what is current is not what is there");
    let is_filled = !context.starts_with("with a table") && !subject.is_copy();
    assert!(!is_filled || others > 5, "{context}: too few that are not current");
}

#[test]
fn a_key_leads_to_its_record() {
    for (subject, _) in buckets() {
        let reader = subject.reader();
        for (key, value) in &subject.rows {
            let at = reader.locate(key).unwrap().unwrap();
            let found = reader.inspect(at).unwrap();
            assert_eq!((found.structure.name, found.structure.at), ("Record", at));
            let record = found.record.unwrap();
            assert!(record.is_current && record.key == *key && record.value == *value);
        }
        let deleted = subject.history.values().map(|(key, _)| key);
        for key in deleted.filter(|key| !subject.rows.contains_key(*key)) {
            assert_eq!(reader.locate(key).unwrap(), None, "{}: {key:?}", subject.name);
        }
        assert_eq!(reader.locate(b"never there").unwrap(), None);
    }
}

/// A record is current until another one comes, or its time.
#[test]
fn what_is_current_changes_with_time() {
    let mut maker = Maker::new(Options::default());
    let bucket = maker.create();
    let reader = Reader::open_on(Arc::new(maker.disk.reopen()), maker.env()).unwrap();
    let is_current =
        |at: u64| reader.inspect(at).unwrap().record.map(|record| record.is_current).unwrap();
    maker.put(&bucket, "key", b"first");
    let first = reader.locate(b"key").unwrap().unwrap();
    assert!(is_current(first));
    maker.put(&bucket, "key", b"second");
    let second = reader.locate(b"key").unwrap().unwrap();
    assert!(!is_current(first) && is_current(second));
    maker.delete(&bucket, "key");
    assert!(!is_current(first) && !is_current(second));
    bucket.put_for(b"key", b"third", Duration::from_secs(60)).unwrap();
    let third = reader.locate(b"key").unwrap().unwrap();
    assert!(is_current(third));
    maker.env.advance(HOUR_NS);
    assert_eq!(reader.locate(b"key").unwrap(), None);
    assert!(!is_current(third));
}

/// Senses that say more than a number.
#[test]
fn fields_say_what_they_are() {
    let subject = bucket("encrypted and compressed, with a dictionary", {
        let zstd = Options::default().compression(Compression::Zstd).compression_min(16);
        zstd.encrypted(4).keys(keys())
    });
    let reader = subject.reader();
    let survey = reader.survey().unwrap();
    let sense = |at: u64, name: &str| {
        let structure = reader.inspect(at).unwrap().structure;
        let field = structure.fields.into_iter().find(|field| field.name == name);
        field.unwrap_or_else(|| panic!("no {name} in {}", structure.name)).sense
    };
    assert_eq!(sense(0, "magic"), Sense::Named(0x4B56_424B, "a bucket"));
    assert_eq!(sense(0, "created_unix_ns"), Sense::Time(START_NS));
    assert_eq!(sense(0, "segment_start_page"), Sense::Page(11));
    let Sense::Flags(_, flags) = sense(0, "flags") else { panic!() };
    let wanted = ["zstd", "extension", "siphash", "encrypted", "dictionaries"];
    assert_eq!(flags, wanted);
    assert_eq!(sense(136, "hash_kind"), Sense::Named(2, "SipHash-2-4, key hidden"));
    assert_eq!(sense(136, "hash_key"), Sense::Bytes);
    let at = reader.locate(b"last 3").unwrap().unwrap();
    assert_eq!(sense(at, "kind"), Sense::Named(0, "PUT"));
    assert_eq!(sense(at, "enc"), Sense::Named(128, "encrypted"));
    assert_eq!(sense(at, "reserved16"), Sense::Flags(1, vec!["commit"]));
    assert_eq!(sense(at, "key"), Sense::Bytes);
    let long = reader.locate(b"long").unwrap().unwrap();
    let Sense::Named(_, name) = sense(long, "enc") else { panic!() };
    assert!(name.starts_with("zstd"), "{name}");
    let segment = survey.segments.first().unwrap();
    let Sense::Flags(_, flags) = sense(segment.at, "flags") else { panic!() };
    assert!(flags.contains(&"DATA") && flags.contains(&"SALTED"), "{flags:?}");
}

fn write(path: &Path, file: &[u8]) {
    std::fs::write(path, file).unwrap();
}

/// By a path it is the same, and more can be looked at.
#[test]
fn files_are_inspected_as_readers_inspect() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let mut rng = Rng::with_seed(17);
    for (subject, _) in buckets() {
        write(&path, &subject.file);
        let inspect = |at: u64| kvb::inspect(&path, subject.options.clone(), at);
        let len = wide(subject.file.len());
        let is_same = |a: &Inspection, b: &Inspection| {
            // Whether a record is over is told by another clock.
            a.structure == b.structure && a.area == b.area
        };
        let reader = subject.reader();
        for _ in 0..200 {
            let at = rng.u64(..len);
            let (a, b) = (inspect(at).unwrap(), reader.inspect(at).unwrap());
            assert!(is_same(&a, &b), "{}, byte {at}: {a:?} {b:?}", subject.name);
        }
        // That it is an increment is no reason not to look.
        let is_refused = Reader::open_with(&path, opening(""));
        if subject.name == "increment" {
            assert!(matches!(is_refused, Err(Error::Invalid(_))), "{is_refused:?}");
            assert!(kvb::inspect(&path, opening(""), 0).is_ok());
        }
        // Behind the end there is nothing.
        for at in [len, len + 1, u64::MAX / 2, u64::MAX - 40, u64::MAX] {
            let found = inspect(at);
            assert!(matches!(found, Err(Error::Invalid(_))), "{}: {found:?}", subject.name);
        }
        // Nobody sees anything of an encrypted one without its key.
        if subject.name.contains("encrypted") {
            for at in [0, 512, 4096, 50_000] {
                let found = kvb::inspect(&path, Options::default(), at);
                assert!(matches!(found, Err(Error::KeyMissing { id: 4 })), "{found:?}");
            }
        }
    }
    let found = kvb::inspect(dir.path().join("none.kvb"), Options::default(), 0);
    assert!(matches!(found, Err(Error::Io { .. })), "{found:?}");
}

/// The map of a file of 97 MiB does not fit its page any more.
#[test]
fn a_free_space_map_that_moved_is_found() {
    let maker = Maker::new(Options::default().durability(Durability::Relaxed));
    let bucket = maker.create();
    bucket.put(b"large", vec![b'l'; 97 << 20]).unwrap();
    bucket.put(b"small", b"value").unwrap();
    bucket.close().unwrap();
    let reader = Reader::open_on(Arc::new(maker.disk.reopen()), maker.env()).unwrap();
    let survey = reader.survey().unwrap();
    let end = survey.areas.iter().fold(0, |end, area| {
        assert_eq!(area.at, end);
        end + area.len
    });
    assert_eq!(end, survey.file_bytes);
    let mut maps = survey.areas.iter().filter(|area| area.kind == AreaKind::FreeMap);
    let (map, page) = (*maps.next().unwrap(), survey.settings.page_size);
    assert!(maps.next().is_none() && map.at > page && map.len > page, "{map:?}");
    assert_eq!(survey.area_of(page).unwrap().kind, AreaKind::Unused);
    let mut file = vec![0; size(map.at + map.len)];
    maker.disk.read_at(map.at, &mut file[size(map.at)..]).unwrap();
    let inspect = |at| reader.inspect(at);
    let found = walk("map", &file, map.at, map.at + map.len, inspect);
    let names: Vec<&str> = found.iter().map(|one| one.structure.name).collect();
    assert_eq!(names[0], "SegmentHeader");
    let heads = found.iter().filter(|one| one.structure.name == "FreeMapHead");
    assert_eq!(wide(heads.count()), map.len / page - 1, "{names:?}");
    // Of a long record a part is shown, wherever in it one looks.
    let at = reader.locate(b"large").unwrap().unwrap();
    let found = reader.inspect(at + (50 << 20)).unwrap();
    assert_eq!(found.structure.at, at);
    let value = found.structure.fields.iter().find(|field| field.name == "value").unwrap();
    assert_eq!((value.len, value.bytes.len()), (97 << 20, 4096));
    let record = found.record.unwrap();
    assert_eq!((record.value_len, record.value.len()), (97 << 20, 1 << 20));
}

fn is_typed(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt(_)
            | Error::Invalid(_)
            | Error::Version { .. }
            | Error::KeyMissing { .. }
            | Error::KeyWrong { .. }
    )
}

/// What must hold of every answer about any file.
fn check_any(found: &kvb::Result<Inspection>, len: usize, at: u64, context: &str) {
    match found {
        Err(error) => assert!(is_typed(error), "{context}: {error:?}"),
        Ok(found) => {
            let structure = &found.structure;
            let end = structure.at.checked_add(structure.len).unwrap();
            assert!((structure.at..end).contains(&at), "{context}: {structure:?}");
            assert!(end <= wide(len), "{context}: {structure:?}");
            if let Some(area) = found.area {
                let is_inside = structure.at >= area.at && end <= area.at + area.len;
                assert!(is_inside, "{context}: {structure:?} in {area:?}");
            }
            for field in &structure.fields {
                let is_inside = field.at >= structure.at
                    && field.at.checked_add(field.len).is_some_and(|end_of| end_of <= end);
                assert!(is_inside, "{context}: {field:?} of {structure:?}");
                assert!(field.bytes.len() <= 4096, "{context}: {field:?}");
            }
            if let Some(record) = &found.record {
                assert!(record.value.len() <= 1 << 20, "{context}");
            }
        }
    }
}

#[test]
fn a_changed_byte_shows_where_it_is_checked() {
    for (subject, found) in buckets() {
        let mut rng = Rng::with_seed(19);
        let mut targets: Vec<(u64, &str, AreaKind)> = Vec::new();
        let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
        for one in found.iter().filter(|one| one.structure.holds == Some(true)) {
            let structure = &one.structure;
            // Journal entries and records there are many of.
            let before = seen.entry(structure.name).or_default();
            *before += 1;
            let count = if *before < 20 { 8 } else { 1 };
            let places = (0..count).map(|_| structure.at + rng.u64(..structure.len));
            targets.extend(places.map(|at| (at, structure.name, one.area.unwrap().kind)));
        }
        share(&targets, |(at, name, kind)| {
            let mut file = subject.file.clone();
            file[size(*at)] ^= 1 << (at % 8);
            let context = format!("{}, byte {at} of {name}", subject.name);
            let reader = match subject.open(file) {
                Ok(reader) => reader,
                Err(error) => return assert!(is_typed(&error), "{context}: {error:?}"),
            };
            let found = reader.inspect(*at);
            check_any(&found, subject.file.len(), *at, &context);
            if let Ok(found) = found {
                if *kind == AreaKind::Index && found.area.unwrap().kind == AreaKind::Free {
                    // An image whose head does not hold is none: the reader has made its own.
                    return;
                }
                assert_eq!(found.structure.name, *name, "{context}");
                assert_eq!(found.structure.holds, Some(false), "{context}: {found:?}");
                assert!(found.record.is_none(), "{context}: {found:?}");
            }
        });
    }
}

/// Any byte changed: whatever it is, every structure of the area it is in can be looked at.
#[test]
fn changed_bytes_never_keep_anyone_from_looking() {
    let seed = seed::seed("changed_bytes_never_keep_anyone_from_looking");
    for (subject, _) in buckets() {
        let mut rng = Rng::with_seed(seed);
        let held: Vec<usize> =
            (0..subject.file.len()).filter(|at| subject.file[*at] != 0).collect();
        let places: Vec<usize> = (0..300).map(|_| *rng.choice(&held).unwrap()).collect();
        share(&places, |place| {
            let mut file = subject.file.clone();
            file[*place] ^= 1 << (place % 8);
            let context = format!("{}, byte {place} changed", subject.name);
            let reader = match subject.open(file) {
                Ok(reader) => reader,
                Err(error) => return assert!(is_typed(&error), "{context}: {error:?}"),
            };
            let mut rng = Rng::with_seed(wide(*place));
            for _ in 0..10 {
                let near = rng.usize(place.saturating_sub(600)..(place + 600));
                let at = wide(near.min(subject.file.len() - 1));
                let found = reader.inspect(at);
                check_any(&found, subject.file.len(), at, &format!("{context}, byte {at}"));
                assert!(found.is_ok(), "{context}, byte {at}: {found:?}");
            }
        });
    }
}

/// A file without superblocks is no bucket any more. What checks itself is found where it begins.
#[test]
fn a_bucket_that_does_not_open_is_inspected_where_structures_begin() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    for (subject, found) in buckets() {
        let mut file = subject.file.clone();
        for one in found.iter().filter(|one| one.structure.name == "Superblock") {
            file[size(one.structure.at) + 20] ^= 1;
        }
        write(&path, &file);
        assert!(subject.open(file.clone()).is_err(), "{}", subject.name);
        let inspect = |at: u64| kvb::inspect(&path, subject.options.clone(), at);
        // Its fields may tell why.
        let first = inspect(0).unwrap();
        let structure = &first.structure;
        assert_eq!((structure.name, structure.holds), ("Superblock", Some(false)));
        assert_eq!((first.area, &first.record), (None, &None));
        let guessed = ["Extension", "SegmentHeader", "JournalEntry", "IndexPageHeader", "Record"];
        let mut seen = BTreeSet::new();
        for one in found {
            let at = one.structure.at;
            let context = format!("{}, byte {at}", subject.name);
            let now = inspect(at);
            check_any(&now, file.len(), at, &context);
            if guessed.contains(&one.structure.name) && one.structure.holds == Some(true) {
                let now = now.unwrap_or_else(|error| panic!("{context}: {error}"));
                assert_eq!(now.structure.name, one.structure.name, "{context}");
                assert_eq!(now.structure.fields, one.structure.fields, "{context}");
                assert_eq!(now.structure.holds, Some(true), "{context}");
                seen.insert(one.structure.name);
            }
        }
        // A copy has no journal.
        let wanted = guessed.len() - usize::from(subject.is_copy());
        assert_eq!(seen.len(), wanted, "{}: only {seen:?}", subject.name);
        let mut rng = Rng::with_seed(23);
        for _ in 0..300 {
            let at = rng.u64(..wide(file.len()) + 100);
            check_any(&inspect(at), file.len(), at, &format!("{}, byte {at}", subject.name));
        }
    }
}

#[test]
fn files_that_are_no_buckets_are_typed_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let seed = seed::seed("files_that_are_no_buckets_are_typed_errors");
    let mut rng = Rng::with_seed(seed);
    let subject = bucket("plain", Options::default());
    for round in 0..300 {
        let len = match round % 4 {
            0 => rng.usize(..200),
            1 => rng.usize(..5000),
            _ => rng.usize(..100_000),
        };
        let mut file = vec![0; len];
        match round % 3 {
            0 => rng.fill(&mut file),
            1 => file.fill(0xFF),
            // A bucket cut off.
            _ => file.copy_from_slice(&subject.file[..len]),
        }
        write(&path, &file);
        let places = [0, 1, 136, 512, 4096, wide(len / 2), wide(len), u64::MAX];
        for at in places.into_iter().chain((0..5).map(|_| rng.u64(..=wide(len)))) {
            let found = kvb::inspect(&path, Options::default(), at);
            check_any(&found, len, at, &format!("round {round}, {len} bytes, byte {at}"));
        }
    }
}

/// Numbers that somebody may have put there to do harm.
fn hostile(rng: &mut Rng, len: usize) -> Vec<u8> {
    let value: u64 = match rng.u8(..8) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - rng.u64(..100_000),
        3 => 1 << rng.u32(..64),
        4 => (1 << rng.u32(1..64)) - 1,
        5 => rng.u64(..300),
        6 => i64::MAX.unsigned_abs() - rng.u64(..3),
        _ => rng.u64(..),
    };
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(len.max(8), 0xFF);
    bytes.truncate(len);
    bytes
}

/// Makes every checksum right that a change to a structure has made wrong, and that needs no key.
fn mend(file: &mut [u8], one: &Inspection) {
    let structure = &one.structure;
    let area = one.area.unwrap();
    let range = size(structure.at)..size(structure.at + structure.len);
    match area.kind {
        AreaKind::Superblock => forge::repair_page(file, size(area.at)),
        AreaKind::Side | AreaKind::Table | AreaKind::Index if structure.name != "SegmentHeader" => {
            if structure.name.starts_with("Index") {
                let crc = kvb::format::crc(&file[range.start..range.end - 4]);
                file[range.end - 4..range.end].copy_from_slice(&crc.to_le_bytes());
            } else {
                forge::repair_meta(file, &(size(area.at)..size(area.at + area.len)));
            }
        }
        _ => match structure.name {
            "SegmentHeader" => forge::repair_header(file, range.start),
            "Record" => forge::repair_record(file, &range),
            "JournalEntry" => {
                let crc = kvb::format::crc(&file[range.start..range.end - 4]);
                file[range.end - 4..range.end].copy_from_slice(&crc.to_le_bytes());
            }
            _ => {}
        },
    }
}

/// A field that says something else, under checksums that hold.
struct Forgery<'a> {
    one: &'a Inspection,
    field: &'a FieldFacts,
    bytes: Vec<u8>,
    /// Of a superblock, in its other copy too.
    is_in_both: bool,
    seed: u64,
}

/// Forgeries of every kind of structure: of every field with the worst numbers, or of some with any.
fn forgeries<'a>(found: &'a [Inspection], rng: &mut Rng, is_thorough: bool) -> Vec<Forgery<'a>> {
    // One of each kind is as good as all of them, but for where it stands.
    let mut by_name: BTreeMap<(&str, AreaKind), Vec<&Inspection>> = BTreeMap::new();
    for one in found.iter().filter(|one| one.structure.name != NOTHING) {
        by_name.entry((one.structure.name, one.area.unwrap().kind)).or_default().push(one);
    }
    let mut forgeries = Vec::new();
    for ones in by_name.values() {
        let one = *rng.choice(ones).unwrap();
        let fields = &one.structure.fields;
        let mut forge = |field: &'a FieldFacts, bytes: Vec<u8>, is_in_both| {
            let seed = wide(forgeries.len());
            forgeries.push(Forgery { one, field, bytes, is_in_both, seed });
        };
        if is_thorough {
            for field in fields {
                let len = field.bytes.len();
                for worst in [u64::MAX, u64::MAX >> 1, 1 << 32 | 1 << 15] {
                    let mut bytes = worst.to_le_bytes().to_vec();
                    bytes.resize(len, 0xFF);
                    forge(field, bytes.clone(), true);
                    if one.area.unwrap().kind == AreaKind::Superblock {
                        forge(field, bytes, false);
                    }
                }
            }
        } else {
            for _ in 0..6 {
                let field = rng.choice(fields).unwrap();
                let bytes = hostile(rng, field.bytes.len());
                forge(field, bytes, rng.bool());
            }
        }
    }
    forgeries
}

impl Forgery<'_> {
    fn file(&self, subject: &Subject) -> Vec<u8> {
        let mut file = subject.file.clone();
        let (at, area) = (size(self.field.at), self.one.area.unwrap());
        file[at..at + self.bytes.len()].copy_from_slice(&self.bytes);
        mend(&mut file, self.one);
        if area.kind == AreaKind::Superblock && self.is_in_both {
            let other = if area.at == 0 { file.len() - forge::PAGE } else { 0 };
            let at = other + at - size(area.at);
            file[at..at + self.bytes.len()].copy_from_slice(&self.bytes);
            forge::repair_page(&mut file, other);
        }
        file
    }

    /// Looks around; true if it could be opened.
    fn look(&self, subject: &Subject) -> bool {
        let context = format!(
            "{}: {} of {:?} is {:?}",
            subject.name, self.field.name, self.one.structure, self.bytes
        );
        let reader = match subject.open(self.file(subject)) {
            Ok(reader) => reader,
            Err(error) => {
                assert!(is_typed(&error), "{context}: {error:?}");
                return false;
            }
        };
        let stats = reader.stats();
        assert!(stats.as_ref().err().is_none_or(is_typed), "{context}: {stats:?}");
        let survey = reader.survey().unwrap_or_else(|error| panic!("{context}: {error}"));
        let end = survey.areas.iter().fold(0, |end, area| {
            assert_eq!(area.at, end, "{context}: {area:?}");
            end + area.len
        });
        assert_eq!(end, survey.file_bytes, "{context}");
        let mut rng = Rng::with_seed(self.seed);
        let (structure, area) = (&self.one.structure, self.one.area.unwrap());
        let len = wide(subject.file.len());
        let mut places = vec![self.field.at, area.at + area.len - 1];
        places.push((structure.at + rng.u64(..structure.len + 200)).min(len - 1));
        // Where counts lead that are too large.
        places.extend((0..4).map(|_| area.at + area.len - rng.u64(1..60)));
        places.extend((0..3).map(|_| area.at + rng.u64(..area.len)));
        places.extend((0..2).map(|_| rng.u64(..len)));
        for at in places.into_iter().filter(|at| *at < survey.file_bytes) {
            let found = reader.inspect(at);
            let context = format!("{context}, byte {at}");
            check_any(&found, subject.file.len(), at, &context);
            assert!(found.is_ok(), "{context}: {found:?}");
        }
        true
    }
}

/// Somebody who can write the file, and knows how to compute a CRC, is no reason to fall over, nor to take much memory.
#[test]
fn forged_numbers_do_no_harm() {
    let seed = seed::seed("forged_numbers_do_no_harm");
    let mut opened = 0;
    for (subject, found) in buckets().iter().filter(|(one, _)| one.name != "large pages") {
        let is_thorough =
            ["plain", "with a table", "compressed, with a dictionary"].contains(&subject.name);
        let forgeries = forgeries(found, &mut Rng::with_seed(seed), is_thorough);
        opened += share(&forgeries, |forgery| usize::from(forgery.look(subject)))
            .into_iter()
            .sum::<usize>();
    }
    assert!(opened > 1000, "{opened}");
}

/// Tells a thread to end when it is dropped, also by a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whatever a writer is doing to the byte that is looked at.
#[test]
fn a_running_writer_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let options = Options::default()
        .durability(Durability::Relaxed)
        .segment_bytes_max(16 << 10)
        .overlay_min(64);
    let bucket = Bucket::create(&path, options).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = Done(&is_done);
        scope.spawn(|| {
            let mut rng = Rng::with_seed(29);
            while !is_done.load(Ordering::Relaxed) {
                let key = format!("key {:03}", rng.usize(..300));
                bucket.put(key, vec![b'v'; rng.usize(..2000)]).unwrap();
            }
        });
        let reader = Reader::open(&path).unwrap();
        let mut rng = Rng::with_seed(31);
        let start = std::time::Instant::now();
        let mut looks = 0;
        while start.elapsed() < Duration::from_millis(1000) || looks < 50 {
            let len = reader.survey().unwrap().file_bytes;
            for _ in 0..10 {
                let at = rng.u64(..len);
                let found = reader.inspect(at);
                check_any(&found, usize::MAX, at, &format!("byte {at}"));
            }
            let key = format!("key {:03}", rng.usize(..300));
            if let Some(at) = reader.locate(&key).unwrap() {
                let found = reader.inspect(at);
                check_any(&found, usize::MAX, at, &key);
            }
            looks += 1;
        }
        println!("{looks} rounds");
    });
    // What it left can be told from its file.
    bucket.close().unwrap();
    let file = std::fs::read(&path).unwrap();
    let reader = Reader::open(&path).unwrap();
    for row in reader.snapshot().unwrap().scan(b"").map(|row| row.unwrap()) {
        let at = reader.locate(row.key()).unwrap().unwrap();
        let record = Framed::decode(&file[size(at)..]).unwrap();
        assert_eq!((record.key(), record.value()), (row.key(), row.value()));
    }
}
