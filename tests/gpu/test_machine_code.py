"""The machine code in the library: how kernels use registers, stack and memory, and that nothing is rounded less often.

The disassembler counts instructions; it runs none. A fused operation that the compiler makes of a product and a sum is
one too many beside those of divisions and roots. It does not see which instructions run how often, nor what drivers
make of the PTX for other architectures (kernels_test.cc reads that).
"""

import re
import subprocess
from pathlib import Path

import machine_code
import pytest
from machine_code import Cubin, Function, Usage
from program import DEVICES

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "build" / "device_kernels" / "cubins.fatbin"
KERNELS = ("own_type", "raw", "cast", "minmax", "block_int", "sign", "grid", "grid_forms")

# For sm_90: at most so many registers, bytes of stack and stores to it; at least so many loads and stores of 16 bytes.
# `python tests/gpu/machine_code.py` prints what they are.
LIMITS = {
    "qccl_own_type": (56, 64, 0, 21, 42),
    "qccl_raw": (216, 32, 0, 36, 48),
    "qccl_cast": (216, 32, 0, 28, 32),
    "qccl_minmax": (216, 32, 0, 28, 29),
    "qccl_block_int": (216, 32, 0, 28, 29),
    "qccl_sign": (240, 32, 0, 28, 29),
    "qccl_grid": (255, 32, 0, 28, 29),
    "qccl_grid_forms": (216, 32, 0, 28, 0),
}


def nvcc() -> str:
    found = re.search(r"^QCCL_NVCC:FILEPATH=(.*)$", (ROOT / "build" / "CMakeCache.txt").read_text(), re.MULTILINE)
    if not DEVICES or found is None or not Path(found[1]).exists() or not IMAGE.exists():
        pytest.skip("built without CUDA's nvcc")
    return found[1]


@pytest.fixture(scope="module")
def cubins() -> list[Cubin]:
    nvcc()
    return machine_code.read(IMAGE)


def wrong_fusions(functions: dict[str, Function]) -> dict[str, str]:
    """The functions with more fused operations than their divisions and roots have. ptxas leaves out those of a
    division whose result is needed only where the slow path is taken."""
    own = [each for each in functions.values() if not each.is_of_compiler]
    wrong = [each for each in own if any(a > b for a, b in zip(each.fused, each.fused_by_divisions, strict=True))]
    return {each.name: f"{each.fused} instead of {each.fused_by_divisions}" for each in wrong}


def exceeding(usage: Usage, body: Function, limits: tuple[int, int, int, int, int]) -> str:
    registers, stack, spills, loads, stores = limits
    too_many = usage.registers > registers or usage.stack > stack or body.spills > spills
    too_few = body.wide_loads < loads or body.wide_stores < stores
    found = (usage.registers, usage.stack, body.spills, body.wide_loads, body.wide_stores)
    return f"{found}, the limits are {limits}" if too_many or too_few else ""


def test_the_image_that_is_read_is_the_one_in_the_program(cubins):
    assert IMAGE.read_bytes() in (ROOT / "build" / "qccl").read_bytes()
    for cubin in cubins:
        assert set(cubin.usage) == {f"qccl_{name}" for name in KERNELS}, cubin.architecture


def test_no_operation_is_fused_outside_of_divisions_and_roots(cubins):
    assert {cubin.architecture: wrong_fusions(cubin.functions) for cubin in cubins} == {
        cubin.architecture: {} for cubin in cubins
    }
    divisions = sum(sum(each.called.values()) for cubin in cubins for each in cubin.functions.values())
    assert divisions > 100 * len(cubins)


def test_kernels_keep_to_their_registers_and_stack_and_use_16_bytes_at_once(cubins):
    found = {cubin.architecture: cubin for cubin in cubins}
    if "sm_90" not in found:
        pytest.skip("built without machine code for sm_90")
    cubin = found["sm_90"]
    assert set(cubin.usage) == set(LIMITS)
    broken = {name: exceeding(cubin.usage[name], cubin.functions[name], limits) for name, limits in LIMITS.items()}
    assert broken == {name: "" for name in LIMITS}


PLANTED = r"""
extern "C" __global__ void planted(const float* a, const double* b, float* out, double* wide) {
  const int i = threadIdx.x;
  float local[40];
  for (int k = 0; k < 40; ++k) local[k] = a[k];
  out[i] = a[i] / a[i + 1] + local[i % 40];
  wide[i] = b[i] * b[i + 1] / 3 + sqrt(b[i + 2]);
#if defined(FUSES)
  out[i + 1] = __fmaf_rn(a[i], a[i + 1], a[i + 2]);
#elif defined(FUSES_WIDE)
  wide[i + 1] = __fma_rn(b[i], b[i + 1], b[i + 2]);
#endif
}
"""


@pytest.mark.parametrize(("define", "is_wrong"), [("", False), ("FUSES", True), ("FUSES_WIDE", True)])
def test_one_fused_operation_beside_divisions_and_roots_is_found(tmp_path, define, is_wrong):
    compiler = nvcc()
    (tmp_path / "planted.cu").write_text(PLANTED)
    flags = ["-cubin", "-arch=sm_90", "-fmad=false", "-prec-div=true", "-prec-sqrt=true", f"-D{define or 'PLAIN'}"]
    image = tmp_path / "planted.sm_90.cubin"
    subprocess.run([compiler, *flags, tmp_path / "planted.cu", "-o", image], check=True, timeout=100)
    (cubin,) = machine_code.read(image)
    body = cubin.functions["planted"]
    assert set(wrong_fusions(cubin.functions)) == ({"planted"} if is_wrong else set())
    assert body.spills > 0 and cubin.usage["planted"].stack >= 160
    assert "(" in exceeding(cubin.usage["planted"], body, (255, 0, 1000, 0, 0))
    assert "(" in exceeding(cubin.usage["planted"], body, (255, 1000, 1000, 1000, 0))
