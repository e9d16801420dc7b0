//! Checkpoints for `misaka-node`: those of the vectors, and chains of any length.

#![allow(dead_code, reason = "not every test needs everything")]

use std::fmt::Write;

use ledger::MemoryEngine;
use misaka::format::checkpoint::{Header, tx_root};
use misaka::format::object::{Object, Owner};
use misaka::{Checkpoint, Effort, Event, Hash, RootVersion, Settings, Store, hex};
use serde_json::Value;

use crate::run::Place;

/// What the trace of the vectors needs.
pub(crate) const MADE: &[&str] = &["--event-retention", "4", "--window", "6", "--v2-at", "260"];

/// A place with a database in `db`.
pub(crate) fn place(made: &[&str]) -> Place {
    let place = Place::of(env!("CARGO_BIN_EXE_misaka-node"));
    place.run(&[&["init", "--db", "db"], made].concat()).ok();
    place
}

/// The trace of the vectors.
pub(crate) fn trace() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/misaka/vectors.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    all["trace"].clone()
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The checkpoints of the trace.
pub(crate) fn trace_checkpoints() -> Vec<Checkpoint> {
    let trace = trace();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
    let checkpoint = |value: Value| Checkpoint {
        header: Header::decode(&bytes(&value["expected"]["header_bytes_hex"])).unwrap(),
        tx_digests: list(&value["tx_digests"])
            .iter()
            .map(|digest| Hash::from_slice(&bytes(digest)).unwrap())
            .collect(),
        writes: list(&value["writes"])
            .iter()
            .map(|write| bytes(&write["object_bytes_hex"]))
            .collect(),
        params: list(&value["sys_params"])
            .iter()
            .map(|param| (param["name"].as_str().unwrap().to_owned(), bytes(&param["value_hex"])))
            .collect(),
        events: list(&value["events"])
            .iter()
            .map(|event| Event {
                tx: number(&event["tx_index"]),
                number: number(&event["event_index"]),
                bytes: bytes(&event["event_hex"]),
            })
            .collect(),
    };
    list(&trace["checkpoints"]).into_iter().map(checkpoint).collect()
}

/// Lines of a file of checkpoints.
pub(crate) fn lines(checkpoints: &[Checkpoint]) -> String {
    let mut text = String::new();
    for checkpoint in checkpoints {
        let list = |items: Vec<String>| items.join(",");
        let digests = checkpoint.tx_digests.iter().map(|digest| format!("\"{digest}\"")).collect();
        let writes = checkpoint
            .writes
            .iter()
            .map(|write| format!("{{\"object_bytes_hex\":\"{}\"}}", hex(write)))
            .collect();
        let params = checkpoint
            .params
            .iter()
            .map(|(name, value)| {
                format!("{{\"name\":\"{name}\",\"value_hex\":\"{}\"}}", hex(value))
            })
            .collect();
        let events = checkpoint
            .events
            .iter()
            .map(|event| {
                format!(
                    "{{\"tx_index\":{},\"event_index\":{},\"event_hex\":\"{}\"}}",
                    event.tx,
                    event.number,
                    hex(&event.bytes)
                )
            })
            .collect();
        writeln!(
            text,
            "{{\"seq\":{},\"header_bytes_hex\":\"{}\",\"tx_digests\":[{}],\"writes\":[{}],\"sys_params\":[{}],\"events\":[{}]}}",
            checkpoint.header.seq,
            hex(&checkpoint.header.encode()),
            list(digests),
            list(writes),
            list(params),
            list(events),
        )
        .unwrap();
    }
    text
}

/// A binary file of checkpoints.
pub(crate) fn binary(checkpoints: &[Checkpoint]) -> Vec<u8> {
    let mut file = b"MSKFILE1".to_vec();
    for checkpoint in checkpoints {
        let bytes = checkpoint.encode();
        file.extend(u64::try_from(bytes.len()).unwrap().to_le_bytes());
        file.extend(bytes);
    }
    file
}

/// A chain that grows, with the right roots.
pub(crate) struct Chain {
    store: Store,
    prev: Hash,
    next: u64,
    /// Versions of the objects so far.
    versions: Vec<u64>,
    payload: usize,
}

impl Chain {
    pub(crate) fn new(settings: Settings) -> Chain {
        Chain::with_payload(settings, 40)
    }

    /// Objects have so many bytes.
    pub(crate) fn with_payload(settings: Settings, payload: usize) -> Chain {
        let engine = Box::new(MemoryEngine::new());
        let store = Store::init(engine, settings, Effort::default()).unwrap();
        Chain { store, prev: Hash::ZERO, next: 1, versions: Vec::new(), payload }
    }

    /// The next checkpoint, without its header: half of its writes are new objects.
    pub(crate) fn next(&mut self, writes: usize) -> Checkpoint {
        let seq = self.next;
        let digest = Hash::of(&[b"transaction", &seq.to_le_bytes()]);
        let mut objects = Vec::new();
        for at in 0..writes {
            let old = self.versions.len();
            let object = match old {
                0 => None,
                _ if at % 2 == 0 => None,
                _ => Some((at * 7 + usize::try_from(seq).unwrap() * 13) % old),
            };
            let object = object.unwrap_or_else(|| {
                self.versions.push(0);
                old
            });
            self.versions[object] += 1;
            let seed = Hash::of(&[&seq.to_le_bytes(), &at.to_le_bytes()]);
            let payload: Vec<u8> = seed.0.iter().copied().cycle().take(self.payload).collect();
            let object = Object {
                id: Hash::of(&[b"object", &object.to_le_bytes()]),
                version: self.versions[object],
                owner: Owner::Address([7; 32]),
                type_tag: "0x2::coin::Coin",
                payload: &payload,
                is_tombstone: false,
            };
            objects.push(object.encode());
        }
        let is_v2 = self.store.settings().root_version(seq) == RootVersion::V2;
        let is_first = self.store.settings().v2_at == Some(seq);
        let params = if is_v2 && is_first {
            vec![("state_root_version".to_owned(), vec![2, 0])]
        } else {
            Vec::new()
        };
        Checkpoint {
            header: Header {
                chain_id: 7,
                epoch: 0,
                seq,
                prev_digest: self.prev,
                timestamp_ms: 1_700_000_000_000 + seq,
                tx_count: 1,
                tx_root: tx_root(&[digest]),
                state_root: Hash::ZERO,
                validator_set_hash: Hash::of(&[b"validators"]),
            },
            tx_digests: vec![digest],
            writes: objects,
            params,
            events: vec![Event { tx: 0, number: 0, bytes: seq.to_le_bytes().to_vec() }],
        }
    }

    /// Gives a checkpoint its root, and goes on after it.
    pub(crate) fn finish(&mut self, checkpoint: &mut Checkpoint) -> Hash {
        let root = self.store.root_after(checkpoint).unwrap();
        checkpoint.header.state_root = root;
        self.store.apply(checkpoint).unwrap();
        self.prev = checkpoint.header.digest();
        self.next += 1;
        root
    }

    /// So many checkpoints, and the line that is printed of each.
    pub(crate) fn grow(&mut self, count: usize, writes: usize) -> (Vec<Checkpoint>, Vec<String>) {
        let (mut checkpoints, mut answers) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut checkpoint = self.next(writes);
            let root = self.finish(&mut checkpoint);
            answers.push(format!("{} {root}", checkpoint.header.seq));
            checkpoints.push(checkpoint);
        }
        (checkpoints, answers)
    }
}
