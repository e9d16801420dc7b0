//! Single behaviours, each small enough to read: what a call promises, and what once went wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/collide.rs"]
mod collide;
#[path = "support/lookup.rs"]
mod lookup;

use std::sync::Arc;
use std::time::Duration;

use host::{ManualEnv, MemoryDisk};
use kvb::{Batch, Bucket, Durability, Error, Options};
use lookup::Lookup;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;
const START: u64 = 20_000 * DAY;

/// A bucket in memory, with a clock that moves when told.
struct Fixture {
    disk: MemoryDisk,
    env: Arc<ManualEnv>,
    options: Options,
}

impl Fixture {
    fn new() -> Fixture {
        Fixture {
            disk: MemoryDisk::new(),
            env: Arc::new(ManualEnv::new(START, 7)),
            options: Options::default().background(false),
        }
    }

    fn create(&self) -> Bucket {
        let env = Arc::<ManualEnv>::clone(&self.env);
        Bucket::create_on(Arc::new(self.disk.reopen()), env, self.options.clone()).unwrap()
    }

    fn open(&self) -> Bucket {
        let env = Arc::<ManualEnv>::clone(&self.env);
        Bucket::open_on(Arc::new(self.disk.reopen()), env, self.options.clone()).unwrap()
    }

    /// Goes on from a copy of the bytes, as if the process that has `bucket` open were killed.
    fn kill(&mut self, bucket: Bucket) -> Bucket {
        self.disk = MemoryDisk::from_bytes(self.disk.to_bytes());
        drop(bucket);
        self.open()
    }
}

#[test]
fn a_value_is_gone_at_its_deadline_and_not_before() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    bucket.put_for("second", "value", Duration::ZERO).unwrap();
    bucket.put_for("two seconds", "value", Duration::from_millis(1001)).unwrap();
    bucket.put_for("forever", "value", Duration::MAX).unwrap();
    fixture.env.set(START + SECOND - 1);
    assert!(bucket.exists("second").unwrap());
    fixture.env.set(START + SECOND);
    assert!(!bucket.exists("second").unwrap());
    assert!(bucket.get("second").unwrap().is_none());
    assert!(bucket.exists("two seconds").unwrap());
    fixture.env.set(START + 2 * SECOND);
    assert!(!bucket.exists("two seconds").unwrap());
    assert!(!bucket.delete("two seconds").unwrap());
    fixture.env.set(u64::MAX);
    assert!(!bucket.exists("forever").unwrap(), "the longest time to live is 2^32 - 1 seconds");
    bucket.put("forever", "again").unwrap();
    assert_eq!(bucket.get("forever").unwrap().as_deref(), Some(&b"again"[..]));
}

/// Deadlines saturate: at the end of time nothing wraps around to the past.
#[test]
fn deadlines_past_the_end_of_time_never_come() {
    let fixture = Fixture::new();
    fixture.env.set(u64::MAX - SECOND);
    let bucket = fixture.create();
    bucket.put_for("key", "value", Duration::from_secs(100)).unwrap();
    assert!(bucket.exists("key").unwrap());
    bucket.close().unwrap();
    assert!(fixture.open().exists("key").unwrap());
}

#[test]
fn an_expired_value_does_not_come_back_when_the_clock_goes_back() {
    let mut fixture = Fixture::new();
    let bucket = fixture.create();
    bucket.put_for("key", "value", Duration::from_secs(60)).unwrap();
    fixture.env.set(START + HOUR);
    bucket.put("other", "value").unwrap();
    fixture.env.set(START + SECOND);
    assert!(!bucket.exists("key").unwrap());
    let bucket = fixture.kill(bucket);
    assert!(!bucket.exists("key").unwrap());
    bucket.close().unwrap();
    assert!(!fixture.open().exists("key").unwrap());
}

/// A stamp over a day ahead does not count, neither while the bucket is open nor at the next open.
#[test]
fn a_stamp_far_ahead_of_the_wall_does_not_count() {
    let mut fixture = Fixture::new();
    let bucket = fixture.create();
    fixture.env.set(START + 30 * DAY);
    bucket.put("from the future", "value").unwrap();
    fixture.env.set(START);
    bucket.put_for("key", "value", Duration::from_secs(60)).unwrap();
    assert!(bucket.exists("key").unwrap());
    fixture.env.set(START + 59 * SECOND);
    let bucket = fixture.kill(bucket);
    assert!(bucket.exists("key").unwrap());
    fixture.env.set(START + 60 * SECOND);
    assert!(!bucket.exists("key").unwrap());
}

/// The stamps behind a wrong one still count. Mount once took the newest stamp of the whole tail,
/// found it too far ahead and believed none of them, so that expired values came back when the
/// clock was also a little behind.
#[test]
fn a_wrong_stamp_does_not_hide_the_right_ones_behind_it() {
    let mut fixture = Fixture::new();
    let bucket = fixture.create();
    bucket.put_for("key", "value", Duration::from_secs(60)).unwrap();
    fixture.env.set(START + 30 * DAY);
    bucket.put("from the future", "value").unwrap();
    fixture.env.set(START + HOUR);
    bucket.put("other", "value").unwrap();
    fixture.env.set(START + SECOND);
    assert!(!bucket.exists("key").unwrap());
    let bucket = fixture.kill(bucket);
    assert!(!bucket.exists("key").unwrap(), "expired an hour ago by the newest stamp that counts");
}

/// Keys of one hash all keep their slots. A merge once counted a new key as an old one if its hash
/// was known, made the image too small for all of them, and lost the rest.
#[test]
fn no_key_of_one_hash_is_lost_when_the_index_grows() {
    collide::check();
    let fixture = Fixture::new();
    let bucket = fixture.create();
    for (from, to) in [(0, 50), (50, 1000), (1000, 3000)] {
        let mut batch = Batch::new();
        for index in from..to {
            batch.put(collide::colliding(0, index), index.to_le_bytes());
        }
        bucket.commit(batch).unwrap();
        bucket.flush().unwrap();
        let found = (0..to).filter(|index| {
            let value = bucket.get(collide::colliding(0, *index)).unwrap();
            value.as_deref() == Some(&index.to_le_bytes()[..])
        });
        assert_eq!(found.count(), usize::try_from(to).unwrap());
    }
}

/// A delete of a key whose hash is known, but not the key, takes nothing from those that are there.
#[test]
fn deletes_of_absent_keys_of_a_known_hash_make_no_room() {
    collide::check();
    let fixture = Fixture::new();
    let bucket = fixture.create();
    let mut batch = Batch::new();
    for index in 0..600 {
        batch.put(collide::colliding(0, index), index.to_le_bytes());
    }
    bucket.commit(batch).unwrap();
    bucket.flush().unwrap();
    let mut batch = Batch::new();
    for index in 600..1200 {
        batch.delete(collide::colliding(0, index));
    }
    bucket.commit(batch).unwrap();
    bucket.flush().unwrap();
    let found = (0..600).filter(|index| bucket.exists(collide::colliding(0, *index)).unwrap());
    assert_eq!(found.count(), 600);
}

#[test]
fn the_last_mutation_of_a_key_in_a_batch_wins() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    let mut batch = Batch::new();
    batch.put("a", "1").delete("a").put("a", "2").put("b", "1").put("b", "2").delete("b");
    batch.delete("c").put("c", "3");
    bucket.commit(batch).unwrap();
    let check = |bucket: &Bucket| {
        assert_eq!(bucket.get("a").unwrap().as_deref(), Some(&b"2"[..]));
        assert!(bucket.get("b").unwrap().is_none());
        assert_eq!(bucket.get("c").unwrap().as_deref(), Some(&b"3"[..]));
        assert_eq!(bucket.stats().unwrap().keys, 2);
    };
    check(&bucket);
    bucket.flush().unwrap();
    check(&bucket);
    bucket.close().unwrap();
    check(&fixture.open());
}

#[test]
fn a_delete_tells_whether_the_key_was_there_and_writes_only_then() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    bucket.put("key", "value").unwrap();
    let before = bucket.stats().unwrap().commit_seqno;
    assert!(!bucket.delete("other").unwrap());
    assert_eq!(bucket.stats().unwrap().commit_seqno, before);
    assert!(bucket.delete("key").unwrap());
    assert!(bucket.stats().unwrap().commit_seqno > before);
    assert!(!bucket.delete("key").unwrap());
}

#[test]
fn an_empty_batch_changes_nothing() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    for durability in [Durability::Relaxed, Durability::SyncOnce, Durability::Sync] {
        bucket.commit_with(Batch::new(), durability).unwrap();
    }
    assert_eq!(bucket.stats().unwrap().commit_seqno, 0);
    bucket.put("key", "value").unwrap();
    bucket.close().unwrap();
    assert!(fixture.open().exists("key").unwrap());
}

#[test]
fn lookups_of_many_keys_answer_in_their_order() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    bucket.put("a", "1").unwrap();
    bucket.put("b", "2").unwrap();
    let values = bucket.get_many(&["b", "missing", "a", "b"]).unwrap();
    let values: Vec<Option<&[u8]>> = values.iter().map(|value| value.as_deref()).collect();
    assert_eq!(values, [Some(&b"2"[..]), None, Some(&b"1"[..]), Some(&b"2"[..])]);
    assert!(bucket.get_many::<&[u8]>(&[]).unwrap().is_empty());
}

#[test]
fn seqnos_go_on_upwards_after_every_reopen() {
    let mut fixture = Fixture::new();
    let mut bucket = fixture.create();
    let mut last = 0;
    for round in 0..20_u32 {
        bucket.put("key", round.to_le_bytes()).unwrap();
        let now = bucket.stats().unwrap().commit_seqno;
        assert!(now > last, "round {round}: {now} after {last}");
        last = now;
        bucket = if round % 2 == 0 {
            fixture.kill(bucket)
        } else {
            bucket.close().unwrap();
            fixture.open()
        };
        assert_eq!(bucket.stats().unwrap().commit_seqno, last);
    }
}

/// A bucket held open does not let its bytes be taken over, also not by a handle in the same
/// process.
#[test]
fn a_disk_in_memory_is_locked_like_a_file() {
    let fixture = Fixture::new();
    let bucket = fixture.create();
    let env = Arc::<ManualEnv>::clone(&fixture.env);
    let second = Bucket::open_on(Arc::new(fixture.disk.reopen()), env, Options::default());
    assert!(matches!(second, Err(Error::Locked { pid: Some(pid) }) if pid == std::process::id()));
    drop(bucket);
    fixture.open();
}

/// What the key has after the three passes of [`far_behind`].
fn expected(index: u32) -> Option<[u8; 1]> {
    match (index % 3, index % 2) {
        (0, _) => None,
        (_, 0) => Some([2]),
        _ => Some([1]),
    }
}

const FAR: u32 = 300_000;

/// The bytes of a killed bucket whose index image is behind by more records than an open takes in
/// at once.
fn far_behind() -> Vec<u8> {
    let disk = MemoryDisk::with_capacity(256 << 20);
    let options = Options::default().durability(Durability::Relaxed).background(false);
    let env = Arc::new(ManualEnv::new(START, 7));
    let bucket =
        Bucket::create_on(Arc::new(disk.reopen()), env, options.overlay_min(2_000_000)).unwrap();
    for pass in 1..=3_u8 {
        for from in (0..FAR).step_by(5000) {
            let mut batch = Batch::new();
            for index in from..from + 5000 {
                match pass {
                    1 => drop_in(&mut batch, index, Some([1])),
                    2 if index % 2 == 0 => drop_in(&mut batch, index, Some([2])),
                    3 if index % 3 == 0 => drop_in(&mut batch, index, None),
                    _ => {}
                }
            }
            // Keys of one hash, some of them several times in every segment.
            for index in 0..20 {
                batch.put(collide::colliding(0, index), [pass]);
                batch.put(collide::colliding(0, index), from.to_le_bytes());
            }
            bucket.commit(batch).unwrap();
        }
    }
    disk.to_bytes()
}

fn drop_in(batch: &mut Batch, index: u32, value: Option<[u8; 1]>) {
    match value {
        Some(value) => batch.put(index.to_le_bytes(), value),
        None => batch.delete(index.to_le_bytes()),
    };
}

fn check_far(bucket: &impl Lookup) {
    for index in 0..FAR {
        let value = bucket.value(&index.to_le_bytes()).unwrap();
        assert_eq!(
            value.as_deref(),
            expected(index).as_ref().map(|value| &value[..]),
            "key {index}"
        );
    }
    for index in 0..20 {
        let value = bucket.value(&collide::colliding(0, index)).unwrap();
        assert_eq!(
            value.as_deref(),
            Some(&(FAR - 5000).to_le_bytes()[..]),
            "colliding key {index}"
        );
    }
    assert_eq!(bucket.value(&FAR.to_le_bytes()).unwrap(), None);
    assert_eq!(bucket.value(&collide::colliding(0, 20)).unwrap(), None);
}

/// More records since the last image than an open takes in at once: they are found where they lie
/// at first, and commits that come meanwhile win over them.
#[test]
fn an_index_that_a_kill_left_far_behind() {
    collide::check();
    let image = far_behind();
    let options = Options::default().durability(Durability::Relaxed);
    let reader = MemoryDisk::from_bytes(image.clone());
    let env = Arc::new(ManualEnv::new(START, 8));
    check_far(&Bucket::open_read_only_on(Arc::new(reader), env).unwrap());
    for background in [true, false] {
        let disk = MemoryDisk::from_bytes(image.clone());
        let open = || {
            let env = Arc::new(ManualEnv::new(START, 8));
            let options = options.clone().background(background);
            Bucket::open_on(Arc::new(disk.reopen()), env, options).unwrap()
        };
        let bucket = open();
        assert_eq!(bucket.mount_report().records_discarded, 0);
        // Changes at once, before anything can have been taken in.
        bucket.put(3_u32.to_le_bytes(), "back again").unwrap();
        assert!(bucket.delete(4_u32.to_le_bytes()).unwrap());
        let check_changes = |bucket: &Bucket| {
            assert_eq!(
                bucket.get(3_u32.to_le_bytes()).unwrap().as_deref(),
                Some(&b"back again"[..])
            );
            assert!(!bucket.exists(4_u32.to_le_bytes()).unwrap());
        };
        check_changes(&bucket);
        bucket.put(4_u32.to_le_bytes(), [2]).unwrap();
        assert!(bucket.delete(3_u32.to_le_bytes()).unwrap());
        check_far(&bucket);
        let live = (0..FAR).filter(|index| expected(*index).is_some()).count();
        // The twenty keys of one hash may count as one.
        let keys = usize::try_from(bucket.stats().unwrap().keys).unwrap();
        assert!((live + 1..=live + 20).contains(&keys), "{keys} keys instead of {}", live + 20);
        bucket.flush().unwrap();
        check_far(&bucket);
        bucket.close().unwrap();
        check_far(&open());
    }
}
