//! Entries that are there before the first block, from the genesis files of Byron and Shelley.

use serde_json::Value;

use super::{CardanoError, key, output, unhex};
use crate::format::rollback::Operation;
use crate::hash::Hash;
use crate::items::Items;

/// Digits of an address in base 58 at most. Real ones have up to some 150; decoding takes the square of it.
const BASE58_LEN_MAX: usize = 1024;

/// The entries of Byron: `nonAvvmBalances` that are not zero. Vouchers (`avvmDistr`) are not among them.
pub fn byron_genesis(json: &[u8]) -> Result<Vec<Operation>, CardanoError> {
    entries(json, "nonAvvmBalances", |text, balance| {
        let coin = balance.as_str().and_then(|digits| digits.parse().ok()).or(balance.as_u64());
        let coin = coin.ok_or("the balance is not a number")?;
        let bytes = base58(text).ok_or("the address is not in base 58")?;
        let mut items = Items::new(&bytes);
        let address = output::byron_address(&mut items).map_err(|wrong| wrong.wrong)?;
        items.finish().map_err(|wrong| wrong.wrong)?;
        Ok((address, coin))
    })
}

/// The entries of Shelley: `initialFunds`, which only test networks have.
pub fn shelley_genesis(json: &[u8]) -> Result<Vec<Operation>, CardanoError> {
    entries(json, "initialFunds", |text, balance| {
        let coin = balance.as_u64().ok_or("the balance is not a number")?;
        let address = unhex(text.as_bytes()).map_err(|_| "the address is not in hex")?;
        Ok((address, coin))
    })
}

/// One entry for each balance, under the hash of its address as if that were a transaction with one output.
fn entries(
    json: &[u8],
    field: &'static str,
    decode: impl Fn(&str, &Value) -> Result<(Vec<u8>, u64), &'static str>,
) -> Result<Vec<Operation>, CardanoError> {
    let json: Value =
        serde_json::from_slice(json).map_err(|wrong| CardanoError::Genesis(wrong.to_string()))?;
    let balances = json.get(field).and_then(Value::as_object);
    let balances = balances.ok_or_else(|| CardanoError::Genesis(format!("there is no {field}")))?;
    let mut operations = Vec::new();
    for (text, balance) in balances {
        let (address, coin) = decode(text, balance)
            .map_err(|wrong| CardanoError::Genesis(format!("{field} of {text}: {wrong}")))?;
        if coin == 0 && field == "nonAvvmBalances" {
            continue;
        }
        let value = output::simple(&address, coin);
        operations.push(Operation::Insert { key: key(&Hash::of(&address), 0), value });
    }
    operations.sort_by(|one, other| one.key().cmp(other.key()));
    Ok(operations)
}

/// Bytes from digits in base 58, Bitcoin's alphabet.
fn base58(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    if text.len() > BASE58_LEN_MAX {
        return None;
    }
    // The lowest byte first.
    let mut bytes: Vec<u8> = Vec::new();
    for digit in text.bytes() {
        let mut carry = u32::try_from(DIGITS.iter().position(|found| *found == digit)?).ok()?;
        for byte in &mut bytes {
            carry += u32::from(*byte) * 58;
            let [low, ..] = carry.to_le_bytes();
            (*byte, carry) = (low, carry >> 8);
        }
        while carry > 0 {
            let [low, ..] = carry.to_le_bytes();
            bytes.push(low);
            carry >>= 8;
        }
    }
    // A zero in front is a digit of its own.
    bytes.extend(text.bytes().take_while(|digit| *digit == b'1').map(|_| 0));
    bytes.reverse();
    Some(bytes)
}
