//! Reading `vectors/rubin`.

#![allow(dead_code, reason = "every test file uses a part of this")]

use rubin::Hash;
use serde_json::Value;

/// All vectors.
pub(crate) fn load() -> Value {
    load_file("vectors.json")
}

/// A file of vectors.
pub(crate) fn load_file(name: &str) -> Value {
    let path = format!("{}/../../vectors/rubin/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// A number; large ones are texts.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| text(value).parse().unwrap())
}

pub(crate) fn hex(value: &Value) -> Vec<u8> {
    rubin::from_hex(text(value)).unwrap()
}

pub(crate) fn hash(value: &Value) -> Hash {
    text(value).parse().unwrap()
}
