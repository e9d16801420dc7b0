//! Logs go to standard error, as `RUST_LOG` asks; by default only errors.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::show;

/// Starts logging.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_target(false)
        .with_ansi(show::has_colors(stderr().is_terminal()))
        // Where logs cannot be written, complaints about that cannot either.
        .log_internal_errors(false)
        .try_init();
}
