"""The result of `pip install .`, for a user without the checkout on the path.

The wheel is built as pip builds it without flags, in isolation and against the torch of .venv, except that the build
backend comes from .venv instead of an index. The build folder lies beside build/, where ccache has its objects.
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build-wheel"
BUILD_LIMIT_SECONDS = 1200  # if nothing is cached
LIMIT_SECONDS = 100
BUILD_BACKEND = ("scikit-build-core", "packaging", "pathspec")
FAKE = {"LD_LIBRARY_PATH": str(ROOT / "build" / "fake_cuda")}  # a driver without a GPU
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
pytestmark = pytest.mark.timeout(BUILD_LIMIT_SECONDS + LIMIT_SECONDS)

TRAINING = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

assert "qccl" not in sys.modules
dist.init_process_group("qccl")
model = DistributedDataParallel(torch.nn.Linear(300, 300))
model(torch.randn(8, 300)).square().mean().backward()
os.write(1, f"rank {dist.get_rank()} {sys.modules['qccl'].__file__}\\n".encode())  # in one piece
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def backend_wheels(tmp_path_factory):
    """A folder in which pip finds the build backend: wheels of the packages installed here."""
    folder = tmp_path_factory.mktemp("backend")
    for name in BUILD_BACKEND:
        found = distribution(name)
        with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{found.version}-py3-none-any.whl", "w") as wheel:
            for file in found.files:
                if ".." not in file.parts:
                    wheel.write(file.locate(), str(file))
    return folder


@pytest.fixture(scope="module")
def installed(backend_wheels, tmp_path_factory):
    """The folder into which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [*build_command(backend_wheels, folder), f"--config-settings=build-dir={BUILD}"]
    run([*PIP, *build], timeout=BUILD_LIMIT_SECONDS, CXX="c++")  # CMake's name for it
    (wheel,) = folder.glob("qccl-*.whl")
    site = folder / "site"
    run([*PIP, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)])
    return site


def build_command(backend_wheels, target):
    return ["wheel", "--no-deps", "--no-index", f"--find-links={backend_wheels}", f"--wheel-dir={target}", str(ROOT)]


def run(command, timeout=LIMIT_SECONDS, **variables):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_backend_is_found_by_its_name(installed, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(TRAINING)
    command = [str(installed / "bin" / "qccl"), "run", "-n", "2", "--", sys.executable, str(program)]
    lines = run(command, PYTHONPATH=str(installed)).splitlines()
    assert sorted(line.split()[1] for line in lines) == ["0", "1"]
    assert all(line.split()[2] == str(installed / "qccl" / "__init__.py") for line in lines)


def test_readmes_program_trains(installed, tmp_path):
    program, *_ = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "train.py").write_text(program)
    command = [str(installed / "bin" / "qccl"), "run", "-n", "2", "--", sys.executable, str(tmp_path / "train.py")]
    (line,) = [line for line in run(command, PYTHONPATH=str(installed)).splitlines() if line.startswith("loss")]
    loss, megabytes = map(float, re.fullmatch(r"loss ([\d.]+), ([\d.]+) MB sent", line).groups())
    assert loss < 200, "it begins at about 1400"
    assert megabytes < 20, "uncompressed it is 84"


def test_wheel_wants_the_torch_that_it_was_built_for(installed):
    (metadata,) = installed.glob("qccl-*.dist-info/METADATA")
    required = re.findall(r"^Requires-Dist: ([^;\n]*)$", metadata.read_text(), re.MULTILINE)
    major, minor, *_ = torch.__version__.split(".")
    assert required == [f"torch=={major}.{minor}.*", "numpy"]


def test_build_in_an_environment_without_torch_says_in_one_line_what_to_do(backend_wheels, tmp_path):
    run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")])
    pip = [*PIP, "--python", str(tmp_path / "venv" / "bin" / "python")]
    done = subprocess.run(
        [*pip, *build_command(backend_wheels, tmp_path)],
        cwd="/", capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if "torch" in line]
    assert str(tmp_path / "venv") in line and "install torch there first" in line and "--no-build-isolation" in line
    assert "Traceback" not in done.stderr


def test_wheel_has_package_program_and_entry_points_and_nothing_else(installed):
    files = {path.relative_to(installed) for path in installed.rglob("*") if path.is_file()}
    names = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    modules = {f"qccl/{path.name}" for path in (ROOT / "python" / "qccl").glob("*.py*")}
    (extension,) = {name for name in names if name.endswith(".so")}
    expected = {*modules, "qccl/_built_for.py", "qccl/py.typed", extension, "qccl_autoload.py", "bin/qccl"}
    assert {name for name in names if ".dist-info/" not in name} == expected
    (entry_points,) = installed.glob("qccl-*.dist-info/entry_points.txt")
    for group in ("torch.backends", "torch.distributed.backends"):
        assert f"[{group}]\nqccl=qccl_autoload:register" in entry_points.read_text().replace(" ", "")


# ---- on machines with and without a GPU


def dynamic_section(file: Path) -> tuple[set[str], set[str]]:
    """The libraries that an ELF file needs, without their versions, and the symbols that it takes from them."""
    said = run(["readelf", "--wide", "--dynamic", "--dyn-syms", str(file)])
    needed = {name.split(".so")[0] for name in re.findall(r"\(NEEDED\).*\[(.*)\]", said)}
    return needed, set(re.findall(r" UND ([^@\s]+)", said))


def test_extension_and_program_link_nothing_of_cuda(installed):
    (extension,) = (installed / "qccl").glob("_C.*.so")
    for file in (extension, installed / "bin" / "qccl"):
        needed, symbols = dynamic_section(file)
        torchs = {"libc10", "libtorch", "libtorch_cpu", "libtorch_python"} if file == extension else set()
        system = {"libc", "libm", "libstdc++", "libgcc_s", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
        assert needed <= {*torchs, *system, "libfmt", "libhwy", "libssl", "libcrypto"}
        assert "dlopen" in symbols, "it loads the driver"
        assert [name for name in symbols if re.match("_*(cu[A-Z]|cuda|nvrtc|nvml|nccl)", name)] == []


def said_by_doctor(installed: Path, topic: str, **variables: str) -> str:
    said = run([str(installed / "bin" / "qccl"), "doctor"], **variables)
    return next(line.removeprefix(topic).strip() for line in said.splitlines() if line.startswith(topic))


def test_one_program_finds_the_driver_where_there_is_one(installed):
    assert said_by_doctor(installed, "devices", **FAKE) == "2, driver 12.0 (docs/gpu.md)"
    command = [str(installed / "bin" / "qccl"), "perf", "all_reduce", "-b", "64K", "-e", "64K", "-g", "2", "-n", "1"]
    assert "Fake device 1" in run([*command, "--device", "cuda"], **FAKE)
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert said_by_doctor(installed, "devices").startswith("none: device memory needs NVIDIA's driver: libcuda.so")


def test_kernels_are_for_every_architecture_in_eight_megabytes_where_there_is_a_compiler(installed):
    kernels = said_by_doctor(installed, "device kernels")
    finds_nvcc = subprocess.run(["cmake", "-P", ROOT / "cmake" / "QcclNvcc.cmake"], capture_output=True).returncode == 0
    if not finds_nvcc:
        assert kernels.startswith("none: built without CUDA's nvcc")
        pytest.skip("there is no nvcc: the wheel has no kernels for GPUs")
    assert "PTX, and machine code for sm_75, 80, 86, 89, 90, 100, 120" in kernels
    images = [BUILD / "device_kernels" / name for name in ("cubins.fatbin", "kernels.ptx")]
    assert sum(image.stat().st_size for image in images) < 8 << 20


def test_the_build_for_the_checkout_is_left_alone(installed):
    assert (BUILD / "bindings" / "torch" / "qccl" / "_built_for.py").exists()


def test_package_beside_another_torch_says_what_to_do(installed, tmp_path):
    other = tmp_path / "site"
    shutil.copytree(installed, other)
    (other / "qccl" / "_built_for.py").write_text('TORCH_VERSION = "9.9.0"\n')
    done = subprocess.run(
        [sys.executable, "-c", "import qccl"],
        env={**os.environ, "PYTHONPATH": str(other)}, cwd="/", capture_output=True, text=True, timeout=LIMIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "built for torch 9.9.0 and can't work with torch 2." in last and "pip install ." in last
