//! The program `kvb`: its commands and their arguments.

mod backup;
mod bench;
mod care;
mod demo;
mod demo_ledgers;
mod dump;
mod form;
mod info;
mod init;
mod inspect;
mod load;
mod map;
mod open;
mod point;
mod rekey;
mod scan;
mod stats;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::exit::Fail;
use crate::session::{self, Common, Session};

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
    /// File with the key of an encrypted bucket
    ///
    /// It has lines of 64 hex digits, each with an id in front if there are several (2:5f3a...), or just 32 bytes. Without it
    /// the key is taken from the environment variable KVB_KEY in the same form, or asked for in a terminal.
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
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
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Fail> {
    session::run(
        arguments,
        |cli: &Cli| (cli.common.clone(), cli.key_file.clone()),
        |cli, session| match cli.command {
            Command::Init(args) => args.run(session),
            Command::Put(args) => args.run(session),
            Command::Get(args) => args.run(session),
            Command::Exists(args) => args.run(session),
            Command::Del(args) => args.run(session),
            Command::Scan(args) => args.run(session),
            Command::Load(args) => args.run(session),
            Command::Dump(args) => args.run(session),
            Command::Stats(args) => args.run(session),
            Command::Info(args) => args.run(session),
            Command::Inspect(args) => args.run(session),
            Command::Watch(args) => args.run(session),
            Command::Compact(args) => args.run(session),
            Command::Train(args) => args.run(session),
            Command::Verify(args) => args.run(session),
            Command::Repair(args) => args.run(session),
            Command::Backup(args) => args.run(session),
            Command::Restore(args) => args.run(session),
            Command::Keygen(args) => args.run(session),
            Command::Rekey(args) => args.run(session),
            Command::Bench(args) => args.run(session),
            Command::Demo(args) => args.run(session),
            Command::DemoWriter(args) => args.run(session),
        },
    )
}

/// Rows of a dump in any form that `kvb load` takes. The fuzzer asks.
#[doc(hidden)]
pub fn count_rows(dump: &[u8]) -> Result<u64, Fail> {
    load::count_rows(dump)
}
