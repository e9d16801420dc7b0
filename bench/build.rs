//! Tells the program which compiler it was built with, and of which commit.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=RUSTC_VERSION={}", version.unwrap_or_else(|_| "?".to_owned()));
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]).filter(|text| !text.is_empty());
    // Documents do not change what is measured.
    let changed = git(&["status", "--porcelain", "-uno", "--", "..", ":!../docs", ":!../*.md"]);
    let mark = if changed.is_some_and(|text| !text.is_empty()) { " and changes" } else { "" };
    println!("cargo::rustc-env=GIT_COMMIT={}{mark}", commit.unwrap_or_else(|| "?".to_owned()));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../.git/HEAD");
    println!("cargo::rerun-if-changed=../.git/index");
    println!("cargo::rerun-if-changed=../crates");
    println!("cargo::rerun-if-changed=src");
}
