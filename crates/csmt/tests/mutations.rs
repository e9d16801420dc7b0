//! Proofs with anything changed are refused, and bytes that are no proofs do no harm.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "../../kvb/tests/support/seed.rs"]
mod seed;
#[path = "support/story.rs"]
mod story;

use csmt::proof::{self, Completeness, Exclusion, Form, Inclusion, Leaf};
use csmt::{Effort, Entry, Hash, Path, PathKind, Settings, Store};
use fastrand::Rng;
use ledger::MemoryEngine;
use story::{input, insert, output, point};

const FORMS: [Form; 4] = [Form::V4, Form::V5, Form::Compact, Form::Plutus];

fn store(entries: &[Entry], path: PathKind) -> Store {
    let settings = Settings { path, k: 1 };
    let store = Store::init(Box::new(MemoryEngine::new()), settings, Effort::default()).unwrap();
    let operations: Vec<_> = entries.iter().map(|(key, value)| insert(key, value)).collect();
    store.forward(point(1), &operations).unwrap();
    store
}

/// Bytes with every bit changed in turn, cut off everywhere, and with bytes behind them.
fn others(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let flipped = (0..bytes.len() * 8).map(|bit| {
        let mut other = bytes.to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        other
    });
    let cut = (0..bytes.len()).map(|len| bytes[..len].to_vec());
    let more = [0x00, 0x80, 0xff].map(|byte| [bytes, &[byte]].concat());
    flipped.chain(cut).chain(more)
}

/// Trees of all small sizes, with keys near each other and far apart.
fn trees(rng: &mut Rng) -> Vec<(Vec<Entry>, PathKind)> {
    let mut trees = Vec::new();
    for count in [1, 2, 3, 4, 7, 20] {
        let near = (0..count).map(|number: u8| (vec![number, 0x55], vec![number])).collect();
        trees.push((near, PathKind::Raw));
        let far = (0..count).map(|_| (input(rng), output(rng, 3))).collect();
        trees.push((far, PathKind::Address));
    }
    trees
}

#[test]
fn no_changed_proof_of_an_entry_is_accepted() {
    let mut rng = Rng::with_seed(seed::seed("no_changed_proof_of_an_entry_is_accepted"));
    let mut refused = 0;
    for (entries, kind) in trees(&mut rng) {
        let store = store(&entries, kind);
        let root = store.root().unwrap().unwrap();
        let (key, value) = rng.choice(&entries).unwrap();
        let path = kind.path(key, value).unwrap();
        let digest = Hash::of(value);
        let found = store.view().unwrap().prove(key).unwrap().unwrap();
        for form in FORMS {
            let bytes = found.to_form(form, &root);
            proof::verify(form, &bytes, &root, &path, &digest).unwrap();
            for other in others(&bytes) {
                let accepted = proof::verify(form, &other, &root, &path, &digest);
                assert!(accepted.is_err(), "{form:?}: {}", csmt::hex(&other));
                refused += 1;
            }
            // Nor does it prove anything else.
            for (other_key, other_value) in &entries {
                if (other_key, other_value) != (key, value) {
                    let other = kind.path(other_key, other_value).unwrap();
                    let about = proof::verify(form, &bytes, &root, &other, &digest);
                    assert!(about.is_err(), "another key");
                    let about = proof::verify(form, &bytes, &root, &path, &Hash::of(other_value));
                    assert!(about.is_err() || other_value == value, "another value");
                }
            }
        }
    }
    assert!(refused > 50_000, "{refused}");
}

#[test]
fn no_changed_proof_of_absence_is_accepted() {
    let mut rng = Rng::with_seed(seed::seed("no_changed_proof_of_absence_is_accepted"));
    for (entries, kind) in trees(&mut rng) {
        let store = store(&entries, kind);
        let root = store.root().unwrap();
        let absent = match kind {
            PathKind::Raw => Path::of_bytes(&[0x40, 0x54]).unwrap(),
            PathKind::Address => kind.path(&input(&mut rng), &output(&mut rng, 3)).unwrap(),
        };
        let found = store.view().unwrap().prove_absent(&absent).unwrap().unwrap();
        found.verify(root.as_ref(), &absent).unwrap();
        assert!(found.verify(None, &absent).is_err());
        for (key, value) in &entries {
            let there = kind.path(key, value).unwrap();
            assert!(found.verify(root.as_ref(), &there).is_err());
            // A proof of absence of what is there does not come about by changing the target either.
            if let Exclusion::Witness { witness, .. } = &found {
                let forged = Exclusion::Witness { target: there.clone(), witness: witness.clone() };
                assert!(forged.verify(root.as_ref(), &there).is_err());
            }
        }
        let bytes = found.to_bytes();
        for other in others(&bytes) {
            let accepted = Exclusion::from_bytes(&other)
                .is_ok_and(|proof| proof.verify(root.as_ref(), &absent).is_ok());
            assert!(!accepted, "{}", csmt::hex(&other));
        }
    }
}

#[test]
fn no_changed_proof_of_a_prefix_is_accepted() {
    let mut rng = Rng::with_seed(seed::seed("no_changed_proof_of_a_prefix_is_accepted"));
    for (entries, kind) in trees(&mut rng) {
        let store = store(&entries, kind);
        let root = store.root().unwrap();
        let (key, value) = rng.choice(&entries).unwrap();
        let path = kind.path(key, value).unwrap();
        for len in [0, 3, 6, 12, path.len() - 1, path.len()] {
            let prefix = path.part(0, len);
            let (leaves, found) = store.view().unwrap().prove_prefix(&prefix).unwrap();
            let found = found.unwrap();
            let holds = |proof: &Completeness, leaves: &[Leaf]| {
                proof.verify(root.as_ref(), &prefix, leaves).is_ok()
            };
            assert!(holds(&found, &leaves));
            let bytes = found.to_bytes();
            for other in others(&bytes) {
                let accepted =
                    Completeness::from_bytes(&other).is_ok_and(|proof| holds(&proof, &leaves));
                assert!(!accepted, "{}", csmt::hex(&other));
            }
            // Nor with leaves missing, invented, changed or in another order.
            for at in 0..leaves.len() {
                let mut fewer = leaves.clone();
                let (path, value) = fewer.remove(at);
                assert!(!holds(&found, &fewer), "one is missing");
                let mut more = leaves.clone();
                more.insert(at, (path.clone(), value));
                assert!(!holds(&found, &more), "one is there twice");
                let mut changed = leaves.clone();
                changed[at].1 = Hash::of(b"other");
                assert!(!holds(&found, &changed), "one has another value");
                for bit in 0..path.len() {
                    let mut bits: Vec<bool> = path.bits().collect();
                    bits[bit] ^= true;
                    let mut moved = leaves.clone();
                    let text: String =
                        bits.iter().map(|bit| if *bit { '1' } else { '0' }).collect();
                    moved[at].0 = Path::parse(&text).unwrap();
                    assert!(!holds(&found, &moved), "one is elsewhere");
                }
                if at > 0 {
                    let mut swapped = leaves.clone();
                    swapped.swap(at - 1, at);
                    assert!(!holds(&found, &swapped), "two are swapped");
                }
            }
        }
    }
}

#[test]
fn any_bytes_are_refused_without_harm() {
    let mut rng = Rng::with_seed(seed::seed("any_bytes_are_refused_without_harm"));
    let entries: Vec<Entry> = (0..9).map(|_| (input(&mut rng), output(&mut rng, 3))).collect();
    let store = store(&entries, PathKind::Address);
    let found = store.view().unwrap().prove(&entries[0].0).unwrap().unwrap();
    let real = found.to_v4();
    for _ in 0..20_000 * seed::rounds() {
        let mut bytes: Vec<u8> = match rng.u8(..3) {
            0 => (0..rng.usize(..60)).map(|_| rng.u8(..)).collect(),
            _ => real.clone(),
        };
        for _ in 0..rng.usize(..6) {
            // Heads that claim very much.
            let at = rng.usize(..=bytes.len());
            match rng.u8(..3) {
                0 if at < bytes.len() => bytes[at] = rng.u8(..),
                1 => bytes.splice(at..at, [0x9b, 0xff, 0xff, 0xff, 0xff, 0xff]).for_each(drop),
                _ => bytes.truncate(at),
            }
        }
        let key = found.key.clone();
        let _ = Inclusion::from_v4(&bytes).map(|proof| proof.root());
        let _ = Inclusion::from_v5(&bytes).map(|(proof, _)| proof.root());
        let _ = Inclusion::from_compact(&bytes, key.clone(), found.value).map(|proof| proof.root());
        let _ = Inclusion::from_plutus(&bytes, key.clone(), found.value).map(|proof| proof.root());
        let _ = Exclusion::from_bytes(&bytes).map(|proof| proof.verify(None, &key));
        let _ = Completeness::from_bytes(&bytes).map(|proof| proof.verify(None, &key, &[]));
        let _ = csmt::address(&bytes);
    }
}
