#!/usr/bin/env bash
# Runs the integration tests: DeepSpeed, Megatron and the libraries of docs/clients themselves, on CPUs, over qccl.
#
#   run_integration.sh [pytest's arguments]
#
# Builds what they start, and makes their environments once (scripts/install_integration.sh). Run `make setup` first.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build_python.sh example_interface
scripts/install_integration.sh
venv=$PWD/.venv-integration
export DS_ACCELERATOR=cpu OMP_NUM_THREADS=1
export PATH=$venv/bin:$PATH # with ninja
failed=0
arguments=$#

# run VENV FOLDER [pytest's arguments]
run() {
  local python=$1/bin/python exit=0
  shift
  "$python" scripts/link_python.py
  "$python" -m pytest --timeout 600 "$@" || exit=$?
  [ "$exit" -eq 5 ] && [ "$arguments" -gt 0 ] && return # 5: the arguments choose none of these tests
  [ "$exit" -eq 0 ] || failed=1
}

echo "=== DeepSpeed, Megatron"
TORCH_EXTENSIONS_DIR=$venv/compiled run "$venv" tests/integration --ignore tests/integration/onebit \
  --ignore tests/integration/clients "$@"
echo "=== DeepSpeed with 1-bit optimizers"
TORCH_EXTENSIONS_DIR=$venv/onebit-compiled PYTHONPATH=$venv/onebit run "$venv" tests/integration/onebit "$@"
echo "=== The libraries of docs/clients"
run .venv-clients tests/integration/clients "$@"
exit "$failed"
