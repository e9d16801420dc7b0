//! Every byte of small buckets of each kind changed, and every length they can be cut to.
//!
//! Whatever was damaged: opening gives a typed error or a bucket, lookups and scans give the right answer or a typed error,
//! and never a wrong one, not even "not there". What `verify` says agrees with that. After `repair` exactly the records that
//! are intact are there: of every key the newest one that was not hit.
//!
//! In CI every byte that holds something is changed, and of the others, which nothing should depend on, a few.
//! `KVB_ROT=all` changes every byte of the file.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/anatomy.rs"]
mod anatomy;
#[path = "support/seed.rs"]
mod seed;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use host::{Disk, Env, ManualEnv, MemoryDisk, SimDisk};
use kvb::format::book::{BookHead, MAGIC};
use kvb::format::record::{ENC_DICTIONARY, Framed};
use kvb::format::segment::Kind;
use kvb::{
    Batch, Bucket, Compact, Compression, Durability, Error, Key, Keyring, Options, Reader, Severity,
};
use zerocopy::FromBytes;

const START_NS: u64 = 1_700_000_000_000_000_000;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn quiet(_: kvb::Progress) {}

fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(START_NS, 5))
}

/// A bucket to be damaged.
struct Subject {
    name: &'static str,
    file: Vec<u8>,
    /// What only opens it.
    opening: Options,
    /// What every seqno did: a key, and its value unless it was deleted.
    history: BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>,
    /// Where records lie, and their seqnos.
    records: Vec<(Range<usize>, u64)>,
}

struct Maker {
    disk: SimDisk,
    options: Options,
    key: fn(&str) -> Vec<u8>,
    history: BTreeMap<u64, (Vec<u8>, Option<Vec<u8>>)>,
}

impl Maker {
    fn put(&mut self, bucket: &Bucket, name: &str, value: &[u8]) {
        let key = (self.key)(name);
        bucket.put(&key, value).unwrap();
        let seqno = bucket.snapshot().seqno();
        self.history.insert(seqno, (key, Some(value.to_vec())));
    }

    fn delete(&mut self, bucket: &Bucket, name: &str) {
        let key = (self.key)(name);
        let mut batch = Batch::new();
        batch.delete(&key);
        bucket.commit(batch).unwrap();
        self.history.insert(bucket.snapshot().seqno(), (key, None));
    }

    fn open(&self) -> Bucket {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.reopen());
        Bucket::open_on(disk, env(), self.options.clone()).unwrap()
    }
}

fn keys() -> Keyring {
    Keyring::new().with(4, Key::new([4; 32]))
}

fn key(name: &str) -> Vec<u8> {
    name.into()
}

/// Keys that all have one hash, by the way XXH3 multiplies: whatever eight of their bytes become, damaged or not.
fn colliding(name: &str) -> Vec<u8> {
    let mut key = vec![0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];
    key.extend(format!("{name:.<8}").bytes());
    key.resize(32, 9);
    key
}

fn value(number: usize) -> Vec<u8> {
    let mut value = format!("value {number} ").repeat(number % 9).into_bytes();
    value.push(u8::try_from(number % 256).unwrap());
    value
}

/// A bucket with segments of all kinds: sealed, moved, unsealed; keys put once, replaced, deleted.
fn subject(name: &'static str, options: Options, is_compacted: bool, has_book: bool) -> Subject {
    let key = if name.contains("one hash") { colliding } else { key };
    let options = options.background(false).durability(Durability::SyncOnce).overlay_min(16);
    let disk = SimDisk::new();
    let mut maker =
        Maker { disk: disk.clone(), options: options.clone(), key, history: BTreeMap::new() };
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options.clone()).unwrap();
    for number in 0..24 {
        maker.put(&bucket, &format!("key {number:02}"), &value(number));
    }
    for number in (0..24).step_by(5) {
        maker.delete(&bucket, &format!("key {number:02}"));
    }
    if has_book {
        bucket.train_dictionary(256).unwrap();
        for number in 30..40 {
            maker.put(&bucket, &format!("key {number:02}"), &value(number));
        }
    }
    if is_compacted {
        bucket.compact(Compact::Full).unwrap();
    }
    bucket.close().unwrap();
    let bucket = maker.open();
    for number in (0..24).step_by(3) {
        maker.put(&bucket, &format!("key {number:02}"), &value(100 + number));
    }
    // Replaced and deleted where nothing but the tail has them.
    maker.put(&bucket, "twice", b"the first time");
    maker.put(&bucket, "gone", b"for a while");
    maker.put(&bucket, "", b"empty key");
    maker.put(&bucket, "twice", b"the second time");
    maker.delete(&bucket, "gone");
    bucket.close().unwrap();
    let file = maker.disk.to_bytes();
    let records = records(&file);
    let opening = match name.contains("encrypted") {
        true => Options::default().keys(keys()),
        false => Options::default(),
    };
    let opening = opening.background(false);
    Subject { name, file, opening, history: maker.history, records }
}

/// A bucket compacted piece by piece. The second piece begins with a key that the first has too, the third ends with one, and what they have
/// of these keys is newer. Without those two records the pieces would seem to follow each other.
fn pieces(name: &'static str) -> Subject {
    let options =
        Options::default().background(false).durability(Durability::SyncOnce).overlay_min(16);
    let disk = SimDisk::new();
    let mut maker =
        Maker { disk: disk.clone(), options: options.clone(), key, history: BTreeMap::new() };
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options.clone()).unwrap();
    // Twice, else there would be nothing to do.
    for number in (10..=20).chain(10..=20) {
        maker.put(&bucket, &format!("key {number:02}"), &value(number));
    }
    bucket.compact(Compact::Full).unwrap();
    for numbers in [[19, 21, 22, 23, 24, 25], [4, 5, 6, 7, 8, 11]] {
        for number in numbers {
            maker.put(&bucket, &format!("key {number:02}"), &value(100 + number));
        }
        // So much is dead then that it is worth it.
        for _ in 0..10 {
            maker.put(&bucket, "much", &[0; 8 << 10]);
        }
        maker.delete(&bucket, "much");
        bucket.compact(Compact::Auto).unwrap();
    }
    bucket.close().unwrap();
    let file = maker.disk.to_bytes();
    let extents = anatomy::extents(&file);
    let moved = extents.iter().filter(|extent| extent.is(Kind::Data) && extent.header.is_moved());
    assert_eq!(moved.count(), 3, "{name}: not three pieces");
    let records = records(&file);
    let opening = Options::default().background(false);
    Subject { name, file, opening, history: maker.history, records }
}

/// Where all records lie.
fn records(file: &[u8]) -> Vec<(Range<usize>, u64)> {
    let mut records = Vec::new();
    for extent in anatomy::extents(file).into_iter().filter(|extent| extent.is(Kind::Data)) {
        let mut at = extent.bytes.start + usize::try_from(extent.header.records_at()).unwrap();
        let mut next = extent.header.base_seqno.get();
        while let Some(record) = Framed::decode(&file[at..extent.bytes.end]) {
            // Behind the end there may be records of what was there before.
            if !extent.header.is_moved() && record.header.seqno.get() != next {
                break;
            }
            next += 1;
            let end = at + usize::try_from(record.header.record_len()).unwrap();
            records.push((at..end, record.header.seqno.get()));
            at = end;
        }
    }
    records
}

fn subjects() -> Vec<Subject> {
    let plain = Options::default();
    let zstd = plain.clone().compression(Compression::Zstd).compression_min(8);
    let secret = plain.clone().encrypted(4).keys(keys());
    let both = zstd.clone().encrypted(4).keys(keys());
    vec![
        subject("plain", plain.clone(), false, false),
        subject("plain, compacted", plain.clone(), true, false),
        pieces("in pieces"),
        subject("no directories", plain.clone().directories(false), true, false),
        subject("keys of one hash", plain.clone(), true, false),
        subject("keys of one hash, no directories", plain.directories(false), false, false),
        subject("compressed", zstd.clone(), true, false),
        subject("with a dictionary", zstd, false, true),
        subject("encrypted", secret.clone(), false, false),
        subject("encrypted, no directories", secret.directories(false), true, false),
        subject("encrypted, compressed, with a dictionary", both, true, true),
    ]
}

impl Subject {
    /// The rows if these records were all there are.
    fn rows(&self, is_intact: impl Fn(&Range<usize>) -> bool) -> Rows {
        let intact = self.records.iter().filter(|(bytes, _)| is_intact(bytes));
        let seqnos: BTreeSet<u64> = intact.map(|(_, seqno)| *seqno).collect();
        let mut rows = Rows::new();
        for seqno in seqnos {
            let (key, value) = &self.history[&seqno];
            match value {
                Some(value) => drop(rows.insert(key.clone(), value.clone())),
                None => drop(rows.remove(key)),
            }
        }
        rows
    }

    fn all(&self) -> Rows {
        self.rows(|_| true)
    }

    fn disk(file: Vec<u8>) -> Arc<dyn Disk> {
        Arc::new(SimDisk::from_image(file))
    }

    /// Everything that can be done with a damaged file.
    fn check(&self, file: &[u8], wanted: &Rows, is_repaired: bool, context: &str) {
        let all = self.all();
        let env: Arc<dyn Env> = env();
        let reader =
            Reader::open_on_with(Subject::disk(file.to_vec()), env.clone(), self.opening.clone());
        let is_whole = match reader {
            Ok(reader) => self.check_reader(&reader, &all, context),
            Err(error) => self.is_typed(&error, context),
        };
        let bucket =
            Bucket::open_on(Subject::disk(file.to_vec()), env.clone(), self.opening.clone());
        match bucket {
            Ok(bucket) => self.check_bucket(&bucket, &all, context),
            Err(error) => drop(self.is_typed(&error, context)),
        }
        let found = kvb::verify_on(
            Subject::disk(file.to_vec()),
            env.clone(),
            self.opening.clone(),
            &mut quiet,
        );
        let is_sound = match found {
            Ok(found) => {
                let worst = found.findings.iter().map(|finding| finding.severity).max();
                assert!(is_whole || worst == Some(Severity::Damage), "{context}: {found:?}");
                found.is_sound()
            }
            Err(error) => self.is_typed(&error, context),
        };
        if is_repaired && !is_sound {
            self.check_repair(file, wanted, context);
        }
    }

    /// True never; fails unless an error is one that damage may cause.
    fn is_typed(&self, error: &Error, context: &str) -> bool {
        let is_typed = matches!(
            error,
            Error::Corrupt(_)
                | Error::Invalid(_)
                | Error::Version { .. }
                | Error::KeyMissing { .. }
                | Error::KeyWrong { .. }
        );
        assert!(is_typed, "{} {context}: {error:?}", self.name);
        false
    }

    /// True if every answer was given.
    fn check_reader(&self, reader: &Reader, all: &Rows, context: &str) -> bool {
        let mut is_whole = true;
        for (key, _) in self.history.values() {
            match reader.get(key) {
                Ok(value) => assert_eq!(
                    value.as_deref(),
                    all.get(key).map(Vec::as_slice),
                    "{} {context}: {}",
                    self.name,
                    String::from_utf8_lossy(key)
                ),
                Err(error) => is_whole = self.is_typed(&error, context),
            }
        }
        let snapshot = match reader.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => return self.is_typed(&error, context),
        };
        self.check_scans(|| snapshot.scan(b""), |from| snapshot.range::<&[u8]>(from), all, context)
            && is_whole
    }

    /// Scans of everything and of what begins at some key, in both directions. True if those of everything were whole.
    fn check_scans<'a>(
        &self,
        scan: impl Fn() -> kvb::Scan<'a>,
        range: impl Fn((Bound<&[u8]>, Bound<&[u8]>)) -> kvb::Scan<'a>,
        all: &Rows,
        context: &str,
    ) -> bool {
        // One of them in every check: all would take too long.
        let number = context.bytes().map(usize::from).sum::<usize>();
        let middle = self.history.values().nth(number % self.history.len()).unwrap().0.as_slice();
        let from = (Bound::Included(middle), Bound::Unbounded);
        let to = (Bound::Unbounded, Bound::Included(middle));
        let part = |bounds: (Bound<&[u8]>, Bound<&[u8]>)| -> Rows {
            all.range::<[u8], _>(bounds).map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        let name = String::from_utf8_lossy(middle);
        self.check_scan(range(from), &part(from), &format!("{context}, from {name}"));
        self.check_scan(range(to).rev(), &part(to), &format!("{context}, back from {name}"));
        let is_whole = self.check_scan(scan(), all, context);
        self.check_scan(scan().rev(), all, &format!("{context}, backwards")) && is_whole
    }

    /// True if every row was given.
    fn check_scan<'a>(
        &self,
        scan: impl Iterator<Item = kvb::Result<kvb::Row<'a>>>,
        all: &Rows,
        context: &str,
    ) -> bool {
        let (mut seen, mut is_whole) = (Rows::new(), true);
        for row in scan {
            match row {
                Ok(row) => drop(seen.insert(row.key().to_vec(), row.value().to_vec())),
                Err(error) => is_whole = self.is_typed(&error, context),
            }
        }
        let is_right = seen.iter().all(|(key, value)| all.get(key) == Some(value));
        assert!(is_right, "{} {context}: a scan gives wrong rows", self.name);
        assert!(!is_whole || seen == *all, "{} {context}: a scan leaves rows out", self.name);
        is_whole
    }

    fn check_bucket(&self, bucket: &Bucket, all: &Rows, context: &str) {
        for (key, _) in self.history.values() {
            match bucket.get(key) {
                Ok(value) => assert_eq!(
                    value.as_deref(),
                    all.get(key).map(Vec::as_slice),
                    "{} {context}: for writing: {}",
                    self.name,
                    String::from_utf8_lossy(key)
                ),
                Err(error) => drop(self.is_typed(&error, context)),
            }
        }
        self.check_scans(|| bucket.scan(b""), |from| bucket.range::<&[u8]>(from), all, context);
    }

    fn check_repair(&self, file: &[u8], wanted: &Rows, context: &str) {
        let env: Arc<dyn Env> = env();
        let target: Arc<dyn Disk> = Arc::new(MemoryDisk::with_capacity(4 << 20));
        let source = Subject::disk(file.to_vec());
        let repaired = kvb::repair_on(
            source,
            Some(Arc::clone(&target)),
            env.clone(),
            self.opening.clone(),
            &mut quiet,
        );
        let report = match repaired {
            Ok(report) => report,
            Err(error) => {
                assert!(wanted.is_empty(), "{} {context}: no repair: {error}", self.name);
                return;
            }
        };
        let reader = Reader::open_on_with(target, env, self.opening.clone()).unwrap();
        let snapshot = reader.snapshot().unwrap();
        let rows: Rows = snapshot
            .scan(b"")
            .map(|row| row.unwrap())
            .map(|row| (row.key().to_vec(), row.value().to_vec()))
            .collect();
        let wrong: Vec<_> = rows
            .keys()
            .chain(wanted.keys())
            .filter(|key| rows.get(*key) != wanted.get(*key))
            .map(|key| String::from_utf8_lossy(key).into_owned())
            .collect();
        assert!(wrong.is_empty(), "{} {context}: {wrong:?} after {report:?}", self.name);
    }

    /// Where the first copy of the dictionaries lies.
    fn book(&self) -> Option<Range<usize>> {
        let metas = anatomy::extents(&self.file).into_iter().filter(|one| one.is(Kind::Meta));
        let starts = metas.map(|one| one.bytes.start + 4096);
        let mut heads = starts.filter_map(|at| {
            let (head, _) = BookHead::read_from_prefix(self.file.get(at..)?).ok()?;
            let tag = if self.name.contains("encrypted") { 16 } else { 0 };
            let len = BookHead::SIZE + usize::try_from(head.length.get()).ok()? + tag + 4;
            (head.magic.get() == MAGIC).then(|| at..at + len)
        });
        heads.next()
    }

    /// Which bytes to change.
    fn places(&self) -> Vec<usize> {
        let is_all = std::env::var("KVB_ROT").is_ok_and(|value| value == "all");
        let holds = |at: usize| self.file[at] != 0;
        (0..self.file.len()).filter(|at| is_all || holds(*at) || at % 97 == 0).collect()
    }
}

/// Calls with every item on two threads.
fn share<T: Sync>(items: &[T], check: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    check(item);
                }
            });
        }
    });
}

#[test]
fn every_byte_changed() {
    for subject in subjects() {
        if std::env::var("ONLY").is_ok_and(|n| n != subject.name) {
            continue;
        }
        let start = std::time::Instant::now();
        let places = subject.places();
        subject.check(&subject.file, &subject.all(), true, "undamaged");
        share(&places, |at| {
            let mut file = subject.file.clone();
            file[*at] ^= 1 << (at % 8);
            let is_hit = |bytes: &Range<usize>| bytes.contains(at);
            let wanted = subject.rows(|bytes| !is_hit(bytes));
            subject.check(&file, &wanted, at % 4 == 0, &format!("byte {at}"));
        });
        let seconds = start.elapsed().as_secs_f32();
        println!(
            "{}: {} of {} bytes, {seconds:.1} s",
            subject.name,
            places.len(),
            subject.file.len()
        );
    }
}

#[test]
fn every_length_cut_to() {
    for subject in subjects() {
        let lens: Vec<usize> = (0..subject.file.len())
            .filter(|len| {
                let edge = len % 512;
                edge < 2 || edge == 511 || len % 61 == 0
            })
            .collect();
        let book = subject.book();
        share(&lens, |len| {
            let file = subject.file[..*len].to_vec();
            let mut wanted = subject.rows(|bytes| bytes.end <= *len);
            if book.as_ref().is_some_and(|book| book.end > *len) {
                // Without dictionaries there is no way to expand what needs one.
                let readable = subject.rows(|bytes| {
                    bytes.end <= *len && subject.file[bytes.start + 29] & 0x7F != ENC_DICTIONARY
                });
                wanted.retain(|key, value| readable.get(key) == Some(value));
            }
            subject.check(&file, &wanted, len % 4 == 0, &format!("cut to {len}"));
        });
    }
}
