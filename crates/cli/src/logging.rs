//! Logs go to standard error: as `RUST_LOG` asks, or as `--verbose` does; by default warnings too, unless the user wants quiet.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::session::Common;
use crate::show;

/// Starts logging, as the user wants it.
pub(crate) fn start(common: &Common) {
    let level = match common.verbose {
        0 if common.quiet => "error",
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_target(false)
        .with_ansi(show::has_colors(stderr().is_terminal()))
        // Where logs cannot be written, complaints about that cannot either.
        .log_internal_errors(false)
        .try_init();
}
