#!/bin/bash
# Builds a fuzz target with a stable toolchain (coverage, no address sanitizer)
# and runs it. Usage: run-on-stable.sh TARGET [libFuzzer options]
set -euo pipefail
cd "$(dirname "$0")"
target=${1:?usage: run-on-stable.sh TARGET [libFuzzer options]}
shift
mkdir -p "corpus/$target" "artifacts/$target"
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1"
triple=$(rustc -vV | sed -n 's/^host: //p')
# With a target named, build scripts and macros are built without these flags.
cargo build --release --target "$triple" --bin "$target"
dir=${CARGO_TARGET_DIR:-target}
exec "$dir/$triple/release/$target" -artifact_prefix="artifacts/$target/" "$@" "corpus/$target"
