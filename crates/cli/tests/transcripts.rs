//! The documentation of the command, run: every transcript in `docs/cli.md`, and every error message.
//!
//! After a change of output: `TRYCMD=overwrite cargo test -p kvb-cli --test transcripts`, and look at the difference.

use std::env;
use std::path::Path;

#[test]
fn transcripts_are_true() {
    let program = Path::new(env!("CARGO_BIN_EXE_kvb"));
    let mut paths = vec![program.parent().map(Path::to_owned).unwrap_or_default()];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let path = env::join_paths(paths).expect("a path");
    trycmd::TestCases::new()
        .case("tests/transcripts/*.md")
        .register_bin("sh", Path::new("/bin/sh"))
        .env("PATH", path.to_string_lossy())
        .env("COLUMNS", "100");
}
