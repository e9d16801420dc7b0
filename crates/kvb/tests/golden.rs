//! The bytes of a bucket are what they were.
//!
//! `vectors/kvb/golden.kvb` is a bucket with a little of everything, written with a fixed clock and fixed randomness.
//! Writing it again must give the same bytes, and reading it must give the same values. When the format or the order
//! of writes changes on purpose, `KVB_BLESS=1 cargo test -p kvb --test golden` rewrites the file; the bytes quoted in
//! `docs/format/kvb.md` then have to follow (`tests/docs.rs` says where they differ).
//!
//! `vectors/kvb/structures.json` holds every structure field by field, made by `strict/vectors.py` from the
//! specification and not by this crate. Each vector must decode, encode to the same bytes, and be refused with any one
//! bit flipped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::{ManualEnv, MemoryDisk};
use kvb::{Batch, Bucket, Options};

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
    assert!(text.len() % 2 == 0, "{text}");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn row_key(number: u32) -> String {
    format!("row {number:02}")
}

/// Writes the golden bucket.
fn build() -> Vec<u8> {
    let disk = MemoryDisk::new();
    let env = Arc::new(ManualEnv::new(START_NS, 1));
    let options = Options::default().background(false);
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
    // Enough records for a second pair in the footer, then more than the first segment holds.
    let mut batch = Batch::new();
    for number in 0..56 {
        batch.put(row_key(number), [u8::try_from(number).unwrap()]);
    }
    bucket.commit(batch).unwrap();
    bucket.put(b"large", [b'x'; 8000]).unwrap();
    bucket.put(b"last", b"in the next segment".repeat(40)).unwrap();
    bucket.close().unwrap();
    disk.to_bytes()
}

#[test]
fn writing_gives_the_same_bytes() {
    let found = build();
    assert_eq!(found, build(), "writing the bucket twice gives different bytes");
    let path = vectors("golden.kvb");
    if std::env::var_os("KVB_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let wanted = std::fs::read(&path).expect("vectors/kvb/golden.kvb is there");
    let differs = found.iter().zip(&wanted).position(|(a, b)| a != b);
    if let Some(at) = differs {
        let upto = (at + 16).min(found.len()).min(wanted.len());
        panic!(
            "byte {at:#x} (page {}): written {:02x?}, golden {:02x?}; if that is wanted, run with KVB_BLESS=1",
            at / 4096,
            &found[at..upto],
            &wanted[at..upto],
        );
    }
    assert_eq!(found.len(), wanted.len(), "the length has changed; if that is wanted, run with KVB_BLESS=1");
}

#[test]
fn reading_gives_the_same_values() {
    let bytes = std::fs::read(vectors("golden.kvb")).unwrap();
    let env = Arc::new(ManualEnv::new(START_NS + 2 * SECOND_NS, 2));
    let read_only =
        Bucket::open_read_only_on(Arc::new(MemoryDisk::from_bytes(bytes.clone())), env.clone()).unwrap();
    let options = Options::default().background(false);
    let disk = Arc::new(MemoryDisk::from_bytes(bytes));
    let writable = Bucket::open_on(disk, env.clone(), options).unwrap();
    for bucket in [&read_only, &writable] {
        let get = |key: &[u8]| bucket.get(key).unwrap().map(|value| value.to_vec());
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
        let last = b"in the next segment".repeat(40);
        assert_eq!(get(b"last").as_deref(), Some(&last[..]));
        for number in 0..56 {
            let wanted = [u8::try_from(number).unwrap()];
            assert_eq!(get(row_key(number).as_bytes()).as_deref(), Some(&wanted[..]));
        }
        assert_eq!(get(b"row 56"), None);
    }
    env.advance(60 * SECOND_NS);
    assert!(!writable.exists(b"session").unwrap(), "a minute later it has expired");
}
