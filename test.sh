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
need strace strace
need mdb_dump lmdb-utils
need /usr/include/rocksdb/c.h librocksdb-dev
need "/usr/lib/llvm-*/lib/libclang.so*" libclang-dev
need "/usr/lib/postgresql/*/bin/initdb" postgresql
if [ "$(id -u)" = 0 ]; then
    # For file systems that lose power. Others than root cannot mount them, and those tests say so.
    need mkfs.ext4 e2fsprogs
    need mkfs.xfs xfsprogs
fi
if ! command -v cargo >/dev/null; then
    echo "Install Rust 1.89 or newer (https://rustup.rs) and run this again." >&2
    exit 2
fi

# Ledgers on every engine, and the simulator with bugs to plant.
KVB_POSTGRES=required cargo test --locked --workspace --all-features --no-fail-fast
# The lock-free overlay under the orders that the memory model allows.
RUSTFLAGS="--cfg loom" cargo test --locked -p kvb --lib --release --target-dir target/loom overlay_loom
