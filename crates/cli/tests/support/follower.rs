//! Programs that follow a chain: each reads blocks from its input and prints a line for every one that is on disk.
//!
//! What each has to hold after every block comes from the same store in memory.

#![allow(dead_code, reason = "not every test needs everything")]

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::{Effort, PathKind, Store};
use fastrand::Rng;
use host::MemoryDir;
use ledger::MemoryEngine;
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::{Chain, Genesis, Hash, Outpoint, Transaction, to_hex};

use crate::misaka_chain;
use crate::run::Ran;

/// A program, the blocks it is given and what it holds after each.
pub(crate) struct Follower {
    pub(crate) name: &'static str,
    program: &'static str,
    init: &'static [&'static str],
    apply: &'static [&'static str],
    /// Commands that check everything, and mend nothing.
    verify: &'static [&'static str],
    /// One each, as it is read.
    pub(crate) blocks: Vec<Vec<u8>>,
    /// After each.
    roots: Vec<String>,
    /// How many blocks are there, and the root after them.
    found: fn(&Follower, &Path) -> (usize, String),
}

impl Follower {
    pub(crate) fn all(blocks: usize) -> [Follower; 3] {
        [rubin_node(blocks), utxo_csmt(blocks), misaka_node(blocks)]
    }

    /// A command that works in a directory, not started yet.
    pub(crate) fn command(&self, dir: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(args).arg("--quiet").current_dir(dir).env_remove("KVB_KEY");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, dir: &Path, args: &[&str]) -> Ran {
        self.command(dir, args).output().unwrap().into()
    }

    pub(crate) fn init(&self, dir: &Path) {
        self.run(dir, self.init).ok();
    }

    /// The arguments that let it apply blocks from its input.
    pub(crate) fn apply_args(&self) -> &'static [&'static str] {
        self.apply
    }

    /// The input with some of the blocks.
    pub(crate) fn input(&self, from: usize, to: usize) -> Vec<u8> {
        self.blocks[from..to].concat()
    }

    /// Starts it, gives it some of the blocks, and lets it wait for more.
    pub(crate) fn start(&self, dir: &Path, from: usize, to: usize) -> Following {
        let mut command = self.command(dir, self.apply);
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes = self.input(from, to);
        // It may be killed before it has read everything.
        let feeder = std::thread::spawn(move || {
            let _ = input.write_all(&bytes);
            input
        });
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, acknowledged) = channel();
        std::thread::spawn(move || {
            for _ in lines.map_while(Result::ok) {
                let _ = sender.send(());
            }
        });
        Following { child, acknowledged, _feeder: feeder }
    }

    /// Applies what is given on its input, and ends.
    pub(crate) fn apply(&self, dir: &Path, from: usize, to: usize) -> Ran {
        let mut child = self.command(dir, self.apply).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes = self.input(from, to);
        std::thread::scope(|scope| {
            scope.spawn(move || drop(input.write_all(&bytes)));
            child.wait_with_output().unwrap().into()
        })
    }

    /// How many blocks are there; their root must be right.
    #[track_caller]
    pub(crate) fn check(&self, dir: &Path, what: &str) -> usize {
        let (count, root) = (self.found)(self, dir);
        if count > 0 {
            assert_eq!(root, self.roots[count - 1], "{}, {what}: after {count} blocks", self.name);
        }
        count
    }

    /// Applies the rest and looks at everything.
    #[track_caller]
    pub(crate) fn finish(&self, dir: &Path, there: usize) {
        self.apply(dir, there, self.blocks.len()).ok();
        assert_eq!(self.check(dir, "in the end"), self.blocks.len());
        self.run(dir, self.verify).ok();
    }
}

/// A program at work.
pub(crate) struct Following {
    pub(crate) child: Child,
    /// One for each line it printed.
    pub(crate) acknowledged: Receiver<()>,
    _feeder: std::thread::JoinHandle<ChildStdin>,
}

fn number(value: &serde_json::Value) -> usize {
    usize::try_from(value.as_u64().unwrap_or(0)).unwrap()
}

fn rubin_node(count: usize) -> Follower {
    let model = Chain::init(
        Box::new(MemoryEngine::new()),
        std::sync::Arc::new(MemoryDir::new()),
        Box::<Rules>::default(),
        Genesis::devnet(),
    );
    let model = model.unwrap();
    let mut parent: (Hash, Vec<Outpoint>) = (Genesis::devnet().hash(), Vec::new());
    let (mut blocks, mut roots) = (Vec::new(), Vec::new());
    for height in 1..=u64::try_from(count).unwrap() {
        let outs: Vec<_> = (0..30).map(|_| maker::coin(0)).collect();
        let coins = maker::spend(height, &parent.1, &outs);
        let transaction = Transaction::decode(&coins).unwrap();
        let made = (0..outs.len()).map(|vout| transaction.outpoint(vout)).collect();
        let coinbase = maker::coinbase(height, &[maker::coin(0)]);
        let block = maker::block(parent.0, height, &[coinbase, coins]);
        parent = (maker::hash_of(&block), made);
        model.import(&block, None).unwrap().unwrap();
        roots.push(model.view().unwrap().utxo_set_hash().unwrap().1.to_string());
        blocks.push((to_hex(&block) + "\n").into_bytes());
    }
    Follower {
        name: "rubin-node",
        program: env!("CARGO_BIN_EXE_rubin-node"),
        init: &["init", "--datadir", "data"],
        apply: &["import", "--datadir", "data", "-"],
        verify: &["verify", "--datadir", "data"],
        blocks,
        roots,
        found: |node, dir| {
            // Whoever only looks does not mend: a command that writes comes first.
            node.run(dir, &["import", "--datadir", "data", "/dev/null"]).ok();
            let facts =
                node.run(dir, &["utxo-set-hash", "--datadir", "data", "--json"]).ok().json();
            (number(&facts["tip_height"]), facts["utxo_set_hash_hex"].as_str().unwrap().to_owned())
        },
    }
}

fn utxo_csmt(count: usize) -> Follower {
    let settings = csmt::Settings { path: PathKind::Raw, ..csmt::Settings::default() };
    let model = Store::init(Box::new(MemoryEngine::new()), settings, Effort::default()).unwrap();
    let mut rng = Rng::with_seed(7);
    let (mut blocks, mut roots) = (Vec::new(), Vec::new());
    let mut there: Vec<Vec<u8>> = Vec::new();
    for slot in 1..=u64::try_from(count).unwrap() {
        let (mut operations, mut texts) = (Vec::new(), Vec::new());
        for _ in 0..30 {
            let key: Vec<u8> = (0..8).map(|_| rng.u8(..)).collect();
            let value = vec![rng.u8(..); 30];
            texts.push(format!(r#"["insert","{}","{}"]"#, to_hex(&key), to_hex(&value)));
            operations.push(Operation::Insert { key: key.clone(), value });
            there.push(key);
            if there.len() > 300 {
                let key = there.swap_remove(rng.usize(..there.len()));
                texts.push(format!(r#"["delete","{}"]"#, to_hex(&key)));
                operations.push(Operation::Delete { key });
            }
        }
        let hash = csmt::Hash::of(&slot.to_le_bytes());
        let mut line = String::new();
        writeln!(line, r#"{{"slot":{slot},"hash":"{hash}","ops":[{}]}}"#, texts.join(",")).unwrap();
        blocks.push(line.into_bytes());
        let applied = model.forward(Point::block(slot, hash), &operations).unwrap();
        roots.push(applied.root.unwrap().to_string());
    }
    Follower {
        name: "utxo-csmt",
        program: env!("CARGO_BIN_EXE_utxo-csmt"),
        init: &["init", "--db", "db", "--path", "raw"],
        apply: &["apply", "--db", "db", "-"],
        verify: &["verify", "--db", "db"],
        blocks,
        roots,
        found: |node, dir| {
            let tip = node.run(dir, &["tip", "--db", "db", "--json"]).ok().json();
            match number(&tip["tip"]["slot"]) {
                0 => (0, String::new()),
                slot => {
                    let root = node.run(dir, &["root", "--db", "db"]).ok().text();
                    (slot, root.trim().to_owned())
                }
            }
        },
    }
}

fn misaka_node(count: usize) -> Follower {
    // Small windows, so that every checkpoint prunes; and v2 begins early.
    let settings = misaka::Settings {
        event_retention: 5,
        window: 9,
        v2_at: Some(30),
        ..misaka::Settings::default()
    };
    let (checkpoints, answers) = misaka_chain::Chain::new(settings).grow(count, 12);
    let lines = checkpoints.iter().map(|one| misaka_chain::lines(std::slice::from_ref(one)));
    Follower {
        name: "misaka-node",
        program: env!("CARGO_BIN_EXE_misaka-node"),
        init: &["init", "--db", "db", "--event-retention", "5", "--window", "9", "--v2-at", "30"],
        apply: &["apply", "--db", "db", "-"],
        verify: &["verify", "--db", "db"],
        blocks: lines.map(String::into_bytes).collect(),
        roots: answers.iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect(),
        found: |node, dir| {
            let now = node.run(dir, &["state-root", "--full", "--json", "--db", "db"]).ok().json();
            (number(&now["seq"]), now["root"].as_str().unwrap_or_default().to_owned())
        },
    }
}
