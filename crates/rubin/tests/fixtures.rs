//! What the fixtures of other implementations ask for: every case of `vectors/rubin/fixtures.json` that applies.
//! `docs/format/rubin.md` has the list, with the reasons of those that do not.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/block_case.rs"]
mod block_case;
#[path = "fixtures/bytes.rs"]
mod bytes;
#[path = "fixtures/chains.rs"]
mod chains;
#[path = "fixtures/reorgs.rs"]
mod reorgs;
#[path = "fixtures/spends.rs"]
mod spends;
#[path = "support/vectors.rs"]
mod vectors;

use serde_json::Value;
use vectors::{list, load_file, text};

/// Bytes from parts; a part may say how often it is repeated.
fn join(parts: &Value) -> Vec<u8> {
    let part = |part: &Value| match part.get("times") {
        Some(times) => {
            vectors::hex(&part["hex"]).repeat(usize::try_from(vectors::number(times)).unwrap())
        }
        None => vectors::hex(part),
    };
    list(parts).iter().flat_map(part).collect()
}

/// Runs all cases of a file.
fn each(file: &str, check: fn(&Value)) {
    let all = load_file("fixtures.json");
    for case in list(&all[file]["run"]) {
        eprintln!("{file}: {}", text(&case["id"]));
        check(case);
    }
}

macro_rules! files {
    ($( $name:ident: $file:literal, $check:path; )*) => {
        /// Files that are run.
        const FILES: &[&str] = &[ $( $file, )* ];

        $( #[test] fn $name() { each($file, $check); } )*
    };
}

files! {
    compact_sizes_are_the_shortest: "CV-COMPACTSIZE", bytes::compact_size;
    malformed_transactions_are_refused: "CV-PARSE", spends::parse;
    txids_leave_the_witness_out: "CV-SIGHASH", bytes::txid;
    merkle_roots_move_odd_ones_up: "CV-MERKLE", bytes::merkle;
    targets_change_and_hashes_are_below_them: "CV-POW", bytes::proof_of_work;
    the_chain_with_most_work_wins: "CV-FORK-CHOICE", bytes::fork_choice;
    transactions_weigh_what_they_should: "CV-WEIGHT", bytes::weight;
    undo_records_keep_what_was_spent_in_version_1: "undo_integrity_v1", bytes::undo;
    undo_records_keep_what_was_spent_in_version_2: "undo_integrity_v2", bytes::undo;
    spends_break_one_rule_each: "CV-UTXO", spends::spend;
    fees_are_what_is_left_over: "CV-FEES", spends::spend;
    coinbases_take_subsidy_and_fees: "CV-COINBASE", spends::coinbase;
    timelocks_open: "CV-SIGCHECK", spends::spend;
    witnesses_fit_their_covenants: "CV-BIND", spends::spend;
    blocks_break_one_rule_each: "CV-BLOCK", spends::block;
    networks_begin_with_their_genesis: "genesis-profiles", chains::genesis;
    sets_follow_blocks: "CV-CHAINSTATE", chains::chainstate;
    stored_chains_end_where_they_should: "CV-CHAINSTATE-STORE", chains::plan;
    imports_are_decided: "CV-IMPORT", chains::import;
    a_datadir_has_what_it_should: "CV-STORAGE", chains::storage;
    a_stale_manifest_changes_nothing: "CV-CRASH-RECOVERY", chains::stale_manifest;
    reorgs_do_not_depend_on_the_past: "CV-REORG", reorgs::reorg;
}

#[test]
fn every_file_with_cases_is_run() {
    let all = load_file("fixtures.json");
    for (file, cases) in all.as_object().unwrap().iter().filter(|(file, _)| *file != "_about") {
        let is_empty = list(&cases["run"]).is_empty();
        assert_eq!(!is_empty, FILES.contains(&file.as_str()), "{file}");
        for reason in list(&cases["not_run"]) {
            assert!(!list(&reason["ids"]).is_empty() && !text(&reason["why"]).is_empty());
        }
    }
}

#[test]
fn the_page_counts_the_cases() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format/rubin.md");
    let page = std::fs::read_to_string(path).unwrap();
    let all = load_file("fixtures.json");
    for (file, cases) in all.as_object().unwrap().iter().filter(|(file, _)| *file != "_about") {
        let run = list(&cases["run"]).len();
        let not_run: usize =
            list(&cases["not_run"]).iter().map(|reason| list(&reason["ids"]).len()).sum();
        let row = format!("| {file} | {run} | {not_run} |");
        assert!(page.contains(&row), "docs/format/rubin.md has no row {row}");
    }
}
