//! CBOR made by hand, and blocks of it.

/// A head.
pub(crate) fn head(major: u8, number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let (info, used) = match number {
        0..24 => (bytes[7], 0),
        24..0x100 => (24, 1),
        0x100..0x1_0000 => (25, 2),
        0x1_0000..0x1_0000_0000 => (26, 4),
        _ => (27, 8),
    };
    [&[major << 5 | info], &bytes[8 - used..]].concat()
}

fn len(count: usize) -> u64 {
    u64::try_from(count).unwrap()
}

pub(crate) fn uint(number: u64) -> Vec<u8> {
    head(0, number)
}

pub(crate) fn bytes(bytes: &[u8]) -> Vec<u8> {
    [&head(2, len(bytes.len())), bytes].concat()
}

pub(crate) fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [head(4, len(items.len())), items.concat()].concat()
}

/// Keys and values.
pub(crate) fn map(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    [head(5, len(pairs.len())), open_pairs(pairs)].concat()
}

/// The same, ended by a break.
pub(crate) fn open_map(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    [vec![0xbf], open_pairs(pairs), vec![0xff]].concat()
}

fn open_pairs(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    pairs.iter().flat_map(|(key, value)| [key.as_slice(), value].concat()).collect()
}

pub(crate) fn tagged(tag: u64, item: &[u8]) -> Vec<u8> {
    [&head(6, tag), item].concat()
}

/// CBOR in a byte string.
pub(crate) fn encoded(item: &[u8]) -> Vec<u8> {
    tagged(24, &bytes(item))
}

pub(crate) fn input(transaction: u8, index: u64) -> Vec<u8> {
    list(&[bytes(&[transaction; 32]), uint(index)])
}

/// The address of a key, without delegation.
pub(crate) fn address() -> Vec<u8> {
    [vec![0x61], vec![7; 28]].concat()
}

/// `[address, coin]`
pub(crate) fn coins(coin: u64) -> Vec<u8> {
    list(&[bytes(&address()), uint(coin)])
}

/// A transaction with these fields, and a fee.
pub(crate) fn body(fields: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut pairs: Vec<_> = fields.iter().map(|(key, value)| (uint(*key), value.clone())).collect();
    pairs.push((uint(2), uint(170_000)));
    map(&pairs)
}

/// A block of Babbage (6) or Conway (7), some of whose transactions failed.
pub(crate) fn block(era: u64, bodies: &[Vec<u8>], failed: &[u64]) -> Vec<u8> {
    block_behind(&[9; 32], 88_000, era, bodies, failed)
}

/// The same behind another block, in a slot.
pub(crate) fn block_behind(
    previous: &[u8],
    slot: u64,
    era: u64,
    bodies: &[Vec<u8>],
    failed: &[u64],
) -> Vec<u8> {
    let certificate = [bytes(&[1; 32]), uint(1), uint(2), bytes(&[2; 64])];
    let header = list(&[
        uint(77),
        uint(slot),
        bytes(previous),
        bytes(&[3; 32]),
        bytes(&[4; 32]),
        list(&[bytes(&[5; 64]), bytes(&[6; 80])]),
        uint(1000),
        bytes(&[8; 32]),
        list(&certificate),
        list(&[uint(8), uint(0)]),
    ]);
    let header = list(&[header, bytes(&[1; 448])]);
    let witnesses = vec![map(&[]); bodies.len()];
    let failed: Vec<_> = failed.iter().map(|number| uint(*number)).collect();
    let block = list(&[header, list(bodies), list(&witnesses), map(&[]), list(&failed)]);
    list(&[uint(era), block])
}
