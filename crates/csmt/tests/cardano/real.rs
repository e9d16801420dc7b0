//! Where real blocks are.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The package with the blocks.
const PACKAGE: (&str, &str) = ("pallas-primitives", "0.10.0");

/// The folder of the package: where cargo unpacks it, or wherever cargo says if sources are replaced.
fn package() -> PathBuf {
    let (name, version) = PACKAGE;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let sources = home.and_then(|home| home.join("registry/src").read_dir().ok());
    for source in sources.into_iter().flatten() {
        let folder = source.unwrap().path().join(format!("{name}-{version}"));
        if folder.is_dir() {
            return folder;
        }
    }
    let said = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let facts: Value = serde_json::from_slice(&said.stdout).unwrap();
    let mut packages = facts["packages"].as_array().unwrap().iter();
    let package = packages.find(|package| package["name"] == name && package["version"] == version);
    Path::new(package.unwrap()["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned()
}

/// The files with blocks, in hex: their names and what is in them.
pub(crate) fn files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for folder in ["src/test_data", "src/alonzo/test_data", "src/byron/test_data"] {
        for file in package().join(folder).read_dir().unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "block") {
                let text = std::fs::read(&path).unwrap();
                files.push((path.display().to_string(), text));
            }
        }
    }
    files.sort();
    assert_eq!(files.len(), 33, "as many as the package has");
    files
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digits = digits.chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

/// The same as bytes.
pub(crate) fn blocks() -> Vec<(String, Vec<u8>)> {
    let bytes = |text: Vec<u8>| unhex(std::str::from_utf8(&text).unwrap());
    files().into_iter().map(|(name, text)| (name, bytes(text))).collect()
}

/// The chunk that was asked for, if any.
pub(crate) fn chunk(test: &str) -> Option<Vec<u8>> {
    match std::env::var_os("KVB_CARDANO_CHUNK") {
        Some(path) => Some(std::fs::read(path).unwrap()),
        None => {
            eprintln!("{test}: no chunk, since KVB_CARDANO_CHUNK does not name one");
            None
        }
    }
}
