#!/usr/bin/env bash
# Tests the package with a release of torch, installed as README describes.
#
#   test_torch_release.sh RELEASE [arguments of tests/torch/suite/run.py, which then runs alone]
#
# PYTHON names the interpreter (default: that of .venv). With Python 3.13, say, this makes
# .venv-torch-RELEASE-python3.13 once (up to 6 GB if pip finds only the CUDA build), and builds in
# build-torch-RELEASE-python3.13, the device of the tests in build-torch-RELEASE-python3.13-device.
# Run `make build` first.
set -euo pipefail
cd "$(dirname "$0")/.."
release=$1
shift
base=${PYTHON:-.venv/bin/python}
version=$("$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
pair=torch-$release-python$version
venv=.venv-$pair
python=$venv/bin/python
pip=("$python" -m pip --disable-pip-version-check)
failed=()

key=$({ cat requirements.txt scripts/install_torch.sh; "$base" -VV; } | sha256sum)
if [ "$(cat "$venv/.qccl-stamp" 2>/dev/null)" != "$key" ]; then
  echo "Setting up torch $release with Python $version in $venv (once)"
  rm -rf "$venv"
  "$base" -m venv "$venv"
  scripts/install_torch.sh "$python" "$release"
  grep -v '^torch==' requirements.txt | "${pip[@]}" install -r /dev/stdin
  echo "$key" >"$venv/.qccl-stamp"
fi
CXX=${CXX:-c++} "${pip[@]}" install "--config-settings=build-dir=build-$pair" .
device=build-$pair-device
cmake --preset default -B "$device" -DSKBUILD=ON -DQCCL_TORCH=ON -DQCCL_PYTHON="$(realpath -s "$python")" >/dev/null
scripts/compile.py "$device" qccl_fake_device
export QCCL_FAKE_DEVICE=$PWD/$device/fake_cuda

# run NAME COMMAND...
run() {
  local name=$1
  shift
  echo "=== torch $release, Python $version: $name"
  "$@" || failed+=("$name")
}

if [ $# -gt 0 ]; then
  run "PyTorch's own tests" "$python" tests/torch/suite/run.py "$@"
else
  run "tests of the backend" "$python" -m pytest -q -rs --timeout 300 tests/torch
  run "PyTorch's own tests, 3 ranks" "$python" tests/torch/suite/run.py --passes 100
  run "PyTorch's own tests, every other configuration" "$python" tests/torch/suite/run.py --all
fi
[ ${#failed[@]} -eq 0 ] && echo "torch $release, Python $version: PASSED" && exit
printf "torch $release, Python $version: FAILED: %s\n" "${failed[@]}" >&2
exit 1
