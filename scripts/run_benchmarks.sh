#!/usr/bin/env bash
# run_benchmarks.sh [pattern]: runs the programs build/bench/*_bench whose name contains the pattern.
# Their output stays beside them as NAME.txt, the figures of Google Benchmark as NAME.json.
set -euo pipefail
cd "$(dirname "$0")/.."
mapfile -t programs < <(find build/bench -maxdepth 1 -type f -executable -name "*${1:-}*_bench" 2>/dev/null | sort)
if [ ${#programs[@]} -eq 0 ]; then
  echo "build/bench has no benchmark with \"${1:-}\" in its name: bench/ has their sources" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  echo "== ${program##*/}"
  BENCHMARK_OUT="$program.json" BENCHMARK_OUT_FORMAT=json "$program" 2>&1 | tee "$program.txt"
done
