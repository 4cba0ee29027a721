#!/usr/bin/env bash
# Makes the environments where the integration tests run, each with the torch of .venv: .venv-integration with DeepSpeed
# and Megatron, .venv-clients with the libraries of docs/clients. Does nothing if that was done with the same lists.
#
# DeepSpeed twice: the newest in the environment; the last that has 1-bit optimizers in .venv-integration/onebit, for
# PYTHONPATH. Both are built from source against the torch that is there, without kernels but the one that they compile
# when a group is made on CPUs; ranks that wait for each other are no place for that.
set -euo pipefail
cd "$(dirname "$0")/.."
deepspeed=deepspeed==0.19.8
onebit=deepspeed==0.19.6
megatron=megatron-core==0.16.1

exec 9<scripts/install_integration.sh
flock 9
torch=$(.venv/bin/python -c 'import importlib.metadata as m; print(m.version("torch"))')

# is_made VENV LIST: whether the environment was made with this list; if not, sets `key` for the stamp of the new one.
is_made() {
  key=$({ echo "$torch"; cat "$2" scripts/install_integration.sh; .venv/bin/python -VV; } | sha256sum)
  [ "$(cat "$1/.qccl-stamp" 2>/dev/null)" = "$key" ]
}

# make VENV LIST: a new environment with torch and the list, in which nothing may bring another torch; sets `pip`.
make() {
  rm -rf "$1"
  .venv/bin/python -m venv "$1"
  pip=("$1/bin/python" -m pip --disable-pip-version-check)
  "${pip[@]}" install --no-deps "torch==$torch" ||
    "${pip[@]}" install --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$torch"
  "${pip[@]}" install "torch==$torch" -r "$2"
}

venv=.venv-clients
list=tests/integration/clients/requirements.txt
if ! is_made "$venv" "$list"; then
  echo "Setting up the libraries of docs/clients in $venv (once, about 700 MB to fetch)"
  make "$venv" "$list"
  echo "$key" >"$venv/.qccl-stamp"
fi

venv=.venv-integration
list=tests/integration/requirements.txt
if is_made "$venv" "$list"; then exit 0; fi
echo "Setting up DeepSpeed and Megatron in $venv (once, about 250 MB to fetch)"
make "$venv" "$list"
export DS_BUILD_OPS=0 DS_ACCELERATOR=cpu
"${pip[@]}" install --no-deps --no-build-isolation "$deepspeed"
"${pip[@]}" install --no-deps --no-build-isolation --target "$venv/onebit" "$onebit"
"${pip[@]}" install --no-deps "$megatron"
PATH=$PWD/$venv/bin:$PATH # with ninja
compile='import deepspeed.accelerator as a; a.get_accelerator().create_op_builder("ShareMemCommBuilder").load()'
TORCH_EXTENSIONS_DIR=$PWD/$venv/compiled "$venv/bin/python" -c "$compile"
TORCH_EXTENSIONS_DIR=$PWD/$venv/onebit-compiled PYTHONPATH=$venv/onebit "$venv/bin/python" -c "$compile"
echo "$key" >"$venv/.qccl-stamp"
