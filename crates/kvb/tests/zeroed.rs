//! What is left of a key in memory when a bucket is closed: nothing that was ever on the heap.
//!
//! The test runs itself again as a process that uses an encrypted bucket and then looks through its own memory, by what
//! `/proc/self` tells of it. Stacks are left out: what a function returns is moved over them, and the language does not
//! say how often, so copies on a stack are overwritten by chance only. So are the program's own constants and what is
//! mapped from files.
//!
//! What is looked for is kept under a mask, or the search would find itself.

#![cfg(all(feature = "encryption", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]
#![allow(clippy::disallowed_methods, reason = "memory is looked at, and no bucket")]

#[path = "support/forge.rs"]
mod forge;

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use kvb::{Batch, Bucket, Compact, Compression, Durability, Key, Keyring, Options};

/// Set in the process that looks: the directory of its bucket.
const ROLE: &str = "KVB_TEST_ZEROED";
const MASK: u8 = 0xA5;
/// Bytes that are compared at once: a freed block may have lost its first few to the allocator.
const PART: usize = 16;

/// 32 bytes to look for, masked.
struct Needle {
    name: &'static str,
    masked: [u8; 32],
}

impl Needle {
    fn new(name: &'static str, bytes: &[u8; 32]) -> Needle {
        Needle { name, masked: bytes.map(|byte| byte ^ MASK) }
    }

    /// Halves of it that begin at a place.
    fn found(&self, bytes: &[u8], at: usize) -> usize {
        let is_here = |half: &[u8]| {
            bytes[at..].len() >= PART
                && bytes[at] ^ half[0] == MASK
                && bytes[at..at + PART].iter().zip(half).all(|(byte, masked)| byte ^ masked == MASK)
        };
        self.masked.chunks(PART).filter(|half| is_here(half)).count()
    }
}

/// The bytes of a key, nowhere in the program as they are.
#[inline(never)]
fn key_bytes(id: u8) -> [u8; 32] {
    let mut word = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(u64::from(id) + 3);
    std::array::from_fn(|_| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 33).to_le_bytes()[0]
    })
}

/// Anonymous memory that can be written, but for stacks.
fn regions() -> Vec<Range<u64>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = Vec::new();
    let mut guard_end = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (start, end) = words.next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let range = number(start)..number(end);
        let rights = words.next().unwrap();
        let name = words.nth(3).unwrap_or("");
        // Below the stack of a thread lies a page that nobody may touch; what an arena of the allocator has in reserve is
        // longer.
        if rights.starts_with("---") && range.end - range.start <= 64 << 10 {
            guard_end = range.end;
            continue;
        }
        let is_heap = name == "[heap]" || name.is_empty() || name.starts_with("[anon");
        if is_heap && rights.starts_with("rw") && range.start != guard_end {
            found.push(range);
        }
    }
    found
}

/// How many halves of each needle lie on the heap.
fn look(needles: &[Needle]) -> Vec<usize> {
    const STEP: usize = 64 << 10;
    let memory = File::open("/proc/self/mem").unwrap();
    let mut counts = vec![0; needles.len()];
    // On the stack, or it would be looked at as well.
    let mut piece = [0; STEP + PART];
    for region in regions() {
        let mut at = region.start;
        while at < region.end {
            let left = usize::try_from(region.end - at).unwrap();
            let piece = &mut piece[..left.min(STEP + PART)];
            // Gone since it was listed, as a thread's memory may be.
            if memory.read_exact_at(piece, at).is_err() {
                break;
            }
            // What begins behind the step is seen with the next one.
            for place in 0..left.min(STEP) {
                for (needle, count) in needles.iter().zip(&mut counts) {
                    *count += needle.found(piece, place);
                }
            }
            at += u64::try_from(left.min(STEP)).unwrap();
        }
    }
    black_box(&mut piece).fill(0);
    counts
}

fn tell(counts: &[usize], needles: &[Needle]) -> String {
    let each = needles.iter().zip(counts);
    each.map(|(needle, count)| format!("{} {count}", needle.name)).collect::<Vec<_>>().join(", ")
}

/// The key of an id, its MAC key, and the keys of every segment that is under it.
#[inline(never)]
fn needles(file: &[u8], id: u8) -> Vec<Needle> {
    let names =
        [["key 1", "MAC key 1", "segment under 1"], ["key 2", "MAC key 2", "segment under 2"]];
    let [own, mac, segment] = names[usize::from(id) - 1];
    let key = key_bytes(id);
    let uuid = forge::uuid(file);
    let mac_key = forge::keyed_256(&key, &[b"kvb-mac-key-v1", &uuid]);
    let mut found = vec![Needle::new(own, &key), Needle::new(mac, &mac_key)];
    for begun in forge::segments(file) {
        if begun.header.key_no() == u16::from(id) {
            found.push(Needle::new(segment, &begun.key(&key, uuid).subkey()));
        }
    }
    found
}

/// A bucket that is written to, read, compacted and rotated, while each of its keys is looked for.
fn use_bucket(dir: &Path) {
    let path = dir.join("bucket.kvb");
    let keys =
        (1..=2).fold(Keyring::new(), |ring, id| ring.with(id.into(), Key::new(key_bytes(id))));
    let options = Options::default()
        .encrypted(1)
        .keys(keys)
        .compression(Compression::Zstd)
        .segment_bytes_max(64 << 10)
        .durability(Durability::Relaxed);
    // Something that stays, to tell that the search sees the heap at all.
    let planted = Box::new(key_bytes(200));
    let mut all = vec![Needle::new("planted", &key_bytes(200))];

    let bucket = Bucket::create(&path, options.clone()).unwrap();
    for number in 0..40_u32 {
        let mut batch = Batch::new();
        for at in 0..20_u32 {
            batch.put((number * 20 + at).to_be_bytes(), vec![7; 300]);
        }
        bucket.commit(batch).unwrap();
    }
    assert!(bucket.get(5_u32.to_be_bytes()).unwrap().is_some());
    assert_eq!(bucket.scan(b"").count(), 800);
    bucket.flush().unwrap();
    all.extend(needles(&std::fs::read(&path).unwrap(), 1));
    let open = look(&all);
    let _ = writeln!(std::io::stderr(), "open: {}", tell(&open, &all));
    let is_there = |counts: &[usize], name: &str| {
        all.iter().zip(counts).any(|(needle, count)| needle.name == name && *count >= 2)
    };
    for name in ["planted", "key 1", "MAC key 1", "segment under 1"] {
        assert!(is_there(&open, name), "the search does not find {name} where it must be");
    }
    bucket.rotate_key(2).unwrap();
    bucket.compact(Compact::Full).unwrap();
    assert_eq!(bucket.scan(b"").count(), 800);
    bucket.flush().unwrap();
    all.extend(needles(&std::fs::read(&path).unwrap(), 2));
    bucket.close().unwrap();
    drop(options);
    let closed = look(&all);
    let _ = writeln!(std::io::stderr(), "closed: {}", tell(&closed, &all));
    assert!(closed[0] >= 2, "the search does not find what was planted");
    for (needle, count) in all.iter().zip(&closed).skip(1) {
        // What computes a MAC is moved about on the stack with its key in it, and what a structure on the heap leaves
        // unused may be filled from there. It is told, and no rule.
        let is_by_chance = needle.name.starts_with("MAC");
        assert!(is_by_chance || *count == 0, "left: {}", tell(&closed, &all));
    }
    black_box(planted);
}

/// A ring whose table had to grow.
fn use_ring(_: &Path) {
    let planted = Box::new(key_bytes(200));
    let mut all = vec![Needle::new("planted", &key_bytes(200))];
    all.extend((1..=50).map(|id| Needle::new("key", &key_bytes(id))));
    let mut ring = Keyring::new();
    for id in 1..=50 {
        ring = ring.with(id.into(), Key::new(key_bytes(id)));
    }
    let there = look(&all);
    assert!(there.iter().all(|count| *count >= 2), "not found: {}", tell(&there, &all));
    assert!(there.iter().all(|count| *count == 2), "twice: {}", tell(&there, &all));
    // One that takes the place of another.
    ring = ring.with(7, Key::new(key_bytes(100)));
    let there = look(&all);
    assert_eq!(there[7], 0, "left: {}", tell(&there, &all));
    drop(ring);
    let gone = look(&all);
    assert!(gone[0] >= 2, "the search does not find what was planted");
    assert!(gone[1..].iter().all(|count| *count == 0), "left: {}", tell(&gone, &all));
    black_box(planted);
}

/// Not a test by itself: the process that looks.
#[test]
fn a_process_that_uses_a_bucket() {
    if let Some(dir) = std::env::var_os(ROLE) {
        use_bucket(Path::new(&dir));
    }
}

/// Not a test by itself, either.
#[test]
fn a_process_that_uses_a_ring() {
    if let Some(dir) = std::env::var_os(ROLE) {
        use_ring(Path::new(&dir));
    }
}

#[test]
fn nothing_of_a_key_is_left_when_a_bucket_is_closed() {
    run("a_process_that_uses_a_bucket");
}

/// A table that grows is copied, and what was there before is free memory.
#[test]
fn nothing_of_a_key_is_left_of_a_ring_that_grew() {
    run("a_process_that_uses_a_ring");
}

fn run(role: &str) {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture"])
        .env(ROLE, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
