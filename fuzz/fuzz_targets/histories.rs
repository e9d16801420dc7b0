//! Histories of a bucket against a map: what is put, deleted, compacted, closed, cut off and lost.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use host::{Fault, Keep, SimDisk};
use kvb::{Batch, Bucket, Compact, Durability};
use kvb_fuzz::{Choices, env, options};
use libfuzzer_sys::fuzz_target;

type State = BTreeMap<Vec<u8>, Vec<u8>>;

/// What may be found after the next opening: the state after the last durable commit, and after each since.
struct Model {
    states: Vec<State>,
}

impl Model {
    fn last(&self) -> State {
        self.states.last().unwrap().clone()
    }

    fn begin(&mut self, next: State) {
        self.states.push(next);
    }

    /// The last one is durable.
    fn settle(&mut self) {
        self.states = vec![self.last()];
    }

    /// One of them was found.
    fn find(&mut self, bucket: &Bucket) {
        let found = rows(bucket);
        assert!(self.states.contains(&found), "{} rows of no commit", found.len());
        self.states = vec![found];
    }
}

fn rows(bucket: &Bucket) -> State {
    let rows = bucket.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
}

fn key(byte: u8) -> Vec<u8> {
    // Some share one hash.
    match byte % 8 {
        0 => {
            let mut key = vec![0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe];
            key.extend_from_slice(&u64::from(byte).to_le_bytes());
            key.extend_from_slice(&[7; 16]);
            key
        }
        _ => vec![byte; usize::from(byte % 5)],
    }
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let kind = usize::from(choices.byte());
    let mut disk = SimDisk::with_region(Vec::new(), 4 << 20);
    let open = |disk: &SimDisk| {
        Bucket::open_on(Arc::new(disk.reopen()), env(), options(kind)).expect("it opens again")
    };
    let created = Bucket::create_on(Arc::new(disk.reopen()), env(), options(kind));
    let mut bucket = Some(created.expect("a new bucket"));
    let mut model = Model { states: vec![State::new()] };
    let mut steps = 0;
    while choices.is_left() && steps < 60 {
        steps += 1;
        let now = bucket.take().unwrap_or_else(|| open(&disk));
        match choices.byte() % 16 {
            0..=7 => {
                let mut next = model.last();
                let mut batch = Batch::new();
                for _ in 0..choices.byte() % 12 {
                    let key = key(choices.byte());
                    match choices.byte() {
                        0..=60 => {
                            batch.delete(&key);
                            next.remove(&key);
                        }
                        value => {
                            let len = if value == 255 { 20_000 } else { usize::from(value) * 3 };
                            batch.put(&key, vec![value; len]);
                            next.insert(key, vec![value; len]);
                        }
                    }
                }
                let levels = [Durability::Relaxed, Durability::SyncOnce, Durability::Sync];
                let level = levels[usize::from(choices.byte() % 3)];
                model.begin(next);
                now.commit_with(batch, level).expect("a commit");
                if level != Durability::Relaxed {
                    model.settle();
                }
                bucket = Some(now);
            }
            8 => {
                now.flush().expect("a flush");
                model.settle();
                bucket = Some(now);
            }
            9 | 10 => {
                let kinds = [Compact::Auto, Compact::Full, Compact::LowSpace];
                now.compact(kinds[usize::from(choices.byte() % 3)]).expect("a compaction");
                bucket = Some(now);
            }
            11 => {
                now.close().expect("a clean end");
                model.settle();
            }
            // Power is lost.
            12 => {
                disk.power_off();
                drop(now);
                let trace = disk.trace();
                let image = trace.image(trace.len(), Keep::Random(choices.number()));
                disk = SimDisk::with_region(image, 4 << 20);
                let now = open(&disk);
                model.find(&now);
                bucket = Some(now);
            }
            // A call fails; the writer dies of it or not.
            13 => {
                let faults =
                    [Fault::Eio, Fault::Enospc, Fault::ShortWrite, Fault::SyncFailsThenLies];
                let fault = faults[usize::from(choices.byte() % 4)];
                disk.fail(disk.op_count() + u64::from(choices.byte() % 8), fault);
                let mut next = model.last();
                next.insert(b"failing".to_vec(), vec![1; 3000]);
                let committed = now.put(b"failing", vec![1; 3000]);
                let flushed = now.flush();
                disk.clear_faults();
                model.begin(next);
                drop(now);
                let now = open(&disk);
                if committed.is_ok() || flushed.is_ok() && committed.is_ok() {
                    model.settle();
                }
                model.find(&now);
                bucket = Some(now);
            }
            14 => {
                assert_eq!(rows(&now), model.last());
                let forth: Vec<_> = now.scan(b"").map(|row| row.unwrap().key().to_vec()).collect();
                let mut back: Vec<_> =
                    now.scan(b"").rev().map(|row| row.unwrap().key().to_vec()).collect();
                back.reverse();
                assert_eq!(forth, back);
                bucket = Some(now);
            }
            _ => {
                let key = key(choices.byte());
                let found = now.get(&key).unwrap().map(|value| value.to_vec());
                assert_eq!(found.as_ref(), model.last().get(&key));
                let snapshot = now.snapshot();
                let mut next = model.last();
                next.insert(key.clone(), b"later".to_vec());
                model.begin(next);
                now.put(&key, b"later").expect("a put");
                model.settle();
                let before = snapshot.get(&key).unwrap().map(|value| value.to_vec());
                assert_eq!(before, found);
                drop(snapshot);
                bucket = Some(now);
            }
        }
    }
    drop(bucket);
    let found = kvb::verify_on(Arc::new(disk.reopen()), env(), options(kind), &mut |_| {});
    let found = found.expect("it can be verified");
    assert!(found.is_sound(), "{:?}", found.findings);
    let now = open(&disk);
    model.find(&now);
});
