//! The program `utxo-csmt`: its commands and their arguments.

mod apply;
mod bootstrap;
mod look;
mod make;
mod open;
mod proofs;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::exit::Fail;
use crate::session::{self, Common, Session};

/// A UTxO set with a Compact Sparse Merkle Tree over it: blocks, rollbacks, proofs.
#[derive(Parser)]
#[command(
    name = "utxo-csmt",
    version,
    after_help = "\
Examples:
  utxo-csmt init --db utxos
  utxo-csmt apply --db utxos blocks.jsonl
  utxo-csmt prove --db utxos 825820...00 > proof.hex
  utxo-csmt verify-proof --root ROOT --key 825820...00 --value 8258...  --proof proof.hex
  utxo-csmt help apply

Exit codes: 0 done, 1 not found, a proof or check failed, or something went wrong, 2 wrong usage, 130 interrupted."
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
    Bootstrap(bootstrap::Bootstrap),
    Apply(apply::Apply),
    Rollback(make::Rollback),
    Wipe(make::Wipe),
    Root(look::Root),
    Roots(look::Roots),
    Tip(look::Tip),
    Get(look::Get),
    ByAddress(look::ByAddress),
    Prove(proofs::Prove),
    ProvePrefix(proofs::ProvePrefix),
    VerifyProof(proofs::VerifyProof),
    VerifyPrefix(proofs::VerifyPrefix),
    Dump(look::Dump),
    Verify(look::Verify),
    Stats(look::Stats),
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Fail> {
    session::run(
        arguments,
        |cli: &Cli| (cli.common.clone(), None),
        |cli, session| match cli.command {
            Command::Init(args) => args.run(session),
            Command::Bootstrap(args) => args.run(session),
            Command::Apply(args) => args.run(session),
            Command::Rollback(args) => args.run(session),
            Command::Wipe(args) => args.run(session),
            Command::Root(args) => args.run(session),
            Command::Roots(args) => args.run(session),
            Command::Tip(args) => args.run(session),
            Command::Get(args) => args.run(session),
            Command::ByAddress(args) => args.run(session),
            Command::Prove(args) => args.run(session),
            Command::ProvePrefix(args) => args.run(session),
            Command::VerifyProof(args) => args.run(session),
            Command::VerifyPrefix(args) => args.run(session),
            Command::Dump(args) => args.run(session),
            Command::Verify(args) => args.run(session),
            Command::Stats(args) => args.run(session),
        },
    )
}
