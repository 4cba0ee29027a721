#!/usr/bin/env bash
# Makes .venv-integration, where the integration tests run: the torch of .venv, DeepSpeed and Megatron. Does nothing if
# that was done with the same lists.
#
# DeepSpeed twice: the newest in the environment; the last that has 1-bit optimizers in .venv-integration/onebit, for
# PYTHONPATH. Both are built from source against the torch that is there, without kernels but the one that they compile
# when a group is made on CPUs; ranks that wait for each other are no place for that.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-integration
deepspeed=deepspeed==0.19.8
onebit=deepspeed==0.19.6
megatron=megatron-core==0.16.1

exec 9<scripts/install_integration.sh
flock 9
torch=$(.venv/bin/python -c 'import importlib.metadata as m; print(m.version("torch"))')
lists="tests/integration/requirements.txt scripts/install_integration.sh"
key=$({ echo "$torch"; cat $lists; .venv/bin/python -VV; } | sha256sum)
stamp=$venv/.qccl-stamp
if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then exit 0; fi

echo "Setting up DeepSpeed and Megatron in $venv (once, about 250 MB to fetch)"
rm -rf "$venv"
.venv/bin/python -m venv "$venv"
pip=("$venv/bin/python" -m pip --disable-pip-version-check)
"${pip[@]}" install --no-deps "torch==$torch" ||
  "${pip[@]}" install --no-deps --index-url https://download.pytorch.org/whl/cpu "torch==$torch"
"${pip[@]}" install "torch==$torch" -r tests/integration/requirements.txt
export DS_BUILD_OPS=0 DS_ACCELERATOR=cpu
"${pip[@]}" install --no-deps --no-build-isolation "$deepspeed"
"${pip[@]}" install --no-deps --no-build-isolation --target "$venv/onebit" "$onebit"
"${pip[@]}" install --no-deps "$megatron"
PATH=$PWD/$venv/bin:$PATH # with ninja
compile='import deepspeed.accelerator as a; a.get_accelerator().create_op_builder("ShareMemCommBuilder").load()'
TORCH_EXTENSIONS_DIR=$PWD/$venv/compiled "$venv/bin/python" -c "$compile"
TORCH_EXTENSIONS_DIR=$PWD/$venv/onebit-compiled PYTHONPATH=$venv/onebit "$venv/bin/python" -c "$compile"
echo "$key" >"$stamp"
