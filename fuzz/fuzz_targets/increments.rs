//! A backup and its increments with changed bytes, under right checksums: they are refused, or what is restored can be read.

#![no_main]

use std::sync::{Arc, LazyLock};

use host::{Disk, SimDisk};
use kvb::{Batch, Bucket, Compact, Reader};
use kvb_fuzz::changes::Changed;
use kvb_fuzz::{Choices, disk_of, env, options};
use libfuzzer_sys::fuzz_target;

/// A backup and two increments of each kind, the second made from keys because the log has forgotten.
static CHAINS: LazyLock<Vec<Vec<Vec<u8>>>> = LazyLock::new(|| (0..3).map(chain).collect());

fn chain(kind: usize) -> Vec<Vec<u8>> {
    let bucket = Bucket::create_on(disk_of(Vec::new()), env(), options(kind)).unwrap();
    let mut files: Vec<Vec<u8>> = Vec::new();
    for round in 0..3_u32 {
        let mut batch = Batch::new();
        for key in (round * 10..60).step_by(3) {
            match key % 4 {
                0 if round > 0 => batch.delete(key.to_be_bytes()),
                _ => batch.put(key.to_be_bytes(), [round as u8; 150]),
            };
        }
        bucket.commit(batch).unwrap();
        if round == 2 {
            bucket.compact(Compact::Full).unwrap();
        }
        let before: Vec<Arc<dyn Disk>> =
            files.iter().map(|file| -> Arc<dyn Disk> { disk_of(file.clone()) }).collect();
        let made = Arc::new(SimDisk::with_region(Vec::new(), 4 << 20));
        let snapshot = bucket.snapshot();
        let target: Arc<dyn Disk> = Arc::<SimDisk>::clone(&made);
        let done = match round {
            0 => snapshot.backup_on(target, env(), options(kind), &mut |_| {}),
            _ => snapshot.backup_since_on(target, env(), &before, options(kind), &mut |_| {}),
        };
        done.unwrap();
        files.push(made.to_bytes());
    }
    files
}

fuzz_target!(|input: &[u8]| {
    let mut choices = Choices(input);
    let kind = usize::from(choices.byte() % 3);
    let chain = &CHAINS[kind];
    let is_repaired = choices.byte() % 4 != 0;
    let mut files: Vec<Changed> = chain.iter().map(|file| Changed::new(file, kind == 2)).collect();
    while choices.is_left() {
        let at = usize::from(choices.byte()) % files.len();
        files[at].change(&mut choices);
    }
    let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
    for (changed, whole) in files.iter_mut().zip(chain) {
        if is_repaired && changed.file != *whole {
            changed.repair();
        }
        disks.push(disk_of(std::mem::take(&mut changed.file)));
    }
    let target = disk_of(Vec::new());
    let made = Arc::<SimDisk>::clone(&target);
    if kvb::restore_on(&disks, target, env(), options(kind), &mut |_| {}).is_ok() {
        // It was verified before anybody was told.
        let reader = Reader::open_on_with(made, env(), options(kind)).unwrap();
        for row in reader.snapshot().unwrap().scan(b"") {
            row.unwrap();
        }
    }
    // What an increment of a bucket is may be anything too.
    let bucket = Bucket::create_on(disk_of(Vec::new()), env(), options(kind)).unwrap();
    bucket.put(b"key", b"value").unwrap();
    let target = disk_of(Vec::new());
    let _ = bucket.snapshot().backup_since_on(target, env(), &disks, options(kind), &mut |_| {});
});
