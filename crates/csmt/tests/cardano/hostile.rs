//! Bytes that somebody made to do harm: they are refused or read, quickly, and never more than that.

use std::time::{Duration, Instant};

use csmt::cardano;
use fastrand::Rng;

use super::build::*;
use super::{real, seed};

/// Far more than any of this takes.
const LONG: Duration = Duration::from_secs(20);

fn changed(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..bytes.len());
        match rng.u8(..6) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes.truncate(at.max(1)),
            3 => drop(bytes.remove(at)),
            // Heads of what is nested, of what is long, and breaks.
            4 => {
                let heads = [0x9f, 0xbf, 0x5f, 0xff, 0x9b, 0xbb, 0x5b, 0xd8, 0x81, 0xa1, 0xf6];
                bytes[at] = *rng.choice(&heads).unwrap();
            }
            _ => {
                let end = rng.usize(at..bytes.len().min(at + 100));
                let part = bytes[at..end].to_vec();
                let to = rng.usize(..bytes.len());
                bytes.splice(to..to, part);
            }
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
    bytes
}

#[test]
fn changed_blocks_do_no_harm() {
    let first = seed::seed("changed_blocks_do_no_harm");
    let mut rng = Rng::with_seed(first);
    let (mut read, mut refused) = (0, 0);
    let mut blocks: Vec<Vec<u8>> = real::blocks().into_iter().map(|(_, bytes)| bytes).collect();
    let datum = list(&[uint(1), encoded(&[0xd8, 0x79, 0x80])]);
    let output = map(&[(uint(0), bytes(&address())), (uint(1), uint(1)), (uint(2), datum)]);
    let body = body(&[
        (0, list(&[input(1, 0)])),
        (1, list(&[output.clone(), coins(2)])),
        (13, list(&[input(2, 0)])),
        (16, output),
    ]);
    for era in [6, 7] {
        for _ in 0..10 {
            blocks.push(block(era, &[body.clone(), body.clone()], &[1]));
        }
    }
    for bytes in &blocks {
        // The small ones more often: more of them is what is read.
        let rounds = u64::try_from(2_000_000 / (bytes.len() + 1000)).unwrap() * seed::rounds();
        for _ in 0..rounds {
            let bytes = changed(&mut rng, bytes);
            let start = Instant::now();
            match cardano::block(&bytes) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
            let _ = cardano::blocks(&bytes).count();
            assert!(start.elapsed() < LONG);
        }
    }
    eprintln!("{read} blocks were read, {refused} refused");
    assert!(read > 0 && refused > 0);
}

#[test]
fn the_beginning_of_a_block_is_no_block() {
    for (name, bytes) in real::blocks() {
        let step = bytes.len() / 500 + 1;
        for len in (0..bytes.len()).step_by(step) {
            assert!(cardano::block(&bytes[..len]).is_err(), "{name} up to {len}");
        }
    }
}

/// A block with something in place of its witnesses, and with it as a datum.
fn around(item: &[u8]) -> [Vec<u8>; 2] {
    let datum = list(&[uint(1), encoded(item)]);
    let output = map(&[(uint(0), bytes(&address())), (uint(1), uint(1)), (uint(2), datum)]);
    let as_datum = block(6, &[body(&[(0, list(&[])), (1, list(&[output]))])], &[]);
    let plain = body(&[(0, list(&[])), (1, list(&[])), (99, item.to_vec())]);
    [as_datum, block(7, &[plain], &[])]
}

#[test]
fn what_is_nested_deeply_costs_no_stack() {
    const DEPTH: usize = 2_000_000;
    let lists = [vec![0x81; DEPTH], vec![0]].concat();
    let open = [vec![0x9f; DEPTH], vec![0xff; DEPTH]].concat();
    let maps = [[0xa1, 0].repeat(DEPTH), vec![0]].concat();
    let open_maps = [[0xbf, 0].repeat(DEPTH), vec![0], vec![0xff; DEPTH]].concat();
    let tags = [vec![0xc1; DEPTH], vec![0]].concat();
    for item in [lists, open, maps, open_maps, tags] {
        let start = Instant::now();
        for bytes in around(&item) {
            cardano::block(&bytes).unwrap();
            assert!(cardano::block(&bytes[..bytes.len() - 10]).is_err());
        }
        assert!(start.elapsed() < LONG);
    }
}

#[test]
fn lengths_that_are_not_there_are_not_believed() {
    for item in [
        &[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff][..],
        &[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0xbb, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x1c],
        &[0xff],
        &[0xdf, 0x00],
        // A map with a key and no value, and a string in pieces that are none.
        &[0xbf, 0x00, 0xff],
        &[0x5f, 0x00, 0xff],
        &[0x5f, 0x5f, 0xff, 0xff],
    ] {
        for bytes in around(item) {
            assert!(cardano::block(&bytes).is_err(), "{item:x?}");
        }
        assert!(cardano::block(item).is_err());
        assert!(csmt::address(item).is_err());
    }
    // The last slot there is, and those after it.
    let header = |epoch: u64| {
        let consensus = list(&[uint(epoch), list(&[uint(0)])]);
        list(&[uint(0), bytes(&[0; 32]), uint(0), consensus, uint(0)])
    };
    let boundary = |epoch: u64| list(&[uint(0), list(&[header(epoch), list(&[]), list(&[])])]);
    assert!(cardano::block(&boundary(u64::MAX / 21_600)).is_ok());
    assert!(cardano::block(&boundary(u64::MAX / 21_600 + 1)).is_err());
}
