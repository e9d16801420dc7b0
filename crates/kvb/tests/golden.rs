//! The bytes of a bucket are what they were.
//!
//! `vectors/kvb/golden.kvb` is a bucket with a little of everything, a segment of moved records among it, written with a
//! fixed clock and fixed randomness. `guarded.kvb` is one without key directories, closed while a guard was needed.
//! Writing them again must give the same bytes, and reading them must give the same values. When the format or the order
//! of writes changes on purpose, `KVB_BLESS=1 cargo test -p kvb --test golden` rewrites the files; the bytes quoted in
//! `docs/format/kvb.md` then have to follow (`tests/docs.rs` says where they differ).
//!
//! `vectors/kvb/structures.json` holds every structure field by field, made by `strict/vectors.py` from the
//! specification and not by this crate. Each vector must decode, encode to the same bytes, and be refused with any one
//! bit flipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "tests fail by panicking"
)]

#[path = "support/destroy.rs"]
mod destroy;
#[path = "support/lookup.rs"]
mod lookup;
#[path = "support/structures.rs"]
mod structures;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::{ManualEnv, MemoryDisk};
use kvb::format::directory::{self, DirectoryHead};
use kvb::format::extension::Extension;
use kvb::format::footer::{Footer, FooterHead, SparsePair};
use kvb::format::free_map::{self, FreeExtent, FreeMapHead};
use kvb::format::index_page::{self, IndexPageHeader, IndexSlot};
use kvb::format::journal::JournalEntry;
use kvb::format::meta::{self, Meta};
use kvb::format::record::{self, Framed, RecordHeader, Stamp};
use kvb::format::roster::{Roster, RosterHead};
use kvb::format::segment::{Kind, SegmentHeader};
use kvb::format::superblock::{self, Refused, Superblock};
use kvb::format::{crc, filter};
use kvb::{Batch, Bucket, Compact, Options, Reader};
use lookup::Lookup;
use serde_json::Value;
use structures::Structure;
use zerocopy::{FromBytes, IntoBytes};

const START_NS: u64 = 1_700_000_000_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Its XXH3-64 is 0.
const KEY_HASH_0: &str = "46c6bd15848c7d973a5296093bbc56af";
/// Its XXH3-64 is 1.
const KEY_HASH_1: &str = "b1e3cc0e6658ae493a5296093bbc56af";

fn vectors(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/kvb").join(name)
}

fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "{text}");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn row_key(number: u32) -> String {
    format!("row {number:02}")
}

/// Writes the golden bucket.
fn build() -> Vec<u8> {
    let disk = MemoryDisk::new();
    let env = Arc::new(ManualEnv::new(START_NS, 1));
    let options = Options::default().background(false).segment_bytes_max(16 << 10);
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env.clone(), options).unwrap();
    bucket.put(b"alice", b"100").unwrap();
    env.advance(SECOND_NS);
    bucket.put(b"bob", b"20").unwrap();
    bucket.put_for(b"session", b"token", Duration::from_secs(60)).unwrap();
    bucket.delete(b"bob").unwrap();
    env.advance(SECOND_NS);
    let mut batch = Batch::new();
    batch.put(b"alice", b"70").put(b"carol", b"30").delete(b"nobody");
    bucket.commit(batch).unwrap();
    bucket.put(from_hex(KEY_HASH_0), b"hash 0").unwrap();
    bucket.put(from_hex(KEY_HASH_1), b"hash 1").unwrap();
    bucket.put(b"", b"empty key").unwrap();
    bucket.put(b"empty value", b"").unwrap();
    bucket.flush().unwrap();
    // Enough records for a second pair in the footer of what they are moved to.
    let mut batch = Batch::new();
    for number in 0..60 {
        batch.put(row_key(number), [u8::try_from(number).unwrap()]);
    }
    bucket.commit(batch).unwrap();
    let done = bucket.compact(Compact::Full).unwrap();
    assert_eq!((done.segments_emptied, done.segments_written), (1, 1));
    // Then more than a segment of the log holds.
    env.advance(SECOND_NS);
    bucket.put(b"large", [b'x'; 8000]).unwrap();
    bucket.delete(row_key(59)).unwrap();
    bucket.put(b"another", [b'y'; 7000]).unwrap();
    bucket.put(b"last", b"in the next segment".repeat(40)).unwrap();
    bucket.close().unwrap();
    disk.to_bytes()
}

/// Writes a bucket without key directories. When it is closed, segments that a snapshot held have just become free, and
/// the guard that hid their records is still there.
fn build_guarded() -> Vec<u8> {
    let disk = MemoryDisk::new();
    let env = Arc::new(ManualEnv::new(START_NS, 2));
    let options = Options::default().background(false).directories(false);
    let bucket = Bucket::create_on(Arc::new(disk.clone()), env.clone(), options.clone()).unwrap();
    for key in ["kept", "deleted", "expired"] {
        bucket.put(key, b"old").unwrap();
    }
    bucket.close().unwrap();
    // What comes now is in another segment.
    let bucket = Bucket::open_on(Arc::new(disk.reopen()), env.clone(), options).unwrap();
    bucket.delete(b"deleted").unwrap();
    bucket.put_for(b"expired", b"new", Duration::from_secs(60)).unwrap();
    env.advance(2 * 3600 * SECOND_NS);
    let snapshot = bucket.snapshot();
    let done = bucket.compact(Compact::Full).unwrap();
    assert_eq!((done.segments_emptied, done.segments_written, done.records_moved), (2, 1, 1));
    drop(snapshot);
    bucket.close().unwrap();
    disk.to_bytes()
}

fn is_blessing() -> bool {
    std::env::var_os("KVB_BLESS").is_some()
}

/// A stored bucket; while the files are rewritten, which may be half done, as it is written now.
fn stored(name: &str, build: fn() -> Vec<u8>) -> Vec<u8> {
    if is_blessing() { build() } else { std::fs::read(vectors(name)).unwrap() }
}

fn check_bytes(name: &str, build: fn() -> Vec<u8>) {
    let found = build();
    assert_eq!(found, build(), "writing {name} twice gives different bytes");
    let path = vectors(name);
    if is_blessing() {
        std::fs::write(&path, &found).unwrap();
    }
    let wanted = std::fs::read(&path).expect("the stored bucket is there");
    let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let upto = (at + 16).min(found.len()).min(wanted.len());
        panic!(
            "{name} byte {at:#x} (page {}): written {:02x?}, stored {:02x?}; if that is wanted, run with KVB_BLESS=1",
            at / 4096,
            &found[at..upto],
            &wanted[at..upto],
        );
    }
    assert_eq!(
        found.len(),
        wanted.len(),
        "the length of {name} has changed; if that is wanted, run with KVB_BLESS=1"
    );
}

#[test]
fn writing_gives_the_same_bytes() {
    check_bytes("golden.kvb", build);
    check_bytes("guarded.kvb", build_guarded);
}

/// Headers of the DATA extents of a bucket.
fn data_headers(bytes: &[u8]) -> Vec<SegmentHeader> {
    let superblock = Superblock::decode(bytes).unwrap();
    let extents = destroy::extents(bytes, &superblock);
    let headers = extents.into_iter().map(|(_, _, header)| header);
    headers.filter(|header| header.kind() == Some(Kind::Data)).collect()
}

#[test]
fn the_golden_buckets_have_what_they_are_for() {
    let golden = data_headers(&stored("golden.kvb", build));
    assert!(golden.iter().any(|header| header.is_moved() && header.segment_size.get() != 0));
    assert!(golden.iter().any(|header| !header.is_moved() && header.segment_size.get() != 0));
    assert!(golden.iter().any(|header| header.segment_size.get() == 0));
    let bytes = stored("guarded.kvb", build_guarded);
    let guarded = data_headers(&bytes);
    assert!(guarded.iter().any(|header| header.is_moved() && header.is_guard()));
    assert!(guarded.iter().any(|header| header.is_moved() && !header.is_guard()));
    let flags = Superblock::decode(&bytes).unwrap().flags.get();
    assert_ne!(flags & superblock::FLAG_NO_DIRECTORY, 0);
}

/// Opens a stored bucket for reading and for writing.
fn opened(bytes: Vec<u8>, env: &Arc<ManualEnv>) -> (Reader, Bucket) {
    let disk = Arc::new(MemoryDisk::from_bytes(bytes.clone()));
    let reader = Bucket::open_read_only_on(disk, env.clone()).unwrap();
    let options = Options::default().background(false);
    let disk = Arc::new(MemoryDisk::from_bytes(bytes));
    (reader, Bucket::open_on(disk, env.clone(), options).unwrap())
}

#[test]
fn reading_gives_the_same_values() {
    let env = Arc::new(ManualEnv::new(START_NS + 3 * SECOND_NS, 2));
    let (reader, writable) = opened(stored("golden.kvb", build), &env);
    let buckets: [&dyn Lookup; 2] = [&reader, &writable];
    for bucket in buckets {
        let get = |key: &[u8]| bucket.value(key).unwrap();
        assert_eq!(get(b"alice").as_deref(), Some(&b"70"[..]));
        assert_eq!(get(b"bob"), None);
        assert_eq!(get(b"nobody"), None);
        assert_eq!(get(b"carol").as_deref(), Some(&b"30"[..]));
        assert_eq!(get(b"session").as_deref(), Some(&b"token"[..]));
        assert_eq!(get(&from_hex(KEY_HASH_0)).as_deref(), Some(&b"hash 0"[..]));
        assert_eq!(get(&from_hex(KEY_HASH_1)).as_deref(), Some(&b"hash 1"[..]));
        assert_eq!(get(b"").as_deref(), Some(&b"empty key"[..]));
        assert_eq!(get(b"empty value").as_deref(), Some(&b""[..]));
        assert_eq!(get(b"large").as_deref(), Some(&[b'x'; 8000][..]));
        assert_eq!(get(b"another").as_deref(), Some(&[b'y'; 7000][..]));
        let last = b"in the next segment".repeat(40);
        assert_eq!(get(b"last").as_deref(), Some(&last[..]));
        for number in 0..59 {
            let wanted = [u8::try_from(number).unwrap()];
            assert_eq!(get(row_key(number).as_bytes()).as_deref(), Some(&wanted[..]));
        }
        assert_eq!(get(row_key(59).as_bytes()), None, "deleted");
        assert_eq!(get(b"row 60"), None);
    }
    assert_eq!(writable.scan(b"row ").count(), 59);
    assert_eq!(writable.scan(b"").count(), 69);
    env.advance(60 * SECOND_NS);
    assert!(!writable.exists(b"session").unwrap(), "a minute later it has expired");

    let env = Arc::new(ManualEnv::new(START_NS + 2 * 3600 * SECOND_NS, 3));
    let (reader, writable) = opened(stored("guarded.kvb", build_guarded), &env);
    let buckets: [&dyn Lookup; 2] = [&reader, &writable];
    for bucket in buckets {
        assert_eq!(bucket.value(b"kept").unwrap().as_deref(), Some(&b"old"[..]));
        assert_eq!(bucket.value(b"deleted").unwrap(), None);
        assert_eq!(bucket.value(b"expired").unwrap(), None);
    }
    assert_eq!(writable.scan(b"").count(), 1);
}

/// What ties the vectors to a bucket and a checkpoint.
const UUID: (u64, u64) = (0x0F1E_2D3C_4B5A_6978, 0x8796_A5B4_C3D2_E1F0);
const EPOCH: u64 = 42;
/// Ends the roster in the vectors.
const ROSTER_CRC: u32 = 0xF1F9_46A7;
const IMAGE_ID: u64 = 0xA1B2_C3D4_E5F6_0718;
const INDEX_PAGEID: u64 = 27;
const FREE_MAP_PAGEID: u64 = 1;
const FREE_MAP_STAMP: free_map::Stamp = free_map::Stamp { epoch: EPOCH, uuid_lo: UUID.1 };

/// Structures of encrypted buckets, dictionaries and backups, which are not among these vectors.
const ELSEWHERE: &[&str] = &["KeyBlock", "BookHead", "Lineage"];

fn structure(name: &str) -> &'static Structure {
    let found = structures::ALL.iter().find(|known| known.name == name);
    found.unwrap_or_else(|| panic!("what is a {name}?"))
}

fn load() -> Value {
    serde_json::from_str(&std::fs::read_to_string(vectors("structures.json")).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text {name} in {value}"))
}

fn number(value: &Value, name: &str) -> u64 {
    text(value, name).parse().unwrap_or_else(|error| panic!("{name} in {value}: {error}"))
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list {name} in {value}"))
}

/// Packs fields by the layout of a structure. Every field must be there.
fn pack(name: &str, fields: &Value) -> Vec<u8> {
    let structure = structure(name);
    let mut bytes = vec![0; structure.size];
    for field in structure.layout {
        let value = text(fields, field.name);
        let packed = match value.strip_prefix("hex:") {
            Some(digits) => from_hex(digits),
            None => {
                let packed = number(fields, field.name).to_le_bytes();
                assert!(packed[field.len..].iter().all(|byte| *byte == 0), "{name}: {field:?}");
                packed[..field.len].to_vec()
            }
        };
        assert_eq!(packed.len(), field.len, "{name}: {field:?}");
        bytes[field.offset..field.offset + field.len].copy_from_slice(&packed);
    }
    bytes
}

/// Packs a list of equal structures and reads it as their type.
fn pack_list<T: FromBytes>(name: &str, fields: &[Value]) -> Vec<T> {
    fields.iter().map(|fields| T::read_from_bytes(&pack(name, fields)).unwrap()).collect()
}

fn read<T: FromBytes>(name: &str, fields: &Value) -> T {
    T::read_from_bytes(&pack(name, fields)).unwrap()
}

/// Places the head of derived data where an extent has it.
fn in_extent(head: &[u8]) -> Vec<u8> {
    [&[0; meta::OFFSET], head].concat()
}

/// Whether a structure that carries a check, or a whole made of several, passes it.
fn accepts(name: &str, bytes: &[u8]) -> bool {
    match name {
        "Superblock" => Superblock::decode(bytes).is_ok(),
        "Extension" => Extension::decode(bytes, EPOCH, UUID).is_some(),
        "SegmentHeader" => SegmentHeader::decode(bytes).is_some(),
        "RecordHeader" => RecordHeader::decode(bytes).is_some(),
        "JournalEntry" => JournalEntry::decode(bytes).is_some(),
        "Record" => Framed::decode(bytes).is_some(),
        "Footer" => Footer::decode(bytes).is_some(),
        "Roster" => Roster::decode(bytes, EPOCH, UUID, ROSTER_CRC).is_some(),
        "Meta" => Meta::decode(&in_extent(bytes), meta::KIND_SIDE, UUID).is_some(),
        "IndexPage" => index_page::check_page(bytes, IMAGE_ID, INDEX_PAGEID, None).is_some(),
        "FreeMapPage" => free_map::decode(bytes, FREE_MAP_STAMP, FREE_MAP_PAGEID).is_some(),
        other => panic!("{other} carries no check of its own"),
    }
}

/// Structures that carry their own check.
const CHECKED: &[&str] =
    &["Superblock", "Extension", "SegmentHeader", "RecordHeader", "JournalEntry"];

fn refuses_every_flipped_bit(name: &str, bytes: &[u8]) {
    let mut damaged = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!accepts(name, &damaged), "{name} passes with bit {bit} flipped");
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn checksums_and_hashes() {
    let vectors = load();
    assert_eq!(crc(b"123456789"), 0xE306_9283);
    for vector in list(&vectors, "crc32c") {
        assert_eq!(u64::from(crc(&from_hex(text(vector, "input")))), number(vector, "crc32c"));
    }
    for vector in list(&vectors, "xxh3_64") {
        let hash64 = xxhash_rust::xxh3::xxh3_64(&from_hex(text(vector, "input")));
        assert_eq!(hash64, number(vector, "hash64"), "{vector}");
        assert_eq!(index_page::slot_hash(hash64), number(vector, "slot_hash"), "{vector}");
    }
    for vector in list(&vectors, "siphash_2_4") {
        let key: [u8; 16] = from_hex(text(vector, "key")).try_into().unwrap();
        let hasher = siphasher::sip::SipHasher24::new_with_key(&key);
        assert_eq!(
            hasher.hash(&from_hex(text(vector, "input"))),
            number(vector, "hash64"),
            "{vector}"
        );
    }
    for vector in list(&vectors, "directory") {
        check_directory(vector);
    }
    for vector in list(&vectors, "filter") {
        let hashes = list(vector, "hashes")
            .iter()
            .map(|hash| hash.as_str().unwrap().parse::<u64>().unwrap());
        let hashes: Vec<u64> = hashes.collect();
        let bytes = filter::build(hashes.iter().copied());
        assert_eq!(bytes, from_hex(text(vector, "bytes")));
        assert!(hashes.iter().all(|hash| filter::may_contain(&bytes, *hash)));
    }
}

fn check_directory(vector: &Value) {
    let numbers = |name: &str| -> Vec<u64> {
        let texts = list(vector, name).iter().map(|one| one.as_str().unwrap());
        texts.map(|text| text.parse().unwrap()).collect()
    };
    let places = numbers("places").into_iter().map(|place| u32::try_from(place).unwrap().into());
    let places: Vec<_> = places.collect();
    let prefixes: Vec<_> = numbers("prefixes").into_iter().map(Into::into).collect();
    let head: DirectoryHead = read("DirectoryHead", &vector["head"]);
    let bytes = directory::encode(head.skip.get(), &places, &prefixes);
    assert_eq!(bytes, from_hex(text(vector, "bytes")));
    assert_eq!(directory::decode_head(&bytes, true), Some(head));
    assert_eq!(
        directory::encoded_len(head.count.get().into()),
        u64::try_from(bytes.len()).unwrap()
    );
    assert_eq!(directory::decode_head(&bytes[..bytes.len() - 1], true), None, "a byte is missing");
}

#[test]
fn structures_are_what_the_vectors_say() {
    let vectors = load();
    let mut missing: Vec<&str> = structures::ALL.iter().map(|structure| structure.name).collect();
    missing.retain(|name| !ELSEWHERE.contains(name));
    for vector in list(&vectors, "structures") {
        let name = text(vector, "structure");
        let bytes = from_hex(text(vector, "bytes"));
        let count = vector["fields"].as_object().unwrap().len();
        assert_eq!(count, structure(name).layout.len(), "{name} has other fields");
        assert_eq!(pack(name, &vector["fields"]), bytes, "{name}");
        assert_eq!((structure(name).round_trip)(&bytes), Some(bytes.clone()), "{name}");
        if CHECKED.contains(&name) {
            assert!(accepts(name, &bytes), "{vector}");
            refuses_every_flipped_bit(name, &bytes);
        }
        missing.retain(|known| *known != name);
    }
    assert!(missing.is_empty(), "no vector of {missing:?}");
}

#[test]
fn sealing_sets_the_crc_of_the_vectors() {
    for vector in list(&load(), "structures") {
        let bytes = from_hex(text(vector, "bytes"));
        let mut blank = bytes.clone();
        let end = blank.len() - 4;
        blank[end..].fill(0);
        let sealed = match text(vector, "structure") {
            "Superblock" => Superblock::read_from_bytes(&blank).unwrap().seal().as_bytes().to_vec(),
            "Extension" => Extension::read_from_bytes(&blank).unwrap().seal().as_bytes().to_vec(),
            "SegmentHeader" => {
                SegmentHeader::read_from_bytes(&blank).unwrap().seal().as_bytes().to_vec()
            }
            "JournalEntry" => {
                JournalEntry::read_from_bytes(&blank).unwrap().seal().as_bytes().to_vec()
            }
            _ => continue,
        };
        assert_eq!(sealed, bytes, "{vector}");
    }
}

#[test]
fn wholes_are_what_the_vectors_say() {
    let vectors = load();
    for vector in list(&vectors, "wholes") {
        let name = text(vector, "whole");
        let bytes = from_hex(text(vector, "bytes"));
        assert!(accepts(name, &bytes), "{name}");
        match name {
            "Record" => check_record(vector, &bytes),
            "Footer" => check_footer(vector, &bytes),
            "Roster" => check_roster(vector, &bytes),
            "Meta" => check_meta(vector, &bytes),
            "IndexPage" => check_index_page(vector, &bytes),
            "FreeMapPage" => check_free_map(vector, &bytes),
            other => panic!("what is a {other}?"),
        }
        refuses_every_flipped_bit(name, &bytes);
    }
}

fn check_record(vector: &Value, bytes: &[u8]) {
    let header: RecordHeader = read("RecordHeader", &vector["header"]);
    let (key, value) = (from_hex(text(vector, "key")), from_hex(text(vector, "value")));
    let found = Framed::decode(bytes).unwrap();
    assert_eq!((*found.header, found.key(), found.value()), (header, &key[..], &value[..]));
    assert_eq!(header.record_len(), u64::try_from(bytes.len()).unwrap());
    let mut written = Vec::new();
    record::push(&mut written, header.kind, &key, &value, header.ttl_secs.get());
    let stamp = Stamp {
        seqno: header.seqno.get(),
        hash64: header.hash64.get(),
        timestamp_ns: header.timestamp_ns.get(),
        ttl_secs: header.ttl_secs.get(),
        reserved16: header.reserved16.get(),
    };
    record::stamp(&mut written, stamp).unwrap();
    assert_eq!(written, bytes);
}

fn check_footer(vector: &Value, bytes: &[u8]) {
    let head: FooterHead = read("FooterHead", &vector["head"]);
    let pairs: Vec<SparsePair> = pack_list("SparsePair", list(vector, "pairs"));
    let footer = Footer {
        seg_id: head.seg_id.get(),
        last_seqno: head.last_seqno.get(),
        live_bytes: head.live_bytes.get(),
        pairs,
    };
    assert_eq!(Footer::decode(bytes).as_ref(), Some(&footer));
    assert_eq!(footer.encode(), bytes);
}

fn check_roster(vector: &Value, bytes: &[u8]) {
    let roster = Roster {
        named: pack_list("NamedExtent", list(vector, "named")),
        sealed: pack_list("SegmentEntry", list(vector, "sealed")),
    };
    assert_eq!(bytes[..RosterHead::SIZE], pack("RosterHead", &vector["head"]));
    assert_eq!(Roster::decode(bytes, EPOCH, UUID, ROSTER_CRC).as_ref(), Some(&roster));
    assert_eq!(roster.encode(EPOCH, UUID), bytes);
    assert!(!accepts_roster_of_other(bytes), "a roster of another checkpoint counts");
}

fn accepts_roster_of_other(bytes: &[u8]) -> bool {
    Roster::decode(bytes, EPOCH + 1, UUID, ROSTER_CRC).is_some()
        || Roster::decode(bytes, EPOCH, (UUID.0, UUID.1 + 1), ROSTER_CRC).is_some()
        || Roster::decode(bytes, EPOCH, UUID, ROSTER_CRC + 1).is_some()
}

fn check_meta(vector: &Value, bytes: &[u8]) {
    let head = read("MetaHead", &vector["head"]);
    let meta = Meta { head, sections: pack_list("Section", list(vector, "sections")) };
    assert_eq!(Meta::decode(&in_extent(bytes), meta::KIND_SIDE, UUID).as_ref(), Some(&meta));
    assert_eq!(meta.encode(), bytes);
    assert!(Meta::decode(&in_extent(bytes), meta::KIND_IMAGE, UUID).is_none());
    let first = meta.section(meta::SECTION_RUN).unwrap();
    assert_eq!(first.offset.get(), u64::try_from(meta::body_offset(3)).unwrap());
}

fn check_index_page(vector: &Value, bytes: &[u8]) {
    let header: IndexPageHeader = read("IndexPageHeader", &vector["header"]);
    assert_eq!(index_page::check_page(bytes, IMAGE_ID, INDEX_PAGEID, None), Some(header));
    assert!(index_page::check_page(bytes, IMAGE_ID + 1, INDEX_PAGEID, None).is_none());
    assert!(index_page::check_page(bytes, IMAGE_ID, INDEX_PAGEID + 1, None).is_none());
    let mut page = vec![0; bytes.len()];
    for fields in list(vector, "slots") {
        let at = usize::try_from(number(fields, "index")).unwrap();
        let slot: IndexSlot = read("IndexSlot", fields);
        assert_eq!(index_page::slot(bytes, at), Some(slot));
        index_page::set_slot(&mut page, at, slot);
    }
    index_page::seal_page(&mut page, IMAGE_ID, INDEX_PAGEID, header.used.get(), None).unwrap();
    assert!(page == bytes, "the page differs");
}

fn check_free_map(vector: &Value, bytes: &[u8]) {
    let head: FreeMapHead = read("FreeMapHead", &vector["head"]);
    let extents: Vec<FreeExtent> = pack_list("FreeExtent", list(vector, "extents"));
    let page_size = u64::try_from(bytes.len()).unwrap();
    let written = free_map::encode(
        FREE_MAP_STAMP,
        FREE_MAP_PAGEID,
        head.first_page.get(),
        page_size,
        &extents,
    );
    assert!(written == bytes, "the page differs");
    let pages = extents.iter().flat_map(|extent| {
        let start = extent.start_page.get();
        start..start + extent.page_count.get()
    });
    let found = free_map::decode(bytes, FREE_MAP_STAMP, FREE_MAP_PAGEID).unwrap();
    assert_eq!(found, pages.collect::<Vec<_>>());
}

#[test]
fn what_must_be_refused_is() {
    for vector in list(&load(), "refused") {
        let bytes = from_hex(text(vector, "bytes"));
        let name = text(vector, "structure");
        let why = text(vector, "why");
        assert!(!accepts(name, &bytes), "{name} passes in spite of {why}");
        if name == "Roster" {
            // Also for an extension that names just this roster.
            let crc = u32::from_le_bytes(*bytes.last_chunk().unwrap());
            assert!(Roster::decode(&bytes, EPOCH, UUID, crc).is_none(), "{why}");
        }
        let refused = (name == "Superblock").then(|| Superblock::decode(&bytes).unwrap_err());
        match why {
            "another major version" => assert_eq!(refused, Some(Refused::Version(2))),
            "a flag that must be understood" if refused.is_some() => {
                assert_eq!(refused, Some(Refused::Flags(1 << 48)));
            }
            _ => assert!(refused.is_none_or(|refused| refused == Refused::Damaged), "{why}"),
        }
    }
}
