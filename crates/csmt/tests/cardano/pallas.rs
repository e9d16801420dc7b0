//! Blocks as another implementation reads them.

use std::collections::BTreeMap;

use csmt::Hash;
use csmt::cardano::{self, CardanoBlock, Era};
use csmt::format::point::Point;
use csmt::format::rollback::Operation;
use pallas_primitives::conway::{DatumOption, ScriptRef};
use pallas_traverse::{MultiEraBlock, MultiEraOutput};

use super::build::{bytes, encoded, list, map, open_map, uint};
use super::real;

/// The bytes of an output by its parts, as the companion's table has them.
fn expected(output: &MultiEraOutput<'_>) -> Vec<u8> {
    let address = bytes(&output.address().unwrap().to_vec());
    let value = value(output);
    let script = output.script_ref().map(|script| match script {
        ScriptRef::NativeScript(script) => list(&[uint(0), script.raw_cbor().to_vec()]),
        ScriptRef::PlutusV1Script(script) => list(&[uint(1), bytes(&script.0)]),
        ScriptRef::PlutusV2Script(script) => list(&[uint(2), bytes(&script.0)]),
        ScriptRef::PlutusV3Script(script) => list(&[uint(3), bytes(&script.0)]),
    });
    let datum = match output.datum() {
        None if script.is_none() => return list(&[address, value]),
        Some(DatumOption::Hash(hash)) if script.is_none() => {
            return list(&[address, value, bytes(&*hash)]);
        }
        None => None,
        Some(DatumOption::Hash(hash)) => Some(list(&[uint(0), bytes(&*hash)])),
        Some(DatumOption::Data(data)) => Some(list(&[uint(1), encoded(data.0.raw_cbor())])),
    };
    let mut pairs = vec![(uint(0), address), (uint(1), value)];
    pairs.extend(datum.map(|datum| (uint(2), datum)));
    pairs.extend(script.map(|script| (uint(3), encoded(&script))));
    map(&pairs)
}

fn value(output: &MultiEraOutput<'_>) -> Vec<u8> {
    let value = output.value();
    let mut policies: BTreeMap<Vec<u8>, BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
    for policy in value.assets() {
        for asset in policy.assets() {
            let quantity = asset.output_coin().unwrap();
            if quantity > 0 {
                let names = policies.entry(policy.policy().to_vec()).or_default();
                names.insert(asset.name().to_vec(), quantity);
            }
        }
    }
    if policies.is_empty() {
        return uint(value.coin());
    }
    let sized = |pairs: Vec<_>| if pairs.len() > 23 { open_map(&pairs) } else { map(&pairs) };
    let names = |names: BTreeMap<Vec<u8>, u64>| {
        sized(names.into_iter().map(|(name, count)| (bytes(&name), uint(count))).collect())
    };
    let policies = policies.into_iter().map(|(policy, tokens)| (bytes(&policy), names(tokens)));
    list(&[uint(value.coin()), sized(policies.collect())])
}

fn operations(block: &MultiEraBlock<'_>) -> Vec<Operation> {
    let mut operations = Vec::new();
    for transaction in block.txs() {
        let id = Hash(*transaction.hash());
        let mut inputs: Vec<_> = transaction.consumes();
        if transaction.as_byron().is_none() {
            inputs.sort_by_key(|input| (*input.hash(), input.index()));
        }
        for input in inputs {
            let index = u16::try_from(input.index()).unwrap();
            let key = cardano::key(&Hash(**input.hash()), index);
            operations.push(Operation::Delete { key });
        }
        for (index, output) in transaction.produces() {
            let key = cardano::key(&id, u16::try_from(index).unwrap());
            operations.push(Operation::Insert { key, value: expected(&output) });
        }
    }
    operations
}

/// Both implementations say the same of a block.
pub(crate) fn compare(bytes: &[u8]) -> CardanoBlock {
    let block = cardano::block(bytes).unwrap();
    let wanted = MultiEraBlock::decode(bytes).unwrap();
    assert_eq!(block.point, Point::block(wanted.slot(), Hash(*wanted.hash())));
    assert_eq!(block.prev_hash, wanted.header().previous_hash().map(|hash| Hash(*hash)));
    assert_eq!(block.height, wanted.number());
    assert_eq!(block.transactions, u64::try_from(wanted.tx_count()).unwrap());
    assert_eq!(block.operations, operations(&wanted));
    for operation in &block.operations {
        let Some(value) = operation.value() else { continue };
        // The value is an output of Conway, and its address is found without decoding the rest.
        let output = MultiEraOutput::decode(pallas_traverse::Era::Conway, value).unwrap();
        assert_eq!(csmt::address(value).unwrap(), output.address().unwrap().to_vec());
        assert_eq!(expected(&output), value);
    }
    block
}

/// What a block makes, it makes once; and what it spends of that is there.
fn check_order(block: &CardanoBlock) {
    let mut live = std::collections::BTreeSet::new();
    let mut dead = std::collections::BTreeSet::new();
    for operation in &block.operations {
        let key = operation.key().to_vec();
        match operation {
            Operation::Insert { .. } => assert!(live.insert(key)),
            Operation::Delete { .. } => {
                assert!(dead.insert(key.clone()), "spent twice");
                live.remove(&key);
            }
        }
    }
    assert!(live.is_disjoint(&dead), "spent before it was made");
}

#[test]
fn real_blocks_are_read_as_another_implementation_reads_them() {
    let mut eras = BTreeMap::new();
    for (name, bytes) in real::blocks() {
        eprintln!("{name}");
        let block = compare(&bytes);
        check_order(&block);
        let sums: &mut [usize; 3] = eras.entry(block.era).or_default();
        let inserts = block.operations.iter().filter(|operation| operation.value().is_some());
        let inserts = inserts.count();
        sums[0] += 1;
        sums[1] += block.operations.len() - inserts;
        sums[2] += inserts;
    }
    eprintln!("blocks, spends and outputs by era: {eras:?}");
    let wanted =
        [Era::ByronBoundary, Era::Byron, Era::Shelley, Era::Allegra, Era::Mary, Era::Alonzo];
    assert_eq!(eras.into_keys().collect::<Vec<_>>(), wanted);
}

#[test]
fn files_in_hex_are_read_as_they_are() {
    for (name, text) in real::files() {
        let bytes = real::unhex(std::str::from_utf8(&text).unwrap());
        let blocks: Vec<_> = cardano::blocks(&text).collect();
        assert_eq!(blocks, [cardano::block(&bytes)], "{name}");
    }
}

#[test]
fn blocks_that_follow_each_other_are_told_apart() {
    let real = real::blocks();
    let chunk: Vec<u8> = real.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
    let mut blocks = cardano::blocks(&chunk);
    let mut end = 0;
    for (name, bytes) in &real {
        assert_eq!(blocks.next(), Some(cardano::block(bytes)), "{name}");
        end += bytes.len();
        assert_eq!(blocks.position(), end);
    }
    assert_eq!(blocks.next(), None);
}

#[test]
fn a_real_chunk_is_read_as_another_implementation_reads_it() {
    let Some(chunk) = real::chunk("a_real_chunk_is_read_as_another_implementation_reads_it") else {
        return;
    };
    let (mut blocks, mut last, mut start) = (cardano::blocks(&chunk), None, 0);
    let [mut count, mut transactions, mut links] = [0; 3];
    let (mut made, mut spent) = (std::collections::BTreeSet::new(), [0; 2]);
    while let Some(block) = blocks.next() {
        let block = block.unwrap();
        assert_eq!(compare(&chunk[start..blocks.position()]), block);
        check_order(&block);
        start = blocks.position();
        let Point::Block { hash, .. } = block.point else { panic!("a block has a slot") };
        links += u64::from(last.is_some() && block.prev_hash == last);
        last = Some(hash);
        count += 1;
        transactions += block.transactions;
        for operation in &block.operations {
            match operation {
                Operation::Insert { key, .. } => assert!(made.insert(key.clone())),
                Operation::Delete { key } => spent[usize::from(made.contains(key))] += 1,
            }
        }
    }
    assert_eq!(links, count - 1, "every block names the one before it");
    eprintln!(
        "{count} blocks, {transactions} transactions, {} spends, {} of outputs in the chunk, {} outputs",
        spent[0] + spent[1],
        spent[1],
        made.len()
    );
}
