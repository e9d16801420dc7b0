//! Snapshots and databases that somebody made up, with everything that a checksum covers in order: refused, or read as far as there is
//! something, and no memory or time for what is not there.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/chain.rs"]
mod chain;

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use chain::{Chain, dump, effort, header, memory};
use fastrand::Rng;
use host::{Dir, Disk, FileDir, MemoryDir};
use ledger::{Batch, Engine, EngineError, MemoryEngine, Table};
use misaka::format::checkpoint::tx_root;
use misaka::format::key::Key;
use misaka::format::manifest::{Chunk, Manifest};
use misaka::format::node::{self, Child, Place};
use misaka::format::object::Object;
use misaka::format::version::Version;
use misaka::snapshot::{MANIFEST, Trust, Watch, chunk_name, create, restore_into, verify};
use misaka::tables::{ALL, CHECKPOINTS, EVENTS, META, TREE, VERSIONS};
use misaka::{Checkpoint, Error, Hash, Pair, RootVersion, Settings, Store};

fn settings(v2_at: Option<u64>) -> Settings {
    Settings { chain_id: Some(7), event_retention: 3, window: 5, v2_at }
}

fn grown(settings: Settings, count: usize) -> (Store, Chain, Rng) {
    let mut rng = Rng::with_seed(21);
    let store = memory(settings);
    let mut chain = Chain::new(settings, 250);
    for _ in 0..count {
        store.apply(&chain.grow(&mut rng, 20)).unwrap();
    }
    (store, chain, rng)
}

/// A store with other rows: each of those that there are may become another one, and more may come.
fn altered(
    store: &Store,
    change: &dyn Fn(Table, &mut Pair),
    more: impl IntoIterator<Item = (Table, Pair)>,
) -> Store {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    let snapshot = store.engine().snapshot().unwrap();
    for table in ALL {
        for row in snapshot.scan(*table, (Bound::Unbounded, Bound::Unbounded)).unwrap() {
            let (key, value) = row.unwrap();
            let mut pair = (key.into_owned(), value.into_owned());
            change(*table, &mut pair);
            batch.put(*table, &pair.0, &pair.1);
        }
    }
    for (table, (key, value)) in more {
        batch.put(table, &key, &value);
    }
    engine.commit(batch).unwrap();
    Store::open(Box::new(engine), effort()).unwrap()
}

fn pairs(store: &Store, table: Table) -> Vec<Pair> {
    let at = misaka::tables::CANONICAL.iter().position(|other| *other == table).unwrap();
    dump(store).swap_remove(at)
}

#[test]
fn a_chunk_as_long_as_a_manifest_says_is_not_made_room_for() {
    let (store, ..) = grown(settings(None), 3);
    let whole = MemoryDir::new();
    let made = create(&store, &whole, 1500, 1, Watch::NOBODY).unwrap().manifest;
    let place = tempfile::tempdir().unwrap();
    let dir = FileDir::new(place.path());
    let digest = Hash::of(&[b"nobody will see"]);
    let file = dir.create(&chunk_name(0, &digest)).unwrap();
    for len in [1_u64 << 30, 1 << 40, u64::MAX] {
        let (first, last) = (made.chunks[0].first.clone(), made.chunks[0].last.clone());
        let chunks = vec![Chunk { len, entries: 1, first, last, digest }];
        let manifest = Manifest { chunks, ..made.clone() };
        dir.replace(MANIFEST, &manifest.encode()).unwrap();
        // Nothing of it takes room on the disk.
        file.set_len(len.min(1 << 40)).unwrap();
        let found = verify(&dir, Trust::default(), effort(), Watch::NOBODY).unwrap_err();
        assert!(matches!(&found, Error::Snapshot(wrong) if wrong.contains("bytes")), "{found}");
        let found = misaka::snapshot::for_each_object(&dir, &mut |_, _, _| Ok(())).unwrap_err();
        assert!(matches!(found, Error::Snapshot(_)), "{found}");
    }
}

/// Tables that know the largest batch they were given.
#[derive(Debug)]
struct Counting {
    engine: MemoryEngine,
    largest: Arc<AtomicUsize>,
}

impl Engine for Counting {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn snapshot(&self) -> Result<Box<dyn ledger::Snapshot + '_>, EngineError> {
        self.engine.snapshot()
    }

    fn commit(&self, batch: Batch) -> Result<(), EngineError> {
        self.largest.fetch_max(batch.byte_len(), Ordering::SeqCst);
        self.engine.commit(batch)
    }
}

/// A store with so many parameters, with names of so many bytes.
fn with_params(count: usize, name: usize) -> Store {
    let store = memory(settings(None));
    let mut checkpoint = Checkpoint {
        header: header(1),
        tx_digests: Vec::new(),
        writes: Vec::new(),
        params: (0..count).map(|at| (format!("{at:0name$}"), vec![1; 100])).collect(),
        events: Vec::new(),
    };
    checkpoint.header.tx_root = tx_root(&[]);
    checkpoint.header.state_root = store.root_after(&checkpoint).unwrap();
    store.apply(&checkpoint).unwrap();
    store
}

#[test]
fn parameters_are_restored_in_batches_like_everything_else() {
    let store = with_params(2000, 20);
    let dir = MemoryDir::new();
    let made = create(&store, &dir, 1500, 1, Watch::NOBODY).unwrap().manifest;
    let largest = Arc::new(AtomicUsize::new(0));
    let engine = Counting { engine: MemoryEngine::new(), largest: largest.clone() };
    let nobody = Watch::NOBODY;
    restore_into(Box::new(engine), &dir, &made, settings(None), effort(), nobody).unwrap();
    let largest = largest.load(Ordering::SeqCst);
    assert!(largest < 2 * effort().batch, "{largest} bytes in one batch");
}

/// A directory for thousands of small files.
#[derive(Debug, Default)]
struct Small {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl Dir for Small {
    fn create(&self, _: &str) -> io::Result<Arc<dyn Disk>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn open(&self, _: &str) -> io::Result<Arc<dyn Disk>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(self.files.lock().unwrap().get(name).cloned())
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.files.lock().unwrap().insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().unwrap().remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.files.lock().unwrap().keys().cloned().collect())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_manifest_that_nobody_could_read_is_not_written() {
    // Names of parameters are long, and each is in a chunk of its own.
    let store = with_params(8200, 1000);
    let dir = Small::default();
    let found = create(&store, &dir, 1, 1, Watch::NOBODY).unwrap_err();
    assert!(matches!(&found, Error::Input(wrong) if wrong.contains("manifest")), "{found}");
    assert_eq!(dir.read(MANIFEST).unwrap(), None);
    // Or the checkpoint alone is too long; that is found before anything is written.
    let store = memory(settings(None));
    let digests = vec![Hash::of(&[b"transaction"]); 530_000];
    let mut checkpoint = Checkpoint {
        header: header(1),
        tx_digests: digests,
        writes: Vec::new(),
        params: vec![("a".to_owned(), vec![1])],
        events: Vec::new(),
    };
    checkpoint.header.tx_count = 530_000;
    checkpoint.header.tx_root = tx_root(&checkpoint.tx_digests);
    checkpoint.header.state_root = store.root_after(&checkpoint).unwrap();
    store.apply(&checkpoint).unwrap();
    let dir = Small::default();
    let found = create(&store, &dir, 1500, 1, Watch::NOBODY).unwrap_err();
    assert!(matches!(&found, Error::Input(wrong) if wrong.contains("manifest")), "{found}");
    assert_eq!(dir.names().unwrap(), [""; 0]);
}

/// Rows that say that everything since checkpoint 0 is kept, and that there are so many.
fn endless(store: &Store) -> Store {
    altered(
        store,
        &|table, (key, value)| match (table, key.as_slice()) {
            (META, b"settings") => value[10..26].fill(0xff),
            (META, b"tip") => {
                value[14..22].copy_from_slice(&(1_u64 << 40).to_le_bytes());
                value[166..174].fill(0);
                value[174..182].fill(0xff);
            }
            _ => {}
        },
        [],
    )
}

#[test]
fn what_a_tip_counts_is_not_counted_to() {
    for v2_at in [None, Some(250)] {
        let (store, ..) = grown(Settings { event_retention: 5, ..settings(v2_at) }, 8);
        let other = endless(&store);
        assert_eq!(other.view().unwrap().checkpoints().unwrap(), Some((0, 1 << 40)));
        let check = other.verify(&|_, _, _| {}).unwrap();
        assert_ne!(check.findings, [""; 0]);
        for version in [RootVersion::V1, RootVersion::V2] {
            let full = |store: &Store| store.view().unwrap().full_root(version, &|_, _, _| {});
            assert_eq!(full(&other).unwrap(), full(&store).unwrap());
        }
        assert!(check.findings.len() < 100, "{}", check.findings.len());
        for table in [CHECKPOINTS, EVENTS] {
            assert_eq!(pairs(&other, table), pairs(&store, table), "{}", table.name);
        }
    }
}

#[test]
fn a_gap_between_versions_is_passed_over_at_once() {
    let (store, chain, _) = grown(settings(None), 3);
    let id = *chain.model.objects.keys().next().unwrap();
    let version = Version { digest: Hash::ZERO, is_tombstone: false, seq: 250 }.encode().to_vec();
    let numbers: Vec<u64> = (1000..18_000).chain([1 << 40, (1 << 40) + 1, u64::MAX]).collect();
    let row = |number: &u64| {
        let key = [&id.0[..], &number.to_be_bytes()].concat();
        (VERSIONS, (key, version.clone()))
    };
    let other = altered(&store, &|_, _| {}, numbers.iter().map(row));
    let mut wanted = pairs(&store, VERSIONS);
    wanted.extend(numbers.iter().map(|at| (Key::Version(id, *at).encode(), version.clone())));
    wanted.sort_unstable();
    assert!(pairs(&other, VERSIONS) == wanted);
    // Where there is nothing to see it by, it is in a snapshot, and whoever reads that refuses it.
    let dir = MemoryDir::new();
    create(&other, &dir, 1 << 20, 1, Watch::NOBODY).unwrap();
    assert!(verify(&dir, Trust::default(), effort(), Watch::NOBODY).is_err());
}

/// A leaf of the tree that says that it is a parameter, at the very path of an object, or at one that goes on like it.
#[test]
fn a_leaf_that_is_not_where_it_says_ends_a_checkpoint_and_not_the_process() {
    let (store, mut chain, mut rng) = grown(settings(Some(250)), 4);
    let next = loop {
        let mut trial = chain.clone();
        let next = trial.grow(&mut rng, 20);
        let is_old = |bytes: &Vec<u8>| Object::decode(bytes).unwrap().version > 1;
        if next.writes.iter().any(is_old) {
            chain = trial;
            break next;
        }
    };
    drop(chain);
    store.root_after(&next).unwrap();
    let lies: [fn(Hash) -> Hash; 2] = [
        |path| path,
        |mut path| {
            path.0[0] ^= 0xff;
            path
        },
    ];
    for lie in lies {
        let other = altered(
            &store,
            &|table, (_, value)| {
                if table != TREE {
                    return;
                }
                let mut children = node::decode(value).unwrap();
                for child in &mut children {
                    if let Child::Leaf(place @ Place::Object(_), _) = child {
                        *place = Place::Param(lie(place.path()));
                    }
                }
                *value = node::value(&children);
            },
            [],
        );
        let found = other.apply(&next).unwrap_err();
        assert!(matches!(&found, Error::Damaged { table: "state_tree", .. }), "{found}");
    }
}
