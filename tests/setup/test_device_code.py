"""What the build lets into a kernel (cmake/QcclDevice.cmake): functions of the device, and none that CUDA's compiler may
drop a branch of.
"""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

KERNEL = """
#include <{header}>
#include "base/host_device.h"
constexpr unsigned of_the_host(unsigned a) {{ return a + 1; }}
QCCL_HD inline unsigned called(unsigned a, unsigned b) {{ return {call}; }}
__global__ void kernel(unsigned* values) {{ *values = called(values[0], values[1]); }}
"""


@pytest.fixture(scope="module")
def compiler(tmp_path_factory) -> list[str]:
    """The build's nvcc and its flags."""
    script = tmp_path_factory.mktemp("flags") / "flags.cmake"
    script.write_text(f"""
set(PROJECT_SOURCE_DIR {ROOT})
set(CMAKE_CXX_COMPILER c++)
include({ROOT}/cmake/QcclDevice.cmake)
qccl_find_nvcc()
if(NOT QCCL_NVCC)
  message(FATAL_ERROR "${{QCCL_NO_NVCC}}")
endif()
message(STATUS "${{QCCL_NVCC}};${{QCCL_NVCC_FLAGS}}")
""")
    done = subprocess.run(["cmake", "-P", script], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        pytest.skip("no nvcc of CUDA, which scripts/install_cuda.sh installs")
    return done.stdout.removeprefix("-- ").strip().split(";")


def compile_call(compiler: list[str], folder: Path, header: str, call: str) -> subprocess.CompletedProcess:
    source = folder / "kernel.cu"
    source.write_text(KERNEL.format(header=header, call=call))
    command = [*compiler, "-ptx", "-arch=compute_90", source, "-o", folder / "kernel.ptx"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_a_function_that_is_the_devices_too_is_compiled(compiler, tmp_path):
    done = compile_call(compiler, tmp_path, "cstdint", "qccl::lesser(a, b)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("header", "call"),
    [
        ("numeric", "std::gcd(a, b)"),
        ("bit", "static_cast<unsigned>(std::countr_zero(a))"),
        ("algorithm", "std::min(a, b)"),
        ("cstdint", "of_the_host(a)"),
    ],
)
def test_a_function_of_the_host_fails_the_build(compiler, tmp_path, header, call):
    done = compile_call(compiler, tmp_path, header, call)
    assert done.returncode != 0
    assert "is not allowed" in done.stdout + done.stderr
