//! `rubin-node`: the store of a RUBIN node.

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::finish("rubin-node", cli::rubin_node::run(std::env::args_os()))
}
