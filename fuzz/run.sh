#!/usr/bin/env bash
# Fuzzes: fuzz/run.sh [SECONDS [TARGET...]] runs each target, or those named, for so many seconds from the corpus in
# fuzz/corpus, and prints executions, coverage and speed. It fails if one of them finds something: the input is then in
# fuzz/found, and `fuzz/run.sh show TARGET FILE` runs it again.
#
#   fuzz/run.sh 60 files          a minute of one
#   KEEP=1 fuzz/run.sh 600        ten minutes of each; what reached something new goes to the corpus
#   SANITIZER=address fuzz/run.sh with AddressSanitizer
set -euo pipefail
cd "$(dirname "$0")"

host=$(rustc -vV | sed -n 's/^host: //p')
# What libFuzzer asks of a compiler: counters for edges, and calls for comparisons.
flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
if [ -n "${SANITIZER:-}" ]; then
    export RUSTC_BOOTSTRAP=1
    flags="$flags -Zsanitizer=$SANITIZER"
fi
# With a target named, build scripts and macros are not instrumented.
RUSTFLAGS=$(echo $flags) cargo build --release --locked --quiet --target "$host"
bin=target/$host/release

work=$(mktemp -d)
# Files that targets make are in memory, where syncs cost nothing.
TMPDIR=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d -p "$work")
export TMPDIR
trap 'rm -rf "$work" "$TMPDIR"' EXIT

# Longest inputs. A whole bucket is longer than anything else.
longest() {
    case $1 in
    bytes) echo 1048576 ;;
    *) echo 8192 ;;
    esac
}

if [ "${1:-}" = show ]; then
    "$bin/$2" "$3"
    exit
fi
seconds=${1:-10}
shift || true
targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    mapfile -t targets < <(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2)
fi

mkdir -p found
printf '%-14s %12s %9s %9s %8s %8s\n' target executions edges of "per s" corpus
failed=0
for target in "${targets[@]}"; do
    fresh=$work/$target
    mkdir -p "$fresh" "corpus/$target"
    if ! "$bin/$target" "$fresh" "corpus/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1500 -max_len="$(longest "$target")" \
        -print_final_stats=1 -artifact_prefix="found/$target-" >"$work/log" 2>&1; then
        tail -40 "$work/log" >&2
        echo "$target: FOUND SOMETHING" >&2
        failed=1
        continue
    fi
    if [ -n "${KEEP:-}" ]; then
        # The smallest set of inputs that reaches as much.
        mkdir "$work/merged"
        "$bin/$target" -merge=1 "$work/merged" "corpus/$target" "$fresh" >/dev/null 2>&1
        rm -rf "corpus/$target"
        mv "$work/merged" "corpus/$target"
    fi
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
    speed=$(sed -n 's/^stat::average_exec_per_sec: *//p' "$work/log")
    edges=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$work/log" | tail -1)
    all=$(sed -n 's/.*Loaded 1 modules *(\([0-9]*\) .*counters).*/\1/p' "$work/log" | head -1)
    printf '%-14s %12s %9s %9s %8s %8s\n' "$target" "$executions" "$edges" "$all" "$speed" "$(ls "corpus/$target" | wc -l)"
done
exit $failed
