//! Any bytes as the files that people hand to the programs: blocks, checkpoints, lists of entries, profiles, keys, proofs. The
//! first byte says which.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use kvb::{Bucket, Key, Keyring, Options};
use kvb_fuzz::KEY;
use kvb_fuzz::workplace::Workplace;
use libfuzzer_sys::fuzz_target;
use rubin::Genesis;

/// Stores with nothing in them, and a bucket under a key.
static PLACE: LazyLock<Workplace> = LazyLock::new(|| {
    let place = Workplace::new("texts");
    cli::utxo_csmt::run(place.line("utxo-csmt init --db @csmt --path raw --quiet")).unwrap();
    cli::misaka_node::run(place.line("misaka-node init --db @misaka --v2-at 2 --quiet")).unwrap();
    cli::rubin_node::run(place.line("rubin-node init --datadir @rubin --quiet")).unwrap();
    let options = Options::default().encrypted(1).keys(Keyring::new().with(1, Key::new(KEY)));
    let bucket = Bucket::create(place.path("bucket"), options).unwrap();
    bucket.put(b"key", b"value").unwrap();
    bucket.close().unwrap();
    place
});

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    let place = &*PLACE;
    place.write("text", bytes);
    let root = "00".repeat(32);
    let _ = match kind % 9 {
        0 => {
            place.copy("csmt", "db");
            cli::utxo_csmt::run(place.line("utxo-csmt apply --db @db @text --threads 1 --quiet"))
        }
        1 => {
            place.copy("csmt", "db");
            cli::utxo_csmt::run(place.line("utxo-csmt bootstrap --db @db @text --quiet"))
        }
        2 => {
            place.copy("misaka", "db");
            cli::misaka_node::run(place.line("misaka-node apply --db @db @text --quiet"))
        }
        3 => {
            place.copy("rubin", "db");
            cli::rubin_node::run(place.line("rubin-node import --datadir @db @text --quiet"))
        }
        4 => {
            if let Ok(text) = std::str::from_utf8(bytes) {
                if let Ok(genesis) = Genesis::from_profile(text) {
                    assert_eq!(Genesis::new(genesis.bytes().to_vec()), Ok(genesis));
                }
            }
            cli::rubin_node::run(place.line("rubin-node chain-id --profile @text --quiet"))
        }
        5 => {
            place.copy("rubin", "db");
            let line = "rubin-node import-block --datadir @db --block-hex-file @text --quiet";
            cli::rubin_node::run(place.line(line))
        }
        6 => cli::bucket::run(place.line("kvb get -t @bucket key --key-file @text --quiet")),
        7 => {
            let line =
                format!("utxo-csmt verify-proof --root {root} --key 01 --absent --proof @text");
            cli::utxo_csmt::run(place.line(&line))
        }
        _ => {
            let line =
                format!("misaka-node verify-proof --root {root} --key 01 --absent --proof @text");
            cli::misaka_node::run(place.line(&line))
        }
    };
    let _ = fs::remove_file(place.path("text"));
});
