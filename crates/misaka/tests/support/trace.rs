//! The vectors, and the trace in them as checkpoints.

#![allow(dead_code, reason = "every test file uses a part of this")]

use misaka::format::checkpoint::Header;
use misaka::{Checkpoint, Event, Hash};
use serde_json::Value;

pub(crate) fn load() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/misaka/vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

pub(crate) fn hex(value: &Value) -> Vec<u8> {
    let text = text(value);
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

pub(crate) fn hash(value: &Value) -> Hash {
    Hash::from_slice(&hex(value)).unwrap()
}

/// Filler: SHA3-256 of a label and a number.
pub(crate) fn tag32(label: &str, number: u64) -> Hash {
    Hash::of(&[label.as_bytes(), &number.to_le_bytes()])
}

/// A checkpoint of the trace.
pub(crate) fn checkpoint(value: &Value) -> Checkpoint {
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    Checkpoint {
        header: Header::decode(&hex(&value["expected"]["header_bytes_hex"])).unwrap(),
        tx_digests: list(&value["tx_digests"]).iter().map(hash).collect(),
        writes: list(&value["writes"])
            .iter()
            .map(|write| hex(&write["object_bytes_hex"]))
            .collect(),
        params: list(&value["sys_params"])
            .iter()
            .map(|param| (text(&param["name"]).to_owned(), hex(&param["value_hex"])))
            .collect(),
        events: list(&value["events"])
            .iter()
            .map(|event| Event {
                tx: number(&event["tx_index"]),
                number: number(&event["event_index"]),
                bytes: hex(&event["event_hex"]),
            })
            .collect(),
    }
}
