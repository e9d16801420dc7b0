//! Outputs and transactions of every form, made by hand.

use csmt::Hash;
use csmt::cardano::{self, CardanoError};
use csmt::format::rollback::Operation;

use super::build::*;
use super::{pallas, vectors};

/// What an output becomes in a block of an era.
fn value(era: u64, output: &[u8]) -> Result<Vec<u8>, CardanoError> {
    let body = body(&[(0, list(&[input(1, 0)])), (1, list(&[output.to_vec()]))]);
    let block = cardano::block(&block(era, &[body], &[]))?;
    Ok(block.operations[1].value().unwrap().to_vec())
}

/// The same, where the other implementation agrees.
fn agreed(era: u64, output: &[u8]) -> Vec<u8> {
    let body = body(&[(0, list(&[input(1, 0)])), (1, list(&[output.to_vec()]))]);
    let block = pallas::compare(&block(era, &[body], &[]));
    block.operations[1].value().unwrap().to_vec()
}

#[test]
fn what_the_public_service_wrote_stays_as_it_is() {
    let vectors = vectors::load();
    let entries = vectors::list(&vectors["golden_utxos"]["first3"]["kv"]);
    assert_eq!(entries.len(), 3);
    for entry in entries {
        let output = vectors::hex(&entry[1]);
        assert_eq!(agreed(7, &output), output);
    }
}

fn map_form(fields: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let pairs: Vec<_> = fields.iter().map(|(key, value)| (uint(*key), value.clone())).collect();
    map(&pairs)
}

const ERAS: [u64; 2] = [6, 7];

#[test]
fn an_output_without_datum_and_script_is_a_list() {
    for era in ERAS {
        let simple = coins(5_000_000);
        assert_eq!(agreed(era, &simple), simple);
        let as_map = map_form(&[(0, bytes(&address())), (1, uint(5_000_000))]);
        assert_eq!(agreed(era, &as_map), simple);
        // Heads that are too long, and lengths that are not known.
        let long =
            [&[0x9f, 0x59, 0, 29][..], &address(), &[0x1b, 0, 0, 0, 0, 0, 0x4c, 0x4b, 0x40, 0xff]]
                .concat();
        assert_eq!(agreed(era, &long), simple);
    }
}

#[test]
fn datums_and_scripts_are_kept_where_the_table_has_them() {
    let (address, coin) = (bytes(&address()), uint(2_000_000));
    let hash = bytes(&[0xab; 32]);
    // Forms that nobody would write who writes them anew.
    let datum = [0xd8, 0x79, 0x9f, 0x18, 0x01, 0x5f, 0x41, 0x07, 0xff, 0xff];
    let native = [&[0x9f, 0x18, 0x00, 0x58, 28][..], &[3; 28], &[0xff]].concat();
    let inline = list(&[uint(1), encoded(&datum)]);
    let by_hash = list(&[uint(0), hash.clone()]);
    let script = encoded(&list(&[uint(2), bytes(&[0x46, 1, 2, 3])]));
    let native_script = encoded(&list(&[uint(0), native]));
    let both = [(0, address.clone()), (1, coin.clone())];
    let with = |more: &[(u64, Vec<u8>)]| map_form(&[&both[..], more].concat());
    for era in ERAS {
        let three = list(&[address.clone(), coin.clone(), hash.clone()]);
        assert_eq!(agreed(era, &three), three);
        assert_eq!(agreed(era, &with(&[(2, by_hash.clone())])), three);
        for kept in [
            with(&[(2, inline.clone())]),
            with(&[(3, script.clone())]),
            with(&[(2, by_hash.clone()), (3, script.clone())]),
            with(&[(2, inline.clone()), (3, script.clone())]),
        ] {
            assert_eq!(agreed(era, &kept), kept);
        }
        // The other implementation does not take a native script of this form.
        let kept = with(&[(3, native_script.clone())]);
        assert_eq!(value(era, &kept).unwrap(), kept);
        // In any order.
        let mixed = [(3, script.clone()), (1, coin.clone()), (2, inline.clone())];
        let mixed = map_form(&[&mixed[..], &[(0, address.clone())]].concat());
        assert_eq!(value(era, &mixed).unwrap(), with(&[(2, inline.clone()), (3, script.clone())]));
        // The heads around a script of Plutus are the ledger's own.
        let long = encoded(&[0x9f, 0x18, 2, 0x58, 4, 0x46, 1, 2, 3, 0xff]);
        assert_eq!(value(era, &with(&[(3, long)])).unwrap(), with(&[(3, script.clone())]));
    }
    let newer = encoded(&list(&[uint(3), bytes(&[1])]));
    assert_eq!(agreed(7, &with(&[(3, newer.clone())])), with(&[(3, newer)]));
}

fn tokens(count: u8, name: impl Fn(u8) -> Vec<u8>) -> Vec<(Vec<u8>, Vec<u8>)> {
    (0..count).map(|number| (bytes(&name(number)), uint(u64::from(number) + 1))).collect()
}

fn with_tokens(tokens: Vec<u8>) -> Vec<u8> {
    list(&[bytes(&address()), list(&[uint(1_500_000), tokens])])
}

#[test]
fn tokens_are_in_the_order_of_bytes_and_long_maps_end_with_a_break() {
    let policy = |number: u8| bytes(&[number; 28]);
    // The longer name comes first if its bytes do.
    let name = |number: u8| if number == 0 { vec![0, 0, 0] } else { vec![number] };
    for era in ERAS {
        for (count, is_open) in [(1, false), (23, false), (24, true), (60, true)] {
            let sorted = tokens(count, name);
            let mut mixed = sorted.clone();
            mixed.reverse();
            let inner = if is_open { open_map(&sorted) } else { map(&sorted) };
            let policies = [(policy(1), inner.clone()), (policy(2), inner)];
            let wanted = with_tokens(map(&policies));
            let found =
                with_tokens(open_map(&[(policy(2), map(&mixed)), (policy(1), open_map(&mixed))]));
            assert_eq!(agreed(era, &found), wanted);
            let outer: Vec<_> =
                (0..count).map(|number| (policy(number), map(&tokens(1, name)))).collect();
            let wanted = if is_open { open_map(&outer) } else { map(&outer) };
            assert_eq!(agreed(era, &with_tokens(map(&outer))), with_tokens(wanted));
        }
    }
}

#[test]
fn nothing_of_a_token_is_dropped_before_conway_and_refused_since() {
    let policy = bytes(&[1; 28]);
    let zero = (bytes(b"zero"), uint(0));
    let one = (bytes(b"one"), uint(1));
    let of = |names: &[(Vec<u8>, Vec<u8>)]| with_tokens(map(&[(policy.clone(), map(names))]));
    let coin = list(&[bytes(&address()), uint(1_500_000)]);
    assert_eq!(agreed(6, &of(&[zero.clone(), one.clone()])), of(std::slice::from_ref(&one)));
    assert_eq!(agreed(6, &of(std::slice::from_ref(&zero))), coin);
    assert_eq!(agreed(6, &of(&[])), coin);
    assert_eq!(
        value(6, &of(&[(bytes(b"one"), uint(9)), one.clone()])).unwrap(),
        of(std::slice::from_ref(&one))
    );
    for wrong in [of(&[zero]), of(&[]), of(&[one.clone(), one])] {
        assert!(matches!(value(7, &wrong), Err(CardanoError::Malformed(_))));
    }
    // No policy at all is coins alone, in Conway, too.
    for era in ERAS {
        assert_eq!(value(era, &with_tokens(map(&[]))).unwrap(), coin);
    }
}

fn with_era(era: u64, mut block: Vec<u8>) -> Vec<u8> {
    block[1] = u8::try_from(era).unwrap();
    block
}

#[test]
fn bytes_behind_an_address_are_dropped_up_to_alonzo_and_refused_since() {
    let pointer = [vec![0x41], vec![7; 28], vec![0x81, 0x00, 0x05, 0x06]].concat();
    let base = [vec![0x01], vec![7; 56]].concat();
    let byron = list(&[encoded(&[0x83, 0x41, 0x00, 0xa0, 0x00]), uint(77)]);
    for address in [address(), pointer, base, byron] {
        let long = [address.as_slice(), &[0xde, 0xad]].concat();
        let output = list(&[bytes(&long), uint(9)]);
        let body = body(&[(0, list(&[input(1, 0)])), (1, list(&[output]))]);
        let alonzo =
            cardano::block(&with_era(5, block(6, std::slice::from_ref(&body), &[]))).unwrap();
        let wanted = list(&[bytes(&address), uint(9)]);
        assert_eq!(alonzo.operations[1].value().unwrap(), wanted);
        for era in ERAS {
            assert!(cardano::block(&block(era, std::slice::from_ref(&body), &[])).is_err());
            assert_eq!(value(era, &wanted).unwrap(), wanted);
        }
        let short = list(&[bytes(&address[..address.len() - 1]), uint(9)]);
        assert!(value(6, &short).is_err());
    }
    // Accounts are no addresses of outputs.
    assert!(value(6, &list(&[bytes(&[0xe1; 29]), uint(9)])).is_err());
}

#[test]
fn a_failed_transaction_spends_its_collateral() {
    let outputs = list(&[coins(1), coins(2), coins(3)]);
    let collateral = list(&[input(9, 1), input(8, 2), input(8, 1)]);
    let fields = [(0, list(&[input(1, 0)])), (1, outputs), (13, collateral)];
    let as_map = map_form(&[(0, bytes(&address())), (1, uint(44))]);
    let returned = body(&[&fields[..], &[(16, as_map)]].concat());
    let kept = body(&fields);
    let good = body(&[(0, list(&[input(2, 0)])), (1, list(&[coins(5)]))]);
    let spends = |keys: &[(u8, u16)]| -> Vec<Operation> {
        let key = |(id, index): &(u8, u16)| cardano::key(&Hash([*id; 32]), *index);
        keys.iter().map(|input| Operation::Delete { key: key(input) }).collect()
    };
    let insert = |body: &[u8], index, value| Operation::Insert {
        key: cardano::key(&Hash::of(body), index),
        value,
    };
    for era in ERAS {
        let bodies = [returned.clone(), good.clone(), kept.clone()];
        let found = pallas::compare(&block(era, &bodies, &[0, 2]));
        let wanted = [
            spends(&[(8, 1), (8, 2), (9, 1)]),
            vec![insert(&returned, 3, coins(44))],
            spends(&[(2, 0)]),
            vec![insert(&good, 0, coins(5))],
            spends(&[(8, 1), (8, 2), (9, 1)]),
        ];
        assert_eq!(found.operations, wanted.concat());
        assert_eq!(found.transactions, 3);
    }
    // Alonzo gives nothing back.
    let alonzo = cardano::block(&with_era(5, block(6, &[returned], &[0]))).unwrap();
    assert_eq!(alonzo.operations, spends(&[(8, 1), (8, 2), (9, 1)]));
    assert!(cardano::block(&block(6, &[kept], &[1])).is_err(), "there is no such transaction");
}

#[test]
fn inputs_are_a_set_in_its_order() {
    let inputs = [input(5, 300), input(5, 2), input(4, 65_535), input(5, 24)];
    let of = |inputs: Vec<u8>| body(&[(0, inputs), (1, list(&[coins(1)]))]);
    let order = [(4, 65_535), (5, 2), (5, 24), (5, 300)];
    let keys = order.map(|(id, index)| cardano::key(&Hash([id; 32]), index));
    let lens = keys.each_ref().map(Vec::len);
    assert_eq!(lens, [38, 36, 37, 38]);
    let keys_of = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let block = pallas::compare(bytes);
        block.operations[..4].iter().map(|operation| operation.key().to_vec()).collect()
    };
    for era in ERAS {
        assert_eq!(keys_of(&block(era, &[of(list(&inputs))], &[])), keys);
    }
    let tagged = of(tagged(258, &list(&inputs)));
    assert_eq!(keys_of(&block(7, std::slice::from_ref(&tagged), &[])), keys);
    assert!(cardano::block(&block(6, &[tagged], &[])).is_err());
    // One that is there twice is one, until that was forbidden.
    let twice = of(list(&[&inputs[..], &inputs].concat()));
    assert_eq!(keys_of(&block(6, std::slice::from_ref(&twice), &[])), keys);
    assert!(cardano::block(&block(7, &[twice], &[])).is_err());
    assert!(cardano::block(&block(7, &[of(list(&[input(1, 65_536)]))], &[])).is_err());
}

#[test]
fn what_is_not_a_block_is_refused() {
    let good = block(6, &[body(&[(0, list(&[input(1, 0)])), (1, list(&[coins(1)]))])], &[]);
    assert!(cardano::block(&good).is_ok());
    assert_eq!(cardano::block(&with_era(8, good.clone())), Err(CardanoError::Era(8)));
    let longer = [good.as_slice(), &[0]].concat();
    let Err(CardanoError::Malformed(wrong)) = cardano::block(&longer) else { panic!() };
    assert_eq!(wrong.at, good.len());
    // In a chunk, what is good comes first, and nothing after what is not.
    let found: Vec<_> = cardano::blocks(&longer).collect();
    assert_eq!(found.len(), 2);
    assert!(found[0].is_ok() && found[1].is_err());
    assert_eq!(cardano::blocks(b"8205zz").next(), Some(Err(CardanoError::Hex { at: 4 })));
    assert_eq!(cardano::blocks(b"820").next(), Some(Err(CardanoError::Hex { at: 3 })));
    assert_eq!(cardano::blocks(b"").next(), None);
    // Fewer witnesses than transactions: the list of them is the last but two.
    let at = good.len() - 4;
    assert_eq!(good[at..], [0x81, 0xa0, 0xa0, 0x80]);
    let fewer = [&good[..at], &[0x80, 0xa0, 0x80]].concat();
    assert!(cardano::block(&fewer).is_err());
    let without = body(&[(0, list(&[input(1, 0)]))]);
    assert!(cardano::block(&block(6, &[without], &[])).is_err());
    let twice = body(&[(0, list(&[])), (1, list(&[])), (0, list(&[]))]);
    assert!(cardano::block(&block(6, &[twice], &[])).is_err());
}
