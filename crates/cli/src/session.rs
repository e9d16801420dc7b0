//! What a command of a ledger's program works with: what all of them take, and where facts go.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::{Args, Parser};

use crate::exit::{Done, Fail};
use crate::logging;

/// What every command takes.
#[derive(Args, Clone)]
pub(crate) struct Common {
    /// Print facts as JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress bars, no notices
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// What a command works with.
pub(crate) struct Session<'a> {
    pub(crate) common: Common,
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
}

/// Parses a command line, and runs what it asks for.
pub(crate) fn run<C: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    common: impl FnOnce(&C) -> Common,
    command: impl FnOnce(C, &mut Session<'_>) -> Done,
) -> Result<(), Fail> {
    let cli = match C::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            let _ = error.print();
            return Err(Fail::silent(code));
        }
    };
    logging::start();
    let mut out = io::BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut session = Session { common: common(&cli), out: &mut out };
    let done = command(cli, &mut session);
    let flushed = out.flush();
    done?;
    Ok(flushed?)
}
