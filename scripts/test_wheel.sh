#!/usr/bin/env bash
# Tests the wheel of `make wheel` with releases of torch, each in a fresh environment that is deleted at the end.
#
#   test_wheel.sh [RELEASE...]     default: 2.11.0 2.13.0 2.15.0 (3 GB each if pip finds only the CUDA build)
#
# PYTHON names the interpreter (default: that of .venv), for which dist/ has a wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- 2.11.0 2.13.0 2.15.0
base=${PYTHON:-.venv/bin/python}
tag=$("$base" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
wheel=$(ls -t "$PWD"/dist/qccl-*-"$tag"-*.whl 2>/dev/null | head -n 1) || true
[ -n "$wheel" ] || { echo "There is no wheel for $tag in dist/: run \`make wheel\`" >&2; exit 1; }
checkout=$PWD
scratch=$(mktemp -d -p . .venv-wheel-XXXXXX)
trap 'rm -rf "$checkout/$scratch"' EXIT

for release in "$@"; do
  echo "=== torch $release, $tag"
  venv=$checkout/$scratch/$release
  "$base" -m venv "$venv"
  scripts/install_torch.sh "$venv/bin/python" "$release"
  "$venv/bin/python" -m pip --disable-pip-version-check install "$wheel"
  cd "$scratch"  # away from the checkout's package
  "$venv/bin/python" -c 'import torch, qccl; print(torch.__version__, qccl._C.__file__)'
  kernels=$("$venv/bin/qccl" doctor | grep '^device kernels' || true)
  echo "$kernels"
  case $kernels in
    *"none: built without"* | *"sm_75, 80, 86, 89, 90, 100, 120"*) ;;
    *) echo "The wheel lacks machine code for some architectures" >&2; exit 1 ;;
  esac
  for example in all_reduce ddp; do
    timeout 300 "$venv/bin/qccl" run -n 2 -- "$venv/bin/python" "$checkout/examples/torch/$example.py"
  done
  cd "$checkout"
  rm -rf "$venv"
done
echo "PASSED: $(basename "$wheel") with torch $*"
