//! Any bytes as proofs over a UTxO set. A proof that holds for another root than the one it was made for is a forgery.

#![no_main]

use std::sync::LazyLock;

use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use csmt::proof::{Completeness, Exclusion, Inclusion};
use csmt::{Effort, Hash, Path, PathKind, Settings, Store};
use ledger::MemoryEngine;
use libfuzzer_sys::fuzz_target;

/// The root of a small set, a path that is in it with its value, and one that is not.
struct Known {
    root: Hash,
    there: (Path, Hash),
    absent: Path,
}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let settings = Settings { path: PathKind::Raw, ..Settings::default() };
    let engine = Box::new(MemoryEngine::new());
    let store = Store::init(engine, settings, Effort::default()).unwrap();
    let entry = |number: u8| (vec![number.wrapping_mul(37); 8], vec![number; 20]);
    let operations: Vec<Operation> =
        (0..9).map(entry).map(|(key, value)| Operation::Insert { key, value }).collect();
    let root = store.forward(Point::block(1, Hash::of(b"1")), &operations).unwrap().root.unwrap();
    let (key, _) = entry(3);
    let proof = store.view().unwrap().prove(&key).unwrap().unwrap();
    let absent = Path::of_bytes(&[0x55; 8]).unwrap();
    Known { root, there: (proof.key.clone(), proof.value), absent }
});

fuzz_target!(|bytes: &[u8]| {
    let known = &*KNOWN;
    let (key, value) = &known.there;
    let other = Hash::of(bytes);
    let check = |proof: &Inclusion| {
        assert!(proof.verify(&known.root, key, &other).is_err(), "another value is in the set");
        assert!(
            proof.verify(&known.root, &known.absent, value).is_err(),
            "another key is in the set"
        );
    };
    if let Ok(proof) = Inclusion::from_v4(bytes) {
        check(&proof);
        assert_eq!(Inclusion::from_v4(&proof.to_v4()).unwrap(), proof);
    }
    if let Ok((proof, _)) = Inclusion::from_v5(bytes) {
        check(&proof);
    }
    for forged in [value, &other] {
        if let Ok(proof) = Inclusion::from_compact(bytes, key.clone(), *forged) {
            check(&proof);
        }
        if let Ok(proof) = Inclusion::from_plutus(bytes, key.clone(), *forged) {
            check(&proof);
        }
    }
    if let Ok(proof) = Exclusion::from_bytes(bytes) {
        assert!(proof.verify(Some(&known.root), key).is_err(), "what is there is said not to be");
    }
    if let Ok(proof) = Completeness::from_bytes(bytes) {
        assert!(
            proof.verify(Some(&known.root), &Path::parse("").unwrap(), &[]).is_err(),
            "nothing is there"
        );
    }
});
