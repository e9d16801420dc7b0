//! The built-in rules: every case gives its exact code.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/block_case.rs"]
mod block_case;
#[path = "support/vectors.rs"]
mod vectors;

use block_case::check;
use rubin::rules::{expected_target, subsidy};
use rubin::{Code, Hash, Header, HeaderContext, Work};
use vectors::{list, load, text};

#[test]
fn every_case_gives_its_code() {
    let all = load();
    let cases = list(&all["cv_block_cases"]);
    assert_eq!(cases.len(), 20);
    for case in cases {
        let found = check(case).map_or_else(Code::as_str, |()| "PASS");
        assert_eq!(found, text(&case["expect"]), "{}", text(&case["id"]));
    }
}

#[test]
fn subsidies() {
    let cases = [
        (0, 7_529_089_665),
        (806_399, 7_529_089_665),
        (806_400, 7_529_089_664),
        (1_314_899, 7_529_089_664),
        (1_314_900, 0),
        (u64::MAX, 0),
    ];
    for (height, wanted) in cases {
        assert_eq!(subsidy(height), wanted, "{height}");
    }
}

#[test]
fn targets_change_at_the_end_of_a_window_and_within_bounds() {
    let header = |timestamp, target| Header {
        version: 1,
        prev_hash: Hash::ZERO,
        merkle_root: Hash::ZERO,
        timestamp,
        target,
        nonce: 0,
    };
    let target = |exponent: usize| {
        let mut target = [0; 32];
        target[exponent] = 0x10;
        target
    };
    let context = |height, start, end, old| HeaderContext {
        height,
        parent_hash: Hash::ZERO,
        parent: header(end, old),
        timestamps: Vec::new(),
        window_start: Some(start),
        local_time: None,
    };
    let old = target(10);
    let times = |old: [u8; 32], numerator: u32, denominator: u32| {
        let number = num_bigint::BigUint::from_bytes_be(&old) * numerator / denominator;
        let bytes = number.to_bytes_be();
        let mut target = [0; 32];
        target[32 - bytes.len()..].copy_from_slice(&bytes);
        target
    };
    assert_eq!(expected_target(&context(2015, 0, 1, old)), old, "only at the end of a window");
    assert_eq!(expected_target(&context(2016, 0, 1_209_600, old)), old);
    assert_eq!(expected_target(&context(2016, 0, 604_800, old)), times(old, 1, 2));
    assert_eq!(expected_target(&context(2016, 0, 1, old)), times(old, 1, 4), "at most a quarter");
    assert_eq!(expected_target(&context(2016, 0, u64::MAX, old)), times(old, 4, 1));
    assert_eq!(expected_target(&context(2016, 5, 4, old)), times(old, 1, 4), "time went back");
    let mut one = [0; 32];
    one[31] = 1;
    assert_eq!(expected_target(&context(4032, 0, 1, one)), one, "never zero");
    assert_eq!(expected_target(&context(2016, 0, u64::MAX, [0xff; 32])), [0xff; 32]);
    assert!(Work::of_target(&one).unwrap() > Work::of_target(&old).unwrap());
}

#[test]
fn codes_are_told_by_their_names() {
    for code in Code::ALL {
        assert_eq!(code.to_string().parse(), Ok(*code));
    }
    assert!("TX_ERR_NOTHING".parse::<Code>().is_err());
}
