#!/usr/bin/env bash
# Runs every check of the sources themselves, even after one has failed.
set -uo pipefail
cd "$(dirname "$0")/.."
failed=()

check() {
  local name=$1
  shift
  if "$@"; then
    echo "lint: $name: ok"
  else
    echo "lint: $name: FAILED"
    failed+=("$name")
  fi
}

formatted() {
  local files
  files=$(find include src bindings tools testing tests bench examples \( -name '*.cc' -o -name '*.h' \) 2>/dev/null |
    xargs -d '\n' .venv/bin/clang-format --dry-run 2>&1 | sed -n 's/^\([^:]*\):.*Wclang-format.*/\1/p' | sort -u)
  [ -z "$files" ] || echo "fix with: .venv/bin/clang-format -i" $files
  [ -z "$files" ]
}

check layers .venv/bin/python scripts/check_layers.py
check sizes .venv/bin/python scripts/check_style.py
check "largest parts" .venv/bin/python scripts/report_sizes.py
check clang-format formatted
check ruff .venv/bin/ruff check --quiet --output-format=concise
check mypy .venv/bin/mypy --no-error-summary
[ ${#failed[@]} -eq 0 ]
