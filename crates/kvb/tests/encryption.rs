//! Encrypted buckets and the rules they keep, one after the other.
//!
//! The rows are those of the list of weak points that the format answers. Whoever forges here can write any byte of the
//! file and makes every CRC right again, but does not have the key. What the engine makes is checked with keys and nonces
//! derived in `support/forge.rs`, which shares no code with it.
//!
//! | row | what must hold | tests here | and elsewhere |
//! |---|---|---|---|
//! | 1 | no nonce is used twice under one key | `no_nonce_is_used_twice` | vectors in `cipher.rs` |
//! | 2 | nonces come from BLAKE2b with 24 bytes of output | `no_nonce_is_used_twice` opens every record by its own | `foreign.rs`, vectors |
//! | 3 | after a crash neither a seg_id nor a seqno comes again, nor after a failed write | `no_nonce_is_used_twice`, `a_failed_write_is_not_tried_again` | `crash.rs`, `faults.rs` |
//! | 4 | copies that part have other salts; segments without a salt can be read | `no_nonce_is_used_twice`, `segments_without_a_salt_can_be_read` | vectors |
//! | 5 | every byte of a record's header is authenticated | `every_bit_of_a_header_is_authenticated` | `foreign.rs` |
//! | 6 | keys and values are not to be seen | `nothing_is_to_be_seen` | `rotate.rs` |
//! | 7 | a DELETE cannot be made, changed or taken back; records stay where they were written | `every_bit_of_a_header_is_authenticated`, `records_cannot_be_moved`, `records_copied_within_a_segment_do_not_bring_older_rows_back`, `compaction_does_not_drop_what_it_cannot_read` | `foreign.rs` |
//! | 8 | hashes cannot be computed without the key | `nothing_is_to_be_seen` | |
//! | 9 | a wrong or missing key is told at once, by its id | `only_the_right_key_opens`, `the_check_value_tells_nothing_else` | `foreign.rs`, `rotate.rs` |
//! | 10 | CRCs are against accidents only, and the format page says so | `the_format_page_tells`; all forgeries here have right CRCs | |
//! | 11 | superblocks, index and side data are believed only under their MACs; what was durable cannot be cut off | `superblock_pages_are_authenticated`, `a_slot_cannot_lead_to_an_older_record`, `side_data_is_authenticated`, `the_end_cannot_be_cut_off`, `older_records_of_the_tail_do_not_come_back`, `stats_show_what_an_older_copy_is` | `foreign.rs`, `rot.rs` |
//! | 12 | without compression no length depends on contents; the leak of compression is documented | `lengths_tell_nothing_without_compression`, `the_format_page_tells` | |
//! | 13 | a rotation leaves nothing under the old key | `readers_in_another_process_see_rotations` | `rotate.rs`, `crash.rs` |

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![allow(clippy::print_stdout, reason = "a process that reads tells how far it is")]

#[path = "support/anatomy.rs"]
mod anatomy;
#[path = "support/forge.rs"]
mod forge;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use forge::{PAGE, SegmentKey};
use host::{Disk, Env, Fault, Keep, ManualEnv, Op, SimDisk, Trace};
use kvb::format::key_block::KeyBlock;
use kvb::format::record::{DELETE, PUT, RecordHeader};
use kvb::format::segment::Kind;
use kvb::format::superblock::{FLAG_ZSTD, Superblock};
use kvb::format::{extension, meta};
use kvb::{
    Batch, Bucket, Compact, Compression, Durability, Error, HashKind, Key, Keyring, Options,
    Reader, Result,
};
use siphasher::sip::SipHasher24;
use xxhash_rust::xxh3::xxh3_64;

const START_NS: u64 = 1_700_000_000_000_000_000;
const KEY_ID: u64 = 1;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn quiet(_: kvb::Progress) {}

/// The bytes of the key of an id. Rotations go from each id to the next, so the number of a key is its id.
fn key_bytes(id: u64) -> [u8; 32] {
    let mut random = fastrand::Rng::with_seed(id);
    std::array::from_fn(|_| random.u8(..))
}

fn keys() -> Keyring {
    (1..=9).fold(Keyring::new(), |ring, id| ring.with(id, Key::new(key_bytes(id))))
}

fn env(seed: u64) -> Arc<dyn Env> {
    Arc::new(ManualEnv::new(START_NS, seed))
}

fn plain() -> Options {
    Options::default()
        .background(false)
        .durability(Durability::SyncOnce)
        .segment_bytes_max(16 << 10)
        .overlay_min(32)
}

fn options() -> Options {
    plain().encrypted(KEY_ID).keys(keys())
}

fn disk(file: &[u8]) -> Arc<dyn Disk> {
    Arc::new(SimDisk::from_image(file.to_vec()))
}

fn open(file: &[u8], seed: u64) -> Result<Bucket> {
    Bucket::open_on(disk(file), env(seed), options())
}

fn read(file: &[u8]) -> Result<Reader> {
    Reader::open_on_with(disk(file), env(4), options())
}

fn rows(bucket: &Bucket) -> Rows {
    let rows = bucket.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

/// True if an error is one that forged bytes may cause.
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

/// A record of a file, opened by our own means.
#[derive(Clone, Debug)]
struct Placed {
    bytes: Range<usize>,
    /// Where its segment starts.
    segment: usize,
    seqno: u64,
    kind: u8,
    key: Vec<u8>,
}

fn placed(file: &[u8]) -> Vec<Placed> {
    let mut found = Vec::new();
    for extent in anatomy::extents(file).into_iter().filter(|extent| extent.is(Kind::Data)) {
        let start = extent.bytes.start;
        let begun = forge::segments(file).into_iter().find(|one| one.start == start).unwrap();
        let cipher = begun.key(&key_bytes(begun.header.key_no().into()), forge::uuid(file));
        for bytes in begun.records(file) {
            let text = cipher.open(&file[bytes.clone()], bytes.start - start).unwrap();
            let header = RecordHeader::of(&file[bytes.clone()]).unwrap();
            let key = text[..usize::try_from(header.key_len.get()).unwrap()].to_vec();
            let (seqno, kind) = (header.seqno.get(), header.kind);
            found.push(Placed { bytes, segment: start, seqno, kind, key });
        }
    }
    found
}

/// A bucket to be forged: a sealed segment, one that is not, an image, and the rows that are in it.
struct Subject {
    file: Vec<u8>,
    rows: Rows,
    deleted: BTreeSet<Vec<u8>>,
    /// Scans are looked at too.
    is_scanned: bool,
}

/// What is left of one.
#[derive(Debug, Default)]
struct Left {
    /// It could not be opened for reading, for writing.
    is_closed: [bool; 2],
    /// Keys for which there was an error.
    refused: [BTreeSet<Vec<u8>>; 2],
    /// Errors of scans.
    failures: usize,
}

impl Left {
    /// Neither a reader nor a writer tells anything of a key.
    fn refuses(&self, key: &[u8]) -> bool {
        let both = self.is_closed.iter().zip(&self.refused);
        both.fold(true, |refuses, (closed, refused)| refuses && (*closed || refused.contains(key)))
    }

    fn is_noticed(&self) -> bool {
        self.failures > 0 || self.is_closed[0] || self.is_closed[1] || !self.refused[0].is_empty()
    }
}

impl Subject {
    /// Every key and every value has one length, so that records can take each other's places.
    fn new(options: &Options) -> Subject {
        Subject::build(options, false)
    }

    /// The same, with keys that are in the tail twice if asked for.
    fn build(options: &Options, is_twice: bool) -> Subject {
        let sim = SimDisk::new();
        let (mut rows, mut deleted) = (Rows::new(), BTreeSet::new());
        let mut put = |bucket: &Bucket, number: usize, round: u8| {
            let (key, value) = (format!("key {number:02}").into_bytes(), vec![round; 40]);
            bucket.put(&key, &value).unwrap();
            rows.insert(key, value);
        };
        let bucket = Bucket::create_on(Arc::new(sim.reopen()), env(1), options.clone()).unwrap();
        (0..20).for_each(|number| put(&bucket, number, 1));
        (0..20).step_by(3).for_each(|number| put(&bucket, number, 2));
        let mut delete = |bucket: &Bucket, number: usize| {
            let key = format!("key {number:02}").into_bytes();
            assert!(bucket.delete(&key).unwrap());
            deleted.insert(key);
        };
        (1..20).step_by(6).for_each(|number| delete(&bucket, number));
        bucket.close().unwrap();
        let bucket = Bucket::open_on(Arc::new(sim.reopen()), env(2), options.clone()).unwrap();
        (20..30).for_each(|number| put(&bucket, number, 3));
        (3..20).step_by(3).for_each(|number| put(&bucket, number, 4));
        if is_twice {
            (22..27).for_each(|number| put(&bucket, number, 5));
        }
        [2, 8, 14].into_iter().for_each(|number| delete(&bucket, number));
        bucket.close().unwrap();
        rows.retain(|key, _| !deleted.contains(key));
        Subject { file: sim.to_bytes(), rows, deleted, is_scanned: true }
    }

    /// Everything that can be read of changed bytes is right; what is not tells so.
    fn look(&self, file: &[u8], context: &str) -> Left {
        let mut left = Left::default();
        match read(file) {
            Ok(reader) => {
                let get = |key: &[u8]| Ok(reader.get(key)?.map(|value| value.to_vec()));
                self.look_up(get, &mut left.refused[0], context);
                match reader.snapshot() {
                    Ok(snapshot) => left.failures += self.look_over(snapshot.scan(b""), context),
                    Err(error) => left.failures += usize::from(self.expect(&error, context)),
                }
            }
            Err(error) => left.is_closed[0] = self.expect(&error, context),
        }
        match open(file, 3) {
            Ok(bucket) => {
                let get = |key: &[u8]| Ok(bucket.get(key)?.map(|value| value.to_vec()));
                self.look_up(get, &mut left.refused[1], context);
                left.failures += self.look_over(bucket.scan(b""), context);
            }
            Err(error) => left.is_closed[1] = self.expect(&error, context),
        }
        left
    }

    fn expect(&self, error: &Error, context: &str) -> bool {
        assert!(is_typed(error), "{context}: {error:?}");
        true
    }

    fn look_up(
        &self,
        get: impl Fn(&[u8]) -> Result<Option<Vec<u8>>>,
        refused: &mut BTreeSet<Vec<u8>>,
        context: &str,
    ) {
        for key in self.rows.keys().chain(&self.deleted) {
            let text = String::from_utf8_lossy(key);
            match get(key) {
                Ok(value) => assert_eq!(value.as_ref(), self.rows.get(key), "{context}: {text}"),
                Err(Error::Corrupt(_)) => drop(refused.insert(key.clone())),
                Err(error) => panic!("{context}: {text}: {error:?}"),
            }
        }
    }

    /// How often a scan fails.
    fn look_over(&self, scan: kvb::Scan<'_>, context: &str) -> usize {
        let (mut seen, mut failures) = (Rows::new(), 0);
        if !self.is_scanned {
            return 0;
        }
        for row in scan {
            match row {
                Ok(row) => drop(seen.insert(row.key().to_vec(), row.value().to_vec())),
                Err(error) => failures += usize::from(self.expect(&error, context)),
            }
        }
        let mut wrong = seen.iter().filter(|(key, value)| self.rows.get(*key) != Some(*value));
        let wrong = wrong.next().map(|(key, _)| String::from_utf8_lossy(key));
        assert!(wrong.is_none(), "{context}: a scan gives {wrong:?} wrong, {failures} errors");
        assert!(failures > 0 || seen == self.rows, "{context}: a scan leaves rows out");
        failures
    }
}

/// The record of a key with the greatest seqno, or the others.
fn newest<'a>(all: &'a [Placed], key: &[u8]) -> &'a Placed {
    all.iter().filter(|one| one.key == key).max_by_key(|one| one.seqno).unwrap()
}

/// Each bit of the 40 authenticated bytes, of a PUT and a DELETE, in a sealed segment and in the tail.
#[test]
fn every_bit_of_a_header_is_authenticated() {
    let subject = Subject::new(&options());
    let all = placed(&subject.file);
    let untouched = subject.look(&subject.file, "untouched");
    assert!(!untouched.is_noticed(), "{untouched:?}");
    let mut forged = 0;
    // A PUT and a DELETE of the sealed segment, a PUT and a DELETE of the tail.
    for (key, kind) in [("key 04", PUT), ("key 13", DELETE), ("key 25", PUT), ("key 08", DELETE)] {
        let record = newest(&all, key.as_bytes());
        assert_eq!(record.kind, kind, "{key}");
        let start = record.bytes.start;
        for bit in (4 * 8)..(44 * 8) {
            let mut file = subject.file.clone();
            file[start + bit / 8] ^= 1 << (bit % 8);
            let len = RecordHeader::of(&file[start..]).unwrap().record_len();
            let end = start.saturating_add(usize::try_from(len).unwrap());
            // A length that leads out of the file needs no CRC.
            let end = if end <= file.len() { end } else { record.bytes.end };
            forge::repair_record(&mut file, &(start..end));
            let context = format!("{key}: bit {} of byte {}", bit % 8, bit / 8);
            let left = subject.look(&file, &context);
            assert!(left.is_noticed(), "{context}: nobody noticed");
            assert!(kind == DELETE || left.refuses(key.as_bytes()), "{context}: {left:?}");
            forged += 1;
        }
    }
    assert_eq!(forged, 4 * 320);
}

/// Records that are whole and have their CRCs, but not at their places.
#[test]
fn records_cannot_be_moved() {
    let subject = Subject::new(&options());
    let unscanned = Subject { is_scanned: false, ..Subject::new(&options()) };
    let all = placed(&subject.file);
    let segments: BTreeSet<usize> = all.iter().map(|one| one.segment).collect();
    assert_eq!(segments.len(), 2, "{segments:?}");
    let mut replayed = 0;
    for segment in &segments {
        let own: Vec<&Placed> = all.iter().filter(|one| one.segment == *segment).collect();
        swap_neighbours(&unscanned, &own);
        copy_within(&unscanned, &own);
        replayed += replay_older(&subject, &own);
        copy_from_elsewhere(&subject, &all, &own);
        truncate(&subject, &own);
    }
    assert!(replayed > 0);
}

/// Records that took the places of others in their own segment do not keep those from hiding older ones in a scan.
#[test]
fn records_copied_within_a_segment_do_not_bring_older_rows_back() {
    let subject = Subject::new(&options());
    let all = placed(&subject.file);
    let first = all.iter().min_by_key(|one| one.seqno).unwrap().segment;
    let own: Vec<&Placed> = all.iter().filter(|one| one.segment == first).collect();
    copy_within(&subject, &own);
    swap_neighbours(&subject, &own);
}

/// What compaction and rotation cannot read is not gone for good behind anyone's back.
#[test]
fn compaction_does_not_drop_what_it_cannot_read() {
    let subject = Subject::new(&options());
    let all = placed(&subject.file);
    // The one record of its key, under one that was replaced.
    let (from, to) = (newest(&all[..20], b"key 03"), newest(&all, b"key 04"));
    let mut file = subject.file.clone();
    file.copy_within(from.bytes.clone(), to.bytes.start);
    for rotates in [false, true] {
        let bucket = open(&file, 1).unwrap();
        let done = match rotates {
            true => bucket.rotate_key(2).map(|_| ()),
            false => bucket.compact(Compact::Full).map(|_| ()),
        };
        let found = bucket.get(b"key 04").map(|value| value.is_some());
        assert!(matches!(found, Err(Error::Corrupt(_))), "{done:?}, then {found:?}");
    }
}

/// The same of a tail in which a key is twice: what is left of it must not hide what the image knows.
#[test]
fn older_records_of_the_tail_do_not_come_back() {
    let subject = Subject::build(&options(), true);
    let all = placed(&subject.file);
    let last = all.iter().max_by_key(|one| one.seqno).unwrap().segment;
    let own: Vec<&Placed> = all.iter().filter(|one| one.segment == last).collect();
    assert!(replay_older(&subject, &own) > 0);
}

fn current<'a>(subject: &Subject, own: &[&'a Placed]) -> Vec<&'a Placed> {
    let is_row = |one: &&&Placed| one.kind == PUT && subject.rows.contains_key(&one.key);
    let is_last = |one: &&&Placed| {
        let same = own.iter().filter(|other| other.key == one.key);
        same.map(|other| other.seqno).max() == Some(one.seqno)
    };
    own.iter().filter(is_row).filter(is_last).copied().collect()
}

/// Two records exchanged: neither is read any more, unless a newer one is elsewhere.
fn swap_neighbours(subject: &Subject, own: &[&Placed]) {
    let newest_of = |key: &[u8]| newest(&placed(&subject.file), key).seqno;
    for pair in current(subject, own).windows(2) {
        let (one, other) = (pair[0].bytes.clone(), pair[1].bytes.clone());
        assert_eq!(one.len(), other.len());
        let mut file = subject.file.clone();
        file[one.clone()].copy_from_slice(&subject.file[other.clone()]);
        file[other].copy_from_slice(&subject.file[one]);
        let context = format!("{:?} and {:?} exchanged", pair[0], pair[1]);
        let left = subject.look(&file, &context);
        for record in pair.iter().filter(|one| newest_of(&one.key) == one.seqno) {
            assert!(left.refuses(&record.key), "{context}: {left:?}");
        }
    }
}

/// A record in the place of another one of its segment.
fn copy_within(subject: &Subject, own: &[&Placed]) {
    let all = placed(&subject.file);
    for to in current(subject, own).iter().filter(|to| newest(&all, &to.key).seqno == to.seqno) {
        for from in own.iter().filter(|from| from.kind == PUT && from.key != to.key) {
            let mut file = subject.file.clone();
            file.copy_within(from.bytes.clone(), to.bytes.start);
            let context = format!("{from:?} in the place of {to:?}");
            let left = subject.look(&file, &context);
            assert!(left.refuses(&to.key), "{context}: {left:?}");
        }
    }
}

/// An older record of the same key and length, as it was, and with the seqno of the newer one.
fn replay_older(subject: &Subject, own: &[&Placed]) -> usize {
    let mut replayed = 0;
    for new in own.iter().filter(|one| one.kind == PUT) {
        let old = own.iter().find(|old| old.key == new.key && old.seqno < new.seqno);
        let Some(old) = old.filter(|old| old.bytes.len() == new.bytes.len()) else { continue };
        let is_newest = newest(&placed(&subject.file), &new.key).seqno == new.seqno;
        for header_kept in [0, 44] {
            let mut file = subject.file.clone();
            let from = old.bytes.start + header_kept..old.bytes.end;
            file.copy_within(from, new.bytes.start + header_kept);
            forge::repair_record(&mut file, &new.bytes);
            let context = format!("{old:?} in the place of {new:?}, {header_kept} bytes kept");
            let left = subject.look(&file, &context);
            assert!(!is_newest || left.refuses(&new.key), "{context}: {left:?}");
            replayed += 1;
        }
    }
    replayed
}

/// A record of another segment, at the same offset or another.
fn copy_from_elsewhere(subject: &Subject, all: &[Placed], own: &[&Placed]) {
    let foreign = all.iter().filter(|one| one.segment != own[0].segment && one.kind == PUT);
    for (from, to) in foreign.zip(current(subject, own)) {
        let mut file = subject.file.clone();
        assert_eq!(from.bytes.len(), to.bytes.len());
        file[to.bytes.clone()].copy_from_slice(&subject.file[from.bytes.clone()]);
        let context = format!("{from:?} in the place of {to:?}");
        let left = subject.look(&file, &context);
        assert!(left.is_noticed(), "{context}");
        let is_newest = newest(all, &to.key).seqno == to.seqno;
        assert!(!is_newest || left.refuses(&to.key), "{context}: {left:?}");
    }
}

/// The value is said to be shorter, and the tag stands behind what is left of it.
fn truncate(subject: &Subject, own: &[&Placed]) {
    let all = placed(&subject.file);
    let mut live = current(subject, own).into_iter();
    let record = live.find(|one| newest(&all, &one.key).seqno == one.seqno).unwrap();
    for cut in [1, 16, 39, 40] {
        let mut file = subject.file.clone();
        let Range { start, end } = record.bytes;
        let val_len = u32::from_le_bytes(file[start + 36..start + 40].try_into().unwrap());
        let short = val_len - u32::try_from(cut).unwrap();
        file[start + 36..start + 40].copy_from_slice(&short.to_le_bytes());
        file.copy_within(end - 20..end - 4, end - 20 - cut);
        forge::repair_record(&mut file, &(start..end - cut));
        let context = format!("{record:?} shorter by {cut}");
        let left = subject.look(&file, &context);
        assert!(left.refuses(&record.key), "{context}: {left:?}");
    }
}

/// A copy of the bucket in which the last segment, which is not sealed, is one without a salt.
fn without_salt(subject: &Subject) -> (Vec<u8>, usize, Range<usize>) {
    let mut file = subject.file.clone();
    let uuid = forge::uuid(&file);
    let all = placed(&file);
    let last = all.iter().max_by_key(|one| one.seqno).unwrap().segment;
    let begun = forge::segments(&file).into_iter().find(|one| one.start == last).unwrap();
    assert!(begun.salt.is_some() && begun.header.segment_size.get() == 0);
    let key = key_bytes(KEY_ID);
    let bare = SegmentKey::new(&key, uuid, begun.header.seg_id.get(), None);
    let own: Vec<&Placed> = all.iter().filter(|one| one.segment == last).collect();
    let mut bytes = Vec::new();
    for record in &own {
        let old = &subject.file[record.bytes.clone()];
        let text = begun.key(&key, uuid).open(old, record.bytes.start - last).unwrap();
        bytes.extend(bare.seal(old, 52 + bytes.len(), &text));
    }
    let records = last + 52..last + 52 + bytes.len();
    file[records.clone()].copy_from_slice(&bytes);
    file[records.end..records.end + 16].fill(0);
    file[last + 28] &= !1;
    forge::repair_header(&mut file, last);
    let moved: BTreeSet<usize> = own.iter().map(|one| one.bytes.start).collect();
    lead_to_moved(&mut file, &moved, records.end);
    (file, last, records)
}

fn word(file: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(file[at..at + 8].try_into().unwrap())).unwrap()
}

/// Makes index and superblocks speak of records that stand 16 bytes before where they stood, as only the key allows.
fn lead_to_moved(file: &mut [u8], moved: &BTreeSet<usize>, end: usize) {
    let key = key_bytes(KEY_ID);
    let (first, count) = (word(file, 44), word(file, 52));
    for page in (first..first + count).map(|page| page * PAGE) {
        for at in (0..128).map(|slot| page + 28 + 16 * slot + 8) {
            let paddr = word(file, at);
            if moved.contains(&paddr) {
                let paddr = u64::try_from(paddr - 16).unwrap();
                file[at..at + 8].copy_from_slice(&paddr.to_le_bytes());
            }
        }
        forge::sign_index_page(file, page, &key);
    }
    for at in [0, file.len() - PAGE] {
        file[at + 116..at + 124].copy_from_slice(&u64::try_from(end).unwrap().to_le_bytes());
        forge::sign_page(file, at, &key);
    }
}

#[test]
fn segments_without_a_salt_can_be_read() {
    let subject = Subject::new(&options());
    let (file, segment, records) = without_salt(&subject);
    let left = subject.look(&file, "without a salt");
    assert!(!left.is_noticed(), "{left:?}");
    let sim = SimDisk::from_image(file.clone());
    // A writer seals it as it is, and compaction moves what is in it to one with a salt.
    let bucket = Bucket::open_on(Arc::new(sim.reopen()), env(5), options()).unwrap();
    assert_eq!(rows(&bucket), subject.rows);
    let begun = |file: &[u8]| forge::segments(file).into_iter().find(|one| one.start == segment);
    let sealed = begun(&sim.to_bytes()).unwrap();
    assert!(sealed.salt.is_none() && sealed.header.segment_size.get() > 0);
    bucket.put(b"later", b"on").unwrap();
    bucket.close().unwrap();
    let bucket = Bucket::open_on(Arc::new(sim.reopen()), env(6), options()).unwrap();
    bucket.compact(Compact::Full).unwrap();
    let later = (b"later".to_vec(), b"on".to_vec());
    let wanted: Rows = subject.rows.clone().into_iter().chain([later]).collect();
    assert_eq!(rows(&bucket), wanted);
    bucket.close().unwrap();
    let extents = anatomy::extents(&sim.to_bytes()).into_iter();
    let mut data = extents.filter(|extent| extent.is(Kind::Data));
    assert!(data.all(|extent| extent.header.is_salted()), "a segment without a salt was written");
    // No byte of the records can be changed.
    let all: Vec<Range<usize>> = begun(&file).unwrap().records(&file);
    assert_eq!(all.last().unwrap().end, records.end);
    for at in records {
        let mut forged = file.clone();
        forged[at] ^= 1 << (at % 8);
        let record = all.iter().find(|record| record.contains(&at)).unwrap();
        let is_crc = at - record.start < 4 || record.end - at <= 4;
        let len = RecordHeader::of(&forged[record.start..]).unwrap().record_len();
        let end = record.start.saturating_add(usize::try_from(len).unwrap());
        if !is_crc && end <= forged.len() {
            forge::repair_record(&mut forged, &(record.start..end));
        }
        let context = format!("without a salt, byte {at}");
        assert!(subject.look(&forged, &context).is_noticed(), "{context}: nobody noticed");
    }
}

/// Everything that was ever written, by what its key and nonce are made of.
#[derive(Default)]
struct Ledger {
    /// By seg_id, salt and seqno: what is authenticated of the header, ciphertext and tag.
    sealed: HashMap<(u64, [u8; 16], u64), Vec<u8>>,
    /// In which opening a salt was used.
    salts: HashMap<[u8; 16], usize>,
    images: usize,
    moved: usize,
}

/// The greatest numbers that were used so far in a line of history.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    seg_id: u64,
    seqno: u64,
}

/// An opening for writing, and what was there before.
struct Opening {
    number: usize,
    /// Segments that were there.
    known: HashSet<(u64, [u8; 16])>,
    before: Used,
}

impl Opening {
    fn new(number: usize, image: &[u8], before: Used) -> Opening {
        let segments = forge::segments(image).into_iter();
        let known = segments.map(|one| (one.header.seg_id.get(), one.salt.unwrap())).collect();
        Opening { number, known, before }
    }
}

impl Ledger {
    /// Takes in an image of an opening, and gives what is used by now.
    fn note(&mut self, file: &[u8], opening: &Opening, used: &mut Used) {
        self.images += 1;
        for segment in forge::segments(file) {
            let seg_id = segment.header.seg_id.get();
            let Some(salt) = segment.salt else {
                panic!("a segment without a salt: {:?}", segment.header)
            };
            let is_new = !opening.known.contains(&(seg_id, salt));
            if is_new {
                let first = *self.salts.entry(salt).or_insert(opening.number);
                assert_eq!(first, opening.number, "two openings use one salt, segment {seg_id}");
                let before = opening.before.seg_id;
                assert!(seg_id > before, "segment {seg_id} was used before, as was {before}");
                used.seg_id = used.seg_id.max(seg_id);
            }
            let cipher = segment.key(&key_bytes(segment.header.key_no().into()), forge::uuid(file));
            for record in segment.records(file) {
                let bytes = &file[record.clone()];
                let seqno = RecordHeader::of(bytes).unwrap().seqno.get();
                let covered = &bytes[4..bytes.len() - 4];
                let place = (seg_id, salt, seqno);
                if self.sealed.get(&place).is_some_and(|there| there == covered) {
                    continue;
                }
                if cipher.open(bytes, record.start - segment.start).is_none() {
                    // Left over from a segment that was here before.
                    break;
                }
                let there = self.sealed.insert(place, covered.to_vec());
                assert!(there.is_none(), "two records under {place:?}");
                assert!(is_new, "a record was added to segment {seg_id} of an earlier opening");
                self.moved += usize::from(segment.header.is_moved());
                if !segment.header.is_moved() {
                    let before = opening.before.seqno;
                    assert!(seqno > before, "seqno {seqno} was used before, as was {before}");
                    used.seqno = used.seqno.max(seqno);
                }
            }
        }
    }
}

/// What an opening wrote, and how much was used at some points of it.
struct Lived {
    trace: Trace,
    points: Vec<(usize, Used)>,
}

/// Histories that go on from images of others.
struct Histories {
    ledger: Ledger,
    random: fastrand::Rng,
    lived: Vec<Lived>,
}

impl Histories {
    /// Opens an image, works with it, and notes what was written.
    fn live(&mut self, image: Option<Vec<u8>>, before: Used) {
        let number = self.lived.len();
        let opening = Opening::new(number, image.as_deref().unwrap_or(&[]), before);
        let sim = image.clone().map_or_else(SimDisk::new, SimDisk::from_image);
        // Every opening draws other random numbers, as every process does.
        let env = env(1000 + u64::try_from(number).unwrap());
        let shared: Arc<dyn Disk> = Arc::new(sim.reopen());
        let bucket = match image {
            Some(_) => Bucket::open_on(shared, env, options()).unwrap(),
            None => Bucket::create_on(shared, env, options()).unwrap(),
        };
        let opened = sim.trace().len();
        if self.random.u8(0..4) == 0 {
            let faults = [Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::SyncFailsThenLies];
            let at = sim.op_count() + self.random.u64(1..60);
            sim.fail(at, faults[self.random.usize(..4)]);
        }
        for _ in 0..self.random.usize(5..40) {
            if self.step(&bucket, &sim).is_err() {
                break;
            }
        }
        drop(bucket);
        self.note(&sim.trace(), if number == 0 { opened } else { 0 }, &opening);
    }

    /// Something that a program does with a bucket.
    fn step(&mut self, bucket: &Bucket, sim: &SimDisk) -> Result<()> {
        let mut batch = Batch::new();
        for _ in 0..self.random.usize(1..6) {
            let key = format!("key {}", self.random.u8(0..60));
            match self.random.u8(0..5) {
                0 => batch.delete(key),
                _ => batch.put(key, vec![self.random.u8(..); self.random.usize(0..300)]),
            };
        }
        let durability = [Durability::Relaxed, Durability::SyncOnce, Durability::Sync];
        bucket.commit_with(batch, durability[self.random.usize(..3)])?;
        match self.random.u8(0..60) {
            0..=2 => bucket.compact(Compact::Full).map(|_| ())?,
            3 => bucket.compact(Compact::LowSpace).map(|_| ())?,
            4 => bucket.flush()?,
            5 => {
                let block = KeyBlock::decode(&sim.to_bytes()).unwrap();
                let id = block.key_id.get() + u64::from(block.old_key_no.get() == 0);
                bucket.rotate_key(id.min(9))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn note(&mut self, trace: &Trace, from: usize, opening: &Opening) {
        let mut used = opening.before;
        let mut noted = Vec::new();
        let mut points = trace.points();
        while let Some(point) = points.advance() {
            let upto = point.upto();
            if upto >= from && (upto % 3 == 0 || upto == trace.len()) {
                self.ledger.note(&point.image(Keep::All), opening, &mut used);
                noted.push((upto, used));
            }
        }
        self.lived.push(Lived { trace: trace.clone(), points: noted });
    }

    /// An image that power loss leaves somewhere in some opening: of the last one, or of one long ago.
    fn draw(&mut self) -> (Vec<u8>, Used) {
        let count = self.lived.len();
        let recent = count.saturating_sub(4);
        let index = if self.random.bool() { recent } else { 0 };
        let lived = &self.lived[self.random.usize(index..count)];
        let (upto, used) = lived.points[self.random.usize(..lived.points.len())];
        let keep = match self.random.u8(0..4) {
            0 => Keep::All,
            1 => Keep::None,
            _ => Keep::Random(self.random.u64(..)),
        };
        (lived.trace.image(upto, keep), used)
    }
}

/// Crashes, older copies that are put back, copies that part, compaction and rotations: whatever happens to a bucket, no key
/// and nonce ever serve for two records.
///
/// It was tried with engines that were broken on purpose. It fails with a salt of zeros, a salt made of key and seg_id alone,
/// a session_salt of zeros, no gap of seqnos after a crash, and a nonce without the seqno.
#[test]
fn no_nonce_is_used_twice() {
    let random = fastrand::Rng::with_seed(11);
    let mut histories = Histories { ledger: Ledger::default(), random, lived: Vec::new() };
    histories.live(None, Used::default());
    for round in 0..160 {
        let (image, used) = histories.draw();
        // Some images are copied, and both copies go on.
        for _ in 0..=usize::from(round % 3 == 0) {
            histories.live(Some(image.clone()), used);
        }
    }
    let ledger = &histories.ledger;
    let seen = (ledger.images, ledger.sealed.len(), ledger.salts.len(), ledger.moved);
    println!("{seen:?}: images, records, salts, moved records");
    let keys: HashSet<[u8; 16]> = ledger.sealed.keys().map(|place| place.1).collect();
    assert!(seen.0 > 1000 && seen.1 > 3000 && keys.len() > 100 && seen.3 > 500, "{seen:?}");
}

/// What was deleted since a backup, and is nowhere in the log any more, is told by records that are made for it.
#[test]
fn no_nonce_is_used_twice_in_an_increment() {
    let disks: [SimDisk; 3] = std::array::from_fn(|_| SimDisk::new());
    let shared = |at: usize| -> Arc<dyn Disk> { Arc::new(disks[at].reopen()) };
    let bucket = Bucket::create_on(shared(0), env(1), options()).unwrap();
    for number in 0..60_u8 {
        bucket.put([number], vec![number; 50]).unwrap();
    }
    bucket.snapshot().backup_on(shared(1), env(2), options(), &mut quiet).unwrap();
    for number in 0..20_u8 {
        bucket.delete([number]).unwrap();
    }
    bucket.put([100], b"new").unwrap();
    bucket.compact(Compact::Full).unwrap();
    let snapshot = bucket.snapshot();
    snapshot.backup_since_on(shared(2), env(3), &[shared(1)], options(), &mut quiet).unwrap();
    drop(snapshot);
    let mut ledger = Ledger::default();
    for (number, disk) in disks.iter().enumerate() {
        let opening = Opening::new(number, &[], Used::default());
        ledger.note(&disk.to_bytes(), &opening, &mut Used::default());
    }
    assert!(ledger.sealed.len() > 100 && ledger.moved > 80, "{}", ledger.sealed.len());
    let restored = SimDisk::new();
    let parts = [shared(1), shared(2)];
    kvb::restore_on(&parts, Arc::new(restored.reopen()), env(4), options(), &mut quiet).unwrap();
    assert_eq!(rows(&open(&restored.to_bytes(), 5).unwrap()), rows(&bucket));
}

/// A commit that failed, in part on disk, and others in the same opening, as far as that takes any.
#[test]
fn a_failed_write_is_not_tried_again() {
    let faults = [Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::SyncFailsThenLies];
    let mut failed = 0;
    for (fault, index) in faults.into_iter().flat_map(|fault| (0..12).map(move |at| (fault, at))) {
        let ends = commits_around(|sim| sim.fail(sim.op_count() + index, fault), |_| {});
        failed += usize::from(ends.contains(&false));
    }
    assert!(failed > 10, "{failed} failed");
    // A full disk stops nothing for good.
    let full = |sim: &SimDisk| sim.set_capacity(Some(u64::try_from(sim.to_bytes().len()).unwrap()));
    let ends = commits_around(full, |sim| sim.set_capacity(None));
    assert!(ends.windows(2).any(|pair| pair == [false, true]), "{ends:?}");
}

/// Commits of equal lengths and other contents, of which some fail until the fourth failed; notes all that is written.
fn commits_around(fault: impl Fn(&SimDisk), mend: impl Fn(&SimDisk)) -> Vec<bool> {
    let sim = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(sim.reopen()), env(1), options()).unwrap();
    let opening = Opening::new(0, &sim.to_bytes(), Used::default());
    fault(&sim);
    let mut ends = Vec::new();
    for fill in 0..40 {
        let mut batch = Batch::new();
        for key in 0..6_u8 {
            batch.put([key], vec![fill; 1000]);
        }
        ends.push(bucket.commit(batch).is_ok());
        if ends.iter().filter(|is_ok| !**is_ok).count() == 4 {
            mend(&sim);
        }
    }
    drop(bucket);
    let mut ledger = Ledger::default();
    let trace = sim.trace();
    let mut points = trace.points();
    while let Some(point) = points.advance() {
        ledger.note(&point.image(Keep::All), &opening, &mut Used::default());
    }
    ends
}

/// Numbers of a superblock's page.
fn root(file: &[u8]) -> Superblock {
    Superblock::decode(file).unwrap()
}

#[test]
fn only_the_right_key_opens() {
    let file = Subject::new(&options()).file;
    let mut wrong = key_bytes(KEY_ID);
    wrong[31] ^= 1;
    let with = |keys: Keyring| Options::default().background(false).keys(keys);
    let wrong = with(Keyring::new().with(KEY_ID, Key::new(wrong)));
    let other = with(Keyring::new().with(2, Key::new(key_bytes(KEY_ID))));
    let none = with(Keyring::new());
    let given = with(Keyring::new().with(KEY_ID, Key::new(key_bytes(KEY_ID))));
    let attempts = |options: &Options| {
        let reader = Reader::open_on_with(disk(&file), env(1), options.clone()).map(drop);
        let bucket = Bucket::open_on(disk(&file), env(1), options.clone()).map(drop);
        let verified = kvb::verify_on(disk(&file), env(1), options.clone(), &mut quiet).map(drop);
        [reader, bucket, verified]
    };
    for result in attempts(&given) {
        result.unwrap();
    }
    for error in attempts(&wrong).map(Result::unwrap_err) {
        assert!(matches!(error, Error::KeyWrong { id: KEY_ID }), "{error:?}");
        assert!(error.to_string().contains("key 1 "), "{error}");
    }
    for options in [other, none, Options::default().background(false)] {
        for error in attempts(&options).map(Result::unwrap_err) {
            assert!(matches!(error, Error::KeyMissing { id: KEY_ID }), "{error:?}");
            assert!(error.to_string().contains("key 1 "), "{error}");
        }
    }
    // Somebody may have put a plain bucket in the place of an encrypted one.
    let file = Subject::new(&plain()).file;
    let refused = Bucket::open_on(disk(&file), env(1), given.clone()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Invalid(why) if why.contains("not encrypted")), "{refused:?}");
    let refused = Reader::open_on_with(disk(&file), env(1), given).map(drop).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    assert!(Reader::open_on(disk(&file), env(1)).is_ok());
}

/// The check value is made of key and uuid, under its own name, and nothing else made of the key is in the file.
#[test]
fn the_check_value_tells_nothing_else() {
    let make = |seed| {
        let sim = SimDisk::new();
        let bucket = Bucket::create_on(Arc::new(sim.reopen()), env(seed), options()).unwrap();
        bucket.put(b"key", b"value").unwrap();
        bucket.close().unwrap();
        sim.to_bytes()
    };
    let (file, other) = (make(1), make(2));
    let key = key_bytes(KEY_ID);
    let check = |file: &[u8]| KeyBlock::decode(file).unwrap().key_check;
    assert_eq!(check(&file), forge::keyed_128(&key, &[b"kvb-key-check-v1", &forge::uuid(&file)]));
    assert_ne!(check(&file), check(&other), "one key, two buckets");
    let block = KeyBlock::decode(&file).unwrap();
    assert_eq!((block.key_id.get(), block.key_no.get()), (KEY_ID, 1));
    let there: HashSet<&[u8]> = file.windows(8).collect();
    let guesses = [
        forge::hash_512(&key)[..16].to_vec(),
        forge::hash_512(&[&key[..], &forge::uuid(&file)].concat())[..16].to_vec(),
        forge::hash_128(&key).to_vec(),
        forge::keyed_128(&key, &[]).to_vec(),
        forge::keyed_128(&key, &[&forge::uuid(&file)]).to_vec(),
        forge::keyed_256(&key, &[]).to_vec(),
        forge::keyed_128(&key, &[b"kvb-hash-wrap-v1", &forge::uuid(&file)]).to_vec(),
        forge::keyed_128(&key, &[b"kvb-hash-key-v1", &forge::uuid(&file)]).to_vec(),
        forge::keyed_256(&key, &[b"kvb-mac-key-v1", &forge::uuid(&file)]).to_vec(),
        key.to_vec(),
    ];
    for guess in guesses {
        assert!(guess.chunks(8).all(|piece| !there.contains(piece)), "{guess:02x?}");
    }
    assert!(there.contains(&check(&file)[..8]));
    assert_eq!(format!("{:?}", Key::new(key)), "Key(..)");
}

/// Each byte of either copy, and of both, with all CRCs right.
#[test]
fn superblock_pages_are_authenticated() {
    let subject = Subject::new(&options());
    let last = subject.file.len() - PAGE;
    let (mut refused, mut forged) = (BTreeSet::new(), 0);
    for at in 0..PAGE {
        let change = |pages: &[usize]| {
            let mut file = subject.file.clone();
            for page in pages {
                file[page + at] ^= 1 << (at % 8);
                forge::repair_page(&mut file, *page);
            }
            file
        };
        // A CRC is right again at once.
        if change(&[0]) == subject.file {
            continue;
        }
        forged += 1;
        match read(&change(&[0])) {
            Ok(reader) => check_copy(&subject, &reader, last, at),
            Err(error) => refused.extend(is_typed(&error).then_some(at)),
        }
        check_copy(&subject, &read(&change(&[last])).unwrap(), 0, at);
        let error = read(&change(&[0, last])).map(drop).expect_err("both are forged");
        assert!(is_typed(&error), "byte {at} of both: {error:?}");
        let error = open(&change(&[0, last]), 1).map(drop).expect_err("both are forged");
        assert!(is_typed(&error), "byte {at} of both: {error:?}");
    }
    assert!(forged >= PAGE - 20, "{forged}");
    // Software that is too old is told so, whoever says it.
    assert!(refused.iter().all(|at| matches!(at, 4..=5 | 36..=43)), "{refused:?}");
}

fn check_copy(subject: &Subject, reader: &Reader, page: usize, at: usize) {
    let found = usize::try_from(reader.mount_report().superblock_page).unwrap() * PAGE;
    assert_eq!(found, page, "byte {at}: a forged copy was believed");
    let (key, value) = subject.rows.first_key_value().unwrap();
    assert_eq!(reader.get(key).unwrap().as_deref(), Some(&value[..]), "byte {at}");
}

/// A slot that leads to an older record of its key, with everything right but the MAC.
#[test]
fn a_slot_cannot_lead_to_an_older_record() {
    let subject = Subject::new(&options());
    let all = placed(&subject.file);
    let page = word(&subject.file, 44) * PAGE;
    assert_eq!(word(&subject.file, 52), 1, "one index page");
    let mut forged = 0;
    for new in all.iter().filter(|one| one.kind == PUT && newest(&all, &one.key).seqno == one.seqno)
    {
        let slots = (0..128).map(|slot| page + 28 + 16 * slot + 8);
        let slot = slots.clone().find(|at| word(&subject.file, *at) == new.bytes.start).unwrap();
        for old in all.iter().filter(|old| old.key == new.key && old.seqno < new.seqno) {
            let mut file = subject.file.clone();
            let paddr = u64::try_from(old.bytes.start).unwrap();
            file[slot..slot + 8].copy_from_slice(&paddr.to_le_bytes());
            let context = format!("{old:?} for {new:?}");
            subject.look(&file, &context);
            // As in a bucket that is not encrypted, and as under another key.
            forge::sign_index_page(&mut file, page, &[0; 32]);
            subject.look(&file, &context);
            forged += 1;
        }
    }
    assert!(forged > 3, "{forged}");
    believed_slots_are_followed(&subject, &all, page);
}

#[test]
fn the_head_of_the_index_is_authenticated() {
    let subject = Subject::new(&options());
    let start = (word(&subject.file, 44) - 1) * PAGE;
    // The number of keys.
    let used = start + meta::OFFSET + 40;
    assert!(word(&subject.file, used) > 3);
    let mut file = subject.file.clone();
    file[used] ^= 1;
    forge::repair_meta(&mut file, &(start..start + PAGE));
    assert!(!read(&subject.file).unwrap().mount_report().index_rebuilt);
    assert!(read(&file).unwrap().mount_report().index_rebuilt, "it is believed");
    subject.look(&file, "another number of keys");
}

/// That the forgery would work: whoever has the key can make a slot lead to an older record.
fn believed_slots_are_followed(subject: &Subject, all: &[Placed], page: usize) {
    let new = newest(all, b"key 00");
    let old = all.iter().find(|one| one.key == new.key && one.seqno < new.seqno).unwrap();
    let mut file = subject.file.clone();
    let mut slots = (0..128).map(|slot| page + 28 + 16 * slot + 8);
    let slot = slots.find(|at| word(&file, *at) == new.bytes.start).unwrap();
    let paddr = u64::try_from(old.bytes.start).unwrap();
    file[slot..slot + 8].copy_from_slice(&paddr.to_le_bytes());
    forge::sign_index_page(&mut file, page, &key_bytes(KEY_ID));
    let value = read(&file).unwrap().get(&new.key).unwrap().unwrap().to_vec();
    assert_eq!(value, [1; 40], "the index is not used at all");
}

/// A bucket whose writer was killed before the index knew any of it.
fn killed() -> Subject {
    let sim = SimDisk::new();
    let options = options().overlay_min(10_000);
    let bucket = Bucket::create_on(Arc::new(sim.reopen()), env(1), options).unwrap();
    let (mut rows, mut deleted) = (Rows::new(), BTreeSet::new());
    for number in 0..260_usize {
        let key = format!("key {:02}", number * 7 % 80).into_bytes();
        if number > 100 && number % 9 == 0 && rows.remove(&key).is_some() {
            bucket.delete(&key).unwrap();
            deleted.insert(key);
            continue;
        }
        let value = format!("value {number} ").repeat(8).into_bytes();
        bucket.put(&key, &value).unwrap();
        deleted.remove(&key);
        rows.insert(key, value);
    }
    // Of the tail nothing is lost here.
    let file = sim.to_bytes();
    Subject { file, rows, deleted, is_scanned: true }
}

/// Bytes of head, run, filter, directory, salt and MACs, with all CRCs right.
#[test]
fn side_data_is_authenticated() {
    let subject = killed();
    let reader = read(&subject.file).unwrap();
    assert!(reader.mount_report().runs >= 2, "{:?}", reader.mount_report());
    assert!(!subject.look(&subject.file, "untouched").is_noticed());
    let (start, meta) = anatomy::side_data(&subject.file).into_iter().next().unwrap();
    let len = usize::try_from(meta.head.page_count.get()).unwrap() * PAGE;
    let extent = start..start + len;
    let mut places: Vec<(usize, u32)> = (128..128 + 64 + 24 * 5).map(|at| (at, 0)).collect();
    for section in &meta.sections {
        let from = usize::try_from(section.offset.get()).unwrap();
        let to = from + usize::try_from(section.length.get()).unwrap();
        // One MAC is over all of them.
        places.extend((from..to).step_by(5).map(|at| (at, section.kind.get())));
    }
    let mut noticed = BTreeMap::new();
    for (at, section) in places {
        let mut file = subject.file.clone();
        file[start + at] ^= 1 << (at % 8);
        forge::repair_meta(&mut file, &extent);
        if file == subject.file {
            continue;
        }
        let context = format!("byte {at} of side data, section {section}");
        let left = subject.look(&file, &context);
        assert!(!left.is_noticed(), "{context}: what is derived is made again: {left:?}");
        let rebuilt = read(&file).unwrap().mount_report().runs_rebuilt;
        *noticed.entry(section).or_insert(0) += rebuilt;
        let is_needed = matches!(section, meta::SECTION_RUN | meta::SECTION_FILTER);
        assert!(rebuilt > 0 || !is_needed, "{context}: believed");
    }
    for section in [meta::SECTION_RUN, meta::SECTION_FILTER, meta::SECTION_MAC, 0] {
        assert!(noticed[&section] > 0, "{noticed:?}");
    }
    assert!(noticed.contains_key(&meta::SECTION_DIRECTORY), "{noticed:?}");
}

/// Records that were durable are missed, however the rest is made to look.
#[test]
fn the_end_cannot_be_cut_off() {
    let subject = Subject::new(&options());
    let all = placed(&subject.file);
    let tail = all.iter().max_by_key(|one| one.seqno).unwrap().segment;
    let ring = 3 * PAGE..11 * PAGE;
    for record in all.iter().filter(|one| one.segment == tail) {
        for without_ring in [false, true] {
            let mut file = subject.file.clone();
            file[record.bytes.start..tail + 4 * PAGE].fill(0);
            if without_ring {
                file[ring.clone()].fill(0);
            }
            let context = format!("cut before {record:?}");
            let left = subject.look(&file, &context);
            assert!(left.is_closed[1] && left.failures > 0, "{context}: {left:?}");
        }
    }
    for len in (0..subject.file.len()).step_by(PAGE) {
        let context = format!("cut to {len} bytes");
        let left = subject.look(&subject.file[..len], &context);
        assert!(left.is_noticed(), "{context}");
    }
}

/// An older copy of the whole file opens, and only its numbers show what it is.
#[test]
fn stats_show_what_an_older_copy_is() {
    let sim = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(sim.reopen()), env(1), options()).unwrap();
    bucket.put(b"key", b"old").unwrap();
    bucket.flush().unwrap();
    let (copy, before) = (sim.to_bytes(), bucket.stats().unwrap());
    assert_eq!(before.epoch, root(&copy).epoch.get());
    assert_eq!(before.commit_seqno, root(&copy).commit_seqno.get());
    bucket.put(b"key", b"new").unwrap();
    bucket.flush().unwrap();
    let after = bucket.stats().unwrap();
    assert!(after.epoch > before.epoch && after.commit_seqno > before.commit_seqno);
    bucket.close().unwrap();
    let back = read(&copy).unwrap();
    assert_eq!(back.get(b"key").unwrap().as_deref(), Some(&b"old"[..]));
    let stats = back.stats().unwrap();
    assert_eq!((stats.epoch, stats.commit_seqno), (before.epoch, before.commit_seqno));
}

/// Everything a history wrote, to whatever file, and the secrets in it.
struct Written {
    blobs: Vec<Vec<u8>>,
    keys: Vec<Vec<u8>>,
    values: Vec<Vec<u8>>,
    /// `Extension.hash_key` as it stood in the files.
    hash_keys: BTreeSet<[u8; 16]>,
}

/// Eight bytes as often as they are written.
type Pieces = HashSet<[u8; 8]>;

impl Written {
    /// Puts, deletes, compaction, a dictionary if there can be one, a rotation if asked for, a backup and an increment.
    fn new(options: &Options, trains: bool, rotates: bool) -> Written {
        let mut random = fastrand::Rng::with_seed(5);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let disks: [SimDisk; 3] = std::array::from_fn(|_| SimDisk::new());
        let shared = |at: usize| -> Arc<dyn Disk> { Arc::new(disks[at].reopen()) };
        let options = options.clone().durability(Durability::Sync);
        let bucket = Bucket::create_on(shared(0), env(1), options.clone()).unwrap();
        let mut fill = |bucket: &Bucket| {
            for number in 0..150 {
                let draw = |random: &mut fastrand::Rng| format!("{:016x}", random.u64(..));
                let key = format!("account/{}", draw(&mut random)).into_bytes();
                let note = format!("owner {} owes {}; ", draw(&mut random), draw(&mut random));
                let value = note.repeat(random.usize(1..6)).into_bytes();
                bucket.put(&key, &value).unwrap();
                if number % 4 == 0 {
                    bucket.delete(&key).unwrap();
                }
                keys.push(key);
                values.push(value);
            }
        };
        fill(&bucket);
        if trains {
            bucket.train_dictionary(1024).unwrap();
        }
        fill(&bucket);
        bucket.compact(Compact::Full).unwrap();
        bucket.snapshot().backup_on(shared(1), env(2), options.clone(), &mut quiet).unwrap();
        fill(&bucket);
        if rotates {
            bucket.rotate_key(2).unwrap();
        }
        let before = [shared(1)];
        let snapshot = bucket.snapshot();
        snapshot.backup_since_on(shared(2), env(3), &before, options, &mut quiet).unwrap();
        drop(snapshot);
        bucket.close().unwrap();
        let mut blobs: Vec<Vec<u8>> = disks.iter().map(SimDisk::to_bytes).collect();
        let hash_key = |file: &Vec<u8>| {
            let at = extension::OFFSET + 144;
            file[at..at + 16].try_into().unwrap()
        };
        let hash_keys = blobs.iter().map(hash_key).collect();
        for sim in &disks {
            let writes = sim.trace().ops().to_vec().into_iter();
            blobs.extend(writes.filter_map(|op| match op {
                Op::Write { data, .. } => Some(data.to_vec()),
                _ => None,
            }));
        }
        Written { blobs, keys, values, hash_keys }
    }

    fn pieces(texts: &[Vec<u8>]) -> Pieces {
        texts
            .iter()
            .flat_map(|text| text.windows(8))
            .map(|piece| piece.try_into().unwrap())
            .collect()
    }

    /// Pieces of keys as the numbers of a directory would have them.
    fn numbers(&self) -> Pieces {
        let reversed = |piece: [u8; 8]| u64::from_be_bytes(piece).to_le_bytes();
        Written::pieces(&self.keys).into_iter().map(reversed).collect()
    }

    fn hashes(&self, hash: impl Fn(&[u8]) -> u64) -> Pieces {
        let both = |hash: u64| [hash.to_le_bytes(), hash.to_be_bytes()];
        self.keys.iter().flat_map(|key| both(hash(key))).collect()
    }

    fn sip(&self, key: &[u8; 16]) -> Pieces {
        let hasher = SipHasher24::new_with_key(key);
        self.hashes(|key| hasher.hash(key))
    }

    /// How often any of them was written.
    fn count(&self, pieces: &Pieces) -> usize {
        let windows = self.blobs.iter().flat_map(|blob| blob.windows(8));
        windows.filter(|window| pieces.contains(*window)).count()
    }

    /// How often keys, values, numbers, XXH3 hashes and SipHashes under zeros and under the stored keys were written.
    fn counts(&self) -> [usize; 6] {
        let stored: Pieces = self.hash_keys.iter().flat_map(|key| self.sip(key)).collect();
        [
            self.count(&Written::pieces(&self.keys)),
            self.count(&Written::pieces(&self.values)),
            self.count(&self.numbers()),
            self.count(&self.hashes(xxh3_64)),
            self.count(&self.sip(&[0; 16])),
            self.count(&stored),
        ]
    }
}

/// Nothing that is written, to the bucket, a backup or an increment, shows a key, a value, or a hash that can be computed.
#[test]
fn nothing_is_to_be_seen() {
    let zstd = |options: Options| options.compression(Compression::Zstd);
    for (options, trains, rotates) in [
        (options(), false, false),
        (options(), false, true),
        (options().directories(false), false, false),
        (zstd(options()), true, true),
    ] {
        assert_eq!(Written::new(&options, trains, rotates).counts(), [0; 6]);
    }
    // What is looked for is there if nobody hides it.
    let [keys, values, numbers, xxh3, ..] = Written::new(&plain(), false, false).counts();
    assert!(keys > 0 && values > 0 && numbers > 0 && xxh3 > 0);
    let hidden = Written::new(&zstd(plain()), true, false).counts();
    assert!(hidden[1] > 0, "a dictionary shows values");
    let keyed = Written::new(&plain().hash(HashKind::SipHash), false, false).counts();
    assert!(keyed[5] > 0, "{keyed:?}");
}

/// Without compression a stored value is as long as the value; with it, contents show in lengths.
#[test]
fn lengths_tell_nothing_without_compression() {
    let make = |options: Options| {
        let sim = SimDisk::new();
        let bucket = Bucket::create_on(Arc::new(sim.reopen()), env(1), options).unwrap();
        bucket.put(b"dull", [b'a'; 500]).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        bucket.put(b"wild", std::array::from_fn::<u8, 500, _>(|_| random.u8(..))).unwrap();
        bucket.compact(Compact::Full).unwrap();
        let training = bucket.train_dictionary(1024).map(drop);
        bucket.close().unwrap();
        (sim.to_bytes(), training)
    };
    let lens = |file: &[u8]| -> Vec<(u8, u32)> {
        let headers =
            placed(file).into_iter().map(|one| *RecordHeader::of(&file[one.bytes]).unwrap());
        headers.map(|header| (header.form(), header.val_len.get())).collect()
    };
    let (file, training) = make(options());
    assert!(matches!(training, Err(Error::Invalid(_))), "{training:?}");
    assert_eq!(root(&file).flags.get() & FLAG_ZSTD, 0);
    let all = lens(&file);
    assert!(all.len() >= 2 && all.iter().all(|one| *one == (0, 500)), "{all:?}");
    let (file, _) = make(options().compression(Compression::Zstd));
    let all = lens(&file);
    assert!(all.iter().any(|one| one.1 < 100) && all.contains(&(0, 500)), "{all:?}");
}

/// What users must know is on the format page.
#[test]
fn the_format_page_tells() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/kvb.md");
    let page = std::fs::read_to_string(path).unwrap();
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for sentence in [
        "CRCs are against accidents only.",
        "do not compress values of which a part is chosen by someone who must not learn the rest",
        "can put back an older copy of all of it, which nobody can tell from the file alone",
        "`epoch` and `commit_seqno` show it to whoever remembers them",
        "Such segments are read and never written",
    ] {
        assert!(page.contains(sentence), "{sentence}");
    }
}

/// Set in the process that reads: the bucket's path.
const READER: &str = "KVB_TEST_ROTATION_READER";

fn steady_row(number: usize) -> (String, Vec<u8>) {
    (format!("steady {number:03}"), format!("value {number} ").repeat(1 + number % 30).into_bytes())
}

/// Reads rows that do not change, until a file beside the bucket tells to stop. Gives how often it read them all.
fn read_beside(path: &Path) -> u64 {
    let reader = Reader::open_with(path, Options::default().keys(keys())).unwrap();
    println!("ready");
    for round in 1.. {
        for number in 0..200 {
            let (key, value) = steady_row(number);
            let found = reader.get(&key).unwrap_or_else(|error| panic!("{key}: {error}"));
            assert_eq!(found.as_deref(), Some(&value[..]), "{key}");
        }
        let snapshot = reader.snapshot().unwrap();
        let rows = snapshot.scan(b"steady").map(|row| row.unwrap());
        for (number, row) in rows.enumerate() {
            let (key, value) = steady_row(number);
            assert_eq!((row.key(), row.value()), (key.as_bytes(), &value[..]));
        }
        assert_eq!(snapshot.scan(b"steady").count(), 200);
        drop(snapshot);
        println!("round {round}");
        if path.with_extension("stop").exists() {
            return round;
        }
    }
    unreachable!("rounds have no end")
}

/// A reader in another process gets right answers while keys are rotated, with compaction and writes beside.
#[test]
fn readers_in_another_process_see_rotations() {
    if let Some(path) = std::env::var_os(READER) {
        println!("rounds {}", read_beside(Path::new(&path)));
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let options = options().durability(Durability::Relaxed);
    let bucket = Bucket::create(&path, options).unwrap();
    for number in 0..200 {
        let (key, value) = steady_row(number);
        bucket.put(key, value).unwrap();
    }
    bucket.flush().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["readers_in_another_process_see_rotations", "--exact", "--nocapture"])
        .env(READER, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let mut wait = |what: &str| lines.find(|line| line.contains(what)).expect("the reader goes on");
    wait("ready");
    for id in [2, 3, 4] {
        wait("round");
        for number in 0..100 {
            bucket.put(format!("other {number}"), format!("{id}").repeat(100)).unwrap();
        }
        while !bucket.rotate_key(id).unwrap().is_complete {
            std::thread::yield_now();
        }
        wait("round");
    }
    std::fs::write(path.with_extension("stop"), b"").unwrap();
    wait("rounds");
    assert!(child.wait().unwrap().success());
    bucket.close().unwrap();
    let with = |id| Options::default().keys(Keyring::new().with(id, Key::new(key_bytes(id))));
    let refused = Reader::open_with(&path, with(1)).map(drop).unwrap_err();
    assert!(matches!(refused, Error::KeyMissing { id: 4 }), "{refused:?}");
    let reader = Reader::open_with(&path, with(4)).unwrap();
    assert_eq!(reader.snapshot().unwrap().scan(b"").count(), 300);
}
