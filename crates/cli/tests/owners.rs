//! Files of somebody else: whoever may not read them or may not write to them is told so, and nothing is changed.
//!
//! Another user is one that owns nothing. To become that one, the tests must be run by root; others are told that they are skipped.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/run.rs"]
mod run;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use run::Ran;

/// Debian's `nobody`.
const NOBODY: u32 = 65_534;

const PROGRAMS: [&str; 5] = [
    env!("CARGO_BIN_EXE_kvb"),
    env!("CARGO_BIN_EXE_rubin-node"),
    env!("CARGO_BIN_EXE_utxo-csmt"),
    env!("CARGO_BIN_EXE_misaka-node"),
    env!("CARGO_BIN_EXE_misaka-indexer"),
];

/// A directory that everybody may look into, with copies of the programs that everybody may run.
struct House {
    dir: tempfile::TempDir,
}

impl House {
    /// None if nobody else can work here.
    fn new() -> Option<House> {
        let house = House { dir: tempfile::tempdir().unwrap() };
        let is_root = house.dir.path().metadata().unwrap().uid() == 0;
        set_mode(house.dir.path(), 0o755);
        for program in PROGRAMS {
            let copy = house.file(name_of(program));
            std::fs::hard_link(program, &copy)
                .or_else(|_| std::fs::copy(program, &copy).map(drop))
                .unwrap();
        }
        let mut probe = house.command("kvb", &["--version"], true);
        if is_root && probe.status().is_ok_and(|status| status.success()) {
            return Some(house);
        }
        let why = "only root can become somebody else, in a directory that others can reach";
        // The words of a test that passes are kept, unless they go past the test's own output.
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
        None
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str, args: &[&str], is_other: bool) -> Command {
        let mut command = Command::new(self.file(program));
        command.args(args).current_dir(self.dir.path()).env_remove("KVB_KEY");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if is_other {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// Runs it as the owner.
    fn run(&self, program: &str, args: &[&str]) -> Ran {
        self.command(program, args, false).output().unwrap().into()
    }

    /// Runs it as somebody else.
    fn run_other(&self, program: &str, args: &[&str]) -> Ran {
        self.command(program, args, true).output().unwrap().into()
    }

    /// Somebody else is refused, with words about why, and no file is changed.
    #[track_caller]
    fn refused(&self, program: &str, args: &[&str]) {
        let before = self.contents();
        let ran = self.run_other(program, args);
        assert_eq!(ran.code, 1, "{program} {args:?}: {}{}", ran.text(), ran.err);
        let is_told = ran.err.contains("ermission denied");
        assert!(is_told, "{program} {args:?}: {}", ran.err);
        assert!(before == self.contents(), "{program} {args:?} changed something");
    }

    /// Everything that is there but the programs: bytes, owner and mode.
    fn contents(&self) -> BTreeMap<PathBuf, (Vec<u8>, u32, u32)> {
        let mut all = BTreeMap::new();
        let mut places = vec![self.dir.path().to_owned()];
        while let Some(place) = places.pop() {
            for entry in std::fs::read_dir(place).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                if meta.is_dir() {
                    places.push(path.clone());
                } else if PROGRAMS.iter().any(|program| path.ends_with(name_of(program))) {
                    continue;
                }
                let bytes = if meta.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
                all.insert(path, (bytes, meta.uid(), meta.mode()));
            }
        }
        all
    }

    /// Gives everything below a place this mode, directories with the right to enter them.
    fn set_modes(&self, name: &str, file: u32, dir: u32) {
        let mut places = vec![self.file(name)];
        while let Some(place) = places.pop() {
            if place.is_dir() {
                places
                    .extend(std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()));
                set_mode(&place, dir);
            } else {
                set_mode(&place, file);
            }
        }
    }
}

fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_bucket_of_somebody_else() {
    let Some(house) = House::new() else { return };
    house.run("kvb", &["init", "b.kvb"]).ok();
    house.run("kvb", &["put", "-t", "b.kvb", "alice", "100"]).ok();
    let path = house.file("b.kvb");
    // Not to be read.
    set_mode(&path, 0o600);
    for args in [
        &["get", "-t", "b.kvb", "alice"][..],
        &["scan", "b.kvb"],
        &["verify", "b.kvb"],
        &["info", "b.kvb"],
        &["put", "-t", "b.kvb", "bob", "1"],
        &["compact", "b.kvb"],
        &["repair", "b.kvb", "--in-place", "--yes"],
        &["backup", "b.kvb", "copy.kvb"],
    ] {
        house.refused("kvb", args);
    }
    // To be read.
    set_mode(&path, 0o644);
    assert_eq!(house.run_other("kvb", &["get", "-t", "b.kvb", "alice"]).ok().text(), "100");
    house.run_other("kvb", &["verify", "b.kvb"]).ok();
    house.refused("kvb", &["put", "-t", "b.kvb", "bob", "1"]);
    house.refused("kvb", &["compact", "b.kvb"]);
    // The directory is not theirs.
    house.refused("kvb", &["backup", "b.kvb", "copy.kvb"]);
    house.refused("kvb", &["init", "new.kvb"]);
    // To be written to, in a directory of somebody else.
    set_mode(&path, 0o666);
    house.run_other("kvb", &["put", "-t", "b.kvb", "bob", "1"]).ok();
    let meta = path.metadata().unwrap();
    assert_eq!((meta.uid(), meta.mode() & 0o777), (0, 0o666));
    house.run("kvb", &["verify", "b.kvb"]).ok();
}

#[test]
fn a_bucket_that_is_made_anew_stays_as_private_as_it_was() {
    let Some(house) = House::new() else { return };
    house.run("kvb", &["init", "b.kvb"]).ok();
    house.run("kvb", &["put", "-t", "b.kvb", "alice", "100"]).ok();
    house.run("kvb", &["keygen", "key"]).ok();
    let path = house.file("b.kvb");
    for mode in [0o600, 0o640] {
        set_mode(&path, mode);
        house.run("kvb", &["rekey", "encrypt", "b.kvb", "--key-file", "key"]).ok();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, mode);
        house.run("kvb", &["rekey", "decrypt", "b.kvb", "--key-file", "key"]).ok();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, mode);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[100] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        house.run("kvb", &["repair", "b.kvb", "--in-place", "--yes"]).ok();
        assert_eq!(path.metadata().unwrap().mode() & 0o777, mode);
        house.run("kvb", &["backup", "b.kvb", "copy.kvb"]).ok();
        let copy = house.file("copy.kvb").metadata().unwrap().mode() & 0o777;
        assert_eq!(copy & !mode, 0, "{copy:o} of {mode:o}");
        std::fs::remove_file(house.file("copy.kvb")).unwrap();
    }
}

/// A program, where its store is, and how that is made, filled, and looked at.
struct Ledger {
    program: &'static str,
    place: &'static str,
    init: &'static [&'static str],
    apply: &'static [&'static str],
    look: &'static [&'static str],
}

#[test]
fn a_ledger_of_somebody_else() {
    let Some(house) = House::new() else { return };
    let tour = |name: &str| format!("{}/../../vectors/tour/{name}", env!("CARGO_MANIFEST_DIR"));
    let copy = |name: &str| {
        std::fs::copy(tour(name), house.file(name)).unwrap();
        set_mode(&house.file(name), 0o644);
    };
    copy("blocks.hex");
    copy("utxo.jsonl");
    copy("checkpoints.jsonl");
    let ledgers = [
        Ledger {
            program: "rubin-node",
            place: "node",
            init: &["init", "--datadir", "node", "--profile", "devnet"],
            apply: &["import", "--datadir", "node", "--quiet", "blocks.hex"],
            look: &["utxo-set-hash", "--datadir", "node"],
        },
        Ledger {
            program: "utxo-csmt",
            place: "utxos",
            init: &["init", "--db", "utxos", "--path", "raw"],
            apply: &["apply", "--db", "utxos", "--quiet", "utxo.jsonl"],
            look: &["root", "--db", "utxos"],
        },
        Ledger {
            program: "misaka-node",
            place: "validator",
            init: &["init", "--db", "validator", "--v2-at", "4"],
            apply: &["apply", "--db", "validator", "--quiet", "checkpoints.jsonl"],
            look: &["state-root", "--db", "validator"],
        },
    ];
    for Ledger { program, place, init, apply, look } in ledgers {
        house.refused(program, init);
        house.run(program, init).ok();
        house.run(program, apply).ok();
        let said = house.run(program, look).ok().text();
        house.set_modes(place, 0o600, 0o700);
        house.refused(program, apply);
        house.refused(program, look);
        house.set_modes(place, 0o600, 0o755);
        house.refused(program, apply);
        house.refused(program, look);
        house.set_modes(place, 0o644, 0o755);
        house.refused(program, apply);
        assert_eq!(house.run_other(program, look).ok().text(), said, "{program}");
        assert_eq!(house.run(program, look).ok().text(), said, "{program}");
    }
    // An index of a validator that may be read, in a directory that may not be written to.
    let follow = ["follow", "--db", "validator", "--index", "index", "--quiet"];
    house.refused("misaka-indexer", &follow);
    house.run("misaka-indexer", &follow).ok();
    house.set_modes("index", 0o600, 0o700);
    house.refused("misaka-indexer", &["tip", "--index", "index"]);
    house.set_modes("index", 0o644, 0o755);
    house.refused("misaka-indexer", &follow);
    house.run_other("misaka-indexer", &["tip", "--index", "index"]).ok();
}
