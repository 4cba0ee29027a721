#!/usr/bin/env bash
# install_cuda.sh: installs CUDA's compiler from PyPI (some 300 MB) in .venv-cuda, an environment of its own, where the
# build finds it: the kernels for GPUs are then part of the library. It needs no GPU and no driver.
set -euo pipefail
cd "$(dirname "$0")/.."
release=13.0.*
python=${QCCL_PYTHON:-python3}

[ -x .venv-cuda/bin/python ] || "$python" -m venv .venv-cuda
.venv-cuda/bin/python -m pip --disable-pip-version-check install --quiet \
  "nvidia-cuda-nvcc==$release" "nvidia-nvvm==$release" "nvidia-cuda-crt==$release" "nvidia-cuda-runtime==$release"

home=$(.venv-cuda/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/nvidia/cu13
if [ ! -f "$home/bin/nvcc" ]; then
  echo "The packages hold no $home/bin/nvcc: another release of CUDA has another layout; change this script" >&2
  exit 1
fi
chmod +x "$home"/bin/* "$home"/nvvm/bin/*
ln -sfn "$home" .venv-cuda/nvcc
touch .venv-cuda/installed  # for make, which then lets CMake find it
.venv-cuda/nvcc/bin/nvcc --version | tail -2
