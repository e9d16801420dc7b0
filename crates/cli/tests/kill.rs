//! A node that is killed while it imports: what it acknowledged is there, and the next import goes on. `KVB_KILLS=n` kills it n times.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

#[path = "support/kills.rs"]
mod kills;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use host::MemoryDir;
use ledger::MemoryEngine;
use rubin::rules::Rules;
use rubin::synthetic as maker;
use rubin::{Chain, Genesis, Hash, Outpoint, Transaction, to_hex};
use serde_json::Value;

/// Times that a node is killed on its way through a chain.
const KILLS: usize = 25;

/// A chain of blocks that make coins and spend those of the block before, with short branches that are given up again.
fn blocks(count: u64) -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let mut parent = (Genesis::devnet().hash(), Vec::new());
    for height in 1..=count {
        if height % 7 == 0 {
            // A branch of one block, and the same height again.
            blocks.push(block(&parent, height, 1).0);
        }
        let (bytes, coins) = block(&parent, height, 2);
        parent = (maker::hash_of(&bytes), coins);
        blocks.push(bytes);
    }
    blocks
}

fn block(parent: &(Hash, Vec<Outpoint>), height: u64, branch: u64) -> (Vec<u8>, Vec<Outpoint>) {
    let outs: Vec<_> = (0..60).map(|_| maker::coin(0)).collect();
    let coins = maker::spend(height * 10 + branch, &parent.1, &outs);
    let transaction = Transaction::decode(&coins).unwrap();
    let made = (0..outs.len()).map(|vout| transaction.outpoint(vout)).collect();
    let coinbase = maker::coinbase(height, &[maker::coin(0)]);
    (maker::block(parent.0, height * 10 + branch, &[coinbase, coins]), made)
}

fn node(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rubin-node"));
    command.args(args).args(["--datadir", "data", "--quiet"]).current_dir(dir);
    command
}

fn facts(dir: &Path, args: &[&str]) -> Value {
    let ran = node(dir, args).arg("--json").output().unwrap();
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn a_node_that_is_killed_again_and_again_loses_nothing() {
    let blocks = blocks(400);
    let lines: Vec<String> = blocks.iter().map(|block| to_hex(block)).collect();
    // Heights after every block, by a node that nobody kills.
    let model = Chain::init(
        Box::new(MemoryEngine::new()),
        Arc::new(MemoryDir::new()),
        Box::<Rules>::default(),
        Genesis::devnet(),
    );
    let model = model.unwrap();
    let tip_after = |block: &Vec<u8>| {
        model.import(block, None).unwrap().unwrap();
        model.tip().height
    };
    let heights: Vec<u64> = blocks.iter().map(tip_after).collect();
    let rounds = kills::rounds(KILLS);
    let killed: usize =
        (0..rounds).map(|_| kill_importers(&(lines.join("\n") + "\n"), &heights, &model)).sum();
    eprintln!("killed {killed} times");
}

/// Kills imports of these blocks until they are all there, and gives how many were killed before their end.
fn kill_importers(lines: &str, heights: &[u64], model: &Chain) -> usize {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("blocks.hex"), lines).unwrap();
    assert!(node(dir.path(), &["init"]).output().unwrap().status.success());
    let (mut killed, mut last) = (0, 0);
    for kill in 1..=KILLS {
        let import = node(dir.path(), &["import", "blocks.hex"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut import = import.unwrap();
        // The further it came, the later: imports of blocks that are there already are acknowledged too.
        let wait = heights.len() * kill / (KILLS + 1);
        let mut output = BufReader::new(import.stdout.take().unwrap()).lines();
        let mut acknowledged = output.by_ref().take(wait).count();
        killed += usize::from(import.try_wait().unwrap().is_none());
        import.kill().unwrap();
        acknowledged += output.count();
        import.wait().unwrap();
        let wanted = heights[acknowledged - 1];
        // Whoever only looks does not mend: a command that writes comes first.
        let nothing = node(dir.path(), &["import", "/dev/null"]).output().unwrap();
        assert!(nothing.status.success(), "{}", String::from_utf8_lossy(&nothing.stderr));
        let tip = facts(dir.path(), &["tip"]);
        let height = tip["tip_height"].as_u64().unwrap();
        assert!(height >= wanted, "{acknowledged} acknowledged, {height} of {wanted} there");
        // Nothing comes in that is further ahead than the block that was under way.
        assert!(height <= wanted.max(last) + 1, "{acknowledged} acknowledged, at {height}");
        last = height;
    }
    assert!(killed > KILLS / 2, "only {killed} were killed before their end");
    let import = node(dir.path(), &["import", "blocks.hex"]).output().unwrap();
    assert!(import.status.success());
    let found = facts(dir.path(), &["utxo-set-hash"]);
    let (count, hash) = model.view().unwrap().utxo_set_hash().unwrap();
    assert_eq!(found["tip_height"], model.tip().height);
    assert_eq!(found["tip_hash_hex"], model.tip().hash.to_string());
    assert_eq!(found["utxo_count"], count);
    assert_eq!(found["utxo_set_hash_hex"], hash.to_string());
    assert!(node(dir.path(), &["verify"]).output().unwrap().status.success());
    killed
}
