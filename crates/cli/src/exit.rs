//! How a program ends: with an exit code, and words that tell what to do next.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use kvb::Error;
use ledger::{EngineError, Trouble};

use crate::{secret, show};

/// What a command comes to.
pub(crate) type Done<T = ()> = Result<T, Fail>;

/// Not found, a check failed, something went wrong.
const FAILED: u8 = 1;
/// Wrong usage.
const USAGE: u8 = 2;
/// As shells tell of a process that SIGINT ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub struct Fail {
    code: u8,
    message: String,
    hint: Option<String>,
}

impl Fail {
    /// Something went wrong, or is not there.
    pub(crate) fn failed(message: impl Into<String>) -> Fail {
        Fail { code: FAILED, message: message.into(), hint: None }
    }

    /// The command was called wrongly.
    pub(crate) fn usage(message: impl Into<String>) -> Fail {
        Fail { code: USAGE, message: message.into(), hint: None }
    }

    /// Somebody pressed Ctrl-C. What is said is what became of the work.
    pub(crate) fn interrupted(message: impl Into<String>) -> Fail {
        Fail { code: INTERRUPTED, message: message.into(), hint: None }
    }

    /// Everything was said already.
    pub(crate) fn silent(code: u8) -> Fail {
        Fail { code, message: String::new(), hint: None }
    }

    /// Which file it is about, unless everything was said already.
    pub(crate) fn within(self, path: &Path) -> Fail {
        if self.message.is_empty() {
            return self;
        }
        Fail { message: format!("{}: {}", path.display(), self.message), ..self }
    }

    /// What to do next.
    pub(crate) fn hint(self, hint: impl Into<String>) -> Fail {
        Fail { hint: Some(hint.into()), ..self }
    }
}

/// Tells what went wrong and gives the exit code.
pub fn finish(program: &str, done: Result<(), Fail>) -> ExitCode {
    let Err(fail) = done else { return ExitCode::SUCCESS };
    if !fail.message.is_empty() {
        say(format_args!("{program}: {}", fail.message));
    }
    if let Some(hint) = fail.hint {
        say(format_args!("hint: {hint}"));
    }
    ExitCode::from(fail.code)
}

/// Says something on standard error. If that cannot be written to, nobody can be told, and the work goes on.
pub(crate) fn say(words: impl Display) {
    let _ = writeln!(io::stderr(), "{words}");
}

impl From<io::Error> for Fail {
    /// Of standard output: whoever reads it may have seen enough.
    fn from(error: io::Error) -> Fail {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Fail::silent(0),
            _ => Fail::failed(format!("cannot write the output: {error}")),
        }
    }
}

/// What an error of the engine below a ledger means to whoever runs the ledger.
pub(crate) fn of_engine(error: &EngineError) -> Fail {
    let fail = Fail::failed(error.to_string());
    match error.trouble {
        Trouble::Damaged => fail.hint(
            "a ledger cannot go on with a part of its rows: restore its directory from a backup or a snapshot, or begin anew from the chain",
        ),
        Trouble::Full => fail.hint("make room on the disk, and run it again: nothing was changed"),
        _ => fail,
    }
}

/// What an error of the engine means to whoever works with this file.
pub(crate) fn about(path: &Path) -> impl Fn(Error) -> Fail + '_ {
    let name = path.display().to_string();
    move |error| {
        match &error {
        Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Fail::failed(format!("{name} does not exist"))
                .hint(format!("`kvb init {name}` makes a bucket"))
        }
        Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
            Fail::failed(format!("{name} is there already, and nothing was changed"))
                .hint("choose another name, or remove the file first")
        }
        Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Fail::failed(format!("{name}: {error}"))
                .hint("look at the owner and the mode of the file and of its directory")
        }
        Error::Locked { pid } => {
            let holder = pid.map_or_else(|| "another process".to_owned(), describe_process);
            Fail::failed(format!("{name} is open for writing by {holder}")).hint(
                "wait for it or stop it; get, scan, stats, verify, backup and every other command that only reads work beside it",
            )
        }
        Error::Corrupt(damage) => Fail::failed(format!("{name}: {damage}")).hint(format!(
            "`kvb verify {name}` lists the damage, and `kvb repair {name}` makes a new file of everything that is intact"
        )),
        Error::KeyMissing { id } => {
            Fail::failed(format!("{name} is encrypted, and its key was not given"))
                .hint(secret::how_to_give(*id))
        }
        Error::KeyWrong { id } if secret::is_of_passphrase(*id) => {
            Fail::failed(format!("{name}: the passphrase is not the one this bucket is encrypted with"))
                .hint("nothing was read or changed")
        }
        Error::KeyWrong { .. } => {
            Fail::failed(format!("{name}: {error}")).hint("nothing was read or changed")
        }
        Error::Invalid(what) if what.contains("not a kvb bucket") => {
            Fail::failed(format!("{name}: {error}"))
                .hint(format!("if it should be one, `kvb repair {name} --dry-run` looks for records"))
        }
        Error::NoSpace => Fail::failed(format!("{name}: {error}")),
        Error::Interrupted => Fail::interrupted("interrupted; nothing was changed"),
        _ => Fail::failed(format!("{name}: {error}")),
    }
    }
}

/// A process by its number, and its name where the system tells.
fn describe_process(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        // Processes choose their names, and may put anything into them.
        Ok(name) => format!("process {pid} ({})", show::bytes(name.trim_end().as_bytes())),
        Err(_) => format!("process {pid}"),
    }
}
