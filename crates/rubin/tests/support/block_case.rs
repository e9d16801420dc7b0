//! The cases of `cv_block_cases`: a block, the headers before it and the outputs it may spend.

use rubin::rules::Rules;
use rubin::{Before, Block, Code, Coins, Header, HeaderContext, Outpoint, UtxoEntry, Validator};
use serde_json::Value;

use crate::vectors::{hash, hex, list, number};

/// Checks a block as a node would that knows these headers and outputs.
pub(crate) fn check(case: &Value) -> Result<(), Code> {
    let bytes = hex(&case["block_hex"]);
    let block = Block::decode(&bytes).map_err(|_| Code::BlockParse)?;
    let height = number(&case["block_height"]);
    let headers: Vec<Header> = list(&case["ancestor_headers_hex"])
        .iter()
        .map(|one| Header::decode(&hex(one)).unwrap())
        .collect();
    let parent = headers.last().ok_or(Code::BlockLinkageInvalid)?;
    let context = HeaderContext {
        height,
        parent_hash: parent.hash(),
        parent: parent.clone(),
        timestamps: headers.iter().rev().take(11).map(|header| header.timestamp).collect(),
        window_start: None,
        local_time: case["local_time"].as_u64(),
    };
    let rules: Rules = Rules::default();
    rules.check_header(&block, &context)?;
    let before = Before::of(list(&case["utxo_set"]).iter().map(coin));
    rules.check_body(&block, height, &mut Coins::new(&before, height))
}

/// An output that can be spent, and where it is.
pub(crate) fn coin(entry: &Value) -> (Outpoint, Vec<u8>) {
    let data = hex(&entry["covenant_data"]);
    let utxo = UtxoEntry {
        value: number(&entry["value"]),
        covenant_type: u16::try_from(number(&entry["covenant_type"])).unwrap(),
        covenant_data: &data,
        creation_height: number(&entry["creation_height"]),
        created_by_coinbase: entry["created_by_coinbase"].as_bool().unwrap(),
    };
    let vout = u32::try_from(number(&entry["vout"])).unwrap();
    (Outpoint::new(hash(&entry["txid"]), vout), utxo.encode())
}
