#!/usr/bin/env bash
# Installs what the tests need and runs all of them.
set -euo pipefail
cd "$(dirname "$0")"

# Whatever the tests compare with or link to: a program or a file, and the Debian package it is in.
need() {
    if command -v "$1" >/dev/null || compgen -G "$1" >/dev/null; then
        return
    fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q && apt-get install -qy --no-install-recommends "$2"
    else
        echo "The tests need $1 (Debian package $2): install it and run this again." >&2
        exit 2
    fi
}
need python3 python3
need zstd zstd
need mdb_dump lmdb-utils
need /usr/include/rocksdb/c.h librocksdb-dev
need "/usr/lib/llvm-*/lib/libclang.so*" libclang-dev
need "/usr/lib/postgresql/*/bin/initdb" postgresql
if ! command -v cargo >/dev/null; then
    echo "Install Rust 1.89 or newer (https://rustup.rs) and run this again." >&2
    exit 2
fi

# Ledgers with the tables of every engine, and the rest.
ledgers=(kvb-ledger kvb-rubin kvb-csmt kvb-misaka kvb-misaka-indexer)
cargo test --locked --workspace "${ledgers[@]/#/--exclude=}"
KVB_POSTGRES=required cargo test --locked "${ledgers[@]/#/--package=}" --all-features
# The lock-free overlay under every order the memory model allows.
RUSTFLAGS="--cfg loom" cargo test --locked -p kvb --lib --release --target-dir target/loom overlay_loom
