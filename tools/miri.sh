#!/usr/bin/env bash
# Runs under Miri what it can run: words in memory, checksums without the processor's instructions, and the decoders of
# the formats as pure code. Miri knows no shared mappings of files, no locks and no code in C. It needs a nightly
# toolchain.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
    echo "skipped: Miri needs \`rustup toolchain install nightly --component miri,rust-src\`"
    exit 0
fi
miri() {
    cargo +nightly miri test --target-dir target/miri --locked "$@"
}
miri -p kvb-host --lib -- words:: crc::
miri -p kvb --lib -- format::
# The vectors are files.
MIRIFLAGS=-Zmiri-disable-isolation miri -p kvb --test golden -- structures_are sealing_sets
