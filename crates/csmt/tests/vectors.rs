//! Every group of vectors: bytes, roots, rows, proofs, and forgeries.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/vectors.rs"]
mod vectors;

use csmt::format::config::Config;
use csmt::format::node as rows;
use csmt::format::point::Point;
use csmt::format::rollback::{self, Operation, RollbackPoint};
use csmt::proof::{Completeness, Exclusion, Inclusion, Leaf};
use csmt::tables::{CSMT, KV, ROLLBACKS};
use csmt::{Bits, Effort, Hash, Path, PathKind, RolledBack, Settings, Store, packed, unpacked};
use ledger::{MemoryEngine, Table};
use serde_json::Value;
use vectors::{hash, hex, list, load, path, text, unhex};

fn store(path: PathKind, k: u32) -> Store {
    let engine = Box::new(MemoryEngine::new());
    Store::init(engine, Settings { path, k }, Effort::default()).unwrap()
}

fn insert(key: &[u8], value: &[u8]) -> Operation {
    Operation::Insert { key: key.to_vec(), value: value.to_vec() }
}

fn point(slot: u64) -> Point {
    Point::block(slot, Hash::of(&slot.to_be_bytes()))
}

/// All rows of a table in hex.
fn dump(store: &Store, table: Table) -> Vec<(String, String)> {
    let view = store.view().unwrap();
    let rows = view.rows(table).unwrap();
    rows.map(|row| row.unwrap()).map(|(key, value)| (csmt::hex(&key), csmt::hex(&value))).collect()
}

fn wanted_rows(rows: &Value) -> Vec<(String, String)> {
    let row =
        |row: &Value| (text(&row["key_cbor"]).to_owned(), text(&row["value_cbor"]).to_owned());
    list(rows).iter().map(row).collect()
}

fn ascii(pairs: &Value) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = |value: &Value| text(value).as_bytes().to_vec();
    list(pairs).iter().map(|pair| (bytes(&pair[0]), bytes(&pair[1]))).collect()
}

fn of(pairs: &[(Vec<u8>, Vec<u8>)]) -> Store {
    let store = store(PathKind::Raw, 3);
    let operations: Vec<_> = pairs.iter().map(|(key, value)| insert(key, value)).collect();
    store.forward(point(1), &operations).unwrap();
    store
}

#[test]
fn paths_and_nodes_are_hashed_as_they_should_be() {
    let all = load();
    for case in list(&all["preimage_path"]) {
        let path = path(&case["path"]);
        assert_eq!(packed(&path), hex(&case["hex"]));
        assert_eq!(unpacked(&hex(&case["hex"])), Some(path));
    }
    for bytes in ["", "00", "000101", "0001c0", "000901", "00080101", "ffff"] {
        assert_eq!(unpacked(&unhex(bytes)), None, "{bytes}");
    }
    for case in list(&all["csmt_key_cbor"]) {
        let len = usize::try_from(case["path_len"].as_u64().unwrap()).unwrap();
        let path = Path::parse(&text(&case["bit"]).repeat(len)).unwrap();
        assert_eq!(rows::key(&Bits::from(&path)), hex(&case["hex"]));
        assert_eq!(rows::position(&hex(&case["hex"])).unwrap(), path);
    }
}

#[test]
fn published_trees_and_proofs() {
    let all = load();
    let published = &all["published"];
    let pairs = ascii(&published["kv_ascii"]);
    let store = of(&pairs);
    let root = hash(&published["root"]);
    assert_eq!(store.root().unwrap(), Some(root));
    assert_eq!(dump(&store, CSMT), wanted_rows(&published["rows"]));
    for (key, value) in &pairs {
        let wanted = &published["inclusion"][std::str::from_utf8(key).unwrap()];
        let proof = store.view().unwrap().prove(key).unwrap().unwrap();
        check_forms(&proof, &root, wanted);
        let path = Path::of_bytes(key).unwrap();
        proof.verify(&root, &path, &Hash::of(value)).unwrap();
        assert!(proof.verify(&root, &path, &Hash::of(b"other")).is_err());
        assert!(proof.verify(&Hash::of(b"other"), &path, &Hash::of(value)).is_err());
    }
    for (key, wanted) in published["exclusion"].as_object().unwrap() {
        let path = Path::of_bytes(key.as_bytes()).unwrap();
        let proof = store.view().unwrap().prove_absent(&path).unwrap().unwrap();
        assert_eq!(csmt::hex(&proof.to_bytes()), text(wanted));
        assert_eq!(Exclusion::from_bytes(&hex(wanted)).unwrap(), proof);
        proof.verify(Some(&root), &path).unwrap();
    }
    for case in list(&published["cli_manual"]["cases"]) {
        let pairs = ascii(&case["kv"]);
        assert_eq!(of(&pairs).root().unwrap(), Some(hash(&case["root_raw_keys"])));
        let hashed: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (Hash::of(key).as_bytes().to_vec(), value.clone()))
            .collect();
        assert_eq!(of(&hashed).root().unwrap(), Some(hash(&case["root_hashed_keys_published"])));
    }
}

fn check_forms(proof: &Inclusion, root: &Hash, wanted: &Value) {
    let forms = [
        ("cbor", proof.to_v4()),
        ("cbor_with_root", proof.to_v5(root)),
        ("compact", proof.to_compact()),
        ("plutus", proof.to_plutus()),
    ];
    for (form, bytes) in forms {
        assert_eq!(csmt::hex(&bytes), text(&wanted[form]), "{form}");
    }
    let (key, value) = (path(&wanted["key_path"]), hash(&wanted["value_hash"]));
    assert_eq!(Inclusion::from_v4(&hex(&wanted["cbor"])).unwrap(), *proof);
    assert_eq!(
        Inclusion::from_v5(&hex(&wanted["cbor_with_root"])).unwrap(),
        (proof.clone(), *root)
    );
    let compact = Inclusion::from_compact(&hex(&wanted["compact"]), key.clone(), value);
    assert_eq!(compact.unwrap(), *proof);
    let plutus = Inclusion::from_plutus(&hex(&wanted["plutus"]), key, value);
    assert_eq!(plutus.unwrap(), *proof);
    assert_eq!(list(&wanted["steps"]).len(), proof.steps.len());
}

#[test]
fn prefixes_are_proved_complete() {
    let all = load();
    let prefixed = &all["prefixed"];
    // There the path begins with the first byte of the value; here that is part of the key.
    let key = |(key, value): &(Vec<u8>, Vec<u8>)| [&value[..1], key].concat();
    let pairs = ascii(&prefixed["kv_ascii"]);
    let with_prefix: Vec<_> = pairs.iter().map(|pair| (key(pair), pair.1.clone())).collect();
    let store = of(&with_prefix);
    let root = hash(&prefixed["root"]);
    assert_eq!(store.root().unwrap(), Some(root));
    assert_eq!(dump(&store, CSMT), wanted_rows(&prefixed["rows"]));
    let case = &prefixed["complete_A"];
    let leaf = |leaf: &Value| -> Leaf { (path(&leaf[0]), hash(&leaf[1])) };
    let wanted: Vec<Leaf> = list(&case["leaves"]).iter().map(leaf).collect();
    let prefix = path(&case["prefix"]);
    let (leaves, proof) = store.view().unwrap().prove_prefix(&prefix).unwrap();
    assert_eq!(leaves, wanted);
    let proof = proof.unwrap();
    assert_eq!(csmt::hex(&proof.to_bytes()), text(&case["cbor"]));
    assert_eq!(Completeness::from_bytes(&hex(&case["cbor"])).unwrap(), proof);
    proof.verify(Some(&root), &prefix, &leaves).unwrap();
    assert!(proof.verify(Some(&root), &prefix, &leaves[1..]).is_err());
    let case = &prefixed["complete_Z_absent"];
    let prefix = path(&case["prefix"]);
    let (leaves, proof) = store.view().unwrap().prove_prefix(&prefix).unwrap();
    assert!(leaves.is_empty());
    assert_eq!(csmt::hex(&proof.as_ref().unwrap().to_bytes()), text(&case["cbor"]));
    proof.unwrap().verify(Some(&root), &prefix, &[]).unwrap();

    let delete = |pair| Operation::Delete { key: key(pair) };
    store.forward(point(2), &[delete(&pairs[1])]).unwrap();
    assert_eq!(store.root().unwrap(), Some(hash(&prefixed["after_delete_k2"]["root"])));
    assert_eq!(dump(&store, CSMT), wanted_rows(&prefixed["after_delete_k2"]["rows"]));
    let rest: Vec<_> = [0, 2, 3].map(|number: usize| delete(&pairs[number])).into();
    store.forward(point(3), &rest).unwrap();
    assert_eq!(store.root().unwrap(), None);
    assert!(dump(&store, CSMT).is_empty());
}

#[test]
fn points_and_rollback_rows() {
    let all = load();
    let of = |case: &Value| match case.get("slot") {
        Some(slot) => Point::block(slot.as_u64().unwrap(), hash(&case["hash"])),
        None => Point::Origin,
    };
    for case in list(&all["point"]) {
        assert_eq!(of(case).to_bytes(), hex(&case["hex"]));
        assert_eq!(Point::from_bytes(&hex(&case["hex"])).unwrap(), of(case));
    }
    for case in list(&all["rollback_key"]) {
        assert_eq!(rollback::point(&hex(&case["hex"])).unwrap(), of(case));
        // Origin is the sentinel; the other form of it is read, and never written.
        if case.get("origin").is_none() {
            assert_eq!(rollback::key(&of(case)), hex(&case["hex"]));
        }
    }
    let rows = list(&all["rollback_value"]);
    assert_eq!(RollbackPoint::sentinel().to_bytes(), hex(&rows[0]["hex"]));
    let second = RollbackPoint::from_bytes(&hex(&rows[1]["hex"])).unwrap();
    assert_eq!(second.operations, [insert(b"k1", b"v1"), Operation::Delete { key: b"k2".into() }]);
    assert_eq!(second.to_bytes(), hex(&rows[1]["hex"]));
    for case in list(&all["app_config"]) {
        let base = match &case["base"] {
            Value::Null => None,
            Value::String(_) => Some(Point::Origin),
            block => Some(of(block)),
        };
        let in_progress = case["in_progress"].as_bool().unwrap();
        let config = Config { base, in_progress, skip: case["skip"].as_u64() };
        assert_eq!(config.to_bytes(), hex(&case["hex"]));
        assert_eq!(Config::from_bytes(&hex(&case["hex"])).unwrap(), config);
    }
}

/// Rows of an object of hex keys and values.
fn object(rows: &Value) -> Vec<(String, String)> {
    let rows = rows.as_object().unwrap().iter();
    rows.map(|(key, value)| (key.clone(), text(value).to_owned())).collect()
}

#[test]
fn a_chain_with_every_row_after_each_block() {
    let all = load();
    let chain = &all["chain"];
    let store = store(PathKind::Raw, 3);
    for block in list(&chain["blocks"]) {
        let operation = |operation: &Value| match text(&operation[0]) {
            "ins" => insert(&hex(&operation[1]), &hex(&operation[2])),
            _ => Operation::Delete { key: hex(&operation[1]) },
        };
        let operations: Vec<_> = list(&block["ops"]).iter().map(operation).collect();
        let at = Point::block(block["slot"].as_u64().unwrap(), hash(&block["block_hash"]));
        let applied = store.forward(at, &operations).unwrap();
        assert_eq!(applied.root, Some(hash(&block["root"])));
        assert_eq!(dump(&store, ROLLBACKS), object(&block["rollbacks"]));
    }
    let check = |wanted: &Value| {
        for (table, name) in [(KV, "kv"), (CSMT, "csmt"), (ROLLBACKS, "rollbacks")] {
            assert_eq!(dump(&store, table), object(&wanted[name]), "{name}");
        }
    };
    check(&chain["final"]);
    let back = &chain["rollback_to_slot_140"];
    let to = Point::block(140, hash(&list(&chain["blocks"])[2]["block_hash"]));
    let RolledBack::Done { blocks, root } = store.rollback(to).unwrap() else { panic!("unknown") };
    assert_eq!(
        (blocks, root),
        (back["points_removed"].as_u64().unwrap(), Some(hash(&back["root"])))
    );
    check(&back["state"]);
}

#[test]
fn shapes_of_any_bits() {
    // Keys of single bits are no bytes: these are built from their leaves alone.
    let all = load();
    for case in list(&all["shapes"]["cases"]) {
        let root = hash(&case["root"]);
        let leaf = |leaf: &Value| -> Leaf { (path(&leaf[0]), hash(&leaf[1])) };
        let mut leaves: Vec<Leaf> = list(&case["leaves"]).iter().map(leaf).collect();
        leaves.sort();
        let proof = Completeness::from_bytes(&hex(&case["completeness_all_cbor"])).unwrap();
        proof.verify(Some(&root), &Path::default(), &leaves).unwrap();
        for (key, cbor) in case["inclusion_cbor"].as_object().unwrap() {
            let proof = Inclusion::from_v4(&hex(cbor)).unwrap();
            assert_eq!(csmt::hex(&proof.to_v4()), text(cbor));
            let (path, value) = leaves.iter().find(|(path, _)| path.to_string() == *key).unwrap();
            proof.verify(&root, path, value).unwrap();
        }
        for row in list(&case["rows"]) {
            assert_eq!(rows::position(&hex(&row["key_cbor"])).unwrap(), path(&row["path"]));
            let node = vectors::node(&row["jump"], &row["value"]);
            assert_eq!(rows::node(&hex(&row["value_cbor"])).unwrap(), node);
            assert_eq!(rows::value(&node), hex(&row["value_cbor"]));
        }
    }
}

#[test]
fn forgeries_are_refused() {
    let all = load();
    for case in list(&all["must_reject"]["cases"]) {
        let root = hash(&case["root"]);
        let bytes = hex(&case["cbor"]);
        let what = text(&case["what"]);
        let refused = match text(&case["kind"]) {
            "inclusion" => {
                let proof = Inclusion::from_v4(&bytes).unwrap();
                proof.verify(&root, &proof.key.clone(), &proof.value.clone())
            }
            "exclusion" => match Exclusion::from_bytes(&bytes).unwrap() {
                proof @ Exclusion::Empty => {
                    proof.verify(Some(&root), &Path::of_bytes(b"anything").unwrap())
                }
                proof => {
                    let Exclusion::Witness { target, .. } = &proof else { unreachable!() };
                    proof.verify(Some(&root), &target.clone())
                }
            },
            _ => {
                let leaf = |leaf: &Value| -> Leaf { (path(&leaf[0]), hash(&leaf[1])) };
                let leaves: Vec<Leaf> = list(&case["claimed_leaves"]).iter().map(leaf).collect();
                let proof = Completeness::from_bytes(&bytes).unwrap();
                proof.verify(Some(&root), &path(&case["prefix"]), &leaves)
            }
        };
        assert!(refused.is_err(), "{what}");
    }
}

#[test]
fn outputs_of_a_real_chain() {
    let all = load();
    let first = &all["golden_utxos"]["first3"];
    let store = store(PathKind::Address, 3);
    let pairs: Vec<_> =
        list(&first["kv"]).iter().map(|pair| (hex(&pair[0]), hex(&pair[1]))).collect();
    let operations: Vec<_> = pairs.iter().map(|(key, value)| insert(key, value)).collect();
    store.forward(point(1), &operations).unwrap();
    for ((_, value), address) in pairs.iter().zip(list(&first["address"])) {
        assert_eq!(csmt::address(value).unwrap(), hex(address));
    }
    let root = hash(&first["root"]);
    assert_eq!(store.root().unwrap(), Some(root));
    assert_eq!(dump(&store, CSMT), wanted_rows(&first["rows"]));
    let proof = store.view().unwrap().prove(&pairs[0].0).unwrap().unwrap();
    check_forms(&proof, &root, &first["proof0"]);
    let address = hex(&list(&first["address"])[0]);
    let found = store.view().unwrap().by_address(&address).unwrap();
    assert!(found.contains(&pairs[0]));
}

#[test]
fn no_row_is_left_of_entries_that_are_gone() {
    // Where a bucketed build leaves a row behind, this must not: the tree of no entries has no rows.
    let store = of(&[(vec![0; 4], b"v".to_vec())]);
    assert_eq!(dump(&store, CSMT).len(), 1);
    store.forward(point(2), &[Operation::Delete { key: vec![0; 4] }]).unwrap();
    assert_eq!((store.root().unwrap(), dump(&store, CSMT).len()), (None, 0));
}
