//! A store's directory that somebody else made.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::unix::fs::symlink;
use std::path::Path;

use ledger::{EngineKind, Home, Table};

const TABLES: &[Table] = &[Table { name: "rows", id: 1 }];

/// Makes a store and moves one of its names elsewhere, with a link in its place.
fn linked(dir: &Path, name: &str) -> Home {
    let home = Home::new(dir.join("store"));
    let lock = home.make_and_lock().unwrap();
    drop(home.create(&lock, EngineKind::Kvb, TABLES).unwrap());
    drop(lock);
    let (here, there) = (home.path().join(name), dir.join("elsewhere"));
    std::fs::rename(&here, &there).unwrap();
    symlink(&there, &here).unwrap();
    home
}

#[test]
fn links_in_it_are_refused() {
    for name in ["LOCK", "db", "db/data.kvb"] {
        let dir = tempfile::tempdir().unwrap();
        let home = linked(dir.path(), name);
        let opened = home.lock().map(|lock| home.open(&lock, TABLES).map(drop));
        let error = match opened {
            Err(error) | Ok(Err(error)) => error,
            Ok(Ok(())) => panic!("{name}: it was followed"),
        };
        assert!(error.to_string().contains("symbolic link"), "{name}: {error}");
        if name != "LOCK" {
            let error = home.open_to_read(TABLES).map(drop).unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{name}, to read: {error}");
        }
    }
}

/// The directory itself may be anywhere, whatever way leads there.
#[test]
fn a_link_to_it_is_none_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().join("store"));
    let lock = home.make_and_lock().unwrap();
    drop(home.create(&lock, EngineKind::Kvb, TABLES).unwrap());
    drop(lock);
    symlink(home.path(), dir.path().join("link")).unwrap();
    let home = Home::new(dir.path().join("link"));
    let lock = home.lock().unwrap();
    drop(home.open(&lock, TABLES).unwrap());
}
