//! The bytes: every encoding against `vectors/rubin/vectors.json`, which was made by an independent model.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/vectors.rs"]
mod vectors;

use ledger::{Reader, Writer};
use rubin::{
    Block, BlockIndex, Hash, Outpoint, SetHash, Status, UndoRecord, UtxoEntry, Work, from_hex,
    merkle_root, to_hex,
};
use vectors::{hash, hex, list, load, number, text};

#[test]
fn compact_sizes() {
    let all = load();
    let primitives = &all["primitives"];
    for case in list(&primitives["compactsize_boundaries"]) {
        let (value, bytes) = (number(&case["value"]), hex(&case["hex"]));
        let mut writer = Writer::new();
        writer.compact_size(value);
        assert_eq!(writer.finish(), bytes);
        assert_eq!(Reader::new(&bytes).compact_size(), Ok(value));
    }
    for bytes in list(&primitives["compactsize_nonminimal_reject"]) {
        assert!(Reader::new(&hex(bytes)).compact_size().is_err());
    }
}

#[test]
fn outpoints() {
    let all = load();
    let case = &all["primitives"]["outpoint_key"];
    let vout = u32::try_from(number(&case["vout"])).unwrap();
    let outpoint = Outpoint::new(hash(&case["txid_hex"]), vout);
    assert_eq!(outpoint.as_bytes().as_slice(), hex(&case["key_hex"]));
    assert_eq!((outpoint.txid(), outpoint.vout()), (hash(&case["txid_hex"]), vout));
    // Little-endian numbers are not in order.
    assert!(Outpoint::new(Hash::ZERO, 256) < Outpoint::new(Hash::ZERO, 1));
    assert!(Outpoint::new(Hash::ZERO, u32::MAX).is_null());
}

#[test]
fn utxo_entries() {
    for case in list(&load()["primitives"]["utxo_entry"]) {
        let data = hex(&case["covenant_data_hex"]);
        let entry = UtxoEntry {
            value: number(&case["value"]),
            covenant_type: u16::try_from(number(&case["covenant_type"])).unwrap(),
            covenant_data: &data,
            creation_height: number(&case["creation_height"]),
            created_by_coinbase: case["created_by_coinbase"].as_bool().unwrap(),
        };
        let bytes = hex(&case["entry_hex"]);
        assert_eq!(entry.encode(), bytes);
        assert_eq!(UtxoEntry::decode(&bytes), Ok(entry));
        refuses_everything_else(&bytes, |bytes| UtxoEntry::decode(bytes).is_ok());
        let mut flag = bytes.clone();
        *flag.last_mut().unwrap() = 2;
        assert!(UtxoEntry::decode(&flag).is_err());
    }
}

/// Cut anywhere, or with a byte more, it is nothing.
fn refuses_everything_else(bytes: &[u8], is_taken: impl Fn(&[u8]) -> bool) {
    for cut in 0..bytes.len() {
        assert!(!is_taken(&bytes[..cut]), "{} cut to {cut}", to_hex(bytes));
    }
    assert!(!is_taken(&[bytes, &[0]].concat()));
}

#[test]
fn work() {
    for case in list(&load()["primitives"]["work"]) {
        let target = hex(&case["target_hex"]).try_into().unwrap();
        let Some(wanted) = case["work_dec"].as_str() else {
            assert_eq!(Work::of_target(&target), None);
            continue;
        };
        let work = Work::of_target(&target).unwrap();
        assert_eq!(work.to_string(), wanted);
        assert_eq!(work.to_bytes(), hex(&case["work_be_hex"]));
        assert_eq!(Work::from_bytes(&work.to_bytes()), Some(work.clone()));
        assert_eq!(wanted.parse(), Ok(work));
    }
    assert_eq!(Work::of_target(&[0; 32]), None);
    assert!(Work::zero().to_bytes().is_empty());
    for wrong in ["", "01", "-1", "+1", "0x1", "1 "] {
        assert!(wrong.parse::<Work>().is_err(), "{wrong}");
    }
}

#[test]
fn index_values() {
    for case in list(&load()["primitives"]["block_index_value"]) {
        let index = BlockIndex {
            height: number(&case["height"]),
            prev_hash: hash(&case["prev_hash_hex"]),
            status: Status::of(u8::try_from(number(&case["status"])).unwrap()).unwrap(),
            work: text(&case["work_dec"]).parse().unwrap(),
        };
        let bytes = hex(&case["value_hex"]);
        assert_eq!(index.encode(), bytes);
        assert_eq!(BlockIndex::decode(&bytes), Ok(index));
        refuses_everything_else(&bytes, |bytes| BlockIndex::decode(bytes).is_ok());
        let mut status = bytes.clone();
        status[40] = 7;
        assert!(BlockIndex::decode(&status).is_err());
        let mut zero = bytes.clone();
        zero[41] += 1;
        zero.insert(43, 0);
        assert!(BlockIndex::decode(&zero).is_err(), "a leading zero");
    }
    for status in Status::ALL {
        assert_eq!(Status::of(status.byte()), Some(status));
    }
}

#[test]
fn undo_records() {
    for case in list(&load()["primitives"]["undo_value"]) {
        let spent: Vec<(Outpoint, Vec<u8>)> = list(&case["spent"])
            .iter()
            .map(|spent| (outpoint(&spent["outpoint_hex"]), hex(&spent["entry_hex"])))
            .collect();
        let created = case.get("created_outpoints_hex").map_or(&[][..], |created| list(created));
        let undo = UndoRecord {
            spent: spent.iter().map(|(outpoint, entry)| (*outpoint, entry.as_slice())).collect(),
            created: created.iter().map(outpoint).collect(),
        };
        let bytes = hex(&case["value_hex"]);
        assert_eq!(undo.encode(), bytes);
        assert_eq!(UndoRecord::decode(&bytes), Ok(undo));
        refuses_everything_else(&bytes, |bytes| UndoRecord::decode(bytes).is_ok());
        // A count that promises the world reserves nothing.
        let mut hostile = bytes.clone();
        hostile[..4].copy_from_slice(&[255; 4]);
        assert!(UndoRecord::decode(&hostile).is_err());
    }
}

fn outpoint(value: &serde_json::Value) -> Outpoint {
    Outpoint::from_slice(&hex(value)).unwrap()
}

#[test]
fn set_hashes() {
    for case in list(&load()["primitives"]["utxo_set_hash"]) {
        let entries = list(&case["entries"]);
        let mut set = SetHash::new(u64::try_from(entries.len()).unwrap());
        for entry in entries {
            set.add(&hex(&entry["key_hex"]), &hex(&entry["entry_hex"]));
        }
        assert_eq!(set.finish(), hash(&case["utxo_set_hash_hex"]));
    }
}

#[test]
fn the_genesis_of_devnet() {
    let all = load();
    let genesis = &all["devnet_genesis"];
    let bytes = hex(&genesis["block_hex"]);
    let block = Block::decode(&bytes).unwrap();
    assert_eq!(block.hash, hash(&genesis["block_hash_hex"]));
    assert_eq!(block.header_bytes(), hex(&genesis["headers_value_hex"]));
    assert_eq!(block.header.encode(), block.header_bytes());
    assert_eq!(block.transactions[0].txid, hash(&genesis["coinbase_txid_hex"]));
    assert_eq!(block.merkle_root(), Some(block.header.merkle_root));
    assert_eq!(block.transactions[0].outputs.len(), 100);
}

#[test]
fn blocks_are_refused_cut_or_longer_and_never_believed() {
    let all = load();
    let bytes = hex(&all["spend_intrablock_anchor_reorg"]["b100_hex"]);
    let block = Block::decode(&bytes).unwrap();
    assert!(block.transactions.len() > 2);
    refuses_everything_else(&bytes, |bytes| Block::decode(bytes).is_ok());
    // Counts and lengths that promise more than there is.
    for at in 116..bytes.len() {
        for value in [0xfd, 0xfe, 0xff] {
            let mut hostile = bytes.clone();
            hostile[at] = value;
            let _ = Block::decode(&hostile);
        }
    }
    assert_eq!(merkle_root(Vec::new()), None);
}

#[test]
fn hex_digits() {
    assert_eq!(from_hex("00ffAb"), Some(vec![0, 255, 0xab]));
    for wrong in ["0", "0g", "+1", " 1", "ü"] {
        assert_eq!(from_hex(wrong), None, "{wrong}");
    }
    assert_eq!(
        Hash::of(&[]).to_string(),
        "a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a"
    );
}
