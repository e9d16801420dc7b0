//! `utxo-csmt`: a UTxO set with a tree over it.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::finish("utxo-csmt", cli::utxo_csmt::run(std::env::args_os()))
}
