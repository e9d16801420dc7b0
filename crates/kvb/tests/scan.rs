//! Scans: rows in key order from either end, as of one commit, whatever they lie in.
//!
//! Most tests run twice, with key directories and without.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/anatomy.rs"]
mod anatomy;
#[path = "support/collide.rs"]
mod collide;
#[path = "support/fixture.rs"]
mod fixture;
#[path = "support/seed.rs"]
mod seed;
#[path = "support/walk.rs"]
mod walk;
#[path = "support/watch.rs"]
mod watch;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anatomy::Lying;
use fastrand::Rng;
use fixture::{
    DAY, Fixture, Map, SECOND, START, Scanned, assert_all, assert_around, keys, owned, read_only,
    rows, rows_back,
};
use host::{ManualEnv, MemoryDisk, SystemEnv};
use kvb::format::meta;
use kvb::format::record::PUT;
use kvb::{Batch, Bucket, Compact, Durability, Error, Options, Row, Scan, Snapshot, What};
use proptest::prelude::{Strategy, any};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use walk::{Expected, Of, Presence, Walk};

/// Longest a test with threads may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Puts a value of this many bytes that tells the key and the version.
fn put(bucket: &Bucket, map: &mut Map, key: impl Into<Vec<u8>>, version: u32, len: usize) {
    let key = key.into();
    let mut value = version.to_le_bytes().to_vec();
    value.extend_from_slice(&key[..key.len().min(16)]);
    value.resize(len.max(4), b'v');
    bucket.put(&key, &value).unwrap();
    map.insert(key, value);
}

/// Compares all of a bucket, open as it is, read from its bytes, reopened, and after a kill.
fn assert_everywhere(fixture: &mut Fixture, bucket: Bucket, map: &Map, near: &[Vec<u8>]) {
    assert_near(&bucket, map, near, "as it is");
    assert_near(&fixture.read_only(), map, near, "read from its bytes");
    let bucket = fixture.kill(bucket);
    assert_near(&bucket, map, near, "after a kill");
    bucket.flush().unwrap();
    assert_near(&bucket, map, near, "flushed");
    bucket.close().unwrap();
    let bucket = fixture.open();
    assert_near(&bucket, map, near, "reopened");
    assert_near(&fixture.read_only(), map, near, "reopened to be read");
    for kind in [Compact::Auto, Compact::LowSpace, Compact::Full] {
        bucket.compact(kind).unwrap();
        assert_near(&bucket, map, near, &format!("after {kind:?}"));
        assert_near(&fixture.read_only(), map, near, &format!("after {kind:?}, to be read"));
    }
    let bucket = fixture.kill(bucket);
    assert_near(&bucket, map, near, "compacted and killed");
}

/// Compares all rows, and what begins and ends near some keys.
fn assert_near(bucket: &impl Scanned, map: &Map, near: &[Vec<u8>], context: &str) {
    assert_all(bucket, map, context);
    near.iter().for_each(|key| assert_around(bucket, map, key, context));
}

#[test]
fn a_bucket_without_rows() {
    for mut fixture in Fixture::both() {
        let bucket = fixture.create();
        assert_eq!(bucket.scan("").count(), 0);
        assert_eq!(bucket.scan("").rev().count(), 0);
        bucket.put("key", "value").unwrap();
        assert!(bucket.delete("key").unwrap());
        let mut scan = bucket.scan("");
        assert!(scan.next().is_none() && scan.next_back().is_none());
        scan.seek("");
        assert!(scan.next().is_none());
        drop(scan);
        assert_everywhere(&mut fixture, bucket, &Map::new(), &[b"key".to_vec()]);
    }
}

/// Rows of many segments, of the segment being written, of keys merged into the index and not.
#[test]
fn segments_and_tail_are_one_order() {
    for overlay_min in [10, 1 << 20] {
        for mut fixture in Fixture::both() {
            fixture.options = fixture.options.overlay_min(overlay_min);
            let (bucket, mut map) = (fixture.create(), Map::new());
            // Every segment has keys from everywhere.
            for n in 0..1500_u32 {
                let key = (n.wrapping_mul(0x9E37_79B1) >> 20).to_be_bytes();
                put(&bucket, &mut map, key, n, 20 + usize::try_from(n % 90).unwrap());
                if n % 500 == 250 {
                    bucket.flush().unwrap();
                    assert_all(&bucket, &map, "half way");
                }
            }
            assert!(bucket.stats().unwrap().segments > 8);
            let near: Vec<_> = map.keys().step_by(97).cloned().collect();
            assert_everywhere(&mut fixture, bucket, &map, &near);
        }
    }
}

/// Scans sort what was written since the last one and join the parts; each must show all so far.
#[test]
fn a_scan_after_every_commit() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    let mut rng = Rng::with_seed(5);
    for n in 0..400_u32 {
        let key = rng.u32(..300).to_be_bytes();
        if rng.u8(..4) == 0 {
            bucket.delete(key).unwrap();
            map.remove(&key[..]);
        } else {
            put(&bucket, &mut map, key, n, rng.usize(4..300));
        }
        // Now and then several commits come together.
        if rng.u8(..3) > 0 {
            assert_all(&bucket, &map, &format!("after commit {n}"));
        }
    }
}

#[test]
fn prefixes_that_end_in_the_highest_byte() {
    for mut fixture in Fixture::both() {
        let (bucket, mut map) = (fixture.create(), Map::new());
        let parts: [&[u8]; 7] = [b"", b"\xff", b"\xfe", b"a", b"b", b"\0", b"\xff\xff"];
        for a in parts {
            for b in parts {
                for c in parts {
                    put(&bucket, &mut map, [a, b, c].concat(), 1, 100);
                }
            }
        }
        let check = |bucket: &Bucket| {
            for prefix in map.keys() {
                let inside = || map.iter().filter(|(key, _)| key.starts_with(prefix));
                let context = format!("prefix {prefix:x?}");
                fixture::assert_rows(&rows(bucket.scan(prefix)), inside(), &context);
                fixture::assert_rows(&rows_back(bucket.scan(prefix)), inside().rev(), &context);
            }
        };
        check(&bucket);
        bucket.close().unwrap();
        check(&fixture.open());
        let bucket = fixture.open();
        assert_everywhere(&mut fixture, bucket, &map, &[vec![0xFF], vec![0xFF; 7]]);
    }
}

#[test]
fn the_empty_key_comes_first() {
    for mut fixture in Fixture::both() {
        let (bucket, mut map) = (fixture.create(), Map::new());
        put(&bucket, &mut map, "a", 1, 10);
        put(&bucket, &mut map, "", 1, 10);
        put(&bucket, &mut map, "\0", 1, 10);
        assert_eq!(keys(bucket.scan("")), ["", "\0", "a"]);
        assert_eq!(keys(bucket.range(""..="")), [""]);
        assert_eq!(keys(bucket.range(..="")), [""]);
        assert_eq!(keys(bucket.range(..""))[..], [""; 0]);
        assert_eq!(
            keys(bucket.range::<&str>((Bound::Excluded(""), Bound::Unbounded))),
            ["\0", "a"]
        );
        let mut scan = bucket.scan("");
        scan.seek_back("");
        assert_eq!(owned(scan.next_back().unwrap()).0, b"");
        drop(scan);
        assert_everywhere(&mut fixture, bucket, &map, &[vec![], vec![0]]);
    }
}

/// Keys are compared eight bytes at a time, with zeros behind the end of short ones.
#[test]
fn keys_that_begin_with_each_other() {
    for mut fixture in Fixture::both() {
        let (bucket, mut map) = (fixture.create(), Map::new());
        let mut rng = Rng::with_seed(3);
        let mut names = Vec::new();
        for len in 0..40 {
            for end in [&b""[..], b"\0", b"\0\0", b"\x01", b"\xff"] {
                names.push([&vec![0; len][..], end].concat());
                names.push([&vec![b's'; len][..], end].concat());
            }
        }
        rng.shuffle(&mut names);
        for (version, name) in (0..).zip(&names) {
            put(&bucket, &mut map, name.clone(), version, 200);
        }
        assert_everywhere(&mut fixture, bucket, &map, &names);
    }
}

/// A directory leaves out what all keys of its segment begin with, and keeps eight bytes behind
/// that of one key in eight; keys may be equal in those too.
#[test]
fn long_equal_beginnings() {
    for stem in [8, 9, 40, 300] {
        let stem = vec![b'k'; stem];
        for middle in [0, 8, 23] {
            for mut fixture in Fixture::both() {
                let (bucket, mut map) = (fixture.create(), Map::new());
                let key = |n: u32| [&stem[..], &vec![b'm'; middle], &n.to_be_bytes()].concat();
                for n in 0..300_u32 {
                    // Even numbers only, so that there are places between.
                    put(&bucket, &mut map, key(n * 7919 % 300 * 2), n, 100);
                }
                let mut near: Vec<_> = [0, 1, 2, 15, 16, 17, 301, 597, 598, 599].map(key).to_vec();
                near.extend([stem.clone(), stem[1..].to_vec(), vec![b'j'; 400], vec![b'l']]);
                near.push([&stem[..], b"l"].concat());
                near.push([&stem[..], b"n"].concat());
                // A key of its own before and behind all others changes what a directory may leave
                // out.
                assert_near(&bucket, &map, &near, "before");
                put(&bucket, &mut map, "a", 1, 10);
                put(&bucket, &mut map, "z", 1, 10);
                assert_everywhere(&mut fixture, bucket, &map, &near);
            }
        }
    }
}

#[test]
fn keys_of_the_greatest_length() {
    for mut fixture in Fixture::both() {
        let (bucket, mut map) = (fixture.create(), Map::new());
        let longest = vec![b'k'; 65_535];
        let mut near = Vec::new();
        for last in [b'a', 0, 255, b'k', b'j'] {
            let mut key = longest.clone();
            key[65_534] = last;
            near.push(key.clone());
            put(&bucket, &mut map, key, 1, 10);
        }
        put(&bucket, &mut map, &longest[..65_534], 1, 10);
        put(&bucket, &mut map, &longest[..8], 1, 10);
        assert_eq!(bucket.scan(&longest).count(), 1);
        assert_eq!(bucket.scan(&longest[..65_534]).count(), 6);
        let mut past = longest.clone();
        past.push(0);
        assert_eq!(bucket.scan(&past).count(), 0, "longer than any key");
        near.push(past);
        assert_everywhere(&mut fixture, bucket, &map, &near);
    }
}

/// Scanning backwards once gave the oldest version of its segment: of one key the newest stands
/// first there, and backwards that comes last.
#[test]
fn only_the_newest_of_many_versions() {
    for overlay_min in [4, 1 << 20] {
        for mut fixture in Fixture::both() {
            fixture.options = fixture.options.overlay_min(overlay_min);
            let (bucket, mut map) = (fixture.create(), Map::new());
            for version in 0..1200 {
                put(&bucket, &mut map, "hot", version, 100);
                put(&bucket, &mut map, format!("other {}", version % 7), version, 30);
                if version % 3 == 0 {
                    bucket.delete("gone").unwrap();
                } else {
                    bucket.put("gone", version.to_le_bytes()).unwrap();
                }
                if version % 200 < 3 {
                    map.remove(&b"gone"[..]);
                    if version % 3 != 0 {
                        map.insert(b"gone".to_vec(), version.to_le_bytes().to_vec());
                    }
                    assert_all(&bucket, &map, &format!("version {version}"));
                }
            }
            bucket.delete("gone").unwrap();
            map.remove(&b"gone"[..]);
            let near = ["gone", "hot", "other 3"].map(|key| key.as_bytes().to_vec());
            assert_everywhere(&mut fixture, bucket, &map, &near);
        }
    }
}

#[test]
fn deleted_and_expired_rows_are_not_shown() {
    for mut fixture in Fixture::both() {
        let bucket = fixture.create();
        for key in ["a", "b", "c", "d", "e"] {
            bucket.put(key, "first").unwrap();
        }
        bucket.put_for("b", "short", Duration::from_secs(1)).unwrap();
        bucket.put_for("c", "long", Duration::from_secs(100)).unwrap();
        bucket.delete("d").unwrap();
        bucket.put_for("f", "short", Duration::from_secs(1)).unwrap();
        bucket.flush().unwrap();
        let expires = |key: &str| bucket.scan(key).next().unwrap().unwrap().expires_unix_ns();
        assert_eq!(expires("a"), None);
        assert_eq!(expires("b"), Some(START + SECOND));
        assert_eq!(keys(bucket.scan("")), ["a", "b", "c", "e", "f"]);
        // A scan goes by the time it was started, though it reads nothing before.
        let before = bucket.scan("");
        fixture.env.set(START + SECOND);
        assert_eq!(keys(before), ["a", "b", "c", "e", "f"]);
        assert_eq!(
            keys(bucket.scan("")),
            ["a", "c", "e"],
            "what expired does not show what it hid"
        );
        assert_eq!(bucket.scan("").rev().count(), 3);
        bucket.put("d", "again").unwrap();
        bucket.put("f", "again").unwrap();
        assert_eq!(keys(bucket.scan("")), ["a", "c", "d", "e", "f"]);
        let bucket = fixture.kill(bucket);
        assert_eq!(keys(bucket.scan("")), ["a", "c", "d", "e", "f"]);
        fixture.env.set(START + DAY);
        assert_eq!(keys(bucket.scan("")), ["a", "d", "e", "f"]);
    }
}

/// Rows without a deadline are there at the end of time, too, as for a lookup.
#[test]
fn the_end_of_time_is_no_deadline() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    bucket.put("key", "value").unwrap();
    fixture.env.set(u64::MAX);
    assert!(bucket.exists("key").unwrap());
    assert_eq!(bucket.scan("").count(), 1);
    assert_eq!(bucket.snapshot().scan("").count(), 1);
    assert!(bucket.snapshot().exists("key").unwrap());
}

/// A scan passes over records that the index does not name, by bits over the file. In a file of
/// large values a bit stands for more than one record: a deleted row beside a live one looked live,
/// its DELETE elsewhere did not, and so the row came back.
#[test]
fn a_deleted_row_beside_a_live_one_stays_deleted() {
    for mut fixture in Fixture::both() {
        let bucket = fixture.create();
        let mut map = Map::new();
        for key in ["a", "b", "c", "d"] {
            put(&bucket, &mut map, key, 1, 4);
        }
        for n in 0..100 {
            put(&bucket, &mut map, format!("large {n}"), 1, 40_000);
        }
        for key in ["a", "c"] {
            assert!(bucket.delete(key).unwrap());
            map.remove(key.as_bytes());
        }
        for n in 0..20 {
            put(&bucket, &mut map, format!("large {n}"), 2, 40_000);
        }
        bucket.flush().unwrap();
        assert_everywhere(&mut fixture, bucket, &map, &[b"a".to_vec(), b"c".to_vec()]);
    }
}

/// The bits come when a thread has read the index in, which may be in the middle of a scan; those
/// that hid DELETEs then did not hide what had been let through before.
#[test]
fn deleted_rows_stay_deleted_while_the_index_is_read_in() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    for n in 0..6000_u32 {
        put(&bucket, &mut map, n.to_be_bytes(), 1, 4);
    }
    for n in (0..6000_u32).filter(|n| n % 4 > 0) {
        assert!(bucket.delete(n.to_be_bytes()).unwrap());
        map.remove(&n.to_be_bytes()[..]);
    }
    bucket.close().unwrap();
    let options = fixture.options.clone().background(true);
    for round in 0..60 {
        let disk = Arc::new(fixture.disk.reopen());
        let bucket = Bucket::open_on(disk, Arc::new(SystemEnv), options.clone()).unwrap();
        assert_all(&bucket, &map, &format!("round {round}"));
    }
}

/// Rows may be kept when the scan is gone, and stay what they were.
#[test]
fn rows_outlive_their_scan() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    for n in 0..200_u32 {
        put(&bucket, &mut map, n.to_be_bytes(), 1, 50 + usize::try_from(n).unwrap() * 20);
    }
    let kept: Vec<_> = bucket.scan("").map(Result::unwrap).collect();
    for round in 2..6 {
        for n in 0..200_u32 {
            if (n + round) % 3 > 0 {
                bucket.put(n.to_be_bytes(), vec![0xAB; 3000]).unwrap();
            } else {
                bucket.delete(n.to_be_bytes()).unwrap();
            }
        }
        // Gives up what nobody holds.
        bucket.compact(Compact::Full).unwrap();
    }
    assert_eq!(kept.len(), map.len());
    for (row, (key, value)) in kept.iter().zip(&map) {
        assert!(row.key() == key && row.value() == value, "a row changed while it was kept");
    }
}

#[test]
fn rows_tell_which_commit_put_them() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    for key in ["b", "a", "c", "b"] {
        bucket.put(key, "value").unwrap();
    }
    let last = bucket.snapshot().seqno();
    let seqnos: Vec<u64> = bucket.scan("").map(|row| row.unwrap().seqno()).collect();
    assert_eq!(seqnos, [last - 2, last, last - 1]);
}

/// Whatever is committed, merged and sealed meanwhile, a scan shows the commit it began with.
#[test]
fn a_scan_sees_one_commit() {
    for mut fixture in Fixture::both() {
        fixture.options = fixture.options.overlay_min(16);
        let (bucket, mut map) = (fixture.create(), Map::new());
        for n in 0..200_u32 {
            put(&bucket, &mut map, (n * 2).to_be_bytes(), 1, 100);
        }
        let (mut front, mut back) = (bucket.scan(""), bucket.scan("").rev());
        // Not looked at before everything has changed.
        let (late, late_back) = (bucket.scan(""), bucket.scan(""));
        let (mut found, mut found_back) = (Vec::new(), Vec::new());
        for step in 0_u32.. {
            let (Some(row), Some(last)) = (front.next(), back.next()) else { break };
            found.push(owned(row));
            found_back.push(owned(last));
            // Before it, where it is, behind it: overwritten, deleted, new.
            let mut batch = Batch::new();
            for n in [0, step, step + 1, 200, 398 - step, 399] {
                match (n + step) % 3 {
                    0 => batch.delete(n.to_be_bytes()),
                    _ => batch.put(n.to_be_bytes(), vec![b'n'; 300]),
                };
            }
            if step % 50 == 7 {
                // More than a segment holds.
                for n in 0..400_u32 {
                    batch.put(n.to_be_bytes(), [7; 100]);
                }
            }
            bucket.commit(batch).unwrap();
        }
        fixture::assert_rows(&found, map.iter(), "forwards");
        fixture::assert_rows(&found_back, map.iter().rev(), "backwards");
        fixture::assert_rows(&rows(late), map.iter(), "late");
        fixture::assert_rows(&rows_back(late_back), map.iter().rev(), "late, backwards");
    }
}

/// Tells everyone that the writer is done, also if it panicked.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// One writer sets all rows to the next number, in batches larger than a segment; a scan that shows
/// two numbers has seen half a batch.
#[test]
fn a_scan_never_shows_half_a_batch() {
    watch::within(LIMIT, "a_scan_never_shows_half_a_batch", || {
        for (background, directories) in [(true, true), (false, true), (true, false)] {
            let options = Options::default()
                .background(background)
                .directories(directories)
                .durability(Durability::Relaxed)
                .segment_bytes_max(fixture::SEGMENT)
                .overlay_min(50);
            let disk = Arc::new(MemoryDisk::with_capacity(1 << 28));
            let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), options).unwrap();
            let commit = |number: u32, rows: u32| {
                let mut batch = Batch::new();
                // Rows come and go as well: there are as many as the number says.
                for n in 0..120_u32 {
                    match n < rows {
                        true => batch
                            .put(n.to_be_bytes(), [&number.to_le_bytes()[..], &[0; 300]].concat()),
                        false => batch.delete(n.to_be_bytes()),
                    };
                }
                bucket.commit(batch).unwrap();
            };
            let rows_of = |number: u32| 100 + number % 20;
            commit(0, rows_of(0));
            let done = AtomicBool::new(false);
            thread::scope(|scope| {
                let done = &done;
                for is_reverse in [false, true] {
                    let bucket = &bucket;
                    scope.spawn(move || {
                        let number = |row: kvb::Result<Row<'_>>| {
                            u32::from_le_bytes(row.unwrap().value()[..4].try_into().unwrap())
                        };
                        let mut last = 0;
                        while !done.load(Ordering::Acquire) {
                            let scan = bucket.scan("");
                            let numbers: Vec<u32> = match is_reverse {
                                false => scan.map(number).collect(),
                                true => scan.rev().map(number).collect(),
                            };
                            let first = numbers[0];
                            assert!(numbers.iter().all(|number| *number == first), "{numbers:?}");
                            assert_eq!(numbers.len(), usize::try_from(rows_of(first)).unwrap());
                            assert!(first >= last, "{first} after {last}");
                            last = first;
                        }
                    });
                }
                let _done = Done(done);
                for number in 1..=250 {
                    commit(number, rows_of(number));
                }
            });
        }
    });
}

/// Keys of one hash are neighbours in the index and strangers in key order.
/// A bucket that was only written has a level per segment. Whoever scans it gets fewer.
#[test]
fn scans_make_the_background_merge_levels() {
    watch::within(LIMIT, "scans_make_the_background_merge_levels", || {
        let options = Options::default().durability(Durability::Relaxed);
        let disk = Arc::new(MemoryDisk::with_capacity(1 << 30));
        let bucket = Bucket::create_on(disk, Arc::new(SystemEnv), options).unwrap();
        let mut map = Map::new();
        for first in (0..60_000_u64).step_by(500) {
            let mut batch = Batch::new();
            for n in first..first + 500 {
                let key = n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec();
                batch.put(&key, n.to_le_bytes());
                map.insert(key, n.to_le_bytes().to_vec());
            }
            bucket.commit(batch).unwrap();
        }
        bucket.flush().unwrap();
        let loaded = bucket.stats().unwrap();
        assert!(loaded.segments > 20, "{loaded:?}");
        thread::sleep(Duration::from_millis(200));
        let untouched = bucket.stats().unwrap();
        assert_eq!(untouched.bytes_moved, 0, "nobody scanned: {untouched:?}");
        let snapshot = bucket.snapshot();
        let mut now = untouched;
        while now.segments > 8 {
            assert_eq!(snapshot.scan([7]).count(), bucket.scan([7]).count());
            thread::sleep(Duration::from_millis(5));
            now = bucket.stats().unwrap();
        }
        // Not once more for those who go on scanning.
        let moved = now.bytes_moved;
        for _ in 0..100 {
            assert_eq!(bucket.scan("").take(10).count(), 10);
        }
        assert!(moved <= 3 * loaded.bytes_log, "{now:?}");
        assert_all(&snapshot, &map, "held meanwhile");
        assert_all(&bucket, &map, "merged");
        bucket.compact(Compact::Full).unwrap();
        assert_all(&bucket, &map, "compacted");
    });
}

#[test]
fn keys_of_one_hash() {
    collide::check();
    for mut fixture in Fixture::both() {
        fixture.options = fixture.options.overlay_min(20);
        let (bucket, mut map) = (fixture.create(), Map::new());
        for n in 0..600_u64 {
            put(&bucket, &mut map, collide::colliding(n % 3, n * 37 % 600), 1, 40);
        }
        for n in (0..600_u64).step_by(5) {
            let key = collide::colliding(n % 3, n);
            assert_eq!(bucket.delete(&key).unwrap(), map.remove(&key).is_some());
        }
        for hash in [0, 1, 2, 3, u64::MAX] {
            put(&bucket, &mut map, collide::hashing_to(hash), 1, 40);
        }
        let near: Vec<_> = map.keys().step_by(50).cloned().collect();
        assert_everywhere(&mut fixture, bucket, &map, &near);
    }
}

/// What a scan of all rows of a map should show.
fn walk_of(map: &Map, of: &Of) -> Walk {
    let expected = map.iter().filter(|(key, _)| of.contains(key)).map(|(key, value)| Expected {
        key: key.clone(),
        value: value.as_slice().into(),
        expires: None,
        presence: Presence::Certain,
    });
    Walk::new(expected.collect(), u64::MAX)
}

#[test]
fn seeking_from_the_front() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    for key in ["b", "d", "f", "h", "k", "m"] {
        put(&bucket, &mut map, key, 1, 4000);
    }
    let key =
        |row: Option<kvb::Result<Row<'_>>>| row.map(|row| String::from_utf8(owned(row).0).unwrap());
    let mut scan = bucket.range("d".."m");
    scan.seek("g");
    assert_eq!(key(scan.next()).as_deref(), Some("h"));
    scan.seek("d");
    assert_eq!(key(scan.next()).as_deref(), Some("d"), "back again");
    assert_eq!(key(scan.next()).as_deref(), Some("f"));
    scan.seek("a");
    assert_eq!(key(scan.next()).as_deref(), Some("d"), "not out of the range");
    scan.seek("l");
    assert_eq!(key(scan.next()), None, "nothing more in the range");
    scan.seek("k");
    assert_eq!(key(scan.next()).as_deref(), Some("k"), "after the end");
    assert_eq!(key(scan.next()), None);
    let mut scan = bucket.range::<&str>((Bound::Excluded("d"), Bound::Unbounded));
    scan.seek("d");
    assert_eq!(key(scan.next()).as_deref(), Some("f"), "the bound stays outside");
    scan.seek("z");
    assert_eq!(key(scan.next()), None);
    assert_eq!(key(bucket.scan("z").next()), None);
    // The other end stops where this one has been.
    scan.seek("h");
    assert_eq!(key(scan.next()).as_deref(), Some("h"));
    assert_eq!(scan.rev().count(), 2);
}

#[test]
fn seeking_from_the_back() {
    let fixture = Fixture::new();
    let (bucket, mut map) = (fixture.create(), Map::new());
    for key in ["b", "d", "f", "h", "k", "m"] {
        put(&bucket, &mut map, key, 1, 4000);
    }
    let key =
        |row: Option<kvb::Result<Row<'_>>>| row.map(|row| String::from_utf8(owned(row).0).unwrap());
    let mut scan = bucket.range("d".."m");
    scan.seek_back("g");
    assert_eq!(key(scan.next_back()).as_deref(), Some("f"));
    scan.seek_back("h");
    assert_eq!(key(scan.next_back()).as_deref(), Some("h"), "forward again");
    scan.seek_back("z");
    assert_eq!(key(scan.next_back()).as_deref(), Some("k"), "not out of the range");
    scan.seek_back("m");
    assert_eq!(key(scan.next_back()).as_deref(), Some("k"), "the bound stays outside");
    scan.seek_back("c");
    assert_eq!(key(scan.next_back()), None, "nothing before it in the range");
    scan.seek_back("d");
    assert_eq!(key(scan.next_back()).as_deref(), Some("d"), "after the end");
    scan.seek_back("h");
    assert_eq!(key(scan.next_back()).as_deref(), Some("h"));
    assert_eq!(keys(scan), ["d", "f"], "the other end stops where this one has been");
}

/// Seeks and reads from both ends at random, over segments and tail.
#[test]
fn roaming_by_seeks() {
    for fixture in Fixture::both() {
        let (bucket, mut map) = (fixture.create(), Map::new());
        let mut rng = Rng::with_seed(11);
        for n in 0..700_u32 {
            put(&bucket, &mut map, rng.u16(..2000).to_be_bytes(), n, rng.usize(4..120));
        }
        for round in 0..300 {
            let place = |rng: &mut Rng| rng.u16(..2000).to_be_bytes().to_vec();
            let of = match rng.u8(..3) {
                0 => Of::Prefix(rng.u16(..2000).to_be_bytes()[..rng.usize(..3)].to_vec()),
                1 => Of::Range(Bound::Included(place(&mut rng)), Bound::Excluded(place(&mut rng))),
                _ => Of::Range(Bound::Excluded(place(&mut rng)), Bound::Included(place(&mut rng))),
            };
            let mut scan = match &of {
                Of::Prefix(prefix) => bucket.scan(prefix),
                Of::Range(from, to) => bucket.range((from.clone(), to.clone())),
            };
            let (mut walk, context) = (walk_of(&map, &of), format!("round {round}"));
            let goes_on = (0..40).all(|_| match rng.u8(..8) {
                0..3 => walk.next(&mut scan, &context),
                3..6 => walk.next_back(&mut scan, &context),
                6 => walk.seek(&mut scan, &place(&mut rng), &context),
                _ => walk.seek_back(&mut scan, &place(&mut rng), &context),
            });
            if goes_on {
                walk.drain(&mut scan, &context);
            }
        }
    }
}

/// The bytes of a closed bucket with several segments: every key has two versions, in the order of
/// a shuffle each, and every fifth is deleted at last.
fn closed(fixture: &Fixture) -> (Vec<u8>, Map) {
    let (bucket, mut map) = (fixture.create(), Map::new());
    let mut rng = Rng::with_seed(9);
    let mut names: Vec<String> = (0..120).map(|n| format!("key {n:03}")).collect();
    for version in 0..2 {
        rng.shuffle(&mut names);
        for name in &names {
            put(&bucket, &mut map, name.as_str(), version, 300);
        }
    }
    for name in names.iter().step_by(5) {
        assert!(bucket.delete(name).unwrap());
        map.remove(name.as_bytes());
    }
    // So that all of it is sealed.
    for n in 0..60 {
        put(&bucket, &mut map, format!("last {n:02}"), 2, 300);
    }
    bucket.close().unwrap();
    (fixture.disk.to_bytes(), map)
}

#[test]
fn directories_are_where_they_should_be_and_nowhere_else() {
    let with = closed(&Fixture::new()).0;
    let sealed = anatomy::extents(&with).iter().filter(|extent| extent.is_sealed()).count();
    assert!(sealed >= 4);
    assert_eq!(anatomy::side_data(&with).len(), sealed);
    assert_eq!(anatomy::sections(&with, meta::SECTION_DIRECTORY).len(), sealed);
    let fixture = Fixture::without_directories();
    let (without, map) = closed(&fixture);
    assert!(!anatomy::side_data(&without).is_empty());
    assert!(anatomy::sections(&without, meta::SECTION_DIRECTORY).is_empty());
    // What creation fixed stays, whatever is asked for later.
    let env = Arc::<ManualEnv>::clone(&fixture.env);
    let options = fixture.options.clone().directories(true);
    let bucket = Bucket::open_on(Arc::new(fixture.disk.reopen()), env, options).unwrap();
    (0..100_u32).for_each(|n| bucket.put(n.to_be_bytes(), [0; 500]).unwrap());
    (0..100_u32).for_each(|n| assert!(bucket.delete(n.to_be_bytes()).unwrap()));
    bucket.close().unwrap();
    let bytes = fixture.disk.to_bytes();
    let newest =
        |file: &[u8]| anatomy::side_data(file).iter().map(|(_, meta)| meta.head.id.get()).max();
    assert!(newest(&bytes) > newest(&without), "nothing was sealed since");
    assert!(anatomy::sections(&bytes, meta::SECTION_DIRECTORY).is_empty());
    assert_all(&fixture.open(), &map, "after all");
}

/// A directory is derived: if it is damaged, records are sorted instead.
#[test]
fn a_damaged_directory_is_not_believed() {
    let fixture = Fixture::new();
    let (bytes, map) = closed(&fixture);
    let sections = anatomy::sections(&bytes, meta::SECTION_DIRECTORY);
    let near: Vec<_> = map.keys().step_by(31).cloned().collect();
    for (number, section) in sections.iter().enumerate() {
        // Count, what keys have in common, offsets, key bytes; of the first segment every byte.
        let step = if number == 0 { 1 } else { 41 };
        for at in section.clone().step_by(step).chain([section.start + 4, section.end - 1]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let context = format!("byte {} of {}", at - section.start, section.len());
            assert_near(&read_only(damaged), &map, &near, &context);
        }
    }
    // All of them, and what else is beside them: then the records themselves must do.
    let mut damaged = bytes.clone();
    sections.iter().for_each(|section| damaged[section.start] ^= 1);
    assert_all(&read_only(damaged.clone()), &map, "all directories");
    for run in anatomy::sections(&bytes, meta::SECTION_RUN) {
        damaged[run.start] ^= 1;
    }
    assert_all(&read_only(damaged.clone()), &map, "all directories and runs");
    for (start, _) in anatomy::side_data(&bytes) {
        damaged[start + meta::OFFSET] ^= 1;
    }
    assert_all(&read_only(damaged.clone()), &map, "all side data");
    let writer = Fixture { disk: MemoryDisk::from_bytes(damaged), ..Fixture::new() };
    assert_all(&writer.open(), &map, "all side data, to be written");
}

/// What a scan gave, errors by the byte they name.
fn outcome<'a>(scan: impl Iterator<Item = kvb::Result<Row<'a>>>) -> Vec<Outcome> {
    scan.map(|row| match row {
        Ok(row) => Outcome::Row(row.key().to_vec(), row.value().to_vec()),
        Err(Error::Corrupt(corrupt)) => {
            assert_eq!(corrupt.what, What::Record);
            Outcome::Damaged(usize::try_from(corrupt.at).unwrap())
        }
        Err(error) => panic!("{error}"),
    })
    .collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Row(Vec<u8>, Vec<u8>),
    Damaged(usize),
}

/// What becomes of a scan when this record is damaged: all rows but its own are as they were, the
/// newest record of a key leaves an error and no row, an older one takes nothing away.
fn assert_truth(
    bucket: &Snapshot<'_>,
    map: &Map,
    damaged: &Lying,
    newest: &[Lying],
    context: &str,
) {
    let is_newest = newest.iter().any(|record| record.bytes == damaged.bytes);
    let check = |scan: Scan<'_>, is_reverse: bool, of: &dyn Fn(&[u8]) -> bool| {
        let found = if is_reverse { outcome(scan.rev()) } else { outcome(scan) };
        let mut expected: Vec<_> = map
            .iter()
            .filter(|(key, _)| of(key) && !(is_newest && **key == damaged.key))
            .map(|(key, value)| Outcome::Row(key.clone(), value.clone()))
            .collect();
        if is_reverse {
            expected.reverse();
        }
        let (errors, rows): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|outcome| matches!(outcome, Outcome::Damaged(_)));
        assert!(rows == expected, "{context}: reverse {is_reverse}, {} rows", rows.len());
        assert!(errors.iter().all(|error| *error == Outcome::Damaged(damaged.bytes.start)));
        assert!(!(is_newest && of(&damaged.key) && errors.is_empty()), "{context}: no error");
    };
    check(bucket.scan(""), false, &|_| true);
    check(bucket.scan(""), true, &|_| true);
    let key = &damaged.key;
    check(bucket.range(key.clone()..), false, &|other| other >= key);
    check(bucket.range(..=key.clone()), true, &|other| other <= key);
}

/// The newest record of every key.
fn newest(records: &[Lying]) -> Vec<Lying> {
    let mut newest: BTreeMap<Vec<u8>, Lying> = BTreeMap::new();
    for record in records {
        let known = newest.get(&record.key).map_or(0, |known| known.header.seqno.get());
        if record.header.seqno.get() > known {
            newest.insert(record.key.clone(), record.clone());
        }
    }
    newest.into_values().collect()
}

#[test]
fn a_damaged_row_is_an_error_in_its_place() {
    for fixture in Fixture::both() {
        let (bytes, map) = closed(&fixture);
        let records = anatomy::sealed_records(&bytes);
        let live: Vec<_> =
            newest(&records).into_iter().filter(|record| record.header.kind == PUT).collect();
        assert!(live.len() > 100);
        for damaged in live.iter().step_by(9) {
            let mut file = bytes.clone();
            file[damaged.bytes.end - 20] ^= 1;
            let bucket = read_only(file);
            let error = Outcome::Damaged(damaged.bytes.start);
            let mut expected: Vec<_> = map
                .iter()
                .map(|(key, value)| match *key == damaged.key {
                    true => error.clone(),
                    false => Outcome::Row(key.clone(), value.clone()),
                })
                .collect();
            assert!(outcome(bucket.scan("")) == expected, "{:?}", damaged.key);
            assert!(outcome(bucket.scan(&damaged.key)) == std::slice::from_ref(&error));
            expected.reverse();
            assert!(outcome(bucket.scan("").rev()) == expected, "{:?} backwards", damaged.key);
            // What ends before it and what begins behind it are whole, and do not complain.
            let around = bucket
                .range(..damaged.key.clone())
                .chain(bucket.range((Bound::Excluded(damaged.key.clone()), Bound::Unbounded)));
            assert_eq!(around.filter(|row| row.is_ok()).count(), map.len() - 1);
            assert!(bucket.range(..damaged.key.clone()).all(|row| row.is_ok()), "before it");
            let behind = (Bound::Excluded(damaged.key.clone()), Bound::Unbounded);
            assert!(bucket.range::<Vec<u8>>(behind).rev().all(|row| row.is_ok()), "behind it");
        }
    }
}

/// Where keys or headers are damaged, nobody knows the place of the row; still no other row may be
/// lost, come twice, or show an older value.
#[test]
fn no_flipped_byte_of_a_record_makes_a_wrong_row() {
    for fixture in Fixture::both() {
        let (bytes, map) = closed(&fixture);
        let records = anatomy::sealed_records(&bytes);
        let newest = newest(&records);
        for (number, damaged) in records.iter().enumerate() {
            for turn in 0..5 {
                // Every byte of header and key, and some of value and CRC.
                let byte = (number + 11 * turn) % (damaged.bytes.len().min(60));
                let mut file = bytes.clone();
                file[damaged.bytes.start + byte] ^= 1 << ((number + turn) % 8);
                let context = format!("record {number}, byte {byte}");
                assert_truth(&read_only(file), &map, damaged, &newest, &context);
            }
        }
    }
}

/// A step of a small history.
#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>, u8, usize),
    Delete(Vec<u8>),
    Flush,
    Reopen,
    Kill,
}

/// Keys over few letters, so that they meet.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    let letter = proptest::sample::select(vec![0_u8, 1, b'a', 255]);
    let stem = proptest::sample::select(vec![0_usize, 7, 8, 20]);
    (stem, proptest::collection::vec(letter, 0..5))
        .prop_map(|(stem, end)| [&vec![b's'; stem][..], &end].concat())
}

fn any_step() -> impl Strategy<Value = Step> {
    proptest::prop_oneof![
        10 => (any_key(), any::<u8>(), 0..3000_usize)
            .prop_map(|(key, value, len)| Step::Put(key, value, len)),
        4 => any_key().prop_map(Step::Delete),
        1 => proptest::strategy::Just(Step::Flush),
        1 => proptest::strategy::Just(Step::Reopen),
        1 => proptest::strategy::Just(Step::Kill),
    ]
}

fn any_bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    proptest::prop_oneof![
        any_key().prop_map(Bound::Included),
        any_key().prop_map(Bound::Excluded),
        proptest::strategy::Just(Bound::Unbounded),
    ]
}

/// Any range, the wrong way round or not, after any few steps.
#[test]
fn ranges_are_those_of_a_map() {
    let seed = seed::seed("ranges_are_those_of_a_map");
    let mut bytes = [0; 32];
    Rng::with_seed(seed).fill(&mut bytes);
    let cases = u32::try_from(120 * seed::rounds()).unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let history = (
        any::<bool>(),
        proptest::collection::vec(any_step(), 1..100),
        proptest::collection::vec((any_bound(), any_bound(), any_key()), 20),
    );
    let outcome =
        TestRunner::new_with_rng(config, rng).run(&history, |(directories, steps, ranges)| {
            let mut fixture = Fixture::new();
            fixture.options = fixture.options.directories(directories).overlay_min(12);
            let (mut bucket, mut map) = (fixture.create(), Map::new());
            for step in steps {
                match step {
                    Step::Put(key, value, len) => {
                        bucket.put(&key, vec![value; len]).unwrap();
                        map.insert(key, vec![value; len]);
                    }
                    Step::Delete(key) => {
                        assert_eq!(bucket.delete(&key).unwrap(), map.remove(&key).is_some());
                    }
                    Step::Flush => bucket.flush().unwrap(),
                    Step::Reopen => {
                        bucket.close().unwrap();
                        bucket = fixture.open();
                    }
                    Step::Kill => bucket = fixture.kill(bucket),
                }
            }
            assert_all(&bucket, &map, "all");
            for (from, to, place) in ranges {
                let of = Of::Range(from.clone(), to.clone());
                let scan = || bucket.range((from.clone(), to.clone()));
                walk_of(&map, &of).drain(&mut scan(), "forwards");
                walk_of(&map, &of).drain_back(&mut scan(), "backwards");
                walk_of(&map, &of).seek(&mut scan(), &place, "seek");
                walk_of(&map, &of).seek_back(&mut scan(), &place, "seek back");
                let of = Of::Prefix(place);
                let Of::Prefix(prefix) = &of else { continue };
                walk_of(&map, &of).drain(&mut bucket.scan(prefix), "prefix");
            }
            Ok(())
        });
    outcome.unwrap();
}
