#!/usr/bin/env bash
# Makes .venv with requirements.txt in it. Does nothing if that was done with the same lists.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/.qccl-stamp

# Prints the interpreter (the real one, where asked from inside a venv or a shim) if it will do.
check_python='
import os, sys, sysconfig, venv, ensurepip
header = os.path.join(sysconfig.get_path("include"), "Python.h")
if sys.version_info < (3, 10) or not os.path.exists(header): sys.exit(1)
print(getattr(sys, "_base_executable", None) or sys.executable)'

find_python() {
  local candidate
  for candidate in ${QCCL_PYTHON:-python3 /usr/bin/python3}; do
    if "$candidate" -c "$check_python" 2>/dev/null; then return; fi
  done
  echo "No Python 3.10 or later with venv and headers (python3-venv, python3-dev) found." >&2
  echo "Install one, or name one: QCCL_PYTHON=/path/to/python3 make ..." >&2
  return 1
}

exec 9<scripts/install_python.sh  # one at a time: `make demo` and `make test` may start together
flock 9
python=$(find_python)
key=$({ cat requirements.txt scripts/install_python.sh scripts/install_torch.sh; "$python" -VV; } | sha256sum)
if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] && .venv/bin/python -c '' 2>/dev/null; then exit 0; fi

echo "Setting up Python in .venv (once, about 250 MB to fetch)"
rm -rf .venv
"$python" -m venv .venv
scripts/install_torch.sh .venv/bin/python "$(sed -n 's/^torch==\([^ ]*\).*/\1/p' requirements.txt)"
.venv/bin/python -m pip --disable-pip-version-check install -r requirements.txt
echo "$key" >"$stamp"
