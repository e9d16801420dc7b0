//! A tour of the engine: a ledger of accounts in one file, through commits, a crash and the recovery from it.
//!
//! Run it with `cargo run --release --example tour`. It works in a temporary directory and shows what it does.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use kvb::{Batch, Bucket, Compact, Durability, Options, Scan};

const ACCOUNTS: u64 = 200_000;
const BLOCKS: u64 = 200;
const TRANSFERS: u64 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, path] = arguments.as_slice()
        && role == "--crash"
    {
        return crash(path);
    }
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("ledger.kvb");

    println!("1. Create a bucket and open {ACCOUNTS} accounts in batches of 1000.");
    let bucket = Bucket::create(&path, Options::default().durability(Durability::SyncOnce))?;
    let start = Instant::now();
    for first in (0..ACCOUNTS).step_by(1_000) {
        let mut batch = Batch::new();
        for account in first..first + 1_000 {
            batch.put(key(account), 1_000_u64.to_le_bytes());
        }
        bucket.commit(batch)?;
    }
    report("accounts", ACCOUNTS, start);

    println!(
        "2. Apply {BLOCKS} blocks of {TRANSFERS} transfers: each block reads, checks, and is one durable commit."
    );
    let start = Instant::now();
    for block in 0..BLOCKS {
        apply_block(&bucket, block)?;
    }
    report("transfers", BLOCKS * TRANSFERS, start);
    println!("   money in the ledger: {} (must be {})", total(&bucket)?, ACCOUNTS * 1_000);

    println!("3. Store something that expires in one second, and wait.");
    bucket.put_for(b"session", b"token", Duration::from_secs(1))?;
    println!("   now:   {}", if bucket.exists(b"session")? { "there" } else { "gone" });
    std::thread::sleep(Duration::from_millis(1_100));
    println!("   later: {}", if bucket.exists(b"session")? { "there" } else { "gone" });
    bucket.close()?;

    println!("4. Another process goes on with the blocks and is killed in the middle.");
    let program = std::env::current_exe()?;
    let mut child = Command::new(program).arg("--crash").arg(&path).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    child.kill()?;
    child.wait()?;

    println!("5. Open again.");
    let start = Instant::now();
    let bucket = Bucket::open(&path, Options::default())?;
    println!("   open after {:?}; {:?}", start.elapsed(), bucket.mount_report());
    println!("   money in the ledger: {} (must be {})", total(&bucket)?, ACCOUNTS * 1_000);
    if total(&bucket)? != ACCOUNTS * 1_000 {
        return Err("the ledger does not add up".into());
    }
    println!(
        "6. Take a snapshot, go on with the blocks, and let a reader watch as another process would."
    );
    let snapshot = bucket.snapshot();
    let reader = Bucket::open_read_only(&path)?;
    for block in 0..20 {
        apply_block(&bucket, block)?;
    }
    println!("   snapshot: {} (must be {})", total_of(snapshot.scan(b""))?, ACCOUNTS * 1_000);
    let seen = reader.snapshot()?;
    println!("   reader:   {} (must be {})", total_of(seen.scan(b""))?, ACCOUNTS * 1_000);
    println!(
        "   commits between them: {} and {}; pinned: {} bytes",
        snapshot.seqno(),
        seen.seqno(),
        bucket.stats()?.pinned_bytes
    );
    drop((snapshot, seen, reader));

    println!("7. Compact everything, and scan it in key order.");
    let before = bucket.stats()?;
    let done = bucket.compact(Compact::Full)?;
    let after = bucket.stats()?;
    println!(
        "   {:.1} MB of log became {:.1} MB in {:.2} s ({:.0} % of it was garbage)",
        megabytes(before.bytes_log),
        megabytes(after.bytes_log),
        done.seconds,
        before.garbage_ratio() * 100.0
    );
    let start = Instant::now();
    let rows = bucket.scan(b"").count();
    report("rows", u64::try_from(rows)?, start);

    println!("8. What it holds: {:?}", bucket.stats()?);
    bucket.close()?;
    Ok(())
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss, reason = "for people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn total_of(rows: Scan<'_>) -> Result<u64, Box<dyn Error>> {
    let mut total = 0;
    for row in rows {
        total += u64::from_le_bytes(row?.value().try_into()?);
    }
    Ok(total)
}

/// Applies blocks until somebody kills this process.
fn crash(path: &str) -> Result<(), Box<dyn Error>> {
    let bucket = Bucket::open(path, Options::default().durability(Durability::SyncOnce))?;
    for block in BLOCKS.. {
        apply_block(&bucket, block)?;
    }
    Ok(())
}

fn key(account: u64) -> [u8; 36] {
    let mut key = [0; 36];
    key[..8].copy_from_slice(&account.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key
}

/// Moves one coin from each of some accounts to each of some others.
fn apply_block(bucket: &Bucket, block: u64) -> Result<(), Box<dyn Error>> {
    let from = |n: u64| (block * 7_919 + n * 2) % ACCOUNTS;
    let to = |n: u64| (block * 7_919 + n * 2 + 1) % ACCOUNTS;
    let keys: Vec<_> = (0..TRANSFERS).flat_map(|n| [key(from(n)), key(to(n))]).collect();
    let balances = bucket.get_many(&keys)?;
    let mut batch = Batch::new();
    for pair in keys.chunks_exact(2).zip(balances.chunks_exact(2)) {
        let ([from, to], [Some(source), Some(target)]) = pair else {
            return Err("an account is missing".into());
        };
        let source = u64::from_le_bytes(source[..].try_into()?);
        let target = u64::from_le_bytes(target[..].try_into()?);
        if let Some(rest) = source.checked_sub(1) {
            batch.put(from, rest.to_le_bytes()).put(to, (target + 1).to_le_bytes());
        }
    }
    Ok(bucket.commit(batch)?)
}

fn total(bucket: &Bucket) -> Result<u64, Box<dyn Error>> {
    let mut total = 0;
    for account in 0..ACCOUNTS {
        let balance = bucket.get(key(account))?.ok_or("an account is missing")?;
        total += u64::from_le_bytes(balance[..].try_into()?);
    }
    Ok(total)
}

fn report(what: &str, count: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("   {count} {what} in {seconds:.2} s");
}
