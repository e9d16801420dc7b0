//! Logs go to standard error, as `RUST_LOG` asks; by default only warnings.

use tracing_subscriber::EnvFilter;

/// Starts logging.
pub fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .try_init();
}
