//! Remakes: a bucket written anew in its own place, with other settings and the same rows.
//!
//! Whatever happens meanwhile, the file is the old bucket or the new one, whole. The new one is written to another file,
//! which is tested on the simulated disk: it must be durable in every byte before it may take the name. That names change
//! hands as they should is tested with real files and processes that die. `KVB_SEED=n` replays a failing seed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/seed.rs"]
mod seed;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use fastrand::Rng;
use host::{Disk, Env, Fault, Keep, ManualEnv, SimDisk};
use kvb::{
    Batch, Bucket, Compact, Compression, Durability, Error, HashKind, Key, Keyring, Options,
    Reader, Snapshot,
};

const START_NS: u64 = 1_700_000_000_000_000_000;

/// Key to value, seqno and deadline.
type Rows = BTreeMap<Vec<u8>, (Vec<u8>, u64, Option<u64>)>;

fn quiet(_: kvb::Progress) {}

fn rows(snapshot: &Snapshot<'_>) -> Rows {
    let rows = snapshot.scan(b"").map(|row| row.unwrap());
    rows.map(|row| (row.key().to_vec(), (row.value().to_vec(), row.seqno(), row.expires_unix_ns())))
        .collect()
}

fn env() -> Arc<dyn Env> {
    Arc::new(ManualEnv::new(START_NS, 5))
}

fn one_key(id: u8) -> Keyring {
    Keyring::new().with(id.into(), Key::new([id; 32]))
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// A way to make a bucket.
struct Kind {
    name: &'static str,
    make: fn(Options) -> Options,
    /// What only opens it.
    opening: fn() -> Options,
}

fn kinds() -> Vec<Kind> {
    let kind = |name, make, opening| Kind { name, make, opening };
    vec![
        kind("plain", Options::plain, Options::default),
        kind("compressed", |old| old.plain().compression(Compression::Zstd), Options::default),
        kind(
            "large pages, keyed hash, no directories",
            |old| {
                old.plain()
                    .compression(Compression::None)
                    .page_size(16_384)
                    .segment_bytes_max(128 << 10)
                    .hash(HashKind::SipHash)
                    .directories(false)
            },
            Options::default,
        ),
        kind(
            "encrypted",
            |old| old.encrypted(1).keys(one_key(1)),
            || Options::default().keys(one_key(1)),
        ),
        kind(
            "under another key, compressed, small pages, long journal",
            |old| {
                old.encrypted(2)
                    .keys(one_key(2))
                    .compression(Compression::Zstd)
                    .page_size(4096)
                    .segment_bytes_max(32 << 10)
                    .journal_pages(20)
                    .directories(true)
            },
            || Options::default().keys(one_key(2)),
        ),
    ]
}

/// What goes on in a bucket before it is remade.
fn fill(bucket: &Bucket, rng: &mut Rng) {
    for step in 0..60 {
        let mut batch = Batch::new();
        for _ in 0..rng.usize(1..20) {
            let key = format!("key {:03}", rng.usize(..300)).into_bytes();
            let mut value = b"a secret value ".repeat(rng.usize(..12));
            value.push(rng.u8(..));
            match rng.u8(..10) {
                0..3 => drop(batch.delete(key)),
                3 => drop(batch.put_for(key, value, Duration::from_secs(3600))),
                4 => drop(batch.put_until(key, value, u64::MAX / 4 + rng.u64(..1 << 60))),
                // One that is over.
                5 => drop(batch.put_until(key, value, START_NS / 2)),
                _ => drop(batch.put(key, value)),
            }
        }
        bucket.commit(batch).unwrap();
        if step == 30 {
            bucket.compact(Compact::Full).unwrap();
        }
    }
}

/// A bucket in a file, closed, and its rows.
fn on_disk(path: &Path, options: Options, rng: &mut Rng) -> (Rows, u64) {
    let options = options.durability(Durability::Relaxed).overlay_min(64);
    let bucket = Bucket::create(path, options).unwrap();
    fill(&bucket, rng);
    let snapshot = bucket.snapshot();
    let found = (rows(&snapshot), snapshot.seqno());
    drop(snapshot);
    bucket.close().unwrap();
    found
}

#[test]
fn a_remade_bucket_has_the_same_rows_and_its_new_settings() {
    let seed = seed::seed("a_remade_bucket_has_the_same_rows_and_its_new_settings");
    for round in 0..seed::rounds() {
        let mut rng = Rng::with_seed(seed ^ round);
        let kinds = kinds();
        for (index, from) in kinds.iter().enumerate() {
            // Into its own kind, and into the two that follow.
            for to in kinds.iter().cycle().skip(index).take(3) {
                turn(from, to, &mut rng);
            }
        }
    }
}

fn turn(from: &Kind, to: &Kind, rng: &mut Rng) {
    let context = format!("{} to {}", from.name, to.name);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let (wanted, seqno) = on_disk(&path, (from.make)(Options::default()), rng);
    let old = Reader::open_with(&path, (from.opening)()).unwrap();
    let uuid = old.survey().unwrap().settings.uuid;
    let done = kvb::remake(&path, (from.opening)(), to.make, &mut quiet).unwrap();
    assert_eq!((done.seqno, done.since), (seqno, 0), "{context}");
    assert_eq!(done.records, u64::try_from(wanted.len()).unwrap(), "{context}: only what counts");
    assert_eq!(names(dir.path()), ["bucket.kvb"], "{context}");
    // Who had the old one open has it still.
    assert_eq!(rows(&old.snapshot().unwrap()), wanted, "{context}: the old one");

    let reader = Reader::open_with(&path, (to.opening)()).unwrap();
    let snapshot = reader.snapshot().unwrap();
    assert_eq!(snapshot.seqno(), seqno, "{context}");
    assert!(rows(&snapshot) == wanted, "{context}: rows differ");
    drop(snapshot);
    let settings = reader.survey().unwrap().settings;
    assert_ne!(settings.uuid, uuid, "{context}: it is another bucket");
    check_settings(&settings, from, to, &context);
    drop(reader);
    let found = kvb::verify(&path, (to.opening)(), &mut quiet).unwrap();
    assert_eq!(found.findings, [], "{context}");

    // The other way to open it does not do any more.
    if from.name != to.name && is_encrypted(from) | is_encrypted(to) {
        let opened = Reader::open_with(&path, (from.opening)());
        let is_refused = match (is_encrypted(to), is_encrypted(from)) {
            (true, _) => matches!(opened, Err(Error::KeyMissing { .. })),
            // Keys for a bucket that needs none.
            (false, _) => matches!(opened, Err(Error::Invalid(_))),
        };
        assert!(is_refused, "{context}: {opened:?}");
    }
    let file = std::fs::read(&path).unwrap();
    let has_text = file.windows(30).any(|bytes| bytes == b"a secret value a secret value ");
    assert_eq!(has_text, !is_encrypted(to), "{context}: what can be read in the file");

    // It goes on as a bucket like any other, and its seqnos go on too.
    let bucket = Bucket::open(&path, (to.opening)()).unwrap();
    bucket.put(b"later", b"yes").unwrap();
    let row = bucket.scan(b"later").next().unwrap().unwrap();
    assert!(row.seqno() > seqno, "{context}");
}

fn is_encrypted(kind: &Kind) -> bool {
    kind.name.contains("encrypted") || kind.name.contains("key,")
}

fn check_settings(settings: &kvb::Settings, from: &Kind, to: &Kind, context: &str) {
    let is = |name: &str| to.name == name;
    let was_large = from.name.starts_with("large");
    let expected = match to.name {
        "plain" => None,
        "encrypted" => Some(1),
        name if name.starts_with("under another key") => Some(2),
        _ => None,
    };
    assert_eq!(settings.key_id, expected, "{context}");
    let is_compressed = to.name.contains("compressed")
        || !to.name.starts_with("large") && from.name.contains("compressed");
    let compression = if is_compressed { Compression::Zstd } else { Compression::None };
    assert_eq!(settings.compression, compression, "{context}");
    let is_large = to.name.starts_with("large") || was_large && !to.name.contains("small pages");
    assert_eq!(settings.page_size, if is_large { 16_384 } else { 4096 }, "{context}");
    // What is not changed stays.
    let is_short = !to.name.contains("long journal") && !from.name.contains("long journal");
    assert_eq!(settings.journal_pages, if is_short { 8 } else { 20 }, "{context}");
    if is("plain") && from.name == "plain" {
        assert_eq!((settings.hash, settings.directories), (HashKind::Xxh3, true), "{context}");
    }
    if to.name.starts_with("large") {
        assert_eq!((settings.hash, settings.directories), (HashKind::SipHash, false), "{context}");
    }
}

#[test]
fn a_bucket_in_use_is_not_remade() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let bucket = Bucket::create(&path, Options::default().background(false)).unwrap();
    bucket.put(b"key", b"value").unwrap();
    let before = std::fs::read(&path).unwrap();
    let encrypt = |options: Options| options.encrypted(1).keys(one_key(1));
    let refused = kvb::remake(&path, Options::default(), encrypt, &mut quiet);
    let Err(Error::Locked { pid }) = refused else { panic!("{refused:?}") };
    if cfg!(target_os = "linux") {
        assert_eq!(pid, Some(std::process::id()));
    }
    assert_eq!(names(dir.path()), ["bucket.kvb"]);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    bucket.put(b"later", b"yes").unwrap();
    bucket.close().unwrap();
    // While it is remade, nobody can open it for writing.
    let mut is_locked = 0;
    let mut try_open = |_: kvb::Progress<'_>| {
        let opened = Bucket::open(&path, Options::default());
        assert!(matches!(opened, Err(Error::Locked { .. })), "{opened:?}");
        is_locked += 1;
    };
    kvb::remake(&path, Options::default(), encrypt, &mut try_open).unwrap();
    assert!(is_locked > 0);
}

#[test]
fn what_cannot_be_remade_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mut rng = Rng::with_seed(3);
    let encrypted = Options::default().encrypted(1).keys(one_key(1));
    on_disk(&path("secret.kvb"), encrypted, &mut rng);
    on_disk(&path("plain.kvb"), Options::default(), &mut rng);
    let bucket = Bucket::open(path("plain.kvb"), Options::default()).unwrap();
    bucket.snapshot().backup(path("full.kvb"), &mut quiet).unwrap();
    bucket.put(b"more", b"of it").unwrap();
    bucket.snapshot().backup_since(path("part.kvb"), &[path("full.kvb")], &mut quiet).unwrap();
    bucket.close().unwrap();
    std::fs::write(path("nothing.kvb"), [7; 9000]).unwrap();
    let read = || {
        let mut names = names(dir.path());
        names.sort();
        names.into_iter().map(|name| (std::fs::read(path(&name)).unwrap(), name)).collect()
    };
    let before: Vec<(Vec<u8>, String)> = read();
    let remake = |name: &str, options: Options, change: fn(Options) -> Options| {
        let refused = kvb::remake(path(name), options, change, &mut quiet);
        assert!(read() == before, "{name}: something changed");
        refused.map(drop).unwrap_err()
    };
    let same = |options: Options| options;
    let plain = Options::default;
    let refused = remake("secret.kvb", plain(), same);
    assert!(matches!(refused, Error::KeyMissing { id: 1 }), "{refused:?}");
    let wrong = Options::default().keys(Keyring::new().with(1, Key::new([9; 32])));
    let refused = remake("secret.kvb", wrong, same);
    assert!(matches!(refused, Error::KeyWrong { id: 1 }), "{refused:?}");
    let refused = remake("plain.kvb", plain().keys(one_key(1)), same);
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    let refused = remake("plain.kvb", plain(), |options| options.page_size(5000));
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    // A key that nobody has.
    let refused = remake("plain.kvb", plain(), |options| options.encrypted(7).keys(one_key(1)));
    assert!(matches!(refused, Error::KeyMissing { id: 7 }), "{refused:?}");
    let refused = remake("part.kvb", plain(), same);
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    let refused = remake("nothing.kvb", plain(), same);
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    let refused = remake("none.kvb", plain(), same);
    assert!(matches!(refused, Error::Io { .. }), "{refused:?}");
}

/// Values that are too long for the new settings are refused, not cut.
#[test]
fn rows_that_do_not_fit_the_new_settings_stay_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let bucket = Bucket::create(&path, Options::default()).unwrap();
    bucket.put(b"long", vec![b'v'; 5000]).unwrap();
    bucket.close().unwrap();
    let shorter = |options: Options| options.max_value(100);
    let done = kvb::remake(&path, Options::default(), shorter, &mut quiet);
    assert!(done.is_err(), "{done:?}");
    let reader = Reader::open(&path).unwrap();
    assert_eq!(reader.get(b"long").unwrap().unwrap().len(), 5000);
    assert_eq!(names(dir.path()), ["bucket.kvb"]);
}

#[test]
fn a_remade_backup_is_a_bucket_and_no_backup() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (wanted, _) = on_disk(&path("bucket.kvb"), Options::default(), &mut Rng::with_seed(4));
    let reader = Reader::open(path("bucket.kvb")).unwrap();
    reader.snapshot().unwrap().backup(path("full.kvb"), &mut quiet).unwrap();
    let zstd = |options: Options| options.compression(Compression::Zstd);
    kvb::remake(path("full.kvb"), Options::default(), zstd, &mut quiet).unwrap();
    assert!(rows(&Reader::open(path("full.kvb")).unwrap().snapshot().unwrap()) == wanted);
    let restore =
        kvb::restore(&[path("full.kvb")], path("new.kvb"), Options::default(), &mut quiet);
    assert!(matches!(restore, Err(Error::Invalid(_))), "{restore:?}");
    // Nor do backups of the bucket before go on with the one after.
    reader.snapshot().unwrap().backup(path("full.kvb"), &mut quiet).unwrap();
    kvb::remake(path("bucket.kvb"), Options::default(), zstd, &mut quiet).unwrap();
    let reader = Reader::open(path("bucket.kvb")).unwrap();
    let part = path("part.kvb");
    let since = reader.snapshot().unwrap().backup_since(&part, &[path("full.kvb")], &mut quiet);
    assert!(matches!(since, Err(Error::Invalid(_))), "{since:?}");
}

/// A name may be a link: then it is the bucket behind it that must not stay as it was.
#[cfg(unix)]
#[test]
fn a_remake_through_a_link_remakes_what_it_leads_to() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let path = inner.join("bucket.kvb");
    let (wanted, _) = on_disk(&path, Options::default(), &mut Rng::with_seed(6));
    let link = dir.path().join("link.kvb");
    std::os::unix::fs::symlink("inner/bucket.kvb", &link).unwrap();
    let encrypt = |options: Options| options.encrypted(1).keys(one_key(1));
    kvb::remake(&link, Options::default(), encrypt, &mut quiet).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(matches!(Reader::open(&path), Err(Error::KeyMissing { id: 1 })), "it is as it was");
    let reader = Reader::open_with(&link, Options::default().keys(one_key(1))).unwrap();
    assert!(rows(&reader.snapshot().unwrap()) == wanted);
    assert_eq!(names(&inner), ["bucket.kvb"]);
}

/// A bucket on a simulated disk, closed, and its rows.
fn simulated(options: Options) -> (Vec<u8>, Rows, u64) {
    let disk = SimDisk::new();
    let options = options.background(false).durability(Durability::Relaxed).overlay_min(64);
    let bucket = Bucket::create_on(Arc::new(disk.reopen()), env(), options).unwrap();
    fill(&bucket, &mut Rng::with_seed(12));
    let snapshot = bucket.snapshot();
    let found = (rows(&snapshot), snapshot.seqno());
    drop(snapshot);
    bucket.close().unwrap();
    (disk.to_bytes(), found.0, found.1)
}

/// From one kind to another.
struct Way {
    name: &'static str,
    /// How the old bucket is made, and what opens it.
    making: Options,
    opening: Options,
    change: fn(Options) -> Options,
}

fn ways() -> [Way; 2] {
    let encrypt = |options: Options| options.encrypted(1).keys(one_key(1));
    let plain = Options::default;
    [
        Way { name: "encrypt", making: plain(), opening: plain(), change: encrypt },
        Way {
            name: "decrypt",
            making: encrypt(plain()),
            opening: plain().keys(one_key(1)),
            change: Options::plain,
        },
    ]
}

#[test]
fn power_loss_at_any_operation_leaves_the_old_bucket() {
    for Way { name, making, opening, change } in ways() {
        let (file, wanted, _) = simulated(making);
        let source = SimDisk::from_image(file.clone());
        let mut lost = 0;
        for operation in 0.. {
            let target = SimDisk::new();
            let fault = if operation % 2 == 0 { Fault::PowerLoss } else { Fault::Eio };
            target.fail_from(operation, fault);
            let target: Arc<dyn Disk> = Arc::new(target);
            let from: Arc<dyn Disk> = Arc::new(source.reopen());
            let done = kvb::remake_on(from, target, env(), opening.clone(), change, &mut quiet);
            match done {
                Ok(done) => {
                    assert_eq!(done.records, u64::try_from(wanted.len()).unwrap());
                    break;
                }
                Err(error) => {
                    assert!(matches!(error, Error::Io { .. } | Error::Stopped(_)), "{error:?}");
                    lost += 1;
                }
            }
        }
        assert!(lost > 10, "{name}: {lost}");
        assert_eq!(source.to_bytes(), file, "{name}: the old bucket changed");
        let written =
            source.trace().ops().iter().filter(|op| !matches!(op, host::Op::Sync)).count();
        assert_eq!(written, 0, "{name}: something was written to the old bucket");
    }
}

/// The new file gets its name when the remake is done with it. If power is lost then, it must be there as it was.
#[test]
fn power_loss_after_the_last_operation_leaves_the_new_bucket() {
    for Way { name, making, opening, change } in ways() {
        let (file, wanted, seqno) = simulated(making);
        let source: Arc<dyn Disk> = Arc::new(SimDisk::from_image(file));
        let target = SimDisk::new();
        let to: Arc<dyn Disk> = Arc::new(target.reopen());
        kvb::remake_on(source, to, env(), opening.clone(), change, &mut quiet).unwrap();
        let trace = target.trace();
        let point = trace.point(trace.len());
        let keeps = [Keep::None, Keep::All, Keep::OnlyLast, Keep::DropOne(0), Keep::Prefix(1)];
        let random = (0..20).map(Keep::Random);
        for keep in keeps.into_iter().chain(random) {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::from_image(point.image(keep)));
            let opening = match name {
                "encrypt" => Options::default().keys(one_key(1)),
                _ => Options::default(),
            };
            let reader = Reader::open_on_with(Arc::clone(&disk), env(), opening.clone()).unwrap();
            let snapshot = reader.snapshot().unwrap();
            assert_eq!(snapshot.seqno(), seqno, "{name}, {keep:?}");
            assert!(rows(&snapshot) == wanted, "{name}, {keep:?}: rows differ");
            let found = kvb::verify_on(disk, env(), opening, &mut quiet).unwrap();
            assert_eq!(found.findings, [], "{name}, {keep:?}");
        }
    }
}

/// A remake gives the old file up. So it must notice whatever is wrong with it.
#[test]
fn a_damaged_bucket_is_remade_whole_or_not_at_all() {
    let (file, wanted, _) = simulated(Options::default());
    let places = (0..file.len()).filter(|at| file[*at] != 0).step_by(29);
    let (mut refused, mut remade) = (0, 0);
    for at in places {
        let mut file = file.clone();
        file[at] ^= 1 << (at % 8);
        let source: Arc<dyn Disk> = Arc::new(SimDisk::from_image(file));
        let target: Arc<dyn Disk> = Arc::new(SimDisk::new());
        let to = Arc::clone(&target);
        match kvb::remake_on(source, to, env(), Options::default(), |options| options, &mut quiet) {
            Ok(_) => {
                let reader = Reader::open_on(target, env()).unwrap();
                let found = rows(&reader.snapshot().unwrap());
                assert!(found == wanted, "byte {at}: rows differ");
                remade += 1;
            }
            Err(error) => {
                assert!(matches!(error, Error::Corrupt(_)), "byte {at}: {error:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100 && remade > 100, "{refused} refused, {remade} remade");
}

/// A writer may open the file a moment before another one takes its place, and lock it a moment after. What it then
/// commits must not be lost with the old file.
#[test]
fn commits_between_remakes_are_never_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let options = Options::default().background(false).durability(Durability::Relaxed);
    Bucket::create(&path, options.clone()).unwrap().close().unwrap();
    let (is_done, remade) = (AtomicBool::new(false), AtomicU32::new(0));
    let remaker = || {
        while !is_done.load(Ordering::Relaxed) {
            match kvb::remake(&path, Options::default(), |options| options, &mut quiet) {
                Ok(_) => drop(remade.fetch_add(1, Ordering::Relaxed)),
                Err(Error::Locked { .. }) => std::thread::yield_now(),
                Err(error) => {
                    is_done.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    };
    // How many commits should be there, and how many are.
    let writer = || {
        let mut committed = 0_u32;
        let is_enough = |committed| committed >= 20 && remade.load(Ordering::Relaxed) >= 20;
        while !is_enough(committed) && !is_done.load(Ordering::Relaxed) {
            let bucket = match Bucket::open(&path, options.clone()) {
                Ok(bucket) => bucket,
                Err(Error::Locked { .. }) => continue,
                Err(error) => return Err(error),
            };
            let found = u32::try_from(bucket.scan(b"").count()).unwrap();
            if found != committed {
                return Ok((committed, found));
            }
            bucket.put(committed.to_be_bytes(), b"value")?;
            committed += 1;
            bucket.close()?;
            // So that the other one gets at it now and then.
            std::thread::sleep(Duration::from_micros(u64::from(committed * 97 % 2000)));
        }
        Ok((committed, committed))
    };
    let (committed, found) = std::thread::scope(|scope| {
        let remaker = scope.spawn(remaker);
        let written = writer();
        is_done.store(true, Ordering::Relaxed);
        remaker.join().unwrap().unwrap();
        written.unwrap()
    });
    assert_eq!(found, committed, "commits are gone after {remade:?} remakes");
    assert_eq!(names(dir.path()), ["bucket.kvb"]);
}

/// Set in the process that remakes: the bucket's path.
const REMAKER: &str = "KVB_TEST_REMAKER";

/// What that process says whenever it is told how far it is.
const STEP: &str = "a step";

/// Not a test by itself: the process that remakes, to and fro, until it dies.
#[test]
fn remaker() {
    let Some(path) = std::env::var_os(REMAKER).map(PathBuf::from) else { return };
    let encrypt = |options: Options| options.encrypted(1).keys(one_key(1));
    let mut tell = |_: kvb::Progress<'_>| println!("{STEP}");
    loop {
        match Reader::open(&path) {
            Ok(_) => kvb::remake(&path, Options::default(), encrypt, &mut tell).unwrap(),
            Err(_) => {
                let options = Options::default().keys(one_key(1));
                kvb::remake(&path, options, Options::plain, &mut tell).unwrap()
            }
        };
    }
}

#[test]
fn a_process_that_dies_in_a_remake_leaves_the_old_bucket_or_the_new() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bucket.kvb");
    let (wanted, seqno) = on_disk(&path, Options::default(), &mut Rng::with_seed(13));
    let (mut plain, mut secret, mut unfinished) = (0, 0, 0);
    for round in 0..15 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "remaker", "--nocapture"])
            .env(REMAKER, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let steps = lines.map_while(Result::ok).filter(|line| line.ends_with(STEP));
        assert_eq!(steps.take(round + 1).count(), round + 1);
        std::thread::sleep(Duration::from_micros(u64::try_from(round % 5).unwrap() * 300));
        child.kill().unwrap();
        child.wait().unwrap();
        let reader = match Reader::open(&path) {
            Ok(reader) => {
                plain += 1;
                reader
            }
            Err(Error::KeyMissing { id: 1 }) => {
                secret += 1;
                Reader::open_with(&path, Options::default().keys(one_key(1))).unwrap()
            }
            Err(error) => panic!("round {round}: {error}"),
        };
        let snapshot = reader.snapshot().unwrap();
        assert_eq!(snapshot.seqno(), seqno, "round {round}");
        assert!(rows(&snapshot) == wanted, "round {round}: rows differ");
        // What it left behind is in nobody's way: the next one comes as far.
        unfinished += usize::from(dir.path().join("bucket.kvb.unfinished").exists());
        assert!(names(dir.path()).len() <= 2, "{:?}", names(dir.path()));
    }
    assert!(plain > 0 && secret > 0 && unfinished > 0, "{plain}, {secret}, {unfinished}");
}
