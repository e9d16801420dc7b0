//! The program `misaka-indexer`: its commands and their arguments.

mod list;
mod look;
mod make;
mod open;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::exit::Fail;
use crate::session::{self, Common, Session};

/// What a MISAKA validator does not keep: objects by owner and by type, old versions, old events.
#[derive(Parser)]
#[command(
    name = "misaka-indexer",
    version,
    after_help = "\
Examples:
  misaka-indexer follow --db node --index index
  misaka-indexer owner --index index d23f37e7...
  misaka-indexer history --index index d23f37e7... --as-of 120
  misaka-indexer rebuild --from-snapshot snap --index index
  misaka-indexer help follow

Exit codes: 0 done, 1 not found or something went wrong, 2 wrong usage, 130 interrupted."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Follow(make::Follow),
    Rebuild(make::Rebuild),
    Owner(list::Owner),
    Type(list::Type),
    History(list::History),
    Events(list::Events),
    Tx(look::Tx),
    Checkpoint(look::Checkpoint),
    Tip(look::Tip),
    Stats(look::Stats),
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Fail> {
    session::run(
        arguments,
        |cli: &Cli| (cli.common.clone(), None),
        |cli, session| match cli.command {
            Command::Follow(args) => args.run(session),
            Command::Rebuild(args) => args.run(session),
            Command::Owner(args) => args.run(session),
            Command::Type(args) => args.run(session),
            Command::History(args) => args.run(session),
            Command::Events(args) => args.run(session),
            Command::Tx(args) => args.run(session),
            Command::Checkpoint(args) => args.run(session),
            Command::Tip(args) => args.run(session),
            Command::Stats(args) => args.run(session),
        },
    )
}
