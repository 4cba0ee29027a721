#!/usr/bin/env bash
# pack_gpu.sh [TORCH]: makes build-gpu/, all that `make gpu ARGS="--first-contact"` needs on a machine that has a GPU
# and a torch with CUDA, but no network and no packages: stripped programs with kernels for sm_90, the Python package
# with its extension for that torch and Python, and shared libraries that such a machine may lack. At most 40 MiB.
#
#   scripts/pack_gpu.sh              for torch 2.11.0 and Python 3.12
#   scripts/pack_gpu.sh 2.13.0       for another torch; PYTHON=python3.13 names another Python
#
# The Python needs headers, and no torch. Take the checkout with build-gpu/ to the other machine; build/ can stay.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=${1:-2.11.0}
pack=build-gpu
limit=$((40 << 20))
programs=(qccl libqccl_nccl.so bench/gpu_kernels bench/gpu_ranks bench/gpu_gates tests/gpu_tests
  tests/nccl/conformance/gpu_nccl)
targets=(qccl_program qccl_nccl gpu_kernels gpu_ranks gpu_gates gpu_tests gpu_nccl)

has_headers() {
  local include
  include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null) && [ -f "$include/Python.h" ]
}

# The interpreter to build for: PYTHON, or one of 3.12 in PATH or of pyenv's.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.12 $HOME/.pyenv/versions/3.12*/bin/python3.12}; do
    if has_headers "$candidate"; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  echo "There is no ${PYTHON:-python3.12} with headers: install one (its -dev package), or name one with PYTHON=" >&2
  return 1
}

# Those that programs link, but for the C and C++ runtimes, which every machine with torch has.
libraries_of() {
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -Ev '/(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|libnccl|libcuda)\.so'
}

python=$(find_python)
cmake -P cmake/QcclNvcc.cmake
.venv/bin/python scripts/fetch_torch_headers.py .torch-headers "$torch"
scripts/build_python.sh "${targets[@]}"
cmake -S . -B build -DQCCL_DEVICES=ON -DQCCL_DEVICE_KERNELS=ON -DQCCL_PACKED_PYTHON="$python" \
  -DQCCL_PACKED_TORCH="$PWD/.torch-headers/${torch%.*}" >/dev/null
scripts/compile.py build "${targets[@]}" qccl_torch_packed

rm -rf $pack
for program in "${programs[@]}"; do
  mkdir -p "$pack/$(dirname "$program")"
  strip -o "$pack/$program" "build/$program"
done
mkdir -p $pack/nccl $pack/lib
ln -s ../libqccl_nccl.so $pack/nccl/libnccl.so.2
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
extension=qccl/torch_${torch%.*}/_C$suffix
mkdir -p "$pack/python/$(dirname "$extension")"
cp python/*.py $pack/python
cp python/qccl/*.py $pack/python/qccl
strip -o "$pack/python/$extension" "build/packed/$extension"
(cd build && libraries_of "${programs[@]}" "packed/$extension") | xargs cp --dereference --target-directory=$pack/lib
.venv/bin/python scripts/link_python.py $pack/python

bytes=$(du --bytes --summarize $pack | cut -f1)
du --human-readable --apparent-size $pack/* $pack/lib/*
if [ "$bytes" -gt $limit ]; then
  echo "$pack has $bytes bytes, more than $limit" >&2
  exit 1
fi
echo "$pack: $((bytes >> 20)) MiB, for torch ${torch%.*} and $("$python" --version). On the machine with the GPU:"
echo "  python3 scripts/run_gpu.py --first-contact --out FOLDER"
