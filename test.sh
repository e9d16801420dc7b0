#!/usr/bin/env bash
# Installs what the tests need and runs all of them.
set -euo pipefail
cd "$(dirname "$0")"

if ! command -v python3 >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -q && apt-get install -qy --no-install-recommends python3
    else
        echo "The strict reader in the tests is written in Python: install python3 and run this again." >&2
        exit 2
    fi
fi
if ! command -v cargo >/dev/null; then
    echo "Install Rust 1.89 or newer (https://rustup.rs) and run this again." >&2
    exit 2
fi

cargo test --workspace --locked
# The lock-free overlay under every order the memory model allows.
RUSTFLAGS="--cfg loom" cargo test --locked -p kvb --lib --release --target-dir target/loom overlay_loom
# Again, alone, for its count of images.
cargo test --locked -p kvb --test crash -- --nocapture
