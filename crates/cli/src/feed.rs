//! Files that a ledger takes one thing after the other from: blocks, or checkpoints. Each is durable before the next is taken, so
//! what was taken before an interruption stays.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use crate::exit::{Done, Fail, say};
use crate::session::Session;
use crate::{interrupt, show};

/// What is in the files, in words.
pub(crate) struct Feed {
    /// One of it, and several.
    pub(crate) thing: [&'static str; 2],
    /// What becomes of it.
    pub(crate) taken: &'static str,
}

/// How far a ledger came.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) applied: u64,
    /// Those that were applied before.
    pub(crate) passed: u64,
    /// What they consisted of.
    pub(crate) parts: u64,
}

impl Feed {
    /// Opens a file; - is standard input.
    pub(crate) fn open(&self, path: &Path) -> Done<Box<dyn Read>> {
        if path.as_os_str() == "-" {
            return Ok(Box::new(interrupt::Stdin));
        }
        Ok(Box::new(File::open(path).map_err(|error| self.cannot(error))?))
    }

    /// The file ends too early: by itself, or because somebody asked for that.
    pub(crate) fn cannot(&self, error: io::Error) -> Fail {
        let [_, things] = self.thing;
        if interrupt::is_asked() {
            return self.interrupted();
        }
        Fail::failed(format!("cannot read {things}: {error}"))
    }

    /// Fails if somebody asked for an end.
    pub(crate) fn go_on(&self) -> Done {
        match interrupt::is_asked() {
            true => Err(self.interrupted()),
            false => Ok(()),
        }
    }

    fn interrupted(&self) -> Fail {
        let ([_, things], taken) = (self.thing, self.taken);
        Fail::interrupted(format!("interrupted; the {things} so far are {taken} and safe"))
    }

    /// Says how much it was and how long it took, to whoever reads words. `parts` is what one part is called, and several.
    pub(crate) fn sum_up(
        &self,
        session: &Session<'_>,
        tally: &Tally,
        parts: [&str; 2],
        took: Duration,
    ) {
        if session.common.quiet || session.common.json {
            return;
        }
        let ([thing, things], [part, parts]) = (self.thing, parts);
        let passed = match tally.passed {
            0 => String::new(),
            passed => format!(", {passed} were applied before"),
        };
        say(format_args!(
            "{} with {} in {}, {}{passed}",
            show::many(tally.applied, thing, things),
            show::many(tally.parts, part, parts),
            show::seconds(took),
            show::rate(tally.parts, took),
        ));
    }
}

/// Tells what became of things. Whoever has heard enough does not stop the work.
#[derive(Default)]
pub(crate) struct Answers {
    is_alone: bool,
}

impl Answers {
    /// Whoever follows the output knows of everything as soon as it is durable.
    pub(crate) fn line(&mut self, session: &mut Session<'_>, line: &dyn Display) -> Done {
        if self.is_alone {
            return Ok(());
        }
        let written = writeln!(session.out, "{line}").and_then(|()| session.out.flush());
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_alone = true,
            written => written?,
        }
        Ok(())
    }
}
