//! The overlay under every order of loads and stores that the memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p kvb --lib --release overlay_loom`.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use host::{Disk, MemoryDisk};

use crate::format::record::{self, PUT, Stamp};
use crate::log::Log;
use crate::overlay::{Keep, Lookup, Overlay, Sight};
use crate::sealed::Hold;
use crate::sync::{AtomicU64, Ordering};

/// Records at known places: (hash, key, seqno), and where each stands.
fn log(records: &[(u64, &[u8], u64)]) -> (Log, Vec<u64>) {
    let mut bytes = vec![0; 64];
    let mut places = Vec::new();
    for (hash64, key, seqno) in records {
        let at = bytes.len();
        places.push(u64::try_from(at).unwrap());
        record::push(&mut bytes, PUT, key, &seqno.to_le_bytes(), 0);
        let stamp =
            Stamp { seqno: *seqno, hash64: *hash64, timestamp_ns: 1, reserved16: 1, ttl_secs: 0 };
        record::stamp(bytes.get_mut(at..).unwrap(), stamp).unwrap();
    }
    let disk = MemoryDisk::with_capacity(1 << 20);
    disk.write_at(0, &bytes).unwrap();
    let len = disk.len().unwrap();
    (Log::new(Arc::new(disk), len, None).unwrap(), places)
}

fn seqno(lookup: Lookup<'_>) -> Option<u64> {
    match lookup {
        Lookup::Absent => None,
        Lookup::Found(record) => Some(record.header.seqno.get()),
    }
}

struct Stage {
    log: &'static Log,
    overlay: Overlay,
    published: AtomicU64,
}

impl Stage {
    fn new(log: &'static Log, first: &[(u64, u64)], published: u64) -> loom::sync::Arc<Stage> {
        let overlay = Overlay::with_room(1, 7);
        overlay.hold(&Hold::default(), 0);
        for (hash, place) in first {
            overlay.set(log, *hash, *place, Keep::NOTHING).unwrap();
        }
        loom::sync::Arc::new(Stage { log, overlay, published: AtomicU64::new(published) })
    }

    fn see(&self, hash: u64, key: &[u8]) -> Option<u64> {
        let sight = Sight::Latest(&self.published);
        seqno(self.overlay.find(self.log, hash, key, sight).unwrap())
    }

    fn see_at(&self, hash: u64, key: &[u8], at: u64) -> Option<u64> {
        seqno(self.overlay.find(self.log, hash, key, Sight::UpTo(at)).unwrap())
    }

    /// Commits as the writer does.
    fn commit(&self, changes: &[(u64, u64)], last: u64, snapshot: u64) {
        let keep = Keep { published: self.published.load(Ordering::Relaxed), snapshot };
        for (hash, place) in changes {
            self.overlay.set(self.log, *hash, *place, keep).unwrap();
        }
        self.published.store(last, Ordering::Release);
        self.overlay.forget_undo();
    }
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.max_branches = 100_000;
    builder.check(check);
}

/// A key is replaced and another added in one commit: a reader sees both or neither, and never loses the first.
#[test]
fn a_commit_is_seen_whole() {
    let (log, places) = log(&[(5, b"k", 1), (5, b"k", 2), (6, b"j", 3)]);
    let log: &'static Log = Box::leak(Box::new(log));
    let (old, new, other) = (places[0], places[1], places[2]);
    model(move || {
        let stage = Stage::new(log, &[(5, old)], 1);
        let reader = {
            let stage = loom::sync::Arc::clone(&stage);
            loom::thread::spawn(move || {
                let first = stage.see(5, b"k");
                let second = stage.see(6, b"j");
                let third = stage.see(5, b"k");
                assert!(matches!(first, Some(1 | 2)), "lost: {first:?}");
                assert!(first <= third, "went back: {first:?} {third:?}");
                if first == Some(2) {
                    assert_eq!(second, Some(3), "half a commit");
                }
                if second == Some(3) {
                    assert_eq!(third, Some(2), "half a commit");
                }
            })
        };
        stage.commit(&[(5, new), (6, other)], 3, 0);
        reader.join().unwrap();
        assert_eq!((stage.see(5, b"k"), stage.see(6, b"j")), (Some(2), Some(3)));
    });
}

/// Two keys of one hash in one commit.
#[test]
fn keys_of_one_hash_do_not_hide_each_other() {
    let (log, places) = log(&[(5, b"k", 1), (5, b"j", 2), (5, b"k", 3)]);
    let log: &'static Log = Box::leak(Box::new(log));
    let (k, j, k_again) = (places[0], places[1], places[2]);
    model(move || {
        let stage = Stage::new(log, &[(5, k)], 1);
        let reader = {
            let stage = loom::sync::Arc::clone(&stage);
            loom::thread::spawn(move || {
                let first = stage.see(5, b"j");
                let second = stage.see(5, b"k");
                assert!(matches!(second, Some(1 | 3)), "lost: {second:?}");
                if first == Some(2) {
                    assert_eq!(second, Some(3), "half a commit");
                }
            })
        };
        stage.commit(&[(5, j), (5, k_again)], 3, 0);
        reader.join().unwrap();
    });
}

/// A snapshot sees its commit while two later ones come.
#[test]
fn a_snapshot_stays() {
    let (log, places) = log(&[(5, b"k", 1), (5, b"k", 2), (5, b"k", 3), (6, b"j", 4)]);
    let log: &'static Log = Box::leak(Box::new(log));
    let places: [u64; 4] = places.try_into().unwrap();
    model(move || {
        let stage = Stage::new(log, &[(5, places[0])], 1);
        let reader = {
            let stage = loom::sync::Arc::clone(&stage);
            loom::thread::spawn(move || {
                assert_eq!(stage.see_at(5, b"k", 1), Some(1));
                assert_eq!(stage.see_at(6, b"j", 1), None);
            })
        };
        stage.commit(&[(5, places[1])], 2, 1);
        stage.commit(&[(5, places[2]), (6, places[3])], 4, 1);
        assert_eq!(stage.see_at(5, b"k", 1), Some(1));
        reader.join().unwrap();
    });
}

/// Compaction names the copy of a record of which readers know nothing else.
#[test]
fn a_moved_record_is_there_or_not_there() {
    let (log, places) = log(&[(5, b"k", 1), (5, b"k", 2)]);
    let log: &'static Log = Box::leak(Box::new(log));
    let (moved, newer) = (places[0], places[1]);
    model(move || {
        let stage = Stage::new(log, &[], 1);
        let reader = {
            let stage = loom::sync::Arc::clone(&stage);
            loom::thread::spawn(move || {
                // Absent means that the image is asked, which has it too.
                let first = stage.see(5, b"k");
                let second = stage.see(5, b"k");
                assert!(first <= second, "went back: {first:?} {second:?}");
            })
        };
        stage.overlay.set(stage.log, 5, moved, Keep::NOTHING).unwrap();
        stage.commit(&[(5, newer)], 2, 0);
        reader.join().unwrap();
    });
}
