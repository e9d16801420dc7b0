//! Programs that do a piece of work at a time: all of it or nothing, or all that came before.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::process::{Command, Stdio};

use fastrand::Rng;
use kvb::Reader;
use ledger::{EngineKind, MemoryEngine};
use misaka::{Checkpoint, Database, Effort, Settings};
use misaka_indexer::{Embedded, Index, TABLES};

use crate::misaka_chain::Chain;
use crate::run::Ran;

/// Keys and their values.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// A program with work to do.
pub(crate) trait Job {
    fn name(&self) -> &'static str;

    /// What the next piece of work is, in a directory. Until it is done, it is the same.
    fn next(&mut self, dir: &Path) -> Command;

    /// What is there must be what was there before, or the piece as well; that must be there if it is done.
    fn check(&mut self, dir: &Path, is_done: bool, what: &str);

    /// The command that looks at everything.
    fn verify(&self, dir: &Path) -> Option<Command>;

    /// Does the next piece in peace.
    fn finish(&mut self, dir: &Path) {
        let ran: Ran = self.next(dir).output().unwrap().into();
        ran.ok();
        self.check(dir, true, "in the end");
        if let Some(mut verify) = self.verify(dir) {
            let ran: Ran = verify.output().unwrap().into();
            ran.ok();
        }
    }
}

fn command(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).env_remove("KVB_KEY");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `kvb load --atomic`, one dump after the other.
pub(crate) struct Load {
    dumps: tempfile::TempDir,
    rng: Rng,
    there: Rows,
    /// What is there with the next dump.
    next: Option<Rows>,
}

impl Load {
    pub(crate) fn new() -> Load {
        let dumps = tempfile::tempdir().unwrap();
        Load { dumps, rng: Rng::with_seed(11), there: Rows::new(), next: None }
    }
}

impl Job for Load {
    fn name(&self) -> &'static str {
        "kvb"
    }

    fn next(&mut self, dir: &Path) -> Command {
        let dump = self.dumps.path().join("dump");
        if self.next.is_none() {
            let (mut rows, mut lines) = (self.there.clone(), String::new());
            for _ in 0..600 {
                let key = format!("key{}", self.rng.u16(..2000));
                let value: String = (0..500).map(|_| self.rng.alphanumeric()).collect();
                lines += &format!("{key}\t{value}\n");
                rows.insert(key.into_bytes(), value.into_bytes());
            }
            std::fs::write(&dump, lines).unwrap();
            self.next = Some(rows);
        }
        let mut command = command(env!("CARGO_BIN_EXE_kvb"), dir);
        command.args(["load", "--quiet", "--atomic", "bucket.kvb"]).arg(dump);
        command
    }

    fn check(&mut self, dir: &Path, is_done: bool, what: &str) {
        let path = dir.join("bucket.kvb");
        let found: Rows = match Reader::open(&path) {
            Ok(reader) => {
                let snapshot = reader.snapshot().unwrap();
                let rows = snapshot.scan([]).map(Result::unwrap);
                rows.map(|row| (row.key().to_vec(), row.value().to_vec())).collect()
            }
            // It was being made.
            Err(error) => {
                assert!(self.there.is_empty() && !is_done, "kvb, {what}: {error}");
                let _ = std::fs::remove_file(path);
                return;
            }
        };
        if self.next.as_ref() == Some(&found) {
            self.there = found;
            self.next = None;
            return;
        }
        assert!(!is_done, "kvb, {what}: what was loaded is not there");
        assert!(found == self.there, "kvb, {what}: half a dump is there");
    }

    fn verify(&self, dir: &Path) -> Option<Command> {
        let mut command = command(env!("CARGO_BIN_EXE_kvb"), dir);
        command.args(["verify", "--quiet", "bucket.kvb"]);
        Some(command)
    }
}

/// `misaka-indexer follow`, behind a validator that grows.
pub(crate) struct Follow {
    validator: tempfile::TempDir,
    chain: Chain,
    /// What the validator has and the index may not have.
    fed: Vec<Checkpoint>,
    model: Embedded,
    is_behind: bool,
}

impl Follow {
    pub(crate) fn new() -> Follow {
        let validator = tempfile::tempdir().unwrap();
        let settings = Settings::default();
        let database = Database::new(validator.path().join("node"));
        database.init(EngineKind::Kvb, settings, Effort::default()).unwrap();
        let model = Embedded::on(Box::new(MemoryEngine::new())).unwrap();
        Follow { validator, chain: Chain::new(settings), fed: Vec::new(), model, is_behind: false }
    }
}

/// All rows of an index.
fn rows(index: &Embedded) -> Vec<(Vec<u8>, Vec<u8>)> {
    let snapshot = index.engine().snapshot().unwrap();
    let mut found = Vec::new();
    for table in TABLES {
        for row in snapshot.scan(*table, (Bound::Unbounded, Bound::Unbounded)).unwrap() {
            let (key, value) = row.unwrap();
            found.push((key.into_owned(), value.into_owned()));
        }
    }
    found
}

impl Job for Follow {
    fn name(&self) -> &'static str {
        "misaka-indexer"
    }

    fn next(&mut self, dir: &Path) -> Command {
        let node = self.validator.path().join("node");
        if !self.is_behind {
            let store = Database::new(&node).open(Effort::default()).unwrap();
            for checkpoint in self.chain.grow(6, 12).0 {
                store.apply(&checkpoint).unwrap();
                self.fed.push(checkpoint);
            }
            self.is_behind = true;
        }
        let mut command = command(env!("CARGO_BIN_EXE_misaka-indexer"), dir);
        command.args(["follow", "--quiet", "--index", "index", "--db"]).arg(node);
        command
    }

    fn check(&mut self, dir: &Path, is_done: bool, what: &str) {
        let index = match Embedded::open_to_read(dir.join("index")) {
            Ok(index) => index,
            // It was being made.
            Err(error) => {
                let is_new = self.model.tip().unwrap().is_none();
                assert!(is_new && !is_done, "misaka-indexer, {what}: {error}");
                return;
            }
        };
        let tip = index.tip().unwrap().map_or(0, |tip| tip.seq);
        self.fed.retain(|checkpoint| {
            let is_there = checkpoint.header.seq <= tip;
            if is_there {
                self.model.apply(checkpoint).unwrap();
            }
            !is_there
        });
        let has_rows = tip == 0 || rows(&index) == rows(&self.model);
        assert!(has_rows, "misaka-indexer, {what}: wrong rows at checkpoint {tip}");
        assert!(!is_done || self.fed.is_empty(), "misaka-indexer, {what}: only {tip} are there");
        self.is_behind = !self.fed.is_empty();
    }

    fn verify(&self, _dir: &Path) -> Option<Command> {
        None
    }
}
