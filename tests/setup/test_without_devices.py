"""A build without devices (-DQCCL_DEVICES=OFF): a library and a program that know of none."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["DEVICES", "TESTS", "TESTING", "BENCHMARKS", "EXAMPLES"]
BUILD_SECONDS = 1200  # without a compiler cache

pytestmark = pytest.mark.timeout(BUILD_SECONDS + 100)


def run(*command: object, seconds: int = 120, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in command], env=os.environ | variables, capture_output=True, text=True, timeout=seconds
    )


@pytest.fixture(scope="module")
def built() -> Path:
    """The build's folder, beside build/, so that ccache finds that one's objects: most are the same."""
    folder = ROOT / "build-without-devices"
    off = [f"-DQCCL_{name}=OFF" for name in OPTIONS]
    done = run("cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *off)
    assert done.returncode == 0, done.stderr
    done = run("cmake", "--build", folder, "--target", "qccl_program", "qccl_nccl", seconds=BUILD_SECONDS)
    assert done.returncode == 0, done.stdout[-4000:]
    return folder


def test_the_library_has_nothing_of_them(built):
    folders = {path.name for path in (built / "src" / "CMakeFiles").glob("qccl_*.dir")}
    assert "qccl_no_devices.dir" in folders and not folders & {"qccl_device.dir", "qccl_device_engine.dir"}


def test_calls_on_host_memory_are_the_same(built):
    done = run(built / "qccl", "perf", "all_reduce", "-b", "4K", "-e", "1M", "-f", "16", "-g", "2", "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# Out of bounds values : 0 OK" in done.stdout


def test_those_on_device_memory_say_why_they_are_refused(built):
    done = run(built / "qccl", "perf", "all_reduce", "-g", "2", "--device", "cuda")
    assert done.returncode != 0
    assert "built without devices; build it with QCCL_DEVICES=ON, or" in done.stderr
    assert "built without devices (QCCL_DEVICES=OFF)" in run(built / "qccl", "doctor").stdout
