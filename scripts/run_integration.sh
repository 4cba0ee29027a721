#!/usr/bin/env bash
# Runs the integration tests: DeepSpeed and Megatron themselves, on CPUs, over the backend.
#
#   run_integration.sh [pytest's arguments]
#
# Run `make build` and scripts/install_integration.sh first.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$PWD/.venv-integration
export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1
export PATH=$venv/bin:$PATH # with ninja
"$venv/bin/python" scripts/link_python.py
failed=0

# run FOLDER [pytest's arguments]
run() {
  local exit=0
  "$venv/bin/python" -m pytest --timeout 600 "$@" || exit=$?
  [ "$exit" -eq 0 ] || [ "$exit" -eq 5 ] || failed=1 # 5: no test has that name
}

echo "=== DeepSpeed, Megatron"
TORCH_EXTENSIONS_DIR=$venv/compiled run tests/integration --ignore tests/integration/onebit "$@"
echo "=== DeepSpeed with 1-bit optimizers"
TORCH_EXTENSIONS_DIR=$venv/onebit-compiled PYTHONPATH=$venv/onebit run tests/integration/onebit "$@"
exit "$failed"
