"""A torch with CUDA finds in libqccl_nccl.so every function of NCCL that it imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "build" / "libqccl_nccl.so"
TORCH = Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"
LIMIT_SECONDS = 120

pytestmark = pytest.mark.skipif(not TORCH.exists(), reason="a torch without CUDA imports nothing of NCCL")


def symbols(library: Path, which: str) -> set[str]:
    listed = subprocess.run(
        ["nm", "--dynamic", which, "--format=posix", str(library)],
        text=True, capture_output=True, check=True, timeout=LIMIT_SECONDS,
    ).stdout  # fmt: skip
    return {line.split()[0] for line in listed.splitlines()}


def test_every_function_that_torch_imports_is_there():
    imported = {name for name in symbols(TORCH, "--undefined-only") if name.startswith("nccl")}
    assert "ncclAllReduce" in imported
    assert imported - symbols(LIBRARY, "--defined-only") == set()


def test_torch_loads_with_the_library_in_nccls_place():
    code = (
        "import ctypes, torch; version = ctypes.c_int(); "
        "ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version)); print(version.value)"
    )
    environment = os.environ | {"LD_PRELOAD": str(LIBRARY), "QCCL_NCCL_VERSION": "2.29.1"}
    loaded = subprocess.run(
        [sys.executable, "-c", code], env=environment, text=True, capture_output=True, timeout=LIMIT_SECONDS
    )
    assert (loaded.stdout, loaded.returncode) == ("22901\n", 0), loaded.stderr
