//! What several targets need: bytes taken as choices, buckets on disks in memory.

pub mod changes;
#[allow(unexpected_cfgs, reason = "there it belongs to a crate with features")]
#[path = "../../crates/kvb/tests/support/forge.rs"]
mod forge;
pub mod shared;
pub mod workplace;

use std::sync::Arc;

use host::{Disk, ManualEnv, SimDisk};
use kvb::{Batch, Bucket, Compact, Compression, Durability, Key, Keyring, Options, Reader};
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Event, Hash};

/// A day in 2023.
pub const NOW_NS: u64 = 1_700_000_000_000_000_000;

/// The key of encrypted buckets.
pub const KEY: [u8; 32] = [7; 32];

/// Choices, one after the other; zeros when the input is used up.
pub struct Choices<'a>(pub &'a [u8]);

impl<'a> Choices<'a> {
    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) =
            self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    /// Two bytes.
    pub fn short(&mut self) -> usize {
        usize::from(self.byte()) | usize::from(self.byte()) << 8
    }

    /// Up to so many bytes.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number with few or many digits.
    pub fn number(&mut self) -> u64 {
        let len = usize::from(self.byte() % 9);
        let mut bytes = [0; 8];
        let taken = self.bytes(len);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// True as long as there is something to choose.
    pub fn is_left(&self) -> bool {
        !self.0.is_empty()
    }
}

/// What a bucket needs of its surroundings.
pub fn env() -> Arc<ManualEnv> {
    Arc::new(ManualEnv::new(NOW_NS, 1))
}

/// Options for small buckets, of one of three kinds: plain with entries in the journal, compressed, encrypted.
pub fn options(kind: usize) -> Options {
    let options = Options::default()
        .background(false)
        .overlay_min(16)
        .segment_bytes_max(16 << 10)
        .durability(Durability::SyncOnce);
    match kind % 3 {
        0 => options.durability(Durability::Sync),
        1 => options.compression(Compression::Zstd),
        _ => options.encrypted(7).keys(Keyring::new().with(7, Key::new(KEY))),
    }
}

/// A small bucket that has a bit of everything, as its bytes.
pub fn small_bucket(kind: usize) -> Vec<u8> {
    let disk = SimDisk::new();
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options(kind)).unwrap();
    for number in 0..40_u32 {
        let mut batch = Batch::new();
        for at in 0..4 {
            let key = (number * 7 + at) % 50;
            match key % 5 {
                0 => batch.delete(key.to_be_bytes()),
                _ => batch.put(key.to_be_bytes(), [number as u8; 150]),
            };
        }
        bucket.commit(batch).unwrap();
        match number {
            15 => bucket.flush().unwrap(),
            25 => drop(bucket.compact(Compact::Full).unwrap()),
            _ => {}
        }
    }
    // No closing: it has a tail.
    bucket.flush().unwrap();
    bucket.put(b"tail", b"value").unwrap();
    let bytes = disk.to_bytes();
    drop(bucket);
    bytes
}

/// A file on a disk of little memory.
pub fn disk_of(bytes: Vec<u8>) -> Arc<SimDisk> {
    Arc::new(SimDisk::with_region(bytes, 4 << 20))
}

/// Does everything to a file that can be done to one. It may be refused; it must not panic, hang or take much memory.
pub fn attack(image: Vec<u8>, kind: usize) {
    let file = || disk_of(image.clone());
    let none = || disk_of(Vec::new());
    let _ = kvb::verify_on(file(), env(), options(kind), &mut |_| {});
    if let Ok(reader) = Reader::open_on_with(file(), env(), options(kind)) {
        let _ = reader.survey();
        let _ = reader.stats();
        if let Ok(snapshot) = reader.snapshot() {
            let _ = snapshot.scan(b"").take(1000).count();
            let _ = snapshot.get(3_u32.to_be_bytes());
            let _ = snapshot.backup_on(none(), env(), options(kind), &mut |_| {});
        }
        // Ten looks or so: each begins at the superblocks.
        for at in (0..image.len()).step_by(4096 * (image.len() / 40_000).max(1)) {
            let _ = reader.inspect(at as u64);
        }
        let _ =
            kvb::restore_on(&[file() as Arc<dyn Disk>], none(), env(), options(kind), &mut |_| {});
    }
    if let Ok(bucket) = Bucket::open_on(file(), env(), options(kind)) {
        let _ = bucket.survey();
        let _ = bucket.scan(b"").take(1000).count();
        let _ = bucket.scan(b"").rev().take(1000).count();
        let keys: Vec<[u8; 4]> = (0..50_u32).map(u32::to_be_bytes).collect();
        let _ = bucket.get_many(&keys);
        let mut batch = Batch::new();
        batch.put(b"new", [5; 300]);
        batch.delete(3_u32.to_be_bytes());
        let _ = bucket.commit(batch);
        let _ = bucket.compact(Compact::Full);
        let _ = bucket.flush();
    }
    let _ = kvb::repair_on(file(), Some(none()), env(), options(kind), &mut |_| {});
}

/// A checkpoint with any contents behind another one. It has no root yet.
pub fn checkpoint(choices: &mut Choices<'_>, seq: u64, prev: Hash) -> Checkpoint {
    let digests: Vec<Hash> =
        (0..choices.byte() % 3).map(|at| Hash::of(&[&seq.to_le_bytes(), &[at]])).collect();
    let mut writes = Vec::new();
    for _ in 0..choices.byte() % 6 {
        if choices.byte() == 255 {
            let len = choices.short() % 200;
            writes.push(choices.bytes(len).to_vec());
            continue;
        }
        let len = usize::from(choices.byte());
        let object = Object {
            id: Hash::of(&[&[choices.byte() % 8]]),
            version: choices.number() % 6,
            owner: match choices.byte() % 2 {
                0 => Owner::Address([choices.byte(); 32]),
                _ => Owner::Immutable,
            },
            type_tag: "0x2::coin::Coin",
            payload: &vec![7; len],
            is_tombstone: choices.byte() % 4 == 0,
        };
        writes.push(object.encode());
    }
    let params = match choices.byte() % 4 {
        0 => vec![("state_root_version".to_owned(), vec![2, 0])],
        1 => vec![(format!("p{}", choices.byte()), choices.bytes(4).to_vec())],
        _ => Vec::new(),
    };
    let count = choices.byte() % 3;
    let event = |number| Event {
        tx: u32::from(choices.byte() % 2),
        number: u32::from(number),
        bytes: vec![number],
    };
    let events: Vec<Event> = (0..count).map(event).collect();
    Checkpoint {
        header: Header {
            chain_id: 7,
            epoch: u64::from(choices.byte() % 2),
            seq,
            prev_digest: prev,
            timestamp_ms: seq.wrapping_add(1_700_000_000_000),
            tx_count: u32::try_from(digests.len()).unwrap(),
            tx_root: tx_root(&digests),
            state_root: Hash::ZERO,
            validator_set_hash: Hash::of(&[b"validators"]),
        },
        tx_digests: digests,
        writes,
        params,
        events,
    }
}
