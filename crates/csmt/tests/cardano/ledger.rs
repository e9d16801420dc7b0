//! States that the ledger itself wrote: what transactions make of one is the other, byte for byte.
//!
//! `KVB_CARDANO_LEDGER` names a folder of conformance vectors, which are states of the Haskell ledger of Conway before and after
//! some transactions. The package `amaru-ledger` 0.1.2 has them in `tests/data/rules-conformance/eras/conway/impl/dump/Conway`;
//! it brings too much along to be a dependency.

use std::collections::BTreeMap;
use std::path::Path;

use csmt::cardano;

use super::build::{block, body, list};

/// Where an item ends.
fn end(bytes: &[u8], at: usize) -> usize {
    let (major, number, mut at) = head(bytes, at);
    let count = match (major, number) {
        (0 | 1 | 7, _) => return at,
        (2 | 3, Some(len)) => return at + len,
        (4, Some(count)) => count,
        (5, Some(count)) => 2 * count,
        (6, _) => 1,
        (_, None) => {
            while bytes[at] != 0xff {
                at = end(bytes, at);
            }
            return at + 1;
        }
        _ => unreachable!(),
    };
    for _ in 0..count {
        at = end(bytes, at);
    }
    at
}

fn head(bytes: &[u8], at: usize) -> (u8, Option<usize>, usize) {
    let info = bytes[at] & 0x1f;
    let len = match info {
        24..28 => 1 << (info - 24),
        _ => 0,
    };
    let at_end = at + 1 + len;
    let number = bytes[at + 1..at_end].iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let number = if len == 0 { usize::from(info) } else { number };
    (bytes[at] >> 5, (info != 31).then_some(number), at_end)
}

/// The items of a list, or keys and values of a map.
fn parts(bytes: &[u8]) -> Vec<&[u8]> {
    let (_, _, mut at) = head(bytes, 0);
    let mut parts = Vec::new();
    while at < bytes.len() && bytes[at] != 0xff {
        let next = end(bytes, at);
        parts.push(&bytes[at..next]);
        at = next;
    }
    parts
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The entries in a state: `[epoch, blocks, blocks, [accounts, [certificates, [entries, ...]], ...], ...]`.
fn entries(state: &[u8]) -> Entries {
    let epoch = parts(parts(state)[3]);
    let ledger = parts(epoch[1]);
    let entries = parts(parts(ledger[1])[0]);
    entries.chunks(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect()
}

/// Numbers of transactions, those that failed among them, and outputs.
fn check(path: &Path, sums: &mut [usize; 4]) {
    if path.is_dir() {
        for file in path.read_dir().unwrap() {
            check(&file.unwrap().path(), sums);
        }
        return;
    }
    let bytes = std::fs::read(path).unwrap();
    // `[settings, state, state, [* event], title]`
    let vector = parts(&bytes);
    let (mut live, wanted) = (entries(vector[1]), entries(vector[2]));
    for output in live.values().chain(wanted.values()) {
        let body = body(&[(0, list(&[])), (1, list(std::slice::from_ref(output)))]);
        let block = cardano::block(&block(7, &[body], &[])).unwrap();
        assert_eq!(block.operations[0].value().unwrap(), output, "{}", path.display());
        sums[3] += 1;
    }
    for event in parts(vector[3]) {
        // `[0, transaction, whether it was taken, slot]`
        let event = parts(event);
        if event[0] != [0] || event[2] != [0xf5] {
            continue;
        }
        let (_, _, start) = head(event[1], 0);
        let transaction = parts(&event[1][start..]);
        let failed: &[u64] = if transaction[2] == [0xf4] { &[0] } else { &[] };
        let block = block(7, &[transaction[0].to_vec()], failed);
        for operation in cardano::block(&block).unwrap().operations {
            match operation.value() {
                Some(value) => drop(live.insert(operation.key().to_vec(), value.to_vec())),
                None => assert!(live.remove(operation.key()).is_some(), "{}", path.display()),
            }
        }
        sums[1] += 1;
        sums[2] += failed.len();
    }
    assert_eq!(live, wanted, "{}", path.display());
    sums[0] += 1;
}

#[test]
fn states_become_what_the_ledger_made_of_them() {
    let Some(folder) = std::env::var_os("KVB_CARDANO_LEDGER") else {
        eprintln!("no states of the ledger, since KVB_CARDANO_LEDGER does not name a folder");
        return;
    };
    let mut sums = [0; 4];
    check(Path::new(&folder), &mut sums);
    let [files, transactions, failed, outputs] = sums;
    assert!(files > 0);
    eprintln!(
        "{files} vectors, {transactions} transactions, {failed} of them failed, {outputs} outputs"
    );
}
