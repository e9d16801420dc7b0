//! `kvb`: everything an operator does to a bucket.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::finish("kvb", cli::bucket::run(std::env::args_os()))
}
