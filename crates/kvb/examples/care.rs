//! Taking care of a bucket: encrypted and compressed, backed up while in use, verified, damaged, repaired, rotated.
//!
//! Run it with `cargo run --release --example care`. It works in a temporary directory and shows what it does.

#![allow(clippy::print_stdout)]

use std::error::Error;

use kvb::{Batch, Bucket, Compression, Key, Keyring, Options, RepairTo};

const ROWS: u64 = 20_000;

/// Real keys come from a file, a key service, or wherever secrets are kept.
fn keys() -> Keyring {
    Keyring::new().with(1, Key::new([1; 32])).with(2, Key::new([2; 32]))
}

/// What only opens a bucket.
fn opening() -> Options {
    Options::default().keys(keys())
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let path = |name: &str| dir.path().join(name);
    let progress = &mut |_: kvb::Progress| {};

    println!("1. Make a bucket that is compressed and encrypted, and put {ROWS} rows.");
    let options = Options::default().compression(Compression::Zstd).encrypted(1).keys(keys());
    let bucket = Bucket::create(path("ledger.kvb"), options)?;
    let mut batch = Batch::new();
    for number in 0..ROWS {
        let value = format!("{{\"account\": {number}, \"balance\": 1000, \"currency\": \"coin\"}}");
        batch.put(format!("account {number:06}"), value);
    }
    bucket.commit(batch)?;
    let learned = bucket.train_dictionary(4096)?;
    println!("   learned a dictionary of {} bytes from {} values", learned.bytes, learned.samples);

    println!("2. Back it up, change it, and back up what changed.");
    let whole = bucket.snapshot().backup(path("monday.kvb"), progress)?;
    bucket.put("account 000007", "closed")?;
    bucket.delete("account 000008")?;
    let changed =
        bucket.snapshot().backup_since(path("tuesday.kvb"), &[path("monday.kvb")], progress)?;
    println!("   {} records, then {}", whole.records, changed.records);

    println!("3. Encrypt it with another key while it is in use.");
    let rotation = bucket.rotate_key(2)?;
    println!("   {} records rewritten, complete: {}", rotation.records, rotation.is_complete);
    bucket.close()?;

    println!("4. Verify it.");
    let found = kvb::verify(path("ledger.kvb"), opening(), progress)?;
    println!("   {} records in {} segments: {}", found.records, found.segments, found.is_sound());

    println!("5. Damage it in three places, and repair it.");
    let mut file = std::fs::read(path("ledger.kvb"))?;
    let len = file.len();
    for at in [len / 3, len / 2, 10] {
        if let Some(byte) = file.get_mut(at) {
            *byte ^= 0x55;
        }
    }
    std::fs::write(path("ledger.kvb"), &file)?;
    let to = RepairTo::New(path("mended.kvb"));
    let repair = kvb::repair(path("ledger.kvb"), &to, opening(), progress)?;
    for finding in &repair.findings {
        println!("   found: {finding}");
    }
    println!("   saved {} keys, lost {}", repair.keys, repair.lost.len());

    println!("6. Restore it from the backups.");
    let files = [path("monday.kvb"), path("tuesday.kvb")];
    kvb::restore(&files, path("restored.kvb"), opening(), progress)?;
    let restored = Bucket::open(path("restored.kvb"), opening())?;
    let rows = restored.scan("account ").filter(|row| row.is_ok()).count();
    println!("   {rows} rows; account 7 is {:?}", restored.get("account 000007")?.is_some());
    assert_eq!(u64::try_from(rows)?, ROWS - 1);
    restored.close()?;
    Ok(())
}
