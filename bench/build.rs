//! Tells the program which compiler it was built with.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    println!("cargo::rustc-env=RUSTC_VERSION={}", version.unwrap_or_else(|_| "?".to_owned()));
    println!("cargo::rerun-if-changed=build.rs");
}
