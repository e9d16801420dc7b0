//! Random chains against a model in another language: the same bytes in every table after every block and rollback, the same proofs.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/oracle.rs"]
mod oracle;
#[path = "../../kvb/tests/support/seed.rs"]
mod seed;

use std::collections::BTreeMap;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::tables::{CSMT, KV, ROLLBACKS};
use csmt::{Effort, Hash, Path, PathKind, RolledBack, Settings, Store};
use fastrand::Rng;
use ledger::{Engine, KvbEngine, MemoryEngine, Table};
use oracle::Model;
use serde_json::{Value, json};

fn dump(store: &Store, table: Table) -> Value {
    let view = store.view().unwrap();
    let rows = view.rows(table).unwrap();
    let rows = rows.map(|row| row.unwrap());
    rows.map(|(key, value)| (csmt::hex(&key), Value::from(csmt::hex(&value)))).collect()
}

fn check_rows(store: &Store, model: &mut Model, when: &str) {
    let wanted = model.ask(&json!({"dump": true}));
    for (table, name) in [(KV, "kv"), (CSMT, "csmt"), (ROLLBACKS, "rollbacks")] {
        // Objects keep the order of their keys, so that is compared, too.
        assert_eq!(dump(store, table).to_string(), wanted[name].to_string(), "{when}: {name}");
    }
}

fn root_text(root: Option<Hash>) -> Value {
    root.map_or(Value::Null, |root| Value::from(root.to_string()))
}

/// An output at one of a few addresses.
fn output(rng: &mut Rng) -> Vec<u8> {
    let address = [0x61, rng.u8(..6)].repeat(14);
    let mut value = vec![0x82, 0x58, u8::try_from(address.len()).unwrap()];
    value.extend(address);
    value.extend([0x19, rng.u8(1..), rng.u8(..)]);
    value
}

/// Keys that share their beginnings, and no two of which begin with each other.
fn new_key(rng: &mut Rng) -> Vec<u8> {
    let mut key = vec![0x82, 0x58, 0x20];
    key.extend((0..32).map(|at| if at < 30 { rng.u8(..2) } else { rng.u8(..) }));
    key.push(rng.u8(..24));
    key
}

/// Entries by key.
type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A chain, as somebody would follow it.
struct Chain {
    slot: u64,
    live: Entries,
    /// The entries after every block.
    past: Vec<(Point, Entries)>,
}

impl Chain {
    fn block(&mut self, rng: &mut Rng) -> (Point, Vec<Operation>) {
        self.slot += rng.u64(1..400);
        let point = Point::block(self.slot, Hash::of(&rng.u64(..).to_be_bytes()));
        let mut operations = Vec::new();
        for _ in 0..rng.usize(..12) {
            let keys: Vec<&Vec<u8>> = self.live.keys().collect();
            let key = rng.choice(&keys).map(|key| (*key).clone());
            let operation = match (rng.u8(..6), key) {
                (0..3, Some(key)) => Operation::Delete { key },
                (3, Some(key)) => Operation::Insert { key, value: output(rng) },
                _ => Operation::Insert { key: new_key(rng), value: output(rng) },
            };
            match &operation {
                Operation::Delete { key } => drop(self.live.remove(key)),
                Operation::Insert { key, value } => {
                    drop(self.live.insert(key.clone(), value.clone()))
                }
            }
            operations.push(operation);
        }
        self.past.push((point, self.live.clone()));
        (point, operations)
    }
}

fn ask_forward(model: &mut Model, point: Point, operations: &[Operation]) -> Value {
    let Point::Block { slot, hash } = point else { panic!("a block has a slot") };
    let operation = |operation: &Operation| match operation {
        Operation::Delete { key } => json!(["delete", csmt::hex(key)]),
        Operation::Insert { key, value } => json!(["insert", csmt::hex(key), csmt::hex(value)]),
    };
    let operations: Vec<Value> = operations.iter().map(operation).collect();
    model.ask(&json!({"forward": [slot, hash.to_string(), operations]}))
}

fn follow(engine: Box<dyn Engine>, path: PathKind, effort: Effort, seed: u64, blocks: usize) {
    let mut rng = Rng::with_seed(seed);
    let settings = Settings { path, k: rng.u32(1..12) };
    let store = Store::init(engine, settings, effort).unwrap();
    let mut model = Model::new(&json!({"path": path.name(), "k": settings.k}));
    let mut chain = Chain { slot: 0, live: BTreeMap::new(), past: Vec::new() };
    for step in 0..blocks {
        let (point, operations) = chain.block(&mut rng);
        let applied = store.forward(point, &operations).unwrap();
        let wanted = ask_forward(&mut model, point, &operations);
        assert_eq!(root_text(applied.root), wanted, "block {step}");
        check_rows(&store, &mut model, &format!("block {step}"));
        if rng.u8(..6) == 0 {
            go_back(&store, &mut model, &mut chain, &mut rng);
        }
        if rng.u8(..3) == 0 {
            check_proofs(&store, &mut model, &chain, &mut rng);
        }
    }
}

fn go_back(store: &Store, model: &mut Model, chain: &mut Chain, rng: &mut Rng) {
    let depth = rng.usize(..14);
    let before = chain.past.len().checked_sub(1 + depth).map(|number| chain.past[number].clone());
    let (to, live) = before.unwrap_or((Point::Origin, BTreeMap::new()));
    let command = match to {
        Point::Origin => json!({"rollback": null}),
        Point::Block { slot, hash } => json!({"rollback": [slot, hash.to_string()]}),
    };
    let wanted = model.ask(&command);
    let rows = dump(store, CSMT);
    match store.rollback(to).unwrap() {
        RolledBack::Done { blocks, root } => {
            assert_eq!(json!({"blocks": blocks, "root": root_text(root)}), wanted);
            let len = chain.past.len() - usize::try_from(blocks).unwrap();
            chain.past.truncate(len);
            chain.live = live;
        }
        unknown => {
            assert_eq!((unknown, &wanted["blocks"]), (RolledBack::Unknown, &Value::Null));
            assert_eq!(dump(store, CSMT), rows, "nothing is changed");
        }
    }
    check_rows(store, model, &format!("back to {to}"));
}

fn check_proofs(store: &Store, model: &mut Model, chain: &Chain, rng: &mut Rng) {
    let mut view = store.view().unwrap();
    let root = view.root().unwrap();
    let kind = store.settings().path;
    let keys: Vec<_> = chain.live.iter().collect();
    for _ in 0..3 {
        let Some((key, value)) = rng.choice(&keys) else { continue };
        let proof = view.prove(key).unwrap().unwrap();
        let path = kind.path(key, value).unwrap();
        let root = root.unwrap();
        let wanted = model.ask(&json!({"prove": path.to_string()}));
        let forms = json!({
            "v4": csmt::hex(&proof.to_v4()), "v5": csmt::hex(&proof.to_v5(&root)),
            "compact": csmt::hex(&proof.to_compact()), "plutus": csmt::hex(&proof.to_plutus()),
        });
        assert_eq!(forms, wanted);
        proof.verify(&root, &path, &Hash::of(value)).unwrap();
        assert_eq!(view.prove_absent(&path).unwrap(), None, "it is there");
        let prefix = path.part(0, rng.usize(..path.len()));
        let wanted = model.ask(&json!({"complete": prefix.to_string()}));
        let (leaves, proof) = view.prove_prefix(&prefix).unwrap();
        let proof = proof.unwrap();
        let leaf = |(path, value): &(Path, Hash)| json!([path.to_string(), value.to_string()]);
        let found: Vec<Value> = leaves.iter().map(leaf).collect();
        assert_eq!(json!({"leaves": found, "proof": csmt::hex(&proof.to_bytes())}), wanted);
        proof.verify(Some(&root), &prefix, &leaves).unwrap();
    }
    let path = kind.path(&new_key(rng), &output(rng)).unwrap();
    if let Some(proof) = view.prove_absent(&path).unwrap() {
        let wanted = model.ask(&json!({"prove": path.to_string()}));
        assert_eq!(json!({"absent": csmt::hex(&proof.to_bytes())}), wanted);
        proof.verify(root.as_ref(), &path).unwrap();
    }
}

#[test]
fn the_same_bytes_as_the_model_after_every_block() {
    let first = seed::seed("the_same_bytes_as_the_model_after_every_block");
    for round in 0..4 * seed::rounds() {
        let path = if round % 2 == 0 { PathKind::Raw } else { PathKind::Address };
        // Memory for a few nodes only, so that most are read again.
        let memory = if round % 4 < 2 { 4 << 10 } else { 64 << 20 };
        let effort = Effort { memory, threads: 1, ..Effort::default() };
        follow(Box::new(MemoryEngine::new()), path, effort, first ^ round, 120);
    }
}

#[test]
fn the_same_in_a_bucket() {
    let first = seed::seed("the_same_in_a_bucket");
    for (round, path) in (0..).zip([PathKind::Raw, PathKind::Address]) {
        let dir = tempfile::tempdir().unwrap();
        let engine = KvbEngine::create(dir.path().join("store.kvb")).unwrap();
        follow(Box::new(engine), path, Effort::default(), first ^ round, 40);
    }
}
