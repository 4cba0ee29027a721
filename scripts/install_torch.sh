#!/usr/bin/env bash
# Installs a release of torch: install_torch.sh PYTHON RELEASE
#
# PyPI's Linux build brings gigabytes of CUDA, which nothing here uses. The CPU build of 2.13.0, say, has the version
# 2.13.0+cpu, which PyPI never has, so asking for exactly that can't fetch the other. It is looked for in pip's
# configured sources (a company's mirror, a folder of wheels), then at pytorch.org. Only where neither has it does
# plain torch of the configured index go in.
set -euo pipefail
pip=("$1" -m pip --disable-pip-version-check)
torch=torch==$2
cpu_index=https://download.pytorch.org/whl/cpu

if ! "${pip[@]}" install --no-deps "$torch+cpu" 2>/dev/null &&
   ! "${pip[@]}" --timeout 15 --retries 1 install --no-deps --index-url "$cpu_index" "$torch+cpu"; then
  echo "Neither pip's own sources nor $cpu_index has a CPU build of $torch." >&2
  echo "Taking what pip finds, which may be the large CUDA build." >&2
fi
"${pip[@]}" install "$torch"
