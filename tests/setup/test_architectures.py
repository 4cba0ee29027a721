"""The GPUs for which `pip install .` compiles kernels to machine code (cmake/QcclArchitectures.cmake)."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def architectures(folder, wanted, gpus=None):
    """What `wanted` means on a machine whose nvidia-smi answers `gpus`, or that has none."""
    (folder / "ask.cmake").write_text(
        f"cmake_minimum_required(VERSION 3.25)\ninclude({ROOT / 'cmake' / 'QcclArchitectures.cmake'})\n"
        f'qccl_architectures("{wanted}" answer)\nmessage("${{answer}}")\n'
    )
    if gpus is not None:
        smi = folder / "nvidia-smi"
        smi.write_text(f"#!/bin/sh\n{gpus}\n")
        smi.chmod(0o755)
    path = os.pathsep.join([str(folder), "/usr/bin", "/bin"])
    command = [shutil.which("cmake"), "-P", str(folder / "ask.cmake")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={"PATH": path})
    assert done.returncode == 0, done.stderr
    return done.stderr.strip()


@pytest.mark.parametrize(
    ("wanted", "gpus", "means"),
    [
        ("90", "echo 8.0", "90"),
        ("80;90", None, "80;90"),
        ("all", "echo 8.0", "75;80;86;89;90;100;120"),
        ("native", "echo 8.0; echo 12.0; echo 8.0", "80;120"),
        ("native", "echo 6.1", "90"),
        ("native", "echo 'No devices were found'; exit 6", "90"),
        ("native", None, "90"),
    ],
)
def test_architectures(tmp_path, wanted, gpus, means):
    assert architectures(tmp_path, wanted, gpus) == means
