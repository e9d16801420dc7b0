//! Random chains: checkpoints that a store takes, with the right roots, and a plain model of the stores.

#![allow(dead_code, reason = "every test file uses a part of this")]

use std::collections::BTreeMap;

use fastrand::Rng;
use ledger::MemoryEngine;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::key::Key;
use misaka::format::object::{Object, Owner};
use misaka::format::version::Version;
use misaka::tables::CANONICAL;
use misaka::{Checkpoint, Effort, Event, Hash, Pair, RootVersion, Settings, Store, root2};

/// Little of everything, so that every limit is met.
pub(crate) fn effort() -> Effort {
    Effort { memory: 64 << 20, threads: 2, batch: 2000 }
}

pub(crate) fn memory(settings: Settings) -> Store {
    Store::init(Box::new(MemoryEngine::new()), settings, effort()).unwrap()
}

/// All pairs of all stores, in the order of their keys.
pub(crate) fn dump(store: &Store) -> Vec<Vec<Pair>> {
    let view = store.view().unwrap();
    let rows = |table| {
        let mut rows = Vec::new();
        view.for_each(table, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
        rows
    };
    CANONICAL.iter().map(|table| rows(*table)).collect()
}

/// The stores as one plain map of keys and values, with nothing clever about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) tip: Option<Header>,
    /// The newest version of each object, whether it can be written.
    pub(crate) objects: BTreeMap<Hash, (u64, bool)>,
}

impl Model {
    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.rows.insert(key.encode(), value);
    }

    /// Everything but the checkpoint itself, and without pruning.
    fn write(&mut self, checkpoint: &Checkpoint, seq: u64) {
        for bytes in &checkpoint.writes {
            let object = Object::decode(bytes).unwrap();
            let digest = Hash::of(&[bytes]);
            let version = Version { digest, is_tombstone: object.is_tombstone, seq };
            self.put(Key::Object(object.id), bytes.clone());
            self.put(Key::Version(object.id, object.version), version.encode().to_vec());
            let is_open = !object.is_tombstone && object.owner != Owner::Immutable;
            self.objects.insert(object.id, (object.version, is_open));
        }
        for (name, value) in &checkpoint.params {
            self.put(Key::Param(name.clone()), value.clone());
        }
        for event in &checkpoint.events {
            self.put(Key::Event(seq, event.tx, event.number), event.bytes.clone());
        }
    }

    /// What the root is of.
    fn state(&self) -> Vec<Pair> {
        let is_state = |(key, _): &(&Vec<u8>, &Vec<u8>)| match Key::decode(key).unwrap() {
            Key::Object(_) | Key::Param(_) => true,
            Key::Version(id, version) => self.objects[&id].0 == version,
            _ => false,
        };
        self.rows.iter().filter(is_state).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub(crate) fn root(&self, version: RootVersion) -> Hash {
        match version {
            RootVersion::V1 => root2::root1_of(&self.state()).unwrap(),
            RootVersion::V2 => root2::root_of(&self.state()).unwrap(),
        }
    }

    /// Gives a checkpoint its header, and applies it.
    pub(crate) fn apply(&mut self, checkpoint: &mut Checkpoint, settings: Settings) {
        let seq = checkpoint.header.seq;
        self.write(checkpoint, seq);
        let header = &mut checkpoint.header;
        header.prev_digest = self.tip.as_ref().map_or(Hash::ZERO, Header::digest);
        header.tx_count = u32::try_from(checkpoint.tx_digests.len()).unwrap();
        header.tx_root = tx_root(&checkpoint.tx_digests);
        header.state_root = self.root(settings.root_version(seq));
        let value = misaka::format::checkpoint::value(header, &checkpoint.tx_digests);
        self.tip = Some(header.clone());
        self.put(Key::Checkpoint(seq), value);
        let objects = self.objects.clone();
        let is_over = |of: u64, window: u64| of + window <= seq;
        self.rows.retain(|key, value| match Key::decode(key).unwrap() {
            Key::Version(id, version) => {
                let of = Version::decode(value).unwrap().seq;
                objects[&id].0 == version || !is_over(of, settings.window)
            }
            Key::Checkpoint(of) => !is_over(of, settings.window),
            Key::Event(of, ..) => !is_over(of, settings.event_retention),
            Key::Object(_) | Key::Param(_) => true,
        });
    }

    /// The same as [`dump`].
    pub(crate) fn dump(&self) -> Vec<Vec<Pair>> {
        let prefixes: [&[u8]; 5] = [b"obj/", b"ver/", b"ckpt/", b"evt/", b"sys/params/"];
        let rows = |prefix: &[u8]| {
            let rows = self.rows.iter().filter(|(key, _)| key.starts_with(prefix));
            rows.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        prefixes.iter().map(|prefix| rows(prefix)).collect()
    }
}

pub(crate) fn header(seq: u64) -> Header {
    Header {
        chain_id: 7,
        epoch: seq / 100,
        seq,
        prev_digest: Hash::ZERO,
        timestamp_ms: 1_700_000_000_000 + seq * 1000,
        tx_count: 0,
        tx_root: Hash::ZERO,
        state_root: Hash::ZERO,
        validator_set_hash: Hash::of(&[b"validators"]),
    }
}

/// A chain that grows.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) model: Model,
    pub(crate) settings: Settings,
    pub(crate) next: u64,
    made: u64,
}

impl Chain {
    pub(crate) fn new(settings: Settings, first: u64) -> Chain {
        Chain { model: Model::default(), settings, next: first, made: 0 }
    }

    /// A checkpoint with so many writes at most, and the state after it in the model.
    pub(crate) fn grow(&mut self, rng: &mut Rng, writes_max: usize) -> Checkpoint {
        let seq = self.next;
        let mut checkpoint = Checkpoint {
            header: header(seq),
            tx_digests: (0..rng.u64(..5))
                .map(|tx| Hash::of(&[&seq.to_le_bytes(), &tx.to_le_bytes()]))
                .collect(),
            writes: Vec::new(),
            params: Vec::new(),
            events: Vec::new(),
        };
        let mut objects = self.model.objects.clone();
        let mut open: Vec<Hash> =
            objects.iter().filter(|(_, (_, is_open))| *is_open).map(|(id, _)| *id).collect();
        for _ in 0..rng.usize(..=writes_max) {
            // A few are written again and again.
            let at = if rng.u8(..3) == 0 { rng.usize(..3) } else { rng.usize(..=open.len()) };
            let old = open.get(at).filter(|_| rng.u8(..5) > 1).copied();
            let id = old.unwrap_or_else(|| {
                self.made += 1;
                Hash::of(&[b"object", &self.made.to_le_bytes()])
            });
            let version = objects.get(&id).map_or(1, |(version, _)| version + 1);
            let (owner, payload) = random_body(rng);
            let is_tombstone = old.is_some() && rng.u8(..8) == 0;
            let payload = if is_tombstone { &[] } else { payload.as_slice() };
            let object =
                Object { id, version, owner, type_tag: "0x2::coin::Coin", payload, is_tombstone };
            let is_open = !is_tombstone && owner != Owner::Immutable;
            objects.insert(id, (version, is_open));
            match old {
                Some(_) if !is_open => drop(open.swap_remove(at)),
                None if is_open => open.push(id),
                _ => {}
            }
            checkpoint.writes.push(object.encode());
        }
        if rng.u8(..4) == 0 {
            let name = format!("p{}", rng.u8(..5));
            checkpoint.params.push((name, vec![rng.u8(..); rng.usize(..40)]));
        }
        if self.settings.v2_at == Some(seq)
            || (self.model.tip.is_none() && self.settings.root_version(seq) == RootVersion::V2)
        {
            checkpoint.params.push(("state_root_version".to_owned(), vec![2, 0]));
        }
        for tx in 0..rng.u32(..4) {
            for number in 0..rng.u32(..4) {
                // Numbers whose bytes have another order than they have.
                let tx = tx * 200;
                let bytes = vec![rng.u8(..); rng.usize(..50)];
                checkpoint.events.push(Event { tx, number: number * 300, bytes });
            }
        }
        rng.shuffle(&mut checkpoint.events);
        self.model.apply(&mut checkpoint, self.settings);
        self.next += 1;
        checkpoint
    }
}

fn random_body(rng: &mut Rng) -> (Owner, Vec<u8>) {
    let owner = match rng.u8(..10) {
        0 => Owner::Object([rng.u8(..4); 32]),
        1 => Owner::Shared(rng.u64(..)),
        2 => Owner::Immutable,
        _ => Owner::Address([rng.u8(..4); 32]),
    };
    let payload: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
    (owner, payload)
}
