//! The vectors, and how to read them.

#![allow(dead_code, reason = "every test file uses a part of this")]

use csmt::{Hash, Node, Path};
use serde_json::Value;

pub(crate) fn load() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/csmt/vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

pub(crate) fn hex(value: &Value) -> Vec<u8> {
    unhex(text(value))
}

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

pub(crate) fn path(value: &Value) -> Path {
    Path::parse(text(value)).unwrap()
}

pub(crate) fn hash(value: &Value) -> Hash {
    Hash::from_slice(&hex(value)).unwrap()
}

pub(crate) fn node(jump: &Value, value: &Value) -> Node {
    Node { jump: path(jump), value: hash(value) }
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}
