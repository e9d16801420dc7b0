//! The program `utxo-csmt`: its commands and their arguments.

mod apply;
mod bootstrap;
mod look;
mod make;
mod open;
mod proofs;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{Done, Fail};
use crate::logging;

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

/// What every command takes.
#[derive(Args, Clone)]
struct Common {
    /// Print facts as JSON
    #[arg(long, global = true)]
    json: bool,
    /// No progress bars, no notices
    #[arg(long, short, global = true)]
    quiet: bool,
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
}

/// Runs a command line.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), Fail> {
    let matches = match Cli::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
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
        Command::Bootstrap(args) => args.run(&mut session),
        Command::Apply(args) => args.run(&mut session),
        Command::Rollback(args) => args.run(&mut session),
        Command::Wipe(args) => args.run(&mut session),
        Command::Root(args) => args.run(&mut session),
        Command::Roots(args) => args.run(&mut session),
        Command::Tip(args) => args.run(&mut session),
        Command::Get(args) => args.run(&mut session),
        Command::ByAddress(args) => args.run(&mut session),
        Command::Prove(args) => args.run(&mut session),
        Command::ProvePrefix(args) => args.run(&mut session),
        Command::VerifyProof(args) => args.run(&mut session),
        Command::VerifyPrefix(args) => args.run(&mut session),
        Command::Dump(args) => args.run(&mut session),
        Command::Verify(args) => args.run(&mut session),
        Command::Stats(args) => args.run(&mut session),
    };
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}
