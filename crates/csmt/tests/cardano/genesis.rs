//! Entries that are there before the first block.

use csmt::Hash;
use csmt::cardano::{self, CardanoError};
use csmt::format::rollback::Operation;
use serde_json::json;

use super::build::{bytes, list, uint};
use super::real::unhex;

#[test]
fn byron_has_its_balances_under_the_hash_of_the_address() {
    // Two of the first testnet's; what base 58 stands for was found with another program.
    let json = json!({"nonAvvmBalances": {
        "2cWKMJemoBajGgvgVVziaKmUFa4LwJnAHffmuaSJBMDqethwJVQsyBsTSfFhp5jFpkVQM": "5428571428571429",
        "2cWKMJemoBaheSTiK9XEtQDf47Z3My8jwN25o5jjm7s7jaXin2nothhWQrTDd8m433M8K": "0",
    }});
    let address = unhex(ADDRESS);
    let key = cardano::key(&Hash::of(&address), 0);
    let value = list(&[bytes(&address), uint(5_428_571_428_571_429)]);
    let found = cardano::byron_genesis(json.to_string().as_bytes()).unwrap();
    assert_eq!(csmt::address(&value).unwrap(), address);
    assert_eq!(found, [Operation::Insert { key, value }]);
}

const ADDRESS: &str = "82d818582883581c80632193e03f035bc477c75ae58234a0dd733aa9e11751c8c3219672a102451a4170cb17001a0f28f622";

#[test]
fn shelley_has_its_funds_under_the_hash_of_the_address() {
    let address = [vec![0x60], vec![5; 28]].concat();
    let json = json!({"initialFunds": {csmt::hex(&address): 30_000_000}});
    let key = cardano::key(&Hash::of(&address), 0);
    let value = list(&[bytes(&address), uint(30_000_000)]);
    let found = cardano::shelley_genesis(json.to_string().as_bytes()).unwrap();
    assert_eq!(found, [Operation::Insert { key, value }]);
}

#[test]
fn what_is_not_a_genesis_file_is_refused() {
    let long = "2".repeat(100_000);
    for json in [
        "".to_owned(),
        "[".repeat(100_000),
        "{}".to_owned(),
        json!({"nonAvvmBalances": []}).to_string(),
        json!({"nonAvvmBalances": {"0": "1"}}).to_string(),
        json!({"nonAvvmBalances": {"2": "1"}}).to_string(),
        json!({"nonAvvmBalances": {"2": -1}}).to_string(),
        json!({"nonAvvmBalances": {long: "1"}}).to_string(),
    ] {
        let found = cardano::byron_genesis(json.as_bytes());
        assert!(matches!(found, Err(CardanoError::Genesis(_))));
    }
    let json = json!({"initialFunds": {"6": 1}}).to_string();
    assert!(cardano::shelley_genesis(json.as_bytes()).is_err());
}
