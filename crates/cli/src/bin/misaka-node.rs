//! `misaka-node`: the stores of a MISAKA validator.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::finish("misaka-node", cli::misaka_node::run(std::env::args_os()))
}
