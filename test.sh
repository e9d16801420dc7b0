#!/usr/bin/env bash
# Installs what the tests need and runs all of them.
set -euo pipefail
cd "$(dirname "$0")"

# Other programs that the tests compare the engine with, and the Debian packages they are in.
for pair in python3:python3 zstd:zstd mdb_dump:lmdb-utils; do
    program=${pair%%:*} package=${pair##*:}
    if ! command -v "$program" >/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -q && apt-get install -qy --no-install-recommends "$package"
        else
            echo "The tests need $program (Debian package $package): install it and run this again." >&2
            exit 2
        fi
    fi
done
if ! command -v cargo >/dev/null; then
    echo "Install Rust 1.89 or newer (https://rustup.rs) and run this again." >&2
    exit 2
fi

cargo test --workspace --locked
# The lock-free overlay under every order the memory model allows.
RUSTFLAGS="--cfg loom" cargo test --locked -p kvb --lib --release --target-dir target/loom overlay_loom
# Again, alone, for its count of images.
cargo test --locked -p kvb --test crash -- --nocapture
