//! What a command of any program works with: what all of them take, and where facts go.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{ArgAction, Args, Parser};
use serde_json::json;

use crate::exit::{Done, Fail, say};
use crate::input::to_hex;
use crate::{logging, manual};

/// What every command takes.
#[derive(Args, Clone)]
pub(crate) struct Common {
    /// Print facts as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress bars, no notices
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// Log what happens to standard error; twice for more. RUST_LOG chooses in detail
    #[arg(long, short, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// What a command works with.
pub(crate) struct Session<'a> {
    pub(crate) common: Common,
    /// The file with keys for encrypted buckets, if the program takes one.
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) out: &'a mut dyn Write,
}

impl Session<'_> {
    /// Prints facts: as text, or as JSON if the user wants that.
    pub(crate) fn tell(&mut self, json: &serde_json::Value, text: impl FnOnce() -> String) -> Done {
        if self.common.json {
            writeln!(self.out, "{json}")?;
        } else {
            write!(self.out, "{}", text())?;
        }
        Ok(())
    }

    /// Prints a row of a table, in hex.
    pub(crate) fn row(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let (key, value) = (to_hex(key), to_hex(value));
        match self.common.json {
            true => writeln!(self.out, "{}", json!({"key": key, "value": value})),
            false => writeln!(self.out, "{key} {value}"),
        }
    }

    /// Tells what was done: in words on standard error, unless the user wants quiet, or as JSON.
    pub(crate) fn report(
        &mut self,
        json: &serde_json::Value,
        words: impl FnOnce() -> String,
    ) -> Done {
        if self.common.json {
            return Ok(writeln!(self.out, "{json}")?);
        }
        self.notice(&words());
        Ok(())
    }

    /// Says something on standard error, unless the user wants quiet.
    pub(crate) fn notice(&mut self, words: &str) {
        // In the order in which it was said, where both go to one place.
        let _ = self.out.flush();
        if !self.common.quiet {
            say(words);
        }
    }
}

/// Parses a command line, and runs what it asks for. `common` gives what all commands take, and the file with keys.
pub(crate) fn run<C: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    common: impl FnOnce(&C) -> (Common, Option<PathBuf>),
    command: impl FnOnce(C, &mut Session<'_>) -> Done,
) -> Result<(), Fail> {
    let definition = manual::with_manual(C::command());
    let matches = match definition.clone().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Help that was asked for goes to standard output.
            let _ = error.print();
            return Err(Fail::silent(code));
        }
    };
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let done = match manual::run(&definition, &matches, &mut out) {
        Some(done) => done,
        None => {
            let cli =
                C::from_arg_matches(&matches).map_err(|error| Fail::usage(error.to_string()))?;
            let (common, key_file) = common(&cli);
            logging::start(&common);
            let mut session = Session { common, key_file, out: &mut out };
            command(cli, &mut session)
        }
    };
    // What was written before an error is still wanted.
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}
