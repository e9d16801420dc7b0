#!/usr/bin/env bash
# Builds the book of docs/ into target/book. mdBook is built first, into target/tools, if it is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
version=0.5.4
if ! PATH="$PWD/target/tools/bin:$PATH" mdbook --version 2>/dev/null | grep -q "v$version"; then
    cargo install --quiet --locked --debug --no-default-features --root target/tools --version "=$version" mdbook
fi
PATH="$PWD/target/tools/bin:$PATH" mdbook build
