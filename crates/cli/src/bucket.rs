//! The program `kvb`: its commands and their arguments.

mod backup;
mod bench;
mod care;
mod demo;
mod dump;
mod form;
mod info;
mod init;
mod inspect;
mod load;
mod manual;
mod map;
mod open;
mod point;
mod rekey;
mod scan;
mod stats;
mod watch;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{Done, Fail, say};
use crate::logging;

const KEYS_AND_VALUES: &str = "\
Keys and values:
  NAME      the contents of a file
  0xC0FFEE  hex digits
  -t WORD   with --text, the word itself
  -         standard input";

/// Crash-safe key/value storage in one file.
#[derive(Parser)]
#[command(
    name = "kvb",
    version,
    after_help = "\
Examples:
  kvb demo                                    a tour, with a bucket of a million keys
  kvb init bucket.kvb                         a new bucket
  kvb put -t bucket.kvb alice 100             a key and its value
  kvb get -t bucket.kvb alice
  kvb scan bucket.kvb
  kvb help scan                               more about one command

Exit codes: 0 done, 1 not found or failed, 2 wrong usage, 130 interrupted."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args, Clone)]
struct Common {
    /// Print facts as JSON
    #[arg(long, global = true)]
    json: bool,
    /// No progress bars, no notices
    #[arg(long, short, global = true)]
    quiet: bool,
    /// File with the key of an encrypted bucket
    ///
    /// It has lines of 64 hex digits, each with an id in front if there are several (2:5f3a...), or just 32 bytes. Without it
    /// the key is taken from the environment variable KVB_KEY in the same form, or asked for in a terminal.
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    Init(init::Init),
    Put(point::Put),
    Get(point::Get),
    Exists(point::Exists),
    Del(point::Del),
    Scan(scan::Scan),
    Load(load::Load),
    Dump(dump::Dump),
    Stats(stats::Stats),
    Info(info::Info),
    Inspect(inspect::Inspect),
    Watch(watch::Watch),
    Compact(care::Compact),
    Train(care::Train),
    Verify(care::Verify),
    Repair(care::Repair),
    Backup(backup::Backup),
    Restore(backup::Restore),
    Keygen(rekey::Keygen),
    Rekey(rekey::Rekey),
    Bench(bench::Bench),
    Demo(demo::Demo),
    #[command(hide = true)]
    DemoWriter(demo::DemoWriter),
    Completions(manual::Completions),
    Man(manual::Man),
}

/// What a command works with.
struct Session<'a> {
    common: Common,
    out: &'a mut dyn Write,
}

impl Session<'_> {
    /// Prints facts: as text, or as JSON if the user wants that.
    fn tell(&mut self, json: &serde_json::Value, text: impl FnOnce() -> String) -> Done {
        if self.common.json {
            writeln!(self.out, "{json}")?;
        } else {
            write!(self.out, "{}", text())?;
        }
        Ok(())
    }

    /// Tells what was done: in words on standard error, unless the user wants quiet, or as JSON.
    fn report(&mut self, json: &serde_json::Value, words: impl FnOnce() -> String) -> Done {
        if self.common.json {
            return Ok(writeln!(self.out, "{json}")?);
        }
        self.notice(&words());
        Ok(())
    }

    /// Says something on standard error, unless the user wants quiet.
    fn notice(&mut self, words: &str) {
        // In the order in which it was said, where both go to one place.
        let _ = self.out.flush();
        if !self.common.quiet {
            say(words);
        }
    }
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Fail> {
    let matches = match command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            // Help that was asked for goes to standard output.
            let _ = error.print();
            return Err(Fail::silent(code));
        }
    };
    let cli = Cli::from_arg_matches(&matches).map_err(|error| Fail::usage(error.to_string()))?;
    logging::start();
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut session = Session { common: cli.common, out: &mut out };
    let done = match cli.command {
        Command::Init(args) => args.run(&mut session),
        Command::Put(args) => args.run(&mut session),
        Command::Get(args) => args.run(&mut session),
        Command::Exists(args) => args.run(&mut session),
        Command::Del(args) => args.run(&mut session),
        Command::Scan(args) => args.run(&mut session),
        Command::Load(args) => args.run(&mut session),
        Command::Dump(args) => args.run(&mut session),
        Command::Stats(args) => args.run(&mut session),
        Command::Info(args) => args.run(&mut session),
        Command::Inspect(args) => args.run(&mut session),
        Command::Watch(args) => args.run(&mut session),
        Command::Compact(args) => args.run(&mut session),
        Command::Train(args) => args.run(&mut session),
        Command::Verify(args) => args.run(&mut session),
        Command::Repair(args) => args.run(&mut session),
        Command::Backup(args) => args.run(&mut session),
        Command::Restore(args) => args.run(&mut session),
        Command::Keygen(args) => args.run(&mut session),
        Command::Rekey(args) => args.run(&mut session),
        Command::Bench(args) => args.run(&mut session),
        Command::Demo(args) => args.run(&mut session),
        Command::DemoWriter(args) => args.run(&mut session),
        Command::Completions(args) => args.run(&mut session),
        Command::Man(args) => args.run(&mut session),
    };
    // What was written before an error is still wanted.
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}

/// The definition that help, completions and man pages are made of.
fn command() -> clap::Command {
    Cli::command()
}
