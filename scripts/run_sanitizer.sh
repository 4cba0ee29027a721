#!/usr/bin/env bash
# run_sanitizer.sh asan|tsan [pattern]: builds the C++ tests with the sanitizer and runs them,
# or those whose name contains the pattern.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
pattern=${2:-}
jobs=${JOBS:-$(nproc)}

# GCC 12's and 13's thread sanitizer can't map its shadow if the kernel randomizes addresses by more
# than 28 bits (Ubuntu 24.04 does). Containers may forbid turning that off, and may not need it.
run=()
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then run=(setarch -R); fi

cmake --preset "$preset"
"${run[@]}" cmake --build --preset "$preset" --parallel "$jobs"
"${run[@]}" ctest --preset "$preset" --parallel "$jobs" ${pattern:+-R "$pattern"}
