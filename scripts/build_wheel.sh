#!/usr/bin/env bash
# build_wheel.sh [PYTHON...]: builds a wheel for every supported torch, into dist/, for each of these interpreters
# (default: that of .venv). They need pip and headers, and no torch.
set -euo pipefail
cd "$(dirname "$0")/.."
export QCCL_TORCH_HEADERS=$PWD/.torch-headers
export QCCL_CUDA_ARCHITECTURES=all
export CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)}

.venv/bin/python scripts/fetch_torch_headers.py "$QCCL_TORCH_HEADERS"
for python in "${@:-.venv/bin/python}"; do
  tag=$("$python" -c 'import sys; print(sys.implementation.cache_tag)')
  "$python" -m pip --disable-pip-version-check wheel --verbose --no-deps --wheel-dir dist \
    "--config-settings=build-dir=build-wheel-$tag" .
done
ls -lh dist/*.whl
