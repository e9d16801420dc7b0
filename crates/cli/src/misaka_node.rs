//! The program `misaka-node`: its commands and their arguments.

mod apply;
mod look;
mod make;
mod open;
mod proofs;
mod snapshots;
mod values;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::exit::Fail;
use crate::session::{self, Common, Session};

/// The stores of a MISAKA validator: objects, versions, checkpoints, events, parameters; their roots, proofs and snapshots.
#[derive(Parser)]
#[command(
    name = "misaka-node",
    version,
    after_help = "\
Examples:
  misaka-node init --db node
  misaka-node apply --db node checkpoints.jsonl
  misaka-node state-root --db node --full
  misaka-node snapshot create --db node snap
  misaka-node help apply

Exit codes: 0 done, 1 a checkpoint was refused, something is not there, a check failed or something went wrong, 2 wrong usage,
130 interrupted."
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
    Apply(apply::Apply),
    Tip(look::Tip),
    StateRoot(look::StateRoot),
    Object(look::ObjectOf),
    Versions(look::Versions),
    Checkpoint(look::CheckpointOf),
    Events(look::Events),
    Params(look::ParamsOf),
    Prune(make::Prune),
    Snapshot(snapshots::Snapshot),
    Prove(proofs::Prove),
    VerifyProof(proofs::VerifyProof),
    Dump(look::Dump),
    Verify(make::Verify),
    Stats(make::Stats),
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Fail> {
    session::run(
        arguments,
        |cli: &Cli| (cli.common.clone(), None),
        |cli, session| match cli.command {
            Command::Init(args) => args.run(session),
            Command::Apply(args) => args.run(session),
            Command::Tip(args) => args.run(session),
            Command::StateRoot(args) => args.run(session),
            Command::Object(args) => args.run(session),
            Command::Versions(args) => args.run(session),
            Command::Checkpoint(args) => args.run(session),
            Command::Events(args) => args.run(session),
            Command::Params(args) => args.run(session),
            Command::Prune(args) => args.run(session),
            Command::Snapshot(args) => args.run(session),
            Command::Prove(args) => args.run(session),
            Command::VerifyProof(args) => args.run(session),
            Command::Dump(args) => args.run(session),
            Command::Verify(args) => args.run(session),
            Command::Stats(args) => args.run(session),
        },
    )
}
