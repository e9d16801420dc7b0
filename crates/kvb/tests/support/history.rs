//! A random history of a bucket in a real file, and a model of what it holds.
//!
//! Each test draws its own commits; time, files, the model and what was done in a round are here. A reader is whatever says what rows
//! a file holds, and of which commit they are the state.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use host::{FileDisk, ManualEnv};
use kvb::{Batch, Bucket, Compact, Durability, Options};

use crate::rows::{Rows, difference};

pub(crate) const START_NS: u64 = 1_700_000_000_000_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Value and deadline of every key that was put and not deleted.
pub(crate) type Model = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// What a reader finds in a file at some time: the rows, and the commit they are the state of.
pub(crate) type Read<'r> = &'r dyn Fn(&Path, u64) -> Result<(Rows, u64), String>;

pub(crate) fn live(model: &Model, now_ns: u64) -> Rows {
    let alive = model.iter().filter(|(_, (_, deadline))| *deadline > now_ns);
    alive.map(|(key, (value, _))| (key.clone(), value.clone())).collect()
}

/// The reader must find these rows.
pub(crate) fn expect(read: Read<'_>, bucket: &Path, now_ns: u64, wanted: &Rows, context: &str) {
    let (found, _) = read(bucket, now_ns).unwrap_or_else(|error| panic!("{context}: {error}"));
    if let Some(difference) = difference(&found, wanted) {
        panic!("{context}: {difference}");
    }
}

pub(crate) enum Change {
    Put { key: Vec<u8>, value: Vec<u8>, ttl_secs: u64 },
    Delete(Vec<u8>),
}

/// A commit of the round: when, what, and the seqno it ended with.
struct Done {
    at_ns: u64,
    changes: Vec<Change>,
    seqno: u64,
}

fn apply(model: &mut Model, done: &Done) {
    for change in &done.changes {
        match change {
            Change::Put { key, value, ttl_secs } => {
                let deadline = match ttl_secs {
                    0 => u64::MAX,
                    secs => done.at_ns + secs * SECOND_NS,
                };
                model.insert(key.clone(), (value.clone(), deadline));
            }
            Change::Delete(key) => {
                model.remove(key);
            }
        }
    }
}

pub(crate) struct History {
    options: Options,
    pub(crate) random: fastrand::Rng,
    env: Arc<ManualEnv>,
    pub(crate) now_ns: u64,
    dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) model: Model,
    /// The model when the round began.
    before: Model,
    round: Vec<Done>,
}

impl History {
    pub(crate) fn new(options: Options, seed: u64) -> History {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.kvb");
        History {
            options,
            random: fastrand::Rng::with_seed(seed),
            env: Arc::new(ManualEnv::new(START_NS, seed)),
            now_ns: START_NS,
            dir,
            path,
            model: Model::new(),
            before: Model::new(),
            round: Vec::new(),
        }
    }

    pub(crate) fn create(&self) -> Bucket {
        let disk = Arc::new(FileDisk::create_new(&self.path).unwrap());
        Bucket::create_on(disk, self.env.clone(), self.options.clone()).unwrap()
    }

    pub(crate) fn open(&self, path: &Path) -> Bucket {
        let disk = Arc::new(FileDisk::open(path).unwrap());
        Bucket::open_on(disk, self.env.clone(), self.options.clone()).unwrap()
    }

    /// What is to be found now.
    pub(crate) fn live(&self) -> Rows {
        live(&self.model, self.now_ns)
    }

    pub(crate) fn begin_round(&mut self) {
        self.before.clone_from(&self.model);
        self.round.clear();
    }

    fn advance(&mut self, nanos: u64) {
        self.env.advance(nanos);
        self.now_ns += nanos;
    }

    /// Sometimes a few seconds go by.
    pub(crate) fn pass_time(&mut self) {
        if self.random.u8(0..3) == 0 {
            let nanos = self.random.u64(0..4 * SECOND_NS);
            self.advance(nanos);
        }
    }

    pub(crate) fn commit(&mut self, bucket: &Bucket, changes: Vec<Change>, durability: Durability) {
        let mut batch = Batch::new();
        for change in &changes {
            match change {
                Change::Put { key, value, ttl_secs: 0 } => batch.put(key, value),
                Change::Put { key, value, ttl_secs } => {
                    batch.put_for(key, value, Duration::from_secs(*ttl_secs))
                }
                Change::Delete(key) => batch.delete(key),
            };
        }
        bucket.commit_with(batch, durability).unwrap();
        let seqno = bucket.stats().unwrap().commit_seqno;
        let done = Done { at_ns: self.now_ns, changes, seqno };
        apply(&mut self.model, &done);
        self.round.push(done);
    }

    pub(crate) fn copy(&self) -> PathBuf {
        let copy = self.dir.path().join("copy.kvb");
        std::fs::copy(&self.path, &copy).unwrap();
        copy
    }

    /// A copy of a file that nobody flushed holds what its superblock speaks of: the state after some commit. Opened, which
    /// `verify` looks at, and closed, it holds everything again, and then the reader finds everything too.
    pub(crate) fn check_abandoned(
        &self,
        read: Read<'_>,
        verify: impl FnOnce(&Bucket),
        context: &str,
    ) {
        let copy = self.copy();
        let (found, seqno) =
            read(&copy, self.now_ns).unwrap_or_else(|error| panic!("{context}, as left: {error}"));
        let mut model = self.before.clone();
        for done in self.round.iter().filter(|done| done.seqno <= seqno) {
            apply(&mut model, done);
        }
        if let Some(difference) = difference(&found, &live(&model, self.now_ns)) {
            panic!("{context}, as left at seqno {seqno}: {difference}");
        }
        let recovered = self.open(&copy);
        verify(&recovered);
        recovered.close().unwrap();
        let context = format!("{context}, left and recovered");
        expect(read, &copy, self.now_ns, &self.live(), &context);
    }

    /// Compacts in one way or another, sometimes when what has expired may be dropped.
    pub(crate) fn compact(&mut self, bucket: &Bucket, round: usize) {
        let kind = match round % 4 {
            0 => return,
            1 => Compact::Auto,
            2 => Compact::Full,
            _ => Compact::LowSpace,
        };
        if self.random.bool() {
            self.advance(2 * 3600 * SECOND_NS);
        }
        let snapshot = self.random.bool().then(|| bucket.snapshot());
        bucket.compact(kind).unwrap();
        drop(snapshot);
    }
}
