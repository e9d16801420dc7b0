//! `misaka-indexer`: what a MISAKA validator does not keep.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::finish("misaka-indexer", cli::misaka_indexer::run(std::env::args_os()))
}
