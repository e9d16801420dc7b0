//! Snapshots: as the vectors say, made while checkpoints go on, gone on with, refused if a byte is wrong, restored all or not at all.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/chain.rs"]
mod chain;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/trace.rs"]
mod trace;

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use chain::{Chain, dump, effort, memory};
use fastrand::Rng;
use host::{Dir, Disk, FileDir, MemoryDir};
use ledger::EngineKind;
use misaka::format::manifest::Manifest;
use misaka::snapshot::{
    MANIFEST, Trust, Verified, Watch, chunk_name, create, manifest, restore, verify,
};
use misaka::{Database, Effort, Error, Hash, Rule, Settings, Store};

fn settings(v2_at: Option<u64>) -> Settings {
    Settings { chain_id: Some(7), event_retention: 3, window: 5, v2_at }
}

/// A store after some checkpoints, and its chain.
fn grown(v2_at: Option<u64>, seed: u64, count: usize) -> (Store, Chain, Rng) {
    let mut rng = Rng::with_seed(seed);
    let store = memory(settings(v2_at));
    let mut chain = Chain::new(settings(v2_at), 250);
    for _ in 0..count {
        store.apply(&chain.grow(&mut rng, 20)).unwrap();
    }
    (store, chain, rng)
}

fn check(dir: &dyn Dir) -> Result<Verified, Error> {
    verify(dir, Trust::default(), effort(), Watch::NOBODY)
}

fn restored(dir: &dyn Dir, path: &Path, settings: Settings) -> Result<Database, Error> {
    let database = Database::new(path);
    let (trust, nobody) = (Trust::default(), Watch::NOBODY);
    restore(dir, &database, EngineKind::Kvb, settings, trust, effort(), nobody)?;
    Ok(database)
}

#[test]
fn that_of_the_trace_is_as_the_vectors_say() {
    let vectors = trace::load();
    let settings = Settings { chain_id: None, event_retention: 4, window: 6, v2_at: Some(260) };
    let store = memory(settings);
    for item in trace::list(&vectors["trace"]["checkpoints"]) {
        store.apply(&trace::checkpoint(item)).unwrap();
    }
    let dir = MemoryDir::new();
    let created = create(&store, &dir, 4096, 2, Watch::NOBODY).unwrap();
    let vector = &vectors["snapshot"];
    let header = trace::hex(&vector["snapshot_header_hex"]);
    assert_eq!(created.manifest.header.encode().to_vec(), header);
    let head = trace::hex(&vector["checkpoint_header_bytes_hex"]);
    assert_eq!(created.manifest.checkpoint[..166], head);
    let mut stream = Vec::new();
    for (number, chunk) in created.manifest.chunks.iter().enumerate() {
        let bytes = dir.read(&chunk_name(number, &chunk.digest)).unwrap().unwrap();
        assert_eq!(Hash::of(&[&bytes]), chunk.digest);
        stream.extend(bytes);
    }
    assert_eq!(Hash::of(&[&stream]), trace::hash(&vector["kv_flat_sha3_hex"]));
    let verified = check(&dir).unwrap();
    assert_eq!(verified.objects, vector["sections"]["object_store"]);
    assert_eq!(verified.versions, vector["sections"]["version_index_window_plus_latest"]);
    assert_eq!(verified.params, vector["sections"]["sys_params"]);
}

#[test]
fn a_restored_store_goes_on_as_the_other_does() {
    let first = seed::seed("a_restored_store_goes_on_as_the_other_does");
    for (round, v2_at) in (0..).zip([None, Some(255), Some(0), Some(262)]) {
        let (store, mut chain, mut rng) = grown(v2_at, first ^ round, 12);
        let dir = MemoryDir::new();
        create(&store, &dir, rng.usize(1..3000), 2, Watch::NOBODY).unwrap();
        let place = tempfile::tempdir().unwrap();
        let database = restored(&dir, &place.path().join("db"), settings(v2_at)).unwrap();
        let other = database.open(effort()).unwrap();
        assert_eq!(other.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
        assert!(other.view().unwrap().feed().unwrap().is_none(), "what came before is not there");
        // After a whole window both have the same of everything.
        for number in 0..8 {
            let checkpoint = chain.grow(&mut rng, 20);
            store.apply(&checkpoint).unwrap();
            other.apply(&checkpoint).unwrap();
            let (found, wanted) = (dump(&other), dump(&store));
            for table in [0, 1, 4] {
                assert_eq!(found[table], wanted[table], "{number} after, {v2_at:?}");
            }
            assert_eq!(other.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
        }
        assert_eq!(dump(&other), dump(&store));
    }
}

#[test]
fn a_shorter_window_lets_go_at_once() {
    let (store, mut chain, mut rng) = grown(None, 9, 12);
    let dir = MemoryDir::new();
    create(&store, &dir, 1000, 1, Watch::NOBODY).unwrap();
    let place = tempfile::tempdir().unwrap();
    let narrow = Settings { window: 2, event_retention: 1, ..settings(None) };
    let other = restored(&dir, &place.path().join("db"), narrow).unwrap().open(effort()).unwrap();
    assert_eq!(other.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
    chain.settings = narrow;
    for _ in 0..5 {
        other.apply(&chain.grow(&mut rng, 20)).unwrap();
        assert_eq!(dump(&other)[1], chain.model.dump()[1]);
    }
    assert_eq!(dump(&other), chain.model.dump());
}

#[test]
fn checkpoints_go_on_while_it_is_made() {
    let first = seed::seed("checkpoints_go_on_while_it_is_made");
    let place = tempfile::tempdir().unwrap();
    let settings = settings(Some(255));
    let database = Database::new(place.path().join("db"));
    let store = database.init(EngineKind::Kvb, settings, effort()).unwrap();
    let mut rng = Rng::with_seed(first);
    let mut chain = Chain::new(settings, 250);
    for _ in 0..8 {
        store.apply(&chain.grow(&mut rng, 60)).unwrap();
    }
    let (wanted, tip) = (dump(&store), chain.next - 1);
    let dir = MemoryDir::new();
    let applied = AtomicU64::new(0);
    let growing = std::sync::Mutex::new((chain, rng));
    // At every chunk another checkpoint is applied.
    let progress = |_, _, _| {
        let (chain, rng) = &mut *growing.lock().unwrap();
        store.apply(&chain.grow(rng, 60)).unwrap();
        applied.fetch_add(1, Ordering::SeqCst);
    };
    let watch = Watch { progress: &progress, stop: &|| false };
    let created = create(&store, &dir, 2000, 2, watch).unwrap();
    assert!(applied.load(Ordering::SeqCst) >= 4, "{applied:?}");
    assert_eq!(created.manifest.header.seq, tip);
    check(&dir).unwrap();
    let other =
        restored(&dir, &place.path().join("other"), settings).unwrap().open(effort()).unwrap();
    let found = dump(&other);
    for table in [0, 1, 4] {
        assert_eq!(found[table], wanted[table]);
    }
    assert_eq!(other.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
}

/// A directory in memory with the same files.
fn copy(dir: &MemoryDir) -> MemoryDir {
    let other = MemoryDir::new();
    for name in dir.names().unwrap() {
        other.replace(&name, &dir.read(&name).unwrap().unwrap()).unwrap();
    }
    other
}

#[test]
fn one_flipped_byte_anywhere_is_refused() {
    let first = seed::seed("one_flipped_byte_anywhere_is_refused");
    let mut rng = Rng::with_seed(first);
    for v2_at in [None, Some(0)] {
        let (store, ..) = grown(v2_at, first, 8);
        let dir = MemoryDir::new();
        create(&store, &dir, 1500, 1, Watch::NOBODY).unwrap();
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("db");
        for name in dir.names().unwrap() {
            let bytes = dir.read(&name).unwrap().unwrap();
            let all = name == MANIFEST;
            let places: Vec<usize> = match all {
                true => (0..bytes.len()).collect(),
                false => (0..60).map(|_| rng.usize(..bytes.len())).collect(),
            };
            for at in places {
                let other = copy(&dir);
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << rng.u8(..8);
                other.replace(&name, &flipped).unwrap();
                assert!(check(&other).is_err(), "{name}, byte {at}");
                if rng.u8(..40) == 0 {
                    assert!(restored(&other, &path, settings(v2_at)).is_err(), "{name}, byte {at}");
                    assert!(Database::new(&path).open(effort()).is_err(), "nothing has the name");
                }
            }
            for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
                let other = copy(&dir);
                other.replace(&name, &bytes[..cut]).unwrap();
                assert!(check(&other).is_err(), "{name} cut to {cut}");
            }
            let other = copy(&dir);
            other.replace(&name, &[&bytes[..], &[0]].concat()).unwrap();
            assert!(check(&other).is_err(), "{name} and a byte more");
            let other = copy(&dir);
            other.remove(&name).unwrap();
            assert!(check(&other).is_err(), "without {name}");
        }
        restored(&dir, &path, settings(v2_at)).unwrap();
    }
}

/// A snapshot whose entries somebody made up, with digests that fit.
fn forged(dir: &MemoryDir, change: &dyn Fn(&mut Manifest, &mut Vec<misaka::Pair>)) -> MemoryDir {
    let mut manifest = manifest(dir).unwrap();
    let mut pairs = Vec::new();
    for (number, chunk) in manifest.chunks.iter().enumerate() {
        let bytes = dir.read(&chunk_name(number, &chunk.digest)).unwrap().unwrap();
        let mut decoder = misaka::format::mcs::Decoder::new(&bytes);
        while let Some((key, value)) = misaka::format::snapshot::entry(&mut decoder).unwrap() {
            pairs.push((key.to_vec(), value.to_vec()));
        }
    }
    change(&mut manifest, &mut pairs);
    let other = MemoryDir::new();
    manifest.chunks.clear();
    for part in pairs.chunks(50) {
        let mut bytes = Vec::new();
        for (key, value) in part {
            misaka::format::snapshot::put_entry(&mut bytes, key, value);
        }
        let digest = Hash::of(&[&bytes]);
        other.replace(&chunk_name(manifest.chunks.len(), &digest), &bytes).unwrap();
        manifest.chunks.push(misaka::format::manifest::Chunk {
            len: u64::try_from(bytes.len()).unwrap(),
            entries: u64::try_from(part.len()).unwrap(),
            first: part[0].0.clone(),
            last: part[part.len() - 1].0.clone(),
            digest,
        });
    }
    other.replace(MANIFEST, &manifest.encode()).unwrap();
    other
}

#[test]
fn what_somebody_made_up_is_refused_by_the_rule() {
    for v2_at in [None, Some(0)] {
        let (store, ..) = grown(v2_at, 5, 8);
        let dir = MemoryDir::new();
        create(&store, &dir, 1500, 1, Watch::NOBODY).unwrap();
        check(&forged(&dir, &|_, _| {})).unwrap();
        let place = tempfile::tempdir().unwrap();
        let number = RefCell::new(0);
        let refused =
            |rule: Option<Rule>, change: &dyn Fn(&mut Manifest, &mut Vec<misaka::Pair>)| {
                let other = forged(&dir, change);
                let found = check(&other).unwrap_err();
                if let Some(rule) = rule {
                    assert_eq!(found.rule(), Some(rule), "{found}");
                }
                *number.borrow_mut() += 1;
                let path = place.path().join(number.borrow().to_string());
                let found = restored(&other, &path, settings(v2_at)).unwrap_err();
                assert!(Database::new(&path).open(effort()).is_err(), "{found}");
            };
        let at = |pairs: &[misaka::Pair], prefix: &str| {
            pairs.iter().position(|(key, _)| key.starts_with(prefix.as_bytes())).unwrap()
        };
        refused(Some(Rule::KeyOrder), &|_, pairs| pairs.swap(1, 2));
        refused(Some(Rule::KeyOrder), &|_, pairs| pairs.insert(1, pairs[0].clone()));
        refused(Some(Rule::VersionMismatch), &|_, pairs| drop(pairs.remove(0)));
        refused(Some(Rule::VersionMismatch), &|_, pairs| drop(pairs.pop()));
        refused(Some(Rule::VersionGap), &|_, pairs| {
            let same = |three: &[misaka::Pair]| {
                three
                    .iter()
                    .all(|(key, _)| key.starts_with(b"ver/") && key[..36] == three[0].0[..36])
            };
            let at = pairs.windows(3).position(same).unwrap();
            pairs.remove(at + 1);
        });
        refused(Some(Rule::KeyPrefix), &|_, pairs| pairs.insert(0, (b"a".to_vec(), vec![])));
        refused(Some(Rule::KeyPrefix), &|_, pairs| pairs.push((b"zzz".to_vec(), vec![])));
        refused(Some(Rule::KeyPrefix), &|_, pairs| {
            pairs.insert(0, (misaka::format::key::Key::Checkpoint(1).encode(), vec![1]));
        });
        refused(Some(Rule::TrailingBytes), &|_, pairs| pairs[0].1.push(0));
        refused(Some(Rule::ObjectId), &|_, pairs| pairs[0].1[5] ^= 1);
        refused(Some(Rule::VersionSeq), &|_, pairs| {
            let at = at(pairs, "ver/");
            pairs[at].1[40] = 1;
        });
        // Another state with a root that does not fit.
        refused(Some(Rule::StateRoot), &|_, pairs| {
            let name = b"sys/params/zz".to_vec();
            let at = pairs.partition_point(|(key, _)| *key < name);
            pairs.insert(at, (name, vec![1]));
        });
        refused(None, &|manifest, _| manifest.header.seq += 1);
        refused(None, &|manifest, _| manifest.header.state_root.0[0] ^= 1);
        refused(None, &|manifest, _| manifest.header.validator_set_hash.0[0] ^= 1);
        refused(None, &|manifest, _| manifest.header.state_root_version ^= 3);
        refused(None, &|manifest, _| manifest.checkpoint[60] ^= 1);
    }
}

/// Mithril GHSA-qv97-5qr8-2266: an archive could have files that its signed digest did not cover, and they were restored.
#[test]
fn files_that_the_manifest_does_not_name_are_not_restored() {
    let (store, ..) = grown(None, 6, 5);
    let dir = MemoryDir::new();
    let made = create(&store, &dir, 1500, 1, Watch::NOBODY).unwrap().manifest;
    let place = tempfile::tempdir().unwrap();
    let plain = restored(&dir, &place.path().join("plain"), settings(None)).unwrap();
    let extra = Hash::of(&[b"extra"]);
    for name in [chunk_name(made.chunks.len(), &extra), "db.kvb".to_owned(), "LOCK".to_owned()] {
        dir.replace(&name, b"anything").unwrap();
    }
    let other = restored(&dir, &place.path().join("other"), settings(None)).unwrap();
    let files = |name: &str| {
        let entries = std::fs::read_dir(place.path().join(name)).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(files("other"), files("plain"));
    let rows = |database: &Database| dump(&database.open(effort()).unwrap());
    assert_eq!(rows(&other), rows(&plain));
}

#[test]
fn only_what_is_trusted_is_taken() {
    let (store, ..) = grown(None, 6, 5);
    let dir = MemoryDir::new();
    let header = create(&store, &dir, 1500, 1, Watch::NOBODY).unwrap().manifest.header;
    let with = |checkpoint, validator_set| {
        let trust = Trust { checkpoint, validator_set, ..Trust::default() };
        verify(&dir, trust, effort(), Watch::NOBODY)
    };
    with(Some(header.digest), Some(header.validator_set_hash)).unwrap();
    let found = with(Some(Hash::ZERO), None).unwrap_err();
    assert_eq!(found.rule(), Some(Rule::CheckpointDigest));
    let found = with(None, Some(Hash::ZERO)).unwrap_err();
    assert_eq!(found.rule(), Some(Rule::ValidatorSetHash));
    let place = tempfile::tempdir().unwrap();
    let other = Settings { chain_id: Some(8), ..settings(None) };
    let found = restored(&dir, &place.path().join("db"), other).unwrap_err();
    assert_eq!(found.rule(), Some(Rule::ChainId));
    let later = restored(&dir, &place.path().join("db"), settings(Some(1))).unwrap_err();
    assert!(matches!(later, Error::Settings { .. }), "{later}");
    // Only into a directory that has nothing.
    restored(&dir, &place.path().join("db"), settings(None)).unwrap();
    let again = restored(&dir, &place.path().join("db"), settings(None)).unwrap_err();
    assert!(matches!(again, Error::NotEmpty(_)), "{again}");
}

/// The digest of a checkpoint says nothing of versions older than the newest of their objects: no root is of them.
#[test]
fn older_versions_are_restored_only_if_the_manifest_is_trusted_too() {
    for v2_at in [None, Some(0)] {
        let (store, mut chain, mut rng) = grown(v2_at, 6, 8);
        let dir = MemoryDir::new();
        let made = create(&store, &dir, 1500, 1, Watch::NOBODY).unwrap().manifest;
        let older = |pairs: &[misaka::Pair]| {
            let is_older = |two: &[misaka::Pair]| two[0].0[..36] == two[1].0[..36];
            let from = pairs.iter().position(|(key, _)| key.starts_with(b"ver/")).unwrap();
            from + pairs[from..].windows(2).position(is_older).unwrap()
        };
        let other = forged(&dir, &|_, pairs| {
            let at = older(pairs);
            pairs[at].1[..32].fill(0x11);
        });
        let is_forged = |(_, value): &misaka::Pair| value.starts_with(&[0x11; 32]);
        let place = tempfile::tempdir().unwrap();
        let with = |dir: &MemoryDir, name: &str, trust| {
            let database = Database::new(place.path().join(name));
            let (settings, nobody) = (settings(v2_at), Watch::NOBODY);
            restore(dir, &database, EngineKind::Kvb, settings, trust, effort(), nobody)
                .map(|restored| (restored.has_older_versions, database.open(effort()).unwrap()))
        };
        let checkpoint = Some(made.header.digest);
        let trust = Trust { checkpoint, ..Trust::default() };
        // What was begun without trust is not gone on with.
        let begun = Database::new(place.path().join("checkpoint"));
        let count = AtomicU64::new(0);
        let stop = || count.fetch_add(1, Ordering::SeqCst) >= 12;
        let watch = Watch { progress: &|_, _, _| {}, stop: &stop };
        let (kind, nobody) = (EngineKind::Kvb, Trust::default());
        restore(&other, &begun, kind, settings(v2_at), nobody, effort(), watch).unwrap_err();
        let (has_older, found) = with(&other, "checkpoint", trust).unwrap();
        assert!(!has_older);
        let versions = dump(&found)[1].clone();
        assert!(!versions.iter().any(is_forged));
        assert_eq!(versions.len(), dump(&found)[0].len(), "one of each object");
        assert_eq!(found.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
        // The other digest is of all that is in it.
        let manifest = Some(made.digest());
        let refused = with(&other, "manifest", Trust { manifest, ..trust }).unwrap_err();
        assert_eq!(refused.rule(), Some(Rule::ManifestDigest), "{refused}");
        let (has_older, whole) = with(&dir, "manifest", Trust { manifest, ..trust }).unwrap();
        assert!(has_older);
        assert_eq!(dump(&whole)[1], dump(&store)[1]);
        // Who trusts nothing gets what there is.
        let (has_older, blind) = with(&other, "blind", Trust::default()).unwrap();
        assert!(has_older && dump(&blind)[1].iter().any(is_forged));
        // After a whole window all have the same.
        for _ in 0..8 {
            let checkpoint = chain.grow(&mut rng, 20);
            for store in [&store, &*found, &*whole] {
                store.apply(&checkpoint).unwrap();
            }
        }
        assert_eq!(dump(&found), dump(&store));
        assert_eq!(dump(&whole), dump(&store));
    }
}

#[test]
fn making_it_can_be_stopped_and_gone_on_with() {
    let (store, mut chain, mut rng) = grown(Some(255), 7, 9);
    let place = tempfile::tempdir().unwrap();
    let whole = MemoryDir::new();
    let wanted = create(&store, &whole, 600, 1, Watch::NOBODY).unwrap().manifest;
    let dir = FileDir::new(place.path());
    for stop_after in [1, 3, 6] {
        let count = AtomicU64::new(0);
        let stop = || count.fetch_add(1, Ordering::SeqCst) >= stop_after;
        let watch = Watch { progress: &|_, _, _| {}, stop: &stop };
        assert!(matches!(create(&store, &dir, 600, 1, watch), Err(Error::Interrupted)));
        let found = manifest(&dir).unwrap_err().to_string();
        assert!(found.contains("not finished"), "{found}");
    }
    // A chunk that was damaged meanwhile is made again, and those after it.
    let name = dir.names().unwrap().into_iter().filter(|name| name.starts_with("chunk-")).nth(1);
    let path = place.path().join(name.unwrap());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let created = create(&store, &dir, 600, 2, Watch::NOBODY).unwrap();
    assert_eq!(created.resumed, 1);
    assert_eq!(created.manifest, wanted);
    check(&dir).unwrap();
    // Again: it is there. At the next checkpoint: it is another one.
    assert_eq!(create(&store, &dir, 600, 2, Watch::NOBODY).unwrap().manifest, wanted);
    store.apply(&chain.grow(&mut rng, 5)).unwrap();
    let found = create(&store, &dir, 600, 2, Watch::NOBODY).unwrap_err();
    assert!(matches!(found, Error::NotEmpty(_)), "{found}");
    // One that was begun at an older checkpoint is begun anew.
    let dir = MemoryDir::new();
    let asked = AtomicU64::new(0);
    let stop = || asked.fetch_add(1, Ordering::SeqCst) > 3;
    let watch = Watch { progress: &|_, _, _| {}, stop: &stop };
    assert!(create(&store, &dir, 600, 1, watch).is_err());
    store.apply(&chain.grow(&mut rng, 5)).unwrap();
    assert_eq!(create(&store, &dir, 600, 1, Watch::NOBODY).unwrap().resumed, 0);
    check(&dir).unwrap();
    // A directory with something else in it is left alone.
    let dir = MemoryDir::new();
    dir.replace("letter", b"dear").unwrap();
    assert!(matches!(create(&store, &dir, 600, 1, Watch::NOBODY), Err(Error::NotEmpty(_))));
    assert_eq!(dir.names().unwrap(), ["letter"]);
}

#[test]
fn restoring_can_be_stopped_and_gone_on_with() {
    let (store, ..) = grown(Some(255), 8, 9);
    let dir = MemoryDir::new();
    create(&store, &dir, 600, 1, Watch::NOBODY).unwrap();
    let place = tempfile::tempdir().unwrap();
    let database = Database::new(place.path().join("db"));
    let effort = Effort { batch: 300, ..effort() };
    let settings = settings(Some(255));
    for stop_after in [0, 2, 4, 6] {
        let count = AtomicU64::new(0);
        let stop = || count.fetch_add(1, Ordering::SeqCst) >= stop_after;
        let watch = Watch { progress: &|_, _, _| {}, stop: &stop };
        let trust = Trust::default();
        let found = restore(&dir, &database, EngineKind::Kvb, settings, trust, effort, watch);
        assert!(matches!(found, Err(Error::Interrupted)), "{found:?}");
        assert!(database.open(effort).is_err(), "nothing has the name");
    }
    let trust = Trust::default();
    let done =
        restore(&dir, &database, EngineKind::Kvb, settings, trust, effort, Watch::NOBODY).unwrap();
    assert!(done.is_resumed);
    let other = database.open(effort).unwrap();
    assert_eq!(other.verify(&|_, _, _| {}).unwrap().findings, [""; 0]);
    for table in [0, 1, 4] {
        assert_eq!(dump(&other)[table], dump(&store)[table]);
    }
    assert_eq!(done.objects, u64::try_from(dump(&store)[0].len()).unwrap());
    // Another snapshot in the same place begins anew.
    let database = Database::new(place.path().join("second"));
    let count = AtomicU64::new(0);
    let stop = || count.fetch_add(1, Ordering::SeqCst) >= 7;
    let watch = Watch { progress: &|_, _, _| {}, stop: &stop };
    assert!(restore(&dir, &database, EngineKind::Kvb, settings, trust, effort, watch).is_err());
    let (later, ..) = grown(Some(255), 8, 11);
    let dir = MemoryDir::new();
    create(&later, &dir, 600, 1, Watch::NOBODY).unwrap();
    let nobody = Watch::NOBODY;
    let done = restore(&dir, &database, EngineKind::Kvb, settings, trust, effort, nobody).unwrap();
    assert!(!done.is_resumed);
    assert_eq!(dump(&database.open(effort).unwrap())[1], dump(&later)[1]);
}

/// A directory of which a call fails: the disk is full, or broken.
#[derive(Debug)]
struct Faulty {
    dir: MemoryDir,
    calls: AtomicI64,
}

impl Faulty {
    fn call<T>(&self, call: impl FnOnce(&MemoryDir) -> io::Result<T>) -> io::Result<T> {
        match self.calls.fetch_sub(1, Ordering::SeqCst) {
            0 => Err(io::Error::from(io::ErrorKind::StorageFull)),
            _ => call(&self.dir),
        }
    }
}

impl Dir for Faulty {
    fn create(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.call(|dir| dir.create(name))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        self.call(|dir| dir.open(name))
    }

    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.call(|dir| dir.read(name))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.call(|dir| dir.replace(name, bytes))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|dir| dir.remove(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.call(MemoryDir::names)
    }

    fn sync(&self) -> io::Result<()> {
        self.call(MemoryDir::sync)
    }
}

#[test]
fn a_call_that_fails_ends_it_and_the_next_run_goes_on() {
    let (store, ..) = grown(Some(255), 12, 9);
    let whole = MemoryDir::new();
    let wanted = create(&store, &whole, 600, 1, Watch::NOBODY).unwrap().manifest;
    let place = tempfile::tempdir().unwrap();
    let (mut made, mut read) = (0, 0);
    for call in 0..60 {
        let dir = Faulty { dir: MemoryDir::new(), calls: AtomicI64::new(call) };
        // Whoever sends chunks must not wait for writers that gave up.
        if let Err(error) = create(&store, &dir, 600, 2, Watch::NOBODY) {
            assert!(matches!(error, Error::Io { .. }), "call {call}: {error}");
            made += 1;
            assert_eq!(create(&store, &dir, 600, 2, Watch::NOBODY).unwrap().manifest, wanted);
        }
        dir.calls.store(call, Ordering::SeqCst);
        if let Err(error) = check(&dir) {
            assert!(matches!(error, Error::Io { .. }), "call {call}: {error}");
            read += 1;
        }
        dir.calls.store(call, Ordering::SeqCst);
        let path = place.path().join(call.to_string());
        if restored(&dir, &path, settings(Some(255))).is_err() {
            assert!(Database::new(&path).open(effort()).is_err(), "nothing has the name");
            restored(&dir, &path, settings(Some(255))).unwrap();
        }
        let other = Database::new(&path).open(effort()).unwrap();
        assert_eq!(dump(&other)[1], dump(&store)[1], "call {call}");
    }
    assert!(made > 10 && read > 10, "{made}, {read}");
}
