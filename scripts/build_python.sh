#!/usr/bin/env bash
# build_python.sh [TARGET...]: builds the Python extension into python/qccl/, and CMake's TARGETs with it, and makes
# `import qccl` work in .venv, straight from this checkout. QCCL_VENV names another virtual environment, QCCL_BUILD
# another build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(realpath "${QCCL_VENV:-.venv}")
build=${QCCL_BUILD:-build}
python=$venv/bin/python

if [ ! -x "$python" ]; then
  echo "There is no Python at $python: run \`make build\`, which makes .venv, or set QCCL_VENV" >&2
  exit 1
fi

[ -f "$build/build.ninja" ] || cmake --preset default -B "$build"
torch=$("$python" -c 'import importlib.metadata as m; print(m.version("torch"))')
stamp="$python $torch"
if [ "$(cat "$build/qccl_torch.stamp" 2>/dev/null)" != "$stamp" ]; then
  cmake -S . -B "$build" -DQCCL_TORCH=ON -DQCCL_PYTHON="$python" >/dev/null
  echo "$stamp" >"$build/qccl_torch.stamp"
fi
scripts/compile.py "$build" qccl_torch "$@"
"$python" scripts/link_python.py
"$python" -c 'import qccl'
