//! The program `rubin-node`: its commands and their arguments.

mod blocks;
mod import;
mod look;
mod make;
mod open;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::exit::Fail;
use crate::session::{self, Common, Session};

/// The store of a RUBIN node: blocks, their index, the outputs that can be spent.
#[derive(Parser)]
#[command(
    name = "rubin-node",
    version,
    after_help = "\
Examples:
  rubin-node init --datadir data --profile devnet
  rubin-node import --datadir data blocks.hex
  rubin-node utxo-set-hash --datadir data
  rubin-node help import

Exit codes: 0 done, 1 a block was rejected, something is not there or failed, 2 wrong usage, 130 interrupted."
)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(make::Init),
    ChainId(make::ChainId),
    ImportBlock(import::ImportBlock),
    Import(import::ImportFiles),
    UtxoSetHash(look::UtxoSetHash),
    Tip(look::Tip),
    Block(look::Block),
    Utxo(look::Utxo),
    ReorgPlan(look::Plan),
    Dump(look::Dump),
    Stats(look::Stats),
    Verify(look::Verify),
    Migrate(make::Migrate),
    Export(make::Export),
    ImportSnapshot(make::ImportSnapshot),
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Fail> {
    session::run(
        arguments,
        |cli: &Cli| (cli.common.clone(), None),
        |cli, session| match cli.command {
            Command::Init(args) => args.run(session),
            Command::ChainId(args) => args.run(session),
            Command::ImportBlock(args) => args.run(session),
            Command::Import(args) => args.run(session),
            Command::UtxoSetHash(args) => args.run(session),
            Command::Tip(args) => args.run(session),
            Command::Block(args) => args.run(session),
            Command::Utxo(args) => args.run(session),
            Command::ReorgPlan(args) => args.run(session),
            Command::Dump(args) => args.run(session),
            Command::Stats(args) => args.run(session),
            Command::Verify(args) => args.run(session),
            Command::Migrate(args) => args.run(session),
            Command::Export(args) => args.run(session),
            Command::ImportSnapshot(args) => args.run(session),
        },
    )
}
