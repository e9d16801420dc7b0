//! The program `rubin-node`: its commands and their arguments.

mod blocks;
mod import;
mod look;
mod make;
mod open;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::{Done, Fail};
use crate::logging;

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
        Command::ChainId(args) => args.run(&mut session),
        Command::ImportBlock(args) => args.run(&mut session),
        Command::Import(args) => args.run(&mut session),
        Command::UtxoSetHash(args) => args.run(&mut session),
        Command::Tip(args) => args.run(&mut session),
        Command::Block(args) => args.run(&mut session),
        Command::Utxo(args) => args.run(&mut session),
        Command::ReorgPlan(args) => args.run(&mut session),
        Command::Dump(args) => args.run(&mut session),
        Command::Stats(args) => args.run(&mut session),
        Command::Verify(args) => args.run(&mut session),
        Command::Migrate(args) => args.run(&mut session),
        Command::Export(args) => args.run(&mut session),
        Command::ImportSnapshot(args) => args.run(&mut session),
    };
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}
