//! What survives the death of a process: every engine that keeps anything, killed in the middle of its commits.
//!
//! The test starts itself as the process that is killed. It says on standard output which commits were acknowledged; all of
//! those must be there afterwards, and each whole.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ledger::contract::TABLES;
use ledger::{Batch, Engine, KvbEngine};

/// Tells the process that is to be killed what to write to.
const VARIABLE: &str = "LEDGER_CRASH";
/// Rows that every commit changes in every table.
const ROWS: u16 = 200;

fn make(kind: &str, path: &Path, is_new: bool) -> Box<dyn Engine> {
    match (kind, is_new) {
        ("kvb", true) => Box::new(KvbEngine::create(path).unwrap()),
        ("kvb", false) => Box::new(KvbEngine::open(path).unwrap()),
        #[cfg(feature = "redb")]
        ("redb", true) => Box::new(ledger::RedbEngine::create(path, TABLES).unwrap()),
        #[cfg(feature = "redb")]
        ("redb", false) => Box::new(ledger::RedbEngine::open(path, TABLES).unwrap()),
        #[cfg(feature = "fjall")]
        ("fjall", true) => Box::new(ledger::FjallEngine::create(path, TABLES).unwrap()),
        #[cfg(feature = "fjall")]
        ("fjall", false) => Box::new(ledger::FjallEngine::open(path, TABLES).unwrap()),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", true) => Box::new(ledger::RocksEngine::create(path, TABLES).unwrap()),
        #[cfg(feature = "rocksdb")]
        ("rocksdb", false) => Box::new(ledger::RocksEngine::open(path, TABLES).unwrap()),
        _ => panic!("no engine {kind}"),
    }
}

/// Not a test of its own: what is killed.
#[test]
fn commits_until_it_is_killed() {
    let Ok(task) = std::env::var(VARIABLE) else { return };
    let (kind, path) = task.split_once(':').unwrap();
    let path = PathBuf::from(path);
    let engine = make(kind, &path, !path.exists());
    let first = number(&*engine) + 1;
    let mut out = std::io::stdout().lock();
    for number in first..first + 100_000 {
        let mut batch = Batch::new();
        for row in 0..ROWS {
            for table in TABLES {
                batch.put(*table, &row.to_be_bytes(), &number.to_le_bytes());
            }
        }
        engine.commit(batch).unwrap();
        writeln!(out, "commit {number}").unwrap();
        out.flush().unwrap();
    }
}

/// The commit that all rows are of.
fn number(engine: &dyn Engine) -> u64 {
    let snapshot = engine.snapshot().unwrap();
    let mut found = Vec::new();
    for table in TABLES {
        let rows = snapshot.scan(*table, (Bound::Unbounded, Bound::Unbounded)).unwrap();
        let values = rows.map(|row| row.unwrap().1.as_ref().try_into().unwrap());
        found.extend(values.map(u64::from_le_bytes));
    }
    assert!(found.windows(2).all(|two| two[0] == two[1]), "part of a commit");
    let whole = TABLES.len() * usize::from(ROWS);
    assert!(found.is_empty() || found.len() == whole, "{} of {whole} rows", found.len());
    found.first().copied().unwrap_or(0)
}

fn survives(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("engine");
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["commits_until_it_is_killed", "--exact", "--nocapture"])
            .env(VARIABLE, format!("{kind}:{}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = 0;
        let mut seen = 0;
        for line in lines {
            let line = line.unwrap();
            // The harness writes lines of its own.
            let Some(number) = line.split("commit ").nth(1) else { continue };
            acknowledged = number.trim().parse().unwrap();
            seen += 1;
            if seen == 5 + round * 4 {
                std::thread::sleep(Duration::from_micros(700 * round));
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(acknowledged > 0, "{kind} wrote nothing");
        let engine = make(kind, &path, false);
        let found = number(&*engine);
        assert!(found >= acknowledged, "{kind} lost commit {acknowledged}: it is at {found}");
        drop(engine);
    }
}

#[test]
fn kvb_survives_a_kill() {
    survives("kvb");
}

#[cfg(feature = "redb")]
#[test]
fn redb_survives_a_kill() {
    survives("redb");
}

#[cfg(feature = "fjall")]
#[test]
fn fjall_survives_a_kill() {
    survives("fjall");
}

#[cfg(feature = "rocksdb")]
#[test]
fn rocksdb_survives_a_kill() {
    survives("rocksdb");
}
