#!/usr/bin/env bash
# Runs the tests with threads in them under ThreadSanitizer. It needs a nightly toolchain with the standard library's
# sources, because a library that is not instrumented makes every lock look like a race.
set -euo pipefail
cd "$(dirname "$0")/.."

source="$(rustc +nightly --print sysroot 2>/dev/null || true)/lib/rustlib/src/rust/library/Cargo.lock"
if [ ! -e "$source" ]; then
    echo "skipped: ThreadSanitizer needs \`rustup toolchain install nightly --component rust-src\`"
    exit 0
fi
RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1" \
    cargo +nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --target-dir target/tsan \
    --locked -p kvb --test threads --test readers --test compact --test snapshot
