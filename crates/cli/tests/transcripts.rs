//! Documentation of the programs, run: every transcript in the README and under `docs`, and every error message.
//!
//! After a change of output: `TRYCMD=overwrite cargo test -p kvb-cli --test transcripts`, and look at the difference.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The README as a case of its own, in a directory where the files that it names are.
fn readme() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let case = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let _ = fs::remove_dir_all(&case);
    let tour = case.join("README.in/vectors/tour");
    fs::create_dir_all(&tour).unwrap();
    fs::create_dir_all(case.join("README.out")).unwrap();
    for entry in fs::read_dir(root.join("vectors/tour")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), tour.join(entry.file_name())).unwrap();
    }
    fs::copy(root.join("README.md"), case.join("README.md")).unwrap();
    case.join("README.md")
}

/// Key files as their owner keeps them: a checkout does not, and then the programs warn.
fn keep_keys() {
    use std::os::unix::fs::PermissionsExt;
    for case in ["cli", "errors"] {
        let case = Path::new("tests/transcripts").join(format!("{case}.in"));
        for entry in fs::read_dir(case).unwrap() {
            let path = entry.unwrap().path();
            if path.to_string_lossy().contains("key") {
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            }
        }
    }
}

#[test]
fn transcripts_are_true() {
    keep_keys();
    let program = Path::new(env!("CARGO_BIN_EXE_kvb"));
    let mut paths = vec![program.parent().map(Path::to_owned).unwrap_or_default()];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let path = env::join_paths(paths).expect("a path");
    trycmd::TestCases::new()
        .case("tests/transcripts/*.md")
        .case(readme())
        .register_bin("sh", Path::new("/bin/sh"))
        .env("PATH", path.to_string_lossy())
        .env("COLUMNS", "100");
}
