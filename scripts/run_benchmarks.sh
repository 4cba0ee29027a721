#!/usr/bin/env bash
# run_benchmarks.sh [options of Google Benchmark]: runs every program in build/bench and leaves
# its figures beside it, as PROGRAM.json.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$(find build/bench -maxdepth 1 -type f -executable -name '*_bench' | sort)
if [ -z "$programs" ]; then
  echo "No benchmarks in build/bench: run make bench" >&2
  exit 1
fi
for program in $programs; do
  echo "== ${program##*/}"
  "$program" --benchmark_out="$program.json" --benchmark_out_format=json "$@"
done
